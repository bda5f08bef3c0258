//! Functions of Python as scalar functions of SQL.
//!
//! The decorator (`thalweg/functions.py`) reads the hints and wraps the function, so that it takes
//! and returns what is decided here:
//!
//! - **vectors**: an [`Array`] for each argument in, anything with Arrow's PyCapsule interface out,
//!   of the same length and of the declared type;
//! - **rows**: values in, a value out, called for each row.
//!
//! What a function raises fails the job. The exception is kept, so that the one that Python sees
//! has it as its cause, with the traceback into the user's file.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array as _, ArrayRef, UInt32Array};
use arrow_select::concat::concat;
use arrow_select::take::take;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};
use thalweg::session::ScalarFunction;
use thalweg::{DataType, Error, Result};

use crate::batch::Array;
use crate::types::{declared, engine_array, sql_type};
use crate::values::{column_of, column_values};

/// A function as it was registered.
pub struct PythonFunction {
    /// The name by which SQL calls it.
    pub name: String,
    /// What is called.
    pub call: Py<PyAny>,
    /// The type of its result.
    pub result: DataType,
    /// It is called for each row.
    pub by_rows: bool,
    /// Which arguments are never None: where one is NULL, so is the result, without a call.
    pub strict: Vec<bool>,
    /// True if the result can be None.
    pub is_nullable: bool,
}

impl PythonFunction {
    /// The same for a session.
    pub fn into_scalar(self, arguments: Vec<DataType>, deterministic: bool) -> ScalarFunction {
        let (name, result) = (self.name.clone(), self.result.clone().nullable());
        let function = Arc::new(move |arrays: &[ArrayRef], rows: usize| self.apply(arrays, rows));
        ScalarFunction { name, arguments, result, deterministic, function }
    }

    fn apply(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let applied = Python::try_attach(|py| match self.by_rows {
            true => self.apply_rows(py, arrays, rows),
            false => self.apply_vectors(py, arrays, rows),
        });
        applied.ok_or_else(|| Error::io("Python is about to end"))?
    }

    fn apply_vectors(&self, py: Python<'_>, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let arguments = arrays.iter().map(|array| Array(Arc::clone(array)));
        let arguments =
            arguments.map(|array| Ok(Py::new(py, array)?.into_any())).collect::<PyResult<Vec<_>>>();
        let fail = |error| failed(py, &self.name, error);
        let arguments = PyTuple::new(py, arguments.map_err(fail)?).map_err(fail)?;
        let returned = self.call.bind(py).call1(arguments).map_err(fail)?;
        if let Ok(list) = returned.cast::<PyList>() {
            return self.column_of_list(list, rows);
        }
        let array = array_of(&returned).map_err(fail)?;
        self.checked(array, rows)
    }

    /// A result that is a list of values: that of an aggregate function.
    fn column_of_list(&self, list: &Bound<'_, PyList>, rows: usize) -> Result<ArrayRef> {
        let values: Vec<_> = list.iter().collect();
        let array = column_of(&values, &self.result).map_err(|(row, error)| {
            let value = values.get(row).map(|value| format!(" {}", shown(value)));
            let value = value.unwrap_or_default();
            let (name, result) = (&self.name, &self.result);
            Error::user(format!("{name} returned{value} where {result} is declared: {error}"))
        })?;
        self.checked(array, rows)
    }

    /// A result that has the declared type and as many values as there are rows.
    fn checked(&self, array: ArrayRef, rows: usize) -> Result<ArrayRef> {
        let name = &self.name;
        if array.len() != rows {
            return Err(Error::user(format!("{name} returned {} values for {rows} rows", array.len()))
                .hint("a function over vectors returns one value for each row; rows=True calls it for each"));
        }
        let returned = sql_type(array.data_type());
        if returned.as_ref().is_none_or(|found| !fits(found, &self.result)) {
            let found =
                returned.map_or_else(|| array.data_type().to_string(), |found| found.to_string());
            return Err(Error::user(format!(
                "{name} returned {found} where {} is declared",
                self.result
            ))
            .hint("cast the result, or declare the type that it has"));
        }
        Ok(engine_array(&array, &self.result)?)
    }

