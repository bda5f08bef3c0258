//! What a snapshot captures of the parts of a job, and restores into those of another run.
//!
//! # The cut
//! A snapshot is taken at a *cut*: every row before it has passed through the whole job, and no row
//! after it has entered. Nothing is in flight, so the job is fully described by how far each source
//! has read, the state of each partition, the watermarks that each operator has seen, and what each
//! sink has prepared. [`Cut`] holds exactly that.
//!
//! # Tables
//! State is captured in tables of Arrow batches ([`CapturedTable`]), so that any program that reads
//! Arrow can open a snapshot. The first column of every table is [`PARTITION_COLUMN`]: the virtual
//! partition that a row belongs to (the top eight bits of the hash of its key), or NULL where a row
//! is for all partitions. That is why a job can resume with another number of partitions: each
//! restores the rows of its range, whichever partition wrote them ([`Restored::of_partition`]).
//!
//! # Full and incremental captures
//! An operator with much state may capture only what has changed since its last capture, if
//! [`Extent::Incremental`] is requested. Its table then says how many columns identify a row: newer
//! rows replace older ones with the same identity, and removed rows are named. (Several rows of one
//! capture may share an identity; they are then replaced and removed together.) Each partition
//! captures its own part; some parts may be incremental and others full. A table that a partition
//! does not capture is one in which it has no rows; an unchanged table is captured incrementally
//! without rows. In an incremental table, the first partition captures the rows that are for all
//! partitions.
//!
//! # Rows that expire
//! Most state of windows and joins expires with the watermark. Such rows are not named when they
//! go: their table has a time in its second column, and says below which time nothing is left
//! ([`CapturedTable::kept_from`]). Files that hold only expired rows are then dropped whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;

use crate::error::{Error, Result};
use crate::partition::PartitionContext;
use crate::time::Watermark;

/// The first column of every table of state: UINT8, the virtual partition of a row; NULL for a row
/// that every partition restores.
pub const PARTITION_COLUMN: &str = "$partition";

/// How much of the state is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Full,
    /// What has changed since the previous capture.
    Incremental,
}

/// What is known of a table of state before a capture: whether it pays to write its changes alone
/// follows from that. Where rows belong to keys, keys are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// The table's name.
    pub name: &'static str,
    /// Rows that there are.
    pub live: u64,
    /// Rows that have changed, come or gone since the last capture; `None` if that was not tracked,
    /// and the next capture is full.
    pub changed: Option<u64>,
    /// Rows that captures have written, the last full one and those after it, without those that
    /// have expired.
    pub written: u64,
}

impl TableChanges {
    /// What is known of a table of two partitions together: if one of them has not tracked changes,
    /// nothing is known of them.
    #[must_use]
    pub fn with(self, other: TableChanges) -> TableChanges {
        TableChanges {
            name: self.name,
            live: self.live + other.live,
            changed: self.changed.zip(other.changed).map(|(own, other)| own + other),
            written: self.written + other.written,
        }
    }
}

/// How a table of state is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableExtent {
    /// How much is captured now.
    pub extent: Extent,
    /// Whether changes are tracked from now on. If they are not, the next capture is full.
    pub tracks: bool,
}

/// The rows of a table of state.
#[derive(Clone, Debug, Default)]
pub struct TableRows {
    /// Rows that are there; among changes, those that are new or changed.
    pub rows: Vec<RecordBatch>,
    /// Among changes: the identities (first columns) of rows that are there no more. Rows that went
    /// and came again stand in `rows` only.
    pub removed: Vec<RecordBatch>,
}

/// Makes the rows of a table; called once, by a thread that has time.
pub type MakeRows = Box<dyn FnOnce() -> Result<TableRows> + Send>;

