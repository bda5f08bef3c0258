//! `'connector' = 'live'`: materialized tables, which a job keeps current and queries read.
//!
//! Written, such a table is an operator that keeps its rows (`KeepRows`) and a sink that publishes
//! a version when the snapshot of its cut is durable, or when the input has ended. Read, it is a
//! bounded table: the version that is published when the statement is planned, the same one however
//! often the statement names the table.
//!
//! A session has the tables that its own statements make ([`SessionOptions::live`]), and those of
//! others that it may read ([`Session::set_readable`]); of the latter each is declared under
//! the name of its job as the database.
//!
//! [`SessionOptions::live`]: super::SessionOptions::live
//! [`Session::set_readable`]: super::Session::set_readable

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, LIVE_CONNECTOR,
    Options, SinkCapability, SourceCapability, TableRequest, Waker, option_table,
};
use thalweg_core::counter::row_position;
use thalweg_core::live::{LiveTable, LiveTables, TableVersion};
use thalweg_core::quoting::{quoted_name, quoted_text};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result, RowKind, Sink, Source, SourcePoll};
use thalweg_plan::Planner;
use thalweg_plan::ast::{Materialization, StatementKind};
use thalweg_plan::parser::parse_script_with_notes;

use super::replayed_rows::ReplayedRows;

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::Bounded,
            changes: &[AcceptedChanges::Inserts],
            has_positions: true,
            prunes_columns: true,
        }),
        sink: Some(SinkCapability {
            changes: &[AcceptedChanges::Upserts],
            guarantee: SinkGuarantee::Transactional,
        }),
        ..Capabilities::NONE
    },
    options: &option_table! {
        "table": Text, required()
            => "what the table is called among those that can be asked";
        "job": Text
            => "the job that keeps it current, where that is not one of the same session";
    },
    is_internal: true,
    ..ConnectorDescription::new(LIVE_CONNECTOR, "materialized tables")
};

/// A table that a job of another session keeps current.
#[derive(Clone, Debug)]
pub struct ReadableTable {
    /// The job, which is the database of the table.
    pub job: String,
    /// Its name there.
    pub name: String,
    /// Its versions.
    pub table: Arc<LiveTable>,
}

/// The versions that a statement reads, by job (none: of the same session) and name.
type ReadVersions = BTreeMap<(Option<String>, String), Option<Arc<TableVersion>>>;

/// The connector of materialized tables.
pub(super) struct Live {
    own: Arc<LiveTables>,
    others: Vec<ReadableTable>,
    read: Mutex<ReadVersions>,
    /// A statement names one of the others.
    is_named: AtomicBool,
}

impl Live {
    /// Of a session that makes tables in `own` and may read `others`.
    pub(super) fn new(own: Arc<LiveTables>, others: Vec<ReadableTable>) -> Self {
        Live { own, others, read: Mutex::default(), is_named: AtomicBool::new(false) }
    }

    /// The same for another session.
    pub(super) fn fork(&self) -> Self {
        Live::new(Arc::clone(&self.own), self.others.clone())
    }

    /// True if a statement that was planned names a table of another session.
    pub(super) fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// Another statement begins: it reads what is published by then.
    pub(super) fn forget_versions(&self) {
        self.read.lock().expect("no panic under this lock").clear();
    }

    /// When the oldest version was made that was read since.
    pub(super) fn as_of_ms(&self) -> Option<i64> {
        let read = self.read.lock().expect("no panic under this lock");
        read.values().flatten().map(|version| version.as_of_ms).min()
    }

    /// The version that the statement reads.
    fn version(&self, request: &TableRequest) -> Result<Option<Arc<TableVersion>>> {
        let options = Options::of(request, &DESCRIPTION)?;
        let (job, name) = (options.get("job"), options.required("table")?);
        let mut read = self.read.lock().expect("no panic under this lock");
        let version = read.entry((job.map(str::to_owned), name.to_owned())).or_insert_with(|| {
            let Some(job) = job else { return self.own.get(name)?.version() };
            let mut others = self.others.iter();
            others.find(|other| other.job == job && other.name == name)?.table.version()
        });
        Ok(version.clone())
    }
}

