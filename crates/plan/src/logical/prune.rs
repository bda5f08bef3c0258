//! Drops the columns of a plan that nobody needs, down to the scans.
//!
//! [`demand`](super::demand) has found for every node which of its columns are read. Here every
//! node is built again over its pruned inputs, inputs first, so each step only has to translate
//! positions: from the old columns of the input to the new ones ([`Pruned`]).
//!
//! **Invariants:**
//! - columns keep their order; a pruned node's columns are a subsequence of the old ones (a
//!   projection that nobody reads is the exception: it becomes one constant column);
//! - a column that is in demand is kept, so looking up its new place can't fail. A column that is
//!   not in demand may still be kept, where dropping it would cost a projection or change the
//!   result;
//! - which rows there are does not change. So keys of aggregates and of patterns are kept whether
//!   they are read or not, and so are all columns of a set operation;
//! - a node keeps at least one column, since a batch without columns has no length;
//! - types and time attributes come from the old node. They are not derived again: what the binder
//!   decided, and showed to the user, stays.
//!
//! Three operators profit beyond the narrower rows: an aggregate computes fewer functions, a Top-N
//! without its rank sends fewer updates, and a window materializes only those of its three columns
//! that are read.
//!
//! It does not remove rows or nodes, apart from projections that became the identity.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_expr::Expr;

use super::demand::at_least_one;
use super::references::{Demand, Reference};
use super::{Field, JoinCondition, JoinKey, JoinKind, LogicalKind, LogicalPlan, Node, unit};

/// A node with only the columns that are needed, and where the old ones went.
pub(super) struct Pruned {
    pub(super) node: Node,
    // For each column of the original node its place in `node`; `None` if it was dropped.
    positions: Vec<Option<usize>>,
}

impl Pruned {
    fn place(&self, column: usize) -> usize {
        self.positions[column].expect("a needed column was kept")
    }
    fn map(&self, expr: &Expr) -> Expr {
        expr.remap(&|i| self.place(i))
    }
    /// A kind of node over this one.
    /// Replaces the inputs and translates everything that `each_reference` reaches. Joins, set
    /// operations, patterns and unions, which have more to translate, have functions of their own
    /// below.
    fn moved(&self, mut kind: LogicalKind) -> LogicalKind {
        for input in kind.inputs_mut() {
            input.clone_from(&self.node);
        }
        kind.each_reference(&mut |reference| match reference {
            Reference::Column(column) => *column = self.place(*column),
            Reference::Expr(expr) => *expr = self.map(expr),
        });
        // Not reached by `each_reference`. The aggregate has cleared it already, and where it is
        // left (a session that will be refused) a dropped column does no harm.
        if let Some(window) = kind.window_mut() {
            window.partition_by =
                window.partition_by.iter().filter_map(|&i| self.positions[i]).collect();
        }
        kind
    }
    /// A node that passes all columns of this one on, and appends these of its own.
    /// The input may have kept more columns than are read here; they are passed on too. The fields
    /// of `fields` win over the input's: a node can change the type or the time attribute of a
    /// column that it passes on.
    fn and_more(&self, kind: LogicalKind, fields: &[Field], more: &[usize]) -> Pruned {
        let mut own: Vec<Field> = self.node.fields.to_vec();
        let mut positions = self.positions.clone();
        for (old, new) in positions.iter().enumerate() {
            if let Some(new) = *new {
                own[new] = fields[old].clone();
            }
        }
        positions.resize(fields.len(), None);
        for &old in more {
            positions[old] = Some(own.len());
            own.push(fields[old].clone());
        }
        Pruned { node: LogicalPlan::node(kind, own), positions }
    }
}

fn positions(width: usize, kept: &[usize]) -> Vec<Option<usize>> {
    let mut positions = vec![None; width];
    for (new, &old) in kept.iter().enumerate() {
        positions[old] = Some(new);
    }
    positions
}

