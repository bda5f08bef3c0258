//! Windows and sorts by row time: operators that judge lateness.
//!
//! A window operator reads a batch made for it: row time, keys, arguments and filters of the
//! aggregates, and the columns that a table of late rows wants. One chain in front computes them.
//!
//! ```text
//! SELECT k, SUM(v * 2) FILTER (WHERE v > 3) … GROUP BY window_start, window_end, k
//!
//! input:     k | v | ts | note       (note is wanted by the table of late rows)
//! prepared:  ts | k | v * 2 | v > 3 | note
//! result:    k | SUM | window_start | window_end | window_time
//! ```
//!
//! **Invariants:**
//! - equal expressions are one prepared column, compared by their text: `SUM(v)` and `AVG(v)` read
//!   the same column;
//! - the late rows of an operator have the prepared columns, so the positions of a late table's
//!   columns are looked up among those;
//! - a late row is dropped, fails the job or leaves by port 1, as `late.data` says. Which one is
//!   part of the operator; where it goes then is decided when all operators are known (`late`).
//!
//! Over a changelog the same operators retract rows. Their late rows go to no table, since a table
//! of rows takes no retractions.
//!
//! Windows over processing time wrap the same operators ([`ClockWindows`]): nothing is late there.

use std::sync::Arc;

use thalweg_core::graph::Input;
use thalweg_core::{Column, Error, Operator, Result, TableSchema};
use thalweg_expr::{Expr, Session};
use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::chain::Step;
use thalweg_operators::temporal_sort::TemporalSort;
use thalweg_operators::window::{
    ClockWindows, KnownWindows, LatePolicy, SessionAggregate, SessionSpec, WindowAggregate,
    WindowAggregateSpec, WindowKind, closing_watermarks,
};

use super::LateData;
use super::late_rows::can_be_late;
use super::lower::{Edges, Lowering};
use crate::logical::traversal::post_order;
use crate::logical::{Aggregate, LogicalKind, Node, SortKey, Window, column_of};

/// The columns made for a window operator. Equal expressions are one column.
/// Other operators with computed inputs use it too: aggregates, joins, OVER.
#[derive(Clone, Default)]
pub(super) struct Prepared {
    columns: Vec<(Column, Expr)>,
    // The text of each column's expression, in the same order.
    texts: Vec<String>,
}

impl Prepared {
    /// All columns of an input, where they stand there: operators that emit them need them at their
    /// old positions. Two equal columns stay two here.
    pub(super) fn of(input: &Node) -> Self {
        let mut all = Prepared::default();
        for (i, field) in input.fields.iter().enumerate() {
            let expr = column(input, i);
            all.texts.push(expr.to_string());
            all.columns.push((field.column(), expr));
        }
        all
    }

    /// The position of an expression, added if it is new.
    pub(super) fn place(&mut self, name: &str, expr: &Expr) -> usize {
        let text = expr.to_string();
        if let Some(found) = self.texts.iter().position(|known| *known == text) {
            return found;
        }
        self.columns.push((Column::new(name, expr.column_type.clone()), expr.clone()));
        self.texts.push(text);
        self.columns.len() - 1
    }

    pub(super) fn schema(&self) -> TableSchema {
        TableSchema::new(self.columns.iter().map(|(column, _)| column.clone()).collect())
    }

    /// The step that computes the columns, unless they are those of the input.
    pub(super) fn into_step(self, input: &Node) -> Option<Step> {
        (!self.is_identity(input)).then_some(Step::Project(self.columns))
    }

    /// True if the columns are those of the input as it is.
    fn is_identity(&self, input: &Node) -> bool {
        self.columns.len() == input.fields.len()
            && self.columns.iter().enumerate().all(|(i, (_, expr))| column_of(expr) == Some(i))
    }
}

/// What a window operator is made of, by columns that were prepared for it.
struct WindowInput {
    rowtime: usize,
    zone: Option<chrono_tz::Tz>,
    keys: Vec<usize>,
    aggregates: Vec<AggregateCall>,
    late: LatePolicy,
    input: TableSchema,
    retracts: bool,
}

