//! CSV: finding records ([`scan`], and faster where nothing is special, [`plain`]), turning fields into
//! columns ([`values`]), and writing.

pub mod plain;
pub mod scan;
pub mod values;
pub mod writer;

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::connector::{Origin, SourceBatch};
use thalweg_core::{Column, Error, Result};

use self::plain::PlainRecords;
use self::scan::{Dialect, Field, Step, Walker};
use self::values::{BadFields, OnBad, column};
use super::blocks::{Block, NOT_UTF8, Text};
use super::source::{Format, Reading, keep_good};
use crate::handover::{BadRow, Decoded, Emit, Task};

/// How CSV is read and written.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The bytes with a meaning.
    pub dialect: Dialect,
    /// The text that stands for NULL.
    pub null_literal: Option<String>,
    /// True if the first record of each file names the columns.
    pub header: bool,
    /// Between the elements of an ARRAY.
    pub array_delimiter: String,
    /// True if a field that cannot be read is NULL.
    pub ignore_parse_errors: bool,
}

/// Decodes one block.
pub struct CsvTask {
    /// The block.
    pub block: Block,
    /// What is wanted.
    pub reading: Arc<Reading>,
}

/// The records of a block that have as many fields as there are columns.
#[derive(Default)]
pub struct Records {
    /// Row after row, each with one field per declared column.
    fields: Vec<Field>,
    /// Where each record lies.
    spans: Vec<(u32, u32)>,
    /// The first record that is none, which ends the block. A value in a record before it may be
    /// bad as well, and is then the first mistake of the file.
    broken: Option<Error>,
}

/// The records of a block.
pub enum Found<'t> {
    /// Nothing is special.
    Plain(PlainRecords<'t>),
    /// As the walker found them.
    Walked(Records),
}

impl Found<'_> {
    /// How many there are.
    pub fn rows(&self) -> usize {
        match self {
            Found::Plain(records) => records.rows(),
            Found::Walked(records) => records.spans.len(),
        }
    }

    /// Where a record lies.
    fn span(&self, row: usize) -> (usize, usize) {
        match self {
            Found::Plain(records) => records.span(row),
            Found::Walked(records) => {
                let (start, end) = records.spans[row];
                (start as usize, end as usize)
            }
        }
    }
}

impl Task for CsvTask {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Format::Csv(options) = &self.reading.format else {
            return Err(Error::internal("a CSV block without CSV options"));
        };
        let decoded = self.decode(options)?;
        // When the consumer has gone, there is nothing left to do anyway.
        let _ = emit.emit(decoded);
        Ok(())
    }
}

