//! JSON: one object a record (in files: a line), read by declared column names.
//!
//! Flink's rules: other keys are passed over, a missing key is NULL, a number in quotes is a
//! number, a fraction is cut off for integers, and an object or array where a string is declared
//! is its JSON text. Empty lines are skipped. An array of objects is a row for each.
//!
//! The text is read once, and each value goes straight into its column ([`values`]); nothing is
//! built for a record. What is bad in the middle of a record leaves its columns in part, which are
//! completed, and the row is left out of the batch.

mod parser;
pub mod values;
pub mod writer;

use serde::de::IgnoredAny;
use thalweg_core::{Column, Error, Result};

use self::parser::{Broken, Cursor};
use self::values::Reader;
use super::bad_data::{BadDataPolicy, DecodeError, Rejected};
use super::builder::{self, Field};
use super::records::{DecodedRecords, Objects, RecordLayout, finish};
use super::text::{NOT_UTF8, Text, TextBlock};

/// How JSON is read and written.
#[derive(Clone, Debug, Default)]
pub struct JsonOptions {
    /// True if a value that cannot be read is NULL, and a record that cannot be read is skipped.
    pub ignore_parse_errors: bool,
    /// True if a missing key is an error.
    pub fail_on_missing_field: bool,
    /// True if timestamps have a `T` between date and time.
    pub iso_timestamps: bool,
    /// True if a DECIMAL is written with all digits of its scale, and never with an exponent.
    pub plain_decimals: bool,
    /// True if NULL is not written.
    pub ignore_null_fields: bool,
    /// What is written for a key of a MAP that is NULL.
    pub null_keys: NullKeys,
}

/// What is written for a key of a MAP that is NULL.
#[derive(Clone, Debug, Default)]
pub enum NullKeys {
    /// Nothing: the job fails.
    #[default]
    Fail,
    /// The entry is left out.
    Drop,
    /// This text.
    Literal(String),
}

/// Decodes a block.
pub(super) fn decode(
    options: &JsonOptions,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
    let fields = builder::record(columns.iter().copied())?;
    let source = block.text(layout.policy)?;
    let objects = objects(options, &columns, fields, &source, block, layout.policy);
    let Objects { fields, mut found, mut bad, rejected } = objects;
    let columns = builder::finish(fields, &columns, &mut bad)?;
    finish(layout, block, &mut found, columns, bad, rejected)
}

/// Reads these columns of all objects of a block.
pub(super) fn objects<'b>(
    options: &JsonOptions,
    columns: &[&Column],
    fields: Vec<Field>,
    source: &Text<'_>,
    block: &'b TextBlock<'_>,
    policy: BadDataPolicy,
) -> Objects<'b> {
    let objects = Objects::new(fields, policy, bad_record);
    let mut reading = Reading { options, columns, objects, policy };
    match block.as_messages() {
        None => {
            let lines = (block.number_at(0)..).zip(Lines { text: &source.text, start: 0 });
            reading.records(source, block, lines);
        }
        Some(messages) => {
            reading.records(source, block, messages.numbered(source.text.len()));
        }
    }
    reading.objects
}

/// Where the lines of a text begin and end; behind the last line feed there is one more.
pub(super) struct Lines<'t> {
    pub text: &'t str,
    pub start: usize,
}

impl Iterator for Lines<'_> {
    type Item = (usize, usize);
    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.start;
        let rest = self.text.as_bytes().get(start..)?;
        let end = memchr::memchr(b'\n', rest).map_or(self.text.len(), |at| start + at);
        self.start = end + 1;
        Some((start, end))
    }
}

/// The objects of a block that were read so far.
struct Reading<'r, 'b> {
    options: &'r JsonOptions,
    columns: &'r [&'r Column],
    objects: Objects<'b>,
    policy: BadDataPolicy,
}

impl<'b> Reading<'_, 'b> {
    fn records(
        &mut self,
        source: &Text<'_>,
        block: &'b TextBlock<'_>,
        spans: impl Iterator<Item = (u64, (usize, usize))>,
    ) {
        for (number, (begin, end)) in spans {
            let record = &source.text[begin..end];
            let raw = &block.bytes()[begin..end];
            let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
            let first_row = self.objects.found.records.len();
            let reason = match source.is_foreign(begin, end) {
                true => NOT_UTF8.to_owned(),
                false => match self.record(record, number, raw) {
                    Ok(()) => continue,
                    Err(Broken) => {
                        let what = if block.as_messages().is_some() { "message" } else { "line" };
                        format!("the {what} is not a JSON object: {}", explain(record))
                    }
                },
            };
            self.leave_out(first_row, number, raw, reason);
            if self.objects.found.broken.is_some() {
                return;
            }
        }
    }

    /// Reads a record: an object, or an array of them; a bare `null` is none.
    fn record(&mut self, record: &str, number: u64, raw: &'b [u8]) -> Result<(), Broken> {
        let mut reader = Reader::new(record, self.options, self.columns, &mut self.objects.bad);
        reader.row = self.objects.found.records.len();
        reader.cursor.blanks();
        if reader.cursor.is_at_end() || reader.cursor.null()? {
            return at_end(&mut reader.cursor);
        }
        if reader.cursor.peek() != b'[' {
            reader.record(&mut self.objects.fields)?;
            at_end(&mut reader.cursor)?;
            self.objects.found.records.push((number, raw));
            return Ok(());
        }
        let mut has_next = reader.cursor.first_part(b']');
        while has_next {
            let from = reader.cursor.at;
            reader.record(&mut self.objects.fields)?;
            self.objects.found.records.push((number, &raw[from..reader.cursor.at]));
            reader.row += 1;
            has_next = reader.cursor.next_part(b']')?;
        }
        at_end(&mut reader.cursor)
    }

    /// What was read of a record that turned out to be none is no row. Where bad values are NULL,
    /// the elements of an array before the first bad one are, as in Flink.
    #[cold]
    fn leave_out(&mut self, first_row: usize, number: u64, raw: &'b [u8], reason: String) {
        let rows = self.objects.found.records.len();
        self.objects.fields.iter_mut().for_each(|field| field.column.fill(rows + 1));
        self.objects.found.records.push((number, raw));
        self.objects.bad.leave_out(rows);
        if self.policy != BadDataPolicy::Null {
            (first_row..rows).for_each(|row| self.objects.bad.leave_out(row));
        }
        match self.policy {
            BadDataPolicy::Fail => self.objects.found.broken = Some(bad_record(&reason, number)),
            BadDataPolicy::Null => {}
            BadDataPolicy::Reject => {
                self.objects.rejected.push(Rejected { number, reason, raw: raw.to_vec() });
            }
        }
    }
}

/// Nothing but blanks may follow.
fn at_end(cursor: &mut Cursor<'_>) -> Result<(), Broken> {
    cursor.blanks();
    if cursor.is_at_end() { Ok(()) } else { Err(Broken) }
}

fn bad_record(reason: &str, number: u64) -> DecodeError {
    let hint = "correct the line, or set 'bad-data' = 'drop' or 'dead-letter' \
                ('json.ignore-parse-errors' = 'true' makes bad fields NULL)";
    DecodeError::at(Error::data(reason).hint(hint), number)
}

/// What is wrong with a record that is no object. The other parser's line is always 1 here, so
/// only the column is kept.
#[cold]
fn explain(record: &str) -> String {
    let Err(error) = serde_json::from_str::<IgnoredAny>(record) else {
        return "expected an object".to_owned();
    };
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_string();
    format!("{message} (character {})", error.column())
}
