//! Decides which ready rows leave next, and in which order.
//!
//! **Invariants:**
//! - what is picked is a beginning of the merged sequence: no row that stays, and none to come,
//!   stands before a row that is picked;
//! - the inputs are only looked at; [`Picker::take_from`] takes what was picked.

use std::ops::Range;

use super::columns::Span;
use super::input::{Input, Item};
use super::rows::{Pair, SortedRows};
use super::tournament::Tournament;

/// Shorter runs on average are left to the tournament.
const RUN_ROWS_MIN: usize = 12;

/// This many runs are looked at before they are judged short.
const RUNS_JUDGED: usize = 32;

/// A run of this many rows is not copied to join others; it leaves by itself.
const RUN_ROWS_WHOLE: usize = 2048;

/// What stands behind everything.
const NOTHING: Pair = (i64::MAX, usize::MAX);

/// Picks rows.
#[derive(Default)]
pub(super) struct Picker {
    /// The batches with picked rows: input and item.
    pub slots: Vec<(usize, usize)>,
    pub spans: Vec<Span>,
    pub rows: usize,
    pub tournament: Tournament,
    /// The times in order, if the tournament has found it.
    order_times: Option<Vec<i64>>,
    /// Up to where rows are picked, for each input: item and row.
    cursors: Vec<(usize, usize)>,
    /// What stands at the cursor of each input: `None` behind the end of the input.
    heads: Vec<Option<Pair>>,
    /// True if runs were short last.
    interleaved: bool,
}

impl Picker {
    pub(super) fn new(inputs: usize) -> Self {
        let (cursors, heads) = (vec![(0, 0); inputs], vec![None; inputs]);
        Picker { cursors, heads, ..Picker::default() }
    }

    /// Picks at most `rows_max` rows, and none if none is ready.
    pub(super) fn pick(&mut self, inputs: &[Input], max_rows: usize) {
        let max_rows = max_rows.clamp(1, u32::MAX as usize);
        let can_share = max_rows >= 4 * inputs.len();
        if can_share && self.interleaved && self.pick_shares(inputs, max_rows) {
            return;
        }
        if self.pick_runs(inputs, max_rows, can_share && !self.interleaved) {
            return;
        }
        self.interleaved = true;
        if !self.pick_shares(inputs, max_rows) {
            self.pick_runs(inputs, max_rows, false);
        }
    }

    /// Takes what was picked; the bytes that it counted.
    pub(super) fn take_from(&mut self, inputs: &mut [Input]) -> usize {
        let cursors = inputs.iter_mut().zip(&self.cursors);
        cursors.map(|(input, &(item, row))| input.take(item, row)).sum()
    }

    /// The times of what was picked, if their order is not that of the spans.
    pub(super) fn take_order_times(&mut self) -> Option<Vec<i64>> {
        self.order_times.take()
    }

    fn begin(&mut self) {
        self.slots.clear();
        self.spans.clear();
        self.rows = 0;
        self.order_times = None;
        self.cursors.fill((0, 0));
    }

    /// Picks run by run. False, with nothing decided, if runs turn out to be short and that is
    /// asked for.
    fn pick_runs(&mut self, inputs: &[Input], max_rows: usize, gives_up: bool) -> bool {
        self.begin();
        for (head, input) in self.heads.iter_mut().zip(inputs) {
            *head = input.pair_at(0, 0);
        }
        let mut slot_of = vec![None; inputs.len()];
        while self.rows < max_rows {
            let (number, bound) = least_and_next(&self.heads);
            let (item, row) = self.cursors.get(number).copied().unwrap_or_default();
            let Some(Item::Rows { rows, from, .. }) =
                inputs.get(number).and_then(|input| input.items.get(item))
            else {
                break;
            };
            let from = row.max(*from);
            let run = run_length(&rows.times[from..], number, bound);
            if run >= RUN_ROWS_WHOLE && self.rows > 0 {
                break;
            }
            let run = run.min(max_rows - self.rows);
            let slot = *slot_of[number].get_or_insert_with(|| {
                self.slots.push((number, item));
                self.slots.len() - 1
            });
            self.add(Span { slot, from, rows: run });
            self.cursors[number] = (item, from + run);
            if from + run == rows.times.len() {
                self.cursors[number] = (item + 1, 0);
                slot_of[number] = None;
            }
            let (item, row) = self.cursors[number];
            self.heads[number] = inputs[number].pair_at(item, row);
            if run >= RUN_ROWS_WHOLE {
                break;
            }
            if gives_up && self.spans.len() == RUNS_JUDGED && self.has_short_runs(self.spans.len())
            {
                return false;
            }
        }
        if self.spans.len() >= RUNS_JUDGED {
            self.interleaved = self.has_short_runs(self.spans.len());
        }
        true
    }

