//! `ARRAY_AGG(x)`: the values by arrival, NULLs among them.

use thalweg_core::{ColumnType, DataType, Result};
use thalweg_expr::Expr;

use super::super::description::{Aggregate, AggregateFunction, Exactness, Types};
use super::super::fold::Groups;
use super::super::{Accumulator, RunningAggregate, lists, running};

/// The values of a group in an array.
#[derive(Default)]
pub struct ArrayAgg {
    /// True for `IGNORE NULLS`.
    skips_nulls: bool,
}

impl Aggregate for ArrayAgg {
    fn name(&self) -> &str {
        "ARRAY_AGG"
    }
    fn constants(&self) -> Option<String> {
        self.skips_nulls.then(|| " IGNORE NULLS".to_string())
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        let has_one = *argument != DataType::Null;
        has_one.then(|| DataType::Array(Box::new(argument.clone().nullable())).nullable())
    }
    fn bind(&self, arguments: &[Expr], skips_nulls: bool) -> Result<Option<AggregateFunction>> {
        Ok((arguments.len() == 1).then(|| AggregateFunction::new(ArrayAgg { skips_nulls })))
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Ordered
    }
    fn takes_nulls(&self) -> bool {
        !self.skips_nulls
    }
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups::new(lists::Elements::new(&types.argument, self.skips_nulls)?)))
    }
    fn running(&self, types: &Types, _: bool) -> Result<Box<dyn RunningAggregate>> {
        Ok(Box::new(running::elements::Elements::new(&types.argument, self.skips_nulls)?))
    }
}
