//! What planning needs to know of the world: connectors, folders, settings of the session.
//!
//! The binder has [`Places`], since it must know which tables end; lowering has the whole
//! [`PlanEnvironment`]. Both are made for one statement by the [`Planner`](crate::Planner), from
//! the settings as they are then: a SET between two statements changes only the second.
//!
//! Settings are resolved here once. Nothing below reads the catalog, so a plan can't depend on a
//! setting that is not in this type.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono_tz::Tz;
use thalweg_core::connector::{Access, Connectors, TableRequest};
use thalweg_core::shim::SharedClock;
use thalweg_core::{OrderContract, Span};
use thalweg_expr::Session;

use crate::catalog::table_options::CACHE;
use crate::catalog::{RuntimeMode, UpsertMaterialize};
use crate::resolved_table::{Reading, ResolvedTable};

/// Where tables are.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// Finds connectors.
    pub connectors: &'a Arc<Connectors>,
    /// The folder that relative paths start from.
    pub base_dir: &'a Path,
    /// No file outside these folders is touched.
    pub allowed_roots: &'a [PathBuf],
    /// The session's time zone.
    pub zone: Tz,
    /// What tables may get at beyond files.
    pub access: &'a Access,
    /// What a job may keep in memory.
    /// `usize::MAX` if nothing limits it.
    pub memory_limit_bytes: usize,
}

impl Places<'_> {
    /// A table as its connector sees it, with all columns.
    pub fn request(&self, table: &ResolvedTable, parallelism: usize) -> TableRequest {
        TableRequest {
            table: table.name.clone(),
            schema: table.physical_schema(),
            metadata: Vec::new(),
            projection: None,
            bounds: Vec::new(),
            options: of_connector(&table.options),
            primary_key: table.primary_key.clone(),
            partitioned_by: table.partitioned_by.clone(),
            has_updates: false,
            reads_kinds: false,
            base_dir: self.base_dir.to_owned(),
            allowed_roots: self.allowed_roots.to_vec(),
            parallelism,
            is_read_again: false,
            zone: self.zone,
            memory_limit_bytes: self.memory_limit_bytes,
            access: self.access.clone(),
        }
    }

    /// What reading a table is like. Options that its connector refuses are reported when it is
    /// lowered.
    ///
    /// Until then such a table counts as unbounded, the safe side: nothing waits for its end. The
    /// binder asks while the query has other mistakes, and those are reported first.
    pub(crate) fn reading(&self, table: &ResolvedTable) -> Reading {
        let request = self.request(table, 1);
        let Ok(connector) = self.connectors.find(&request) else {
            return Reading { is_bounded: false, ..Reading::default() };
        };
        let is_right = self.connectors.validate(&request, false).is_ok();
        let capabilities = connector.description().capabilities;
        let is_whole = capabilities.source.is_some();
        // A table that can be read either way is asked by key, unless it is to be cached whole.
        let cache = table.options.get(CACHE).map_or("", |text| text.trim());
        let is_cached_whole = is_whole && cache.eq_ignore_ascii_case("FULL");
        Reading {
            changes: connector.held_changes(&request),
            is_bounded: is_right && is_whole && connector.is_bounded(&request),
            is_looked_up: capabilities.is_lookup && !is_cached_whole,
        }
    }
}

/// What lowering needs to know of the world.
pub struct PlanEnvironment<'a> {
    /// Where tables are.
    pub places: Places<'a>,
    /// Time zone and functions.
    pub session: &'a Session,
    /// The job's clock.
    pub clock: SharedClock,
    /// How many threads may decode at once.
    /// At least 1 in requests.
    pub parallelism: usize,
    /// What happens to late rows.
    pub late: LateData,
    /// True if rows with NULL in a NOT NULL column are left out.
    /// `table.exec.sink.not-null-enforcer`
    pub drops_nulls: bool,
    /// `watermark.max-future-skew`.
    pub max_future_skew_ms: Option<i64>,
    /// `execution.runtime-mode`.
    pub mode: RuntimeMode,
    /// `table.exec.state.ttl`; `None` keeps state for ever.
    /// `None` in batch mode too.
    pub state_ttl_ms: Option<i64>,
    /// `table.exec.mini-batch.enabled`
    pub mini_batch: bool,
    /// `table.exec.sink.upsert-materialize`
    pub upsert_materialize: UpsertMaterialize,
    /// `pipeline.order`.
    pub order: OrderContract,
    /// `pipeline.order.allow-nondeterministic`.
    pub allows_nondeterministic: bool,
    /// The job will take snapshots.
    /// Connectors that can't resume from a position are refused then.
    pub takes_snapshots: bool,
    /// Where they are kept, as it was written.
    pub snapshots: Option<String>,
    /// Where functions stand whose values the data do not decide, by name.
    /// The first use of each, for messages.
    pub undecided: HashMap<String, Span>,
    /// True if nothing is to be opened: the plan is only looked at.
    pub dry_run: bool,
}

/// `late.data`
#[derive(Clone, Debug)]
pub enum LateData {
    /// Counted and dropped.
    Drop,
    /// The job fails at the first.
    Fail,
    /// Written to a table.
    Table(Arc<ResolvedTable>),
}

impl PlanEnvironment<'_> {
    /// How long state lives where a hint says this, 0 being for ever; `None`: for ever.
    /// In batch mode hints are ignored: a result must not lack what has expired.
    pub(crate) fn lifetime_ms(&self, hinted: Option<i64>) -> Option<i64> {
        match hinted.filter(|_| self.mode == RuntimeMode::Streaming) {
            Some(0) => None,
            Some(hinted) => Some(hinted),
            None => self.state_ttl_ms,
        }
    }

    /// A table as its connector sees it, with all columns.
    pub fn request(&self, table: &ResolvedTable) -> TableRequest {
        self.places.request(table, self.parallelism.max(1))
    }

    /// A table that is written, with the metadata columns that a row has.
    pub fn written(&self, table: &ResolvedTable) -> TableRequest {
        TableRequest { metadata: table.written_metadata(), ..self.request(table) }
    }
}

/// The options that the connector reads: those of every table are the planner's.
/// A connector refuses options that it does not know, so these must not reach it.
fn of_connector(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut options = options.clone();
    options.retain(|name, _| crate::catalog::table_options::table_option(name).is_none());
    options
}
