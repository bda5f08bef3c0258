//! The server: its data directory, its jobs, and how it begins and ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};
use thalweg_library::jobs::Interface;
use thalweg_library::session::{ReadableTable, SessionOptions, substitute};
use thalweg_runtime::Pool;
use tokio::sync::watch;

use crate::audit::Audit;
use crate::bell::Bell;
use crate::catalogue::{Catalogue, JobRecord, OWN_FOLDERS, OutcomeRecord, Revision};
use crate::config::Config;
use crate::job::{Job, JobSummary};
use crate::journal::Journal;
use crate::lifecycle::{Desired, EndKind, StopHow};
use crate::logs::Logs;
use crate::now::ServerNow;
use crate::operations::Operations;
use crate::problem::Problem;
use crate::supervisor::supervise;
use crate::tokens::Tokens;
use crate::trials::Trials;

/// A server that has its data directory.
pub struct Server {
    /// Its options.
    pub config: Config,
    /// Its files.
    pub catalogue: Catalogue,
    /// Its clock.
    pub clock: SystemClock,
    /// Wakes the thread that looks after jobs.
    pub bell: Bell,
    /// Requests that take time.
    pub operations: Operations,
    /// Statements that are tried.
    pub(crate) trials: Trials,
    /// Who may ask for what.
    pub tokens: Tokens,
    /// Who has asked for what.
    pub audit: Audit,
    /// What it says on standard error.
    pub journal: Journal,
    /// What took time, for a collector of OpenTelemetry.
    #[cfg(feature = "otlp")]
    pub spans: crate::otlp::Outbox<crate::otlp::Span>,
    /// What happened to jobs, for the same.
    #[cfg(feature = "otlp")]
    pub events: crate::otlp::Outbox<crate::otlp::EventRecord>,
    /// Counts changes of what lists show; whoever shows them waits for the next one.
    pub changed: watch::Sender<u64>,
    /// What could not be read when it began.
    pub problems: Vec<String>,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    pool: Pool,
    jobs: RwLock<BTreeMap<String, Arc<Job>>>,
    is_closing: AtomicBool,
    /// What workers have spent on runs that are over, in nanoseconds.
    spent_ns: Arc<AtomicU64>,
    /// When all jobs were looked at last.
    looked_ns: AtomicU64,
}

