//! What the dialect knows but this version can't run, each with what to use instead.
//!
//! Two kinds, so that users know whether waiting helps: what Flink has and this engine will have
//! ("comes with a later version"), and what is no part of Flink's dialect.

use thalweg_core::Error;

const LATER: &str = "comes with a later version";

/// A join.
pub fn join(kind: &str) -> Error {
    Error::unsupported(format!("{kind} {LATER}"))
        .hint("one input is read now; several of the same type can be put together by UNION ALL")
}

/// A function OVER a window of rows.
pub fn over(function: &str) -> Error {
    match function {
        "ROW_NUMBER" => {
            Error::unsupported(format!("ROW_NUMBER() OVER (Top-N and deduplication) {LATER}"))
                .hint("ORDER BY … LIMIT finds the first rows of a bounded input")
        }
        "RANK" | "DENSE_RANK" => Error::unsupported(format!(
            "{function}() OVER is not supported on a stream, nor is it in Flink"
        ))
        .hint("ORDER BY … LIMIT finds the first rows of a bounded input"),
        _ => Error::unsupported(format!("{function}(…) OVER {LATER}"))
            .hint("aggregate per window with GROUP BY window_start, window_end"),
    }
}

/// A sub-query inside an expression.
pub fn subquery(what: &str) -> Error {
    Error::unsupported(format!("{what} {LATER}")).hint("a list works: x IN (1, 2, 3)")
}

/// An aggregate that is not there yet.
pub fn aggregate(name: &str) -> Error {
    if name == "COLLECT" {
        return Error::unsupported("COLLECT gives a MULTISET, a type that there is not here")
            .hint("ARRAY_AGG(x) gives the values as an ARRAY");
    }
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
