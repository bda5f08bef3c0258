//! `snapshot('PLACE', 'OPERATOR' [, 'TABLE'] [, NUMBER])`: tables of state in snapshots, as tables
//! that SQL reads.
//!
//! While a query is planned, the manifest says which columns there are ([`find`]); what is found
//! is written down as options of a table with connector [`STATE_CONNECTOR`], so that the job reads
//! that snapshot, whichever is the newest by then. Rows are read, checksums compared and changes
//! folded when the job starts ([`source`]).
//!
//! **Invariant:** only folders that the session may read are looked at, also where a user writes
//! the options by hand.
//!
//! What it does not do: the rows of a table are read as a whole and stay in memory until they have
//! been given (they count against the job's memory).

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_cast::{can_cast_types, cast};
use arrow_schema::{DataType as Arrow, Field, TimeUnit};
use thalweg_connectors::filesystem::snapshot_location;
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, STATE_CONNECTOR,
    SourceCapability, StateTable, StateTableRequest, TableRequest, Waker,
};
use thalweg_core::quoting::quoted_list;
use thalweg_core::snapshot::StageState;
use thalweg_core::{Column, DataType, Error, Result, Source, SourcePoll, TableSchema};
use thalweg_state::{SnapshotDetails, SnapshotStore, TableSummary};

use super::replayed_rows::ReplayedRows;
use crate::jobs::{newest_number, open_folder, open_snapshots};

const OPTIONS: [&str; 5] = ["location", "job", "number", "operator", "table"];

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::Bounded,
            changes: &[AcceptedChanges::Inserts],
            has_positions: true,
            prunes_columns: true,
        }),
        ..Capabilities::NONE
    },
    is_internal: true,
    ..ConnectorDescription::new(STATE_CONNECTOR, "tables of state in snapshots")
};

/// The connector of such tables.
pub(super) struct StateTables;

impl Connector for StateTables {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        OPTIONS.iter().try_for_each(|option| option_of(request, option).map(drop))
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        source(request)
    }
    fn state_table(&self, request: &StateTableRequest) -> Result<StateTable> {
        find(request)
    }
}

/// The snapshots of a job.
struct JobPlace {
    location: String,
    job: String,
    /// One of them.
    number: Option<u64>,
}

/// Finds a table of state.
///
/// # Errors
/// If there is no such snapshot, operator or table, or a column of a type that SQL has no words
/// for.
fn find(request: &StateTableRequest) -> Result<StateTable> {
    let place = locate(request)?;
    let store = open_snapshots(&place.location, &place.job, &request.access)?;
    let number = choose(&store, request.number.or(place.number), &place)?;
    let details = store.describe(number)?;
    let stage = find_stage(&details, &request.operator)?;
    let (table, summary) = find_table(stage, request.table.as_deref())?;
    let columns = summary.columns.iter().map(|text| column_of(text));
    let schema = TableSchema::new(columns.collect::<Result<_>>()?);
    let name = format!("snapshot {number} of {}: {} {table}", place.job, stage.id);
    let values = [place.location, place.job, number.to_string(), stage.id.clone(), table];
    let named = OPTIONS.iter().map(|&option| option.to_owned()).zip(values);
    let connector = ("connector".to_owned(), STATE_CONNECTOR.to_owned());
    Ok(StateTable { name, schema, options: named.chain([connector]).collect() })
}

