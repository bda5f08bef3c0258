//! FIRST_VALUE and LAST_VALUE by arrival, NULLs passed over as in Flink.
//!
//! Each value keeps its place in arrival order, so partial states commute: of two, the one with
//! the smaller (or larger) place wins, whatever came first at this worker.
//!
//! The place is (lane, epoch, ordinal of the bundle, row). It does not depend on the partition or
//! worker that took the row, so the result is the same for every number of threads.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::extremes::{BytesKind, as_rows, with_primitive};
use super::fold::{Fold, Groups};
use super::values::{for_each_value, nulls, retyped};
use super::{Accumulator, RowOrder, StateColumns, StateRows, UpdateInput};

/// A row's place in arrival order.
type ArrivalPlace = (RowOrder, u32);

/// The accumulator of FIRST_VALUE or LAST_VALUE over a column of this type.
pub(super) fn build(argument: &DataType, last: bool) -> Result<Box<dyn Accumulator>> {
    let arrow = argument.arrow();
    macro_rules! primitive {
        ($type:ty) => {
            Ok(Box::new(Groups::new(Primitive::<$type> { last, arrow, of: PhantomData })))
        };
    }
    with_primitive!(
        arrow.clone(),
        primitive,
        match arrow {
            Arrow::Boolean | Arrow::Utf8View | Arrow::Binary => {
                let reader = Reader::Bytes(BytesKind::of(&arrow)?);
                Ok(Box::new(Groups::new(Bytes { last, reader, arrow })))
            }
            other => {
                let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
                let reader = Reader::Rows(Arc::new(converter));
                Ok(Box::new(Groups::new(Bytes { last, reader, arrow: other })))
            }
        }
    )
}

/// A value and its place; no place means no value yet.
#[derive(Clone, Default)]
struct Placed<V> {
    value: V,
    place: Option<ArrivalPlace>,
}

impl<V> Placed<V> {
    /// Places are unique, so of two values one always wins and the order of merges does not matter.
    #[inline]
    fn yields_to(&self, place: ArrivalPlace, last: bool) -> bool {
        self.place.is_none_or(|own| if last { place > own } else { place < own })
    }
}

/// Captures the places of values as four columns, NULL where there is no value.
fn capture_places(
    places: impl Iterator<Item = Option<ArrivalPlace>> + Clone,
    columns: &mut StateColumns,
) {
    let longs = |of: fn(ArrivalPlace) -> u64| -> ArrayRef {
        let column: PrimitiveArray<UInt64Type> =
            places.clone().map(|place| place.map(of)).collect();
        Arc::new(column)
    };
    let shorts = |of: fn(ArrivalPlace) -> u32| -> ArrayRef {
        let column: PrimitiveArray<UInt32Type> =
            places.clone().map(|place| place.map(of)).collect();
        Arc::new(column)
    };
    columns.add("lane", shorts(|(order, _)| order.lane));
    columns.add("epoch", longs(|(order, _)| order.epoch));
    columns.add("ordinal", longs(|(order, _)| order.ordinal));
    columns.add("row", shorts(|(_, row)| row));
}

/// The places that [`capture_places`] captured; those of rows without a value mean nothing.
fn restore_places(rows: &StateRows<'_>) -> Result<Vec<ArrivalPlace>> {
    let lanes = rows.primitive::<UInt32Type>("lane")?;
    let epochs = rows.primitive::<UInt64Type>("epoch")?;
    let ordinals = rows.primitive::<UInt64Type>("ordinal")?;
    let rows_of = rows.primitive::<UInt32Type>("row")?;
    let of = |row: usize| {
        let (lane, epoch, ordinal) = (lanes.value(row), epochs.value(row), ordinals.value(row));
        (RowOrder { lane, epoch, ordinal }, rows_of.value(row))
    };
    Ok((0..rows.len()).map(of).collect())
}

