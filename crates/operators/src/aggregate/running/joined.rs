//! LISTAGG row by row: the joined texts of each group.
//!
//! A result grows with every row, and a run asks for it before and after each. So results of a run
//! share their bytes: each group has a *log* that only grows within a run, and every result is a
//! stretch of it: more text appends to it, and what is retracted from the front moves its begin.
//! Only what is retracted elsewhere writes the text again behind the log. At the end of a run logs
//! are copied into the result, and cut to what is current.
//!
//! Of several equal texts the oldest is given back; one that is not there is ignored.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_buffer::Buffer;
use thalweg_core::{Error, Result};

use super::super::extremes::BytesKind;
use super::super::lists::check_text;
use super::super::state::{elements_of, lists};
use super::super::{StateColumns, StateRows};
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;

/// The texts of a group.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    /// Where the current text begins; it ends with the log.
    begin: usize,
    /// The lengths of the texts in it.
    lengths: VecDeque<u32>,
    /// True if a result of this run lies in it.
    touched: bool,
    /// Which block of the results it became.
    block: u32,
}

/// A result: none, or a stretch of a group's log.
#[derive(Clone, Copy)]
struct TextStretch {
    id: u32,
    range: Option<(u32, u32)>,
}

impl Log {
    fn push(&mut self, text: &[u8], separator: &[u8]) {
        if self.lengths.is_empty() {
            self.begin = self.bytes.len();
        } else {
            self.bytes.extend_from_slice(separator);
        }
        self.bytes.extend_from_slice(text);
        self.lengths.push_back(text.len() as u32);
    }

    /// Takes the first such text out.
    fn remove(&mut self, text: &[u8], separator: &[u8]) {
        let mut at = self.begin;
        let found = self.lengths.iter().position(|&length| {
            let end = at + length as usize;
            let is_found = self.bytes[at..end] == *text;
            if !is_found {
                at = end + separator.len();
            }
            is_found
        });
        let Some(place) = found else { return };
        self.lengths.remove(place);
        let behind = at + text.len();
        if place == 0 {
            self.begin = (behind + separator.len()).min(self.bytes.len());
            return;
        }
        let (begin, end) = (self.begin, self.bytes.len());
        self.begin = end;
        self.bytes.extend_from_within(begin..at - separator.len());
        self.bytes.extend_from_within(behind..end);
    }

    fn clear(&mut self) {
        self.lengths.clear();
        self.begin = self.bytes.len();
    }

    fn stretch(&self, id: u32) -> Result<TextStretch> {
        check_text(self.bytes.len())?;
        let range = (self.begin as u32, self.bytes.len() as u32);
        Ok(TextStretch { id, range: (!self.lengths.is_empty()).then_some(range) })
    }

    /// Forgets what is not current.
    fn cut(&mut self) {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        self.touched = false;
    }

    /// The texts one by one.
    fn texts(&self, separator: usize) -> impl Iterator<Item = &[u8]> {
        let mut at = self.begin;
        self.lengths.iter().map(move |&length| {
            let text = &self.bytes[at..at + length as usize];
            at += length as usize + separator;
            text
        })
    }

    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.lengths.capacity() * 4
    }
}

/// The joined texts of all groups.
pub(in crate::aggregate) struct Joined {
    separator: Box<[u8]>,
    groups: Vec<Log>,
    heap_bytes: usize,
}

impl Joined {
    pub fn new(separator: &str) -> Self {
        let separator = separator.as_bytes().into();
        Joined { separator, groups: Vec::new(), heap_bytes: 0 }
    }

    /// The stretches as texts.
    fn texts(&mut self, stretches: &[TextStretch], touched: &[u32]) -> Result<ArrayRef> {
        let mut texts = StringViewBuilder::with_capacity(stretches.len());
        for &id in touched {
            let log = &mut self.groups[id as usize];
            log.block = texts.append_block(Buffer::from_slice_ref(&log.bytes));
        }
        for TextStretch { id, range } in stretches {
            match range {
                None => texts.append_null(),
                Some((begin, end)) => texts
                    .try_append_view(self.groups[*id as usize].block, *begin, end - begin)
                    .map_err(|_| Error::internal("a text that is none"))?,
            }
        }
        Ok(Arc::new(texts.finish()))
    }
}

impl RunningAggregate for Joined {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let texts = input
            .column()?
            .as_string_view_opt()
            .ok_or_else(|| Error::internal("LISTAGG of a column that is no text"))?;
        let taken = input.taken();
        let mut stretches = Vec::with_capacity(input.ids.len() * 2);
        let mut touched = Vec::new();
        for (place, &id) in input.ids.iter().enumerate() {
            let log = &mut self.groups[id as usize];
            if !log.touched {
                log.touched = true;
                self.heap_bytes -= log.heap_bytes();
                touched.push(id);
            }
            let step = input.step(place);
            if step.begins() {
                log.clear();
            }
            stretches.push(log.stretch(id)?);
            if is_taken(taken.as_ref(), place) {
                let text = texts.value(place).as_bytes();
                match step.retracts() {
                    true => log.remove(text, &self.separator),
                    false => log.push(text, &self.separator),
                }
            }
            stretches.push(log.stretch(id)?);
        }
        let results = self.texts(&stretches, &touched)?;
        for id in touched {
            let log = &mut self.groups[id as usize];
            log.cut();
            self.heap_bytes += log.heap_bytes();
        }
        Ok(results)
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            let log = std::mem::take(&mut self.groups[id as usize]);
            self.heap_bytes -= log.heap_bytes();
        }
    }
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Log>() + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let logs = || ids.iter().map(|&id| &self.groups[id as usize]);
        let separator = self.separator.len();
        let texts = logs().flat_map(|log| log.texts(separator)).map(Some);
        let lengths = logs().map(|log| log.lengths.len()).collect();
        columns.add("", lists(lengths, BytesKind::Text.array(texts))?);
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let (texts, owners) = elements_of(rows.lists("", &BytesKind::Text.arrow())?, ids);
        for (id, text) in owners.into_iter().zip(texts.as_string_view()) {
            let log = &mut self.groups[id as usize];
            self.heap_bytes -= log.heap_bytes();
            log.push(text.unwrap_or_default().as_bytes(), &self.separator);
            self.heap_bytes += log.heap_bytes();
        }
        Ok(())
    }
}
