//! The groups of one key range: which exist, what their aggregates are, and what rows do to them.
//!
//! A piece is taken in runs. Rows are counted first, which says where groups begin and end and
//! which retractions are ignored; then each aggregate takes the run in one call.
//!
//! A group is captured as a row of a table of state: its key, `$rows`, the states of its
//! aggregates, and `$written_ms` where keys expire. What was changed and what a capture still has
//! to read is known to [`KeyTracker`], once there has been one.
//!
//! Invariant between pieces: the keys in the table are those with at least one row; the states of
//! all other numbers are empty.
//!
//! Steps of a run:
//!
//! 1. `admit` moves `counts` and writes a step for each row that counts. It runs row by row, since
//!    the same key may occur often.
//! 2. Each aggregate gets all steps at once and answers with pairs: result before and after each
//!    row.
//! 3. `empty_ended` resets states of groups without rows. It must follow the aggregates: they still
//!    give the result before the last retraction.
//! 4. Changes leave; under mini-batch after `GroupRun::net` has made one step of all steps of a
//!    key.
//!
//! Keys are released at the end of the piece only, as a later run of the piece may fill the group
//! again under the same id.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use thalweg_core::{Error, Output, Piece, Result, RowKind};

use super::GroupSpec;
use super::changes::{GroupChanges, GroupRun};
use crate::aggregate::{RunInput, RunningAggregate, StateColumns, StateRows, Step, accepted};
use crate::capture::key_columns::KeyColumns;
use crate::capture::keys::{KeyTracker, KeyedState, release, retain_empty};
use crate::expiry::Expiry;
use crate::gradual::Pages;
use crate::keys::KeyTable;
use crate::rows::columns::{keys_of, types_of};
use crate::tables::{does_not_fit, numbers_of, state_batch};

/// How many rows are taken at once: results then stay in the cache until they are put together.
const RUN_ROWS: usize = 8 * 1024;

/// Rows that count.
#[derive(Default)]
struct Admitted {
    ids: Vec<u32>,
    rows: Vec<u32>,
    steps: Vec<Step>,
    /// True if rows are retracted.
    retracts: bool,
}

/// How many rows a group has, and when its state was written, in tables of state.
const ROWS: &str = "$rows";
const WRITTEN_MS: &str = "$written_ms";
/// The only table.
pub(super) const GROUPS: usize = 0;

/// The groups of one partition.
pub(super) struct Groups {
    spec: Arc<GroupSpec>,
    changes: GroupChanges,
    keys: KeyTable,
    /// How many rows each group has.
    counts: Pages<i64>,
    aggregates: Vec<Box<dyn RunningAggregate>>,
    expiry: Expiry,
    /// The columns of keys and of aggregates in tables of state.
    key_columns: KeyColumns,
    aggregate_names: Vec<String>,
    /// Set once there has been a capture.
    tracker: Option<KeyTracker>,
    /// The group of each row of the piece.
    ids: Vec<u32>,
    /// Groups that may have been left without rows.
    ended: Vec<u32>,
    /// Scratch space of net changes.
    places: Vec<u32>,
}

