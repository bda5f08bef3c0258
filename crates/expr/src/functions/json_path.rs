//! Paths into JSON: `$`, `.key`, `['key', 'other']`, `[n]`, `[-n]`, `[n, m]`, `[from:to]`, `[*]`,
//! `.*`, `..`, `[?(condition)]` and `.length()` and its kin, after an optional `lax` or `strict`.
//!
//! Flink reads paths with Jayway's JsonPath, and so does this: a path is *definite* if it leads to
//! one value at most. A definite path that leads nowhere is an error in `strict` mode, which is the
//! default, and leads to nothing in `lax` mode; any other path leads to an array of what it finds.
//! A text that is no path is an error of each row, as in Flink.
//!
//! Conditions are in [`json_filter`](super::json_filter).

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use super::json_filter::Filter;

/// A path into JSON.
pub(super) struct JsonPath {
    /// True for `lax`: a path that leads nowhere is no error.
    pub is_lax: bool,
    /// `None` if the text is no path.
    steps: Option<Vec<Step>>,
}

/// The path is none, or it leads nowhere and should lead to a value.
#[derive(Debug, PartialEq)]
pub(super) struct NotFound;

pub(super) type Found<'j> = Result<Option<Cow<'j, Json>>, NotFound>;
pub(super) type Nodes<'j> = Vec<Cow<'j, Json>>;

/// A step of a path.
pub(super) enum Step {
    /// One key, or several of one object.
    Keys(Vec<String>),
    Indexes(Vec<i64>),
    Slice(Option<i64>, Option<i64>),
    Every,
    /// All values below, this one among them.
    Descend,
    Filter(Filter),
    Summary(Summary),
}

/// What a function at the end of a path makes of a value.
#[derive(Clone, Copy)]
pub(super) enum Summary {
    Length,
    Keys,
    First,
    Last,
    Min,
    Max,
    Sum,
    Average,
    Deviation,
}

impl JsonPath {
    /// Reads the text of a path.
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        let mode = text.split_once(char::is_whitespace);
        let (is_lax, steps) = match mode {
            Some((mode, rest)) if mode.eq_ignore_ascii_case("lax") => (true, rest),
            Some((mode, rest)) if mode.eq_ignore_ascii_case("strict") => (false, rest),
            _ => (false, text),
        };
        JsonPath { is_lax, steps: parse(steps.trim()) }
    }

    /// What the path leads to; `None` for `null`, and for nothing in `lax` mode.
    pub fn find<'j>(&self, json: &'j Json) -> Found<'j> {
        let steps = self.steps.as_deref().ok_or(NotFound)?;
        let is_definite = steps.iter().enumerate().all(|(at, step)| {
            step.is_definite() || matches!(step, Step::Keys(_)) && at + 1 == steps.len()
        });
        let nodes = walk(steps, Cow::Borrowed(json), json);
        if !is_definite {
            let array = |nodes: Nodes<'_>| nodes.into_iter().map(Cow::into_owned).collect();
            return match nodes {
                Err(NotFound) if !self.is_lax => Err(NotFound),
                nodes => Ok(Some(Cow::Owned(Json::Array(nodes.map(array).unwrap_or_default())))),
            };
        }
        match nodes.ok().and_then(|mut nodes| nodes.pop()) {
            None if self.is_lax => Ok(None),
            None => Err(NotFound),
            Some(node) if node.is_null() => Ok(None),
            Some(node) => Ok(Some(node)),
        }
    }
}

/// All that steps lead to from a value. `root` is what `$` means in conditions.
pub(super) fn walk<'j>(
    steps: &[Step],
    from: Cow<'j, Json>,
    root: &Json,
) -> Result<Nodes<'j>, NotFound> {
    let mut nodes = vec![from];
    let mut is_definite = true;
    for step in steps {
        let mut next = Vec::new();
        for node in nodes {
            let found = step.apply(&node, root, &mut next);
            if is_definite {
                found?;
            }
        }
        nodes = next;
        is_definite &= step.is_definite();
    }
    Ok(nodes)
}

