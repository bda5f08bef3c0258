//! Windows of a number of rows in the builder.

use std::sync::Arc;

use thalweg_core::{Operator, Result};
use thalweg_operators::window::{CountWindowAggregate, CountWindowSpec};

use super::build::NodeKind;
use super::stream::Stream;
use super::window::{Aggregate, identity};

/// Windows of a number of rows of a key, as `countWindow` of Flink's DataStream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountWindow {
    size: u64,
    slide: u64,
}

impl CountWindow {
    /// Windows of `rows` rows side by side. A key's state goes with its window.
    pub fn tumbling(rows: u64) -> Self {
        CountWindow { size: rows, slide: rows }
    }
    /// After each `slide` rows of a key the last `size` of them; the first windows of a key may
    /// have fewer. Each row is added to `size / slide` windows, and keys are kept for ever.
    pub fn sliding(size: u64, slide: u64) -> Self {
        CountWindow { size, slide }
    }
}

/// A stream with windows of a number of rows, not grouped by key yet.
pub struct CountWindowedStream {
    stream: Stream,
    window: CountWindow,
    keys: Vec<usize>,
    name: Option<String>,
}

impl CountWindowedStream {
    pub(super) fn new(stream: Stream, window: CountWindow) -> Self {
        CountWindowedStream { stream, window, keys: Vec::new(), name: None }
    }

    /// Names the windows: under this name they are found again in snapshots, where others of the
    /// pipeline compute the same.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Counts the rows of each key apart.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn key_by(mut self, columns: &[&str]) -> Result<Self> {
        self.keys = columns.iter().map(|name| self.stream.column(name)).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Aggregates the rows of each window. The columns are the keys and the aggregates; a result
    /// leaves with the row that completes its window, and a window that no row completes leaves
    /// nothing.
    ///
    /// # Errors
    /// If a length of the windows is 0, or an aggregate names no column or does not take its type.
    pub fn aggregate(self, aggregates: Vec<Aggregate>) -> Result<Stream> {
        let CountWindowedStream { stream, window: CountWindow { size, slide }, keys, name } = self;
        stream.check_inserts("a count window")?;
        let (pipeline, input) = (stream.pipeline.clone(), stream.schema.clone());
        let calls = aggregates.iter().map(|a| a.call(&stream)).collect::<Result<Vec<_>>>()?;
        let windows = format!("count {size} by {slide}");
        let computes = identity(&windows, (&keys, &aggregates), &input);
        let spec = CountWindowSpec { size, slide, keys, aggregates: calls, input };
        let operator = CountWindowAggregate::new(spec)?;
        let output = operator.output_schema().clone();
        let name = name.unwrap_or_else(|| operator.name());
        let kind = NodeKind::Operator(Arc::new(operator));
        let from = pipeline.add_computing((&name, computes), kind, vec![stream.flush()]);
        Ok(Stream::new(pipeline, from, output))
    }
}