struct Primitive<T> {
    last: bool,
    arrow: Arrow,
    of: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> Fold for Primitive<T>
where
    T::Native: Default,
{
    type Group = Placed<T::Native>;

    fn update(&self, groups: &mut [Self::Group], input: &UpdateInput<'_>) -> Result<()> {
        for_each_value::<T>(input.column()?, input, |id, value, row| {
            let place = (input.order, row);
            if groups[id].yields_to(place, self.last) {
                groups[id] = Placed { value, place: Some(place) };
            }
        })
    }
    fn merge(&self, into: &mut Self::Group, from: &Self::Group) {
        if from.place.is_some_and(|place| into.yields_to(place, self.last)) {
            *into = from.clone();
        }
    }
    fn evaluate(&self, groups: &[Self::Group], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| {
            let group = &groups[id as usize];
            group.place.map(|_| group.value)
        });
        let array: PrimitiveArray<T> = values.collect();
        Ok(retyped(Arc::new(array), &self.arrow))
    }
    fn capture(
        &self,
        groups: &[Self::Group],
        ids: &[u32],
        columns: &mut StateColumns,
    ) -> Result<()> {
        columns.add("", self.evaluate(groups, ids)?);
        capture_places(ids.iter().map(|&id| groups[id as usize].place), columns);
        Ok(())
    }
    fn restore(&self, groups: &mut [Self::Group], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let places = restore_places(rows)?;
        let column = rows.column("", &self.arrow)?;
        for_each_value::<T>(column, &as_rows(ids, column), |id, value, row| {
            groups[id] = Placed { value, place: Some(places[row as usize]) };
        })
    }
}

/// How values become bytes and come back.
#[derive(Clone)]
enum Reader {
    Bytes(BytesKind),
    /// Nested types, by their row encoding.
    Rows(Arc<RowConverter>),
}

#[derive(Clone)]
struct Bytes {
    last: bool,
    reader: Reader,
    arrow: Arrow,
}

impl Bytes {
    #[inline]
    fn offer(&self, group: &mut Placed<Vec<u8>>, value: &[u8], place: ArrivalPlace) {
        if group.yields_to(place, self.last) {
            group.value.clear();
            group.value.extend_from_slice(value);
            group.place = Some(place);
        }
    }

    /// Offers each row's value; `place_of` says where it stands.
    fn take(
        &self,
        groups: &mut [Placed<Vec<u8>>],
        input: &UpdateInput<'_>,
        place_of: impl Fn(u32) -> ArrivalPlace,
    ) -> Result<()> {
        let converter = match &self.reader {
            Reader::Bytes(kind) => {
                return kind.for_each(input, |id, value, row| {
                    self.offer(&mut groups[id], value, place_of(row));
                });
            }
            Reader::Rows(converter) => converter,
        };
        let column = crate::keys::select(input.column()?, input.rows)?;
        let encoded = converter.convert_columns(&[ArrayRef::clone(&column)])?;
        let valid = nulls(&column);
        for (index, &id) in input.ids.iter().enumerate() {
            if valid.is_none_or(|nulls| nulls.is_valid(index)) {
                let place = place_of(input.row(index));
                self.offer(&mut groups[id as usize], encoded.row(index).data(), place);
            }
        }
        Ok(())
    }
}

impl Fold for Bytes {
    type Group = Placed<Vec<u8>>;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [Self::Group], input: &UpdateInput<'_>) -> Result<()> {
        self.take(groups, input, |row| (input.order, row))
    }
    fn merge(&self, into: &mut Self::Group, from: &Self::Group) {
        if let Some(place) = from.place {
            self.offer(into, &from.value, place);
        }
    }
    fn evaluate(&self, groups: &[Self::Group], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| {
            let group = &groups[id as usize];
            group.place.map(|_| &group.value[..])
        });
        let converter = match &self.reader {
            Reader::Bytes(kind) => return Ok(kind.array(values)),
            Reader::Rows(converter) => converter,
        };
        rows_to_array(converter, values.collect())
    }
    fn capture(
        &self,
        groups: &[Self::Group],
        ids: &[u32],
        columns: &mut StateColumns,
    ) -> Result<()> {
        columns.add("", self.evaluate(groups, ids)?);
        capture_places(ids.iter().map(|&id| groups[id as usize].place), columns);
        Ok(())
    }
    fn restore(&self, groups: &mut [Self::Group], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let places = restore_places(rows)?;
        let values = as_rows(ids, rows.column("", &self.arrow)?);
        self.take(groups, &values, |row| places[row as usize])
    }
    fn heap_bytes(&self, group: &Self::Group) -> usize {
        group.value.capacity()
    }
}

/// Decodes values; where there is none stands NULL.
fn rows_to_array(converter: &RowConverter, values: Vec<Option<&[u8]>>) -> Result<ArrayRef> {
    let parser = converter.parser();
    let present = values.iter().flatten().map(|bytes| parser.parse(bytes));
    let decoded = converter.convert_rows(present)?.swap_remove(0);
    let mut next = 0u32;
    let places: arrow_array::UInt32Array = values
        .iter()
        .map(|value| {
            value.map(|_| {
                next += 1;
                next - 1
            })
        })
        .collect();
    Ok(arrow_select::take::take(&decoded, &places, None)?)
}
