//! One aggregate of a query: the function, what it reads, DISTINCT and FILTER.

use thalweg_core::{Column, ColumnType, DataType, Error, Result, TableSchema};

use super::description::{AggregateFunction, Exactness, TypedAggregate, Types};
use super::distinct::Distinct;
use super::distinct_set::DistinctSet;
use super::kept_values::KeptValues;
use super::running::distinct::RunningDistinct;
use super::{Accumulator, RunningAggregate};

/// One aggregate of a query: the function, the columns it reads, the type and name of its result.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// What is computed.
    pub function: AggregateFunction,
    /// The input column it reads; `None` for `COUNT(*)`.
    pub argument: Option<usize>,
    /// True for `DISTINCT`.
    pub distinct: bool,
    /// The BOOLEAN input column of `FILTER (WHERE …)`.
    pub filter: Option<usize>,
    /// The type of the result, from [`resolve`](super::resolve).
    pub result: ColumnType,
    /// The name of the output column.
    pub name: String,
}

impl AggregateCall {
    /// True if the states commute and associate bit for bit.
    ///
    /// An operator lets any partition take any row only if all of its calls are exact.
    pub fn is_exact(&self) -> bool {
        self.function.exactness(&self.result.data_type) >= Exactness::Exact
    }

    /// True if a merged state can be subtracted again without a trace.
    pub fn is_invertible(&self) -> bool {
        self.function.exactness(&self.result.data_type) == Exactness::Invertible
    }

    /// True for a plain `COUNT(*)`, which equals the number of rows of a group.
    pub(crate) fn counts_rows(&self) -> bool {
        self.function.counts_rows() && self.argument.is_none() && self.filter.is_none()
    }

    /// An empty column of states. `argument` is the type of the argument's column.
    ///
    /// # Errors
    /// If the function cannot be applied to this type.
    pub fn accumulator(&self, argument: Option<&DataType>) -> Result<Box<dyn Accumulator>> {
        self.column_of_states(argument, true)
    }

    /// The same where no state is ever subtracted, and memory need not be free before all states
    /// are dropped: DISTINCT is cheaper then.
    pub(crate) fn accumulator_of_whole(
        &self,
        argument: Option<&DataType>,
    ) -> Result<Box<dyn Accumulator>> {
        self.column_of_states(argument, false)
    }

    /// The same where rows are retracted as well, one by one ([`Accumulator::retract`]).
    pub(crate) fn retractable(&self, argument: Option<&DataType>) -> Result<Box<dyn Accumulator>> {
        let typed = self.typed(argument)?;
        let is_distinct = self.distinct && !self.function.ignores_repeats();
        match typed.function.retractable(&typed.types)?.filter(|_| !is_distinct) {
            Some(states) => Ok(states),
            None => Ok(Box::new(KeptValues::new(typed, self.distinct)?)),
        }
    }

    /// True if the result depends on the sequence of values, so that none can be retracted but in
    /// the sequence in which they came.
    pub(crate) fn depends_on_sequence(&self, argument: Option<&DataType>) -> Result<bool> {
        let TypedAggregate { function, types } = self.typed(argument)?;
        let is_sum = function.retractable(&types)?.is_some();
        Ok(!is_sum && !function.ignores_repeats_running(true))
    }

    fn column_of_states(
        &self,
        argument: Option<&DataType>,
        subtracts: bool,
    ) -> Result<Box<dyn Accumulator>> {
        let typed = self.typed(argument)?;
        let plain = typed.accumulator()?;
        match self.distinct && !self.function.ignores_repeats() {
            true if subtracts => Ok(Box::new(Distinct::new(typed, plain)?)),
            true => Ok(Box::new(DistinctSet::new(typed, plain)?)),
            false => Ok(plain),
        }
    }

    /// An empty column of states that gives results row by row. `argument` is the type of the
    /// argument's column; `retracts` says that rows may be retracted.
    ///
    /// # Errors
    /// If the function cannot be applied to this type, or has no result for rows that may be
    /// retracted.
    pub fn running(
        &self,
        argument: Option<&DataType>,
        retracts: bool,
    ) -> Result<Box<dyn RunningAggregate>> {
        let TypedAggregate { function, types } = self.typed(argument)?;
        let plain = function.running(&types, retracts)?;
        match self.distinct && !function.ignores_repeats_running(retracts) {
            true => {
                Ok(Box::new(RunningDistinct::new(&types.argument, function.takes_nulls(), plain)?))
            }
            false => Ok(plain),
        }
    }

    /// As [`AggregateCall::running`], for rows that are retracted in the sequence in which they
    /// came.
    ///
    /// # Errors
    /// As [`AggregateCall::running`].
    pub fn running_oldest_first(
        &self,
        argument: Option<&DataType>,
    ) -> Result<Box<dyn RunningAggregate>> {
        if self.distinct && !self.function.ignores_repeats_running(true) {
            return self.running(argument, true);
        }
        let TypedAggregate { function, types } = self.typed(argument)?;
        function.running_oldest_first(&types)
    }

    fn typed(&self, argument: Option<&DataType>) -> Result<TypedAggregate> {
        let function = self.function.clone();
        let argument = match argument {
            Some(argument) => argument.clone(),
            None if function.counts_rows() => DataType::Null,
            None => return Err(Error::internal(format!("{} without argument", function.name()))),
        };
        Ok(TypedAggregate {
            function,
            types: Types { argument, result: self.result.data_type.clone() },
        })
    }
}

/// These columns, then the results of the calls.
pub(crate) fn with_results(columns: TableSchema, calls: &[AggregateCall]) -> TableSchema {
    let results = calls.iter().map(|call| Column::new(&call.name, call.result.clone()));
    TableSchema::new(columns.columns.into_iter().chain(results).collect())
}
