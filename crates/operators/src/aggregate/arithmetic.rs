//! The shape that aggregates of numbers share: a state of a few numbers for each group, and a
//! function that computes the result from it. Accumulators and running aggregates follow from both.

use arrow_array::ArrayRef;
use thalweg_core::{DataType, Result};

use super::fold::Fold;
use super::values::Number;
use super::{StateColumns, StateRows, UpdateInput};

/// The state of one group of numbers of the type `N`; the default is the empty one.
pub(super) trait NumberState<N>: Default + Clone + Send + Sync + 'static {
    /// Adds a value.
    fn add(&mut self, value: N);
    /// Takes a value out that was added. States that lose some of it have no such thing.
    fn remove(&mut self, _value: N) {
        debug_assert!(false, "a state for inserts was asked to take a value back");
    }
    /// Captures these states; those of DECIMALs are of numbers with this scale.
    fn capture<'a>(
        states: impl Iterator<Item = &'a Self> + Clone,
        scale: u8,
        columns: &mut StateColumns,
    ) -> Result<()>;
    /// The states that were captured.
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>>;
    /// Bytes that a state takes elsewhere.
    fn heap_bytes(&self) -> usize {
        0
    }
    /// True if states take bytes elsewhere.
    const ON_HEAP: bool = false;
}

/// A state that partial ones enter.
pub(super) trait MergedState<N>: NumberState<N> {
    /// Adds a state.
    fn merge(&mut self, from: &Self);
    /// Takes a state out, if that can be done.
    fn subtract(&mut self, _from: &Self) -> bool {
        false
    }
}

/// How results are computed from states.
pub(super) trait Arithmetic: Send + Sync + 'static {
    /// What values are read as, and results computed in.
    type Number: Number;
    /// The state of one group.
    type State: NumberState<Self::Number>;
    /// True if a running aggregate should keep results instead of computing each twice.
    const IS_COSTLY: bool = true;
    /// The type of results.
    fn result(&self) -> &DataType;
    /// The scale of the argument, where it is a DECIMAL.
    fn scale(&self) -> u8 {
        0
    }
    /// The result of a group; unscaled for a DECIMAL, and `None` also where it has too many digits.
    fn value(&self, state: &Self::State) -> Option<Self::Number>;
}

impl<A: Arithmetic> Fold for A
where
    A::State: MergedState<A::Number>,
{
    type Group = A::State;

    fn update(&self, groups: &mut [A::State], input: &UpdateInput<'_>) -> Result<()> {
        A::Number::for_each(input.column()?, input, |id, value| groups[id].add(value))
    }
    fn retract(&self, groups: &mut [A::State], input: &UpdateInput<'_>) -> Result<()> {
        A::Number::for_each(input.column()?, input, |id, value| groups[id].remove(value))
    }
    fn merge(&self, into: &mut A::State, from: &A::State) {
        into.merge(from);
    }
    fn subtract(&self, into: &mut A::State, from: &A::State) -> bool {
        into.subtract(from)
    }
    fn evaluate(&self, groups: &[A::State], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(A::Number::array(self.result(), values))
    }
    fn capture(&self, groups: &[A::State], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        A::State::capture(ids.iter().map(|&id| &groups[id as usize]), self.scale(), columns)
    }
    fn restore(&self, groups: &mut [A::State], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let states = A::State::restore(rows)?;
        ids.iter().zip(states).for_each(|(&id, state)| groups[id as usize] = state);
        Ok(())
    }
    fn heap_bytes(&self, group: &A::State) -> usize {
        group.heap_bytes()
    }
    const ON_HEAP: bool = A::State::ON_HEAP;
}
