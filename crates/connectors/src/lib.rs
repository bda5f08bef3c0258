//! Sources, sinks and formats: everything through which rows enter and leave the engine.
//!
//! A connector is a folder (or file) with a type that implements [`Connector`], and a line in
//! the list below. The planner sees none of them: it asks [`BuiltinConnectors`] through
//! the trait [`thalweg_core::connector::Connectors`].
//!
//! | module | holds |
//! |---|---|
//! | [`format`] | bytes to columns and back: CSV, JSON, Parquet, Arrow |
//! | [`filesystem`] | files, folders, globs, standard input and output |
//! | [`datagen`] | rows made from counters |
//! | [`nexmark`] | the events of the NEXMark benchmark |
//! | [`mod@print`] | rows on standard output |
//! | [`blackhole`] | rows nowhere |
//! | [`output`] | the writers behind `print` and a bare SELECT |
//! | [`conformance`] | checks that every connector must pass |
//! | [`options`] | typed access to `WITH` options, with near misses |

pub mod blackhole;
pub mod conformance;
pub mod datagen;
pub mod filesystem;
pub mod format;
mod handover;
pub mod nexmark;
pub mod options;
pub mod output;
mod pacing;
pub mod print;

use chrono_tz::Tz;
use std::collections::BTreeMap;

use thalweg_core::connector::{AcceptedChanges, Connectors, JobTables, Sink, Source, TableRequest};
use thalweg_core::{Error, Result};

use crate::filesystem::FinishedLetters;
use crate::options::near_miss;

/// Every built-in connector. A newcomer adds a line.
const CONNECTORS: &[&dyn Connector] = &[
    &filesystem::Filesystem,
    &datagen::Datagen,
    &nexmark::Nexmark,
    &print::Print,
    &blackhole::Blackhole,
];

/// One kind of table: how its options are checked and how it is opened.
pub trait Connector: Send + Sync {
    /// The value of the option `connector`.
    fn name(&self) -> &'static str;
    /// Checks the options without touching the outside.
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()>;
    /// True if reading the table ends by itself.
    fn is_bounded(&self, request: &TableRequest) -> bool;
    /// Which changes the table takes.
    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let _ = request;
        AcceptedChanges::Inserts
    }
    /// Which changes the table holds when it is read.
    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let _ = request;
        AcceptedChanges::Inserts
    }
    /// Opens the table for reading. `letters` are the dead-letter files that earlier jobs of the
    /// run have written. One record may take a part of the memory limit.
    fn source(
        &self,
        request: &TableRequest,
        letters: &FinishedLetters,
        memory_limit_bytes: usize,
    ) -> Result<Box<dyn Source>>;
    /// Checks whether the table can be read, or written, in a job with snapshots.
    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let _ = (request, as_sink);
        Ok(())
    }
    /// What of the table decides what a position in it, or an output that is half written, means.
    fn state_options(
        &self,
        request: &TableRequest,
        as_sink: bool,
        zone: Tz,
    ) -> BTreeMap<String, String> {
        let _ = (request, as_sink, zone);
        BTreeMap::new()
    }
    /// True if the table is standard input, which can be read once.
    fn reads_standard_input(&self, request: &TableRequest) -> bool {
        let _ = request;
        false
    }
    /// Columns that are not asked for but read nevertheless, since they decide which rows are bad.
    fn checked_columns(&self, request: &TableRequest) -> Vec<String> {
        let _ = request;
        Vec::new()
    }
    /// Opens the table for writing. Instants that are shown to people appear in `zone`.
    fn sink(&self, request: &TableRequest, zone: Tz) -> Result<Box<dyn Sink>>;
}

