//! From the trees of a statement set to one shared, pruned graph of nodes.
//!
//! Equal sub-plans become the same node (compared by what they compute), so that a table is read
//! once and a view's aggregate is computed once, however many statements use it. Then every node
//! learns which of its columns anybody needs, and the others are dropped, down to the scans.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use thalweg_core::{Error, Result};
use thalweg_expr::Expr;

use super::pushdown::{Pushdown, with_inputs};
use super::{
    Aggregate, Field, JoinCondition, JoinKey, JoinKind, LogicalKind, LogicalPlan, Node, OverCall,
    OverWindow, SortKey, Window,
};

/// Finds the columns of an input that its late rows need, beside those that the operator uses. Takes
/// the columns of the input and the position of the row time.
pub type LateColumns<'a> = &'a dyn Fn(&[Field], usize) -> Result<Vec<usize>>;

/// Shares and prunes. The roots keep all their columns, in order.
pub fn optimize(roots: &[Node], late: LateColumns<'_>) -> Result<Vec<Node>> {
    let mut pushdown = Pushdown::default();
    let mut interner = Interner::default();
    let roots: Vec<Node> = roots
        .iter()
        .map(|root| {
            let rewritten = pushdown.rewrite(root);
            interner.intern(&rewritten)
        })
        .collect();
    let order = post_order(&roots);
    let demand = demands(&roots, &order, late)?;
    let mut pruned: HashMap<*const LogicalPlan, Pruned> = HashMap::new();
    for node in &order {
        let made = prune(node, &demand[&Arc::as_ptr(node)], &pruned);
        pruned.insert(Arc::as_ptr(node), made);
    }
    // Pruning can make plans equal that were not before.
    let mut interner = Interner::default();
    Ok(roots.iter().map(|root| interner.intern(&pruned[&Arc::as_ptr(root)].node)).collect())
}

/// Every node below these, each once, inputs first.
pub fn post_order(roots: &[Node]) -> Vec<Node> {
    fn visit(
        node: &Node,
        seen: &mut std::collections::HashSet<*const LogicalPlan>,
        order: &mut Vec<Node>,
    ) {
        if !seen.insert(Arc::as_ptr(node)) {
            return;
        }
        for input in node.inputs() {
            visit(input, seen, order);
        }
        order.push(node.clone());
    }
    let (mut seen, mut order) = (Default::default(), Vec::new());
    for root in roots {
        visit(root, &mut seen, &mut order);
    }
    order
}

/// The error of the first part that can't be run, inputs before what uses them.
pub fn refusal(root: &Node) -> Option<Error> {
    post_order(std::slice::from_ref(root)).iter().find_map(|node| match &node.kind {
        LogicalKind::Refused { error, .. } => Some(error.clone()),
        _ => None,
    })
}

/// Makes equal plans the same node.
#[derive(Default)]
struct Interner {
    by_text: HashMap<String, Node>,
    done: HashMap<*const LogicalPlan, (Node, Node)>,
    numbers: HashMap<*const LogicalPlan, usize>,
}

impl Interner {
    fn intern(&mut self, node: &Node) -> Node {
        if let Some((_, done)) = self.done.get(&Arc::as_ptr(node)) {
            return done.clone();
        }
        let inputs: Vec<Node> = node.inputs().into_iter().map(|i| self.intern(i)).collect();
        let numbers: Vec<usize> = inputs.iter().map(|i| self.numbers[&Arc::as_ptr(i)]).collect();
        let text = format!("{} {numbers:?}", node.describe());
        let shared = match self.by_text.get(&text) {
            Some(shared) => shared.clone(),
            None => {
                let fresh = with_inputs(node, &inputs);
                self.numbers.insert(Arc::as_ptr(&fresh), self.by_text.len());
                self.by_text.insert(text, fresh.clone());
                fresh
            }
        };
        self.done.insert(Arc::as_ptr(node), (node.clone(), shared.clone()));
        shared
    }
}

type Demand = BTreeSet<usize>;

