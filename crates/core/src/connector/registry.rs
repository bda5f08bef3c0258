//! Connectors: what makes sources and sinks for tables, and which of them a session knows.
//!
//! [`Connector`] is the one contract between SQL and the outside. The planner knows no connector by
//! name: it finds one by the option `connector` of a table and asks it. What can be said of all
//! tables of a connector is in its [`ConnectorDescription`]; methods answer for one table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::description::{Boundedness, ConnectorDescription};
use super::options::{Options, near_miss};
use super::table::{AcceptedChanges, JobTables, StateTable, StateTableRequest, TableRequest};
use super::{Sink, Source};
use crate::error::{Error, Result};
use crate::live::LiveTable;
use crate::lookup::{AsyncLookup, LookupRequest};

/// The connector of tables of state in snapshots, which the planner makes for `snapshot(…)`.
pub const STATE_CONNECTOR: &str = "snapshot";
/// The connector of materialized tables.
pub const LIVE_CONNECTOR: &str = "live";

/// One kind of table: how its options are checked and how it is opened.
///
/// All methods but `validate` are called for tables that it has accepted.
pub trait Connector: Send + Sync {
    /// What holds for all of its tables.
    fn description(&self) -> &ConnectorDescription;
    /// Checks the options of a table without touching the outside ([`super::Options::of`] does it
    /// by the description). Whether it can be read or written at all is known by the description.
    ///
    /// # Errors
    /// If an option is unknown or wrong.
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()>;
    /// True if reading the table ends by itself.
    fn is_bounded(&self, request: &TableRequest) -> bool {
        let _ = request;
        let source = self.description().capabilities.source;
        source.is_none_or(|source| source.boundedness != Boundedness::Unbounded)
    }
    /// Which changes the table takes.
    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let _ = request;
        let sink = self.description().capabilities.sink;
        sink.and_then(|sink| sink.changes.first().copied()).unwrap_or(AcceptedChanges::Inserts)
    }
    /// Which changes the table holds when it is read. Where rows are more than inserts, the planner
    /// asks for their kinds ([`TableRequest::reads_kinds`]).
    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let _ = request;
        AcceptedChanges::Inserts
    }
    /// Checks whether the table can be read, or written, in a job with snapshots.
    ///
    /// # Errors
    /// If its input can't be read again from where a snapshot was taken, or its output can't be
    /// continued.
    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let _ = (request, as_sink);
        Ok(())
    }
    /// The options that decide what a position in the table, or an output that is half written,
    /// means, by name, with their defaults. A job does not resume under other ones. No secrets.
    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        Options::of_state(request, self.description(), as_sink)
    }
    /// True if the table is standard input, which can be read once.
    fn reads_standard_input(&self, request: &TableRequest) -> bool {
        let _ = request;
        false
    }
    /// Columns that a query does not need but that are read, since they decide which rows are bad.
    fn checked_columns(&self, request: &TableRequest) -> Vec<String> {
        let _ = request;
        Vec::new()
    }
    /// True if the table's source leaves out rows that are outside of [`TableRequest::bounds`],
    /// where it knows without reading them.
    fn leaves_rows_out(&self, request: &TableRequest) -> bool {
        let _ = request;
        false
    }
    /// Checks that no output of a job names what the job reads, or what another of its outputs
    /// writes. Looks at the tables of its own among them; opens nothing.
    ///
    /// # Errors
    /// If one does, by whatever spelling or link.
    fn check_files(&self, tables: &JobTables) -> Result<()> {
        let _ = tables;
        Ok(())
    }
    /// Checks that a job takes nothing away from earlier jobs of the same run: what they have read
    /// is a user's, and what they have written is a result. Looks at the tables of its own.
    ///
    /// # Errors
    /// If an output of the job replaces either.
    fn check_files_after(&self, earlier: &[JobTables], job: &JobTables) -> Result<()> {
        let _ = (earlier, job);
        Ok(())
    }
    /// Checks that a job and another one of the same run, which runs at the same time, have nothing
    /// to do with each other's outputs: neither reads or writes what the other writes. Looks at the
    /// tables of its own.
    ///
    /// # Errors
    /// If they have, by whatever spelling or link.
    fn check_files_at_once(&self, running: &JobTables, job: &JobTables) -> Result<()> {
        let _ = (running, job);
        Ok(())
    }
    /// Opens the table for reading.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Err(not_readable(self.description(), request))
    }
    /// Opens the table for writing.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        Err(not_writable(self.description(), request))
    }
    /// Opens a table that is looked up by key.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        let table = &request.table.table;
        Err(Error::plan(format!("table {table} can't be looked up by key")))
    }
    /// Finds a table of state in a snapshot, without reading its rows. Only [`STATE_CONNECTOR`]
    /// does.
    ///
    /// # Errors
    /// If there is no such snapshot, operator or table; says what there is.
    fn state_table(&self, request: &StateTableRequest) -> Result<StateTable> {
        Err(no_state_tables(request))
    }
    /// The table that a job which writes it keeps current by an operator of its own, in front of
    /// the sink. Only [`LIVE_CONNECTOR`] has such tables.
    ///
    /// # Errors
    /// If the options of the table are wrong.
    fn live_table(&self, request: &TableRequest) -> Result<Arc<LiveTable>> {
        Err(Error::internal(format!("table {} is not materialized", request.table)))
    }
}

