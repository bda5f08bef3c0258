//! Tests of SQL, run in this process by the engine's simulator with a virtual clock.
//!
//! What a test is, `thalweg::testing` says. The package (`thalweg/testing.py`) builds cases as
//! texts and words what is raised.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use thalweg::testing::{TestFile, TestOptions, run_case};

use crate::connection::Connection;
use crate::errors;

/// Where rows differ: the line of the expectation, what was expected, in which variant, and how.
type DifferenceText = (usize, String, String, String);

/// The cases of a text.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct SqlTests(TestFile);

#[pymethods]
impl SqlTests {
    /// Reads them. Statements can be given apart; names of files start from the folder.
    #[new]
    fn new(
        py: Python<'_>,
        name: String,
        folder: PathBuf,
        text: String,
        statements: Option<&str>,
    ) -> PyResult<Self> {
        let file = TestFile::parse(name.clone(), folder, text.clone())
            .map_err(|error| errors::of_file(py, &error, &name, &text))?;
        Ok(SqlTests(match statements {
            Some(statements) => file.with_statements("<sql>", statements),
            None => file,
        }))
    }

    /// The name of each case, and the line on which it begins.
    #[getter]
    fn cases(&self) -> Vec<(String, usize)> {
        self.0.cases.iter().map(|case| (case.name.clone(), case.line)).collect()
    }

    /// Runs a case: the number of variants in which it ran, the contracts in which it cannot run
    /// and why, and where rows differ.
    fn run(
        &self,
        py: Python<'_>,
        case: usize,
        params: BTreeMap<String, String>,
        settings: Vec<(String, String)>,
        connection: Option<&Connection>,
    ) -> PyResult<(usize, Vec<(String, String)>, Vec<DifferenceText>)> {
        let case = self.0.cases.get(case).ok_or_else(|| PyIndexError::new_err(case))?;
        let registered = connection.map(Connection::registered).unwrap_or_default();
        let options = TestOptions { params, settings, registered };
        // Functions of Python are called on this thread, which takes the lock for each.
        let report = py.detach(|| run_case(&self.0, case, &options));
        if let Some((_, error, name, text)) = &report.error {
            return Err(errors::of_file(py, error, name, text));
        }
        let left_out = report.left_out.iter().map(|(order, why)| (order.to_string(), why.clone()));
        let differences = report
            .differences
            .into_iter()
            .map(|(variant, found)| (found.line, found.what, variant.to_string(), found.diff));
        Ok((report.variants, left_out.collect(), differences.collect()))
    }
}
