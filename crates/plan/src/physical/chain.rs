//! Row-by-row nodes as steps of a chain.
//!
//! A step must neither keep state nor look at more than one row, so that any worker can run it on
//! any bundle. A chain of steps is one stage: rows pass between steps without a queue.
//!
//! The texts of steps are also part of a chain's identifier (`Lowering::close_chain`).

use thalweg_core::{Column, Result};
use thalweg_expr::Session;
use thalweg_operators::chain::Step;

use super::window::zone;
use crate::logical::{LogicalKind, LogicalPlan};

/// The step that a node is, if it works row by row.
/// `None` for sessions, which are no row-by-row windows: they are refused by `lower_stage` unless
/// an aggregate has absorbed them.
pub(super) fn step_of(node: &LogicalPlan, session: &Session) -> Result<Option<Step>> {
    Ok(match &node.kind {
        LogicalKind::Filter { predicate, .. } => Some(Step::Filter(predicate.clone())),
        LogicalKind::Project { expressions, .. } => {
            let columns = node.fields.iter().map(|field| field.column());
            Some(Step::Project(columns.zip(expressions.iter().cloned()).collect()))
        }
        LogicalKind::Unnest { input, array, outer, ordinality } => {
            let fresh = &node.fields[input.fields.len()..];
            Some(Step::Unnest {
                array: array.clone(),
                columns: fresh.iter().map(|field| field.column()).collect(),
                outer: *outer,
                ordinality: *ordinality,
            })
        }
        LogicalKind::CheckNotNull { columns, sink, .. } => {
            Some(Step::CheckNotNull { columns: columns.clone(), sink: sink.clone() })
        }
        LogicalKind::WindowRows { window, .. } => {
            window.kind.aligned().map(|windows| Step::WindowRows {
                window: windows,
                rowtime: window.rowtime,
                zone: zone(window, session),
            })
        }
        _ => None,
    })
}

/// Steps in words, one line each.
pub(super) fn describe_steps(steps: &[Step]) -> Vec<String> {
    steps.iter().map(describe_step).collect()
}

fn describe_step(step: &Step) -> String {
    match step {
        Step::Filter(predicate) => format!("filter: {predicate}"),
        Step::Project(columns) => {
            let column = |(column, expr): &(Column, _)| format!("{expr} AS {}", column.name);
            format!("project: {}", columns.iter().map(column).collect::<Vec<_>>().join(", "))
        }
        Step::CheckNotNull { columns, sink } => {
            let positions: Vec<usize> = columns.iter().map(|checked| checked.column).collect();
            format!("check NOT NULL: {positions:?} of {sink}")
        }
        Step::Unnest { array, .. } => format!("unnest: {array}"),
        Step::Probe { what, .. } => format!("look up: {what}"),
        other => format!("{other:?}"),
    }
}
