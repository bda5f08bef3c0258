//! MATCH_RECOGNIZE: results, what follows a match, and what is refused where.

use crate::support::{Workspace, assert_holds};

/// Flink's documentation, "Aggregations" and "Time constraint": times in minutes.
const TICKER: &str = "CREATE TABLE ticker (minute_of INT, symbol STRING, price DOUBLE, tax INT,
  ts AS TIMESTAMPADD(MINUTE, minute_of, TIMESTAMP '2026-01-01 10:00:00'),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'ticker.csv');
";

fn workspace(name: &str, prices: &[i32]) -> Workspace {
    let workspace = Workspace::new(&format!("patterns-{name}"));
    let rows = prices.iter().enumerate();
    let rows = rows.map(|(minute, price)| format!("{},ACME,{price},{}\n", minute, minute % 3));
    workspace.write("ticker.csv", &rows.collect::<String>());
    workspace
}

fn results(name: &str, prices: &[i32], query: &str) -> Vec<String> {
    let run = workspace(name, prices).run(&[
        "run",
        "--quiet",
        "--format",
        "csv",
        "-e",
        &format!("{TICKER}{query}"),
    ]);
    run.rows().into_iter().skip(1).map(str::to_owned).collect()
}

const AVERAGED: [i32; 12] = [12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30];

#[test]
fn a_condition_over_the_mean_of_its_own_rows() {
    let query = "SELECT * FROM ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts
        MEASURES FIRST(A.minute_of) AS since, LAST(A.minute_of) AS until_then, AVG(A.price) AS mean
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B) DEFINE A AS AVG(A.price) < 15)";
    assert_eq!(results("mean", &AVERAGED, query), ["ACME,0,3,14.5", "ACME,5,10,13.5"]);
}

#[test]
fn within_ends_runs_at_that_time_and_not_behind_it() {
    let prices = [20, 17, 18, 11, 14, 9, 15, 14, 24, 1, 19];
    let query = |minutes: u32| {
        format!(
            "SELECT * FROM ticker MATCH_RECOGNIZE (
             PARTITION BY symbol ORDER BY ts
             MEASURES A.minute_of AS since, C.minute_of AS fell_at, A.price - C.price AS fell
             AFTER MATCH SKIP PAST LAST ROW
             PATTERN (A B* C) WITHIN INTERVAL '{minutes}' MINUTE
             DEFINE B AS B.price > A.price - 10, C AS C.price < A.price - 10)"
        )
    };
    assert_eq!(results("within", &prices, &query(3)), ["ACME,7,9,13.0"]);
    assert_eq!(results("within", &prices, &query(4)), ["ACME,6,9,14.0"]);
}

/// The time of a match is a row time: a window takes it, and no match is late for it.
#[test]
fn windows_follow_matches() {
    let query = "SELECT window_end, SUM(rises) AS rises FROM TABLE(TUMBLE(TABLE found, DESCRIPTOR(at_time), INTERVAL '5' MINUTE))
        GROUP BY window_start, window_end";
    let view = "CREATE VIEW found AS SELECT * FROM ticker MATCH_RECOGNIZE (
        ORDER BY ts MEASURES MATCH_ROWTIME() AS at_time, COUNT(UP.price) AS rises
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (UP+ DOWN) DEFINE UP AS LAST(UP.price, 1) IS NULL OR UP.price > LAST(UP.price, 1),
          DOWN AS price < LAST(UP.price)) AS m;";
    let found = results("windows", &AVERAGED, &format!("{view} {query}"));
    assert_eq!(found, ["2026-01-01 10:05:00.000,2", "2026-01-01 10:10:00.000,2"]);
}

/// Without PARTITION BY all rows are one sequence; FIRST and LAST reach into expressions; the rows
/// of one time come in the order of the further columns.
#[test]
fn order_within_one_time_and_expressions_of_rows() {
    let workspace = Workspace::new("patterns-ties");
    workspace.write("ticker.csv", "0,A,1,0\n1,B,5,2\n1,C,5,9\n1,D,5,4\n2,E,6,1\n");
    let query = "WITH named AS (SELECT symbol AS s, price, tax, ts FROM ticker)
        SELECT t.names, t.taxed FROM named MATCH_RECOGNIZE (
        ORDER BY ts, tax DESC
        MEASURES FIRST(X.s) || LAST(X.s, 1) || LAST(s) AS names, LAST(X.price * X.tax, 2) AS taxed
        PATTERN (X{3} Y) DEFINE X AS X.price = 5) AS t;";
    let run =
        workspace.run(&["run", "--quiet", "--format", "csv", "-e", &format!("{TICKER}{query}")]);
    assert_eq!(run.rows(), ["names,taxed", "CDE,45.0"]);
}