/// The connectors that a session knows, by name.
#[derive(Clone, Default)]
pub struct Connectors {
    /// In the order in which they were added, which is that of hints.
    connectors: Vec<Arc<dyn Connector>>,
    /// Names of those that this program was built without, each with the feature that it takes.
    left_out: &'static [(&'static str, &'static str)],
}

impl Connectors {
    /// These connectors.
    pub fn new(connectors: Vec<Arc<dyn Connector>>) -> Self {
        Connectors { connectors, left_out: &[] }
    }

    /// Names connectors that this program could have been built with, each with the feature that
    /// it takes. An error about a missing connector says so.
    #[must_use]
    pub fn left_out(self, names: &'static [(&'static str, &'static str)]) -> Self {
        Self { left_out: names, ..self }
    }

    /// Adds a connector, in place of any of the same name.
    pub fn add(&mut self, connector: Arc<dyn Connector>) {
        let name = connector.description().name;
        self.connectors.retain(|known| known.description().name != name);
        self.connectors.push(connector);
    }

    /// Puts another connector in the place of each.
    #[must_use]
    pub fn map(self, wrap: impl FnMut(Arc<dyn Connector>) -> Arc<dyn Connector>) -> Self {
        Connectors { connectors: self.connectors.into_iter().map(wrap).collect(), ..self }
    }

