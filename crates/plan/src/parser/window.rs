//! Windowing table functions, taken out of the token stream.
//!
//! `sqlparser` can't read `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))`. Such a
//! call in a FROM clause is parsed here and one name takes its place in the stream. The name says
//! where the call stands, so it is unique in the script. The short form `TUMBLE(t, ts, …)` counts
//! in FROM and JOIN only; elsewhere `TUMBLE(ts, …)` is the old group window function, which stays
//! an ordinary call in the tree.
//!
//! ```text
//! SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS w
//! SELECT * FROM `tumble@1:21` AS w          and a WindowCall with that placeholder
//! ```
//!
//! Arguments may be given by position or by name (`DATA => TABLE t`). `crate::windows` says which
//! functions there are and how their intervals are called.
//!
//! **Invariants:**
//! - the tokens between the call's first and last are consumed whole: what `sqlparser` sees has
//!   balanced brackets if the text has;
//! - whether a table may come next is tracked per bracket level ([`Clauses`]), without a grammar:
//!   it only has to be right where a windowing function's name is followed by a bracket.

use sqlparser::ast as sql;
use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan};
use thalweg_core::{Error, Result};

use super::query::{expression, query};
use super::tokens::{Cursor, SourceText, closing, is_word, quoted_word, span, upper_word};
use crate::ast::{Name, Query, WindowCall, WindowInput};
use crate::diagnostic::nearest;
use crate::windows::{WINDOW_FUNCTIONS, WindowFunction};

/// What was taken out of the tokens of a query.
#[derive(Default)]
pub(super) struct Extracted {
    /// The calls of windowing functions.
    pub(super) windows: Vec<WindowCall>,
    /// `(SELECT …)` in front of MATCH_RECOGNIZE, which `sqlparser` knows behind names only.
    pub(super) matched: Vec<(String, Query)>,
}

/// The tokens with a placeholder for each call and each sub-query with MATCH_RECOGNIZE, and these.
pub(super) fn extract<'a>(
    source: &'a SourceText<'a>,
    tokens: &'a [TokenWithSpan],
) -> Result<(Vec<TokenWithSpan>, Extracted)> {
    let mut output = Vec::with_capacity(tokens.len());
    let mut extracted = Extracted::default();
    let mut clauses = Clauses::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let Some(found) = find(tokens, at, clauses.table_expected) {
            let call = parse(source, tokens, &found)?;
            let place = TokenSpan::new(token.span.start, tokens[found.end].span.end);
            output.push(quoted_word(call.placeholder.clone(), place));
            extracted.windows.push(call);
            clauses.table_expected = false;
            at = found.end + 1;
            continue;
        }
        if let Some(close) = matched_query(tokens, at).filter(|_| clauses.table_expected) {
            let place = span(token.span);
            let name = format!("match@{}:{}", place.line, place.column);
            let all = TokenSpan::new(token.span.start, tokens[close].span.end);
            output.push(quoted_word(name.clone(), all));
            extracted.matched.push((name, query(source, &tokens[at + 1..close])?));
            clauses.table_expected = false;
            at = close + 1;
            continue;
        }
        refuse_unknown(tokens, at)?;
        clauses.pass(&token.token, tokens.get(at + 1).map(|t| &t.token));
        output.push(token.clone());
        at += 1;
    }
    Ok((output, extracted))
}

/// Where the bracket of a sub-query ends that has MATCH_RECOGNIZE behind it.
fn matched_query(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is_at = |at: usize, word: &str| tokens.get(at).is_some_and(|t| is_word(&t.token, word));
    let begins = ["SELECT", "WITH", "VALUES"].iter().any(|word| is_at(at + 1, word));
    if tokens[at].token != Token::LParen || !begins {
        return None;
    }
    closing(tokens, at).filter(|close| is_at(close + 1, "MATCH_RECOGNIZE"))
}

/// Which bracket levels are FROM clauses, and whether a table comes next.
struct Clauses {
    // True between FROM and the next clause of the same query.
    in_from: bool,
    // True if this level began with SELECT or WITH. FROM elsewhere is part of a function: EXTRACT,
    // TRIM.
    is_query: bool,
    // `in_from` and `is_query` of the levels around.
    outer: Vec<(bool, bool)>,
    table_expected: bool,
}

impl Clauses {
    fn new() -> Self {
        Clauses { in_from: false, is_query: true, outer: Vec::new(), table_expected: false }
    }

    fn pass(&mut self, token: &Token, next: Option<&Token>) {
        let table_expected = std::mem::take(&mut self.table_expected);
        match token {
            Token::LParen => {
                self.outer.push((self.in_from, self.is_query));
                self.is_query = next.is_some_and(|t| is_word(t, "SELECT") || is_word(t, "WITH"));
                self.in_from = table_expected && !self.is_query;
                self.table_expected = self.in_from;
            }
            Token::RParen => (self.in_from, self.is_query) = self.outer.pop().unwrap_or_default(),
            Token::Comma => self.table_expected = self.in_from,
            Token::Word(_) => self.pass_word(token),
            _ => {}
        }
    }

