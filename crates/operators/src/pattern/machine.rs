//! Takes rows through the pattern: key by key in their order, all keys side by side.
//!
//! Rows whose time has come are taken in *waves*, the next row of every key at once, so that a
//! condition is evaluated over many runs together. Within a wave, variable by variable: a row that
//! is offered to a run fits the variable that the run stands at, or a later one if those between
//! may be absent. Each fit is a run of its own; a greedy variable that takes the row lets it pass
//! to no other.
//!
//! What that does to a key is Flink's:
//! - each row begins a run;
//! - of the matches that share a first row the one that is complete first counts, and of these the
//!   one in which earlier variables have taken more;
//! - a match waits until no run that began earlier is left, and then takes away what the search
//!   skips.
//!
//! With WITHIN runs end when time is so far behind their first row, at that very time, whatever the
//! watermarks that the operator is shown.
//!
//! # One wave
//!
//! 1. `expire`: runs that WITHIN has ended by the time of the next row are dropped, and matches
//!    that waited for them are released, at the time at which the run ended.
//! 2. `offer`: the row is offered to each run of the key, in their order, and last to a new run.
//! 3. `try_variable` for each variable in the order of the pattern: evaluates the condition for all
//!    offers that may reach it, then `decide` moves each offer.
//! 4. `take_on`: offers that took the row become runs, in order; others are dropped. Complete ones
//!    become matches. `release` emits matches that no older run precedes.
//!
//! An offer with `k` variables that take the row becomes up to `k` runs. They share the rows, so
//! splitting copies counts only. WITHIN bounds how many rows a run can have, and with that how many
//! runs there are.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::SchemaRef;
use thalweg_core::{Column, Error, Result, TableSchema};
use thalweg_expr::Expr;

use super::rows::PatternRows;
use super::runs::{Head, Key, NO_SLOT, Runs, Taken};
use super::spec::{Condition, End, MatchSpec, PatternValue, Skip};
use super::values::{Values, context};
use crate::rows::chunks::RowRef;
use crate::rows::columns::batch_of;
use crate::rows::event_time::DueRows;

/// How a condition is evaluated.
enum Test {
    /// Every row fits.
    Always,
    /// From the row alone, for all rows at once.
    Rows { expr: Expr, mask: BooleanArray },
    /// From the row and the run.
    Runs { values: Values, schema: SchemaRef, predicate: Expr },
}

/// A run and the row that is offered to it.
///
/// `takes` and `complete` are bits by variable, which is why a pattern has at most `VARIABLES_MAX`
/// of them.
struct Offer {
    id: u32,
    /// Its place among the runs of its key; [`FRESH`] for one that the row would begin.
    run: u32,
    /// The variable that it stands at.
    variable: u32,
    /// The place of the row among those that were fired.
    fired: u32,
    /// Where the aggregates of conditions stand, or [`NO_SLOT`].
    slot: u32,
    /// True while the row may still be taken by the current variable.
    is_open: bool,
    /// The variables that take it.
    takes: u64,
    /// Those of these behind which the pattern may be complete.
    complete: u64,
}

const FRESH: u32 = u32::MAX;

/// Rows of one key that are left of those that were fired.
struct KeySegment {
    id: u32,
    next: usize,
    end: usize,
}

/// Matches, with the values that they give.
pub(super) struct Matches {
    values: Values,
    /// When each was found.
    pub(super) times: Vec<i64>,
    /// The key of each.
    pub(super) ids: Vec<u32>,
}

/// Where the aggregates of runs stand.
#[derive(Default)]
struct Slots {
    count: u32,
    free: Vec<u32>,
    /// Those that runs have left and whose states are still there.
    left: Vec<u32>,
}

