//! Texts as parts of URLs, bytes of hexadecimal digits, and of what characters a text consists.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray};
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, Returns, custom, plain};
use crate::expr::Expr;

pub(super) const DEFINITIONS: &[Definition] = &[
    plain("URL_ENCODE", "string", Returns::TextOrNull, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            url_encode(out, s.get(row)?);
            Some(())
        })
    }),
    plain("URL_DECODE", "string", Returns::TextOrNull, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            out.push_str(&url_decode(s.get(row)?)?);
            Some(())
        })
    }),
    custom("UNHEX", "string", |call| {
        Ok(call.with_kernel(DataType::BYTES.nullable(), |a| {
            let s = a.texts(0);
            let bytes: BinaryArray = (0..a.rows).map(|row| unhex(s.get(row)?)).collect();
            Ok(Arc::new(bytes) as ArrayRef)
        }))
    }),
    custom("IS_ALPHA", "any", |call| consists_of(call, is_alpha)),
    custom("IS_DIGIT", "any", |call| consists_of(call, is_digit)),
    custom("IS_DECIMAL", "any", |call| consists_of(call, is_decimal)),
];

/// As `application/x-www-form-urlencoded`.
fn url_encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

/// `None` for `%` without two digits behind it. Bytes that are no UTF-8 become U+FFFD.
fn url_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                hex_digit(digits[0])? << 4 | hex_digit(digits[1])?
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The bytes of hexadecimal digits. The first of an odd number is taken for 0, as Flink's page
/// says.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let (first, pairs) = digits.split_at(digits.len() % 2);
    first.first().map_or(Some(0), |&digit| hex_digit(digit))?;
    let byte = |pair: &[u8]| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?);
    let bytes: Option<Vec<u8>> = pairs.chunks(2).map(byte).collect();
    let mut all = vec![0; first.len()];
    all.extend(bytes?);
    Some(all)
}

/// Whether a text is of this kind: never NULL. Of a number its type decides, as in Flink: integers
/// are digits, and integers and floats are decimals.
fn consists_of(call: Call<'_>, test: fn(&str) -> bool) -> Result<Expr> {
    let data_type = call.arg_type(0).clone();
    let of_number = match call.name {
        "IS_DIGIT" => data_type.is_integer(),
        "IS_DECIMAL" => data_type.is_integer() || data_type.is_float(),
        _ => false,
    };
    Ok(call.with_kernel(DataType::Boolean.not_null(), move |a| {
        if data_type.is_string() {
            let s = a.texts(0);
            return a.boolean_result(|row| Some(s.get(row).is_some_and(test)));
        }
        a.boolean_result(|_| Some(of_number))
    }))
}

fn is_alpha(text: &str) -> bool {
    !text.is_empty() && text.chars().all(char::is_alphabetic)
}

fn is_digit(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_numeric() && c.is_alphanumeric())
}

/// What Java reads as a DOUBLE.
fn is_decimal(text: &str) -> bool {
    let text = text.trim_matches(|c: char| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return true;
    }
    let number = unsigned.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(unsigned);
    let is_plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    number.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && number.chars().all(is_plain)
        && number.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_encoded_and_decoded_as_by_java() {
        let mut out = String::new();
        url_encode(&mut out, "~*-._ !é");
        assert_eq!(out, "%7E*-._+%21%C3%A9");
        let cases = [
            ("a+b%20%C3%A9", Some("a b é")),
            ("%", None),
            ("%z1", None),
            ("%C3", Some("\u{fffd}")),
            ("", Some("")),
        ];
        for (text, expected) in cases {
            assert_eq!(url_decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn digits_become_bytes() {
        let cases: [(&str, Option<&[u8]>); 6] = [
            ("68656C6c6F", Some(b"hello")),
            ("6", Some(&[0])),
            ("ABC", Some(&[0, 0xBC])),
            ("zz", None),
            ("", Some(&[])),
            ("äb", None),
        ];
        for (text, expected) in cases {
            assert_eq!(unhex(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts_are_of_letters_digits_or_decimals() {
        for (text, alpha, digit, decimal) in [
            ("äb", true, false, false),
            ("", false, false, false),
            ("123", false, true, true),
            ("١٢", false, true, false),
            ("-1.5e3", false, false, true),
            (".", false, false, false),
            ("1.", false, false, true),
            (" 1f", false, false, true),
            ("NaN", true, false, true),
            ("inf", true, false, false),
            ("1 2", false, false, false),
        ] {
            let got = (is_alpha(text), is_digit(text), is_decimal(text));
            assert_eq!(got, (alpha, digit, decimal), "{text}");
        }
    }
}
