//! Rows for people and pipes: what a bare SELECT and the `print` connector write.
//!
//! Three forms: CSV with a header (values in the text form of the golden cases), NDJSON, and an
//! aligned table. Tables take their widths from the first rows that come together; later values
//! that are wider push their line out of line, and nothing is ever cut off.

mod arrow_stream;
mod row_arrays;
mod table;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::connector::{Demand, Sink};
use thalweg_core::text::without_controls;
use thalweg_core::{Error, ErrorKind, Result, RowKind, TableSchema};

pub use self::arrow_stream::arrow_stream;
pub use self::row_arrays::{ValueForm, row_arrays};
use self::table::Table;
use crate::format::csv::writer::CsvStyle;
use crate::format::json::writer::JsonStyle;

/// Text gathered before it is written.
const BUFFER_BYTES: usize = 64 << 10;

/// How rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// A header line and a line per row.
    Csv,
    /// A JSON object per row.
    Ndjson,
}

/// Writes rows in one of the forms.
pub struct ResultWriter {
    schema: TableSchema,
    out: Box<dyn Write + Send>,
    form: Form,
    /// True if each row shows its kind (`+I`, `-U`, …) in a first column `op`.
    is_changelog: bool,
    /// In front of each line.
    prefix: String,
    /// A terminal shows it.
    is_terminal: bool,
    buffer: String,
    is_begun: bool,
}

enum Form {
    Table(Table),
    Csv(CsvStyle),
    Ndjson(JsonStyle),
}

const BROKEN_PIPE: &str = "broken pipe";

/// True if the reader of standard output has gone, as `head` does: no fault of anybody.
pub fn is_broken_pipe(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.message() == BROKEN_PIPE
}

/// The error of a failed write; [`is_broken_pipe`] is true when the reader has gone.
pub(crate) fn write_error(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Error::io(BROKEN_PIPE);
    }
    Error::io(format!("cannot write: {error}"))
}

/// The same for what is printed.
fn print_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => write_error(error),
        _ => write_error(error).in_file("standard output"),
    }
}

/// Rows with these columns as a [`ResultWriter`] writes them.
///
/// # Errors
/// If a value cannot be shown.
pub fn rows_as_text(
    format: Format,
    schema: &TableSchema,
    null_text: &str,
    zone: Tz,
    rows: &RecordBatch,
) -> Result<String> {
    let text = SharedText::default();
    let out = Box::new(text.clone());
    let mut writer = ResultWriter::new(format, schema.clone(), null_text.to_owned(), zone, out);
    writer.write(rows, None)?;
    writer.finish()?;
    let bytes = std::mem::take(&mut *text.0.lock().expect("no panic under this lock"));
    String::from_utf8(bytes).map_err(|_| Error::internal("rows are shown as text"))
}

