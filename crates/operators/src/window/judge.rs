//! Which rows of a bundle are late, and the slice of every other.
//!
//! A row is judged against the watermark that the rows before it established, never against what
//! the operator has consumed. It is late for a window with end `e` when `e - 1 <= watermark`.
//!
//! A row that is late for some of its windows only must show up in the others alone, although the
//! closed ones may not have been emitted yet. So it does not join its slice but one next to it,
//! whose first window is the first that is open for the row. Slices are therefore distinguished by
//! (first window end, last window end), [`SliceKey`], and that is all that assembling needs.
//!
//! Most bundles hold no late row and lie in one slice: both are found from the extremes. Of rows
//! that come in the order of time, as the assigner has seen, only those around the edges of slices
//! are looked at.
//!
//! [`Judge`] does that for an operator's pieces: in the time of its windows, with its policy for
//! late rows.
//!
//! The verdict must depend on the rows and their `watermark_before` alone. It must not depend on
//! how bundles are cut, on which partition takes a piece, or on how far the operator has come: the
//! results of a job would then change with the number of threads. So every fast path below must
//! give the verdict of the general one (`place`), which looks at each row; tests compare them.
//!
//! Paths, cheapest first:
//!
//! | path | condition | cost |
//! |---|---|---|
//! | one run, as it stands | lowest and highest time in one slice, none late | two comparisons |
//! | `cut_ascending` | times ascend, none late | a binary search for each slice |
//! | `walk` | each slice's rows are contiguous and slices ascend, none late | a look at each row |
//! | `sort_out` | none late, at most `FEW_SLICES` slices | a pass for each slice, without branches |
//! | `place` | any rows | a look-up of the slice for each row |

use arrow_buffer::ScalarBuffer;
use chrono_tz::Tz;
use hashbrown::HashMap;
use thalweg_core::time::extremes;
use thalweg_core::{Output, Piece, Result, TableSchema, TimeExtremes, Watermark, WatermarkBefore};

use super::output::{LatePolicy, row_times, treat_late};
use super::spec::{Slice, WHOLE_END, WindowSpec};
use super::zone::Zone;

/// The ends of the first and the last window that a slice is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SliceKey {
    pub(super) enter: i64,
    pub(super) leave: i64,
}

/// Watermarks before the rows, in the time of the windows.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// One for all.
    All(i64),
    /// One per row of the bundle.
    Rows(&'a [i64]),
}

impl Before<'_> {
    #[inline]
    fn at(&self, row: usize) -> i64 {
        match self {
            Before::All(watermark) => *watermark,
            Before::Rows(rows) => rows[row],
        }
    }
    fn highest(&self) -> i64 {
        match self {
            Before::All(watermark) => *watermark,
            Before::Rows(rows) => rows.iter().copied().max().unwrap_or(i64::MIN),
        }
    }
}

/// A run of rows of one slice: a range of those that are in any ([`Judged::taken`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceRun {
    pub(super) key: SliceKey,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The verdict over a bundle. Kept between bundles for its memory.
#[derive(Default)]
pub(super) struct Judged {
    /// True if the runs are ranges of the rows as they were given; `rows` is then empty.
    as_given: bool,
    /// Rows by slice, in bundle order within each.
    rows: Vec<u32>,
    /// The numbers from 0, as many as were ever needed: the rows of a bundle that is cut into runs.
    numbers: Vec<u32>,
    /// The runs, one per slice.
    pub(super) runs: Vec<SliceRun>,
    /// Rows that are late for all their windows, in order.
    pub(super) late: Vec<u32>,
    /// How many rows are late for some of their windows only.
    pub(super) partly_late: u64,
    /// How many slices begin at or before each row, of few.
    reached: Vec<u8>,
    places: Vec<u32>,
    taken: Vec<u32>,
    slots: HashMap<SliceKey, u32>,
    /// The slices that were asked for last, and their slots.
    recent: Vec<(Slice, u32)>,
}

