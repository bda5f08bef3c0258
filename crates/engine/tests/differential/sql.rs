//! SQL in two dialects at once, and what is translated.
//!
//! A query is built as a pair of texts that mean the same: Flink's dialect, which Thalweg reads,
//! and DuckDB's. Only what differs is written twice ([`Sql::two`]); [`crate::sql!`] joins pairs.
//! The differences, all of them:
//!
//! | Thalweg | DuckDB | why |
//! |---|---|---|
//! | `a / b` of integers | `a // b` | DuckDB's `/` gives floats; `//` truncates, as ours does |
//! | `AVG(x)` of integers | `SUM(x) // COUNT(x)` | ours has the type of its argument |
//! | `ORDER BY x` | `ORDER BY x NULLS FIRST` | NULL is the lowest value in Flink, DuckDB puts it last |
//! | `ORDER BY x DESC` | `… DESC NULLS LAST` | the same |
//! | an aggregate without `GROUP BY` | … `HAVING COUNT(*) > 0` | a stream without rows has no result row |
//! | `ORDER BY ts` of a ROWS frame, of `LAG` and of a deduplication | `ORDER BY ts, i` | rows of one time are in the order of arrival, which the column `i` counts |
//! | `*` of a join USING | the columns by name | its columns come first here, DuckDB leaves them in their place |
//! | `TUMBLE`, `HOP` | a sub-query that computes the windows of each row by `time_bucket` | DuckDB has no windowing functions |
//! | `STRING`, `TIMESTAMP(3)` | `VARCHAR`, `TIMESTAMP` | names of types |
//! | `a ASOF JOIN b MATCH_CONDITION (…) ON …` | `a ASOF JOIN b ON … AND …` | where the condition stands |
//! | `/*+ BROADCAST(b) */` | the same, a comment | results are the same |
//! | `CREATE TABLE … WITH (…)` | `CREATE TABLE` and `INSERT` | the same rows from a CSV file |
//!
//! Not translated, since the engines mean different things: floats (sums depend on their order),
//! and types of results (`SUM(INT)` wraps around as an INT here and is a HUGEINT there: values are
//! kept so small that nothing wraps).

use std::fmt::Write;

/// The same SQL in both dialects.
#[derive(Clone, Debug, Default)]
pub struct Sql {
    /// What Thalweg reads.
    pub ours: String,
    /// What DuckDB reads.
    pub theirs: String,
}

impl Sql {
    /// Text that both read.
    pub fn one(text: impl Into<String>) -> Sql {
        let text = text.into();
        Sql { ours: text.clone(), theirs: text }
    }

    /// Text that differs.
    pub fn two(ours: impl Into<String>, theirs: impl Into<String>) -> Sql {
        Sql { ours: ours.into(), theirs: theirs.into() }
    }

    /// Adds at the end.
    pub fn push(&mut self, next: &Sql) {
        self.ours.push_str(&next.ours);
        self.theirs.push_str(&next.theirs);
    }
}

impl From<&str> for Sql {
    fn from(text: &str) -> Sql {
        Sql::one(text)
    }
}

impl From<String> for Sql {
    fn from(text: String) -> Sql {
        Sql::one(text)
    }
}

impl From<&String> for Sql {
    fn from(text: &String) -> Sql {
        Sql::one(text.as_str())
    }
}

impl From<&Sql> for Sql {
    fn from(sql: &Sql) -> Sql {
        sql.clone()
    }
}

/// Pieces one behind the other, each an [`Sql`] by reference or text for both dialects.
#[macro_export]
macro_rules! sql {
    ($($piece:expr),+ $(,)?) => {{
        let mut whole = $crate::sql::Sql::default();
        $(whole.push(&$crate::sql::Sql::from($piece));)+
        whole
    }};
}

/// Pieces with a separator between them.
pub fn join(pieces: &[Sql], separator: &str) -> Sql {
    let mut whole = Sql::default();
    for (position, piece) in pieces.iter().enumerate() {
        if position > 0 {
            whole.push(&Sql::one(separator));
        }
        whole.push(piece);
    }
    whole
}

/// Expressions with the names `c0`, `c1`, …
pub fn select_list(expressions: &[Sql]) -> Sql {
    let named: Vec<Sql> = expressions
        .iter()
        .enumerate()
        .map(|(position, expression)| sql!(expression, format!(" AS c{position}")))
        .collect();
    join(&named, ", ")
}

/// One key of an ORDER BY, with NULL as the lowest value.
pub fn sort_key(expression: &str, descending: bool) -> Sql {
    let (ours, theirs) =
        if descending { (" DESC", " DESC NULLS LAST") } else { ("", " NULLS FIRST") };
    sql!(expression, &Sql::two(ours, theirs))
}

/// The rows of a table or view with `window_start`, `window_end` and, in ours, `window_time`.
pub fn windowed(table: &str, time: &str, slide_s: u64, size_s: u64) -> Sql {
    let mut ours = String::new();
    let interval = |seconds: u64| format!("INTERVAL '{seconds}' SECOND");
    let (slide, size) = (interval(slide_s), interval(size_s));
    if slide_s == size_s {
        write!(ours, "TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), {size}))")
    } else {
        write!(ours, "TABLE(HOP(TABLE {table}, DESCRIPTOR({time}), {slide}, {size}))")
    }
    .expect("writing to a string");
    let newest = format!("time_bucket({slide}, {time}, TIMESTAMP '1970-01-01')");
    let oldest = format!("{newest} - {}", interval(size_s - slide_s));
    let theirs = format!(
        "(SELECT *, window_start + {size} AS window_end, window_start + {size} - INTERVAL '1' MILLISECOND AS window_time \
         FROM (SELECT *, unnest(generate_series({oldest}, {newest}, {slide})) AS window_start FROM {table}))"
    );
    Sql::two(ours, theirs)
}
