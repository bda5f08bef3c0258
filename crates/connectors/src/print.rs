//! `'connector' = 'print'`: rows on standard output, as a table on a terminal and as CSV else.

use std::io::{self, IsTerminal, Write};

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Capabilities, Connector, ConnectorDescription, Options, Sink, TableRequest,
    option_table,
};
use thalweg_core::snapshot::SinkGuarantee;

use crate::output::{Format, QuerySink, ResultWriter};

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities { is_printed: true, ..Capabilities::NONE }
        .writing(&[AcceptedChanges::All], SinkGuarantee::AtLeastOnce),
    options: &option_table! {
        "print-identifier": Text, as_in_flink()
            => "a text in front of each row, with `>` behind it";
        "standard-error": Boolean, or("false"), as_in_flink()
            => "rows go to standard error instead of standard output";
        "sink.parallelism": Number, as_in_flink()
            => "ignored: each table is written by one thread";
        "format": Words(&["table", "csv", "ndjson"]), or_else("`table` on a terminal, else `csv`"),
            but_flink("Flink prints in one form")
            => "how rows look";
    },
    unsupported: &["sink.*"],
    is_in_flink: true,
    ..ConnectorDescription::new("print", "rows on standard output, as those of bare SELECTs")
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
        let options = Options::of(request, &DESCRIPTION)?;
        let standard_error = options.boolean("standard-error")?;
        let is_terminal =
            if standard_error { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let default = if is_terminal { Format::Table } else { Format::Csv };
        let formats = [("table", Format::Table), ("csv", Format::Csv), ("ndjson", Format::Ndjson)];
        Ok(PrintOptions {
            identifier: options.get("print-identifier").filter(|text| !text.is_empty()),
            standard_error,
            format: options.choice("format", &formats)?.unwrap_or(default),
            is_terminal,
        })
    }
}

impl Connector for Print {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        PrintOptions::read(request).map(drop)
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = PrintOptions::read(request)?;
        let out: Box<dyn Write + Send> =
            if options.standard_error { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        let (schema, zone) = (request.schema.clone(), request.zone);
        let mut writer = ResultWriter::new(options.format, schema, String::new(), zone, out)
            .with_changelog(request.has_updates)
            .for_terminal(options.is_terminal);
        if let Some(identifier) = options.identifier {
            writer = writer.with_prefix(format!("{identifier}> "));
        }
        Ok(Box::new(QuerySink::new(request.table.clone(), writer)))
    }
}
