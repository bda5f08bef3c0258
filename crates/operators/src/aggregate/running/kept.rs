//! One value of those that were inserted: the least, the greatest, the first or the last.
//!
//! Only for inserts: once a better value has replaced another one, the other is not known any more.

use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::super::Accumulator;
use super::super::extremes::{BytesKind, Choice, with_primitive};
use super::RunningAggregate;
use super::bytes::BytesColumn;
use super::column::Column;
use super::numbers::Keep;
use super::stepwise::Stepwise;

/// One value of those that were inserted.
///
/// # Errors
/// As `nested`, which makes the accumulator of values without a typed loop.
pub(in crate::aggregate) fn kept(
    argument: &DataType,
    choice: Choice,
    nested: impl FnOnce() -> Result<Box<dyn Accumulator>>,
) -> Result<Box<dyn RunningAggregate>> {
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
    with_primitive!(arrow.clone(), kept, Ok(Box::new(Stepwise::new(nested()?, false))))
}

fn keep<T, const CHOICE: u8>(arrow: Arrow) -> Box<dyn RunningAggregate>
where
    T: arrow_array::types::ArrowPrimitiveType,
    T::Native: Default,
{
    Box::new(Column::new(Keep::<T, CHOICE>::new(), arrow))
}