impl Groups {
    pub fn new(spec: Arc<GroupSpec>, schema: SchemaRef, inserts_only: bool) -> Result<Self> {
        let counts_rows = |call: &crate::aggregate::AggregateCall| call.counts_rows();
        let counted = !spec.mini_batch && spec.calls.iter().any(counts_rows);
        let expiry = Expiry::new(spec.state_ttl_ms);
        let always = counted || expiry.expires();
        let key_columns = KeyColumns::new(&spec.input, &spec.keys);
        let names = spec.calls.iter().map(|call| &call.name[..]);
        Ok(Groups {
            changes: GroupChanges { schema, keys: spec.keys.clone(), always, inserts_only },
            keys: KeyTable::new(&types_of(&spec.input, &spec.keys))?,
            counts: Pages::default(),
            aggregates: spec.aggregates()?,
            expiry,
            aggregate_names: key_columns.names_besides_keys(names),
            key_columns,
            tracker: None,
            ids: Vec::new(),
            ended: Vec::new(),
            places: Vec::new(),
            spec,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = &piece.bundle.batch;
        let columns = keys_of(batch.columns(), &self.spec.keys);
        let chosen = piece.rows.filter(|rows| rows.len() < batch.num_rows());
        self.ids.clear();
        self.keys.intern_rows(&columns, chosen, batch.num_rows(), &mut self.ids)?;
        let groups = self.keys.id_limit();
        self.counts.grow(groups, 0);
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(groups));
        // Before anything changes: a capture under way writes these groups as they are now.
        let ids = std::mem::take(&mut self.ids);
        self.touch(GROUPS, &ids)?;
        self.ids = ids;
        if self.expiry.expires() {
            let over = self.expiry.reach(&self.ids, &self.counts, output.wall_ms());
            self.forget(&over);
        }
        let run_rows = if self.spec.mini_batch { self.ids.len() } else { RUN_ROWS };
        for from in (0..self.ids.len()).step_by(run_rows) {
            let to = self.ids.len().min(from + run_rows);
            self.run(piece, chosen, from..to, output)?;
        }
        self.release_ended()
    }

    /// Takes a run of rows.
    fn run(
        &mut self,
        piece: &Piece<'_>,
        chosen: Option<&[u32]>,
        span: Range<usize>,
        output: &mut Output,
    ) -> Result<()> {
        let kinds = piece.bundle.kinds.as_deref();
        let first_ended = self.ended.len();
        let admitted = self.admit(chosen, kinds, span.clone())?;
        let batch = &piece.bundle.batch;
        let whole = chosen.is_none() && admitted.rows.len() == span.len();
        let mut dense =
            Dense { batch, span: whole.then_some(span), rows: &admitted.rows, columns: Vec::new() };
        let mut pairs = Vec::with_capacity(self.aggregates.len());
        for (call, aggregate) in self.spec.calls.iter().zip(&mut self.aggregates) {
            let argument = call.argument.map(|at| dense.column(at)).transpose()?;
            let filter = call.filter.map(|at| accepted(&dense.column(at)?)).transpose()?;
            pairs.push(aggregate.run(&RunInput {
                ids: &admitted.ids,
                steps: admitted.retracts.then_some(&admitted.steps),
                argument: argument.as_ref(),
                filter: filter.as_ref(),
            })?);
        }
        self.empty_ended(first_ended);
        let Admitted { ids, rows, steps, .. } = admitted;
        let mut run = GroupRun { rows, steps, pairs };
        if self.spec.mini_batch {
            run = run.net(&ids, self.counts.len(), &mut self.places)?;
        }
        self.changes.emit(&run, batch, output)
    }

    /// Counts rows: which count, and what they do to their groups.
    fn admit(
        &mut self,
        chosen: Option<&[u32]>,
        kinds: Option<&[RowKind]>,
        span: Range<usize>,
    ) -> Result<Admitted> {
        let ids = &self.ids[span.clone()];
        let rows: Vec<u32> = match chosen {
            Some(chosen) => chosen[span].to_vec(),
            None => (span.start as u32..span.end as u32).collect(),
        };
        let retracts = |kind: RowKind| matches!(kind, RowKind::UpdateBefore | RowKind::Delete);
        let kinds = kinds.filter(|kinds| rows.iter().any(|&row| retracts(kinds[row as usize])));
        let Some(kinds) = kinds else {
            let counts = &mut self.counts;
            let step = |&id: &u32| {
                let count = &mut counts[id as usize];
                *count += 1;
                if *count == 1 { Step::ADDS.beginning() } else { Step::ADDS }
            };
            let steps = ids.iter().map(step).collect();
            return Ok(Admitted { ids: ids.to_vec(), rows, steps, retracts: false });
        };
        if !self.spec.retracts {
            return Err(Error::internal("an aggregate of inserts was given a retraction"));
        }
        let mut admitted = Admitted { retracts: true, ..Admitted::default() };
        for (&id, row) in ids.iter().zip(rows) {
            let count = &mut self.counts[id as usize];
            let step = match (retracts(kinds[row as usize]), *count) {
                (true, 0) => {
                    self.ended.push(id);
                    continue;
                }
                (true, 1) => {
                    self.ended.push(id);
                    Step::RETRACTION.ending()
                }
                (true, _) => Step::RETRACTION,
                (false, 0) => Step::ADDS.beginning(),
                (false, _) => Step::ADDS,
            };
            *count += if step.retracts() { -1 } else { 1 };
            admitted.ids.push(id);
            admitted.rows.push(row);
            admitted.steps.push(step);
        }
        Ok(admitted)
    }

    /// Empties the states of groups that a run has left without rows.
    fn empty_ended(&mut self, first: usize) {
        let counts = &self.counts;
        let is_empty = |&id: &u32| counts[id as usize] == 0;
        let empty: Vec<u32> = self.ended[first..].iter().copied().filter(is_empty).collect();
        if !empty.is_empty() {
            self.aggregates.iter_mut().for_each(|aggregate| aggregate.reset(&empty));
        }
    }

    /// Gives the keys back that a piece has left without rows.
    fn release_ended(&mut self) -> Result<()> {
        retain_empty(&mut self.ended, |id| self.counts[id as usize] == 0);
        release(&mut self.tracker, &mut self.keys, &self.ended)?;
        self.ended.clear();
        Ok(())
    }

    /// Empties these groups, as if they had never been.
    fn forget(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.counts[id as usize] = 0);
        if !ids.is_empty() {
            self.aggregates.iter_mut().for_each(|aggregate| aggregate.reset(ids));
        }
    }

