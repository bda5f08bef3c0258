//! SQL and pipeline planning: text to statements, statements to a logical plan, plan to the
//! physical graph that the runtime executes.

pub mod ast;
pub mod catalog;
pub mod diagnostic;
pub mod flink_check;
pub mod parser;
