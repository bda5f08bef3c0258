//! PRINTF: a text with values in it, by a pattern of Java's `Formatter`.
//!
//! `%[n$][flags][width][.precision]conversion` with the flags `-`, `0`, `+`, blank, `,`, `(` and
//! `#`, and the conversions `s`, `d`, `x`, `o`, `f`, `e`, `b`, `%` and `n` (`S`, `X`, `E` and `B`
//! write in upper case). A pattern that does not fit the values gives NULL, as in Flink; DECIMAL,
//! CHAR and times are texts to it.

use std::fmt::Write;

use arrow_array::Array;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, cast::AsArray};
use thalweg_core::DataType;
use thalweg_core::Result;
use thalweg_core::text::append_value;

use super::arguments::GrownText;
use super::definition::{Call, Definition, custom};
use crate::expr::Expr;
use crate::function::{Arguments, Value};
use crate::kernels::cast::Cast;

pub(super) const DEFINITIONS: &[Definition] = &[custom("PRINTF", "string any*", printf)];

/// The widest value and the most digits of a fraction.
const WIDTH_MAX: usize = 1 << 20;

fn printf(call: Call<'_>) -> Result<Expr> {
    let types: Vec<DataType> =
        call.args.iter().map(|arg| arg.column_type.data_type.clone()).collect();
    if let Some(nested) = types.iter().find(|t| t.arrow().is_nested()) {
        return Err(call.error(format!("a {nested} has no text here")).hint("cast it to STRING"));
    }
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let pattern = a.texts(0);
        let mut values = Vec::with_capacity(a.len());
        for (value, data_type) in a.values.iter().zip(&types) {
            values.push(Operand::new(value, data_type, a.zone)?);
        }
        a.grown_text_result("PRINTF", |row, out| {
            append_formatted(out, pattern.get(row)?, &values[1..], row)
        })
    };
    let column_type = DataType::STRING.nullable();
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// A value that is formatted.
struct Operand<'a> {
    value: &'a Value,
    data_type: &'a DataType,
    zone: chrono_tz::Tz,
    /// The numbers of a FLOAT or DOUBLE.
    doubles: Option<ArrayRef>,
}

enum Formatted {
    Null,
    Integer(i64, u32),
    Double(f64, String),
    Text(String),
}

impl<'a> Operand<'a> {
    fn new(value: &'a Value, data_type: &'a DataType, zone: chrono_tz::Tz) -> Result<Self> {
        let cast = Cast { from: data_type, to: &DataType::Double, safe: true, zone };
        let is_float = data_type.is_float();
        let doubles = is_float.then(|| cast.apply(value.array())).transpose()?;
        Ok(Operand { value, data_type, zone, doubles })
    }

    fn of(&self, row: usize) -> Formatted {
        let row = self.value.place(row);
        let array = self.value.array();
        if *self.data_type == DataType::Null || array.is_null(row) {
            return Formatted::Null;
        }
        let mut text = String::new();
        match self.data_type {
            DataType::Boolean => {
                text.push_str(if array.as_boolean().value(row) { "true" } else { "false" });
            }
            data_type => append_value(&mut text, array, row, data_type, self.zone),
        }
        let bits = match self.data_type {
            DataType::TinyInt => 8,
            DataType::SmallInt => 16,
            DataType::Int => 32,
            DataType::BigInt => 64,
            _ => 0,
        };
        match &self.doubles {
            Some(doubles) => {
                Formatted::Double(doubles.as_primitive::<Float64Type>().value(row), text)
            }
            None if bits > 0 => match text.parse() {
                Ok(number) => Formatted::Integer(number, bits),
                Err(_) => Formatted::Text(text),
            },
            None => Formatted::Text(text),
        }
    }
}