/// Where the snapshots lie that the request names.
fn locate(request: &StateTableRequest) -> Result<JobPlace> {
    let written = &request.place;
    let inside = |written: &str| {
        let allowed = (request.base_dir.as_path(), &request.allowed_roots[..]);
        snapshot_location(written, allowed)
    };
    if let Some(location) = request.location.as_ref().filter(|_| !written.contains(['/', '\\'])) {
        let location = inside(location)?;
        if !open_snapshots(&location, written, &request.access)?.list()?.is_empty() {
            return Ok(JobPlace { location, job: written.clone(), number: None });
        }
    }
    let location = inside(written)?;
    if let Some((_, rest)) = location.split_once("://") {
        let parts = location.rsplit_once('/').filter(|_| rest.contains('/'));
        let (location, job) = parts.ok_or_else(|| no_snapshots(request))?;
        return Ok(JobPlace { location: location.to_owned(), job: job.to_owned(), number: None });
    }
    let folder = PathBuf::from(&location);
    if folder.join("manifest.json").is_file() {
        let (_, number) = open_folder(&folder)?;
        let job = folder.parent().and_then(Path::parent).ok_or_else(|| no_snapshots(request))?;
        return Ok(JobPlace { number: Some(number), ..of_job(job, request)? });
    }
    if folder.join("snapshots").is_dir() {
        return of_job(&folder, request);
    }
    let jobs = if folder.is_dir() { SnapshotStore::jobs(&location)? } else { Vec::new() };
    match jobs.as_slice() {
        [] => Err(no_snapshots(request)),
        [job] => Ok(JobPlace { location, job: job.clone(), number: None }),
        jobs => Err(Error::plan(format!("'{written}' holds snapshots of several jobs"))
            .hint(format!("name the folder of one of {}: '{written}/JOB'", quoted_list(jobs)))),
    }
}

/// The job with this folder.
fn of_job(folder: &Path, request: &StateTableRequest) -> Result<JobPlace> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let job = name.and_then(SnapshotStore::job_of_folder);
    let location = folder.parent().map(|location| location.to_string_lossy().into_owned());
    let (Some(job), Some(location)) = (job, location) else { return Err(no_snapshots(request)) };
    Ok(JobPlace { location, job, number: None })
}

fn no_snapshots(request: &StateTableRequest) -> Error {
    let written = &request.place;
    let error =
        Error::plan(format!("there are no snapshots in '{written}', nor of a job with this name"));
    let Some(location) = &request.location else {
        return error.hint(
            "name the folder that 'execution.checkpointing.dir' names, or SET it and name the job",
        );
    };
    let folder =
        snapshot_location(location, (request.base_dir.as_path(), &request.allowed_roots[..]));
    let jobs = folder.and_then(|folder| SnapshotStore::jobs(&folder)).unwrap_or_default();
    match jobs.is_empty() {
        true => {
            error.hint(format!("there are none in '{location}' either: a job has to run first"))
        }
        false => {
            error.hint(format!("jobs with snapshots in '{location}' are {}", quoted_list(&jobs)))
        }
    }
}

/// The number of the snapshot that is meant.
fn choose(store: &SnapshotStore, asked: Option<u64>, place: &JobPlace) -> Result<u64> {
    let job = &place.job;
    let found = match asked {
        None => newest_number(store)?,
        Some(_) => asked,
    };
    let there: Vec<u64> = store.list()?.iter().map(|summary| summary.number()).collect();
    found.filter(|number| there.contains(number)).ok_or_else(|| {
        let numbers: Vec<String> = there.iter().map(u64::to_string).collect();
        let error = Error::plan(match asked {
            Some(number) => format!("job '{job}' has no snapshot {number}"),
            None => format!("job '{job}' has no snapshot that can be read"),
        });
        match numbers.is_empty() {
            true => error.hint(format!("it has none in {}", place.location)),
            false => error.hint(format!("there are {}", numbers.join(", "))),
        }
    })
}

/// A stage with state, by its identifier or its name.
fn find_stage<'a>(
    details: &'a SnapshotDetails,
    operator: &str,
) -> Result<&'a StageState<Vec<TableSummary>>> {
    let with_state = || details.stages.iter().filter(|stage| !tables_of(stage).is_empty());
    let listed = |stages: Vec<&StageState<_>>| -> String {
        let texts = stages.iter().map(|stage| format!("'{}' ({})", stage.id, stage.name));
        texts.collect::<Vec<_>>().join(", ")
    };
    if let Some(stage) = with_state().find(|stage| stage.id == operator) {
        return Ok(stage);
    }
    let named: Vec<_> = with_state().filter(|stage| stage.name == operator).collect();
    let number = details.header.number;
    match named.as_slice() {
        [stage] => Ok(stage),
        [] => {
            let error =
                Error::plan(format!("snapshot {number} has no operator '{operator}' with state"));
            Err(match with_state().next() {
                None => error.hint("no operator of this job keeps any"),
                Some(_) => error.hint(format!("there are {}", listed(with_state().collect()))),
            })
        }
        several => {
            Err(Error::plan(format!("snapshot {number} has several operators '{operator}'"))
                .hint(format!("name one of {}", listed(several.to_vec()))))
        }
    }
}

