//! Inputs that fall silent: what holds the others back in an ordered contract, and what lets them
//! advance: a heartbeat always, the idle timeout only where it is allowed.
//!
//! Another thread sends rows, looks at what has come out by then, and sends on; a result that is
//! waited for in vain fails the test after a long time, never an early one.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{KeyContext, RowOperator, RowPoll, RowSource};
use thalweg::{OrderContract, Result, RunOptions, RunningJob};
use thalweg_core::connector::Waker;

const LONG: Duration = Duration::from_secs(60);

/// Time and who sent it.
type Row = (i64, u8);

enum Sent {
    Row(i64),
    Heartbeat(i64),
}

/// The end of an input that rows are sent by.
struct Input {
    sender: Option<Sender<Sent>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

struct Sending {
    receiver: Receiver<Sent>,
    waker: Arc<Mutex<Option<Waker>>>,
    who: u8,
}

impl Input {
    fn new(who: u8) -> (Self, Sending) {
        let (sender, receiver) = channel();
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let source = Sending { receiver, waker: Arc::clone(&waker), who };
        (Input { sender: Some(sender), waker }, source)
    }

    fn send(&self, sent: Sent) {
        // A job that has failed no longer listens.
        let _ = self.sender.as_ref().expect("still open").send(sent);
        self.wake();
    }

    fn rows(&self, times: impl IntoIterator<Item = i64>) {
        times.into_iter().for_each(|time_ms| self.send(Sent::Row(time_ms)));
    }

    fn end(&mut self) {
        self.sender = None;
        self.wake();
    }

    fn wake(&self) {
        if let Some(wake) = &*self.waker.lock().expect("nobody panics") {
            wake();
        }
    }
}

impl RowSource<Row> for Sending {
    fn start(&mut self, waker: Waker) -> Result<()> {
        *self.waker.lock().expect("nobody panics") = Some(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<Row>) -> Result<RowPoll> {
        while rows.len() < rows_max {
            match self.receiver.try_recv() {
                Ok(Sent::Row(time_ms)) => rows.push((time_ms, self.who)),
                Ok(Sent::Heartbeat(time_ms)) => return Ok(RowPoll::Heartbeat(time_ms)),
                Err(TryRecvError::Empty) => return Ok(RowPoll::Pending),
                Err(TryRecvError::Disconnected) => return Ok(RowPoll::End),
            }
        }
        Ok(RowPoll::Rows)
    }
}

/// Emits each row, and when a second is over how many rows it had, as (end of the second, 100 +
/// rows).
struct RowsAndSeconds;

impl RowOperator<u8, Row> for RowsAndSeconds {
    type State = Vec<i64>;
    type Out = Row;
    fn timer_grid_ms(&self) -> Option<i64> {
        Some(1000)
    }
    fn row(&self, _: &u8, state: &mut Vec<i64>, row: Row, context: &mut KeyContext<Row>) {
        state.push(row.0);
        context.set_timer(row.0 + 1);
        context.emit(row);
    }
    fn timer(&self, _: &u8, state: &mut Vec<i64>, at_ms: i64, context: &mut KeyContext<Row>) {
        let before = state.len();
        state.retain(|&time_ms| time_ms >= at_ms);
        context.emit((at_ms, 100 + (before - state.len()) as u8));
    }
}

struct Running {
    job: RunningJob,
    left: Input,
    right: Input,
    emitted: Receiver<Row>,
}

/// Two inputs, their union and its seconds.
fn start(options: RunOptions) -> Running {
    let ((left, from_left), (right, from_right)) = (Input::new(0), Input::new(1));
    let pipeline = Pipeline::new();
    let (send, emitted) = channel();
    let time = |row: &Row| row.0;
    let left_rows = pipeline.read_timed_row_source("left", from_left, time, 0);
    let right_rows = pipeline.read_timed_row_source("right", from_right, time, 0);
    left_rows
        .union(vec![right_rows])
        .expect("one type")
        .key_by(4, |_| 7u8)
        .process("emitted", RowsAndSeconds)
        .for_each("send", move |row| {
            // The test may have seen enough.
            let _ = send.send(row);
            Ok(())
        });
    let job = pipeline.start(options).expect("it starts");
    Running { job, left, right, emitted }
}

fn options(order: OrderContract, timeout: Duration, allowed: bool) -> RunOptions {
    RunOptions {
        workers: 2,
        order,
        idle_timeout: Some(timeout),
        allow_nondeterministic_order: allowed,
        pin_workers: false,
        ..RunOptions::default()
    }
}

impl Running {
    /// What comes out until this has come, with it.
    fn until(&self, last: Row) -> Vec<Row> {
        let mut rows = Vec::new();
        while rows.last() != Some(&last) {
            let row = self.emitted.recv_timeout(LONG);
            rows.push(row.unwrap_or_else(|error| panic!("{error}: {last:?} after {rows:?}")));
        }
        rows
    }

