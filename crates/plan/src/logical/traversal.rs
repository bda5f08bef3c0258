//! Walks over the nodes of a plan.

use std::collections::HashSet;
use std::sync::Arc;

use super::{LogicalPlan, Node};

/// Every node below these, each once, inputs first.
pub fn post_order(roots: &[Node]) -> Vec<Node> {
    fn visit(node: &Node, seen: &mut HashSet<*const LogicalPlan>, order: &mut Vec<Node>) {
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
