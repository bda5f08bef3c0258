//! JSON as text, and SQL values as JSON: JSON_STRING, JSON_OBJECT, JSON_ARRAY, JSON_QUOTE and
//! JSON_UNQUOTE.
//!
//! Objects are written with their keys in order and without blanks, as Flink does. A DOUBLE and a
//! DECIMAL are written as Java's `BigDecimal` writes them, times in ISO 8601, bytes in Base64.
//!
//! What JSON_OBJECT, JSON_ARRAY and JSON return becomes part of the JSON around it; any other text
//! is a text there. They are not computed when a statement is planned: a literal would not show
//! where it came from.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use base64::engine::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono_tz::Tz;
use serde_json::{Map, Number, Value as Json};
use thalweg_core::text::append_value;
use thalweg_core::{Column, DataType, Error, Result};

use super::definition::{Call, Definition, Returns, custom, plain};
use crate::expr::{Expr, ExprKind};
use crate::function::{Arguments, Value};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("JSON_STRING", "any", string),
    custom("JSON_OBJECT", "string any*", object),
    custom("JSON_ARRAY", "string any*", array),
    custom("JSON", "string", json),
    // What JSON_OBJECTAGG makes of its members.
    plain("JSON$", "string", Returns::Text, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            append_json(out, &serde_json::from_str(s.get(row)?).ok()?);
            Some(())
        })
    }),
    plain("JSON_QUOTE", "string", Returns::Text, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            append_quoted(out, s.get(row)?);
            Some(())
        })
    }),
    plain("JSON_UNQUOTE", "string", Returns::Text, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            let text = s.get(row)?;
            out.push_str(unquoted(text).as_deref().unwrap_or(text));
            Some(())
        })
    }),
];

/// Whether a value is JSON already.
fn is_json(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Call { function, .. } => {
            matches!(function.name.as_str(), "JSON_OBJECT" | "JSON_ARRAY" | "JSON")
        }
        _ => false,
    }
}

/// Refuses values that have no form in JSON.
fn check_type(call: &Call<'_>, data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Date
        | DataType::Time(_)
        | DataType::IntervalYearMonth
        | DataType::IntervalDayTime => {
            Err(call.error(format!("a {data_type} has no form in JSON")).hint("cast it to STRING"))
        }
        DataType::Array(element) => check_type(call, &element.data_type),
        DataType::Map(key, value) if key.data_type.is_string() => {
            check_type(call, &value.data_type)
        }
        DataType::Map(key, _) => {
            Err(call.error(format!("the keys of an object are texts, not {}", key.data_type)))
        }
        DataType::Row(columns) => {
            columns.iter().try_for_each(|column| check_type(call, &column.column_type.data_type))
        }
        _ => Ok(()),
    }
}

/// A value as JSON.
fn string(call: Call<'_>) -> Result<Expr> {
    if *call.arg_type(0) == DataType::Null {
        return Ok(Expr::null(DataType::STRING));
    }
    check_type(&call, call.arg_type(0))?;
    if *call.arg_type(0) == DataType::Variant {
        return json(call);
    }
    let mut members = Member::all(&call);
    let member = members.swap_remove(0);
    Ok(call.strict(DataType::STRING, move |a| {
        let value = a.value(0);
        a.text_result(|row, out| {
            let row = value.place(row);
            value.array().is_valid(row).then_some(())?;
            append_json(out, &member.json(value, row)?);
            Some(())
        })
    }))
}

/// A value in JSON that is made.
struct Member {
    is_json: bool,
    data_type: DataType,
    zone: Tz,
}

impl Member {
    fn all(call: &Call<'_>) -> Vec<Self> {
        let zone = call.session.zone;
        let of = |arg: &Expr| Member {
            is_json: is_json(arg),
            data_type: arg.column_type.data_type.clone(),
            zone,
        };
        call.args.iter().map(of).collect()
    }

    /// The value of a row; `None` if it is a text that should be JSON and is none.
    fn json(&self, value: &Value, row: usize) -> Option<Json> {
        let row = value.place(row);
        let array = value.array();
        if self.is_json && array.is_valid(row) {
            return serde_json::from_str(array.as_string_view().value(row)).ok();
        }
        Some(to_json(array.as_ref(), row, &self.data_type, self.zone))
    }
}

/// What becomes of values that are NULL, which the parser passes as the first argument.
fn is_absent_on_null(call: &Call<'_>) -> Result<bool> {
    match call.text(0) {
        Some("ABSENT") => Ok(true),
        Some("NULL") => Ok(false),
        _ => Err(call.error("the first argument is 'NULL' or 'ABSENT'")),
    }
}

