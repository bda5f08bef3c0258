//! Functions over the rows before a row, and ranks.
//!
//! `ROW_NUMBER() OVER (…)` with a condition on its result is not computed for every row: it means
//! the first rows of each key ([`filter`]), or the one row of each key that counts.
//!
//! ```sql
//! SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t)
//! WHERE n <= 3                    -- TopN, ranks 1 to 3
//! SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM t)
//! WHERE n = 1                     -- Deduplicate, the first row; ORDER BY ts DESC: the last row
//! ```
//!
//! | condition and order | node | result |
//! |---|---|---|
//! | `= 1`, by row time ascending | Deduplicate, first | append-only, after the watermark |
//! | `= 1`, by row time or arrival, DESC | Deduplicate, last | updates |
//! | `= 1`, by processing time ascending | Deduplicate, first | append-only, at once |
//! | an upper bound, any order | TopN | updates; append-only per closed window |
//! | no upper bound, by time | Over | append-only |
//! | no upper bound, ROW_NUMBER by one value, ascending | Over | updates |
//! | no upper bound, any other | refused by `physical::over` | |
//!
//! This is Flink's pattern for Top-N and deduplication: the condition must stand in the query
//! directly around the one with ROW_NUMBER, and must bound the rank from above by constants. RANK
//! and DENSE_RANK become a TopN too, never a Deduplicate: several rows may have rank 1.
//!
//! A condition that is recognized is consumed; all others stay a filter above.

use std::fmt;

use thalweg_core::{ColumnType, DataType};
use thalweg_expr::{CompareOp, Expr, ExprKind, Scalar};
pub use thalweg_operators::over_whole::WholeFrame;
pub use thalweg_operators::top_n::RankFunction;

use super::changes::window_end_key;
use super::{Aggregate, Field, LogicalKind, LogicalPlan, Node, SortKey, column_of};

/// Which rows a function over rows sees.
#[derive(Clone, Debug, PartialEq)]
pub struct OverWindow {
    /// `PARTITION BY`, as positions in the input.
    pub keys: Vec<usize>,
    /// `ORDER BY`.
    pub order: Vec<SortKey>,
    /// How far back.
    pub frame: OverFrame,
}

impl OverWindow {
    /// True if the order is that of one time: the rows before a row are then known at some point.
    pub fn is_by_time(&self, fields: &[Field]) -> bool {
        match self.order[..] {
            [SortKey { column, descending: false, .. }] => {
                let time = fields[column].time;
                time.is_rowtime() || time.is_proctime()
            }
            _ => false,
        }
    }
}

/// Which rows a function over rows looks at; on a stream always up to the row itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverFrame {
    /// That number of rows before it; all rows without a number.
    /// `Rows(Some(0))` is the row alone.
    Rows(Option<u64>),
    /// Rows at most that number of milliseconds older, rows of the same time included; all without
    /// a number.
    /// Rows of equal time are peers: each sees the others, also those that arrive later.
    Range(Option<i64>),
    /// Any others, in batch mode.
    Whole(WholeFrame),
}

/// A number that depends on all rows of the key, also on later ones: in batch mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeNumber {
    /// `NTILE(n)`
    Tile(u64),
    /// `PERCENT_RANK()`
    PercentRank,
    /// `CUME_DIST()`
    CumulativeDistribution,
}

/// A function over rows.
#[derive(Clone, Debug)]
pub struct OverCall {
    /// Which.
    pub function: OverFunction,
    /// The type of its result.
    pub column_type: ColumnType,
}

/// What is computed over the rows before a row. Columns are positions in the input.
#[derive(Clone, Debug)]
pub enum OverFunction {
    /// An aggregate.
    Aggregate(Aggregate),
    /// A rank.
    Rank(RankFunction),
    /// A number that depends on later rows as well.
    Number(WholeNumber),
    /// The value that number of rows before (LAG) or after (LEAD).
    /// A row with LEAD waits until the later row has its turn.
    Shifted {
        /// The value.
        value: Expr,
        /// How many rows.
        offset: u64,
        /// Where there is no such row; NULL without one.
        default: Option<Expr>,
        /// True for LEAD.
        leads: bool,
    },
}

/// Conditions over a node. Where they bound the rank that a projection below passes on, the node
/// becomes the first rows of each key; what else they say stays a filter.
///
/// The shape below is exactly what the binder makes of a sub-query: a projection of an Over with
/// one rank. An Over node with a second function is not recognized: it must compute that one for
/// every row.
pub fn filter(node: Node, conjuncts: Vec<Expr>) -> Node {
    let Some((ranked, rest)) = first_rows(&node, &conjuncts) else {
        return conjuncts.into_iter().fold(node, LogicalPlan::filter);
    };
    rest.into_iter().fold(ranked, LogicalPlan::filter)
}

