//! `'connector' = 'print'`: rows on standard output, as a table on a terminal and as CSV else.

use std::io::{self, IsTerminal, Write};

use chrono_tz::Tz;
use thalweg_core::Result;
use thalweg_core::connector::{AcceptedChanges, Sink, Source, TableRequest};

use crate::Connector;
use crate::blackhole::not_readable;
use crate::filesystem::FinishedLetters;
use crate::options::{Known, Options};
use crate::output::{Format, QuerySink, ResultWriter};

const KNOWN: Known = Known {
    options: &["connector", "print-identifier", "standard-error", "format"],
    unsupported: &["sink.*"],
};

/// The connector.
pub struct Print;

struct PrintOptions<'a> {
    identifier: Option<&'a str>,
    standard_error: bool,
    format: Format,
    is_terminal: bool,
}

impl<'a> PrintOptions<'a> {
    fn read(request: &'a TableRequest) -> Result<Self> {
        let options = Options::checked(request, &KNOWN)?;
        let standard_error = options.boolean("standard-error", false)?;
        let is_terminal =
            if standard_error { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let default = if is_terminal { Format::Table } else { Format::Csv };
        let formats = [("table", Format::Table), ("csv", Format::Csv), ("ndjson", Format::Ndjson)];
        Ok(PrintOptions {
            identifier: options.get("print-identifier").filter(|text| !text.is_empty()),
            standard_error,
            format: options.choice("format", default, &formats)?,
            is_terminal,
        })
    }
}

impl Connector for Print {
    fn name(&self) -> &'static str {
        "print"
    }
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        PrintOptions::read(request)?;
        if as_sink { Ok(()) } else { Err(not_readable(&request.table, "print")) }
    }
    fn accepted_changes(&self, _: &TableRequest) -> AcceptedChanges {
        AcceptedChanges::All
    }
    fn is_bounded(&self, _request: &TableRequest) -> bool {
        true
    }
    fn source(
        &self,
        request: &TableRequest,
        _letters: &FinishedLetters,
        _memory_limit_bytes: usize,
    ) -> Result<Box<dyn Source>> {
        Err(not_readable(&request.table, "print"))
    }
    fn sink(&self, request: &TableRequest, zone: Tz) -> Result<Box<dyn Sink>> {
        let options = PrintOptions::read(request)?;
        let out: Box<dyn Write + Send> =
            if options.standard_error { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        let mut writer =
            ResultWriter::new(options.format, request.schema.clone(), String::new(), zone, out)
                .with_changelog(request.has_updates)
                .for_terminal(options.is_terminal);
        if let Some(identifier) = options.identifier {
            writer = writer.with_prefix(format!("{identifier}> "));
        }
        Ok(Box::new(QuerySink::new(request.table.clone(), writer)))
    }
}
