//! The clauses of the SELECT of an INSERT, as places in the text of a script: a move edits them and
//! leaves the rest as it was written.

use std::ops::Range;

use sqlparser::ast::{self as sql, SetExpr, TableFactor};
use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::needs::unmovable;
use crate::ast::Query;
use crate::script_text::ScriptText;

/// A token and where it stands.
pub(super) type Word = (Token, Range<usize>);

/// Words that begin or combine what a move does not look into.
const UNKNOWN: [&str; 9] =
    ["UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH", "QUALIFY"];

/// A SELECT without any of [`UNKNOWN`].
#[derive(Debug)]
pub(super) struct Clauses {
    /// All of it.
    pub query: Range<usize>,
    pub is_distinct: bool,
    /// What is selected.
    pub items: Range<usize>,
    /// Behind FROM, WHERE, GROUP BY and HAVING.
    pub from: Range<usize>,
    pub filter: Option<Range<usize>>,
    pub group: Option<Range<usize>>,
    pub having: Option<Range<usize>>,
    words: Vec<Word>,
}

impl Clauses {
    /// Those of a query.
    ///
    /// # Errors
    /// If it is no plain SELECT.
    pub(super) fn of(source: &ScriptText<'_>, query: &Query) -> Result<Clauses> {
        let start = source.start(query.span);
        let end = start + query.text.len();
        if source.text.get(start..end) != Some(&query.text) {
            return Err(Error::internal("a query stands where its place says").at(query.span));
        }
        let inside = source.words_from(start).take_while(|(_, range)| range.start < end);
        let words: Vec<Word> = inside.map(|(token, range)| (token.clone(), range)).collect();
        let refused = |what: &str| Err(not_plain(what).at(query.span));
        if !words.first().is_some_and(|(token, _)| is_keyword(token, "SELECT")) {
            return refused("is no plain SELECT");
        }
        let outer: Vec<usize> = outer_words(&words);
        let is_unknown = |&&at: &&usize| UNKNOWN.iter().any(|word| is_keyword(&words[at].0, word));
        if let Some(&at) = outer.iter().find(is_unknown) {
            return refused(&format!("has {}", words[at].0.to_string().to_uppercase()));
        }
        let mut clauses = Clauses {
            query: start..end,
            is_distinct: words.get(1).is_some_and(|(token, _)| is_keyword(token, "DISTINCT")),
            items: 0..0,
            from: 0..0,
            filter: None,
            group: None,
            having: None,
            words,
        };
        clauses.find(&outer);
        match clauses.from.is_empty() {
            true => refused("has no FROM"),
            false => Ok(clauses),
        }
    }

    fn find(&mut self, outer: &[usize]) {
        let heads: Vec<(usize, usize)> =
            outer.iter().filter_map(|&at| Some((at, self.head(at)?))).collect();
        let first = self.words[if self.is_distinct { 1 } else { 0 }].1.end;
        let mut begun = ("SELECT", first);
        for &(at, length) in heads.iter().chain([&(self.words.len(), 0)]) {
            let end = self.words[at - 1].1.end;
            let range = begun.1.min(end)..end;
            match begun.0 {
                "SELECT" => self.items = range,
                "FROM" => self.from = range,
                "WHERE" => self.filter = Some(range),
                "GROUP" => self.group = Some(range),
                "HAVING" => self.having = Some(range),
                _ => {}
            }
            if length > 0 {
                let name = CLAUSES.iter().find(|name| is_keyword(&self.words[at].0, name));
                begun = (name.copied().unwrap_or("WINDOW"), self.words[at + length - 1].1.end);
            }
        }
    }

    /// How many words the head of a clause has that begins here.
    fn head(&self, at: usize) -> Option<usize> {
        let token = &self.words[at].0;
        let is_comparison = at > 0 && is_keyword(&self.words[at - 1].0, "DISTINCT");
        match () {
            () if is_keyword(token, "FROM") && !is_comparison => Some(1),
            () if ["WHERE", "HAVING", "WINDOW"].iter().any(|word| is_keyword(token, word)) => {
                Some(1)
            }
            () if is_keyword(token, "GROUP") => Some(2),
            () => None,
        }
    }

    /// The words of a clause.
    pub(super) fn words(&self, clause: &Range<usize>) -> &[Word] {
        let from = self.words.partition_point(|(_, range)| range.start < clause.start);
        let to = self.words.partition_point(|(_, range)| range.start < clause.end);
        &self.words[from..to]
    }

    /// The parts of a clause between its commas.
    pub(super) fn list(&self, clause: &Range<usize>) -> Vec<Range<usize>> {
        let words = self.words(clause);
        let is_comma = |&at: &usize| words[at].0 == Token::Comma;
        let commas: Vec<usize> = outer_words(words).into_iter().filter(is_comma).collect();
        let mut parts = Vec::new();
        let mut first = 0;
        for end in commas.into_iter().chain([words.len()]) {
            if first < end {
                parts.push(words[first].1.start..words[end - 1].1.end);
            }
            first = end + 1;
        }
        parts
    }
}

const CLAUSES: [&str; 4] = ["FROM", "WHERE", "GROUP", "HAVING"];

/// The words that stand in no brackets.
fn outer_words(words: &[Word]) -> Vec<usize> {
    let mut depth = 0usize;
    let mut outer = Vec::new();
    for (at, (token, _)) in words.iter().enumerate() {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ if depth == 0 => outer.push(at),
            _ => {}
        }
    }
    outer
}

/// Whether a token is this word, and not a name in backticks.
pub(super) fn is_keyword(token: &Token, keyword: &str) -> bool {
    let Token::Word(word) = token else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword)
}

/// The SELECT of a query in the tree.
pub(super) fn select_of(query: &Query) -> Result<&sql::Select> {
    match query.query.body.as_ref() {
        SetExpr::Select(select) if query.windows.is_empty() && query.matched.is_empty() => {
            Ok(select)
        }
        _ => Err(not_plain("is no plain SELECT").at(query.span)),
    }
}

/// What stands in FROM, joined or not.
pub(super) fn factors(select: &sql::Select) -> impl Iterator<Item = &TableFactor> {
    select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    })
}

fn not_plain(what: &str) -> Error {
    unmovable(
        &format!("it holds rows of any age, and its query {what}"),
        "write one SELECT … FROM … in the INSERT",
    )
}
