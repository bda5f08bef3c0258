//! What must hold of a pair besides equal keys, over the columns that it reads: no others are
//! gathered to decide.
//!
//! The condition sees a batch of pairs with these columns only, in the order of the full schema
//! (left before right), renumbered from 0. All of them are nullable in that schema, since a
//! gathered row may be the row of NULLs.

use crate::rows::columns::batch_of;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use thalweg_core::{Column, Result, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr};

use super::sides::{Side, Sides};

/// A residual condition.
pub(crate) struct Residual {
    condition: Expr,
    columns: [Vec<usize>; 2],
    schema: SchemaRef,
}

/// The columns of pairs that a condition reads: those of the left side, then those of the right.
pub(crate) struct ResidualPairs {
    batch: RecordBatch,
}

impl Residual {
    /// A condition over the columns of the left side, then those of the right.
    pub fn new(condition: &Expr, sides: &Sides) -> Self {
        let left = sides.schema(Side::Left).len();
        let both: Vec<&Column> = [Side::Left, Side::Right]
            .into_iter()
            .flat_map(|side| &sides.schema(side).columns)
            .collect();
        let read: Vec<usize> = condition.columns().into_iter().collect();
        let fields = read.iter().filter_map(|&n| both.get(n)).map(|column| {
            let column_type = column.column_type.clone().with_nullable(true);
            column_type.field(&column.name)
        });
        let of_left = read.iter().copied().filter(|&n| n < left).collect();
        let of_right = read.iter().filter(|&&n| n >= left).map(|n| n - left).collect();
        Residual {
            condition: condition.remap(&|column| read.binary_search(&column).unwrap_or(column)),
            columns: [of_left, of_right],
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        }
    }

    /// The columns of a side that it reads.
    pub fn columns(&self, side: Side) -> &[usize] {
        &self.columns[side as usize]
    }

    /// This many pairs, of whose columns these are read.
    ///
    /// # Errors
    /// If they are others.
    pub fn pairs(
        &self,
        mut left: Vec<ArrayRef>,
        right: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<ResidualPairs> {
        left.extend(right);
        Ok(ResidualPairs { batch: batch_of(&self.schema, left, rows)? })
    }

    /// For which pairs it holds.
    ///
    /// # Errors
    /// If it fails for one.
    pub fn holds(
        &self,
        pairs: &ResidualPairs,
        watermark_before: &WatermarkBefore,
        wall_ms: i64,
    ) -> Result<BooleanArray> {
        let context = EvalContext { batch: &pairs.batch, watermark_before, wall_ms };
        self.condition.evaluate_mask(&context)
    }

    /// True if it may fail for some values.
    pub fn can_fail(&self) -> bool {
        self.condition.can_fail()
    }
}

impl ResidualPairs {
    /// Some of them.
    pub fn filtered(&self, kept: &BooleanArray) -> Result<ResidualPairs> {
        Ok(ResidualPairs { batch: arrow_select::filter::filter_record_batch(&self.batch, kept)? })
    }
}
