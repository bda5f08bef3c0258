//! `SUM(x)`, `AVG(x)`
//!
//! | argument | state | running, with retractions |
//! |---|---|---|
//! | integers | 64 bits that wrap, as in Flink | the same |
//! | DECIMAL of at most 18 digits | 128 bits | the same |
//! | wider DECIMAL | 256 bits | the same |
//! | FLOAT, DOUBLE | a double | an exact sum: a rounded one would not return to what it was |
//!
//! AVG of integers is an integer, rounded towards zero, as in Flink.

use arrow_buffer::i256;
use thalweg_core::{ColumnType, DataType, Error, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::fold::Groups;
use super::super::running::exact;
use super::super::running::numbers::{decimals, floats, integers};
use super::super::sums::{DecimalSum, FloatSum, IntegerSum};
use super::super::{Accumulator, RunningAggregate};

/// The sum of a group's values, or their mean.
pub struct Sum {
    /// True for AVG.
    pub is_mean: bool,
}

impl Aggregate for Sum {
    fn name(&self) -> &str {
        if self.is_mean { "AVG" } else { "SUM" }
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        let result = match argument {
            DataType::Decimal(_, scale) if self.is_mean => DataType::Decimal(38, (*scale).max(6)),
            DataType::Decimal(_, scale) => DataType::Decimal(38, *scale),
            other if other.is_numeric() => other.clone(),
            _ => return None,
        };
        Some(result.nullable())
    }
    fn exactness(&self, result: &DataType) -> Exactness {
        if result.is_float() { Exactness::Ordered } else { Exactness::Invertible }
    }
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>> {
        let (result, mean) = (types.result.clone(), self.is_mean);
        Ok(match &types.argument {
            DataType::Decimal(precision, scale) if *precision <= 18 => {
                Box::new(Groups::new(DecimalSum::<i128>::new(*scale, result, mean)))
            }
            DataType::Decimal(_, scale) => {
                Box::new(Groups::new(DecimalSum::<i256>::new(*scale, result, mean)))
            }
            other if other.is_integer() => Box::new(Groups::new(IntegerSum { result, mean })),
            other if other.is_float() => Box::new(Groups::new(FloatSum { result, mean })),
            other => return Err(not_summed(other)),
        })
    }
    fn retractable(&self, types: &Types) -> Result<Option<Box<dyn Accumulator>>> {
        let Types { argument, result } = types;
        if argument.is_float() {
            let exact = exact::Sum { result: result.clone(), mean: self.is_mean };
            return Ok(Some(Box::new(Groups::new(exact))));
        }
        self.accumulator(types).map(Some)
    }
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        let (result, mean) = (types.result.clone(), self.is_mean);
        Ok(match &types.argument {
            DataType::Decimal(precision, scale) if *precision <= 18 => {
                decimals(DecimalSum::<i128>::new(*scale, result, mean))
            }
            DataType::Decimal(_, scale) => decimals(DecimalSum::<i256>::new(*scale, result, mean)),
            other if other.is_integer() => integers(other, IntegerSum { result, mean }),
            other if other.is_float() && retracts => floats(exact::Sum { result, mean }),
            other if other.is_float() => floats(FloatSum { result, mean }),
            other => return Err(not_summed(other)),
        })
    }
}

fn not_summed(argument: &DataType) -> Error {
    Error::plan(format!("SUM and AVG cannot be applied to {argument}"))
}
