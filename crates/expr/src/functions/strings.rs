//! Functions of text. Positions count characters (code points) from 1.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray};
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine};
use std::sync::Arc;
use thalweg_core::{DataType, Error, Result};

use super::arguments::GrownText;
use super::definition::{Call, Definition, Returns, custom, fallible, plain};
use crate::build::implicit_cast;
use crate::expr::{Expr, Scalar};
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    plain("UPPER", "string", Returns::First, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| push_all(out, s.get(row)?.chars().flat_map(char::to_uppercase)))
    }),
    plain("LOWER", "string", Returns::First, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| push_all(out, s.get(row)?.chars().flat_map(char::to_lowercase)))
    }),
    plain("CHAR_LENGTH", "string", Returns::Int, char_length),
    plain("CHARACTER_LENGTH", "string", Returns::Int, char_length),
    plain("COUNT_CHAR", "string string", Returns::BigInt, |a| {
        let (s, c) = (a.texts(0), a.texts(1));
        a.number_result::<arrow_array::types::Int64Type>(|row| {
            let wanted = c.get(row)?.chars().next();
            Some(s.get(row)?.chars().filter(|c| Some(*c) == wanted).count() as i64)
        })
    }),
    plain("SUBSTRING", "string int int?", Returns::FirstVarcharOrNull, substring),
    plain("SUBSTR", "string int int?", Returns::FirstVarcharOrNull, substring),
    plain("LEFT", "string int", Returns::FirstVarcharOrNull, |a| {
        let (s, n) = (a.texts(0), a.ints(1));
        a.slice_result(|row| Some(characters(s.get(row)?, 0, n.get(row)?.max(0) as usize)))
    }),
    plain("RIGHT", "string int", Returns::FirstVarcharOrNull, |a| {
        let (s, n) = (a.texts(0), a.ints(1));
        a.slice_result(|row| {
            let (s, n) = (s.get(row)?, n.get(row)?.max(0) as usize);
            let length = s.chars().count();
            Some(characters(s, length.saturating_sub(n), n))
        })
    }),
    custom("TRIM", "string string? string?", trim),
    plain("LTRIM", "string string?", Returns::FirstVarchar, |a| trim_set(a, true, false)),
    plain("RTRIM", "string string?", Returns::FirstVarchar, |a| trim_set(a, false, true)),
    plain("BTRIM", "string string?", Returns::Text, |a| trim_set(a, true, true)),
    fallible("REPLACE", "string string string", Returns::Text, |a| {
        let (s, from, to) = (a.texts(0), a.texts(1), a.texts(2));
        a.grown_text_result("REPLACE", |row, out| {
            replace(out, s.get(row)?, from.get(row)?, to.get(row)?)
        })
    }),
    plain("POSITION", "string string int?", Returns::Int, locate),
    plain("LOCATE", "string string int?", Returns::Int, locate),
    plain("INSTR", "string string int? int?", Returns::Int, instr),
    plain("CONCAT", "string string*", Returns::Text, concat),
    custom("||", "string string", concat_operator),
    plain("CONCAT_WS", "string string*", Returns::Text, concat_with_separator),
    fallible("LPAD", "string int string", Returns::TextOrNull, |a| pad(a, true)),
    fallible("RPAD", "string int string", Returns::TextOrNull, |a| pad(a, false)),
    fallible("REPEAT", "string int", Returns::Text, |a| {
        let (s, n) = (a.texts(0), a.ints(1));
        a.grown_text_result("REPEAT", |row, out| {
            out.repeat(s.get(row)?, n.get(row)?.max(0) as usize)
        })
    }),
    plain("REVERSE", "string", Returns::TextOrNull, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| push_all(out, s.get(row)?.chars().rev()))
    }),
    plain("INITCAP", "string", Returns::First, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| initcap(out, s.get(row)?))
    }),
    custom("OVERLAY", "string string int int?", overlay),
    custom("SPLIT_INDEX", "string any int", split_index),
    plain("ASCII", "string", Returns::Int, |a| {
        let s = a.texts(0);
        a.number_result::<Int32Type>(|row| {
            // Java's bytes are signed.
            Some(s.get(row)?.bytes().next().map_or(0, |byte| i32::from(byte as i8)))
        })
    }),
    plain("CHR", "bigint", Returns::TextOrNull, character),
    plain("FROM_BASE64", "string", Returns::TextOrNull, |a| {
        let s = a.texts(0);
        a.text_result(|row, out| {
            let bytes = BASE64_READER.decode(s.get(row)?).ok()?;
            out.push_str(&String::from_utf8_lossy(&bytes));
            Some(())
        })
    }),
    custom("ENCODE", "string string", encode),
    custom("DECODE", "binary string", decode),
    custom("TRANSLATE", "string string string", translate_all),
    custom("TRANSLATE3", "string string string", translate_all),
];