/// For every node the columns that somebody needs. Parents are visited before their inputs.
fn demands(
    roots: &[Node],
    order: &[Node],
    late: LateColumns<'_>,
) -> Result<HashMap<*const LogicalPlan, Demand>> {
    let mut demand: HashMap<*const LogicalPlan, Demand> =
        order.iter().map(|node| (Arc::as_ptr(node), Demand::new())).collect();
    for root in roots {
        demand.insert(Arc::as_ptr(root), (0..root.fields.len()).collect());
    }
    for node in order.iter().rev() {
        let own = demand[&Arc::as_ptr(node)].clone();
        if let LogicalKind::Join { left, right, condition, .. } = &node.kind {
            let (of_left, of_right) = join_demand(left.fields.len(), condition, &own);
            for (input, wanted) in [(left, of_left), (right, of_right)] {
                let of_input = demand.get_mut(&Arc::as_ptr(input));
                of_input.expect("every node has a demand").extend(wanted);
            }
            continue;
        }
        for input in node.inputs() {
            let wanted = input_demand(node, &own, late)?;
            if let Some(of_input) = demand.get_mut(&Arc::as_ptr(input)) {
                of_input.extend(wanted.into_iter().filter(|&i| i < input.fields.len()));
            }
        }
    }
    Ok(demand)
}

/// What a join needs of its sides.
fn join_demand(width: usize, condition: &JoinCondition, own: &Demand) -> (Demand, Demand) {
    let mut all = own.clone();
    for (expr, shift) in condition.expressions(width) {
        all.extend(expr.columns().into_iter().map(|i| i + shift));
    }
    let (mut left, right): (Demand, Demand) = all.into_iter().partition(|&i| i < width);
    let mut right: Demand = right.into_iter().map(|i| i - width).collect();
    let (of_left, of_right) = condition.bound_columns();
    left.extend(of_left);
    right.extend(of_right);
    (left, right)
}

/// What a node needs of (each of) its inputs, when these of its own columns are needed.
fn input_demand(node: &LogicalPlan, own: &Demand, late: LateColumns<'_>) -> Result<Demand> {
    let mut wanted = Demand::new();
    match &node.kind {
        LogicalKind::Scan { .. } | LogicalKind::Values { .. } => {}
        LogicalKind::Project { expressions, .. } => {
            for &column in own {
                wanted.extend(expressions[column].columns());
            }
        }
        LogicalKind::WindowAggregate { input, window, keys, aggregates } => {
            wanted.insert(window.rowtime);
            for expr in keys.iter().chain(used_expressions(keys.len(), aggregates, own)) {
                wanted.extend(expr.columns());
            }
            wanted.extend(late(&input.fields, window.rowtime)?);
        }
        LogicalKind::Aggregate { keys, aggregates, .. } => {
            for expr in keys.iter().chain(used_expressions(keys.len(), aggregates, own)) {
                wanted.extend(expr.columns());
            }
        }
        LogicalKind::Join { .. } => unreachable!("the sides of a join have demands of their own"),
        LogicalKind::SetOperation { .. } => wanted.extend(0..node.fields.len()),
        LogicalKind::Over { input, window, calls } => {
            let width = input.fields.len();
            wanted.extend(own.iter().filter(|&&i| i < width));
            wanted.extend(&window.keys);
            wanted.extend(window.order.iter().map(|key| key.column));
            let used = calls.iter().enumerate().filter(|(i, _)| own.contains(&(width + i)));
            for expr in used.flat_map(|(_, call)| call.function.expressions()) {
                wanted.extend(expr.columns());
            }
        }
        LogicalKind::TopN { input, keys, order, .. } => {
            wanted.extend(own.iter().filter(|&&i| i < input.fields.len()));
            wanted.extend(keys);
            wanted.extend(order.iter().map(|key| key.column));
        }
        LogicalKind::Deduplicate { keys, rowtime, .. } => {
            wanted.extend(own);
            wanted.extend(keys);
            wanted.extend(rowtime);
        }
        LogicalKind::Filter { predicate, .. } => {
            wanted.extend(own);
            wanted.extend(predicate.columns());
        }
        LogicalKind::WindowRows { window, .. } => {
            wanted.extend(own);
            wanted.insert(window.rowtime);
        }
        LogicalKind::Unnest { array, .. } => {
            wanted.extend(own);
            wanted.extend(array.columns());
        }
        LogicalKind::TemporalSort { input, keys } => {
            wanted.extend(own);
            wanted.extend(keys.iter().map(|key| key.column));
            wanted.extend(late(&input.fields, keys[0].column)?);
        }
        LogicalKind::SortLimit { keys, .. } => {
            wanted.extend(own);
            wanted.extend(keys.iter().map(|key| key.column));
        }
        LogicalKind::CheckNotNull { columns, .. } => {
            wanted.extend(own);
            wanted.extend(columns);
        }
        LogicalKind::UnionAll { .. } => wanted.extend(at_least_one(own, node.fields.len())),
        LogicalKind::Limit { .. } => wanted.extend(own),
        LogicalKind::Refused { inputs, .. } => {
            wanted.extend(0..inputs.iter().map(|i| i.fields.len()).max().unwrap_or(0));
        }
    }
    Ok(wanted)
}