impl CsvTask {
    fn decode(&self, options: &CsvOptions) -> Result<Decoded> {
        let source = self.block.text(self.reading.on_bad)?;
        let text = self.records_text(&source, options);
        let mut bad = Vec::new();
        let mut records = self.find(&source, options, &mut bad)?;
        let on_bad = self.reading.on_bad;
        let mut bad_fields = BadFields::new(on_bad);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.reading.wanted.len());
        for &position in self.reading.wanted.iter().chain(&self.reading.checked) {
            let declared = &self.reading.schema.columns[position];
            bad_fields.begin(declared);
            let values = column(text, &records, position, declared, options, &mut bad_fields)?;
            bad_fields.refuse_nulls(&values, declared);
            columns.push(values);
        }
        columns.truncate(self.reading.wanted.len());
        let kinds = self.reading.take_kinds(&mut columns, &mut bad_fields)?;
        let bad_fields = bad_fields.into_rows();
        if let (OnBad::Fail, Some((row, reason))) = (on_bad, bad_fields.first()) {
            return Err(self.bad_record(reason, records.span(*row).0));
        }
        if let Found::Walked(Records { broken, .. }) = &mut records
            && let Some(error) = broken.take()
        {
            return Err(error);
        }
        let rows = records.rows();
        let mut batch = self.reading.batch(columns, kinds, rows, &self.block.file)?;
        for (row, reason) in &bad_fields {
            let (start, end) = records.span(*row);
            bad.push(self.dead(reason.clone(), &text[start..end], start));
        }
        if !bad_fields.is_empty() {
            batch = keep_good(&batch, bad_fields.iter().map(|(row, _)| *row))?;
            bad.sort_by_key(|row| row.line);
        }
        let first = if rows > 0 { records.span(0).0 } else { 0 };
        let origin =
            Origin { file: self.block.file.label.clone(), first_row: self.block.line_at(first) };
        Ok(Decoded {
            batch: SourceBatch { batch, origin: Some(origin) },
            bad,
            end: Some(self.block.end.clone()),
        })
    }

    /// The text in which the records are.
    fn records_text<'t>(&self, source: &'t Text<'_>, options: &CsvOptions) -> &'t str {
        let end = match self.block.ends_file {
            true => options.dialect.without_blank_lines(source.text.as_bytes()),
            false => source.text.len(),
        };
        &source.text[..end]
    }

    /// The records of the block. One that begins with the names of the columns, or is not all UTF-8, is walked.
    fn find<'t>(
        &self,
        source: &'t Text<'_>,
        options: &CsvOptions,
        bad: &mut Vec<BadRow>,
    ) -> Result<Found<'t>> {
        let begins_with_names = options.header && self.block.begins_file;
        let plain = match begins_with_names || source.is_repaired() {
            true => None,
            false => {
                let text = self.records_text(source, options);
                PlainRecords::find(text, self.reading.schema.len(), &options.dialect)
            }
        };
        Ok(match plain {
            Some(records) => Found::Plain(records),
            None => Found::Walked(self.records(source, options, bad)?),
        })
    }

    fn records(
        &self,
        source: &Text<'_>,
        options: &CsvOptions,
        bad: &mut Vec<BadRow>,
    ) -> Result<Records> {
        let text = self.records_text(source, options);
        let width = self.reading.schema.len();
        let mut records = Records::default();
        // Room for about as many fields as there can be: short ones are common.
        records.fields.reserve(text.len() / 8);
        let mut walker = Walker::new(text.as_bytes(), &options.dialect, true);
        let mut in_header = options.header && self.block.begins_file;
        loop {
            let first_field = records.fields.len();
            let (start, end, malformed) = match walker.next_record(&mut records.fields) {
                Step::Record { start, end, .. } if source.is_foreign(start, end) => {
                    (start, end, Some(NOT_UTF8))
                }
                Step::Record { start, end, malformed } => (start, end, malformed),
                Step::Skipped => continue,
                Step::End | Step::Incomplete => return Ok(records),
            };
            if std::mem::take(&mut in_header) {
                self.check_header(text, &records.fields[first_field..], options)?;
                records.fields.truncate(first_field);
                continue;
            }
            let mut found = records.fields.len() - first_field;
            if found == width + 1 && records.fields[first_field + width].is_empty() {
                // A delimiter at the end of a line, which Flink takes too.
                records.fields.pop();
                found = width;
            }
            if found == width && malformed.is_none() {
                records.spans.push((start as u32, end as u32));
                continue;
            }
            if self.reading.on_bad == OnBad::Null && malformed.is_none() && found < width {
                records.fields.resize(first_field + width, Field::MISSING);
                records.spans.push((start as u32, end as u32));
                continue;
            }
            records.fields.truncate(first_field);
            let reason = match malformed {
                Some(reason) => reason.to_string(),
                None => self.wrong_width(found),
            };
            match self.reading.on_bad {
                OnBad::Fail => {
                    records.broken = Some(self.bad_record(&reason, start));
                    return Ok(records);
                }
                OnBad::Null => {}
                OnBad::Reject => bad.push(self.dead(reason, &text[start..end], start)),
            }
        }
    }

    fn wrong_width(&self, found: usize) -> String {
        let columns = &self.reading.schema.columns;
        match columns.get(found) {
            Some(missing) => format!(
                "the row has {found} fields where table {} has {} columns: column {} is missing",
                self.reading.table,
                columns.len(),
                missing.name
            ),
            None => format!(
                "the row has {found} fields where table {} has {} columns",
                self.reading.table,
                columns.len()
            ),
        }
    }

    fn bad_record(&self, reason: &str, offset: usize) -> Error {
        let header = self.block.begins_file && self.block.line_at(offset) == 1;
        let hint = if header {
            "if the first line names the columns, set 'csv.header' = 'true'; else correct the row"
        } else {
            "correct the row, or set 'bad-data' = 'drop' or 'dead-letter' \
             ('csv.ignore-parse-errors' = 'true' makes bad fields NULL)"
        };
        let line = self.block.line_at(offset);
        Error::data(reason).at_row(self.block.file.label.as_ref(), line).hint(hint)
    }

    fn dead(&self, reason: String, raw: &str, offset: usize) -> BadRow {
        BadRow {
            file: self.block.file.label.clone(),
            line: self.block.line_at(offset),
            reason,
            raw: raw.to_string(),
        }
    }

    /// Columns are taken by position, as Flink does. A header with other names than those that are
    /// declared would put values into the wrong columns without a sound.
    fn check_header(&self, text: &str, fields: &[Field], options: &CsvOptions) -> Result<()> {
        let (table, columns) = (&self.reading.table, &self.reading.schema.columns);
        let names: Vec<_> = fields.iter().map(|field| field.text(text, &options.dialect)).collect();
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
        let hint = "declare the columns in the order of the file, with its names (in backticks where they need it)";
        Err(Error::data(reason).at_row(self.block.file.label.as_ref(), 1).hint(hint))
    }
}
