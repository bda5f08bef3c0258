//! One partition of [`OverValues`](super::OverValues): the rows of its keys in their order, and
//! what comes and goes.
//!
//! A change looks at the rows from its place on ([`Affected`]), or at all rows of the key where
//! aggregates depend on the sequence. It makes steps for the aggregates ([`OverRun`]): the old
//! rows, then the new ones. Results of rows that sort alike are that of the last of them where the
//! frame includes peers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_core::{Output, Partition, Piece, Restored, Result, RowKind};

use super::OverValuesContext;
use super::run::{OverRun, ResultAt, RunContext};
use crate::aggregate::{RunningAggregate, Step};
use crate::capture::keys::{KeyTracker, KeyedState, release, retain_empty};
use crate::expiry::Expiry;
use crate::join::regular::equal::same_row;
use crate::keys::KeyTable;
use crate::rows::columns::types_of;
use crate::sort::KeyEncoder;
use crate::top_n::deduplicate::rows;
use crate::top_n::store::Store;
use crate::top_n::tables::KeyedRowTable;

/// The table of state: the rows of each key in their order.
pub(super) const TABLES: [&str; 1] = ["rows"];
const ROWS: usize = 0;

/// The rows of a key by their encoded sort keys; those that sort alike as they came.
type SortedRows = BTreeMap<Box<[u8]>, Vec<u32>>;

/// The rows of a key that a change looks at, in their order.
#[derive(Default)]
struct Affected {
    rows: Vec<u32>,
    /// For each the number of its sort key.
    groups: Vec<u32>,
    /// How many of them stand before a row with the sort key of the change that comes last.
    before: usize,
}

pub(super) struct OverValuesPartition {
    shared: Arc<OverValuesContext>,
    schema: SchemaRef,
    encoder: KeyEncoder,
    keys: KeyTable,
    store: Store,
    /// By key.
    sorted: Vec<SortedRows>,
    aggregates: Vec<Box<dyn RunningAggregate>>,
    run: OverRun,
    expiry: Expiry,
    table: KeyedRowTable,
    tracker: Option<KeyTracker>,
    ids: Vec<u32>,
    /// Keys that may have no row.
    emptied: Vec<u32>,
    /// How many rows and bytes of sort keys there are, about.
    sort_key_bytes: usize,
}

