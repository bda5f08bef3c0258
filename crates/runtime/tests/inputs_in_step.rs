//! Which of several inputs is asked: mostly the one that is furthest behind in event time.

mod common;

use std::sync::{Arc, Mutex};

use common::{Count, Delay, POLICIES, Rows, counting, reference};
use thalweg_core::connector::Waker;
use thalweg_core::{OperatorClass, Result, Source, SourcePoll};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{RunOptions, SchedulerPolicy};

/// Of each poll the input, and the time of the last row that it has given by then.
type Polls = Arc<Mutex<Vec<(usize, i64)>>>;

/// Gives ten rows at most for each poll, and notes them.
struct Noted {
    input: usize,
    rows: Rows,
    polls: Polls,
}

impl Source for Noted {
    fn name(&self) -> String {
        "noted".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.rows.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let given = 10.min(rows_max).min(self.rows.rows.len());
        if let Some(&(time, _)) = given.checked_sub(1).and_then(|last| self.rows.rows.get(last)) {
            self.polls.lock().expect("no panic").push((self.input, time));
        }
        self.rows.poll(given.max(1))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Counts the rows of inputs with these times; which input gave what, and when.
fn polls_of(times: [Vec<i64>; 2], workers: usize, scheduler: SchedulerPolicy) -> Vec<(usize, i64)> {
    let polls = Polls::default();
    let rows =
        times.map(|times| times.into_iter().map(|time| (time, time % 7)).collect::<Vec<_>>());
    let inputs = rows.iter().enumerate().map(|(input, rows)| {
        let rows = Rows { rows: rows.clone().into(), bounded: true, given: 0 };
        let source = Noted { input, rows, polls: Arc::clone(&polls) };
        (Box::new(source) as Box<dyn Source>, Delay::boxed(1, 10))
    });
    let count = Count { size: 10, class: OperatorClass::Commuting, cancel_between: false };
    let (graph, results, _) = counting(inputs.collect(), count);
    let options = RunOptions { workers, scheduler, ..RunOptions::default() };
    simulate(graph, options, 1, 1).expect("the job runs");
    let mut all: Vec<_> = rows.concat();
    all.sort_unstable();
    let (mut expected, _) = reference(&all, 1, 10);
    expected.sort_unstable();
    assert_eq!(results.sorted(), expected);
    Arc::into_inner(polls).expect("the job has ended").into_inner().expect("no panic")
}

#[test]
fn inputs_of_different_rates_stay_in_step() {
    for (workers, policy) in [1, 3].into_iter().flat_map(|n| POLICIES.map(|policy| (n, policy))) {
        // The second has a row where the first has five.
        let times = [(0..5_000).collect(), (0..5_000).step_by(5).collect()];
        let mut reached = [0; 2];
        for (input, time) in polls_of(times, workers, policy) {
            reached[input] = time;
            let apart = reached[0].abs_diff(reached[1]);
            assert!(apart <= 400, "{workers} workers, {policy}: {reached:?}");
        }
    }
}

#[test]
fn one_that_reads_the_past_does_not_keep_the_other_from_the_present() {
    for policy in POLICIES {
        let times = [(0..5_000).collect(), (1_000_000..1_001_000).collect()];
        let polls = polls_of(times, 1, policy);
        let of_present = polls[..300].iter().filter(|(input, _)| *input == 1).count();
        assert!((10..60).contains(&of_present), "{policy}: {of_present} of 300");
    }
}
