//! Windowing functions in FROM: `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL …))` and its kin.
//!
//! The parser has replaced the call by a name ([`WindowCall::placeholder`]); FROM finds the call by
//! it. The result has the input's columns and the three of the window. The input's own row time is
//! an ordinary column from there on, since rows of a window are judged by the window's time, as in
//! Flink.
//!
//! Which lengths are allowed stands in `crate::windows`; how windows are computed, in the
//! operators.
//!
//! In batch mode any TIMESTAMP of at most three digits is a time: nothing waits for a watermark, so
//! none has to follow the column.

use sqlparser::ast::Expr as SqlExpr;
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::{Expr, build};
use thalweg_operators::window::WindowKind;

use super::literal::interval_ms;
use super::scope::missing_column;
use super::spans::span_of;
use super::{Binder, Context};
use crate::ast::{Name, WindowCall, WindowInput};
use crate::catalog::RuntimeMode;
use crate::logical::fields::window_fields;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, TimeAttribute, Window};
use crate::windows::{WindowForm, WindowFunction};

impl Binder<'_> {
    /// Binds a windowing function: its input with window_start, window_end and window_time.
    pub(super) fn bind_window_call(
        &self,
        call: &WindowCall,
        context: &Context<'_>,
    ) -> Result<Node> {
        let mut input = match &call.input {
            WindowInput::Table(name) => self.named_relation(name, context)?,
            WindowInput::Query(query) => self.bind_query(query, context)?,
        };
        let name = call.function.name;
        let rowtime = column_named(&input.fields, &call.time_column)?;
        check_time(&input.fields[rowtime], name, self.mode())
            .map_err(|e| e.at(call.time_column.span))?;
        let kind = window_kind(self, call.function, call.intervals.iter(), WindowForm::Table)
            .map_err(|e| e.at(call.span))?;
        let partition_by = call.partition_by.iter().map(|n| column_named(&input.fields, n));
        let partition_by = partition_by.collect::<Result<Vec<usize>>>()?;
        if !partition_by.is_empty() && !call.function.has_keys {
            return Err(Error::plan(format!("{name} takes no PARTITION BY; only SESSION does"))
                .at(call.span));
        }
        input = self.with_times(input, rowtime);
        let is_instant =
            matches!(input.fields[rowtime].column_type.data_type, DataType::TimestampLtz(_));
        let id = self.next_window(input.fields[rowtime].time);
        let window = Window { kind, rowtime, is_instant, id, partition_by };
        let mut fields: Vec<Field> = input.fields.iter().map(behind_window).collect();
        fields.extend(window_fields(id, is_instant));
        Ok(LogicalPlan::node(LogicalKind::WindowRows { input, window }, fields))
    }
}

impl Binder<'_> {
    /// The rows that have a time. Streams have no others: there they are refused where they are
    /// read.
    ///
    /// A row without a time belongs to no window.
    pub(super) fn with_times(&self, input: Node, time: usize) -> Node {
        let column_type = &input.fields[time].column_type;
        if self.mode() != RuntimeMode::Batch || !column_type.nullable {
            return input;
        }
        let has_time = build::is_null(Expr::column(time, column_type.clone()), true);
        LogicalPlan::filter(input, has_time)
    }
}

/// The original row time is an ordinary column behind a window: the window's time takes over.
fn behind_window(field: &Field) -> Field {
    let time = if field.time.is_rowtime() { TimeAttribute::None } else { field.time };
    Field { time, ..field.clone() }
}

fn column_named(fields: &[Field], name: &Name) -> Result<usize> {
    fields.iter().position(|f| f.name == name.text).ok_or_else(|| {
        missing_column(&name.text, &name.text, fields.iter().map(|f| f.name.as_str())).at(name.span)
    })
}

/// Fails unless the column is a row time or the processing time, or in batch mode any time of at
/// most three digits. `function` is for the message.
pub(super) fn check_time(field: &Field, function: &str, mode: RuntimeMode) -> Result<()> {
    let (name, data_type) = (&field.name, &field.column_type.data_type);
    // Where nothing waits for a watermark any time will do.
    let is_time = matches!(data_type, DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3));
    if field.time.is_rowtime()
        || field.time.is_proctime()
        || (is_time && mode == RuntimeMode::Batch)
    {
        return Ok(());
    }
    Err(Error::plan(format!(
        "{function} needs a row time attribute, but column '{name}' is an ordinary {data_type}"
    ))
    .hint("a column is a row time if its table declares WATERMARK FOR it and no join or aggregate lies between; a column that is PROCTIME() is the processing time"))
}

/// The windows of a call.
pub(super) fn window_kind<'e>(
    binder: &Binder<'_>,
    function: &WindowFunction,
    intervals: impl Iterator<Item = &'e SqlExpr>,
    form: WindowForm,
) -> Result<WindowKind> {
    let interval = |(i, expr): (usize, &'e SqlExpr)| {
        let bound = binder.without_columns(expr, "a window")?;
        let place = format!("{} of {}", ordinal(i), function.name);
        interval_ms(&bound, &place).map_err(|e| e.at(span_of(expr)))
    };
    let intervals: Vec<i64> = intervals.enumerate().map(interval).collect::<Result<_>>()?;
    function.windows(&intervals, form, binder.mode() == RuntimeMode::Batch)
}

fn ordinal(index: usize) -> &'static str {
    match index {
        0 => "the first interval",
        1 => "the second interval",
        _ => "the offset",
    }
}
