//! A single event into a pipeline that has nothing to do: how long until its result is out.
//!
//! The variant of a point says what a worker does that has nothing to do: `park` (it goes to sleep
//! at once, as is the default) or `spin` (it looks on for ever, and its core is busy: `cores_used`
//! says what that costs).
//!
//! A thread gives an event, waits between 2 and 20 ms, and gives the next one; workers have gone to
//! sleep by then. Time counts from when the event is given, until the sink has the row.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::{Value, json};
use thalweg::{Column, DataType, Error, Result, Source, TableSchema};
use thalweg_core::connector::Waker;
use thalweg_core::shim::mix64;
use thalweg_core::{SourceBatch, SourcePoll};

use super::age_sinks::{Began, RowAges};
use super::expected::Given;
use super::folder::Folder;
use super::job::{Script, Timing, session_with};
use super::oracle::Sum;
use super::point::Point;
use super::schedule::Schedule;

const PAUSE_US_MIN: u64 = 2_000;
const PAUSE_US_MAX: u64 = 20_000;

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let began = Began::default();
    // An event's number is the nanosecond on the clock at which it was given: it is due then.
    let schedule = Schedule::constant(1_000_000_000);
    let span = (point.warm_up_s * 1_000_000_000, u64::MAX);
    let ages = RowAges::new(began.clone(), schedule, span, 1);
    let lasts = Duration::from_secs(point.warm_up_s + point.measured_s);
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let spin = spin(&point.variant)?;
    let settings = vec![("pipeline.spin".to_owned(), spin.to_owned())];
    let mut session = session_with(point.workers, folder.path(), settings)?;
    let (of_source, given) = (began.clone(), Arc::new(Mutex::new(Sum::default())));
    let of_giver = Arc::clone(&given);
    session.register_source("events", move || {
        let (began, given) = (of_source.clone(), Arc::clone(&of_giver));
        Ok(Box::new(Single { began, given, lasts, events: None }))
    });
    let job = Script {
        text: "CREATE TABLE event (given_ns BIGINT NOT NULL) \
               WITH ('connector' = 'registered', 'source' = 'events'); \
               SELECT given_ns, given_ns + 1 AS more FROM event WHERE given_ns >= 0;"
            .to_owned(),
        sink: Box::new(ages.sink(0)),
        began,
        timing: Timing {
            warm_up: Duration::from_secs(point.warm_up_s),
            measured: Duration::from_secs(point.measured_s).mul_f64(0.95),
            stops_then: false,
        },
        ends_after: None,
        look: None,
        given: Given::default(),
    };
    let (measured, _) = job.run(&mut session)?;
    let mut row = measured.spent.fields(measured.rows_in);
    row["first"] = json!(ages.percentiles());
    row["clock"] = json!("row");
    row["check"] = ages.sum().compared(*given.lock().expect("nobody panics with it"));
    Ok(row)
}

/// For how long a worker looks on.
fn spin(variant: &str) -> Result<&'static str> {
    match variant {
        "park" => Ok("0 s"),
        "spin" => Ok("1 h"),
        _ => Err(Error::plan(format!("'{variant}' is nothing that a worker does: 'park', 'spin'"))),
    }
}

/// One event now and then.
struct Single {
    began: Began,
    given: Arc<Mutex<Sum>>,
    lasts: Duration,
    events: Option<Receiver<i64>>,
}

impl Source for Single {
    fn name(&self) -> String {
        "single events".to_owned()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        let (sender, events) = channel();
        self.events = Some(events);
        let (began, given, lasts) = (self.began.clone(), Arc::clone(&self.given), self.lasts);
        let until = began.start() + lasts;
        thread::spawn(move || {
            for number in 0_u64.. {
                let pause_us = PAUSE_US_MIN + mix64(number) % (PAUSE_US_MAX - PAUSE_US_MIN);
                thread::sleep(Duration::from_micros(pause_us));
                if std::time::Instant::now() >= until {
                    break;
                }
                let now_ns = began.now_ns();
                let mut sum = given.lock().expect("nobody panics with it");
                sum.add(now_ns);
                drop(sum);
                if sender.send(now_ns as i64).is_err() {
                    break;
                }
                waker();
            }
            drop(sender);
            waker();
        });
        Ok(())
    }

    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        let events = self.events.as_ref();
        match events.map_or(Err(TryRecvError::Disconnected), Receiver::try_recv) {
            Ok(given_ns) => {
                let column: ArrayRef = Arc::new(Int64Array::from(vec![given_ns]));
                let schema =
                    TableSchema::new(vec![Column::new("given_ns", DataType::BigInt.not_null())]);
                let batch = RecordBatch::try_new(schema.arrow(), vec![column])?;
                Ok(SourcePoll::Batch(SourceBatch::new(batch)))
            }
            Err(TryRecvError::Empty) => Ok(SourcePoll::Pending),
            Err(TryRecvError::Disconnected) => Ok(SourcePoll::End),
        }
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_out() {
        let point = Point::new("test", super::super::point::Kind::Idle, "filter", 0).lasting(0, 1);
        for variant in ["park", "spin"] {
            let row = run(&point.clone().of_variant(variant)).expect("it runs");
            assert_eq!(row["check"], "ok", "{row}");
            assert!(row["first"]["count"].as_u64().expect("a number") > 20, "{row}");
        }
        assert!(run(&point.of_variant("sleep")).is_err());
    }
}
