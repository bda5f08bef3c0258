//! Words among the arguments of functions and in predicates that `sqlparser` does not know, as
//! arguments.
//!
//! | Flink | becomes |
//! |---|---|
//! | `JSON_VALUE(j, p RETURNING INT DEFAULT 1 ON EMPTY)` | `JSON_VALUE(j, p, 'INT', 'DEFAULT', 1, 'NULL', NULL)` |
//! | `JSON_QUERY(j, p WITH WRAPPER NULL ON ERROR)` | `JSON_QUERY(j, p, NULL, 'ALWAYS', 'NULL', 'NULL')` |
//! | `JSON_EXISTS(j, p TRUE ON ERROR)` | `JSON_EXISTS(j, p, 'TRUE')` |
//! | `JSON_OBJECT(KEY 'a' VALUE 1, 'b': 2 ABSENT ON NULL)` | `JSON_OBJECT('ABSENT', 'a', 1, 'b', 2)` |
//! | `JSON_ARRAY(1, 2)` | `JSON_ARRAY('ABSENT', 1, 2)` |
//! | `JSON_OBJECTAGG(KEY k VALUE v)` | `JSON_OBJECTAGG(k, v)` |
//! | `x BETWEEN SYMMETRIC a AND b` | ``x BETWEEN `SYMMETRIC$`(a) AND b`` |
//! | `CASE x WHEN 1, 2 THEN` | ``CASE x WHEN `WHEN$`(1, 2) THEN`` |
//! | `(a - b) DAY` | ``(`MINUS$`(a, b, 'DAY'))`` |
//! | `TRIM(BOTH FROM s)` | `TRIM(BOTH ' ' FROM s)` |
//! | `_UTF8'x'` | `'x'` |
//!
//! The tokens that are new stand where the first word of the call does, so that errors point at
//! the user's text. There are no functions [`SYMMETRIC`], [`WHEN`] and [`MINUS`]: the binder knows
//! what they mark.

use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan};
use thalweg_core::{Error, Result};

use super::rewrite::rewrite;
use super::tokens::{Cursor, closing, is_word, quoted_word, span};
use super::types::column_type;

/// Marks the lower bound of `BETWEEN SYMMETRIC`.
pub const SYMMETRIC: &str = "SYMMETRIC$";
/// Marks several values behind a WHEN of a CASE with an operand.
pub const WHEN: &str = "WHEN$";
/// Marks the distance of two times in a unit.
pub const MINUS: &str = "MINUS$";

type Tokens<'a> = &'a [TokenWithSpan];

/// The units of a distance of times.
const UNITS: [&str; 8] = ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"];
/// The words before a value in brackets.
const BEFORE_VALUES: [&str; 14] = [
    "SELECT", "DISTINCT", "ALL", "WHERE", "HAVING", "ON", "BY", "AND", "OR", "NOT", "WHEN", "THEN",
    "ELSE", "BETWEEN",
];
/// The character sets of texts with a prefix.
const CHARSETS: [&str; 5] = ["_UTF8", "_UTF16", "_UTF32", "_LATIN1", "_ISO88591"];