/// A node with the columns that are needed, over inputs that are pruned already.
///
/// `done` holds the result for every input: the caller goes through the plan inputs first.
pub(super) fn prune(
    node: &Node,
    demand: &Demand,
    done: &HashMap<*const LogicalPlan, Pruned>,
) -> Pruned {
    let of = |input: &Node| &done[&Arc::as_ptr(input)];
    let fields = &node.fields;
    match &node.kind {
        LogicalKind::Scan { table, columns } => {
            let kept = at_least_one(demand, fields.len());
            let columns = kept.iter().map(|&i| columns[i]).collect();
            select(LogicalKind::Scan { table: table.clone(), columns }, fields, &kept)
        }
        LogicalKind::Project { input, expressions } => {
            prune_project(of(input), expressions, fields, demand)
        }
        LogicalKind::WindowAggregate { input, keys, aggregates, .. } => {
            // The window's columns keep their places: what follows finds them behind the
            // aggregates.
            let first_window = keys.len() + aggregates.len();
            let mut kept = kept_behind(keys.len(), aggregates.len(), demand);
            kept.extend(first_window..first_window + 3);
            let mut kind = of(input).moved(node.kind.with_needed(demand));
            if let LogicalKind::WindowAggregate { read, .. } = &mut kind {
                *read = [0, 1, 2].map(|part| demand.contains(&(first_window + part)));
            }
            select(kind, fields, &kept)
        }
        LogicalKind::Aggregate { input, keys, aggregates, .. } => {
            let kept = kept_behind(keys.len(), aggregates.len(), demand);
            select(of(input).moved(node.kind.with_needed(demand)), fields, &kept)
        }
        LogicalKind::Join { left, right, kind, condition } => {
            prune_join((of(left), of(right)), *kind, condition, fields)
        }
        LogicalKind::SetOperation { left, right, intersects, all } => {
            prune_set_operation([left, right], (*intersects, *all), done, fields)
        }
        LogicalKind::Match { input, .. } => prune_match(of(input), &node.kind, fields, demand),
        LogicalKind::Process { input, name, process } => {
            // Its input holds what it reads and nothing else.
            let every: Demand = (0..input.fields.len()).collect();
            let inputs = std::slice::from_ref(input);
            let input = narrowed(inputs, done, &input.fields, &every).remove(0);
            let (name, process) = (name.clone(), Arc::clone(process));
            let all: Vec<usize> = (0..fields.len()).collect();
            select(LogicalKind::Process { input, name, process }, fields, &all)
        }
        LogicalKind::UnionAll { inputs } => prune_union(inputs, done, fields, demand),
        // Constants are small, and what is refused is never lowered.
        LogicalKind::Values { .. } | LogicalKind::Refused { .. } => {
            let all: Vec<usize> = (0..fields.len()).collect();
            Pruned { node: node.clone(), positions: positions(fields.len(), &all) }
        }
        passing => {
            let below = of(node.inputs()[0]);
            // The steps of WindowRows and Unnest always append all their columns; a projection
            // above drops what is not read.
            let can_drop = matches!(passing, LogicalKind::Over { .. } | LogicalKind::TopN { .. });
            let appended = below.positions.len()..fields.len();
            let kept: Vec<usize> = appended.filter(|i| !can_drop || demand.contains(i)).collect();
            below.and_more(below.moved(passing.with_needed(demand)), fields, &kept)
        }
    }
}

/// Which of a node's columns are kept: the keys, and what of the columns behind them is needed.
/// A key that nobody reads still separates groups.
fn kept_behind(keys: usize, computed: usize, demand: &Demand) -> Vec<usize> {
    let needed = (keys..keys + computed).filter(|i| demand.contains(i));
    (0..keys).chain(needed).collect()
}

fn select(kind: LogicalKind, fields: &[Field], kept: &[usize]) -> Pruned {
    let chosen: Vec<Field> = kept.iter().map(|&i| fields[i].clone()).collect();
    Pruned { node: LogicalPlan::node(kind, chosen), positions: positions(fields.len(), kept) }
}

fn prune_project(
    below: &Pruned,
    expressions: &[Expr],
    fields: &[Field],
    demand: &Demand,
) -> Pruned {
    let kept = at_least_one(demand, fields.len());
    if demand.is_empty() {
        // Nobody needs a column, only rows: any constant will do.
        let node = LogicalPlan::project(below.node.clone(), vec![("unit".into(), unit())]);
        return Pruned { node, positions: vec![None; fields.len()] };
    }
    let expressions: Vec<Expr> = kept.iter().map(|&i| below.map(&expressions[i])).collect();
    let is_identity = expressions.len() == below.node.fields.len()
        && expressions.iter().enumerate().all(|(i, expr)| super::column_of(expr) == Some(i))
        && kept.iter().zip(below.node.fields.iter()).all(|(&i, f)| fields[i] == *f);
    if is_identity {
        return Pruned { node: below.node.clone(), positions: positions(fields.len(), &kept) };
    }
    select(LogicalKind::Project { input: below.node.clone(), expressions }, fields, &kept)
}

