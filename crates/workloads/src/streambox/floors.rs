//! The least that each benchmark can do: a loop by hand on one thread over the same batches, in one
//! pass, without windows that overlap, watermarks or output. Each gives a checksum that the
//! engine's results must have.
//!
//! They know that times ascend and that keys are not NULL, which the engine does not.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use memchr::memmem::Finder;
use regex::bytes::Regex;

use super::Table;
use super::grep::{LITERAL, REGULAR_EXPRESSION};
use super::words::for_each_word;

/// One multiplication, as the engine hashes integers.
#[derive(Default)]
pub struct FoldedHasher(u64);

impl Hasher for FoldedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

type Folded = BuildHasherDefault<FoldedHasher>;

/// The row times of a batch of any benchmark.
fn times(batch: &RecordBatch) -> &[i64] {
    batch.column(0).as_primitive::<TimestampMillisecondType>().values()
}

fn longs(batch: &RecordBatch, column: usize) -> &[i64] {
    batch.column(column).as_primitive::<Int64Type>().values()
}

/// How many records contain the literal: a search through the whole buffers, record ends ignored.
pub fn grep_literal(records: &Table) -> u64 {
    let finder = Finder::new(LITERAL);
    count_in_buffers(records, |buffer| finder.find_iter(buffer).count())
}

/// How many addresses there are: the regular expression over the whole buffers.
pub fn grep_regex(records: &Table) -> u64 {
    let regex = Regex::new(REGULAR_EXPRESSION).expect("it is a regular expression");
    count_in_buffers(records, |buffer| regex.find_iter(buffer).count())
}

fn count_in_buffers(records: &Table, count: impl Fn(&[u8]) -> usize) -> u64 {
    let texts = records.batches.iter().map(|batch| batch.column(2).as_string_view());
    let of = |texts: &arrow_array::StringViewArray| -> usize {
        texts.data_buffers().iter().map(|buffer| count(buffer)).sum()
    };
    texts.map(of).sum::<usize>() as u64
}

/// How many words there are, after counting each.
pub fn wordcount(records: &Table) -> u64 {
    let mut counts: HashMap<Box<[u8]>, u64> = HashMap::new();
    for batch in &records.batches {
        for text in batch.column(1).as_string_view().iter().flatten() {
            let text = text.as_bytes();
            for_each_word(text, |start, end| match counts.get_mut(&text[start..end]) {
                Some(count) => *count += 1,
                None => drop(counts.insert(text[start..end].into(), 1)),
            });
        }
    }
    counts.values().sum()
}

/// How many pairs there are: both sides into a table by key, batch by batch, each after it has
/// looked for its partners on the other side. For unique keys: nothing is taken out.
pub fn join_unique(lefts: &Table, rights: &Table, reach_ms: i64) -> u64 {
    let mut seen = [HashMap::<i64, i64, Folded>::default(), HashMap::default()];
    let mut pairs = 0;
    for (left, right) in lefts.batches.iter().zip(&rights.batches) {
        for (side, batch) in [left, right].into_iter().enumerate() {
            let (ids, times) = (longs(batch, 1), times(batch));
            let other = &seen[1 - side];
            let near = |(id, time): (&i64, &i64)| {
                other.get(id).is_some_and(|partner| (time - partner).abs() <= reach_ms)
            };
            pairs += ids.iter().zip(times).filter(|&row| near(row)).count() as u64;
            seen[side].extend(ids.iter().copied().zip(times.iter().copied()));
        }
    }
    pairs
}

/// How many pairs there are with keys that repeat: the left times by key, looked through for each
/// right record.
pub fn join_repeated(lefts: &Table, rights: &Table, reach_ms: i64) -> u64 {
    let mut seen = HashMap::<i64, Vec<i64>, Folded>::default();
    for batch in &lefts.batches {
        for (id, time) in longs(batch, 1).iter().zip(times(batch)) {
            seen.entry(*id).or_default().push(*time);
        }
    }
    let near = |id: &i64, time: i64| {
        let times = seen.get(id).map_or(&[][..], Vec::as_slice);
        let from = times.partition_point(|&other| other < time - reach_ms);
        (times.partition_point(|&other| other <= time + reach_ms) - from) as u64
    };
    let of = |batch: &RecordBatch| -> u64 {
        longs(batch, 1).iter().zip(times(batch)).map(|(id, &time)| near(id, time)).sum()
    };
    rights.batches.iter().map(of).sum()
}

/// The sum over the seconds of how many different ids each has.
pub fn distinct(records: &Table) -> u64 {
    let (mut seen, mut second, mut sum) = (HashSet::<i64, Folded>::default(), i64::MIN, 0);
    for batch in &records.batches {
        for (url, time) in longs(batch, 1).iter().zip(times(batch)) {
            if time / 1000 != second {
                second = time / 1000;
                sum += seen.len() as u64;
                seen.clear();
            }
            seen.insert(*url);
        }
    }
    sum + seen.len() as u64
}

/// The sum of the means of all pairs and seconds.
pub fn netmon(records: &Table) -> u64 {
    let mut sums = HashMap::<i64, (i64, i64), Folded>::default();
    let (mut second, mut sum) = (i64::MIN, 0);
    let mut close = |sums: &mut HashMap<i64, (i64, i64), Folded>| {
        sum += sums.drain().map(|(_, (sum, count))| (sum / count) as u64).sum::<u64>();
    };
    for batch in &records.batches {
        let int = |column: usize| batch.column(column).as_primitive::<Int32Type>().values();
        let (sources, targets, latencies) = (int(1), int(2), int(3));
        for (row, time) in times(batch).iter().enumerate() {
            if time / 1000 != second {
                second = time / 1000;
                close(&mut sums);
            }
            let pair = i64::from(sources[row]) << 32 | i64::from(targets[row]);
            let sum = sums.entry(pair).or_default();
            *sum = (sum.0 + i64::from(latencies[row]), sum.1 + 1);
        }
    }
    close(&mut sums);
    sum
}
