//! Joins: what their conditions mean.
//!
//! A join is made from the conjuncts of its condition, each of which becomes one of three things:
//!
//! | conjunct | becomes |
//! |---|---|
//! | `a.k = b.k`, `IS NOT DISTINCT FROM` | a key: rows are routed and looked up by it |
//! | row times of both sides, or window columns | the bound, which says how long rows are kept |
//! | anything else | a residual condition, evaluated for each pair of rows with equal keys |
//!
//! The bound decides which operator computes the join, what it keeps, and whether its result is
//! updated. The rules are those of Flink's IntervalJoin, WindowJoin, TemporalJoin and LookupJoin; a
//! build side read first corresponds to Flink's BroadcastHashJoin in batch mode:
//!
//! | bound | from | rows are kept | result |
//! |---|---|---|---|
//! | None | no relation of times | for the state's lifetime | append-only or updated (`changes`) |
//! | Interval | row times within constants | until no partner can come | append-only |
//! | Window | window_start and window_end equal | until the window closes | append-only |
//! | Version | FOR SYSTEM_TIME AS OF row time, ASOF | versions up to the watermark | append-only |
//! | Build | one side ends, the other does not | the side that ends | as the other side |
//! | Lookup | FOR SYSTEM_TIME AS OF processing time | nothing (a cache at most) | append-only |
//!
//! **Invariants:**
//! - expressions over "both sides" count the columns of the left side first. The two halves of a
//!   [`JoinKey`] and the columns of a [`JoinBound`] are positions on their own side;
//! - `conjuncts` is what was written, and the other fields are derived from it. A rule that changes
//!   the conjuncts or the inputs' columns builds the condition again ([`JoinCondition::of`]);
//!   pruning, which runs last, moves the derived fields and empties `conjuncts`;
//! - only `Interval` and `Build(Left)` joins keep the time attributes of the right side (see
//!   `joined_fields`).
//!
//! It does not choose an order of joins, and it does not push conditions into outer joins: ON and
//! WHERE mean different things there.

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use thalweg_core::DataType;
use thalweg_expr::{CompareOp, Expr, ExprKind, Scalar};
pub use thalweg_operators::join::JoinKind;
pub use thalweg_operators::join::hash::HashJoin;
pub use thalweg_operators::join::sides::Side;

use super::changes::NodeChanges;
use super::traversal::post_order;
use super::{Field, LogicalKind, LogicalPlan, Node, TimeAttribute};
use crate::catalog::RuntimeMode;

/// What two inputs are joined on.
#[derive(Clone, Debug)]
pub struct JoinCondition {
    /// The conjuncts as they were written, over the left columns, then the right ones.
    pub conjuncts: Vec<Expr>,
    /// Values that are equal.
    /// An equality of constants or of one side alone is no key; it stays in `residual`.
    pub keys: Vec<JoinKey>,
    /// How times are related.
    pub bound: JoinBound,
    /// What else holds, over the left columns, then the right ones.
    /// UNKNOWN counts as FALSE: the pair does not match.
    pub residual: Vec<Expr>,
    /// The side that is to be read first, whatever the inputs are.
    /// Set by a hint (`BROADCAST(t)`) or a lookup join, after a check that it is possible. Without
    /// one the boundedness of the inputs decides ([`join`]).
    pub read_first: Option<Side>,
    /// True if the right side is looked up as it is by now.
    /// Then the table may be read again periodically
    /// (`lookup.full-cache.periodic-reload.interval`).
    pub is_lookup: bool,
    /// True for an anti join of one key as `NOT IN` means it: a NULL on either side could be equal
    /// to anything.
    pub is_null_aware: bool,
    /// For how many milliseconds the rows of each side are kept, 0 for ever, where a hint says so.
    /// Only joins without a bound have it: the others know when a row is done.
    pub state_ttl_ms: (Option<i64>, Option<i64>),
}

