//! From the trees of a statement set to one shared, pruned graph of nodes.
//!
//! Equal sub-plans become the same node (compared by what they compute), so that a table is read
//! once and a view's aggregate is computed once, however many statements use it. Then every node
//! learns which of its columns anybody needs, and the others are dropped, down to the scans.
//!
//! The steps, in an order that matters:
//!
//! 1. **Push down** filters and merge projections, per root. It comes first, since plans that
//!    differ in the place of a filter become equal by it.
//! 2. **Intern**: equal nodes become one. From here on a node may have several readers.
//! 3. **Demand**: the union over all readers, so it needs the shared graph.
//! 4. **Prune**: each node once, for all its readers together. Narrowing a node for each reader
//!    would duplicate it again.
//! 5. **Intern again**: columns that were dropped may have been the only difference.
//!
//! **Invariants:**
//! - the roots keep all their columns, in order: they are what sinks write;
//! - two nodes are merged if their keys (`sharing`) and their (interned) inputs
//!   are equal. Inputs are compared by a number that each interned node gets, so the comparison
//!   costs the same for deep plans as for flat ones, and shared plans are not written out;
//! - a node that draws (`RAND()`) is merged with no other, nor is what reads it: two queries that
//!   draw see different values, as in Flink.
//!
//! Sharing makes the graph smaller but couples its readers: a slow sink holds back every query that
//! shares a node with it.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::{Error, Result};

use super::demand::{LateColumns, demands};
use super::prune::{Pruned, prune};
use super::pushdown::{Pushdown, with_inputs};
use super::sharing::key;
use super::traversal::post_order;
use super::{LogicalKind, LogicalPlan, Node};

/// Shares and prunes. The roots keep all their columns, in order.
///
/// `late` finds the columns that a table of late rows wants; nothing else would read them.
///
/// # Errors
/// Those of `late`.
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

/// The error of the first part that can't be run, inputs before what uses them.
/// Asked by the binder when the whole query is bound: mistakes in names and types have been
/// reported by then.
pub fn refusal(root: &Node) -> Option<Error> {
    post_order(std::slice::from_ref(root)).iter().find_map(|node| match &node.kind {
        LogicalKind::Refused { error, .. } => Some(error.clone()),
        _ => None,
    })
}

/// Makes equal plans the same node.
///
/// A merged node has the column names of the first of its equals. Names that a user wrote stand in
/// the texts of scans and projections, so equal nodes agree in them; only generated ones (`sum$1`)
/// can differ.
#[derive(Default)]
struct Interner {
    // The key of a node with the numbers of its inputs, and the node that stands for it.
    by_key: HashMap<String, Node>,
    // By address. The first node is the key itself, kept alive so that its address is not used
    // again.
    done: HashMap<*const LogicalPlan, (Node, Node)>,
    // The number of each interned node: how many there were before it.
    numbers: HashMap<*const LogicalPlan, usize>,
}

impl Interner {
    fn intern(&mut self, node: &Node) -> Node {
        if let Some((_, done)) = self.done.get(&Arc::as_ptr(node)) {
            return done.clone();
        }
        let inputs: Vec<Node> = node.inputs().into_iter().map(|i| self.intern(i)).collect();
        let numbers: Vec<usize> = inputs.iter().map(|i| self.numbers[&Arc::as_ptr(i)]).collect();
        let key = key(node).map(|key| format!("{key} {numbers:?}"));
        let known = key.as_ref().and_then(|key| self.by_key.get(key)).cloned();
        let shared = known.unwrap_or_else(|| {
            let fresh = with_inputs(node, &inputs);
            self.numbers.insert(Arc::as_ptr(&fresh), self.numbers.len());
            self.by_key.extend(key.map(|key| (key, fresh.clone())));
            fresh
        });
        self.done.insert(Arc::as_ptr(node), (node.clone(), shared.clone()));
        shared
    }
}
