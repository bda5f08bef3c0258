//! Aggregates of several streams per window and key: rows of all of them come as one stream, in
//! which each aggregate takes the rows of its own input (`FILTER`). So windows, lateness and state
//! are those of one window operator.
//!
//! ```text
//! orders (at, buyer, price)   visits (at, buyer)          buyer  $time  price$0  $of0   $of1
//! 12:01  b    7                                     ->    b      12:01  7        TRUE   FALSE
//!                             12:02  b                    b      12:02  NULL     FALSE  TRUE
//! ```

use thalweg_core::{Column, DataType, Error, Result, TableSchema};
use thalweg_expr::{Expr, build};
use thalweg_operators::chain::Step;

use super::stream::Stream;
use super::window::{Aggregate, KeyedWindows, Late, Window, WindowedStream};

/// The column of the row time.
const TIME: &str = "$time";

impl KeyedWindows {
    /// Aggregates the rows of several streams per window and key, as `cogroup` and `aggregate2` of
    /// Jet. All have the same windows and keys of the same types; the first gives their names and
    /// says what becomes of late rows. The columns are the keys, the aggregates of each stream, and
    /// those of the window. A key is there if any stream has it; the aggregates of one without it
    /// are those of no rows.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
    /// # use thalweg::pipeline::{Collect, MemorySource, Pipeline, Stream, Window, count, sum};
    /// # use thalweg::{Column, DataType, Result, RunOptions, TableSchema};
    /// # let pipeline = Pipeline::new();
    /// # let read = |name: &str, times: Vec<i64>, prices: Vec<i64>| -> Result<Stream> {
    /// #     let schema = TableSchema::new(vec![
    /// #         Column::new("at", DataType::Timestamp(3).not_null()),
    /// #         Column::new("price", DataType::BigInt.not_null()),
    /// #     ]);
    /// #     let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times));
    /// #     let prices: ArrayRef = Arc::new(Int64Array::from(prices));
    /// #     let batch = RecordBatch::try_new(schema.arrow(), vec![times, prices])?;
    /// #     pipeline.read(name, MemorySource::new(schema.clone(), vec![batch]), schema).watermark("at", 0)
    /// # };
    /// # let orders = read("orders", vec![1, 2, 1100], vec![5, 6, 7])?;
    /// # let visits = read("visits", vec![3, 2500], vec![0, 0])?;
    /// # let results = Collect::new();
    /// let seconds = Window::tumbling(1000);
    /// let visits = visits.window(seconds, "at")?.key_by(&[])?;
    /// orders
    ///     .window(seconds, "at")?
    ///     .key_by(&[])?
    ///     .co_aggregate(vec![sum("price")], vec![(visits, vec![count().named("visits")])])?
    ///     .write("results", results.sink());
    /// # pipeline.run(RunOptions::default())?;
    /// # assert_eq!(results.num_rows(), 3);
    /// # Ok::<(), thalweg::Error>(())
    /// ```
    ///
    /// # Errors
    /// If windows or keys differ, an aggregate names no column or does not take its type, or two
    /// columns of the result have one name.
    pub fn co_aggregate(
        self,
        aggregates: Vec<Aggregate>,
        others: Vec<(KeyedWindows, Vec<Aggregate>)>,
    ) -> Result<Stream> {
        let inputs: Vec<_> = std::iter::once((self, aggregates)).chain(others).collect();
        let combined = Combined::of(&inputs)?;
        let (mut streams, mut calls) = (Vec::new(), Vec::new());
        let (window, late, name) = {
            let first = &inputs[0].0.windows;
            (first.window, first.late, first.name.clone())
        };
        for (number, (windows, aggregates)) in inputs.into_iter().enumerate() {
            streams.push(combined.stream(number, windows));
            let rename = |name: &str| column_of(number, name);
            let flag = flag_of(number);
            calls.extend(aggregates.into_iter().map(|call| call.renamed(rename, &flag)));
        }
        check_names(&combined, &calls)?;
        let stream = streams.remove(0).union(streams)?;
        let keys = (0..combined.keys.len()).collect();
        let mut windows = WindowedStream::new(stream, window, combined.time);
        (windows.late, windows.name) = (late, name);
        KeyedWindows { windows, keys }.aggregate(calls)
    }
}

/// The columns of all inputs as one stream.
struct Combined {
    keys: Vec<Column>,
    /// Where the row time stands; its column is missing where one window holds all rows.
    time: usize,
    has_time: bool,
    /// For each column that aggregates read its input, its place there, and how it is called here.
    read: Vec<(usize, usize, Column)>,
    inputs: usize,
}

