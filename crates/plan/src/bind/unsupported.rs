//! What the dialect knows but this version can't run, each with what to use instead.
//!
//! Two kinds, so that users know whether waiting helps: what Flink has and this engine will have
//! ("comes with a later version"), and what is no part of Flink's dialect.

use thalweg_core::Error;

const LATER: &str = "comes with a later version";

/// A join with UNNEST of a kind that is not there yet.
pub fn unnest_join() -> Error {
    Error::unsupported(format!("this join with UNNEST {LATER}"))
        .hint("CROSS JOIN UNNEST(…) and LEFT JOIN UNNEST(…) ON TRUE work")
}

/// A sub-query of FROM that reads what stands before it.
pub fn lateral() -> Error {
    Error::unsupported(format!("a LATERAL sub-query of this kind {LATER}"))
        .hint("ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) finds the first rows of each key")
}

/// A function OVER a window of rows that computes none.
pub fn over(function: &str) -> Error {
    Error::unsupported(format!("{function}(…) OVER {LATER}"))
        .hint("there are aggregates, LAG, LEAD, ROW_NUMBER, RANK and DENSE_RANK OVER windows")
}

/// A function OVER a window of rows where there are none: in WHERE, with GROUP BY, in a call.
pub fn over_here(function: &str) -> Error {
    Error::unsupported(format!(
        "{function}(…) OVER stands in the list of a SELECT without GROUP BY"
    ))
    .hint(format!(
        "compute it in a sub-query: SELECT … FROM (SELECT *, {function}(…) OVER (…) AS x FROM …)"
    ))
}

/// A sub-query inside an expression.
pub fn subquery(what: &str) -> Error {
    Error::unsupported(format!("{what} {LATER}")).hint("a list works: x IN (1, 2, 3)")
}

/// An aggregate that is not there yet.
pub fn aggregate(name: &str) -> Error {
    Error::unsupported(format!("the aggregate {name} {LATER}")).hint(format!(
        "there are {}",
        thalweg_operators::aggregate::names().collect::<Vec<_>>().join(", ")
    ))
}

/// Anything else.
/// Part of Flink's dialect.
pub fn later(what: &str) -> Error {
    Error::unsupported(format!("{what} {LATER}"))
}

/// Something that is no part of the dialect.
pub fn never(what: &str) -> Error {
    Error::unsupported(format!("{what} is not part of the dialect"))
}
