//! The states of windows in tables of state, and back.
//!
//! A row is the state of one key in one slice (or session, or count window): the virtual partition
//! of the key, the bounds, the key by the names and types of the input's columns, how many rows
//! there are, and the columns of each aggregate ([`crate::aggregate::StateColumns`]). Columns of
//! the engine's own begin with `$`.
//!
//! Four tables hold aligned windows, which come and go with the watermark:
//!
//! | table | a row is | columns before the key |
//! |---|---|---|
//! | `slices` | what a key has in a slice that is in no window so far | the ends of the first and the last window that hold it |
//! | `taken` | the same, of rows that a partition took because it was local, whoever owns the key | the same |
//! | `entered` | what a key has in a part of the window that leaves next | `$last_end`, the end of the last window that holds the part, and `$place`: parts are added up by it |
//! | `next` | `$next_end`, the end of the window that leaves next | |
//!
//! Where any partition takes any row, several may capture what a key has in one slice; that is
//! merged when it comes back. What follows from the rest is not captured: references to keys, sums
//! over slices, the tree, the order of groups.
//!
//! Parts of hopping windows never change ([`super::parts`]). So `entered` is captured
//! incrementally, in which the rows of a part have one identity: its virtual partition, end and
//! place. Parts expire with their last window (`kept_from`), and are named as removed only where
//! one takes the place of another. The table is read while rows are processed; until that is done
//! the numbers of keys hold ([`super::slices::Slices::hold_keys`]). `slices` and `taken`, and
//! `entered` where windows cumulate, are read while rows are processed too, but captured in full
//! ([`super::slice_capture`]).
//!
//! Windows that share no slice are captured in the same way, each as one slice; so it does not
//! matter which of the implementations continues with them. They do not count rows that no result
//! counts: a key then has one row. They are read while rows are processed ([`super::tables`]):
//! `slices` in changes, in which virtual partition, ends and key name a row, and rows expire with
//! their window; `taken` whole, since several partitions may capture the same key.
//!
//! Sessions are captured incrementally in a table of their own, each named by its serial
//! ([`crate::capture::rows`]).
//!
//! # Example
//!
//! `HOP(5, 10)`, key `k`, `SUM(v)`. The window with end 15 leaves next; there are rows of `k = 7`
//! at 6 and at 12, with `v` equal to the time. The column of the virtual partition is left out.
//!
//! ```text
//! slices    $first_end  $last_end          k  $rows  sum     (the slice [10, 15), enters with 15)
//!           15          20                 7  1      12
//! entered   $last_end   $place             k  $rows  sum     (the slice [5, 10), entered with 10)
//!           15          0                  7  1      6
//! next      $next_end
//!           15
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{RecordBatch, UInt8Array, UInt32Array};
use arrow_select::take::take_record_batch;
use thalweg_core::snapshot::{CapturedTable, TableRows, partition_of_virtual};
use thalweg_core::{Captured, PartitionContext, Restored, Result};

use super::calls::{Calls, FIRST_END, LAST_END, Marks, States, mark};
use super::judge::SliceKey;
use super::parts::{PartName, PartsSince, WindowPart};
use crate::capture::shared::SharedState;
use crate::capture::tracker::BegunCapture;
use crate::keys::KeyTable;
use crate::tables::{does_not_fit, for_all, numbers_of, state_batch};

/// The table of slices that are in no window so far.
pub(super) const SLICES: &str = "slices";
/// The table of slices of rows that were taken locally.
pub(super) const TAKEN: &str = "taken";
/// The table of what the window consists of that leaves next.
pub(super) const ENTERED: &str = "entered";
/// The table of the end of the window that leaves next.
const NEXT: &str = "next";

/// The number of a part.
const PLACE: &str = "$place";
/// The virtual partition, the last end and the place name a part.
const PART_IDENTITY: usize = 3;
/// The end of the window that leaves next.
const NEXT_END: &str = "$next_end";

/// This many states of a part are read at once while rows wait.
const READ_STATES: usize = 2048;