/// This many slices are distinguished by comparing a row's time with where each but the first
/// begins.
const FEW_SLICES: usize = 8;

/// To look through this many slices costs less than to find a slot by its key.
const RECENT_SLICES: usize = 8;

/// Rows that lie in no window (between hops shorter than the slide).
const NO_SLOT: u32 = u32::MAX;

fn is_closed(end: i64, watermark: i64) -> bool {
    end.saturating_sub(1) <= watermark
}

impl Judged {
    /// Judges the rows named (or all) by their times, which are indexed by row. Something may be
    /// known of all times already.
    pub fn judge(
        &mut self,
        spec: &WindowSpec,
        times: &[i64],
        rows: Option<&[u32]>,
        before: Before<'_>,
        known: Option<Known>,
    ) {
        self.rows.clear();
        self.runs.clear();
        self.late.clear();
        self.partly_late = 0;
        self.as_given = false;
        if rows.is_some_and(<[u32]>::is_empty) {
            return;
        }
        // Those of all rows do for some of them: where all lie in one slice, some do too.
        let Some(known) = known.or_else(|| Known::of(times, rows)) else { return };
        let first = spec.slice(known.lowest);
        // One comparison decides for all rows: `enter` never falls as time rises, so if the slice
        // of the lowest time is open at the highest watermark, each row's slice is open at its own
        // watermark.
        let none_late = known.is_ahead || !is_closed(first.enter, before.highest());
        if none_late && first.holds(known.highest) && first.enter <= first.leave {
            let key = SliceKey { enter: first.enter, leave: first.leave };
            let to = rows.map_or(times.len(), <[u32]>::len);
            self.runs.push(SliceRun { key, from: 0, to });
            self.as_given = true;
            return;
        }
        // Nothing can be closed where nothing is late, so no row's own watermark is looked at.
        let before = if none_late { Before::All(i64::MIN) } else { before };
        self.as_given = match rows {
            _ if none_late && known.is_ascending => self.cut_ascending(spec, times, rows),
            None => self.walk(spec, times.len(), |place| (times[place], before.at(place))),
            Some(rows) => self.walk(spec, rows.len(), |place| {
                let row = rows[place] as usize;
                (times[row], before.at(row))
            }),
        };
        if self.as_given {
            if rows.is_none() && self.runs.len() > 1 {
                self.numbers.extend(self.numbers.len() as u32..times.len() as u32);
            }
            return;
        }
        if none_late && self.sort_out(spec, times, rows, known) {
            return;
        }
        self.places.clear();
        self.taken.clear();
        self.slots.clear();
        match rows {
            None => self.place(spec, times, before, 0..times.len() as u32),
            Some(rows) => self.place(spec, times, before, rows.iter().copied()),
        }
        let (taken, places) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.places));
        self.group(taken.iter().copied().zip(places.iter().map(|&slot| slot as usize)));
        (self.taken, self.places) = (taken, places);
    }

    /// Cuts rows that come slice after slice, none of them late, into runs. False if they do not,
    /// and then there are none. `end` is where the rows from a place on are no longer of its slice,
    /// or late for it.
    ///
    /// A late row ends the stretch before it, so the next stretch begins at the late row and is
    /// empty: that is how `to == from` detects it. Keys must ascend strictly, since each slice has
    /// one run.
    fn cut(
        &mut self,
        spec: &WindowSpec,
        rows: usize,
        time: impl Fn(usize) -> i64,
        end: impl Fn(&Slice, usize) -> usize,
    ) -> bool {
        let mut from = 0;
        while from < rows {
            let slice = spec.slice(time(from));
            let key = SliceKey { enter: slice.enter, leave: slice.leave };
            let is_next = self.runs.last().is_none_or(|before| before.key < key);
            let to = end(&slice, from);
            if !is_next || key.enter > key.leave || to == from {
                self.runs.clear();
                return false;
            }
            self.runs.push(SliceRun { key, from, to });
            from = to;
        }
        true
    }

    /// Cuts rows with a look at each.
    fn walk(
        &mut self,
        spec: &WindowSpec,
        rows: usize,
        time_and_watermark: impl Fn(usize) -> (i64, i64),
    ) -> bool {
        let time = |place| time_and_watermark(place).0;
        let end = |slice: &Slice, from: usize| {
            let in_slice = |&place: &usize| {
                let (time, watermark) = time_and_watermark(place);
                slice.holds(time) && !is_closed(slice.enter, watermark)
            };
            from + (from..rows).take_while(in_slice).count()
        };
        self.cut(spec, rows, time, end)
    }

    /// Cuts rows in the order of time, of which none is late: ends are searched.
    fn cut_ascending(&mut self, spec: &WindowSpec, times: &[i64], rows: Option<&[u32]>) -> bool {
        let Some(rows) = rows else {
            let end = |slice: &Slice, from: usize| {
                from + times[from..].partition_point(|&time| slice.holds(time))
            };
            return self.cut(spec, times.len(), |place| times[place], end);
        };
        let time = |&row: &u32| times[row as usize];
        let end = |slice: &Slice, from: usize| {
            from + rows[from..].partition_point(|row| slice.holds(time(row)))
        };
        self.cut(spec, rows.len(), |place| time(&rows[place]), end)
    }

    /// The rows that are in any run, where these were judged; `None` for all, as they stand.
    pub fn taken<'a>(&'a self, given: Option<&'a [u32]>) -> Option<&'a [u32]> {
        if self.as_given { given } else { Some(&self.rows) }
    }

    /// The rows of a run, where these were judged; `None` if it is the only one, of all as they
    /// stand.
    pub fn rows_of<'a>(&'a self, run: &SliceRun, given: Option<&'a [u32]>) -> Option<&'a [u32]> {
        let all = match self.taken(given) {
            None if self.runs.len() > 1 => Some(&self.numbers[..]),
            taken => taken,
        };
        all.map(|rows| &rows[run.from..run.to])
    }

    /// Sorts rows of which none is late out by slice, if they lie in few: nothing then depends on a
    /// row but what is computed of its time, and a processor that guesses where a row goes has
    /// nothing to guess wrong. False if they lie in many slices, or between windows; then there are
    /// no runs.
    fn sort_out(
        &mut self,
        spec: &WindowSpec,
        times: &[i64],
        rows: Option<&[u32]>,
        known: Known,
    ) -> bool {
        let Some(starts) = self.few_slices(spec, known) else {
            self.runs.clear();
            return false;
        };
        match rows {
            None => self.sort_by_starts(starts, times.iter().copied().zip(0..times.len() as u32)),
            Some(rows) => {
                let time_of = |&row: &u32| (times[row as usize], row);
                self.sort_by_starts(starts, rows.iter().map(time_of));
            }
        }
        true
    }

    /// A run for each slice from the lowest time to the highest, and where the slices behind the
    /// first begin.
    fn few_slices(&mut self, spec: &WindowSpec, known: Known) -> Option<[i64; FEW_SLICES - 1]> {
        let mut starts = [i64::MAX; FEW_SLICES - 1];
        let mut slice = spec.slice(known.lowest);
        loop {
            if slice.enter > slice.leave {
                return None;
            }
            let key = SliceKey { enter: slice.enter, leave: slice.leave };
            self.runs.push(SliceRun { key, from: 0, to: 0 });
            if slice.holds(known.highest) {
                return Some(starts);
            }
            *starts.get_mut(self.runs.len() - 1)? = slice.end;
            slice = spec.slice(slice.end);
        }
    }

    /// Sorts rows, each behind its time, by how many of these starts their times have reached.
    fn sort_by_starts(
        &mut self,
        starts: [i64; FEW_SLICES - 1],
        rows: impl Iterator<Item = (i64, u32)> + Clone,
    ) {
        let (reached, times) = (&mut self.reached, rows.clone().map(|(time, _)| time));
        match self.runs.len() {
            0..=2 => count_reached::<1>(starts, times, reached),
            3..=4 => count_reached::<3>(starts, times, reached),
            _ => count_reached::<{ FEW_SLICES - 1 }>(starts, times, reached),
        }
        // Each slice takes its rows in a pass over all: each row is written, and stays if it is of
        // the slice.
        self.rows.resize(reached.len() + 1, 0);
        let (sorted, mut next) = (&mut self.rows[..], 0);
        for (slot, run) in (0..).zip(&mut self.runs) {
            run.from = next;
            for ((_, row), &reached) in rows.clone().zip(&*reached) {
                sorted[next] = row;
                next += usize::from(reached == slot);
            }
            run.to = next;
        }
        self.rows.truncate(next);
        self.runs.retain(|run| run.from < run.to);
    }

    /// Finds each row's slot, which is the place of its run.
    ///
    /// Rows that are late for all windows go to `late`. Rows that are late for some get a slot of
    /// their own: (first open end, `leave`) instead of (`enter`, `leave`). Rows that no window
    /// holds get no slot and are not late either.
    fn place(
        &mut self,
        spec: &WindowSpec,
        times: &[i64],
        before: Before<'_>,
        rows: impl Iterator<Item = u32>,
    ) {
        let mut slice = Slice { start: 0, end: 0, enter: 0, leave: 0 };
        let mut slot = NO_SLOT;
        self.recent.clear();
        for row in rows {
            let time = times[row as usize];
            if !slice.holds(time) {
                (slice, slot) = self.slice(spec, time);
            }
            let watermark = before.at(row as usize);
            let own = if !is_closed(slice.enter, watermark) || slot == NO_SLOT {
                slot
            } else if is_closed(slice.leave, watermark) {
                self.late.push(row);
                continue;
            } else {
                self.partly_late += 1;
                let ends = spec.ends();
                // The first end above watermark + 1, at which a window is still open.
                let enter = ends.start(ends.index(watermark.saturating_add(1)) + 1);
                self.slot(enter, slice.leave)
            };
            if own != NO_SLOT {
                self.runs[own as usize].to += 1;
                self.places.push(own);
                self.taken.push(row);
            }
        }
    }

    /// The slice of a time and its slot. Where rows come out of order they go to and fro between
    /// few slices.
    fn slice(&mut self, spec: &WindowSpec, time: i64) -> (Slice, u32) {
        if let Some(&known) = self.recent.iter().find(|(slice, _)| slice.holds(time)) {
            return known;
        }
        let slice = spec.slice(time);
        let known = (slice, self.slot(slice.enter, slice.leave));
        if self.recent.len() == RECENT_SLICES {
            self.recent.rotate_left(1);
            self.recent.pop();
        }
        self.recent.push(known);
        known
    }

    fn slot(&mut self, enter: i64, leave: i64) -> u32 {
        if enter > leave {
            return NO_SLOT;
        }
        let key = SliceKey { enter, leave };
        let runs = &mut self.runs;
        *self.slots.entry(key).or_insert_with(|| {
            runs.push(SliceRun { key, from: 0, to: 0 });
            runs.len() as u32 - 1
        })
    }

    /// Sorts rows, each before its slot, by slot, keeping their order within each (a counting
    /// sort). Each run's `to` says how many rows it has.
    ///
    /// The sort is stable. Aggregates that depend on the order of rows (FIRST_VALUE, sums of
    /// DOUBLE) rely on that.
    fn group(&mut self, rows: impl Iterator<Item = (u32, usize)>) {
        let mut next = 0;
        for run in &mut self.runs {
            let count = run.to;
            (run.from, run.to) = (next, next);
            next += count;
        }
        self.rows.resize(next, 0);
        let (sorted, runs) = (&mut self.rows[..], &mut self.runs[..]);
        for (row, slot) in rows {
            let run = &mut runs[slot];
            sorted[run.to] = row;
            run.to += 1;
        }
        self.runs.retain(|run| run.from < run.to);
    }
}

