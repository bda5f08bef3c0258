//! Bodies as rows: a body is read whole, before any of its rows is taken.

use arrow_array::RecordBatch;
use serde_json::Value;
use thalweg_core::connector::{Options, SplitId, TableRequest};
use thalweg_core::inlets::BodyKind;

use super::options::{Framing, HTTP, ScanOptions};
use crate::format::arrow::stream::read_stream;
use crate::format::{DecodeError, Format, RecordLayout};
use crate::messaging::options::RecordOptions;
use crate::messaging::{Block, Mark, MarkText, RowReader, Rows};

/// True if each line of a body is a record.
pub fn has_lines(framing: Framing, format: &Format, content_type: Option<&str>) -> bool {
    let is_of_lines = |content_type: &str| {
        let name = content_type.split(';').next().unwrap_or_default().trim();
        ["application/x-ndjson", "application/jsonl", "application/x-jsonlines"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    };
    match framing {
        Framing::Lines => true,
        Framing::Whole => false,
        Framing::Auto => {
            matches!(format, Format::Csv(_))
                || (format.is_text() && content_type.is_some_and(is_of_lines))
        }
    }
}

/// The records of a body. Empty lines, and an empty body, hold none.
pub fn records(body: &[u8], has_lines: bool) -> impl Iterator<Item = &[u8]> {
    numbered_records(body, has_lines).map(|(_, record)| record)
}

/// The same, each with its line, from 1.
fn numbered_records(body: &[u8], has_lines: bool) -> impl Iterator<Item = (u64, &[u8])> {
    let whole = Some((1, body)).filter(|(_, body)| !has_lines && !body.is_empty());
    let lines = Some(body).filter(|_| has_lines);
    let lines = lines.into_iter().flat_map(|body| (1..).zip(body.split(|byte| *byte == b'\n')));
    let lines = lines.map(|(line, text)| (line, text.strip_suffix(b"\r").unwrap_or(text)));
    whole.into_iter().chain(lines.filter(|(_, text)| !text.is_empty()))
}

/// Why a body is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// A row is bad.
    Row {
        /// The row, from 1, where it is known: which record of the body, or element of an array.
        row: Option<u64>,
        /// Its line, in a body of lines.
        line: Option<u64>,
        /// What is wrong with it.
        reason: String,
    },
    /// The table takes no bodies of this kind.
    Kind(String),
}

/// Reads bodies of a table.
pub struct BodyReader {
    table: String,
    /// What bodies are called, for messages.
    name: String,
    framing: Framing,
    /// In the format of the table.
    own: RowReader,
    /// In JSON and in CSV, where the format of the table is another one.
    json: Option<RowReader>,
    csv: Option<RowReader>,
    /// Streams of Arrow, where rows have no kinds.
    arrow: Option<RecordLayout>,
    /// Bad rows are left out, and noted.
    takes_bad: bool,
}

impl BodyReader {
    /// A reader for this table.
    pub fn new(request: &TableRequest, options: &ScanOptions) -> BodyReader {
        let records = &options.http.records;
        let reader =
            |records: &RecordOptions| RowReader::noting_bad(request, records, MarkText::NUMBER);
        let has_changes = records.format.has_changes();
        let other = |name: &str| {
            let format = plain_format(request, name).filter(|_| !has_changes)?;
            let mut records = records.clone();
            records.format = format;
            Some(reader(&records))
        };
        let wanted = request.wanted_columns();
        let layout = RecordLayout::new(&request.table, request.schema.clone(), wanted, false);
        BodyReader {
            table: request.table.clone(),
            name: options.http.url.clone(),
            framing: options.framing,
            own: reader(records),
            json: other("json"),
            csv: other("csv"),
            arrow: Some(layout).filter(|_| !has_changes),
            takes_bad: !records.bad_data.is_fatal(),
        }
    }

    /// The rows of a body in the format of the table; all of them have this mark.
    ///
    /// # Errors
    /// If a row is bad, and bad rows are not left out.
    pub fn read_own(
        &self,
        body: &[u8],
        content_type: Option<&str>,
        mark: Mark,
    ) -> Result<Rows, BadBody> {
        let has_lines = has_lines(self.framing, self.own.format(), content_type);
        self.decode(&self.own, body, has_lines, mark)
    }