fn prune_set_operation(
    inputs: [&Node; 2],
    (intersects, all): (bool, bool),
    done: &HashMap<*const LogicalPlan, Pruned>,
    fields: &[Field],
) -> Pruned {
    let every: Demand = (0..fields.len()).collect();
    let inputs = inputs.map(Clone::clone);
    let sides = narrowed(&inputs, done, fields, &every);
    let [left, right] = sides.try_into().expect("two inputs stay two");
    let kind = LogicalKind::SetOperation { left, right, intersects, all };
    select(kind, fields, &Vec::from_iter(every))
}

fn prune_match(below: &Pruned, kind: &LogicalKind, fields: &[Field], demand: &Demand) -> Pruned {
    let mut moved = below.moved(kind.with_needed(demand));
    let LogicalKind::Match { pattern, values, .. } = &mut moved else {
        unreachable!("only patterns are pruned here")
    };
    let place = |i: usize| below.place(i);
    *pattern = Arc::new(pattern.remap(&place));
    values.iter_mut().for_each(|value| *value = value.remap(&place));
    let keys = pattern.keys.len();
    select(moved, fields, &kept_behind(keys, fields.len() - keys, demand))
}

fn prune_join(
    (left, right): (&Pruned, &Pruned),
    kind: JoinKind,
    condition: &JoinCondition,
    fields: &[Field],
) -> Pruned {
    let (old_width, width) = (left.positions.len(), left.node.fields.len());
    let place = |i: usize| match i.checked_sub(old_width) {
        None => left.place(i),
        Some(i) => width + right.place(i),
    };
    let of_left = left.positions.iter().copied();
    let of_right = right.positions.iter().map(|place| place.map(|place| width + place));
    let mut positions: Vec<Option<usize>> = of_left.chain(of_right).collect();
    // A semi or an anti join has the left columns only.
    positions.truncate(fields.len());
    let both = left.node.fields.iter().chain(right.node.fields.iter()).cloned();
    let mut kept: Vec<Field> = both.collect();
    kept.truncate(if kind.has_right_columns() { kept.len() } else { width });
    for (old, new) in positions.iter().enumerate() {
        new.iter().for_each(|&new| kept[new] = fields[old].clone());
    }
    let key = |key: &JoinKey| JoinKey {
        left: left.map(&key.left),
        right: right.map(&key.right),
        null_equals_null: key.null_equals_null,
    };
    let condition = JoinCondition {
        // Empty from here on: only the binder, which is done, reads them.
        conjuncts: Vec::new(),
        keys: condition.keys.iter().map(key).collect(),
        bound: condition.bound.placed(&|i| left.place(i), &|i| right.place(i)),
        residual: condition.residual.iter().map(|expr| expr.remap(&place)).collect(),
        read_first: condition.read_first,
        is_lookup: condition.is_lookup,
        is_null_aware: condition.is_null_aware,
        state_ttl_ms: condition.state_ttl_ms,
    };
    let (left, right) = (left.node.clone(), right.node.clone());
    let node = LogicalPlan::node(LogicalKind::Join { left, right, kind, condition }, kept);
    Pruned { node, positions }
}

fn prune_union(
    inputs: &[Node],
    done: &HashMap<*const LogicalPlan, Pruned>,
    fields: &[Field],
    demand: &Demand,
) -> Pruned {
    let inputs = narrowed(inputs, done, fields, demand);
    select(LogicalKind::UnionAll { inputs }, fields, &at_least_one(demand, fields.len()))
}

/// Inputs with the same columns, each with those that are needed, in order.
/// The inputs of a union or set operation must agree in their columns by position. An input that is
/// shared with other readers may have kept more or fewer columns, so a projection aligns it.
fn narrowed(
    inputs: &[Node],
    done: &HashMap<*const LogicalPlan, Pruned>,
    fields: &[Field],
    demand: &Demand,
) -> Vec<Node> {
    let kept = at_least_one(demand, fields.len());
    let narrowed = |input: &Node| {
        let below = &done[&Arc::as_ptr(input)];
        // `demand` asks every input for the columns that are kept here, so each has a place.
        let place = |i: usize| below.positions[i].unwrap_or(0);
        let exact = below.node.fields.len() == kept.len()
            && kept.iter().enumerate().all(|(new, &old)| below.positions[old] == Some(new));
        if exact {
            return below.node.clone();
        }
        let column = |&i: &usize| (fields[i].name.clone(), input.fields[i].at(place(i)));
        LogicalPlan::project(below.node.clone(), kept.iter().map(column).collect())
    };
    inputs.iter().map(narrowed).collect()
}
