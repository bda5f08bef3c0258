//! What Flink's planner refuses of queries that Thalweg plans, read from the bound query.
//!
//! Two properties differ between the engines, and are derived here as Flink derives them, node by
//! node from the inputs up ([`Derived`]):
//!
//! - **updates**: DISTINCT, joins that pad rows, ORDER BY … LIMIT and others are changelogs in
//!   Flink where Thalweg answers once;
//! - **lost times**: a regular join ends the row times of both sides in Flink. Here the row time of
//!   a stream that is joined with a bounded table stays one.
//!
//! Operators that need neither are checked against them. All of this holds in streaming mode; in
//! batch mode Flink's restrictions are few.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{DataType, Span};
use thalweg_expr::{ArithmeticOp, Expr, ExprKind};
use thalweg_operators::window::{WindowKind, WindowSpec};

use super::tables::LOOKUPS;
use crate::logical::changes::window_end_key;
use crate::logical::traversal::post_order;
use crate::logical::{
    Aggregate, JoinBound, JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node, OverCall,
    OverFrame, OverFunction, OverWindow, RankFunction,
};
use crate::resolved_table::ResolvedTable;

/// Connectors whose tables take inserts only, unless their format says what a row changes.
const INSERT_ONLY: [&str; 4] = ["filesystem", "http-async-sink", "kafka", "socket"];
const CHANGE_FORMATS: [&str; 5] =
    ["canal-json", "debezium-avro-confluent", "debezium-json", "maxwell-json", "ogg-json"];

/// How a statement runs, and what its text says that the plan does not show any more.
#[derive(Clone, Copy, Default)]
pub(super) struct Mode {
    pub(super) is_batch: bool,
    /// True if its windows are tables, and not those of the old form.
    pub(super) has_window_tables: bool,
    /// True if it, or a view before it, casts anything to a timestamp: a row time that is cast to
    /// its own type is one here, and none in Flink.
    pub(super) may_cast_row_times: bool,
    /// True if it casts anything to a timestamp itself.
    pub(super) casts_to_timestamp: bool,
    /// True if a LAG has a number as its default.
    pub(super) has_bare_default: bool,
}

/// What holds of the rows of a node in Flink.
#[derive(Clone, Default)]
struct Derived {
    has_updates: bool,
    /// For each column, whether it has lost the time attribute that it has here.
    lost: Vec<bool>,
}

/// A refusal, at a place if one is known.
pub(super) type Refusal = (Option<Span>, String);

/// What Flink refuses of a query, and of writing its result to a table.
pub(super) fn refusals(node: &Node, sink: Option<&ResolvedTable>, mode: Mode) -> Vec<Refusal> {
    let mut check = PlanCheck { derived: HashMap::new(), found: Vec::new(), mode };
    for node in post_order(std::slice::from_ref(node)) {
        check.node(&node);
    }
    let has_updates = check.of(node).has_updates;
    if let Some(sink) = sink
        && has_updates
        && !mode.is_batch
        && takes_inserts_only(sink)
    {
        let text = format!(
            "the query's result is updated in Flink, and its table '{}' takes inserts only: write to upsert-kafka, jdbc or a changelog format",
            sink.name
        );
        check.found.push((None, text));
    }
    if let (Some(sink), false) = (sink, mode.is_batch)
        && !mode.may_cast_row_times
        && check.row_times(node) > 1
    {
        let text = format!(
            "Flink writes one row time to a table, and the query has several for '{}': CAST the others to TIMESTAMP(3)",
            sink.name
        );
        check.found.push((None, text));
    }
    check.found
}

fn takes_inserts_only(sink: &ResolvedTable) -> bool {
    let option = |name: &str| sink.options.get(name).map_or("", String::as_str);
    let format =
        if option("value.format").is_empty() { option("format") } else { option("value.format") };
    let is_jdbc_without_key = option("connector") == "jdbc" && sink.primary_key.is_empty();
    let is_insert_only = INSERT_ONLY.contains(&option("connector"));
    is_jdbc_without_key || (is_insert_only && !CHANGE_FORMATS.contains(&format))
}

struct PlanCheck {
    derived: HashMap<*const LogicalPlan, Derived>,
    found: Vec<Refusal>,
    mode: Mode,
}

impl PlanCheck {
    fn find(&mut self, span: Option<Span>, message: impl Into<String>) {
        self.found.push((span, message.into()));
    }

    fn of(&self, node: &Node) -> Derived {
        self.derived.get(&Arc::as_ptr(node)).cloned().unwrap_or_default()
    }