impl Server {
    /// Takes the data directory, reads the jobs, and looks after them from now on.
    ///
    /// # Errors
    /// If another server has the directory, or the system gives no threads.
    pub fn open(config: Config) -> Result<(Arc<Server>, std::thread::JoinHandle<()>)> {
        let catalogue = Catalogue::open(&config.data_dir)?;
        let clock = SystemClock::new();
        let journal = Journal::new(config.log_format(), clock.clone());
        let mut config = config;
        catalogue.root().clone_into(&mut config.data_dir);
        let (records, wrong) = catalogue.jobs()?;
        let now_ms = clock.wall_ms();
        let (mut jobs, spent_ns) = (BTreeMap::new(), Arc::<AtomicU64>::default());
        for mut record in records {
            if notice_death(&mut record, config.deaths_max(), now_ms) {
                catalogue.save(&record)?;
            }
            let logs = Logs::new(&record.name, clock.clone(), journal.clone());
            let job = Job::new(record, logs, Arc::clone(&spent_ns), now_ms);
            jobs.insert(job.name.clone(), Arc::new(job));
        }
        let server = Arc::new(Server {
            bell: Bell::new(clock.clone()),
            tokens: Tokens::open(catalogue.root())?,
            audit: Audit::open(catalogue.root(), clock.clone())?,
            pool: Pool::new(config.workers(), true, Duration::ZERO)?,
            operations: Operations::default(),
            trials: Trials::default(),
            changed: watch::channel(0).0,
            began_ms: now_ms,
            problems: wrong.iter().map(Error::to_string).collect(),
            jobs: RwLock::new(jobs),
            is_closing: AtomicBool::new(false),
            looked_ns: AtomicU64::new(clock.now_ns()),
            #[cfg(feature = "otlp")]
            spans: crate::otlp::Outbox::new(config.otlp().is_some()),
            #[cfg(feature = "otlp")]
            events: crate::otlp::Outbox::new(config.otlp().is_some()),
            journal,
            spent_ns,
            config,
            catalogue,
            clock,
        });
        let own = Arc::clone(&server);
        let body = move || supervise(&own);
        let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Error::io(format!("can't start a thread: {error}")))?;
        Ok((server, thread))
    }

    /// All jobs, by name.
    pub fn all_jobs(&self) -> Vec<Arc<Job>> {
        self.jobs.read().expect("no panic under this lock").values().cloned().collect()
    }

    /// The materialized tables of all jobs.
    pub fn readable_tables(&self) -> Vec<ReadableTable> {
        let of_job = |job: Arc<Job>| {
            let tables = job.live.all().into_iter();
            tables.map(move |(name, table)| ReadableTable { job: job.name.clone(), name, table })
        };
        self.all_jobs().into_iter().flat_map(of_job).collect()
    }

    /// A job.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn job(&self, name: &str) -> Result<Arc<Job>, Problem> {
        let jobs = self.jobs.read().expect("no panic under this lock");
        let found = jobs.get(name).cloned();
        found.ok_or_else(|| Problem::no_job(name, &jobs.keys().cloned().collect::<Vec<_>>()))
    }

    /// The job of this name, which is made if there is none. True if it was made.
    pub(crate) fn job_or_new(&self, name: &str) -> (Arc<Job>, bool) {
        let mut jobs = self.jobs.write().expect("no panic under this lock");
        if let Some(job) = jobs.get(name) {
            return (Arc::clone(job), false);
        }
        let now_ms = self.clock.wall_ms();
        let record = JobRecord::new(name, now_ms);
        let logs = Logs::new(name, self.clock.clone(), self.journal.clone());
        let job = Arc::new(Job::new(record, logs, Arc::clone(&self.spent_ns), now_ms));
        jobs.insert(name.to_owned(), Arc::clone(&job));
        (job, true)
    }

    /// What it is doing, of which `jobs` have their share.
    pub(crate) fn now<'a>(&self, jobs: impl Iterator<Item = &'a JobSummary>) -> ServerNow {
        let mut now = ServerNow {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began_ms: self.began_ms,
            at_ms: self.clock.wall_ms(),
            workers: self.config.workers() as u64,
            memory_limit_bytes: self.config.memory_limit_bytes(),
            ..ServerNow::default()
        };
        for job in jobs.filter_map(|job| job.now.as_ref()) {
            now.busy = (now.busy + job.busy).min(1.0);
            now.memory_bytes += job.memory_bytes;
        }
        now
    }

    /// What workers have spent on tasks since the server began.
    pub(crate) fn busy_seconds(&self) -> f64 {
        let runs = self.all_jobs().into_iter().filter_map(|job| job.lock().run.clone());
        let running_ns: u64 = runs.map(|run| run.busy_ns()).sum();
        (self.spent_ns.load(Ordering::Relaxed) + running_ns) as f64 / 1e9
    }

    /// Forgets a job.
    pub(crate) fn forget(&self, name: &str) {
        self.jobs.write().expect("no panic under this lock").remove(name);
    }

    /// All jobs were looked at.
    pub(crate) fn note_look(&self) {
        self.looked_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// When all jobs were looked at last.
    pub(crate) fn looked_ns(&self) -> u64 {
        self.looked_ns.load(Ordering::Relaxed)
    }

    /// Reads again what may change while the server runs: tokens, and the folder of jobs. What
    /// could not be read.
    pub(crate) fn reload(self: &Arc<Self>) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = self.tokens.reload() {
            problems.push(error.to_string());
        }
        problems.extend(self.read_jobs_dir());
        problems
    }

    /// True once the server is to end.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Every job stops with a snapshot from now on, and continues with the next server.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.changed.send_modify(|version| *version += 1);
        self.bell.ring();
    }

    /// Cuts off what still runs. It continues from its newest snapshot with the next server.
    pub fn cut_off(&self) {
        let now_ns = self.clock.now_ns();
        for job in self.all_jobs() {
            job.lock().run.iter().for_each(|run| run.stop(StopHow::Cancel, now_ns));
        }
        self.bell.ring();
    }

    /// How the session of a job starts.
    ///
    /// # Errors
    /// If a limit is none.
    pub fn session_options(&self, job: &JobRecord, revision: &Revision) -> Result<SessionOptions> {
        let memory_limit = self.memory_limit(job)?;
        let folder = self.catalogue.folder(&job.name);
        // A folder that is not there is no place that may be touched.
        let own = OWN_FOLDERS.map(|name| folder.join(name));
        own.iter().try_for_each(std::fs::create_dir_all)?;
        let mut settings = vec![
            ("execution.checkpointing.dir".to_owned(), own[0].display().to_string()),
            (
                "execution.checkpointing.interval".to_owned(),
                self.config.snapshot_interval().to_owned(),
            ),
        ];
        let written = revision.settings.iter();
        settings.extend(written.map(|(key, value)| (key.clone(), value.clone())));
        let mut options = self.open_options(settings);
        options.name = Some(job.name.clone());
        options.allowed_roots.extend(own);
        options.memory_limit = Some(format!("{memory_limit}b"));
        options.workers = job.limits.workers.map(usize::from);
        Ok(options)
    }

    /// How a session starts that may touch what statements may. What is allowed no statement
    /// changes.
    pub fn open_options(&self, mut settings: Vec<(String, String)>) -> SessionOptions {
        let hosts = self.config.allowed_hosts();
        // First: what is set there stays.
        settings.splice(0..0, hosts.map(|hosts| ("network.allowed-targets".to_owned(), hosts)));
        let roots = self.config.allowed_roots();
        SessionOptions {
            base_dir: roots[0].clone(),
            allowed_roots: roots,
            allowed_connectors: self.config.allowed_connectors(),
            secrets_folder: Some(self.config.data_dir.join("secrets")),
            interface: Interface::Server,
            settings,
            pool: Some(self.pool.clone()),
            ..SessionOptions::default()
        }
    }

    /// What a job may keep in memory, in bytes.
    ///
    /// # Errors
    /// If its limit is no size.
    pub fn memory_limit(&self, job: &JobRecord) -> Result<u64> {
        let Some(text) = &job.limits.memory else {
            return Ok(self.config.job_memory_limit_bytes());
        };
        crate::config::size(text, self.config.memory_limit_bytes()).ok_or_else(|| {
            Error::plan(format!("'{text}' is no limit of memory"))
                .hint("limits look like 512mb, 4gb or 10%")
        })
    }

    /// Statements with their parameters put in.
    ///
    /// # Errors
    /// If they name one that has no value.
    pub fn with_params(&self, revision: Revision) -> Result<Revision> {
        let sql = substitute(&revision.sql, &revision.params)?;
        Ok(Revision { sql, ..revision })
    }
}

/// The process that had begun this job has died before the job had proved itself. True if that is
/// news.
fn notice_death(job: &mut JobRecord, deaths_max: Option<u32>, now_ms: i64) -> bool {
    if job.unproven_since_ms.take().is_none() {
        return false;
    }
    job.deaths += 1;
    if job.desired != Desired::Stopped && deaths_max.is_some_and(|most| job.deaths >= most) {
        let detail = format!(
            "the server died {} times, one after another, before this job had kept a snapshot or run for a minute; \
             it is not started again by itself",
            job.deaths
        );
        let problem = Some(Problem::new(500, "crash-loop", detail));
        job.outcome = Some(OutcomeRecord {
            end: EndKind::Failed,
            at_ms: now_ms,
            problem,
            at_stake: Vec::new(),
        });
    }
    true
}
