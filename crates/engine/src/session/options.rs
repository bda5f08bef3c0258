//! Where a session starts from, and what it may touch.

use std::path::PathBuf;

/// Options of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What jobs are called unless `pipeline.name` is set, such as the script's file. Default: what
    /// the statement does.
    pub name: Option<String>,
    /// The folder that relative paths start from. Default: the current one.
    pub base_dir: PathBuf,
    /// No file outside these folders is read or written. Default: the current folder.
    pub allowed_roots: Vec<PathBuf>,
    /// Options set before the first statement, as `SET` does.
    pub settings: Vec<(String, String)>,
    /// Worker threads; wins over `pipeline.workers`.
    pub workers: Option<usize>,
    /// Everything that a job may keep in memory, such as `4gb` or `50%`; wins over `memory.limit`.
    pub memory_limit: Option<String>,
    /// Each SELECT ends after so many rows.
    pub row_limit: Option<u64>,
    /// Contract `arrival`: the file to take down in which sequence inputs came in.
    pub record: Option<PathBuf>,
    /// Contract `arrival`: the file with the sequence in which inputs have to come in.
    pub replay: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        SessionOptions {
            name: None,
            base_dir: current.clone(),
            allowed_roots: vec![current],
            settings: Vec::new(),
            workers: None,
            memory_limit: None,
            row_limit: None,
            record: None,
            replay: None,
        }
    }
}
