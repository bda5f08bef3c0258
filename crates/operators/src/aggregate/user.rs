//! Aggregate functions that a user writes in Rust.
//!
//! They are `Ordered`: nothing is known of them, so rows reach them in the order of arrival, by
//! key, and their states are merged in that order only. A panic or an error in them fails the job.

use std::any::Any;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::DataType as Arrow;
use thalweg_core::{ColumnType, DataType, Error, Result};

use super::description::{Aggregate, AggregateFunction, Exactness, Types};
use super::running::stepwise::Stepwise;
use super::{Accumulator, RunningAggregate, StateColumns, StateRows, UpdateInput, concrete};
use crate::gradual::grow;
use crate::keys::select;

/// An aggregate function of the user's: makes the states. Rows of one group reach its state in
/// arrival order; `merge` must be associative, and an empty state must add nothing.
pub trait UserAggregate: Send + Sync {
    /// The SQL name.
    fn name(&self) -> &str;
    /// The type of the result for an argument of this type; an error if it takes none such.
    fn result_type(&self, argument: &ColumnType) -> Result<DataType>;
    /// An empty state for a result of this type.
    fn create(&self) -> Box<dyn UserAccumulator>;
    /// True if its states can take values back ([`UserAccumulator::retract`]): only then may it be
    /// applied to rows that are updated or deleted.
    fn retracts(&self) -> bool {
        false
    }
    /// The scalar function that computes the result from the array of a group's values, where there
    /// is one. The call then stands for that function over ARRAY_AGG of the argument (of rows, for
    /// several arguments), and nothing else of this aggregate is called: the engine keeps the
    /// values, in snapshots as well, and takes them back.
    fn over_values(&self) -> Option<&str> {
        None
    }
    /// A state again from what [`UserAccumulator::encode`] wrote of one, perhaps in an earlier
    /// version of the program. Needed only where snapshots are taken.
    ///
    /// # Errors
    /// If these bytes are no state of this function.
    fn decode(&self, state: &[u8]) -> Result<Box<dyn UserAccumulator>> {
        let _ = state;
        Err(Error::user(format!("{} cannot restore its state from a snapshot", self.name()))
            .hint("implement UserAggregate::decode and UserAccumulator::encode"))
    }
}

/// The state of one group of a user's aggregate.
pub trait UserAccumulator: Any + Send + Sync {
    /// Adds values, in arrival order, NULLs included.
    fn accumulate(&mut self, values: &ArrayRef) -> Result<()>;
    /// Takes values back that were added, NULLs included. Called only if the function
    /// [`retracts`](UserAggregate::retracts).
    fn retract(&mut self, _values: &ArrayRef) -> Result<()> {
        Err(Error::user("a user's aggregate says that it takes values back, and does not"))
    }
    /// Adds a state of the same function (`(other as &dyn Any).downcast_ref()`), whose values came
    /// later.
    fn merge(&mut self, other: &dyn UserAccumulator) -> Result<()>;
    /// The result: an array of exactly one value, of the declared type.
    fn result(&self) -> Result<ArrayRef>;
    /// All of the state as bytes, for a snapshot. The same state gives the same bytes for ever;
    /// [`UserAggregate::decode`] makes it again. `None` where it cannot be captured: then no
    /// snapshot can be taken.
    ///
    /// # Errors
    /// If that fails.
    fn encode(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// About how many bytes the state takes.
    fn bytes(&self) -> usize {
        size_of::<usize>()
    }
}

impl AggregateFunction {
    /// A function of the user's.
    pub fn user(function: Arc<dyn UserAggregate>) -> Self {
        AggregateFunction::new(User(function))
    }
}

/// A user's aggregate as any other.
struct User(Arc<dyn UserAggregate>);

impl Aggregate for User {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        self.0.result_type(&argument.clone().nullable()).ok().map(DataType::nullable)
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Ordered
    }
    fn takes_nulls(&self) -> bool {
        true
    }
    fn accumulator(&self, _: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(UserGroups::new(Arc::clone(&self.0))))
    }
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        if retracts && !self.0.retracts() {
            return Err(Error::unsupported(format!(
                "{} over rows that may be updated or deleted: it cannot retract values",
                self.name()
            ))
            .hint("implement `retract` in Rust, or aggregate a stream that only inserts"));
        }
        Ok(Box::new(Stepwise::new(self.accumulator(types)?, true)))
    }
}