impl Step {
    fn is_definite(&self) -> bool {
        match self {
            Step::Keys(keys) => keys.len() == 1,
            Step::Indexes(indexes) => indexes.len() == 1,
            Step::Summary(_) => true,
            Step::Slice(..) | Step::Every | Step::Descend | Step::Filter(_) => false,
        }
    }

    /// Appends what the step leads to; an error where Jayway finds no path.
    #[expect(clippy::ptr_arg, reason = "what the value borrows stays borrowed")]
    fn apply<'j>(
        &self,
        node: &Cow<'j, Json>,
        root: &Json,
        next: &mut Nodes<'j>,
    ) -> Result<(), NotFound> {
        match self {
            Step::Keys(keys) => match &keys[..] {
                [key] => next.push(child(node, |json| json.as_object()?.get(key))?),
                keys => next.push(Cow::Owned(chosen(node.as_object().ok_or(NotFound)?, keys))),
            },
            Step::Indexes(indexes) => {
                let length = node.as_array().ok_or(NotFound)?.len();
                for &index in indexes {
                    let place = place(index, length);
                    next.extend(child(node, |json| json.get(place?)).ok());
                }
            }
            Step::Slice(from, to) => {
                let length = node.as_array().ok_or(NotFound)?.len();
                let bound =
                    |at: i64| if at < 0 { (at + length as i64).max(0) } else { at } as usize;
                let (from, to) = (bound(from.unwrap_or(0)), to.map_or(length, bound).min(length));
                (from..to).for_each(|at| next.extend(child(node, |json| json.get(at)).ok()));
            }
            Step::Every => children(node, next),
            Step::Descend => descend(node, next),
            Step::Filter(filter) => match node.as_ref() {
                Json::Array(_) => {
                    let mut items = Vec::new();
                    children(node, &mut items);
                    next.extend(items.into_iter().filter(|item| filter.accepts(item, root)));
                }
                other if filter.accepts(other, root) => next.push(node.clone()),
                _ => {}
            },
            Step::Summary(summary) => next.extend(summary.of(node)?.map(Cow::Owned)),
        }
        Ok(())
    }
}

/// A part of a value, borrowed where the value is.
fn child<'j>(
    node: &Cow<'j, Json>,
    get: impl Fn(&Json) -> Option<&Json>,
) -> Result<Cow<'j, Json>, NotFound> {
    let found = match node {
        Cow::Borrowed(json) => get(json).map(Cow::Borrowed),
        Cow::Owned(json) => get(json).cloned().map(Cow::Owned),
    };
    found.ok_or(NotFound)
}

#[expect(clippy::ptr_arg, reason = "what the value borrows stays borrowed")]
fn children<'j>(node: &Cow<'j, Json>, next: &mut Nodes<'j>) {
    let owned = |json: &Json| Cow::Owned(json.clone());
    match node {
        Cow::Borrowed(Json::Array(items)) => next.extend(items.iter().map(Cow::Borrowed)),
        Cow::Borrowed(Json::Object(fields)) => next.extend(fields.values().map(Cow::Borrowed)),
        Cow::Owned(Json::Array(items)) => next.extend(items.iter().map(owned)),
        Cow::Owned(Json::Object(fields)) => next.extend(fields.values().map(owned)),
        _ => {}
    }
}

/// The value and all below it, each before what is in it. A stack of its own: JSON may be deep.
#[expect(clippy::ptr_arg, reason = "what the value borrows stays borrowed")]
fn descend<'j>(node: &Cow<'j, Json>, next: &mut Nodes<'j>) {
    let mut stack = vec![node.clone()];
    while let Some(node) = stack.pop() {
        let mut below = Vec::new();
        children(&node, &mut below);
        stack.extend(below.into_iter().rev());
        next.push(node);
    }
}

