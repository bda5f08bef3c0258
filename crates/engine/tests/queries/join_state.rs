//! State of windows and joins: it goes when the watermark allows, and is bounded where the
//! watermark stands still.
//!
//! `flat::*` runs a query over 100,000 and over 1,000,000 events of NEXMark, with one worker and
//! small bundles, so that no more is under way than must be: what it keeps at most may not grow
//! with the input, though most keys are new ones. Two inputs meet by time, since how far one is
//! ahead of the other is chance otherwise. `quiet::*` joins bids with a table whose row time stands
//! still: the metrics show which side holds the join back, and the job fails at its memory limit by
//! the name of the join.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono_tz::Tz;
use thalweg::session::{JobDescription, Observer, Session, SessionOptions};
use thalweg::{Error, Report, Result};
use thalweg_core::Sink;
use thalweg_plan::ResultTable;
use thalweg_runtime::{JobControl, MetricsSnapshot};

const BID: &str =
    "CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)
  WITH ('connector' = 'nexmark', 'kind' = 'bid', 'event-time-rate' = '2000' EVENTS);";
const AUCTION: &str =
    "CREATE TABLE auction (id BIGINT, seller BIGINT, `dateTime` TIMESTAMP(3), expires TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)
  WITH ('connector' = 'nexmark', 'kind' = 'auction', 'event-time-rate' = '2000' EVENTS);";
const PERSON: &str = "CREATE TABLE person (id BIGINT, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)
  WITH ('connector' = 'nexmark', 'kind' = 'person', 'event-time-rate' = '2000' EVENTS);";

/// Declares the tables of this many events.
fn tables(events: &str) -> String {
    [BID, AUCTION, PERSON].concat().replace("EVENTS", events)
}

/// What a job reports while it runs and when it is over.
#[derive(Default)]
struct Watching {
    report: Option<Report>,
    seen: Arc<Mutex<Vec<MetricsSnapshot>>>,
}

impl Observer for Watching {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("no query of this test shows its result"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Err(Error::plan("no query of this test explains"))
    }
    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        let (control, seen) = (control.clone(), Arc::downgrade(&self.seen));
        std::thread::spawn(move || {
            while let Some(seen) = seen.upgrade() {
                seen.lock().expect("nobody panics").push(control.metrics());
                drop(seen);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    fn ended(&mut self, _: &JobDescription, result: &Result<Report>) {
        self.report = result.as_ref().ok().cloned();
    }
}

/// Runs a script with these settings.
fn run(script: &str, workers: usize, settings: &[(&str, &str)]) -> (Result<()>, Watching) {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let options = SessionOptions {
        workers: Some(workers),
        settings: settings.iter().map(own).collect(),
        ..SessionOptions::default()
    };
    let mut watching = Watching::default();
    let result =
        Session::new(options).and_then(|mut session| session.run_script(script, &mut watching));
    (result.map(drop), watching)
}

mod flat {
    use super::{run, tables};

    /// The report of a query that writes `columns` columns, over this many events.
    fn report(query: &str, columns: &str, order: &str, events: u32) -> thalweg::Report {
        let tables = tables(&format!(", 'events' = '{events}'"));
        let sink = format!("CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole');");
        let settings = [
            ("pipeline.order", order),
            ("pipeline.bundle-rows-max", "1000"),
            ("late.data", "fail"),
        ];
        let script = format!("{tables}{sink} INSERT INTO o {query};");
        let (result, watching) = run(&script, 1, &settings);
        result.unwrap_or_else(|error| panic!("{query}: {error}"));
        watching.report.expect("the job has ended")
    }

    /// State at its most over ten times the events is what it is over the events.
    fn check(query: &str, columns: &str) {
        let orders =
            if query.contains("JOIN") { &["event_time"][..] } else { &["arrival", "epoch"] };
        for order in orders {
            let [short, long] =
                [100_000, 1_000_000].map(|events| report(query, columns, order, events));
            let peaks = [short.state_peak_bytes, long.state_peak_bytes];
            println!("{order}: {} and {} bytes of state", peaks[0], peaks[1]);
            assert!(short.metrics.rows_out() > 0, "no result proves nothing");
            assert!(long.metrics.rows_out() > 5 * short.metrics.rows_out(), "the input continues");
            assert!(peaks[0] > 10_000, "something is kept: {peaks:?}");
            // How far one input is ahead of the other is a matter of chance.
            assert!(
                peaks[1] * 10 <= peaks[0] * 13,
                "{order}: state grows with the input: {peaks:?}"
            );
        }
    }

    #[test]
    fn hopping_windows() {
        check(
            "SELECT auction, COUNT(*), window_start FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND,
               INTERVAL '6' SECOND)) GROUP BY auction, window_start, window_end",
            "a BIGINT, n BIGINT, w TIMESTAMP(3)",
        );
    }

    #[test]
    fn sessions() {
        check(
            "SELECT bidder, COUNT(*) FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`),
               INTERVAL '1' SECOND)) GROUP BY bidder, window_start, window_end",
            "b BIGINT, n BIGINT",
        );
    }

    #[test]
    fn joins_of_windows() {
        check(
            "SELECT p.id, a.id FROM (SELECT * FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND))) AS p
             JOIN (SELECT * FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND))) AS a
             ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
            "p BIGINT, a BIGINT",
        );
    }

    #[test]
    fn joins_within_an_interval() {
        check(
            "SELECT a.id, b.price FROM auction AS a JOIN bid AS b ON a.id = b.auction
             AND b.`dateTime` BETWEEN a.`dateTime` AND a.`dateTime` + INTERVAL '2' SECOND",
            "a BIGINT, p BIGINT",
        );
    }

    #[test]
    fn first_rows_of_windows() {
        check(
            "SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC)
               AS r FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND))) WHERE r <= 100",
            "a BIGINT, p BIGINT",
        );
    }
}