/// A table of state of one partition.
pub struct CapturedTable {
    /// Its name, unique within the operator and the same in each partition.
    pub name: &'static str,
    /// Its columns, [`PARTITION_COLUMN`] first.
    pub schema: SchemaRef,
    /// How much is captured.
    pub extent: Extent,
    /// How many of the first columns, that of the partition included, identify a row. Zero where
    /// rows have no identity (such a table is always captured in full).
    pub identity_columns: usize,
    /// Rows whose value in the second column (INT64, or a timestamp in milliseconds; not NULL) is
    /// lower are there no more, and need not be named as removed. It never goes down from one
    /// capture to the next. `None` where rows do not expire; then all partitions say so.
    pub kept_from: Option<i64>,
    /// Makes the rows. It holds what it needs: the partition has moved on.
    pub rows: MakeRows,
}

impl std::fmt::Debug for CapturedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, extent, identity_columns, .. } = self;
        write!(f, "{name} ({extent:?}, {identity_columns} identity columns)")
    }
}

/// What one partition keeps.
#[derive(Debug, Default)]
pub struct Captured {
    /// By name.
    pub tables: Vec<CapturedTable>,
}

impl Captured {
    /// Adds a table whose rows are known now, captured in full.
    pub fn add(&mut self, name: &'static str, schema: SchemaRef, rows: Vec<RecordBatch>) {
        let rows = TableRows { rows, removed: Vec::new() };
        self.add_later(name, schema, Box::new(move || Ok(rows)));
    }

    /// Adds a table, captured in full, whose rows are made later.
    pub fn add_later(&mut self, name: &'static str, schema: SchemaRef, rows: MakeRows) {
        let extent = Extent::Full;
        let (identity_columns, kept_from) = (0, None);
        let table = CapturedTable { name, schema, extent, identity_columns, kept_from, rows };
        self.tables.push(table);
    }

    /// Makes all rows of all tables, which must be captured in full, as they are restored later.
    /// For tests and for whoever restores at once.
    ///
    /// # Errors
    /// Those of making the rows.
    pub fn into_restored(self) -> Result<Restored> {
        let mut restored = Restored::default();
        for table in self.tables {
            assert_eq!(table.extent, Extent::Full, "changes alone are no state");
            restored.add(table.name, (table.rows)()?.rows);
        }
        Ok(restored)
    }
}

/// The schema of a table of state: [`PARTITION_COLUMN`], then these columns.
pub fn state_schema(fields: impl IntoIterator<Item = Field>) -> SchemaRef {
    let partition = Field::new(PARTITION_COLUMN, Arrow::UInt8, true);
    Arc::new(Schema::new(std::iter::once(partition).chain(fields).collect::<Vec<_>>()))
}

/// What an operator kept, as it is given back.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    tables: BTreeMap<String, Vec<RecordBatch>>,
}

impl Restored {
    /// Adds rows of a table, behind those it has.
    pub fn add(&mut self, name: &str, rows: Vec<RecordBatch>) {
        self.tables.entry(name.to_owned()).or_default().extend(rows);
    }

    /// The rows of a table, those of each partition that wrote it in their order. None if there is
    /// no such table, which is one that was empty.
    pub fn table(&self, name: &str) -> &[RecordBatch] {
        self.tables.get(name).map_or(&[], Vec::as_slice)
    }

    /// The names of the tables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// What a partition is to be given: the rows of its range of virtual partitions, and those that
    /// are for all.
    ///
    /// # Errors
    /// If a table does not begin with [`PARTITION_COLUMN`].
    pub fn of_partition(&self, opening: PartitionContext) -> Result<Restored> {
        let mut own = Restored::default();
        for (name, batches) in &self.tables {
            let rows = batches.iter().map(|batch| rows_of_partition(batch, opening));
            let rows = rows.filter(|rows| rows.as_ref().map_or(true, |rows| rows.num_rows() > 0));
            own.add(name, rows.collect::<Result<_>>()?);
        }
        Ok(own)
    }
}

