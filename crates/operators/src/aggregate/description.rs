//! What an aggregate function is: one description, which the planner, the operators and snapshots
//! read.
//!
//! Adding a function is a file in [`functions`](super::functions) with an implementation of
//! [`Aggregate`], and a line in the table there.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use thalweg_core::{ColumnType, DataType, Result};
use thalweg_expr::Expr;

use super::{Accumulator, RunningAggregate};

/// The types that an implementation is chosen by.
#[derive(Clone, Debug)]
pub struct Types {
    /// The argument's; `NULL` where there is none (`COUNT(*)`).
    pub argument: DataType,
    /// The result's, from [`Aggregate::result`].
    pub result: DataType,
}

/// What the states of an aggregate allow.
///
/// The order of the variants counts: each allows what those before it allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exactness {
    /// The result depends on the order of rows or of merges.
    Ordered,
    /// States commute and associate bit for bit, so partial ones are merged in any order.
    Exact,
    /// And a state that was merged can be subtracted again without a trace.
    Invertible,
}

/// An aggregate function with its constants.
pub trait Aggregate: Send + Sync {
    /// The SQL name.
    fn name(&self) -> &str;

    /// The constants that belong to the function, as SQL: what a call's text shows behind its
    /// argument.
    fn constants(&self) -> Option<String> {
        None
    }

    /// The type of the result for an argument of this type, or `None` where Flink has none.
    fn result(&self, argument: &DataType) -> Option<ColumnType>;

    /// The function with the constants of a call: its arguments behind the first, and whether
    /// IGNORE NULLS was written. `None` where all arguments are of the rows.
    ///
    /// # Errors
    /// If a constant is missing, no constant, or out of range.
    fn bind(&self, arguments: &[Expr], skips_nulls: bool) -> Result<Option<AggregateFunction>> {
        let _ = (arguments, skips_nulls);
        Ok(None)
    }

    /// True if it counts rows where it has no argument.
    fn counts_rows(&self) -> bool {
        false
    }

    /// What its states allow for a result of this type.
    fn exactness(&self, result: &DataType) -> Exactness;

    /// True if NULL is a value to the function.
    fn takes_nulls(&self) -> bool {
        false
    }

    /// True if DISTINCT changes nothing where the result of all rows is wanted.
    fn ignores_repeats(&self) -> bool {
        false
    }

    /// The same where results are wanted row by row. `retracts` says that rows may be retracted.
    fn ignores_repeats_running(&self, retracts: bool) -> bool {
        let _ = retracts;
        self.ignores_repeats()
    }

    /// An empty column of states.
    ///
    /// # Errors
    /// If it cannot be applied to these types.
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>>;

    /// An empty column of states that rows can be retracted from and that can be merged; `None`
    /// where the values themselves have to be kept for that.
    ///
    /// # Errors
    /// If it cannot be applied to these types.
    fn retractable(&self, types: &Types) -> Result<Option<Box<dyn Accumulator>>> {
        let _ = types;
        Ok(None)
    }

    /// An empty column of states that gives results row by row. `retracts` says that rows may be
    /// retracted.
    ///
    /// # Errors
    /// If it cannot be applied to these types, or has no result for rows that may be retracted.
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>>;

    /// The same, for rows that are retracted in the sequence in which they came.
    ///
    /// # Errors
    /// As [`Aggregate::running`].
    fn running_oldest_first(&self, types: &Types) -> Result<Box<dyn RunningAggregate>> {
        self.running(types, true)
    }
}

/// A shared [`Aggregate`].
#[derive(Clone)]
pub struct AggregateFunction(Arc<dyn Aggregate>);

impl AggregateFunction {
    /// Shares a description.
    pub fn new(description: impl Aggregate + 'static) -> Self {
        AggregateFunction(Arc::new(description))
    }

    /// True if the result of DISTINCT depends on the changes before: the last of distinct values is
    /// then the last that was new.
    pub fn distinct_depends_on_changes(&self) -> bool {
        self.ignores_repeats() && !self.ignores_repeats_running(false)
    }
}

impl Deref for AggregateFunction {
    type Target = dyn Aggregate;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl fmt::Debug for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A function for the types of a call, without DISTINCT and FILTER.
#[derive(Clone, Debug)]
pub(super) struct TypedAggregate {
    pub function: AggregateFunction,
    pub types: Types,
}

impl TypedAggregate {
    pub fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(&self.types)
    }

    pub fn is_exact(&self) -> bool {
        self.function.exactness(&self.types.result) >= Exactness::Exact
    }
}
