//! CSV: finding records ([`scan`], and faster where nothing is special, [`plain`]), turning fields
//! into columns ([`values`]), and writing ([`writer`]).

pub mod plain;
pub mod scan;
pub mod values;
pub mod writer;

use std::borrow::Cow;

use arrow_array::ArrayRef;
use thalweg_core::{Column, Error, Result};

use self::plain::PlainRecords;
use self::scan::{Dialect, FieldSpan, ScanStep, Walker};
use self::values::column;
use super::bad_data::{BadDataPolicy, BadFields, DecodeError, Rejected};
use super::records::{DecodedRecords, RecordLayout, Records, finish};
use super::text::{Messages, NOT_UTF8, Text, TextBlock};

/// How CSV is read and written.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The bytes with a meaning.
    pub dialect: Dialect,
    /// The text that stands for NULL.
    pub null_literal: Option<String>,
    /// True if the first record of each input names the columns.
    pub header: bool,
    /// Between the elements of an ARRAY.
    pub array_delimiter: String,
    /// True if a field that cannot be read is NULL.
    pub ignore_parse_errors: bool,
    /// Which records and fields are taken that are not as the table has them.
    pub reading: CsvReading,
    /// True if a DECIMAL is written without trailing zeros, perhaps with an exponent.
    pub scientific_decimals: bool,
}

/// Which records and fields are taken that are not as the table has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvReading {
    /// A delimiter at the end of a record makes it bad.
    pub refuses_trailing_delimiter: bool,
    /// Fields behind those of the table are passed over.
    pub ignores_trailing_fields: bool,
    /// Where bad fields are NULL, a record with too few of them is left out nevertheless.
    pub refuses_missing_fields: bool,
    /// An empty field is NULL.
    pub has_empty_nulls: bool,
}

/// The records of a block that have as many fields as there are columns.
#[derive(Default)]
pub struct WalkedRecords {
    /// Row after row, each with one field per declared column.
    fields: Vec<FieldSpan>,
    /// Where each record lies.
    spans: Vec<(u32, u32)>,
    broken: Option<DecodeError>,
}

/// The records of a block.
pub enum FoundRecords<'t> {
    /// Nothing is special.
    Plain(PlainRecords<'t>),
    /// As the walker found them.
    Walked(WalkedRecords),
}

impl FoundRecords<'_> {
    /// How many there are.
    pub fn rows(&self) -> usize {
        match self {
            FoundRecords::Plain(records) => records.rows(),
            FoundRecords::Walked(records) => records.spans.len(),
        }
    }

    /// Where a record lies.
    fn span(&self, row: usize) -> (usize, usize) {
        match self {
            FoundRecords::Plain(records) => records.span(row),
            FoundRecords::Walked(records) => {
                let (start, end) = records.spans[row];
                (start as usize, end as usize)
            }
        }
    }
}

/// Decodes a block.
pub(super) fn decode(
    options: &CsvOptions,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let source = block.text(layout.policy)?;
    let decoder = CsvDecoder { options, layout, block };
    let text = decoder.records_text(&source);
    let mut rejected = Vec::new();
    let found = decoder.find(&source, &mut rejected)?;
    let mut bad = BadFields::new(layout.policy);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(layout.wanted.len());
    for position in layout.read() {
        let declared = &layout.schema.columns[position];
        bad.begin(declared);
        let values = column(text, &found, position, declared, options, &mut bad)?;
        bad.refuse_nulls(&values, declared);
        columns.push(values);
    }
    finish(layout, block, &mut CsvRecords { decoder, found }, columns, bad, rejected)
}

struct CsvDecoder<'d> {
    options: &'d CsvOptions,
    layout: &'d RecordLayout,
    block: &'d TextBlock<'d>,
}

struct CsvRecords<'d> {
    decoder: CsvDecoder<'d>,
    found: FoundRecords<'d>,
}

