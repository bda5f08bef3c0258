//! Captures of sessions: what they have yet to read, and what has changed.
//!
//! A session is named by its key and its start. Beside what [`Watch`] knows there is a bit for each session that
//! lives, and one for each that the last capture has told under the name it has: only those are named when
//! they go or begin earlier.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::{DataType, Extent, Result};

use super::session_table::{START, Session};
use super::slices::Calls;
use crate::keys::{KeyTable, hash_keys};
use crate::reading::{Bits, ToldRows};
use crate::tables::{owners, state_batch, typed};
use crate::watch::{Begun, Watch, removed};

/// What is known of sessions between captures.
pub(super) struct SessionWatch {
    watch: Watch,
    live: Bits,
    told: Bits,
    /// Keys and starts of told sessions that have gone or begin earlier, and have yet to be named.
    gone: Vec<(u32, i64)>,
}

impl SessionWatch {
    pub(super) fn new(calls: &Calls, sessions: &[Session]) -> Result<Self> {
        let starts = std::iter::once(DataType::BigInt);
        let watch = Watch::new(starts.chain(calls.key_types.iter().cloned()).collect())?;
        let mut live = Bits::none(sessions.len());
        let numbers = (0..).zip(sessions).filter(|(_, session)| session.is_live());
        numbers.for_each(|(number, _)| live.set(number));
        Ok(SessionWatch { watch, live, told: Bits::default(), gone: Vec::new() })
    }

    /// Begins a capture; one that is under way must have been read to its end.
    pub(super) fn begin(&mut self, extent: Extent) -> Result<Begun> {
        self.told = self.live.clone();
        self.watch.begin(extent, self.live.clone())
    }

    pub(super) fn is_reading(&self, told: &ToldRows) -> bool {
        self.watch.is_reading(told)
    }

    /// These sessions change; those that the capture under way has yet to read.
    pub(super) fn touch(&mut self, numbers: &[u32], limit: usize) -> Vec<u32> {
        self.watch.touch(numbers, limit)
    }

    pub(super) fn take_unread(&mut self, most: usize) -> Vec<u32> {
        self.watch.take_unread(most)
    }

    pub(super) fn hand_over(&mut self, rows: RecordBatch) {
        self.watch.hand_over(rows);
    }

    /// There is a new session.
    pub(super) fn begin_session(&mut self, number: u32) {
        self.live.grow(number as usize + 1);
        self.live.set(number);
        self.watch.note_change(number);
    }

    /// A session is about to begin earlier.
    pub(super) fn rename(&mut self, number: u32, session: &Session) {
        if self.told.clear(number) {
            self.gone.push((session.key, session.start));
        }
    }

    /// A session is about to go.
    pub(super) fn end(&mut self, number: u32, session: &Session) {
        self.live.clear(number);
        self.rename(number, session);
    }

    /// Names what has gone, while the keys are there; so many sessions are left.
    pub(super) fn name_gone(&mut self, keys: &KeyTable, left: usize) -> Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let (ids, starts): (Vec<u32>, Vec<i64>) = self.gone.drain(..).unzip();
        self.watch.go(left, || {
            let starts: ArrayRef = Arc::new(Int64Array::from(starts));
            Ok(std::iter::once(starts).chain(keys.take_keys(&ids)?).collect())
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let gone = self.gone.capacity() * size_of::<(u32, i64)>();
        self.watch.bytes() + self.live.bytes() + self.told.bytes() + gone
    }
}

/// The names of sessions that have gone and are not among these rows, as a table of state has them.
pub(super) fn gone_sessions(
    calls: &Calls,
    gone: &KeyTable,
    rows: &[RecordBatch],
) -> Result<Vec<RecordBatch>> {
    let names = |rows: &RecordBatch| {
        let starts: ArrayRef = Arc::new(typed::<Int64Type>(rows, START)?.clone());
        Ok(std::iter::once(starts).chain(calls.told_keys.columns(rows)?).collect())
    };
    let ids = removed(gone, rows, names)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut columns = gone.take_keys(&ids)?;
    let hashes = hash_keys(&columns[1..], ids.len())?;
    let starts = (START.to_owned(), columns.remove(0));
    let named = std::iter::once(starts).chain(calls.told_keys.named(columns)).collect();
    Ok(vec![state_batch(owners(hashes.into_iter()), named)?])
}
