//! `thalweg bench`: what it counts is known beforehand, and does not depend on how it is run.

use crate::support::{Workspace, assert_holds};

/// A line of JSON that a run prints. No value holds a comma or a brace.
#[derive(Debug)]
struct Line(String);

impl Line {
    fn value(&self, name: &str) -> &str {
        let (_, rest) = self.0.split_once(&format!("\"{name}\":")).expect("the field");
        rest.split([',', '}']).next().expect("a value")
    }

    fn number(&self, name: &str) -> f64 {
        self.value(name).parse().unwrap_or_else(|_| panic!("{name} of {}", self.0))
    }
}

fn lines(workspace: &Workspace, arguments: &[&str]) -> Vec<Line> {
    let start = ["bench", "nexmark", "--json", "-"];
    let run = workspace.run(&[&start, arguments].concat());
    run.rows().iter().map(|row| Line((*row).to_owned())).collect()
}

#[test]
fn rows_are_those_that_are_known_of_apache_beams_events() {
    let workspace = Workspace::new("bench-beam");
    let options = ["--preset", "beam", "--events", "100000", "--queries", "q0,q2,q3,q9"];
    // Read: bids, bids, persons and auctions, auctions and bids. Left: as Beam and DuckDB say.
    let known = [(92e3, 92e3), (92e3, 351.0), (8e3, 580.0), (98e3, 4052.0)];
    let lines = lines(&workspace, &options);
    assert_eq!(lines.len(), known.len());
    for (line, (rows_in, rows_left)) in lines.iter().zip(known) {
        assert_eq!(line.number("rows_in"), rows_in, "{line:?}");
        let left = line.number("rows_out") - 2.0 * line.number("rows_retracted");
        assert_eq!(left, rows_left, "{line:?}");
        assert_eq!(["fingerprint", "latency_p50_us"].map(|name| line.value(name)), ["null"; 2]);
    }
}

#[test]
fn a_result_is_the_same_however_it_is_run() {
    let workspace = Workspace::new("bench-check");
    let prints = |arguments: &[&str]| {
        let start = ["--check", "--queries", "q4,q5,q8,q18"];
        let lines = lines(&workspace, &[&start, arguments].concat());
        lines.iter().map(|line| line.value("fingerprint").to_owned()).collect::<Vec<_>>()
    };
    let one = prints(&["--events", "30000", "--workers", "1"]);
    assert_eq!(one.len(), 4);
    assert_eq!(prints(&["--events", "30000", "--workers", "3"]), one);
    assert_eq!(prints(&["--events", "30000", "--workers", "3", "--order", "arrival"]), one);
    assert_ne!(prints(&["--events", "40000"]), one);
}

#[test]
fn a_query_that_can_not_run_is_passed_over_unless_it_was_asked_for() {
    let workspace = Workspace::new("bench-all");
    let run = workspace.run(&["bench", "nexmark", "--events", "500"]);
    let rows = run.rows();
    assert_eq!(rows.len(), 2 + 24, "a head, headings and each query: {rows:?}");
    assert_holds(rows[1], &["query", "rows in", "per core", "state", "memory"]);
    for row in rows[2..].iter().filter(|row| row.contains("passed over")) {
        let name = row.split(' ').next().expect("a name");
        let run = workspace.run(&["bench", "nexmark", "--queries", name]);
        assert_eq!(run.status, Some(2), "{}", run.stderr);
    }
}

#[test]
fn events_at_a_rate_have_latencies() {
    let workspace = Workspace::new("bench-rate");
    let options = ["--queries", "q0", "--events", "5000", "--rate", "10000"];
    let lines = lines(&workspace, &options);
    let number = |name: &str| lines[0].number(name);
    assert!(number("seconds") > 0.45, "{lines:?}");
    assert!(number("latency_p50_us") > 0.0, "{lines:?}");
    assert!(number("latency_p50_us") <= number("latency_max_us"), "{lines:?}");
    let run = workspace.run(&[&["bench", "nexmark"][..], &options].concat());
    assert_holds(&run.stdout, &["10,000 a second", "p99.9", "slowest"]);
}

#[test]
fn an_unknown_query_is_refused_before_anything_runs() {
    let workspace = Workspace::new("bench-unknown");
    let run = workspace.run(&["bench", "nexmark", "--queries", "q0,q55"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert_holds(&run.stderr, &["no query 'q55'", "did you mean q5?"]);
}
