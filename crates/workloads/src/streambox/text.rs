//! Seeded English-like text: a vocabulary whose words come as often as Zipf says, and records of a
//! fixed length that may contain something to look for.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, StringViewArray};
use arrow_buffer::Buffer;

use crate::random::Random;

const STREAM_WORD: u64 = 0x71;
const STREAM_RECORD: u64 = 0x72;

/// Words by rank: rank r comes with a probability in proportion to 1 / (r + 2)^1.05, and frequent
/// words are short, as in English prose (the mean of the words drawn is about 3.3 letters).
pub struct Vocabulary {
    words: Vec<String>,
    cumulative: Vec<f64>,
}

impl Vocabulary {
    /// This many words of a seed.
    pub fn new(seed: u64, count: usize) -> Self {
        let mut seen = HashSet::new();
        let mut words = Vec::with_capacity(count);
        let mut numbers = 0..;
        while words.len() < count {
            let mut random = Random::new(seed, STREAM_WORD, numbers.next().unwrap_or(0));
            let base = 1.6 + 0.42 * ((words.len() + 2) as f64).ln();
            let length = (base + 2.0 * random.unit()).round().clamp(1.0, 14.0) as usize;
            let word: String =
                (0..length).map(|_| (b'a' + random.below(26) as u8) as char).collect();
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        let mut sum = 0.0;
        let weights = (0..count).map(|rank| 1.0 / ((rank + 2) as f64).powf(1.05));
        let cumulative = weights.map(|weight| {
            sum += weight;
            sum
        });
        Vocabulary { cumulative: cumulative.collect(), words }
    }

    /// The word of a rank, from 0 for the most frequent.
    pub fn word(&self, rank: usize) -> &str {
        &self.words[rank]
    }

    /// Draws a word.
    pub fn draw(&self, random: &mut Random) -> &str {
        let last = self.cumulative.last().copied().unwrap_or(1.0);
        let wanted = random.unit() * last;
        let rank = self.cumulative.partition_point(|&sum| sum < wanted);
        &self.words[rank.min(self.words.len() - 1)]
    }
}

/// Records of exactly `record_bytes` bytes: words with a space behind each, the last one cut.
pub struct RecordText<'a> {
    /// Where the words come from.
    pub vocabulary: &'a Vocabulary,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The length of a record in bytes.
    pub record_bytes: usize,
    /// Texts that some records contain, each with the share of those records. They must be shorter
    /// than a record.
    pub planted: &'a [(&'a str, f64)],
}

impl RecordText<'_> {
    /// The texts of these records, in one buffer.
    pub fn column(&self, numbers: std::ops::Range<u64>) -> ArrayRef {
        let rows = (numbers.end - numbers.start) as usize;
        let mut bytes = Vec::with_capacity(rows * self.record_bytes + 16);
        for number in numbers {
            self.append(number, &mut bytes);
        }
        let mut builder = StringViewBuilder::new();
        let block = builder.append_block(Buffer::from_vec(bytes));
        for row in 0..rows {
            let (start, length) = (row * self.record_bytes, self.record_bytes);
            let appended = builder.try_append_view(block, start as u32, length as u32);
            appended.expect("the record lies in the block");
        }
        Arc::new(builder.finish()) as Arc<StringViewArray>
    }

    fn append(&self, number: u64, bytes: &mut Vec<u8>) {
        let mut random = Random::new(self.seed, STREAM_RECORD, number);
        let (start, end) = (bytes.len(), bytes.len() + self.record_bytes);
        while bytes.len() < end {
            bytes.extend_from_slice(self.vocabulary.draw(&mut random).as_bytes());
            bytes.push(b' ');
        }
        bytes.truncate(end);
        for (text, share) in self.planted {
            if random.chance(*share) {
                let at = start + random.below((self.record_bytes - text.len()) as u64) as usize;
                bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
            }
        }
    }
}
