//! MIN and MAX, in a total order: floats as IEEE 754 totalOrder has them (-0.0 below 0.0) with one
//! NaN above all, strings and binaries by their bytes, false below true.
//!
//! An accumulator keeps one value per group, so a state cannot be subtracted: the next best value
//! is unknown. Hopping windows use the tree for them, and changelogs `running::ranked`.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, ArrowNativeTypeOp, BooleanArray, PrimitiveArray};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

use super::fold::{Fold, Groups};
use super::values::{for_each_value, retyped, with_one_nan};
use super::{Accumulator, RowOrder, StateRows, UpdateInput};

/// Calls a macro with the Arrow type that holds the numbers of a column type, or gives its last
/// argument. Dates and times are integers, and small numbers are held in wider ones
/// ([`declared`](super::values::declared)), so that code is compiled for few types.
macro_rules! with_primitive {
    ($arrow:expr, $call:ident, $otherwise:expr) => {{
        use arrow_array::types::*;
        use arrow_schema::{DataType as Arrow, IntervalUnit, TimeUnit};
        match $arrow {
            Arrow::Int8
            | Arrow::Int16
            | Arrow::Int32
            | Arrow::Date32
            | Arrow::Time32(TimeUnit::Millisecond)
            | Arrow::Interval(IntervalUnit::YearMonth) => $call!(Int32Type),
            Arrow::Int64 | Arrow::Timestamp(_, _) | Arrow::Duration(TimeUnit::Millisecond) => {
                $call!(Int64Type)
            }
            Arrow::Float32 | Arrow::Float64 => $call!(Float64Type),
            Arrow::Decimal128(_, _) => $call!(Decimal128Type),
            _ => $otherwise,
        }
    }};
}
pub(super) use with_primitive;

/// The accumulator of MIN or MAX over a column of this type.
pub(super) fn build(argument: &DataType, max: bool) -> Result<Box<dyn Accumulator>> {
    let arrow = argument.arrow();
    macro_rules! primitive {
        ($type:ty) => {
            Ok(match max {
                true => accumulator::<$type, { Choice::Greatest as u8 }>(arrow),
                false => accumulator::<$type, { Choice::Least as u8 }>(arrow),
            })
        };
    }
    with_primitive!(
        arrow.clone(),
        primitive,
        match arrow {
            Arrow::Boolean | Arrow::Utf8View | Arrow::Binary => {
                Ok(Box::new(Groups::new(BytesExtreme {
                    choice: Choice::extreme(max),
                    kind: BytesKind::of(&arrow)?,
                })))
            }
            _ => Err(Error::plan(format!("MIN and MAX cannot be applied to {argument}"))),
        }
    )
}

fn accumulator<T: ArrowPrimitiveType, const CHOICE: u8>(arrow: Arrow) -> Box<dyn Accumulator>
where
    T::Native: Default,
{
    Box::new(Groups::new(Extreme::<T, CHOICE> { arrow, of: PhantomData }))
}

/// Which value of those that came is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Least,
    Greatest,
    First,
    Last,
}

impl Choice {
    /// That of MAX, or of MIN.
    pub fn extreme(is_max: bool) -> Self {
        if is_max { Choice::Greatest } else { Choice::Least }
    }
}

/// A value of those that came, if one has.
#[derive(Clone, Copy, Default)]
pub(super) struct Chosen<N> {
    value: N,
    set: bool,
}

impl<N: ArrowNativeTypeOp> Chosen<N> {
    /// A value comes; `CHOICE` is a [`Choice`] as a number, so that the loop knows it.
    #[inline(always)]
    pub fn offer<const CHOICE: u8>(&mut self, value: N) {
        const LEAST: u8 = Choice::Least as u8;
        const GREATEST: u8 = Choice::Greatest as u8;
        const FIRST: u8 = Choice::First as u8;
        let better = match CHOICE {
            LEAST => value.is_lt(self.value),
            GREATEST => value.is_gt(self.value),
            FIRST => false,
            _ => true,
        };
        if better || !self.set {
            *self = Chosen { value, set: true };
        }
    }
    /// The value.
    #[inline(always)]
    pub fn get(&self) -> Option<N> {
        self.set.then_some(self.value)
    }
}

impl<N: Default> From<Option<N>> for Chosen<N> {
    fn from(value: Option<N>) -> Self {
        let set = value.is_some();
        Chosen { value: value.unwrap_or_default(), set }
    }
}