/// Two values that are equal in rows that are joined.
#[derive(Clone, Debug)]
pub struct JoinKey {
    /// Over the left columns.
    pub left: Expr,
    /// Over the right columns.
    pub right: Expr,
    /// `IS NOT DISTINCT FROM`
    /// Joins without a bound alone look such keys up; see [`JoinCondition::within`].
    pub null_equals_null: bool,
}

/// How the times of joined rows are related. Columns are positions on their side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinBound {
    /// Not at all: any row may meet any row.
    /// Both sides are state. Memory grows for as long as the job runs, which `physical::notes`
    /// reports.
    None,
    /// `right + lower <= left <= right + upper`
    ///
    /// `l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts` is -3 600 000 to 0: both ends are
    /// inclusive, and `<` and `>` are turned into inclusive ones by one millisecond, the precision
    /// of a row time.
    Interval {
        /// The left row time.
        left_time: usize,
        /// The right row time.
        right_time: usize,
        /// In milliseconds.
        lower_ms: i64,
        /// In milliseconds.
        upper_ms: i64,
    },
    /// The same window: start and end.
    /// Positions of window_start and window_end. Nothing demands the same windowing function on
    /// both sides: rows meet where start and end are equal.
    Window {
        /// On the left.
        left: (usize, usize),
        /// On the right.
        right: (usize, usize),
    },
    /// The version of the right side that was valid at the left row's time.
    /// A left row waits until the watermark has passed its time, so that no version can still come
    /// before.
    Version {
        /// The left row time.
        left_time: usize,
        /// When versions began.
        right_time: usize,
        /// True if each row of the right side is a version (ASOF), and none ends one.
        is_asof: bool,
    },
    /// This side has ended before a row of the other comes.
    /// The sources of the other side wait at a gate until then (`physical::hash_join`).
    Build(Side),
    /// The right side is a table that is asked for the keys of the left rows.
    Lookup,
}

impl JoinBound {
    /// The same over inputs whose columns stand elsewhere.
    /// For pruning: `left` and `right` map an old position on that side to the new one.
    #[must_use]
    pub fn placed(self, left: &dyn Fn(usize) -> usize, right: &dyn Fn(usize) -> usize) -> Self {
        match self {
            JoinBound::None | JoinBound::Build(_) | JoinBound::Lookup => self,
            JoinBound::Interval { left_time, right_time, lower_ms, upper_ms } => {
                let (left_time, right_time) = (left(left_time), right(right_time));
                JoinBound::Interval { left_time, right_time, lower_ms, upper_ms }
            }
            JoinBound::Window { left: of_left, right: of_right } => JoinBound::Window {
                left: (left(of_left.0), left(of_left.1)),
                right: (right(of_right.0), right(of_right.1)),
            },
            JoinBound::Version { left_time, right_time, is_asof } => {
                let (left_time, right_time) = (left(left_time), right(right_time));
                JoinBound::Version { left_time, right_time, is_asof }
            }
        }
    }
}

impl JoinCondition {
    /// What these conjuncts mean between inputs with these columns.
    ///
    /// The window is tried before the interval, since the windows of both sides may carry row times
    /// as well. A join with both is a window join; the bounds on times stay residual conditions.
    pub fn of(conjuncts: Vec<Expr>, left: &[Field], right: &[Field]) -> Self {
        let mut condition = Self::without_bound(conjuncts, left, right);
        let bound = take_window(&mut condition.keys, left, right)
            .or_else(|| take_interval(&mut condition.residual, left, right))
            .unwrap_or(JoinBound::None);
        condition.within(bound, left.len())
    }

    /// The same, whatever is said about times.
    /// For joins whose bound the syntax gives (FOR SYSTEM_TIME AS OF, ASOF) or that a hint decides.
    pub fn without_bound(conjuncts: Vec<Expr>, left: &[Field], right: &[Field]) -> Self {
        let (mut keys, mut residual) = (Vec::new(), Vec::new());
        for conjunct in &conjuncts {
            let not_distinct = as_not_distinct(conjunct);
            match join_key(not_distinct.as_ref().unwrap_or(conjunct), left, right) {
                Some(key) => keys.push(key),
                None => residual.push(conjunct.clone()),
            }
        }
        JoinCondition {
            conjuncts,
            keys,
            bound: JoinBound::None,
            residual,
            read_first: None,
            is_lookup: false,
            is_null_aware: false,
            state_ttl_ms: (None, None),
        }
    }

