//! Values of any shape: PARSE_JSON, TRY_PARSE_JSON, and access to their fields and elements.
//!
//! A VARIANT is held as the JSON text that Flink shows of it: without blanks, the keys of objects
//! in order and each once, numbers as below. So equal values have equal texts, and a part of a
//! value is a part of its text.
//!
//! | number | becomes |
//! |---|---|
//! | a BIGINT | itself |
//! | digits with or without a point, up to 38 | a DECIMAL without zeros at its end |
//! | any other | a DOUBLE as Java writes it, which may be `Infinity` |
//!
//! **Invariant:** every VARIANT has gone through [`canonical`], or is a part of one that has.

use arrow_array::ArrayRef;
use serde_json::Value as Json;
use thalweg_core::text::append_double;
use thalweg_core::{DataType, Error, Result};

use super::definition::{Call, Definition, custom};
use super::json_text::{JsonScalars, append_escaped, append_json_with};
use crate::build::implicit_cast;
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("PARSE_JSON", "string boolean?", |call| parse(call, false)),
    custom("TRY_PARSE_JSON", "string boolean?", |call| parse(call, true)),
];

/// The most digits of a number that stays exact, and the most of them behind the point.
const DIGITS_MAX: usize = 38;

/// `PARSE_JSON(text [, whether a key may come twice])`; the last of its values stays.
fn parse(call: Call<'_>, is_safe: bool) -> Result<Expr> {
    let column_type = DataType::Variant.nullable().with_nullable(is_safe || call.nullable());
    let name = call.name;
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let texts = a.texts(0);
        let takes_twice = (a.len() > 1).then(|| a.booleans(1));
        let mut failed = None;
        let parsed = a.text_result(|row, out| {
            let takes_twice = takes_twice.as_ref().and_then(|flags| flags.get(row));
            match canonical(texts.get(row)?, takes_twice == Some(true)) {
                Ok(text) => {
                    out.push_str(&text);
                    Some(())
                }
                Err(reason) => {
                    failed.get_or_insert(reason);
                    None
                }
            }
        });
        match failed.filter(|_| !is_safe) {
            Some(reason) => Err(Error::data(format!("{name}: the text is no JSON: {reason}"))
                .hint("TRY_PARSE_JSON is NULL there; PARSE_JSON(text, TRUE) takes a key twice")),
            None => parsed,
        }
    };
    Ok(call.unfolded(column_type, kernel, |function| function.can_fail = !is_safe))
}

/// The text of the value at the beginning of a text: what follows it is not read, as in Flink, but
/// for what follows a number without a blank. An error says what is wrong.
fn canonical(text: &str, takes_twice: bool) -> std::result::Result<String, String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    let json = values.next().ok_or("it is empty")?.map_err(|error| error.to_string())?;
    let behind = &text[values.byte_offset()..];
    if json.is_number() && !behind.is_empty() && !behind.starts_with([' ', '\t', '\n', '\r']) {
        return Err("a number is followed by other text".to_owned());
    }
    if !takes_twice && members_written(&text[..values.byte_offset()]) > members_kept(&json) {
        return Err("an object has a key twice".to_owned());
    }
    let mut out = String::with_capacity(text.len());
    append(&mut out, &json);
    Ok(out)
}

/// How many fields of objects valid JSON has: each has one colon outside of texts.
fn members_written(text: &str) -> usize {
    let mut scan = Scan::default();
    text.bytes().filter(|&byte| scan.passes(byte) && byte == b':').count()
}

fn members_kept(json: &Json) -> usize {
    match json {
        Json::Array(items) => items.iter().map(members_kept).sum(),
        Json::Object(fields) => fields.len() + fields.values().map(members_kept).sum::<usize>(),
        _ => 0,
    }
}

fn append(out: &mut String, json: &Json) {
    append_json_with(JsonScalars { number: append_number, text: append_text }, out, json);
}

/// Appends a text in quotes, as Jackson writes it.
fn append_text(out: &mut String, text: &str) {
    append_escaped(out, text, |out, c| match c {
        '\0'..'\u{20}' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        c => out.push(c),
    });
}

