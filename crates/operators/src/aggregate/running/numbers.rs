//! SUM, AVG, deviations and variances, MIN, MAX, FIRST_VALUE and LAST_VALUE of numbers, as rules
//! for one row: the arithmetic is that of the accumulators. Sums of FLOAT and DOUBLE here only
//! grow; those that values leave are in [`exact`](super::exact).

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type,
};
use arrow_array::{ArrowNativeTypeOp, PrimitiveArray};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::super::fold::Fold;
use super::super::moments::{DecimalMoments, IntegerMoments, Moments, Powers, Welford};
use super::super::sums::{DecimalSum, FloatSum, IntegerSum, Sum, Wide};
use super::super::{StateColumns, StateRows};
use super::column::Rule;

/// Integer types, as 64 bits.
pub(in crate::aggregate) trait Integer: ArrowPrimitiveType {
    /// With sign.
    fn widen(value: Self::Native) -> i64;
    /// The lowest bits.
    fn wrap(value: i64) -> Self::Native;
}

/// FLOAT and DOUBLE, as DOUBLE.
pub(in crate::aggregate) trait Float: ArrowPrimitiveType {
    /// Exactly.
    fn widen(value: Self::Native) -> f64;
    /// Rounded.
    fn narrow(value: f64) -> Self::Native;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            #[inline(always)]
            fn widen(value: Self::Native) -> i64 {
                value.into()
            }
            #[inline(always)]
            fn wrap(value: i64) -> Self::Native {
                value as _
            }
        }
    )*};
}
integers!(Int8Type, Int16Type, Int32Type, Int64Type);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Float for $type {
            #[inline(always)]
            fn widen(value: Self::Native) -> f64 {
                value.into()
            }
            #[inline(always)]
            fn narrow(value: f64) -> Self::Native {
                value as _
            }
        }
    )*};
}
floats!(Float32Type, Float64Type);

/// A rule for values of the Arrow type `T` that leaves the arithmetic to `of`.
pub(in crate::aggregate) struct Of<T, A> {
    of: A,
    types: PhantomData<fn() -> T>,
}

impl<T, A> Of<T, A> {
    pub(in crate::aggregate) fn new(of: A) -> Self {
        Of { of, types: PhantomData }
    }
}

macro_rules! rule {
    ([$($generics:tt)*] $type:ty, $arithmetic:ty, $group:ty, $widen:expr, [$add:ident $(, $remove:ident)?], $narrow:expr) => {
        impl<$($generics)*> Rule for Of<$type, $arithmetic> {
            type Argument = $type;
            type Result = $type;
            type Group = $group;

            #[inline(always)]
            fn add(&self, group: &mut Self::Group, value: <$type as ArrowPrimitiveType>::Native) {
                group.$add($widen(value));
            }
            $(
                #[inline(always)]
                fn retract(
                    &self,
                    group: &mut Self::Group,
                    value: <$type as ArrowPrimitiveType>::Native,
                ) {
                    group.$remove($widen(value));
                }
            )?
            #[inline(always)]
            fn result(
                &self,
                group: &Self::Group,
            ) -> Option<<$type as ArrowPrimitiveType>::Native> {
                self.of.value(group).map($narrow)
            }
            fn capture(
                &self,
                groups: &[Self::Group],
                _result: &Arrow,
                columns: &mut StateColumns,
            ) -> Result<()> {
                Fold::capture(&self.of, groups, &all_of(groups), columns)
            }
            fn restore(
                &self,
                groups: &mut [Self::Group],
                rows: &StateRows<'_>,
            ) -> Result<()> {
                let ids = all_of(groups);
                Fold::restore(&self.of, groups, &ids, rows)
            }
        }
    };
}

rule!([T: Integer] T, IntegerSum, Sum<i64>, T::widen, [add, remove], T::wrap);
rule!([T: Float] T, FloatSum, Sum<f64>, T::widen, [add], T::narrow);
rule!([W: Wide] Decimal128Type, DecimalSum<W>, Sum<W>, i128::from, [add_decimal, remove_decimal], i128::from);
rule!([T: Integer] T, IntegerMoments, Powers, T::widen, [add_integer, remove_integer], T::wrap);
rule!([T: Float] T, Moments, Welford, T::widen, [add], T::narrow);
rule!([] Decimal128Type, DecimalMoments, Powers, i128::from, [add, remove], i128::from);

/// The numbers of all of these.
fn all_of<G>(groups: &[G]) -> Vec<u32> {
    (0..groups.len() as u32).collect()
}

/// A value of those that came, if one has.
#[derive(Clone, Copy, Default)]
pub(in crate::aggregate) struct Kept<N> {
    value: N,
    set: bool,
}

/// Which value of those that came is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::aggregate) enum Choice {
    Least,
    Greatest,
    First,
    Last,
}

/// MIN, MAX, FIRST_VALUE or LAST_VALUE of inserts: `CHOICE` is a [`Choice`] as a number, so that
/// the loop knows it.
pub(in crate::aggregate) struct Keep<T, const CHOICE: u8>(PhantomData<fn() -> T>);

impl<T, const CHOICE: u8> Keep<T, CHOICE> {
    pub(in crate::aggregate) fn new() -> Self {
        Keep(PhantomData)
    }
}

impl<T: ArrowPrimitiveType, const CHOICE: u8> Rule for Keep<T, CHOICE>
where
    T::Native: Default,
{
    type Argument = T;
    type Result = T;
    type Group = Kept<T::Native>;

    #[inline(always)]
    fn add(&self, group: &mut Self::Group, value: T::Native) {
        const LEAST: u8 = Choice::Least as u8;
        const GREATEST: u8 = Choice::Greatest as u8;
        const FIRST: u8 = Choice::First as u8;
        let better = match CHOICE {
            LEAST => value.is_lt(group.value),
            GREATEST => value.is_gt(group.value),
            FIRST => false,
            _ => true,
        };
        if better || !group.set {
            *group = Kept { value, set: true };
        }
    }
    #[inline(always)]
    fn result(&self, group: &Self::Group) -> Option<T::Native> {
        group.set.then_some(group.value)
    }
    fn capture(
        &self,
        groups: &[Self::Group],
        result: &Arrow,
        columns: &mut StateColumns,
    ) -> Result<()> {
        let values = groups.iter().map(|group| self.result(group));
        let values: PrimitiveArray<T> = values.collect();
        columns.add("", Arc::new(values.with_data_type(result.clone())));
        Ok(())
    }
    fn restore(&self, groups: &mut [Self::Group], rows: &StateRows<'_>) -> Result<()> {
        for (group, value) in groups.iter_mut().zip(rows.primitive::<T>("")?) {
            let set = value.is_some();
            *group = Kept { value: value.unwrap_or_default(), set };
        }
        Ok(())
    }
}