/// The states of a user's aggregate, made when a group gets its first row.
struct UserGroups {
    function: Arc<dyn UserAggregate>,
    groups: Vec<Option<Box<dyn UserAccumulator>>>,
}

impl UserGroups {
    fn new(function: Arc<dyn UserAggregate>) -> Self {
        UserGroups { function, groups: Vec::new() }
    }

    fn encode(&self, state: &dyn UserAccumulator) -> Result<Vec<u8>> {
        state.encode()?.ok_or_else(|| {
            let name = self.function.name();
            Error::user(format!("{name} cannot write its state, so no snapshot can be taken")).hint(
                "implement UserAccumulator::encode and UserAggregate::decode, or run without snapshots",
            )
        })
    }

    /// Gives each group its values, in arrival order.
    fn each_group(
        &mut self,
        input: &UpdateInput<'_>,
        give: impl Fn(&mut dyn UserAccumulator, &ArrayRef) -> Result<()>,
    ) -> Result<()> {
        let mut order: Vec<(u32, u32)> =
            input.ids.iter().enumerate().map(|(place, &id)| (id, input.row(place))).collect();
        // Stable by group: rows of one group stay in arrival order.
        order.sort_by_key(|&(id, _)| id);
        let column = input.column()?;
        for run in order.chunk_by(|a, b| a.0 == b.0) {
            let rows: Vec<u32> = run.iter().map(|&(_, row)| row).collect();
            let values = select(column, Some(&rows))?;
            let state =
                self.groups[run[0].0 as usize].get_or_insert_with(|| self.function.create());
            give(state.as_mut(), &values)?;
        }
        Ok(())
    }
}

impl Accumulator for UserGroups {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        self.each_group(input, |state, values| state.accumulate(values))
    }
    fn retract(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        self.each_group(input, |state, values| state.retract(values))
    }
    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let from = concrete::<Self>(from)?;
        for (&id, state) in ids.iter().zip(&from.groups) {
            if let Some(state) = state {
                self.groups[id as usize]
                    .get_or_insert_with(|| self.function.create())
                    .merge(state.as_ref())?;
            }
        }
        Ok(())
    }
    fn subtract(&mut self, _ids: &[u32], _from: &dyn Accumulator) -> Result<()> {
        Err(Error::internal("a user's aggregate was asked to subtract"))
    }
    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>> {
        let groups = ids.iter().map(|&id| self.groups[id as usize].take()).collect();
        Ok(Box::new(UserGroups { function: Arc::clone(&self.function), groups }))
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.groups[id as usize] = None);
    }
    fn clear(&mut self) {
        self.groups.clear();
    }
    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef> {
        let results: Vec<ArrayRef> = ids
            .iter()
            .map(|&id| match &self.groups[id as usize] {
                Some(state) => state.result(),
                None => self.function.create().result(),
            })
            .collect::<Result<_>>()?;
        let name = self.function.name();
        if results.iter().any(|result| result.len() != 1) {
            return Err(Error::user(format!("{name} must give exactly one value per group")));
        }
        let results: Vec<&dyn Array> = results.iter().map(|result| result.as_ref()).collect();
        Ok(arrow_select::concat::concat(&results)?)
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        // A function without snapshots is found at the first one, not when the first row has come.
        self.encode(self.function.create().as_ref())?;
        let mut states = BinaryBuilder::new();
        for &id in ids {
            match &self.groups[id as usize] {
                Some(state) => states.append_value(self.encode(state.as_ref())?),
                None => states.append_null(),
            }
        }
        columns.add("", Arc::new(states.finish()));
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let states: &BinaryArray = rows.column("", &Arrow::Binary)?.as_binary();
        for (&id, state) in ids.iter().zip(states) {
            let decode = |state| self.function.decode(state);
            self.groups[id as usize] = state.map(decode).transpose()?;
        }
        Ok(())
    }
    fn bytes(&self) -> usize {
        let states: usize = self.groups.iter().flatten().map(|state| state.bytes()).sum();
        self.groups.capacity() * 16 + states
    }
}
