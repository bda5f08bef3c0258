//! The extension module of the Python package `thalweg`: what needs the engine.
//!
//! The package itself (`python/thalweg`) is what users see: it reads hints, picks classes of other
//! libraries, and has the documentation. This module is private to it.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | sessions, queries and their batches |
//! | `running` | scripts that run on threads of their own; Ctrl-C; the end of the interpreter |
//! | `sources`, `readings`, `sinks` | tables of Python objects, to read (by threads) and to write |
//! | `jobs`, `taps` | INSERTs in the background, and rows of them as they pass |
//! | `serving` | a server in this process |
//! | `functions`, `lanes` | functions of Python, and the threads on which they run |
//! | `processes` | keyed process functions |
//! | `tests_of_sql` | tests with a virtual clock |
//! | `batch`, `values`, `types` | rows on their way out and in |
//! | `errors` | errors as exceptions |
//!
//! **Invariants:** no thread holds the interpreter's lock while it waits for the engine, and no
//! worker of the engine waits for the lock.

mod batch;
mod connection;
mod errors;
mod functions;
mod jobs;
mod lanes;
mod processes;
mod readings;
mod running;
#[cfg(feature = "command")]
mod serving;
mod sinks;
mod sources;
mod taps;
mod tests_of_sql;
mod types;
mod values;

use pyo3::prelude::*;

/// Workers allocate and free bundles on different threads all the time, which mimalloc is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the package `thalweg` needs of the engine.
#[pymodule(gil_used = false)]
mod _thalweg {
    #[pymodule_export]
    use super::batch::{Array, RecordBatch};
    #[pymodule_export]
    use super::connection::{Batches, Collected, Connection, Query, split_query};
    #[pymodule_export]
    use super::functions::sql_type_of;
    #[pymodule_export]
    use super::jobs::RunningJob;
    #[pymodule_export]
    use super::running::shut_down;
    #[cfg(feature = "command")]
    #[pymodule_export]
    use super::serving::RunningServer;
    #[pymodule_export]
    use super::taps::JobTap;
    #[pymodule_export]
    use super::tests_of_sql::SqlTests;

    use pyo3::prelude::*;

    /// The command line: does what the arguments say, and returns the exit status.
    #[cfg(feature = "command")]
    #[pyfunction]
    fn command(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
        py.detach(|| command_line::cli::run(arguments))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
