//! Percentiles of values that each count as often as a frequency says.
//!
//! The result is that of PERCENTILE over each value written out as often: the fraction `p` of `n`
//! sorted values stands at place `p (n - 1)`, and between two values it lies in proportion.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

use super::arrays::Lists;
use super::definition::{Call, Definition, custom};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[custom("PERCENTILE$", "array any", percentile)];

/// `PERCENTILE$(ARRAY<ROW<DOUBLE, BIGINT>>, fraction)`, or an array of fractions, which are DOUBLEs
/// that do not differ from row to row; without values NULL.
fn percentile(call: Call<'_>) -> Result<Expr> {
    let data_type = match call.arg_type(1) {
        DataType::Array(_) => DataType::Array(Box::new(DataType::Double.nullable())),
        _ => DataType::Double,
    };
    Ok(call.with_kernel(data_type.nullable(), percentiles))
}

fn percentiles(a: &Arguments<'_>) -> Result<ArrayRef> {
    let lists = Lists::new(a, 0);
    let groups: Vec<Vec<(f64, i64)>> =
        (0..a.rows).map(|row| counted(&lists, row)).collect::<Result<_>>()?;
    let fractions = a.value(1).array();
    let of_list = fractions.as_list_opt::<i32>().map(|list| list.values().clone());
    let numbers = of_list.as_ref().unwrap_or(fractions);
    let numbers = numbers
        .as_primitive_opt::<Float64Type>()
        .ok_or_else(|| Error::internal("fractions that are no DOUBLEs"))?
        .values();
    let Arrow::List(field) = a.result.arrow() else {
        let one = numbers.first().copied().unwrap_or_default();
        let mut results = Float64Builder::with_capacity(a.rows);
        groups.iter().for_each(|group| results.append_option(value_at(group, one)));
        return Ok(Arc::new(results.finish()));
    };
    // Constant: the fractions of the first row are those of all.
    let count = of_list.as_ref().map_or(0, |_| fractions.as_list::<i32>().value_length(0) as usize);
    let mut results = ListBuilder::new(Float64Builder::new()).with_field(field);
    for group in &groups {
        for &fraction in &numbers[..count] {
            results.values().append_option(value_at(group, fraction));
        }
        results.append(!group.is_empty());
    }
    Ok(Arc::new(results.finish()))
}

/// The values of a row, sorted, each with how often it counts.
fn counted(lists: &Lists<'_>, row: usize) -> Result<Vec<(f64, i64)>> {
    let wrong = || Error::internal("values without frequencies");
    let pairs = lists.values.as_struct_opt().ok_or_else(wrong)?;
    let [values, counts] = pairs.columns() else { return Err(wrong()) };
    let values = values.as_primitive_opt::<Float64Type>().ok_or_else(wrong)?;
    let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let one_nan = |value: f64| if value.is_nan() { f64::NAN } else { value };
    let range = lists.range(row).unwrap_or(0..0).filter(|&at| pairs.is_valid(at));
    let mut group: Vec<(f64, i64)> =
        range.map(|at| (one_nan(values.value(at)), counts.value(at))).collect();
    group.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
    Ok(group)
}

/// The percentile of sorted values; `None` without any.
fn value_at(group: &[(f64, i64)], fraction: f64) -> Option<f64> {
    let total: i128 = group.iter().map(|&(_, count)| i128::from(count)).sum();
    let place = (total - 1) as f64 * fraction;
    let at = |place: f64| {
        let mut before = 0;
        let holds = |&&(_, count): &&(f64, i64)| {
            before += i128::from(count);
            (place as i128) < before
        };
        group.iter().find(holds).or(group.last()).map(|&(value, _)| value)
    };
    let (below, above) = (place.floor(), place.ceil());
    let (low, high) = (at(below)?, at(above)?);
    if below == above || low == high {
        return Some(low);
    }
    Some((above - place) * low + (place - below) * high)
}

#[cfg(test)]
mod tests {
    use super::value_at;

    #[test]
    fn a_value_counts_as_often_as_its_frequency_says() {
        let group = [(1.0, 2), (4.0, 1), (10.0, i64::MAX)];
        assert_eq!(value_at(&group[..2], 0.5), Some(1.0));
        assert_eq!(value_at(&group[..2], 0.75), Some(2.5));
        assert_eq!(value_at(&group[..2], 1.0), Some(4.0));
        assert_eq!(value_at(&group, 0.5), Some(10.0));
        assert_eq!(value_at(&group, 0.0), Some(1.0));
        assert_eq!(value_at(&[], 0.5), None);
    }
}
