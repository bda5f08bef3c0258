//! Literals and their types.

use thalweg_core::{DataType, Error, Result};

use crate::expr::{Expr, Scalar};
use crate::kernels::datetime::TimeField;
use crate::kernels::parse;

/// `TRUE` or `FALSE`.
pub fn boolean_literal(value: bool) -> Expr {
    Expr::literal(Scalar::Boolean(value), DataType::Boolean.not_null())
}

/// `NULL` of no type yet.
pub fn null_literal() -> Expr {
    Expr::null(DataType::Null)
}

/// A text, of type `CHAR(n) NOT NULL`.
pub fn string_literal(text: &str) -> Expr {
    let length = text.chars().count() as u32;
    Expr::literal(Scalar::String(text.into()), DataType::Char(length).not_null())
}

/// `X'0aff'`, of type `BINARY(n) NOT NULL`.
pub fn binary_literal(hex: &str) -> Result<Expr> {
    let bad = || Error::plan(format!("X'{hex}' is not an even number of hexadecimal digits"));
    let digits: Option<Vec<u8>> =
        hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(bad)?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let data_type = DataType::Binary(bytes.len() as u32);
    Ok(Expr::literal(Scalar::Binary(bytes.into()), data_type.not_null()))
}

/// A number without sign: `1` is INT, a long one BIGINT, `1.5` DECIMAL, `1e0` DOUBLE.
pub fn number_literal(text: &str) -> Result<Expr> {
    let bad = || Error::plan(format!("'{text}' is not a number"));
    if text.contains(['e', 'E']) {
        let value: f64 = text.parse().map_err(|_| bad())?;
        return Ok(Expr::literal(Scalar::Double(value), DataType::Double.not_null()));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if let (true, Ok(value)) = (fraction.is_empty(), whole.parse::<i64>()) {
        let fits = i32::try_from(value).is_ok();
        let data_type = if fits { DataType::Int } else { DataType::BigInt };
        return Ok(Expr::literal(Scalar::Integer(value), data_type.not_null()));
    }
    let precision = whole.len() + fraction.len();
    let digits = format!("{whole}{fraction}");
    if precision > 38 {
        return Err(Error::plan(format!("the number {text} has more than 38 digits")));
    }
    let value: i128 = digits.parse().map_err(|_| bad())?;
    let data_type = DataType::Decimal(precision.max(1) as u8, fraction.len() as u8);
    Ok(Expr::literal(Scalar::Decimal(value), data_type.not_null()))
}

/// `DATE '…'`, `TIME '…'` or `TIMESTAMP '…'`; the precision is the number of fraction digits.
pub fn typed_literal(type_name: &str, text: &str) -> Result<Expr> {
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.trim_end().len());
    let precision = digits.min(9) as u8;
    let upper = type_name.to_ascii_uppercase();
    let (value, data_type, form) = match upper.as_str() {
        "DATE" => (parse::date(text).map(i64::from), DataType::Date, "yyyy-MM-dd"),
        "TIME" => (parse::time(text).map(i64::from), DataType::Time(precision), "HH:mm:ss[.f…]"),
        "TIMESTAMP" => {
            let data_type = DataType::Timestamp(precision);
            let per_second = crate::kernels::ticks_per_second(&data_type);
            (parse::timestamp_literal(text, per_second), data_type, "yyyy-MM-dd HH:mm:ss[.f…]")
        }
        _ => return Err(Error::unsupported(format!("literals of type {upper}"))),
    };
    let value = value.ok_or_else(|| {
        Error::plan(format!("'{text}' is not a {upper}")).hint(format!("the form is {form}"))
    })?;
    Ok(Expr::literal(Scalar::Integer(value), data_type.not_null()))
}

