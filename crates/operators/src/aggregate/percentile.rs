//! PERCENTILE: the value below which a fraction of a group's values lies, exactly.
//!
//! As in Flink, the fraction `p` of `n` sorted values stands at place `p (n - 1)`; between two
//! values the result lies in proportion. A state holds all values of its group, in any order: the
//! result depends on the values alone, so states commute.
//!
//! Memory is one value per row, so it suits windows, and groups of bounded size.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type};
use arrow_array::{ArrayRef, Float64Array};
use arrow_buffer::NullBufferBuilder;
use thalweg_core::{DataType, Error, Result};

use super::extremes::as_rows;
use super::fold::Fold;
use super::lists::ListBuilder;
use super::state::elements_of;
use super::values::{nulls, with_one_nan};
use super::{StateColumns, StateRows, UpdateInput};

/// Which percentiles are wanted, each from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Fractions {
    /// One: the result is a DOUBLE.
    One(f64),
    /// Several: the result is an array of DOUBLEs.
    Many(Arc<[f64]>),
}

impl Fractions {
    /// The type of the result.
    pub(super) fn result_type(&self) -> DataType {
        match self {
            Fractions::One(_) => DataType::Double,
            Fractions::Many(_) => DataType::Array(Box::new(DataType::Double.nullable())),
        }
    }

    fn as_slice(&self) -> &[f64] {
        match self {
            Fractions::One(fraction) => std::slice::from_ref(fraction),
            Fractions::Many(fractions) => fractions,
        }
    }
}

impl fmt::Display for Fractions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fractions::One(fraction) => write!(f, "{fraction}"),
            Fractions::Many(fractions) => write!(f, "ARRAY{fractions:?}"),
        }
    }
}

/// Builds results from sorted values.
pub(super) struct PercentileBuilder<'a> {
    fractions: &'a Fractions,
    values: Vec<f64>,
    valid: NullBufferBuilder,
}

impl<'a> PercentileBuilder<'a> {
    pub fn new(fractions: &'a Fractions, results: usize) -> Self {
        let values = Vec::with_capacity(results * fractions.as_slice().len());
        PercentileBuilder { fractions, values, valid: NullBufferBuilder::new(results) }
    }

    /// Appends the result over these values; without any it is NULL.
    pub fn push(&mut self, sorted: &[f64]) {
        self.valid.append(!sorted.is_empty());
        let one = matches!(self.fractions, Fractions::One(_));
        if sorted.is_empty() {
            if one {
                self.values.push(0.0);
            }
            return;
        }
        let fractions = self.fractions.as_slice();
        self.values.extend(fractions.iter().map(|&fraction| percentile(sorted, fraction)));
    }

    pub fn finish(mut self) -> Result<ArrayRef> {
        let results = self.valid.len();
        let valid = self.valid.finish();
        let Fractions::Many(fractions) = self.fractions else {
            return Ok(Arc::new(Float64Array::new(self.values.into(), valid)));
        };
        let mut lists = ListBuilder::new(&DataType::Double);
        for result in 0..results {
            let is_valid = valid.as_ref().is_none_or(|valid| valid.is_valid(result));
            lists.push(if is_valid { fractions.len() } else { 0 });
        }
        lists.finish(Arc::new(Float64Array::from(self.values)))
    }
}

/// The percentile of sorted values, of which there is at least one.
fn percentile(sorted: &[f64], fraction: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * fraction;
    let (below, above) = (place.floor(), place.ceil());
    let (low, high) = (sorted[below as usize], sorted[above as usize]);
    if below == above || low == high {
        return low;
    }
    (above - place) * low + (place - below) * high
}

/// The values of any numeric column as DOUBLEs; what stands at a NULL means nothing.
pub(super) fn doubles(column: &ArrayRef) -> Result<Float64Array> {
    let column = &with_one_nan(column);
    if let Some(doubles) = column.as_primitive_opt::<Float64Type>() {
        return Ok(doubles.clone());
    }
    if let Some(decimals) = column.as_primitive_opt::<Decimal128Type>() {
        let divisor = 10f64.powi(i32::from(decimals.scale()));
        return Ok(decimals.unary(|value| value as f64 / divisor));
    }
    let cast = arrow_cast::cast(column, &arrow_schema::DataType::Float64)?;
    let doubles = cast.as_primitive_opt::<Float64Type>();
    doubles.cloned().ok_or_else(|| Error::internal("a cast to DOUBLE that is none"))
}

/// PERCENTILE.
pub(super) struct Percentile {
    fractions: Fractions,
}

impl Percentile {
    pub fn new(fractions: Fractions) -> Self {
        Percentile { fractions }
    }
}

impl Fold for Percentile {
    type Group = Vec<f64>;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [Vec<f64>], input: &UpdateInput<'_>) -> Result<()> {
        let column = input.column()?;
        let values = doubles(column)?;
        let valid = nulls(column);
        for (place, &id) in input.ids.iter().enumerate() {
            let row = input.row(place) as usize;
            if valid.is_none_or(|nulls| nulls.is_valid(row)) {
                groups[id as usize].push(values.value(row));
            }
        }
        Ok(())
    }
    fn merge(&self, into: &mut Vec<f64>, from: &Vec<f64>) {
        into.extend_from_slice(from);
    }
    fn evaluate(&self, groups: &[Vec<f64>], ids: &[u32]) -> Result<ArrayRef> {
        let mut results = PercentileBuilder::new(&self.fractions, ids.len());
        let mut sorted = Vec::new();
        for &id in ids {
            sorted.clear();
            sorted.extend_from_slice(&groups[id as usize]);
            sorted.sort_unstable_by(f64::total_cmp);
            results.push(&sorted);
        }
        results.finish()
    }
    fn capture(&self, groups: &[Vec<f64>], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let mut lists = ListBuilder::new(&DataType::Double);
        ids.iter().for_each(|&id| lists.push(groups[id as usize].len()));
        let values = ids.iter().flat_map(|&id| groups[id as usize].iter().copied());
        columns.add("", lists.finish(Arc::new(Float64Array::from_iter_values(values)))?);
        Ok(())
    }
    fn restore(&self, groups: &mut [Vec<f64>], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let lists = rows.lists("", &DataType::Double.arrow())?;
        let (elements, ids) = elements_of(lists, ids);
        self.update(groups, &as_rows(&ids, &elements))
    }
    fn heap_bytes(&self, group: &Vec<f64>) -> usize {
        group.capacity() * 8
    }
}
