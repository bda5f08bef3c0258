//! LIKE, SIMILAR TO and regular expressions.
//!
//! A pattern that is a literal is compiled when the statement is planned, and each thread searches
//! with a copy of its own (`compiled`). Java's look-around and back-references do not exist here
//! and are refused by name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, StringViewBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, ListArray, StringViewArray, cast::AsArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use memchr::memmem::Finder;
use regex::{Regex, RegexBuilder};
use thalweg_core::{DataType, Error, Result};

use super::arguments::Texts;
use super::compiled::Compiled;
use super::contains::rows_that_contain;
use super::definition::{Call, Definition, custom};
use super::java_regex::translated;
use crate::expr::Expr;
use crate::function::{Arguments, KernelCode};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("LIKE", "string string string?", like),
    custom("SIMILAR TO", "string string string?", similar_to),
    custom("REGEXP", "string string", regexp),
    custom("RLIKE", "string string", regexp),
    custom("REGEXP_LIKE", "string string", regexp),
    custom("REGEXP_EXTRACT", "string string int?", extract),
    custom("REGEXP_EXTRACT_ALL", "string string int?", extract_all),
    custom("REGEXP_REPLACE", "string string string", replace_pattern),
    custom("REGEXP_COUNT", "string string", |call| {
        number(call, |regex, text| regex.find_iter(text).count() as i32)
    }),
    custom("REGEXP_INSTR", "string string", |call| {
        number(call, |regex, text| {
            regex.find(text).map_or(0, |found| text[..found.start()].chars().count() as i32 + 1)
        })
    }),
    custom("REGEXP_SUBSTR", "string string", substring),
];

fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| refusal(pattern, &error))
}

/// A pattern of Java's, see [`java_regex`](super::java_regex).
fn compile_java(pattern: &str) -> Result<Regex> {
    Regex::new(&translated(pattern)).map_err(|error| refusal(pattern, &error))
}

fn refusal(pattern: &str, error: &regex::Error) -> Error {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or("it is malformed").trim();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let shown: String = pattern.chars().take(100).collect();
    Error::plan(format!("'{shown}' is not a regular expression: {reason}"))
        .hint("look-around and back-references are not supported")
}

/// True if a pattern has no meaning in Java either: it then finds nothing, as in Flink. Any other
/// pattern that cannot be compiled would find something there, and is refused.
fn is_malformed(error: &Error) -> bool {
    const REASONS: [&str; 4] = [
        "unclosed group",
        "unopened group",
        "unclosed character class",
        "repetition operator missing expression",
    ];
    REASONS.iter().any(|reason| error.message().contains(reason))
}

/// A pattern among the arguments of a function that gives NULL for a malformed one.
pub(super) struct PatternArgument {
    index: usize,
    fixed: Option<Option<Compiled>>,
}

impl PatternArgument {
    /// The argument at this place, or what it is if it is left out.
    pub fn new(call: &Call<'_>, index: usize, default: &str) -> Result<Self> {
        let is_absent = call.args.len() <= index;
        let literal = if is_absent { Some(default) } else { call.text(index) };
        let fixed = match literal.map(compile_java) {
            None => None,
            Some(Ok(regex)) => Some(Some(Compiled::new(regex))),
            Some(Err(error)) if is_malformed(&error) => Some(None),
            Some(Err(error)) => return Err(error),
        };
        Ok(PatternArgument { index, fixed })
    }
    /// True if a pattern can come that cannot be compiled here.
    pub fn can_fail(&self) -> bool {
        self.fixed.is_none()
    }
    /// The patterns of the rows.
    pub fn of_rows<'a>(&self, a: &'a Arguments<'_>) -> RowPatterns<'a> {
        RowPatterns {
            fixed: self.fixed.as_ref().map(|one| one.as_ref().map(Compiled::of_this_thread)),
            texts: self.fixed.is_none().then(|| a.texts(self.index)),
            patterns: Patterns::new(None),
        }
    }
}