fn append_number(out: &mut String, text: &str) {
    if let Ok(number) = text.parse::<i64>() {
        out.push_str(&number.to_string());
        return;
    }
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let significant = format!("{whole}{fraction}");
    let is_exact = !digits.contains(['e', 'E'])
        && significant.trim_start_matches('0').len() <= DIGITS_MAX
        && fraction.len() <= DIGITS_MAX;
    if !is_exact {
        return append_double(out, text.parse().unwrap_or(f64::NAN));
    }
    let fraction = fraction.trim_end_matches('0');
    let is_zero = whole == "0" && fraction.is_empty();
    out.push_str(if is_zero { "" } else { sign });
    out.push_str(whole);
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

/// Where a scan of JSON stands: within a text, and how deep.
#[derive(Default)]
struct Scan {
    in_text: bool,
    is_escaped: bool,
    depth: usize,
}

impl Scan {
    /// Passes a byte; true if it is outside of texts.
    fn passes(&mut self, byte: u8) -> bool {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        !self.in_text
    }
}

/// The items of an array or the fields of an object, from the text between its brackets.
fn parts(inner: &str) -> impl Iterator<Item = &str> {
    let mut scan = Scan::default();
    let mut rest = Some(inner).filter(|inner| !inner.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let ends = |byte: u8| scan.passes(byte) && byte == b',' && scan.depth == 0;
        let (part, behind) = match text.bytes().position(ends) {
            Some(comma) => (&text[..comma], Some(&text[comma + 1..])),
            None => (text, None),
        };
        rest = behind;
        Some(part)
    })
}

/// `variant['field']` or `variant[index]`, the first being 1: NULL where there is none.
pub(super) fn access(mut call: Call<'_>) -> Result<Expr> {
    let of_key = call.arg_type(1).clone();
    let kernel: fn(&Arguments<'_>) -> Result<ArrayRef> = match &of_key {
        key if key.is_string() => field,
        index if index.is_integer() => {
            let index = call.args.pop().map(|index| implicit_cast(index, &DataType::Int));
            call.args.extend(index);
            element
        }
        other => {
            return Err(call.error(format!("a VARIANT has fields and elements, but no [{other}]")));
        }
    };
    Ok(call.unfolded(DataType::Variant.nullable(), kernel, |function| function.can_fail = true))
}

fn field(a: &Arguments<'_>) -> Result<ArrayRef> {
    let keys = a.texts(1);
    read(a, ('{', '}'), "the field of an object", |inner, row| {
        let mut key = String::new();
        append_text(&mut key, keys.get(row)?);
        parts(inner).find_map(|part| part.strip_prefix(key.as_str())?.strip_prefix(':'))
    })
}

fn element(a: &Arguments<'_>) -> Result<ArrayRef> {
    let indices = a.ints(1);
    read(a, ('[', ']'), "the element of an array", |inner, row| {
        parts(inner).nth(usize::try_from(indices.get(row)?).ok()?.checked_sub(1)?)
    })
}

/// A part of each value between these brackets; a value without them is an error.
fn read<'a>(
    a: &'a Arguments<'_>,
    (open, close): (char, char),
    what: &str,
    part: impl Fn(&'a str, usize) -> Option<&'a str>,
) -> Result<ArrayRef> {
    let texts = a.texts(0);
    let mut wrong: Option<&str> = None;
    let parts = a.text_result(|row, out| {
        let text = texts.get(row)?;
        match text.strip_prefix(open).and_then(|text| text.strip_suffix(close)) {
            Some(inner) => out.push_str(part(inner, row)?),
            None => {
                wrong.get_or_insert(text);
                return None;
            }
        }
        Some(())
    });
    match wrong {
        Some(text) => {
            let start: String = text.chars().take(40).collect();
            Err(Error::data(format!("{what} is read of a VARIANT that is none: {start}")))
        }
        None => parts,
    }
}

#[cfg(test)]
mod tests {
    use super::{canonical, parts};

    #[test]
    fn values_are_written_as_flink_shows_them() {
        let cases = [
            ("{ \"b\": [1, 2.50], \"a\": \"x, \\\"y\" }", "{\"a\":\"x, \\\"y\",\"b\":[1,2.5]}"),
            ("1e3", "1000.0"),
            ("-0.0", "0"),
            ("7 8", "7"),
            ("\"\\u001f\\u00e9/\"", "\"\\u001Fé/\""),
            ("0.1e-7", "1.0E-8"),
            ("1e400", "Infinity"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text, false).as_deref(), Ok(expected));
        }
        assert!(canonical("{\"a\": 1, \"b\": {\"a\": 1}}", false).is_ok());
        assert!(canonical("{\"a\": 1, \"a\": 2}", false).is_err());
        assert_eq!(canonical("{\"a\": 1, \"a\": 2}", true).as_deref(), Ok("{\"a\":2}"));
        assert!(canonical("{", true).is_err());
    }

    #[test]
    fn parts_end_at_commas_outside_of_texts_and_brackets() {
        let of = |inner| parts(inner).collect::<Vec<_>>();
        assert_eq!(
            of("1,[2,3],\"a,\\\",b\",{\"k\":[4,5]}"),
            ["1", "[2,3]", "\"a,\\\",b\"", "{\"k\":[4,5]}"]
        );
        assert!(of("").is_empty());
    }
}