/// Says how many of the first starts each time has reached, with as few comparisons as there may be
/// starts.
#[inline]
fn count_reached<const STARTS: usize>(
    starts: [i64; FEW_SLICES - 1],
    times: impl Iterator<Item = i64>,
    reached: &mut Vec<u8>,
) {
    let starts: [i64; STARTS] = std::array::from_fn(|place| starts[place]);
    reached.clear();
    reached
        .extend(times.map(|time| starts.iter().map(|&start| u8::from(time >= start)).sum::<u8>()));
}

/// What is known of the times of all rows.
///
/// A claim about *all* times of the bundle, which is also true of any of them.
#[derive(Clone, Copy)]
pub(super) struct Known {
    lowest: i64,
    highest: i64,
    is_ascending: bool,
    /// True if each is above its row's watermark.
    is_ahead: bool,
}

impl Known {
    /// The extremes of the rows named, or of all; `None` if there are none.
    fn of(times: &[i64], rows: Option<&[u32]>) -> Option<Known> {
        let (lowest, highest) = extremes_of(times, rows)?;
        Some(Known { lowest, highest, is_ascending: false, is_ahead: false })
    }

    /// What has been found in the times of the bundle.
    fn found(found: &TimeExtremes, before: &WatermarkBefore) -> Known {
        Known {
            lowest: found.lowest(),
            highest: found.highest(),
            is_ascending: found.is_ascending(),
            is_ahead: found.is_ahead_of(before),
        }
    }
}

