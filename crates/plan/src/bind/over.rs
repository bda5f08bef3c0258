//! Functions OVER the rows before a row: which rows, and what is computed.
//!
//! While a select list is bound, each call has a provisional column of its own. Calls over the same
//! rows are computed together; [`OverCalls::finish`] puts a node for each such window over the
//! input and says where the columns are.
//!
//! ```text
//! SELECT v, SUM(v) OVER w1, LAG(v) OVER w2, COUNT(v) OVER w1 FROM t
//!
//! bound:   $0, P+0, P+1, P+2                (P is the first provisional position)
//! nodes:   t ──▶ Over w1 [SUM, COUNT] ──▶ Over w2 [LAG]
//! final:   $0, $1,  $3,  $2
//! ```
//!
//! The windows of streams follow Flink: one ascending time, a frame that ends at the current row;
//! or, for aggregates, one ascending column, whose frame begins with the first row as well.
//! Ranks may have any order here, because a condition outside may make them a Top-N;
//! `physical::over` refuses those that are left. In batch mode there is a last row, so any order
//! and any frame will do.
//!
//! **Invariants:**
//! - provisional positions are greater than any position of a relation, so the two never mix;
//! - keys that are no columns are computed once, in one projection below all windows;
//! - a later window sees the results of earlier ones only as columns that it passes on.

use sqlparser::ast::{
    self as sql, Expr as SqlExpr, NamedWindowExpr, WindowFrameBound, WindowFrameUnits, WindowType,
};
use thalweg_core::{Column, ColumnType, DataType, Error, Result};
use thalweg_expr::build;
use thalweg_expr::{Expr, Scalar};
use thalweg_operators::over_whole::{Distance, FrameBound, FrameUnit};

use super::aggregate::{Treatment, counted_together, treatment};
use super::composed_aggregates::COMPOSED_AGGREGATES;
use super::functions::{function_name, is_aggregate, is_star_call, plain_arguments};
use super::names::{Names, PlainNames};
use super::order::sort_key;
use super::scope::Scope;
use super::spans::{ident_span, span_of};
use super::{Binder, unsupported};
use crate::catalog::RuntimeMode;
use crate::logical::{
    Aggregate, Field, LogicalKind, LogicalPlan, Node, OverCall, OverFrame, OverFunction,
    OverWindow, RankFunction, SortKey, TimeAttribute, WholeFrame, WholeNumber, column_of,
};

/// Where provisional columns begin: behind any that a relation can have.
const PROVISIONAL: usize = 1 << 32;

/// How deep named windows may refer to one another.
const NAMED_DEPTH_MAX: usize = 16;

/// The names of a select list, and the calls OVER rows that were met in it.
pub(super) struct OverCalls<'a> {
    plain: PlainNames<'a>,
    scope: &'a Scope,
    named: &'a [sql::NamedWindowDefinition],
    /// Keys that are no columns, computed below.
    /// The first of them stands behind the input's columns.
    computed: Vec<Expr>,
    windows: Vec<(OverWindow, Vec<OverCall>)>,
    /// For each call its window and its place there.
    places: Vec<(usize, usize)>,
}

/// Where the provisional columns are in the end.
pub(super) struct OverLayout {
    positions: Vec<usize>,
}

impl OverLayout {
    /// An expression over the node that was made.
    pub(super) fn place(&self, expr: &Expr) -> Expr {
        expr.remap(&|i| i.checked_sub(PROVISIONAL).map_or(i, |call| self.positions[call]))
    }
}