fn push_all(out: &mut String, characters: impl Iterator<Item = char>) -> Option<()> {
    out.extend(characters);
    Some(())
}

/// Java's decoder asks neither for padding nor for zeros in the last bits.
const BASE64_READER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// `count` characters from the character `skip` on.
fn characters(text: &str, skip: usize, count: usize) -> &str {
    if text.is_ascii() {
        let start = skip.min(text.len());
        return &text[start..start.saturating_add(count).min(text.len())];
    }
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]).skip(skip);
    let start = starts.next().unwrap_or(text.len());
    let end = match count {
        0 => start,
        _ => starts.nth(count - 1).unwrap_or(text.len()),
    };
    &text[start..end]
}

fn char_length(a: &Arguments<'_>) -> Result<ArrayRef> {
    let s = a.texts(0);
    a.number_result::<Int32Type>(|row| Some(s.get(row)?.chars().count() as i32))
}

/// Position 0 counts as 1, a negative one from the end; before the text there is nothing.
fn substring(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (s, from) = (a.texts(0), a.ints(1));
    let length = a.ints_or(2, i32::MAX);
    a.slice_result(|row| {
        let (text, from) = (s.get(row)?, i64::from(from.get(row)?));
        let length = length.get(row)?;
        if length < 0 {
            return None;
        }
        let start = match from {
            0 => 0,
            from if from > 0 => from - 1,
            from => text.chars().count() as i64 + from,
        };
        match usize::try_from(start) {
            Ok(start) => Some(characters(text, start, length as usize)),
            Err(_) => Some(""),
        }
    })
}

/// `TRIM(s)`, or `TRIM(BOTH part FROM s)` as the arguments BOTH, part and s.
fn trim(mut call: Call<'_>) -> Result<Expr> {
    let (leading, trailing) = match call.args.len() {
        1 => (true, true),
        3 => {
            let side = call.args.remove(0);
            match side.as_literal() {
                Some(Scalar::String(side)) if &**side == "BOTH" => (true, true),
                Some(Scalar::String(side)) if &**side == "LEADING" => (true, false),
                Some(Scalar::String(side)) if &**side == "TRAILING" => (false, true),
                _ => return Err(Error::plan("TRIM takes BOTH, LEADING or TRAILING")),
            }
        }
        _ => {
            return Err(Error::plan("TRIM does not take two arguments")
                .hint("write TRIM(BOTH part FROM text)"));
        }
    };
    // Flink's order is the part, then the text; the type is that of the text.
    call.args.reverse();
    let column_type = Returns::FirstVarchar.resolve(&call.args);
    let shown = match (leading, trailing) {
        (true, true) => "TRIM",
        (true, false) => "TRIM_LEADING",
        _ => "TRIM_TRAILING",
    };
    let kernel = move |a: &Arguments<'_>| trim_set(a, leading, trailing);
    Ok(call.with_function(column_type, kernel, |f| f.name = shown.to_owned()))
}

/// Removes any of a set of characters, by default blanks.
fn trim_set(a: &Arguments<'_>, leading: bool, trailing: bool) -> Result<ArrayRef> {
    let s = a.texts(0);
    let set = a.texts_or(1, " ");
    a.slice_result(|row| {
        let (mut text, set) = (s.get(row)?, set.get(row)?);
        if leading {
            text = text.trim_start_matches(|c| set.contains(c));
        }
        if trailing {
            text = text.trim_end_matches(|c| set.contains(c));
        }
        Some(text)
    })
}

/// An empty part is found before each character and at the end, as in Java.
fn replace(out: &mut GrownText, text: &str, from: &str, to: &str) -> Option<()> {
    let mut end = 0;
    for (at, part) in text.match_indices(from) {
        out.push(&text[end..at], text.len())?;
        out.push(to, text.len())?;
        end = at + part.len();
    }
    out.push(&text[end..], text.len())
}

