//! Drops the columns of a plan that nobody needs, down to the scans.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_expr::Expr;
use thalweg_operators::chain::NotNull;
use thalweg_operators::pattern::{Pattern, PatternValue};

use super::demand::{Demand, at_least_one};
use super::{
    Aggregate, Field, JoinCondition, JoinKey, JoinKind, LogicalKind, LogicalPlan, Node, OverCall,
    OverWindow, SortKey, Window, unit,
};

/// A node with only the columns that are needed, and where the old ones went.
pub(super) struct Pruned {
    pub(super) node: Node,
    positions: Vec<Option<usize>>,
}

impl Pruned {
    fn place(&self, column: usize) -> usize {
        self.positions[column].expect("a needed column was kept")
    }
    fn map(&self, expr: &Expr) -> Expr {
        expr.remap(&|i| self.place(i))
    }
    fn keys(&self, keys: &[SortKey]) -> Vec<SortKey> {
        keys.iter().map(|key| SortKey { column: self.place(key.column), ..*key }).collect()
    }
    fn window(&self, window: &Window) -> Window {
        let partition_by = window.partition_by.iter().filter_map(|&i| self.positions[i]).collect();
        Window { rowtime: self.place(window.rowtime), partition_by, ..window.clone() }
    }
    /// A node that passes all columns of this one on.
    fn same_columns(&self, kind: LogicalKind, fields: &[Field]) -> Pruned {
        let mut kept: Vec<Option<Field>> = vec![None; self.node.fields.len()];
        for (old, &new) in self.positions.iter().enumerate() {
            if let Some(new) = new {
                kept[new] = Some(fields[old].clone());
            }
        }
        let own = self.node.fields.iter();
        let fields: Vec<Field> = kept
            .into_iter()
            .zip(own)
            .map(|(kept, own)| kept.unwrap_or_else(|| own.clone()))
            .collect();
        Pruned { node: LogicalPlan::node(kind, fields), positions: self.positions.clone() }
    }
    /// A node that passes all columns of this one on and appends `extra` of its own.
    fn and_more(&self, kind: LogicalKind, fields: &[Field], extra: usize) -> Pruned {
        let before = fields.len() - extra;
        let mut made = self.same_columns(kind.clone(), &fields[..before]);
        let width = made.node.fields.len();
        let all: Vec<Field> = made.node.fields.iter().chain(&fields[before..]).cloned().collect();
        made.node = LogicalPlan::node(kind, all);
        made.positions.extend((width..width + extra).map(Some));
        made
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
        LogicalKind::WindowAggregate { input, window, keys, aggregates, .. } => {
            prune_aggregate(of(input), window, keys, aggregates, fields, demand)
        }
        LogicalKind::Aggregate { input, keys, aggregates, state_ttl_ms } => {
            let (keys, aggregates, kept) = narrow(of(input), keys, aggregates, demand);
            let (input, state_ttl_ms) = (of(input).node.clone(), *state_ttl_ms);
            let kind = LogicalKind::Aggregate { input, keys, aggregates, state_ttl_ms };
            select(kind, fields, &kept)
        }
        LogicalKind::Join { left, right, kind, condition } => {
            prune_join((of(left), of(right)), *kind, condition, fields)
        }
        LogicalKind::SetOperation { left, right, intersects, all } => {
            prune_set_operation([left, right], (*intersects, *all), done, fields)
        }
        LogicalKind::Over { input, window, calls } => {
            prune_over(of(input), window, calls, fields, demand)
        }
        LogicalKind::Match { input, pattern, values } => {
            prune_match(of(input), pattern, values, fields, demand)
        }
        LogicalKind::TopN { input, .. } => {
            let shows_rank = demand.contains(&input.fields.len());
            prune_top_n(of(input), &node.kind, shows_rank, fields)
        }
        LogicalKind::UnionAll { inputs } => prune_union(inputs, done, fields, demand),
        LogicalKind::Values { .. } | LogicalKind::Refused { .. } => {
            let all: Vec<usize> = (0..fields.len()).collect();
            Pruned { node: node.clone(), positions: positions(fields.len(), &all) }
        }
        LogicalKind::WindowRows { input, window } => {
            let below = of(input);
            let window = below.window(window);
            below.and_more(LogicalKind::WindowRows { input: below.node.clone(), window }, fields, 3)
        }
        LogicalKind::Unnest { input, array, outer, ordinality } => {
            let below = of(input);
            let kind = LogicalKind::Unnest {
                input: below.node.clone(),
                array: below.map(array),
                outer: *outer,
                ordinality: *ordinality,
            };
            below.and_more(kind, fields, fields.len() - input.fields.len())
        }
        kind => {
            let below = of(node.inputs()[0]);
            below.same_columns(passing(kind, below), fields)
        }
    }
}