/// `JSON_OBJECT('NULL' or 'ABSENT', key, value, …)`: what becomes of values that are NULL.
fn object(call: Call<'_>) -> Result<Expr> {
    let absent = is_absent_on_null(&call)?;
    if call.args.len().is_multiple_of(2) {
        return Err(call.error("needs a value for each key"));
    }
    for pair in call.args[1..].chunks(2) {
        let key = &pair[0].column_type;
        if !key.data_type.is_string() || key.nullable {
            return Err(call.error(format!("a key must be a text that is not NULL, got {key}")));
        }
        check_type(&call, &pair[1].column_type.data_type)?;
    }
    let members = Member::all(&call);
    build_json(call, move |a, row| {
        let mut fields = Map::new();
        for index in (1..a.len()).step_by(2) {
            let key = a.texts(index).get(row).unwrap_or_default();
            let value = members[index + 1].json(a.value(index + 1), row)?;
            if !(absent && value.is_null()) {
                fields.insert(key.to_owned(), value);
            }
        }
        Some(Json::Object(fields))
    })
}

/// `JSON_ARRAY('NULL' or 'ABSENT', value, …)`
fn array(call: Call<'_>) -> Result<Expr> {
    let absent = is_absent_on_null(&call)?;
    call.args[1..].iter().try_for_each(|arg| check_type(&call, &arg.column_type.data_type))?;
    let members = Member::all(&call);
    build_json(call, move |a, row| {
        let mut items = Vec::with_capacity(a.len());
        for (index, member) in members.iter().enumerate().skip(1) {
            let value = member.json(a.value(index), row)?;
            if !(absent && value.is_null()) {
                items.push(value);
            }
        }
        Some(Json::Array(items))
    })
}

/// Texts of JSON that is never NULL; an error where a text should be JSON and is none.
fn build_json(
    call: Call<'_>,
    row_json: impl Fn(&Arguments<'_>, usize) -> Option<Json> + Send + Sync + 'static,
) -> Result<Expr> {
    let name = call.name;
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let mut failed = false;
        let texts = a.text_result(|row, out| {
            let json = row_json(a, row);
            failed |= json.is_none();
            json.map(|json| append_json(out, &json))
        });
        match failed {
            true => Err(Error::data(format!("{name}: the argument of JSON(…) is no JSON"))),
            false => texts,
        }
    };
    let column_type = DataType::STRING.not_null();
    Ok(call.unfolded(column_type, kernel, |function| function.can_fail = true))
}

/// `JSON(text)`: the text as it is, to become part of an object or array.
fn json(call: Call<'_>) -> Result<Expr> {
    let column_type = DataType::STRING.nullable().with_nullable(call.nullable());
    Ok(call.unfolded(column_type, |a| Ok(a.value(0).array().clone()), |_| {}))
}

/// A SQL value as JSON.
fn to_json(array: &dyn Array, row: usize, data_type: &DataType, zone: Tz) -> Json {
    if array.is_null(row) || *data_type == DataType::Null {
        return Json::Null;
    }
    let mut text = String::new();
    match data_type {
        DataType::Boolean => return Json::Bool(array.as_boolean().value(row)),
        DataType::Char(_) | DataType::Varchar(_) => {
            return Json::String(array.as_string_view().value(row).to_owned());
        }
        DataType::Variant => {
            let text = array.as_string_view().value(row);
            return serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()));
        }
        DataType::Binary(_) | DataType::Varbinary(_) => {
            return Json::String(STANDARD.encode(array.as_binary::<i32>().value(row)));
        }
        DataType::Array(element) => {
            let items = array.as_list::<i32>().value(row);
            let item = |at| to_json(items.as_ref(), at, &element.data_type, zone);
            return Json::Array((0..items.len()).map(item).collect());
        }
        DataType::Map(_, value) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0).as_string_view(), entries.column(1));
            let entry = |at| {
                let json = to_json(values.as_ref(), at, &value.data_type, zone);
                (keys.value(at).to_owned(), json)
            };
            return Json::Object((0..entries.len()).map(entry).collect());
        }
        DataType::Row(columns) => {
            let arrays = array.as_struct().columns();
            let field = |(column, array): (&Column, &ArrayRef)| {
                let json = to_json(array.as_ref(), row, &column.column_type.data_type, zone);
                (column.name.clone(), json)
            };
            return Json::Object(columns.iter().zip(arrays).map(field).collect());
        }
        data_type if data_type.is_timestamp() => {
            // An instant is written in UTC, whatever the session's zone.
            append_value(&mut text, array, row, data_type, Tz::UTC);
            return Json::String(iso_time(&text, matches!(data_type, DataType::TimestampLtz(_))));
        }
        // Flink makes a DOUBLE of it.
        DataType::Float => {
            let number =
                Float64Array::from_value(array.as_primitive::<Float32Type>().value(row).into(), 1);
            append_value(&mut text, &number, 0, &DataType::Double, zone);
        }
        data_type => append_value(&mut text, array, row, data_type, zone),
    }
    let mut number = String::new();
    append_number(&mut number, &text);
    match number.parse::<Number>() {
        Ok(number) => Json::Number(number),
        Err(_) => Json::String(text),
    }
}

