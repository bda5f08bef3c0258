//! Jobs whose results rows of any age may change: the newest row of each key, Top-N, groups that
//! cannot be made of parts. Flink reads their topics again from the first row, and writes their
//! table of upserts again.
//!
//! Each key of the output goes through its values once more, and ends with that of a job that was
//! never moved. It does so only if no key is ever retracted: Flink reads partitions in another
//! order, might never write such a key, and so would not delete it. So keys have to be those of an
//! operator that only adds some ([`upsert_key`], which sees none behind a filter or a join), over
//! rows that are only inserted, or over groups of such rows.

use std::slice;

use thalweg_core::Result;

use super::needs::unmovable;
use crate::logical::traversal::post_order;
use crate::logical::upserts::upsert_key;
use crate::logical::{Field, LogicalKind, Node};
use crate::resolved_table::ResolvedTable;

/// Fails if keys of an operator over rows that only come may be retracted, or depend on when rows
/// are read.
pub(super) fn check_operator(node: &Node) -> Result<()> {
    let is_of_clock = |field: Option<&Field>| field.is_some_and(|field| field.time.is_proctime());
    let by_clock = match &node.kind {
        LogicalKind::Deduplicate { rowtime, .. } => rowtime.is_none(),
        LogicalKind::TopN { input, order, .. } => {
            order.iter().any(|key| is_of_clock(input.fields.get(key.column)))
        }
        _ => false,
    };
    if by_clock {
        return Err(unmovable(
            "the first or last rows of keys by processing time depend on when rows are read",
            "ORDER BY a row time or a value",
        ));
    }
    match &node.kind {
        LogicalKind::TopN { input, keys, .. } | LogicalKind::Deduplicate { input, keys, .. }
            if has_groups(input) =>
        {
            let groups = upsert_key(input).unwrap_or_default();
            match keys.iter().all(|key| groups.contains(key)) {
                true => Ok(()),
                false => Err(unmovable(
                    "a Top-N of groups is partitioned by what changes, or its groups are filtered",
                    "PARTITION BY columns of the GROUP BY, without HAVING",
                )),
            }
        }
        _ => Ok(()),
    }
}

fn has_groups(node: &Node) -> bool {
    post_order(slice::from_ref(node))
        .iter()
        .any(|node| matches!(node.kind, LogicalKind::Aggregate { .. }))
}

/// Fails if the output is no table of upserts with the key of the query.
pub(super) fn check_output(query: &Node, output: &ResolvedTable) -> Result<()> {
    let mut key = upsert_key(query).unwrap_or_default();
    let mut written = output.primary_key.clone();
    key.sort_unstable();
    written.sort_unstable();
    let connector = output.options.get("connector").map_or("", String::as_str);
    match matches!(connector, "upsert-kafka" | "jdbc") && !key.is_empty() && key == written {
        true => Ok(()),
        false => Err(unmovable(
            "each row may change its answer, so all is read and written again",
            "write to a table of upserts (upsert-kafka, jdbc) whose primary key is that of GROUP BY or PARTITION BY, of a Top-N with the row number, without a filter behind it",
        )),
    }
}