#[test]
fn late_rows_go_where_late_data_says() {
    let workspace = Workspace::new("patterns-late");
    workspace.write("ticker.csv", "0,A,1,0\n5,A,2,0\n1,A,3,0\n9,A,4,0\n");
    let sql = format!(
        "{TICKER}
        CREATE TABLE too_late (symbol STRING, price DOUBLE)
          WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');
        CREATE TABLE found (n DOUBLE) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'found.csv');
        SET 'late.data' = 'too_late';
        INSERT INTO found SELECT n FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
          MEASURES SUM(price) AS n PATTERN (A B C))"
    );
    let missing = workspace.execute(&sql);
    assert_holds(missing.message(2), &["DEFINE"]);
    let sql = sql.replace("(A B C)", "(A B C) DEFINE A AS TRUE");
    let run = workspace.execute(&sql);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(workspace.read("late.csv").trim_end(), "A,3.0");
    assert_eq!(workspace.read("found.csv").trim_end(), "7.0");
}

/// Clauses of a pattern, where in them the error stands, and words of it.
type Refused = (&'static str, &'static str, &'static [&'static str]);

const HEAD: &str = "SELECT * FROM ticker MATCH_RECOGNIZE ";
const MEASURES: &str =
    "SELECT * FROM ticker MATCH_RECOGNIZE (ORDER BY ts MEASURES MAX(price) AS p ";

const PATTERNS: &[Refused] = &[
    (
        "ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS TRUE",
        "ALL",
        &["ALL ROWS PER MATCH", "nor is it in Flink"],
    ),
    ("PATTERN (A B) SUBSET S = (A, B) DEFINE A AS TRUE", "SUBSET", &["SUBSET"]),
    ("PATTERN (X A+) DEFINE A AS TRUE", "A+", &["greedy", "DEFINE … AS NOT"]),
    ("PATTERN (X A{2,5}) DEFINE A AS TRUE", "A{", &["greedy"]),
    ("PATTERN (A?? B) DEFINE A AS TRUE", "A??", &["A??"]),
    ("PATTERN (A* B?) DEFINE A AS TRUE", "A*", &["matches nothing"]),
    ("PATTERN (A B A) DEFINE A AS TRUE", "A)", &["twice"]),
    ("PATTERN ((A B)+ C) DEFINE A AS TRUE", "A B", &["several variables"]),
    ("PATTERN (X (A | B)) DEFINE A AS TRUE", "A |", &["alternative"]),
    ("PATTERN (X PERMUTE(A, B)) DEFINE A AS TRUE", "A, B", &["PERMUTE"]),
    ("PATTERN (X {- A -} B) DEFINE B AS TRUE", "{-", &["exclusion"]),
    ("PATTERN (^ A) DEFINE A AS TRUE", "", &["anchor"]),
    ("PATTERN (A{3,2} B) DEFINE A AS TRUE", "A{", &["quantifier of A"]),
    ("PATTERN (A{0} B) DEFINE A AS TRUE", "A{", &["quantifier of A"]),
    ("PATTERN (A B) DEFINE AA AS TRUE", "AA", &["no variable 'AA'", "A"]),
    ("PATTERN (A B) DEFINE A AS TRUE, A AS FALSE", "A AS FALSE", &["defined twice"]),
    ("PATTERN (A B) WITHIN INTERVAL '1' MONTH DEFINE A AS TRUE", "WITHIN", &["fixed length"]),
    ("PATTERN (A B) WITHIN INTERVAL '0' SECOND DEFINE A AS TRUE", "WITHIN", &["above zero"]),
    ("AFTER MATCH SKIP TO LAST Q PATTERN (A B) DEFINE A AS TRUE", "Q", &["no variable 'Q'"]),
    ("AFTER MATCH SKIP TO FIRST A PATTERN (A B) DEFINE A AS TRUE", "A PATTERN", &["for ever"]),
];

