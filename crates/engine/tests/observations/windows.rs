//! Watermarks, lateness and windows (observations 1 to 14).

use crate::Inputs;

fn bids(name: &str, delay: &str, rows: &str) -> Inputs {
    let columns = format!("ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts - INTERVAL {delay}");
    Inputs::new(name).table("bid", &columns, rows)
}

const COUNTS: &str = "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end";

/// The window [0, 10) fires at a watermark of 9.999: a delay of one millisecond is none, one of two
/// is one.
#[test]
fn a_millisecond() {
    let rows = "2026-01-01 00:00:00,a\n2026-01-01 00:00:10,a\n2026-01-01 00:00:09.999,a\n";
    for (delay, first) in [("'0' SECOND", 1), ("'0.001' SECOND", 1), ("'0.002' SECOND", 2)] {
        let changes = bids("delay", delay, rows).changes(COUNTS);
        let first = format!("+I(2026-01-01 00:00:00.000,{first})");
        assert_eq!(changes, [&*first, "+I(2026-01-01 00:00:10.000,1)"], "delay {delay}");
    }
}

#[test]
fn null_times() {
    let columns = "ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts";
    let options = "'format' = 'csv', 'csv.null-literal' = ''";
    let rows = "2026-01-01 00:00:00,a\n,b\n";
    let inputs = Inputs::new("null-times").table_with("bid", columns, options, rows);
    let error = inputs.error("SELECT * FROM bid");
    assert!(error.contains("ts") && error.contains("row 2"), "{error}");
    let batch =
        "SET 'execution.runtime-mode' = 'batch'; SELECT k FROM bid WHERE ts IS NULL OR k = 'a'";
    let outcome = inputs.run(batch, "epoch", 2).expect("a batch takes it");
    assert_eq!(outcome.sequence.len(), 2);
}

/// Four files in the order of time, and a watermark without a delay: whatever reads them, no row is
/// late.
#[test]
fn files_come_by_name() {
    let columns = "ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts";
    let mut inputs = Inputs::new("files");
    for part in 0..4 {
        let rows = format!("2026-01-01 00:00:{part}1,a\n2026-01-01 00:00:{part}5,b\n");
        inputs = inputs.table(&format!("part{part}"), columns, &rows);
    }
    inputs.declarations.push_str(&format!(
        "CREATE TABLE bid ({columns}) WITH ('connector' = 'filesystem', 'path' = 'part*', 'format' = 'csv');"
    ));
    let want = [0, 1, 2, 3].map(|part| format!("+I(2026-01-01 00:00:{part}0.000,2)"));
    assert_eq!(inputs.changes(COUNTS), want);
}

#[test]
fn before_1970() {
    let inputs =
        bids("before-1970", "'0' SECOND", "1969-12-31 23:59:51,a\n1970-01-01 00:00:00,a\n");
    let want = ["+I(1969-12-31 23:59:50.000,1)", "+I(1970-01-01 00:00:00.000,1)"];
    assert_eq!(inputs.changes(COUNTS), want);
}

const SESSIONS: &str = "SELECT window_start, window_end, COUNT(*)
    FROM TABLE(SESSION(TABLE bid PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, k";

/// 0 and 5 s touch, 5.000 and 10.001 s do not, until 7 s comes between them.
#[test]
fn sessions_meet() {
    let rows = "2026-01-01 00:00:00,a\n2026-01-01 00:00:05,a\n2026-01-01 00:00:10.001,a\n";
    let inputs = bids("sessions", "'20' SECOND", rows);
    let want = [
        "+I(2026-01-01 00:00:00.000,2026-01-01 00:00:10.000,2)",
        "+I(2026-01-01 00:00:10.001,2026-01-01 00:00:15.001,1)",
    ];
    assert_eq!(inputs.changes(SESSIONS), want);
    let inputs = bids("sessions-bridge", "'20' SECOND", &format!("{rows}2026-01-01 00:00:07,a\n"));
    assert_eq!(inputs.changes(SESSIONS), ["+I(2026-01-01 00:00:00.000,2026-01-01 00:00:15.001,4)"]);
}

#[test]
fn windows_come_by_their_end() {
    let rows: String =
        (0..60).rev().map(|second| format!("2026-01-01 00:00:{second:02},k{second}\n")).collect();
    let query = "SELECT window_end, k FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, k";
    let changes = bids("ends", "'60' SECOND", &rows).changes(query);
    assert_eq!(changes.len(), 120);
    let ends: Vec<&str> = changes.iter().map(|change| &change[..26]).collect();
    assert!(ends.is_sorted(), "{changes:?}");
}
