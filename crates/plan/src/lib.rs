//! SQL and pipeline planning: text to statements, statements to a logical plan, plan to the
//! physical graph that the runtime executes.

pub mod ast;
pub mod bind;
pub mod catalog;
pub mod diagnostic;
pub mod explain;
pub mod flink_check;
pub mod logical;
pub mod parser;
pub mod physical;
mod planner;
pub mod resolved_table;
pub mod windows;

pub use planner::{MakeSink, Planner, PlannerOptions, ResultTable};
