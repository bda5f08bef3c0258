//! What of an operator's state has changed since the last capture, and what a capture has yet to
//! read.
//!
//! # How a capture is read
//! A capture only notes which keys or rows it means, one bit for each number, and the job
//! continues. They are captured later, some at a time, by a thread that has time
//! ([`crate::capture::shared`]). One that is about to change before its turn has come is captured
//! then, as it was. So the job stands still for as long as it takes to note the bits, a row is
//! copied once for each capture that means it, and nothing is copied for others.
//!
//! # What has changed
//! One bit for each number, set by the first change after a capture. What has gone is kept by name
//! until the next capture; if that is more than what is there, the next capture is full
//! instead. So it does where tracking was stopped since most of a table changes all the time
//! ([`ChangeTracker::stop`]): neither bits nor names are kept then.
//!
//! | module | for state that is |
//! |---|---|
//! | [`keys`] | something for each key, captured with the key as its identity |
//! | [`rows`] | rows, each captured with a serial as its identity |
//!
//! All of it is made by the first capture: without captures nothing of this is done.

pub(crate) mod key_columns;
pub(crate) mod keys;
pub(crate) mod rows;
pub(crate) mod shared;
pub mod tables;
pub(crate) mod unread;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::{Result, TableChanges};

use crate::capture::shared::locked;
use crate::capture::unread::{Bits, CaptureWriter, CapturedRows, Unread};

/// How much is read at once while rows wait.
pub(crate) const READ_ROWS: usize = 1024;
/// About how many bytes are read at once of keys that are long, or have long lists.
const READ_BYTES: usize = 256 * 1024;
/// Up to how many names of what has gone are kept, however little is there.
pub(crate) const GONE_MIN: usize = 64 * 1024;

/// Which numbers have changed, and which are yet to be read.
#[derive(Default)]
struct ChangeTracker {
    /// Changes are noted; if not, the next capture is full.
    tracks: bool,
    changed: Bits,
    unread: Unread,
    writer: CaptureWriter,
    /// How many have been written since the last full capture, what that wrote included.
    written: u64,
}

impl ChangeTracker {
    /// Begins a capture of all numbers below `limit`, of which `live` are there; or of what has
    /// changed, where `gone` have gone. One that is under way must have been read to its end.
    fn begin(&mut self, is_whole: bool, limit: usize, live: usize, gone: usize) -> CapturedRows {
        self.written = match is_whole {
            true => live as u64,
            false => self.written + self.count_changed(gone),
        };
        self.tracks = true;
        let changed = std::mem::replace(&mut self.changed, Bits::none(limit));
        self.unread = Unread::new(if is_whole { Bits::all(limit) } else { changed });
        let (writer, rows) = CaptureWriter::begin();
        self.writer = writer;
        rows
    }

    /// Notes no changes any more: the next capture is full.
    fn stop(&mut self) {
        (self.tracks, self.changed) = (false, Bits::default());
    }

    fn count_changed(&self, gone: usize) -> u64 {
        (self.changed.count() + gone) as u64
    }

    /// What is known of a table with `live` rows, `gone` of which have gone.
    fn changes(&self, name: &'static str, live: usize, gone: usize) -> TableChanges {
        let changed = self.tracks.then(|| self.count_changed(gone));
        TableChanges { name, live: live as u64, changed, written: self.written }
    }

    /// Makes room for numbers below this one, and forgets a capture that nobody reads any more.
    fn prepare(&mut self, limit: usize) {
        if self.tracks {
            self.changed.grow(limit);
        }
        if !self.writer.is_wanted() {
            self.unread = Unread::default();
        }
    }

    /// True if it matters what changes: it is noted, or a capture has yet to read something.
    fn is_interested(&self) -> bool {
        self.tracks || self.unread.may_have_any()
    }

    /// This one is about to change; true if a capture has yet to read it.
    #[inline]
    fn touch(&mut self, id: u32) -> bool {
        if self.tracks {
            self.changed.set(id);
        }
        self.unread.take_one(id)
    }

    /// True if this is the capture that is under way.
    fn is_reading(&self, rows: &CapturedRows) -> bool {
        self.writer.is_to(rows)
    }

    /// Some numbers below `limit` that the capture under way has yet to read; none once there are
    /// none left.
    fn take_unread(&mut self, most: usize, limit: usize) -> Vec<u32> {
        let mut ids = self.unread.take(most);
        ids.retain(|&id| (id as usize) < limit);
        ids
    }

    /// Rows of the capture that is under way.
    fn hand_over(&mut self, rows: RecordBatch) {
        self.writer.put(rows);
    }

    fn bytes(&self) -> usize {
        self.changed.bytes() + self.unread.bytes() + self.writer.bytes()
    }
}

/// The rows of a capture, without small batches: some were written one by one, when they
/// changed.
fn compact(rows: &CapturedRows) -> Result<Vec<RecordBatch>> {
    let rows = std::mem::take(&mut *locked(rows));
    let is_large =
        |rows: &RecordBatch| rows.num_rows() >= READ_ROWS || batch_bytes(rows) >= READ_BYTES / 4;
    let (mut rows, small): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_large);
    if let Some(first) = small.first() {
        rows.push(concat_batches(&first.schema(), &small)?);
    }
    Ok(rows)
}