/// Where and how an operator's rows are judged.
pub(super) struct Rules<'a> {
    pub(super) window: &'a WindowSpec,
    pub(super) rowtime: usize,
    pub(super) late: LatePolicy,
    pub(super) input: &'a TableSchema,
}

/// Judges the pieces that a partition gets, in the windows' own time.
pub(super) struct Judge {
    pub(super) zone: Zone,
    judged: Judged,
    local_times: Vec<i64>,
    local_before: Vec<i64>,
}

impl Judge {
    pub fn new(zone: Option<Tz>) -> Self {
        let (local_times, local_before) = Default::default();
        Judge { zone: Zone::new(zone), judged: Judged::default(), local_times, local_before }
    }

    /// The verdict over a piece; late rows have been treated and all have been counted.
    ///
    /// # Errors
    /// If a row time is NULL, or a row is late where that fails the job.
    pub fn piece(
        &mut self,
        rules: &Rules<'_>,
        piece: &Piece<'_>,
        output: &mut Output,
    ) -> Result<&Judged> {
        let instants = row_times(piece, rules.rowtime, rules.input)?;
        self.judge(rules.window, piece, instants);
        let judged = &self.judged;
        treat_late(rules.late, &judged.late, piece, rules.rowtime, output)?;
        output.accepted += (piece.num_rows() - judged.late.len()) as u64;
        output.partly_late += judged.partly_late;
        Ok(judged)
    }

