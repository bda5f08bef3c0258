//! Queries that once differed, over random tables, each with what had gone wrong.

use crate::sql::{Sql, windowed};

/// What had gone wrong, and a query.
type Kept = (&'static str, Sql);

/// All of them; they read the tables `ta` and `tb`, whose times are row times.
pub fn queries() -> Vec<Kept> {
    [using(), bounded(), others()].concat()
}

/// The same, for batch mode.
pub fn in_batches() -> Vec<Kept> {
    let join = "FROM ta AS a LEFT JOIN (SELECT * FROM tb WHERE f2 = 1) AS b ON a.f2 = b.f2";
    vec![
        ("an outer join gave changes", Sql::one(format!("SELECT a.i AS c0, b.i AS c1 {join}"))),
        (
            "an aggregate was given the changes of an outer join",
            Sql::one(format!("SELECT a.f2 AS c0, COUNT(b.i) AS c1 {join} GROUP BY a.f2")),
        ),
    ]
}

fn using() -> Vec<Kept> {
    vec![
        (
            "the name of a USING was ambiguous",
            Sql::one("SELECT f2 AS c0, a.i AS c1, b.i AS c2 FROM ta AS a JOIN tb AS b USING (f2)"),
        ),
        (
            "the same, where the left side may be missing",
            Sql::one("SELECT f2 AS c0, b.i AS c1 FROM ta AS a RIGHT JOIN tb AS b USING (f2)"),
        ),
        (
            "the same, where either may be missing",
            Sql::one(
                "SELECT f2 AS c0, f3 AS c1, a.i AS c2, b.i AS c3 FROM ta AS a FULL JOIN tb AS b USING (f2, f3)",
            ),
        ),
        (
            "the same over three tables",
            Sql::one(
                "SELECT f2 AS c0, a.i AS c1, c.i AS c2 FROM ta AS a FULL JOIN tb AS b USING (f2) FULL JOIN ta AS c USING (f2)",
            ),
        ),
        (
            "both columns of a USING came in *",
            crate::sql!(
                "SELECT ",
                &Sql::two("*", "f2, i, f3"),
                " FROM (SELECT i, f2 FROM ta) AS a FULL JOIN (SELECT f2, f3 FROM tb) AS b USING (f2)",
            ),
        ),
    ]
}

fn bounded() -> Vec<Kept> {
    let interval = |left: &str, time: &str| {
        format!(
            "{left} JOIN tb AS b ON {time} BETWEEN b.ts - INTERVAL '3' SECOND AND b.ts + INTERVAL '60' SECOND"
        )
    };
    let windows = windowed("ta", "ts", 10, 10);
    vec![
        (
            "NULLs did not meet within an interval",
            Sql::one(format!(
                "SELECT a.i AS c0, b.i AS c1 FROM {} AND a.f2 IS NOT DISTINCT FROM b.f2",
                interval("ta AS a", "a.ts")
            )),
        ),
        (
            "NULLs did not meet in a window",
            crate::sql!(
                "SELECT a.i AS c0, b.i AS c1 FROM (SELECT * FROM ",
                &windows,
                ") AS a JOIN (SELECT * FROM ",
                &windowed("tb", "ts", 10, 10),
                ") AS b ON a.window_start = b.window_start AND a.window_end = b.window_end \
             AND a.f3 IS NOT DISTINCT FROM b.f3",
            ),
        ),
        (
            "the time of a window bounded no join",
            crate::sql!(
                "SELECT a.n AS c0, b.i AS c1 FROM (SELECT window_time AS t, COUNT(*) AS n FROM ",
                &windows,
                " GROUP BY window_start, window_end, window_time) AS a",
                interval("", "a.t"),
            ),
        ),
    ]
}

fn others() -> Vec<Kept> {
    let last = |order: &str| {
        format!(
            "SELECT q.i AS c0, q.ts AS c1 FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY f2 ORDER BY \
             {order}) AS n FROM ta) AS q WHERE n = 1 ORDER BY q.ts, q.i LIMIT 3"
        )
    };
    let hinted = "(SELECT /*+ BROADCAST(b) */ a.i, a.f2 FROM ta AS a JOIN tb AS b ON a.f2 = b.f2)";
    vec![
        (
            "a hint was of all joins of a text, and the second of its kind of none",
            Sql::one(format!(
                "SELECT a.i AS c0, b.i AS c1 FROM {hinted} AS a FULL JOIN {hinted} AS b ON a.i = b.i"
            )),
        ),
        (
            "the first of rows that change were refused in the order of a time",
            Sql::two(last("ts DESC"), last("ts DESC, i DESC")),
        ),
        (
            "an aggregate whose result nobody reads was an internal error",
            Sql::two(
                "SELECT i AS c0 FROM ta WHERE EXISTS (SELECT 1 FROM (SELECT SUM(f2) AS s FROM tb) AS b)",
                "SELECT i AS c0 FROM ta WHERE EXISTS (SELECT 1 FROM (SELECT SUM(f2) AS s FROM tb HAVING COUNT(*) > 0) AS b)",
            ),
        ),
    ]
}
