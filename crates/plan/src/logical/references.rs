//! What the kinds of node have in common: their inputs, what of those they refer to, and what they
//! pass on. Rules over plans ask here, so that a new kind is described once.
//!
//! **To add a kind of node:** add it to `inputs_of!`; say in [`LogicalKind::each_reference`] where
//! it refers to columns; leave it out of [`LogicalKind::passed_on`] only if its columns do not
//! begin with its input's; add it to `judged_time` if it drops late rows, and to `with_needed` if
//! it can compute fewer columns. Sharing needs a text (`LogicalPlan::describe`), stage identifiers
//! need `physical::identity::keeps_rows`, changelogs need [`changes`](super::changes). The compiler
//! finds the first two and the text; nothing finds the others, so a kind that is missing there is
//! treated as one that passes its input through.

use std::collections::BTreeSet;

use thalweg_expr::Expr;
use thalweg_operators::pattern::{Condition, PatternValue};

use super::{Aggregate, LogicalKind, Node, OverFunction, Window};

/// Positions of columns.
/// Ordered, so that what is built from it is in the order of the columns.
pub(super) type Demand = BTreeSet<usize>;

/// What refers to columns of an input.
pub enum Reference<'a> {
    /// A position.
    Column(&'a mut usize),
    /// An expression over the columns.
    Expr(&'a mut Expr),
}

/// The inputs of a kind, shared or not.
/// A macro, since `&` and `&mut` need the same match. The order is that of the node's columns: left
/// before right.
macro_rules! inputs_of {
    ($kind:expr, $iter:ident) => {
        match $kind {
            LogicalKind::Scan { .. } | LogicalKind::Values { .. } => Vec::new(),
            LogicalKind::UnionAll { inputs } | LogicalKind::Refused { inputs, .. } => {
                inputs.$iter().collect()
            }
            LogicalKind::Join { left, right, .. }
            | LogicalKind::SetOperation { left, right, .. } => vec![left, right],
            LogicalKind::Filter { input, .. }
            | LogicalKind::Project { input, .. }
            | LogicalKind::WindowRows { input, .. }
            | LogicalKind::WindowAggregate { input, .. }
            | LogicalKind::Aggregate { input, .. }
            | LogicalKind::Over { input, .. }
            | LogicalKind::Match { input, .. }
            | LogicalKind::Process { input, .. }
            | LogicalKind::TopN { input, .. }
            | LogicalKind::Deduplicate { input, .. }
            | LogicalKind::Normalize { input, .. }
            | LogicalKind::Unnest { input, .. }
            | LogicalKind::TemporalSort { input, .. }
            | LogicalKind::SortLimit { input, .. }
            | LogicalKind::Limit { input, .. }
            | LogicalKind::CheckNotNull { input, .. } => vec![input],
        }
    };
}

impl LogicalKind {
    /// The relations it is made from.
    pub fn inputs(&self) -> Vec<&Node> {
        inputs_of!(self, iter)
    }

    /// The same, to be replaced.
    /// An input may only be replaced by a node whose columns the references fit.
    pub(super) fn inputs_mut(&mut self) -> Vec<&mut Node> {
        inputs_of!(self, iter_mut)
    }

    /// The input whose columns are the first ones of the node, before those that it appends.
    ///
    /// None for joins and set operations, which have two inputs.
    pub fn passed_on(&self) -> Option<&Node> {
        match self {
            LogicalKind::Project { .. }
            | LogicalKind::WindowAggregate { .. }
            | LogicalKind::Aggregate { .. }
            | LogicalKind::Match { .. }
            | LogicalKind::Process { .. }
            | LogicalKind::UnionAll { .. }
            | LogicalKind::Refused { .. } => None,
            kind => match kind.inputs()[..] {
                [input] => Some(input),
                _ => None,
            },
        }
    }

    /// The row time by which it judges whether rows are late, where it does.
    /// Late rows that go to a table need columns that nothing else may read, so `demand` asks here.
    /// A join within an interval has two such times and is handled there.
    pub(super) fn judged_time(&self) -> Option<usize> {
        match self {
            LogicalKind::WindowAggregate { window, .. } => Some(window.rowtime),
            LogicalKind::Over { input, window, .. } => {
                window.is_by_time(&input.fields).then(|| window.order[0].column)
            }
            LogicalKind::Match { pattern, .. } => Some(pattern.rowtime),
            LogicalKind::TemporalSort { keys, .. } => Some(keys[0].column),
            LogicalKind::Deduplicate { rowtime, keeps_last: false, .. } => *rowtime,
            _ => None,
        }
    }

    /// Takes all that refers to columns of its one input; what a session window is partitioned by
    /// and patterns, which are moved as a whole, excepted. Of a join it takes the expressions.
    ///
    /// Keys and residual conditions of a join count from different columns, so a caller that
    /// translates positions must handle joins itself.
    pub fn each_reference(&mut self, take: &mut dyn FnMut(Reference<'_>)) {
        if let Some(window) = self.window_mut() {
            take(Reference::Column(&mut window.rowtime));
        }
        match self {
            LogicalKind::Filter { predicate, .. } => take(Reference::Expr(predicate)),
            LogicalKind::Unnest { array, .. } => take(Reference::Expr(array)),
            LogicalKind::Project { expressions, .. } => {
                expressions.iter_mut().for_each(|expr| take(Reference::Expr(expr)));
            }
            LogicalKind::WindowAggregate { keys, aggregates, .. }
            | LogicalKind::Aggregate { keys, aggregates, .. } => {
                let of_aggregates = aggregates.iter_mut().flat_map(|a| a.expressions_mut());
                keys.iter_mut().chain(of_aggregates).for_each(|expr| take(Reference::Expr(expr)));
            }
            LogicalKind::Join { condition, .. } => {
                let keys =
                    condition.keys.iter_mut().flat_map(|key| [&mut key.left, &mut key.right]);
                keys.chain(&mut condition.residual).for_each(|expr| take(Reference::Expr(expr)));
            }
            LogicalKind::Over { window, calls, .. } => {
                window.keys.iter_mut().for_each(|key| take(Reference::Column(key)));
                window.order.iter_mut().for_each(|key| take(Reference::Column(&mut key.column)));
                for call in calls {
                    call.function.expressions_mut().for_each(|expr| take(Reference::Expr(expr)));
                }
            }
            LogicalKind::TopN { keys, order, .. } => {
                let order = order.iter_mut().map(|key| &mut key.column);
                keys.iter_mut().chain(order).for_each(|column| take(Reference::Column(column)));
            }
            LogicalKind::Deduplicate { keys, rowtime, .. } => {
                keys.iter_mut().chain(rowtime).for_each(|column| take(Reference::Column(column)));
            }
            LogicalKind::Normalize { keys, .. } => {
                keys.iter_mut().for_each(|column| take(Reference::Column(column)));
            }
            LogicalKind::TemporalSort { keys, .. } | LogicalKind::SortLimit { keys, .. } => {
                keys.iter_mut().for_each(|key| take(Reference::Column(&mut key.column)));
            }
            LogicalKind::CheckNotNull { columns, .. } => {
                columns.iter_mut().for_each(|own| take(Reference::Column(&mut own.column)));
            }
            LogicalKind::Scan { .. }
            | LogicalKind::Values { .. }
            | LogicalKind::SetOperation { .. }
            | LogicalKind::WindowRows { .. }
            | LogicalKind::Match { .. }
            | LogicalKind::Process { .. }
            | LogicalKind::UnionAll { .. }
            | LogicalKind::Limit { .. }
            | LogicalKind::Refused { .. } => {}
        }
    }

    /// All expressions in it, those of patterns included and those of constant rows excepted.
    pub fn expressions(&self) -> Vec<Expr> {
        let mut found = Vec::new();
        self.clone().each_reference(&mut |reference| {
            if let Reference::Expr(expr) = reference {
                found.push(expr.clone());
            }
        });
        if let LogicalKind::Match { pattern, values, .. } = self {
            let conditions = pattern.conditions().flat_map(Condition::expressions);
            let of_values = values.iter().filter_map(PatternValue::argument);
            found.extend(conditions.chain(of_values).cloned());
        }
        found
    }

    /// Its windows, if it has some.
    pub(super) fn window_mut(&mut self) -> Option<&mut Window> {
        match self {
            LogicalKind::WindowRows { window, .. }
            | LogicalKind::WindowAggregate { window, .. } => Some(window),
            _ => None,
        }
    }

    /// The same with only those of its computed columns that are needed.
    ///
    /// The caller drops the same columns from the node's `fields`; neither is valid without the
    /// other.
    pub(super) fn with_needed(&self, needed: &Demand) -> LogicalKind {
        let mut kind = self.clone();
        match &mut kind {
            LogicalKind::WindowAggregate { keys, aggregates, .. }
            | LogicalKind::Aggregate { keys, aggregates, .. } => {
                retain(aggregates, keys.len(), needed);
            }
            LogicalKind::Project { expressions, .. } => retain(expressions, 0, needed),
            LogicalKind::Over { input, calls, .. } => retain(calls, input.fields.len(), needed),
            LogicalKind::Match { pattern, values, .. } => {
                retain(values, pattern.keys.len(), needed)
            }
            LogicalKind::TopN { input, shows_rank, .. } => {
                *shows_rank = needed.contains(&input.fields.len());
            }
            _ => {}
        }
        kind
    }
}

/// Keeps what makes columns that are needed; the first of them is this one.
fn retain<T>(all: &mut Vec<T>, first: usize, needed: &Demand) {
    let mut column = first..;
    all.retain(|_| column.next().is_some_and(|column| needed.contains(&column)));
}

impl Aggregate {
    /// The expressions in it.
    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.argument.iter_mut().chain(self.filter.iter_mut())
    }
}

impl OverFunction {
    /// The expressions in it.
    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let (first, second) = match self {
            OverFunction::Aggregate(aggregate) => {
                (aggregate.argument.as_mut(), aggregate.filter.as_mut())
            }
            OverFunction::Rank(_) | OverFunction::Number(_) => (None, None),
            OverFunction::Shifted { value, default, .. } => (Some(value), default.as_mut()),
        };
        first.into_iter().chain(second)
    }
}
