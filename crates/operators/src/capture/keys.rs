//! State that is something for each key: captures of it, and of what has changed.
//!
//! A table of such state ([`KeyedState`]) has the columns of the key right behind that of the
//! partition, and one row or several for each key; those of a key are captured together, and take
//! the place of all that were captured of it before.
//!
//! **A key that goes and comes again** between two captures has its name in `gone` and rows in the
//! capture. `removed` leaves such names out, since the rows replace all that was there before.
//!
//! Why `gone` is a table of keys and not of ids: the id may belong to another key by the time that
//! the capture is read.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{
    Captured, DataType, Extent, Output, Partition, Piece, Progress, Restored, Result, TableChanges,
    Watermark,
};

use super::shared::SharedState;
use super::tracker::{BegunCapture, NumberTracker, Tracking};
use super::{GONE_MIN, READ_ROWS};
use crate::keys::{ABSENT, KeyTable};
use crate::tables::owners;

/// How many keys are read at first.
const READ_FIRST: usize = READ_ROWS / 8;
/// About how many bytes are read at once of keys that are long, or have long lists.
const READ_BYTES: usize = 256 * 1024;

/// What is known of one table between captures.
pub(crate) struct KeyTracker {
    tracking: Tracking,
    /// The keys by number.
    keys: NumberTracker,
    /// Keys that have gone since the last capture, and perhaps come again.
    gone: KeyTable,
}

impl KeyTracker {
    /// Nothing is known yet of keys of these types, so the first capture is full.
    fn new(key_types: &[DataType]) -> Result<Self> {
        let (tracking, keys) = (Tracking::default(), NumberTracker::default());
        Ok(KeyTracker { tracking, keys, gone: KeyTable::new(key_types)? })
    }

    /// Begins a capture; with the keys that have gone since the last one.
    fn begin(
        &mut self,
        extent: Extent,
        limit: usize,
        live: usize,
    ) -> Result<(BegunCapture, KeyTable)> {
        // Without keys there is one row, and no name by which its removal could be captured.
        let extent = if self.gone.has_columns() { extent } else { Extent::Full };
        let begun = self.tracking.begin(extent);
        self.keys.begin(begun.extent, limit, live, self.gone.len());
        let none = KeyTable::new(self.gone.types())?;
        let mut gone = std::mem::replace(&mut self.gone, none);
        if begun.extent == Extent::Full {
            // A full capture needs no names of what has gone.
            gone = KeyTable::new(gone.types())?;
        }
        Ok((begun, gone))
    }

    /// Keys go from the table. They must have been touched.
    ///
    /// # Errors
    /// If keys cannot be decoded.
    pub fn go(&mut self, keys: &KeyTable, ids: &[u32]) -> Result<()> {
        if !self.tracking.is_tracking() || !self.gone.has_columns() || ids.is_empty() {
            return Ok(());
        }
        self.gone.intern(&keys.take_keys(ids)?, None, &mut Vec::new())?;
        if self.gone.len() > keys.len().max(GONE_MIN) {
            self.stop();
        }
        Ok(())
    }

    /// Notes no changes any more: the next capture is full.
    fn stop(&mut self) {
        self.tracking.stop();
        self.keys.forget_changes();
        self.gone.clear();
    }

    /// What is known of the table, which has `live` keys.
    fn changes(&self, name: &'static str, live: usize) -> TableChanges {
        let changed = self.tracking.is_tracking();
        let changed = changed.then(|| self.keys.changed() + self.gone.len() as u64);
        TableChanges { name, live: live as u64, changed, written: self.keys.written() }
    }

    pub fn bytes(&self) -> usize {
        self.tracking.bytes() + self.keys.bytes() + self.gone.bytes()
    }
}

/// Forgets these keys, of which nothing is left; captures learn of it.
///
/// # Errors
/// If keys cannot be decoded.
pub(crate) fn release(
    tracker: &mut Option<KeyTracker>,
    keys: &mut KeyTable,
    ids: &[u32],
) -> Result<()> {
    if let Some(tracker) = tracker {
        tracker.go(keys, ids)?;
    }
    keys.release_all(ids);
    Ok(())
}

/// Leaves those keys of a list of which nothing is left, each once.
pub(crate) fn retain_empty(ids: &mut Vec<u32>, is_empty: impl Fn(u32) -> bool) {
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|&id| is_empty(id));
}

