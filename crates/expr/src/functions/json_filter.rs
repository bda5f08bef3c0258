//! Conditions in paths: `[?(@.a == 1 && (@.b || @.c =~ /x.*/i))]`, as Jayway's JsonPath reads them.
//!
//! `@` is the value that is tested, `$` the whole document. A path alone tests whether it leads to
//! a value. Values of different types are never equal, and have no order.

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::Value as Json;

use super::json_path::{PathReader, Step, walk};

/// The most brackets and negations inside of one another.
const DEPTH_MAX: usize = 64;

/// A condition.
pub(super) enum Filter {
    Any(Vec<Filter>),
    All(Vec<Filter>),
    Not(Box<Filter>),
    Exists(Operand),
    Compare(Operand, Comparison, Operand),
    Matches(Operand, Regex),
}

/// A value in a condition.
pub(super) enum Operand {
    Literal(Json),
    /// A path from the value that is tested, or from the document.
    Path {
        from_root: bool,
        steps: Vec<Step>,
    },
}

/// How two values are compared.
#[derive(Clone, Copy)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Contains,
    Size,
    Empty,
}

/// The longer ones first: `<=` begins with `<`.
const COMPARISONS: [(&str, Comparison); 11] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("in ", Comparison::In),
    ("nin ", Comparison::NotIn),
    ("contains ", Comparison::Contains),
    ("size ", Comparison::Size),
    ("empty ", Comparison::Empty),
];

impl Filter {
    /// Reads `(condition)`.
    pub fn read(reader: &mut PathReader<'_>) -> Option<Self> {
        reader.blanks();
        reader.take("(").then_some(())?;
        let filter = Self::any(reader, 0)?;
        reader.take(")").then_some(filter)
    }

    fn any(reader: &mut PathReader<'_>, depth: usize) -> Option<Self> {
        let mut filters = vec![Self::all(reader, depth)?];
        while reader.take("||") {
            filters.push(Self::all(reader, depth)?);
        }
        Some(Filter::Any(filters))
    }

    fn all(reader: &mut PathReader<'_>, depth: usize) -> Option<Self> {
        let mut filters = vec![Self::one(reader, depth)?];
        while reader.take("&&") {
            filters.push(Self::one(reader, depth)?);
        }
        Some(Filter::All(filters))
    }

    fn one(reader: &mut PathReader<'_>, depth: usize) -> Option<Self> {
        if depth > DEPTH_MAX {
            return None;
        }
        reader.blanks();
        let filter = if reader.take("!") {
            Filter::Not(Box::new(Self::one(reader, depth + 1)?))
        } else if reader.take("(") {
            let inner = Self::any(reader, depth + 1)?;
            reader.take(")").then_some(inner)?
        } else {
            Self::comparison(reader)?
        };
        reader.blanks();
        Some(filter)
    }

    fn comparison(reader: &mut PathReader<'_>) -> Option<Self> {
        let left = Operand::read(reader)?;
        reader.blanks();
        if reader.take("=~") {
            reader.blanks();
            return Some(Filter::Matches(left, pattern(reader)?));
        }
        let found = COMPARISONS.iter().find(|(text, _)| reader.take(text));
        let Some((_, comparison)) = found else { return Some(Filter::Exists(left)) };
        reader.blanks();
        Some(Filter::Compare(left, *comparison, Operand::read(reader)?))
    }

    /// True if a value fits the condition.
    pub fn accepts(&self, json: &Json, root: &Json) -> bool {
        match self {
            Filter::Any(filters) => filters.iter().any(|filter| filter.accepts(json, root)),
            Filter::All(filters) => filters.iter().all(|filter| filter.accepts(json, root)),
            Filter::Not(filter) => !filter.accepts(json, root),
            Filter::Exists(operand) => operand.value(json, root).is_some(),
            Filter::Matches(operand, regex) => {
                let value = operand.value(json, root);
                value.is_some_and(|value| value.as_str().is_some_and(|text| regex.is_match(text)))
            }
            Filter::Compare(left, comparison, right) => {
                let (left, right) = (left.value(json, root), right.value(json, root));
                comparison.holds(left.as_deref(), right.as_deref())
            }
        }
    }
}

/// `/pattern/`, or `/pattern/i` where case does not matter.
fn pattern(reader: &mut PathReader<'_>) -> Option<Regex> {
    let rest = reader.rest.strip_prefix('/')?;
    let end = (1..=rest.len()).find(|&at| {
        rest.is_char_boundary(at) && rest[at..].starts_with('/') && !rest[..at].ends_with('\\')
    })?;
    let text = rest[..end].replace("\\/", "/");
    reader.rest = &rest[end + 1..];
    let ignores_case = reader.take("i");
    let whole = format!("^(?:{text})$");
    RegexBuilder::new(&whole).case_insensitive(ignores_case).build().ok()
}