    /// Forgets the connectors whose name is not wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.connectors.retain(|known| is_wanted(known.description().name));
    }

    /// What the connectors that users can name say of themselves.
    pub fn descriptions(&self) -> impl Iterator<Item = &ConnectorDescription> {
        let descriptions = self.connectors.iter().map(|connector| connector.description());
        descriptions.filter(|description| !description.is_internal)
    }

    /// The connector of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Connector> {
        let mut connectors = self.connectors.iter();
        connectors.find(|known| known.description().name == name).map(AsRef::as_ref)
    }

    /// The connector that a table names.
    ///
    /// # Errors
    /// If it names none, or none that there is.
    pub fn find(&self, request: &TableRequest) -> Result<&dyn Connector> {
        let table = &request.table;
        let Some(name) = request.options.get("connector") else {
            let names: Vec<_> = self.descriptions().map(|description| description.name).collect();
            return Err(Error::plan(format!("table {table} needs the option 'connector'"))
                .hint(format!("add 'connector' = one of {}", names.join(", "))));
        };
        self.get(name).ok_or_else(|| {
            let (what, help) = self.missing(name);
            Error::plan(format!(
                "invalid value '{name}' for option 'connector' of table {table}; {what}"
            ))
            .hint(help)
        })
    }

    /// Why there is no connector of this name, and what to do.
    pub fn missing(&self, name: &str) -> (&'static str, String) {
        let names = || self.descriptions().map(|description| description.name);
        if let Some((_, feature)) = self.left_out.iter().find(|(left_out, _)| *left_out == name) {
            let help = format!("build it with `--features {feature}`, or `--features all`");
            return ("this program was built without it", help);
        }
        let help = match near_miss(name, names()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        ("there is no such connector", help)
    }

    /// Checks the options of a table, and whether it can be read, or written, at all. Touches
    /// nothing outside.
    ///
    /// # Errors
    /// If an option is unknown or wrong, or the table is only for the other direction.
    pub fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let connector = self.find(request)?;
        let description = connector.description();
        let capabilities = &description.capabilities;
        if !request.partitioned_by.is_empty() && !as_sink && !capabilities.is_partitioned {
            let (table, name) = (&request.table, description.name);
            return Err(Error::plan(format!(
                "table {table}: PARTITIONED BY has no meaning for connector '{name}'"
            ))
            .hint("leave it out; only files have partitions"));
        }
        connector.validate(request, as_sink)?;
        match as_sink {
            true if capabilities.sink.is_none() => Err(not_writable(description, request)),
            false if capabilities.source.is_none() && !capabilities.is_lookup => {
                Err(not_readable(description, request))
            }
            _ => Ok(()),
        }
    }

    /// Opens a table for reading.
    ///
    /// # Errors
    /// As [`Connectors::validate`]; if it cannot be opened.
    pub fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        self.validate(request, false)?;
        self.find(request)?.source(request)
    }

    /// Opens a table for writing.
    ///
    /// # Errors
    /// As [`Connectors::validate`]; if it cannot be opened.
    pub fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        self.validate(request, true)?;
        self.find(request)?.sink(request)
    }

    /// Checks that no output of a job names what the job reads, or what another of its outputs
    /// writes. Called after `validate` of each table.
    ///
    /// # Errors
    /// If one does.
    pub fn check_files(&self, tables: &JobTables) -> Result<()> {
        self.connectors.iter().try_for_each(|connector| connector.check_files(tables))
    }

    /// Checks that a job takes nothing away from earlier jobs of the same run.
    ///
    /// # Errors
    /// As [`Connector::check_files_after`].
    pub fn check_files_after(&self, earlier: &[JobTables], job: &JobTables) -> Result<()> {
        let mut connectors = self.connectors.iter();
        connectors.try_for_each(|connector| connector.check_files_after(earlier, job))
    }

    /// Checks that a job can run at the same time as another one of the same run.
    ///
    /// # Errors
    /// As [`Connector::check_files_at_once`]; if one reads a table that the other writes, of
    /// whatever connector.
    pub fn check_files_at_once(&self, running: &JobTables, job: &JobTables) -> Result<()> {
        let mut connectors = self.connectors.iter();
        connectors.try_for_each(|connector| connector.check_files_at_once(running, job))?;
        check_tables_at_once(running, job)
    }

    /// Finds a table of state in a snapshot.
    ///
    /// # Errors
    /// As [`Connector::state_table`].
    pub fn state_table(&self, request: &StateTableRequest) -> Result<StateTable> {
        let connector = self.get(STATE_CONNECTOR).ok_or_else(|| no_state_tables(request))?;
        connector.state_table(request)
    }
}

/// Two tables with the same options are one, whatever their names are.
fn check_tables_at_once(running: &JobTables, job: &JobTables) -> Result<()> {
    let pairs = |reads: &JobTables, writes: &JobTables| {
        let mut read = reads.reads.iter();
        read.find_map(|read| {
            let is_written = |(written, _): &&(TableRequest, _)| written.options == read.options;
            let (written, _) = writes.writes.iter().find(is_written)?;
            Some((read.table.clone(), written.table.clone()))
        })
    };
    if let Some((read, written)) = pairs(job, running) {
        return Err(Error::plan(format!("table {read} reads what table {written} writes")));
    }
    match pairs(running, job) {
        Some((read, written)) => {
            Err(Error::plan(format!("table {written} writes what table {read} reads")))
        }
        None => Ok(()),
    }
}

impl fmt::Debug for Connectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.connectors.iter().map(|connector| connector.description().name);
        f.debug_list().entries(names).finish()
    }
}

fn no_state_tables(request: &StateTableRequest) -> Error {
    let place = &request.place;
    Error::unsupported(format!("snapshots in '{place}' can't be read here"))
}

/// The error of reading a table that can only be looked up or written.
fn not_readable(description: &ConnectorDescription, request: &TableRequest) -> Error {
    let (table, name) = (&request.table, description.name);
    if description.capabilities.is_lookup {
        return Error::plan(format!("table {table} can't be read as a whole"))
            .hint("look it up: JOIN … FOR SYSTEM_TIME AS OF a PROCTIME() column ON its key");
    }
    Error::plan(format!("table {table} can't be read: connector '{name}' only writes"))
        .hint("use it as the target of INSERT INTO")
}

/// The error of writing a table that can only be read.
fn not_writable(description: &ConnectorDescription, request: &TableRequest) -> Error {
    let (table, name) = (&request.table, description.name);
    let (what, help) = match description.capabilities.is_lookup {
        true => ("is only looked up", "it can only be looked up"),
        false => ("only reads", "write to a table of another connector, or SELECT from this one"),
    };
    Error::plan(format!("table {table} can't be written: connector '{name}' {what}")).hint(help)
}
