//! A handle to the rows that leave a stage, and the stateless steps.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use thalweg_core::graph::Input;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{ColumnType, DataType, Error, Operator, Result, Sink, TableSchema};
use thalweg_expr::{Expr, Scalar, Session, build};
use thalweg_operators::assigner::AssignerSpec;
use thalweg_operators::chain::Step;

use super::build::{NodeKind, Pipeline};
use super::count_window::{CountWindow, CountWindowedStream};
use super::window::{KeyedWindows, Window, WindowedStream};

/// The trait of sources, under a name that does not clash with [`std::error::Error::source`].
pub use thalweg_core::Source;

/// Rows with a schema, on their way through a pipeline.
#[derive(Clone)]
pub struct Stream {
    pub(crate) pipeline: Pipeline,
    pub(crate) schema: TableSchema,
    pub(crate) from: Input,
    /// Stateless steps that are not a stage yet.
    steps: Vec<Step>,
    names: Vec<String>,
    /// Its rows may be updated and retracted later.
    pub(super) has_updates: bool,
}

impl Pipeline {
    /// Adds a source. `schema` names the columns that it delivers.
    pub fn read(&self, name: &str, source: impl Source + 'static, schema: TableSchema) -> Stream {
        let kind = NodeKind::Source { source: Box::new(source), watermark: None };
        Stream::new(self.clone(), self.add(name, kind, Vec::new()), schema)
    }

    /// Puts an operator behind edges, whose rows it takes as those of one stream.
    pub(crate) fn join_edges(
        &self,
        edges: Vec<Input>,
        operator: Arc<dyn Operator>,
        schema: TableSchema,
    ) -> Stream {
        let from = self.add(&operator.name(), NodeKind::Operator(operator), edges);
        Stream::new(self.clone(), from, schema)
    }
}

impl Stream {
    pub(crate) fn new(pipeline: Pipeline, from: Input, schema: TableSchema) -> Self {
        Stream { pipeline, schema, from, steps: Vec::new(), names: Vec::new(), has_updates: false }
    }

    /// The columns.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The position of a column; the error lists the columns that there are.
    pub(super) fn column(&self, name: &str) -> Result<usize> {
        self.schema.index_of(name).ok_or_else(|| {
            let names: Vec<_> = self.schema.columns.iter().map(|c| c.name.as_str()).collect();
            Error::plan(format!("there is no column '{name}'; there are {}", names.join(", ")))
        })
    }

    /// The same as a changelog, if it is one.
    pub(super) fn with_updates(self, has_updates: bool) -> Self {
        Stream { has_updates, ..self }
    }

    /// True if its rows may be updated and retracted by later ones: the result of a join that pads
    /// rows before their partner comes. Sinks are given the kinds of such rows; windows, joins
    /// within a time and operators over rows do not take them.
    pub fn has_updates(&self) -> bool {
        self.has_updates
    }

    /// Refuses a changelog.
    pub(crate) fn check_inserts(&self, what: &str) -> Result<()> {
        if !self.has_updates {
            return Ok(());
        }
        Err(Error::plan(format!(
            "{what} takes rows that stay, and those of this stream are updated"
        ))
        .hint("join within a time or by windows, or write the changes"))
    }

    /// Declares the row time of a source: no row comes later than `delay_ms` behind the newest one.
    ///
    /// # Errors
    /// If this is not the stream of a source without steps, or the column is no timestamp.
    pub fn watermark(self, column: &str, delay_ms: i64) -> Result<Stream> {
        self.watermark_from(column, column, delay_ms)
    }

    /// Declares the row time of a source, and another timestamp column that shows how far time has
    /// come: each row establishes a watermark `delay_ms` before the value of `clock` in it. For
    /// rows that carry both when something was due and when it was reported.
    ///
    /// # Errors
    /// If this is not the stream of a source without steps, or a column is no timestamp.
    pub fn watermark_from(self, column: &str, clock: &str, delay_ms: i64) -> Result<Stream> {
        let clock = self.column(clock)?;
        let clock_type = self.schema.columns[clock].column_type.clone();
        let delay = Expr::literal(Scalar::Integer(delay_ms), DataType::IntervalDayTime.not_null());
        let time = Expr::column(clock, clock_type);
        let minus = build::binary(build::BinaryOp::Subtract, time, delay, &Session::default())?;
        self.watermark_by(column, minus)
    }

    /// Declares the row time of a source and the watermark that each row establishes, as an
    /// expression over the source's columns.
    ///
    /// # Errors
    /// If this is not the stream of a source without steps.
    pub fn watermark_by(self, column: &str, watermark: Expr) -> Result<Stream> {
        let rowtime = self.column(column)?;
        if !self.schema.columns[rowtime].column_type.data_type.is_timestamp() {
            return Err(Error::plan(format!("the row time '{column}' is not a timestamp")));
        }
        let mut nodes = self.pipeline.nodes.borrow_mut();
        let node = &mut nodes[self.from.from.0];
        let table = node.name.clone();
        match &mut node.kind {
            NodeKind::Source { watermark: declared, .. } if self.steps.is_empty() => {
                *declared = Some(AssignerSpec {
                    table,
                    computed: Vec::new(),
                    rowtime,
                    watermark,
                    interest: WatermarkInterest::EndOnly,
                    max_future_skew_ms: None,
                });
            }
            _ => return Err(Error::plan("a watermark is declared right after a source")),
        }
        drop(nodes);
        Ok(self)
    }

