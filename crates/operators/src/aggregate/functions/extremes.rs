//! `MIN(x)`, `MAX(x)`
//!
//! | use | implementation |
//! |---|---|
//! | windows | one value for each group |
//! | results row by row, inserts only | the same |
//! | with retractions | a sorted, counted multiset |
//! | frames of numbers | a monotonic queue |
//!
//! DISTINCT changes nothing and is ignored.

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::extremes::{self, BytesKind, Choice, with_primitive};
use super::super::running::kept::kept;
use super::super::running::oldest_first::queues;
use super::super::running::ranked::{RankedBytes, RankedNumbers};
use super::super::{Accumulator, RunningAggregate};

/// The least or the greatest of a group's values.
pub struct Extreme {
    /// True for MAX.
    pub is_max: bool,
}

impl Aggregate for Extreme {
    fn name(&self) -> &str {
        if self.is_max { "MAX" } else { "MIN" }
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        let has_no_order = matches!(
            argument,
            DataType::Array(_)
                | DataType::Map(..)
                | DataType::Row(_)
                | DataType::Variant
                | DataType::Null
        );
        (!has_no_order).then(|| argument.clone().nullable())
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Exact
    }
    fn ignores_repeats(&self) -> bool {
        true
    }
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>> {
        extremes::build(&types.argument, self.is_max)
    }
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        if retracts {
            return ranked(&types.argument, self.is_max);
        }
        kept(&types.argument, Choice::extreme(self.is_max), || self.accumulator(types))
    }
    fn running_oldest_first(&self, types: &Types) -> Result<Box<dyn RunningAggregate>> {
        match queues(&types.argument, self.is_max) {
            Some(queues) => Ok(queues),
            None => self.running(types, true),
        }
    }
}

fn ranked(argument: &DataType, max: bool) -> Result<Box<dyn RunningAggregate>> {
    let arrow = argument.arrow();
    macro_rules! numbers {
        ($type:ty) => {
            Ok(Box::new(RankedNumbers::<$type>::new(max, arrow)))
        };
    }
    with_primitive!(
        arrow.clone(),
        numbers,
        match arrow {
            Arrow::Boolean | Arrow::Utf8View | Arrow::Binary => {
                Ok(Box::new(RankedBytes::new(max, BytesKind::of(&arrow)?)))
            }
            _ => Err(Error::plan(format!("MIN and MAX cannot be applied to {argument}"))),
        }
    )
}