/// The tables of a stage by their names; those of rows that wait begin with `waiting.`.
fn tables_of(stage: &StageState<Vec<TableSummary>>) -> Vec<(String, &TableSummary)> {
    let state = stage.state.iter().map(|table| (table.name.clone(), table));
    let waiting = stage.waiting.iter().map(|table| (format!("waiting.{}", table.name), table));
    state.chain(waiting).collect()
}

fn find_table<'a>(
    stage: &'a StageState<Vec<TableSummary>>,
    wanted: Option<&str>,
) -> Result<(String, &'a TableSummary)> {
    let mut tables = tables_of(stage);
    let names: Vec<String> = tables.iter().map(|(name, _)| name.clone()).collect();
    let id = &stage.id;
    match wanted {
        Some(wanted) => {
            tables.retain(|(name, _)| name == wanted);
            tables.pop().ok_or_else(|| {
                Error::plan(format!("operator '{id}' has no table '{wanted}'"))
                    .hint(format!("it has {}", quoted_list(&names)))
            })
        }
        None if tables.len() > 1 => Err(Error::plan(format!("operator '{id}' has several tables"))
            .hint(format!("name one of {} after the operator", quoted_list(&names)))),
        None => tables.pop().ok_or_else(|| Error::internal("a stage with state has tables")),
    }
}

/// A column as a manifest describes it: its name, then its type. Both may hold spaces.
fn column_of(text: &str) -> Result<Column> {
    let parts = text.match_indices(' ').map(|(at, _)| text.split_at(at));
    let mut types =
        parts.filter_map(|(name, of)| Some((name, of.trim_start().parse::<Arrow>().ok()?)));
    let known =
        types.next().and_then(|(name, of)| Some(Column::new(name, sql_type(&of)?.nullable())));
    known.ok_or_else(|| {
        Error::unsupported(format!("SQL has no type for a column of the snapshot: {text}"))
            .hint("open the Arrow file with another program; `thalweg snapshot show` names tables")
    })
}

/// The type in which values of an Arrow type are shown.
pub(super) fn sql_type(of: &Arrow) -> Option<DataType> {
    Some(match of {
        Arrow::Boolean => DataType::Boolean,
        Arrow::Int8 => DataType::TinyInt,
        Arrow::Int16 | Arrow::UInt8 => DataType::SmallInt,
        Arrow::Int32 | Arrow::UInt16 => DataType::Int,
        Arrow::Int64 | Arrow::UInt32 => DataType::BigInt,
        Arrow::UInt64 => DataType::Decimal(20, 0),
        Arrow::Float32 => DataType::Float,
        Arrow::Float64 => DataType::Double,
        Arrow::Decimal128(precision, scale) => {
            DataType::Decimal(*precision, u8::try_from(*scale).ok()?)
        }
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            DataType::BYTES
        }
        Arrow::Date32 => DataType::Date,
        Arrow::Time32(TimeUnit::Millisecond) => DataType::Time(3),
        Arrow::Timestamp(unit, None) => DataType::Timestamp(precision(*unit)),
        Arrow::Timestamp(unit, Some(_)) => DataType::TimestampLtz(precision(*unit)),
        Arrow::List(element) => {
            DataType::Array(Box::new(sql_type(element.data_type())?.nullable()))
        }
        Arrow::Struct(fields) => {
            let column = |field: &std::sync::Arc<Field>| {
                Some(Column::new(field.name().clone(), sql_type(field.data_type())?.nullable()))
            };
            DataType::Row(fields.iter().map(column).collect::<Option<_>>()?)
        }
        Arrow::Map(entries, _) => match entries.data_type() {
            Arrow::Struct(entry) if entry.len() == 2 => {
                let part = |place: usize| sql_type(entry[place].data_type());
                DataType::Map(Box::new(part(0)?.not_null()), Box::new(part(1)?.nullable()))
            }
            _ => return None,
        },
        other if can_cast_types(other, &Arrow::Utf8View) => DataType::STRING,
        _ => return None,
    })
}

