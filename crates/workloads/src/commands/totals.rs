//! A sink that adds a column up, for checksums.

use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use thalweg::{Result, RowKind, Sink};

/// The column that stands for the number of rows.
pub const ROWS: &str = "";

/// Adds up a column of the results.
#[derive(Clone)]
pub struct Totals {
    column: &'static str,
    sum: Arc<Mutex<u64>>,
}

impl Totals {
    /// Of this column.
    pub fn of(column: &'static str) -> Self {
        Totals { column, sum: Arc::default() }
    }
    /// The sum so far.
    pub fn sum(&self) -> u64 {
        *self.sum.lock().expect("the sink does not panic")
    }
}

impl Sink for Totals {
    fn name(&self) -> String {
        "totals".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let sum = match batch.column_by_name(self.column) {
            None => batch.num_rows() as i64,
            Some(column) => match column.as_primitive_opt::<Int64Type>() {
                Some(longs) => longs.values().iter().sum(),
                None => {
                    let ints = column.as_primitive::<Int32Type>().values();
                    ints.iter().copied().map(i64::from).sum()
                }
            },
        };
        *self.sum.lock().expect("the sink does not panic") += sum as u64;
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