/// Text that a writer which owns its output leaves behind.
#[derive(Clone, Default)]
struct SharedText(Arc<Mutex<Vec<u8>>>);

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic under this lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ResultWriter {
    /// A writer of rows with these columns. `null_text` stands for NULL (NDJSON has a null of its
    /// own); instants are shown in `zone`.
    pub fn new(
        format: Format,
        schema: TableSchema,
        null_text: String,
        zone: Tz,
        out: Box<dyn Write + Send>,
    ) -> Self {
        let form = match format {
            Format::Table => Form::Table(Table::new(null_text, zone)),
            Format::Csv => Form::Csv(CsvStyle::shown(null_text, zone)),
            Format::Ndjson => Form::Ndjson(JsonStyle::shown(zone)),
        };
        ResultWriter {
            schema,
            out,
            form,
            is_changelog: false,
            prefix: String::new(),
            is_terminal: false,
            buffer: String::new(),
            is_begun: false,
        }
    }

    /// Shows each row's kind in a first column `op`.
    #[must_use]
    pub fn with_changelog(mut self, is_changelog: bool) -> Self {
        self.is_changelog = is_changelog;
        self
    }

    /// Writes this in front of each line.
    #[must_use]
    pub fn with_prefix(mut self, prefix: String) -> Self {
        self.prefix = prefix;
        self
    }

    /// Makes control characters of values visible, where a terminal shows them.
    #[must_use]
    pub fn for_terminal(mut self, is_terminal: bool) -> Self {
        self.is_terminal = is_terminal;
        self
    }

    /// Writes rows, or keeps them until there are enough.
    pub fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        self.begin()?;
        let has_updates = kinds.is_some_and(|k| k.iter().any(|kind| *kind != RowKind::Insert));
        if has_updates && !self.is_changelog {
            return Err(Error::internal("updates for a writer that shows only inserts"));
        }
        // A changelog may begin with batches of inserts only, which carry no kinds.
        let inserts = match kinds {
            None if self.is_changelog => vec![RowKind::Insert; batch.num_rows()],
            _ => Vec::new(),
        };
        let kinds = self.is_changelog.then(|| kinds.unwrap_or(&inserts));
        match &mut self.form {
            Form::Table(table) => table.rows(&mut self.buffer, batch, &self.schema, kinds),
            Form::Csv(style) => {
                style.rows(&mut self.buffer, batch, &self.schema, kinds, |out| out.push('\n'))?;
            }
            Form::Ndjson(style) => {
                style.rows(&mut self.buffer, batch, &self.schema, kinds, |out| out.push('\n'))?;
            }
        }
        if self.buffer.len() >= BUFFER_BYTES { self.write_buffer() } else { Ok(()) }
    }

    /// Makes everything so far visible.
    pub fn flush(&mut self) -> Result<()> {
        if let Form::Table(table) = &mut self.form {
            table.release(&mut self.buffer);
        }
        self.write_buffer()?;
        self.out.flush().map_err(|e| print_error(&e))
    }

    /// Writes what is left. Without any row there is still the header.
    pub fn finish(&mut self) -> Result<()> {
        self.begin()?;
        if let Form::Table(table) = &mut self.form {
            table.finish(&mut self.buffer);
        }
        self.flush()
    }

    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let op = self.is_changelog.then_some("op");
        match &mut self.form {
            Form::Table(table) => table.begin(&self.schema, self.is_changelog),
            Form::Csv(style) => {
                let columns = self.schema.columns.iter().map(|column| column.name.as_str());
                style.header(&mut self.buffer, op.into_iter().chain(columns))?;
            }
            Form::Ndjson(_) => {}
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let shown = match self.is_terminal {
            true => without_controls(&self.buffer),
            false => Cow::Borrowed(self.buffer.as_str()),
        };
        let written = if self.prefix.is_empty() {
            self.out.write_all(shown.as_bytes())
        } else {
            let mut prefixed = String::with_capacity(shown.len() * 2);
            for line in shown.split_inclusive('\n') {
                prefixed.push_str(&self.prefix);
                prefixed.push_str(line);
            }
            self.out.write_all(prefixed.as_bytes())
        };
        self.buffer.clear();
        written.map_err(|e| print_error(&e))
    }
}

/// A sink that shows rows as they come.
pub struct QuerySink {
    name: String,
    writer: ResultWriter,
    demand: Demand,
}

impl QuerySink {
    /// A sink over a writer.
    pub fn new(name: impl Into<String>, writer: ResultWriter) -> Self {
        QuerySink { name: name.into(), writer, demand: Demand::More }
    }

    /// A reader that has gone is no error: it gets no more.
    fn settle(&mut self, written: Result<()>) -> Result<()> {
        settle(&mut self.demand, written)
    }
}

/// The result of a write: that its reader has gone is no error, and the rest is not wanted.
pub(crate) fn settle(demand: &mut Demand, written: Result<()>) -> Result<()> {
    match written {
        Err(error) if is_broken_pipe(&error) => {
            *demand = Demand::Gone;
            Ok(())
        }
        written => written,
    }
}