impl Slots {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

/// The runs of all keys, and what takes them on.
pub(super) struct Machine {
    spec: Arc<MatchSpec>,
    input: SchemaRef,
    /// The input columns that runs are asked for.
    columns: Vec<usize>,
    tests: Vec<Test>,
    pub(super) kept: PatternRows,
    pub(super) keys: Vec<Key>,
    pub(super) keys_bytes: usize,
    offers: Vec<Offer>,
    /// How many rows were offered to runs so far: what taking rows costs.
    pub(super) offered: usize,
    wanted: Vec<u32>,
    fits: Vec<bool>,
    zeros: Vec<u32>,
    counts: Vec<u32>,
    next: Runs,
    slots: Slots,
    found: Matches,
}

impl Machine {
    pub fn new(spec: Arc<MatchSpec>) -> Result<Self> {
        let outputs = spec.values();
        let mut columns = kept_columns(&spec, &outputs);
        columns.sort_unstable();
        columns.dedup();
        let place = |column: usize| columns.partition_point(|&other| other < column);
        let kept = columns.iter().map(|&column| spec.input.columns[column].clone()).collect();
        let kept = TableSchema::new(kept);
        let remap = |values: &[PatternValue]| -> Vec<PatternValue> {
            values.iter().map(|value| value.remap(&place)).collect()
        };
        let variables = spec.pattern.variables.iter().enumerate();
        let tests = variables.map(|(number, variable)| match &variable.condition {
            None => Ok(Test::Always),
            Some(condition) => test(condition, number, &remap(&condition.values), &kept),
        });
        let tests = tests.collect::<Result<Vec<_>>>()?;
        let found = Matches {
            values: Values::new(&remap(&outputs), &kept)?,
            times: Vec::new(),
            ids: Vec::new(),
        };
        Ok(Machine {
            input: spec.input.arrow(),
            tests,
            kept: PatternRows::new(kept),
            keys: Vec::new(),
            keys_bytes: 0,
            offers: Vec::new(),
            offered: 0,
            wanted: Vec::new(),
            fits: Vec::new(),
            zeros: vec![0; spec.pattern.variables.len()],
            counts: Vec::new(),
            next: Runs::default(),
            slots: Slots::default(),
            found,
            columns,
            spec,
        })
    }

    /// Takes rows of up to a time, and brings all these keys to that time.
    pub fn advance(
        &mut self,
        fired: &DueRows,
        alarms: &[u32],
        until: i64,
        wall_ms: i64,
    ) -> Result<()> {
        let mut segments = segments(&fired.ids);
        let own: Vec<u32> = segments.iter().map(|segment| segment.id).collect();
        let other = alarms.iter().copied().filter(|id| own.binary_search(id).is_err());
        let mut touched: Vec<u32> = other.collect();
        touched.sort_unstable();
        touched.dedup();
        touched.extend(own);
        let before: usize = touched.iter().map(|&id| self.keys[id as usize].bytes()).sum();
        if !fired.ids.is_empty() {
            self.test_rows(fired, wall_ms)?;
            let columns =
                self.columns.iter().map(|&column| ArrayRef::clone(&fired.columns[column]));
            let chunk = self.kept.add(columns.collect(), fired.ids.len());
            while !segments.is_empty() {
                self.wave(&segments, fired, chunk, wall_ms)?;
                segments.iter_mut().for_each(|segment| segment.next += 1);
                segments.retain(|segment| segment.next < segment.end);
            }
        }
        for &id in &touched {
            self.expire(id, until)?;
        }
        self.keys_bytes += touched.iter().map(|&id| self.keys[id as usize].bytes()).sum::<usize>();
        self.keys_bytes -= before;
        Ok(())
    }

    /// How many variables the pattern has.
    pub fn variables(&self) -> usize {
        self.tests.len()
    }

    /// The matches that were found, in the order in which each key found its own.
    pub fn take_matches(&mut self, wall_ms: i64) -> Result<(Vec<ArrayRef>, Vec<i64>, Vec<u32>)> {
        let columns = self.found.values.take(&self.kept, wall_ms)?;
        let (times, ids) = (&mut self.found.times, &mut self.found.ids);
        Ok((columns, std::mem::take(times), std::mem::take(ids)))
    }

    /// Forgets rows that nothing of this key asks for any more. True if the key knows nothing now.
    pub fn settle(&mut self, id: u32) -> bool {
        let key = &mut self.keys[id as usize];
        let from = key.needed_from();
        while key.base < from
            && let Some(row) = key.rows.pop_front()
        {
            self.kept.release(row);
            key.base += 1;
        }
        let is_idle = key.is_idle();
        if is_idle {
            self.keys_bytes -= key.bytes();
            *key = Key::default();
        }
        is_idle
    }

