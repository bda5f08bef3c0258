//! The merge of sorted batches bare, on one thread: million rows per second of process CPU time.
//!
//! ```text
//! CARGO_TARGET_DIR=target/benches cargo run --release --manifest-path
//! benches/structures/Cargo.toml \
//!     --features merge --bin merge [-- --repeat N] [--inputs K]
//! ```
//! Three 8-byte columns, one of them the time; bundles of 8 Ki rows. It is compared with a merge
//! row by row with a heap, columns put together by Arrow's `interleave`. A sum over a column in the
//! order of the result is compared, so that each variant must have the same sequence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use cpu_time::ProcessTime;
use thalweg_runtime::sorted_merge::SortedMerge;

const ROWS_PER_INPUT: usize = 4_000_000;
const BUNDLE_ROWS: usize = 8 * 1024;

type Inputs = Vec<Vec<RecordBatch>>;

fn main() {
    let number = |name: &str, default: usize| {
        let value = std::env::args().skip_while(|a| a != name).nth(1);
        value.and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let (repeat, inputs) = (number("--repeat", 5), number("--inputs", 4));
    for (name, times) in [
        ("runs of 1000", in_turn(inputs, 1000)),
        ("runs of 100", in_turn(inputs, 100)),
        ("runs of 20", in_turn(inputs, 20)),
        ("runs of 8", in_turn(inputs, 8)),
        ("turn, row by row", in_turn(inputs, 1)),
        ("at random, row by row", at_random(inputs)),
    ] {
        let inputs: Inputs = times.into_iter().map(bundles).collect();
        report(name, &inputs, repeat);
    }
}

fn report(name: &str, inputs: &Inputs, repeat: usize) {
    let rows = inputs.iter().flatten().map(RecordBatch::num_rows).sum::<usize>() as f64 / 1e6;
    let (mut ours, mut heaps) = (Vec::new(), Vec::new());
    for repetition in 0..=repeat {
        let start = ProcessTime::now();
        let merged = merge(inputs);
        let of_merge = rows / start.elapsed().as_secs_f64();
        let start = ProcessTime::now();
        let by_heap = merge_by_heap(inputs);
        let of_heap = rows / start.elapsed().as_secs_f64();
        assert_eq!(merged, by_heap, "the same sequence");
        if repetition > 0 {
            ours.push(of_merge);
            heaps.push(of_heap);
        }
    }
    ours.sort_by(f64::total_cmp);
    heaps.sort_by(f64::total_cmp);
    let (low, high) = (ours[0], ours[ours.len() - 1]);
    let (ours, heaps) = (ours[ours.len() / 2], heaps[heaps.len() / 2]);
    println!(
        "{name:24} {ours:7.1} M rows/s ({low:.1} to {high:.1}), heap and interleave {heaps:6.1}, \
         {:.1} times",
        ours / heaps
    );
}

/// Times of inputs that take turns, this many rows at a time.
fn in_turn(inputs: usize, run: usize) -> Vec<Vec<i64>> {
    let time = |input: usize, n: usize| ((n / run * inputs + input) * run + n % run) as i64;
    (0..inputs).map(|input| (0..ROWS_PER_INPUT).map(|n| time(input, n)).collect()).collect()
}

/// Times of inputs whose rows fall at random.
fn at_random(inputs: usize) -> Vec<Vec<i64>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % 64) as i64
    };
    let mut times = |_| {
        let mut time = 0;
        (0..ROWS_PER_INPUT).map(|_| (time += step(), time).1).collect()
    };
    (0..inputs).map(&mut times).collect()
}

fn bundles(times: Vec<i64>) -> Vec<RecordBatch> {
    let batch = |chunk: &[i64]| {
        let values: ArrayRef = Arc::new(chunk.iter().map(|t| t * 3).collect::<Int64Array>());
        let others: ArrayRef = Arc::new(chunk.iter().map(|t| t ^ 0x5555).collect::<Int64Array>());
        let times: ArrayRef = Arc::new(Int64Array::from(chunk.to_vec()));
        RecordBatch::try_from_iter([("time", times), ("value", values), ("other", others)])
            .expect("columns of one length")
    };
    times.chunks(BUNDLE_ROWS).map(batch).collect()
}

fn merge(inputs: &Inputs) -> (usize, i64) {
    let mut merge = SortedMerge::new(inputs.len(), 0);
    let mut feeds: Vec<_> = inputs.iter().map(|input| input.iter()).collect();
    let (mut rows, mut ordered) = (0, Ordered::default());
    for _ in 0..=inputs.iter().map(Vec::len).max().unwrap_or(0) {
        for (input, feed) in feeds.iter_mut().enumerate() {
            match feed.next() {
                Some(batch) => merge.push(input, batch.clone(), None).expect("sorted"),
                None => merge.finish(input),
            }
        }
        while let Some(merged) = merge.ready(BUNDLE_ROWS).expect("columns fit") {
            rows += merged.batch.num_rows();
            ordered.take(&merged.batch);
        }
    }
    (rows, ordered.sum)
}

/// Sums every 61st row with its place, whatever the batches.
#[derive(Default)]
struct Ordered {
    place: usize,
    sum: i64,
}

impl Ordered {
    fn take(&mut self, batch: &RecordBatch) {
        let values = batch.column(1).as_primitive::<Int64Type>().values();
        let skip = (61 - self.place % 61) % 61;
        for (n, value) in values.iter().enumerate().skip(skip).step_by(61) {
            self.sum = self.sum.wrapping_add(value.wrapping_mul((self.place + n) as i64));
        }
        self.place += values.len();
    }
}

fn merge_by_heap(inputs: &Inputs) -> (usize, i64) {
    let times = |input: usize, batch: usize| {
        inputs[input].get(batch).map(|b| b.column(0).as_primitive::<Int64Type>().values())
    };
    let mut heap = BinaryHeap::with_capacity(inputs.len());
    heap.extend((0..inputs.len()).map(|i| Reverse((times(i, 0).expect("rows")[0], i, 0, 0))));
    let (mut rows, mut ordered) = (0, Ordered::default());
    let mut slots: Vec<&RecordBatch> = Vec::new();
    let mut slot_of: Vec<Option<(usize, usize)>> = vec![None; inputs.len()];
    let mut indices: Vec<(usize, usize)> = Vec::with_capacity(BUNDLE_ROWS);
    while let Some(Reverse((_, input, batch, row))) = heap.pop() {
        let slot = match slot_of[input] {
            Some((of_batch, slot)) if of_batch == batch => slot,
            _ => {
                slots.push(&inputs[input][batch]);
                slot_of[input] = Some((batch, slots.len() - 1));
                slots.len() - 1
            }
        };
        indices.push((slot, row));
        let (batch, row) =
            if row + 1 < inputs[input][batch].num_rows() { (batch, row + 1) } else { (batch + 1, 0) };
        heap.extend(times(input, batch).map(|times| Reverse((times[row], input, batch, row))));
        if indices.len() == BUNDLE_ROWS || heap.is_empty() {
            let merged = arrow_select::interleave::interleave_record_batch(&slots, &indices);
            let merged = merged.expect("columns fit");
            rows += merged.num_rows();
            ordered.take(&merged);
            slots.clear();
            slot_of.fill(None);
            indices.clear();
        }
    }
    (rows, ordered.sum)
}