    /// The rows of a body of this kind.
    ///
    /// # Errors
    /// If a row is bad and bad rows are not left out, or the table takes no such bodies.
    pub fn read(&self, kind: BodyKind, body: &[u8], mark: Mark) -> Result<Rows, BadBody> {
        let own = self.own.format();
        let is_own = match kind {
            BodyKind::Json | BodyKind::JsonLines => own.is_json(),
            BodyKind::Csv => matches!(own, Format::Csv(_)),
            BodyKind::ArrowStream => false,
        };
        let (reader, has_lines) = match kind {
            BodyKind::ArrowStream => return self.read_arrow(body, mark),
            BodyKind::Json => (self.json.as_ref(), false),
            BodyKind::JsonLines => (self.json.as_ref(), true),
            BodyKind::Csv => (self.csv.as_ref(), true),
        };
        let reader = if is_own { Some(&self.own) } else { reader };
        let reader = reader.ok_or_else(|| self.kind_wrong(kind))?;
        self.decode(reader, body, has_lines, mark)
    }

    fn kind_wrong(&self, kind: BodyKind) -> BadBody {
        let (table, format) = (&self.table, self.own.format().name());
        let kind = match kind {
            BodyKind::Json | BodyKind::JsonLines => "JSON",
            BodyKind::Csv => "CSV",
            BodyKind::ArrowStream => "Arrow",
        };
        BadBody::Kind(format!(
            "table {table} has columns that {kind} cannot hold, or says by its format '{format}' what each row does: \
             send it in that format, if that is one of JSON"
        ))
    }

    fn decode(
        &self,
        reader: &RowReader,
        body: &[u8],
        has_lines: bool,
        mark: Mark,
    ) -> Result<Rows, BadBody> {
        let (lines, parts): (Vec<u64>, Vec<&[u8]>) = numbered_records(body, has_lines).unzip();
        let rows = reader.decode(&self.name, Block::of_values(&parts));
        let rows = rows.map_err(|error| BadBody::Row {
            row: None,
            line: None,
            reason: error.message().to_owned(),
        })?;
        let Some(bad) = rows.bad.first().filter(|_| !self.takes_bad) else {
            return Ok(of_one_message(rows, mark));
        };
        let number = bad.number as usize;
        let (row, reason) = self
            .bad_element(reader, body, has_lines)
            .unwrap_or_else(|| (number as u64 + 1, bad.reason.clone()));
        let line = lines.get(number).copied().filter(|_| has_lines);
        Err(BadBody::Row { row: Some(row), line, reason })
    }

    /// Which element of an array is bad shows when each is looked at.
    fn bad_element(
        &self,
        reader: &RowReader,
        body: &[u8],
        has_lines: bool,
    ) -> Option<(u64, String)> {
        if has_lines || !matches!(reader.format(), Format::Json(_)) {
            return None;
        }
        let Ok(Value::Array(elements)) = serde_json::from_slice::<Value>(body) else { return None };
        let elements: Vec<String> = elements.iter().map(Value::to_string).collect();
        let elements: Vec<&[u8]> = elements.iter().map(String::as_bytes).collect();
        let rows = reader.decode(&self.name, Block::of_values(&elements)).ok()?;
        let bad = rows.bad.into_iter().next()?;
        Some((u64::from(bad.number) + 1, bad.reason))
    }

    fn read_arrow(&self, body: &[u8], mark: Mark) -> Result<Rows, BadBody> {
        let kind = BodyKind::ArrowStream;
        let layout = self.arrow.as_ref().ok_or_else(|| self.kind_wrong(kind))?;
        let batch: RecordBatch =
            read_stream(body, layout).map_err(|DecodeError { error, number }| {
                let hint = error.help().map(|help| format!("; {help}")).unwrap_or_default();
                let reason = format!("{}{hint}", error.message());
                BadBody::Row { row: number.map(|row| row + 1), line: None, reason }
            })?;
        let rows = Rows {
            split: SplitId::ONLY,
            messages: vec![0; batch.num_rows()],
            batch,
            marks: Vec::new(),
            bad: Vec::new(),
        };
        Ok(of_one_message(rows, mark))
    }
}

/// The rows as those of one message: they reach the job together, and a snapshot has all of them or
/// none.
fn of_one_message(mut rows: Rows, mark: Mark) -> Rows {
    rows.messages.fill(0);
    rows.marks = vec![Some(mark)];
    for bad in &mut rows.bad {
        bad.number = 0;
    }
    rows
}

/// A format without options, if it has values of all types of the table.
fn plain_format(request: &TableRequest, name: &str) -> Option<Format> {
    let mut plain = request.clone();
    plain.options = [("connector", "http"), ("format", name)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let options = Options::of(&plain, &HTTP).ok()?;
    let format = Format::read(name, &options, request.schema.len(), false).ok()??;
    format.check_types(&request.table, &request.schema.columns).ok()?;
    Some(format)
}