    /// Writes rows again if few of those that are stored are held.
    pub fn compact(&mut self) -> Result<()> {
        if self.kept.is_sparse() { self.kept.rewrite(&mut self.keys) } else { Ok(()) }
    }

    pub fn bytes(&self) -> usize {
        let test = |test: &Test| match test {
            Test::Runs { values, .. } => values.bytes(),
            Test::Rows { .. } | Test::Always => 0,
        };
        self.kept.bytes()
            + self.keys.capacity() * size_of::<Key>()
            + self.keys_bytes
            + self.tests.iter().map(test).sum::<usize>()
            + self.found.values.bytes()
            + (self.slots.free.capacity() + self.slots.left.capacity()) * 4
    }

    /// Empties the slots that runs have left.
    fn free_slots(&mut self) {
        if self.slots.left.is_empty() {
            return;
        }
        for test in &mut self.tests {
            if let Test::Runs { values, .. } = test {
                values.forget(&self.slots.left);
            }
        }
        self.slots.free.append(&mut self.slots.left);
    }

    /// Evaluates the conditions that need no run.
    fn test_rows(&mut self, fired: &DueRows, wall_ms: i64) -> Result<()> {
        let batch = batch_of(&self.input, fired.columns.clone(), fired.ids.len())?;
        for test in &mut self.tests {
            if let Test::Rows { expr, mask } = test {
                *mask = expr.evaluate_mask(&context(&batch, wall_ms))?;
            }
        }
        Ok(())
    }

    /// Takes the next row of every segment.
    fn wave(
        &mut self,
        segments: &[KeySegment],
        fired: &DueRows,
        chunk: u32,
        wall_ms: i64,
    ) -> Result<()> {
        self.offers.clear();
        for segment in segments {
            self.expire(segment.id, fired.times[segment.next])?;
            let row = RowRef { chunk, row: segment.next as u32 };
            self.keys[segment.id as usize].rows.push_back(row);
            self.offer(segment);
        }
        self.offered += self.offers.len();
        for variable in 0..self.tests.len() {
            self.try_variable(variable, wall_ms)?;
        }
        let offers = std::mem::take(&mut self.offers);
        for of_key in offers.chunk_by(|a, b| a.id == b.id) {
            self.take_on(of_key, fired.times[of_key[0].fired as usize])?;
        }
        self.offers = offers;
        self.free_slots();
        Ok(())
    }

    /// Offers a key's next row to its runs, and as the first row of a new one.
    fn offer(&mut self, segment: &KeySegment) {
        let key = &self.keys[segment.id as usize];
        let offer = |run: u32, variable: u32, slot: u32| Offer {
            id: segment.id,
            run,
            variable,
            fired: segment.next as u32,
            slot,
            is_open: true,
            takes: 0,
            complete: 0,
        };
        let runs = (0..key.runs.len()).map(|run| {
            let head = key.runs.at(run).0;
            offer(run as u32, head.variable, head.slot)
        });
        self.offers.extend(runs);
        self.offers.push(offer(FRESH, 0, NO_SLOT));
    }

    /// Tries the rows of a wave for a variable.
    fn try_variable(&mut self, variable: usize, wall_ms: i64) -> Result<()> {
        let of = &self.spec.pattern.variables[variable];
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        for (place, offer) in self.offers.iter().enumerate() {
            let is_tried = offer.is_open && offer.variable as usize <= variable;
            // The row has completed the pattern at an earlier variable. A greedy optional variable
            // behind it may take the row as well, and then that match is not complete yet.
            let is_passed = offer.complete != 0 && of.min == 0 && of.is_greedy;
            if is_tried || is_passed {
                wanted.push(place as u32);
            }
        }
        let mut fits = std::mem::take(&mut self.fits);
        fits.clear();
        self.test(variable, &wanted, &mut fits, wall_ms)?;
        let mut results = wanted.iter().zip(&fits).peekable();
        for place in 0..self.offers.len() {
            let result = results.next_if(|&(&wanted, _)| wanted as usize == place);
            self.decide(place, variable, result.is_some_and(|(_, &fits)| fits));
        }
        (self.wanted, self.fits) = (wanted, fits);
        Ok(())
    }

