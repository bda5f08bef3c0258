//! Walks over the nodes of a plan.
//!
//! Plans are graphs: a node may have several readers. Each walk therefore remembers what it has
//! seen; a walk that does not would take time exponential in the number of views that stand on one
//! another.

use std::collections::HashSet;
use std::sync::Arc;

use super::{LogicalPlan, Node};

/// Every node below these, each once, inputs first.
/// The roots are included. Reversed, the order has every node after all its readers, which `demand`
/// relies on.
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