/// The patterns of the rows that are computed together.
pub(super) struct RowPatterns<'a> {
    fixed: Option<Option<Arc<Regex>>>,
    texts: Option<Texts<'a>>,
    patterns: Patterns<'a>,
}

impl RowPatterns<'_> {
    /// The pattern of a row; `None` if it is NULL or malformed.
    pub fn get(&mut self, row: usize) -> Result<Option<&Regex>> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.as_deref());
        }
        let Some(text) = self.texts.as_ref().and_then(|texts| texts.get(row)) else {
            return Ok(None);
        };
        match self.patterns.get(text, java) {
            Ok(regex) => Ok(Some(regex)),
            Err(error) if is_malformed(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The parts of a text between what a pattern matches, at most `limit` of them, as Java splits:
/// without an empty part before a match of no characters at the start, and without empty parts at
/// the end unless there is a limit.
pub(super) fn java_split<'t>(regex: &Regex, text: &'t str, limit: usize) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for found in regex.find_iter(text) {
        if parts.len() + 1 >= limit {
            break;
        }
        if found.is_empty() && (found.start() == 0 || found.start() == text.len()) {
            // A split at the very end would only make an empty part.
            if found.start() == 0 || limit == usize::MAX {
                continue;
            }
        }
        parts.push(&text[begin..found.start()]);
        begin = found.end();
    }
    parts.push(&text[begin..]);
    while limit == usize::MAX && parts.len() > 1 && parts.last() == Some(&"") {
        parts.pop();
    }
    parts
}

/// The regular expression of each row, compiled once for each different text.
struct Patterns<'a> {
    fixed: Option<&'a Regex>,
    seen: HashMap<String, Regex>,
}

impl<'a> Patterns<'a> {
    /// The most small patterns kept, besides one large one: new patterns must not fill the memory.
    const KEPT_MAX: usize = 256;
    const SMALL_BYTES_MAX: usize = 1 << 20;
    const AUTOMATON_BYTES_MAX: usize = 256 << 10;

    fn new(fixed: Option<&'a Regex>) -> Self {
        Patterns { fixed, seen: HashMap::new() }
    }
    fn get(&mut self, text: &str, translate: impl Fn(&str) -> Result<String>) -> Result<&Regex> {
        if let Some(fixed) = self.fixed {
            return Ok(fixed);
        }
        if !self.seen.contains_key(text) {
            let data = |error: Error| Error::data(error.message().to_owned());
            let pattern = translate(text).map_err(data)?;
            let mut builder = RegexBuilder::new(&pattern);
            builder.dfa_size_limit(Self::AUTOMATON_BYTES_MAX);
            let small = builder.size_limit(Self::SMALL_BYTES_MAX).build();
            if small.is_err() || self.seen.len() >= Self::KEPT_MAX {
                self.seen.clear();
            }
            let regex = small.or_else(|_| compile(&pattern)).map_err(data)?;
            self.seen.insert(text.to_owned(), regex);
        }
        Ok(&self.seen[text])
    }
}