const EXPRESSIONS: &[Refused] = &[
    ("PATTERN (A B) DEFINE A AS price", "price", &["BOOLEAN", "DOUBLE"]),
    ("PATTERN (A B) DEFINE A AS C.price > 1", "C.price", &["no variable 'C'"]),
    ("PATTERN (A B) DEFINE A AS A.prize > 1", "prize", &["prize", "price"]),
    ("PATTERN (A B) DEFINE A AS PREV(A.price) > 1", "PREV", &["PREV", "LAST(A.x, n)"]),
    ("PATTERN (A B) DEFINE A AS CLASSIFIER() = 'A'", "CLASSIFIER", &["CLASSIFIER"]),
    (
        "PATTERN (A B) DEFINE B AS LAST(A.price * B.price) > 1",
        "A.price *",
        &["rows of one variable"],
    ),
    (
        "PATTERN (A B) DEFINE B AS SUM(A.price * B.price) > 1",
        "A.price *",
        &["rows of one variable"],
    ),
    ("PATTERN (A B) DEFINE B AS SUM(LAST(A.price)) > 1", "LAST", &["inside of an aggregate"]),
    ("PATTERN (A B) DEFINE B AS LAST(FIRST(A.price)) > 1", "FIRST", &["inside of FIRST or LAST"]),
    ("PATTERN (A B) DEFINE B AS LAST(A.price, -1) > 1", "1) >", &["constant number"]),
    ("PATTERN (A B) DEFINE B AS COUNT(DISTINCT A.price) > 1", "COUNT", &["DISTINCT"]),
    ("PATTERN (A B) DEFINE B AS MATCH_ROWTIME() = ts", "MATCH_ROWTIME", &["MEASURES only"]),
];

const HEADS: &[Refused] = &[
    ("(PARTITION BY symbol PATTERN (A) DEFINE A AS TRUE)", "", &["ORDER BY a row time"]),
    ("(ORDER BY price MEASURES A.price AS p PATTERN (A) DEFINE A AS TRUE)", "price", &["row time"]),
    ("(ORDER BY ts DESC MEASURES A.price AS p PATTERN (A) DEFINE A AS TRUE)", "ts", &["ascending"]),
    (
        "(ORDER BY PROCTIME() MEASURES A.price AS p PATTERN (A) DEFINE A AS TRUE)",
        "PROCTIME",
        &["later version"],
    ),
    ("(PARTITION BY tax + 1 ORDER BY ts PATTERN (A) DEFINE A AS TRUE)", "tax", &["names columns"]),
    ("(ORDER BY ts PATTERN (A) DEFINE A AS TRUE)", "", &["no column"]),
];

#[test]
fn patterns_are_refused_at_their_place() {
    let workspace = workspace("patterns", &[1]);
    for (clauses, place, words) in PATTERNS {
        check_refused(&workspace, &format!("{MEASURES}{clauses})"), MEASURES.len(), place, words);
    }
}

#[test]
fn expressions_of_patterns_are_refused_at_their_place() {
    let workspace = workspace("expressions", &[1]);
    for (clauses, place, words) in EXPRESSIONS {
        check_refused(&workspace, &format!("{MEASURES}{clauses})"), MEASURES.len(), place, words);
    }
}

#[test]
fn keys_order_and_inputs_are_refused_at_their_place() {
    let workspace = workspace("heads", &[1]);
    for (clauses, place, words) in HEADS {
        check_refused(&workspace, &format!("{HEAD}{clauses}"), HEAD.len(), place, words);
    }
    let changing = "WITH c AS (SELECT ts, COUNT(*) AS n FROM ticker GROUP BY ts)
        SELECT * FROM c MATCH_RECOGNIZE (ORDER BY ts MEASURES A.n AS n PATTERN (A) DEFINE A AS TRUE)";
    assert_holds(workspace.execute(&format!("{TICKER}{changing}")).message(2), &["row time"]);
}

fn check_refused(workspace: &Workspace, query: &str, from: usize, place: &str, words: &[&str]) {
    let run = workspace.execute(&format!("{TICKER}\n{query}"));
    let message = run.message(2);
    assert_holds(message, words);
    if !place.is_empty() {
        let column = from + query[from..].find(place).expect("the place is in the query") + 1;
        let line = TICKER.lines().count() + 2;
        assert_holds(message, &[&format!(":{line}:{column}")]);
    }
}