    /// The same with a side that is to be read first, if any.
    #[must_use]
    pub fn reading_first(self, side: Option<Side>) -> Self {
        JoinCondition { read_first: side, ..self }
    }

    /// The same within a bound. Joins bounded by time look no NULL up: whether NULLs are equal they
    /// test for each pair.
    #[must_use]
    pub fn within(mut self, bound: JoinBound, left_width: usize) -> Self {
        self.bound = bound;
        if bound == JoinBound::None {
            return self;
        }
        // Operators with a bound drop rows whose key is NULL, as `=` allows. A key for which NULL
        // equals NULL can't be routed by there, so it becomes a residual condition over both sides
        // again.
        let (tested, keys) = self.keys.into_iter().partition(|key| key.null_equals_null);
        self.keys = keys;
        let test = |key: JoinKey| {
            let kind = ExprKind::Compare {
                op: CompareOp::NotDistinct,
                left: Box::new(key.left),
                right: Box::new(key.right.remap(&|i| i + left_width)),
            };
            Expr::new(kind, DataType::Boolean.not_null())
        };
        self.residual.extend(Vec::into_iter(tested).map(test));
        self
    }

    /// Every expression, each with the number of the first column that its positions count from.
    pub fn expressions(&self, left_width: usize) -> impl Iterator<Item = (&Expr, usize)> {
        let keys = self.keys.iter();
        keys.flat_map(move |key| [(&key.left, 0), (&key.right, left_width)])
            .chain(self.residual.iter().map(|expr| (expr, 0)))
    }

    /// The columns of the bound, on the left and on the right.
    pub fn bound_columns(&self) -> (Vec<usize>, Vec<usize>) {
        match self.bound {
            JoinBound::None | JoinBound::Build(_) | JoinBound::Lookup => (Vec::new(), Vec::new()),
            JoinBound::Interval { left_time, right_time, .. }
            | JoinBound::Version { left_time, right_time, .. } => {
                (vec![left_time], vec![right_time])
            }
            JoinBound::Window { left, right } => (vec![left.0, left.1], vec![right.0, right.1]),
        }
    }
}

/// A join as a node. Where one side ends and the other does not, that side is read first.
///
/// A bound that the condition implies has priority: only a join without one becomes a `Build`.
///
/// What calls functions that no worker may wait for is no part of an inner join's condition but a
/// filter behind it, which is a stage of its own. (Keys are computed in front of the join.)
pub fn join(left: Node, right: Node, kind: JoinKind, mut condition: JoinCondition) -> Node {
    let mut outside = Vec::new();
    if kind == JoinKind::Inner {
        outside = condition.residual.extract_if(.., |expr| !expr.executors().is_empty()).collect();
    }
    let condition = match (condition.bound, build_side(&left, &right, kind, &condition)) {
        (JoinBound::None, Some(side)) => {
            condition.within(JoinBound::Build(side), left.fields.len())
        }
        _ => condition,
    };
    let fields = joined_fields(&left, &right, kind, condition.bound);
    let joined = LogicalPlan::node(LogicalKind::Join { left, right, kind, condition }, fields);
    outside.into_iter().fold(joined, LogicalPlan::filter)
}

/// The side that is read first, if one can be and should.
/// Without an equality every row of the table would be a candidate for every row of the other side.
/// Such a join stays one of streams, unless a hint asks for it.
fn build_side(
    left: &Node,
    right: &Node,
    kind: JoinKind,
    condition: &JoinCondition,
) -> Option<Side> {
    let is_equi_join = condition.keys.iter().any(|key| !key.null_equals_null);
    let side = condition.read_first.or_else(|| match (is_bounded(left), is_bounded(right)) {
        (false, true) if is_equi_join => Some(Side::Right),
        (true, false) if is_equi_join => Some(Side::Left),
        _ => None,
    })?;
    let input = if side == Side::Left { left } else { right };
    can_be_read_first(input, kind, side).then_some(side)
}

