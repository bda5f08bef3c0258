//! Aggregates over frames: what leaves a frame is retracted, what enters is added.
//!
//! Rows come in the order of time and arrival. For each, the rows of its key that its frame no
//! longer holds are retracted, oldest first, and then its own value is added; what its aggregate
//! gives then is its result, or, where rows of equal time are peers, what it gives after the last
//! of them. Sums of floats are exact, so a row that has left leaves no trace in those that come.
//!
//! Frames that no row leaves keep no rows.
//!
//! One run of aggregates for many rows and keys: events (retractions and additions) are listed
//! first, in the order of rows, then each aggregate takes all of them in one call and answers with
//! a pair of results per event. `read` says after which event a row's result stands.
//!
//! **Invariants**
//! - Rows of a key leave its frame in the order in which they entered. So aggregates may be of the
//!   kind that is retracted oldest first, which costs less than any order (`MAX` keeps a short
//!   queue).
//! - The current row is always in its own frame: rows leave before it is added.
//! - Rows of equal time are in one run, so peers are found within it.

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use thalweg_core::{Result, TableSchema};

use super::spec::{Frame, OverSpec};
use super::trail::Trail;
use crate::aggregate::{
    AggregateCall, RunInput, RunningAggregate, StateColumns, StateRows, Step, accepted,
};
use crate::rows::chunks::RowRef;
use crate::rows::event_time::DueRows;

/// The rows of frames in tables of state.
const FRAME: &str = "$frame";

/// One aggregate and the places of its columns among those that are kept.
struct Call {
    /// What its state is called in tables of state.
    state_name: String,
    argument: Option<usize>,
    filter: Option<usize>,
    states: Box<dyn RunningAggregate>,
}

/// What rows do to the aggregates, one after another.
#[derive(Default)]
struct Events {
    ids: Vec<u32>,
    steps: Vec<Step>,
    rows: Vec<RowRef>,
    /// For each row that was fired, the event after which its result is read.
    read: Vec<u32>,
}

/// The aggregates of an OVER window.
pub(super) struct FrameAggregates {
    frame: Frame,
    has_peers: bool,
    /// The input columns that calls read.
    columns: Vec<usize>,
    calls: Vec<Call>,
    /// The rows of the frames; `None` where none leaves.
    trail: Option<Trail>,
    events: Events,
    /// The newest event of each key, for peers: scratch space of a run.
    newest: Vec<u32>,
}

impl FrameAggregates {
    /// Calls with what they are called in tables of state.
    pub fn new(
        spec: &OverSpec,
        calls: &[(String, AggregateCall)],
        has_peers: bool,
    ) -> Result<Self> {
        let named = calls.iter().map(|(_, call)| call);
        let named = named.flat_map(|call| call.argument.into_iter().chain(call.filter));
        let mut columns: Vec<usize> = named.collect();
        columns.sort_unstable();
        columns.dedup();
        let place = |column: usize| columns.partition_point(|&other| other < column);
        let is_bounded = spec.frame.is_bounded();
        let build = |(state_name, call): &(String, AggregateCall)| {
            let argument = call.argument.map(|column| spec.data_type(column));
            Ok(Call {
                state_name: state_name.clone(),
                argument: call.argument.map(place),
                filter: call.filter.map(place),
                states: match is_bounded {
                    true => call.running_oldest_first(argument)?,
                    false => call.running(argument, false)?,
                },
            })
        };
        let calls = calls.iter().map(build).collect::<Result<Vec<_>>>()?;
        let kept = columns.iter().map(|&column| spec.input.columns[column].clone()).collect();
        let trail = (is_bounded && !calls.is_empty()).then(|| Trail::new(TableSchema::new(kept)));
        Ok(FrameAggregates {
            frame: spec.frame,
            has_peers: has_peers && matches!(spec.frame, Frame::Range { .. }),
            columns,
            calls,
            trail,
            events: Events::default(),
            newest: Vec::new(),
        })
    }

    pub fn grow(&mut self, groups: usize) {
        self.calls.iter_mut().for_each(|call| call.states.grow(groups));
        if let Some(trail) = &mut self.trail {
            trail.grow(groups);
        }
        if self.has_peers && self.newest.len() < groups {
            self.newest.resize(groups, 0);
        }
    }

    /// The results of these rows, a column for each call.
    pub fn run(&mut self, fired: &DueRows) -> Result<Vec<ArrayRef>> {
        if self.calls.is_empty() {
            return Ok(Vec::new());
        }
        let own = |&column: &usize| ArrayRef::clone(&fired.columns[column]);
        let mut columns: Vec<ArrayRef> = self.columns.iter().map(own).collect();
        self.events.clear();
        match &mut self.trail {
            None => self.events.read.extend(0..fired.rows() as u32),
            Some(trail) => {
                let chunk = trail.add(columns, &fired.times);
                match self.frame {
                    Frame::Rows { preceding } => {
                        self.events.rows(trail, fired, chunk, preceding.unwrap_or(u64::MAX));
                    }
                    Frame::Range { preceding_ms } => {
                        self.events.range(trail, fired, chunk, preceding_ms.unwrap_or(i64::MAX));
                    }
                }
                columns = trail.gather(&self.events.rows)?;
                trail.settle()?;
            }
        }
        if self.has_peers {
            self.read_after_peers(fired);
        }
        self.results(fired, &columns)
    }

