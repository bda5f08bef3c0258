//! What stands in front of each input of a vertex that has several: it turns the watermarks of its
//! input, and its end, into rows for all partitions. So a vertex learns of each input apart, in
//! order with its items, though the engine calls operators with the watermark of all of them.
//!
//! Rows pass as they are. It keeps nothing: after a restart the vertex knows which inputs have
//! ended.

use std::sync::Arc;

use arrow_array::{Int16Array, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_core::operator::{Partition, WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Captured, Extent, Operator, Output, PartitionContext, Piece, Place, Progress, Restored, Result,
};
use thalweg_operators::limit::rows_of;

use crate::rows::codec::RowWriter;

/// The ordinal in the rows that carry watermarks of an input: below zero.
pub(super) fn control_of(input: i16) -> i16 {
    -1 - input
}

/// The operator in front of an input.
pub(super) struct InputTap {
    pub name: String,
    pub input: i16,
    pub interest: WatermarkInterest,
    pub schema: SchemaRef,
}

impl Operator for InputTap {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn takes_slices(&self) -> bool {
        false
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        self.interest != WatermarkInterest::EndOnly
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        self.interest.clone()
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let control = control_of(self.input);
        Ok(Box::new(TapPartition { control, schema: Arc::clone(&self.schema) }))
    }
}

struct TapPartition {
    control: i16,
    schema: SchemaRef,
}

impl Partition for TapPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        let all = || (0..piece.num_rows() as u32).collect();
        let causes = piece.rows.map_or_else(all, <[u32]>::to_vec);
        output.emit_at(rows_of(&piece)?, Place::Caused(causes));
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let mut watermark = RowWriter::new();
        watermark.push(&call.watermark.0)?;
        let columns = vec![
            Arc::new(Int16Array::from(vec![self.control])) as _,
            Arc::new(Int16Array::new_null(1)) as _,
            watermark.column(),
        ];
        let row = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        output.emit_at(row, Place::WindowEnd(call.watermark.0));
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn capture(&mut self, _: Extent) -> Result<Captured> {
        Ok(Captured::default())
    }

    fn restore(&mut self, _: &Restored) -> Result<()> {
        Ok(())
    }
}
