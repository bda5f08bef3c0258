//! Word count compared with other engines: the lines of their program, number by number, and how
//! this engine counts their words.
//!
//! There are 65,536 prepared lines of up to 100 bytes, of 10,000 words whose frequency falls with
//! their rank (Zipf, exponent 1). Line n of the stream is one of them, picked by a hash of n;
//! 100,000 come in a second of event time. As in the other engines prepared lines are shared: a row
//! is a view of one.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow_buffer::Buffer;
use thalweg_workloads::streambox::wordcount;

use crate::engine::Input;
use crate::suite::oracle::{BASE_MS, hash_number};

/// A line holds as many words as fit into this many bytes.
const LINE_BYTES_MAX: usize = 100;
const WORDS: usize = 10_000;
const LINES: usize = 1 << 16;
const LINES_PER_MS: u64 = 100;
const ROWS_PER_BATCH: u64 = 65_536;

/// The first `count` lines of the stream.
pub fn input(count: u64) -> Input {
    let (text, lines) = prepared();
    let text = Buffer::from_vec(text);
    let batch = |first: u64| {
        let numbers = first..count.min(first + ROWS_PER_BATCH);
        let times = numbers.clone().map(|n| BASE_MS + (n / LINES_PER_MS) as i64);
        let mut views = StringViewBuilder::with_capacity(numbers.clone().count());
        let block = views.append_block(text.clone());
        for number in numbers {
            let (offset, length) = lines[(hash_number(number) & (LINES as u64 - 1)) as usize];
            views.try_append_view(block, offset, length).expect("lines lie in the block");
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
            Arc::new(views.finish()),
        ];
        RecordBatch::try_new(wordcount::schema().arrow(), columns).expect("columns fit")
    };
    let batches = (0..count).step_by(ROWS_PER_BATCH as usize).map(batch).collect();
    Input { batches: Arc::new(batches), period_ms: 0, laps: 1 }
}

/// All lines one behind the other, and where each begins and how long it is.
fn prepared() -> (Vec<u8>, Vec<(u32, u32)>) {
    let words = vocabulary();
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=WORDS)
        .map(|rank| {
            total += 1.0 / rank as f64;
            total
        })
        .collect();
    let mut draws = (12_345..).map(|number| {
        let share = (hash_number(number) >> 11) as f64 / (1u64 << 53) as f64 * total;
        sums.partition_point(|&sum| sum < share).min(WORDS - 1)
    });
    let (mut text, mut lines) = (Vec::new(), Vec::with_capacity(LINES));
    for _ in 0..LINES {
        let begin = text.len();
        // The word that does not fit any more is lost.
        for word in draws.by_ref().map(|place| &words[place]) {
            let length = text.len() - begin;
            if length + word.len() + 1 > LINE_BYTES_MAX {
                break;
            }
            if length > 0 {
                text.push(b' ');
            }
            text.extend_from_slice(word);
        }
        lines.push((begin as u32, (text.len() - begin) as u32));
    }
    (text, lines)
}

/// Distinct words: a number to base 26, a `z`, and letters of a hash until there are three to nine.
fn vocabulary() -> Vec<Vec<u8>> {
    let mut seen = HashSet::new();
    let word = |number: usize| {
        let (mut word, mut left) = (Vec::new(), number);
        loop {
            word.push(b'a' + (left % 26) as u8);
            left /= 26;
            if left == 0 {
                break;
            }
        }
        word.push(b'z');
        let mut bits = hash_number(number as u64 + 77);
        let letters = 3 + (bits >> 8 & 0xFF) as usize % 7;
        while word.len() < letters {
            word.push(b'a' + (bits & 15) as u8);
            bits = hash_number(bits);
        }
        word
    };
    let distinct = |(number, mut word): (usize, Vec<u8>)| {
        while !seen.insert(word.clone()) {
            word.push(b'a' + (number % 26) as u8);
        }
        word
    };
    (0..WORDS).map(word).enumerate().map(distinct).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_they_are_said_to_be() {
        let (text, lines) = prepared();
        let of = |line: &(u32, u32)| &text[line.0 as usize..(line.0 + line.1) as usize];
        let words: usize = lines.iter().map(|line| of(line).split(|&b| b == b' ').count()).sum();
        let (bytes, words) = (text.len() as f64 / LINES as f64, words as f64 / LINES as f64);
        // What the other program says of its lines.
        assert!((bytes - 96.8).abs() < 0.05, "{bytes} bytes");
        assert!((words - 14.39).abs() < 0.005, "{words} words");
    }

    #[test]
    fn a_stream_is_cut_into_batches() {
        let rows: Vec<_> = input(100_000).batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [65_536, 34_464]);
    }
}
