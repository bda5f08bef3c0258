//! What the floors share: columns by name, rows that are pointed at, and the order in which tables
//! are read.
//!
//! Events stay where they are, as Arrow batches; state points at them. Tables of events are read
//! side by side: before each batch of bids come the persons and auctions that are not younger than
//! its last bid.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_select::interleave::interleave;
use hashbrown::HashMap;
use thalweg::bench::Input;

/// What a floor has done; both are compared with what the engine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows of the result that are left in the end.
    pub rows_left: u64,
    /// Rows that were written on the way.
    pub rows_out: u64,
}

impl Outcome {
    /// A result whose rows stay.
    pub fn stays(rows: u64) -> Outcome {
        Outcome { rows_left: rows, rows_out: rows }
    }
}

/// A row: the number of its batch and its place there.
pub type Place = (usize, usize);

/// A table of events and its columns.
pub struct Table<'a> {
    pub batches: &'a [RecordBatch],
}

impl<'a> Table<'a> {
    /// The first table of this name.
    pub fn of(inputs: &'a [Input], name: &str) -> Table<'a> {
        let input = inputs.iter().find(|input| input.table == name);
        Table { batches: &input.unwrap_or_else(|| panic!("the query reads {name}")).batches }
    }

    fn column(&self, batch: usize, name: &str) -> &'a ArrayRef {
        let column = self.batches[batch].column_by_name(name);
        column.unwrap_or_else(|| panic!("the query reads column {name}"))
    }

    /// A column of numbers, one slice for each batch.
    pub fn longs(&self, name: &str) -> Vec<&'a [i64]> {
        let slices = (0..self.batches.len())
            .map(|batch| self.column(batch, name).as_primitive::<Int64Type>().values().as_ref());
        slices.collect()
    }

    /// A column of times in milliseconds since 1970, one slice for each batch.
    pub fn times(&self, name: &str) -> Vec<&'a [i64]> {
        let slices = (0..self.batches.len()).map(|batch| {
            self.column(batch, name).as_primitive::<TimestampMillisecondType>().values().as_ref()
        });
        slices.collect()
    }

    /// A column of texts.
    pub fn texts(&self, name: &str) -> Vec<&'a StringViewArray> {
        (0..self.batches.len()).map(|batch| self.column(batch, name).as_string_view()).collect()
    }

    /// Writes some rows, all columns, as a result; how many there are.
    pub fn write(&self, places: &[Place]) -> u64 {
        if places.is_empty() {
            return 0;
        }
        // Only batches that are pointed at: each brings its buffers of text along.
        let mut used: Vec<usize> = places.iter().map(|place| place.0).collect();
        used.sort_unstable();
        used.dedup();
        let mut renumbered = vec![0; self.batches.len()];
        used.iter().enumerate().for_each(|(number, &batch)| renumbered[batch] = number);
        let places: Vec<Place> = places.iter().map(|&(b, row)| (renumbered[b], row)).collect();
        for column in 0..self.batches[0].num_columns() {
            let arrays: Vec<&dyn Array> =
                used.iter().map(|&batch| self.batches[batch].column(column).as_ref()).collect();
            std::hint::black_box(interleave(&arrays, &places).expect("columns fit"));
        }
        places.len() as u64
    }
}

/// For each key the things that were put under it, newest first.
#[derive(Default)]
pub struct Chains<T> {
    newest: HashMap<i64, u32>,
    links: Vec<(T, u32)>,
}

const END: u32 = u32::MAX;

impl<T: Copy> Chains<T> {
    /// Nothing yet.
    pub fn new() -> Self {
        Chains { newest: HashMap::new(), links: Vec::new() }
    }

    /// Puts something under a key.
    #[inline]
    pub fn push(&mut self, key: i64, thing: T) {
        let number = self.links.len() as u32;
        let before = self.newest.insert(key, number).unwrap_or(END);
        self.links.push((thing, before));
    }

    /// Everything under a key.
    #[inline]
    pub fn each(&self, key: i64, mut see: impl FnMut(T)) {
        let mut next = self.newest.get(&key).copied().unwrap_or(END);
        while next != END {
            let (thing, before) = self.links[next as usize];
            see(thing);
            next = before;
        }
    }
}

/// Hands out the rows of a table that are not younger than a time, from where it stopped before.
pub struct Reader<'a> {
    times: Vec<&'a [i64]>,
    next: Place,
}

impl<'a> Reader<'a> {
    /// From the first row on.
    pub fn new(table: &Table<'a>) -> Self {
        Reader { times: table.times("dateTime"), next: (0, 0) }
    }

    /// The rows up to a time.
    pub fn until(&mut self, time_ms: i64, mut see: impl FnMut(Place)) {
        while let Some(times) = self.times.get(self.next.0) {
            let Some(&time) = times.get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            if time > time_ms {
                return;
            }
            see(self.next);
            self.next.1 += 1;
        }
    }
}

/// Calls `step` for each batch of a table with the time of its last row, and once more at the end
/// of time: with the number of the batch, if there is one.
pub fn in_steps(table: &Table<'_>, mut step: impl FnMut(Option<usize>, i64)) {
    for (number, times) in table.times("dateTime").iter().enumerate() {
        step(Some(number), times.last().copied().unwrap_or(i64::MIN));
    }
    step(None, i64::MAX);
}

/// The rows of the step's batch, each with its value of a column.
pub fn rows_of<'a>(
    column: &'a [&'a [i64]],
    batch: Option<usize>,
) -> impl Iterator<Item = (Place, i64)> + 'a {
    let of_batch = move |batch: usize| {
        column[batch].iter().enumerate().map(move |(row, &value)| ((batch, row), value))
    };
    batch.into_iter().flat_map(of_batch)
}
