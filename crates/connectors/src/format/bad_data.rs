//! What happens to records that cannot be read, and how they are reported.

use arrow_array::Array;
use thalweg_core::{Column, Error, ErrorKind};

/// What happens to a value that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDataPolicy {
    /// The job fails.
    Fail,
    /// The value is NULL.
    Null,
    /// The record is left out and reported.
    Reject,
}

/// A record that could not be read and was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The line at which it begins, or the number of its message ([`super::TextBlock`]).
    pub number: u64,
    /// What is wrong with it.
    pub reason: String,
    /// The record as it was found.
    pub raw: Vec<u8>,
}

/// Why an input cannot be decoded, and where. It does not name the input.
#[derive(Debug)]
pub struct DecodeError {
    /// What is wrong.
    pub error: Error,
    /// The line, row or message, where it is known.
    pub number: Option<u64>,
}

impl DecodeError {
    /// An error in this line, row or message.
    pub fn at(error: Error, number: u64) -> Self {
        DecodeError { error, number: Some(number) }
    }

    /// The error with the name of its input.
    pub fn in_input(self, name: &str) -> Error {
        match self.number {
            Some(number) => self.error.at_row(name, number),
            None if self.error.kind() == ErrorKind::Internal => self.error,
            None => self.error.in_file(name),
        }
    }
}

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        DecodeError { error, number: None }
    }
}

/// Collects the rows whose fields could not be read.
pub struct BadFields {
    policy: BadDataPolicy,
    /// The current column: its place among those that are read, and what messages call it.
    slot: usize,
    column: String,
    rows: Vec<BadRow>,
}

/// A row that is left out.
struct BadRow {
    row: usize,
    /// Of several reasons, the one with the smallest rank counts.
    rank: usize,
    /// `None` if it is reported elsewhere, or not at all.
    reason: Option<String>,
}

/// The rank of a row that is left out without a word; columns have theirs from 1.
const LEFT_OUT: usize = 0;

impl BadFields {
    /// Nothing is bad yet.
    pub fn new(policy: BadDataPolicy) -> Self {
        BadFields { policy, slot: 0, column: String::new(), rows: Vec::new() }
    }

    /// Starts a column, the first or the one behind the last.
    pub fn begin(&mut self, column: &Column) {
        self.begin_at(self.slot + 1, column);
    }

    /// Starts a column, which has this place among those that are read.
    pub fn begin_at(&mut self, slot: usize, column: &Column) {
        self.column = format!("column {} ({})", column.name, column.column_type.data_type);
        self.slot = slot;
    }

    /// A value of the current column cannot be read.
    #[cold]
    pub fn add(&mut self, row: usize, text: &str) {
        if self.policy == BadDataPolicy::Null {
            return;
        }
        let shown: String = text.chars().take(100).collect();
        self.push(row, format!("{}: cannot read '{shown}'", self.column));
    }

    /// A value of the current column is missing or of the wrong kind.
    #[cold]
    pub fn add_reason(&mut self, row: usize, reason: &str) {
        if self.policy != BadDataPolicy::Null {
            self.push(row, format!("{}: {reason}", self.column));
        }
    }

    /// A row that is bad under every policy: without the value its meaning is unknown.
    #[cold]
    pub fn refuse(&mut self, row: usize, reason: String) {
        self.push(row, reason);
    }

    /// A NULL where the declaration says NOT NULL makes the row bad, however the field became
    /// NULL: operators downstream rely on the declaration.
    pub fn refuse_nulls(&mut self, values: &dyn Array, column: &Column) {
        let Some(nulls) = values.nulls().filter(|_| !column.column_type.nullable) else { return };
        let reason = format!("{}: a NULL, but the column is declared NOT NULL", self.column);
        let rows = (0..values.len()).filter(|&row| nulls.is_null(row));
        let enough = if self.policy == BadDataPolicy::Fail { 1 } else { usize::MAX };
        rows.take(enough).for_each(|row| self.push(row, reason.clone()));
    }

    /// The same for a part of a value of the current column.
    #[cold]
    pub fn refuse_part(&mut self, row: usize) {
        self.push(
            row,
            format!("{}: a NULL within a value whose type does not allow it", self.column),
        );
    }

    /// A row that is left out, and of which nothing more is said.
    #[cold]
    pub fn leave_out(&mut self, row: usize) {
        self.rows.push(BadRow { row, rank: LEFT_OUT, reason: None });
    }

    fn push(&mut self, row: usize, reason: String) {
        self.rows.push(BadRow { row, rank: self.slot + 1, reason: Some(reason) });
    }

    /// The bad rows in order, each once, with the reason of its first bad column; without one, it
    /// is left out without a report.
    pub fn into_rows(mut self) -> Vec<(usize, Option<String>)> {
        self.rows.sort_by_key(|bad| (bad.row, bad.rank));
        self.rows.dedup_by_key(|bad| bad.row);
        self.rows.into_iter().map(|bad| (bad.row, bad.reason)).collect()
    }
}
