//! Windows and patterns over processing time: the time of a row is when the operator takes it.
//!
//! [`ClockWindows`] wraps an operator over event time. Rows get the clock's time in the place of
//! their row time, and the clock is the watermark: it closes windows by [`Partition::tick`],
//! whether rows come or not, and at the end of the input all that are left.
//!
//! **Invariants.** A partition's clock never goes back, whatever the machine's does; so no row is
//! late. Which window a row belongs to is decided when it is taken, not when ticks come: a window
//! that is over takes nothing even while it has not been closed yet. Watermarks of the input mean
//! nothing here, and the result has none but the last one.
//!
//! Where a sequence is promised (and the clock has been admitted to it) nobody ticks. There is one
//! partition then, which closes what is over before it takes the next rows.
//!
//! **Snapshots.** The tables of the wrapped windows, and `clock`: one row per partition, for all
//! virtual partitions. Restoring takes the highest `now_ms`, so that time does not go back for any
//! key, and the lowest `closed_ms`, so that no window of a slower partition is skipped.

use std::sync::{Arc, OnceLock};

use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Bundle, Captured, Exchange, Extent, Grid, Operator, Output, Partition, PartitionContext, Piece,
    Place, Progress, Restored, Result, Route, TableChanges, Watermark, WatermarkBefore,
};

use super::calls::mark;
use crate::keys::route_by_keys;
use crate::tables::{add_table, for_all, numbers, state_batch};

/// The table of state next to those of the windows: where the clock of each partition stands.
const CLOCK: &str = "clock";
const NOW_MS: &str = "now_ms";
const CLOSED_MS: &str = "closed_ms";
const ENDED: &str = "ended";

/// Windows over processing time.
pub struct ClockWindows {
    inner: Arc<dyn Operator>,
    rowtime: usize,
    keys: Vec<usize>,
    ordered: bool,
}

impl ClockWindows {
    /// Lays the windows of an operator over the clock. `rowtime` and `keys` are the columns that
    /// the operator has for its row time and its keys; what the row time holds is not read.
    /// `ordered`: a sequence is promised.
    pub fn new(inner: Arc<dyn Operator>, rowtime: usize, keys: Vec<usize>, ordered: bool) -> Self {
        ClockWindows { inner, rowtime, keys, ordered }
    }
}

impl Operator for ClockWindows {
    fn name(&self) -> String {
        format!("{} of the clock", self.inner.name())
    }
    fn is_singleton(&self) -> bool {
        self.ordered
    }
    fn uses_processing_time(&self) -> bool {
        true
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        // Rows come by key, so each partition is to its operator the only one.
        let inner = self.inner.open(PartitionContext { partition: 0, partitions: 1, ..opening })?;
        let ends = match self.inner.watermark_interest() {
            WatermarkInterest::Grids(grids) => grids,
            WatermarkInterest::Every | WatermarkInterest::EndOnly => Vec::new(),
        };
        Ok(Box::new(ClockPartition {
            inner,
            closing_phase: self.inner.watermark_phases() - 1,
            exchange: Exchange::new(1),
            rowtime: self.rowtime,
            ends,
            now_ms: i64::MIN,
            closed_ms: i64::MIN,
            ordered: self.ordered,
            ended: false,
        }))
    }
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (input == Watermark::END).then_some(input)
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

struct ClockPartition {
    inner: Box<dyn Partition>,
    /// The phase of a watermark in which a lone partition closes windows.
    closing_phase: usize,
    exchange: Exchange,
    rowtime: usize,
    /// When windows can end; empty where that depends on the rows.
    ends: Vec<Grid>,
    /// The clock when it was last read; `i64::MIN` before the first row.
    now_ms: i64,
    /// All windows that end by then have left.
    closed_ms: i64,
    ordered: bool,
    ended: bool,
}

impl ClockPartition {
    fn read_clock(&mut self, output: &Output) {
        if self.now_ms == i64::MIN {
            self.closed_ms = output.wall_ms();
        }
        self.now_ms = self.now_ms.max(output.wall_ms());
    }

