//! LISTAGG and ARRAY_AGG: the values of a group by arrival.
//!
//! A state is one run of bytes: texts with the separator between them, or values in Arrow's row
//! encoding with their lengths next to them. Merging appends, so it is associative and does not
//! commute: rows must come in order ([`AggregateCall::is_exact`](super::AggregateCall::is_exact)).
//!
//! What may be retracted is in `running`.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_row::{RowConverter, SortField};
use arrow_schema::FieldRef;
use thalweg_core::{DataType, Error, Result};

use super::extremes::{BytesKind, as_rows};
use super::fold::Fold;
use super::state::elements_of;
use super::values::nulls;
use super::{StateRows, UpdateInput};

/// The most bytes of one text, which Arrow's views count in 32 bits.
const TEXT_BYTES_MAX: usize = i32::MAX as usize;

/// Fails if a text of this many bytes is too long for a column.
pub(super) fn check_text(bytes: usize) -> Result<()> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::data("LISTAGG gives a text of more than 2 GiB")
        .hint("aggregate fewer rows: per window, or with FILTER (WHERE …)"))
}

/// LISTAGG.
pub(super) struct JoinedTexts {
    separator: Box<[u8]>,
}

impl JoinedTexts {
    pub fn new(separator: &str) -> Self {
        JoinedTexts { separator: separator.as_bytes().into() }
    }

    fn push(&self, group: &mut Option<Vec<u8>>, text: &[u8]) {
        match group {
            None => *group = Some(text.to_vec()),
            Some(joined) => {
                joined.extend_from_slice(&self.separator);
                joined.extend_from_slice(text);
            }
        }
    }
}

impl Fold for JoinedTexts {
    type Group = Option<Vec<u8>>;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [Self::Group], input: &UpdateInput<'_>) -> Result<()> {
        BytesKind::Text.for_each(input, |id, text, _| self.push(&mut groups[id], text))
    }
    fn merge(&self, into: &mut Self::Group, from: &Self::Group) {
        if let Some(text) = from {
            self.push(into, text);
        }
    }
    fn evaluate(&self, groups: &[Self::Group], ids: &[u32]) -> Result<ArrayRef> {
        let texts = || ids.iter().map(|&id| groups[id as usize].as_deref());
        texts().flatten().try_for_each(|text| check_text(text.len()))?;
        Ok(BytesKind::Text.array(texts()))
    }
    fn restore(&self, groups: &mut [Self::Group], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.update(groups, &as_rows(ids, rows.column("", &BytesKind::Text.arrow())?))
    }
    fn heap_bytes(&self, group: &Self::Group) -> usize {
        group.as_ref().map_or(0, Vec::capacity)
    }
}

/// How arrays are put together from their elements.
pub(super) struct ListBuilder {
    element: FieldRef,
    lengths: Vec<usize>,
}

impl ListBuilder {
    /// Arrays of this type of values, which may be NULL.
    pub fn new(argument: &DataType) -> Self {
        let element = argument.clone().nullable().field("item");
        ListBuilder { element: Arc::new(element), lengths: Vec::new() }
    }
    /// The next array has this many elements. One without any is NULL: there were no rows.
    pub fn push(&mut self, length: usize) {
        self.lengths.push(length);
    }
    /// The arrays, which divide these elements among them.
    pub fn finish(self, elements: ArrayRef) -> Result<ArrayRef> {
        let total: usize = self.lengths.iter().sum();
        if i32::try_from(total).is_err() {
            return Err(Error::data("ARRAY_AGG gives more than 2^31 elements at once")
                .hint("aggregate fewer rows: per window, or with FILTER (WHERE …)"));
        }
        let valid: NullBuffer = self.lengths.iter().map(|&length| length > 0).collect();
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(ListArray::try_new(self.element, offsets, elements, Some(valid))?))
    }
}

/// ARRAY_AGG.
pub(super) struct Elements {
    argument: DataType,
    skips_nulls: bool,
    converter: RowConverter,
}

/// Values, one behind the other.
#[derive(Clone, Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Elements {
    pub fn new(argument: &DataType, skips_nulls: bool) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(argument.arrow())])?;
        Ok(Elements { argument: argument.clone(), skips_nulls, converter })
    }
}

impl Fold for Elements {
    type Group = Encoded;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [Encoded], input: &UpdateInput<'_>) -> Result<()> {
        let column = crate::keys::select(input.column()?, input.rows)?;
        let encoded = self.converter.convert_columns(&[ArrayRef::clone(&column)])?;
        let valid = nulls(&column).filter(|_| self.skips_nulls);
        for (place, &id) in input.ids.iter().enumerate() {
            if valid.is_none_or(|nulls| nulls.is_valid(place)) {
                let row = encoded.row(place);
                let group = &mut groups[id as usize];
                group.bytes.extend_from_slice(row.data());
                group.lengths.push(row.data().len() as u32);
            }
        }
        Ok(())
    }
    fn merge(&self, into: &mut Encoded, from: &Encoded) {
        into.bytes.extend_from_slice(&from.bytes);
        into.lengths.extend_from_slice(&from.lengths);
    }
    fn evaluate(&self, groups: &[Encoded], ids: &[u32]) -> Result<ArrayRef> {
        let mut lists = ListBuilder::new(&self.argument);
        let mut rows = Vec::new();
        let parser = self.converter.parser();
        for &id in ids {
            let Encoded { bytes, lengths } = &groups[id as usize];
            lists.push(lengths.len());
            let mut rest = &bytes[..];
            for &length in lengths {
                let (row, behind) = rest.split_at(length as usize);
                rows.push(parser.parse(row));
                rest = behind;
            }
        }
        lists.finish(self.converter.convert_rows(rows)?.swap_remove(0))
    }
    fn restore(&self, groups: &mut [Encoded], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let lists = rows.lists("", &self.argument.arrow())?;
        let (elements, ids) = elements_of(lists, ids);
        self.update(groups, &as_rows(&ids, &elements))
    }
    fn heap_bytes(&self, group: &Encoded) -> usize {
        group.bytes.capacity() + group.lengths.capacity() * 4
    }
}