fn rows_of_partition(batch: &RecordBatch, opening: PartitionContext) -> Result<RecordBatch> {
    let column = batch.columns().first().and_then(|column| column.as_primitive_opt::<UInt8Type>());
    let Some(column) = column else {
        let message = format!("a table of state does not begin with the column {PARTITION_COLUMN}");
        return Err(Error::data(message).hint("the snapshot is of another version, or damaged"));
    };
    if opening.partitions == 1 {
        return Ok(batch.clone());
    }
    if column.null_count() == 0 {
        // Mostly a batch holds rows of one partition: its owners go up with the partitions.
        let owner =
            |own: Option<&u8>| own.map(|own| partition_of_virtual(*own, opening.partitions));
        let (first, last) =
            (owner(column.values().iter().min()), owner(column.values().iter().max()));
        if first == Some(opening.partition) && last == first {
            return Ok(batch.clone());
        }
        if first > Some(opening.partition) || last < Some(opening.partition) {
            return Ok(batch.slice(0, 0));
        }
    }
    let is_own = |virtual_partition: Option<u8>| match virtual_partition {
        None => true,
        Some(own) => partition_of_virtual(own, opening.partitions) == opening.partition,
    };
    let wanted: BooleanArray = column.iter().map(|own| Some(is_own(own))).collect();
    Ok(filter_record_batch(batch, &wanted)?)
}

/// The partition, of this many, that owns a virtual partition.
pub fn partition_of_virtual(virtual_partition: u8, partitions: usize) -> usize {
    (usize::from(virtual_partition) * partitions) >> 8
}

/// What a sink promises about the rows that a job which failed and was restored has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkGuarantee {
    /// They may be there twice.
    AtLeastOnce,
    /// They may be written twice, and are there once, since rows have a key.
    Idempotent,
    /// They are there once: what a transaction holds becomes visible when it is committed.
    Transactional,
}

/// What is known of the watermarks of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignerPosition {
    /// The running watermark.
    pub running: Watermark,
    /// The watermark that the last epoch ended with.
    pub taken: Watermark,
}

/// What is known of a split of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitState {
    /// Its name, which is the same in every run.
    pub name: Arc<str>,
    /// Its running watermark.
    pub running: Watermark,
    /// The watermark does not wait for it at the moment.
    pub idle: bool,
    /// It has no more rows.
    pub ended: bool,
}

/// What is known of an input lane of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// Its newest watermark; [`Watermark::END`] once it has ended.
    pub watermark: Watermark,
    /// Where the stage brings its inputs into one sequence: the lane is idle.
    pub idle: bool,
}

/// What the runtime knows of the inputs of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputState {
    /// One per lane.
    pub lanes: Vec<LaneState>,
    /// The highest watermark that a lane had before it ended.
    pub ended_at: Watermark,
    /// The joint watermark.
    pub joint: Watermark,
    /// The watermark that was passed on last.
    pub passed: Watermark,
}

/// How far a source has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Where to resume, as the connector writes it; `None` if it cannot be replayed.
    pub position: Option<String>,
    /// Its watermarks, where it has any: the least of its splits.
    pub assigner: Option<AssignerPosition>,
    /// Its splits, where it has named any; else it has one.
    pub splits: Vec<SplitState>,
    /// It has ended.
    pub finished: bool,
    /// It is idle.
    pub idle: bool,
    /// Epochs ended so far.
    pub epoch: u64,
    /// Bundles sent so far.
    pub serial: u64,
    /// The watermark with which an element ended last (ordered contracts).
    pub taken: Watermark,
    /// The time of the last row, where inputs are merged by time.
    pub frontier_ms: i64,
}

/// What a sink has ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkState {
    /// What it promises.
    pub guarantee: SinkGuarantee,
    /// Its prepared transaction, in the connector's own words.
    pub handle: Option<String>,
    /// All of its input has ended.
    pub has_ended: bool,
}

/// What an output says about itself: which lineage of a job it belongs to, and which snapshot it
/// holds.
///
/// A lineage is all runs of a job from one start on, from scratch or from an older snapshot: each
/// of them resumes from a snapshot of the run before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputMark {
    /// The lineage.
    pub lineage: String,
    /// The snapshot of the lineage that was committed last; 0 before the first.
    pub snapshot: u64,
}

