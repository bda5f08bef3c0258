//! Result latency at a fixed rate: NEXMark's queries as the Jet paper runs them (PVLDB 14(12),
//! 2021, §7).
//!
//! | query | rows carry | clock |
//! |---|---|---|
//! | 5 (events and query as for peers), 7, 8 | the window's end | the first and the last row of each window, from its end |
//! | 1, 2, 13 | the event's number | a sample of rows, each from when its event was due |
//! | 3, 4, 6 | nothing | the engine's: from when the first row of the bundle that caused a result was due |
//!
//! Events are made while the query runs, on the same cores, by connector `nexmark` with a rate. The
//! result is checked as a whole: by a closed form (5, 1, 2, 13), or by a loop through the same
//! events ([`super::expected`]).

use serde_json::{Value, json};
use thalweg::bench::{Preset, find};
use thalweg::{Error, Result, Sink};

use super::age_sinks::{Began, RowAges, WindowAges, WindowColumns};
use super::expected::{self, ExpectedResult, Given, Left};
use super::folder::Folder;
use super::job::{FORGETS, Measured, Script, Timing, generator_cost, session, with_short_auctions};
use super::loops::{BothCame, HighestOfAll};
use super::oracle::{self, BASE_MS, KEYS, Sum};
use super::percentiles::Percentiles;
use super::point::Point;
use super::schedule::Schedule;

/// Windows slide by so much in queries 5, 7 and 8.
const SLIDE_MS: i64 = 10;
const SIZE_MS: i64 = 10_000;
/// Row queries: about this many rows a second are measured, as Jet does.
const ROWS_PER_SECOND: u64 = 8_192;
/// Events that come behind the measured time, so that its last windows close in processing time.
const TAIL_S: u64 = 1;
/// Of the events of query 8.
const PERSONS_PERCENT: u64 = 10;
/// Keys of the table that the bids are joined with of query 13.
const SIDE_KEYS: u64 = 10_000;
/// Events for which the cost of the generator alone is looked at.
const GENERATED: u64 = 2_000_000;

/// How the rows of a query show when they should have come.
#[derive(Clone, Copy)]
enum DueTime {
    WindowEnd(WindowColumns),
    Number(usize),
    /// What is left of it is added up.
    Nothing(expected::Query),
}

/// A query and what is known about it.
struct Query {
    text: &'static str,
    preset: &'static str,
    due_time: DueTime,
    /// State is kept for a while only.
    forgets: bool,
}

fn query(name: &str) -> Result<Query> {
    let jet = |text, due_time| Ok(Query { text, preset: "jet", due_time, forgets: false });
    let suite = |query| {
        let text = find(Preset::Nexmark, name)?.text;
        let forgets = matches!(name, "q3" | "q4");
        Ok(Query { text, preset: "nexmark", due_time: DueTime::Nothing(query), forgets })
    };
    let ends = |end, hashed| DueTime::WindowEnd(WindowColumns { end, hashed });
    match name {
        "q5" => Ok(Query {
            text: find(Preset::Peer, "q5s10")?.text,
            preset: "peer",
            due_time: ends(2, (0, 1)),
            forgets: false,
        }),
        "q1" => jet(include_str!("../../latency/q1.sql"), DueTime::Number(0)),
        "q2" => jet(include_str!("../../latency/q2.sql"), DueTime::Number(0)),
        "q13" => jet(include_str!("../../latency/q13.sql"), DueTime::Number(0)),
        "q7" => jet(include_str!("../../latency/q7.sql"), ends(1, (0, 0))),
        "q8" => jet(include_str!("../../latency/q8.sql"), ends(1, (0, 0))),
        "q3" => suite(expected::Query::LocalSellers),
        "q4" => suite(expected::Query::AveragePrices),
        "q6" => suite(expected::Query::SellersThatClosed),
        _ => Err(Error::plan(format!("the suite has no latency of '{name}'"))),
    }
}