/// `2024-01-01 00:00:00.120` as `2024-01-01T00:00:00.12`, with a `Z` if it is an instant.
fn iso_time(text: &str, is_instant: bool) -> String {
    let shorter = match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.'),
        None => text,
    };
    let zone = if is_instant { "Z" } else { "" };
    format!("{}{zone}", shorter.replacen(' ', "T", 1))
}

/// Appends a text in double quotes, with escapes for all but ASCII, and for `/`.
fn append_quoted(out: &mut String, text: &str) {
    append_escaped(out, text, |out, c| match c {
        '/' => out.push_str("\\/"),
        c if c.is_ascii() => out.push(c),
        c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
            let _ = write!(out, "\\u{unit:04x}");
        }),
    });
}

/// Appends a text in double quotes: `rest` appends what JSON has no short escape for.
pub(super) fn append_escaped(out: &mut String, text: &str, rest: impl Fn(&mut String, char)) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => rest(out, c),
        }
    }
    out.push('"');
}

/// The text in double quotes without them and without escapes; `None` if it is not in quotes, or
/// has an escape that is none.
fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        let unescaped = match c {
            '\\' => match characters.next()? {
                c @ ('"' | '\\' | '/') => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let digits: String = characters.by_ref().take(4).collect();
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                    units.push(unit?);
                    continue;
                }
                _ => return None,
            },
            c => c,
        };
        units.extend_from_slice(unescaped.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

/// Appends a number as Java's `BigDecimal` writes it: its digits stay, and an exponent is written
/// where the number ends left of the point or begins more than six places right of it. Whole
/// numbers stay.
pub(super) fn append_number(out: &mut String, text: &str) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else { return out.push_str(text) };
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let is_zero = significant.is_empty();
    let digits = if is_zero { "0" } else { significant };
    let scale = fraction.len() as i64 - exponent;
    let adjusted = digits.len() as i64 - 1 - scale;
    out.push_str(if is_zero { "" } else { sign });
    if scale == 0 {
        out.push_str(digits);
    } else if scale > 0 && adjusted >= -6 {
        let point = digits.len() as i64 - scale;
        match usize::try_from(point) {
            Ok(point) if point > 0 => {
                out.push_str(&digits[..point]);
                out.push('.');
                out.push_str(&digits[point..]);
            }
            _ => {
                out.push_str("0.");
                (point..0).for_each(|_| out.push('0'));
                out.push_str(digits);
            }
        }
    } else {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        let plus = if adjusted < 0 { "" } else { "+" };
        out.push_str(&format!("E{plus}{adjusted}"));
    }
}

/// How the scalars of JSON are written.
#[derive(Clone, Copy)]
pub(super) struct JsonScalars {
    /// Appends a number, from how it is written.
    pub number: fn(&mut String, &str),
    /// Appends a text, in quotes.
    pub text: fn(&mut String, &str),
}

/// Appends JSON without blanks, the keys of objects in order.
pub(crate) fn append_json(out: &mut String, json: &Json) {
    let text = |out: &mut String, text: &str| out.push_str(&Json::from(text).to_string());
    append_json_with(JsonScalars { number: append_number, text }, out, json);
}

/// The same, with scalars of this form.
pub(super) fn append_json_with(scalars: JsonScalars, out: &mut String, json: &Json) {
    match json {
        Json::Number(number) => (scalars.number)(out, &number.to_string()),
        Json::String(text) => (scalars.text)(out, text),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                append_json_with(scalars, out, item);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            let mut fields: Vec<(&String, &Json)> = fields.iter().collect();
            fields.sort_unstable_by_key(|field| field.0);
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                (scalars.text)(out, key);
                out.push(':');
                append_json_with(scalars, out, value);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{append_number, append_quoted, unquoted};

    #[test]
    fn texts_are_quoted_as_by_flink() {
        let mut out = String::new();
        append_quoted(&mut out, "é/\t\u{1}\"😀");
        assert_eq!(out, "\"\\u00e9\\/\\t\u{1}\\\"\\ud83d\\ude00\"");
    }

    #[test]
    fn only_texts_in_quotes_are_unquoted() {
        let cases = [
            ("\"\\u00e4\\n\\/\"", Some("ä\n/")),
            ("\"\"", Some("")),
            ("\"a\"b\"", Some("a\"b")),
            ("abc", None),
            ("\"a", None),
            ("\"", None),
            ("\"\\q\"", None),
            ("\"\\u12\"", None),
        ];
        for (text, expected) in cases {
            assert_eq!(unquoted(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_by_big_decimal() {
        let cases = [
            ("1", "1"),
            ("-12345678901234567890", "-12345678901234567890"),
            ("1.50", "1.50"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            ("-12.5e-8", "-1.25E-7"),
            ("1e3", "1E+3"),
            ("123e2", "1.23E+4"),
            ("1.5e1", "15"),
            ("1e-2", "0.01"),
            ("0e5", "0E+5"),
            ("0.00", "0.00"),
            ("-0.0", "0.0"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ];
        for (text, expected) in cases {
            let mut out = String::new();
            append_number(&mut out, text);
            assert_eq!(out, expected, "{text}");
        }
    }
}