/// Passes what begins with `token`, which the cursor has taken, if it is one of the above.
pub(super) fn take<'a>(
    cursor: &mut Cursor<'a>,
    token: &'a TokenWithSpan,
    output: &mut Vec<TokenWithSpan>,
) -> Result<bool> {
    let mut writer = Writer { output, place: token.span };
    match &token.token {
        Token::LParen => return Ok(distance(cursor, &mut writer)?.is_some()),
        Token::Word(word) if word.quote_style.is_none() => {
            let name = word.value.to_ascii_uppercase();
            match name.as_str() {
                "BETWEEN" => return between(cursor, token, &mut writer),
                "WHEN" => return Ok(when(cursor, token, &mut writer)?.is_some()),
                "BOTH" | "LEADING" | "TRAILING" if is_bare_trim(cursor) => {
                    writer.output.push(token.clone());
                    writer.text(" ");
                }
                name if CHARSETS.contains(&name) && is_before_text(cursor, token) => {}
                name if name.starts_with("JSON_") && cursor.is_token(&Token::LParen) => {
                    return json_call(cursor, token, name, &mut writer);
                }
                _ => return Ok(false),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Writes tokens that stand at one place.
struct Writer<'o> {
    output: &'o mut Vec<TokenWithSpan>,
    place: TokenSpan,
}

impl Writer<'_> {
    fn token(&mut self, token: Token) {
        self.output.push(TokenWithSpan::new(token, self.place));
    }
    fn text(&mut self, text: &str) {
        self.token(Token::SingleQuotedString(text.to_owned()));
    }
    fn text_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.token(Token::make_keyword("NULL")),
        }
    }
    fn comma(&mut self) {
        self.token(Token::Comma);
    }
    /// A name that no user writes, and the bracket behind it.
    fn marker(&mut self, name: &str) {
        self.output.push(quoted_word(name.to_owned(), self.place));
        self.token(Token::LParen);
    }
    /// An expression, rewritten as any other.
    fn expression(&mut self, cursor: &Cursor<'_>, tokens: Tokens<'_>) -> Result<()> {
        self.output.extend(rewrite(cursor.source, tokens)?);
        Ok(())
    }
}