/// What a rate decides.
#[derive(Clone, Copy)]
enum Rate {
    /// When events are due, and when they happen.
    Due(u64),
    /// Only when they happen.
    OfEventTime(u64),
}

/// The statements, over this many events. Persons and auctions of query 8 share them and the rate.
fn script(query: &Query, events: u64, rate: Rate) -> String {
    let options = |percent: u64| {
        let share = |number: u64| (number * percent / 100).max(1);
        let mut text = format!("'preset' = '{}', 'events' = '{}'", query.preset, share(events));
        if query.preset == "jet" {
            text += &format!(", 'base-time' = '{BASE_MS}'");
        }
        text += &match rate {
            Rate::Due(rate) => format!(", 'rate' = '{}'", share(rate)),
            Rate::OfEventTime(rate) => format!(", 'event-time-rate' = '{}'", share(rate)),
        };
        text
    };
    let text = query
        .text
        .replace("${events}", &options(100))
        .replace("${persons}", &options(PERSONS_PERCENT))
        .replace("${auctions}", &options(100 - PERSONS_PERCENT))
        .replace("${side_input}", "side_input.csv");
    let text = with_short_auctions(&text);
    if query.forgets { format!("{FORGETS}{text}") } else { text }
}

/// Runs a point; the fields of its row.
pub fn run(point: &Point) -> Result<Value> {
    let query = query(&point.workload)?;
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    folder.write("side_input.csv", &side_input()).map_err(|error| Error::io(error.to_string()))?;
    let rate = point.events_per_second;
    let events = rate * (point.warm_up_s + point.measured_s + TAIL_S);
    let began = Began::default();
    let (ages, given) = (Ages::new(&query, point, &began), Given::default());
    let script_of_job = Script {
        text: script(&query, events, Rate::Due(rate)),
        sink: ages.sink(query.due_time),
        began,
        timing: Timing {
            warm_up: std::time::Duration::from_secs(point.warm_up_s),
            measured: std::time::Duration::from_secs(point.measured_s),
            stops_then: false,
        },
        ends_after: None,
        look: None,
        given: given.clone(),
    };
    let (measured, _) = script_of_job.run(&mut session(point.workers, folder.path())?)?;
    let mut row = ages.row(point, &measured);
    let text = script(&query, events, Rate::OfEventTime(rate));
    let expected_result = ExpectedResult { folder: folder.path().to_owned(), script: text, given };
    row["check"] = check(point, &ages, events, &expected_result)?;
    let text = script(&query, GENERATED, Rate::OfEventTime(rate));
    let (rows, cost) = generator_cost(&mut session(point.workers, folder.path())?, &text)?;
    row["generator_ns_per_row"] = json!(cost.as_nanos() as f64 / rows.max(1) as f64);
    Ok(row)
}

fn side_input() -> String {
    (0..SIDE_KEYS).map(|key| format!("{key},value-{key}\n")).collect()
}

/// The records of a query's sink.
enum Ages {
    Windows(WindowAges),
    Rows(RowAges),
    Nothing(Left),
}

impl Ages {
    fn new(query: &Query, point: &Point, began: &Began) -> Ages {
        let began = began.clone();
        let span_ns = |s: u64| s * 1_000_000_000;
        let span = (span_ns(point.warm_up_s), span_ns(point.warm_up_s + point.measured_s));
        match query.due_time {
            DueTime::WindowEnd(_) => Ages::Windows(WindowAges::new(began, BASE_MS, SLIDE_MS)),
            DueTime::Number(_) => {
                // Query 2 keeps one row of 128.
                let kept = if point.workload == "q2" { 128 } else { 1 };
                let every = point.events_per_second / kept / ROWS_PER_SECOND;
                let schedule = Schedule::constant(point.events_per_second);
                Ages::Rows(RowAges::new(began, schedule, span, every))
            }
            DueTime::Nothing(query) => Ages::Nothing(Left::of(query)),
        }
    }

