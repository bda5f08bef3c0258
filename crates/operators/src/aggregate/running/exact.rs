//! SUM, AVG, deviations and variances of FLOAT and DOUBLE where values are retracted: sums that
//! lose nothing.
//!
//! | column of state | holds |
//! |---|---|
//! | `sum`, `count` | the sum of the finite values, rounded; the number of all |
//! | `exact` | nothing where `sum` is the sum; else the sum as an integer of many digits |
//! | `nans`, `infinities`, `negative_infinities` | how many values are not finite |
//! | `square_sum`, `exact_squares` | for deviations and variances, the same of squares |
//!
//! Earlier versions kept a rounded sum alone, or a mean and squared distances: these are read as if
//! they were exact.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, Int64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::super::exact::{ExactPowers, ExactSum, NotFinite};
use super::super::moments::MomentsKind;
use super::super::state::lists;
use super::super::{StateColumns, StateRows};
use super::column::Rule;
use super::numbers::Float;

/// SUM and AVG.
pub(in crate::aggregate) struct Sum<T> {
    pub(in crate::aggregate) mean: bool,
    pub(in crate::aggregate) of: PhantomData<fn() -> T>,
}

impl<T: Float> Rule for Sum<T> {
    type Argument = T;
    type Result = T;
    type Group = ExactSum;

    fn add(&self, group: &mut ExactSum, value: T::Native) {
        group.add(T::widen(value));
    }
    fn retract(&self, group: &mut ExactSum, value: T::Native) {
        group.remove(T::widen(value));
    }
    fn result(&self, group: &ExactSum) -> Option<T::Native> {
        let divisor = if self.mean { group.count() as f64 } else { 1.0 };
        (group.count() > 0).then(|| T::narrow(group.value() / divisor))
    }
    fn capture(&self, groups: &[ExactSum], _: &Arrow, columns: &mut StateColumns) -> Result<()> {
        capture_sums(groups.iter(), columns)
    }
    fn restore(&self, groups: &mut [ExactSum], rows: &StateRows<'_>) -> Result<()> {
        restore_sums(groups.iter_mut(), rows)
    }
    fn heap_bytes(&self, group: &ExactSum) -> usize {
        group.heap_bytes()
    }
    const ON_HEAP: bool = true;
}

/// STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP.
pub(in crate::aggregate) struct Moments<T> {
    pub(in crate::aggregate) kind: MomentsKind,
    pub(in crate::aggregate) of: PhantomData<fn() -> T>,
}

impl<T: Float> Rule for Moments<T> {
    type Argument = T;
    type Result = T;
    type Group = ExactPowers;

    fn add(&self, group: &mut ExactPowers, value: T::Native) {
        group.add(T::widen(value));
    }
    fn retract(&self, group: &mut ExactPowers, value: T::Native) {
        group.remove(T::widen(value));
    }
    fn result(&self, group: &ExactPowers) -> Option<T::Native> {
        let count = group.sum.count();
        let distance = if count > 0 { group.squared_distance() } else { 0.0 };
        self.kind.finish(distance, count).map(T::narrow)
    }
    fn capture(&self, groups: &[ExactPowers], _: &Arrow, columns: &mut StateColumns) -> Result<()> {
        capture_sums(groups.iter().map(|group| &group.sum), columns)?;
        let mut exact = Exact::default();
        let rounded: Vec<f64> =
            groups.iter().map(|group| exact.add(|n| group.encode_squares(n))).collect();
        columns.add_numbers::<Float64Type>("square_sum", rounded.into_iter());
        exact.capture("exact_squares", columns)
    }
    fn restore(&self, groups: &mut [ExactPowers], rows: &StateRows<'_>) -> Result<()> {
        restore_sums(groups.iter_mut().map(|group| &mut group.sum), rows)?;
        let rounded = rows.numbers::<Float64Type>("square_sum")?;
        let exact = Captured::read(rows, "exact_squares")?;
        for (row, (group, &rounded)) in groups.iter_mut().zip(rounded).enumerate() {
            let sum = std::mem::take(&mut group.sum);
            *group = ExactPowers::decode(sum, rounded, exact.row(row))
                .ok_or_else(|| rows.damaged("exact_squares", "holds no sum of squares"))?;
        }
        Ok(())
    }
    fn heap_bytes(&self, group: &ExactPowers) -> usize {
        group.heap_bytes()
    }
    const ON_HEAP: bool = true;
}

