//! Taking a windowing function out from below an aggregation.
//!
//! `GROUP BY window_start, window_end` over `TABLE(HOP(…))` means one aggregate per window, not one
//! row per window and row. So the function is removed from the plan below the aggregate and becomes
//! part of the aggregate; projections and filters between the two stay, without window columns.

use thalweg_core::{DataType, Result};
use thalweg_expr::{Expr, build};
use thalweg_operators::window::WindowKind;

use super::unsupported;
use crate::logical::join::conjuncts;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, Window, WindowId, column_of};

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
pub fn strip(node: &Node, id: WindowId) -> Result<Option<Stripped>> {
    match &node.kind {
        LogicalKind::WindowRows { input, window } if window.id == id => {
            let mut stripped = Stripped::unchanged(input.clone(), window.clone());
            stripped.columns.extend([Mapped::Start, Mapped::End, Mapped::Time]);
            Ok(Some(stripped))
        }
        LogicalKind::WindowAggregate { window, .. } if window.id == id && id.by_clock => Err(
            unsupported::later("GROUP BY with the columns of a window over the processing time that is aggregated already")
                .hint("compute everything in one GROUP BY, or group by CAST(window_start AS TIMESTAMP(3)) for results that change"),
        ),
        LogicalKind::WindowAggregate { window, .. } if window.id == id => {
            Ok(Some(strip_aggregate(node, window)))
        }
        LogicalKind::Filter { input, predicate } => match strip(input, id)? {
            None => Ok(None),
            Some(stripped) => strip_filter(stripped, predicate).map(Some),
        },
        LogicalKind::Project { input, expressions } => {
            Ok(strip(input, id)?.map(|stripped| strip_project(stripped, &node.fields, expressions)))
        }
        _ => Ok(None),
    }
}

/// Aggregating the results of a window per window again. A result row of a tumbling window lies in
/// the same window by its window_time. Of other windows it would lie in several by its time, but it
/// belongs to the one that it carries: that one is a key, and a tumbling window that ends with it
/// says when it closes.
fn strip_aggregate(node: &Node, window: &Window) -> Stripped {
    let width = node.fields.len();
    let closing = Window { rowtime: width - 1, partition_by: Vec::new(), ..window.clone() };
    let mut stripped = Stripped::unchanged(node.clone(), closing);
    stripped.columns[width - 3..].copy_from_slice(&[Mapped::Start, Mapped::End, Mapped::Time]);
    if let Some(closing) = window.kind.closing() {
        stripped.window.kind = WindowKind::Aligned(closing);
        stripped.carried = Some((width - 3, width - 2));
    }
    stripped
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
        *column += shift;
    }
    let node = LogicalPlan::project(stripped.node, projected);
    let carried = stripped.carried.map(|(start, end)| (start + shift, end + shift));
    Stripped { node, window, columns, after: stripped.after, carried }
}

/// Joins conditions by AND.
pub fn conjunction(parts: Vec<Expr>, session: &thalweg_expr::Session) -> Result<Option<Expr>> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(None) };
    let joined =
        parts.try_fold(first, |a, b| build::binary(build::BinaryOp::And, a, b, session))?;
    debug_assert_eq!(joined.column_type.data_type, DataType::Boolean);
    Ok(Some(joined))
}