fn used_expressions<'a>(
    keys: usize,
    aggregates: &'a [Aggregate],
    own: &'a Demand,
) -> impl Iterator<Item = &'a Expr> {
    let used = aggregates.iter().enumerate().filter(move |(i, _)| own.contains(&(keys + i)));
    used.flat_map(|(_, a)| a.argument.iter().chain(a.filter.iter()))
}

/// A node with only the columns that are needed, and where the old ones went.
struct Pruned {
    node: Node,
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

fn prune(node: &Node, demand: &Demand, done: &HashMap<*const LogicalPlan, Pruned>) -> Pruned {
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
        LogicalKind::WindowAggregate { input, window, keys, aggregates } => {
            prune_aggregate(of(input), window, keys, aggregates, fields, demand)
        }
        LogicalKind::Aggregate { input, keys, aggregates } => {
            let (keys, aggregates, kept) = narrow(of(input), keys, aggregates, demand);
            let kind = LogicalKind::Aggregate { input: of(input).node.clone(), keys, aggregates };
            select(kind, fields, &kept)
        }
        LogicalKind::Join { left, right, kind, condition } => {
            prune_join((of(left), of(right)), *kind, condition, fields)
        }
        LogicalKind::SetOperation { left, right, intersects, all } => {
            let every: Demand = (0..fields.len()).collect();
            let inputs = [left.clone(), right.clone()];
            let [left, right] = narrowed(&inputs, done, fields, &every).try_into().expect("two");
            let (intersects, all) = (*intersects, *all);
            let kind = LogicalKind::SetOperation { left, right, intersects, all };
            select(kind, fields, &Vec::from_iter(every))
        }
        LogicalKind::Over { input, window, calls } => {
            prune_over(of(input), window, calls, fields, demand)
        }
        LogicalKind::TopN { input, keys, order, function, ranks, .. } => {
            let below = of(input);
            let shows_rank = demand.contains(&input.fields.len());
            let kind = LogicalKind::TopN {
                input: below.node.clone(),
                keys: keys.iter().map(|&i| below.place(i)).collect(),
                order: below.keys(order),
                function: *function,
                ranks: *ranks,
                shows_rank,
            };
            match shows_rank {
                true => below.and_more(kind, fields, 1),
                false => {
                    let mut made = below.same_columns(kind, fields);
                    made.positions.push(None);
                    made
                }
            }
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
        LogicalKind::CheckNotNull { columns, sink, .. } => LogicalKind::CheckNotNull {
            input,
            columns: columns.iter().map(|&i| below.place(i)).collect(),
            sink: sink.clone(),
        },
        other => unreachable!("this node was pruned by a rule of its own: {other:?}"),
    }
}

/// The needed columns; one where none is, since a batch must have a column to have a length.
fn at_least_one(demand: &Demand, width: usize) -> Vec<usize> {
    if demand.is_empty() && width > 0 { vec![0] } else { demand.iter().copied().collect() }
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

fn unit() -> Expr {
    use thalweg_core::DataType;
    Expr::literal(thalweg_expr::Scalar::Boolean(true), DataType::Boolean.not_null())
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
    let kind = LogicalKind::WindowAggregate { input, window, keys, aggregates };
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
