//! The shape that most aggregates share: one small state per group in a vector, and a fold that
//! says how rows and states enter it.

use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::{Error, Result};

use super::{Accumulator, StateColumns, StateRows, UpdateInput, concrete};
use crate::gradual::grow;

/// How rows and states enter one group's state.
pub(super) trait Fold: Send + Sync + 'static {
    /// The state of one group; the default is the empty one.
    type Group: Default + Clone + Send + Sync + 'static;
    /// Adds rows.
    fn update(&self, groups: &mut [Self::Group], input: &UpdateInput<'_>) -> Result<()>;
    /// Adds a state.
    fn merge(&self, into: &mut Self::Group, from: &Self::Group);
    /// Takes a state out, if that can be done.
    fn subtract(&self, _into: &mut Self::Group, _from: &Self::Group) -> bool {
        false
    }
    /// Retracts rows that were added before, if states can lose them.
    fn retract(&self, _groups: &mut [Self::Group], _input: &UpdateInput<'_>) -> Result<()> {
        Err(Error::internal("an aggregate that keeps no rows was asked to retract one"))
    }
    /// The results of these groups.
    fn evaluate(&self, groups: &[Self::Group], ids: &[u32]) -> Result<ArrayRef>;
    /// Captures the states of these groups ([`Accumulator::capture`]): their results, unless a
    /// state is more than its result.
    fn capture(
        &self,
        groups: &[Self::Group],
        ids: &[u32],
        columns: &mut StateColumns,
    ) -> Result<()> {
        columns.add("", self.evaluate(groups, ids)?);
        Ok(())
    }
    /// Takes states back into empty groups ([`Accumulator::restore`]).
    fn restore(&self, groups: &mut [Self::Group], ids: &[u32], rows: &StateRows<'_>) -> Result<()>;
    /// Bytes that a state takes elsewhere.
    fn heap_bytes(&self, _group: &Self::Group) -> usize {
        0
    }
    /// True if states take bytes elsewhere.
    const ON_HEAP: bool = false;
}

/// A column of states that a [`Fold`] works on.
pub(super) struct Groups<F: Fold> {
    fold: Arc<F>,
    groups: Vec<F::Group>,
}

impl<F: Fold> Groups<F> {
    pub fn new(fold: F) -> Self {
        Groups { fold: Arc::new(fold), groups: Vec::new() }
    }
}

impl<F: Fold> Accumulator for Groups<F> {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        self.fold.update(&mut self.groups, input)
    }
    fn retract(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        self.fold.retract(&mut self.groups, input)
    }
    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let from = concrete::<Self>(from)?;
        for (&id, state) in ids.iter().zip(&from.groups) {
            self.fold.merge(&mut self.groups[id as usize], state);
        }
        Ok(())
    }
    fn subtract(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let from = concrete::<Self>(from)?;
        for (&id, state) in ids.iter().zip(&from.groups) {
            if !self.fold.subtract(&mut self.groups[id as usize], state) {
                return Err(Error::internal("an aggregate without inverse was asked to subtract"));
            }
        }
        Ok(())
    }
    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>> {
        let groups = ids.iter().map(|&id| std::mem::take(&mut self.groups[id as usize])).collect();
        Ok(Box::new(Groups { fold: Arc::clone(&self.fold), groups }))
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            self.groups[id as usize] = F::Group::default();
        }
    }
    fn clear(&mut self) {
        self.groups.clear();
    }
    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef> {
        self.fold.evaluate(&self.groups, ids)
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.fold.capture(&self.groups, ids, columns)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.fold.restore(&mut self.groups, ids, rows)
    }
    fn bytes(&self) -> usize {
        let own = self.groups.capacity() * size_of::<F::Group>();
        if !F::ON_HEAP {
            return own;
        }
        own + self.groups.iter().map(|group| self.fold.heap_bytes(group)).sum::<usize>()
    }
}
