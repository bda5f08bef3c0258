//! A plan as a graph in the DOT language:
//! `thalweg explain --format dot job.sql | dot -Tsvg > job.svg`.
//!
//! Two clusters: the logical plan, whose edges carry the rows from inputs upwards, and the stages
//! that would run. A node that several others read is drawn once. Late rows leave a stage along a
//! dashed edge. Language: <https://graphviz.org/doc/info/lang.html>.

use std::fmt::Write;
use std::sync::Arc;

use super::columns;
use crate::logical::Node;
use crate::logical::traversal::post_order;
use crate::physical::{PhysicalPlan, StageDescription};

/// Columns that a box lists before it says how many more there are.
const MOST_COLUMNS: usize = 12;

const HEAD: &str = "digraph plan {
  rankdir=BT;
  node [shape=box, fontname=\"monospace\", fontsize=10];
";

/// The plan as one `digraph`. `order` is the contract about order, as in
/// [`explain`](super::explain).
pub fn graphviz(plan: &PhysicalPlan, order: &str) -> String {
    let mut text = String::from(HEAD);
    write_logical(&mut text, &plan.logical);
    write_stages(&mut text, &plan.stages, order);
    text.push_str("}\n");
    text
}

fn write_logical(text: &mut String, roots: &[Node]) {
    text.push_str("  subgraph cluster_logical {\n    label=\"Logical plan\";\n");
    let nodes = post_order(roots);
    let place = |node: &Node| {
        let found = nodes.iter().position(|other| Arc::ptr_eq(other, node));
        found.expect("a plan's inputs are in the plan")
    };
    for (number, node) in nodes.iter().enumerate() {
        let lines = [node.describe(), short_columns(node)];
        let _ = writeln!(text, "    n{number} [label=\"{}\"];", label(&lines));
        for input in node.inputs() {
            let _ = writeln!(text, "    n{} -> n{number};", place(input));
        }
    }
    text.push_str("  }\n");
}

fn short_columns(node: &Node) -> String {
    if node.fields.len() <= MOST_COLUMNS {
        return columns(node);
    }
    let names = node.fields.iter().take(MOST_COLUMNS).map(|field| field.name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    format!("{names} and {} more", node.fields.len() - MOST_COLUMNS)
}

fn write_stages(text: &mut String, stages: &[StageDescription], order: &str) {
    let title = label(&[format!("Stages (order: {order})")]);
    let _ = write!(text, "  subgraph cluster_stages {{\n    label=\"{title}\";\n");
    for (place, stage) in stages.iter().enumerate() {
        let mut lines = vec![format!("[{place}] {}", stage.name), stage.kind.clone()];
        lines.extend(stage.details.iter().cloned());
        if !stage.order.is_empty() {
            lines.push(format!("order: {}", stage.order));
        }
        let _ = writeln!(text, "    s{place} [label=\"{}\"];", label(&lines));
        for &(from, port) in &stage.inputs {
            let style = if port == 0 { "" } else { " [style=dashed, label=\"late rows\"]" };
            let _ = writeln!(text, "    s{from} -> s{place}{style};");
        }
    }
    text.push_str("  }\n");
}

/// Lines of a label, each aligned to the left, with what DOT reads otherwise escaped.
fn label(lines: &[String]) -> String {
    let escaped = lines.iter().filter(|line| !line.is_empty()).map(|line| {
        let line = line.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
        format!("{}\\l", line.trim())
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn labels_escape_what_the_language_reads_otherwise() {
        let lines = [r#"a "quoted" \ line"#.to_owned(), String::new(), "b\nc".to_owned()];
        assert_eq!(label(&lines), r#"a \"quoted\" \\ line\lb c\l"#);
    }
}
