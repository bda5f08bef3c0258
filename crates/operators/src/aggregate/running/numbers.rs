//! SUM, AVG, deviations and variances, MIN, MAX, FIRST_VALUE and LAST_VALUE of numbers, as rules
//! for one row: the arithmetic is that of the accumulators. Sums of FLOAT and DOUBLE here only
//! grow; those that values leave are in [`exact`](super::exact).
//!
//! One generic rule (`Of`) joins the two halves: `Holds` widens an Arrow type to the number that is
//! computed with, and `Arithmetic` is the computation, shared with the accumulators. So the results
//! of windows and of changelogs cannot differ in a formula.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::PrimitiveArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::super::arithmetic::{Arithmetic, NumberState};
use super::super::extremes::Chosen;
use super::super::values::{declared, retyped};
use super::super::{StateColumns, StateRows};
use super::RunningAggregate;
use super::column::{Column, Remembering, Rule};

/// Arrow's types of numbers that arithmetic has as `N`.
pub(in crate::aggregate) trait Holds<N>: ArrowPrimitiveType {
    /// Exactly.
    fn widen(value: Self::Native) -> N;
    /// Rounded, or the lowest bits of an integer.
    fn narrow(value: N) -> Self::Native;
}

macro_rules! holds {
    ($($type:ty as $number:ty),*) => {$(
        impl Holds<$number> for $type {
            #[inline(always)]
            fn widen(value: Self::Native) -> $number {
                value.into()
            }
            #[inline(always)]
            fn narrow(value: $number) -> Self::Native {
                value as _
            }
        }
    )*};
}
holds!(Int32Type as i64, Int64Type as i64, Float64Type as f64, Decimal128Type as i128);

/// A running aggregate of integers of this type.
pub(in crate::aggregate) fn integers<A: Arithmetic<Number = i64>>(
    argument: &DataType,
    of: A,
) -> Box<dyn RunningAggregate> {
    match argument {
        DataType::TinyInt | DataType::SmallInt | DataType::Int => column::<Int32Type, A>(of),
        _ => column::<Int64Type, A>(of),
    }
}

/// A running aggregate of FLOAT or DOUBLE.
pub(in crate::aggregate) fn floats<A: Arithmetic<Number = f64>>(
    of: A,
) -> Box<dyn RunningAggregate> {
    column::<Float64Type, A>(of)
}

/// A running aggregate of DECIMALs.
pub(in crate::aggregate) fn decimals<A: Arithmetic<Number = i128>>(
    of: A,
) -> Box<dyn RunningAggregate> {
    column::<Decimal128Type, A>(of)
}

fn column<T: Holds<A::Number>, A: Arithmetic>(of: A) -> Box<dyn RunningAggregate> {
    let result = of.result().arrow();
    let rule = Of::<T, A> { of, types: PhantomData };
    match A::IS_COSTLY {
        true => Box::new(Column::new(Remembering(rule), result)),
        false => Box::new(Column::new(rule, result)),
    }
}

/// A rule for values of the Arrow type `T` that leaves the arithmetic to `of`.
struct Of<T, A> {
    of: A,
    types: PhantomData<fn() -> T>,
}

impl<T: Holds<A::Number>, A: Arithmetic> Rule for Of<T, A> {
    type Value = T;
    type Group = A::State;

    #[inline(always)]
    fn add(&self, group: &mut A::State, value: T::Native) {
        group.add(T::widen(value));
    }
    #[inline(always)]
    fn retract(&self, group: &mut A::State, value: T::Native) {
        group.remove(T::widen(value));
    }
    #[inline(always)]
    fn result(&self, group: &A::State) -> Option<T::Native> {
        self.of.value(group).map(T::narrow)
    }
    fn capture(&self, groups: &[A::State], _: &Arrow, columns: &mut StateColumns) -> Result<()> {
        A::State::capture(groups.iter(), self.of.scale(), columns)
    }
    fn restore(&self, _: &Arrow, rows: &StateRows<'_>) -> Result<Vec<A::State>> {
        A::State::restore(rows)
    }
    fn heap_bytes(&self, group: &A::State) -> usize {
        group.heap_bytes()
    }
    const ON_HEAP: bool = A::State::ON_HEAP;
}

/// MIN, MAX, FIRST_VALUE or LAST_VALUE of inserts: `CHOICE` is a
/// [`Choice`](super::super::extremes::Choice) as a number, so that the loop knows it.
pub(in crate::aggregate) struct Keep<T, const CHOICE: u8>(PhantomData<fn() -> T>);

impl<T, const CHOICE: u8> Keep<T, CHOICE> {
    pub fn new() -> Self {
        Keep(PhantomData)
    }
}

impl<T: ArrowPrimitiveType, const CHOICE: u8> Rule for Keep<T, CHOICE>
where
    T::Native: Default,
{
    type Value = T;
    type Group = Chosen<T::Native>;

    #[inline(always)]
    fn add(&self, group: &mut Self::Group, value: T::Native) {
        group.offer::<CHOICE>(value);
    }
    #[inline(always)]
    fn result(&self, group: &Self::Group) -> Option<T::Native> {
        group.get()
    }
    fn capture(
        &self,
        groups: &[Self::Group],
        result: &Arrow,
        columns: &mut StateColumns,
    ) -> Result<()> {
        let values: PrimitiveArray<T> = groups.iter().map(Chosen::get).collect();
        columns.add("", retyped(Arc::new(values), result));
        Ok(())
    }
    fn restore(&self, result: &Arrow, rows: &StateRows<'_>) -> Result<Vec<Self::Group>> {
        let values = declared::<T>(rows.column("", result)?)?;
        Ok(values.iter().map(Chosen::from).collect())
    }
}
