//! `FIRST_VALUE(x)`, `LAST_VALUE(x)`: the first or the last by arrival that is not NULL.
//!
//! "By arrival" is the order in which the rows of a group reach the operator. In windows each value
//! carries its place, so partial states may be merged in any order.

use thalweg_core::{ColumnType, DataType, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::extremes::Choice;
use super::super::running::kept::kept;
use super::super::running::sequence::Sequence;
use super::super::{Accumulator, RunningAggregate, ordinals};

/// The first or the last of a group's values.
pub struct FirstLast {
    is_last: bool,
}

pub const FIRST_VALUE: FirstLast = FirstLast { is_last: false };
pub const LAST_VALUE: FirstLast = FirstLast { is_last: true };

impl Aggregate for FirstLast {
    fn name(&self) -> &str {
        if self.is_last { "LAST_VALUE" } else { "FIRST_VALUE" }
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        (*argument != DataType::Null).then(|| argument.clone().nullable())
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Exact
    }
    fn ignores_repeats(&self) -> bool {
        true
    }
    fn ignores_repeats_running(&self, retracts: bool) -> bool {
        // The first value stays the first while none is retracted; the last of distinct values is
        // the last that was new.
        !self.is_last && !retracts
    }
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>> {
        ordinals::build(&types.argument, self.is_last)
    }
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        if retracts {
            return Ok(Box::new(Sequence::new(&types.argument, self.is_last)?));
        }
        let choice = if self.is_last { Choice::Last } else { Choice::First };
        kept(&types.argument, choice, || self.accumulator(types))
    }
}
