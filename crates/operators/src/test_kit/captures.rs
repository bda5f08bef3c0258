//! Incremental captures, and that are read while the job continues.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_select::filter::filter_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::CapturedTable;
use thalweg_core::{Extent, Operator, Partition, Restored, Result};

use super::input::{self, Action, Cut};
use super::{DriveOptions, Driver, Event};

/// How long an event takes at most.
const PASSED_MS_MAX: u64 = 8;

/// The tables of one partition by name.
type Tables = BTreeMap<&'static str, Vec<RecordBatch>>;

/// Several captures put together, as the snapshot store does.
#[derive(Default)]
pub(super) struct Generations(Vec<Tables>);

impl Generations {
    /// Captures what has changed; of those that were not captured before, everything.
    pub(super) fn capture(&mut self, partitions: &mut [Box<dyn Partition>]) -> Result<()> {
        let extent = if self.0.is_empty() { Extent::Full } else { Extent::Incremental };
        self.0.resize_with(partitions.len(), Tables::new);
        for (tables, partition) in self.0.iter_mut().zip(partitions) {
            take_over(tables, partition.capture(extent)?.tables)?;
        }
        Ok(())
    }

    pub(super) fn restored(self) -> Restored {
        let mut restored = Restored::default();
        for (name, rows) in self.0.into_iter().flatten() {
            restored.add(name, rows);
        }
        restored
    }
}

/// What a capture writes of one table.
#[derive(Debug)]
pub struct TableCapture {
    /// How much.
    pub extent: Extent,
    /// Rows that are there, or new.
    pub rows: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Rows that are named as gone.
    pub removed: usize,
    /// Below which time nothing is left.
    pub kept_from: Option<i64>,
}

/// Captures a partition, and reads what it writes of one table.
///
/// # Panics
/// If it writes no such table, or cannot capture it.
pub fn capture_table(partition: &mut dyn Partition, extent: Extent, name: &str) -> TableCapture {
    let captured = partition.capture(extent).expect("it is captured");
    let table = captured.tables.into_iter().find(|table| table.name == name);
    let table = table.unwrap_or_else(|| panic!("there is no table {name}"));
    let (extent, kept_from) = (table.extent, table.kept_from);
    let captured = (table.rows)().expect("it is read");
    let count = |rows: &[RecordBatch]| rows.iter().map(RecordBatch::num_rows).sum();
    let bytes = captured.rows.iter().map(batch_bytes).sum();
    let (rows, removed) = (count(&captured.rows), count(&captured.removed));
    TableCapture { extent, rows, bytes, removed, kept_from }
}

/// Runs an operator twice side by side. One is captured whole now and then, and read at once. The
/// other is captured at the same places, often for changes only, and read some steps later: put
/// together that must be the same. The time of the clock passes.
///
/// # Panics
/// If it is not, or if a run fails.
pub fn check_captures(operator: &dyn Operator, script: &[Event], options: &DriveOptions) {
    let what = format!("{} with {options:?}", operator.name());
    Pair::new(operator, script, options)
        .and_then(|pair| pair.run(script, options))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// Captures that have not been read.
struct Unread {
    expected: Vec<Tables>,
    captured: Vec<Vec<CapturedTable>>,
    steps: u64,
}

struct Pair<'a> {
    at_once: Driver<'a>,
    later: Driver<'a>,
    random: SplitMix64,
    kept: Option<Vec<Tables>>,
    unread: Option<Unread>,
}