    /// Which of these offers fit a variable.
    fn test(
        &mut self,
        variable: usize,
        wanted: &[u32],
        fits: &mut Vec<bool>,
        wall_ms: i64,
    ) -> Result<()> {
        match &mut self.tests[variable] {
            Test::Always => fits.resize(wanted.len(), true),
            Test::Rows { mask, .. } => {
                let offers = wanted.iter().map(|&place| &self.offers[place as usize]);
                fits.extend(offers.map(|offer| mask.value(offer.fired as usize)));
            }
            Test::Runs { .. } if wanted.is_empty() => {}
            Test::Runs { values, schema, predicate } => {
                let needs_slots = values.has_aggregates();
                for &place in wanted {
                    let offer = &mut self.offers[place as usize];
                    if needs_slots && offer.slot == NO_SLOT {
                        offer.slot = self.slots.take();
                    }
                    let key = &self.keys[offer.id as usize];
                    let (head, counts) = run_of(offer, key, &self.zeros);
                    let taken = Taken { start: head.start, counts, tried: Some(variable) };
                    values.collect(key, taken, Some(offer.slot), head.time);
                }
                let columns = values.take(&self.kept, wall_ms)?;
                let batch = batch_of(schema, columns, wanted.len())?;
                let mask = predicate.evaluate_mask(&context(&batch, wall_ms))?;
                fits.extend(mask.values().iter());
            }
        }
        Ok(())
    }

    /// What an offer comes to at a variable.
    ///
    /// `complete` is cleared when a later variable must still take rows (`min > 0`), or a greedy
    /// one takes the row: then the match goes further.
    fn decide(&mut self, place: usize, variable: usize, fits: bool) {
        let of = &self.spec.pattern.variables[variable];
        let offer = &mut self.offers[place];
        let holds_back = of.is_greedy && fits;
        if of.min > 0 || holds_back {
            offer.complete = 0;
        }
        if !offer.is_open || offer.variable as usize > variable {
            return;
        }
        let count = if offer.variable as usize == variable && offer.run != FRESH {
            self.keys[offer.id as usize].runs.at(offer.run as usize).1[variable]
        } else {
            0
        };
        if fits {
            offer.takes |= 1 << variable;
            let is_full = of.max == Some(count + 1);
            if is_full || (count + 1 >= of.min && !of.is_greedy) {
                offer.complete |= 1 << variable;
            }
        }
        offer.is_open = count >= of.min && !holds_back;
    }

    /// Replaces the runs of a key by what they have become with its next row.
    fn take_on(&mut self, offers: &[Offer], time: i64) -> Result<()> {
        let id = offers[0].id;
        let key = &mut self.keys[id as usize];
        self.next.clear();
        let variables = &self.spec.pattern.variables;
        for offer in offers {
            // The first run that it becomes continues with its aggregates.
            let mut slot = offer.slot;
            if offer.takes == 0 {
                self.slots.left.extend((slot != NO_SLOT).then_some(slot));
                continue;
            }
            let (head, counts) = run_of(offer, key, &self.zeros);
            let head = if offer.run == FRESH { Head { time, ..head } } else { head };
            self.counts.clear();
            self.counts.extend_from_slice(counts);
            let taking = (0..variables.len()).filter(|variable| offer.takes >> variable & 1 == 1);
            for variable in taking {
                self.counts[variable] += 1;
                let is_full = variables[variable].max == Some(self.counts[variable]);
                let next = variable + usize::from(is_full);
                let head = Head { variable: next as u32, slot: NO_SLOT, ..head };
                if next < variables.len() {
                    let slot = std::mem::replace(&mut slot, NO_SLOT);
                    self.next.push(Head { slot, ..head }, &self.counts);
                }
                if offer.complete >> variable & 1 == 1 {
                    key.matches.insert(head, &self.counts);
                }
                self.counts[variable] -= 1;
            }
            self.slots.left.extend((slot != NO_SLOT).then_some(slot));
        }
        std::mem::swap(&mut key.runs, &mut self.next);
        self.release(id, time)
    }

