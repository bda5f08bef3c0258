//! The stages of a plan as JSON, in the form of Flink's execution plans: nodes with their
//! predecessors.

use crate::physical::{PhysicalPlan, StageDescription};

/// The stages as one object.
pub(super) fn stages(plan: &PhysicalPlan) -> String {
    let nodes: Vec<String> = plan.stages.iter().enumerate().map(node).collect();
    format!("{{\n  \"nodes\" : [ {} ]\n}}", nodes.join(", "))
}

fn node((place, stage): (usize, &StageDescription)) -> String {
    let field = |name: &str, value: &str| format!("    \"{name}\" : {}", quoted(value));
    let inputs = stage.inputs.iter().map(|(from, port)| {
        let side = if *port == 0 { "results" } else { "late rows" };
        format!("{{ \"id\" : {from}, \"side\" : {} }}", quoted(side))
    });
    let inputs: Vec<String> = inputs.collect();
    let fields = [
        format!("    \"id\" : {place}"),
        field("uid", &stage.id),
        field("type", &stage.name),
        field("pact", &stage.kind),
        field("contents", &stage.details.join("; ")),
        format!("    \"predecessors\" : [ {} ]", inputs.join(", ")),
    ];
    format!("{{\n{}\n  }}", fields.join(",\n"))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", control as u32));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_escaped() {
        assert_eq!(super::quoted("a\"b\\c\nd\u{1}"), "\"a\\\"b\\\\c\\nd\\u0001\"");
    }
}
