//! Takes the build side and publishes its table at the end.
//!
//! One partition: the table is one, and reading it once is worth no exchange of parts. Nothing
//! leaves.
//!
//! States: `Collecting` while rows come; `Making` while the table is built, and for good if that
//! fails, so that a second attempt cannot publish half a table; `Done` afterwards. A capture of a
//! `Done` partition writes the rows of the table, so a restored job does not read the bounded side
//! again.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Error, Extent, Operator, Output, Partition, PartitionContext, Piece, Progress,
    Restored, Result, Watermark,
};

use super::reload::{Reader, Reload, Reloading};
use super::snapshot::LastCapture;
use super::table::Collected;
use super::{HashJoinPlan, SharedTable};
use crate::limit::rows_of;
use crate::rows::input::inserts_only;

/// The operator of the build side.
pub struct Build {
    plan: Arc<HashJoinPlan>,
    shared: Arc<SharedTable>,
    reload: Option<Arc<Reload>>,
}

impl Build {
    pub(super) fn new(plan: Arc<HashJoinPlan>, shared: Arc<SharedTable>) -> Self {
        Build { plan, shared, reload: None }
    }

    /// The same with a table that is read again at this interval, once it is there.
    #[must_use]
    pub fn reloading(self, interval: Duration, reader: Reader) -> Self {
        Build { reload: Some(Arc::new(Reload::new(interval, reader))), ..self }
    }

    /// A table of other rows, to be published in the place of the one there is.
    pub fn again(&self) -> Result<BuildTable> {
        BuildTable::new(Arc::clone(&self.plan), Arc::clone(&self.shared))
    }
}

/// A table that is made outside the flow of rows.
pub struct BuildTable {
    plan: Arc<HashJoinPlan>,
    shared: Arc<SharedTable>,
    rows: Collected,
}

impl BuildTable {
    fn new(plan: Arc<HashJoinPlan>, shared: Arc<SharedTable>) -> Result<Self> {
        Ok(BuildTable { rows: Collected::new(&plan)?, plan, shared })
    }

    /// Takes rows with the columns of the build side.
    pub fn add(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows.add(&self.plan, batch)
    }

    /// Puts the table in the place of the one before. Says how many bytes it takes.
    pub fn publish(self) -> Result<usize> {
        let table = self.rows.into_table(&self.plan)?;
        let bytes = table.bytes();
        self.shared.publish(Arc::new(table));
        Ok(bytes)
    }
}

impl Operator for Build {
    fn name(&self) -> String {
        "build".to_owned()
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn memory_hint(&self) -> &'static str {
        "the side of the join that ends is kept as a whole: raise 'memory.limit', select fewer columns of \
         it, or filter its rows"
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
        let state = State::Collecting(Box::new(Collected::new(&plan)?));
        let (reload, reloading) = (self.reload.clone(), None);
        let last_capture = LastCapture::default();
        Ok(Box::new(BuildPartition { plan, shared, state, reload, reloading, last_capture }))
    }
    fn problem(&self) -> Option<String> {
        self.reload.as_ref()?.problem()
    }
}

pub(super) struct BuildPartition {
    pub(super) plan: Arc<HashJoinPlan>,
    pub(super) shared: Arc<SharedTable>,
    pub(super) state: State,
    reload: Option<Arc<Reload>>,
    /// Ends with the partition.
    reloading: Option<Reloading>,
    pub(super) last_capture: LastCapture,
}

pub(super) enum State {
    Collecting(Box<Collected>),
    Done,
    /// On the way from one to the other, and after an error on it.
    Making,
}

impl BuildPartition {
    /// True once the table is there.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Publishes the table of the rows that have come, once.
    pub fn complete(&mut self) -> Result<()> {
        let rows = match std::mem::replace(&mut self.state, State::Making) {
            State::Collecting(rows) => rows,
            other => {
                self.state = other;
                return Ok(());
            }
        };
        let table = Arc::new(rows.into_table(&self.plan)?);
        self.shared.publish(table);
        self.state = State::Done;
        if let Some(reload) = &self.reload {
            let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
            let fresh = move || BuildTable::new(Arc::clone(&plan), Arc::clone(&shared));
            self.reloading = reload.start(fresh)?;
        }
        Ok(())
    }
}

impl Partition for BuildPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        inserts_only(&piece, "the build side of a hash join")?;
        let State::Collecting(rows) = &mut self.state else {
            return Err(Error::internal("a row came to a table that was complete"));
        };
        output.accepted += piece.num_rows() as u64;
        rows.add(&self.plan, rows_of(&piece)?)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, _: &mut Output) -> Result<Progress> {
        if call.watermark != Watermark::END {
            return Ok(Progress::Done);
        }
        self.complete()?;
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        let rows = match &self.state {
            State::Collecting(rows) => rows.bytes(),
            State::Done => self.shared.table().map_or(0, |table| table.bytes()),
            State::Making => 0,
        };
        size_of::<Self>() + rows
    }

    fn state_keys(&self) -> Option<usize> {
        match &self.state {
            State::Collecting(rows) => Some(rows.key_count()),
            State::Done => self.shared.table().ok().map(|table| table.key_count()),
            State::Making => None,
        }
    }

    fn wakes_at(&self) -> Watermark {
        Watermark::END
    }
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.capture_state(extent)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