/// A node that passes all columns of its input on, over the pruned input.
fn passing(kind: &LogicalKind, below: &Pruned) -> LogicalKind {
    let input = below.node.clone();
    match kind {
        LogicalKind::Filter { predicate, .. } => {
            LogicalKind::Filter { input, predicate: below.map(predicate) }
        }
        LogicalKind::TemporalSort { keys, .. } => {
            LogicalKind::TemporalSort { input, keys: below.keys(keys) }
        }
        LogicalKind::SortLimit { keys, limit, offset, .. } => {
            LogicalKind::SortLimit { input, keys: below.keys(keys), limit: *limit, offset: *offset }
        }
        LogicalKind::Limit { limit, offset, .. } => {
            LogicalKind::Limit { input, limit: *limit, offset: *offset }
        }
        LogicalKind::Deduplicate { keys, keeps_last, rowtime, .. } => LogicalKind::Deduplicate {
            input,
            keys: keys.iter().map(|&i| below.place(i)).collect(),
            keeps_last: *keeps_last,
            rowtime: rowtime.map(|i| below.place(i)),
        },
        LogicalKind::Normalize { keys, .. } => {
            LogicalKind::Normalize { input, keys: keys.iter().map(|&i| below.place(i)).collect() }
        }
        LogicalKind::CheckNotNull { columns, sink, .. } => LogicalKind::CheckNotNull {
            input,
            columns: columns
                .iter()
                .map(|checked| NotNull { column: below.place(checked.column), ..*checked })
                .collect(),
            sink: sink.clone(),
        },
        other => unreachable!("this node was pruned by a rule of its own: {other:?}"),
    }
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

fn prune_aggregate(
    below: &Pruned,
    window: &Window,
    keys: &[Expr],
    aggregates: &[Aggregate],
    fields: &[Field],
    demand: &Demand,
) -> Pruned {
    let first_window = keys.len() + aggregates.len();
    let (keys, aggregates, mut kept) = narrow(below, keys, aggregates, demand);
    let input = below.node.clone();
    let window = below.window(window);
    // Their places stay: what follows finds the window's columns behind the aggregates.
    let read = [0, 1, 2].map(|part| demand.contains(&(first_window + part)));
    let kind = LogicalKind::WindowAggregate { input, window, keys, aggregates, read };
    kept.extend(first_window..first_window + 3);
    select(kind, fields, &kept)
}

/// The keys and the aggregates that are needed, over the pruned input, and which of the node's
/// columns these are.
fn narrow(
    below: &Pruned,
    keys: &[Expr],
    aggregates: &[Aggregate],
    demand: &Demand,
) -> (Vec<Expr>, Vec<Aggregate>, Vec<usize>) {
    let used = |i: &usize| demand.contains(&(keys.len() + i));
    let used: Vec<usize> = (0..aggregates.len()).filter(used).collect();
    let map = |i: &usize| Aggregate {
        argument: aggregates[*i].argument.as_ref().map(|e| below.map(e)),
        filter: aggregates[*i].filter.as_ref().map(|e| below.map(e)),
        ..aggregates[*i].clone()
    };
    let kept = (0..keys.len()).chain(used.iter().map(|i| keys.len() + i)).collect();
    let keys = keys.iter().map(|key| below.map(key)).collect();
    (keys, used.iter().map(map).collect(), kept)
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

fn prune_top_n(below: &Pruned, kind: &LogicalKind, shows_rank: bool, fields: &[Field]) -> Pruned {
    let LogicalKind::TopN { keys, order, function, ranks, .. } = kind else {
        unreachable!("only Top-N is pruned here")
    };
    let kind = LogicalKind::TopN {
        input: below.node.clone(),
        keys: keys.iter().map(|&i| below.place(i)).collect(),
        order: below.keys(order),
        function: *function,
        ranks: *ranks,
        shows_rank,
    };
    if shows_rank {
        return below.and_more(kind, fields, 1);
    }
    let mut made = below.same_columns(kind, fields);
    made.positions.push(None);
    made
}

fn prune_over(
    below: &Pruned,
    window: &OverWindow,
    calls: &[OverCall],
    fields: &[Field],
    demand: &Demand,
) -> Pruned {
    let width = fields.len() - calls.len();
    let used: Vec<usize> = (0..calls.len()).filter(|i| demand.contains(&(width + i))).collect();
    let map = |expr: &Expr| below.map(expr);
    let call = |&i: &usize| OverCall {
        function: calls[i].function.map(&map),
        column_type: calls[i].column_type.clone(),
    };
    let kind = LogicalKind::Over {
        input: below.node.clone(),
        window: OverWindow {
            keys: window.keys.iter().map(|&i| below.place(i)).collect(),
            order: below.keys(&window.order),
            frame: window.frame,
        },
        calls: used.iter().map(call).collect(),
    };
    let own = fields[..width].iter().chain(used.iter().map(|&i| &fields[width + i]));
    let own: Vec<Field> = own.cloned().collect();
    let mut made = below.and_more(kind, &own, used.len());
    let kept = made.positions.split_off(width);
    made.positions.extend(vec![None; calls.len()]);
    for (&call, position) in used.iter().zip(kept) {
        made.positions[width + call] = position;
    }
    made
}

fn prune_match(
    below: &Pruned,
    pattern: &Pattern,
    values: &[PatternValue],
    fields: &[Field],
    demand: &Demand,
) -> Pruned {
    let keys = pattern.keys.len();
    let used: Vec<usize> = (0..values.len()).filter(|i| demand.contains(&(keys + i))).collect();
    let place = |i: usize| below.place(i);
    let kind = LogicalKind::Match {
        input: below.node.clone(),
        pattern: Arc::new(pattern.remap(&place)),
        values: used.iter().map(|&i| values[i].remap(&place)).collect(),
    };
    let kept: Vec<usize> = (0..keys).chain(used.iter().map(|i| keys + i)).collect();
    select(kind, fields, &kept)
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
fn narrowed(
    inputs: &[Node],
    done: &HashMap<*const LogicalPlan, Pruned>,
    fields: &[Field],
    demand: &Demand,
) -> Vec<Node> {
    let kept = at_least_one(demand, fields.len());
    let narrowed = |input: &Node| {
        let below = &done[&Arc::as_ptr(input)];
        let place = |i: usize| below.positions[i].unwrap_or(0);
        let exact = below.node.fields.len() == kept.len()
            && kept.iter().enumerate().all(|(new, &old)| below.positions[old] == Some(new));
        if exact {
            return below.node.clone();
        }
        let column = |&i: &usize| {
            let column = Expr::column(place(i), input.fields[i].column_type.clone());
            (fields[i].name.clone(), column)
        };
        LogicalPlan::project(below.node.clone(), kept.iter().map(column).collect())
    };
    inputs.iter().map(narrowed).collect()
}