    /// How many columns of what is written are row times in Flink.
    fn row_times(&self, node: &Node) -> usize {
        let written = match &node.kind {
            LogicalKind::CheckNotNull { input, .. } => input,
            _ => node,
        };
        let lost = self.of(written).lost;
        let is_lost = |column: usize| lost.get(column).copied().unwrap_or(false);
        let columns = written.fields.iter().enumerate();
        let is_time = |column: usize, field: &crate::logical::Field| match field.time.is_rowtime() {
            true => !is_lost(column),
            false => is_time_behind_window(written, column),
        };
        columns.filter(|(column, field)| is_time(*column, field)).count()
    }

    fn node(&mut self, node: &Node) {
        let expressions = node.kind.expressions();
        expressions.iter().for_each(|expr| self.expression(expr));
        if self.mode.is_batch {
            self.in_batch(node);
        } else {
            self.operator(node);
        }
        let derived = Derived { has_updates: self.updates(node), lost: self.lost(node) };
        self.derived.insert(Arc::as_ptr(node), derived);
    }

    fn expression(&mut self, expr: &Expr) {
        let is_inexact =
            |expr: &Expr| matches!(expr.column_type.data_type, DataType::Float | DataType::Double);
        if let ExprKind::Arithmetic { op: ArithmeticOp::Modulo, left, right } = &expr.kind
            && (is_inexact(left) || is_inexact(right))
        {
            self.find(Some(expr.span), "Flink has no remainder (%) of FLOAT and DOUBLE");
        }
        let is_date = |expr: &Expr| expr.column_type.data_type == DataType::Date;
        if let ExprKind::Call { function, args } = &expr.kind
            && function.name == "DATE_FORMAT"
            && args.first().is_some_and(|arg| is_date(arg) || matches!(&arg.kind, ExprKind::Cast { input, .. } if is_date(input) && !self.mode.casts_to_timestamp))
        {
            self.find(Some(expr.span), "Flink formats no DATE: cast it to a TIMESTAMP");
        }
        self.dates(expr);
        expr.children().into_iter().for_each(|child| self.expression(child));
    }

    /// A DATE that is taken for a timestamp without a CAST.
    fn dates(&mut self, expr: &Expr) {
        let is_cast_date = |expr: &Expr| match &expr.kind {
            ExprKind::Cast { input, .. } => {
                let is_time = matches!(expr.column_type.data_type, DataType::Timestamp(_));
                is_time && input.column_type.data_type == DataType::Date
            }
            _ => false,
        };
        if self.mode.casts_to_timestamp {
            return;
        }
        match &expr.kind {
            ExprKind::Compare { left, right, .. } if is_cast_date(left) || is_cast_date(right) => {
                self.find(
                    Some(expr.span),
                    "Flink does not compare a DATE with a TIMESTAMP: cast one",
                );
            }
            _ => {}
        }
    }

    /// In batch mode.
    fn in_batch(&mut self, node: &Node) {
        self.approximate(node);
        match &node.kind {
            LogicalKind::WindowRows { window, .. }
            | LogicalKind::WindowAggregate { window, .. } => {
                if matches!(window.kind, WindowKind::Session { .. }) {
                    self.find(None, "Flink has no SESSION windows in batch mode");
                } else if window.id.by_clock {
                    self.find(None, "Flink has no windows of processing time in batch mode");
                }
            }
            LogicalKind::Aggregate { keys, .. }
                if keys
                    .iter()
                    .any(|key| matches!(key.column_type.data_type, DataType::Map(..))) =>
            {
                self.find(None, "Flink does not group by a MAP in batch mode");
            }
            LogicalKind::SortLimit { limit: None, offset: 1.., .. } => {
                self.find(None, "Flink has no ORDER BY … OFFSET without LIMIT in batch mode");
            }
            LogicalKind::Join {
                condition: JoinCondition { is_lookup: true, .. }, right, ..
            } => {
                self.lookup(right);
            }
            _ => {}
        }
    }

    /// Exact and approximate numbers of different values at once.
    fn approximate(&mut self, node: &Node) {
        let (LogicalKind::Aggregate { aggregates, .. }
        | LogicalKind::WindowAggregate { aggregates, .. }) = &node.kind
        else {
            return;
        };
        let is_approximate = |one: &Aggregate| one.name == "APPROX_COUNT_DISTINCT";
        if aggregates.iter().any(is_approximate) && aggregates.iter().any(|one| one.distinct) {
            self.find(None, "Flink has no DISTINCT next to APPROX_COUNT_DISTINCT");
        }
    }

