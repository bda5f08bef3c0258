//! The windowing functions of a job in its text, each of which a move lets emit only what was not
//! written.

use std::collections::BTreeSet;
use std::ops::Range;

use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::literals::{is_instant, literal};
use crate::ast::{Insert, Query, Statement, StatementKind, WindowCall};
use crate::planner::Planner;
use crate::script_text::{Edit, ScriptText, closing};

/// A windowing function whose results leave the job, and do not feed others.
#[derive(Debug)]
pub(super) struct MovedWindow {
    range: Range<usize>,
    is_instant: bool,
}

impl MovedWindow {
    /// Its rows without those of windows that end at or before the watermark.
    pub(super) fn filtered(&self, text: &str, watermark_ms: i64) -> Edit {
        let call = &text[self.range.clone()];
        let after = literal(watermark_ms, self.is_instant);
        (self.range.clone(), format!("(SELECT * FROM {call} WHERE window_time > {after})"))
    }
}

/// The windowing functions whose rows leave the job: those of its own queries, and those of views
/// that do not feed other windows.
pub(super) fn moved_windows(
    source: &ScriptText<'_>,
    statements: &[Statement],
    inserts: &[Insert],
    planner: &Planner,
) -> Result<Vec<MovedWindow>> {
    let views: Vec<(&str, &Query)> = statements
        .iter()
        .filter_map(|statement| match &statement.kind {
            StatementKind::CreateView { name, query, .. } => Some((name.text.as_str(), query)),
            _ => None,
        })
        .collect();
    let own = inserts.iter().map(|insert| &insert.query);
    let all: Vec<&Query> = own.chain(views.iter().map(|(_, query)| *query)).collect();
    let calls: Vec<Range<usize>> = all
        .iter()
        .flat_map(|query| &query.windows)
        .map(|window| call_range(source, window))
        .collect::<Result<_>>()?;
    for query in &all {
        refuse_old_form(source, query, &calls)?;
    }
    let mut feeding = BTreeSet::new();
    for (name, query) in &views {
        let is_inside = |place: &usize| calls.iter().any(|call| call.contains(place));
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            places_behind(source, source.start(query.span), name).partition(is_inside);
        if inside.is_empty() || query.windows.is_empty() {
            continue;
        }
        if !outside.is_empty() {
            return Err(Error::plan(format!(
                "this job cannot be moved: the view '{name}' feeds windows and is read without them"
            ))
            .at(query.span)
            .hint("declare it twice, under two names"));
        }
        feeding.insert(*name);
    }
    let leaving = views.iter().filter(|(name, _)| !feeding.contains(name)).map(|(_, query)| *query);
    let leaving = inserts.iter().map(|insert| &insert.query).chain(leaving);
    leaving
        .flat_map(|query| &query.windows)
        .map(|window| moved_window(source, window, planner))
        .collect()
}

/// Windows of `GROUP BY TUMBLE(ts, …)` have no call of their own in FROM that a condition could
/// follow, so those that were written would be written again.
fn refuse_old_form(source: &ScriptText<'_>, query: &Query, calls: &[Range<usize>]) -> Result<()> {
    let words = source.words_from(source.start(query.span));
    let words: Vec<(&Token, Range<usize>)> =
        words.take_while(|(token, _)| **token != Token::SemiColon).collect();
    let old = words.windows(2).find(|pair| {
        let is_call = *pair[1].0 == Token::LParen && is_window_function(pair[0].0);
        is_call && !calls.iter().any(|call| call.contains(&pair[0].1.start))
    });
    match old {
        None => Ok(()),
        Some(_) => Err(Error::plan("this job cannot be moved: it groups by windows in the old form")
            .at(query.span)
            .hint(
                "write them in FROM: TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)), and GROUP BY window_start, window_end",
            )),
    }
}

fn is_window_function(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    ["TUMBLE", "HOP", "SESSION", "CUMULATE"]
        .iter()
        .any(|name| word.value.eq_ignore_ascii_case(name))
}

fn moved_window(
    source: &ScriptText<'_>,
    window: &WindowCall,
    planner: &Planner,
) -> Result<MovedWindow> {
    let range = call_range(source, window)?;
    let query = format!("SELECT window_time FROM {}", &source.text[range.clone()]);
    Ok(MovedWindow { is_instant: is_instant(planner, &query)?, range })
}

/// A call from its first word to its last bracket.
fn call_range(source: &ScriptText<'_>, window: &WindowCall) -> Result<Range<usize>> {
    let name = source.start(window.span);
    let words: Vec<(Token, Range<usize>)> =
        source.words_from(0).map(|(token, range)| (token.clone(), range)).collect();
    let position = words.iter().position(|(_, range)| range.start == name);
    // In front of the name stand TABLE and a bracket.
    let first = position.map(|at| if window.is_short { at } else { at.saturating_sub(2) });
    let found = first.and_then(|first| {
        let last = closing(&words[first..])?;
        Some(words[first].1.start..words[first + last].1.end)
    });
    found.ok_or_else(|| Error::internal("a window call has a place in its text").at(window.span))
}

/// Where a name stands behind a place of a script. A column may have it, too.
fn places_behind<'s>(
    source: &'s ScriptText<'_>,
    start: usize,
    name: &'s str,
) -> impl Iterator<Item = usize> + 's {
    let is_name = move |token: &Token| matches!(token, Token::Word(word) if word.value == name);
    let words = source.words_from(start).filter(move |(token, _)| is_name(token));
    words.map(|(_, range)| range.start)
}
