//! Changes that wait to leave: where their rows lie, what they do, their ranks, and what caused
//! them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_core::{Output, Place, Result, RowKind};

use crate::rows::arena::{Arena, ArenaPlace};
use crate::rows::columns::batch_of;

/// The most rows of one batch.
const BATCH_ROWS_MAX: usize = 1 << 14;
/// This many changes leave before the piece is done: that bounds memory, and keeps them in the
/// cache.
const WAITING_MAX: usize = 1 << 15;

/// Changes in the order in which they leave.
pub(super) struct TopNChanges {
    schema: SchemaRef,
    /// Columns of the rows that leave: all of the input.
    columns: Vec<usize>,
    has_ranks: bool,
    places: Vec<ArenaPlace>,
    kinds: Vec<RowKind>,
    ranks: Vec<i64>,
    causes: Vec<u32>,
}

impl TopNChanges {
    /// No changes yet, of this many columns of the input, and a rank if it leaves.
    pub fn new(schema: SchemaRef, input_columns: usize, has_ranks: bool) -> Self {
        TopNChanges {
            schema,
            columns: (0..input_columns).collect(),
            has_ranks,
            places: Vec::new(),
            kinds: Vec::new(),
            ranks: Vec::new(),
            causes: Vec::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, kind: RowKind, place: ArenaPlace, rank: usize, cause: u32) {
        self.places.push(place);
        self.kinds.push(kind);
        self.causes.push(cause);
        if self.has_ranks {
            self.ranks.push(rank as i64);
        }
    }

    /// True if they should leave soon.
    pub fn are_many(&self) -> bool {
        self.kinds.len() >= WAITING_MAX
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Sends all out as a changelog.
    pub fn emit(&mut self, arena: &Arena, piece: &[ArrayRef], output: &mut Output) -> Result<()> {
        let count = self.kinds.len();
        for start in (0..count).step_by(BATCH_ROWS_MAX) {
            let range = start..count.min(start + BATCH_ROWS_MAX);
            let batch = self.batch(range.clone(), arena, piece)?;
            let place = Place::Caused(self.causes[range.clone()].to_vec());
            output.emit_changes(batch, Arc::from(&self.kinds[range]), place);
        }
        self.clear();
        Ok(())
    }

    /// Sends all out as new rows of windows with this end.
    pub fn emit_window(&mut self, arena: &Arena, end: i64, output: &mut Output) -> Result<()> {
        let count = self.kinds.len();
        for start in (0..count).step_by(BATCH_ROWS_MAX) {
            let range = start..count.min(start + BATCH_ROWS_MAX);
            output.emit_at(self.batch(range, arena, &[])?, Place::WindowEnd(end));
        }
        self.clear();
        Ok(())
    }

    fn batch(&self, range: Range<usize>, arena: &Arena, piece: &[ArrayRef]) -> Result<RecordBatch> {
        let mut columns = arena.gather(&self.places[range.clone()], piece, &self.columns)?;
        if self.has_ranks {
            columns.push(Arc::new(Int64Array::from(self.ranks[range.clone()].to_vec())));
        }
        batch_of(&self.schema, columns, range.len())
    }

    fn clear(&mut self) {
        self.places.clear();
        self.kinds.clear();
        self.ranks.clear();
        self.causes.clear();
    }

    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<ArenaPlace>()
            + self.kinds.capacity()
            + self.ranks.capacity() * 8
            + self.causes.capacity() * 4
    }
}
