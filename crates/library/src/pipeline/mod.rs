//! Pipelines in Rust: the same engine without SQL, with closures over Arrow batches.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{Int64Array, RecordBatch, cast::AsArray, types::Int64Type};
//! use thalweg::pipeline::{Collect, MemorySource, Pipeline, Window, count};
//! use thalweg::{Column, DataType, RunOptions, TableSchema};
//!
//! // Readings of two sensors: (time in ms, sensor).
//! let schema = TableSchema::new(vec![
//!     Column::new("ts", DataType::Timestamp(3).not_null()),
//!     Column::new("sensor", DataType::BigInt.not_null()),
//! ]);
//! let times = arrow_array::TimestampMillisecondArray::from(vec![100, 900, 1200, 700]);
//! let sensors = Int64Array::from(vec![1, 2, 1, -1]);
//! let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(times), Arc::new(sensors)])?;
//!
//! let pipeline = Pipeline::new();
//! let results = Collect::new();
//! pipeline
//!     .read("readings", MemorySource::new(schema.clone(), vec![batch]), schema)
//!     .watermark("ts", 0)?
//!     .filter("real sensors", |batch| {
//!         let sensors = batch.column(1).as_primitive::<Int64Type>();
//!         Ok(sensors.iter().map(|sensor| sensor.map(|s| s > 0)).collect())
//!     })
//!     .window(Window::tumbling(1000), "ts")?
//!     .key_by(&["sensor"])?
//!     .aggregate(vec![count().named("readings")])?
//!     .write("results", results.sink());
//! let report = pipeline.run(RunOptions::default())?;
//! assert_eq!(report.metrics.rows_in(), 4);
//! assert_eq!(results.num_rows(), 3);
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! A [`Pipeline`] is a list of stages; a [`Stream`] is a handle to the rows that leave one of them.
//! Consecutive stateless steps are fused into one stage. Streams are joined ([`Stream::join`]) and
//! aggregated together ([`KeyedWindows::co_aggregate`]). Nothing runs until [`Pipeline::run`] or
//! [`Pipeline::start`]; [`Pipeline::run_job`] and [`Pipeline::start_job`] take snapshots and resume
//! from them.

mod build;
mod co_aggregate;
mod count_window;
mod identity;
mod job;
mod join;
mod memory;
mod stream;
mod tables;
mod window;

pub use build::Pipeline;
pub use count_window::{CountWindow, CountWindowedStream};
pub use job::{JobObserver, JobOptions, PipelineJob, run_with_restarts};
pub use join::{JoinKind, StreamJoin};
pub use memory::{Changes, Collect, MemorySource};
pub use stream::{Source as StreamSource, Stream};
pub use window::{
    Aggregate, KeyedWindows, Late, Window, WindowedStream, aggregate, average, count,
    count_distinct, first_value, last_value, maximum, minimum, sum,
};