/// A conversion: what stands between `%` and its letter.
#[derive(Default)]
struct Directive {
    argument: Option<usize>,
    left: bool,
    zeros: bool,
    plus: bool,
    blank: bool,
    groups: bool,
    brackets: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

fn append_formatted(
    out: &mut GrownText,
    pattern: &str,
    values: &[Operand<'_>],
    row: usize,
) -> Option<()> {
    let mut rest = pattern;
    let mut next = 0;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push(before, pattern.len())?;
        let (directive, letter, behind) = directive(behind)?;
        rest = behind;
        match letter {
            'n' => out.push("\n", 0)?,
            '%' => directive.pad(out, "%", false)?,
            letter => {
                let index = directive.argument.unwrap_or(next);
                next += usize::from(directive.argument.is_none());
                let value = values.get(index)?.of(row);
                let text = directive.text(letter.to_ascii_lowercase(), &value)?;
                let text = if letter.is_uppercase() { text.to_uppercase() } else { text };
                let is_number = matches!(letter.to_ascii_lowercase(), 'd' | 'x' | 'o' | 'f' | 'e');
                directive.pad(out, &text, is_number)?;
            }
        }
    }
    out.push(rest, pattern.len())
}

/// Reads a conversion behind its `%`: how, its letter, and what follows.
fn directive(text: &str) -> Option<(Directive, char, &str)> {
    let mut directive = Directive::default();
    let (number, behind) = leading_number(text);
    let mut rest = text;
    if let Some(behind) = behind.strip_prefix('$') {
        directive.argument = Some(number?.checked_sub(1)?);
        rest = behind;
    }
    while let Some(flag) = rest.chars().next().filter(|c| "-0+ ,(#".contains(*c)) {
        match flag {
            '-' => directive.left = true,
            '0' => directive.zeros = true,
            '+' => directive.plus = true,
            ' ' => directive.blank = true,
            ',' => directive.groups = true,
            '(' => directive.brackets = true,
            _ => {}
        }
        rest = &rest[1..];
    }
    (directive.width, rest) = leading_number(rest);
    if let Some(behind) = rest.strip_prefix('.') {
        (directive.precision, rest) = leading_number(behind);
        directive.precision?;
    }
    let letter = rest.chars().next()?;
    let needs_width = directive.left || directive.zeros;
    if (needs_width && directive.width.is_none()) || (directive.left && directive.zeros) {
        return None;
    }
    Some((directive, letter, &rest[letter.len_utf8()..]))
}

fn leading_number(text: &str) -> (Option<usize>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse::<usize>().ok().map(|number| number.min(WIDTH_MAX));
    (number, &text[end..])
}

impl Directive {
    /// The value without padding; `None` if the letter is not for it.
    fn text(&self, letter: char, value: &Formatted) -> Option<String> {
        let precise = |text: &str| match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        Some(match (letter, value) {
            ('b', Formatted::Null) => precise("false"),
            ('b', Formatted::Text(text)) if text == "false" => precise(text),
            ('b', _) => precise("true"),
            ('s' | 'd' | 'x' | 'o' | 'f' | 'e' | 'c' | 'h' | 'g' | 'a', Formatted::Null) => {
                precise("null")
            }
            ('s', Formatted::Integer(number, _)) => precise(&number.to_string()),
            ('s', Formatted::Double(_, text) | Formatted::Text(text)) => precise(text),
            ('d', Formatted::Integer(number, _)) if self.precision.is_none() => {
                self.signed(*number < 0, &self.grouped(&number.unsigned_abs().to_string()))
            }
            ('c', Formatted::Integer(number, 1..=32)) if self.precision.is_none() => {
                char::from_u32(u32::try_from(*number).ok()?)?.to_string()
            }
            ('x' | 'o', Formatted::Integer(number, bits)) if self.precision.is_none() => {
                let unsigned = (*number as u64) & (u64::MAX >> (64 - bits));
                if letter == 'x' { format!("{unsigned:x}") } else { format!("{unsigned:o}") }
            }
            ('f' | 'e', Formatted::Double(number, text)) if !number.is_finite() => {
                let _ = text;
                let name = if number.is_nan() { "NaN" } else { "Infinity" };
                self.signed(number.is_sign_negative() && !number.is_nan(), name)
            }
            ('f', Formatted::Double(number, _)) => {
                let text = fixed(number.abs(), self.precision.unwrap_or(6));
                self.signed(number.is_sign_negative(), &self.grouped(&text))
            }
            ('e', Formatted::Double(number, _)) => {
                let text = scientific(number.abs(), self.precision.unwrap_or(6));
                self.signed(number.is_sign_negative(), &text)
            }
            _ => return None,
        })
    }