impl Combined {
    fn of(inputs: &[(KeyedWindows, Vec<Aggregate>)]) -> Result<Self> {
        let first = &inputs[0].0;
        let columns = |of: &KeyedWindows| -> Vec<Column> {
            of.keys.iter().map(|&key| of.windows.stream.schema.columns[key].clone()).collect()
        };
        let (mut keys, mut read) = (columns(first), Vec::new());
        let has_time = first.windows.window != Window::whole();
        for (number, (of, aggregates)) in inputs.iter().enumerate() {
            check_alike(first, of)?;
            for (key, own) in keys.iter_mut().zip(columns(of)) {
                key.column_type.nullable |= own.column_type.nullable;
            }
            for name in aggregates.iter().flat_map(Aggregate::columns) {
                let place = of.windows.stream.column(name)?;
                if !read.iter().any(|&(input, known, _)| (input, known) == (number, place)) {
                    let data_type = &of.windows.stream.schema.columns[place].column_type.data_type;
                    let column = Column::new(column_of(number, name), data_type.clone().nullable());
                    read.push((number, place, column));
                }
            }
        }
        let time = if has_time { keys.len() } else { 0 };
        Ok(Combined { keys, time, has_time, read, inputs: inputs.len() })
    }

    /// The rows of an input with the columns of all.
    fn stream(&self, number: usize, of: KeyedWindows) -> Stream {
        let WindowedStream { stream, rowtime, .. } = of.windows;
        let keys = self.keys.iter().zip(of.keys);
        let mut columns: Vec<(Column, Expr)> = keys
            .map(|(key, place)| (key.clone(), Expr::column(place, key.column_type.clone())))
            .collect();
        if self.has_time {
            let column_type = stream.schema.columns[rowtime].column_type.clone();
            let time = Expr::column(rowtime, column_type.clone());
            columns.push((Column::new(TIME, column_type), time));
        }
        for (input, place, column) in &self.read {
            let value = match *input == number {
                true => Expr::column(*place, column.column_type.clone()),
                false => Expr::null(column.column_type.data_type.clone()),
            };
            columns.push((column.clone(), value));
        }
        for input in 0..self.inputs {
            let column = Column::new(flag_of(input), DataType::Boolean.not_null());
            columns.push((column, build::boolean_literal(input == number)));
        }
        let schema = TableSchema::new(columns.iter().map(|(column, _)| column.clone()).collect());
        stream.step("co-aggregate", schema, Step::Project(columns))
    }
}

/// How a column of an input is called among those of all.
fn column_of(input: usize, name: &str) -> String {
    format!("{name}${input}")
}

/// The column that is true for rows of an input.
fn flag_of(input: usize) -> String {
    format!("$of{input}")
}

/// Refuses an input that does not fit the first one.
fn check_alike(first: &KeyedWindows, of: &KeyedWindows) -> Result<()> {
    let (one, other) = (&first.windows, &of.windows);
    let fail = |what: String| Err(Error::plan(format!("streams are aggregated together: {what}")));
    if !one.stream.pipeline.is(&other.stream.pipeline) {
        return fail("they belong to two pipelines".to_owned());
    }
    if one.window != other.window {
        return fail(format!("the windows of one are {}, of another {}", one.window, other.window));
    }
    if one.late == Late::Emit {
        return fail("late rows of several columns have no stream".to_owned());
    }
    if first.keys.len() != of.keys.len() {
        return fail(format!("one has {} keys, another {}", first.keys.len(), of.keys.len()));
    }
    let column = |of: &KeyedWindows, place: usize| of.windows.stream.schema.columns[place].clone();
    let times =
        [(one.rowtime, other.rowtime)].into_iter().filter(|_| one.window != Window::whole());
    let keys = first.keys.iter().copied().zip(of.keys.iter().copied());
    for (left, right) in keys.chain(times) {
        let (left, right) = (column(first, left), column(of, right));
        let types = (&left.column_type.data_type, &right.column_type.data_type);
        if types.0 != types.1 {
            let names = (&left.name, &right.name);
            return fail(format!("'{}' is {}, and '{}' is {}", names.0, types.0, names.1, types.1));
        }
    }
    Ok(())
}

fn check_names(combined: &Combined, calls: &[Aggregate]) -> Result<()> {
    let mut seen: Vec<String> = combined.keys.iter().map(|key| key.name.clone()).collect();
    for name in calls.iter().map(Aggregate::result_name) {
        if seen.contains(&name) {
            return Err(Error::plan(format!("two columns of the result are called '{name}'"))
                .hint("give one another name by `named`"));
        }
        seen.push(name);
    }
    Ok(())
}