impl<'a> Pair<'a> {
    fn new(
        operator: &'a dyn Operator,
        script: &[Event],
        options: &DriveOptions,
    ) -> Result<Pair<'a>> {
        Ok(Pair {
            at_once: Driver::new(operator, script, options)?,
            later: Driver::new(operator, script, options)?,
            random: SplitMix64::new(options.seed),
            kept: None,
            unread: None,
        })
    }

    fn run(mut self, script: &[Event], options: &DriveOptions) -> Result<()> {
        let cut =
            Cut { bundle_rows: options.bundle_rows, empty_bundles: false, early: options.early };
        for action in input::actions(script, &cut, &mut self.random) {
            match self.unread.as_mut().map(|unread| &mut unread.steps) {
                None | Some(0) => self.read()?,
                Some(steps) => *steps -= 1,
            }
            if self.random.below(4) == 0 {
                self.read()?;
                self.capture()?;
            }
            let passed = Duration::from_millis(self.random.below(PASSED_MS_MAX));
            for driver in [&mut self.at_once, &mut self.later] {
                driver.clock.advance(passed);
                match &action {
                    Action::Rows(bundle) => driver.rows(bundle)?,
                    Action::Watermark(watermark) => driver.watermark(*watermark, Vec::new())?,
                }
            }
        }
        self.read()
    }

    fn capture(&mut self) -> Result<()> {
        let mut expected = Vec::new();
        for partition in &mut self.at_once.partitions {
            let mut tables = Tables::new();
            take_over(&mut tables, partition.capture(Extent::Full)?.tables)?;
            expected.push(tables);
        }
        let is_whole = self.kept.is_none() || self.random.below(3) == 0;
        let extent = if is_whole { Extent::Full } else { Extent::Incremental };
        let mut captured = Vec::new();
        for partition in &mut self.later.partitions {
            let stopped = stop_tracking(partition.as_mut(), &mut self.random);
            let tables = partition.capture(extent)?.tables;
            let is_stopped = |table: &&CapturedTable| stopped.contains(&table.name);
            let mut full = tables.iter().filter(is_stopped);
            assert!(full.all(|table| table.extent == Extent::Full), "{stopped:?}");
            check_changes_are_known(partition.as_mut(), &tables);
            captured.push(tables);
            stop_tracking(partition.as_mut(), &mut self.random);
        }
        self.unread = Some(Unread { expected, captured, steps: self.random.below(4) });
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let Some(unread) = self.unread.take() else { return Ok(()) };
        let count = unread.captured.len();
        let kept = self.kept.get_or_insert_with(|| vec![Tables::new(); count]);
        for (tables, captured) in kept.iter_mut().zip(unread.captured) {
            take_over(tables, captured)?;
        }
        let texts = |of: &[Tables]| of.iter().map(all_texts).collect::<Result<Vec<_>>>();
        assert_eq!(texts(kept)?, texts(&unread.expected)?, "what was read later");
        Ok(())
    }
}

/// Stops tracking the changes of one table in four; their names.
fn stop_tracking(partition: &mut dyn Partition, random: &mut SplitMix64) -> Vec<&'static str> {
    let tables = partition.table_changes().into_iter().map(|table| table.name);
    let stopped: Vec<&'static str> = tables.filter(|_| random.below(4) == 0).collect();
    stopped.iter().for_each(|table| partition.stop_tracking(table));
    let unknown = partition.table_changes().into_iter().filter(|table| table.changed.is_none());
    let unknown: Vec<&'static str> = unknown.map(|table| table.name).collect();
    assert!(stopped.iter().all(|table| unknown.contains(table)), "{stopped:?} of {unknown:?}");
    stopped
}

/// Of what is written in changes it is known how much has changed, else it would cost more than
/// full captures where most changes. Rows that expire are written once in any case, and what is
/// noted of late rows goes with their table.
fn check_changes_are_known(partition: &mut dyn Partition, tables: &[CapturedTable]) {
    let known = partition.table_changes();
    for table in tables.iter().filter(|table| table.extent == Extent::Incremental) {
        let own = table.name.trim_end_matches("_late");
        let is_known = known.iter().any(|known| known.name == own);
        assert!(is_known || table.kept_from.is_some(), "{table:?} of {known:?}");
    }
}

/// Takes over what a partition captured.
fn take_over(tables: &mut Tables, captured: Vec<CapturedTable>) -> Result<()> {
    // A table that is not captured is empty.
    tables.retain(|name, _| captured.iter().any(|table| table.name == *name));
    captured.into_iter().try_for_each(|table| apply(tables, table))
}