    /// Ends the runs of a key that have taken too long at this time.
    fn expire(&mut self, id: u32, time: i64) -> Result<()> {
        let Some(within_ms) = self.spec.pattern.within_ms else { return Ok(()) };
        while let Some(first) = self.keys[id as usize].runs.first() {
            let ends = first.time.saturating_add(within_ms);
            if ends > time {
                break;
            }
            self.keys[id as usize].runs.remove_begun_by(first.time, &mut self.slots.left);
            self.release(id, ends)?;
        }
        Ok(())
    }

    /// Lets matches go that no run of their key comes before.
    fn release(&mut self, id: u32, time: i64) -> Result<()> {
        let key = &mut self.keys[id as usize];
        while let Some(head) = key.matches.first() {
            if key.runs.first().is_some_and(|run| run.start < head.start) {
                break;
            }
            self.counts.clear();
            self.counts.extend_from_slice(key.matches.at(0).1);
            let taken = Taken { start: head.start, counts: &self.counts, tried: None };
            self.found.values.collect(key, taken, None, time);
            self.found.times.push(time);
            self.found.ids.push(id);
            let continues = continues_at(&self.spec, taken)?;
            let left = &mut self.slots.left;
            key.matches.remove_before(continues, left);
            key.runs.remove_before(continues, left);
        }
        Ok(())
    }
}

/// The first row that a match behind this one may begin with.
fn continues_at(spec: &MatchSpec, taken: Taken<'_>) -> Result<u64> {
    let (variable, end) = match spec.pattern.skip {
        Skip::PastLastRow => return Ok(taken.rows(None).end),
        Skip::ToNextRow => return Ok(taken.start + 1),
        Skip::ToFirst(variable) => (variable, End::First),
        Skip::ToLast(variable) => (variable, End::Last),
    };
    let name = &spec.pattern.variables[variable].name;
    match taken.row(Some(variable), end, 0) {
        Some(row) if row > taken.start => Ok(row),
        Some(_) => Err(Error::data(format!(
            "AFTER MATCH SKIP leads to a row of {name} that is the first of its match, which would be \
             found again for ever"
        ))
        .hint("skip past the last row, to the next row, or to a later variable")),
        None => Err(Error::data(format!(
            "AFTER MATCH SKIP leads to {name}, but a match has no row of {name}"
        ))
        .hint("skip to a variable that every match has a row of")),
    }
}

/// The run that a row is offered to, with what it has taken.
fn run_of<'a>(offer: &Offer, key: &'a Key, zeros: &'a [u32]) -> (Head, &'a [u32]) {
    if offer.run == FRESH {
        return (Head { start: key.end() - 1, time: 0, variable: 0, slot: NO_SLOT }, zeros);
    }
    key.runs.at(offer.run as usize)
}

/// The input columns that runs and matches read.
fn kept_columns(spec: &MatchSpec, outputs: &[PatternValue]) -> Vec<usize> {
    let variables = spec.pattern.variables.iter().enumerate();
    let conditions = variables.filter_map(|(number, variable)| {
        let condition = variable.condition.as_ref()?;
        condition.over_rows(number).is_none().then_some(condition)
    });
    let of_conditions = conditions.flat_map(|condition| &condition.values);
    of_conditions.chain(outputs).flat_map(PatternValue::columns).collect()
}

fn test(
    condition: &Condition,
    variable: usize,
    values: &[PatternValue],
    kept: &TableSchema,
) -> Result<Test> {
    if let Some(expr) = condition.over_rows(variable) {
        return Ok(Test::Rows { expr, mask: BooleanArray::from(Vec::<bool>::new()) });
    }
    let columns = condition.values.iter().enumerate().map(|(place, value)| {
        let column_type = value.column_type().clone().with_nullable(true);
        Column::new(format!("value{place}"), column_type)
    });
    let schema = TableSchema::new(columns.collect()).arrow();
    let values = Values::new(values, kept)?;
    Ok(Test::Runs { values, schema, predicate: condition.predicate.clone() })
}

fn segments(ids: &[u32]) -> Vec<KeySegment> {
    let mut next = 0;
    let of_key = |of_key: &[u32]| {
        let from = next;
        next += of_key.len();
        KeySegment { id: of_key[0], next: from, end: next }
    };
    ids.chunk_by(|a, b| a == b).map(of_key).collect()
}