fn first_rows(node: &Node, conjuncts: &[Expr]) -> Option<(Node, Vec<Expr>)> {
    let LogicalKind::Project { input, expressions } = &node.kind else { return None };
    let LogicalKind::Over { input: below, window, calls } = &input.kind else { return None };
    let [OverCall { function: OverFunction::Rank(function), .. }] = &calls[..] else { return None };
    let rank = below.fields.len();
    let is_rank =
        |expr: &Expr| column_of(expr).is_some_and(|i| column_of(&expressions[i]) == Some(rank));
    // Several bounds are intersected. `to?` refuses where none bounds the rank from above: all rows
    // would have to be kept.
    let (mut from, mut to, mut rest) = (1, None, Vec::new());
    for conjunct in conjuncts {
        match rank_bound(conjunct, &is_rank) {
            Some((low, high)) => {
                from = from.max(low);
                to = match (to, high) {
                    (Some(to), Some(high)) => Some(high.min(to)),
                    (known, high) => known.or(high),
                };
            }
            None => rest.push(conjunct.clone()),
        }
    }
    let ranked = ranked_rows(below, window, *function, (from, to?));
    let expressions = expressions.clone();
    Some((
        LogicalPlan::node(LogicalKind::Project { input: ranked, expressions }, node.fields.clone()),
        rest,
    ))
}

/// What a comparison says of the rank: the least one, and the greatest if it has one.
///
/// A negative constant counts as 0, which is below every rank: `n <= -1` selects nothing and `n >
/// -1` excludes nothing. A range that is empty has its first rank above its last.
fn rank_bound(conjunct: &Expr, is_rank: &dyn Fn(&Expr) -> bool) -> Option<(u64, Option<u64>)> {
    let ExprKind::Compare { op, left, right } = &conjunct.kind else { return None };
    let number = |expr: &Expr| match uncast(expr).as_literal() {
        Some(&Scalar::Integer(n)) => Some(u64::try_from(n).unwrap_or(0)),
        _ => None,
    };
    let (op, n) = match (is_rank(uncast(left)), is_rank(uncast(right))) {
        (true, false) => (*op, number(right)?),
        (false, true) => (super::join::turned(*op)?, number(left)?),
        _ => return None,
    };
    match op {
        CompareOp::Equal => Some((n, Some(n))),
        CompareOp::LessOrEqual => Some((1, Some(n))),
        CompareOp::Less => Some((1, Some(n.saturating_sub(1)))),
        CompareOp::GreaterOrEqual => Some((n, None)),
        CompareOp::Greater => Some((n + 1, None)),
        _ => None,
    }
}

/// The value before casts to INT and BIGINT, which hold every rank that there is. A narrower type
/// does not: TRY_CAST makes NULL of the others.
fn uncast(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Cast { input, .. }
            if matches!(expr.column_type.data_type, DataType::Int | DataType::BigInt) =>
        {
            uncast(input)
        }
        _ => expr,
    }
}

/// The first rows of each key with their rank; one row in the order of a time is a deduplication.
/// A TopN keeps no time attributes: a row may leave again, or come back, at any later time. Of a
/// window it keeps those of the window: its rows leave once, when the window closes.
fn ranked_rows(
    input: &Node,
    window: &OverWindow,
    function: RankFunction,
    ranks: (u64, u64),
) -> Node {
    let rank = Field::plain("rank", DataType::BigInt.not_null());
    if let ([first], (1, 1), RankFunction::RowNumber) = (&window.order[..], ranks, function) {
        let time = input.fields[first.column].time;
        let rowtime = time.is_rowtime().then_some(first.column);
        if rowtime.is_some() || time.is_proctime() {
            return one_row(input, window, first.descending, rowtime, rank);
        }
    }
    let window_id =
        window_end_key(input, &window.keys).and_then(|end| input.fields[end].time.window());
    let field = |field: Field| match field.time.window() {
        Some(id) if Some(id) == window_id => field,
        _ => field.without_time(),
    };
    let fields: Vec<Field> = input.fields.iter().cloned().map(field).chain([rank]).collect();
    let kind = LogicalKind::TopN {
        input: input.clone(),
        keys: window.keys.clone(),
        order: window.order.clone(),
        function,
        ranks,
        shows_rank: true,
    };
    LogicalPlan::node(kind, fields)
}

/// One row of each key, with the rank 1 behind it.
fn one_row(
    input: &Node,
    window: &OverWindow,
    keeps_last: bool,
    rowtime: Option<usize>,
    rank: Field,
) -> Node {
    // The last row is updated, so it has no place in time any more; the first stays.
    let keeps_time = !keeps_last && rowtime.is_some();
    let field = |field: Field| if keeps_time { field } else { field.without_time() };
    let fields: Vec<Field> = input.fields.iter().cloned().map(field).collect();
    let keys = window.keys.clone();
    let kind = LogicalKind::Deduplicate { input: input.clone(), keys, keeps_last, rowtime };
    let node = LogicalPlan::node(kind, fields);
    let rank = (rank.name, Expr::literal(Scalar::Integer(1), rank.column_type));
    let columns = node.columns().chain([rank]).collect();
    LogicalPlan::project(node, columns)
}

impl fmt::Display for OverWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.order.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "by {:?} order [{order}] {:?}", self.keys, self.frame)
    }
}

impl fmt::Display for OverCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            OverFunction::Aggregate(aggregate) => write!(f, "{aggregate}"),
            OverFunction::Rank(rank) => write!(f, "{rank:?}"),
            OverFunction::Number(number) => write!(f, "{number:?}"),
            OverFunction::Shifted { value, offset, default, leads } => {
                write!(f, "{} {value} {offset}", if *leads { "LEAD" } else { "LAG" })?;
                default.iter().try_for_each(|default| write!(f, " else {default}"))
            }
        }
    }
}
