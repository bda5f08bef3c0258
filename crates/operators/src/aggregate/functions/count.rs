//! `COUNT(*)`, `COUNT(x)`
//!
//! A plain `COUNT(*)` without FILTER never gets here in windows: it equals the number of rows that
//! each group keeps anyway (`AggregateCall::counts_rows`).

use thalweg_core::{ColumnType, DataType, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::fold::Groups;
use super::super::running::column;
use super::super::{Accumulator, RunningAggregate, sums};

/// How many rows, or values that are not NULL.
pub struct Count;

impl Aggregate for Count {
    fn name(&self) -> &str {
        "COUNT"
    }
    fn result(&self, _: &DataType) -> Option<ColumnType> {
        Some(DataType::BigInt.not_null())
    }
    fn counts_rows(&self) -> bool {
        true
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Invertible
    }
    fn accumulator(&self, _: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups::new(sums::Count)))
    }
    fn retractable(&self, types: &Types) -> Result<Option<Box<dyn Accumulator>>> {
        self.accumulator(types).map(Some)
    }
    fn running(&self, _: &Types, _: bool) -> Result<Box<dyn RunningAggregate>> {
        Ok(Box::new(column::Count::default()))
    }
}