/// A LIKE pattern, by the cheapest way to match it.
enum Matcher {
    Exactly(String),
    Prefix(String),
    Suffix(String),
    Contains(Box<Finder<'static>>),
    Regex(Box<Compiled>),
}

impl Matcher {
    /// Which texts match.
    fn test(&self, texts: &StringViewArray) -> BooleanBuffer {
        match self {
            Matcher::Exactly(part) => test_all(texts, |text| text == part),
            Matcher::Prefix(part) => test_all(texts, |text| text.starts_with(part.as_str())),
            Matcher::Suffix(part) => test_all(texts, |text| text.ends_with(part.as_str())),
            Matcher::Contains(part) => rows_that_contain(texts, part),
            Matcher::Regex(regex) => {
                let regex = regex.of_this_thread();
                test_all(texts, |text| regex.is_match(text))
            }
        }
    }
}

/// A piece of a LIKE pattern.
#[derive(PartialEq)]
enum Token {
    Literal(char),
    One,
    Any,
}

fn like_tokens(pattern: &str, escape: Option<char>) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            c if Some(c) == escape => match rest.next() {
                Some(next) if next == '%' || next == '_' || Some(next) == escape => {
                    Token::Literal(next)
                }
                _ => return Err(Error::plan(format!("bad escape in the pattern '{pattern}'"))),
            },
            '%' => Token::Any,
            '_' => Token::One,
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

fn like_matcher(pattern: &str, escape: Option<char>) -> Result<Matcher> {
    let tokens = like_tokens(pattern, escape)?;
    let literal = |tokens: &[Token]| -> Option<String> {
        let char_of = |token: &Token| match token {
            Token::Literal(c) => Some(*c),
            _ => None,
        };
        tokens.iter().map(char_of).collect()
    };
    let simple = match &tokens[..] {
        [Token::Any, inner @ .., Token::Any] => {
            literal(inner).map(|part| Matcher::Contains(Box::new(Finder::new(&part).into_owned())))
        }
        [Token::Any, inner @ ..] => literal(inner).map(Matcher::Suffix),
        [inner @ .., Token::Any] => literal(inner).map(Matcher::Prefix),
        all => literal(all).map(Matcher::Exactly),
    };
    match simple {
        Some(matcher) => Ok(matcher),
        None => Ok(Matcher::Regex(Box::new(Compiled::new(compile(&like_regex(&tokens))?)))),
    }
}

fn like_regex(tokens: &[Token]) -> String {
    let mut regex = String::from("(?s)^");
    for token in tokens {
        match token {
            Token::Any => regex.push_str(".*"),
            Token::One => regex.push('.'),
            Token::Literal(c) => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex + "$"
}

fn escape_of(call: &Call<'_>) -> Result<Option<char>> {
    if call.args.len() < 3 {
        return Ok(None);
    }
    let mut characters = call.text(2).unwrap_or_default().chars();
    match (characters.next(), characters.next()) {
        (Some(escape), None) => Ok(Some(escape)),
        _ => Err(call.error("ESCAPE takes one character in quotes")),
    }
}

fn boolean_of(call: &Call<'_>) -> thalweg_core::ColumnType {
    DataType::Boolean.nullable().with_nullable(call.nullable())
}

fn like(call: Call<'_>) -> Result<Expr> {
    let escape = escape_of(&call)?;
    let column_type = boolean_of(&call);
    let Some(pattern) = call.text(1) else {
        let translate = move |pattern: &str| Ok(like_regex(&like_tokens(pattern, escape)?));
        return Ok(
            call.with_function(column_type, matcher_kernel(translate), |f| f.can_fail = true)
        );
    };
    let kernel = test_kernel(like_matcher(pattern, escape)?);
    Ok(call.with_kernel(column_type, kernel))
}

/// Tests the first argument with one pattern.
fn test_kernel(matcher: Matcher) -> impl KernelCode {
    move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let texts = a.value(0).array().as_string_view();
        Ok(Arc::new(BooleanArray::new(matcher.test(texts), texts.nulls().cloned())))
    }
}

fn test_all(texts: &StringViewArray, test: impl Fn(&str) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(texts.len(), |row| test(texts.value(row)))
}

/// Tests the first argument with the pattern that the second one has in the same row.
fn matcher_kernel(
    translate: impl Fn(&str) -> Result<String> + Send + Sync + 'static,
) -> impl KernelCode {
    move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, pattern) = (a.texts(0), a.texts(1));
        let mut patterns = Patterns::new(None);
        let mut truths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            truths.push(match (s.get(row), pattern.get(row)) {
                (Some(text), Some(pattern)) => {
                    Some(patterns.get(pattern, &translate)?.is_match(text))
                }
                _ => None,
            });
        }
        Ok(Arc::new(BooleanArray::from(truths)))
    }
}