    fn add(&mut self, span: Span) {
        self.rows += span.rows;
        self.spans.push(span);
    }

    fn has_short_runs(&self, runs: usize) -> bool {
        self.rows < runs * RUN_ROWS_MIN
    }

    /// Picks a share of each input and merges the shares. False, with nothing decided, if rows of
    /// less than two inputs are ready.
    ///
    /// The *stop* of an input is what stands behind its share: a row, a mark, or what is yet to
    /// come. A row is picked if it stands before the stops of all other inputs. Whatever stands
    /// before it is then picked too.
    fn pick_shares(&mut self, inputs: &[Input], max_rows: usize) -> bool {
        self.begin();
        let with_rows = inputs.iter().filter(|input| !input.items.is_empty()).count();
        let share = max_rows / with_rows.max(1);
        for (head, input) in self.heads.iter_mut().zip(inputs) {
            *head = stop_behind(input, share);
        }
        let (least, next) = least_and_next(&self.heads);
        let least_pair = self.heads.get(least).copied().flatten().unwrap_or(NOTHING);
        self.tournament.clear();
        for (number, input) in inputs.iter().enumerate() {
            let bound = if number == least { next } else { least_pair };
            self.pick_share(number, input, share, bound);
        }
        if self.tournament.runs() < 2 {
            self.interleaved = false;
            return false;
        }
        self.order_times = Some(self.tournament.merge());
        let indices = self.tournament.indices();
        let breaks = indices.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        self.interleaved = self.has_short_runs(breaks + 1);
        true
    }

    /// Picks the rows of an input's share that stand before a pair.
    fn pick_share(&mut self, number: usize, input: &Input, share: usize, bound: Pair) {
        for (item, rows, range) in share_of(input, share) {
            let times = &rows.times[range.clone()];
            let all = times.last().is_some_and(|&last_ms| (last_ms, number) < bound);
            let picked = if all { times.len() } else { count_before(times, number, bound) };
            if picked == 0 {
                break;
            }
            self.tournament.extend(&times[..picked]);
            self.slots.push((number, item));
            self.add(Span { slot: self.slots.len() - 1, from: range.start, rows: picked });
            let end = range.start + picked;
            let is_item_done = end == rows.times.len();
            self.cursors[number] = if is_item_done { (item + 1, 0) } else { (item, end) };
            if !all {
                break;
            }
        }
        self.tournament.end_run();
    }
}

/// The first rows of an input, up to a mark: item, its rows, and which of them.
fn share_of(
    input: &Input,
    share: usize,
) -> impl Iterator<Item = (usize, &SortedRows, Range<usize>)> {
    let mut left = share;
    input.items.iter().enumerate().map_while(move |(item, waiting)| match waiting {
        Item::Rows { rows, from, .. } if left > 0 => {
            let range = *from..rows.times.len().min(*from + left);
            left -= range.len();
            Some((item, rows, range))
        }
        _ => None,
    })
}

/// What stands behind the share of an input.
fn stop_behind(input: &Input, share: usize) -> Option<Pair> {
    match share_of(input, share).last() {
        Some((item, rows, range)) if range.end < rows.times.len() => input.pair_at(item, range.end),
        Some((item, ..)) => input.pair_at(item + 1, 0),
        None => input.pair_at(0, 0),
    }
}

/// The input with the least pair, and the least pair of the others.
fn least_and_next(pairs: &[Option<Pair>]) -> (usize, Pair) {
    let (mut least, mut next) = (NOTHING, NOTHING);
    for &pair in pairs.iter().flatten() {
        if pair < least {
            (least, next) = (pair, least);
        } else if pair < next {
            next = pair;
        }
    }
    (least.1, next)
}

/// How many of these rows of an input stand before a pair.
fn count_before(times: &[i64], number: usize, bound: Pair) -> usize {
    times.partition_point(|&time_ms| (time_ms, number) < bound)
}

/// The same where it is likely to be few: looked for in steps that double.
fn run_length(times: &[i64], number: usize, bound: Pair) -> usize {
    let (mut low, mut step) = (0, 1);
    while low + step < times.len() && (times[low + step], number) < bound {
        low += step;
        step *= 2;
    }
    let high = times.len().min(low + step);
    low + count_before(&times[low..high], number, bound)
}
