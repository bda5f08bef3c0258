//! Values of the reference executor.

use std::cmp::Ordering;

/// A value of any column.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL, of any type
    Null,
    /// BOOLEAN
    Boolean(bool),
    /// Integers, DATE in days, TIME and TIMESTAMP in milliseconds
    Integer(i64),
    /// DECIMAL, unscaled
    Decimal(i128),
    /// FLOAT, DOUBLE
    Double(f64),
    /// CHAR, VARCHAR, STRING; and the text form of values of other types
    String(String),
}

impl Value {
    /// A string.
    pub fn text(text: &str) -> Self {
        Value::String(text.to_owned())
    }
    /// True for NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
    /// The value as a double, for what is a number.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(value) => Some(*value as f64),
            Value::Double(value) => Some(*value),
            _ => None,
        }
    }
    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Boolean(_) => 1,
            Value::Integer(_) => 2,
            Value::Decimal(_) => 3,
            Value::Double(_) => 4,
            Value::String(_) => 5,
        }
    }
}

/// NULL is the smallest value; -0.0 lies below 0.0; NaN is one value, the largest double.
impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        let one_nan = |value: f64| if value.is_nan() { f64::NAN } else { value };
        match (self, other) {
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
            (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => one_nan(*a).total_cmp(&one_nan(*b)),
            (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}
