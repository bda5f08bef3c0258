//! A planner for tests: every connector that is built in, every path allowed.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_core::shim::SystemClock;
use thalweg_plan::{Planner, PlannerOptions};

/// A planner whose relative paths are below this folder.
pub fn planner(base_dir: &str) -> Planner {
    let options = PlannerOptions {
        base_dir: PathBuf::from(base_dir),
        allowed_roots: vec![PathBuf::from("/")],
        secrets_folder: None,
        workers: 1,
        clock: Arc::new(SystemClock::default()),
        is_remote: false,
        inlets: None,
    };
    Planner::new(thalweg_connectors::builtin(Default::default()), options)
}
