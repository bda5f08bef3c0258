//! Which relations hold rows that change later, and which operators need rows that stay.
//!
//! A relation either only grows (inserts), or it is a changelog: rows are updated and retracted.
//! That follows from what the nodes compute and from nothing else. Flink derives the same in
//! FlinkChangelogModeInferenceProgram, with finer kinds of change; here a relation is append-only
//! or has all kinds.
//!
//! | node | its result changes if |
//! |---|---|
//! | Scan | its connector holds changes |
//! | Aggregate with functions | always: each row updates its key |
//! | Aggregate without (DISTINCT) | its input changes |
//! | Join without a bound, inner or semi | an input changes |
//! | Join without a bound, outer or anti | always: a later partner retracts a row |
//! | Join with Build | the probe side changes |
//! | Join with any other bound | never; its inputs must not change |
//! | INTERSECT | an input changes; EXCEPT: always |
//! | TopN | always, except per window that closes |
//! | Deduplicate | it keeps the last row |
//! | Over | the order is not that of a time, on a stream |
//! | SortLimit | its input changes or never ends |
//! | WindowAggregate | never: a window is emitted once, with what is left of its rows |
//! | all others | an input changes |
//!
//! **Invariants that follow for operators:**
//! - a changelog is complete: every `-U` or `-D` retracts a row that the same node emitted before,
//!   with equal values in all columns. The changes of one key of the node come in order; equal rows
//!   of different keys may interleave. A row whose retraction finds nothing (its state has expired)
//!   is ignored. Tables that hold a changelog are trusted in this;
//! - OVER a time, patterns, sorts by time, bounded joins, and what chooses or joins the rows of a
//!   window never see a retraction: a plan that would send them one is refused here, with the
//!   operator that causes it. Flink refuses the same. Windows of processing time are among them:
//!   a retraction comes in another window than its row.
//!
//! **Batch mode.** Nobody sees results before the end, so every node that would change emits its
//! final rows once (`physical::lower` settles it with `FinalRows`), and nothing above it knows of
//! any change. That is why all operators accept everything in batch mode. Upserts are the
//! exception: they can be settled only after Normalize, which knows what a row was.
//!
//! The map is keyed by address. It is valid for the plan that it was made from, as long as that
//! lives.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{Error, Result};

use super::traversal::post_order;
use super::{JoinBound, JoinKind, LogicalKind, LogicalPlan, Node, TimeAttribute};
use crate::catalog::RuntimeMode;

/// For each node of a plan whether its rows change.
///
/// A node that is not in the map counts as append-only.
#[derive(Default)]
pub struct NodeChanges {
    by_node: HashMap<*const LogicalPlan, bool>,
    /// In batch mode the nodes whose changes are settled downstream of them, so that nothing above
    /// knows of any. Upserts are settled downstream of their normalization.
    settled: HashSet<*const LogicalPlan>,
    unbounded: HashSet<*const LogicalPlan>,
}

impl NodeChanges {
    /// Works it out for these roots and everything below.
    ///
    /// Inputs come first, so each node is decided by what is known of its inputs. The binder asks
    /// with [`RuntimeMode::Streaming`] for parts of a plan, `physical` for the whole plan.
    ///
    /// # Errors
    /// An operator that needs rows that stay, over rows that change: both are named.
    pub fn of(roots: &[Node], mode: RuntimeMode) -> Result<Self> {
        let mut changes = NodeChanges::default();
        for node in post_order(roots) {
            if changes.reads_for_ever(&node) {
                changes.unbounded.insert(Arc::as_ptr(&node));
            }
            // `below` is the first input that changes. Checked before the node itself is decided,
            // so that an error names the lowest operator that can't take changes.
            let below = node.inputs().into_iter().find(|input| changes.has_updates(input));
            if let (Some(input), Some(operator)) = (below, needs_inserts(&node.kind)) {
                return Err(changes.over_changes(operator, input));
            }
            let has_updates = match &node.kind {
                LogicalKind::Scan { table, .. } => {
                    table.reading.changes != AcceptedChanges::Inserts
                }
                LogicalKind::Aggregate { aggregates, .. } => {
                    below.is_some() || !aggregates.is_empty()
                }
                LogicalKind::Join { kind, condition, .. } => match condition.bound {
                    JoinBound::None => {
                        below.is_some() || !matches!(kind, JoinKind::Inner | JoinKind::Semi)
                    }
                    // The build side is append-only (`can_be_read_first`), so changes come from the
                    // probe side.
                    JoinBound::Build(_) => below.is_some(),
                    // `needs_inserts` has refused inputs that change.
                    _ => false,
                },
                LogicalKind::WindowAggregate { .. } => false,
                LogicalKind::Over { input, window, .. } => {
                    let is_updated = !window.is_by_time(&input.fields);
                    below.is_some() || (is_updated && mode == RuntimeMode::Streaming)
                }
                LogicalKind::SetOperation { intersects, .. } => below.is_some() || !intersects,
                LogicalKind::TopN { input, keys, .. } => {
                    below.is_some() || window_end_key(input, keys).is_none()
                }
                LogicalKind::Deduplicate { keeps_last, .. } => below.is_some() || *keeps_last,
                // There is no end at which to answer: each row may change the answer.
                LogicalKind::SortLimit { input, .. } => {
                    below.is_some() || changes.is_unbounded(input)
                }
                _ => below.is_some(),
            };
            let settles = has_updates && mode == RuntimeMode::Batch && !holds_upserts(&node.kind);
            if settles {
                changes.settled.insert(Arc::as_ptr(&node));
            }
            changes.by_node.insert(Arc::as_ptr(&node), has_updates && !settles);
        }
        Ok(changes)
    }

