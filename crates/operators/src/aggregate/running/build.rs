//! Which implementation runs, decided once from function and types.

use std::marker::PhantomData;

use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_buffer::i256;
use arrow_schema::{DataType as Arrow, IntervalUnit, TimeUnit};
use thalweg_core::{DataType, Error, Result};

use super::super::extremes::{BytesKind, with_primitive};
use super::super::moments::{DecimalMoments, IntegerMoments, Moments, MomentsKind};
use super::super::sums::{DecimalSum, FloatSum, IntegerSum};
use super::super::{AggregateCall, AggregateFunction};
use super::RunningAggregate;
use super::bytes::BytesColumn;
use super::column::{Column, Count, Remembering};
use super::distinct::RunningDistinct;
use super::elements::Elements;
use super::estimate::Sketches;
use super::exact;
use super::joined::Joined;
use super::numbers::{Choice, Keep, Of};
use super::percentile::SortedValues;
use super::ranked::{RankedBytes, RankedNumbers};
use super::sequence::Sequence;
use super::stepwise::Stepwise;

type Built = Result<Box<dyn RunningAggregate>>;

impl AggregateCall {
    /// An empty column of states that gives results row by row. `argument` is the type of the
    /// argument's column; `retracts` says that rows may be taken back.
    pub fn running(&self, argument: Option<&DataType>, retracts: bool) -> Built {
        use AggregateFunction as F;
        let data_type = match (&self.function, argument) {
            (F::Count, None) => return Ok(Box::new(Count::default())),
            (_, Some(data_type)) => data_type,
            (function, None) => {
                return Err(Error::internal(format!("{} without argument", function.name())));
            }
        };
        let plain = self.plain_running(data_type, retracts)?;
        // The same values again leave an extreme as it is, and the first value while none goes.
        let repeats_matter = match self.function {
            F::Min | F::Max | F::ApproxCountDistinct => false,
            F::FirstValue => retracts,
            _ => true,
        };
        match self.distinct && repeats_matter {
            true => Ok(Box::new(RunningDistinct::new(data_type, self.takes_nulls(), plain)?)),
            false => Ok(plain),
        }
    }

    fn plain_running(&self, argument: &DataType, retracts: bool) -> Built {
        use AggregateFunction as F;
        let result = self.result.data_type.clone();
        match &self.function {
            F::Count => Ok(Box::new(Count::default())),
            F::Sum | F::Avg => sum(argument, result, matches!(self.function, F::Avg), retracts),
            F::StddevPop | F::StddevSamp | F::VarPop | F::VarSamp => {
                let sample = matches!(self.function, F::StddevSamp | F::VarSamp);
                let root = matches!(self.function, F::StddevPop | F::StddevSamp);
                moments(argument, result, MomentsKind { sample, root }, retracts)
            }
            F::Min | F::Max if retracts => ranked(argument, matches!(self.function, F::Max)),
            F::FirstValue | F::LastValue if retracts => {
                let last = matches!(self.function, F::LastValue);
                Ok(Box::new(Sequence::new(argument, last)?))
            }
            F::Min => self.kept(argument, Choice::Least),
            F::Max => self.kept(argument, Choice::Greatest),
            F::FirstValue => self.kept(argument, Choice::First),
            F::LastValue => self.kept(argument, Choice::Last),
            F::ListAgg { separator } => Ok(Box::new(Joined::new(separator))),
            F::ArrayAgg { skips_nulls } => Ok(Box::new(Elements::new(argument, *skips_nulls)?)),
            F::Percentile(fractions) => Ok(Box::new(SortedValues::new(fractions.clone()))),
            F::ApproxCountDistinct if retracts => Err(Error::unsupported(
                "APPROX_COUNT_DISTINCT over rows that may be taken back: updated, deleted, or out of a frame",
            )
            .hint("COUNT(DISTINCT x) can give values back")),
            F::ApproxCountDistinct => Ok(Box::new(Sketches::default())),
            F::User(user) if retracts && !user.retracts() => {
                let name = user.name();
                Err(Error::unsupported(format!(
                    "{name} over rows that may be updated or deleted: it cannot take values back"
                ))
                .hint("implement `retract` in Rust, or aggregate a stream that only inserts"))
            }
            F::User(_) => Ok(Box::new(Stepwise::new(self.plain_accumulator(argument)?, true))),
        }
    }