/// Where a token stands outside of brackets and of CASE … END.
fn position(tokens: Tokens<'_>, wanted: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut depth, mut cases) = (0usize, 0usize);
    for (at, token) in tokens.iter().enumerate() {
        if depth == 0 && cases == 0 && wanted(at) {
            return Some(at);
        }
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.checked_sub(1)?,
            word if is_word(word, "CASE") => cases += 1,
            word if is_word(word, "END") => cases = cases.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

fn is_at(tokens: Tokens<'_>, at: usize, word: &str) -> bool {
    tokens.get(at).is_some_and(|token| is_word(&token.token, word))
}

/// Parts between commas.
fn parts(tokens: Tokens<'_>) -> Vec<Tokens<'_>> {
    let mut parts = Vec::new();
    let mut rest = tokens;
    while let Some(at) = position(rest, |at| rest[at].token == Token::Comma) {
        parts.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    if !(parts.is_empty() && rest.is_empty()) {
        parts.push(rest);
    }
    parts
}

/// `TRIM(BOTH FROM s)`
fn is_bare_trim(cursor: &Cursor<'_>) -> bool {
    let before = |back: usize| cursor.index.checked_sub(back).map(|at| &cursor.tokens[at].token);
    cursor.is_word("FROM")
        && before(2) == Some(&Token::LParen)
        && before(3).is_some_and(|token| is_word(token, "TRIM"))
}

/// True if a text follows without a blank.
fn is_before_text(cursor: &Cursor<'_>, token: &TokenWithSpan) -> bool {
    cursor.peek().is_some_and(|next| {
        matches!(next.token, Token::SingleQuotedString(_)) && next.span.start == token.span.end
    })
}

/// `x BETWEEN SYMMETRIC a AND b`, of which the cursor stands behind BETWEEN.
fn between(
    cursor: &mut Cursor<'_>,
    token: &TokenWithSpan,
    writer: &mut Writer<'_>,
) -> Result<bool> {
    if cursor.take_words(&["ASYMMETRIC"]) {
        writer.output.push(token.clone());
        return Ok(true);
    }
    if !cursor.take_words(&["SYMMETRIC"]) {
        return Ok(false);
    }
    let rest = &cursor.tokens[cursor.index..];
    let Some(end) = position(rest, |at| is_at(rest, at, "AND")) else {
        return Err(cursor.expected("AND behind BETWEEN SYMMETRIC"));
    };
    writer.output.push(token.clone());
    writer.marker(SYMMETRIC);
    writer.expression(cursor, &rest[..end])?;
    writer.token(Token::RParen);
    cursor.index += end;
    Ok(true)
}

/// `WHEN a, b THEN`
fn when(
    cursor: &mut Cursor<'_>,
    token: &TokenWithSpan,
    writer: &mut Writer<'_>,
) -> Result<Option<()>> {
    let rest = &cursor.tokens[cursor.index..];
    let Some(end) = position(rest, |at| is_at(rest, at, "THEN")) else { return Ok(None) };
    let values = &rest[..end];
    if position(values, |at| values[at].token == Token::Comma).is_none() {
        return Ok(None);
    }
    writer.output.push(token.clone());
    writer.marker(WHEN);
    writer.expression(cursor, values)?;
    writer.token(Token::RParen);
    cursor.index += end;
    Ok(Some(()))
}

/// `(a - b) DAY`, of which the cursor stands behind the bracket.
fn distance(cursor: &mut Cursor<'_>, writer: &mut Writer<'_>) -> Result<Option<()>> {
    let open = cursor.index - 1;
    // A bracket behind a name is that of a call.
    let is_call = open.checked_sub(1).is_some_and(|at| match &cursor.tokens[at].token {
        token @ Token::Word(_) => !BEFORE_VALUES.iter().any(|word| is_word(token, word)),
        _ => false,
    });
    let Some(close) = closing(cursor.tokens, open).filter(|_| !is_call) else { return Ok(None) };
    let unit = UNITS.iter().find(|unit| is_at(cursor.tokens, close + 1, unit));
    let Some(unit) = unit else { return Ok(None) };
    let inside = &cursor.tokens[open + 1..close];
    let mut minus = None;
    while let Some(at) =
        position(inside, |at| at > minus.unwrap_or(0) && inside[at].token == Token::Minus)
    {
        minus = Some(at);
    }
    let Some(minus) = minus else { return Ok(None) };
    writer.token(Token::LParen);
    writer.marker(MINUS);
    writer.expression(cursor, &inside[..minus])?;
    writer.comma();
    writer.expression(cursor, &inside[minus + 1..])?;
    writer.comma();
    writer.text(unit);
    writer.token(Token::RParen);
    writer.token(Token::RParen);
    cursor.index = close + 2;
    take_interval_end(cursor);
    Ok(Some(()))
}

/// `(3) TO SECOND(3)` behind a unit.
fn take_interval_end(cursor: &mut Cursor<'_>) {
    let take_digits = |cursor: &mut Cursor<'_>| {
        let is_number = matches!(cursor.peek_at(1), Some(Token::Number(..)));
        if cursor.is_token(&Token::LParen) && is_number {
            cursor.index += 3;
        }
    };
    take_digits(cursor);
    if UNITS.iter().any(|unit| cursor.take_words(&["TO", unit])) {
        take_digits(cursor);
    }
}

/// A function of JSON, of which the cursor stands before the bracket.
fn json_call(
    cursor: &mut Cursor<'_>,
    token: &TokenWithSpan,
    name: &str,
    writer: &mut Writer<'_>,
) -> Result<bool> {
    let Some(close) = closing(cursor.tokens, cursor.index) else { return Ok(false) };
    let inside = &cursor.tokens[cursor.index + 1..close];
    let is_known = match name {
        "JSON_OBJECT" | "JSON_ARRAY" | "JSON_OBJECTAGG" => true,
        "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS" => {
            position(inside, |at| CLAUSES.iter().any(|word| at > 0 && is_at(inside, at, word)))
                .is_some()
        }
        _ => false,
    };
    if !is_known {
        return Ok(false);
    }
    writer.output.push(token.clone());
    writer.token(Token::LParen);
    match name {
        "JSON_OBJECT" | "JSON_ARRAY" => json_constructor(cursor, name, inside, writer)?,
        "JSON_OBJECTAGG" => {
            let (members, clause) = null_clause(inside);
            json_pair(cursor, name, members, writer)?;
            writer.output.extend_from_slice(clause);
        }
        _ => json_reader(cursor, name, inside, writer)?,
    }
    writer.output.push(cursor.tokens[close].clone());
    cursor.index = close + 1;
    Ok(true)
}

/// What stands before `NULL ON NULL` or `ABSENT ON NULL`, and that.
fn null_clause(tokens: Tokens<'_>) -> (Tokens<'_>, Tokens<'_>) {
    let at = tokens.len().saturating_sub(3);
    let is_clause = (is_at(tokens, at, "NULL") || is_at(tokens, at, "ABSENT"))
        && is_at(tokens, at + 1, "ON")
        && is_at(tokens, at + 2, "NULL");
    tokens.split_at(if is_clause { at } else { tokens.len() })
}

fn json_constructor(
    cursor: &Cursor<'_>,
    name: &str,
    inside: Tokens<'_>,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let (members, clause) = null_clause(inside);
    let is_absent = match clause.first() {
        Some(word) => is_word(&word.token, "ABSENT"),
        None => name == "JSON_ARRAY",
    };
    writer.text(if is_absent { "ABSENT" } else { "NULL" });
    for member in parts(members) {
        writer.comma();
        match name {
            "JSON_OBJECT" => json_pair(cursor, name, member, writer)?,
            _ => writer.expression(cursor, member)?,
        }
    }
    Ok(())
}

/// `KEY k VALUE v`, `k VALUE v` or `k: v`
fn json_pair(
    cursor: &Cursor<'_>,
    name: &str,
    member: Tokens<'_>,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let separator = position(member, |at| {
        at > 0 && (is_at(member, at, "VALUE") || member[at].token == Token::Colon)
    });
    let Some(at) = separator else {
        let place = member.first().map_or(writer.place, |token| token.span);
        return Err(Error::plan(format!("{name} takes keys with values"))
            .hint(format!("write {name}('key' VALUE value)"))
            .at(span(place)));
    };
    let is_key = at > 1 && is_at(member, 0, "KEY");
    writer.expression(cursor, &member[usize::from(is_key)..at])?;
    writer.comma();
    writer.expression(cursor, &member[at + 1..])
}

/// The words with which a clause behind the path begins.
const CLAUSES: [&str; 10] = [
    "RETURNING",
    "NULL",
    "ERROR",
    "DEFAULT",
    "WITH",
    "WITHOUT",
    "EMPTY",
    "TRUE",
    "FALSE",
    "UNKNOWN",
];

/// What clauses say.
#[derive(Default)]
struct Clauses<'a> {
    returning: Option<String>,
    wrapper: Option<&'static str>,
    on_empty: Instead<'a>,
    on_error: Instead<'a>,
}