    /// In streaming mode.
    fn operator(&mut self, node: &Node) {
        self.over(node);
        match &node.kind {
            LogicalKind::TopN {
                function: RankFunction::Rank | RankFunction::DenseRank, ..
            } => {
                self.find(
                    None,
                    "Flink has no RANK and DENSE_RANK in a streaming Top-N: use ROW_NUMBER",
                );
            }
            LogicalKind::SortLimit { limit: None, .. } | LogicalKind::Limit { limit: None, .. } => {
                self.find(None, "Flink has no OFFSET without LIMIT in streaming mode");
            }
            LogicalKind::Join {
                condition: JoinCondition { is_lookup: true, .. }, right, ..
            } => {
                self.lookup(right);
            }
            _ => {}
        }
        self.times(node);
        self.merges(node);
        if let Some(operator) = needs_inserts(&node.kind)
            && node.inputs().into_iter().any(|input| self.of(input).has_updates)
        {
            self.find(
                None,
                format!("{operator} takes no updates in Flink, and its input there is updated"),
            );
        }
    }

    fn over(&mut self, node: &Node) {
        let LogicalKind::Over { input, window, calls } = &node.kind else { return };
        let mut windows: Vec<OverWindow> = seen_windows(window, calls);
        if let LogicalKind::Over { window, calls, .. } = &input.kind {
            windows.extend(seen_windows(window, calls));
        }
        if windows.windows(2).any(|pair| pair[0] != pair[1]) {
            let text = "Flink computes functions over one window in a SELECT, streaming: put the others into a sub-query of their own";
            self.find(None, text);
        }
        for call in calls {
            let OverFunction::Shifted { leads, default, value, .. } = &call.function else {
                continue;
            };
            if *leads {
                self.find(None, "Flink has no LEAD in streaming mode");
            }
            if default.is_some()
                && self.mode.has_bare_default
                && value.column_type.data_type != DataType::Int
            {
                let kind = &value.column_type.data_type;
                self.find(
                    None,
                    format!("Flink wants the default of LAG in its type: write CAST(… AS {kind})"),
                );
            }
        }
    }

    /// The right side of a lookup join.
    fn lookup(&mut self, right: &Node) {
        for node in post_order(std::slice::from_ref(right)) {
            let LogicalKind::Scan { table, .. } = &node.kind else { continue };
            let connector = table.options.get("connector").map_or("", String::as_str);
            if !LOOKUPS.contains(&connector) {
                let text = format!(
                    "Flink cannot look rows up in '{}': tables of '{connector}' have no lookup there",
                    table.name
                );
                self.find(None, text);
            }
        }
    }

    /// Windows that are put together of slices or sessions. Where a variance is computed as well,
    /// Flink's planner takes the first value of a key for the key itself.
    fn merges(&mut self, node: &Node) {
        let LogicalKind::WindowAggregate { window, aggregates, keys, .. } = &node.kind else {
            return;
        };
        let is_whole = matches!(
            window.kind,
            WindowKind::Aligned(WindowSpec::Tumble { .. } | WindowSpec::Whole)
        );
        let has_variance = aggregates
            .iter()
            .any(|one| one.name.starts_with("STDDEV") || one.name.starts_with("VAR"));
        let is_key = |one: &Aggregate| {
            let text = one.argument.as_ref().map(ToString::to_string);
            keys.iter().any(|key| Some(key.to_string()) == text)
        };
        let cannot = |one: &&Aggregate| {
            matches!(one.name.as_str(), "FIRST_VALUE" | "LAST_VALUE")
                && !(has_variance && is_key(one))
        };
        if let (false, Some(found)) = (is_whole, aggregates.iter().find(cannot)) {
            self.find(None, format!("Flink has {} in windows of TUMBLE alone", found.name));
        }
        // Slices that leave a window are retracted. The old form has none.
        let is_sliced = matches!(window.kind, WindowKind::Aligned(WindowSpec::Hop { .. }))
            && self.mode.has_window_tables;
        let retracts_distinct =
            |one: &&Aggregate| one.distinct && matches!(one.name.as_str(), "SUM" | "LISTAGG");
        if let (true, Some(found)) = (is_sliced, aggregates.iter().find(retracts_distinct)) {
            let name = &found.name;
            self.find(
                None,
                format!("Flink has no {name}(DISTINCT …) in windows of HOP: aggregate the different values of a sub-query"),
            );
        }
    }

    /// Operators that need a row time that Flink does not have any more.
    fn times(&mut self, node: &Node) {
        let is_lost =
            |input: &Node, column: usize| self.of(input).lost.get(column).copied().unwrap_or(false);
        let operator = match &node.kind {
            LogicalKind::WindowRows { input, window }
            | LogicalKind::WindowAggregate { input, window, .. }
                if self.mode.has_window_tables && is_lost(input, window.rowtime) =>
            {
                "a window"
            }
            LogicalKind::TemporalSort { input, keys } if is_lost(input, keys[0].column) => {
                "ORDER BY"
            }
            LogicalKind::Join { left, right, condition, .. } => match condition.bound {
                JoinBound::Interval { left_time, right_time, .. }
                | JoinBound::Version { left_time, right_time, .. }
                    if is_lost(left, left_time) || is_lost(right, right_time) =>
                {
                    "a join in time"
                }
                _ => return,
            },
            _ => return,
        };
        self.find(
            None,
            format!(
                "{operator} needs a row time, and in Flink a column is none behind a regular join"
            ),
        );
    }