/// How a run of a job starts, as far as its outputs are concerned.
#[derive(Clone, Debug, Default)]
pub struct OutputStart {
    /// The marks that an output may have: those of these lineages, up to these snapshots. Where it
    /// has none of them, its place has to be empty.
    pub accepted: Vec<OutputMark>,
    /// The snapshot that the job resumes from was taken when outputs had marks.
    pub is_marked: bool,
    /// A lineage that this start abandons although it has not ended.
    pub abandoned: Option<String>,
    /// The user lets the job replace what it finds.
    pub overwrites: bool,
}

/// How the mark of an output compares with those that a start accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkFit {
    /// It is accepted.
    Fits,
    /// There is none.
    Missing,
    /// It is of an accepted lineage, and of this newer snapshot.
    Ahead(u64),
    /// It is of another lineage.
    Other,
}

impl OutputStart {
    /// Compares the mark of an output.
    pub fn fit(&self, found: Option<&OutputMark>) -> MarkFit {
        let Some(found) = found else { return MarkFit::Missing };
        let own = self.accepted.iter().filter(|own| own.lineage == found.lineage);
        match own.map(|own| own.snapshot).max() {
            None => MarkFit::Other,
            Some(newest) if found.snapshot <= newest => MarkFit::Fits,
            Some(_) => MarkFit::Ahead(found.snapshot),
        }
    }
}

/// A stage at a cut. `T` is what its partitions keep: [`Captured`] for each partition while a
/// snapshot is taken, [`Restored`] for the whole operator when it is given back.
#[derive(Clone, Debug)]
pub struct StageState<T> {
    /// The stage's stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// Nobody needs what it makes any more.
    pub ended: bool,
    /// Where several lanes meet or an operator stands: what is known of the inputs.
    pub inputs: Option<InputState>,
    /// Elements that the stage has numbered so far (ordered contracts).
    pub places: u64,
    /// A source.
    pub source: Option<SourceState>,
    /// A sink.
    pub sink: Option<SinkState>,
    /// What the partitions of an operator keep.
    pub state: T,
    /// Rows that wait for those of other inputs (contract `event_time`).
    pub waiting: T,
}

/// Everything that a job is at a cut.
#[derive(Clone, Debug)]
pub struct Cut<T> {
    /// In topological order.
    pub stages: Vec<StageState<T>>,
    /// Elements ingested so far (ordered contracts).
    pub serial: u64,
    /// All input has ended: nothing is left to be done but to commit.
    pub is_complete: bool,
}

/// What is taken while a job runs: for each operator one capture per partition.
pub type TakenCut = Cut<Vec<Captured>>;
/// What is given back.
pub type RestoredCut = Cut<Restored>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::OrderContract;
    use arrow_array::{ArrayRef, Int64Array, UInt8Array};

    #[test]
    fn each_partition_gets_its_range_and_what_is_for_all() {
        let schema = state_schema([Field::new("n", Arrow::Int64, true)]);
        let owners: ArrayRef =
            Arc::new(UInt8Array::from(vec![Some(0), Some(127), Some(128), None]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
        let batch = RecordBatch::try_new(schema, vec![owners, numbers]).expect("two columns");
        let mut restored = Restored::default();
        restored.add("rows", vec![batch]);
        let of = |partition, partitions| {
            let opening = PartitionContext { partition, partitions, order: OrderContract::Epoch };
            let own = restored.of_partition(opening).expect("the column is there");
            let column =
                own.table("rows")[0].column(1).as_primitive::<arrow_array::types::Int64Type>();
            column.values().to_vec()
        };
        assert_eq!(of(0, 2), [0, 1, 3]);
        assert_eq!(of(1, 2), [2, 3]);
        assert_eq!(of(0, 1), [0, 1, 2, 3]);
        assert_eq!(of(3, 4), [3]);
    }
}
