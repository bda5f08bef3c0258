//! By which columns the rows of a changelog are updated.
//!
//! A table that is written by its primary key needs to know only what a row is now, if the query
//! updates its rows by that key: each `-U` is then followed by a `+U` of the same key, and the
//! changes of a key come in order. Everything else is materialized first: the rows of each key of
//! the table are kept.
//!
//! The answer is careful. It holds for what one operator makes of each of its keys, seen through
//! plain columns; not behind a filter, which may take the `+U` of a pair away, nor behind a join,
//! whose changes of one row may come from several partitions.
//!
//! Why a wrong "yes" would lose rows: a query updates by `a` and writes a table with key `b`. Row
//! a=1 with b=5 is deleted while row a=2 moves to b=5. The changes come from two partitions, in
//! either order:
//!
//! ```text
//! +U a=2 b=5      key 5 now holds the row of a=2
//! -D a=1 b=5      deletes key 5, and with it the row of a=2
//! ```
//!
//! Flink derives the same in FlinkRelMdUpsertKeys, and materializes in SinkUpsertMaterializer; it
//! follows keys through more operators than this module does.

use thalweg_expr::{Expr, ExprKind};

use super::{LogicalKind, Node, RankFunction, column_of};

/// The columns by which the rows of a node are updated, if that is known.
///
/// Positions in the node's columns, in no particular order. `None` says that no such columns are
/// known, not that rows are never updated.
pub fn upsert_key(node: &Node) -> Option<Vec<usize>> {
    match &node.kind {
        LogicalKind::Project { input, expressions } => {
            let place =
                |key: usize| expressions.iter().position(|expr| kept_column(expr) == Some(key));
            upsert_key(input)?.into_iter().map(place).collect()
        }
        LogicalKind::CheckNotNull { input, .. } => upsert_key(input),
        LogicalKind::Aggregate { keys, .. } if !keys.is_empty() => Some((0..keys.len()).collect()),
        LogicalKind::Normalize { keys, .. } => Some(keys.clone()),
        LogicalKind::Deduplicate { keys, .. } if !keys.is_empty() => Some(keys.clone()),
        LogicalKind::TopN {
            input,
            keys,
            function: RankFunction::RowNumber,
            ranks,
            shows_rank,
            ..
        } => {
            let rank = input.fields.len();
            // `ranks` of one row: the partition keys identify it. Of several rows: the keys with
            // the rank, if it is shown. Without a shown rank nothing says which of a key's rows is
            // updated. RANK and DENSE_RANK give a rank to several rows, so ROW_NUMBER alone is
            // matched.
            let is_single = ranks.0 == ranks.1;
            let has_key = (is_single && !keys.is_empty()) || *shows_rank;
            let rank = (*shows_rank && !is_single).then_some(rank);
            has_key.then(|| keys.iter().copied().chain(rank).collect())
        }
        _ => None,
    }
}

/// True if no two rows of a node have the same values of these expressions at a time, as far as is
/// known.
/// Joins without a bound ask it: a side with at most one row per key has a simpler state.
pub fn is_unique_by<'e>(node: &Node, keys: impl Iterator<Item = &'e Expr>) -> bool {
    let columns: Vec<usize> = keys.filter_map(kept_column).collect();
    upsert_key(node).is_some_and(|key| key.iter().all(|column| columns.contains(column)))
}

/// The column whose values an expression passes on, each as a value of its own.
/// A cast to a wider integer keeps different values different. Others may not: two DOUBLEs can be
/// one FLOAT, and '1' and '01' are one INT.
fn kept_column(expr: &Expr) -> Option<usize> {
    match &expr.kind {
        ExprKind::Cast { input, .. } => {
            let (from, to) = (&input.column_type.data_type, &expr.column_type.data_type);
            let is_wider = from.is_integer() && to.is_integer() && rank(from) <= rank(to);
            if from == to || is_wider { kept_column(input) } else { None }
        }
        _ => column_of(expr),
    }
}

/// Integers by their width.
fn rank(data_type: &thalweg_core::DataType) -> u8 {
    use thalweg_core::DataType::{Int, SmallInt, TinyInt};
    match data_type {
        TinyInt => 0,
        SmallInt => 1,
        Int => 2,
        _ => 3,
    }
}
