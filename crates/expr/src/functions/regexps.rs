//! LIKE, SIMILAR TO and regular expressions.
//!
//! A pattern that is a literal is compiled when the statement is planned, and each thread searches
//! with a copy of its own (`compiled`). Java's patterns are in
//! [`java_pattern`](super::java_pattern).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, StringViewBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, ListArray, StringViewArray, cast::AsArray,
};
use arrow_buffer::BooleanBuffer;
use memchr::memmem::Finder;
use thalweg_core::{DataType, Error, Result};

use super::arguments::{GrownText, Texts};
use super::array_elements::bounds;
use super::compiled::Compiled;
use super::contains::rows_that_contain;
use super::definition::{Call, Definition, custom};
use super::java_pattern::{JavaPattern, compile, is_malformed};
use crate::expr::Expr;
use crate::function::{Arguments, KernelCode};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("LIKE", "string string string?", |call| matches(call, like_regex, like_matcher)),
    custom("SIMILAR TO", "string string string?", |call| {
        matches(call, similar_regex, |pattern, escape| {
            regex_matcher(&similar_regex(pattern, escape)?)
        })
    }),
    custom("REGEXP", "string string", regexp),
    custom("RLIKE", "string string", regexp),
    custom("REGEXP_LIKE", "string string", regexp),
    custom("REGEXP_EXTRACT", "string string int?", extract),
    custom("REGEXP_EXTRACT_ALL", "string string int?", extract_all),
    custom("REGEXP_REPLACE", "string string string", replace),
    custom("REGEXP_COUNT", "string string", |call| number(call, count)),
    custom("REGEXP_INSTR", "string string", |call| number(call, position)),
    custom("REGEXP_SUBSTR", "string string", substring),
];

/// A pattern among the arguments of a function that gives NULL for a malformed one.
pub(super) struct PatternArgument {
    index: usize,
    fixed: Option<Option<Compiled<JavaPattern>>>,
}

impl PatternArgument {
    /// The argument at this place, or what it is if it is left out.
    pub fn new(call: &Call<'_>, index: usize, default: &str) -> Result<Self> {
        let is_absent = call.args.len() <= index;
        let literal = if is_absent { Some(default) } else { call.text(index) };
        let fixed = match literal.map(JavaPattern::new) {
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
            patterns: Patterns::default(),
        }
    }
}

/// The patterns of the rows that are computed together.
pub(super) struct RowPatterns<'a> {
    fixed: Option<Option<Arc<JavaPattern>>>,
    texts: Option<Texts<'a>>,
    patterns: Patterns<JavaPattern>,
}

impl RowPatterns<'_> {
    /// The pattern of a row; `None` if it is NULL or malformed.
    pub fn get(&mut self, row: usize) -> Result<Option<&JavaPattern>> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.as_deref());
        }
        let Some(text) = self.texts.as_ref().and_then(|texts| texts.get(row)) else {
            return Ok(None);
        };
        match self.patterns.get(text, JavaPattern::build) {
            Ok(regex) => Ok(Some(regex)),
            Err(error) if is_malformed(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The parts of a text between what a pattern matches, at most `limit` of them, as Java splits:
/// without an empty part before a match of no characters at the start, and without empty parts at
/// the end unless there is a limit.
pub(super) fn java_split<'t>(
    regex: &JavaPattern,
    text: &'t str,
    limit: usize,
) -> Result<Vec<&'t str>> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let is_limited = limit < usize::MAX;
    regex.for_each(text, |found| {
        if parts.len() + 1 >= limit {
            return ControlFlow::Break(());
        }
        // A match of no characters at the start divides nothing.
        if !found.is_empty() || found.start > 0 {
            parts.push(&text[begin..found.start]);
            begin = found.end;
        }
        ControlFlow::Continue(())
    })?;
    let is_divided = !parts.is_empty();
    parts.push(&text[begin..]);
    while is_divided && !is_limited && parts.last() == Some(&"") {
        parts.pop();
    }
    Ok(parts)
}

/// The regular expression of each row, compiled once for each different text.
struct Patterns<R> {
    seen: HashMap<String, R>,
}

impl<R> Default for Patterns<R> {
    fn default() -> Self {
        Patterns { seen: HashMap::new() }
    }
}

impl<R> Patterns<R> {
    /// The most small patterns kept, besides one large one: new patterns must not fill the memory.
    const KEPT_MAX: usize = 256;

