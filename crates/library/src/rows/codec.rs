//! Rows in batches: as values of a binary column, or as columns.
//!
//! **Invariant:** what [`RowWriter`] wrote is read back by [`Codec::Packed`] with the same type; a
//! stream of rows keeps its type, so nobody else reads it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, UInt32Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;
use arrow_select::take::{take, take_record_batch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thalweg_core::{Column, DataType, Error, ErrorKind, Result, TableSchema};

use super::Row;

/// The column of packed rows, always the last one.
const ROW_COLUMN: &str = "row";
/// The column of row times, where a source has them.
pub(super) const TIME_COLUMN: &str = "row_time";

/// How the rows of a stream are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// As values of the last column.
    Packed,
    /// One column per field.
    Columns,
}

/// The columns of packed rows.
pub(super) fn packed_schema(with_time: bool) -> TableSchema {
    let time = Column::new(TIME_COLUMN, DataType::Timestamp(3).not_null());
    let row = Column::new(ROW_COLUMN, DataType::BYTES.not_null());
    TableSchema::new(if with_time { vec![time, row] } else { vec![row] })
}

impl Codec {
    /// The rows of a batch, packed.
    pub(super) fn rows<T: Row>(self, batch: &RecordBatch) -> Result<ArrayRef> {
        if self == Codec::Packed {
            packed(batch)?;
            return Ok(Arc::clone(&batch.columns()[batch.num_columns() - 1]));
        }
        let mut writer = RowWriter::new();
        self.read::<T>(batch, None, |_, row| writer.push(&row))?;
        Ok(writer.column())
    }

    /// Calls `each` with every row, or every row at one of these places, and its place.
    pub(super) fn read<T: Row>(
        self,
        batch: &RecordBatch,
        places: Option<&[u32]>,
        mut each: impl FnMut(u32, T) -> Result<()>,
    ) -> Result<()> {
        match (self, places) {
            (Codec::Packed, None) => {
                let rows = packed(batch)?;
                (0..rows.len() as u32).try_for_each(|place| each(place, unpack(rows, place)?))
            }
            (Codec::Packed, Some(places)) => {
                let rows = packed(batch)?;
                places.iter().try_for_each(|&place| each(place, unpack(rows, place)?))
            }
            (Codec::Columns, None) => {
                let rows = from_columns::<T>(batch)?.into_iter().enumerate();
                rows.map(|(place, row)| (place as u32, row)).try_for_each(|(p, row)| each(p, row))
            }
            (Codec::Columns, Some(places)) => {
                let taken = take_record_batch(batch, &UInt32Array::from(places.to_vec()))?;
                let mut rows = places.iter().copied().zip(from_columns::<T>(&taken)?);
                rows.try_for_each(|(place, row)| each(place, row))
            }
        }
    }
}

pub(super) fn packed(batch: &RecordBatch) -> Result<&BinaryArray> {
    let column = batch.columns().last().and_then(|column| column.as_binary_opt::<i32>());
    column.ok_or_else(|| Error::internal("a stream of rows has no column of packed rows"))
}

/// The packed rows at these places, ascending.
pub(super) fn packed_at(batch: &RecordBatch, places: &[u32]) -> Result<ArrayRef> {
    let rows = packed(batch)?;
    match places.len() == rows.len() {
        true => Ok(Arc::new(rows.clone())),
        false => Ok(take(rows, &UInt32Array::from(places.to_vec()), None)?),
    }
}

pub(super) fn unpack<T: DeserializeOwned>(rows: &BinaryArray, place: u32) -> Result<T> {
    postcard::from_bytes(rows.value(place as usize)).map_err(|error| {
        let name = std::any::type_name::<T>();
        Error::new(ErrorKind::User, format!("a row of type {name} cannot be read back: {error}"))
            .hint("rows are written without field names: a type whose Deserialize asks what comes next (untagged enums, flattened or skipped fields) does not fit")
    })
}

fn from_columns<T: Row>(batch: &RecordBatch) -> Result<Vec<T>> {
    serde_arrow::from_record_batch(batch).map_err(|error| {
        let name = std::any::type_name::<T>();
        Error::new(ErrorKind::User, format!("columns do not fit rows of type {name}: {error}"))
            .hint("fields are found by their names, and a column that can be null needs an Option")
    })
}

fn cannot_write<T>(why: &str) -> Error {
    let name = std::any::type_name::<T>();
    Error::new(ErrorKind::User, format!("a row of type {name} cannot be written: {why}"))
}

/// Makes columns of the rows of a batch.
pub(super) fn into_columns<T: Row>(
    codec: Codec,
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut rows: Vec<T> = Vec::with_capacity(batch.num_rows());
    codec.read(batch, None, |_, row| {
        rows.push(row);
        Ok(())
    })?;
    serde_arrow::to_record_batch(schema.fields(), &rows).map_err(|error| {
        let name = std::any::type_name::<T>();
        Error::new(ErrorKind::User, format!("rows of type {name} do not fit the columns: {error}"))
    })
}

/// Packs rows into a column.
pub(super) struct RowWriter {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl RowWriter {
    pub(super) fn new() -> Self {
        RowWriter { bytes: Vec::new(), ends: vec![0] }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// How many bytes the rows take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row.
    pub(super) fn push<T: Serialize>(&mut self, row: &T) -> Result<()> {
        self.bytes = postcard::to_extend(row, std::mem::take(&mut self.bytes))
            .map_err(|error| cannot_write::<T>(&error.to_string()))?;
        self.end::<T>()
    }

    /// Adds a row whose bytes are these, one behind the other.
    pub(super) fn push_bytes<T>(&mut self, parts: &[&[u8]]) -> Result<()> {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.end::<T>()
    }

    fn end<T>(&mut self) -> Result<()> {
        let too_much = |_| cannot_write::<T>("the rows made of one bundle take more than 2 GiB");
        self.ends.push(i32::try_from(self.bytes.len()).map_err(too_much)?);
        Ok(())
    }

    /// The rows so far as a column.
    pub(super) fn column(&mut self) -> ArrayRef {
        let bytes = std::mem::take(&mut self.bytes);
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Arc::new(BinaryArray::new(offsets, bytes.into(), None))
    }

    /// The rows so far as a batch with this schema, behind other columns.
    pub(super) fn finish(
        &mut self,
        schema: &SchemaRef,
        before: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let columns = before.into_iter().chain([self.column()]).collect();
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}
