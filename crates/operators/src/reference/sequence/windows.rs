//! Windows: which rows are in which, and the order in which they leave.

use std::collections::BTreeMap;

use super::canonical::virtual_partition;
use super::fold::Fold;
use super::steps::{Step, Values, WindowStage, time_of};
use crate::reference::Value;

/// One state per aggregate.
type States = Vec<Fold>;

/// The order in which windows leave: by end, the key's virtual partition, key (and start).
type Leaving = (i64, u8, Values, i64);

/// Rows of one slice: those that have the same first open and the same last window. The order of
/// slices is that of these ends.
type SliceEnds = (i64, i64);

fn key_of(stage: &WindowStage, row: &Values) -> Values {
    stage.keys.iter().map(|&key| row[key].clone()).collect()
}

fn empty(stage: &WindowStage) -> States {
    vec![Fold::default(); stage.aggregates.len()]
}

fn add(stage: &WindowStage, states: &mut States, arrival: u64, row: &Values) {
    for (state, aggregate) in states.iter_mut().zip(&stage.aggregates) {
        state.add(aggregate, arrival, row);
    }
}

fn merge(stage: &WindowStage, states: &mut States, younger: States) {
    for ((state, younger), aggregate) in states.iter_mut().zip(younger).zip(&stage.aggregates) {
        state.merge(aggregate, younger);
    }
}

/// The row of a window: keys, results, start, end, time.
fn result(stage: &WindowStage, (end, _, key, start): Leaving, states: States) -> Values {
    let mut row = key;
    let results = states.into_iter().zip(&stage.aggregates);
    row.extend(results.map(|(state, aggregate)| state.result(aggregate)));
    row.extend([start, end, end - 1].map(Value::Integer));
    row
}

/// True if a window that ends there is closed at this watermark.
fn is_closed(end: i64, watermark: i64) -> bool {
    end - 1 <= watermark
}

/// Tumbling, hopping and cumulating windows.
pub(super) fn aligned(stage: &WindowStage, steps: Vec<Step>, late: &mut Vec<Values>) -> Vec<Step> {
    let mut open: BTreeMap<Leaving, BTreeMap<SliceEnds, States>> = BTreeMap::new();
    let mut passed = i64::MIN;
    let mut out = Vec::new();
    for (arrival, step) in steps.into_iter().enumerate() {
        match step {
            Step::Row { values, before } => {
                if !enter(stage, &mut open, arrival as u64, &values, before) {
                    late.push(values);
                }
            }
            Step::Watermark(watermark) => {
                while let Some(first) = open.first_entry()
                    && is_closed(first.key().0, watermark)
                {
                    let (leaving, slices) = first.remove_entry();
                    let mut total = empty(stage);
                    slices.into_values().for_each(|slice| merge(stage, &mut total, slice));
                    let values = result(stage, leaving, total);
                    out.push(Step::Row { values, before: passed });
                }
                passed = watermark;
                out.push(step);
            }
        }
    }
    out
}

/// Adds a row to its windows that are open for it; false if all of them are closed. A row in a gap
/// between windows is in time.
fn enter(
    stage: &WindowStage,
    open: &mut BTreeMap<Leaving, BTreeMap<SliceEnds, States>>,
    arrival: u64,
    row: &Values,
    before: i64,
) -> bool {
    let all = stage.window.windows_of(time_of(row, stage.rowtime));
    let mine = all.iter().filter(|&&(_, end)| !is_closed(end, before));
    let first_open = mine.clone().map(|&(_, end)| end).min();
    let last = all.iter().map(|&(_, end)| end).max();
    let (Some(first_open), Some(last)) = (first_open, last) else { return all.is_empty() };
    let key = key_of(stage, row);
    for &(start, end) in mine {
        let leaving = (end, virtual_partition(&key), key.clone(), start);
        let slices = open.entry(leaving).or_default();
        let states = slices.entry((first_open, last)).or_insert_with(|| empty(stage));
        add(stage, states, arrival, row);
    }
    true
}

struct Session {
    start: i64,
    end: i64,
    states: States,
}

/// Session windows.
pub(super) fn sessions(
    stage: &WindowStage,
    gap_ms: i64,
    steps: Vec<Step>,
    late: &mut Vec<Values>,
) -> Vec<Step> {
    let mut open: BTreeMap<Values, Vec<Session>> = BTreeMap::new();
    let mut passed = i64::MIN;
    let mut out = Vec::new();
    for (arrival, step) in steps.into_iter().enumerate() {
        match step {
            Step::Row { values, before } => {
                let time = time_of(&values, stage.rowtime);
                let sessions = open.entry(key_of(stage, &values)).or_default();
                let mut joined = join(stage, sessions, (time, time + gap_ms), before);
                if is_closed(joined.end, before) {
                    late.push(values);
                    continue;
                }
                add(stage, &mut joined.states, arrival as u64, &values);
                sessions.push(joined);
            }
            Step::Watermark(watermark) => {
                for (leaving, states) in close(&mut open, watermark) {
                    let values = result(stage, leaving, states);
                    out.push(Step::Row { values, before: passed });
                }
                passed = watermark;
                out.push(step);
            }
        }
    }
    out
}

/// Takes out the sessions that a row's stretch touches and that are open for it, and makes them
/// one with the stretch: the younger are added to the oldest.
fn join(
    stage: &WindowStage,
    sessions: &mut Vec<Session>,
    (start, end): (i64, i64),
    before: i64,
) -> Session {
    let touches = |s: &Session| s.start <= end && start <= s.end && !is_closed(s.end, before);
    let (mut touched, others): (Vec<_>, Vec<_>) = sessions.drain(..).partition(touches);
    *sessions = others;
    touched.sort_by_key(|session| session.start);
    let mut joined = Session { start, end, states: empty(stage) };
    for session in touched {
        joined.start = joined.start.min(session.start);
        joined.end = joined.end.max(session.end);
        merge(stage, &mut joined.states, session.states);
    }
    joined
}

/// Takes out the sessions that a watermark closes, in the order in which they leave.
fn close(open: &mut BTreeMap<Values, Vec<Session>>, watermark: i64) -> Vec<(Leaving, States)> {
    let mut closed = Vec::new();
    for (key, sessions) in open {
        for session in std::mem::take(sessions) {
            if is_closed(session.end, watermark) {
                let leaving = (session.end, virtual_partition(key), key.clone(), session.start);
                closed.push((leaving, session.states));
            } else {
                sessions.push(session);
            }
        }
    }
    closed.sort_by(|(a, _), (b, _)| a.cmp(b));
    closed
}