    fn lost(&self, node: &Node) -> Vec<bool> {
        let has_time = |field: &crate::logical::Field| field.time.is_rowtime();
        match &node.kind {
            LogicalKind::Join { left, right, condition, .. }
                if !condition.is_lookup
                    && matches!(condition.bound, JoinBound::None | JoinBound::Build(_)) =>
            {
                let _ = (left, right);
                node.fields.iter().map(has_time).collect()
            }
            LogicalKind::Join { left, right, .. } => {
                let (mut lost, right) = (self.of(left).lost, self.of(right).lost);
                lost.extend(right);
                lost
            }
            LogicalKind::Project { input, expressions } => {
                let below = self.of(input).lost;
                let column = |expr: &Expr| match expr.kind {
                    ExprKind::Column(at) => below.get(at).copied().unwrap_or(false),
                    _ => false,
                };
                expressions.iter().map(column).collect()
            }
            kind => match kind.passed_on() {
                Some(input) => {
                    let mut lost = self.of(input).lost;
                    lost.resize(node.fields.len(), false);
                    lost
                }
                None => vec![false; node.fields.len()],
            },
        }
    }

    /// Whether rows are updated in Flink.
    fn updates(&self, node: &Node) -> bool {
        let below = node.inputs().into_iter().any(|input| self.of(input).has_updates);
        match &node.kind {
            LogicalKind::Scan { table, .. } => table.reading.changes != AcceptedChanges::Inserts,
            LogicalKind::Aggregate { .. } | LogicalKind::SortLimit { .. } => true,
            LogicalKind::SetOperation { .. } => true,
            LogicalKind::Limit { input, .. } => {
                below || matches!(input.kind, LogicalKind::TemporalSort { .. })
            }
            LogicalKind::Join { left, kind, condition, .. } => match condition.bound {
                _ if condition.is_lookup => self.of(left).has_updates,
                JoinBound::None | JoinBound::Build(_) => {
                    below || !matches!(kind, JoinKind::Inner | JoinKind::Semi)
                }
                _ => false,
            },
            LogicalKind::TopN { input, keys, .. } => below || window_end_key(input, keys).is_none(),
            LogicalKind::Deduplicate { keeps_last, .. } => below || *keeps_last,
            LogicalKind::Normalize { .. } => true,
            LogicalKind::WindowAggregate { .. } => false,
            _ => below,
        }
    }
}

/// True for a column that is the row time that rows had in front of their window: a row time in
/// Flink, and none here.
fn is_time_behind_window(node: &Node, column: usize) -> bool {
    match &node.kind {
        LogicalKind::WindowRows { window, .. } => {
            column == window.rowtime && !node.fields[column].time.is_rowtime()
        }
        LogicalKind::Project { input, expressions } => match expressions[column].kind {
            ExprKind::Column(at) => is_time_behind_window(input, at),
            _ => false,
        },
        kind => kind.passed_on().is_some_and(|input| {
            column < input.fields.len() && is_time_behind_window(input, column)
        }),
    }
}

/// The windows of these functions as Flink sees them: ROW_NUMBER counts rows, and the other ranks,
/// LAG and LEAD look at ranges.
fn seen_windows(window: &OverWindow, calls: &[OverCall]) -> Vec<OverWindow> {
    let frame = |call: &OverCall| match call.function {
        OverFunction::Aggregate(_) => window.frame,
        OverFunction::Rank(RankFunction::RowNumber) => OverFrame::Rows(None),
        OverFunction::Rank(_) | OverFunction::Number(_) | OverFunction::Shifted { .. } => {
            OverFrame::Range(None)
        }
    };
    calls.iter().map(|call| OverWindow { frame: frame(call), ..window.clone() }).collect()
}

/// How an operator that takes no updates is called.
fn needs_inserts(kind: &LogicalKind) -> Option<&'static str> {
    match kind {
        LogicalKind::Over { input, window, .. } => {
            window.is_by_time(&input.fields).then_some("OVER")
        }
        LogicalKind::Match { .. } => Some("MATCH_RECOGNIZE"),
        LogicalKind::TemporalSort { .. } => Some("ORDER BY"),
        LogicalKind::Join { condition, .. } => match condition.bound {
            JoinBound::Interval { .. } => Some("an interval join"),
            JoinBound::Window { .. } => Some("a window join"),
            _ => None,
        },
        _ => None,
    }
}
