//! Steps of aggregates that wait to be taken together, and the changes that their results make.
//!
//! A result is named by its place among the pairs that aggregates give (`RunningAggregate`): step
//! `n` has the result before it at `2 n` and the one after it at `2 n + 1`.
//!
//! **Invariant.** Places of rows stay good until the piece ends, also of rows that were removed; so
//! steps may wait that long, whatever happens to their rows.

use std::sync::Arc;

use arrow_array::{ArrayRef, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take;
use thalweg_core::{Output, Place, Result, RowKind};

use crate::aggregate::{AggregateCall, RunInput, RunningAggregate, Step, accepted, mark_changes};
use crate::rows::arena::{Arena, ArenaPlace};
use crate::rows::columns::batch_of;

/// This many steps are taken at once, or more where one row makes them.
const STEPS_MAX: usize = 8 * 1024;
/// The most rows of a batch that leaves.
const EMIT_ROWS: usize = 1 << 14;

/// The place of a result among pairs.
pub(super) type ResultAt = u32;

/// What happens to a row.
#[derive(Clone, Copy)]
enum RowChange {
    /// It comes or goes, with this result.
    Leaves(RowKind, ResultAt),
    /// Its result was the one, and is the other.
    Updates(ResultAt, ResultAt),
}

struct WaitingChange {
    place: ArenaPlace,
    /// The row of the bundle that causes it.
    cause: u32,
    change: RowChange,
}

/// Steps and changes that wait.
#[derive(Default)]
pub(super) struct OverRun {
    ids: Vec<u32>,
    steps: Vec<Step>,
    places: Vec<ArenaPlace>,
    changes: Vec<WaitingChange>,
}

/// What a run reads and writes.
pub(super) struct RunContext<'a> {
    pub(super) calls: &'a [AggregateCall],
    pub(super) arena: &'a Arena,
    /// The columns of the bundle in hand.
    pub(super) piece: &'a [ArrayRef],
    /// The columns that come out.
    pub(super) schema: &'a SchemaRef,
}

impl OverRun {
    /// The number of the step that is pushed next.
    pub fn next_step(&self) -> u32 {
        self.steps.len() as u32
    }

    pub fn push(&mut self, id: u32, step: Step, place: ArenaPlace) {
        self.ids.push(id);
        self.steps.push(step);
        self.places.push(place);
    }

    /// A row comes or goes.
    pub fn leaves(&mut self, place: ArenaPlace, cause: u32, kind: RowKind, result: ResultAt) {
        self.changes.push(WaitingChange { place, cause, change: RowChange::Leaves(kind, result) });
    }

    /// The result of a row may change.
    pub fn updates(&mut self, place: ArenaPlace, cause: u32, old: ResultAt, new: ResultAt) {
        self.changes.push(WaitingChange { place, cause, change: RowChange::Updates(old, new) });
    }

    /// True if steps should be taken soon.
    pub fn is_full(&self) -> bool {
        self.steps.len() >= STEPS_MAX
    }

    /// Takes all steps and sends out what they change.
    pub fn take(
        &mut self,
        aggregates: &mut [Box<dyn RunningAggregate>],
        context: &RunContext<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let pairs = self.results(aggregates, context)?;
        let leaving = self.leaving(&pairs)?;
        leaving.emit(&pairs, context, output)?;
        self.clear();
        Ok(())
    }

    /// Takes all steps whose results nobody reads.
    pub fn take_silently(
        &mut self,
        aggregates: &mut [Box<dyn RunningAggregate>],
        context: &RunContext<'_>,
    ) -> Result<()> {
        self.results(aggregates, context)?;
        self.clear();
        Ok(())
    }

    /// The results of each aggregate before and after each step.
    fn results(
        &self,
        aggregates: &mut [Box<dyn RunningAggregate>],
        context: &RunContext<'_>,
    ) -> Result<Vec<ArrayRef>> {
        if self.steps.is_empty() {
            return Ok(Vec::new());
        }
        let column = |&at: &usize| -> Result<ArrayRef> {
            Ok(context.arena.gather(&self.places, context.piece, &[at])?.swap_remove(0))
        };
        let mut pairs = Vec::with_capacity(aggregates.len());
        for (call, aggregate) in context.calls.iter().zip(aggregates) {
            let argument = call.argument.as_ref().map(column).transpose()?;
            let filter = call.filter.as_ref().map(column).transpose()?;
            let filter = filter.as_ref().map(accepted).transpose()?;
            pairs.push(aggregate.run(&RunInput {
                ids: &self.ids,
                steps: Some(&self.steps),
                argument: argument.as_ref(),
                filter: filter.as_ref(),
            })?);
        }
        Ok(pairs)
    }

    /// The rows that leave: those that come and go, and those whose results have changed.
    fn leaving(&self, pairs: &[ArrayRef]) -> Result<LeavingRows> {
        let updates = self.changes.iter().filter_map(|waiting| match waiting.change {
            RowChange::Updates(old, new) => Some([old, new]),
            RowChange::Leaves(..) => None,
        });
        let picks: UInt32Array = updates.flatten().map(Some).collect();
        let mut changed = vec![false; picks.len() / 2];
        for results in pairs {
            mark_changes(&take(results, &picks, None)?, &mut changed)?;
        }
        let mut changed = changed.into_iter();
        let mut leaving = LeavingRows::default();
        for &WaitingChange { place, cause, change } in &self.changes {
            match change {
                RowChange::Leaves(kind, result) => leaving.push(place, cause, kind, result),
                RowChange::Updates(old, new) => {
                    if changed.next().unwrap_or(false) {
                        leaving.push(place, cause, RowKind::UpdateBefore, old);
                        leaving.push(place, cause, RowKind::UpdateAfter, new);
                    }
                }
            }
        }
        Ok(leaving)
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.steps.clear();
        self.places.clear();
        self.changes.clear();
    }

    pub fn bytes(&self) -> usize {
        let step = 4 + size_of::<Step>() + size_of::<ArenaPlace>();
        self.steps.capacity() * step + self.changes.capacity() * size_of::<WaitingChange>()
    }
}

/// Rows that leave, with the places of their results.
#[derive(Default)]
struct LeavingRows {
    places: Vec<ArenaPlace>,
    kinds: Vec<RowKind>,
    causes: Vec<u32>,
    results: Vec<ResultAt>,
}

impl LeavingRows {
    fn push(&mut self, place: ArenaPlace, cause: u32, kind: RowKind, result: ResultAt) {
        self.places.push(place);
        self.kinds.push(kind);
        self.causes.push(cause);
        self.results.push(result);
    }

    fn emit(
        &self,
        pairs: &[ArrayRef],
        context: &RunContext<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let inputs: Vec<usize> = (0..context.schema.fields().len() - pairs.len()).collect();
        for from in (0..self.kinds.len()).step_by(EMIT_ROWS) {
            let range = from..self.kinds.len().min(from + EMIT_ROWS);
            let places = &self.places[range.clone()];
            let mut columns = context.arena.gather(places, context.piece, &inputs)?;
            let picks = UInt32Array::from(self.results[range.clone()].to_vec());
            for results in pairs {
                columns.push(take(results, &picks, None)?);
            }
            let batch = batch_of(context.schema, columns, range.len())?;
            let place = Place::Caused(self.causes[range.clone()].to_vec());
            output.emit_changes(batch, Arc::from(&self.kinds[range]), place);
        }
        Ok(())
    }
}
