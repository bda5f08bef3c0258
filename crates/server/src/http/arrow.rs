//! Answers as a stream of Arrow, for programs that ask for one.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use thalweg_connectors::output::arrow_stream;
use thalweg_core::{Column, DataType, Error, RowKind, TableSchema};

use crate::problem::Outcome;

/// The media type of such an answer.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// True if a client asks for Arrow.
pub fn wants_arrow(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains(ARROW_STREAM))
}

/// Batches with these columns as an answer.
pub fn arrow_answer(schema: &TableSchema, batches: &[RecordBatch]) -> Outcome<Response> {
    let bytes = arrow_stream(&schema.arrow(), batches)?;
    let headers = [(header::CONTENT_TYPE, ARROW_STREAM), (header::VARY, "accept")];
    Ok((headers, bytes).into_response())
}

/// Columns behind one that says what each row does.
pub fn with_kinds(schema: &TableSchema) -> TableSchema {
    let op = Column::new("op", DataType::STRING.not_null());
    TableSchema::new(std::iter::once(op).chain(schema.columns.iter().cloned()).collect())
}

/// Rows behind what each of them does, with the columns of [`with_kinds`].
pub fn batch_with_kinds(
    schema: &TableSchema,
    batch: &RecordBatch,
    kinds: Option<&[RowKind]>,
) -> Outcome<RecordBatch> {
    let kind = |row: usize| kinds.map_or(RowKind::Insert, |kinds| kinds[row]).short();
    let kinds: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..batch.num_rows()).map(kind)));
    let columns = std::iter::once(kinds).chain(batch.columns().iter().cloned());
    Ok(RecordBatch::try_new(schema.arrow(), columns.collect()).map_err(Error::from)?)
}