impl Connector for Live {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let options = Options::of(request, &DESCRIPTION)?;
        self.is_named.fetch_or(!as_sink && options.get("job").is_some(), Ordering::Relaxed);
        if as_sink && options.get("job").is_some() {
            return Err(Error::plan(format!("table {} is kept by another job", request.table)));
        }
        if as_sink && request.primary_key.is_empty() {
            return Err(Error::plan(format!(
                "materialized table {} needs a primary key: one row is kept for each",
                request.table
            ))
            .hint(
                "write CREATE MATERIALIZED TABLE name (PRIMARY KEY (…) NOT ENFORCED) AS SELECT …",
            ));
        }
        Ok(())
    }
    fn live_table(&self, request: &TableRequest) -> Result<Arc<LiveTable>> {
        let options = Options::of(request, &DESCRIPTION)?;
        Ok(self.own.open(options.required("table")?, &request.schema, &request.primary_key))
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let table = self.live_table(request)?;
        Ok(Box::new(Publisher { name: request.table.clone(), table }))
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let version = self.version(request)?;
        let request = request.clone();
        Ok(Box::new(VersionSource { version, request, rows: None }))
    }
}

/// Declares the tables of other sessions, each in the database of its job.
///
/// # Errors
/// None that is expected: the tables have been declared before.
pub(super) fn declare(planner: &mut Planner, tables: &[ReadableTable]) -> Result<()> {
    for ReadableTable { job, name, table } in tables {
        let columns = table.schema.columns.iter();
        let columns = columns.map(|own| format!("{} {}", quoted_name(&own.name), own.column_type));
        let columns: Vec<String> = columns.collect();
        let keys =
            table.primary_key.iter().map(|&key| quoted_name(&table.schema.columns[key].name));
        let keys: Vec<String> = keys.collect();
        let statements = format!(
            "CREATE DATABASE IF NOT EXISTS {};\nCREATE TABLE IF NOT EXISTS {}.{} ({}, PRIMARY KEY ({}) NOT ENFORCED) \
             WITH ('connector' = '{LIVE_CONNECTOR}', 'table' = {}, 'job' = {})",
            quoted_name(job),
            quoted_name(job),
            quoted_name(name),
            columns.join(", "),
            keys.join(", "),
            quoted_text(name),
            quoted_text(job)
        );
        for mut statement in parse_script_with_notes(&statements)?.statements {
            if let StatementKind::CreateTable(own) = &mut statement.kind {
                own.materialized = Some(Materialization::default());
            }
            planner.execute_ddl(&statement)?;
        }
    }
    Ok(())
}

/// Publishes what the operator in front of it has staged. No row comes to it.
struct Publisher {
    name: String,
    table: Arc<LiveTable>,
}

impl Publisher {
    fn publish_newest(&self) {
        if let Some(number) = self.table.newest_staged() {
            self.table.publish(number);
        }
    }
}

impl Sink for Publisher {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn write(&mut self, _batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        Err(Error::internal("rows of a materialized table stay in front of its sink"))
    }
    fn finish(&mut self) -> Result<()> {
        self.publish_newest();
        Ok(())
    }
    fn abort(&mut self) {}
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        Ok(self.table.newest_staged().map(|number| number.to_string()))
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        // The operator has published what it restored, so handles of earlier runs are ignored.
        if let Ok(number) = handle.parse() {
            self.table.publish(number);
        }
        Ok(())
    }
}

/// The rows of one version.
struct VersionSource {
    version: Option<Arc<TableVersion>>,
    request: TableRequest,
    /// None before the start.
    rows: Option<ReplayedRows>,
}

impl VersionSource {
    fn batches(&mut self) -> Result<Vec<RecordBatch>> {
        let version = self.version.take().ok_or_else(|| {
            Error::user(format!("materialized table {} has no rows to show yet", self.request.table))
                .hint("its job shows them when it has taken its first snapshot: it must run, or have run since the server began")
        })?;
        let batches = version.batches()?.into_iter();
        let wanted = |batch: RecordBatch| match &self.request.projection {
            None => Ok(batch),
            Some(columns) => Ok(batch.project(columns)?),
        };
        batches.map(wanted).collect()
    }
}

impl Source for VersionSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        let bytes_of = thalweg_core::bundle::batch_bytes;
        self.rows = Some(ReplayedRows::start(self.batches()?, bytes_of, None, waker)?);
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
        self.rows.as_ref().and_then(ReplayedRows::position).or_else(|| Some(row_position(0)))
    }
}
