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
    column: String,
    rows: Vec<(usize, String)>,
    /// How many of `rows` came from columns before the current one.
    before: usize,
}

impl BadFields {
    /// Nothing is bad yet.
    pub fn new(policy: BadDataPolicy) -> Self {
        BadFields { policy, column: String::new(), rows: Vec::new(), before: 0 }
    }

    /// Starts a column.
    pub fn begin(&mut self, column: &Column) {
        self.column = format!("column {} ({})", column.name, column.column_type.data_type);
        self.before = self.rows.len();
    }

    /// A value of the current column cannot be read.
    #[cold]
    pub fn add(&mut self, row: usize, text: &str) {
        // Failing, only the first row of each column can be the first of all.
        let is_enough = self.policy == BadDataPolicy::Fail && self.rows.len() > self.before;
        if self.policy == BadDataPolicy::Null || is_enough {
            return;
        }
        let shown: String = text.chars().take(100).collect();
        self.rows.push((row, format!("{}: cannot read '{shown}'", self.column)));
    }

    /// A value of the current column is missing or of the wrong kind.
    #[cold]
    pub fn add_reason(&mut self, row: usize, reason: &str) {
        if self.policy != BadDataPolicy::Null {
            self.rows.push((row, format!("{}: {reason}", self.column)));
        }
    }

    /// A row that is bad under every policy: without the value its meaning is unknown.
    #[cold]
    pub fn refuse(&mut self, row: usize, reason: String) {
        self.rows.push((row, reason));
    }

    /// A NULL where the declaration says NOT NULL makes the row bad, however the field became
    /// NULL: operators downstream rely on the declaration.
    pub fn refuse_nulls(&mut self, values: &dyn Array, column: &Column) {
        let Some(nulls) = values.nulls().filter(|_| !column.column_type.nullable) else { return };
        let reason = format!("{}: a NULL, but the column is declared NOT NULL", self.column);
        let rows = (0..values.len()).filter(|&row| nulls.is_null(row));
        let enough = if self.policy == BadDataPolicy::Fail { 1 } else { usize::MAX };
        self.rows.extend(rows.take(enough).map(|row| (row, reason.clone())));
    }

    /// The bad rows in order, each once, with the reason of its first bad column.
    pub fn into_rows(mut self) -> Vec<(usize, String)> {
        self.rows.sort_by_key(|(row, _)| *row);
        self.rows.dedup_by_key(|(row, _)| *row);
        self.rows
    }
}