/// An object of these keys, where it has them.
fn chosen(fields: &Map<String, Json>, keys: &[String]) -> Json {
    let field = |key: &String| fields.get(key).map(|value| (key.clone(), value.clone()));
    Json::Object(keys.iter().filter_map(field).collect())
}

fn place(index: i64, length: usize) -> Option<usize> {
    let place = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(place).ok()
}

impl Summary {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "length" | "size" => Summary::Length,
            "keys" => Summary::Keys,
            "first" => Summary::First,
            "last" => Summary::Last,
            "min" => Summary::Min,
            "max" => Summary::Max,
            "sum" => Summary::Sum,
            "avg" => Summary::Average,
            "stddev" => Summary::Deviation,
            _ => return None,
        })
    }

    fn of(self, json: &Json) -> Result<Option<Json>, NotFound> {
        let numbers = || -> Vec<f64> {
            json.as_array().into_iter().flatten().filter_map(Json::as_f64).collect()
        };
        let number = match self {
            Summary::Length => {
                let object = || json.as_object().map(Map::len);
                let length = json.as_array().map(Vec::len).or_else(object);
                return Ok(Some(length.map_or(Json::Null, Json::from)));
            }
            Summary::Keys => {
                let keys = json.as_object().ok_or(NotFound)?.keys().cloned();
                return Ok(Some(Json::Array(keys.map(Json::String).collect())));
            }
            Summary::First => return Ok(json.as_array().and_then(|items| items.first().cloned())),
            Summary::Last => return Ok(json.as_array().and_then(|items| items.last().cloned())),
            Summary::Min => numbers().into_iter().reduce(f64::min),
            Summary::Max => numbers().into_iter().reduce(f64::max),
            Summary::Sum => numbers().into_iter().reduce(|a, b| a + b),
            Summary::Average => mean(&numbers()),
            Summary::Deviation => {
                let numbers = numbers();
                let squares: Vec<f64> = numbers.iter().map(|n| n * n).collect();
                let variance = mean(&squares).zip(mean(&numbers)).map(|(s, m)| s - m * m);
                variance.map(f64::sqrt)
            }
        };
        number.map(|number| Some(Json::from(number))).ok_or(NotFound)
    }
}

fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// The steps of a path; `None` if the text is none.
fn parse(text: &str) -> Option<Vec<Step>> {
    match text.strip_prefix('$') {
        Some(rest) => PathReader { rest }.steps(),
        // Jayway puts `$.` before what has none.
        None => PathReader { rest: text }.bare(),
    }
}

/// Reads the steps of a path, also of one inside of a condition.
pub(super) struct PathReader<'t> {
    pub rest: &'t str,
}

impl<'t> PathReader<'t> {
    fn bare(mut self) -> Option<Vec<Step>> {
        let mut steps = vec![self.word()?];
        steps.extend(self.steps()?);
        Some(steps)
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        while !self.rest.is_empty() {
            self.step(&mut steps)?;
        }
        Some(steps)
    }