/// The position of the `nth` occurrence at or behind `from` (both from 1); 0 if there is none.
fn position(text: &str, part: &str, from: i32, nth: i32) -> i32 {
    if from < 1 || nth < 1 {
        return 0;
    }
    let skip = text.len() - characters(text, from as usize - 1, usize::MAX >> 1).len();
    let mut start = skip;
    let mut found = None;
    for _ in 0..nth {
        let Some(at) = text.get(start..).and_then(|tail| tail.find(part)) else { return 0 };
        found = Some(start + at);
        let step = text[start + at..].chars().next().map_or(1, char::len_utf8);
        start += at + step;
    }
    found.map_or(0, |at| text[..at].chars().count() as i32 + 1)
}

/// POSITION and LOCATE: the part comes first, then the text. A start before the text is its start,
/// and an empty part is found there.
fn locate(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (part, text) = (a.texts(0), a.texts(1));
    let from = a.ints_or(2, 1);
    a.number_result::<Int32Type>(|row| {
        let (part, text, from) = (part.get(row)?, text.get(row)?, from.get(row)?);
        Some(if part.is_empty() { 1 } else { position(text, part, from.max(1), 1) })
    })
}

/// The position of the `nth` occurrence that ends at or before the character `from`, counted from
/// the end and backwards; 0 if there is none.
fn position_backwards(text: &str, part: &str, from: u32, nth: i32) -> i32 {
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    let from = i32::try_from(from).unwrap_or(i32::MAX);
    match position(&reversed(text), &reversed(part), from, nth) {
        0 => 0,
        found => (text.chars().count() - part.chars().count()) as i32 + 2 - found,
    }
}

fn instr(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, part) = (a.texts(0), a.texts(1));
    let (from, nth) = (a.ints_or(2, 1), a.ints_or(3, 1));
    a.number_result::<Int32Type>(|row| {
        let (from, nth) = (from.get(row)?, nth.get(row)?);
        let (text, part) = (text.get(row)?, part.get(row)?);
        Some(match from {
            // An empty part is found at the end from which the search starts.
            _ if part.is_empty() && nth > 0 && from > 0 => 1,
            _ if part.is_empty() && nth > 0 && from < 0 => text.chars().count() as i32 + 1,
            ..0 => position_backwards(text, part, from.unsigned_abs(), nth),
            _ => position(text, part, from, nth),
        })
    })
}

fn concat(a: &Arguments<'_>) -> Result<ArrayRef> {
    let texts: Vec<_> = (0..a.len()).map(|i| a.texts(i)).collect();
    a.text_result(|row, out| {
        for text in &texts {
            out.push_str(text.get(row)?);
        }
        Some(())
    })
}

/// `||`: CHAR with CHAR is CHAR, else VARCHAR, as long as both together.
fn concat_operator(call: Call<'_>) -> Result<Expr> {
    let length = |data_type: &DataType| match data_type {
        DataType::Char(length) => (*length, true),
        DataType::Varchar(length) => (*length, false),
        _ => (thalweg_core::types::MAX_LENGTH, false),
    };
    let ((l, left_fixed), (r, right_fixed)) = (length(call.arg_type(0)), length(call.arg_type(1)));
    let total = l.saturating_add(r).min(thalweg_core::types::MAX_LENGTH);
    let data_type =
        if left_fixed && right_fixed { DataType::Char(total) } else { DataType::Varchar(total) };
    Ok(call.strict(data_type, concat))
}

/// NULL parts are left out; a NULL separator makes NULL.
fn concat_with_separator(a: &Arguments<'_>) -> Result<ArrayRef> {
    let separator = a.texts(0);
    let texts: Vec<_> = (1..a.len()).map(|i| a.texts(i)).collect();
    a.text_result(|row, out| {
        let separator = separator.get(row)?;
        let mut first = true;
        for text in texts.iter().filter_map(|text| text.get(row)) {
            if !std::mem::take(&mut first) {
                out.push_str(separator);
            }
            out.push_str(text);
        }
        Some(())
    })
}

fn pad(a: &Arguments<'_>, leading: bool) -> Result<ArrayRef> {
    let (s, length, fill) = (a.texts(0), a.ints(1), a.texts(2));
    a.grown_text_result(if leading { "LPAD" } else { "RPAD" }, |row, out| {
        let (text, fill) = (s.get(row)?, fill.get(row)?);
        let length = usize::try_from(length.get(row)?).ok()?;
        if fill.is_empty() {
            return None;
        }
        let have = text.chars().count();
        if have >= length {
            return out.push(characters(text, 0, length), text.len());
        }
        if !leading {
            out.push(text, text.len())?;
        }
        let fill_length = fill.chars().count();
        out.repeat(fill, (length - have) / fill_length)?;
        out.push(characters(fill, 0, (length - have) % fill_length), 0)?;
        out.push(if leading { text } else { "" }, text.len())
    })
}