    /// `compile` says whether the pattern must be small.
    fn get(&mut self, text: &str, compile: impl Fn(&str, bool) -> Result<R>) -> Result<&R> {
        if !self.seen.contains_key(text) {
            let small = compile(text, true);
            if small.is_err() || self.seen.len() >= Self::KEPT_MAX {
                self.seen.clear();
            }
            let data = |error: Error| Error::data(error.message().to_owned());
            let regex = small.or_else(|_| compile(text, false)).map_err(data)?;
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
        None => regex_matcher(&like_regex(pattern, escape)?),
    }
}

fn regex_matcher(regex: &str) -> Result<Matcher> {
    Ok(Matcher::Regex(Box::new(Compiled::new(compile(regex, false)?))))
}

fn like_regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regex = String::from("(?s)^");
    for token in like_tokens(pattern, escape)? {
        match token {
            Token::Any => regex.push_str(".*"),
            Token::One => regex.push('.'),
            Token::Literal(c) => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Ok(regex + "$")
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

/// True where the text is like the pattern: the one that is known by now, else that of the row.
fn matches(
    call: Call<'_>,
    regex: fn(&str, Option<char>) -> Result<String>,
    matcher: fn(&str, Option<char>) -> Result<Matcher>,
) -> Result<Expr> {
    let escape = escape_of(&call)?;
    let Some(pattern) = call.text(1) else {
        let column_type = boolean_of(&call);
        let kernel = matcher_kernel(move |pattern| regex(pattern, escape));
        return Ok(call.with_function(column_type, kernel, |f| f.can_fail = true));
    };
    let kernel = test_kernel(matcher(pattern, escape)?);
    Ok(call.strict(DataType::Boolean, kernel))
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
        let mut patterns = Patterns::default();
        let mut truths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            truths.push(match (s.get(row), pattern.get(row)) {
                (Some(text), Some(pattern)) => {
                    let compiled =
                        |pattern: &str, small: bool| compile(&translate(pattern)?, small);
                    Some(patterns.get(pattern, compiled)?.is_match(text))
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
            '[' if in_set && rest.as_str().starts_with(':') => {
                let (class, behind) = rest.as_str().split_once(":]").unwrap_or((":", ""));
                let class = class.to_ascii_lowercase();
                let class = if class == ":whitespace" { ":space" } else { &class };
                regex.extend(["[", class, ":]"]);
                rest = behind.chars();
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

/// True where the pattern is found anywhere in the text. Flink finds an empty pattern nowhere, and
/// a malformed one.
fn regexp(call: Call<'_>) -> Result<Expr> {
    let column_type = boolean_of(&call);
    if let Some(pattern) = call.text(1).filter(|pattern| !pattern.is_empty())
        && let Ok(JavaPattern::Linear(regex)) = JavaPattern::new(pattern)
    {
        let matcher = Matcher::Regex(Box::new(Compiled::new(regex)));
        return Ok(call.with_kernel(column_type, test_kernel(matcher)));
    }
    let pattern = PatternArgument::new(&call, 1, "")?;
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, texts, mut patterns) = (a.texts(0), a.texts(1), pattern.of_rows(a));
        let mut truths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            truths.push(match (s.get(row), texts.get(row)) {
                (Some(_), Some("")) => Some(false),
                (Some(text), Some(_)) => match patterns.get(row)? {
                    Some(regex) => Some(regex.is_match(text)?),
                    None => Some(false),
                },
                _ => None,
            });
        }
        Ok(Arc::new(BooleanArray::from(truths)))
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// A function of a text and a pattern, whose result can be NULL. Its kernel gets the patterns of
/// the rows.
fn by_pattern(
    call: Call<'_>,
    result: DataType,
    kernel: impl Fn(&Arguments<'_>, RowPatterns<'_>) -> Result<ArrayRef> + Send + Sync + 'static,
) -> Result<Expr> {
    let pattern = PatternArgument::new(&call, 1, "")?;
    let can_fail = pattern.can_fail();
    let kernel = move |a: &Arguments<'_>| kernel(a, pattern.of_rows(a));
    Ok(call.with_function(result.nullable(), kernel, |f| f.can_fail = can_fail))
}

/// The part that matches, or a group of it; NULL where nothing does.
fn extract(call: Call<'_>) -> Result<Expr> {
    by_pattern(call, DataType::STRING, |a, mut patterns| {
        let (s, group) = (a.texts(0), a.ints_or(2, 0));
        let mut parts = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let all = s.get(row).zip(patterns.get(row)?).zip(group.get(row));
            parts.push(match all {
                Some(((text, regex), group @ 0..)) => regex.group(text, group as usize)?,
                _ => None,
            });
        }
        a.slice_result(|row| parts[row])
    })
}

/// A group (by default the first) of all that matches; NULL if the pattern has no such group.
fn extract_all(call: Call<'_>) -> Result<Expr> {
    let element = DataType::STRING.nullable();
    by_pattern(call, DataType::Array(Box::new(element.clone())), move |a, mut patterns| {
        let (s, group) = (a.texts(0), a.ints_or(2, 1));
        let mut parts = StringViewBuilder::new();
        let mut lengths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let all = s.get(row).zip(patterns.get(row)?).zip(group.get(row));
            let known = all.and_then(|((text, regex), group)| {
                let group = usize::try_from(group).ok()?;
                (group < regex.groups()).then_some((text, regex, group))
            });
            let before = parts.len();
            if let Some((text, regex, group)) = known {
                regex.for_each_group(text, group, |part| parts.append_option(part))?;
            }
            lengths.push(known.map(|_| parts.len() - before));
        }
        let (field, values) = (Arc::new(element.field("item")), Arc::new(parts.finish()));
        let (offsets, nulls) = bounds(&lengths);
        Ok(Arc::new(ListArray::new(field, offsets, values, nulls)))
    })
}

/// What matches first; NULL where nothing does.
fn substring(call: Call<'_>) -> Result<Expr> {
    by_pattern(call, DataType::STRING, |a, mut patterns| {
        let s = a.texts(0);
        let mut parts = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            parts.push(match s.get(row).zip(patterns.get(row)?) {
                Some((text, regex)) => regex.find(text)?.map(|found| &text[found]),
                None => None,
            });
        }
        a.slice_result(|row| parts[row])
    })
}

/// An INT of a text and a pattern.
fn number(call: Call<'_>, of: fn(&JavaPattern, &str) -> Result<i32>) -> Result<Expr> {
    by_pattern(call, DataType::Int, move |a, mut patterns| {
        let s = a.texts(0);
        let mut numbers = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let both = s.get(row).zip(patterns.get(row)?);
            numbers.push(both.map(|(text, regex)| of(regex, text)).transpose()?);
        }
        Ok(Arc::new(Int32Array::from(numbers)))
    })
}

/// How often the pattern matches.
fn count(regex: &JavaPattern, text: &str) -> Result<i32> {
    let mut count = 0;
    regex.for_each(text, |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// Where the first match stands; 0 without one.
fn position(regex: &JavaPattern, text: &str) -> Result<i32> {
    let found = regex.find(text)?;
    Ok(found.map_or(0, |found| text[..found.start].chars().count() as i32 + 1))
}

/// What matches is replaced by a text as it stands: Flink quotes `$` and `\\`.
fn replace(call: Call<'_>) -> Result<Expr> {
    if let Some(Err(error)) = call.text(1).map(JavaPattern::new) {
        return Err(error);
    }
    let pattern = PatternArgument::new(&call, 1, "")?;
    let column_type = DataType::STRING.nullable().with_nullable(call.nullable());
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, texts, with) = (a.texts(0), a.texts(1), a.texts(2));
        let mut patterns = pattern.of_rows(a);
        let mut refused = None;
        let replaced = a.grown_text_result("REGEXP_REPLACE", |row, out| {
            let (text, of, with) = (s.get(row)?, texts.get(row)?, with.get(row)?);
            let result = match patterns.get(row) {
                Ok(Some(regex)) => replace_all(out, regex, text, with),
                Ok(None) => JavaPattern::new(of).map(|_| Some(())),
                Err(error) => Err(error),
            };
            result.unwrap_or_else(|error| {
                refused = Some(Error::data(error.message().to_owned()));
                None
            })
        });
        refused.map_or(replaced, Err)
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// `None` once the text is too long.
fn replace_all(
    out: &mut GrownText,
    regex: &JavaPattern,
    text: &str,
    with: &str,
) -> Result<Option<()>> {
    let mut end = 0;
    let mut fits = Some(());
    regex.for_each(text, |found| {
        let before = out.push(&text[end..found.start], text.len());
        fits = before.and_then(|()| out.push(with, text.len()));
        end = found.end;
        if fits.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(fits.and_then(|()| out.push(&text[end..], text.len())))
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
            let regex = JavaPattern::new(pattern).unwrap();
            assert_eq!(java_split(&regex, text, limit).unwrap(), expected, "{pattern} in {text}");
        }
    }
}