impl OverValuesPartition {
    pub fn new(shared: Arc<OverValuesContext>) -> Result<Self> {
        let spec = &shared.spec;
        let expiry = Expiry::new(spec.state_ttl_ms);
        Ok(OverValuesPartition {
            schema: shared.output.arrow(),
            encoder: KeyEncoder::new(&spec.order, &spec.input)?,
            keys: KeyTable::new(&types_of(&spec.input, &spec.keys))?,
            store: Store::new(spec.input.arrow()),
            sorted: Vec::new(),
            aggregates: spec.aggregates(!shared.replays)?,
            run: OverRun::default(),
            table: KeyedRowTable::rows(&spec.input, &spec.keys, expiry.expires()),
            expiry,
            tracker: None,
            ids: Vec::new(),
            emptied: Vec::new(),
            sort_key_bytes: 0,
            shared,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = &piece.bundle.batch;
        let chosen = rows::chosen(piece);
        let mut ids = std::mem::take(&mut self.ids);
        rows::intern(&mut self.keys, &self.shared.spec.keys, batch, chosen, &mut ids)?;
        self.grow();
        self.touch(ROWS, &ids)?;
        let sort_keys = self.encoder.encode(batch)?;
        let (columns, now_ms) = (batch.columns(), output.wall_ms());
        for (position, &id) in ids.iter().enumerate() {
            let row = rows::row_at(chosen, position);
            let sort_key = sort_keys.row(row as usize);
            if self.is_over(id, now_ms) {
                self.take_steps(columns, output)?;
                self.forget(id);
            }
            match rows::kind_of(piece, row) {
                kind @ (RowKind::Insert | RowKind::UpdateAfter) => {
                    self.add(id, sort_key.as_ref(), (row, kind));
                    self.expiry.write(id, now_ms);
                }
                RowKind::UpdateBefore | RowKind::Delete => {
                    self.remove(id, sort_key.as_ref(), row, columns);
                }
            }
            if self.run.is_full() {
                self.take_steps(columns, output)?;
            }
        }
        self.take_steps(columns, output)?;
        self.ids = ids;
        self.finish(columns)
    }

    fn grow(&mut self) {
        let limit = self.keys.id_limit();
        self.sorted.resize_with(limit, SortedRows::new);
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(limit));
        self.expiry.grow(limit);
    }

    fn take_steps(&mut self, piece: &[ArrayRef], output: &mut Output) -> Result<()> {
        let (calls, schema) = (&self.shared.spec.calls[..], &self.schema);
        let context = RunContext { calls, arena: &self.store.arena, piece, schema };
        self.run.take(&mut self.aggregates, &context, output)
    }

    /// The rows of a key that a change at this sort key looks at.
    fn affected(&self, id: u32, sort_key: &[u8]) -> Affected {
        let from = match self.shared.replays {
            true => Bound::Unbounded,
            false => Bound::Included(sort_key),
        };
        let mut affected = Affected::default();
        let sorted = self.sorted[id as usize].range::<[u8], _>((from, Bound::Unbounded));
        for (group, (other, rows)) in (0..).zip(sorted) {
            affected.rows.extend_from_slice(rows);
            affected.groups.resize(affected.rows.len(), group);
            if **other <= *sort_key {
                affected.before = affected.rows.len();
            }
        }
        affected
    }

    /// A row comes to its key.
    fn add(&mut self, id: u32, sort_key: &[u8], (piece_row, kind): (u32, RowKind)) {
        let mut old = self.affected(id, sort_key);
        let row = self.link(id, sort_key, piece_row);
        let has_peers = self.sorted[id as usize].get(sort_key).is_some_and(|rows| rows.len() > 1);
        if !self.shared.spec.includes_peers && !self.shared.replays {
            // The results of rows that sort alike do not change.
            old.skip(old.before);
        }
        let at = old.before;
        let mut new = Affected { rows: old.rows.clone(), groups: old.groups.clone(), before: at };
        let group = if has_peers && at > 0 { old.groups[at - 1] } else { u32::MAX };
        new.rows.insert(at, row);
        new.groups.insert(at, group);
        let (old_results, new_results) = self.push_steps(id, &old, &new);
        for (place, &changed) in new.rows.iter().enumerate() {
            let kept = self.store.place(changed);
            match place.cmp(&at) {
                std::cmp::Ordering::Equal => {
                    self.run.leaves(kept, piece_row, kind, new_results[place]);
                }
                order => {
                    let before = place - usize::from(order.is_gt());
                    self.run.updates(kept, piece_row, old_results[before], new_results[place]);
                }
            }
        }
    }

    /// A row goes from its key: the oldest that equals it.
    fn remove(&mut self, id: u32, sort_key: &[u8], piece_row: u32, columns: &[ArrayRef]) {
        let peers = self.sorted[id as usize].get(sort_key);
        let alike = peers.and_then(|peers| {
            let mut peers = peers.iter().copied().enumerate();
            peers.find(|&(_, row)| {
                let (kept, at) = self.store.find(row, columns);
                same_row(kept, at, columns, piece_row as usize)
            })
        });
        let Some((place_among_peers, row)) = alike else {
            return self.emptied.push(id);
        };
        let mut old = self.affected(id, sort_key);
        if !self.shared.spec.includes_peers && !self.shared.replays {
            old.skip(place_among_peers);
        }
        let at = old.rows.iter().position(|&other| other == row).unwrap_or(0);
        let mut new = Affected { rows: old.rows.clone(), groups: old.groups.clone(), before: at };
        new.rows.remove(at);
        new.groups.remove(at);
        let (old_results, new_results) = self.push_steps(id, &old, &new);
        for (place, &changed) in old.rows.iter().enumerate() {
            let kept = self.store.place(changed);
            match place.cmp(&at) {
                std::cmp::Ordering::Equal => {
                    self.run.leaves(kept, piece_row, RowKind::Delete, old_results[place]);
                }
                order => {
                    let after = place - usize::from(order.is_gt());
                    self.run.updates(kept, piece_row, old_results[place], new_results[after]);
                }
            }
        }
        self.unlink(id, sort_key, row);
    }

    /// Steps from the old rows to the new ones; where the results of each stand.
    fn push_steps(
        &mut self,
        id: u32,
        old: &Affected,
        new: &Affected,
    ) -> (Vec<ResultAt>, Vec<ResultAt>) {
        let includes_peers = self.shared.spec.includes_peers;
        let first = self.run.next_step();
        let last = old.rows.len() as u32;
        let old_results = if self.shared.replays {
            self.push_replay(id, &old.rows);
            old.results(includes_peers, |place| 2 * (first + place) + 1)
        } else {
            for &row in old.rows.iter().rev() {
                self.run.push(id, Step::RETRACTION, self.store.place(row));
            }
            old.results(includes_peers, |place| 2 * (first + last - 1 - place))
        };
        let first = self.run.next_step();
        if self.shared.replays {
            self.push_replay(id, &new.rows);
        } else {
            for &row in &new.rows {
                self.run.push(id, Step::ADDS, self.store.place(row));
            }
        }
        (old_results, new.results(includes_peers, |place| 2 * (first + place) + 1))
    }

    /// Steps that add all rows of a key to a state that begins.
    fn push_replay(&mut self, id: u32, rows: &[u32]) {
        for (place, &row) in rows.iter().enumerate() {
            let step = if place == 0 { Step::ADDS.beginning() } else { Step::ADDS };
            self.run.push(id, step, self.store.place(row));
        }
    }

    /// A row stands behind those of its key that sort alike; its number.
    fn link(&mut self, id: u32, sort_key: &[u8], piece_row: u32) -> u32 {
        let row = self.store.add(piece_row);
        let sorted = &mut self.sorted[id as usize];
        match sorted.get_mut(sort_key) {
            Some(peers) => peers.push(row),
            None => {
                sorted.insert(sort_key.into(), vec![row]);
                self.sort_key_bytes += entry_bytes(sort_key);
            }
        }
        row
    }

    fn unlink(&mut self, id: u32, sort_key: &[u8], row: u32) {
        let sorted = &mut self.sorted[id as usize];
        if let Some(peers) = sorted.get_mut(sort_key) {
            peers.retain(|&other| other != row);
            if peers.is_empty() {
                sorted.remove(sort_key);
                self.sort_key_bytes -= entry_bytes(sort_key);
            }
        }
        self.store.remove(row);
        self.emptied.push(id);
    }

    fn is_over(&self, id: u32, now_ms: i64) -> bool {
        !self.sorted[id as usize].is_empty() && self.expiry.is_over(id, now_ms)
    }

    /// Forgets the rows of a key, without a change. No steps may wait.
    fn forget(&mut self, id: u32) {
        for (sort_key, rows) in std::mem::take(&mut self.sorted[id as usize]) {
            self.sort_key_bytes -= entry_bytes(&sort_key);
            rows.into_iter().for_each(|row| {
                self.store.remove(row);
            });
        }
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.reset(&[id]));
        self.emptied.push(id);
    }