/// Captures a table whose rows are read later, in batches like this one without rows.
pub(super) fn capture_later<T: Send + 'static>(
    captured: &mut Captured,
    name: &'static str,
    none: &RecordBatch,
    (begun, shared): (BegunCapture, &Arc<SharedState<T>>),
    read_some: impl Fn(&mut T, &BegunCapture) -> Result<bool> + Send + 'static,
) {
    let shared = Arc::clone(shared);
    let make = move || {
        let rows = begun.read(&shared, |state| read_some(state, &begun))?;
        Ok(TableRows { rows, removed: Vec::new() })
    };
    captured.add_later(name, none.schema(), Box::new(make));
}

/// What a row of `entered` says of its part.
pub(super) fn part_marks(leave: i64, number: u64, rows: usize) -> Marks {
    vec![
        mark::<Int64Type>(LAST_END, std::iter::repeat_n(leave, rows)),
        mark::<UInt64Type>(PLACE, std::iter::repeat_n(number, rows)),
    ]
}

/// Parts that are read while rows are processed.
struct PartsToRead {
    calls: Arc<Calls>,
    /// The first stands last.
    parts: Vec<WindowPart>,
    /// How many states of the first part have been read.
    from: usize,
    rows: Vec<RecordBatch>,
}

impl PartsToRead {
    /// Reads some states; false once there are none left.
    fn read_some(&mut self, keys: &KeyTable) -> Result<bool> {
        let Some(part) = self.parts.last() else { return Ok(false) };
        let ids = part.states.ids.len();
        let to = ids.min(self.from + READ_STATES);
        let marks = part_marks(part.leave, part.number, to - self.from);
        let states = States::of(&part.states, self.from..to);
        self.rows.push(self.calls.rows(keys, marks, &states)?);
        self.from = to;
        if to == ids {
            self.parts.pop();
            self.from = 0;
        }
        Ok(true)
    }
}

/// The names of parts in each virtual partition of a partition.
///
/// A part has rows of many keys and so of many virtual partitions, but its name holds one. Which
/// ones it had is not kept, so it is named once for each virtual partition of this partition; names
/// that no row has remove nothing.
fn gone_parts(gone: &[PartName], opening: PartitionContext) -> Result<Vec<RecordBatch>> {
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let is_own = |own: &u8| partition_of_virtual(*own, opening.partitions) == opening.partition;
    let own: Vec<u8> = (0..=u8::MAX).filter(is_own).collect();
    let each = || gone.iter().flat_map(|&name| std::iter::repeat_n(name, own.len()));
    let owners = gone.iter().flat_map(|_| own.iter().copied());
    let columns = vec![
        mark::<Int64Type>(LAST_END, each().map(|(leave, _)| leave)),
        mark::<UInt64Type>(PLACE, each().map(|(_, number)| number)),
    ];
    Ok(vec![state_batch(Arc::new(UInt8Array::from_iter_values(owners)), columns)?])
}

/// Captures which window leaves next.
pub(super) fn capture_next_end(captured: &mut Captured, next_end: i64) -> Result<()> {
    let rows = state_batch(for_all(1), vec![mark::<Int64Type>(NEXT_END, [next_end])])?;
    captured.add(NEXT, rows.schema(), vec![rows]);
    Ok(())
}

/// Captures what the window that leaves next consists of, where it is parts. They are read later:
/// `reader` calls what it is given, with the keys of the parts, until that returns false.
pub(super) fn capture_parts(
    captured: &mut Captured,
    calls: &Arc<Calls>,
    (mut parts, since): (Vec<WindowPart>, PartsSince),
    opening: PartitionContext,
    reader: impl FnOnce(&mut dyn FnMut(&KeyTable) -> Result<bool>) -> Result<()> + Send + 'static,
) -> Result<()> {
    parts.retain(|part| part.number >= since.first);
    parts.reverse();
    let schema = calls.no_rows(part_marks(0, 0, 0))?.schema();
    let mut reading = PartsToRead { calls: Arc::clone(calls), parts, from: 0, rows: Vec::new() };
    let PartsSince { extent, gone, kept_from, .. } = since;
    let kept_from = Some(kept_from);
    let make = move || {
        reader(&mut |keys| reading.read_some(keys))?;
        let removed = gone_parts(&gone, opening)?;
        // Whoever writes them puts small batches together.
        Ok(TableRows { rows: reading.rows, removed })
    };
    let (rows, identity_columns) = (Box::new(make), PART_IDENTITY);
    let name = ENTERED;
    let table = CapturedTable { name, schema, extent, identity_columns, kept_from, rows };
    captured.tables.push(table);
    Ok(())
}