    fn apply_rows(&self, py: Python<'_>, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let called = self.called_rows(arrays, rows)?;
        let chosen: Vec<ArrayRef> = match &called {
            None => arrays.to_vec(),
            Some(called) => {
                arrays.iter().map(|array| Ok(take(array, called, None)?)).collect::<Result<_>>()?
            }
        };
        let count = called.as_ref().map_or(rows, arrow_array::Array::len);
        let results = self.call_each(py, &chosen, count)?;
        let array = column_of(&results, &self.result).map_err(|(row, error)| {
            let value = results.get(row).map(|value| format!(" {}", shown(value)));
            let what = format!("{} returned{}", self.name, value.unwrap_or_default());
            let text = format!("{what} where {} is declared: {error}", self.result);
            Error::user(text + &self.arguments_at(py, &chosen, row))
        })?;
        let Some(called) = called else { return Ok(array) };
        // Rows that were not called are NULL.
        let mut places: Vec<Option<u32>> = vec![None; rows];
        for (place, &row) in (0u32..).zip(called.values()) {
            places[row as usize] = Some(place);
        }
        Ok(take(&array, &UInt32Array::from(places), None)?)
    }

    /// The rows whose strict arguments are not NULL; `None` for all.
    fn called_rows(&self, arrays: &[ArrayRef], rows: usize) -> Result<Option<UInt32Array>> {
        let strict = || {
            arrays.iter().zip(&self.strict).filter(|(_, strict)| **strict).map(|(array, _)| array)
        };
        if strict().all(|array| array.null_count() == 0) {
            return Ok(None);
        }
        let called = |row: &u32| strict().all(|array| array.is_valid(*row as usize));
        let rows =
            u32::try_from(rows).map_err(|_| Error::internal("a bundle with too many rows"))?;
        Ok(Some((0..rows).filter(called).collect()))
    }

    /// Calls it for each row. `map` calls a function faster than anything outside of the
    /// interpreter can.
    fn call_each<'py>(
        &self,
        py: Python<'py>,
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<Bound<'py, PyAny>>> {
        let fail = |error| failed(py, &self.name, error);
        let mut results = Vec::with_capacity(rows);
        let mut add = |result: PyResult<Bound<'py, PyAny>>| {
            let row = results.len();
            let result = result.map_err(|error| {
                failed_with(py, &self.name, error, &self.arguments_at(py, arrays, row))
            })?;
            if result.is_none() && !self.is_nullable {
                let text = format!("{} returned None where {} is declared", self.name, self.result);
                return Err(Error::user(text + &self.arguments_at(py, arrays, row)).hint(
                    "a function that may return None has a hint that says so: `-> str | None`",
                ));
            }
            results.push(result);
            Ok(())
        };
        if arrays.is_empty() {
            (0..rows).try_for_each(|_| add(self.call.bind(py).call0()))?;
            return Ok(results);
        }
        for result in self.mapped(py, arrays).map_err(fail)? {
            add(result)?;
        }
        Ok(results)
    }

    fn mapped<'py>(
        &self,
        py: Python<'py>,
        arrays: &[ArrayRef],
    ) -> PyResult<Bound<'py, PyIterator>> {
        let mut given = vec![self.call.bind(py).clone()];
        for array in arrays {
            given.push(PyList::new(py, column_values(py, array)?)?.into_any());
        }
        let map = py.import("builtins")?.getattr("map")?;
        map.call1(PyTuple::new(py, given)?)?.try_iter()
    }

    /// What a row was called with, for messages.
    fn arguments_at(&self, py: Python<'_>, arrays: &[ArrayRef], row: usize) -> String {
        let value = |array: &ArrayRef| {
            let values = column_values(py, &array.slice(row.min(array.len() - 1), 1)).ok()?;
            Some(shown(values.first()?))
        };
        let values: Vec<String> = arrays.iter().filter_map(value).collect();
        format!(", called with ({})", values.join(", "))
    }
}

