//! EXPLAIN: the logical plan as a tree, then the stages that would run; in words, or as a picture
//! ([`graphviz`]).
//!
//! The output is for people and for tests that compare it; it is no format that a program should
//! parse.

pub mod graphviz;
mod json;

use std::fmt::Write;
use std::sync::Arc;

use thalweg_core::Result;

use crate::ast::ExplainDetails;
use crate::catalog::RuntimeMode;
use crate::logical::changes::NodeChanges;
use crate::logical::{LogicalPlan, Node};
use crate::physical::{PhysicalPlan, StageDescription};

/// How EXPLAIN shows a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainFormat {
    /// In words, indented.
    #[default]
    Text,
    /// As a graph in the DOT language of Graphviz.
    Graphviz,
}

/// The plan in words. `order` is the contract about order (`pipeline.order`), and what weakens it.
pub fn explain(plan: &PhysicalPlan, order: &str) -> String {
    in_words(plan, order, None)
}

/// The same with the details that EXPLAIN names.
///
/// # Errors
/// None for a plan that could be made.
pub fn explain_with(plan: &PhysicalPlan, order: &str, details: ExplainDetails) -> Result<String> {
    let changes = match details.shows_changes {
        true => Some(NodeChanges::of(&plan.logical, plan.mode)?),
        false => None,
    };
    let mut text = in_words(plan, order, changes.as_ref());
    if details.shows_cost {
        text.push_str(
            "\n== Estimated cost ==\nnone: a plan follows the text of the query, and nothing is chosen by cost\n",
        );
    }
    if details.shows_advice {
        text.push_str("\n== Advice ==\n");
        for note in &plan.notes {
            let _ = writeln!(text, "{}", note.message());
            let _ = note.help().map(|help| writeln!(text, "  {help}"));
        }
        text.push_str(if plan.notes.is_empty() { "no advice\n" } else { "" });
    }
    if details.shows_json {
        let _ = write!(text, "\n== Execution plan as JSON ==\n{}\n", json::stages(plan));
    }
    Ok(text)
}

fn in_words(plan: &PhysicalPlan, order: &str, changes: Option<&NodeChanges>) -> String {
    let mut text = String::from("== Logical plan ==\n");
    let mut seen = Vec::new();
    for root in &plan.logical {
        write_node(&mut text, root, (0, changes), &mut seen);
    }
    let bounded = match (plan.mode, plan.is_bounded) {
        (RuntimeMode::Batch, _) => {
            "ends with its inputs, in batch mode: no row is late, results are final"
        }
        (RuntimeMode::Streaming, true) => "ends with its inputs",
        (RuntimeMode::Streaming, false) => "never ends",
    };
    let _ = write!(text, "\n== Stages ==\norder: {order}; the job {bounded}\n");
    for (place, stage) in plan.stages.iter().enumerate() {
        write_stage(&mut text, place, stage);
    }
    for note in &plan.notes {
        let _ = writeln!(text, "\nnote: {}", note.message());
        let _ = note.help().map(|help| writeln!(text, "      {help}"));
    }
    text
}

/// A node with its columns, and its inputs below. A node that was shown before is only named.
/// Numbers follow the order in which nodes are shown first. Scans are shown in full each time: they
/// have no inputs to hide.
fn write_node(
    text: &mut String,
    node: &Node,
    (depth, changes): (usize, Option<&NodeChanges>),
    seen: &mut Vec<*const LogicalPlan>,
) {
    let indent = "  ".repeat(depth);
    let known = seen.iter().position(|&other| other == Arc::as_ptr(node));
    let number = known.unwrap_or_else(|| {
        seen.push(Arc::as_ptr(node));
        seen.len() - 1
    });
    let _ = write!(text, "{indent}#{number} {}", node.describe());
    if known.is_some() && !node.inputs().is_empty() {
        text.push_str(" (shared, see above)\n");
        return;
    }
    let _ = write!(text, "\n{indent}    columns: {}\n", columns(node));
    if let Some(changes) = changes {
        let kinds = if changes.has_updates(node) { "I, UB, UA, D" } else { "I" };
        let _ = writeln!(text, "{indent}    changes: {kinds}");
    }
    for input in node.inputs() {
        write_node(text, input, (depth + 1, changes), seen);
    }
}

fn columns(node: &LogicalPlan) -> String {
    let column = |field: &crate::logical::Field| {
        format!("{} {}{}", field.name, field.column_type, field.time.mark())
    };
    node.fields.iter().map(column).collect::<Vec<_>>().join(", ")
}

fn write_stage(text: &mut String, place: usize, stage: &StageDescription) {
    let _ = write!(text, "[{place}] {} — {} (id {})", stage.name, stage.kind, stage.id);
    let inputs: Vec<String> = stage
        .inputs
        .iter()
        .map(|&(from, port)| match port {
            0 => format!("[{from}]"),
            _ => format!("[{from}] late rows"),
        })
        .collect();
    if !inputs.is_empty() {
        let _ = write!(text, " ← {}", inputs.join(", "));
    }
    text.push('\n');
    for detail in &stage.details {
        let _ = writeln!(text, "      {detail}");
    }
    if !stage.order.is_empty() {
        let _ = writeln!(text, "      order: {}", stage.order);
    }
}