impl Lowering<'_> {
    /// A window aggregate. Its output has the columns of the node: keys, aggregates, window
    /// columns.
    pub(super) fn lower_window(
        &mut self,
        node: &Node,
        (input, window): (&Node, &Window),
        (keys, aggregates): (&[Expr], &[Aggregate]),
        read: [bool; 3],
    ) -> Result<Edges> {
        let mut prepared = Prepared::default();
        let rowtime =
            prepared.place(&input.fields[window.rowtime].name, &column(input, window.rowtime));
        let key_name = |i: usize| node.fields[i].name.as_str();
        let key_positions: Vec<usize> =
            keys.iter().enumerate().map(|(i, key)| prepared.place(key_name(i), key)).collect();
        let calls = aggregates.iter().map(|a| call_of(a, &mut prepared)).collect();
        let key_columns = key_positions.clone();
        let late = self.environment.late.columns(&input.fields, window.rowtime)?;
        let late_columns: Vec<usize> = late
            .iter()
            .map(|&i| prepared.place(&input.fields[i].name, &column(input, i)))
            .collect();
        let policy = self.late_policy(input, window.rowtime);
        let retracts = self.changes.has_updates(input);
        if retracts && policy == LatePolicy::Emit {
            return Err(late_retractions(&self.changes.cause(input)));
        }
        // A retraction of an old row comes behind the watermark of the row that causes it, which is
        // not late itself.
        self.needs_exact_watermarks |= retracts;
        let zone = zone(window, self.environment.session);
        let late_schema = prepared.schema();
        let prepared_input = WindowInput {
            rowtime,
            zone,
            keys: key_positions,
            aggregates: calls,
            late: policy,
            input: prepared.schema(),
            retracts,
        };
        let operator = self.window_operator(node, window.kind, prepared_input, read)?;
        let operator = if window.id.by_clock {
            let ordered = self.environment.order.is_ordered();
            Arc::new(ClockWindows::new(operator, rowtime, key_columns, ordered))
        } else {
            operator
        };
        let edges = self.prepare_input(input, prepared)?;
        if window.id.by_clock {
            let details = vec![node.describe()];
            return Ok(self.add_described(node, (input, "window"), operator, edges, details));
        }
        let late = (late_columns, policy);
        Ok(self.add_late((node, input), operator, edges, "window", late, late_schema))
    }

    fn window_operator(
        &self,
        node: &Node,
        kind: WindowKind,
        of: WindowInput,
        read: [bool; 3],
    ) -> Result<Arc<dyn Operator>> {
        let WindowInput { rowtime, zone, keys, aggregates, late, input, retracts } = of;
        let window = match kind {
            WindowKind::Session { gap_ms } => {
                let spec = SessionSpec { gap_ms, rowtime, zone, keys, aggregates, late, input };
                let sessions = SessionAggregate::new(spec)?;
                return Ok(match retracts {
                    true => Arc::new(sessions.with_retractions()?),
                    false => Arc::new(sessions),
                });
            }
            WindowKind::Aligned(window) => window,
        };
        let spec = WindowAggregateSpec { window, rowtime, zone, keys, aggregates, late, input };
        let mut windows = WindowAggregate::new(spec)?.with_read_columns(read)?;
        if retracts {
            windows = windows.with_retractions()?;
        }
        // `note_first_rows` of a Top-N above has run already: the walk comes from there.
        Ok(match self.tops.get(&Arc::as_ptr(node)) {
            Some(top) => Arc::new(windows.with_top(top)?),
            None => Arc::new(windows),
        })
    }

    /// The input with the prepared columns, in one chain with the steps that were open below it.
    pub(super) fn prepare_input(&mut self, input: &Node, prepared: Prepared) -> Result<Edges> {
        let (edges, mut steps) = self.open_chain(input)?;
        steps.extend(prepared.into_step(input));
        if steps.is_empty() {
            return Ok(edges);
        }
        Ok(self.close_chain(edges, steps, input))
    }

    /// ORDER BY a row time. The first key is that time; the others order rows of equal time.
    pub(super) fn lower_temporal_sort(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[SortKey],
    ) -> Result<Edges> {
        let rowtime = keys[0].column;
        let late = self.late_rows(input, rowtime)?;
        let rest = keys[1..].iter().map(Into::into).collect();
        let operator = Arc::new(TemporalSort::new(rowtime, rest, late.1, input.schema()));
        let edges = self.edges(input)?;
        Ok(self.add_late((node, input), operator, edges, "sort", late, input.schema()))
    }

    /// Adds an operator that judges lateness, whose late rows have these columns.
    /// `late` are positions in `schema`, one for each column of the table of late rows.
    pub(super) fn add_late(
        &mut self,
        (node, input): (&Node, &Node),
        operator: Arc<dyn Operator>,
        edges: Edges,
        kind: &str,
        (late, policy): (Vec<usize>, LatePolicy),
        schema: TableSchema,
    ) -> Edges {
        let edge = self.add_judging(node, input, operator, edges, kind, policy);
        if policy == LatePolicy::Emit {
            self.late.add(edge.from, schema, late);
        }
        vec![edge]
    }

    /// Adds an operator that judges lateness.
    pub(super) fn add_judging(
        &mut self,
        node: &Node,
        input: &Node,
        operator: Arc<dyn Operator>,
        edges: Edges,
        kind: &str,
        policy: LatePolicy,
    ) -> Input {
        let late = match policy {
            LatePolicy::Drop => "late rows: counted and dropped".to_string(),
            LatePolicy::Fail => "late rows: the job fails".to_string(),
            LatePolicy::Emit => match &self.environment.late {
                LateData::Table(table) => format!("late rows: to {}", table.name),
                _ => "late rows: sent on".to_string(),
            },
        };
        let details = vec![node.describe(), late];
        self.add_described(node, (input, kind), operator, edges, details)[0]
    }

    /// Where the columns that a table of late rows wants stand in an input, and what happens to its
    /// late rows.
    pub(super) fn late_rows(
        &self,
        input: &Node,
        rowtime: usize,
    ) -> Result<(Vec<usize>, LatePolicy)> {
        let columns = self.environment.late.columns(&input.fields, rowtime)?;
        Ok((columns, self.late_policy(input, rowtime)))
    }

    /// What happens to late rows. Rows that come from a window carry its time, which is never late.
    pub(super) fn late_policy(&self, input: &Node, rowtime: usize) -> LatePolicy {
        match &self.environment.late {
            _ if !can_be_late(&input.fields, rowtime) => LatePolicy::Drop,
            LateData::Drop => LatePolicy::Drop,
            LateData::Fail => LatePolicy::Fail,
            LateData::Table(_) => LatePolicy::Emit,
        }
    }
}