/// A type that is declared takes another whose values it has all of, in the same layout.
fn fits(found: &DataType, declared: &DataType) -> bool {
    match (found, declared) {
        (DataType::Timestamp(_), DataType::Timestamp(_))
        | (DataType::TimestampLtz(_), DataType::TimestampLtz(_)) => {
            found.arrow() == declared.arrow()
        }
        _ if found.is_string() && declared.is_string() => true,
        _ if found.is_binary() && declared.is_binary() => true,
        _ => found == declared || found.arrow() == declared.arrow(),
    }
}

/// The one array of anything with Arrow's PyCapsule interface.
fn array_of(returned: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let chunked = returned.extract::<pyo3_arrow::input::AnyArray>()?.into_chunked_array()?;
    let (chunks, field) = chunked.into_inner();
    match chunks.as_slice() {
        [] => Ok(arrow_array::new_empty_array(field.data_type())),
        [one] => Ok(Arc::clone(one)),
        several => {
            let several: Vec<&dyn arrow_array::Array> = several.iter().map(AsRef::as_ref).collect();
            concat(&several)
                .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
        }
    }
}

/// The SQL type of values of an array, or of a type, of Arrow.
#[pyfunction]
pub fn sql_type_of(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let arrow = match given.extract::<pyo3_arrow::PyDataType>() {
        Ok(data_type) => data_type.into_inner(),
        Err(_) => given.extract::<pyo3_arrow::input::AnyArray>()?.field()?.data_type().clone(),
    };
    let found = sql_type(&arrow).map(|found| declared(&found));
    found.ok_or_else(|| {
        PyTypeError::new_err(format!("SQL has no type for values of Arrow's {arrow}"))
    })
}

/// A value as messages show it.
fn shown(value: &Bound<'_, PyAny>) -> String {
    const CHARACTERS_MAX: usize = 80;
    let Ok(text) = value.repr() else { return "?".to_owned() };
    let text = text.to_string();
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Exceptions that errors of the engine speak of, by message; those that nobody asked for go first.
static RAISED: Mutex<Vec<(String, PyErr)>> = Mutex::new(Vec::new());
const RAISED_MAX: usize = 16;

/// The error of a function that raised.
pub fn failed(py: Python<'_>, name: &str, exception: PyErr) -> Error {
    failed_with(py, name, exception, "")
}

fn failed_with(py: Python<'_>, name: &str, exception: PyErr, arguments: &str) -> Error {
    let class = exception
        .get_type(py)
        .name()
        .map_or_else(|_| "exception".to_owned(), |name| name.to_string());
    let place = line_of(py, &exception).map(|place| format!(" at {place}")).unwrap_or_default();
    let message = format!("{name} raised {class}: {}{place}{arguments}", exception.value(py));
    let mut raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    if raised.len() == RAISED_MAX {
        raised.remove(0);
    }
    raised.push((message.clone(), exception));
    Error::user(message)
}

/// The innermost line of a traceback.
fn line_of(py: Python<'_>, exception: &PyErr) -> Option<String> {
    // What was raised in a process of its own says where.
    if let Ok(place) = exception.value(py).getattr("_thalweg_place") {
        return place.extract().ok();
    }
    let mut traceback = exception.traceback(py)?.into_any();
    while let Ok(next) = traceback.getattr("tb_next")
        && !next.is_none()
    {
        traceback = next;
    }
    let code = traceback.getattr("tb_frame").ok()?.getattr("f_code").ok()?;
    let line: u32 = traceback.getattr("tb_lineno").ok()?.extract().ok()?;
    Some(format!("{}:{line}", code.getattr("co_filename").ok()?.extract::<String>().ok()?))
}

/// The exception that an error speaks of, whose message the engine may have added to.
pub fn take_exception(_py: Python<'_>, message: &str) -> Option<PyErr> {
    let mut raised = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let place = raised.iter().rposition(|(of, _)| message.contains(of))?;
    Some(raised.remove(place).1)
}