    /// Takes a piece, and forgets some keys that are too old.
    pub fn rows(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(piece, output)?;
        }
        if self.expiry.expires() {
            let has_rows = |id: u32| self.counts[id as usize] > 0;
            let over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_rows);
            self.touch(GROUPS, &over)?;
            self.forget(&over);
            release(&mut self.tracker, &mut self.keys, &over)?;
        }
        Ok(())
    }

    /// These groups, as rows of the table of state.
    fn capture_groups(&self, ids: &[u32]) -> Result<RecordBatch> {
        let (owners, mut columns) = self.key_columns.columns_of(&self.keys, ids)?;
        let rows = ids.iter().map(|&id| self.counts[id as usize]);
        columns.push((ROWS.to_owned(), Arc::new(Int64Array::from_iter_values(rows))));
        if self.expiry.expires() {
            let written_ms = ids.iter().map(|&id| self.expiry.written_ms(id));
            columns
                .push((WRITTEN_MS.to_owned(), Arc::new(Int64Array::from_iter_values(written_ms))));
        }
        let mut states = StateColumns::default();
        for (name, aggregate) in self.aggregate_names.iter().zip(&self.aggregates) {
            states.begin(name);
            aggregate.capture(ids, &mut states)?;
        }
        columns.extend(states.finish());
        state_batch(owners, columns)
    }

    /// Makes room for this many groups.
    pub fn reserve(&mut self, groups: usize) {
        let limit = self.keys.id_limit() + groups;
        self.keys.reserve(groups);
        self.counts.reserve(groups);
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(limit));
    }

    /// Restores groups that [`Groups::capture_groups`] wrote.
    pub fn restore_groups(&mut self, rows: &RecordBatch) -> Result<()> {
        let known = self.keys.len() - usize::from(self.spec.keys.is_empty());
        let mut ids = Vec::with_capacity(rows.num_rows());
        self.key_columns.intern(rows, &mut self.keys, &mut ids)?;
        let limit = self.keys.id_limit();
        self.counts.grow(limit, 0);
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(limit));
        let counts = numbers_of::<Int64Type>(rows, ROWS)?;
        if self.keys.len() != known + ids.len() || counts.iter().any(|&count| count <= 0) {
            return Err(does_not_fit("a key is there twice, or has no rows".to_owned()));
        }
        for (&id, &count) in ids.iter().zip(counts) {
            self.counts[id as usize] = count;
        }
        if self.expiry.expires() {
            self.expiry.grow(limit);
            for (&id, &written_ms) in ids.iter().zip(numbers_of::<Int64Type>(rows, WRITTEN_MS)?) {
                self.expiry.write(id, written_ms);
            }
        }
        for (name, aggregate) in self.aggregate_names.iter().zip(&mut self.aggregates) {
            aggregate.restore(&ids, &StateRows::new(rows, name))?;
        }
        Ok(())
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn state_bytes(&self) -> usize {
        let scratch = self.ids.capacity() + self.ended.capacity() + self.places.capacity();
        let aggregates: usize = self.aggregates.iter().map(|aggregate| aggregate.bytes()).sum();
        let tracker = self.tracker.as_ref().map_or(0, KeyTracker::bytes);
        self.keys.bytes()
            + self.counts.bytes()
            + aggregates
            + self.expiry.bytes()
            + tracker
            + scratch * 4
    }
}

impl KeyedState for Groups {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.counts.get(id as usize).is_some_and(|&count| count > 0)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        self.capture_groups(ids)
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
}

/// Columns of the rows that count, each made once.
struct Dense<'a> {
    batch: &'a RecordBatch,
    /// Where these rows stand, if they stand together.
    span: Option<Range<usize>>,
    rows: &'a [u32],
    columns: Vec<(usize, ArrayRef)>,
}

impl Dense<'_> {
    fn column(&mut self, at: usize) -> Result<ArrayRef> {
        if let Some((_, column)) = self.columns.iter().find(|(place, _)| *place == at) {
            return Ok(ArrayRef::clone(column));
        }
        let column = self.batch.column(at);
        let column = match &self.span {
            Some(span) => column.slice(span.start, span.len()),
            None => arrow_select::take::take(column, &UInt32Array::from(self.rows.to_vec()), None)?,
        };
        self.columns.push((at, ArrayRef::clone(&column)));
        Ok(column)
    }
}
