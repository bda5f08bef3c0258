//! Steps that make many rows of one stop where enough is made, and continue there.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use thalweg_core::bundle::batch_bytes;

use super::rows::Rows;

/// Where a step continues.
#[derive(Clone, Default)]
pub(super) struct Cursor {
    /// The row that is next.
    pub row: usize,
    /// How many rows were made of it.
    pub nth: usize,
    /// What was computed for all rows.
    pub array: Option<ArrayRef>,
    /// How many rows to try, where that has to be found out.
    pub rows_max: Option<usize>,
}

impl Cursor {
    /// True before the first row.
    pub fn is_start(&self) -> bool {
        (self.row, self.nth) == (0, 0)
    }
}

/// Rows in front of a step.
pub(super) struct Pending {
    /// The step.
    pub step: usize,
    pub rows: Rows,
    /// Where the step continues with them.
    pub from: Cursor,
}

/// What is left of a bundle. The last one is next: it came of rows in front of all others.
pub(super) type Stack = Vec<Pending>;

/// How many copies of rows may be made.
pub(super) struct Budget {
    columns: Vec<RowBytes>,
    appended: usize,
    left: usize,
    has_made: bool,
}

impl Budget {
    /// For copies of the rows of a batch that take this many bytes, each with some bytes appended.
    /// `is_read` says which columns are copied.
    pub fn new(
        batch: &RecordBatch,
        is_read: impl Fn(usize) -> bool,
        appended: usize,
        room_bytes: usize,
    ) -> Self {
        let read = batch.columns().iter().enumerate().filter(|(place, _)| is_read(*place));
        let columns = read.map(|(_, column)| RowBytes::of(column)).collect();
        Budget { columns, appended, left: room_bytes, has_made: false }
    }

    /// True if this many copies can be made, whichever the rows are. False if that is not known.
    pub fn is_plenty(&self, copies: usize) -> bool {
        let fixed = |column: &RowBytes| match column {
            RowBytes::Fixed(bytes) => Some(*bytes),
            _ => None,
        };
        let bytes: Option<usize> = self.columns.iter().map(fixed).sum();
        bytes.is_some_and(|bytes| copies.saturating_mul(bytes + self.appended) <= self.left)
    }

    /// How many of this many copies of a row can be made; of the first one at least one.
    pub fn take(&mut self, row: usize, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let bytes: usize = self.columns.iter().map(|column| column.at(row)).sum();
        let bytes = (bytes + self.appended).max(1);
        let copies = (self.left / bytes).max(usize::from(!self.has_made)).min(wanted);
        self.left = self.left.saturating_sub(copies.saturating_mul(bytes));
        self.has_made |= copies > 0;
        copies
    }
}

/// About how many bytes a copy of a value takes.
enum RowBytes {
    Fixed(usize),
    Lists(OffsetBuffer<i32>, usize),
    Fields(Vec<RowBytes>),
}

impl RowBytes {
    fn of(column: &ArrayRef) -> Self {
        if let Some(width) = column.data_type().primitive_width() {
            return RowBytes::Fixed(width);
        }
        match column.data_type() {
            DataType::Null => RowBytes::Fixed(0),
            DataType::Boolean => RowBytes::Fixed(1),
            // The text itself is shared.
            DataType::Utf8View | DataType::BinaryView => RowBytes::Fixed(16),
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                RowBytes::Lists(list.offsets().clone(), per_value(list.values().as_ref()))
            }
            DataType::Map(..) => {
                let map = column.as_map();
                RowBytes::Lists(map.offsets().clone(), per_value(map.entries()))
            }
            DataType::Struct(_) => {
                RowBytes::Fields(column.as_struct().columns().iter().map(RowBytes::of).collect())
            }
            _ => RowBytes::Fixed(per_value(column.as_ref())),
        }
    }

    fn at(&self, row: usize) -> usize {
        match self {
            RowBytes::Fixed(bytes) => *bytes,
            RowBytes::Lists(offsets, per_value) => {
                (offsets[row + 1] - offsets[row]) as usize * per_value + 4
            }
            RowBytes::Fields(fields) => fields.iter().map(|field| field.at(row)).sum(),
        }
    }
}

fn per_value(array: &dyn Array) -> usize {
    array.get_array_memory_size().div_ceil(array.len().max(1))
}

/// About how many rows like those of two batches side by side fit; at least a thousand.
pub(super) fn rows_in(room_bytes: usize, batch: &RecordBatch, columns: usize) -> usize {
    let row_bytes = batch_bytes(batch) / batch.num_rows().max(1);
    (room_bytes / (row_bytes + 16 * columns + 8)).max(1024)
}
