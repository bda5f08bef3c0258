//! Splitting text into words: runs of ASCII letters and apostrophes, in lower case, as views into
//! the text's own buffers.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_data::ByteView;
use arrow_schema::SchemaRef;
use thalweg::{Column, DataType, Result, TableSchema};

/// Columns of a stream of words.
pub fn word_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("word", DataType::STRING.not_null()),
    ])
}

/// For each byte: bit 0 set if it belongs to a word.
const IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphabetic() || b == b'\'';
        byte += 1;
    }
    table
};

/// Calls `word(start, end)` for each run of word bytes.
#[inline]
pub fn for_each_word(text: &[u8], mut word: impl FnMut(usize, usize)) {
    // A block of 64 bytes becomes a mask of word bytes; starts and ends of runs are the bits where
    // the mask differs from itself shifted by one.
    let mut carry = 0u64;
    let mut start = 0usize;
    for (block, bytes) in text.chunks(64).enumerate() {
        let mut mask = 0u64;
        for (bit, &byte) in bytes.iter().enumerate() {
            mask |= u64::from(IN_WORD[byte as usize]) << bit;
        }
        let mut edges = mask ^ (mask << 1 | carry);
        carry = mask >> 63;
        while edges != 0 {
            let place = block * 64 + edges.trailing_zeros() as usize;
            if mask >> (place % 64) & 1 == 1 {
                start = place;
            } else {
                word(start, place);
            }
            edges &= edges - 1;
        }
    }
    let open = if text.len() % 64 == 0 { carry == 1 } else { IN_WORD[text[text.len() - 1] as usize] };
    if open && !text.is_empty() {
        word(start, text.len());
    }
}

/// Splits the texts of a batch (row time, text) into words (row time, word).
pub fn split(batch: &RecordBatch, schema: &SchemaRef) -> Result<(RecordBatch, Vec<u32>)> {
    let lowered;
    let mut texts = batch.column(1).as_string_view();
    if texts.data_buffers().iter().any(|b| b.iter().any(u8::is_ascii_uppercase)) {
        lowered = texts.iter().map(|t| t.map(str::to_ascii_lowercase)).collect::<StringViewArray>();
        texts = &lowered;
    }
    let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
    let guess = batch.num_rows() * 24;
    let (mut views, mut rows) = (Vec::<u128>::with_capacity(guess), Vec::with_capacity(guess));
    let mut word_times = Vec::<i64>::with_capacity(guess);
    for row in 0..texts.len() {
        let text = texts.value(row).as_bytes();
        let view = ByteView::from(texts.views()[row]);
        for_each_word(text, |start, end| {
            views.push(word_view(text, start, end, view));
            rows.push(row as u32);
        });
        word_times.resize(views.len(), times[row]);
    }
    let buffers: Arc<[Buffer]> = texts.data_buffers().to_vec().into();
    let words = StringViewArray::try_new(ScalarBuffer::from(views), buffers, None)
        .map_err(thalweg::Error::from)?;
    let times = TimestampMillisecondArray::from(word_times);
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(words)];
    Ok((RecordBatch::try_new(schema.clone(), columns)?, rows))
}

/// The view of a word: its letters where they fit, else its place in the text's buffer.
#[inline]
fn word_view(text: &[u8], start: usize, end: usize, of: ByteView) -> u128 {
    let length = end - start;
    if length <= 12 {
        return short_view(text, start, length);
    }
    let prefix = u32::from_le_bytes([text[start], text[start + 1], text[start + 2], text[start + 3]]);
    ByteView {
        length: length as u32,
        prefix,
        buffer_index: of.buffer_index,
        offset: of.offset + start as u32,
    }
    .into()
}

/// A word of at most 12 letters as a view: length in the low 4 bytes, letters above.
#[inline]
pub fn short_view(text: &[u8], start: usize, length: usize) -> u128 {
    let letters = if start + 16 <= text.len() {
        let mut sixteen = [0u8; 16];
        sixteen.copy_from_slice(&text[start..start + 16]);
        u128::from_le_bytes(sixteen) & ((1u128 << (8 * length)) - 1)
    } else {
        let mut sixteen = [0u8; 16];
        sixteen[..length].copy_from_slice(&text[start..start + length]);
        u128::from_le_bytes(sixteen)
    };
    letters << 32 | length as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_apostrophes() {
        let filler = "x".repeat(61);
        let text = format!("it's  a, {filler} {filler}");
        let mut words = Vec::new();
        for_each_word(text.as_bytes(), |start, end| words.push(text[start..end].to_owned()));
        assert_eq!(words, ["it's", "a", filler.as_str(), filler.as_str()]);
        for_each_word(b"", |_, _| panic!("no word in nothing"));
    }
}