impl Operand {
    fn read(reader: &mut PathReader<'_>) -> Option<Self> {
        for (sign, from_root) in [("@", false), ("$", true)] {
            if reader.take(sign) {
                return Some(Operand::Path { from_root, steps: reader.some_steps()? });
            }
        }
        if reader.rest.starts_with('\'') {
            return Some(Operand::Literal(Json::String(reader.quoted()?)));
        }
        literal(reader).map(Operand::Literal)
    }

    fn value<'j>(&'j self, json: &'j Json, root: &'j Json) -> Option<Cow<'j, Json>> {
        match self {
            Operand::Literal(value) => Some(Cow::Borrowed(value)),
            Operand::Path { from_root, steps } => {
                let from = if *from_root { root } else { json };
                walk(steps, Cow::Borrowed(from), root).ok()?.into_iter().next()
            }
        }
    }
}

/// A JSON value that stands in a condition.
fn literal(reader: &mut PathReader<'_>) -> Option<Json> {
    if reader.rest.starts_with(['"', '[', '{']) {
        let mut values = serde_json::Deserializer::from_str(reader.rest).into_iter::<Json>();
        let value = values.next()?.ok()?;
        reader.rest = &reader.rest[values.byte_offset()..];
        return Some(value);
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, ')' | '&' | '|' | ',' | ']');
    let (text, rest) = reader.rest.split_at(reader.rest.find(is_end)?);
    reader.rest = rest;
    serde_json::from_str(text).ok()
}

impl Comparison {
    fn holds(self, left: Option<&Json>, right: Option<&Json>) -> bool {
        let order = || order(left?, right?);
        let is_in = || {
            let values = right.and_then(Json::as_array)?;
            Some(values.iter().any(|value| left.is_some_and(|left| equal(left, value))))
        };
        match self {
            Comparison::Equal => left.zip(right).is_some_and(|(l, r)| equal(l, r)),
            Comparison::NotEqual => !left.zip(right).is_some_and(|(l, r)| equal(l, r)),
            Comparison::Less => order().is_some_and(Ordering::is_lt),
            Comparison::LessOrEqual => order().is_some_and(Ordering::is_le),
            Comparison::Greater => order().is_some_and(Ordering::is_gt),
            Comparison::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
            Comparison::In => is_in().unwrap_or(false),
            Comparison::NotIn => !is_in().unwrap_or(false),
            Comparison::Contains => left.zip(right).is_some_and(|(l, r)| contains(l, r)),
            Comparison::Size => {
                let sizes = left.and_then(length).zip(right.and_then(Json::as_u64));
                sizes.is_some_and(|(size, wanted)| size as u64 == wanted)
            }
            Comparison::Empty => {
                let empty = left.and_then(length).map(|length| length == 0);
                empty.zip(right.and_then(Json::as_bool)).is_some_and(|(is, wanted)| is == wanted)
            }
        }
    }
}

fn equal(left: &Json, right: &Json) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn order(left: &Json, right: &Json) -> Option<Ordering> {
    match (left, right) {
        (Json::String(left), Json::String(right)) => Some(left.cmp(right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn contains(left: &Json, right: &Json) -> bool {
    match left {
        Json::Array(items) => items.iter().any(|item| equal(item, right)),
        Json::String(text) => right.as_str().is_some_and(|part| text.contains(part)),
        _ => false,
    }
}

fn length(json: &Json) -> Option<usize> {
    match json {
        Json::Array(items) => Some(items.len()),
        Json::Object(fields) => Some(fields.len()),
        Json::String(text) => Some(text.chars().count()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(filter: &str, json: &str) -> Option<bool> {
        let mut reader = PathReader { rest: filter };
        let filter = Filter::read(&mut reader)?;
        let json: Json = serde_json::from_str(json).unwrap();
        Some(filter.accepts(&json, &json))
    }

    #[test]
    fn conditions_test_values() {
        let json = r#"{"a": 1, "b": "xyz", "c": [1, 2], "d": ""}"#;
        let cases = [
            ("(@.a == 1.0)", Some(true)),
            ("(@.a == '1')", Some(false)),
            ("(@.a != 1)", Some(false)),
            ("(@.x == 1)", Some(false)),
            ("(@.a >= 1 && @.b < 'y')", Some(true)),
            ("(@.x || !(@.a))", Some(false)),
            ("(@.b =~ /X.*/i)", Some(true)),
            ("(@.b =~ /y/)", Some(false)),
            ("(@.a in [2, 1])", Some(true)),
            ("(@.a nin [2, 1])", Some(false)),
            ("(@.c contains 2)", Some(true)),
            ("(@.c size 2)", Some(true)),
            ("(@.d empty true)", Some(true)),
            ("($.a == @.c[0])", Some(true)),
            ("(@.a ==)", None),
            ("(@.a == 1", None),
        ];
        for (filter, expected) in cases {
            assert_eq!(accepts(filter, json), expected, "{filter}");
        }
    }

    #[test]
    fn brackets_without_end_are_no_condition() {
        assert_eq!(accepts(&"(".repeat(100_000), "{}"), None);
        assert_eq!(accepts(&format!("({}@.a)", "!".repeat(100_000)), "{}"), None);
    }
}
