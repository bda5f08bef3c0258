//! What Apache Flink would refuse in a script that runs here (`validate --flink`).
//!
//! Three things are looked at: the text ([`queries`], [`reserved`]), the tables with their options
//! ([`tables`]), and the bound queries ([`plans`]), in the runtime mode that holds where each
//! statement stands. Every rule was read off the answers of a running Flink 2.3.0, and
//! `tests/flink/answers.jsonl` keeps those answers: a test asks this module the same questions.
//!
//! | what is found | what Flink takes |
//! |---|---|
//! | reserved words as names | the same in backticks |
//! | `!=`, MINUS, unquoted keys of SET | `<>`, EXCEPT, keys in quotes |
//! | more than two digits in INTERVAL '365' DAY | DAY(3) |
//! | NULL without a type | CAST(NULL AS …) |
//! | columns of USING and NATURAL JOIN without a table, in places | see [`shared_names`] |
//! | REGEXP_LIKE, COUNT_CHAR, APPROX_COUNT_DISTINCT, % of DOUBLE | other functions |
//! | LEAD, RANK in a Top-N, several OVER windows (streaming) | ROW_NUMBER, sub-queries |
//! | updates into tables of inserts, row times behind a regular join | see [`plans`] |
//! | joins that look files up | tables of jdbc or http |
//! | TUMBLE(t, ts, …) in FROM | TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)) |
//! | HOP and CUMULATE sizes that are no multiple | a multiple of the first interval |
//! | SHOW CONNECTORS, snapshot(…), ASOF JOIN, SEMI JOIN, unknown hints | see each message |
//! | 'path' = '-', globs, relative paths | absolute paths, or file:///… |
//! | options, connectors and formats of ours, ${secret:name} | those of Flink's connectors |
//! | connectors and formats that do not come with Flink | a jar ([`FlinkCluster`]) |
//!
//! A finding is no error here: the script runs. Options are judged by the connectors' own
//! descriptions, so a new option needs no change in this module.

mod check;
mod finding;
mod intervals;
mod plans;
mod queries;
mod reserved;
mod shared_names;
mod syntax;
mod tables;
mod translate;

pub use finding::{Finding, Fix, FlinkCluster, Severity};
pub use translate::{Queries, Role, TranslatedStatement, Translation, translate};

use thalweg_core::Result;

use crate::parser::parse_script;
use crate::planner::Planner;

/// What Flink would refuse or ignore in a script that is valid here, in the order of the text. The
/// planner's declarations hold before the first statement.
///
/// # Errors
/// If the text cannot be parsed.
pub fn findings(text: &str, planner: &Planner, cluster: &FlinkCluster) -> Result<Vec<Finding>> {
    let statements = parse_script(text)?;
    Ok(check::flink_findings(text, &statements, planner.fork(), cluster))
}
