//! JSON in text: JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON.
//!
//! Paths are `$`, `.key`, `['key']`, `[n]`, `[*]` and `.*`, after an optional `lax` or `strict`.

use serde_json::Value as Json;
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, custom};
use crate::expr::Expr;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("JSON_VALUE", "string string", |call| with_path(call, value_kernel)),
    custom("JSON_QUERY", "string string", |call| with_path(call, query_kernel)),
    custom("JSON_EXISTS", "string string", exists),
    custom("IS JSON", "string", is_json),
];

/// A step of a path.
enum PathStep {
    Key(String),
    Index(usize),
    Wildcard,
}

fn parse_path(text: &str) -> Option<Vec<PathStep>> {
    let text = text.trim();
    let text = text.strip_prefix("lax ").or_else(|| text.strip_prefix("strict ")).unwrap_or(text);
    let mut rest = text.trim_start().strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let key = &tail[..end];
            if key.is_empty() {
                return None;
            }
            steps.push(if key == "*" { PathStep::Wildcard } else { PathStep::Key(key.to_owned()) });
            rest = &tail[end..];
        } else {
            let tail = rest.strip_prefix('[')?;
            if let Some(quote) = tail.chars().next().filter(|c| matches!(c, '\'' | '"')) {
                let (key, after) = tail[1..].split_once(quote)?;
                steps.push(PathStep::Key(key.to_owned()));
                rest = after.strip_prefix(']')?;
            } else {
                let (index, after) = tail.split_once(']')?;
                steps.push(match index.trim() {
                    "*" => PathStep::Wildcard,
                    index => PathStep::Index(index.parse().ok()?),
                });
                rest = after;
            }
        }
    }
    Some(steps)
}

/// What a path leads to; several values only behind a wildcard.
fn select<'j>(json: &'j Json, path: &[PathStep]) -> Vec<&'j Json> {
    let mut found = vec![json];
    for step in path {
        found = found
            .into_iter()
            .flat_map(|json| -> Vec<&Json> {
                match (step, json) {
                    (PathStep::Key(key), Json::Object(object)) => {
                        object.get(key).into_iter().collect()
                    }
                    (PathStep::Index(index), Json::Array(array)) => {
                        array.get(*index).into_iter().collect()
                    }
                    (PathStep::Wildcard, Json::Array(array)) => array.iter().collect(),
                    (PathStep::Wildcard, Json::Object(object)) => object.values().collect(),
                    _ => Vec::new(),
                }
            })
            .collect();
    }
    found
}

type PathKernel = fn(&Json, &[PathStep], &mut String) -> Option<()>;

fn literal_path(call: &Call<'_>) -> Result<Vec<PathStep>> {
    let text = call.text(1).ok_or_else(|| call.error("the path must be a literal"))?;
    parse_path(text).ok_or_else(|| {
        call.error(format!("'{text}' is not a path")).hint("paths look like $.a.b[0]['c']")
    })
}

fn with_path(call: Call<'_>, kernel: PathKernel) -> Result<Expr> {
    let path = literal_path(&call)?;
    Ok(call.with_kernel(DataType::STRING.nullable(), move |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            let json: Json = serde_json::from_str(s.get(row)?).ok()?;
            kernel(&json, &path, out)
        })
    }))
}

/// FALSE for NULL as well.
fn is_json(call: Call<'_>) -> Result<Expr> {
    Ok(call.with_kernel(DataType::Boolean.not_null(), |a| {
        let s = a.texts(0);
        let is_json = |text: &str| serde_json::from_str::<Json>(text).is_ok();
        a.boolean_result(|row| Some(s.get(row).is_some_and(is_json)))
    }))
}

/// Appends a number as Java's `BigDecimal` writes it: its digits stay, and an exponent is written
/// where the number ends left of the point or begins more than six places right of it. Whole
/// numbers stay.
fn append_number(out: &mut String, text: &str) {
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

/// Appends JSON without blanks, the keys of objects in order.
fn append_json(out: &mut String, json: &Json) {
    match json {
        Json::Number(number) => append_number(out, &number.to_string()),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                append_json(out, item);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            let mut fields: Vec<(&String, &Json)> = fields.iter().collect();
            fields.sort_unstable_by_key(|field| field.0);
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                out.push_str(&Json::String(key.clone()).to_string());
                out.push(':');
                append_json(out, value);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// A single scalar; NULL for anything else.
fn value_kernel(json: &Json, path: &[PathStep], out: &mut String) -> Option<()> {
    match select(json, path)[..] {
        [Json::String(text)] => out.push_str(text),
        [Json::Number(number)] => append_number(out, &number.to_string()),
        [Json::Bool(truth)] => out.push_str(if *truth { "true" } else { "false" }),
        _ => return None,
    }
    Some(())
}

/// An object or array, as JSON.
fn query_kernel(json: &Json, path: &[PathStep], out: &mut String) -> Option<()> {
    let wildcard = path.iter().any(|step| matches!(step, PathStep::Wildcard));
    let found = select(json, path);
    match found[..] {
        _ if wildcard => {
            out.push('[');
            for (index, json) in found.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                append_json(out, json);
            }
            out.push(']');
        }
        [json @ (Json::Object(_) | Json::Array(_))] => append_json(out, json),
        _ => return None,
    }
    Some(())
}

fn exists(call: Call<'_>) -> Result<Expr> {
    let path = literal_path(&call)?;
    Ok(call.with_kernel(DataType::Boolean.nullable(), move |a| {
        let s = a.texts(0);
        a.boolean_result(|row| {
            let text = s.get(row)?;
            let json = serde_json::from_str::<Json>(text);
            // A null is a value that does not exist.
            let exists = |json: &Json| !matches!(select(json, &path)[..], [] | [Json::Null]);
            Some(json.is_ok_and(|json| exists(&json)))
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::append_number;

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