impl Records for CsvRecords<'_> {
    fn rows(&self) -> usize {
        self.found.rows()
    }
    fn number(&self, row: usize) -> u64 {
        self.decoder.block.number_at(self.found.span(row).0)
    }
    fn raw(&self, row: usize) -> &[u8] {
        let (start, end) = self.found.span(row);
        &self.decoder.block.bytes()[start..end]
    }
    fn error(&self, reason: &str, number: u64) -> DecodeError {
        self.decoder.bad_record(reason, number)
    }
    fn take_broken(&mut self) -> Option<DecodeError> {
        match &mut self.found {
            FoundRecords::Plain(_) => None,
            FoundRecords::Walked(records) => records.broken.take(),
        }
    }
}

impl CsvDecoder<'_> {
    /// The text in which the records are.
    fn records_text<'t>(&self, source: &'t Text<'_>) -> &'t str {
        let end = match self.block.ends_input() {
            true => self.options.dialect.without_blank_lines(source.text.as_bytes()),
            false => source.text.len(),
        };
        &source.text[..end]
    }

    /// The records of the block. One that begins with the names of the columns, or is not all
    /// UTF-8, is walked.
    fn find<'t>(
        &self,
        source: &'t Text<'_>,
        rejected: &mut Vec<Rejected>,
    ) -> Result<FoundRecords<'t>, DecodeError> {
        let messages = self.block.as_messages();
        let begins_with_names = self.options.header && self.block.begins_input();
        let is_cut_otherwise = messages.is_some_and(|messages| messages.has_line_feeds);
        let plain = match begins_with_names || is_cut_otherwise || source.is_repaired() {
            true => None,
            false => {
                let text = self.records_text(source);
                PlainRecords::find(text, self.layout.schema.len(), &self.options.dialect)
            }
        };
        Ok(match (plain, messages) {
            (Some(records), _) => FoundRecords::Plain(records),
            (None, None) => FoundRecords::Walked(self.walk_lines(source, rejected)?),
            (None, Some(messages)) => {
                FoundRecords::Walked(self.walk_messages(source, messages, rejected))
            }
        })
    }

    fn walk_lines(
        &self,
        source: &Text<'_>,
        rejected: &mut Vec<Rejected>,
    ) -> Result<WalkedRecords, DecodeError> {
        let text = self.records_text(source);
        let mut records = WalkedRecords::default();
        // Room for about as many fields as there can be: short ones are common.
        records.fields.reserve(text.len() / 8);
        let mut walker = Walker::new(text.as_bytes(), &self.options.dialect, true);
        let mut in_header = self.options.header && self.block.begins_input();
        loop {
            let first_field = records.fields.len();
            let (start, end, malformed) = match walker.next_record(&mut records.fields) {
                ScanStep::Record { start, end, .. } if source.is_foreign(start, end) => {
                    (start, end, Some(NOT_UTF8))
                }
                ScanStep::Record { start, end, malformed } => (start, end, malformed),
                ScanStep::Skipped => continue,
                ScanStep::End | ScanStep::Incomplete => return Ok(records),
            };
            if std::mem::take(&mut in_header) {
                self.check_header(text, &records.fields[first_field..])?;
                records.fields.truncate(first_field);
                continue;
            }
            self.add(&mut records, first_field, (start, end), malformed, rejected);
            if records.broken.is_some() {
                return Ok(records);
            }
        }
    }

    /// The records of messages, each of which holds one.
    fn walk_messages(
        &self,
        source: &Text<'_>,
        messages: &Messages,
        rejected: &mut Vec<Rejected>,
    ) -> WalkedRecords {
        let text = source.text.as_bytes();
        let mut records = WalkedRecords::default();
        for (start, end) in messages.spans(text.len()) {
            let first_field = records.fields.len();
            let mut walker = Walker::from(&text[..end], start, &self.options.dialect);
            let ScanStep::Record { end: record_end, malformed, .. } =
                walker.next_record(&mut records.fields)
            else {
                continue;
            };
            let malformed = match walker.position() < end {
                _ if source.is_foreign(start, end) => Some(NOT_UTF8),
                true => malformed.or(Some("the message has more than one record")),
                false => malformed,
            };
            let end = if walker.position() < end { end } else { record_end };
            self.add(&mut records, first_field, (start, end), malformed, rejected);
            if records.broken.is_some() {
                break;
            }
        }
        records
    }

    /// Keeps a record whose fields were just found, or does what is done with bad ones.
    #[inline]
    fn add(
        &self,
        records: &mut WalkedRecords,
        first_field: usize,
        (start, end): (usize, usize),
        malformed: Option<&'static str>,
        rejected: &mut Vec<Rejected>,
    ) {
        let width = self.layout.schema.len();
        let mut found = records.fields.len() - first_field;
        let reading = &self.options.reading;
        let ends_with_delimiter =
            found == width + 1 && records.fields[first_field + width].is_empty();
        let can_be_cut = match ends_with_delimiter {
            true => !reading.refuses_trailing_delimiter || reading.ignores_trailing_fields,
            false => found > width && reading.ignores_trailing_fields,
        };
        if can_be_cut {
            records.fields.truncate(first_field + width);
            found = width;
        }
        if found == width && malformed.is_none() {
            records.spans.push((start as u32, end as u32));
            return;
        }
        let policy = self.layout.policy;
        let can_be_filled = found < width && !reading.refuses_missing_fields;
        if policy == BadDataPolicy::Null && malformed.is_none() && can_be_filled {
            records.fields.resize(first_field + width, FieldSpan::MISSING);
            records.spans.push((start as u32, end as u32));
            return;
        }
        records.fields.truncate(first_field);
        let reason = match malformed {
            Some(reason) => reason.to_string(),
            None => self.wrong_width(found),
        };
        let number = self.block.number_at(start);
        match policy {
            BadDataPolicy::Fail => records.broken = Some(self.bad_record(&reason, number)),
            BadDataPolicy::Null => {}
            BadDataPolicy::Reject => {
                let raw = self.block.bytes()[start..end].to_vec();
                rejected.push(Rejected { number, reason, raw });
            }
        }
    }

    fn wrong_width(&self, found: usize) -> String {
        let columns = &self.layout.schema.columns;
        match columns.get(found) {
            Some(missing) => format!(
                "the row has {found} fields where table {} has {} columns: column {} is missing",
                self.layout.table,
                columns.len(),
                missing.name
            ),
            None => format!(
                "the row has {found} fields where table {} has {} columns",
                self.layout.table,
                columns.len()
            ),
        }
    }

    fn bad_record(&self, reason: &str, number: u64) -> DecodeError {
        let hint = if self.block.begins_input() && number == 1 {
            "if the first line names the columns, set 'csv.header' = 'true'; else correct the row"
        } else {
            "correct the row, or set 'bad-data' = 'drop' or 'dead-letter' \
             ('csv.ignore-parse-errors' = 'true' makes bad fields NULL)"
        };
        DecodeError::at(Error::data(reason).hint(hint), number)
    }

    /// Columns are taken by position, as Flink does. A header with other names than those that are
    /// declared would put values into the wrong columns without a sound.
    fn check_header(&self, text: &str, fields: &[FieldSpan]) -> Result<(), DecodeError> {
        let (table, columns) = (&self.layout.table, &self.layout.schema.columns);
        let dialect = &self.options.dialect;
        let names: Vec<_> = fields.iter().map(|field| field.text(text, dialect)).collect();
        let is_named = |(name, column): (&Cow<'_, str>, &Column)| {
            name.trim().eq_ignore_ascii_case(&column.name)
        };
        let wrong = names.iter().zip(columns).position(|pair| !is_named(pair));
        let reason = match wrong {
            Some(at) => format!(
                "the header has '{}' at position {}, where table {table} declares column {}",
                names[at].trim(),
                at + 1,
                columns[at].name
            ),
            None if names.len() == columns.len() => return Ok(()),
            None => format!(
                "the header has {} names where table {table} has {} columns",
                names.len(),
                columns.len()
            ),
        };
        let hint = "declare the columns in the order of the file, with its names (in backticks \
                    where they need it)";
        Err(DecodeError::at(Error::data(reason).hint(hint), 1))
    }
}
