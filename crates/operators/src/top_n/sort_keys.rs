//! The sort keys of a piece as numbers that compare as Flink orders values.
//!
//! A number of 128 bits says all of one integer, time or decimal, and of what fits into 16 bytes.
//! Longer keys are compared by all of their bytes where the first 16 are the same; these bytes are
//! then kept as one more column behind those of the rows.
//!
//! NULLs take part in the order: first for ascending keys and last for descending ones, unless the
//! query says otherwise, as in Flink.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMillisecondType,
};
use arrow_array::{Array, ArrowPrimitiveType, BinaryArray, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use thalweg_core::{Result, TableSchema};

use super::ordered::Prefix;
use crate::rows::columns::{keys_of, take_all};
use crate::sort::{KeyEncoder, SortKey};

enum SortPlan {
    /// All keys are the same.
    Nothing,
    /// One column of integers of at most 128 bits without their two extremes.
    Number {
        descending: bool,
        nulls_first: bool,
    },
    Bytes {
        encoder: KeyEncoder,
        is_exact: bool,
    },
}

/// Encodes the sort keys of rows.
pub(crate) struct SortKeys {
    plan: SortPlan,
    columns: Vec<usize>,
    schema: TableSchema,
}

/// The sort keys of some rows.
pub(crate) struct Encoded {
    pub prefixes: Vec<Prefix>,
    /// All bytes, where the prefixes don't decide.
    pub bytes: Option<BinaryArray>,
}

impl SortKeys {
    pub fn new(order: &[SortKey], input: &TableSchema) -> Result<Self> {
        let columns: Vec<usize> = order.iter().map(|key| key.column).collect();
        let picked = columns.iter().map(|&column| input.columns[column].clone()).collect();
        let schema = TableSchema::new(picked);
        let types: Vec<DataType> =
            schema.columns.iter().map(|c| c.column_type.data_type.arrow()).collect();
        let plan = match (order, &types[..]) {
            ([], _) => SortPlan::Nothing,
            ([only], [of]) if is_number(of) => SortPlan::Number {
                descending: only.descending,
                nulls_first: only.nulls_first.unwrap_or(!only.descending),
            },
            _ => {
                let renumber = |(column, key): (usize, &SortKey)| SortKey { column, ..key.clone() };
                let keys: Vec<SortKey> = order.iter().enumerate().map(renumber).collect();
                // Each value has one byte that says whether it is NULL.
                let width = |of: &DataType| of.primitive_width().map(|width| width + 1);
                let width: Option<usize> = types.iter().map(width).sum();
                let is_exact = width.is_some_and(|width| width <= size_of::<u128>());
                SortPlan::Bytes { encoder: KeyEncoder::new(&keys, &schema)?, is_exact }
            }
        };
        Ok(SortKeys { plan, columns, schema })
    }

    /// True if prefixes alone decide the order.
    pub fn is_exact(&self) -> bool {
        !matches!(self.plan, SortPlan::Bytes { is_exact: false, .. })
    }

    /// The keys of these rows, or of all.
    pub fn encode(&self, batch: &RecordBatch, chosen: Option<&[u32]>) -> Result<Encoded> {
        let rows = chosen.map_or(batch.num_rows(), <[u32]>::len);
        let mut columns = keys_of(batch.columns(), &self.columns);
        if let Some(chosen) = chosen {
            columns = take_all(&columns, chosen)?;
        }
        match &self.plan {
            SortPlan::Nothing => Ok(Encoded { prefixes: vec![Prefix(0, 0); rows], bytes: None }),
            SortPlan::Number { descending, nulls_first } => {
                let prefixes = numbers(columns[0].as_ref(), *descending, *nulls_first);
                Ok(Encoded { prefixes, bytes: None })
            }
            SortPlan::Bytes { encoder, is_exact } => {
                let batch = RecordBatch::try_new(self.schema.arrow(), columns)?;
                let encoded = encoder.encode(&batch)?;
                let prefixes = encoded.iter().map(|row| first_bytes(row.as_ref())).collect();
                let bytes = if *is_exact { None } else { Some(encoded.try_into_binary()?) };
                Ok(Encoded { prefixes, bytes })
            }
        }
    }
}

fn first_bytes(bytes: &[u8]) -> Prefix {
    let mut first = [0; size_of::<u128>()];
    let length = bytes.len().min(first.len());
    first[..length].copy_from_slice(&bytes[..length]);
    Prefix::from(u128::from_be_bytes(first))
}

fn is_number(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Millisecond, _)
            | DataType::Decimal128(..)
    )
}

fn numbers(column: &dyn Array, descending: bool, nulls_first: bool) -> Vec<Prefix> {
    match column.data_type() {
        DataType::Int8 => prefixes::<Int8Type>(column, descending, nulls_first),
        DataType::Int16 => prefixes::<Int16Type>(column, descending, nulls_first),
        DataType::Int32 => prefixes::<Int32Type>(column, descending, nulls_first),
        DataType::Date32 => prefixes::<Date32Type>(column, descending, nulls_first),
        DataType::Decimal128(..) => prefixes::<Decimal128Type>(column, descending, nulls_first),
        DataType::Int64 => prefixes::<Int64Type>(column, descending, nulls_first),
        _ => prefixes::<TimestampMillisecondType>(column, descending, nulls_first),
    }
}

fn prefixes<T: ArrowPrimitiveType>(
    column: &dyn Array,
    descending: bool,
    nulls_first: bool,
) -> Vec<Prefix>
where
    i128: From<T::Native>,
{
    let column = column.as_primitive::<T>();
    let flip = if descending { u128::MAX } else { 0 };
    // 38 digits need less than 127 bits, so neither end is taken by a value.
    let null = Prefix::from(if nulls_first { 0 } else { u128::MAX });
    let number = |&value: &T::Native| Prefix::from((i128::from(value) as u128 ^ 1 << 127) ^ flip);
    let mut prefixes: Vec<Prefix> = column.values().iter().map(number).collect();
    if let Some(nulls) = column.nulls() {
        let nulls = prefixes.iter_mut().zip(nulls.iter()).filter(|(_, is_valid)| !is_valid);
        nulls.for_each(|(prefix, _)| *prefix = null);
    }
    prefixes
}