/// Tables of state with something for each key; an operator with one table passes their number
/// over.
pub(crate) trait KeyedState: Sized {
    /// The keys, numbered.
    fn keys(&self) -> &KeyTable;
    /// True if a table has something of this key.
    fn has(&self, table: usize, id: u32) -> bool;
    /// What a table has of these keys, the keys right behind the partition.
    ///
    /// # Errors
    /// If it cannot be captured.
    fn rows_of_keys(&self, table: usize, ids: &[u32]) -> Result<RecordBatch>;
    /// What is known of a table; `None` until there is a capture.
    fn tracker(&mut self, table: usize) -> &mut Option<KeyTracker>;

    /// True if the partition's own capture is asked, since there may be too much for one key.
    fn captures_at_once(&self) -> bool {
        false
    }

    /// Captures the other tables.
    ///
    /// # Errors
    /// Those of capturing.
    fn capture_others(&mut self, extent: Extent, captured: &mut Captured) -> Result<()> {
        let _ = (extent, captured);
        Ok(())
    }

    /// Captures tables whose rows are tracked one by one.
    ///
    /// # Errors
    /// Those of capturing.
    fn capture_rows(
        shared: &Arc<SharedState<Self>>,
        extent: Extent,
        captured: &mut Captured,
    ) -> Result<()> {
        let _ = (shared, extent, captured);
        Ok(())
    }

    /// What is known of tables whose rows are watched one by one.
    fn row_changes(&mut self) -> Vec<TableChanges> {
        Vec::new()
    }

    /// Stops tracking the changes of such a table.
    fn stop_tracking_rows(&mut self, table: &str) {
        let _ = table;
    }

    /// True once there has been a capture: only then it matters what is touched.
    fn has_captures(&mut self) -> bool {
        self.tracker(0).is_some()
    }

    /// What these keys have in a table is about to change; what a capture has yet to read of them
    /// is captured first. Nothing without captures.
    ///
    /// # Errors
    /// Those of capturing.
    #[inline]
    fn touch(&mut self, table: usize, ids: &[u32]) -> Result<()> {
        if self.tracker(table).is_none() {
            return Ok(());
        }
        let limit = self.keys().id_limit();
        let Some(tracker) = self.tracker(table) else { return Ok(()) };
        let KeyTracker { tracking, keys, .. } = tracker;
        if !tracking.is_read() {
            keys.forget_unread();
        }
        if tracking.is_tracking() {
            keys.grow(limit);
        } else if !keys.is_unread() {
            return Ok(());
        }
        let unread = ids.iter().copied().filter(|&id| keys.touch(tracking, id)).collect();
        capture_some(self, table, unread)?;
        Ok(())
    }
}

/// A partition whose state is captured by key, in these tables, while rows are processed.
pub(crate) struct CapturedByKey<T> {
    state: Arc<SharedState<T>>,
    tables: &'static [&'static str],
}

impl<T: Partition + KeyedState> CapturedByKey<T> {
    pub fn new(state: T, tables: &'static [&'static str]) -> Self {
        CapturedByKey { state: Arc::new(SharedState::new(state)), tables }
    }
}

impl<T: Partition + KeyedState + 'static> Partition for CapturedByKey<T> {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.state.lock().rows(piece, output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.state.lock().watermark(call, output)
    }

    fn state_bytes(&self) -> usize {
        self.state.lock().state_bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        self.state.lock().state_keys()
    }

    fn wakes_at(&self) -> Watermark {
        self.state.lock().wakes_at()
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let mut state = self.state.lock();
        if state.captures_at_once() {
            return state.capture(extent);
        }
        let mut captured = Captured::default();
        state.capture_others(extent, &mut captured)?;
        drop(state);
        T::capture_rows(&self.state, extent, &mut captured)?;
        for (table, name) in self.tables.iter().enumerate() {
            captured.tables.push(capture(&self.state, table, name, extent)?);
        }
        Ok(captured)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        let state = &mut *self.state.lock();
        if state.captures_at_once() {
            return Vec::new();
        }
        let mut changes = state.row_changes();
        let by_key = self.tables.iter().enumerate();
        changes.extend(by_key.filter_map(|(table, name)| key_changes(state, table, name)));
        changes
    }

    fn stop_tracking(&mut self, table: &str) {
        let state = &mut *self.state.lock();
        state.stop_tracking_rows(table);
        let by_key = self.tables.iter().position(|name| *name == table);
        by_key.into_iter().for_each(|table| stop_tracking_keys(state, table));
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.state.lock().restore(restored)
    }
}

/// What is known of a table, once there has been a capture of it.
pub(crate) fn key_changes(
    state: &mut impl KeyedState,
    table: usize,
    name: &'static str,
) -> Option<TableChanges> {
    let live = state.keys().len();
    state.tracker(table).as_ref().map(|tracker| tracker.changes(name, live))
}

