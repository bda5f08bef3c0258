//! What two inputs gave together in one run, they give again when its interleaving is replayed, for
//! every number of workers, bundle size and schedule.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use common::*;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{OperatorClass, OrderContract, Result};
use thalweg_runtime::interleaving::{RecordSteps, Replay, Step};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{RunOptions, start};

const DELAY: i64 = 10;
const SIZE: i64 = 20;

type Sequence = Vec<(i64, i64)>;

/// Steps as (input, rows), those of one input that follow each other as one.
#[derive(Default)]
struct Steps(Vec<(u32, u32)>);

impl RecordSteps for Steps {
    fn record(&mut self, step: Step) -> Result<()> {
        match self.0.last_mut() {
            Some((input, rows)) if *input == step.input && step.rows > 0 => *rows += step.rows,
            _ => self.0.push((step.input, step.rows)),
        }
        Ok(())
    }
}

fn options(workers: usize, bundle_rows_max: usize, replay: Option<Replay>) -> RunOptions {
    let order = OrderContract::Arrival;
    RunOptions { workers, bundle_rows_max, order, replay, ..RunOptions::default() }
}

/// Results, late rows and steps of a run over two inputs.
fn run(
    inputs: &[Vec<(i64, i64)>],
    options: RunOptions,
    seed: Option<u64>,
) -> (Sequence, Sequence, Vec<(u32, u32)>) {
    let steps = Arc::new(Mutex::new(Steps::default()));
    let options = RunOptions { record: Some(steps.clone()), ..options };
    let count = Count { size: SIZE, class: OperatorClass::Sequenced, cancel_between: false };
    let inputs = inputs.iter().map(|rows| (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE)));
    let (graph, results, late) = counting(inputs.collect(), count);
    match seed {
        Some(seed) => {
            let clock = Arc::new(ManualClock::default());
            simulate(graph, RunOptions { clock, ..options }, 2, seed)
        }
        None => start(graph, options).and_then(|job| job.wait()),
    }
    .expect("the job runs");
    let steps = std::mem::take(&mut steps.lock().expect("no panic").0);
    (results.rows(), late.rows(), steps)
}

/// A random interleaving of inputs with these numbers of rows.
fn interleaving(mut rows: [u32; 2], random: &mut SplitMix64) -> Vec<(u32, u32)> {
    let mut steps = Vec::new();
    let mut input = random.below(2) as usize;
    while rows != [0, 0] {
        // The last one left comes in one step.
        let longest = if rows[1 - input] == 0 { u32::MAX } else { 1 + random.below(30) as u32 };
        let take = rows[input].min(longest);
        rows[input] -= take;
        if take > 0 {
            steps.push((input as u32, take));
            if rows[input] == 0 {
                steps.push((input as u32, 0));
            }
        }
        input = 1 - input;
    }
    steps
}

/// Late rows by a loop over the steps: each row is judged by the watermark of its own input.
fn late_of(inputs: &[Vec<(i64, i64)>; 2], steps: &[(u32, u32)]) -> Sequence {
    let (mut late, mut next, mut running) = (Vec::new(), [0, 0], [i64::MIN; 2]);
    for &(input, rows) in steps {
        let input = input as usize;
        for &(time, key) in &inputs[input][next[input]..next[input] + rows as usize] {
            let end = (time.div_euclid(SIZE) + 1) * SIZE;
            if key >= 0 && end - 1 <= running[input] {
                late.push((time, key));
            }
            running[input] = running[input].max(time - DELAY);
        }
        next[input] += rows as usize;
    }
    late
}

fn replay(steps: &[(u32, u32)]) -> Option<Replay> {
    let steps = steps.iter().map(|&(input, rows)| Step { input, rows });
    Some(Replay { steps: steps.collect(), is_complete: true })
}

#[test]
fn a_replay_gives_the_sequence_of_its_interleaving() {
    let mut sequences = BTreeSet::new();
    for seed in 0..30 {
        let inputs = [disorder(300, 1), disorder(200, 2)];
        let mut random = SplitMix64::new(seed);
        let steps = interleaving([300, 200], &mut random);
        let (first, _, _) = run(&inputs, options(1, 1, replay(&steps)), Some(seed));
        let expected = (first, late_of(&inputs, &steps), steps.clone());
        for (workers, bundle_rows) in [(1, 1), (2, 7), (4, 1000), (8, 3)] {
            let options = options(workers, bundle_rows, replay(&steps));
            let what = format!("seed {seed}, {workers} workers, bundles of {bundle_rows}");
            let other_seed = random.below(1 << 40);
            assert!(run(&inputs, options.clone(), Some(other_seed)) == expected, "{what}");
            assert!(run(&inputs, options, None) == expected, "{what}, threads");
        }
        sequences.insert(expected.1);
    }
    assert!(sequences.len() > 20, "the interleaving shows");
}

#[test]
fn what_a_run_records_gives_the_same_again() {
    for seed in 0..30 {
        let inputs = [disorder(300, seed), disorder(200, seed + 1000)];
        let recorded = run(&inputs, options(1 + seed as usize % 3, 5, None), None);
        let rows = |input: u32| -> u32 {
            recorded.2.iter().filter(|step| step.0 == input).map(|step| step.1).sum()
        };
        assert_eq!((rows(0), rows(1)), (300, 200), "every row is in the recording");
        for (workers, bundle_rows) in [(1, 1), (4, 1000), (8, 3)] {
            let options = options(workers, bundle_rows, replay(&recorded.2));
            let what = format!("seed {seed}, {workers} workers, bundles of {bundle_rows}");
            assert!(run(&inputs, options, None) == recorded, "{what}");
        }
    }
}