/// True if a side of a join can be read before the other: it ends, its rows stay, and none of them
/// leaves without a partner.
pub fn can_be_read_first(input: &Node, kind: JoinKind, side: Side) -> bool {
    // `NodeChanges` are computed for one input here, in the binder, long before those of the whole
    // plan. An error (an operator over rows that change) is reported there; here it only means
    // "no".
    // A changelog that batch mode settles later is joined like any other changing side.
    let stays = |input: &Node| {
        NodeChanges::of(std::slice::from_ref(input), RuntimeMode::Streaming)
            .is_ok_and(|changes| !changes.has_updates(input))
    };
    HashJoin::can(kind, side) && is_bounded(input) && stays(input)
}

/// True if everything that is read below a node ends by itself.
pub fn is_bounded(node: &Node) -> bool {
    let ends = |node: &Node| match &node.kind {
        LogicalKind::Scan { table, .. } => table.reading.is_bounded,
        _ => true,
    };
    post_order(std::slice::from_ref(node)).iter().all(ends)
}

/// The columns behind a join. Where rows leave in any order of time, none is a row time any more.
///
/// | bound | left times | right times | why |
/// |---|---|---|---|
/// | None | no | no | a partner may come at any later time |
/// | Interval | yes | yes | a pair leaves while the watermark is held back by the operator |
/// | Window, Version | yes | no | rows leave by the time of the left row or window |
/// | Build(Right), Lookup | yes | no | the left row leaves as it came; its partners have any time |
/// | Build(Left) | no | yes | the same with the sides exchanged |
///
/// A side that is padded loses its times too: a padded row has NULL there, and a row time is never
/// NULL.
fn joined_fields(left: &Node, right: &Node, kind: JoinKind, bound: JoinBound) -> Vec<Field> {
    let keeps_times = (
        !matches!(bound, JoinBound::None | JoinBound::Build(Side::Left)) && !kind.pads_right_rows(),
        matches!(bound, JoinBound::Interval { .. } | JoinBound::Build(Side::Left))
            && !kind.pads_left_rows(),
    );
    let field = |field: &Field, pads: bool, keeps_time: bool| {
        let nullable = pads || field.column_type.nullable;
        let time = if keeps_time { field.time } else { TimeAttribute::None };
        let column_type = field.column_type.clone().with_nullable(nullable);
        Field { name: field.name.clone(), column_type, time }
    };
    let of_left = left.fields.iter().map(|f| field(f, kind.pads_right_rows(), keeps_times.0));
    let of_right = right.fields.iter().map(|f| field(f, kind.pads_left_rows(), keeps_times.1));
    match kind.has_right_columns() {
        true => of_left.chain(of_right).collect(),
        false => of_left.collect(),
    }
}

