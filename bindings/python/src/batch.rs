//! Rows and columns on their way out: objects with Arrow's PyCapsule interface.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch as Batch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType as Arrow, Field, FieldRef, Schema, SchemaRef};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use pyo3_arrow::PyRecordBatchReader;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};
use thalweg::RowKind;

use crate::values::{column_values, rows_of};

/// Some rows of a result, as Arrow arrays.
#[pyclass(frozen, module = "thalweg")]
pub struct RecordBatch {
    batch: Batch,
    kinds: Option<Vec<RowKind>>,
}

impl RecordBatch {
    /// Rows, and what each of them does to the result where not all are new.
    pub fn new(batch: Batch, kinds: Option<Vec<RowKind>>) -> Self {
        RecordBatch { batch, kinds }
    }
}

#[pymethods]
impl RecordBatch {
    /// How many rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }
    /// How many columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.batch.num_columns()
    }
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }
    /// What each row does: "+I", "-U", "+U" or "-D".
    #[getter]
    fn kinds(&self) -> Vec<&'static str> {
        match &self.kinds {
            None => vec!["+I"; self.batch.num_rows()],
            Some(kinds) => kinds.iter().copied().map(kind_text).collect(),
        }
    }
    /// A column by its name or number.
    fn column(&self, which: &Bound<'_, PyAny>) -> PyResult<Array> {
        let number = match which.extract::<usize>() {
            Ok(number) if number < self.batch.num_columns() => number,
            Ok(number) => {
                return Err(PyIndexError::new_err(format!("there is no column {number}")));
            }
            Err(_) => {
                let name: String = which.extract()?;
                let schema = self.batch.schema_ref();
                schema.index_of(&name).map_err(|_| PyKeyError::new_err(name))?
            }
        };
        Ok(Array(Arc::clone(self.batch.column(number))))
    }
    /// The rows as tuples of Python values.
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        rows_of(py, &self.batch, &list)?;
        Ok(list)
    }
    /// Some of the rows, without a copy: from `offset` on, at most `length`.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: usize, length: Option<usize>) -> RecordBatch {
        let offset = offset.min(self.batch.num_rows());
        let rest = self.batch.num_rows() - offset;
        let length = length.unwrap_or(rest).min(rest);
        let kinds = self.kinds.as_ref().map(|kinds| kinds[offset..offset + length].to_vec());
        RecordBatch { batch: self.batch.slice(offset, length), kinds }
    }
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        let field = struct_field(self.batch.schema_ref());
        let array = StructArray::from(self.batch.clone());
        to_array_pycapsules(py, field, &array, requested_schema)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.batch.schema_ref().as_ref())
    }
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }
    fn __repr__(&self) -> String {
        let fields = self.batch.schema_ref().fields();
        let columns: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        format!("<thalweg.RecordBatch of {} rows: {}>", self.batch.num_rows(), columns.join(", "))
    }
}

/// A column.
#[pyclass(frozen, module = "thalweg")]
pub struct Array(pub ArrayRef);

#[pymethods]
impl Array {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        let field = Arc::new(Field::new("", self.0.data_type().clone(), true));
        to_array_pycapsules(py, field, &self.0, requested_schema)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.0.data_type())
    }
    /// The values as Python has them.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, column_values(py, &self.0)?)
    }
    fn __len__(&self) -> usize {
        self.0.len()
    }
    fn __repr__(&self) -> String {
        format!("<thalweg.Array of {} values: {}>", self.0.len(), self.0.data_type())
    }
}

/// Batches as one capsule, which reads them when it is asked.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<Batch, ArrowError>> + Send + 'static,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyArrowResult<Bound<'py, PyCapsule>> {
    let arrays = batches.map(|batch| Ok(Arc::new(StructArray::from(batch?)) as ArrayRef));
    let reader = ArrayIterator::new(arrays, struct_field(schema));
    to_stream_pycapsule(py, Box::new(reader), requested_schema)
}

/// The batches of anything that has Arrow's PyCapsule interface.
pub fn reader_of(given: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    // A table that could also be one array is read as the table.
    match given.hasattr("__arrow_c_stream__")? {
        true => given.extract::<PyRecordBatchReader>()?.into_reader(),
        false => given.extract::<pyo3_arrow::input::AnyRecordBatch>()?.into_reader(),
    }
}

fn struct_field(schema: &Schema) -> FieldRef {
    Arc::new(Field::new("", Arrow::Struct(schema.fields().clone()), false))
}

fn kind_text(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Insert => "+I",
        RowKind::UpdateBefore => "-U",
        RowKind::UpdateAfter => "+U",
        RowKind::Delete => "-D",
    }
}
