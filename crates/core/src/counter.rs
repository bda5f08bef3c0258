//! Positions in inputs whose rows have numbers: `{"row":12}` is behind the first twelve.

use crate::error::{Error, Result};

/// The position after this number of rows.
pub fn row_position(rows: u64) -> String {
    format!("{{\"row\":{rows}}}")
}

/// How many rows lie before a position of [`row_position`].
///
/// # Errors
/// If it is something else.
pub fn rows_before(position: &str) -> Result<u64> {
    let rows = position.trim().strip_prefix("{\"row\":").and_then(|rest| rest.strip_suffix('}'));
    rows.and_then(|rows| rows.trim().parse().ok()).ok_or_else(|| {
        Error::user(format!("this is not the number of a row: {position}"))
            .hint("the snapshot is of another table, of another version, or damaged")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for rows in [0, 12, u64::MAX] {
            assert_eq!(rows_before(&row_position(rows)).expect("a position"), rows);
        }
        for other in ["", "{}", "{\"row\":-1}", "{\"row\":1", "{\"slot\":1}", "12"] {
            assert!(rows_before(other).is_err(), "{other}");
        }
    }
}