/// Numbers of sums, a list for each group.
#[derive(Default)]
struct Exact {
    numbers: Vec<i64>,
    lengths: Vec<usize>,
}

impl Exact {
    /// Adds the list that this fills.
    fn add<R>(&mut self, fill: impl FnOnce(&mut Vec<i64>) -> R) -> R {
        let before = self.numbers.len();
        let result = fill(&mut self.numbers);
        self.lengths.push(self.numbers.len() - before);
        result
    }

    fn capture(self, part: &str, columns: &mut StateColumns) -> Result<()> {
        columns.add(part, lists(self.lengths, Arc::new(Int64Array::from(self.numbers)))?);
        Ok(())
    }
}

/// The same, read.
struct Captured<'a> {
    offsets: &'a [i32],
    numbers: &'a [i64],
}

impl<'a> Captured<'a> {
    fn read(rows: &StateRows<'a>, part: &str) -> Result<Captured<'a>> {
        let lists = rows.lists(part, &Arrow::Int64)?;
        let numbers = lists.values().as_primitive::<Int64Type>();
        match lists.null_count() + numbers.null_count() {
            0 => Ok(Captured { offsets: lists.value_offsets(), numbers: numbers.values() }),
            _ => Err(rows.damaged(part, "holds NULL")),
        }
    }

    fn row(&self, row: usize) -> &'a [i64] {
        match self.offsets.get(row..row + 2) {
            Some(&[from, to]) => &self.numbers[from as usize..to as usize],
            _ => &[],
        }
    }
}

fn capture_sums<'a>(
    sums: impl Iterator<Item = &'a ExactSum> + Clone,
    columns: &mut StateColumns,
) -> Result<()> {
    let mut exact = Exact::default();
    let parts: Vec<(f64, NotFinite)> =
        sums.clone().map(|sum| exact.add(|numbers| sum.encode(numbers))).collect();
    columns.add_numbers::<Float64Type>("sum", parts.iter().map(|(sum, _)| *sum));
    columns.add_numbers::<Int64Type>("count", sums.map(ExactSum::count));
    exact.capture("exact", columns)?;
    let others = parts.iter().map(|(_, others)| others);
    columns.add_numbers::<Int64Type>("nans", others.clone().map(|others| others.nans));
    columns.add_numbers::<Int64Type>("infinities", others.clone().map(|others| others.positive));
    columns.add_numbers::<Int64Type>("negative_infinities", others.map(|others| others.negative));
    Ok(())
}

/// How many values of each kind are in no sum.
const NOT_FINITE: [&str; 3] = ["nans", "infinities", "negative_infinities"];

fn restore_sums<'a>(
    sums: impl Iterator<Item = &'a mut ExactSum>,
    rows: &StateRows<'_>,
) -> Result<()> {
    let rounded = rows.numbers::<Float64Type>("sum")?;
    let counts = rows.numbers::<Int64Type>("count")?;
    let exact = Captured::read(rows, "exact")?;
    let [nans, positive, negative] = NOT_FINITE.map(|part| rows.numbers::<Int64Type>(part));
    let (nans, positive, negative) = (nans?, positive?, negative?);
    for (row, sum) in sums.enumerate() {
        let others =
            NotFinite { nans: nans[row], positive: positive[row], negative: negative[row] };
        *sum = ExactSum::decode(counts[row], rounded[row], exact.row(row), others)
            .ok_or_else(|| rows.damaged("exact", "holds no sum"))?;
    }
    Ok(())
}
