//! Identifiers of stages: state in a snapshot finds its stage again by them.
//!
//! - Sources, sinks and operators go by the names that the program gives them, whatever stands in
//!   front of or behind them: closures cannot be compared. So a name means one state, and two
//!   stages of a kind must not share one.
//! - Windows and joins go by what they compute as well, which the builder knows: with other
//!   aggregates or keys the state of a window is not restored, but reported as state without a
//!   stage.
//! - Stateless stages keep nothing, but in contract `event_time` rows wait in front of a union:
//!   they go by their names and by their inputs.
//!
//! What it does not do: it cannot see that a closure means another thing than it did. Whoever
//! changes what is kept changes the name.

use std::collections::HashSet;

use thalweg_core::{Error, Result};
use thalweg_plan::physical::identity_of_text;

use super::build::{Node, NodeKind};

/// An identifier for each node, each once; those of stages that share a name have a number behind
/// it.
pub(super) fn identifiers(nodes: &[Node]) -> Vec<String> {
    let mut given = HashSet::new();
    let mut identifiers: Vec<String> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let base = identifier(node, &identifiers);
        let numbered = (2..).map(|copy| format!("{base}-{copy}"));
        let mut candidates = std::iter::once(base.clone()).chain(numbered);
        let own = candidates.find(|candidate| !given.contains(candidate));
        let own = own.expect("numbers do not end");
        given.insert(own.clone());
        identifiers.push(own);
    }
    identifiers
}

/// Refuses names that two stages share: a snapshot could not distinguish them.
pub(super) fn check_names(nodes: &[Node]) -> Result<()> {
    let mut seen = HashSet::new();
    let keeps = |node: &&Node| !matches!(node.kind, NodeKind::Chain(_) | NodeKind::Transform(_));
    let keeping = nodes.iter().filter(keeps);
    for node in keeping {
        if !seen.insert(identifier(node, &[])) {
            let (kind, name) = (kind(node), &node.name);
            return Err(Error::plan(format!(
                "two stages of the kind '{kind}' are called '{name}': a snapshot could not distinguish them"
            ))
            .hint("give each a name of its own; windows and joins get one by `named`"));
        }
    }
    Ok(())
}

/// The identifier of a node whose inputs have these, if no other had it.
fn identifier(node: &Node, before: &[String]) -> String {
    let (kind, name) = (kind(node), &node.name);
    match (&node.kind, &node.computes) {
        (NodeKind::Chain(_) | NodeKind::Transform(_), _) => {
            let inputs: Vec<&str> =
                node.inputs.iter().map(|input| before[input.from.0].as_str()).collect();
            format!("{kind}-{}", identity_of_text(&format!("{name}\n{}", inputs.join("\n"))))
        }
        (_, Some(computes)) => format!("{kind}-{name}-{}", identity_of_text(computes)),
        (_, None) => format!("{kind}-{name}"),
    }
}

fn kind(node: &Node) -> &'static str {
    match &node.kind {
        NodeKind::Source { .. } => "source",
        NodeKind::Chain(_) => "chain",
        NodeKind::Transform(_) => "transform",
        NodeKind::Operator(_) => "operator",
        NodeKind::Sink(_) => "sink",
    }
}
