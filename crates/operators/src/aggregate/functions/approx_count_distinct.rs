//! `APPROX_COUNT_DISTINCT(x)`: how many different values, about.

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::estimate::DistinctEstimate;
use super::super::fold::Groups;
use super::super::running::estimate::Sketches;
use super::super::{Accumulator, RunningAggregate};

/// How many different values, about.
pub struct ApproxCountDistinct;

impl Aggregate for ApproxCountDistinct {
    fn name(&self) -> &str {
        "APPROX_COUNT_DISTINCT"
    }
    fn result(&self, _: &DataType) -> Option<ColumnType> {
        Some(DataType::BigInt.not_null())
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Exact
    }
    fn ignores_repeats(&self) -> bool {
        true
    }
    fn accumulator(&self, _: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups::new(DistinctEstimate)))
    }
    fn running(&self, _: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        if retracts {
            return Err(Error::unsupported(
                "APPROX_COUNT_DISTINCT over rows that may be retracted: updated, deleted, or out of a frame",
            )
            .hint("COUNT(DISTINCT x) can retract values"));
        }
        Ok(Box::new(Sketches::default()))
    }
}
