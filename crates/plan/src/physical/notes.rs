//! What a plan does that its author may not want: told before the job begins, and in EXPLAIN.

use std::collections::HashSet;
use std::sync::Arc;

use thalweg_core::Error;

use super::PlanEnvironment;
use super::identity::table_name;
use crate::logical::dag::post_order;
use crate::logical::{JoinBound, LogicalKind, LogicalPlan, Node};

/// Notes on the plan of these roots.
pub(super) fn notes(roots: &[Node], environment: &PlanEnvironment<'_>) -> Vec<Error> {
    let mut unbounded: HashSet<*const LogicalPlan> = HashSet::new();
    let mut notes = Vec::new();
    for node in post_order(roots) {
        let is_unbounded = match &node.kind {
            LogicalKind::Scan { table, .. } => table.reading.is_endless(),
            _ => node.inputs().iter().any(|input| unbounded.contains(&Arc::as_ptr(input))),
        };
        if !is_unbounded {
            continue;
        }
        unbounded.insert(Arc::as_ptr(&node));
        if let LogicalKind::Join { left, right, condition, .. } = &node.kind
            && condition.bound == JoinBound::None
            && [(left, condition.state_ttl_ms.0), (right, condition.state_ttl_ms.1)]
                .into_iter()
                .any(|(input, hinted)| {
                    unbounded.contains(&Arc::as_ptr(input))
                        && environment.lifetime_ms(hinted).is_none()
                })
        {
            notes.push(keeps_all_rows(left, right));
        }
    }
    notes
}

/// A join that has to remember what it has read for as long as the job runs.
fn keeps_all_rows(left: &Node, right: &Node) -> Error {
    Error::plan(format!(
        "the join of {} and {} keeps every row that it reads, since a match may come at any time: \
         its memory grows for as long as the job runs",
        table_name(left),
        table_name(right)
    ))
    .hint(
        "bound it in time (a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts), or let rows expire: \
         SET 'table.exec.state.ttl' = '1 h'",
    )
}