    /// True if this node produces changes of which only the final result is emitted.
    /// Only in batch mode.
    pub fn is_settled(&self, node: &Node) -> bool {
        self.settled.contains(&Arc::as_ptr(node))
    }

    fn reads_for_ever(&self, node: &Node) -> bool {
        match &node.kind {
            LogicalKind::Scan { table, .. } => table.reading.is_endless(),
            _ => node.inputs().into_iter().any(|input| self.is_unbounded(input)),
        }
    }

    /// True if rows of this node may come for ever.
    /// A table that is asked by key is no input of rows, so it does not count.
    pub fn is_unbounded(&self, node: &Node) -> bool {
        self.unbounded.contains(&Arc::as_ptr(node))
    }

    /// True if rows of this node are updated or retracted later.
    /// In batch mode false also for nodes whose operator updates: `physical` settles them.
    pub fn has_updates(&self, node: &Node) -> bool {
        self.by_node.get(&Arc::as_ptr(node)).copied().unwrap_or(false)
    }

    /// An operator over rows that change.
    fn over_changes(&self, operator: &str, input: &Node) -> Error {
        let cause = self.cause(input);
        Error::plan(format!("{operator} needs rows that stay as they are, but {cause}")).hint(
            "aggregate per window (GROUP BY window_start, window_end), so that results are final",
        )
    }

    /// What makes the rows of a node change, as the end of a sentence: the nearest operator that
    /// does, or the table that holds changes.
    pub fn cause(&self, node: &Node) -> String {
        if let LogicalKind::Scan { table, .. } = &node.kind {
            return format!("table '{}' holds changes ('changelog')", table.name);
        }
        match updating(&node.kind, self) {
            Some(operator) => format!("{operator} updates its results"),
            None => {
                let below = node.inputs().into_iter().find(|input| self.has_updates(input));
                below.map_or_else(String::new, |input| self.cause(input))
            }
        }
    }
}

/// True for a table of upserts: alone they are no changelog, since no row is retracted by value.
/// What they leave is known only behind [`LogicalKind::Normalize`], which always follows.
fn holds_upserts(kind: &LogicalKind) -> bool {
    matches!(kind, LogicalKind::Scan { table, .. }
        if table.reading.changes == AcceptedChanges::Upserts)
}

/// What an operator is called that changes its results, also where its input does not.
fn updating(kind: &LogicalKind, changes: &NodeChanges) -> Option<&'static str> {
    Some(match kind {
        LogicalKind::Aggregate { keys, aggregates, .. } if !aggregates.is_empty() => {
            if keys.is_empty() {
                "an aggregate without a window"
            } else {
                "GROUP BY without a window"
            }
        }
        LogicalKind::Join { kind, condition, .. }
            if condition.bound == JoinBound::None
                && !matches!(kind, JoinKind::Inner | JoinKind::Semi) =>
        {
            "an outer join without a bound in time"
        }
        LogicalKind::SetOperation { intersects: false, .. } => "EXCEPT",
        LogicalKind::Over { input, window, .. } if !window.is_by_time(&input.fields) => {
            "OVER an order of values"
        }
        LogicalKind::TopN { .. } => "ROW_NUMBER() (Top-N)",
        LogicalKind::Deduplicate { keeps_last: true, .. } => "the last row per key",
        LogicalKind::SortLimit { input, .. } if !changes.has_updates(input) => {
            "ORDER BY … LIMIT over an input without an end"
        }
        _ => return None,
    })
}

/// The key that is the end of a window, if keys identify a whole window: first rows are then those
/// of a window, and final once it closes.
///
/// Both ends must be among the keys. A start alone does not identify a window of CUMULATE, nor an
/// end a window of CUMULATE or a session.
pub fn window_end_key(input: &Node, keys: &[usize]) -> Option<usize> {
    let find = |what: fn(TimeAttribute) -> bool| {
        keys.iter().copied().find(|&key| what(input.fields[key].time))
    };
    // No watermark closes a window of the clock.
    find(|time| matches!(time, TimeAttribute::WindowStart(id) if !id.by_clock))?;
    find(|time| matches!(time, TimeAttribute::WindowEnd(id) if !id.by_clock))
}

/// What an operator is called that can't take rows that change.
fn needs_inserts(kind: &LogicalKind) -> Option<&'static str> {
    match kind {
        LogicalKind::WindowAggregate { window, .. } | LogicalKind::WindowRows { window, .. } => {
            window.id.by_clock.then_some("a window of processing time")
        }
        LogicalKind::TopN { input, keys, .. } => {
            window_end_key(input, keys).map(|_| "ROW_NUMBER() of a window (Top-N)")
        }
        LogicalKind::TemporalSort { .. } => Some("ORDER BY a row time"),
        LogicalKind::Over { input, window, .. } => {
            window.is_by_time(&input.fields).then_some("OVER a time")
        }
        LogicalKind::Match { .. } => Some("MATCH_RECOGNIZE"),
        LogicalKind::Process { .. } => Some("a process function"),
        LogicalKind::Deduplicate { .. } => Some("ROW_NUMBER() = 1 in the order of a time"),
        LogicalKind::Join { condition, .. } => match condition.bound {
            JoinBound::None | JoinBound::Build(_) => None,
            JoinBound::Lookup => Some("a join with a table that is asked by key"),
            JoinBound::Interval { .. } => Some("a join within an interval"),
            JoinBound::Window { .. } => Some("a join of windows"),
            JoinBound::Version { is_asof: true, .. } => Some("an ASOF JOIN"),
            JoinBound::Version { .. } => Some("a join FOR SYSTEM_TIME AS OF"),
        },
        LogicalKind::Limit { .. } => Some("LIMIT without ORDER BY"),
        _ => None,
    }
}