    /// Ends a piece: rows that stay move into the arena, and keys without rows are forgotten.
    fn finish(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.store.keep(columns)?;
        retain_empty(&mut self.emptied, |id| self.sorted[id as usize].is_empty());
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.reset(&self.emptied));
        release(&mut self.tracker, &mut self.keys, &self.emptied)?;
        self.emptied.clear();
        Ok(())
    }

    /// The states of these keys, from their rows.
    fn rebuild(&mut self, ids: &[u32]) -> Result<()> {
        for &id in ids {
            for &row in self.sorted[id as usize].values().flatten() {
                self.run.push(id, Step::ADDS, self.store.place(row));
            }
            if self.run.is_full() {
                self.rebuild_steps()?;
            }
        }
        self.rebuild_steps()
    }

    fn rebuild_steps(&mut self) -> Result<()> {
        let (calls, schema) = (&self.shared.spec.calls[..], &self.schema);
        let context = RunContext { calls, arena: &self.store.arena, piece: &[], schema };
        self.run.take_silently(&mut self.aggregates, &context)
    }
}

/// About what a sort key takes in its tree.
fn entry_bytes(sort_key: &[u8]) -> usize {
    sort_key.len() + size_of::<(Box<[u8]>, Vec<u32>)>() * 3 / 2 + 16
}