    fn sink(&self, due_time: DueTime) -> Box<dyn Sink> {
        match (self, due_time) {
            (Ages::Windows(ages), DueTime::WindowEnd(columns)) => Box::new(ages.sink(columns)),
            (Ages::Rows(ages), DueTime::Number(column)) => Box::new(ages.sink(column)),
            (Ages::Nothing(left), _) => Box::new(left.sink()),
            _ => unreachable!("both come of the same query"),
        }
    }

    fn row(&self, point: &Point, measured: &Measured) -> Value {
        let span_ms = (point.warm_up_s * 1000, (point.warm_up_s + point.measured_s) * 1000);
        let (first, last): (Option<Percentiles>, Option<Percentiles>) = match self {
            Ages::Windows(ages) => ages.percentiles(span_ms.0, span_ms.1),
            Ages::Rows(ages) => (ages.percentiles(), None),
            Ages::Nothing(_) => (measured.latency, None),
        };
        let mut row = measured.spent.fields(point.events_per_second * point.measured_s);
        row["first"] = json!(first);
        row["last"] = json!(last);
        row["engine_clock"] = json!(measured.latency);
        row["rows_in"] = json!(measured.rows_in);
        row["rows_out"] = json!(measured.rows_out);
        row["clock"] = json!(match self {
            Ages::Windows(_) => "window end",
            Ages::Rows(_) => "row",
            Ages::Nothing(_) => "engine",
        });
        row
    }
}

/// Compares the whole result with what the events say.
fn check(
    point: &Point,
    ages: &Ages,
    events: u64,
    expected_result: &ExpectedResult,
) -> Result<Value> {
    let numbers = |keep: fn(u64) -> bool| {
        let mut sum = Sum::default();
        (0..events).filter(|&event| keep(event)).for_each(|event| sum.add(event));
        sum
    };
    let of_windows = || match point.workload.as_str() {
        "q7" => expected_result.expected(Box::new(HighestOfAll::new(SIZE_MS, SLIDE_MS))),
        "q8" => expected_result.expected(Box::new(BothCame::new(SIZE_MS, SLIDE_MS))),
        _ => {
            let bid = |event: u64| {
                let time_ms = BASE_MS + (event * 1000 / point.events_per_second) as i64;
                Some((time_ms, oracle::peer_auction(event)?))
            };
            let bids = (0..events).filter_map(bid);
            Ok(oracle::sliding_counts(bids, KEYS, SIZE_MS, SLIDE_MS))
        }
    };
    Ok(match ages {
        Ages::Windows(ages) => ages.sum().compared(of_windows()?),
        Ages::Rows(ages) if point.workload == "q2" => {
            ages.sum().compared(numbers(|event| (event % KEYS as u64).is_multiple_of(128)))
        }
        Ages::Rows(ages) => ages.sum().compared(numbers(|_| true)),
        Ages::Nothing(left) => left.check(expected_result)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_can_be_planned() {
        let folder = Folder::new().expect("a folder");
        folder.write("side_input.csv", &side_input()).expect("a file");
        for name in ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q13"] {
            let text = script(&query(name).expect("a query"), 1_000, Rate::Due(1_000));
            let mut session = session(1, folder.path()).expect("a session");
            session.validate(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        }
        assert!(query("q99").is_err());
    }

    #[test]
    fn a_short_run_is_right_and_has_latencies() {
        for name in ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q13"] {
            let point = Point {
                workers: 2,
                ..Point::new("test", super::super::point::Kind::Latency, name, 20_000)
            };
            let row = run(&point.lasting(1, 2)).expect("it runs");
            assert_eq!(row["check"], "ok", "{row}");
            // Watermarks of query 6 stay behind by more than the test lasts.
            let count = row["first"]["count"].as_u64().unwrap_or_default();
            assert!(count > 20 || name == "q6", "{name}: {row}");
        }
    }
}