mod quiet {
    use super::{run, tables};

    /// The time of these rows never moves.
    const QUIET: &str = "CREATE TABLE quiet (n BIGINT, ts AS TIMESTAMP '2015-07-15 00:00:00', WATERMARK FOR ts AS ts)
      WITH ('connector' = 'datagen', 'rows-per-second' = '1', 'seed' = '1');
      CREATE TABLE o (a BIGINT) WITH ('connector' = 'blackhole');";

    /// The job fails at its limit by the name of the join, and by then the metrics have shown what
    /// held it back.
    fn check(query: &str) {
        for order in ["epoch", "arrival"] {
            let script = format!("{}{QUIET} INSERT INTO o {query};", tables(""));
            let settings = [("pipeline.order", order), ("memory.limit", "24 mb")];
            let (result, watching) = run(&script, 2, &settings);
            let error = result.expect_err("bids come for ever");
            assert!(error.help().is_some_and(|help| help.contains("raise 'memory.limit'")));
            let error = error.to_string();
            for part in ["the memory limit is 24 MiB", "operator join"] {
                assert!(error.contains(part), "{order}: {error}");
            }
            let seen = watching.seen.lock().expect("nobody panics");
            let shows = |name: &str, at: usize| {
                let stage = seen[at].stages.iter().find(|stage| stage.name == name);
                stage.unwrap_or_else(|| panic!("no stage {name}")).clone()
            };
            let last = seen.len() - 1;
            let (bids, quiet) = (shows("bid", last), shows("quiet", last));
            assert!(bids.watermark > quiet.watermark, "{order}: which side holds the join back");
            assert!(quiet.rows_in < bids.rows_in, "{order}");
            let state: u64 = seen[last].stages.iter().map(|stage| stage.state_bytes).sum();
            assert!(state > 1 << 20, "{order}: {state} bytes of state are shown");
        }
    }

    #[test]
    fn a_join_within_an_interval() {
        check(
            "SELECT b.auction FROM bid AS b JOIN quiet AS q ON b.auction = q.n
             AND b.`dateTime` BETWEEN q.ts - INTERVAL '5' SECOND AND q.ts + INTERVAL '5' SECOND",
        );
    }

    #[test]
    fn a_join_of_windows() {
        check(
            "SELECT b.auction FROM (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))) AS b
             JOIN (SELECT * FROM TABLE(TUMBLE(TABLE quiet, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS q
             ON b.auction = q.n AND b.window_start = q.window_start AND b.window_end = q.window_end",
        );
    }

    #[test]
    fn a_join_without_a_bound() {
        check("SELECT b.auction FROM bid AS b JOIN quiet AS q ON b.auction = q.n");
    }
}
