//! Where a session starts from, and what it may touch.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_connectors::filesystem::snapshot_location;
use thalweg_core::Result;
use thalweg_core::inlets::RowInlets;
use thalweg_core::live::LiveTables;
use thalweg_runtime::Pool;

use super::trial::Trial;
use crate::jobs::{Interface, ResumeFrom};

/// Options of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What jobs are called unless `pipeline.name` is set, such as the script's file. Default: what
    /// the statement does.
    pub name: Option<String>,
    /// The file that the statements come from: no output may name it. Default: none.
    pub script: Option<PathBuf>,
    /// The statements were read from standard input: no table can read it. Default: false.
    pub script_is_standard_input: bool,
    /// The folder that relative paths start from. Default: the current one.
    pub base_dir: PathBuf,
    /// No file outside these folders is read or written. Default: the current folder.
    pub allowed_roots: Vec<PathBuf>,
    /// The connectors that tables may name. Default: all.
    pub allowed_connectors: Option<Vec<String>>,
    /// The folder whose files hold the secrets, each under its name; then no statement chooses
    /// where they are looked up. It need not lie in an allowed one. Default: none.
    pub secrets_folder: Option<PathBuf>,
    /// How hints name what the caller can do. Default: by the options of the command line.
    pub interface: Interface,
    /// Options set before the first statement, as `SET` does.
    pub settings: Vec<(String, String)>,
    /// Worker threads; wins over `pipeline.workers`.
    pub workers: Option<usize>,
    /// Workers that jobs of several sessions share. Without it the jobs of a script that run at the
    /// same time share workers of their own. A number of workers says over how many of them
    /// a job is spread: with many small jobs, one each costs least.
    pub pool: Option<Pool>,
    /// Everything that a job, or all jobs that run at the same time, may keep in memory, such as
    /// `4gb` or `50%`; wins over `memory.limit`.
    pub memory_limit: Option<String>,
    /// Each SELECT ends after this many rows.
    pub row_limit: Option<u64>,
    /// Contract `arrival`: the file to take down in which sequence inputs came in.
    pub record: Option<PathBuf>,
    /// Contract `arrival`: the file with the sequence in which inputs have to come in.
    pub replay: Option<PathBuf>,
    /// Where the materialized tables of its jobs are: whoever holds it as well can read them.
    pub live: Arc<LiveTables>,
    /// Where sources of its jobs take rows that the process hands them: whoever holds it as well
    /// can post some. Default: none, and tables that only take such rows are refused.
    pub inlets: Option<RowInlets>,
    /// Its jobs are on trial: nothing of them is seen outside. Default: they are not.
    pub trial: Option<Arc<Trial>>,
    /// What jobs that take snapshots resume from.
    pub resume: ResumeFrom,
    /// State in a snapshot that a changed query has no use for is dropped.
    pub drop_state: bool,
    /// Jobs replace what an earlier run, or another one, has written where they are to write, and
    /// what outputs hold beyond the snapshot that they go back to.
    pub overwrite: bool,
    /// A job that fails leaves those alone that run at the same time. Default: they are stopped.
    pub keep_going: bool,
    /// A job that takes snapshots closes its windows when it is stopped, as if its input had ended.
    pub drain: bool,
}

impl SessionOptions {
    /// A place of snapshots as it was written, made whole: a folder starts from `base_dir` and must
    /// lie in an allowed one.
    ///
    /// # Errors
    /// If it lies outside.
    pub(crate) fn snapshot_location(&self, written: &str) -> Result<String> {
        snapshot_location(written, (&self.base_dir, &self.allowed_roots))
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        SessionOptions {
            name: None,
            script: None,
            script_is_standard_input: false,
            base_dir: current.clone(),
            allowed_roots: vec![current],
            allowed_connectors: None,
            secrets_folder: None,
            interface: Interface::CommandLine,
            settings: Vec::new(),
            workers: None,
            pool: None,
            memory_limit: None,
            row_limit: None,
            record: None,
            replay: None,
            live: Arc::default(),
            inlets: None,
            trial: None,
            resume: ResumeFrom::Nothing,
            drop_state: false,
            overwrite: false,
            keep_going: false,
            drain: false,
        }
    }
}
