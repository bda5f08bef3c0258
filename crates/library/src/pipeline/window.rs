//! Windows and their aggregates in the builder.

use std::sync::Arc;

use thalweg_core::graph::Input;
use thalweg_core::{ColumnType, Operator, Result, TableSchema};
use thalweg_operators::aggregate::{self, AggregateCall};
use thalweg_operators::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec,
};

use super::build::NodeKind;
use super::stream::Stream;

/// How rows are put into windows of event time.
pub use thalweg_operators::window::WindowKind as Window;

/// What becomes of rows that come after all their windows have been closed. They are counted in
/// any case.
pub type Late = LatePolicy;

/// One aggregate over the rows of a window and key.
#[derive(Clone, Debug)]
pub struct Aggregate {
    function: String,
    column: Option<String>,
    distinct: bool,
    filter: Option<String>,
    name: Option<String>,
}

/// Any aggregate by its SQL name.
pub fn aggregate(function: &str, column: Option<&str>) -> Aggregate {
    Aggregate {
        function: function.to_owned(),
        column: column.map(str::to_owned),
        distinct: false,
        filter: None,
        name: None,
    }
}

/// How many rows.
pub fn count() -> Aggregate {
    aggregate("COUNT", None)
}
/// How many different values.
pub fn count_distinct(column: &str) -> Aggregate {
    Aggregate { distinct: true, ..aggregate("COUNT", Some(column)) }
}
/// The sum.
pub fn sum(column: &str) -> Aggregate {
    aggregate("SUM", Some(column))
}
/// The mean, of the column's own type: that of integers is an integer.
pub fn average(column: &str) -> Aggregate {
    aggregate("AVG", Some(column))
}
/// The smallest value.
pub fn minimum(column: &str) -> Aggregate {
    aggregate("MIN", Some(column))
}
/// The largest value.
pub fn maximum(column: &str) -> Aggregate {
    aggregate("MAX", Some(column))
}
/// The value that arrived first.
pub fn first_value(column: &str) -> Aggregate {
    aggregate("FIRST_VALUE", Some(column))
}
/// The value that arrived last.
pub fn last_value(column: &str) -> Aggregate {
    aggregate("LAST_VALUE", Some(column))
}

impl Aggregate {
    /// Names the result column.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
    /// Takes only rows for which this BOOLEAN column is true.
    #[must_use]
    pub fn filter(self, column: &str) -> Self {
        Self { filter: Some(column.to_owned()), ..self }
    }

    /// The columns that it reads.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.column.iter().chain(&self.filter).map(String::as_str)
    }

    /// The same over columns of other names, of rows for which `flag` is true if it has no filter.
    pub(super) fn renamed(self, rename: impl Fn(&str) -> String, flag: &str) -> Self {
        let name = Some(self.result_name());
        let column = self.column.as_deref().map(&rename);
        let filter = Some(self.filter.as_deref().map_or_else(|| flag.to_owned(), rename));
        Aggregate { column, filter, name, ..self }
    }

    /// The name of the result column.
    pub(super) fn result_name(&self) -> String {
        let column = self.column.as_deref().unwrap_or("rows");
        self.name.clone().unwrap_or_else(|| format!("{}_{column}", self.function.to_lowercase()))
    }

    /// What the state of it depends on.
    pub(super) fn identity(&self, schema: &TableSchema) -> String {
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        let column = self.column.iter().map(|name| column_text(schema, name));
        let filter =
            self.filter.iter().map(|name| format!(" FILTER {}", column_text(schema, name)));
        let (column, filter): (String, String) = (column.collect(), filter.collect());
        format!("{}({distinct}{column}){filter}", self.function.to_uppercase())
    }

    pub(super) fn call(&self, stream: &Stream) -> Result<AggregateCall> {
        let argument = self.column.as_deref().map(|name| stream.column(name)).transpose()?;
        let filter = self.filter.as_deref().map(|name| stream.column(name)).transpose()?;
        let types: Vec<ColumnType> = argument
            .iter()
            .map(|&place| stream.schema.columns[place].column_type.clone())
            .collect();
        let (function, result) = aggregate::resolve(&self.function, self.distinct, &types)?;
        let (name, distinct) = (self.result_name(), self.distinct);
        Ok(AggregateCall { function, argument, distinct, filter, result, name })
    }
}

/// A column by name and type, for the identity of operators.
pub(super) fn column_text(schema: &TableSchema, name: &str) -> String {
    let column = schema.columns.iter().find(|column| column.name == name);
    let data_type = column.map(|column| column.column_type.data_type.to_string());
    format!("{name} {}", data_type.unwrap_or_default())
}

