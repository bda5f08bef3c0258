//! From the logical plan to the stages that the runtime executes.
//!
//! A source stage reads and stamps; row-by-row nodes that follow one another become one chain;
//! windows, sorts and limits are stages of their own; every written table is one sink. A node
//! that several others use is one stage with several readers. Stage identifiers are derived from
//! what a stage computes, so that they stay the same when the statement around it changes.
//!
//! Connectors are asked here for the first time: options are checked before anything is opened.

mod aggregate;
mod chain;
mod environment;
mod hash_join;
mod identity;
mod join;
mod late;
mod late_rows;
mod lookup;
mod lower;
mod notes;
mod ordered;
mod over;
mod pattern;
mod ranks;
mod scan;
#[cfg(test)]
mod tests;
mod values;
mod window;

pub use environment::{LateData, Places, PlanEnvironment};
pub use identity::identity_of_text;
pub use lower::lower;

use std::sync::Arc;

use thalweg_core::connector::DiscardSink;
use thalweg_core::graph::Graph;
use thalweg_core::{Error, Sink, Span};

use crate::catalog::RuntimeMode;
use crate::logical::Node;
use crate::resolved_table::ResolvedTable;

/// Where the rows of a root go.
pub enum Target {
    /// Into a table.
    Table(Arc<ResolvedTable>),
    /// To the caller.
    Given(Box<dyn Sink>),
}

/// A root of the plan: rows and where they go.
pub struct PlanOutput {
    /// The rows.
    pub node: Node,
    /// Where they go.
    pub target: Target,
    /// Where the statement names what it writes to.
    pub span: Span,
}

/// What the runtime executes, and its description.
pub struct PhysicalPlan {
    /// The stages.
    pub graph: Graph,
    /// One per stage, in the same order.
    pub stages: Vec<StageDescription>,
    /// True if the job ends by itself.
    pub is_bounded: bool,
    /// When results leave.
    pub mode: RuntimeMode,
    /// The table that reads standard input, if one does.
    pub standard_input: Option<String>,
    /// What its author may not want.
    pub notes: Vec<Error>,
    /// The logical plan that it was made from.
    pub logical: Vec<Node>,
}

/// A stage in words, for EXPLAIN.
#[derive(Clone, Debug, Default)]
pub struct StageDescription {
    /// Its stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What kind of stage it is and how it is executed.
    pub kind: String,
    /// What it does, line by line.
    pub details: Vec<String>,
    /// The places of its inputs with their ports.
    pub inputs: Vec<(usize, usize)>,
    /// What keeps its rows in order; empty where no sequence is promised.
    pub order: String,
}

/// The error of two sources that would share standard input: neither would get all of it.
pub fn standard_input_twice(first: &str, second: &str) -> Error {
    let message = match first == second {
        true => {
            format!("table {first} is standard input, which can be read once, and is read twice")
        }
        false => {
            format!("tables {first} and {second} both read standard input, which can be read once")
        }
    };
    Error::plan(message).hint("write it to a file first, or put what reads it into one statement set (a view is read once)")
}

/// The error of a table that would read standard input after the statements have come from there.
pub fn standard_input_has_the_statements(table: &str) -> Error {
    Error::plan(format!("table {table} is standard input, and the statements were read from there"))
        .hint("put the statements into a file, or give them with -e")
}

/// A sink for plans that are only looked at.
pub fn no_sink() -> Box<dyn Sink> {
    Box::new(DiscardSink::new("none"))
}