fn precision(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second | TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

fn option_of<'a>(request: &'a TableRequest, option: &str) -> Result<&'a str> {
    request.options.get(option).map(String::as_str).ok_or_else(|| {
        Error::plan(format!("table {}: option '{option}' is missing", request.table))
            .hint("write FROM snapshot('FOLDER OR JOB', 'OPERATOR'), which finds all of them")
    })
}

/// Reads a table of state.
///
/// # Errors
/// If its options are wrong, or its folder is not to be read.
fn source(request: &TableRequest) -> Result<Box<dyn Source>> {
    let allowed = (request.base_dir.as_path(), &request.allowed_roots[..]);
    let location = snapshot_location(option_of(request, "location")?, allowed)?;
    let number = option_of(request, "number")?;
    let number = number.parse().map_err(|_| {
        Error::plan(format!("table {}: '{number}' is no snapshot's number", request.table))
    })?;
    Ok(Box::new(StateSource {
        store: open_snapshots(&location, option_of(request, "job")?, &request.access)?,
        number,
        operator: option_of(request, "operator")?.to_owned(),
        table: option_of(request, "table")?.to_owned(),
        request: request.clone(),
        rows: None,
        position: None,
    }))
}

/// The rows of a table of state.
struct StateSource {
    store: SnapshotStore,
    number: u64,
    operator: String,
    table: String,
    request: TableRequest,
    /// None before the start.
    rows: Option<ReplayedRows>,
    /// The position to resume from, before the start.
    position: Option<String>,
}

impl StateSource {
    /// Rows of the table in the columns that are asked for, with their types in SQL.
    fn shown(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = &self.request.schema;
        if batch.num_columns() != schema.len() {
            let (table, number) = (&self.table, self.number);
            return Err(Error::data(format!(
                "table '{table}' of snapshot {number} has {} columns, and {} were declared",
                batch.num_columns(),
                schema.len()
            ))
            .hint("the snapshot is damaged: `thalweg snapshot verify` says where"));
        }
        let all: Vec<usize> = (0..schema.len()).collect();
        let wanted = self.request.projection.as_ref().unwrap_or(&all);
        let columns = wanted.iter().map(|&place| {
            let to = schema.columns[place].column_type.data_type.arrow();
            Ok(cast(batch.column(place), &to)?)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(self.request.delivered().arrow(), columns)?)
    }
}

impl Source for StateSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        let rows = self.store.rows_of(self.number, &self.operator, &self.table)?;
        let rows = rows.iter().map(|batch| self.shown(batch)).collect::<Result<Vec<_>>>()?;
        let (bytes_of, position) = (RecordBatch::get_array_memory_size, self.position.as_deref());
        self.rows = Some(ReplayedRows::start(rows, bytes_of, position, waker)?);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        self.rows.as_mut().map_or(Ok(SourcePoll::End), |rows| rows.poll(rows_max))
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn buffered_bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, ReplayedRows::buffered_bytes)
    }
    fn position(&self) -> Option<String> {
        let rows = self.rows.as_ref().and_then(ReplayedRows::position);
        rows.or_else(|| self.position.clone())
            .or_else(|| Some(thalweg_core::counter::row_position(0)))
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.position = Some(position.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_by_name_and_type() {
        let described = |text: &str| {
            let column = column_of(text).expect("it is read");
            format!("{}: {}", column.name, column.column_type)
        };
        for (text, expected) in [
            ("$partition UInt8", "$partition: SMALLINT"),
            ("key UInt64", "key: DECIMAL(20,0)"),
            ("the item Utf8View", "the item: STRING"),
            ("at Timestamp(ms)", "at: TIMESTAMP(3)"),
            ("sum Decimal128(38, 2)", "sum: DECIMAL(38,2)"),
        ] {
            assert_eq!(described(text), expected);
        }
        assert!(column_of("nothing").is_err());
    }
}
