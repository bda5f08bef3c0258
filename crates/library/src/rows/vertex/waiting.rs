//! Items that have come before an input that is to be consumed first has ended. Few do: the sources
//! of such inputs are read only then, but what was on its way may be overtaken.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, UInt8Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Int16Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field, SchemaRef};
use thalweg_core::Result;
use thalweg_core::snapshot::{PARTITION_COLUMN, state_schema};
use thalweg_operators::tables::{column, numbers_of};

use super::edge::Items;
use super::input_tap::control_of;
use super::{INPUT, ITEM};

/// An item that waits.
struct WaitingItem {
    /// Below zero for a watermark of an input ([`control_of`]).
    input: i16,
    /// `None` for one that goes to all.
    partition: Option<u8>,
    item: Vec<u8>,
}

/// The items that wait, oldest first.
#[derive(Default)]
pub(super) struct WaitingItems {
    items: VecDeque<WaitingItem>,
    bytes: usize,
}

impl WaitingItem {
    fn owner(&self) -> usize {
        self.input.max(control_of(self.input)) as usize
    }
}

/// Items of one input, or a watermark of it, that need not wait any more.
pub(super) struct FreeItems {
    pub input: i16,
    pub partitions: Int16Array,
    pub items: BinaryArray,
}

impl WaitingItems {
    /// Keeps a row of items.
    pub(super) fn add(&mut self, of: &Items<'_>, row: usize) {
        let partition = of.partitions.is_valid(row).then(|| of.partitions.value(row) as u8);
        self.push(of.inputs.value(row), partition, of.items.value(row).to_vec());
    }

    fn push(&mut self, input: i16, partition: Option<u8>, item: Vec<u8>) {
        self.bytes += item.len() + size_of::<WaitingItem>();
        self.items.push_back(WaitingItem { input, partition, item });
    }

    /// The oldest items of one input that need not wait, at most this many.
    pub(super) fn free(
        &self,
        is_free: impl Fn(usize) -> bool,
        items_max: usize,
    ) -> Option<FreeItems> {
        let first = self.items.iter().find(|waiting| is_free(waiting.owner()))?;
        let input = first.input;
        let own = self.items.iter().filter(|waiting| waiting.owner() == first.owner());
        let own = own.take_while(|waiting| waiting.input == input).take(items_max);
        let own: Vec<&WaitingItem> = own.collect();
        let partitions = own.iter().map(|waiting| waiting.partition.map(i16::from)).collect();
        let items = BinaryArray::from_iter_values(own.iter().map(|waiting| &waiting.item));
        Some(FreeItems { input, partitions, items })
    }

    /// The first items of an input are processed.
    pub(super) fn remove(&mut self, input: i16, count: usize) {
        let mut left = count;
        self.items.retain(|waiting| {
            let is_removed = left > 0 && waiting.input == input;
            left -= usize::from(is_removed);
            !is_removed
        });
        let bytes = |waiting: &WaitingItem| waiting.item.len() + size_of::<WaitingItem>();
        self.bytes = self.items.iter().map(bytes).sum();
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns of a table of them.
    pub(super) fn schema() -> SchemaRef {
        state_schema([Field::new(INPUT, Arrow::Int16, true), Field::new(ITEM, Arrow::Binary, true)])
    }

    /// A table of them; those that go to all are captured by the first partition.
    pub(super) fn rows(&self, is_first: bool) -> Result<RecordBatch> {
        let (mut partitions, mut inputs) = (Vec::new(), Vec::new());
        let mut items = BinaryBuilder::new();
        for waiting in self.items.iter().filter(|waiting| is_first || waiting.partition.is_some()) {
            partitions.push(waiting.partition);
            inputs.push(waiting.input);
            items.append_value(&waiting.item);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt8Array::from(partitions)),
            Arc::new(Int16Array::from(inputs)),
            Arc::new(items.finish()),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }

    /// Restores items from a table.
    pub(super) fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let inputs = numbers_of::<Int16Type>(batch, INPUT)?;
        let partitions = column(batch, PARTITION_COLUMN)?.as_primitive::<UInt8Type>().clone();
        let items = column(batch, ITEM)?.as_binary::<i32>().clone();
        for (row, &input) in inputs.iter().enumerate() {
            let partition = partitions.is_valid(row).then(|| partitions.value(row));
            self.push(input, partition, items.value(row).to_vec());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::vertex::edge::item_schema;

    /// What comes free, as the input and its items.
    fn freed(waiting: &mut WaitingItems, is_free: impl Fn(usize) -> bool) -> Option<(i16, String)> {
        let free = waiting.free(is_free, 10)?;
        waiting.remove(free.input, free.items.len());
        let items = free.items.iter().flatten().flatten();
        Some((free.input, items.map(|&byte| char::from(byte)).collect()))
    }

    #[test]
    fn items_that_wait_keep_the_order_of_their_input_also_through_a_snapshot() {
        let inputs = vec![2, 1, 2, control_of(1), 1, 2];
        let partitions = vec![Some(3), None, Some(200), None, Some(3), None];
        let items = BinaryArray::from_iter_values(["a", "b", "c", "W", "d", "e"]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int16Array::from(inputs)),
            Arc::new(Int16Array::from(partitions)),
            Arc::new(items),
        ];
        let batch = RecordBatch::try_new(item_schema().arrow(), columns).expect("it fits");
        let (mut waiting, items) = (WaitingItems::default(), Items::of(&batch).expect("items"));
        (0..6).for_each(|row| waiting.add(&items, row));
        let rows = waiting.rows(true).expect("a table");
        assert_eq!((rows.num_rows(), waiting.rows(false).expect("a table").num_rows()), (6, 3));
        let mut again = WaitingItems::default();
        again.restore(&rows).expect("it is restored");
        assert!(waiting.bytes() > 6);
        for waiting in [&mut waiting, &mut again] {
            let first = |owner: usize| owner == 1;
            assert_eq!(freed(waiting, first), Some((1, "b".to_owned())));
            assert_eq!(freed(waiting, first), Some((control_of(1), "W".to_owned())));
            assert_eq!(freed(waiting, first), Some((1, "d".to_owned())));
            assert_eq!(freed(waiting, first), None);
            assert_eq!(freed(waiting, |_| true), Some((2, "ace".to_owned())));
            assert_eq!((freed(waiting, |_| true), waiting.bytes()), (None, 0));
        }
    }
}
