//! The topics that a job reads, in its text: options and columns that a move edits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use thalweg_core::quoting::quoted_name;
use thalweg_core::{Error, Result};

use super::literals::is_instant;
use super::needs::Need;
use crate::ast::{CreateTable, Name, Statement, StatementKind};
use crate::planner::Planner;
use crate::script_text::ScriptText;

/// The next offset of each partition of a topic.
pub type Offsets = BTreeMap<i32, i64>;

/// The metadata columns that a search and a flag add to a table.
pub(super) const PARTITION: &str = "`$partition`";
pub(super) const OFFSET: &str = "`$offset`";
/// The column that says whether the job has read a row before it was stopped.
pub(super) const WAS_READ: &str = "`$was_read`";

/// A table that is read, in the text.
#[derive(Debug)]
pub(super) struct MovedTable {
    /// Between the brackets of WITH.
    pub options_range: Range<usize>,
    pub options: Vec<(String, String)>,
    /// Where its first column stands.
    pub columns_start: usize,
    /// Its row time, and whether that is a TIMESTAMP_LTZ.
    pub row_time: Option<(String, bool)>,
}

impl MovedTable {
    /// Whether its options say where in the topic the job began.
    pub(super) fn begins_at_a_place(&self) -> bool {
        let is_place = |mode: &str| matches!(mode, "specific-offsets" | "timestamp");
        self.options.iter().any(|(key, value)| key == "scan.startup.mode" && is_place(value))
    }

    /// Whether the job has read the topic from its first row, or from a place that is known.
    pub(super) fn begins_at_its_beginning(&self) -> bool {
        let is_earliest = |(key, value): &(String, String)| {
            key == "scan.startup.mode" && value == "earliest-offset"
        };
        self.begins_at_a_place() || self.options.iter().any(is_earliest)
    }

    /// Its options, with these offsets to begin at, or the place where the job began.
    pub(super) fn options_from(&self, offsets: Option<&Offsets>) -> Vec<(String, String)> {
        if offsets.is_none() && self.begins_at_a_place() {
            return self.options.clone();
        }
        let is_other = |(key, _): &&(String, String)| !key.starts_with("scan.startup.");
        let mut options: Vec<_> = self.options.iter().filter(is_other).cloned().collect();
        match offsets {
            Some(offsets) => {
                options.push(option("scan.startup.mode", "specific-offsets"));
                options.push(option("scan.startup.specific-offsets", &offsets_text(offsets)));
            }
            None => options.push(option("scan.startup.mode", "earliest-offset")),
        }
        options
    }

    /// How to reach its brokers: what another topic there is declared with.
    pub(super) fn connection(&self) -> Vec<(String, String)> {
        let is_connection = |(key, _): &&(String, String)| {
            key.starts_with("properties.") && key != "properties.group.id"
        };
        let connector = option("connector", "kafka");
        let connection = self.options.iter().filter(is_connection).cloned();
        std::iter::once(connector).chain(connection).collect()
    }
}

pub(super) fn option(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

pub(super) fn offsets_text(offsets: &Offsets) -> String {
    let part = |(partition, offset): (&i32, &i64)| format!("partition:{partition},offset:{offset}");
    offsets.iter().map(part).collect::<Vec<_>>().join(";")
}

/// The declarations of a row's partition and offset.
pub(super) fn place_columns() -> String {
    format!(
        "{PARTITION} INT METADATA FROM 'partition' VIRTUAL, {OFFSET} BIGINT METADATA FROM 'offset' VIRTUAL, "
    )
}

/// The declarations of a row's partition, its offset, and whether it lies before these ends. A
/// partition that is not among them is new.
pub(super) fn flag_columns(ends: &Offsets) -> String {
    let mut columns = place_columns();
    let before = |(partition, end): (&i32, &i64)| {
        format!("({PARTITION} = {partition} AND {OFFSET} < {end})")
    };
    let was_read = ends.iter().map(before).collect::<Vec<_>>().join(" OR ");
    let was_read = if was_read.is_empty() { "FALSE".to_owned() } else { was_read };
    let _ = write!(columns, "{WAS_READ} AS ({was_read}), ");
    columns
}

/// The topics among the tables that are read. A table that is read whole stays as it is.
pub(super) fn moved_tables(
    source: &ScriptText<'_>,
    statements: &[Statement],
    planner: &Planner,
    read: &BTreeMap<String, Need>,
) -> Result<BTreeMap<String, MovedTable>> {
    let mut tables = BTreeMap::new();
    for (name, need) in read {
        if *need == Need::Whole {
            continue;
        }
        let definition = statements.iter().rev().find_map(|statement| match &statement.kind {
            StatementKind::CreateTable(table) if table.name.text == *name => Some(table),
            _ => None,
        });
        let Some(definition) = definition else {
            return Err(Error::plan(format!("the table '{name}' is not declared in this file"))
                .hint("put its CREATE TABLE into the file"));
        };
        tables.insert(name.clone(), moved_table(source, definition, planner)?);
    }
    Ok(tables)
}

fn moved_table(
    source: &ScriptText<'_>,
    definition: &CreateTable,
    planner: &Planner,
) -> Result<MovedTable> {
    let name = &definition.name;
    let refused = |why: String, hint: &str| {
        Error::plan(format!("this job cannot be moved: {why}")).at(name.span).hint(hint)
    };
    let value = |name: &str| {
        let found = definition.options.iter().find(|(key, _)| key.text == name);
        found.map_or("", |(_, value)| value.text.as_str())
    };
    if value("connector") != "kafka" {
        return Err(refused(
            format!(
                "'{}' is no topic: Flink cannot begin to read it where this job stopped",
                name.text
            ),
            "topics of the connector kafka have offsets that both know",
        ));
    }
    if value("topic").is_empty() || value("topic").contains(';') {
        return Err(refused(
            format!("'{}' reads several topics, and start offsets belong to one", name.text),
            "declare a table for each topic, and read their UNION ALL",
        ));
    }
    let ends = (definition.options.first(), definition.options.last(), definition.columns.first());
    let (Some((first, _)), Some((_, last)), Some(column)) = ends else {
        return Err(refused(
            format!("'{}' takes its columns from another table", name.text),
            "write its columns and options out",
        ));
    };
    let (Some(start), Some(end)) = (source.range(first.span), source.range(last.span)) else {
        return Err(Error::internal("an option has a place of one line").at(first.span));
    };
    let row_time = match &definition.watermark {
        Some(watermark) => {
            let column = &watermark.column.text;
            let query = format!("SELECT {} FROM {}", quoted_name(column), quoted_name(&name.text));
            Some((column.clone(), is_instant(planner, &query)?))
        }
        None => None,
    };
    let pair = |(key, value): &(Name, Name)| (key.text.clone(), value.text.clone());
    Ok(MovedTable {
        options_range: start.start..end.end,
        options: definition.options.iter().map(pair).collect(),
        columns_start: source.start(column.name.span),
        row_time,
    })
}
