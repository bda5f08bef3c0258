//! From what SET has set to what a job runs with.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chrono_tz::Tz;
use thalweg_connectors::BuiltinConnectors;
use thalweg_connectors::filesystem::{FinishedLetters, OtherFile, check_files};
use thalweg_core::connector::{
    AcceptedChanges, Connectors, JobTables, StateTable, StateTableRequest, TableRequest,
};
use thalweg_core::lookup::{AsyncLookup, LookupConnector, LookupRequest};
use thalweg_core::{Error, Result, Sink, Source};
use thalweg_plan::catalog::{MemoryLimit, Scheduler, Settings};
use thalweg_runtime::{RunOptions, SchedulerPolicy, memory};

use super::options::snapshot_location;
use super::registered::{CONNECTOR, CheckedSource, Registered, RegisteredSources, SourceMaker};
use super::{SessionOptions, state_tables};

/// How many workers a job has if nobody says.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How a job runs under these settings. What the session's options say wins.
pub(super) fn run_options(settings: &Settings, session: &SessionOptions) -> Result<RunOptions> {
    let limit = match &session.memory_limit {
        Some(text) => parse_memory_limit(text)?,
        None => settings.memory_limit(),
    };
    Ok(RunOptions {
        workers: session.workers.or(settings.workers()).unwrap_or_else(cores),
        spin: settings.spin(),
        pool: session.pool.clone(),
        scheduler: match settings.scheduler() {
            Scheduler::Nem => SchedulerPolicy::Nem,
            Scheduler::RoundRobin => SchedulerPolicy::RoundRobin,
            Scheduler::LastInPipeline => SchedulerPolicy::LastInPipeline,
            Scheduler::CurrentThroughput => SchedulerPolicy::CurrentThroughput,
            Scheduler::EstimatedTime => SchedulerPolicy::EstimatedTime,
            Scheduler::QueueSizeThrottling => SchedulerPolicy::QueueSizeThrottling,
        },
        scheduler_window: settings.scheduler_window(),
        order: settings.order(),
        bundle_rows_max: settings.bundle_rows_max(),
        bundle_linger: settings.bundle_linger(),
        memory_limit_bytes: limit_bytes(limit, memory::available_bytes()),
        idle_timeout: settings.idle_timeout(),
        // Which rows come while an input is idle depends on when the job runs.
        allow_nondeterministic_order: settings.allows_nondeterministic(),
        ..RunOptions::default()
    })
}

/// A limit as `SET 'memory.limit'` takes it.
pub(super) fn parse_memory_limit(text: &str) -> Result<MemoryLimit> {
    let mut settings = Settings::default();
    settings.set("memory.limit", text)?;
    Ok(settings.memory_limit())
}

fn limit_bytes(limit: MemoryLimit, available_bytes: usize) -> usize {
    match limit {
        MemoryLimit::Percent(percent) => available_bytes / 100 * usize::from(percent),
        MemoryLimit::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
    }
}

/// The built-in connectors, with instants printed in the zone that is set when a table is opened, and
/// the sources that the program has registered.
pub(super) struct SessionConnectors {
    zone: Mutex<Tz>,
    /// Dead letters that jobs of the session have written.
    letters: FinishedLetters,
    /// Where relative paths start, and what may be touched.
    paths: (PathBuf, Vec<PathBuf>),
    /// Files of the session that are no tables.
    others: Vec<OtherFile>,
    memory_limit_bytes: AtomicUsize,
    /// Those that the user registered, by the value of `connector`.
    lookups: Mutex<HashMap<String, Arc<dyn LookupConnector>>>,
    registered: Mutex<RegisteredSources>,
}

impl SessionConnectors {
    /// Those of a session with these options.
    pub(super) fn new(options: &SessionOptions) -> Self {
        let file = |what: &str, path: &Option<PathBuf>, is_written| {
            let what = what.to_owned();
            path.clone().map(|path| OtherFile { what, path, is_written })
        };
        let others = [
            file("the SQL file", &options.script, false),
            file("the recording to be followed (--replay)", &options.replay, false),
            file("the recording (--record)", &options.record, true),
        ];
        SessionConnectors {
            zone: Mutex::new(Tz::UTC),
            letters: FinishedLetters::default(),
            paths: (options.base_dir.clone(), options.allowed_roots.clone()),
            others: others.into_iter().flatten().collect(),
            memory_limit_bytes: AtomicUsize::new(usize::MAX),
            lookups: Mutex::default(),
            registered: Mutex::default(),
        }
    }

    pub(super) fn set_zone(&self, zone: Tz) {
        *self.zone.lock().expect("no panic under this lock") = zone;
    }