    fn end(mut self) -> Result<Vec<Row>> {
        self.left.end();
        self.right.end();
        self.job.wait()?;
        Ok(self.emitted.iter().collect())
    }
}

#[test]
fn a_silent_input_is_passed_over_where_that_is_allowed_and_is_late_when_it_is_back() {
    for order in [OrderContract::Arrival, OrderContract::EventTime] {
        let running = start(options(order, Duration::from_millis(30), true));
        running.right.rows([100]);
        running.left.rows([200, 1100, 2100]);
        // Without the right input, since it says nothing more.
        let seen = running.until((2000, 101));
        let seconds: Vec<Row> = seen.into_iter().filter(|row| row.1 >= 100).collect();
        assert_eq!(seconds, [(1000, 102), (2000, 101)], "{order}");
        // Back again, behind what has left by then, and for a second that is over.
        running.right.rows([300, 2200]);
        assert_eq!(running.until((2200, 1)).iter().filter(|row| row.1 == 1).count(), 2, "{order}");
        running.left.rows([3100]);
        running.right.rows([3200]);
        let rest = running.end().expect("the job ends");
        // The row of 300 came behind its second: a timer of the past fires with the next watermark.
        let seconds: Vec<Row> = rest.into_iter().filter(|row| row.1 >= 100).collect();
        assert_eq!(seconds, [(1000, 101), (3000, 102), (4000, 102)], "{order}");
    }
}

#[test]
fn without_leave_the_clock_changes_nothing() {
    let running = start(options(OrderContract::EventTime, Duration::from_millis(1), false));
    running.right.rows([100]);
    running.left.rows([200, 1100, 2100, 3100]);
    // Longer than the timeout: with it the rows of the left input would be out by now.
    std::thread::sleep(Duration::from_millis(150));
    running.right.rows([300, 1200, 3050]);
    let rows: Vec<Row> = running.end().expect("the job ends");
    let expected = [
        (100, 0, 1),
        (200, 0, 0),
        (300, 0, 1),
        (1100, 0, 0),
        (1000, 103, 9),
        (1200, 0, 1),
        (2100, 0, 0),
        (2000, 102, 9),
        (3050, 0, 1),
        (3100, 0, 0),
        (3000, 101, 9),
        (4000, 102, 9),
    ];
    // Where a second ends follows from the rows as well: behind the one with which both inputs
    // passed.
    let of_rows = |rows: &[Row]| rows.iter().copied().filter(|row| row.1 < 100).collect::<Vec<_>>();
    let expected_rows: Vec<Row> =
        expected.iter().filter(|row| row.2 < 9).map(|row| (row.0, row.2)).collect();
    assert_eq!(of_rows(&rows), expected_rows);
    let seconds: Vec<Row> = rows.into_iter().filter(|row| row.1 >= 100).collect();
    let expected_seconds: Vec<Row> =
        expected.iter().filter(|row| row.2 == 9).map(|row| (row.0, row.1 as u8)).collect();
    assert_eq!(seconds, expected_seconds);
}

#[test]
fn a_heartbeat_lets_the_others_advance() {
    let running = start(options(OrderContract::EventTime, LONG, false));
    running.right.rows([100]);
    running.left.rows([200, 1100, 2100, 3100]);
    running.right.send(Sent::Heartbeat(2500));
    let seen = running.until((2000, 101));
    assert_eq!(seen, [(100, 1), (200, 0), (1100, 0), (2100, 0), (1000, 102), (2000, 101)]);
    running.right.rows([2500, 3200]);
    let rest: Vec<Row> = running.end().expect("the job ends");
    let rows: Vec<Row> = rest.into_iter().filter(|row| row.1 < 100).collect();
    assert_eq!(rows, [(2500, 1), (3100, 0), (3200, 1)]);
}

#[test]
fn a_heartbeat_moves_the_watermark_in_every_contract() {
    for order in [OrderContract::Epoch, OrderContract::Arrival] {
        let running = start(options(order, LONG, false));
        running.left.rows([200]);
        running.right.rows([300]);
        running.left.send(Sent::Heartbeat(2000));
        running.right.send(Sent::Heartbeat(1500));
        running.until((1000, 102));
        assert_eq!(running.end().expect("the job ends"), [], "{order}");
    }
}

#[test]
fn a_broken_promise_is_refused_with_the_row_that_breaks_it() {
    let running = start(options(OrderContract::EventTime, LONG, false));
    running.left.rows([200]);
    running.right.send(Sent::Heartbeat(2000));
    running.until((200, 0));
    running.right.rows([1999]);
    let error = running.end().expect_err("the promise is broken").to_string();
    assert!(error.contains("1999") || error.contains("01.999"), "{error}");
}