impl Affected {
    /// Leaves out the first rows.
    fn skip(&mut self, rows: usize) {
        self.rows.drain(..rows);
        self.groups.drain(..rows);
        self.before -= rows.min(self.before);
    }

    /// Where the result of each row stands, if that of the row at a place stands there: that of the
    /// last of its group, if peers are included.
    fn results(&self, includes_peers: bool, at: impl Fn(u32) -> ResultAt) -> Vec<ResultAt> {
        let mut last = self.rows.len();
        let mut results = vec![0; self.rows.len()];
        for place in (0..self.rows.len()).rev() {
            let is_peer = last < self.rows.len() && self.groups[place] == self.groups[last];
            if !(includes_peers && is_peer) {
                last = place;
            }
            results[place] = at(last as u32);
        }
        results
    }
}

impl Partition for OverValuesPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        let has_state = |id: u32| !self.sorted[id as usize].is_empty();
        let over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_state);
        if over.is_empty() {
            return Ok(());
        }
        self.touch(ROWS, &over)?;
        over.into_iter().for_each(|id| self.forget(id));
        self.finish(&[])
    }

    fn state_bytes(&self) -> usize {
        let states: usize = self.aggregates.iter().map(|aggregate| aggregate.bytes()).sum();
        let numbers = self.ids.capacity() + self.emptied.capacity() + self.store.live();
        self.keys.bytes()
            + self.store.bytes()
            + states
            + self.run.bytes()
            + self.sort_key_bytes
            + self.sorted.capacity() * size_of::<SortedRows>()
            + self.expiry.bytes()
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
            + numbers * size_of::<u32>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut restored_ids = Vec::new();
        for batch in restored.table(TABLES[ROWS]) {
            let state = self.table.read(batch)?;
            let mut ids = Vec::new();
            rows::intern(&mut self.keys, &shared.spec.keys, &state.rows, None, &mut ids)?;
            self.grow();
            let sort_keys = self.encoder.encode(&state.rows)?;
            for (row, &id) in ids.iter().enumerate() {
                self.link(id, sort_keys.row(row).as_ref(), row as u32);
                state.write(&mut self.expiry, id, row);
            }
            self.finish(state.rows.columns())?;
            restored_ids.append(&mut ids);
        }
        if shared.replays {
            return Ok(());
        }
        restored_ids.sort_unstable();
        restored_ids.dedup();
        self.rebuild(&restored_ids)
    }
}

impl KeyedState for OverValuesPartition {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.sorted.get(id as usize).is_some_and(|sorted| !sorted.is_empty())
    }
    /// The rows of each key in their order.
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for &id in ids {
            let rows = self.sorted[id as usize].values().flatten();
            places.extend(rows.map(|&row| self.store.place(row)));
            keys.resize(places.len(), id);
        }
        self.table.capture_rows(&self.keys, &self.expiry, &self.store.arena, (&keys, &places))
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
}
