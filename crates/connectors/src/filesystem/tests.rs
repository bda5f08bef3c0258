//! Tests over whole sources and sinks: what Flink answered to the same files, and that neither
//! threads, block sizes nor compression change a row.

mod bad_rows;
mod changed_inputs;
mod faulty;
mod faulty_store;
mod following;
mod golden;
mod needed;
mod objects;
#[cfg(feature = "orc")]
mod orc;
mod partition_commit;
mod plain;
mod positions;
mod round_trip;
mod sources;
mod transactions;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, RecordBatch};
use chrono_tz::Tz;
use crossbeam_channel::bounded;
use thalweg_core::connector::{Source, SourcePoll, TableRequest};
use thalweg_core::text::append_value;
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use super::open_source;

/// Columns from `name type` pairs, with the types that the golden cases use.
fn schema(columns: &[(&str, DataType)]) -> TableSchema {
    TableSchema::new(
        columns.iter().map(|(name, t)| Column::new(*name, t.clone().nullable())).collect(),
    )
}

fn request(dir: &Path, schema: TableSchema, options: &[(&str, &str)]) -> TableRequest {
    let mut all = vec![("connector", "filesystem"), ("format", "csv"), ("path", "in.csv")];
    all.extend_from_slice(options);
    TableRequest {
        table: "t".to_string(),
        schema,
        options: all.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        base_dir: dir.to_path_buf(),
        allowed_roots: vec![dir.to_path_buf()],
        parallelism: 2,
        ..TableRequest::default()
    }
}

/// Polls a source to its end. A wake-up that does not come fails the test.
fn drain(source: &mut dyn Source, rows_max: usize) -> Result<Vec<RecordBatch>> {
    let (wake, woken) = bounded(1);
    source.start(Arc::new(move || {
        let _ = wake.try_send(());
    }))?;
    source.open()?;
    let mut batches = Vec::new();
    loop {
        match source.poll(rows_max)? {
            SourcePoll::Batch(batch) => {
                assert!(batch.batch.num_rows() <= rows_max);
                batches.push(batch.batch);
            }
            SourcePoll::Pending => woken.recv_timeout(Duration::from_secs(20)).expect("a wake-up"),
            SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
            SourcePoll::End => {
                source.finish()?;
                return Ok(batches);
            }
        }
    }
}

/// All rows as texts; NULL is `\N`.
fn texts(batches: &[RecordBatch], schema: &TableSchema) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |(array, column): (&Arc<dyn Array>, &Column)| {
                if array.is_null(row) {
                    return "\\N".to_string();
                }
                let mut text = String::new();
                append_value(&mut text, array, row, &column.column_type.data_type, Tz::UTC);
                text
            };
            rows.push(batch.columns().iter().zip(&schema.columns).map(cell).collect());
        }
    }
    rows
}

fn read_with(request: &TableRequest, block_bytes: Option<usize>) -> Result<Vec<Vec<String>>> {
    let mut source = open_source(request, block_bytes)?;
    Ok(texts(&drain(&mut source, 1_000)?, &request.delivered()))
}

fn read(request: &TableRequest) -> Result<Vec<Vec<String>>> {
    read_with(request, None)
}

fn read_text(
    text: &str,
    columns: &[(&str, DataType)],
    options: &[(&str, &str)],
) -> Result<Vec<Vec<String>>, Error> {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), text).expect("written");
    read(&request(dir.path(), schema(columns), options))
}
