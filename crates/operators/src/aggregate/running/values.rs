//! Interned values that several groups share, with how many places hold each.
//!
//! A value whose last holder lets go keeps its number until [`Values::settle`]: within a run of
//! rows numbers are stable, so results can still be read.

use arrow_array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use crate::keys::KeyTable;

/// Stands for no value.
pub(in crate::aggregate) const NO_VALUE: u32 = u32::MAX;

pub(in crate::aggregate) struct Values {
    data_type: DataType,
    table: KeyTable,
    holders: Vec<u32>,
    /// Values that may have no holder.
    loose: Vec<u32>,
}

impl Values {
    pub fn new(data_type: DataType) -> Result<Self> {
        let table = KeyTable::new(std::slice::from_ref(&data_type))?;
        Ok(Values { data_type, table, holders: Vec::new(), loose: Vec::new() })
    }

    /// The numbers of the values in these rows.
    pub fn intern(&mut self, column: &ArrayRef, rows: Option<&[u32]>) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.table.intern(std::slice::from_ref(column), rows, &mut ids)?;
        self.holders.resize(self.table.id_limit(), 0);
        Ok(ids)
    }

    /// The type of columns of values.
    pub fn arrow(&self) -> Arrow {
        self.data_type.arrow()
    }

    /// One more place holds this value.
    pub fn hold(&mut self, value: u32) {
        self.holders[value as usize] += 1;
    }

    /// One place fewer holds this value.
    pub fn release(&mut self, value: u32) {
        self.holders[value as usize] -= 1;
        self.pass(value);
    }

    /// The value was only looked at.
    pub fn pass(&mut self, value: u32) {
        if self.holders[value as usize] == 0 {
            self.loose.push(value);
        }
    }

    /// Forgets values without holders.
    pub fn settle(&mut self) {
        let mut loose = std::mem::take(&mut self.loose);
        loose.sort_unstable();
        loose.dedup();
        for value in loose.drain(..) {
            if self.holders[value as usize] == 0 {
                self.table.release(value);
            }
        }
        self.loose = loose;
    }

    /// These values as a column; NULL stands for [`NO_VALUE`].
    pub fn column(&self, values: &[u32]) -> Result<ArrayRef> {
        let present: Vec<u32> = values.iter().copied().filter(|&v| v != NO_VALUE).collect();
        if present.is_empty() {
            return Ok(new_null_array(&self.data_type.arrow(), values.len()));
        }
        let column = self.table.take_keys(&present)?.swap_remove(0);
        if column.len() == values.len() {
            return Ok(column);
        }
        let mut next = 0..present.len() as u32;
        let places = values.iter().map(|&value| match value {
            NO_VALUE => None,
            _ => next.next(),
        });
        Ok(arrow_select::take::take(&column, &places.collect::<UInt32Array>(), None)?)
    }

    pub fn bytes(&self) -> usize {
        self.table.bytes() + (self.holders.capacity() + self.loose.capacity()) * 4
    }
}
