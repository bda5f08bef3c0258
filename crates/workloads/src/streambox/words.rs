//! Splitting text into words: runs of ASCII letters and apostrophes, in lower case, as views into
//! the text's own buffers.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow_schema::SchemaRef;
use thalweg::{Column, DataType, Result, TableSchema};

/// Columns of a stream of words.
pub fn word_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("word", DataType::STRING.not_null()),
    ])
}

/// 1 for a byte that belongs to a word. Without branches, so that the loop over a block becomes
/// vector instructions.
#[inline]
fn in_word(byte: u8) -> u8 {
    u8::from((byte | 0x20).wrapping_sub(b'a') < 26) | u8::from(byte == b'\'')
}

/// A bit per byte of a block: set where the byte belongs to a word.
#[inline]
fn word_mask(block: &[u8; 64]) -> u64 {
    let mut flags = [0u8; 64];
    for (flag, &byte) in flags.iter_mut().zip(block) {
        *flag = in_word(byte);
    }
    let mut mask = 0;
    for (place, eight) in flags.chunks_exact(8).enumerate() {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(eight);
        // The product moves the lowest bit of byte n to bit 56 + n.
        let bits = u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * place);
    }
    mask
}

/// Calls `word(start, end)` for each run of word bytes.
#[inline]
pub fn for_each_word(text: &[u8], mut word: impl FnMut(usize, usize)) {
    // A block of 64 bytes becomes a mask of word bytes; starts and ends of runs are the bits where
    // the mask differs from itself shifted by one.
    let mut carry = 0u64;
    let mut start = 0usize;
    let mut edges_of = |base: usize, mask: u64, start: &mut usize, carry: &mut u64| {
        let mut edges = mask ^ (mask << 1 | *carry);
        *carry = mask >> 63;
        while edges != 0 {
            let bit = edges.trailing_zeros() as usize;
            if mask >> bit & 1 == 1 {
                *start = base + bit;
            } else {
                word(*start, base + bit);
            }
            edges &= edges - 1;
        }
    };
    let (blocks, rest) = text.as_chunks::<64>();
    for (place, block) in blocks.iter().enumerate() {
        edges_of(place * 64, word_mask(block), &mut start, &mut carry);
    }
    // The rest is padded with bytes that end a word.
    let mut last = [0u8; 64];
    last[..rest.len()].copy_from_slice(rest);
    edges_of(blocks.len() * 64, word_mask(&last), &mut start, &mut carry);
}

/// True if a text has a capital letter. Text by text: their buffers may hold those of many other
/// batches. Without branches within a text, as above.
fn has_capitals(texts: &StringViewArray) -> bool {
    let is_capital = |byte: u8| u8::from(byte.wrapping_sub(b'A') < 26);
    texts.iter().flatten().any(|text| text.bytes().fold(0, |any, byte| any | is_capital(byte)) > 0)
}

/// Splits the texts of a batch (row time, text) into words (row time, word).
pub fn split(batch: &RecordBatch, schema: &SchemaRef) -> Result<(RecordBatch, Vec<u32>)> {
    let lowered;
    let mut texts = batch.column(1).as_string_view();
    if has_capitals(texts) {
        lowered = texts.iter().map(|t| t.map(str::to_ascii_lowercase)).collect::<StringViewArray>();
        texts = &lowered;
    }
    let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
    let guess = batch.num_rows() * 24;
    // The builder takes text that is known to be UTF-8; finished views would be validated again.
    let mut words = StringViewBuilder::with_capacity(guess);
    let mut rows = Vec::with_capacity(guess);
    let mut word_times = Vec::<i64>::with_capacity(guess);
    for row in 0..texts.len() {
        let text = texts.value(row);
        for_each_word(text.as_bytes(), |start, end| {
            words.append_value(&text[start..end]);
            rows.push(row as u32);
        });
        word_times.resize(rows.len(), times[row]);
    }
    let words = words.finish();
    let times = TimestampMillisecondArray::from(word_times);
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(words)];
    Ok((RecordBatch::try_new(schema.clone(), columns)?, rows))
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
