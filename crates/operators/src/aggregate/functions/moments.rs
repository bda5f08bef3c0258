//! `STDDEV_POP(x)`, `STDDEV_SAMP(x)`, `VAR_POP(x)`, `VAR_SAMP(x)`
//!
//! POP divides by the number of values, SAMP by one less: of a single value SAMP is NULL. STDDEV is
//! the square root of VAR.

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::super::description::{Aggregate, Exactness, Types};
use super::super::fold::Groups;
use super::super::moments::{self, DecimalMoments, IntegerMoments, MomentsKind};
use super::super::running::exact;
use super::super::running::numbers::{decimals, floats, integers};
use super::super::{Accumulator, RunningAggregate};

/// How far a group's values lie from their mean.
pub struct Moments {
    name: &'static str,
    kind: MomentsKind,
}

const fn named(name: &'static str, sample: bool, root: bool) -> Moments {
    Moments { name, kind: MomentsKind { sample, root } }
}

pub const STDDEV_POP: Moments = named("STDDEV_POP", false, true);
pub const STDDEV_SAMP: Moments = named("STDDEV_SAMP", true, true);
pub const VAR_POP: Moments = named("VAR_POP", false, false);
pub const VAR_SAMP: Moments = named("VAR_SAMP", true, false);

impl Aggregate for Moments {
    fn name(&self) -> &str {
        self.name
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        let result = match argument {
            DataType::Decimal(_, scale) => DataType::Decimal(38, (*scale).max(6)),
            other if other.is_numeric() => other.clone(),
            _ => return None,
        };
        Some(result.nullable())
    }
    fn exactness(&self, result: &DataType) -> Exactness {
        if result.is_float() { Exactness::Ordered } else { Exactness::Invertible }
    }
    fn accumulator(&self, types: &Types) -> Result<Box<dyn Accumulator>> {
        let (kind, result) = (self.kind, types.result.clone());
        Ok(match &types.argument {
            DataType::Decimal(_, scale) => {
                Box::new(Groups::new(DecimalMoments { kind, scale: *scale, result }))
            }
            other if other.is_integer() => Box::new(Groups::new(IntegerMoments { kind, result })),
            other if other.is_float() => Box::new(Groups::new(moments::Moments { kind, result })),
            other => return Err(without_variance(other)),
        })
    }
    fn retractable(&self, types: &Types) -> Result<Option<Box<dyn Accumulator>>> {
        let Types { argument, result } = types;
        if argument.is_float() {
            let exact = exact::Moments { kind: self.kind, result: result.clone() };
            return Ok(Some(Box::new(Groups::new(exact))));
        }
        self.accumulator(types).map(Some)
    }
    fn running(&self, types: &Types, retracts: bool) -> Result<Box<dyn RunningAggregate>> {
        let (kind, result) = (self.kind, types.result.clone());
        Ok(match &types.argument {
            DataType::Decimal(_, scale) => decimals(DecimalMoments { kind, scale: *scale, result }),
            other if other.is_integer() => integers(other, IntegerMoments { kind, result }),
            other if other.is_float() && retracts => floats(exact::Moments { kind, result }),
            other if other.is_float() => floats(moments::Moments { kind, result }),
            other => return Err(without_variance(other)),
        })
    }
}

fn without_variance(argument: &DataType) -> Error {
    Error::plan(format!("variances cannot be taken of {argument}"))
}