    /// Keeps the rows for which the closure answers true (not false, not null).
    #[must_use]
    pub fn filter(
        self,
        name: &str,
        keep: impl Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync + 'static,
    ) -> Stream {
        let schema = self.schema.clone();
        let step = Step::Select { name: name.to_owned(), function: Arc::new(keep) };
        self.step(name, schema, step)
    }

    /// Keeps the rows for which an expression is true.
    #[must_use]
    pub fn filter_by(self, name: &str, predicate: Expr) -> Stream {
        let schema = self.schema.clone();
        self.step(name, schema, Step::Filter(predicate))
    }

    /// Replaces the columns by expressions.
    #[must_use]
    pub fn project(self, name: &str, columns: Vec<(&str, Expr)>) -> Stream {
        let columns: Vec<_> = columns
            .into_iter()
            .map(|(name, e)| (thalweg_core::Column::new(name, e.column_type.clone()), e))
            .collect();
        let schema = TableSchema::new(columns.iter().map(|(column, _)| column.clone()).collect());
        self.step(name, schema, Step::Project(columns))
    }

    /// Turns each batch into one with as many rows and the given columns.
    #[must_use]
    pub fn map(
        self,
        name: &str,
        schema: TableSchema,
        function: impl Fn(RecordBatch) -> Result<RecordBatch> + Send + Sync + 'static,
    ) -> Stream {
        let step = Step::Custom { name: name.to_owned(), function: Arc::new(function) };
        self.step(name, schema, step)
    }

    /// Turns each batch into one with any number of rows. The closure also returns, for each row,
    /// the position of the row that it comes from, so that lateness stays exact.
    #[must_use]
    pub fn flat_map(
        self,
        name: &str,
        schema: TableSchema,
        function: impl Fn(&RecordBatch) -> Result<(RecordBatch, Vec<u32>)> + Send + Sync + 'static,
    ) -> Stream {
        let step = Step::FlatMap { name: name.to_owned(), function: Arc::new(function) };
        self.step(name, schema, step)
    }

    pub(super) fn step(mut self, name: &str, schema: TableSchema, step: Step) -> Stream {
        self.steps.push(step);
        self.names.push(name.to_owned());
        self.schema = schema;
        self
    }

    /// Puts the rows of several streams with equal columns together. Each row keeps being judged
    /// against the watermark of its own source.
    ///
    /// # Errors
    /// If the column types differ.
    pub fn union(self, others: Vec<Stream>) -> Result<Stream> {
        let (pipeline, schema) = (self.pipeline.clone(), self.schema.clone());
        let types = |schema: &TableSchema| -> Vec<ColumnType> {
            schema.columns.iter().map(|column| column.column_type.clone()).collect()
        };
        let (mut inputs, mut has_updates) = (Vec::new(), false);
        for stream in std::iter::once(self).chain(others) {
            if types(&stream.schema) != types(&schema) {
                return Err(Error::plan("the streams of a union have different columns"));
            }
            has_updates |= stream.has_updates;
            inputs.push(stream.flush());
        }
        let from = pipeline.add("union", NodeKind::Chain(Vec::new()), inputs);
        Ok(Stream::new(pipeline, from, schema).with_updates(has_updates))
    }

    /// Sends the rows through a stateful operator of one's own, which emits rows of this schema.
    #[must_use]
    pub fn operator(self, operator: Arc<dyn Operator>, schema: TableSchema) -> Stream {
        let pipeline = self.pipeline.clone();
        pipeline.join_edges(vec![self.flush()], operator, schema)
    }

    /// Cuts the stream into windows of the given row time column.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn window(self, window: Window, rowtime: &str) -> Result<WindowedStream> {
        self.check_inserts("a window")?;
        let rowtime = self.column(rowtime)?;
        Ok(WindowedStream::new(self, window, rowtime))
    }

    /// Groups all rows by these columns, for inputs that end: the aggregates of a key leave once,
    /// at the end. Their columns are the keys and the aggregates.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn group_by(self, columns: &[&str]) -> Result<KeyedWindows> {
        self.check_inserts("an aggregate of all rows")?;
        WindowedStream::new(self, Window::whole(), 0).key_by(columns)
    }

    /// Cuts the stream into windows of a number of rows.
    pub fn count_window(self, window: CountWindow) -> CountWindowedStream {
        CountWindowedStream::new(self, window)
    }

    /// Sends the rows to a sink.
    pub fn write(self, name: &str, sink: impl Sink + 'static) {
        let pipeline = self.pipeline.clone();
        let input = self.flush();
        pipeline.add(name, NodeKind::Sink(Box::new(sink)), vec![input]);
    }

    /// Makes a stage of the steps so far, so that clones of this stream share it.
    #[must_use]
    pub fn shared(self) -> Stream {
        let (pipeline, schema) = (self.pipeline.clone(), self.schema.clone());
        let has_updates = self.has_updates;
        Stream::new(pipeline, self.flush(), schema).with_updates(has_updates)
    }

    /// The stage that the rows come from, after the pending steps have become one.
    pub(crate) fn flush(self) -> Input {
        if self.steps.is_empty() {
            return self.from;
        }
        let name = self.names.join(" → ");
        self.pipeline.add(&name, NodeKind::Chain(self.steps), vec![self.from])
    }
}
