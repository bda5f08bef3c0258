//! From the trees of a statement set to one shared, pruned graph of nodes.
//!
//! Equal sub-plans become the same node (compared by what they compute), so that a table is read
//! once and a view's aggregate is computed once, however many statements use it. Then every node
//! learns which of its columns anybody needs, and the others are dropped, down to the scans.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::{Error, Result};

use super::demand::{LateColumns, demands};
use super::prune::{Pruned, prune};
use super::pushdown::{Pushdown, with_inputs};
use super::traversal::post_order;
use super::{LogicalKind, LogicalPlan, Node};

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
