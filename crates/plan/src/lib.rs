//! SQL and pipeline planning: text to statements, statements to a logical plan, plan to the
//! physical graph that the runtime executes.
//!
//! | step | module | from | to |
//! |---|---|---|---|
//! | parse | [`parser`] | text | statements ([`ast`]) |
//! | declare | [`catalog`] | CREATE, SET | tables, views, settings |
//! | bind | [`bind`] | a statement, the catalog | logical nodes |
//! | share and prune | [`logical::dag`] | logical nodes | a graph of them |
//! | lower | [`physical`] | the graph, connectors | stages, and their description |
//! | show | [`explain`], [`diagnostic`] | a plan, an error | text |
//!
//! [`Planner`] does all of it for one session. No module runs a query or keeps data. What a query
//! computes is decided by the binder, how by `physical`, and nothing in between changes the result.

pub mod ast;
pub mod bind;
pub mod catalog;
mod compiled_plan;
pub mod completion;
pub mod diagnostic;
pub mod explain;
pub mod flink_check;
pub mod flink_move;
pub mod layout;
pub mod logical;
pub mod parser;
pub mod physical;
mod planner;
pub mod processes;
pub mod resolved_table;
mod script_text;
pub mod windows;

pub use planner::{ExecutedPlan, MakeSink, PlanFile, Planner, PlannerOptions, ResultTable};
