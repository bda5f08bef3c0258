//! The operators whose late rows a table wants.
//!
//! A list that grows while the plan is lowered. The chains are made at the end
//! (`late::late_edges`), when all operators are known, since they lead to one sink.

use thalweg_core::TableSchema;
use thalweg_core::graph::StageId;
use thalweg_operators::join::sides::{Side, Sides};

use crate::logical::{Field, TimeAttribute};

/// The operators whose late rows are wanted.
/// Filled only for policy `Emit`.
#[derive(Default)]
pub(super) struct LateRows {
    pub(super) operators: Vec<LateOperator>,
}

/// An operator, and where the table's columns stand in its late rows.
pub(super) struct LateOperator {
    /// The operator's stage.
    pub(super) stage: StageId,
    /// The columns of a late row: those of the operator's input.
    pub(super) input: TableSchema,
    /// Where the columns of the table stand in it; `None` for those of the other side of a join.
    /// As many as the table has physical columns.
    pub(super) columns: Vec<Option<usize>>,
    /// For a join, the side whose rows are meant; the others have a chain of their own.
    pub(super) side: Option<Side>,
}

impl LateRows {
    /// Takes note of an operator and the positions of the table's columns in its input.
    pub(super) fn add(&mut self, stage: StageId, input: TableSchema, columns: Vec<usize>) {
        let columns = columns.into_iter().map(Some).collect();
        self.operators.push(LateOperator { stage, input, columns, side: None });
    }

    /// The same for one side of a join, with positions among the columns of that side.
    pub(super) fn add_side(
        &mut self,
        stage: StageId,
        sides: &Sides,
        side: Side,
        columns: &[Option<usize>],
    ) {
        let first = sides.first_column(side);
        let columns = columns.iter().map(|column| column.map(|column| first + column)).collect();
        let input = sides.combined().clone();
        self.operators.push(LateOperator { stage, input, columns, side: Some(side) });
    }
}

/// True if rows can be late for an operator over this row time. The time of a window is newer than
/// every watermark before it.
pub(super) fn can_be_late(fields: &[Field], rowtime: usize) -> bool {
    fields[rowtime].time == TimeAttribute::RowTime
}
