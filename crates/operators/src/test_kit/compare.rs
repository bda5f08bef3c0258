//! Comparing rows.

use crate::reference::Value;

/// The rows in a canonical order, to compare multisets.
pub fn sorted(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    rows.sort();
    rows
}

/// Panics unless both are the same rows in the same order; doubles may differ by one part in 1e9.
pub fn assert_same_rows(actual: &[Vec<Value>], expected: &[Vec<Value>], what: &str) {
    for (row, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let same = actual.len() == expected.len()
            && actual.iter().zip(expected).all(|(actual, expected)| close(actual, expected));
        assert!(same, "{what}: row {row} is\n  {actual:?}\nand should be\n  {expected:?}");
    }
    let (actual_count, expected_count) = (actual.len(), expected.len());
    assert_eq!(actual_count, expected_count, "{what}: number of rows");
}

fn close(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Double(a), Value::Double(b)) if a.is_finite() && b.is_finite() => {
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        _ => actual == expected,
    }
}
