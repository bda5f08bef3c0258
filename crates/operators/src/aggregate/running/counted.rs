//! Values with how often each is there, as columns of a table of state: a list of values and a list
//! of counts for each group.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::super::state::{elements_of, lists};
use super::super::{StateColumns, StateRows};

/// Captures values of groups and how often each is there.
pub(in crate::aggregate) fn capture(
    lengths: Vec<usize>,
    values: ArrayRef,
    times: Vec<i64>,
    columns: &mut StateColumns,
) -> Result<()> {
    columns.add("values", lists(lengths.clone(), values)?);
    columns.add("times", lists(lengths, Arc::new(Int64Array::from(times)))?);
    Ok(())
}

/// Values of groups, as they were captured.
pub(in crate::aggregate) struct Counted {
    pub(in crate::aggregate) values: ArrayRef,
    /// The group of each value.
    pub(in crate::aggregate) ids: Vec<u32>,
    /// How often each is there, at least once.
    pub(in crate::aggregate) times: Vec<u64>,
}

/// Takes values back of these groups, which are of this type.
pub(in crate::aggregate) fn restore(
    rows: &StateRows<'_>,
    of: &Arrow,
    groups: &[u32],
) -> Result<Counted> {
    let (values, ids) = elements_of(rows.lists("values", of)?, groups);
    let (times, ids_of_times) = elements_of(rows.lists("times", &Arrow::Int64)?, groups);
    let times = times.as_primitive::<Int64Type>();
    let counts = times.null_count() == 0 && times.values().iter().all(|&times| times > 0);
    if ids != ids_of_times || !counts {
        return Err(rows.damaged("times", "does not count the values"));
    }
    let times = times.values().iter().map(|&times| times as u64).collect();
    Ok(Counted { values, ids, times })
}