    /// All rows of a piece are of the window of all rows, and none is late.
    pub fn whole(&mut self, piece: &Piece<'_>, output: &mut Output) -> &Judged {
        let rows = piece.num_rows();
        let judged = &mut self.judged;
        judged.as_given = true;
        judged.runs.clear();
        if rows > 0 {
            let key = SliceKey { enter: WHOLE_END, leave: WHOLE_END };
            judged.runs.push(SliceRun { key, from: 0, to: rows });
        }
        output.accepted += rows as u64;
        judged
    }

    fn judge(&mut self, window: &WindowSpec, piece: &Piece<'_>, instants: &ScalarBuffer<i64>) {
        let stamps = &piece.bundle.stamps;
        let before = &stamps.watermark_before;
        if self.zone.is_identity() {
            let known = stamps.extremes_of(instants).map(|found| Known::found(found, before));
            let before = match before {
                WatermarkBefore::All(Watermark(watermark)) => Before::All(*watermark),
                WatermarkBefore::Rows(rows) => Before::Rows(rows),
            };
            self.judged.judge(window, instants, piece.rows, before, known);
            return;
        }
        let zone = &mut self.zone;
        // What stands at other rows is of other bundles, and not looked at.
        self.local_times.resize(self.local_times.len().max(instants.len()), 0);
        let mut to_local = |row: usize| self.local_times[row] = zone.to_local(instants[row]);
        match piece.rows {
            None => (0..instants.len()).for_each(to_local),
            Some(rows) => rows.iter().for_each(|&row| to_local(row as usize)),
        }
        let before = match before {
            WatermarkBefore::All(Watermark(w)) => Before::All(zone.local_watermark(*w)),
            WatermarkBefore::Rows(rows) => {
                localize(zone, rows, &mut self.local_before);
                Before::Rows(&self.local_before)
            }
        };
        let times = &self.local_times[..instants.len()];
        self.judged.judge(window, times, piece.rows, before, None);
    }
}