    fn signed(&self, is_negative: bool, digits: &str) -> String {
        match is_negative {
            true if self.brackets => format!("({digits})"),
            true => format!("-{digits}"),
            false if self.plus => format!("+{digits}"),
            false if self.blank => format!(" {digits}"),
            false => digits.to_owned(),
        }
    }

    /// The digits with commas between thousands, if wanted.
    fn grouped(&self, digits: &str) -> String {
        if !self.groups {
            return digits.to_owned();
        }
        let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
        let mut grouped = String::new();
        for (place, digit) in whole.chars().enumerate() {
            if place > 0 && (whole.len() - place).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped + fraction
    }

    /// Appends a text with what fills it up to the width.
    fn pad(&self, out: &mut GrownText, text: &str, is_number: bool) -> Option<()> {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        if self.left {
            out.push(text, 0)?;
            return out.repeat(" ", missing);
        }
        if self.zeros {
            if !is_number {
                return None;
            }
            let sign = usize::from(text.starts_with(['-', '+', ' ', '(']));
            out.push(&text[..sign], 0)?;
            out.repeat("0", missing)?;
            return out.push(&text[sign..], 0);
        }
        out.repeat(" ", missing)?;
        out.push(text, 0)
    }
}

/// A number with this many digits behind the point, rounded half up by its shortest digits.
fn fixed(number: f64, places: usize) -> String {
    let shortest = format!("{number}");
    let digits = shortest.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    if digits <= places {
        return format!("{number:.places$}");
    }
    // Half up: the shortest digits are those that are rounded, as in Java.
    let kept = shortest.len() - (digits - places);
    let is_up = shortest.as_bytes()[kept] >= b'5';
    let mut text: Vec<u8> = shortest.as_bytes()[..kept].to_vec();
    if text.last() == Some(&b'.') {
        text.pop();
    }
    let mut carries = is_up;
    for digit in text.iter_mut().rev().filter(|digit| **digit != b'.') {
        if !carries {
            break;
        }
        carries = *digit == b'9';
        *digit = if carries { b'0' } else { *digit + 1 };
    }
    let rounded = String::from_utf8_lossy(&text).into_owned();
    if carries { format!("1{rounded}") } else { rounded }
}

fn scientific(number: f64, places: usize) -> String {
    let mut text = String::new();
    let _ = write!(text, "{number:.places$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pattern: &str, value: &Formatted) -> Option<String> {
        let (directive, letter, _) = directive(pattern.strip_prefix('%')?)?;
        let text = directive.text(letter.to_ascii_lowercase(), value)?;
        Some(if letter.is_uppercase() { text.to_uppercase() } else { text })
    }

    #[test]
    fn values_are_written_as_by_java() {
        let double = |number: f64| Formatted::Double(number, String::new());
        let cases = [
            ("%d", Formatted::Integer(-5, 32), Some("-5")),
            ("%,d", Formatted::Integer(1_234_567, 32), Some("1,234,567")),
            ("%+d", Formatted::Integer(7, 32), Some("+7")),
            ("%(d", Formatted::Integer(-7, 32), Some("(7)")),
            ("%x", Formatted::Integer(-1, 8), Some("ff")),
            ("%X", Formatted::Integer(255, 64), Some("FF")),
            ("%c", Formatted::Integer(65, 32), Some("A")),
            ("%c", Formatted::Null, Some("null")),
            ("%d", double(1.0), None),
            ("%f", double(1.5), Some("1.500000")),
            ("%.2f", double(0.125), Some("0.13")),
            ("%.0f", double(9.5), Some("10")),
            ("%.1f", double(-99.96), Some("-100.0")),
            ("%.3e", double(12_345.678), Some("1.235e+04")),
            ("%f", double(f64::NEG_INFINITY), Some("-Infinity")),
            ("%s", Formatted::Null, Some("null")),
            ("%b", Formatted::Null, Some("false")),
            ("%.2s", Formatted::Text("abc".to_owned()), Some("ab")),
            ("%c", Formatted::Text("x".to_owned()), None),
            ("%-d", Formatted::Integer(1, 32), None),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(text(pattern, &value).as_deref(), expected, "{pattern}");
        }
    }
}
