//! From results before and after each row to the rows that leave.
//!
//! Results come as pairs (see `RunningAggregate`): the common case, in which every row updates a
//! result, sends these arrays out as they are, and otherwise one `take` per column picks what
//! leaves.
//!
//! Pairs are arrays of twice as many values as rows: value `2 * n` is the result before row `n`,
//! and `2 * n + 1` the result after it. That is the order of `-U`, `+U`, so a run of updates is the
//! output column itself.
//!
//! | the row | leaves |
//! |---|---|
//! | begins its group | `+I` with the result after |
//! | ends it | `-D` with the result before |
//! | both (mini-batch only) | nothing |
//! | neither, result changed | `-U`, `+U` |
//! | neither, result equal | nothing, unless `always` |

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take;
use thalweg_core::{Output, Place, Result, RowKind};

use crate::aggregate::{Step, mark_changes};

/// The most rows of a batch that leaves.
const EMIT_ROWS: usize = 64 * 1024;

/// Rows that were taken, with their results.
pub(super) struct GroupRun {
    /// The rows of the bundle, ascending.
    pub(super) rows: Vec<u32>,
    /// What each did.
    pub(super) steps: Vec<Step>,
    /// The results of each call, twice as many as rows.
    pub(super) pairs: Vec<ArrayRef>,
}

impl GroupRun {
    /// One step per key: from before its first row to after its last, which is said to cause it.
    /// `places` is scratch space, by key.
    ///
    /// Net changes leave in the order of the last rows of their keys: causes must ascend.
    pub fn net(self, ids: &[u32], limit: usize, places: &mut Vec<u32>) -> Result<GroupRun> {
        const NONE: u32 = u32::MAX;
        places.resize(limit, NONE);
        let mut spans: Vec<(u32, u32)> = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            let span = &mut places[id as usize];
            if *span == NONE {
                *span = spans.len() as u32;
                spans.push((place as u32, 0));
            }
            spans[*span as usize].1 = place as u32;
        }
        ids.iter().for_each(|&id| places[id as usize] = NONE);
        spans.sort_unstable_by_key(|&(_, last)| last);
        // The result before the first row of the key and the one after its last.
        let picks = spans.iter().flat_map(|&(first, last)| [2 * first, 2 * last + 1]);
        let picks: UInt32Array = picks.map(Some).collect();
        let pick = |pairs: &ArrayRef| Ok(take(pairs, &picks, None)?);
        let step = |&(first, last): &(u32, u32)| {
            let begins = self.steps[first as usize].begins();
            let step = if begins { Step::ADDS.beginning() } else { Step::ADDS };
            if self.steps[last as usize].ends() { step.ending() } else { step }
        };
        Ok(GroupRun {
            rows: spans.iter().map(|&(_, last)| self.rows[last as usize]).collect(),
            steps: spans.iter().map(step).collect(),
            pairs: self.pairs.iter().map(pick).collect::<Result<_>>()?,
        })
    }
}

/// What leaves.
#[derive(Default)]
struct Leaving {
    /// Places in the pairs; `None` means all.
    picks: Option<Vec<u32>>,
    kinds: Vec<RowKind>,
    /// The row of the bundle that causes each.
    causes: Vec<u32>,
}

impl Leaving {
    /// Every row updates its result.
    fn all(rows: &[u32]) -> Self {
        let kinds = [RowKind::UpdateBefore, RowKind::UpdateAfter].repeat(rows.len());
        Leaving { picks: None, kinds, causes: rows.iter().flat_map(|&row| [row, row]).collect() }
    }

    fn some(run: &GroupRun, changed: impl Fn(usize) -> bool) -> Self {
        let mut leaving = Leaving::default();
        let mut picks = Vec::with_capacity(run.rows.len() * 2);
        for (place, (&row, &step)) in run.rows.iter().zip(&run.steps).enumerate() {
            let mut push = |pick: usize, kind: RowKind| {
                picks.push(pick as u32);
                leaving.kinds.push(kind);
                leaving.causes.push(row);
            };
            match (step.begins(), step.ends()) {
                (true, true) => {}
                (true, false) => push(2 * place + 1, RowKind::Insert),
                (false, true) => push(2 * place, RowKind::Delete),
                (false, false) => {
                    if changed(place) {
                        push(2 * place, RowKind::UpdateBefore);
                        push(2 * place + 1, RowKind::UpdateAfter);
                    }
                }
            }
        }
        leaving.picks = Some(picks);
        leaving
    }
}

/// Makes the rows that leave.
pub(super) struct GroupChanges {
    pub(super) schema: SchemaRef,
    pub(super) keys: Vec<usize>,
    /// True if rows that neither begin nor end a group leave even if its result is the same.
    pub(super) always: bool,
    /// True if all that leaves is inserts.
    pub(super) inserts_only: bool,
}

impl GroupChanges {
    /// Sends out what these rows of the batch changed.
    pub fn emit(&self, run: &GroupRun, batch: &RecordBatch, output: &mut Output) -> Result<()> {
        let leaving = self.leaving(run)?;
        let Leaving { picks, kinds, causes } = leaving;
        if kinds.is_empty() {
            return Ok(());
        }
        let rows = UInt32Array::from(causes.clone());
        let picks = picks.map(UInt32Array::from);
        let key = |&key: &usize| Ok(take(batch.column(key), &rows, None)?);
        let mut columns: Vec<ArrayRef> = self.keys.iter().map(key).collect::<Result<_>>()?;
        for pairs in &run.pairs {
            columns.push(match &picks {
                Some(picks) => take(pairs, picks, None)?,
                None => ArrayRef::clone(pairs),
            });
        }
        let changes = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        for from in (0..kinds.len()).step_by(EMIT_ROWS) {
            let to = kinds.len().min(from + EMIT_ROWS);
            let (batch, place) =
                (changes.slice(from, to - from), Place::Caused(causes[from..to].to_vec()));
            match self.inserts_only {
                true => output.emit_at(batch, place),
                false => output.emit_changes(batch, kinds[from..to].into(), place),
            }
        }
        Ok(())
    }

    fn leaving(&self, run: &GroupRun) -> Result<Leaving> {
        if run.pairs.is_empty() {
            return Ok(Leaving::some(run, |_| false));
        }
        let mut changed = vec![self.always; run.rows.len()];
        for pairs in &run.pairs {
            if changed.iter().all(|&changed| changed) {
                break;
            }
            mark_changes(pairs, &mut changed)?;
        }
        let updates = |step: &Step| !step.begins() && !step.ends();
        if changed.iter().all(|&changed| changed) && run.steps.iter().all(updates) {
            return Ok(Leaving::all(&run.rows));
        }
        Ok(Leaving::some(run, |place| changed[place]))
    }
}
