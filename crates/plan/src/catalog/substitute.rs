//! `${name}` in a SQL text, filled in before it is parsed.
//!
//! A parameter is replaced as text, also inside strings (`'path' = '${folder}/in.csv'`), but not
//! in comments. `$${` stands for a literal `${`.
//!
//! The text is only scanned for strings, names and comments, which decides where `${` counts. A
//! value may hold anything, also quotes: parameters come from whoever runs the script, and are no
//! protection against SQL injection. A value is not scanned for parameters again.
//!
//! Errors have the place in the text before the substitution; errors of the parser have that in the
//! text after it.

use std::collections::BTreeMap;

use thalweg_core::{Error, Result, Span};

use crate::diagnostic::nearest;

/// Fills in the parameters of a text.
///
/// ```
/// use std::collections::BTreeMap;
/// let parameters = BTreeMap::from([("n".to_owned(), "5".to_owned())]);
/// let text = thalweg_plan::catalog::substitute("SELECT ${n} -- not ${m}", &parameters)?;
/// assert_eq!(text, "SELECT 5 -- not ${m}");
/// let secret = "'${secret:password}'";
/// assert_eq!(thalweg_plan::catalog::substitute(secret, &parameters)?, secret);
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn substitute(text: &str, parameters: &BTreeMap<String, String>) -> Result<String> {
    let mut output = String::with_capacity(text.len());
    let mut state = TextState::Code;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if state.in_comment() || !rest.starts_with('$') {
            let length = state.step(rest, first);
            output.push_str(&rest[..length]);
            rest = &rest[length..];
        } else if let Some(behind) = rest.strip_prefix("$${") {
            output.push_str("${");
            rest = behind;
        } else if rest.starts_with("${secret:") {
            // Not a parameter: it stays in the statement, and is looked up when a table is opened.
            output.push('$');
            rest = &rest[1..];
        } else if let Some(behind) = rest.strip_prefix("${") {
            let at = place(text, text.len() - rest.len());
            let (name, behind) = name(behind, at)?;
            output.push_str(value(name, parameters, at)?);
            rest = behind;
        } else {
            output.push('$');
            rest = &rest[1..];
        }
    }
    Ok(output)
}

/// The name up to the closing brace, and what stands behind it.
fn name(text: &str, at: Span) -> Result<(&str, &str)> {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(text.len());
    match (&text[..end], text[end..].strip_prefix('}')) {
        (name, Some(behind)) if !name.is_empty() => Ok((name, behind)),
        _ => Err(Error::plan("a parameter reads ${name}")
            .hint("for the characters ${ themselves write $${")
            .at(at)),
    }
}

fn value<'a>(name: &str, parameters: &'a BTreeMap<String, String>, at: Span) -> Result<&'a str> {
    if let Some(value) = parameters.get(name) {
        return Ok(value);
    }
    let width = u32::try_from(name.chars().count()).unwrap_or(0) + 3;
    let at = Span { end_column: at.column + width, ..at };
    let error = Error::plan(format!("the parameter ${{{name}}} has no value")).at(at);
    let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
    Err(match (nearest(name, known.iter().copied()), known.is_empty()) {
        (Some(near), _) => error.hint(format!("did you mean ${{{near}}}?")),
        (None, true) => error.hint(format!("give it with --param {name}=VALUE")),
        (None, false) => {
            error.hint(format!("give it with --param {name}=VALUE; given are {}", known.join(", ")))
        }
    })
}

/// Line and column of a byte.
fn place(text: &str, offset: usize) -> Span {
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Span { line: narrow(line), column: narrow(column), end_column: 0 }
}

/// Where in the text the reader is.
#[derive(Clone, Copy, PartialEq)]
enum TextState {
    Code,
    Quoted(char),
    LineComment,
    BlockComment,
}

impl TextState {
    fn in_comment(self) -> bool {
        matches!(self, TextState::LineComment | TextState::BlockComment)
    }

    /// Passes a character, or the two that open or close a comment. Returns their length.
    fn step(&mut self, rest: &str, first: char) -> usize {
        let (state, length) = match (*self, first) {
            (TextState::Code, '\'' | '`') => (TextState::Quoted(first), 1),
            (TextState::Code, '-') if rest.starts_with("--") => (TextState::LineComment, 2),
            (TextState::Code, '/') if rest.starts_with("/*") => (TextState::BlockComment, 2),
            (TextState::Quoted(quote), _) if first == quote => (TextState::Code, 1),
            (TextState::LineComment, '\n') => (TextState::Code, 1),
            (TextState::BlockComment, '*') if rest.starts_with("*/") => (TextState::Code, 2),
            (state, _) => (state, first.len_utf8()),
        };
        *self = state;
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> BTreeMap<String, String> {
        BTreeMap::from([("dir".to_owned(), "/d".to_owned()), ("n".to_owned(), "5".to_owned())])
    }

    #[test]
    fn parameters_are_filled_in_everywhere_but_in_comments() -> Result<()> {
        let cases = [
            ("'${dir}/${n}' ${n}", "'/d/5' 5"),
            ("/* ${x} */ ${n} -- ${x}\n${n}", "/* ${x} */ 5 -- ${x}\n5"),
            ("'-- ${n}' $${n} a$b $", "'-- 5' ${n} a$b $"),
            ("'it''s ${n}' `--${n}`", "'it''s 5' `--5`"),
            ("é${n}é", "é5é"),
        ];
        for (text, expected) in cases {
            assert_eq!(substitute(text, &parameters())?, expected);
        }
        Ok(())
    }

    #[test]
    fn unknown_parameters_are_shown_at_their_place() {
        let error = substitute("a\n é ${dri}", &parameters()).expect_err("unknown");
        assert_eq!(error.span(), Some(Span { line: 2, column: 4, end_column: 10 }));
        assert_eq!(error.help(), Some("did you mean ${dir}?"));
        for text in ["${", "${}", "${n", "${a b}"] {
            assert!(substitute(text, &parameters()).is_err(), "{text}");
        }
    }
}
