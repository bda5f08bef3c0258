//! A regular expression of Java's, ready to search with.
//!
//! Most are searched in linear time. One with look-around, back references or atomic groups is
//! searched by backtracking, which takes exponential time on some texts; a search that takes too
//! many steps fails the job.

use std::ops::{ControlFlow, Range};

use regex::{Captures, Match, Regex, RegexBuilder};
use thalweg_core::{Error, Result};

use super::java_regex::translated;

/// The sizes of patterns of which many are kept.
const SMALL_BYTES_MAX: usize = 1 << 20;
const AUTOMATON_BYTES_MAX: usize = 256 << 10;

/// A compiled pattern.
#[derive(Clone)]
pub(super) enum JavaPattern {
    Linear(Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// Compiles a pattern of the regex crate; one that must be `small` may fail for its size.
pub(super) fn compile(pattern: &str, small: bool) -> Result<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    if small {
        builder.dfa_size_limit(AUTOMATON_BYTES_MAX).size_limit(SMALL_BYTES_MAX);
    }
    builder.build().map_err(|error| refusal(pattern, &error.to_string()))
}

fn refusal(pattern: &str, error: &str) -> Error {
    let reason = error.lines().last().unwrap_or("it is malformed").trim();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let shown: String = pattern.chars().take(100).collect();
    Error::plan(format!("'{shown}' is not a regular expression: {reason}"))
}

/// True if a pattern has no meaning in Java either: it then finds nothing, as in Flink. Any other
/// pattern that cannot be compiled would find something there, and is refused.
pub(super) fn is_malformed(error: &Error) -> bool {
    const REASONS: [&str; 4] = [
        "unclosed group",
        "unopened group",
        "unclosed character class",
        "repetition operator missing expression",
    ];
    REASONS.iter().any(|reason| error.message().contains(reason))
}

impl JavaPattern {
    /// Compiles a pattern.
    pub fn new(pattern: &str) -> Result<Self> {
        Self::build(pattern, false)
    }

    /// As [`JavaPattern::new`]; one that must be `small` may fail for its size.
    pub fn build(pattern: &str, small: bool) -> Result<Self> {
        let translated = translated(pattern);
        match compile(&translated, small) {
            Ok(regex) => Ok(JavaPattern::Linear(regex)),
            Err(error) if is_malformed(&error) => Err(error),
            Err(error) => match fancy_regex::Regex::new(&translated) {
                Ok(regex) => Ok(JavaPattern::Backtracking(Box::new(regex))),
                Err(_) => Err(error),
            },
        }
    }

    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        match self {
            JavaPattern::Linear(regex) => Ok(regex.is_match(text)),
            JavaPattern::Backtracking(regex) => regex.is_match(text).map_err(|e| too_long(&e)),
        }
    }

    /// The first match.
    pub fn find(&self, text: &str) -> Result<Option<Range<usize>>> {
        match self {
            JavaPattern::Linear(regex) => Ok(regex.find(text).map(|found| found.range())),
            JavaPattern::Backtracking(regex) => {
                let found = regex.find(text).map_err(|error| too_long(&error))?;
                Ok(found.map(|found| found.range()))
            }
        }
    }

    /// Visits each match until it says that it is enough.
    pub fn for_each(
        &self,
        text: &str,
        mut visit: impl FnMut(Range<usize>) -> ControlFlow<()>,
    ) -> Result<()> {
        match self {
            JavaPattern::Linear(regex) => {
                let mut found = java_matches(text, |from| regex.find_at(text, from), Match::range);
                let _ = found.try_for_each(|found| visit(found.range()));
            }
            JavaPattern::Backtracking(regex) => {
                for found in regex.find_iter(text) {
                    let found = found.map_err(|error| too_long(&error))?;
                    if visit(found.range()).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// How many groups there are, with the whole match as the first.
    pub fn groups(&self) -> usize {
        match self {
            JavaPattern::Linear(regex) => regex.captures_len(),
            JavaPattern::Backtracking(regex) => regex.captures_len(),
        }
    }

    /// A group of the first match.
    pub fn group<'t>(&self, text: &'t str, group: usize) -> Result<Option<&'t str>> {
        match self {
            JavaPattern::Linear(regex) => {
                let found = regex.captures(text);
                Ok(found.and_then(|found| found.get(group)).map(|part| part.as_str()))
            }
            JavaPattern::Backtracking(regex) => {
                let found = regex.captures(text).map_err(|error| too_long(&error))?;
                Ok(found.and_then(|found| found.get(group)).map(|part| part.as_str()))
            }
        }
    }

    /// Visits a group of each match.
    pub fn for_each_group(
        &self,
        text: &str,
        group: usize,
        mut visit: impl FnMut(Option<&str>),
    ) -> Result<()> {
        match self {
            JavaPattern::Linear(regex) => {
                let range = |found: &Captures<'_>| {
                    found.get(0).expect("group 0 is the whole match").range()
                };
                let found = java_matches(text, |from| regex.captures_at(text, from), range);
                found.for_each(|found| visit(found.get(group).map(|part| part.as_str())));
            }
            JavaPattern::Backtracking(regex) => {
                for found in regex.captures_iter(text) {
                    let found = found.map_err(|error| too_long(&error))?;
                    visit(found.get(group).map(|part| part.as_str()));
                }
            }
        }
        Ok(())
    }
}

/// Matches one behind the other as Java finds them: an empty one may follow another match.
fn java_matches<M>(
    text: &str,
    find_at: impl Fn(usize) -> Option<M>,
    range: impl Fn(&M) -> Range<usize>,
) -> impl Iterator<Item = M> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = (from <= text.len()).then(|| find_at(from)).flatten()?;
        let Range { start, end } = range(&found);
        let passed = text[end..].chars().next().filter(|_| start == end);
        from = end + passed.map_or(usize::from(start == end), char::len_utf8);
        Some(found)
    })
}

fn too_long(error: &fancy_regex::Error) -> Error {
    Error::data(format!("a search with a regular expression failed: {error}"))
        .hint("a pattern without look-around and back references takes linear time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_with_look_around_search_by_backtracking() {
        for (pattern, text, expected) in [
            ("a(?=b)", "aab", Some(1..2)),
            ("(?<!a)b", "ab b", Some(3..4)),
            (r"(a)\1", "baa", Some(1..3)),
            ("(?>a+)b", "aab", Some(0..3)),
            ("a|b", "cb", Some(1..2)),
        ] {
            let found = JavaPattern::new(pattern).and_then(|pattern| pattern.find(text));
            assert_eq!(found.unwrap(), expected, "{pattern}");
        }
        for malformed in ["(", "[", "*a", "a)"] {
            assert!(is_malformed(&JavaPattern::new(malformed).err().unwrap()), "{malformed}");
        }
    }

    #[test]
    fn a_search_that_does_not_end_fails() {
        let pattern = JavaPattern::new(r"^(a|b|ab)*\1c").unwrap();
        let error = pattern.is_match(&"ab".repeat(60)).unwrap_err();
        assert!(error.to_string().contains("regular expression"), "{error}");
    }
}