/// SIMILAR TO as a regular expression.
fn similar_regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regex = String::from("(?s)^(?:");
    let mut rest = pattern.chars();
    let mut in_set = false;
    while let Some(c) = rest.next() {
        match c {
            c if Some(c) == escape => {
                let next = rest.next().ok_or_else(|| {
                    Error::plan(format!("bad escape at the end of the pattern '{pattern}'"))
                })?;
                regex.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            }
            '[' => {
                in_set = true;
                regex.push('[');
            }
            ']' => {
                in_set = false;
                regex.push(']');
            }
            c if in_set => regex.push(c),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '.' | '\\' | '^' | '$' => {
                regex.push('\\');
                regex.push(c);
            }
            c => regex.push(c),
        }
    }
    Ok(regex + ")$")
}

fn similar_to(call: Call<'_>) -> Result<Expr> {
    let escape = escape_of(&call)?;
    let column_type = boolean_of(&call);
    let Some(pattern) = call.text(1) else {
        let translate = move |pattern: &str| similar_regex(pattern, escape);
        return Ok(
            call.with_function(column_type, matcher_kernel(translate), |f| f.can_fail = true)
        );
    };
    let regex = Compiled::new(compile(&similar_regex(pattern, escape)?)?);
    Ok(call.with_kernel(column_type, test_kernel(Matcher::Regex(Box::new(regex)))))
}

/// True where the pattern is found anywhere in the text. Flink finds an empty pattern nowhere, and
/// a malformed one.
fn regexp(call: Call<'_>) -> Result<Expr> {
    let column_type = boolean_of(&call);
    let Some(pattern) = call.text(1) else {
        let kernel = matcher_kernel(|pattern| match compile_java(pattern) {
            Ok(_) if !pattern.is_empty() => java(pattern),
            Err(error) if !is_malformed(&error) => Err(error),
            _ => Ok(NOTHING.to_owned()),
        });
        return Ok(call.with_function(column_type, kernel, |f| f.can_fail = true));
    };
    let regex = match compile_java(pattern) {
        Ok(regex) if !pattern.is_empty() => regex,
        Err(error) if !is_malformed(&error) => return Err(error),
        _ => compile(NOTHING)?,
    };
    let regex = Compiled::new(regex);
    Ok(call.with_kernel(column_type, test_kernel(Matcher::Regex(Box::new(regex)))))
}

/// A pattern that matches no text.
const NOTHING: &str = "[^\\s\\S]";

fn java(pattern: &str) -> Result<String> {
    Ok(translated(pattern))
}

/// The part that matches, or a group of it; NULL where nothing does.
fn extract(call: Call<'_>) -> Result<Expr> {
    let pattern = PatternArgument::new(&call, 1, "")?;
    let can_fail = pattern.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, mut patterns, group) = (a.texts(0), pattern.of_rows(a), a.ints_or(2, 0));
        let mut parts = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let all = s.get(row).zip(patterns.get(row)?).zip(group.get(row));
            parts.push(all.and_then(|((text, regex), group)| {
                Some(regex.captures(text)?.get(usize::try_from(group).ok()?)?.as_str())
            }));
        }
        a.slice_result(|row| parts[row])
    };
    Ok(call.with_function(DataType::STRING.nullable(), kernel, |f| f.can_fail = can_fail))
}

/// A group (by default the first) of all that matches; NULL if the pattern has no such group.
fn extract_all(call: Call<'_>) -> Result<Expr> {
    let pattern = PatternArgument::new(&call, 1, "")?;
    let can_fail = pattern.can_fail();
    let element = DataType::STRING.nullable();
    let column_type = DataType::Array(Box::new(element.clone())).nullable();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, mut patterns, group) = (a.texts(0), pattern.of_rows(a), a.ints_or(2, 1));
        let mut parts = StringViewBuilder::new();
        let mut lengths = Vec::with_capacity(a.rows);
        let mut valid = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let all = s.get(row).zip(patterns.get(row)?).zip(group.get(row));
            let known = all.and_then(|((text, regex), group)| {
                let group = usize::try_from(group).ok()?;
                (group < regex.captures_len()).then_some((text, regex, group))
            });
            let before = parts.len();
            if let Some((text, regex, group)) = known {
                for found in regex.captures_iter(text) {
                    parts.append_option(found.get(group).map(|part| part.as_str()));
                }
            }
            lengths.push(parts.len() - before);
            valid.push(known.is_some());
        }
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        let (field, values) = (Arc::new(element.field("item")), Arc::new(parts.finish()));
        Ok(Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths), values, nulls)))
    };
    Ok(call.with_function(column_type, kernel, |f| f.can_fail = can_fail))
}