    pub(super) fn set_memory_limit(&self, bytes: usize) {
        self.memory_limit_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn register_lookup(&self, name: &str, connector: Arc<dyn LookupConnector>) {
        let mut lookups = self.lookups.lock().expect("no panic under this lock");
        lookups.insert(name.to_owned(), connector);
    }

    fn lookup_of(&self, request: &TableRequest) -> Option<Arc<dyn LookupConnector>> {
        let lookups = self.lookups.lock().expect("no panic under this lock");
        lookups.get(request.options.get("connector")?).cloned()
    }

    pub(super) fn register(&self, name: &str, maker: SourceMaker) {
        self.registered.lock().expect("no panic under this lock").add(name, maker);
    }

    fn builtin(&self) -> BuiltinConnectors {
        let memory_limit_bytes = self.memory_limit_bytes.load(Ordering::Relaxed);
        BuiltinConnectors::new(*self.zone.lock().expect("no panic under this lock"))
            .with_letters(self.letters.clone())
            .with_memory_limit(memory_limit_bytes)
    }

    /// What makes the sources of a table whose rows the program hands over.
    fn maker(&self, request: &TableRequest, as_sink: bool) -> Option<Result<Registered>> {
        let is_registered = request.options.get("connector").is_some_and(|c| c == CONNECTOR);
        let registered = || self.registered.lock().expect("no panic under this lock");
        is_registered.then(|| registered().find(request, as_sink))
    }
}

impl Connectors for SessionConnectors {
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        if let Some(lookup) = self.lookup_of(request) {
            return match as_sink {
                false => lookup.validate(request),
                true => Err(Error::plan(format!("table {} can't be written", request.table))
                    .hint("it can only be looked up")),
            };
        }
        match self.maker(request, as_sink) {
            Some(maker) => maker.map(drop),
            None if is_state(request) => state_tables::validate(request, as_sink),
            None => self.builtin().validate(request, as_sink),
        }
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        match self.maker(request, false) {
            Some(maker) => maker.is_ok_and(|maker| maker.is_bounded()),
            None if is_state(request) => true,
            None => self.builtin().is_bounded(request),
        }
    }
    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        self.builtin().accepted_changes(request)
    }
    fn is_looked_up(&self, request: &TableRequest) -> bool {
        self.lookup_of(request).is_some()
    }
    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        match self.lookup_of(&request.table) {
            Some(lookup) => lookup.open(request),
            None => self.builtin().lookup(request),
        }
    }
    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        self.builtin().held_changes(request)
    }
    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        match self.maker(request, as_sink) {
            Some(maker) => maker?.check_snapshots(&request.table),
            None if is_state(request) => Ok(()),
            None => self.builtin().check_snapshots(request, as_sink),
        }
    }
    fn reads_standard_input(&self, request: &TableRequest) -> bool {
        self.builtin().reads_standard_input(request)
    }
    fn checked_columns(&self, request: &TableRequest) -> Vec<String> {
        self.builtin().checked_columns(request)
    }
    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        self.builtin().state_options(request, as_sink)
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        if self.lookup_of(request).is_some() {
            return Err(Error::plan(format!("table {} can't be read as a whole", request.table))
                .hint("look it up: JOIN … FOR SYSTEM_TIME AS OF a PROCTIME() column ON its key"));
        }
        match self.maker(request, false) {
            Some(maker) => Ok(Box::new(CheckedSource::new(maker?.source()?, request))),
            None if is_state(request) => state_tables::source(request),
            None => self.builtin().source(request),
        }
    }
    fn check_files(&self, tables: &JobTables) -> Result<()> {
        let mut tables = tables.clone();
        if let Some(written) = &tables.snapshots {
            let location = snapshot_location(written, (&self.paths.0, &self.paths.1))?;
            // What is kept elsewhere than in files no output can name.
            tables.snapshots = Some(location).filter(|location| !location.contains("://"));
        }
        check_files(&tables, &self.others)
    }
    fn state_table(&self, request: &StateTableRequest) -> Result<StateTable> {
        state_tables::find(request)
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        match self.maker(request, true) {
            Some(maker) => {
                maker.and_then(|_| Err(Error::internal("a registered source is no sink")))
            }
            None => self.builtin().sink(request),
        }
    }
}

/// True for a table of state in a snapshot.
fn is_state(request: &TableRequest) -> bool {
    request.options.get("connector").is_some_and(|connector| connector == state_tables::CONNECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::OrderContract;

    #[test]
    fn the_command_line_wins_over_set() {
        let mut settings = Settings::default();
        settings.set("pipeline.workers", "3").expect("a count");
        settings.set("memory.limit", "1 gb").expect("a size");
        settings.set("pipeline.scheduler", "round-robin").expect("a policy");
        settings.set("watermark.idle-timeout", "0 s").expect("a duration");
        let session = SessionOptions::default();
        let options = run_options(&settings, &session).expect("valid");
        assert_eq!((options.workers, options.memory_limit_bytes), (3, 1 << 30));
        assert_eq!(options.scheduler, SchedulerPolicy::RoundRobin);
        assert_eq!(options.idle_timeout, None);
        let session =
            SessionOptions { workers: Some(2), memory_limit: Some("64mb".to_owned()), ..session };
        let options = run_options(&settings, &session).expect("valid");
        assert_eq!((options.workers, options.memory_limit_bytes), (2, 64 << 20));
    }

    #[test]
    fn the_clock_has_no_say_in_ordered_contracts_unless_it_is_allowed() {
        let mut settings = Settings::default();
        let options =
            |settings: &Settings| run_options(settings, &SessionOptions::default()).expect("valid");
        for order in [OrderContract::Arrival, OrderContract::EventTime] {
            settings.set("pipeline.order", &order.to_string()).expect("a contract");
            assert_eq!(options(&settings).order, order);
            assert!(!options(&settings).allow_nondeterministic_order);
        }
        settings.set("pipeline.order.allow-nondeterministic", "true").expect("a switch");
        assert!(options(&settings).allow_nondeterministic_order);
    }

    #[test]
    fn a_share_is_of_what_there_is() {
        assert_eq!(limit_bytes(MemoryLimit::Percent(50), 1000), 500);
        assert!(parse_memory_limit("lots").is_err());
    }
}