/// A filter over a node; over an inner join its conjuncts join in the condition, or move on to the
/// side that they are about. So `FROM a, b WHERE a.k = b.k` is the join that it means.
///
/// Only inner joins: below an outer join a filter on the padded side would add padded rows, not
/// remove them. A conjunct that is not deterministic stays above both sides, where it is evaluated
/// once for each pair, as it is written. One that reads the watermark stays above the join: a pair
/// of rows has no watermark before it.
///
/// ```sql
/// SELECT * FROM a, b WHERE a.k = b.k AND a.x > 3 AND a.x < b.y
/// -- becomes
/// SELECT * FROM (SELECT * FROM a WHERE x > 3) AS a JOIN b ON a.k = b.k AND a.x < b.y
/// ```
pub fn filter(node: Node, conjuncts: Vec<Expr>) -> Node {
    if conjuncts.is_empty() {
        return node;
    }
    let LogicalKind::Join { left, right, kind: JoinKind::Inner, condition } = &node.kind else {
        return conjuncts.into_iter().fold(node, LogicalPlan::filter);
    };
    // A filter on the versions would end versions that the filter hides: the join would find an
    // older version in the place of none. A lookup needs its table bare. So the filter stays above
    // the join.
    if matches!(condition.bound, JoinBound::Version { .. } | JoinBound::Lookup) {
        return conjuncts.into_iter().fold(node.clone(), LogicalPlan::filter);
    }
    if conjuncts.iter().any(Expr::uses_watermark) {
        let (above, others) = conjuncts.into_iter().partition(Expr::uses_watermark);
        let joined = filter(Arc::clone(&node), others);
        return Vec::into_iter(above).fold(joined, LogicalPlan::filter);
    }
    let width = left.fields.len();
    let (mut of_left, mut of_right, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for conjunct in conjuncts {
        let columns = conjunct.columns();
        let is_certain = conjunct.is_deterministic();
        if !columns.is_empty() && is_certain && columns.iter().all(|&i| i < width) {
            of_left.push(conjunct);
        } else if !columns.is_empty() && is_certain && columns.iter().all(|&i| i >= width) {
            of_right.push(conjunct.remap(&|i| i - width));
        } else {
            both.push(conjunct);
        }
    }
    let left = filter(Arc::clone(left), of_left);
    let right = filter(Arc::clone(right), of_right);
    let all = condition.conjuncts.iter().cloned().chain(both).collect();
    let again = match condition.read_first {
        None => JoinCondition::of(all, &left.fields, &right.fields),
        side => JoinCondition::without_bound(all, &left.fields, &right.fields).reading_first(side),
    };
    let (is_lookup, state_ttl_ms) = (condition.is_lookup, condition.state_ttl_ms);
    let again = JoinCondition { is_lookup, state_ttl_ms, ..again };
    join(left, right, JoinKind::Inner, again)
}

/// The nodes whose rows flow to the results, without those that are only read first.
/// In contract `event_time` these must have a row time; the rows of a build side are not merged
/// with them.
pub fn outside_of_builds(roots: &[Node]) -> HashSet<*const LogicalPlan> {
    let mut found = HashSet::new();
    let mut open: Vec<&Node> = roots.iter().collect();
    while let Some(node) = open.pop() {
        if !found.insert(Arc::as_ptr(node)) {
            continue;
        }
        match &node.kind {
            LogicalKind::Join { left, right, condition, .. } => match condition.bound {
                JoinBound::Build(Side::Left) => open.push(right),
                JoinBound::Build(Side::Right) | JoinBound::Lookup => open.push(left),
                _ => open.extend([left, right]),
            },
            _ => open.extend(node.inputs()),
        }
    }
    found
}

/// The parts of a condition that all have to hold.
pub fn conjuncts(condition: Expr) -> Vec<Expr> {
    match condition.kind {
        ExprKind::And(left, right) => {
            let mut parts = conjuncts(*left);
            parts.extend(conjuncts(*right));
            parts
        }
        _ => vec![condition],
    }
}

/// True if an expression reads columns of one side only, and some.
fn is_of(expr: &Expr, range: std::ops::Range<usize>) -> bool {
    let columns = expr.columns();
    !columns.is_empty() && columns.iter().all(|i| range.contains(i))
}

/// The key that an equality is. Equal row times bound a distance; they are no key.
///
/// An equality is a key if each operand reads columns of exactly one side. `a.x + b.y = 3` is none.
pub(crate) fn join_key(conjunct: &Expr, left: &[Field], right: &[Field]) -> Option<JoinKey> {
    let width = left.len();
    if distance(conjunct, left, right).is_some() {
        return None;
    }
    let ExprKind::Compare { op, left: first, right: second } = &conjunct.kind else {
        return None;
    };
    let null_equals_null = match op {
        CompareOp::Equal => false,
        CompareOp::NotDistinct => true,
        _ => return None,
    };
    let (of_left, of_right) = if is_of(first, 0..width) && is_of(second, width..usize::MAX) {
        (first, second)
    } else if is_of(second, 0..width) && is_of(first, width..usize::MAX) {
        (second, first)
    } else {
        return None;
    };
    let right = of_right.remap(&|i| i - width);
    Some(JoinKey { left: of_left.as_ref().clone(), right, null_equals_null })
}

/// `a = b OR a IS NULL AND b IS NULL` as what it means: `a IS NOT DISTINCT FROM b`.
/// Operands are compared by their text, which is how expressions are compared everywhere in this
/// crate.
fn as_not_distinct(conjunct: &Expr) -> Option<Expr> {
    let ExprKind::Or(first, second) = &conjunct.kind else { return None };
    let null = |expr: &Expr| match &expr.kind {
        ExprKind::IsNull { input, negated: false } => Some(input.to_string()),
        _ => None,
    };
    let of = |equal: &Expr, nulls: &Expr| {
        let ExprKind::Compare { op: CompareOp::Equal, left, right } = &equal.kind else {
            return None;
        };
        let ExprKind::And(one, other) = &nulls.kind else { return None };
        let (one, other) = (null(one)?, null(other)?);
        let sides = (left.to_string(), right.to_string());
        let is_meant = sides == (one.clone(), other.clone()) || sides == (other, one);
        let (left, right) = (left.clone(), right.clone());
        let kind = ExprKind::Compare { op: CompareOp::NotDistinct, left, right };
        is_meant.then(|| Expr::new(kind, DataType::Boolean.not_null()))
    };
    of(first, second).or_else(|| of(second, first))
}

/// Takes the equality of both ends of two windows out of the keys.
/// One end alone does not make a window join (windows of different kinds may share an end): it
/// stays a key. This is Flink's rule for window joins.
fn take_window(keys: &mut Vec<JoinKey>, left: &[Field], right: &[Field]) -> Option<JoinBound> {
    let ends = |is_end: bool| {
        keys.iter().find_map(|key| {
            let (a, b) = (super::column_of(&key.left)?, super::column_of(&key.right)?);
            // Windows of the clock are closed by no watermark.
            let fits = |time: TimeAttribute| match time {
                TimeAttribute::WindowStart(id) => !is_end && !id.by_clock,
                TimeAttribute::WindowEnd(id) => is_end && !id.by_clock,
                _ => false,
            };
            (fits(left[a].time) && fits(right[b].time)).then_some((a, b))
        })
    };
    let (start, end) = (ends(false)?, ends(true)?);
    keys.retain(|key| {
        let pair = (super::column_of(&key.left), super::column_of(&key.right));
        pair != (Some(start.0), Some(start.1)) && pair != (Some(end.0), Some(end.1))
    });
    Some(JoinBound::Window { left: (start.0, end.0), right: (start.1, end.1) })
}

/// A bound on the distance `left - right` of two row times.
struct Distance {
    left_time: usize,
    right_time: usize,
    lower_ms: Option<i64>,
    upper_ms: Option<i64>,
}

/// Takes conditions that bound the distance of the row times on both ends.
/// A distance with one end only would keep rows for ever, so it stays a residual condition and the
/// join has no bound. Several bounds on the same pair of times are intersected. Bounds on a second
/// pair of row times stay residual conditions.
fn take_interval(rest: &mut Vec<Expr>, left: &[Field], right: &[Field]) -> Option<JoinBound> {
    let distances: Vec<Option<Distance>> =
        rest.iter().map(|conjunct| distance(conjunct, left, right)).collect();
    let first = distances.iter().flatten().next()?;
    let times = (first.left_time, first.right_time);
    let same = |found: &&Distance| (found.left_time, found.right_time) == times;
    let lower_ms = distances.iter().flatten().filter(same).filter_map(|d| d.lower_ms).max()?;
    let upper_ms = distances.iter().flatten().filter(same).filter_map(|d| d.upper_ms).min()?;
    let mut used = distances.iter().map(|found| found.as_ref().is_some_and(|d| same(&d)));
    rest.retain(|_| !used.next().unwrap_or(false));
    Some(JoinBound::Interval { left_time: times.0, right_time: times.1, lower_ms, upper_ms })
}

/// What a comparison says about the distance of two row times.
fn distance(conjunct: &Expr, left: &[Field], right: &[Field]) -> Option<Distance> {
    let ExprKind::Compare { op, left: first, right: second } = &conjunct.kind else { return None };
    let ((a, a_ms), (b, b_ms)) = (moved_time(first)?, moved_time(second)?);
    let width = left.len();
    let is_time = |i: usize| match i.checked_sub(width) {
        None => left[i].time.is_rowtime(),
        Some(i) => right[i].time.is_rowtime(),
    };
    if !is_time(a) || !is_time(b) || (a < width) == (b < width) {
        return None;
    }
    // l + x op r + y, so l - r op y - x; with the sides exchanged the comparison turns round.
    let (op, left_time, right_time, bound_ms) = match a < width {
        true => (*op, a, b - width, b_ms.checked_sub(a_ms)?),
        false => (turned(*op)?, b, a - width, a_ms.checked_sub(b_ms)?),
    };
    let (lower_ms, upper_ms) = match op {
        CompareOp::Less => (None, Some(bound_ms - 1)),
        CompareOp::LessOrEqual => (None, Some(bound_ms)),
        CompareOp::Greater => (Some(bound_ms + 1), None),
        CompareOp::GreaterOrEqual => (Some(bound_ms), None),
        CompareOp::Equal => (Some(bound_ms), Some(bound_ms)),
        _ => return None,
    };
    Some(Distance { left_time, right_time, lower_ms, upper_ms })
}

/// The comparison with its sides exchanged.
pub(super) fn turned(op: CompareOp) -> Option<CompareOp> {
    Some(match op {
        CompareOp::Less => CompareOp::Greater,
        CompareOp::LessOrEqual => CompareOp::GreaterOrEqual,
        CompareOp::Greater => CompareOp::Less,
        CompareOp::GreaterOrEqual => CompareOp::LessOrEqual,
        CompareOp::Equal => CompareOp::Equal,
        _ => return None,
    })
}

/// A column of a time and by how much it is moved.
fn moved_time(expr: &Expr) -> Option<(usize, i64)> {
    if let ExprKind::Call { function, args } = &expr.kind
        && let [time, interval] = &args[..]
        && interval.column_type.data_type == DataType::IntervalDayTime
        && let Some(&Scalar::Integer(distance_ms)) = interval.as_literal()
    {
        let column = super::column_of(time)?;
        return match &*function.name {
            "-" => Some((column, distance_ms.checked_neg()?)),
            "+" => Some((column, distance_ms)),
            _ => None,
        };
    }
    super::column_of(expr).map(|column| (column, 0))
}

impl fmt::Display for JoinCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        for JoinKey { left, right, null_equals_null } in &self.keys {
            let word = if *null_equals_null { "IS NOT DISTINCT FROM" } else { "=" };
            parts.push(format!("left {left} {word} right {right}"));
        }
        match self.bound {
            JoinBound::None => {
                let (left, right) = self.state_ttl_ms;
                parts.extend(left.map(|ms| format!("left kept for {ms} ms")));
                parts.extend(right.map(|ms| format!("right kept for {ms} ms")));
            }
            JoinBound::Build(side) => parts.push(format!("{side:?} side read first")),
            JoinBound::Lookup => parts.push("right side asked by key".to_owned()),
            JoinBound::Interval { left_time, right_time, lower_ms, upper_ms } => parts.push(
                format!("left ${left_time} - right ${right_time} in {lower_ms} to {upper_ms} ms"),
            ),
            JoinBound::Window { left, right } => parts.push(format!(
                "window left ${} to ${} = right ${} to ${}",
                left.0, left.1, right.0, right.1
            )),
            JoinBound::Version { left_time, right_time, is_asof } => {
                let what = if is_asof { "row" } else { "version" };
                parts.push(format!("{what} of right ${right_time} at left ${left_time}"));
            }
        }
        parts.extend(self.is_null_aware.then(|| "NULL on either side is a partner".to_owned()));
        parts.extend(self.residual.iter().map(ToString::to_string));
        let mut text = String::new();
        write!(text, "{}", parts.join(" AND "))?;
        f.write_str(&text)
    }
}
