//! Errors of the engine as exceptions of the package.
//!
//! The classes are written in Python (`thalweg/errors.py`), where stubs and documentation see them.
//! Which one an error becomes follows from whose fault it is:
//!
//! | kind | exception |
//! |---|---|
//! | plan, unsupported | `SqlError`; `StateError` where a job that resumes is refused as a whole |
//! | data | `DataError` |
//! | user | `FunctionError`, caused by the exception that the function raised |
//! | cancelled, I/O, resource, internal | `Error` |

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use thalweg::{Error, ErrorKind};
use thalweg_plan::diagnostic::render;

use crate::functions::take_exception;

/// An error of the engine on its way to Python, with the statements that it points into.
pub fn to_python(py: Python<'_>, error: &Error, sql: &str) -> PyErr {
    raise(py, class_of(error), error, ("<sql>", sql))
}

/// The same for a file, by its name and text.
pub fn of_file(py: Python<'_>, error: &Error, name: &str, text: &str) -> PyErr {
    raise(py, class_of(error), error, (name, text))
}

fn class_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Plan | ErrorKind::Unsupported => "SqlError",
        ErrorKind::Data => "DataError",
        ErrorKind::User => "FunctionError",
        _ => "Error",
    }
}

/// The same for a job that cannot resume from its snapshot: where no place in the text is at fault,
/// the state is.
pub fn of_resumed(py: Python<'_>, error: &Error, sql: &str) -> PyErr {
    let is_state = error.is_plan_error() || error.kind() == ErrorKind::Data;
    match is_state && error.span().is_none() {
        true => raise(py, "StateError", error, ("<sql>", sql)),
        false => to_python(py, error, sql),
    }
}

fn raise(py: Python<'_>, class: &str, error: &Error, source: (&str, &str)) -> PyErr {
    made(py, class, error, source).unwrap_or_else(|failure| failure)
}

fn made(py: Python<'_>, class: &str, error: &Error, (name, sql): (&str, &str)) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let span = error.span();
    fields.set_item("message", error.message())?;
    fields.set_item("kind", format!("{:?}", error.kind()).to_lowercase())?;
    fields.set_item("line", span.map(|span| span.line))?;
    fields.set_item("column", span.map(|span| span.column))?;
    let help = error.help().map(for_python);
    fields.set_item("help", &help)?;
    fields.set_item("file", error.file())?;
    fields.set_item("row", error.row())?;
    fields.set_item("operator", error.operator())?;
    fields.set_item("sql", sql)?;
    let text = render(error, name, sql, false);
    let text = match (error.help(), &help) {
        (Some(written), Some(help)) => text.replace(written, help),
        _ => text,
    };
    let text = text.trim_end().trim_start_matches("error: ");
    let class = classes(py)?.bind(py).getattr(class)?;
    let exception = PyErr::from_value(class.call((text,), Some(&fields))?);
    if let Some(cause) = take_exception(py, error.message()) {
        exception.set_cause(py, Some(cause));
    }
    Ok(exception)
}

/// A hint that names an option of the command line names the argument of `start` in its place.
fn for_python(help: &str) -> String {
    const INSTEAD: [(&str, &str); 3] = [
        ("--resume", "`resume=True`"),
        ("--overwrite", "`overwrite=True`"),
        ("--drop-state", "`drop_state=True`"),
    ];
    INSTEAD.iter().fold(help.to_owned(), |help, (option, instead)| help.replace(option, instead))
}

/// The module with the classes.
fn classes(py: Python<'_>) -> PyResult<&'static Py<PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE.get_or_try_init(py, || Ok(py.import("thalweg.errors")?.unbind()))
}