fn column(input: &Node, position: usize) -> Expr {
    Expr::column(position, input.fields[position].column_type.clone())
}

/// An aggregate over prepared columns, to which its argument and its filter are added. What is
/// added comes after all columns that were placed before, so earlier positions stay.
pub(super) fn call_of(aggregate: &Aggregate, prepared: &mut Prepared) -> AggregateCall {
    let argument = aggregate
        .argument
        .as_ref()
        .map(|expr| prepared.place(&format!("{}.argument", aggregate.column.name), expr));
    let filter = aggregate
        .filter
        .as_ref()
        .map(|expr| prepared.place(&format!("{}.filter", aggregate.column.name), expr));
    AggregateCall {
        function: aggregate.function.clone(),
        argument,
        distinct: aggregate.distinct,
        filter,
        result: aggregate.column.column_type.clone(),
        name: aggregate.column.name.clone(),
    }
}

/// The error for a table of late rows of a window over a changelog.
fn late_retractions(cause: &str) -> Error {
    Error::plan(format!(
        "'late.data' names a table, but late rows of a window may be retractions, as {cause}"
    ))
    .hint("SET 'late.data' = 'drop' or 'fail' for this statement")
}

/// What is known of the windows of which this column of a node is the end (or the start): the
/// session's zone, where they follow the wall clock of instants, and where they end, if that is
/// known beforehand. For sessions it is not known, so every watermark matters.
pub(super) fn windows_of_column(node: &Node, column: usize, session: &Session) -> KnownWindows {
    let Some(window) = window_of_column(node, column) else { return KnownWindows::default() };
    let zone = zone(&window, session);
    let ends = window.kind.aligned().map(|windows| closing_watermarks(windows, zone));
    KnownWindows { zone, ends }
}

/// The windows that this column of a node identifies.
/// Found by their id anywhere below: the column may have come through joins and projections.
fn window_of_column(node: &Node, column: usize) -> Option<Window> {
    let id = node.fields[column].time.window()?;
    let below = post_order(std::slice::from_ref(node));
    below.iter().find_map(|node| match &node.kind {
        LogicalKind::WindowRows { window, .. } | LogicalKind::WindowAggregate { window, .. } => {
            (window.id == id).then(|| window.clone())
        }
        _ => None,
    })
}

/// The session's zone where windows follow the wall clock of instants.
pub(super) fn zone(window: &Window, session: &Session) -> Option<chrono_tz::Tz> {
    window.is_instant.then_some(session.zone)
}