/// What matches first; NULL where nothing does.
fn substring(call: Call<'_>) -> Result<Expr> {
    let pattern = PatternArgument::new(&call, 1, "")?;
    let can_fail = pattern.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, mut patterns) = (a.texts(0), pattern.of_rows(a));
        let mut parts = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let both = s.get(row).zip(patterns.get(row)?);
            parts.push(both.and_then(|(text, regex)| Some(regex.find(text)?.as_str())));
        }
        a.slice_result(|row| parts[row])
    };
    Ok(call.with_function(DataType::STRING.nullable(), kernel, |f| f.can_fail = can_fail))
}

/// An INT of a text and a pattern.
fn number(call: Call<'_>, of: fn(&Regex, &str) -> i32) -> Result<Expr> {
    let pattern = PatternArgument::new(&call, 1, "")?;
    let can_fail = pattern.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, mut patterns) = (a.texts(0), pattern.of_rows(a));
        let mut numbers = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let both = s.get(row).zip(patterns.get(row)?);
            numbers.push(both.map(|(text, regex)| of(regex, text)));
        }
        Ok(Arc::new(Int32Array::from(numbers)))
    };
    Ok(call.with_function(DataType::Int.nullable(), kernel, |f| f.can_fail = can_fail))
}

/// Compiles the second argument if it is a literal.
fn replace_pattern(call: Call<'_>) -> Result<Expr> {
    let regex = call.text(1).map(compile_java).transpose()?.map(Compiled::new);
    let column_type = DataType::STRING.nullable().with_nullable(call.nullable());
    let kernel = move |a: &Arguments<'_>| {
        let regex = regex.as_ref().map(Compiled::of_this_thread);
        replace(a, regex.as_deref())
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// What matches is replaced by a text as it stands: Flink quotes `$` and `\\`.
fn replace(a: &Arguments<'_>, fixed: Option<&Regex>) -> Result<ArrayRef> {
    let (s, pattern, with) = (a.texts(0), a.texts(1), a.texts(2));
    let mut patterns = Patterns::new(fixed);
    let mut refused = None;
    let replaced = a.grown_text_result("REGEXP_REPLACE", |row, out| {
        let (text, pattern, with) = (s.get(row)?, pattern.get(row)?, with.get(row)?);
        let regex = patterns.get(pattern, java).map_err(|error| refused = Some(error)).ok()?;
        let mut end = 0;
        for found in regex.find_iter(text) {
            out.push(&text[end..found.start()], text.len())?;
            out.push(with, text.len())?;
            end = found.end();
        }
        out.push(&text[end..], text.len())
    });
    refused.map_or(replaced, Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_as_by_java() {
        let cases: [(&str, &str, usize, &[&str]); 8] = [
            (",", "a,b,,", usize::MAX, &["a", "b"]),
            (",", ",a", usize::MAX, &["", "a"]),
            (",", "a,b,c", 2, &["a", "b,c"]),
            (",", "a,", 2, &["a", ""]),
            ("", "abc", usize::MAX, &["a", "b", "c"]),
            ("", "abc", 2, &["a", "bc"]),
            ("", "a", 2, &["a", ""]),
            ("x", "", usize::MAX, &[""]),
        ];
        for (pattern, text, limit, expected) in cases {
            let regex = Regex::new(pattern).unwrap();
            assert_eq!(java_split(&regex, text, limit), expected, "{pattern} in {text}");
        }
    }
}
