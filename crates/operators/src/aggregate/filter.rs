//! The condition of FILTER.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use thalweg_core::{Error, Result};

/// The rows for which a condition is true: not false and not unknown.
///
/// # Errors
/// If the column is not BOOLEAN.
pub(crate) fn accepted(condition: &ArrayRef) -> Result<BooleanBuffer> {
    let values = condition
        .as_boolean_opt()
        .ok_or_else(|| Error::internal("FILTER names a column that is not BOOLEAN"))?;
    Ok(match values.nulls() {
        Some(nulls) => values.values() & nulls.inner(),
        None => values.values().clone(),
    })
}
