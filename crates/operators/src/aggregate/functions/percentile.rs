//! `PERCENTILE(x, fraction)`: exact, between two values in proportion.

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use thalweg_core::{ColumnType, DataType, Error, Result};
use thalweg_expr::Expr;

use super::super::description::{Aggregate, AggregateFunction, Exactness, Types};
use super::super::fold::Groups;
use super::super::percentile::{self, Fractions, doubles};
use super::super::running::percentile::SortedValues;
use super::super::{Accumulator, RunningAggregate};

/// The value below which a fraction of a group's values lies.
pub struct Percentile {
    fractions: Fractions,
}

impl Default for Percentile {
    fn default() -> Self {
        Percentile { fractions: Fractions::One(0.5) }
    }
}

impl Aggregate for Percentile {
    fn name(&self) -> &str {
        "PERCENTILE"
    }
    fn constants(&self) -> Option<String> {
        Some(format!(", {}", self.fractions))
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        argument.is_numeric().then(|| self.fractions.result_type().nullable())
    }
    fn bind(&self, arguments: &[Expr], _: bool) -> Result<Option<AggregateFunction>> {
        match arguments {
            [_, fractions] => {
                let fractions = fractions_of(fractions)?;
                Ok(Some(AggregateFunction::new(Percentile { fractions })))
            }
            [_, _, _] => Err(Error::unsupported(
                "PERCENTILE with a frequency comes with a later version here",
            )
            .hint("with GROUP BY it is there")),
            given => Err(Error::plan(format!(
                "PERCENTILE takes a value and a fraction, not {} arguments",
                given.len()
            ))
            .hint("the median is PERCENTILE(x, 0.5)")),
        }
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Exact
    }
    fn accumulator(&self, _: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups::new(percentile::Percentile::new(self.fractions.clone()))))
    }
    fn running(&self, _: &Types, _: bool) -> Result<Box<dyn RunningAggregate>> {
        Ok(Box::new(SortedValues::new(self.fractions.clone())))
    }
}

/// The constant fraction, or the constant array of them.
fn fractions_of(expr: &Expr) -> Result<Fractions> {
    let wrong = || {
        Error::plan(
            "the second argument of PERCENTILE must be a number from 0 to 1, or an ARRAY of them",
        )
        .hint("the median is PERCENTILE(x, 0.5)")
    };
    if !expr.columns().is_empty() || expr.undecided_function().is_some() {
        return Err(wrong());
    }
    let value = expr.evaluate_constant(0)?;
    let numbers = match value.as_list_opt::<i32>() {
        Some(list) if list.is_valid(0) => list.value(0),
        Some(_) => return Err(wrong()),
        None => Arc::clone(&value),
    };
    if !numbers.data_type().is_numeric() || numbers.null_count() > 0 || numbers.is_empty() {
        return Err(wrong());
    }
    let numbers = doubles(&numbers)?;
    if !numbers.values().iter().all(|number| (0.0..=1.0).contains(number)) {
        return Err(wrong());
    }
    Ok(match value.as_list_opt::<i32>() {
        Some(_) => Fractions::Many(numbers.values().iter().copied().collect()),
        None => Fractions::One(numbers.value(0)),
    })
}