/// Stops tracking the changes of a table.
pub(crate) fn stop_tracking_keys(state: &mut impl KeyedState, table: usize) {
    state.tracker(table).iter_mut().for_each(KeyTracker::stop);
}

/// Writes keys to the capture under way; returns how many bytes.
fn capture_some(state: &mut impl KeyedState, table: usize, mut ids: Vec<u32>) -> Result<usize> {
    ids.retain(|&id| state.has(table, id));
    if ids.is_empty() {
        return Ok(0);
    }
    let rows = state.rows_of_keys(table, &ids)?;
    let bytes = batch_bytes(&rows);
    state.tracker(table).iter_mut().for_each(|tracker| tracker.tracking.write(rows.clone()));
    Ok(bytes)
}

/// Writes some keys to the capture under way; returns how many bytes, `None` once there are none
/// left.
fn read_some(state: &mut impl KeyedState, table: usize, most: usize) -> Result<Option<usize>> {
    let limit = state.keys().id_limit();
    let Some(tracker) = state.tracker(table) else { return Ok(None) };
    let unread = tracker.keys.take_unread(most, limit);
    if unread.is_empty() {
        return Ok(None);
    }
    capture_some(state, table, unread).map(Some)
}

/// How many keys to read at once, where `keys` came to `bytes`.
///
/// The reader holds the lock while it reads, so a piece is bounded by bytes, which is what takes
/// time. It grows at most twofold from one piece to the next.
fn most_at_once(keys: usize, bytes: usize) -> usize {
    (keys * READ_BYTES / bytes.max(1)).clamp(1, READ_ROWS.min(keys * 2))
}

/// Captures a table. One that is under way is read to its end.
///
/// # Errors
/// Those of capturing.
pub(crate) fn capture<T: KeyedState + Send + 'static>(
    shared: &Arc<SharedState<T>>,
    table: usize,
    name: &'static str,
    extent: Extent,
) -> Result<CapturedTable> {
    let mut state = shared.lock();
    let schema = state.rows_of_keys(table, &[])?.schema();
    while read_some(&mut *state, table, usize::MAX)?.is_some() {}
    let keys = state.keys();
    let (identity_columns, limit, live) = (1 + keys.types().len(), keys.id_limit(), keys.len());
    let fresh = KeyTracker::new(keys.types())?;
    let tracker = state.tracker(table).get_or_insert(fresh);
    let (begun, gone) = tracker.begin(extent, limit, live)?;
    drop(state);
    let (extent, shared) = (begun.extent, Arc::clone(shared));
    let rows_schema = Arc::clone(&schema);
    let rows = Box::new(move || {
        let mut most = READ_FIRST;
        let rows = begun.read(&shared, |state| {
            let tracker = state.tracker(table).as_ref();
            if !tracker.is_some_and(|tracker| tracker.tracking.is_reading(&begun)) {
                return Ok(false);
            }
            let read = read_some(state, table, most)?;
            most = read.map_or(most, |bytes| most_at_once(most, bytes));
            Ok(read.is_some())
        })?;
        let identity: Vec<usize> = (0..identity_columns).collect();
        let none = RecordBatch::new_empty(rows_schema).project(&identity)?;
        Ok(TableRows { removed: removed(&gone, &rows, &none)?, rows })
    });
    let kept_from = None;
    Ok(CapturedTable { name, schema, extent, identity_columns, kept_from, rows })
}

/// The keys that have gone and are not among these rows: those have come again. `none` has the
/// columns.
fn removed(gone: &KeyTable, rows: &[RecordBatch], none: &RecordBatch) -> Result<Vec<RecordBatch>> {
    let width = none.num_columns();
    let mut is_there = vec![width == 1; gone.len()];
    let mut ids = Vec::new();
    let rows = if is_there.contains(&false) { rows } else { &[] };
    for batch in rows {
        ids.clear();
        gone.find(&batch.columns()[1..width], batch.num_rows(), &mut ids)?;
        let found = ids.iter().filter(|&&id| id != ABSENT);
        found.for_each(|&id| is_there[id as usize] = true);
    }
    let removed: Vec<u32> = (0..gone.len() as u32).filter(|&id| !is_there[id as usize]).collect();
    if removed.is_empty() {
        return Ok(Vec::new());
    }
    let mut columns = vec![owners(removed.iter().map(|&id| gone.hash_of(id)))];
    columns.extend(gone.take_keys(&removed)?);
    Ok(vec![RecordBatch::try_new(none.schema(), columns)?])
}