/// By what rows of a captured table expire: the values of its second column.
pub fn expiry_times(batch: &RecordBatch) -> &[i64] {
    let column = batch.column(1);
    match column.as_primitive_opt::<Int64Type>() {
        Some(times) => times.values(),
        None => column.as_primitive::<TimestampMillisecondType>().values(),
    }
}

/// Takes a table over as whoever keeps snapshots does.
fn apply(tables: &mut Tables, table: CapturedTable) -> Result<()> {
    let (width, kept_from) = (table.identity_columns, table.kept_from);
    let captured = (table.rows)()?;
    let kept = tables.entry(table.name).or_default();
    match table.extent {
        Extent::Full => {
            assert!(captured.removed.is_empty(), "nothing is removed from what is whole");
            kept.clear();
        }
        Extent::Incremental => {
            assert!(width > 0, "changes go by identity");
            let (new, gone) =
                (identities(&captured.rows, width)?, identities(&captured.removed, width)?);
            assert!(gone.is_disjoint(&new), "what came again is not removed");
            if !(new.is_empty() && gone.is_empty()) {
                let is_kept = |own: &str| !new.contains(own) && !gone.contains(own);
                retain(kept, width, is_kept)?;
            }
        }
    }
    kept.extend(captured.rows);
    if let Some(kept_from) = kept_from {
        for batch in kept.iter_mut() {
            let wanted = expiry_times(batch).iter().map(|&time| Some(time >= kept_from));
            *batch = filter_record_batch(batch, &wanted.collect::<BooleanArray>())?;
        }
    }
    kept.retain(|batch| batch.num_rows() > 0);
    Ok(())
}

fn identities(batches: &[RecordBatch], width: usize) -> Result<HashSet<String>> {
    Ok(texts(batches, width)?.into_iter().collect())
}

/// Leaves those rows whose identity is wanted.
fn retain(
    batches: &mut [RecordBatch],
    width: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    for batch in batches {
        let identities = texts(std::slice::from_ref(batch), width)?;
        let wanted = identities.iter().map(|identity| Some(is_wanted(identity)));
        *batch = filter_record_batch(batch, &wanted.collect::<BooleanArray>())?;
    }
    Ok(())
}

/// All rows of all tables.
fn all_texts(tables: &Tables) -> Result<BTreeMap<&'static str, BTreeSet<String>>> {
    let of_table = |(name, rows): (&&'static str, &Vec<RecordBatch>)| {
        Ok((*name, texts(rows, usize::MAX)?.into_iter().collect()))
    };
    tables.iter().map(of_table).collect()
}

/// The same rows in an order in which they may stand when changes have been put together: those of
/// one identity as they were, others anyhow.
pub(super) fn folded(rows: Vec<RecordBatch>, width: usize) -> Result<Vec<RecordBatch>> {
    if width == 0 {
        return Ok(rows);
    }
    let (mut older, mut newer) = (Vec::new(), Vec::new());
    for batch in rows {
        let sum = |text: &str| text.bytes().fold(0_u8, |sum, byte| sum.rotate_left(1) ^ byte);
        let identities = texts(std::slice::from_ref(&batch), width)?;
        let is_new = identities.iter().map(|identity| Some(sum(identity) % 2 == 0));
        let is_new: BooleanArray = is_new.collect();
        newer.push(filter_record_batch(&batch, &is_new)?);
        older.push(filter_record_batch(&batch, &BooleanArray::new(!is_new.values(), None))?);
    }
    older.extend(newer);
    older.retain(|batch| batch.num_rows() > 0);
    Ok(older)
}

/// The first columns of rows, this many at most, as texts.
fn texts(batches: &[RecordBatch], width: usize) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut texts = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().take(width);
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            texts.push(values.join("\u{1f}"));
        }
    }
    Ok(texts)
}
