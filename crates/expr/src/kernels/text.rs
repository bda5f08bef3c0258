//! The text of constants; the text of columns is [`thalweg_core::text`].

use thalweg_core::DataType;
use thalweg_core::text::append_value;

use crate::expr::Scalar;
use crate::literal;

pub(crate) use thalweg_core::text::append_decimal;

/// The text of a constant; `None` for NULL and for types without literals.
pub(crate) fn scalar_text(value: &Scalar, data_type: &DataType) -> Option<String> {
    if *value == Scalar::Null {
        return None;
    }
    let array = literal::to_array(value, data_type).ok()?;
    let mut out = String::new();
    append_value(&mut out, array.as_ref(), 0, data_type, chrono_tz::Tz::UTC);
    Some(out)
}