impl Sink for QuerySink {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        if self.demand != Demand::More {
            return Ok(());
        }
        let written = self.writer.write(batch, kinds);
        self.settle(written)
    }
    fn demand(&self) -> Demand {
        self.demand
    }
    fn flush(&mut self) -> Result<()> {
        let flushed = self.writer.flush();
        self.settle(flushed)
    }
    fn finish(&mut self) -> Result<()> {
        let finished = self.writer.finish();
        self.settle(finished)
    }
    fn abort(&mut self) {
        // What came out before the failure is shown; the failure itself is reported elsewhere.
        let _ = self.writer.flush();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        ArrayRef, Decimal128Array, Float64Array, Int32Array, StringViewArray,
        TimestampMillisecondArray,
    };
    use thalweg_core::{Column, DataType};

    use super::*;

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn schema() -> TableSchema {
        TableSchema::new(vec![
            Column::new("name", DataType::STRING.nullable()),
            Column::new("n", DataType::Int.nullable()),
            Column::new("price", DataType::Decimal(10, 2).nullable()),
            Column::new("mean", DataType::Double.nullable()),
            Column::new("at", DataType::TimestampLtz(0).nullable()),
        ])
    }

    fn batch() -> RecordBatch {
        let price = Decimal128Array::from(vec![Some(150), None])
            .with_precision_and_scale(10, 2)
            .expect("fits");
        let at = TimestampMillisecondArray::from(vec![0, 1_000]).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from(vec![Some("a,\"b\""), Some("日本")])),
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(price),
            Arc::new(Float64Array::from(vec![1e7, f64::NAN])),
            Arc::new(at),
        ];
        RecordBatch::try_new(schema().arrow(), columns).expect("matches")
    }

    fn written(format: Format, configure: impl Fn(ResultWriter) -> ResultWriter) -> String {
        let out = SharedText::default();
        let writer =
            ResultWriter::new(format, schema(), "NULL".to_string(), Tz::UTC, Box::new(out.clone()));
        let mut writer = configure(writer);
        writer.write(&batch(), None).expect("written");
        writer.finish().expect("finished");
        let bytes = out.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn csv_takes_the_golden_form() {
        assert_eq!(
            written(Format::Csv, |writer| writer),
            "name,n,price,mean,at\n\
             \"a,\"\"b\"\"\",1,1.50,1.0E7,1970-01-01 00:00:00\n\
             日本,NULL,NULL,NaN,1970-01-01 00:00:01\n"
        );
        let changelog = written(Format::Csv, |writer| writer.with_changelog(true));
        assert!(changelog.starts_with("op,name"));
        assert!(changelog.ends_with("\n+I,日本,NULL,NULL,NaN,1970-01-01 00:00:01\n"));
    }

    #[test]
    fn ndjson_has_numbers_and_nulls() {
        assert_eq!(
            written(Format::Ndjson, |writer| writer.with_prefix("t> ".to_string())),
            "t> {\"name\":\"a,\\\"b\\\"\",\"n\":1,\"price\":1.50,\"mean\":1.0E7,\
             \"at\":\"1970-01-01 00:00:00\"}\n\
             t> {\"name\":\"日本\",\"n\":null,\"price\":null,\"mean\":\"NaN\",\
             \"at\":\"1970-01-01 00:00:01\"}\n"
        );
    }

    #[test]
    fn tables_align() {
        assert_eq!(
            written(Format::Table, |writer| writer),
            " name  │    n │ price │  mean │ at                  \n\
             ───────┼──────┼───────┼───────┼─────────────────────\n \
              a,\"b\" │    1 │  1.50 │ 1.0E7 │ 1970-01-01 00:00:00 \n \
              日本  │ NULL │  NULL │   NaN │ 1970-01-01 00:00:01 \n"
        );
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error_of_its_own() {
        let mut writer =
            ResultWriter::new(Format::Csv, schema(), String::new(), Tz::UTC, Box::new(Gone));
        let error = writer.finish().expect_err("the reader has gone");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&Error::io("disk full")));
    }
}
