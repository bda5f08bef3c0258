//! MIN, MAX, FIRST_VALUE and LAST_VALUE of strings, binaries and booleans that are only inserted:
//! one kept value per group, whose buffer is used again.
//!
//! Retractions need another form: once a value was replaced it is not known any more (`ranked`,
//! `sequence`).

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use thalweg_core::{Error, Result};

use super::super::extremes::{BytesKind, Choice, ChosenBytes};
use super::super::{StateColumns, StateRows};
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;

/// Builds a column from bytes.
pub(in crate::aggregate) enum BytesBuilder {
    Boolean(BooleanBuilder),
    Text(StringViewBuilder),
    Binary(BinaryBuilder),
}

impl BytesBuilder {
    pub fn new(kind: BytesKind, values: usize) -> Self {
        match kind {
            BytesKind::Boolean => BytesBuilder::Boolean(BooleanBuilder::with_capacity(values)),
            BytesKind::Text => BytesBuilder::Text(StringViewBuilder::with_capacity(values)),
            BytesKind::Binary => BytesBuilder::Binary(BinaryBuilder::new()),
        }
    }
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<()> {
        match self {
            BytesBuilder::Boolean(builder) => builder.append_option(value.map(|v| v == [1])),
            BytesBuilder::Binary(builder) => builder.append_option(value),
            BytesBuilder::Text(builder) => {
                let text = value.map(std::str::from_utf8).transpose();
                builder.append_option(text.map_err(|_| Error::internal("text that is none"))?);
            }
        }
        Ok(())
    }
    pub fn finish(self) -> ArrayRef {
        match self {
            BytesBuilder::Boolean(mut builder) => Arc::new(builder.finish()),
            BytesBuilder::Text(mut builder) => Arc::new(builder.finish()),
            BytesBuilder::Binary(mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// Reads values of a column as bytes.
pub(in crate::aggregate) fn bytes_at(kind: BytesKind, column: &ArrayRef, row: usize) -> &[u8] {
    match kind {
        BytesKind::Boolean if column.as_boolean().value(row) => &[1],
        BytesKind::Boolean => &[0],
        BytesKind::Text => column.as_string_view().value(row).as_bytes(),
        BytesKind::Binary => column.as_binary::<i32>().value(row),
    }
}

/// The kept values of all groups.
pub(in crate::aggregate) struct BytesColumn {
    kind: BytesKind,
    choice: Choice,
    groups: Vec<ChosenBytes>,
    /// What the buffers of the values take.
    heap_bytes: usize,
}

impl BytesColumn {
    pub fn new(kind: BytesKind, choice: Choice) -> Self {
        BytesColumn { kind, choice, groups: Vec::new(), heap_bytes: 0 }
    }
}

impl RunningAggregate for BytesColumn {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = input.column()?;
        let taken = input.taken();
        let mut pairs = BytesBuilder::new(self.kind, input.ids.len() * 2);
        for (place, &id) in input.ids.iter().enumerate() {
            let group = &mut self.groups[id as usize];
            if input.step(place).begins() {
                group.clear();
            }
            pairs.push(group.get())?;
            if is_taken(taken.as_ref(), place) {
                let before = group.heap_bytes();
                group.offer(bytes_at(self.kind, column, place), self.choice);
                self.heap_bytes += group.heap_bytes() - before;
            }
            pairs.push(group.get())?;
        }
        Ok(pairs.finish())
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            let group = std::mem::take(&mut self.groups[id as usize]);
            self.heap_bytes -= group.heap_bytes();
        }
    }
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<ChosenBytes>() + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        columns.add("", self.kind.array(ids.iter().map(|&id| self.groups[id as usize].get())));
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let column = rows.column("", &self.kind.arrow())?;
        for (row, &id) in ids.iter().enumerate().filter(|&(row, _)| column.is_valid(row)) {
            let group = &mut self.groups[id as usize];
            self.heap_bytes -= group.heap_bytes();
            group.offer(bytes_at(self.kind, column, row), self.choice);
            self.heap_bytes += group.heap_bytes();
        }
        Ok(())
    }
}
