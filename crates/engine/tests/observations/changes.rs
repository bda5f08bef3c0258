//! Changelogs and aggregates (observations 15 to 20, 23 and 24).

use crate::Inputs;

fn bids(name: &str, rows: &str) -> Inputs {
    let columns = "ts TIMESTAMP(3), k STRING, n INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND";
    Inputs::new(name).table("bid", columns, rows)
}

/// A sum goes past its bounds and another comes into them: the file by key has what is visible at
/// the end.
#[test]
fn having_into_a_file_by_key() {
    let rows = "2026-01-01 00:00:00,a,1\n2026-01-01 00:00:01,a,3\n2026-01-01 00:00:02,b,5\n2026-01-01 00:00:03,b,90\n";
    let inputs = bids("having", rows);
    let query = "SELECT k, SUM(n) AS s FROM bid GROUP BY k HAVING SUM(n) BETWEEN 4 AND 20";
    assert_eq!(inputs.changes(query), ["+U(a,4)", "+I(b,5)", "-U(b,5)"]);
    let mut inputs = inputs;
    inputs.declarations.push_str(
        "CREATE TABLE o (k STRING, s INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'filesystem',
           'format' = 'csv', 'path' = 'o.csv', 'changelog' = 'upsert');\n",
    );
    for order in ["epoch", "arrival"] {
        inputs.insert("o", query, order);
        let outcome = inputs.run("SELECT k, s FROM o", order, 2).expect("it is read");
        assert_eq!(crate::engine::final_rows(&outcome).expect("changes"), [["a", "4"]], "{order}");
    }
}

/// A count of counts: with its second row the key leaves the group of those that have one.
#[test]
fn a_group_without_rows_is_deleted() {
    let rows = "2026-01-01 00:00:00,a,1\n2026-01-01 00:00:01,a,1\n2026-01-01 00:00:02,b,1\n2026-01-01 00:00:03,b,1\n";
    let query = "SELECT c, COUNT(*) FROM (SELECT k, COUNT(*) AS c FROM bid GROUP BY k) GROUP BY c";
    let want = ["+I(1,1)", "-D(1,1)", "+I(2,1)", "+I(1,1)", "-D(1,1)", "-U(2,1)", "+U(2,2)"];
    assert_eq!(bids("group-without-rows", rows).changes(query), want);
}

#[test]
fn equal_rows_rank_by_arrival() {
    let rows = "2026-01-01 00:00:00,a,7\n2026-01-01 00:00:01,b,7\n2026-01-01 00:00:02,c,7\n2026-01-01 00:00:03,d,8\n";
    let query = "SELECT k, n, r FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM bid) WHERE r <= 2";
    let want = ["+I(a,7,1)", "+I(b,7,2)", "-U(a,7,1)", "+U(d,8,1)", "-U(b,7,2)", "+U(a,7,2)"];
    assert_eq!(bids("ties", rows).changes(query), want);
    let without = "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM bid) WHERE r <= 2";
    assert_eq!(bids("ties", rows).changes(without), ["+I(a,7)", "+I(b,7)", "-D(b,7)", "+I(d,8)"]);
}

#[test]
fn the_last_row_by_time_is_not_an_older_one() {
    let rows = "2026-01-01 00:00:05,a,1\n2026-01-01 00:00:03,a,2\n2026-01-01 00:00:05,a,3\n2026-01-01 00:00:09,a,4\n";
    let query = "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM bid) WHERE r = 1";
    let want = ["+I(a,1)", "-U(a,1)", "+U(a,3)", "-U(a,3)", "+U(a,4)"];
    assert_eq!(bids("last-by-time", rows).changes(query), want);
}

/// The two inputs meet by time, so that it is certain which row comes first.
#[test]
fn not_in_retracts() {
    let columns = "ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts";
    let inputs = Inputs::new("not-in")
        .table(
            "l",
            columns,
            "2026-01-01 00:00:00,a\n2026-01-01 00:00:02,b\n2026-01-01 00:00:04,c\n",
        )
        .table("r", columns, "2026-01-01 00:00:01,a\n2026-01-01 00:00:03,c\n");
    let want = ["+I(a)", "-D(a)", "+I(b)"];
    assert_eq!(
        inputs.changes_in("event_time", "SELECT k FROM l WHERE k NOT IN (SELECT k FROM r)"),
        want
    );
    assert_eq!(inputs.changes_in("event_time", "SELECT k FROM l EXCEPT SELECT k FROM r"), want);
}

#[test]
fn small_sums_wrap() {
    let inputs = bids("small", "2026-01-01 00:00:00,a,127\n2026-01-01 00:00:01,a,1\n");
    let query = "SELECT SUM(CAST(n AS TINYINT)), AVG(-n) FROM bid";
    // (-127 - 1) / 2, and before it one value.
    assert_eq!(inputs.changes(query), ["+I(127,-127)", "-U(127,-127)", "+U(-128,-64)"]);
    let inputs = bids("truncated", "2026-01-01 00:00:00,a,1\n2026-01-01 00:00:01,a,2\n");
    let query = "SELECT AVG(-n), AVG(n) FROM bid GROUP BY k";
    assert_eq!(inputs.changes(query), ["+I(-1,1)"], "-1.5 is cut to -1: nothing changes");
}

#[test]
fn groups_of_doubles() {
    let inputs = Inputs::new("doubles").table("t", "d DOUBLE", "0.0\n-0.0\nNaN\nNaN\n0.0\n");
    let query = "SELECT d, COUNT(*) FROM t GROUP BY d";
    let want = [
        "+I(0.0,1)",
        "+I(-0.0,1)",
        "+I(NaN,1)",
        "-U(NaN,1)",
        "+U(NaN,2)",
        "-U(0.0,1)",
        "+U(0.0,2)",
    ];
    assert_eq!(inputs.changes(query), want);
}

#[test]
fn nulls_are_lowest() {
    let options = "'format' = 'csv', 'csv.null-literal' = ''";
    let inputs =
        Inputs::new("nulls").table_with("t", "k STRING, n INT", options, "a,1\nb,\nc,-5\n");
    let sorted = |by: &str| {
        let query =
            format!("SET 'execution.runtime-mode' = 'batch'; SELECT k FROM t ORDER BY n {by}");
        let outcome = inputs.run(&query, "epoch", 2).expect("it sorts");
        outcome.sequence.iter().map(|(_, row)| row[0].clone()).collect::<String>()
    };
    assert_eq!(["ASC", "DESC", "ASC NULLS LAST"].map(sorted), ["bca", "acb", "cab"]);
    let join = "SELECT a.k, b.k FROM t AS a JOIN t AS b ON a.n = b.n";
    assert_eq!(
        inputs.run(join, "epoch", 2).expect("it joins").sequence.len(),
        2,
        "NULL = NULL is not true"
    );
}
