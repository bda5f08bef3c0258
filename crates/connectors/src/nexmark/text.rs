//! Columns of text: values of a fixed list, pieces of a long text, and values written one by one.
//!
//! The first two copy no text: their rows show the same memory. No row allocates.

use std::sync::Arc;

use arrow_array::builder::{StringViewBuilder, make_view};
use arrow_array::{ArrayRef, StringViewArray, UInt32Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_select::take::take;
use thalweg_core::Result;

use super::random::{Stream, lower, upper};

/// A fixed list of texts.
pub struct List(StringViewArray);

impl List {
    /// The list of these texts.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        List(StringViewArray::from_iter_values(texts))
    }

    /// A column of the texts with these positions.
    pub fn column(&self, positions: impl Iterator<Item = u64>) -> Result<ArrayRef> {
        let positions: ScalarBuffer<u32> = positions.map(|position| position as u32).collect();
        Ok(take(&self.0, &UInt32Array::new(positions, None), None)?)
    }
}

/// Random lower-case letters, from which texts are cut.
pub struct Letters(Buffer);

/// Stays in a processor's second cache.
const LETTERS: u64 = 1 << 18;
/// How many different cuts there are. They are cut once: to check the letters of every row again
/// would take most of the time of a bid.
const CUTS: u64 = 1 << 14;

impl Letters {
    /// The letters of a stream.
    pub fn new(stream: Stream) -> Self {
        let letter = |at| b'a' + upper(stream.event(at).bits(0), 26) as u8;
        Letters(Buffer::from_vec((0..LETTERS).map(letter).collect::<Vec<u8>>()))
    }

    /// Texts, each with a length in `shortest..=longest`.
    pub fn cuts(&self, stream: Stream, shortest: u64, longest: u64) -> Result<Cuts> {
        let view = |at| {
            let bits = stream.event(at).bits(0);
            let from = upper(bits, LETTERS - longest) as usize;
            let length = (shortest + lower(bits, longest - shortest + 1)) as usize;
            make_view(&self.0[from..from + length], 0, from as u32)
        };
        let views: ScalarBuffer<u128> = (0..CUTS).map(view).collect();
        Ok(Cuts(List(StringViewArray::try_new(views, vec![self.0.clone()], None)?)))
    }
}

/// Pieces of random letters.
pub struct Cuts(List);

impl Cuts {
    /// A column of the cuts that the random bits choose.
    pub fn column(&self, bits: impl Iterator<Item = u64>) -> Result<ArrayRef> {
        self.0.column(bits.map(|bits| upper(bits, CUTS)))
    }
}

/// A column of texts that are written one by one.
pub fn written(events: &[u64], mut write: impl FnMut(u64, &mut String)) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(events.len());
    let mut text = String::new();
    for &event in events {
        text.clear();
        write(event, &mut text);
        builder.append_value(&text);
    }
    Arc::new(builder.finish())
}

/// `prefix-0` to `prefix-(count - 1)`.
pub fn numbered(prefix: &str, count: u64) -> List {
    List::new((0..count).map(|number| format!("{prefix}-{number}")))
}