/// Local watermarks; equal ones stand together, so each is converted once.
fn localize(zone: &mut Zone, watermarks: &[i64], local: &mut Vec<i64>) {
    local.clear();
    let mut last = None;
    local.extend(watermarks.iter().map(|&watermark| match last {
        Some((same, local)) if same == watermark => local,
        _ => {
            let local = zone.local_watermark(watermark);
            last = Some((watermark, local));
            local
        }
    }));
}

/// The lowest and the highest time.
fn extremes_of(times: &[i64], rows: Option<&[u32]>) -> Option<(i64, i64)> {
    let Some(rows) = rows else { return extremes(times) };
    let fold = |(low, high): (i64, i64), time: i64| (low.min(time), high.max(time));
    let times = rows.iter().map(|&row| times[row as usize]);
    let (low, high) = times.fold((i64::MAX, i64::MIN), fold);
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: WindowSpec = WindowSpec::Hop { slide_ms: 5, size_ms: 10, offset_ms: 0 };

    #[test]
    fn a_bundle_within_a_slice_stays_as_it_is() {
        let mut judged = Judged::default();
        judged.judge(&HOP, &[1, 2, 4], None, Before::All(3), None);
        assert!(judged.as_given);
        assert_eq!(
            judged.runs,
            [SliceRun { key: SliceKey { enter: 5, leave: 10 }, from: 0, to: 3 }]
        );
    }

    #[test]
    fn rows_that_come_slice_after_slice_stay_as_they_are() {
        let mut judged = Judged::default();
        let watermarks = [3, 4, 6, 9, 14];
        let times = [1, 7, 8, 12, 17];
        let key = |enter| SliceKey { enter, leave: enter + 5 };
        let runs = [(5, 0, 1), (10, 1, 3), (15, 3, 4), (20, 4, 5)];
        let runs = runs.map(|(enter, from, to)| SliceRun { key: key(enter), from, to });
        judged.judge(&HOP, &times, None, Before::Rows(&watermarks), None);
        assert!(judged.as_given);
        assert_eq!(judged.runs, runs);
        assert_eq!(judged.taken(None), None);
        assert_eq!(judged.rows_of(&runs[1], None), Some(&[1, 2][..]));
        let some = [1, 2, 4];
        judged.judge(&HOP, &times, Some(&some), Before::Rows(&watermarks), None);
        assert_eq!(judged.rows_of(&judged.runs[1], Some(&some)), Some(&[4][..]));
        // The last row is of a slice before, in another bundle it is late.
        judged.judge(&HOP, &[1, 7, 2], None, Before::All(3), None);
        assert!(!judged.as_given);
        judged.judge(&HOP, &[1, 7], None, Before::Rows(&[3, 14]), None);
        assert_eq!((judged.as_given, &judged.late[..]), (false, &[1][..]));
    }

    /// What is known changes nothing in the verdict.
    #[test]
    fn rows_in_the_order_of_time_are_judged_as_if_nothing_were_known() {
        let mut random = thalweg_core::shim::SplitMix64::new(11);
        let gaps = WindowSpec::Hop { slide_ms: 10, size_ms: 4, offset_ms: 0 };
        for round in 0..400u64 {
            let spec = if round % 4 == 3 { &gaps } else { &HOP };
            let mut time = 0;
            let mut times: Vec<i64> = (0..random.below(60) + 1)
                .map(|_| {
                    time += random.below(1 + round % 9) as i64;
                    time
                })
                .collect();
            if round % 5 == 0 {
                times.rotate_left(1);
            }
            let delay = random.below(3) as i64;
            let mut running = i64::MIN + 5;
            let before = times.iter().map(|time| {
                let next = running.max(time - delay);
                std::mem::replace(&mut running, next)
            });
            let before: ScalarBuffer<i64> = before.collect();
            let times: ScalarBuffer<i64> = times.into();
            let found = TimeExtremes::of(&times)
                .expect("there are times")
                .with_watermarks(&WatermarkBefore::Rows(before.clone()));
            let known = Known::found(&found, &WatermarkBefore::Rows(before.clone()));
            let some: Vec<u32> = (0..times.len() as u32).filter(|_| random.below(2) == 0).collect();
            for rows in [None, Some(&some[..])] {
                let verdict = |known| {
                    let mut judged = Judged::default();
                    judged.judge(spec, &times, rows, Before::Rows(&before), known);
                    let runs = judged.runs.iter().map(|run| {
                        let given: Vec<u32> = (0..times.len() as u32).collect();
                        let of_run = judged.rows_of(run, rows).unwrap_or(&given).to_vec();
                        (run.key, of_run)
                    });
                    (runs.collect::<Vec<_>>(), judged.late.clone(), judged.partly_late)
                };
                assert_eq!(verdict(Some(known)), verdict(None), "{spec:?} {times:?} {rows:?}");
            }
        }
    }

    #[test]
    fn rows_that_go_to_and_fro_are_put_together_by_slice() {
        let mut random = thalweg_core::shim::SplitMix64::new(7);
        let mut judged = Judged::default();
        for slices in [2, 3, 8, 9, 20] {
            let times: Vec<i64> = (0..500).map(|_| random.below(5 * slices) as i64).collect();
            judged.judge(&HOP, &times, None, Before::All(-10), None);
            let mut found = 0;
            for run in &judged.runs {
                let rows = judged.rows_of(run, None).expect("rows of several slices");
                let is_in = |&row: &u32| times[row as usize] / 5 == run.key.enter / 5 - 1;
                let expected: Vec<u32> = (0..500).filter(is_in).collect();
                assert_eq!(rows, expected);
                found += 1;
            }
            assert_eq!(found, slices, "each slice has rows, and one run");
            let some: Vec<u32> = (0..500).filter(|row| row % 3 > 0).collect();
            judged.judge(&HOP, &times, Some(&some), Before::All(-10), None);
            for run in &judged.runs {
                let is_in = |&row: &u32| times[row as usize] / 5 == run.key.enter / 5 - 1;
                let expected: Vec<u32> = some.iter().copied().filter(is_in).collect();
                assert_eq!(judged.rows_of(run, Some(&some)), Some(&expected[..]));
            }
            assert_eq!(judged.taken(Some(&some)).map(<[u32]>::len), Some(some.len()));
        }
    }

    #[test]
    fn a_row_late_for_one_window_goes_next_to_its_slice() {
        let mut judged = Judged::default();
        // At watermark 4 the window that ends at 5 is closed, the one that ends at 10 is not.
        judged.judge(&HOP, &[1, 2, 3, 7, 1], None, Before::Rows(&[3, 4, 9, 4, 3]), None);
        assert_eq!(judged.late, [2]);
        assert_eq!(judged.partly_late, 1);
        let runs: Vec<_> = judged
            .runs
            .iter()
            .map(|run| (run.key.enter, run.key.leave, &judged.rows[run.from..run.to]))
            .collect();
        assert_eq!(runs, [(5, 10, &[0, 4][..]), (10, 10, &[1][..]), (10, 15, &[3][..])]);
    }
}