    fn pass_word(&mut self, token: &Token) {
        let Some(word) = upper_word(token) else { return };
        match word.as_str() {
            "FROM" if self.is_query => (self.in_from, self.table_expected) = (true, true),
            "JOIN" | "LATERAL" if self.in_from => self.table_expected = true,
            "WHERE" | "GROUP" | "HAVING" | "ORDER" | "WINDOW" | "LIMIT" | "OFFSET" | "FETCH"
            | "UNION" | "INTERSECT" | "EXCEPT" | "SELECT" => self.in_from = false,
            _ => {}
        }
    }
}

/// A call at a place: where its arguments begin and end, and where all of it ends.
struct FoundCall {
    function: &'static WindowFunction,
    begin: usize,
    arguments: (usize, usize),
    end: usize,
    is_short: bool,
}

fn find(tokens: &[TokenWithSpan], at: usize, table_expected: bool) -> Option<FoundCall> {
    let token = |i: usize| tokens.get(i).map(|t| &t.token);
    let mut inner = at;
    if is_word(token(inner)?, "LATERAL") {
        inner += 1;
    }
    let is_short = !(is_word(token(inner)?, "TABLE") && token(inner + 1) == Some(&Token::LParen));
    if is_short && (!table_expected || inner != at) {
        return None;
    }
    let name = if is_short { inner } else { inner + 2 };
    let function = WindowFunction::named(&upper_word(token(name)?)?)?;
    if token(name + 1) != Some(&Token::LParen) {
        return None;
    }
    let close = closing(tokens, name + 1)?;
    let end = if is_short { close } else { close + 1 };
    if !is_short && token(end) != Some(&Token::RParen) {
        return None;
    }
    Some(FoundCall { function, begin: name, arguments: (name + 2, close), end, is_short })
}

/// Fails at `TABLE(F(TABLE t, …))` and `TABLE(F(DATA => …))` of a function that there is not.
/// The message of `sqlparser` would name a bracket.
fn refuse_unknown(tokens: &[TokenWithSpan], at: usize) -> Result<()> {
    let [table, open, name, inner, first, second, ..] = &tokens[at..] else { return Ok(()) };
    let is_call = is_word(&table.token, "TABLE")
        && (&open.token, &inner.token) == (&Token::LParen, &Token::LParen);
    let takes_table = is_word(&first.token, "TABLE") || second.token == Token::RArrow;
    let Some(word) = upper_word(&name.token).filter(|_| is_call && takes_table) else {
        return Ok(());
    };
    let error = Error::plan(format!("there is no table function {word}")).at(span(name.span));
    let names = WINDOW_FUNCTIONS.each_ref().map(|function| function.name);
    Err(match nearest(&word, names) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the windowing functions are {}", names.join(", "))),
    })
}

fn parse<'a>(
    source: &'a SourceText<'a>,
    tokens: &'a [TokenWithSpan],
    found: &FoundCall,
) -> Result<WindowCall> {
    let name = &tokens[found.begin];
    let (first, last) = found.arguments;
    let mut cursor = Cursor::new(source, &tokens[..last]);
    cursor.index = first;
    let mut arguments = ArgumentReader {
        function: found.function,
        is_short: found.is_short,
        cursor,
        read: ReadArguments::default(),
    };
    arguments.read_all()?;
    let here = span(name.span);
    let place = span(TokenSpan::new(name.span.start, tokens[found.end].span.end));
    let ReadArguments { input, partition_by, time_column, intervals } = arguments.read;
    let WindowFunction { usage, .. } = found.function;
    let missing =
        |what: &str| Error::plan(format!("{} needs {what}", name.token)).hint(*usage).at(here);
    let given = intervals.iter().take_while(|interval| interval.is_some()).count();
    if given < found.function.needed_intervals() {
        let name = found.function.arguments()[given];
        return Err(missing(&format!("an interval for {name}")));
    }
    Ok(WindowCall {
        placeholder: format!("{}@{}:{}", name.token, here.line, here.column).to_lowercase(),
        function: found.function,
        input: input.ok_or_else(|| missing("a table"))?,
        partition_by,
        time_column: time_column.ok_or_else(|| missing("DESCRIPTOR(time column)"))?,
        intervals: intervals.into_iter().flatten().collect(),
        is_short: found.is_short,
        span: place,
    })
}

#[derive(Default)]
struct ReadArguments {
    input: Option<WindowInput>,
    partition_by: Vec<Name>,
    time_column: Option<Name>,
    intervals: Vec<Option<sql::Expr>>,
}

struct ArgumentReader<'a> {
    function: &'static WindowFunction,
    is_short: bool,
    cursor: Cursor<'a>,
    read: ReadArguments,
}

impl<'a> ArgumentReader<'a> {
    fn read_all(&mut self) -> Result<()> {
        let names = &self.function.arguments()[..];
        self.read.intervals = vec![None; names.len()];
        let mut position = 0;
        loop {
            if let Some(name) = self.argument_name() {
                self.named(&name, names)?;
            } else {
                self.positional(position, names)?;
            }
            position += 1;
            if !self.cursor.take_token(&Token::Comma) {
                break;
            }
        }
        self.cursor.expect_end()
    }