    /// One value of those that were inserted.
    fn kept(&self, argument: &DataType, choice: Choice) -> Built {
        let arrow = argument.arrow();
        match arrow {
            Arrow::Boolean | Arrow::Utf8View | Arrow::Binary => {
                return Ok(Box::new(BytesColumn::new(BytesKind::of(&arrow)?, choice)));
            }
            _ => {}
        }
        macro_rules! kept {
            ($type:ty) => {
                Ok(match choice {
                    Choice::Least => keep::<$type, { Choice::Least as u8 }>(arrow),
                    Choice::Greatest => keep::<$type, { Choice::Greatest as u8 }>(arrow),
                    Choice::First => keep::<$type, { Choice::First as u8 }>(arrow),
                    Choice::Last => keep::<$type, { Choice::Last as u8 }>(arrow),
                })
            };
        }
        let nested =
            || -> Built { Ok(Box::new(Stepwise::new(self.plain_accumulator(argument)?, false))) };
        with_primitive!(arrow.clone(), kept, nested())
    }
}

fn keep<T, const CHOICE: u8>(arrow: Arrow) -> Box<dyn RunningAggregate>
where
    T: arrow_array::types::ArrowPrimitiveType,
    T::Native: Default,
{
    Box::new(Column::new(Keep::<T, CHOICE>::new(), arrow))
}

fn ranked(argument: &DataType, max: bool) -> Built {
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

fn sum(argument: &DataType, result: DataType, mean: bool, retracts: bool) -> Built {
    let arrow = result.arrow();
    macro_rules! exact {
        ($type:ty) => {{
            let rule = exact::Sum::<$type> { mean, of: PhantomData };
            Ok(Box::new(Column::new(Remembering(rule), arrow)))
        }};
    }
    macro_rules! of {
        ($type:ty, $arithmetic:expr) => {
            Ok(Box::new(Column::new(Of::<$type, _>::new($arithmetic), arrow)))
        };
    }
    match argument {
        DataType::TinyInt => of!(Int8Type, IntegerSum { result, mean }),
        DataType::SmallInt => of!(Int16Type, IntegerSum { result, mean }),
        DataType::Int => of!(Int32Type, IntegerSum { result, mean }),
        DataType::BigInt => of!(Int64Type, IntegerSum { result, mean }),
        DataType::Float if retracts => exact!(Float32Type),
        DataType::Double if retracts => exact!(Float64Type),
        DataType::Float => of!(Float32Type, FloatSum { result, mean }),
        DataType::Double => of!(Float64Type, FloatSum { result, mean }),
        DataType::Decimal(precision, scale) if *precision <= 18 => {
            let rule = Of::<Decimal128Type, _>::new(DecimalSum::<i128>::new(*scale, result, mean));
            Ok(Box::new(Column::new(Remembering(rule), arrow)))
        }
        DataType::Decimal(_, scale) => {
            let rule = Of::<Decimal128Type, _>::new(DecimalSum::<i256>::new(*scale, result, mean));
            Ok(Box::new(Column::new(Remembering(rule), arrow)))
        }
        other => Err(Error::plan(format!("SUM and AVG cannot be applied to {other}"))),
    }
}

fn moments(argument: &DataType, result: DataType, kind: MomentsKind, retracts: bool) -> Built {
    let arrow = result.arrow();
    macro_rules! exact {
        ($type:ty) => {{
            let rule = exact::Moments::<$type> { kind, of: PhantomData };
            Ok(Box::new(Column::new(Remembering(rule), arrow)))
        }};
    }
    macro_rules! of {
        ($type:ty, $arithmetic:expr) => {
            Ok(Box::new(Column::new(Remembering(Of::<$type, _>::new($arithmetic)), arrow)))
        };
    }
    match argument {
        DataType::TinyInt => of!(Int8Type, IntegerMoments { kind, result }),
        DataType::SmallInt => of!(Int16Type, IntegerMoments { kind, result }),
        DataType::Int => of!(Int32Type, IntegerMoments { kind, result }),
        DataType::BigInt => of!(Int64Type, IntegerMoments { kind, result }),
        DataType::Float if retracts => exact!(Float32Type),
        DataType::Double if retracts => exact!(Float64Type),
        DataType::Float => of!(Float32Type, Moments { kind, result }),
        DataType::Double => of!(Float64Type, Moments { kind, result }),
        DataType::Decimal(_, scale) => {
            of!(Decimal128Type, DecimalMoments { kind, scale: *scale, result })
        }
        other => Err(Error::plan(format!("variances cannot be taken of {other}"))),
    }
}