#[derive(Default)]
struct Instead<'a> {
    words: Option<&'static str>,
    default: Option<Tokens<'a>>,
}

fn json_reader(
    cursor: &Cursor<'_>,
    name: &str,
    inside: Tokens<'_>,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let arguments = parts(inside);
    let [json, path] = arguments[..] else {
        return Err(Error::plan(format!("{name} takes a text and a path, and then its clauses"))
            .at(span(writer.place)));
    };
    let starts = |at: usize| CLAUSES.iter().any(|word| at > 0 && is_at(path, at, word));
    let at = position(path, starts).unwrap_or(path.len());
    let mut clauses = Clauses::default();
    let mut tail = Cursor { source: cursor.source, tokens: &path[at..], index: 0 };
    while !tail.at_end() {
        clauses.read(&mut tail, name)?;
    }
    writer.expression(cursor, json)?;
    writer.comma();
    writer.expression(cursor, &path[..at])?;
    writer.comma();
    clauses.write(cursor, name, writer)
}

impl<'a> Clauses<'a> {
    fn read(&mut self, tail: &mut Cursor<'a>, name: &str) -> Result<()> {
        if tail.take_words(&["RETURNING"]) {
            let start = tail.index;
            column_type(tail)?;
            let text = tail.source.text_of(&tail.tokens[start..tail.index]);
            let without_blanks: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            self.returning = Some(without_blanks.to_ascii_uppercase());
            return Ok(());
        }
        if name == "JSON_QUERY" && (tail.is_word("WITH") || tail.is_word("WITHOUT")) {
            self.wrapper = Some(wrapper(tail)?);
            return Ok(());
        }
        let instead = Instead::read(tail, name)?;
        tail.expect_words(&["ON"])?;
        match tail.take_words(&["EMPTY"]) {
            true if name != "JSON_EXISTS" => self.on_empty = instead,
            _ => {
                tail.expect_words(&["ERROR"])?;
                self.on_error = instead;
            }
        }
        Ok(())
    }