impl<'a> OverCalls<'a> {
    /// Names of a select list over this scope.
    pub(super) fn of(scope: &'a Scope, select: &'a sql::Select) -> Self {
        OverCalls {
            plain: PlainNames::of(scope, "SELECT"),
            scope,
            named: &select.named_window,
            computed: Vec::new(),
            windows: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The input with all results appended, and where they are.
    pub(super) fn finish(self, mut node: Node) -> (Node, OverLayout) {
        if !self.computed.is_empty() {
            let more = self.computed.into_iter().enumerate();
            let more = more.map(|(i, expr)| (format!("key${i}"), expr));
            let columns = node.columns().chain(more).collect();
            node = LogicalPlan::project(node, columns);
        }
        let mut first = Vec::new();
        for (window, calls) in self.windows {
            first.push(node.fields.len());
            let results = calls.iter().enumerate();
            let results = results
                .map(|(i, call)| Field::plain(format!("over${i}"), call.column_type.clone()));
            let fields: Vec<Field> = node.fields.iter().cloned().chain(results).collect();
            node = LogicalPlan::node(LogicalKind::Over { input: node, window, calls }, fields);
        }
        let position = |&(window, place): &(usize, usize)| first[window] + place;
        (node, OverLayout { positions: self.places.iter().map(position).collect() })
    }

    /// Binds a call and returns its provisional column.
    fn over_call(&mut self, binder: &Binder<'_>, call: &sql::Function) -> Result<Expr> {
        let name = function_name(call);
        if name == "PERCENTILE" && plain_arguments(call)?.len() == 3 {
            let mut names = PlainNames::of(self.scope, "OVER");
            let fraction = binder.expression(plain_arguments(call)?[1], &mut names)?;
            let prepare = |arguments| binder.value_with_frequency(arguments);
            let values = self.values(binder, call, prepare)?;
            return binder.percentile_of(values, fraction);
        }
        if name == "COLLECT" {
            let values = self.values(binder, call, Ok)?;
            return build::call("MULTISET$", vec![values], binder.session);
        }
        let function = self.function(binder, call, &name)?;
        self.placed(binder, call, function)
    }

    /// The values of the rows that are not NULL, as an array.
    fn values(
        &mut self,
        binder: &Binder<'_>,
        call: &sql::Function,
        prepare: impl Fn(Vec<Expr>) -> Result<Vec<Expr>>,
    ) -> Result<Expr> {
        let null_treatment = Some(sql::NullTreatment::IgnoreNulls);
        let call = sql::Function { null_treatment, ..call.clone() };
        let arguments = prepare(self.arguments(binder, &call)?)?;
        let function = self.aggregate(binder, &call, "ARRAY_AGG", arguments)?;
        self.placed(binder, &call, function)
    }

    /// The provisional column of what a call computes.
    fn placed(
        &mut self,
        binder: &Binder<'_>,
        call: &sql::Function,
        (function, column_type): (OverFunction, ColumnType),
    ) -> Result<Expr> {
        let over = call.over.as_ref().ok_or_else(|| Error::internal("a call without OVER"))?;
        let spec = self.specification(over)?;
        let window = self.window(binder, &spec, &function, &function_name(call))?;
        let place = match self.windows.iter().position(|(known, _)| *known == window) {
            Some(place) => place,
            None => {
                self.windows.push((window, Vec::new()));
                self.windows.len() - 1
            }
        };
        let calls = &mut self.windows[place].1;
        calls.push(OverCall { function, column_type: column_type.clone() });
        self.places.push((place, calls.len() - 1));
        Ok(Expr::column(PROVISIONAL + self.places.len() - 1, column_type))
    }

    /// What stands behind OVER, named windows resolved.
    fn specification(&self, over: &WindowType) -> Result<sql::WindowSpec> {
        let mut name = match over {
            WindowType::WindowSpec(spec) => return Ok(spec.clone()),
            WindowType::NamedWindow(name) => name,
        };
        for _ in 0..NAMED_DEPTH_MAX {
            let found = self.named.iter().find(|definition| definition.0.value == name.value);
            match found.map(|definition| &definition.1) {
                Some(NamedWindowExpr::WindowSpec(spec)) => return Ok(spec.clone()),
                Some(NamedWindowExpr::NamedWindow(other)) => name = other,
                None => break,
            }
        }
        Err(Error::plan(format!("there is no WINDOW '{}'", name.value)).at(ident_span(name)))
    }

    /// The rows that a call sees. An order that is not an ascending time is left to ranks.
    fn window(
        &mut self,
        binder: &Binder<'_>,
        spec: &sql::WindowSpec,
        function: &OverFunction,
        name: &str,
    ) -> Result<OverWindow> {
        let mut keys = Vec::new();
        for expr in &spec.partition_by {
            keys.push(self.key(binder, expr)?.0);
        }
        let mut order: Vec<SortKey> = Vec::new();
        let mut times = Vec::new();
        for item in &spec.order_by {
            let (column, time) = self.key(binder, &item.expr)?;
            order.push(sort_key(item, column));
            times.push(time);
        }
        let is_rank = matches!(function, OverFunction::Rank(_));
        let is_batch = binder.mode() == RuntimeMode::Batch;
        let by_time = matches!((&order[..], &times[..]), ([key], [time])
            if !key.descending && (time.is_rowtime() || time.is_proctime()));
        let by_value = !by_time
            && matches!(&order[..], [key] if !key.descending)
            && matches!(function, OverFunction::Aggregate(_));
        if !by_time && !by_value && !is_rank && !is_batch {
            let orders = match function {
                OverFunction::Aggregate(_) => "one column, ascending",
                _ => "one row time (or PROCTIME()), ascending",
            };
            return Err(Error::plan(format!("{name}(…) OVER needs ORDER BY {orders}"))
                .hint("on a stream; SET 'execution.runtime-mode' = 'batch' admits any order"));
        }
        // Ranks, LAG and LEAD look at all rows of the key, whatever frame is written. Without a
        // frame the standard's default holds: RANGE, unbounded.
        let frame = match (function, &spec.window_frame) {
            (OverFunction::Rank(_) | OverFunction::Shifted { .. } | OverFunction::Number(_), _) => {
                OverFrame::Rows(None)
            }
            (_, None) => OverFrame::Range(None),
            (_, Some(frame)) if is_batch => {
                let key = order.first().map(|key| self.type_of(key.column));
                whole_frame(binder, frame, key.as_ref())?
            }
            (_, Some(frame)) => bind_frame(binder, frame)?,
        };
        let is_unbounded = matches!(frame, OverFrame::Rows(None) | OverFrame::Range(None));
        if by_value && !is_batch && !is_unbounded {
            return Err(Error::plan(format!(
                "{name}(…) OVER an order of values needs a frame from UNBOUNDED PRECEDING on"
            ))
            .hint(
                "order by a row time (or PROCTIME()), or SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        Ok(OverWindow { keys, order, frame })
    }

    /// The position of a key, computed below if it is no column, and what it means for time.
    /// PROCTIME() is a computed key that has a time.
    fn key(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<(usize, TimeAttribute)> {
        let bound = binder.expression(expr, &mut PlainNames::of(self.scope, "OVER"))?;
        if let Some(column) = column_of(&bound) {
            return Ok((column, self.scope.fields[column].time));
        }
        let time = LogicalPlan::time_of(&bound, &self.scope.fields);
        let text = bound.to_string();
        let known = self.computed.iter().position(|other| other.to_string() == text);
        let place = known.unwrap_or_else(|| {
            self.computed.push(bound);
            self.computed.len() - 1
        });
        Ok((self.scope.fields.len() + place, time))
    }

    /// The type of a key.
    fn type_of(&self, column: usize) -> DataType {
        let column_type = match self.scope.fields.get(column) {
            Some(field) => &field.column_type,
            None => &self.computed[column - self.scope.fields.len()].column_type,
        };
        column_type.data_type.clone()
    }

    /// NTILE, PERCENT_RANK or CUME_DIST.
    fn number(
        &self,
        binder: &Binder<'_>,
        call: &sql::Function,
        name: &str,
    ) -> Result<Option<(OverFunction, ColumnType)>> {
        let share = DataType::Double.not_null();
        let (number, column_type) = match name {
            "PERCENT_RANK" => (WholeNumber::PercentRank, share),
            "CUME_DIST" => (WholeNumber::CumulativeDistribution, share),
            "NTILE" => {
                let [argument] = plain_arguments(call)?[..] else {
                    return Err(Error::plan("NTILE takes a number of shares"));
                };
                let mut names = PlainNames::of(self.scope, "NTILE");
                let bound = binder.expression(argument, &mut names)?;
                let tiles = match bound.as_literal() {
                    Some(&Scalar::Integer(tiles)) => u64::try_from(tiles).ok(),
                    _ => None,
                };
                let tiles = tiles.filter(|tiles| *tiles > 0).ok_or_else(|| {
                    Error::plan("NTILE takes a constant number of shares, from 1 on")
                        .at(span_of(argument))
                })?;
                (WholeNumber::Tile(tiles), DataType::BigInt.not_null())
            }
            _ => return Ok(None),
        };
        if binder.mode() != RuntimeMode::Batch {
            return Err(Error::plan(format!("{name}(…) OVER depends on all rows of the key"))
                .hint("SET 'execution.runtime-mode' = 'batch': a stream has no last row"));
        }
        Ok(Some((OverFunction::Number(number), column_type)))
    }

    /// What is computed, and the type of its result.
    fn function(
        &self,
        binder: &Binder<'_>,
        call: &sql::Function,
        name: &str,
    ) -> Result<(OverFunction, ColumnType)> {
        let rank = match name {
            "ROW_NUMBER" => Some(RankFunction::RowNumber),
            "RANK" => Some(RankFunction::Rank),
            "DENSE_RANK" => Some(RankFunction::DenseRank),
            _ => None,
        };
        if let Some(rank) = rank {
            return Ok((OverFunction::Rank(rank), DataType::BigInt.not_null()));
        }
        if let Some(number) = self.number(binder, call, name)? {
            return Ok(number);
        }
        let arguments = self.arguments(binder, call)?;
        match name {
            "LAG" | "LEAD" if treatment(call, name)?.skips_nulls => {
                Err(unsupported::later(&format!("IGNORE NULLS in {name}")).at(span_of(call)))
            }
            "LAG" | "LEAD" => shifted(binder, arguments, name == "LEAD"),
            _ if is_aggregate(binder, name) => self.aggregate(binder, call, name, arguments),
            _ => Err(unsupported::never(&format!("{name}(…) OVER"))),
        }
    }

    fn arguments(&self, binder: &Binder<'_>, call: &sql::Function) -> Result<Vec<Expr>> {
        let arguments = if is_star_call(call) { Vec::new() } else { plain_arguments(call)? };
        let mut names = PlainNames::of(self.scope, "OVER");
        arguments.into_iter().map(|arg| binder.expression(arg, &mut names)).collect()
    }

    fn aggregate(
        &self,
        binder: &Binder<'_>,
        call: &sql::Function,
        name: &str,
        arguments: Vec<Expr>,
    ) -> Result<(OverFunction, ColumnType)> {
        let is_composed =
            COMPOSED_AGGREGATES.contains(&name) || binder.function_over_values(name).is_some();
        if super::functions::is_later_aggregate(name) || is_composed {
            return Err(unsupported::over(name));
        }
        let arguments = if name == "COUNT" { counted_together(arguments)? } else { arguments };
        let Treatment { distinct, skips_nulls } = treatment(call, name)?;
        let (function, column_type) =
            binder.resolve_aggregate(name, distinct, skips_nulls, &arguments)?;
        let filter = match &call.filter {
            None => None,
            Some(condition) => {
                let mut names = PlainNames::of(self.scope, "FILTER");
                Some(binder.condition(condition, "FILTER (WHERE …)", &mut names)?)
            }
        };
        let column = Column::new(format!("{}$over", name.to_lowercase()), column_type.clone());
        let argument = arguments.into_iter().next();
        let name = name.to_owned();
        let aggregate = Aggregate { function, name, column, argument, distinct, filter };
        Ok((OverFunction::Aggregate(aggregate), column_type))
    }
}

/// `LAG(value [, offset [, default]])`
fn shifted(
    binder: &Binder<'_>,
    arguments: Vec<Expr>,
    leads: bool,
) -> Result<(OverFunction, ColumnType)> {
    let mut arguments = arguments.into_iter();
    let Some(value) = arguments.next() else {
        return Err(Error::plan("LAG and LEAD take a value, a number of rows, and a default"));
    };
    let offset = match arguments.next() {
        None => 1,
        Some(expr) => match expr.as_literal() {
            Some(&Scalar::Integer(n)) if n >= 0 => n as u64,
            _ => return Err(Error::plan("LAG and LEAD take a constant number of rows")),
        },
    };
    let default = match arguments.next() {
        None => None,
        Some(expr) => {
            Some(build::cast(expr, value.column_type.data_type.clone(), false, binder.session)?)
        }
    };
    let is_certain = default.as_ref().is_some_and(|expr| !expr.column_type.nullable);
    // As in Flink: a default that is not NULL makes the result NOT NULL, whatever the value is.
    let column_type = value.column_type.clone().with_nullable(!is_certain);
    Ok((OverFunction::Shifted { value, offset, default, leads }, column_type))
}

/// `ROWS` or `RANGE BETWEEN … PRECEDING AND CURRENT ROW`. Bounds are constants: an operator keeps
/// as many rows as they say.
fn bind_frame(binder: &Binder<'_>, frame: &sql::WindowFrame) -> Result<OverFrame> {
    if !matches!(frame.end_bound, None | Some(WindowFrameBound::CurrentRow)) {
        return Err(Error::plan("a frame of OVER ends at CURRENT ROW"));
    }
    let bound = match &frame.start_bound {
        WindowFrameBound::Preceding(bound) => bound,
        WindowFrameBound::CurrentRow => {
            return Ok(match frame.units {
                WindowFrameUnits::Rows => OverFrame::Rows(Some(0)),
                _ => OverFrame::Range(Some(0)),
            });
        }
        WindowFrameBound::Following(_) => {
            return Err(Error::plan("a frame of OVER begins at PRECEDING or CURRENT ROW"));
        }
    };
    let distance = match bound {
        None => None,
        Some(expr) => {
            let bound = binder.without_columns(expr, "a frame of OVER")?;
            match bound.as_literal() {
                Some(&Scalar::Integer(n)) if n >= 0 => Some((n, bound.column_type.data_type)),
                _ => {
                    return Err(Error::plan("a frame of OVER has a constant bound")
                        .at(span_of(expr.as_ref())));
                }
            }
        }
    };
    match (frame.units, distance) {
        (WindowFrameUnits::Rows, None) => Ok(OverFrame::Rows(None)),
        (WindowFrameUnits::Range, None) => Ok(OverFrame::Range(None)),
        (WindowFrameUnits::Rows, Some((rows, kind))) if kind.is_integer() => {
            Ok(OverFrame::Rows(Some(rows as u64)))
        }
        (WindowFrameUnits::Range, Some((ms, DataType::IntervalDayTime))) => {
            Ok(OverFrame::Range(Some(ms)))
        }
        (WindowFrameUnits::Groups, _) => Err(unsupported::never("GROUPS in a frame of OVER")),
        _ => Err(Error::plan("ROWS takes a number of rows and RANGE an INTERVAL")),
    }
}

/// Any frame, in batch mode. One that a stream has too is the same there.
fn whole_frame(
    binder: &Binder<'_>,
    frame: &sql::WindowFrame,
    key: Option<&DataType>,
) -> Result<OverFrame> {
    let is_rows = match frame.units {
        WindowFrameUnits::Rows => true,
        WindowFrameUnits::Range => false,
        WindowFrameUnits::Groups => {
            return Err(unsupported::never("GROUPS in a frame of OVER"));
        }
    };
    let bound = |bound: &WindowFrameBound| {
        Ok::<_, Error>(match bound {
            WindowFrameBound::CurrentRow => FrameBound::CurrentRow,
            WindowFrameBound::Preceding(None) => FrameBound::UnboundedPreceding,
            WindowFrameBound::Following(None) => FrameBound::UnboundedFollowing,
            WindowFrameBound::Preceding(Some(far)) => {
                FrameBound::Preceding(distance(binder, far, (is_rows, key))?)
            }
            WindowFrameBound::Following(Some(far)) => {
                FrameBound::Following(distance(binder, far, (is_rows, key))?)
            }
        })
    };
    let start = bound(&frame.start_bound)?;
    let end = frame.end_bound.as_ref().map_or(Ok(FrameBound::CurrentRow), bound)?;
    let is_backward = matches!(
        (start, end),
        (FrameBound::UnboundedFollowing, _)
            | (_, FrameBound::UnboundedPreceding)
            | (FrameBound::CurrentRow, FrameBound::Preceding(_))
            | (FrameBound::Following(_), FrameBound::Preceding(_) | FrameBound::CurrentRow)
    );
    if is_backward {
        return Err(Error::plan("a frame of OVER ends before it begins"));
    }
    let unit = if is_rows { FrameUnit::Rows } else { FrameUnit::Range };
    Ok(OverFrame::Whole(WholeFrame { unit, start, end }))
}

/// A constant number of rows, or a distance of the column of ORDER BY.
fn distance(
    binder: &Binder<'_>,
    expr: &SqlExpr,
    (is_rows, key): (bool, Option<&DataType>),
) -> Result<Distance> {
    let bound = binder.without_columns(expr, "a frame of OVER")?;
    let data_type = bound.column_type.data_type.clone();
    let wrong = || {
        let wanted = match (is_rows, key) {
            (true, _) => "a constant number of rows",
            (_, Some(key)) if key.is_time() => "a constant INTERVAL of days to seconds",
            _ => "a constant number, and ORDER BY one number or time",
        };
        Error::plan(format!("a frame of OVER takes {wanted}")).at(span_of(expr))
    };
    let far = match (is_rows, key) {
        (true, _) if data_type.is_integer() => bound,
        (false, Some(key)) if key.is_time() && data_type == DataType::IntervalDayTime => bound,
        (false, Some(key)) if key.is_numeric() && data_type.is_numeric() => {
            build::cast(bound, key.clone(), false, binder.session)?
        }
        _ => return Err(wrong()),
    };
    match far.as_literal() {
        Some(&Scalar::Integer(n)) if n >= 0 => Ok(Distance::Whole(n.into())),
        Some(&Scalar::Decimal(n)) if n >= 0 => Ok(Distance::Whole(n)),
        Some(&Scalar::Double(n)) if n >= 0.0 => Ok(Distance::Real(n)),
        _ => Err(wrong()),
    }
}

impl Names for OverCalls<'_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>> {
        match expr {
            SqlExpr::Function(call) if call.over.is_some() => {
                self.over_call(binder, call).map(Some).map_err(|error| error.at(span_of(expr)))
            }
            _ => self.plain.intercept(binder, expr),
        }
    }

    fn column(&mut self, input: usize) -> Result<Expr> {
        self.plain.column(input)
    }

    fn is_rowtime(&self, column: usize) -> bool {
        column < PROVISIONAL && self.plain.is_rowtime(column)
    }
}