    /// Closes the windows that are over.
    fn close(&mut self, output: &mut Output) -> Result<Progress> {
        let progress = self.advance(Watermark(self.now_ms - 1), output)?;
        if progress == Progress::Done {
            self.closed_ms = self.now_ms;
        }
        Ok(progress)
    }

    fn advance(&mut self, watermark: Watermark, output: &mut Output) -> Result<Progress> {
        let call = WatermarkCall { watermark, phase: self.closing_phase, exchange: &self.exchange };
        self.inner.watermark(&call, output)
    }

    /// All windows that are over leave before the next rows.
    fn close_over(&mut self, output: &mut Output) -> Result<()> {
        while self.close(output)? == Progress::More {}
        for emitted in &mut output.emitted {
            emitted.place = Place::AsEmitted;
        }
        Ok(())
    }

    /// The bundle with the clock's time as the time of each row.
    fn timed(&self, bundle: &Bundle) -> Result<Bundle> {
        let schema = bundle.batch.schema();
        let times = TimestampMillisecondArray::from_value(self.now_ms, bundle.num_rows());
        let times = times.with_data_type(schema.field(self.rowtime).data_type().clone());
        let mut columns = bundle.batch.columns().to_vec();
        columns[self.rowtime] = Arc::new(times) as ArrayRef;
        let mut stamps = bundle.stamps.clone();
        stamps.watermark_before = WatermarkBefore::All(Watermark(self.now_ms - 1));
        stamps.time_extremes = OnceLock::new();
        let batch = RecordBatch::try_new(schema, columns)?;
        Ok(Bundle { batch, stamps, kinds: bundle.kinds.clone() })
    }
}

impl Partition for ClockPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.read_clock(output);
        if self.ordered {
            self.close_over(output)?;
        }
        let bundle = self.timed(piece.bundle)?;
        self.inner.rows(Piece { bundle: &bundle, lanes: 1, ..piece }, output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if call.watermark != Watermark::END {
            return Ok(Progress::Done);
        }
        self.ended = true;
        self.advance(Watermark::END, output)
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        self.inner.state_keys()
    }

    fn wakes_at(&self) -> Watermark {
        Watermark::END
    }

    /// Captures the windows, and for all partitions where this one's clock stands.
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let mut captured = self.inner.capture(extent)?;
        let clock = vec![
            mark::<Int64Type>(NOW_MS, [self.now_ms]),
            mark::<Int64Type>(CLOSED_MS, [self.closed_ms]),
            mark::<UInt8Type>(ENDED, [u8::from(self.ended)]),
        ];
        add_table(&mut captured, CLOCK, state_batch(for_all(1), clock)?);
        Ok(captured)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        self.inner.table_changes()
    }

    fn stop_tracking(&mut self, table: &str) {
        self.inner.stop_tracking(table);
    }

    /// Continues where the latest of the clocks stands; what the slowest has not closed, it closes.
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.inner.restore(restored)?;
        let clock = |name| numbers::<Int64Type>(restored, CLOCK, name);
        let (now_ms, closed_ms) = (clock(NOW_MS)?, clock(CLOSED_MS)?);
        // A clock that has not been read yet says nothing.
        let read = now_ms.iter().zip(&closed_ms).filter(|&(&now_ms, _)| now_ms > i64::MIN);
        self.now_ms = read.clone().map(|(&now_ms, _)| now_ms).max().unwrap_or(i64::MIN);
        self.closed_ms = read.map(|(_, &closed_ms)| closed_ms).min().unwrap_or(i64::MIN);
        let ended = numbers::<UInt8Type>(restored, CLOCK, ENDED)?;
        self.ended = ended.iter().any(|&ended| ended > 0);
        Ok(())
    }

    fn ticks_at(&self) -> Option<i64> {
        if self.ended || self.now_ms == i64::MIN {
            return None;
        }
        if self.ends.is_empty() {
            let first = self.inner.wakes_at();
            return (first != Watermark::END).then(|| first.0.saturating_add(1));
        }
        self.ends.iter().map(|ends| ends.start(ends.index(self.closed_ms) + 1)).min()
    }

    fn tick(&mut self, output: &mut Output) -> Result<Progress> {
        self.read_clock(output);
        self.close(output)
    }
}
