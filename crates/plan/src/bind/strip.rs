//! Taking a windowing function out from below an aggregation.
//!
//! `GROUP BY window_start, window_end` over `TABLE(HOP(…))` means one aggregate per window, not one
//! row per window and row. So the function is removed from the plan below the aggregate and becomes
//! part of the aggregate; projections and filters between the two stay, without window columns.
//!
//! ```text
//! Aggregate by window_start, window_end        WindowAggregate HOP
//!   Filter v > 3 AND window_end > x              Filter v > 3
//!     WindowRows HOP                    ──▶        t
//!       t                                      and above it: Filter window_end > x
//! ```
//!
//! The gain is large: of a HOP with 60 windows per row the plan on the left aggregates each row 60
//! times, the one on the right once per slice. It is also needed for meaning: only a window
//! aggregate is final when the watermark passes.
//!
//! **Invariants:**
//! - every column of the original plan is accounted for ([`Mapped`]): it is a column of the
//!   stripped plan, one of the three of the window, or unavailable until the aggregate has run;
//! - the row time stays visible in the stripped plan, behind whatever projections were between,
//!   since the operator needs it; so do all other columns, for tables of late rows. Pruning drops
//!   what is not used;
//! - a filter moves only if it reads columns of one kind: a condition that mixes row and window
//!   columns is refused.
//!
//! **Windows of windows.** An aggregate of a window that is grouped by the same window columns
//! again is a second window aggregate over the first. For a TUMBLE the result's window_time falls
//! into the same window. For HOP, CUMULATE and SESSION it may fall into others, so the rows carry
//! their window as keys (`carried`), and tumbling windows whose ends are the ends of those only say
//! when to close.

use thalweg_core::{DataType, Result};
use thalweg_expr::{Expr, build};
use thalweg_operators::window::WindowKind;

use super::unsupported;
use crate::logical::changes::window_end_key;
use crate::logical::join::conjuncts;
use crate::logical::traversal::post_order;
use crate::logical::{
    Field, JoinBound, LogicalKind, LogicalPlan, Node, TimeAttribute, Window, WindowId, column_of,
};

/// What a column of the original plan has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// A column of the stripped plan.
    Column(usize),
    /// The start of the window.
    Start,
    /// The end of the window.
    End,
    /// The time of the window.
    Time,
    /// Computed from window columns: only known behind the aggregate.
    /// Using one inside of an aggregate or as a key is refused.
    Unavailable,
}

/// A plan without its windowing function.
pub struct Stripped {
    /// The rows.
    pub node: Node,
    /// The windows; the row time is a position in `node`.
    pub window: Window,
    /// For each column of the original plan what it has become.
    pub columns: Vec<Mapped>,
    /// Conditions on window columns alone, to be applied behind the aggregate. Columns 0, 1 and 2
    /// are start, end and time.
    pub after: Vec<Expr>,
    /// Where start and end of the window stand in `node`, if rows carry the window that they belong
    /// to and `window` only says when it closes.
    pub carried: Option<(usize, usize)>,
}

impl Stripped {
    /// A plan that had no windowing function in it.
    /// For the old form `GROUP BY TUMBLE(ts, …)`, where the window stands in GROUP BY.
    pub fn unchanged(node: Node, window: Window) -> Self {
        let columns = (0..node.fields.len()).map(Mapped::Column).collect();
        Stripped { node, window, columns, after: Vec::new(), carried: None }
    }

    /// An expression over the original plan as one over the stripped plan; `None` if it needs
    /// window columns.
    pub fn map(&self, expr: &Expr) -> Option<Expr> {
        let position = |i: usize| match self.columns[i] {
            Mapped::Column(position) => Some(position),
            _ => None,
        };
        if expr.columns().into_iter().any(|i| position(i).is_none()) {
            return None;
        }
        Some(expr.remap(&|i| position(i).unwrap_or(0)))
    }

    /// An expression that uses window columns only, over start, end and time.
    fn window_only(&self, expr: &Expr) -> Option<Expr> {
        let position = |i: usize| match self.columns[i] {
            Mapped::Start => Some(0),
            Mapped::End => Some(1),
            Mapped::Time => Some(2),
            _ => None,
        };
        let columns = expr.columns();
        if columns.is_empty() || columns.into_iter().any(|i| position(i).is_none()) {
            return None;
        }
        Some(expr.remap(&|i| position(i).unwrap_or(0)))
    }
}

/// Takes the windowing function with this identity out of a plan. `None` if it does not stand at
/// the bottom of a chain of projections and filters.
///
/// # Errors
/// A condition on row and window columns together.
pub fn strip(node: &Node, id: WindowId) -> Result<Option<Stripped>> {
    match &node.kind {
        LogicalKind::WindowRows { input, window } if window.id == id => {
            let mut stripped = Stripped::unchanged(input.clone(), window.clone());
            stripped.columns.extend([Mapped::Start, Mapped::End, Mapped::Time]);
            Ok(Some(stripped))
        }
        LogicalKind::WindowAggregate { window, .. } if window.id == id => {
            Ok(Some(strip_aggregate(node, window)))
        }
        LogicalKind::Filter { input, predicate } => match strip(input, id)? {
            None => Ok(None),
            Some(stripped) => strip_filter(stripped, predicate).map(Some),
        },
        LogicalKind::Join { condition, .. }
            if matches!(condition.bound, JoinBound::Window { .. }) =>
        {
            Ok(strip_rows_of_windows(node, id))
        }
        LogicalKind::TopN { input, keys, .. } if window_end_key(input, keys).is_some() => {
            Ok(strip_rows_of_windows(node, id))
        }
        LogicalKind::Project { input, expressions } => {
            Ok(strip(input, id)?.map(|stripped| strip_project(stripped, &node.fields, expressions)))
        }
        _ => Ok(None),
    }
}

