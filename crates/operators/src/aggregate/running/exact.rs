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

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, Int64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::super::arithmetic::{Arithmetic, NumberState};
use super::super::exact::{ExactPowers, ExactSum, NotFinite};
use super::super::moments::MomentsKind;
use super::super::state::lists;
use super::super::{StateColumns, StateRows};

/// How many values of each kind are in no sum.
const NOT_FINITE: [&str; 3] = ["nans", "infinities", "negative_infinities"];

/// SUM and AVG.
pub(in crate::aggregate) struct Sum {
    pub(in crate::aggregate) mean: bool,
    pub(in crate::aggregate) result: DataType,
}

impl Arithmetic for Sum {
    type Number = f64;
    type State = ExactSum;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn value(&self, group: &ExactSum) -> Option<f64> {
        let divisor = if self.mean { group.count() as f64 } else { 1.0 };
        (group.count() > 0).then(|| group.value() / divisor)
    }
}

/// STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP.
pub(in crate::aggregate) struct Moments {
    pub(in crate::aggregate) kind: MomentsKind,
    pub(in crate::aggregate) result: DataType,
}

impl Arithmetic for Moments {
    type Number = f64;
    type State = ExactPowers;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn value(&self, group: &ExactPowers) -> Option<f64> {
        let count = group.sum.count();
        let distance = if count > 0 { group.squared_distance() } else { 0.0 };
        self.kind.finish(distance, count)
    }
}

impl NumberState<f64> for ExactSum {
    fn add(&mut self, value: f64) {
        self.change(value, 1);
    }
    fn remove(&mut self, value: f64) {
        self.change(value, -1);
    }
    fn capture<'a>(
        sums: impl Iterator<Item = &'a Self> + Clone,
        _: u8,
        columns: &mut StateColumns,
    ) -> Result<()> {
        let mut exact = Exact::default();
        let parts: Vec<(f64, NotFinite)> =
            sums.clone().map(|sum| exact.add(|numbers| sum.encode(numbers))).collect();
        columns.add_numbers::<Float64Type>("sum", parts.iter().map(|(sum, _)| *sum));
        columns.add_numbers::<Int64Type>("count", sums.map(ExactSum::count));
        exact.capture("exact", columns)?;
        let others = parts.iter().map(|(_, others)| others);
        let [nans, infinities, negative_infinities] = NOT_FINITE;
        columns.add_numbers::<Int64Type>(nans, others.clone().map(|others| others.nans));
        columns.add_numbers::<Int64Type>(infinities, others.clone().map(|others| others.positive));
        columns.add_numbers::<Int64Type>(negative_infinities, others.map(|others| others.negative));
        Ok(())
    }
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>> {
        let rounded = rows.numbers::<Float64Type>("sum")?;
        let counts = rows.numbers::<Int64Type>("count")?;
        let exact = CapturedNumbers::read(rows, "exact")?;
        let [nans, positive, negative] = NOT_FINITE.map(|part| rows.numbers::<Int64Type>(part));
        let (nans, positive, negative) = (nans?, positive?, negative?);
        let sum = |row: usize| {
            let others =
                NotFinite { nans: nans[row], positive: positive[row], negative: negative[row] };
            ExactSum::decode(counts[row], rounded[row], exact.row(row), others)
                .ok_or_else(|| rows.damaged("exact", "holds no sum"))
        };
        (0..rows.len()).map(sum).collect()
    }
    fn heap_bytes(&self) -> usize {
        self.bytes_elsewhere()
    }
    const ON_HEAP: bool = true;
}

impl NumberState<f64> for ExactPowers {
    fn add(&mut self, value: f64) {
        self.change(value, 1);
    }
    fn remove(&mut self, value: f64) {
        self.change(value, -1);
    }
    fn capture<'a>(
        groups: impl Iterator<Item = &'a Self> + Clone,
        scale: u8,
        columns: &mut StateColumns,
    ) -> Result<()> {
        ExactSum::capture(groups.clone().map(|group| &group.sum), scale, columns)?;
        let mut exact = Exact::default();
        let rounded: Vec<f64> =
            groups.map(|group| exact.add(|numbers| group.encode_squares(numbers))).collect();
        columns.add_numbers::<Float64Type>("square_sum", rounded.into_iter());
        exact.capture("exact_squares", columns)
    }
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>> {
        let rounded = rows.numbers::<Float64Type>("square_sum")?;
        let exact = CapturedNumbers::read(rows, "exact_squares")?;
        let sums = ExactSum::restore(rows)?.into_iter().enumerate();
        let powers = |(row, sum)| {
            ExactPowers::decode(sum, rounded[row], exact.row(row))
                .ok_or_else(|| rows.damaged("exact_squares", "holds no sum of squares"))
        };
        sums.map(powers).collect()
    }
    fn heap_bytes(&self) -> usize {
        self.bytes_elsewhere()
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
struct CapturedNumbers<'a> {
    offsets: &'a [i32],
    numbers: &'a [i64],
}

impl<'a> CapturedNumbers<'a> {
    fn read(rows: &StateRows<'a>, part: &str) -> Result<CapturedNumbers<'a>> {
        let lists = rows.lists(part, &Arrow::Int64)?;
        let numbers = lists.values().as_primitive::<Int64Type>();
        match lists.null_count() + numbers.null_count() {
            0 => Ok(CapturedNumbers { offsets: lists.value_offsets(), numbers: numbers.values() }),
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