/// The connectors that come with the engine.
///
/// ```
/// use thalweg_connectors::BuiltinConnectors;
/// use thalweg_core::connector::{Connectors, TableRequest};
/// let mut request = TableRequest { table: "t".to_string(), ..TableRequest::default() };
/// request.options.insert("connector".to_string(), "filesistem".to_string());
/// let error = BuiltinConnectors::default().validate(&request, false).unwrap_err();
/// assert!(error.help().is_some_and(|help| help.contains("filesystem")));
/// ```
#[derive(Clone, Debug)]
pub struct BuiltinConnectors {
    zone: Tz,
    letters: FinishedLetters,
    memory_limit_bytes: usize,
}

impl Default for BuiltinConnectors {
    fn default() -> Self {
        BuiltinConnectors::new(Tz::UTC)
    }
}

impl BuiltinConnectors {
    /// The connectors, with instants printed in the session's zone.
    pub fn new(zone: Tz) -> Self {
        BuiltinConnectors {
            zone,
            letters: FinishedLetters::default(),
            memory_limit_bytes: usize::MAX,
        }
    }

    /// Those of a run whose earlier jobs have written these dead letters: its later jobs add to
    /// them.
    #[must_use]
    pub fn with_letters(mut self, letters: FinishedLetters) -> Self {
        self.letters = letters;
        self
    }

    /// The same in jobs with this memory limit, of which one record may take a part.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit_bytes: usize) -> Self {
        self.memory_limit_bytes = memory_limit_bytes;
        self
    }

    /// The names that `connector` can have.
    pub fn names() -> Vec<&'static str> {
        CONNECTORS.iter().map(|connector| connector.name()).collect()
    }

    fn find(request: &TableRequest) -> Result<&'static dyn Connector> {
        let table = &request.table;
        let Some(name) = request.options.get("connector") else {
            return Err(Error::plan(format!("table {table} needs the option 'connector'"))
                .hint(format!("add 'connector' = one of {}", Self::names().join(", "))));
        };
        let found = CONNECTORS.iter().find(|connector| connector.name() == name);
        found.copied().ok_or_else(|| {
            let help = match near_miss(name, Self::names()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("there are {}", Self::names().join(", ")),
            };
            Error::plan(format!(
                "invalid value '{name}' for option 'connector' of table {table}; there is no such connector"
            ))
            .hint(help)
        })
    }
}

impl Connectors for BuiltinConnectors {
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let connector = Self::find(request)?;
        if !request.partitioned_by.is_empty() && !as_sink && connector.name() != "filesystem" {
            let (table, name) = (&request.table, connector.name());
            return Err(Error::plan(format!(
                "table {table}: PARTITIONED BY has no meaning for connector '{name}'"
            ))
            .hint("leave it out; only files have partitions"));
        }
        connector.validate(request, as_sink)
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        Self::find(request).is_ok_and(|connector| connector.is_bounded(request))
    }
    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let connector = Self::find(request);
        connector.map_or(AcceptedChanges::Inserts, |found| found.accepted_changes(request))
    }
    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let connector = Self::find(request);
        connector.map_or(AcceptedChanges::Inserts, |found| found.held_changes(request))
    }
    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        Self::find(request)?.check_snapshots(request, as_sink)
    }
    fn reads_standard_input(&self, request: &TableRequest) -> bool {
        Self::find(request).is_ok_and(|found| found.reads_standard_input(request))
    }
    fn checked_columns(&self, request: &TableRequest) -> Vec<String> {
        Self::find(request).map_or_else(|_| Vec::new(), |found| found.checked_columns(request))
    }
    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        let connector = Self::find(request);
        connector.map_or_else(
            |_| BTreeMap::new(),
            |found| found.state_options(request, as_sink, self.zone),
        )
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let connector = Self::find(request)?;
        connector.validate(request, false)?;
        connector.source(request, &self.letters, self.memory_limit_bytes)
    }
    fn check_files(&self, tables: &JobTables) -> Result<()> {
        filesystem::check_files(tables, &[])
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let connector = Self::find(request)?;
        connector.validate(request, true)?;
        connector.sink(request, self.zone)
    }
}