/// Words are of ASCII letters and digits, as in Calcite; other letters stay as they are.
fn initcap(out: &mut String, text: &str) -> Option<()> {
    let mut inside = false;
    for c in text.chars() {
        out.push(if inside { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() });
        inside = c.is_ascii_alphanumeric();
    }
    Some(())
}

/// `OVERLAY(s PLACING part FROM start [FOR length])`
fn overlay(call: Call<'_>) -> Result<Expr> {
    let length = |data_type: &DataType| match data_type {
        DataType::Char(length) | DataType::Varchar(length) => *length,
        _ => thalweg_core::types::MAX_LENGTH,
    };
    let total = length(call.arg_type(0)).saturating_add(length(call.arg_type(1)));
    let data_type = DataType::Varchar(total.min(thalweg_core::types::MAX_LENGTH));
    Ok(call.strict(data_type, overlay_kernel))
}

fn overlay_kernel(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (s, part, start) = (a.texts(0), a.texts(1), a.ints(2));
    let length = (a.len() > 3).then(|| a.ints(3));
    a.text_result(|row, out| {
        let (text, part, start) = (s.get(row)?, part.get(row)?, start.get(row)?);
        let length = match &length {
            Some(length) => length.get(row)?,
            None => part.chars().count() as i32,
        };
        if start < 1 || start as usize > text.chars().count() {
            out.push_str(text);
            return Some(());
        }
        let before = start as usize - 1;
        out.push_str(characters(text, 0, before));
        out.push_str(part);
        let skip = before.saturating_add_signed(length as isize);
        out.push_str(characters(text, skip, usize::MAX >> 1));
        Some(())
    })
}

/// `from` and `to` that are NULL are empty.
fn translate_all(call: Call<'_>) -> Result<Expr> {
    let nullable = call.args[0].column_type.nullable;
    Ok(call.with_kernel(DataType::STRING.nullable().with_nullable(nullable), |a| {
        let (s, from, to) = (a.texts(0), a.texts(1), a.texts(2));
        a.text_result(|row, out| {
            translate(out, s.get(row)?, from.get(row).unwrap_or(""), to.get(row).unwrap_or(""))
        })
    }))
}

/// `CHR(code)`
fn character(a: &Arguments<'_>) -> Result<ArrayRef> {
    let n = a.bigints(0);
    a.text_result(|row, out| {
        let n = n.get(row)?;
        if n >= 0 {
            out.push(char::from((n & 0xff) as u8));
        }
        Some(())
    })
}

/// `SPLIT_INDEX(text, separator, n)`; the separator may be the code of a character.
fn split_index(mut call: Call<'_>) -> Result<Expr> {
    let separator = call.arg_type(1);
    let is_code = separator.is_integer();
    if !is_code && !separator.is_string() && *separator != DataType::Null {
        return Err(call.error(format!("the separator is a text, not {separator}")));
    }
    let target = if is_code { DataType::BigInt } else { DataType::STRING };
    call.args[1] = implicit_cast(call.args[1].clone(), &target);
    Ok(call.with_kernel(DataType::STRING.nullable(), move |a| {
        let (s, n) = (a.texts(0), a.ints(2));
        if is_code {
            let codes = a.bigints(1);
            return a.slice_result(|row| {
                let character = char::from(codes.get(row)? as u8);
                let text = s.get(row)?;
                nth_part(text, character.encode_utf8(&mut [0; 4]), n.get(row)?)
            });
        }
        let separator = a.texts(1);
        a.slice_result(|row| {
            let text = s.get(row)?;
            nth_part(text, separator.get(row)?, n.get(row)?)
        })
    }))
}

/// Part `n` of a text, counted from 0. Without a separator, each white space separates.
fn nth_part<'t>(text: &'t str, separator: &str, n: i32) -> Option<&'t str> {
    let n = usize::try_from(n).ok()?;
    if text.is_empty() {
        return None;
    }
    match separator {
        "" => text.split(is_java_whitespace).nth(n),
        separator => text.split(separator).nth(n),
    }
}