    /// Lets every row read what the last of its peers does.
    fn read_after_peers(&mut self, fired: &DueRows) {
        let mut from = 0;
        for peers in fired.times.chunk_by(|a, b| a == b) {
            let to = from + peers.len();
            let (ids, read) = (&fired.ids[from..to], &mut self.events.read[from..to]);
            if let ([_, _, ..], newest) = (ids, &mut self.newest) {
                for (&id, &event) in ids.iter().zip(read.iter()) {
                    newest[id as usize] = event;
                }
                for (&id, event) in ids.iter().zip(read) {
                    *event = newest[id as usize];
                }
            }
            from = to;
        }
    }

    fn results(&mut self, fired: &DueRows, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let is_plain = self.trail.is_none();
        let ids = if is_plain { &fired.ids } else { &self.events.ids };
        let steps = (!is_plain).then_some(&self.events.steps[..]);
        let after = |&event: &u32| 2 * event + 1;
        let picks = UInt32Array::from_iter_values(self.events.read.iter().map(after));
        let mut results = Vec::with_capacity(self.calls.len());
        for call in &mut self.calls {
            let filter = call.filter.map(|place| accepted(&columns[place])).transpose()?;
            let pairs = call.states.run(&RunInput {
                ids,
                steps,
                argument: call.argument.map(|place| &columns[place]),
                filter: filter.as_ref(),
            })?;
            results.push(take(&pairs, &picks, None)?);
        }
        Ok(results)
    }

    /// Forgets these keys.
    pub fn reset(&mut self, ids: &[u32]) -> Result<()> {
        self.calls.iter_mut().for_each(|call| call.states.reset(ids));
        if let Some(trail) = &mut self.trail {
            ids.iter().for_each(|&id| trail.clear(id));
            trail.settle()?;
        }
        Ok(())
    }

    /// Captures the states of keys and the rows of their frames.
    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        for call in &self.calls {
            columns.begin(&call.state_name);
            call.states.capture(ids, columns)?;
        }
        if let Some(trail) = &self.trail {
            columns.begin(FRAME);
            trail.capture(ids, columns)?;
        }
        Ok(())
    }

    /// Restores what [`FrameAggregates::capture`] wrote.
    pub fn restore(&mut self, ids: &[u32], rows: &RecordBatch) -> Result<()> {
        for call in &mut self.calls {
            call.states.restore(ids, &StateRows::new(rows, &call.state_name))?;
        }
        match &mut self.trail {
            Some(trail) => trail.restore(ids, &StateRows::new(rows, FRAME), u64::MAX),
            None => Ok(()),
        }
    }

    pub fn bytes(&self) -> usize {
        let states: usize = self.calls.iter().map(|call| call.states.bytes()).sum();
        let trail = self.trail.as_ref().map_or(0, Trail::bytes);
        states + trail + self.newest.capacity() * 4 + self.events.bytes()
    }
}

impl Events {
    fn clear(&mut self) {
        self.ids.clear();
        self.steps.clear();
        self.rows.clear();
        self.read.clear();
    }

    fn bytes(&self) -> usize {
        self.ids.capacity() * 4
            + self.steps.capacity()
            + self.rows.capacity() * size_of::<RowRef>()
            + self.read.capacity() * 4
    }

    /// Each row leaves its key's frame when this many came behind it.
    fn rows(&mut self, trail: &mut Trail, fired: &DueRows, chunk: u32, preceding: u64) {
        for (row, (&id, &time)) in fired.ids.iter().zip(&fired.times).enumerate() {
            if trail.count(id) > preceding {
                let left = trail.pop(id);
                self.retract(id, left);
            }
            self.add(trail, id, RowRef { chunk, row: row as u32 }, time);
        }
    }

    /// Each row leaves its key's frame when one comes that is so much later.
    fn range(&mut self, trail: &mut Trail, fired: &DueRows, chunk: u32, preceding_ms: i64) {
        for (row, (&id, &time)) in fired.ids.iter().zip(&fired.times).enumerate() {
            let begin = time.saturating_sub(preceding_ms);
            while let Some(left) = trail.pop_before(id, begin) {
                self.retract(id, left);
            }
            self.add(trail, id, RowRef { chunk, row: row as u32 }, time);
        }
    }

    #[inline]
    fn retract(&mut self, id: u32, row: RowRef) {
        self.ids.push(id);
        self.steps.push(Step::RETRACTION);
        self.rows.push(row);
    }

    #[inline]
    fn add(&mut self, trail: &mut Trail, id: u32, row: RowRef, time: i64) {
        let begins = trail.count(id) == 0;
        trail.push(id, row, time);
        self.read.push(self.ids.len() as u32);
        self.ids.push(id);
        self.steps.push(if begins { Step::ADDS.beginning() } else { Step::ADDS });
        self.rows.push(row);
    }
}
