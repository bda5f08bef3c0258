//! The Python that oracles are programs of.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A Python that can import DuckDB. One that `THALWEG_PYTHON` names and that cannot is an error;
/// where none is named (`make test` names one) and none is found, the test says that it is skipped.
pub fn python_with_duckdb() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref()
}

fn find() -> Option<PathBuf> {
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    let candidates = match &named {
        Some(python) => vec![python.clone()],
        None => vec![repository().join(".venv/bin/python"), PathBuf::from("python3")],
    };
    let works = |python: &PathBuf| {
        let check =
            Command::new(python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
        check.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(works);
    assert!(
        found.is_some() || named.is_none(),
        "{named:?} has no duckdb: see scripts/requirements.txt"
    );
    if found.is_none() {
        eprintln!("SKIPPED: no Python with duckdb; `make venv` installs one");
    }
    found
}

/// The folder of the project.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
