//! Keeps the rows of a table that can be asked while its job runs.
//!
//! Changes come in by primary key; the newest row of each key stays. At each capture, hence at each
//! cut of the job, a version of the table is staged ([`LiveTable::stage`]); the sink behind the
//! operator publishes it when the snapshot is durable. The end of the input stages the last one.
//!
//! The operator has one partition, so a version is complete when it is staged: no partition has to
//! wait for another. Its state is a table of rows with serials; captures are incremental.
//!
//! **Invariant:** a version that is published is that of a durable snapshot, or of the end of the
//! input. So a restored job never shows less than was seen before it failed.

mod store;

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt8Array, UInt64Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::live::LiveTable;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::SharedClock;
use thalweg_core::{
    Captured, CapturedTable, Extent, Operator, Output, Partition, PartitionContext, Piece,
    Progress, Restored, Result, RowKind, TableChanges, TableRows, TableSchema, Watermark,
};

use crate::capture::GONE_MIN;
use crate::capture::rows::{SERIAL, SERIAL_IDENTITY, removed};
use crate::limit::rows_of;
use crate::tables::{kept_batch, kept_columns, kept_schema, numbers_of};
use store::{RowStore, SerialRows};

/// The table of state.
const ROWS: &str = "rows";
/// The virtual partition of all rows: there is one partition.
const OWNER: u8 = 0;

/// What is kept.
pub struct KeepRowsSpec {
    /// Where versions are staged.
    pub table: Arc<LiveTable>,
    /// What versions are dated by.
    pub clock: SharedClock,
}

/// Keeps the rows of a [`LiveTable`].
pub struct KeepRows {
    spec: Arc<KeepRowsSpec>,
}

impl KeepRows {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a column cannot be a key.
    pub fn new(spec: KeepRowsSpec) -> Result<Self> {
        RowStore::new(&spec.table.schema, &spec.table.primary_key)?;
        Ok(KeepRows { spec: Arc::new(spec) })
    }
}

impl Operator for KeepRows {
    fn name(&self) -> String {
        "keep rows".to_owned()
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let table = &self.spec.table;
        table.begin_run();
        Ok(Box::new(KeepRowsPartition {
            store: RowStore::new(&table.schema, &table.primary_key)?,
            schema: kept_schema(&[(SERIAL, Arrow::UInt64)], &table.schema),
            spec: Arc::clone(&self.spec),
            captured: 0,
            gone: None,
            written: 0,
        }))
    }
    fn memory_hint(&self) -> &'static str {
        "raise 'memory.limit', or keep fewer rows: group by fewer keys, or name a shorter PRIMARY KEY"
    }
}

struct KeepRowsPartition {
    spec: Arc<KeepRowsSpec>,
    store: RowStore,
    /// Of the table of state.
    schema: SchemaRef,
    /// Rows with lower serials were captured.
    captured: u64,
    /// The serials of captured rows that have gone since; `None` where that is not tracked.
    gone: Option<Vec<u64>>,
    /// Rows that captures have written, the last full one and those after it.
    written: u64,
}

impl KeepRowsPartition {
    fn stage(&self) {
        self.spec.table.stage(self.store.version(), self.spec.clock.wall_ms());
    }

    fn table(&self) -> &TableSchema {
        &self.spec.table.schema
    }
}

impl Partition for KeepRowsPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        let kinds = piece.bundle.kinds.as_ref();
        let row = |n: usize| piece.rows.map_or(n, |rows| rows[n] as usize);
        let kind = |n: usize| kinds.map_or(RowKind::Insert, |kinds| kinds[row(n)]);
        let (captured, gone) = (self.captured, &mut self.gone);
        let note = |serial: u64| {
            if let Some(gone) = gone.as_mut().filter(|_| serial < captured) {
                gone.push(serial);
            }
        };
        self.store.apply(&rows_of(&piece)?, kind, note)?;
        let gone_max = self.store.live().max(GONE_MIN);
        self.gone.take_if(|gone| gone.len() > gone_max);
        Ok(())
    }
    fn watermark(&mut self, call: &WatermarkCall<'_>, _output: &mut Output) -> Result<Progress> {
        if call.watermark == Watermark::END {
            self.stage();
        }
        Ok(Progress::Done)
    }
    fn wakes_at(&self) -> Watermark {
        Watermark::END
    }
    fn state_bytes(&self) -> usize {
        self.store.bytes() + self.gone.as_ref().map_or(0, |gone| gone.capacity() * size_of::<u64>())
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.store.live())
    }
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.stage();
        let gone = self.gone.replace(Vec::new());
        let (extent, first, gone) = match (extent, gone) {
            (Extent::Incremental, Some(gone)) => (Extent::Incremental, self.captured, gone),
            _ => (Extent::Full, 0, Vec::new()),
        };
        let make = self.store.rows_from(first);
        self.written = match extent {
            Extent::Full => self.store.live() as u64,
            Extent::Incremental => self.written + (self.store.next_serial() - first),
        };
        self.captured = self.store.next_serial();
        let schema = Arc::clone(&self.schema);
        let rows = Box::new(move || {
            let of_chunk = |rows: SerialRows| state_rows(&schema, rows);
            let rows = make()?.into_iter().map(of_chunk).collect::<Result<_>>()?;
            let names: Vec<(u8, u64)> = gone.iter().map(|&serial| (OWNER, serial)).collect();
            Ok(TableRows { rows, removed: removed(&names)? })
        });
        let (identity_columns, kept_from) = (SERIAL_IDENTITY, None);
        let schema = Arc::clone(&self.schema);
        let table = CapturedTable { name: ROWS, schema, extent, identity_columns, kept_from, rows };
        Ok(Captured { tables: vec![table] })
    }
    fn table_changes(&mut self) -> Vec<TableChanges> {
        if self.written == 0 && self.captured == 0 {
            return Vec::new();
        }
        let new = self.store.next_serial() - self.captured;
        let changed = self.gone.as_ref().map(|gone| new + gone.len() as u64);
        let live = self.store.live() as u64;
        vec![TableChanges { name: ROWS, live, changed, written: self.written }]
    }
    fn stop_tracking(&mut self, _table: &str) {
        self.gone = None;
    }
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let columns = self.table().len();
        for batch in restored.table(ROWS) {
            let rows = kept_columns(batch, &self.schema, columns)?;
            let serials = numbers_of::<UInt64Type>(batch, SERIAL)?.to_vec();
            let rows = RecordBatch::try_new(self.table().arrow(), rows)?;
            self.store.restore(rows, serials)?;
        }
        self.stage();
        if let Some(number) = self.spec.table.newest_staged() {
            self.spec.table.publish(number);
        }
        Ok(())
    }
}

/// Rows of the table of state.
fn state_rows(schema: &SchemaRef, (serials, rows): SerialRows) -> Result<RecordBatch> {
    let owners: ArrayRef = Arc::new(UInt8Array::from(vec![OWNER; serials.len()]));
    let serials: ArrayRef = Arc::new(UInt64Array::from(serials));
    debug_assert_eq!(owners.len(), rows.num_rows());
    kept_batch(schema, owners, vec![serials], rows.columns().to_vec())
}