struct Extreme<T, const CHOICE: u8> {
    arrow: Arrow,
    of: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType, const CHOICE: u8> Fold for Extreme<T, CHOICE>
where
    T::Native: Default,
{
    type Group = Chosen<T::Native>;

    fn update(&self, groups: &mut [Self::Group], input: &UpdateInput<'_>) -> Result<()> {
        let column = with_one_nan(input.column()?);
        for_each_value::<T>(&column, input, |id, value, _| groups[id].offer::<CHOICE>(value))
    }
    fn merge(&self, into: &mut Self::Group, from: &Self::Group) {
        if from.set {
            into.offer::<CHOICE>(from.value);
        }
    }
    fn evaluate(&self, groups: &[Self::Group], ids: &[u32]) -> Result<ArrayRef> {
        let array: PrimitiveArray<T> = ids.iter().map(|&id| groups[id as usize].get()).collect();
        Ok(retyped(Arc::new(array), &self.arrow))
    }
    fn restore(&self, groups: &mut [Self::Group], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.update(groups, &as_rows(ids, rows.column("", &self.arrow)?))
    }
}

/// One row for each group: where the state of one row is the row itself, states come back as rows.
pub(super) fn as_rows<'a>(ids: &'a [u32], column: &'a ArrayRef) -> UpdateInput<'a> {
    UpdateInput { ids, rows: None, argument: Some(column), order: RowOrder::default() }
}

/// Columns whose values are read as bytes.
#[derive(Clone, Copy)]
pub(super) enum BytesKind {
    Boolean,
    Text,
    Binary,
}

impl BytesKind {
    pub fn of(arrow: &Arrow) -> Result<Self> {
        match arrow {
            Arrow::Boolean => Ok(BytesKind::Boolean),
            Arrow::Utf8View => Ok(BytesKind::Text),
            Arrow::Binary => Ok(BytesKind::Binary),
            other => Err(Error::internal(format!("values of {other} are not read as bytes"))),
        }
    }

    /// The type of such columns.
    pub fn arrow(self) -> Arrow {
        match self {
            BytesKind::Boolean => Arrow::Boolean,
            BytesKind::Text => Arrow::Utf8View,
            BytesKind::Binary => Arrow::Binary,
        }
    }

    /// A loop over the non-NULL values: `each(group, bytes, row)`.
    pub fn for_each(
        self,
        input: &UpdateInput<'_>,
        mut each: impl FnMut(usize, &[u8], u32),
    ) -> Result<()> {
        let column = input.column()?;
        let valid = super::values::nulls(column);
        macro_rules! walk {
            ($bytes:expr) => {
                for (place, &id) in input.ids.iter().enumerate() {
                    let row = input.row(place) as usize;
                    if valid.is_none_or(|nulls| nulls.is_valid(row)) {
                        each(id as usize, $bytes(row), row as u32);
                    }
                }
            };
        }
        match self {
            BytesKind::Boolean => {
                let values = column.as_boolean().values();
                walk!(|row| if values.value(row) { &[1u8][..] } else { &[0u8][..] });
            }
            BytesKind::Text => {
                let values = column.as_string_view();
                walk!(|row| values.value(row).as_bytes());
            }
            BytesKind::Binary => {
                let values = column.as_binary::<i32>();
                walk!(|row| values.value(row));
            }
        }
        Ok(())
    }

    /// A column of these values.
    pub fn array<'a>(self, values: impl Iterator<Item = Option<&'a [u8]>>) -> ArrayRef {
        match self {
            BytesKind::Boolean => {
                Arc::new(values.map(|v| v.map(|v| v == [1])).collect::<BooleanArray>())
            }
            BytesKind::Text => {
                let mut builder = StringViewBuilder::new();
                for value in values {
                    builder.append_option(
                        value.map(|v| std::str::from_utf8(v).expect("kept from a string")),
                    );
                }
                Arc::new(builder.finish())
            }
            BytesKind::Binary => {
                let mut builder = BinaryBuilder::new();
                values.for_each(|value| builder.append_option(value));
                Arc::new(builder.finish())
            }
        }
    }
}

/// A value whose buffer is used again, so that a new one seldom allocates.
#[derive(Clone, Default)]
pub(super) struct ChosenBytes {
    value: Vec<u8>,
    set: bool,
}

impl ChosenBytes {
    /// The value.
    pub fn get(&self) -> Option<&[u8]> {
        self.set.then_some(&self.value)
    }
    /// A value comes.
    #[inline]
    pub fn offer(&mut self, value: &[u8], choice: Choice) {
        let better = match choice {
            Choice::Least => value < &self.value[..],
            Choice::Greatest => value > &self.value[..],
            Choice::First => false,
            Choice::Last => true,
        };
        if better || !self.set {
            self.value.clear();
            self.value.extend_from_slice(value);
            self.set = true;
        }
    }
    /// No value has come.
    pub fn clear(&mut self) {
        self.set = false;
    }
    /// Bytes that it takes elsewhere.
    pub fn heap_bytes(&self) -> usize {
        self.value.capacity()
    }
}

struct BytesExtreme {
    choice: Choice,
    kind: BytesKind,
}

impl Fold for BytesExtreme {
    type Group = ChosenBytes;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [ChosenBytes], input: &UpdateInput<'_>) -> Result<()> {
        self.kind.for_each(input, |id, value, _| groups[id].offer(value, self.choice))
    }
    fn merge(&self, into: &mut ChosenBytes, from: &ChosenBytes) {
        if let Some(value) = from.get() {
            into.offer(value, self.choice);
        }
    }
    fn evaluate(&self, groups: &[ChosenBytes], ids: &[u32]) -> Result<ArrayRef> {
        Ok(self.kind.array(ids.iter().map(|&id| groups[id as usize].get())))
    }
    fn restore(&self, groups: &mut [ChosenBytes], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.update(groups, &as_rows(ids, rows.column("", &self.kind.arrow())?))
    }
    fn heap_bytes(&self, group: &ChosenBytes) -> usize {
        group.heap_bytes()
    }
}