    fn write(&self, cursor: &Cursor<'_>, name: &str, writer: &mut Writer<'_>) -> Result<()> {
        if name == "JSON_EXISTS" {
            writer.text_or_null(self.on_error.words);
            return Ok(());
        }
        writer.text_or_null(self.returning.as_deref());
        if name == "JSON_QUERY" {
            writer.comma();
            writer.text_or_null(self.wrapper);
        }
        for instead in [&self.on_empty, &self.on_error] {
            writer.comma();
            writer.text_or_null(instead.words);
            if name == "JSON_VALUE" {
                writer.comma();
                match instead.default {
                    Some(default) => writer.expression(cursor, default)?,
                    None => writer.text_or_null(None),
                }
            }
        }
        Ok(())
    }
}

impl<'a> Instead<'a> {
    fn read(tail: &mut Cursor<'a>, name: &str) -> Result<Self> {
        let words: &[(&'static str, &[&str])] = match name {
            "JSON_VALUE" => &[("NULL", &["NULL"]), ("ERROR", &["ERROR"])],
            "JSON_QUERY" => &[
                ("NULL", &["NULL"]),
                ("ERROR", &["ERROR"]),
                ("EMPTY ARRAY", &["EMPTY", "ARRAY"]),
                ("EMPTY OBJECT", &["EMPTY", "OBJECT"]),
            ],
            _ => &[
                ("TRUE", &["TRUE"]),
                ("FALSE", &["FALSE"]),
                ("UNKNOWN", &["UNKNOWN"]),
                ("ERROR", &["ERROR"]),
            ],
        };
        if name == "JSON_VALUE" && tail.take_words(&["DEFAULT"]) {
            let rest = &tail.tokens[tail.index..];
            let end = position(rest, |at| at > 0 && is_at(rest, at, "ON"));
            let end = end.ok_or_else(|| tail.expected("ON EMPTY or ON ERROR"))?;
            tail.index += end;
            return Ok(Instead { words: Some("DEFAULT"), default: Some(&rest[..end]) });
        }
        let found = words.iter().find(|(_, words)| tail.take_words(words));
        let (word, _) = found.ok_or_else(|| tail.expected(&format!("a clause of {name}")))?;
        Ok(Instead { words: Some(word), default: None })
    }
}

/// `WITHOUT [ARRAY] WRAPPER` or `WITH [CONDITIONAL | UNCONDITIONAL] [ARRAY] WRAPPER`
fn wrapper(tail: &mut Cursor<'_>) -> Result<&'static str> {
    let is_with = tail.take_words(&["WITH"]);
    if !is_with {
        tail.expect_words(&["WITHOUT"])?;
    }
    let is_conditional = is_with && tail.take_words(&["CONDITIONAL"]);
    if is_with && !is_conditional {
        tail.take_words(&["UNCONDITIONAL"]);
    }
    tail.take_words(&["ARRAY"]);
    tail.expect_words(&["WRAPPER"])?;
    Ok(match (is_with, is_conditional) {
        (false, _) => "NONE",
        (true, false) => "ALWAYS",
        (true, true) => "IF NEEDED",
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse_expression;

    fn parsed(text: &str) -> String {
        parse_expression(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn clauses_become_arguments() {
        let cases = [
            (
                "JSON_VALUE(j, '$.a' RETURNING int DEFAULT a + 1 ON EMPTY ERROR ON ERROR)",
                "JSON_VALUE(j, '$.a', 'INT', 'DEFAULT', a + 1, 'ERROR', NULL)",
            ),
            ("JSON_VALUE(j, '$.a')", "JSON_VALUE(j, '$.a')"),
            (
                "JSON_QUERY(j, '$' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON ERROR)",
                "JSON_QUERY(j, '$', NULL, 'IF NEEDED', NULL, 'EMPTY ARRAY')",
            ),
            (
                "JSON_QUERY(j, '$' RETURNING ARRAY<STRING> WITHOUT WRAPPER)",
                "JSON_QUERY(j, '$', 'ARRAY<STRING>', 'NONE', NULL, NULL)",
            ),
            ("JSON_EXISTS(j, '$.a' UNKNOWN ON ERROR)", "JSON_EXISTS(j, '$.a', 'UNKNOWN')"),
            ("JSON_OBJECT()", "JSON_OBJECT('NULL')"),
            (
                "JSON_OBJECT(KEY 'a' VALUE JSON_ARRAY(1, x NULL ON NULL), key VALUE 2, 'c': f(1, 2))",
                "JSON_OBJECT('NULL', 'a', JSON_ARRAY('NULL', 1, x), key, 2, 'c', f(1, 2))",
            ),
            ("JSON_OBJECT('a' VALUE 1 ABSENT ON NULL)", "JSON_OBJECT('ABSENT', 'a', 1)"),
            ("JSON_OBJECTAGG(KEY k VALUE v NULL ON NULL)", "JSON_OBJECTAGG(k, v NULL ON NULL)"),
        ];
        for (text, expected) in cases {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn predicates_are_marked() {
        let cases = [
            ("x BETWEEN ASYMMETRIC 1 AND 2", "x BETWEEN 1 AND 2"),
            (
                "x NOT BETWEEN SYMMETRIC CASE WHEN a AND b THEN 1 END AND 2 AND c",
                "x NOT BETWEEN `SYMMETRIC$`(CASE WHEN a AND b THEN 1 END) AND 2 AND c",
            ),
            (
                "CASE x WHEN 1, 2 THEN 'a' WHEN f(3, 4) THEN 'b' END",
                "CASE x WHEN `WHEN$`(1, 2) THEN 'a' WHEN f(3, 4) THEN 'b' END",
            ),
            ("(a - b - c) DAY", "(`MINUS$`(a - b, c, 'DAY'))"),
            ("(a - b) DAY(2) TO SECOND(3)", "(`MINUS$`(a, b, 'DAY'))"),
            ("TRIM(BOTH FROM s)", "TRIM(BOTH ' ' FROM s)"),
            ("TRIM(LEADING 'x' FROM s)", "TRIM(LEADING 'x' FROM s)"),
            ("_UTF8'ä'", "'ä'"),
        ];
        for (text, expected) in cases {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn words_that_do_not_fit_have_a_place() {
        let cases = [
            ("JSON_OBJECT('a', 1)", "JSON_OBJECT takes keys with values"),
            ("JSON_VALUE(j, '$', 1 NULL ON EMPTY)", "JSON_VALUE takes a text and a path"),
            ("JSON_VALUE(j, '$' NULL ON)", "expected ERROR"),
            ("JSON_EXISTS(j, '$' NULL ON ERROR)", "expected a clause of JSON_EXISTS"),
            ("JSON_QUERY(j, '$' WITH ARRAY)", "expected WRAPPER"),
            ("x BETWEEN SYMMETRIC 1", "expected AND"),
        ];
        for (text, expected) in cases {
            let error = parse_expression(text).expect_err(text);
            assert!(error.message().contains(expected), "{text}: {error}");
            assert!(error.span().is_some(), "{text}: no place");
        }
    }
}
