//! From the logical plan to the stages that the runtime executes.
//!
//! A source stage reads and stamps; row-by-row nodes that follow one another become one chain;
//! windows, sorts and limits are stages of their own; every written table is one sink. A node that
//! several others use is one stage with several readers. Stage identifiers are derived from what a
//! stage computes, so that they stay the same when the statement around it changes.
//!
//! ```text
//! INSERT INTO o SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, …)) WHERE v > 3 GROUP BY …
//!
//! source t ──▶ chain: filter, project ──▶ window ──▶ chain: project ──▶ sink o
//!                                           └─ port 1: late rows ──▶ chain ──▶ sink late_rows
//! ```
//!
//! The steps of [`lower()`], each of which relies on the ones before:
//!
//! 1. share and prune the logical plan (`logical::dag`);
//! 2. decide which nodes hold changes (`logical::changes`), which may refuse the plan;
//! 3. check every table that is read or written: options, contract of order, support for snapshots,
//!    files that collide. Nothing has been made or opened so far, so a refused plan has no effect
//!    outside;
//! 4. walk the plan from the roots, inputs first, and add stages; this makes the sources;
//! 5. add one sink per written table, with the edges of all queries that write it;
//! 6. give each source its watermark assigner, once all stages downstream are known.
//!
//! **Invariants:**
//! - stages stand in topological order: a stage's inputs are in the graph before it ([`Graph::add`]
//!   asserts it);
//! - a stage's identifier is unique in the graph, and the same for the same query in every run and
//!   on every machine (`identity`);
//! - a stage reads an edge at most once. A union of a relation with itself goes through an empty
//!   chain;
//! - what is lowered for one reader is reused for all (`Lowering::done`), except below the build
//!   side of a hash join, which has its own sources (`hash_join`);
//! - with `dry_run` (EXPLAIN) the plan is the same stage for stage, and no source or sink is made.
//!
//! | module | holds |
//! |---|---|
//! | `lower` | the walk, sources, sinks, checks |
//! | `chain` | row-by-row nodes as steps |
//! | `aggregate`, `window`, `over`, `ranks`, `pattern` | one operator each, from its node |
//! | `join`, `hash_join`, `lookup` | joins by their bound |
//! | `scan` | where columns stand behind a source |
//! | `late`, `late_rows` | late rows on their way to a table |
//! | `ordered` | what the ordered contracts demand |
//! | `identity` | stage identifiers |
//! | `environment` | settings, connectors, clock |
//! | `notes` | warnings |
//!
//! Of connectors the binder has asked only whether a table ends and which changes it holds; here
//! they are asked for everything else.
//!
//! What it does not do: it does not decide how many partitions an operator has, on which worker it
//! runs, or in which order stages run. That is the runtime's part.

mod aggregate;
mod bounds;
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
mod source;
#[cfg(test)]
mod tests;
mod values;
mod window;

pub use environment::{LateData, Places, PlanEnvironment};
pub use identity::identity_of_text;
pub use lower::lower;

use std::sync::Arc;

use thalweg_core::connector::{DiscardSink, JobTables};
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
    /// A SELECT. Its sink is made by the caller, who knows how to show rows.
    Given(Box<dyn Sink>),
}

/// A root of the plan: rows and where they go.
pub struct PlanOutput {
    /// The rows.
    pub node: Node,
    /// Where they go.
    /// Several outputs of a statement set may name the same table: their rows become one input of
    /// one sink.
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
    /// Tables that are asked by key do not count.
    pub is_bounded: bool,
    /// When results leave.
    /// As set by `execution.runtime-mode`.
    pub mode: RuntimeMode,
    /// The table that reads standard input, if one does.
    pub standard_input: Option<String>,
    /// What the job reads and writes.
    pub tables: JobTables,
    /// What its author may not want.
    /// Warnings that do not stop the job. They have the form of errors, with a hint each.
    pub notes: Vec<Error>,
    /// The logical plan that it was made from.
    /// Shared and pruned, one root per output.
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
    /// Port 0 carries results, port 1 the late rows of an operator.
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
