//! Where a text ends: in code, in a text in quotes, or in a comment; and where its statements are.
//! Unlike the parser it takes a text that ends anywhere.

use std::ops::Range;

/// What a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Code,
    /// The byte behind the quote.
    Text(usize),
    Comment,
}

/// A text up to a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The statements that have ended, without their semicolons.
    pub statements: Vec<Range<usize>>,
    /// Where the one begins that has not.
    pub start: usize,
    pub place: Place,
}

pub(super) fn scan(text: &str) -> Scanned {
    let mut scanned = Scanned { statements: Vec::new(), start: 0, place: Place::Code };
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (length, place) = part(rest);
        scanned.place = match place {
            Place::Text(_) => Place::Text(at + 1),
            place => place,
        };
        if rest.starts_with(';') {
            scanned.statements.push(scanned.start..at);
            scanned.start = at + 1;
        }
        at += length;
    }
    scanned
}

/// How long the next part of a text is, and what the text is in if it ends there.
fn part(rest: &str) -> (usize, Place) {
    let until = |end: &str, place: Place| match rest[end.len().min(rest.len())..].find(end) {
        Some(found) => (end.len() + found + end.len(), Place::Code),
        None => (rest.len(), place),
    };
    match rest.as_bytes() {
        // A quote that is doubled ends one text and begins another: which is the same.
        [b'\'', ..] => until("'", Place::Text(0)),
        [b'`', ..] => match rest[1..].find('`') {
            Some(found) => (found + 2, Place::Code),
            // A name that is being written.
            None => (1, Place::Code),
        },
        [b'-', b'-', ..] => match rest.find('\n') {
            Some(found) => (found + 1, Place::Code),
            None => (rest.len(), Place::Comment),
        },
        [b'/', b'*', ..] => match rest[2..].find("*/") {
            Some(found) => (found + 4, Place::Code),
            None => (rest.len(), Place::Comment),
        },
        _ => (rest.chars().next().map_or(1, char::len_utf8), Place::Code),
    }
}