/// `INTERVAL 'text' leading [TO last]`, for example `('1:30', "HOUR", Some("MINUTE"))`.
pub fn interval(text: &str, leading: &str, last: Option<&str>) -> Result<Expr> {
    let shown = match last {
        Some(last) => format!("INTERVAL '{text}' {leading} TO {last}"),
        None => format!("INTERVAL '{text}' {leading}"),
    };
    let bad = || Error::plan(format!("{shown} is not an interval"));
    let first = TimeField::parse(leading).ok_or_else(bad)?;
    let last = match last {
        Some(last) => TimeField::parse(last).ok_or_else(bad)?,
        None => first,
    };
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text.trim().trim_start_matches('+')),
    };
    let (value, data_type) = match first.months() {
        Some(_) => (months(digits, first, last), DataType::IntervalYearMonth),
        None => (milliseconds(digits, first, last), DataType::IntervalDayTime),
    };
    // Months are counted in 32 bits.
    let fits = |value: &i64| first.months().is_none() || i32::try_from(*value).is_ok();
    let value = value.filter(fits).ok_or_else(bad)?;
    let value = if negative { -value } else { value };
    Ok(Expr::literal(Scalar::Integer(value), data_type.not_null()))
}

fn months(text: &str, first: TimeField, last: TimeField) -> Option<i64> {
    if first == last {
        return text.parse::<i64>().ok()?.checked_mul(first.months()?);
    }
    if (first, last) != (TimeField::Year, TimeField::Month) {
        return None;
    }
    let (years, months) = text.split_once('-')?;
    let months = months.parse::<i64>().ok().filter(|m| (0..12).contains(m))?;
    years.parse::<i64>().ok()?.checked_mul(12)?.checked_add(months)
}

/// Reads `d hh:mm:ss.fff` from the field `first` to the field `last`.
fn milliseconds(text: &str, first: TimeField, last: TimeField) -> Option<i64> {
    use TimeField::*;
    if first == last && !matches!(first, Day | Hour | Minute | Second) {
        return text.parse::<i64>().ok()?.checked_mul(first.millis()?);
    }
    let fields = [Day, Hour, Minute, Second];
    let from = fields.iter().position(|field| *field == first)?;
    let to = fields.iter().position(|field| *field == last)?;
    let mut rest = text;
    let mut total: i64 = 0;
    for (place, field) in fields.iter().enumerate().take(to + 1).skip(from) {
        let separator = if *field == Day { ' ' } else { ':' };
        let part = if place == to {
            std::mem::take(&mut rest)
        } else {
            let (part, tail) = rest.split_once(separator)?;
            rest = tail.trim_start();
            part
        };
        let (whole, fraction) = part.split_once('.').unwrap_or((part, ""));
        if !fraction.is_empty() && *field != Second {
            return None;
        }
        if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        total = total.checked_add(whole.parse::<i64>().ok()?.checked_mul(field.millis()?)?)?;
        if !fraction.is_empty() {
            let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
            total = total.checked_add(padded.parse().ok()?)?;
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_flinks_types() {
        let cases = [
            ("1", "INT NOT NULL"),
            ("2147483648", "BIGINT NOT NULL"),
            ("9223372036854775808", "DECIMAL(19,0) NOT NULL"),
            ("1.5", "DECIMAL(2,1) NOT NULL"),
            ("0.05", "DECIMAL(3,2) NOT NULL"),
            ("1e0", "DOUBLE NOT NULL"),
        ];
        for (text, expected) in cases {
            let literal = number_literal(text).expect("a number");
            assert_eq!(literal.column_type.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn intervals_in_milliseconds_and_months() {
        let cases = [
            ("1.5", "SECOND", None, 1_500),
            ("1:30", "HOUR", Some("MINUTE"), 5_400_000),
            ("1 02:03:04.5", "DAY", Some("SECOND"), 93_784_500),
            ("-2", "DAY", None, -172_800_000),
            ("1-2", "YEAR", Some("MONTH"), 14),
            ("2", "QUARTER", None, 6),
            ("1", "WEEK", None, 604_800_000),
        ];
        for (text, leading, last, expected) in cases {
            let literal = interval(text, leading, last).expect("an interval");
            assert_eq!(literal.as_literal(), Some(&Scalar::Integer(expected)), "{text} {leading}");
        }
        assert!(interval("x", "SECOND", None).is_err());
        assert!(interval("1", "MONTH", Some("DAY")).is_err());
    }
}