/// Rows of one slice.
pub(super) struct SliceRows {
    pub(super) key: SliceKey,
    pub(super) rows: RecordBatch,
}

/// The rows of the tables of slices, by slice; one slice may be there several times. No slice is in
/// windows that lie further apart than `span_ms`.
///
/// # Errors
/// If the table does not fit.
pub(super) fn restored_slices(restored: &Restored, span_ms: i64) -> Result<Vec<SliceRows>> {
    let mut slices = Vec::new();
    for batch in [SLICES, TAKEN].iter().flat_map(|name| restored.table(name)) {
        let first = numbers_of::<Int64Type>(batch, FIRST_END)?;
        let last = numbers_of::<Int64Type>(batch, LAST_END)?;
        // Keys that were captured when they changed stand in no order.
        let mut rows_of: BTreeMap<(i64, i64), Vec<u32>> = BTreeMap::new();
        for (row, (&first, &last)) in first.iter().zip(last).enumerate() {
            rows_of.entry((first, last)).or_default().push(row as u32);
        }
        for ((enter, leave), rows) in rows_of {
            check_bounds(enter, leave, span_ms)?;
            let rows = match rows[..] {
                [first, .., last] if (last - first) as usize + 1 == rows.len() => {
                    batch.slice(first as usize, rows.len())
                }
                _ => take_record_batch(batch, &UInt32Array::from(rows))?,
            };
            slices.push(SliceRows { key: SliceKey { enter, leave }, rows });
        }
    }
    Ok(slices)
}

/// Rows of one part.
pub(super) struct PartRows {
    number: u64,
    pub(super) leave: i64,
    pub(super) rows: RecordBatch,
}

/// The end of the window that leaves next, and the rows of what has entered, by part, in the order
/// in which parts were added up. `None` where nothing has.
///
/// # Errors
/// If the tables do not fit.
pub(super) fn restored_entered(
    restored: &Restored,
    span_ms: i64,
) -> Result<Option<(i64, Vec<PartRows>)>> {
    let mut parts = Vec::new();
    for batch in restored.table(ENTERED) {
        let last = numbers_of::<Int64Type>(batch, LAST_END)?;
        let places = numbers_of::<UInt64Type>(batch, PLACE)?;
        for run in runs(batch.num_rows(), |row| (last[row], places[row])) {
            let (leave, number) = (last[run.start], places[run.start]);
            parts.push(PartRows { number, leave, rows: batch.slice(run.start, run.len()) });
        }
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let next_end = restored_next(restored)?;
    parts.iter().try_for_each(|part| check_bounds(next_end, part.leave, span_ms))?;
    parts.sort_by_key(|part| (part.number, part.leave));
    Ok(Some((next_end, parts)))
}

fn restored_next(restored: &Restored) -> Result<i64> {
    let mut next_ends = Vec::new();
    for batch in restored.table(NEXT) {
        next_ends.extend_from_slice(numbers_of::<Int64Type>(batch, NEXT_END)?);
    }
    let count = || does_not_fit("not one window is to leave next, but none or several".to_owned());
    let next_end = *next_ends.first().ok_or_else(count)?;
    if next_ends.iter().any(|&other| other != next_end) {
        return Err(count());
    }
    Ok(next_end)
}

/// No slice is in windows that end further apart.
///
/// Sums and differences of ends are taken with care here, since a damaged snapshot may hold any
/// number. Behind this check ends are trusted.
fn check_bounds(first_end: i64, last_end: i64, span_ms: i64) -> Result<()> {
    match last_end.checked_sub(first_end) {
        Some(apart) if (0..=span_ms).contains(&apart) => Ok(()),
        _ => {
            let message = format!("no slice enters at {first_end} and leaves at {last_end}");
            Err(does_not_fit(message))
        }
    }
}

/// Stretches of rows for which this is the same.
fn runs<T: PartialEq>(rows: usize, of: impl Fn(usize) -> T) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = 0;
    while from < rows {
        let alike = (from..rows).take_while(|&row| of(row) == of(from)).count();
        runs.push(from..from + alike);
        from += alike;
    }
    runs
}
