//! What a plan does that its author may not want: shown before the job begins, and in EXPLAIN.

use thalweg_core::Error;

use super::PlanEnvironment;
use super::identity::table_name;
use crate::logical::changes::NodeChanges;
use crate::logical::traversal::post_order;
use crate::logical::{JoinBound, LogicalKind, Node};

/// Notes on the plan of these roots, of whose nodes is known which read for ever.
pub(super) fn notes(
    roots: &[Node],
    changes: &NodeChanges,
    environment: &PlanEnvironment<'_>,
) -> Vec<Error> {
    let keeps_all = |input: &Node, hinted: Option<i64>| {
        changes.is_unbounded(input) && environment.lifetime_ms(hinted).is_none()
    };
    let note = |node: Node| match &node.kind {
        LogicalKind::Join { left, right, condition, .. }
            if condition.bound == JoinBound::None
                && (keeps_all(left, condition.state_ttl_ms.0)
                    || keeps_all(right, condition.state_ttl_ms.1)) =>
        {
            Some(keeps_all_rows(left, right))
        }
        _ => None,
    };
    post_order(roots).into_iter().filter_map(note).collect()
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