    /// `NAME =>`
    fn argument_name(&mut self) -> Option<Name> {
        let named = self.cursor.peek_at(1) == Some(&Token::RArrow);
        let name = if named { self.cursor.name("an argument").ok() } else { None };
        self.cursor.index += usize::from(name.is_some());
        name
    }

    fn positional(&mut self, position: usize, names: &[&str]) -> Result<()> {
        match position {
            0 => self.input(),
            1 => self.time_column(),
            _ => match names.get(position - 2) {
                Some(_) => self.interval(position - 2),
                None => Err(Error::plan("this window function has no further argument")
                    .hint(self.function.usage)
                    .at(self.cursor.here())),
            },
        }
    }

    fn named(&mut self, name: &Name, names: &[&str]) -> Result<()> {
        let upper = name.text.to_ascii_uppercase();
        let interval = names.iter().position(|known| *known == upper);
        let is_given = match upper.as_str() {
            "DATA" => self.read.input.is_some(),
            "TIMECOL" => self.read.time_column.is_some(),
            _ => interval.is_some_and(|position| self.read.intervals[position].is_some()),
        };
        if is_given {
            return Err(Error::plan(format!("the argument {upper} is given twice")).at(name.span));
        }
        match upper.as_str() {
            "DATA" => self.input(),
            "TIMECOL" => self.time_column(),
            _ => match interval {
                Some(position) => self.interval(position),
                None => Err(Error::plan(format!("there is no argument {}", name.text))
                    .hint(format!("the arguments are DATA, TIMECOL, {}", names.join(", ")))
                    .at(name.span)),
            },
        }
    }

    fn interval(&mut self, position: usize) -> Result<()> {
        let here = self.cursor.here();
        let tokens = self.cursor.take_until(&[Token::Comma]);
        if tokens.is_empty() {
            return Err(self.cursor.expected("an interval"));
        }
        let source = self.cursor.source;
        self.read.intervals[position] = Some(expression(source, tokens).map_err(|e| e.at(here))?);
        Ok(())
    }

    fn time_column(&mut self) -> Result<()> {
        if !self.cursor.take_words(&["DESCRIPTOR"]) {
            if !self.is_short {
                return Err(self.cursor.expected("DESCRIPTOR(time column)"));
            }
            self.read.time_column = Some(self.cursor.name("the time column")?);
            return Ok(());
        }
        let mut names = self.cursor.parenthesized_names("the time column")?;
        match (names.pop(), names.first()) {
            (Some(name), None) => self.read.time_column = Some(name),
            (last, _) => {
                return Err(Error::plan("DESCRIPTOR takes one time column")
                    .at(last.map(|name| name.span).unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn input(&mut self) -> Result<()> {
        let with_table = self.cursor.take_words(&["TABLE"]);
        let input = if self.cursor.is_token(&Token::LParen) {
            let open = self.cursor.index;
            let close =
                closing(self.cursor.tokens, open).ok_or_else(|| self.cursor.expected("')'"))?;
            self.cursor.index = close + 1;
            let inside = &self.cursor.tokens[open + 1..close];
            WindowInput::Query(Box::new(query(self.cursor.source, inside)?))
        } else if with_table || self.is_short {
            WindowInput::Table(self.cursor.table_name()?)
        } else {
            return Err(self.cursor.expected("TABLE name or a query in parentheses"));
        };
        self.read.input = Some(input);
        if self.cursor.take_words(&["PARTITION", "BY"]) {
            self.partition_by()?;
        }
        Ok(())
    }

    /// The names behind PARTITION BY. In the short form the last of them is the time column's
    /// when no DESCRIPTOR follows; it is left for the next argument.
    fn partition_by(&mut self) -> Result<()> {
        let here = self.cursor.here();
        if !self.function.has_keys {
            return Err(Error::plan("PARTITION BY belongs to SESSION only")
                .hint("group by the key instead: GROUP BY window_start, window_end, key")
                .at(here));
        }
        let parenthesized = self.cursor.is_token(&Token::LParen);
        if parenthesized {
            self.read.partition_by = self.cursor.parenthesized_names("a column")?;
            return Ok(());
        }
        self.read.partition_by.push(self.cursor.name("a column")?);
        while self.cursor.is_token(&Token::Comma) && self.is_partition_column() {
            self.cursor.next();
            self.read.partition_by.push(self.cursor.name("a column")?);
        }
        Ok(())
    }

    /// True if `, name` is one more partition column rather than the next argument.
    fn is_partition_column(&self) -> bool {
        let is_name = matches!(self.cursor.peek_at(1), Some(Token::Word(_)));
        let followed = |token: &Token| self.cursor.peek_at(2) == Some(token);
        if !is_name || followed(&Token::LParen) || followed(&Token::RArrow) {
            return false;
        }
        let last_before_interval = followed(&Token::Comma) && self.cursor.is_word_at(3, "INTERVAL");
        !(self.is_short && last_before_interval)
    }
}
