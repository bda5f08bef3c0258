//! MIN and MAX over frames, where what is retracted is always the oldest value: a monotonic queue
//! per group.
//!
//! A value that came before a better one (or an equal one) can never be the best again, for it
//! leaves first. So only values without a better one behind them are kept, worse and worse towards
//! the newest one: the first is the best. A row costs a constant time on average, and values at
//! random a queue of about the logarithm of the frame's rows.
//!
//! **Invariant:** `added` and `left` count the values of a group that came and went; an entry
//! carries the number of its value, so the front leaves exactly when its own value does. That holds
//! because a row is let through by FILTER, and is NULL, on its way out as it was on its way in.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, UInt64Type};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, PrimitiveArray, UInt64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::super::extremes::with_primitive;
use super::super::state::{elements_of, lists};
use super::super::values::{declared, retyped, with_one_nan};
use super::super::{StateColumns, StateRows};
use super::pairs::Pairs;
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;

/// MIN or MAX of rows that are retracted in the sequence in which they came; `None` where the
/// values are no numbers.
pub(in crate::aggregate) fn queues(
    argument: &DataType,
    is_max: bool,
) -> Option<Box<dyn RunningAggregate>> {
    let arrow = argument.arrow();
    macro_rules! numbers {
        ($type:ty) => {
            Some(Box::new(Queues::<$type>::new(is_max, arrow)))
        };
    }
    with_primitive!(arrow.clone(), numbers, None)
}

/// The values of a group that can still become the best, with their numbers.
struct Queue<N> {
    values: VecDeque<(N, u64)>,
    added: u64,
    left: u64,
}

impl<N> Default for Queue<N> {
    fn default() -> Self {
        Queue { values: VecDeque::new(), added: 0, left: 0 }
    }
}

impl<N: ArrowNativeTypeOp> Queue<N> {
    #[inline(always)]
    fn best(&self) -> Option<N> {
        self.values.front().map(|&(value, _)| value)
    }

    #[inline(always)]
    fn add(&mut self, value: N, stays: Ordering) {
        while self.values.back().is_some_and(|(last, _)| last.compare(value) != stays) {
            self.values.pop_back();
        }
        self.values.push_back((value, self.added));
        self.added += 1;
    }

    /// It does not look at the value that leaves: by the contract it is the oldest, whose number is
    /// `left`.
    #[inline(always)]
    fn retract(&mut self) {
        if self.values.front().is_some_and(|&(_, number)| number == self.left) {
            self.values.pop_front();
        }
        self.left += 1;
    }

    fn clear(&mut self) {
        self.values.clear();
        (self.added, self.left) = (0, 0);
    }
}

/// A queue for each group.
struct Queues<T: ArrowPrimitiveType> {
    /// How a value that stays compares with one that comes after it.
    stays: Ordering,
    groups: Vec<Queue<T::Native>>,
    /// The values of all queues.
    kept: usize,
    result: Arrow,
    types: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> Queues<T> {
    fn new(is_max: bool, result: Arrow) -> Self {
        let stays = if is_max { Ordering::Greater } else { Ordering::Less };
        Queues { stays, groups: Vec::new(), kept: 0, result, types: PhantomData }
    }
}

impl<T: ArrowPrimitiveType> RunningAggregate for Queues<T>
where
    T::Native: Send,
{
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = with_one_nan(input.column()?);
        let taken = input.taken();
        let mut pairs = Pairs::<T>::new(input.ids.len());
        let values = declared::<T>(&column)?;
        for (place, (&id, &value)) in input.ids.iter().zip(values.values()).enumerate() {
            let (step, queue) = (input.step(place), &mut self.groups[id as usize]);
            let kept = queue.values.len();
            if step.begins() {
                queue.clear();
            }
            let before = queue.best();
            if is_taken(taken.as_ref(), place) {
                if step.retracts() { queue.retract() } else { queue.add(value, self.stays) }
            }
            pairs.push(before, queue.best());
            self.kept = self.kept + queue.values.len() - kept;
        }
        Ok(pairs.finish(&self.result))
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            let queue = std::mem::take(&mut self.groups[id as usize]);
            self.kept -= queue.values.len();
        }
    }
    fn bytes(&self) -> usize {
        // A queue that grows doubles.
        self.groups.capacity() * size_of::<Queue<T::Native>>()
            + self.kept * 2 * size_of::<(T::Native, u64)>()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let queues = || ids.iter().map(|&id| &self.groups[id as usize]);
        let kept = || queues().flat_map(|queue| &queue.values);
        let lengths = || queues().map(|queue| queue.values.len()).collect();
        let values = PrimitiveArray::<T>::from_iter_values(kept().map(|&(value, _)| value));
        let values = retyped(Arc::new(values), &self.result);
        columns.add("values", lists(lengths(), values)?);
        let numbers = Arc::new(UInt64Array::from_iter_values(kept().map(|&(_, number)| number)));
        columns.add("numbers", lists(lengths(), numbers)?);
        columns.add_numbers::<UInt64Type>("added", queues().map(|queue| queue.added));
        columns.add_numbers::<UInt64Type>("left", queues().map(|queue| queue.left));
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let (values, owners) = elements_of(rows.lists("values", &self.result)?, ids);
        let (numbers, others) =
            elements_of(rows.lists("numbers", &arrow_schema::DataType::UInt64)?, ids);
        if owners != others || values.null_count() + numbers.null_count() > 0 {
            return Err(rows.damaged("numbers", "does not number the values"));
        }
        let values = declared::<T>(&values)?;
        let values = values.values();
        let numbers = numbers.as_primitive::<UInt64Type>().values();
        for ((&id, &value), &number) in owners.iter().zip(values).zip(numbers) {
            self.groups[id as usize].values.push_back((value, number));
        }
        self.kept += values.len();
        let added = rows.numbers::<UInt64Type>("added")?;
        let left = rows.numbers::<UInt64Type>("left")?;
        for ((&id, &added), &left) in ids.iter().zip(added).zip(left) {
            let queue = &mut self.groups[id as usize];
            (queue.added, queue.left) = (added, left);
        }
        Ok(())
    }
}