/// White space as Java has it: no blanks that do not break a line.
fn is_java_whitespace(c: char) -> bool {
    let is_separator =
        c.is_whitespace() && !matches!(c, '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{85}');
    is_separator || matches!(c, '\u{1c}'..='\u{1f}')
}

fn translate(out: &mut String, text: &str, from: &str, to: &str) -> Option<()> {
    for c in text.chars() {
        match from.chars().position(|f| f == c) {
            None => out.push(c),
            Some(at) => out.extend(to.chars().nth(at)),
        }
    }
    Some(())
}

/// How a character set turns text into bytes and back.
#[derive(Clone, Copy)]
enum CharacterSet {
    Ascii,
    Latin1,
    Utf8,
    Utf16 { big_endian: bool, mark: bool },
}

fn character_set(call: &Call<'_>) -> Result<CharacterSet> {
    let name = call.text(1).ok_or_else(|| call.error("the character set must be a literal"))?;
    Ok(match name.to_ascii_uppercase().as_str() {
        "US-ASCII" | "ASCII" => CharacterSet::Ascii,
        "ISO-8859-1" | "LATIN1" => CharacterSet::Latin1,
        "UTF-8" | "UTF8" => CharacterSet::Utf8,
        "UTF-16BE" => CharacterSet::Utf16 { big_endian: true, mark: false },
        "UTF-16LE" => CharacterSet::Utf16 { big_endian: false, mark: false },
        "UTF-16" => CharacterSet::Utf16 { big_endian: true, mark: true },
        _ => {
            let message = format!("there is no character set '{name}'");
            let known = "known: US-ASCII, ISO-8859-1, UTF-8, UTF-16, UTF-16BE, UTF-16LE";
            return Err(call.error(message).hint(known));
        }
    })
}

impl CharacterSet {
    fn encode(self, text: &str) -> Vec<u8> {
        let narrow = |limit: u32| {
            let byte = |c: char| if u32::from(c) < limit { u32::from(c) as u8 } else { b'?' };
            text.chars().map(byte).collect()
        };
        match self {
            CharacterSet::Ascii => narrow(128),
            CharacterSet::Latin1 => narrow(256),
            CharacterSet::Utf8 => text.as_bytes().to_vec(),
            CharacterSet::Utf16 { big_endian, mark } => {
                let start = (mark && !text.is_empty()).then_some(0xfeff);
                let units = start.into_iter().chain(text.encode_utf16());
                let bytes = |u: u16| if big_endian { u.to_be_bytes() } else { u.to_le_bytes() };
                units.flat_map(bytes).collect()
            }
        }
    }
    fn decode(self, bytes: &[u8]) -> String {
        match self {
            CharacterSet::Ascii => {
                let c = |b: &u8| if b.is_ascii() { char::from(*b) } else { '\u{fffd}' };
                bytes.iter().map(c).collect()
            }
            CharacterSet::Latin1 => bytes.iter().map(|b| char::from(*b)).collect(),
            CharacterSet::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            CharacterSet::Utf16 { big_endian, mark } => {
                let little = mark && bytes.starts_with(&[0xff, 0xfe]);
                let marked = little || (mark && bytes.starts_with(&[0xfe, 0xff]));
                let body = if marked { &bytes[2..] } else { bytes };
                let unit = |pair: &[u8]| match (big_endian && !little, pair) {
                    (true, [a, b]) => u16::from_be_bytes([*a, *b]),
                    (false, [a, b]) => u16::from_le_bytes([*a, *b]),
                    _ => 0xfffd,
                };
                String::from_utf16_lossy(&body.chunks(2).map(unit).collect::<Vec<_>>())
            }
        }
    }
}

fn encode(call: Call<'_>) -> Result<Expr> {
    let set = character_set(&call)?;
    Ok(call.strict(DataType::BYTES, move |a| {
        let s = a.texts(0);
        let bytes: BinaryArray =
            (0..a.rows).map(|row| s.get(row).map(|text| set.encode(text))).collect();
        Ok(Arc::new(bytes))
    }))
}

fn decode(call: Call<'_>) -> Result<Expr> {
    let set = character_set(&call)?;
    Ok(call.strict(DataType::STRING, move |a| {
        let bytes = a.bytes(0);
        a.text_result(|row, out| {
            out.push_str(&set.decode(bytes.get(row)?));
            Some(())
        })
    }))
}