/// What the state of windows depends on: how rows are put into them, the keys, and what is computed
/// of each.
pub(super) fn identity(
    window: &str,
    (keys, aggregates): (&[usize], &[Aggregate]),
    schema: &TableSchema,
) -> String {
    let keys = keys.iter().map(|&key| column_text(schema, &schema.columns[key].name));
    let aggregates = aggregates.iter().map(|aggregate| aggregate.identity(schema));
    let (keys, aggregates): (Vec<_>, Vec<_>) = (keys.collect(), aggregates.collect());
    format!("{window}\nby {}\n{}", keys.join(", "), aggregates.join(", "))
}

/// A stream with windows, not grouped by key yet.
pub struct WindowedStream {
    pub(super) stream: Stream,
    pub(super) window: Window,
    pub(super) rowtime: usize,
    pub(super) late: LatePolicy,
    pub(super) name: Option<String>,
}

impl WindowedStream {
    pub(super) fn new(stream: Stream, window: Window, rowtime: usize) -> Self {
        WindowedStream { stream, window, rowtime, late: LatePolicy::Drop, name: None }
    }

    /// Names the windows: under this name they are found again in snapshots, where others of the
    /// pipeline compute the same.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// What becomes of late rows. With [`Late::Emit`] take them from
    /// [`KeyedWindows::aggregate_with_late`].
    #[must_use]
    pub fn late(self, late: Late) -> Self {
        Self { late, ..self }
    }

    /// Groups the rows of each window by these columns.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn key_by(self, columns: &[&str]) -> Result<KeyedWindows> {
        let keys = columns.iter().map(|name| self.stream.column(name)).collect::<Result<_>>()?;
        Ok(KeyedWindows { windows: self, keys })
    }

    /// Aggregates all rows of each window together.
    ///
    /// # Errors
    /// If an aggregate names no column or does not take its type.
    pub fn aggregate(self, aggregates: Vec<Aggregate>) -> Result<Stream> {
        self.key_by(&[])?.aggregate(aggregates)
    }
}

/// A stream with windows and keys.
pub struct KeyedWindows {
    pub(super) windows: WindowedStream,
    pub(super) keys: Vec<usize>,
}

impl KeyedWindows {
    /// Aggregates per window and key. The columns are the keys, the aggregates, `window_start`,
    /// `window_end` and `window_time`; a window of all rows has no times.
    ///
    /// # Errors
    /// If an aggregate names no column or does not take its type.
    pub fn aggregate(self, aggregates: Vec<Aggregate>) -> Result<Stream> {
        self.aggregate_with_late(aggregates).map(|(results, _)| results)
    }

    /// As [`KeyedWindows::aggregate`]; the second stream has the late rows with the columns of the
    /// input. It stays empty unless the policy is [`Late::Emit`].
    ///
    /// # Errors
    /// If an aggregate names no column or does not take its type.
    pub fn aggregate_with_late(self, aggregates: Vec<Aggregate>) -> Result<(Stream, Stream)> {
        let WindowedStream { stream, window, rowtime, late, name } = self.windows;
        let calls = aggregates.iter().map(|a| a.call(&stream)).collect::<Result<Vec<_>>>()?;
        let (pipeline, input) = (stream.pipeline.clone(), stream.schema.clone());
        let time = &input.columns[rowtime].name;
        let windows = format!("{} of {}", window.identity(), column_text(&input, time));
        let computes = identity(&windows, (&self.keys, &aggregates), &input);
        let (operator, output) = operator(window, rowtime, self.keys, calls, late, &input)?;
        let name = name.unwrap_or_else(|| operator.name());
        let kind = NodeKind::Operator(operator);
        let from = pipeline.add_computing((&name, computes), kind, vec![stream.flush()]);
        let results = Stream::new(pipeline.clone(), from, output);
        let late = Stream::new(pipeline, Input { port: 1, ..from }, input);
        Ok((results, late))
    }
}

fn operator(
    window: Window,
    rowtime: usize,
    keys: Vec<usize>,
    aggregates: Vec<AggregateCall>,
    late: LatePolicy,
    input: &TableSchema,
) -> Result<(Arc<dyn Operator>, TableSchema)> {
    let input = input.clone();
    Ok(match window {
        Window::Aligned(window) => {
            let spec =
                WindowAggregateSpec { window, rowtime, zone: None, keys, aggregates, late, input };
            let operator = WindowAggregate::new(spec)?;
            let output = operator.output_schema().clone();
            (Arc::new(operator), output)
        }
        Window::Session { gap_ms } => {
            let spec = SessionSpec { gap_ms, rowtime, zone: None, keys, aggregates, late, input };
            let operator = SessionAggregate::new(spec)?;
            let output = operator.output_schema().clone();
            (Arc::new(operator), output)
        }
    })
}