    /// As many steps as there are; what follows is not part of the path.
    pub fn some_steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        while self.rest.starts_with(['.', '[']) {
            self.step(&mut steps)?;
        }
        Some(steps)
    }

    fn step(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        if self.take("..") {
            steps.push(Step::Descend);
            if !self.rest.starts_with('[') {
                steps.push(self.word()?);
            }
            return Some(());
        }
        if self.take(".") && !self.rest.starts_with('[') {
            steps.push(self.word()?);
            return Some(());
        }
        steps.push(self.bracket()?);
        Some(())
    }

    pub fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
    pub fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// `key`, `*` or `function()`
    fn word(&mut self) -> Option<Step> {
        let ends = |c: char| matches!(c, '.' | '[' | '(' | ')' | ' ' | '=' | '<' | '>' | '!' | ',');
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() {
            return None;
        }
        if self.take("(") {
            self.blanks();
            return self.take(")").then(|| Summary::named(word)).flatten().map(Step::Summary);
        }
        Some(if word == "*" { Step::Every } else { Step::Keys(vec![word.to_owned()]) })
    }

    fn bracket(&mut self) -> Option<Step> {
        self.take("[").then_some(())?;
        self.blanks();
        let step = if self.take("?") {
            Step::Filter(Filter::read(self)?)
        } else if self.take("*") {
            Step::Every
        } else if self.rest.starts_with(['\'', '"']) {
            Step::Keys(self.quoted_keys()?)
        } else {
            let (inside, _) = self.rest.split_once(']')?;
            let step = numbers(inside)?;
            self.rest = &self.rest[inside.len()..];
            step
        };
        self.blanks();
        self.take("]").then_some(step)
    }

    fn quoted_keys(&mut self) -> Option<Vec<String>> {
        let mut keys = vec![self.quoted()?];
        self.blanks();
        while self.take(",") {
            self.blanks();
            keys.push(self.quoted()?);
            self.blanks();
        }
        Some(keys)
    }

    /// A text in single or double quotes, in which `\` escapes the next character.
    pub fn quoted(&mut self) -> Option<String> {
        let mut characters = self.rest.char_indices();
        let quote = characters.next().map(|(_, c)| c).filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => text.push(characters.next()?.1),
                c if c == quote => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        None
    }
}

/// `n`, `n, m` or `from:to`
fn numbers(text: &str) -> Option<Step> {
    let number = |text: &str| text.trim().parse::<i64>().ok();
    if let Some((from, to)) = text.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => number(text).map(Some),
        };
        return Some(Step::Slice(bound(from)?, bound(to)?));
    }
    Some(Step::Indexes(text.split(',').map(number).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, path: &str) -> String {
        let json: Json = serde_json::from_str(json).unwrap();
        match JsonPath::new(path).find(&json) {
            Err(NotFound) => "not found".to_owned(),
            Ok(None) => "nothing".to_owned(),
            Ok(Some(found)) => found.to_string(),
        }
    }

    #[test]
    fn steps_lead_where_jayway_goes() {
        let json = r#"{"a": [1, 2, 3], "b": {"c": null, "a b": "x"}, "d": [{"e": 1}, {"e": 2}]}"#;
        let cases = [
            ("$", r#"{"a":[1,2,3],"b":{"c":null,"a b":"x"},"d":[{"e":1},{"e":2}]}"#),
            ("$.a[-1]", "3"),
            ("$.a[last]", "not found"),
            ("$.a[1:]", "[2,3]"),
            ("$.a[:2]", "[1,2]"),
            ("$.a[-2:]", "[2,3]"),
            ("$.a[0, 2]", "[1,3]"),
            ("$.a[7]", "not found"),
            ("lax $.a[7]", "nothing"),
            ("$.b.c", "nothing"),
            ("$.['b'][\"a b\"]", "\"x\""),
            ("$.a b", "not found"),
            ("$.", "not found"),
            ("", "not found"),
            ("b['a b']", "\"x\""),
            ("$..e", "[1,2]"),
            ("$.d[*].e", "[1,2]"),
            ("$.d[?(@.e == 2)]", r#"[{"e":2}]"#),
            ("$.a[?(@ > 1 && @ < 3)]", "[2]"),
            ("$.d[?(@.x)]", "[]"),
            ("$.d[?(!@.x)].e", "[1,2]"),
            ("$.a.length()", "3"),
            ("$.a.max()", "3.0"),
            ("$.a.nothing()", "not found"),
            ("strict $.x.y", "not found"),
            ("LAX $.x.y", "nothing"),
            ("lax $.x[*]", "[]"),
            ("$.x[*]", "not found"),
            ("$['b','x']", r#"{"b":{"c":null,"a b":"x"}}"#),
        ];
        for (path, expected) in cases {
            assert_eq!(found(json, path), expected, "{path}");
        }
    }
}