/// True for the columns of a window of processing time whose results are rows by now: their time is
/// that of the clock again, and no longer that of the window.
pub(super) fn is_aggregated_by_clock(node: &Node, id: WindowId) -> bool {
    match &node.kind {
        LogicalKind::WindowAggregate { window, .. } => window.id == id && id.by_clock,
        LogicalKind::Filter { input, .. } | LogicalKind::Project { input, .. } => {
            is_aggregated_by_clock(input, id)
        }
        _ => false,
    }
}

/// Aggregating the results of a window per window again. A result row of a tumbling window lies in
/// the same window by its window_time. Of other windows it would lie in several by its time, but it
/// belongs to the one that it carries: that one is a key, and a tumbling window that ends with it
/// says when it closes.
fn strip_aggregate(node: &Node, window: &Window) -> Stripped {
    let width = node.fields.len();
    strip_carrying(node, window, [width - 3, width - 2, width - 1])
}

/// The same for rows that carry their window at these positions: start, end and time.
fn strip_carrying(node: &Node, window: &Window, [start, end, time]: [usize; 3]) -> Stripped {
    let closing = Window { rowtime: time, partition_by: Vec::new(), ..window.clone() };
    let mut stripped = Stripped::unchanged(node.clone(), closing);
    stripped.columns[start] = Mapped::Start;
    stripped.columns[end] = Mapped::End;
    stripped.columns[time] = Mapped::Time;
    if let Some(closing) = window.kind.closing() {
        stripped.window.kind = WindowKind::Aligned(closing);
        stripped.carried = Some((start, end));
    }
    stripped
}

/// Aggregating what a join of windows or the first rows of a window give, per window: these rows
/// leave when their window closes, as those of an aggregate do.
fn strip_rows_of_windows(node: &Node, id: WindowId) -> Option<Stripped> {
    let position = |wanted: TimeAttribute| node.fields.iter().position(|f| f.time == wanted);
    let start = position(TimeAttribute::WindowStart(id))?;
    let end = position(TimeAttribute::WindowEnd(id))?;
    let time = position(TimeAttribute::WindowTime(id))?;
    let made = post_order(std::slice::from_ref(node));
    let window = made.iter().find_map(|below| match &below.kind {
        LogicalKind::WindowRows { window, .. } | LogicalKind::WindowAggregate { window, .. } => {
            (window.id == id).then_some(window)
        }
        _ => None,
    })?;
    Some(strip_carrying(node, window, [start, end, time]))
}

fn strip_filter(mut stripped: Stripped, predicate: &Expr) -> Result<Stripped> {
    for part in conjuncts(predicate.clone()) {
        if let Some(before) = stripped.map(&part) {
            stripped.node = LogicalPlan::filter(stripped.node, before);
        } else if let Some(after) = stripped.window_only(&part) {
            stripped.after.push(after);
        } else {
            return Err(unsupported::later("a condition on columns and window columns together")
                .hint("put conditions on window_start and window_end in HAVING"));
        }
    }
    Ok(stripped)
}

/// The projection without window columns. Everything below stays visible behind it, for the row
/// time and for late rows.
fn strip_project(stripped: Stripped, fields: &[Field], expressions: &[Expr]) -> Stripped {
    let mut projected: Vec<(String, Expr)> = Vec::new();
    let mut columns = Vec::with_capacity(expressions.len());
    for (expr, field) in expressions.iter().zip(fields) {
        let plain = column_of(expr).map(|i| stripped.columns[i]);
        let mapped = match (plain, stripped.map(expr)) {
            (Some(mapped @ (Mapped::Start | Mapped::End | Mapped::Time)), _) => mapped,
            (_, Some(expr)) => {
                projected.push((field.name.clone(), expr));
                Mapped::Column(projected.len() - 1)
            }
            _ => Mapped::Unavailable,
        };
        columns.push(mapped);
    }
    let shift = projected.len();
    projected.extend(stripped.node.columns());
    let mut window = stripped.window;
    window.rowtime += shift;
    for column in &mut window.partition_by {
        // GROUP BY names the column that is shown, if it is.
        let is_it = |(_, expr): &(String, Expr)| column_of(expr) == Some(*column);
        *column = projected[..shift].iter().position(is_it).unwrap_or(*column + shift);
    }
    let node = LogicalPlan::project(stripped.node, projected);
    let carried = stripped.carried.map(|(start, end)| (start + shift, end + shift));
    Stripped { node, window, columns, after: stripped.after, carried }
}

/// Joins conditions by AND.
/// `None` without conditions.
pub fn conjunction(parts: Vec<Expr>, session: &thalweg_expr::Session) -> Result<Option<Expr>> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(None) };
    let joined =
        parts.try_fold(first, |a, b| build::binary(build::BinaryOp::And, a, b, session))?;
    debug_assert_eq!(joined.column_type.data_type, DataType::Boolean);
    Ok(Some(joined))
}
