//! LIKE, SIMILAR TO and regular expressions.
//!
//! A pattern that is a literal is compiled when the statement is planned, and each thread searches
//! with a copy of its own (`compiled`). Java's look-around and back-references do not exist here
//! and are refused by name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, StringViewArray, cast::AsArray};
use arrow_buffer::BooleanBuffer;
use memchr::memmem::Finder;
use regex::{Regex, RegexBuilder};
use thalweg_core::{DataType, Error, Result};

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
    custom("REGEXP_EXTRACT", "string string int?", |call| call_with_pattern(call, extract)),
    custom("REGEXP_REPLACE", "string string string", |call| call_with_pattern(call, replace)),
    custom("REGEXP_COUNT", "string string", regexp_count),
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

/// True where the pattern is found anywhere in the text. Flink finds an empty pattern nowhere.
fn regexp(call: Call<'_>) -> Result<Expr> {
    let column_type = boolean_of(&call);
    let or_nothing = |pattern: &str| match pattern {
        "" => NOTHING.to_owned(),
        pattern => translated(pattern),
    };
    let Some(pattern) = call.text(1) else {
        let kernel = matcher_kernel(move |pattern| Ok(or_nothing(pattern)));
        return Ok(call.with_function(column_type, kernel, |f| f.can_fail = true));
    };
    let regex = Regex::new(&or_nothing(pattern)).map_err(|error| refusal(pattern, &error))?;
    let regex = Compiled::new(regex);
    Ok(call.with_kernel(column_type, test_kernel(Matcher::Regex(Box::new(regex)))))
}

type PatternKernel = fn(&Arguments<'_>, Option<&Regex>) -> Result<ArrayRef>;

/// Compiles the second argument if it is a literal; REPLACE is NOT NULL where its arguments are.
fn call_with_pattern(call: Call<'_>, kernel: PatternKernel) -> Result<Expr> {
    let regex = call.text(1).map(compile_java).transpose()?.map(Compiled::new);
    let nullable = call.name == "REGEXP_EXTRACT" || call.nullable();
    let column_type = DataType::STRING.nullable().with_nullable(nullable);
    let can_fail = regex.is_none() || call.name == "REGEXP_REPLACE";
    let kernel = move |a: &Arguments<'_>| {
        let regex = regex.as_ref().map(Compiled::of_this_thread);
        kernel(a, regex.as_deref())
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = can_fail))
}

/// A pattern that matches no text.
const NOTHING: &str = "[^\\s\\S]";

fn java(pattern: &str) -> Result<String> {
    Ok(translated(pattern))
}

/// The part that matches, or a group of it; NULL where nothing does.
fn extract(a: &Arguments<'_>, fixed: Option<&Regex>) -> Result<ArrayRef> {
    let (s, pattern) = (a.texts(0), a.texts(1));
    let group = a.ints_or(2, 0);
    let mut patterns = Patterns::new(fixed);
    let mut parts = Vec::with_capacity(a.rows);
    for row in 0..a.rows {
        let (Some(text), Some(pattern), Some(group)) =
            (s.get(row), pattern.get(row), group.get(row))
        else {
            parts.push(None);
            continue;
        };
        let found = patterns.get(pattern, java)?.captures(text);
        let part = found.and_then(|found| found.get(usize::try_from(group).ok()?));
        parts.push(part.map(|part| part.as_str()));
    }
    a.slice_result(|row| parts[row])
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

fn regexp_count(call: Call<'_>) -> Result<Expr> {
    let pattern = call.text(1).ok_or_else(|| call.error("the pattern must be a literal"))?;
    let regex = Compiled::new(compile_java(pattern)?);
    let column_type = DataType::Int.nullable().with_nullable(call.nullable());
    Ok(call.with_kernel(column_type, move |a| {
        let (s, regex) = (a.texts(0), regex.of_this_thread());
        a.number_result::<arrow_array::types::Int32Type>(|row| {
            Some(regex.find_iter(s.get(row)?).count() as i32)
        })
    }))
}
