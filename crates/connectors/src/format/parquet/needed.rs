//! Which row groups, and which folders, may hold rows that are needed: those of which statistics,
//! or names, do not say otherwise.
//!
//! A group is left out only if no row of it can fulfil a bound. So whatever is unknown (no
//! statistics, values of another type, an order that is not SQL's) leaves it in:
//!
//! - FLOAT and DOUBLE: statistics pass over NaN, which SQL takes for the largest value;
//! - INT96 has no order of its own in statistics;
//! - old statistics of texts and bytes, which were compared as signed bytes.

use arrow_array::{Array, ArrayRef, BooleanArray, Scalar, UInt64Array};
use arrow_ord::cmp;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::RowGroupMetaData;
use thalweg_core::DataType;
use thalweg_core::connector::ColumnBound;

use super::types::convert;
use crate::format::records::RecordLayout;

/// For each row group of a file, whether it may hold rows within the bounds of the layout.
pub fn needed_groups(metadata: &ArrowReaderMetadata, layout: &RecordLayout) -> Vec<bool> {
    let mut needed = vec![true; metadata.metadata().num_row_groups()];
    for bound in &layout.bounds {
        let Some(outside) = outside(metadata, layout, bound) else { continue };
        for (needed, outside) in needed.iter_mut().zip(outside.iter()) {
            *needed &= outside != Some(true);
        }
    }
    needed
}

/// For each row group, whether all of its rows are outside of a bound; `None` if that is unknown.
fn outside(
    metadata: &ArrowReaderMetadata,
    layout: &RecordLayout,
    bound: &ColumnBound,
) -> Option<BooleanArray> {
    let declared = layout.schema.columns.iter().find(|column| column.name == bound.column)?;
    let declared = &declared.column_type.data_type;
    if matches!(declared, DataType::Float | DataType::Double) {
        return None;
    }
    let file = metadata.metadata().file_metadata().schema_descr();
    let statistics = StatisticsConverter::try_new(&bound.column, metadata.schema(), file).ok()?;
    let leaf = statistics.parquet_column_index()?;
    let groups = metadata.metadata().row_groups();
    if statistics.arrow_field().data_type().is_floating()
        || !groups.iter().all(|group| is_ordered(group, leaf))
    {
        return None;
    }
    let ends = match bound.is_lower {
        true => statistics.row_group_maxes(groups),
        false => statistics.row_group_mins(groups),
    };
    let beyond = is_beyond(&convert(&ends.ok()?, declared).ok()?, bound)?;
    let nulls = statistics.with_missing_null_counts_as_zero(false).row_group_null_counts(groups);
    Some(or_all_null(&beyond, &nulls.ok()?, groups))
}

/// True if a single value is outside of a bound; NULL is.
pub fn is_outside(value: &ArrayRef, bound: &ColumnBound) -> bool {
    if value.data_type().is_floating() {
        return false;
    }
    value.is_null(0) || is_beyond(value, bound).is_some_and(|beyond| beyond.value(0))
}

/// Whether the largest value is below a lower bound, or the smallest one above an upper bound.
fn is_beyond(ends: &ArrayRef, bound: &ColumnBound) -> Option<BooleanArray> {
    if ends.data_type() != bound.value.data_type() {
        return None;
    }
    let value = Scalar::new(bound.value.clone());
    let compare = match (bound.is_lower, bound.is_inclusive) {
        (true, true) => cmp::lt,
        (true, false) => cmp::lt_eq,
        (false, true) => cmp::gt,
        (false, false) => cmp::gt_eq,
    };
    compare(ends, &value).ok()
}

/// A group that has only NULLs has no largest value, and no row within a bound.
fn or_all_null(
    beyond: &BooleanArray,
    nulls: &UInt64Array,
    groups: &[RowGroupMetaData],
) -> BooleanArray {
    let all_null = |(at, group): (usize, &RowGroupMetaData)| {
        nulls.is_valid(at) && nulls.value(at) == group.num_rows() as u64
    };
    let either = |(at, group)| (beyond.is_valid(at) && beyond.value(at)) || all_null((at, group));
    groups.iter().enumerate().map(|group| Some(either(group))).collect()
}

/// True if the least and the largest value of a column are those of SQL's order.
fn is_ordered(group: &RowGroupMetaData, leaf: usize) -> bool {
    let column = group.column(leaf);
    let is_old = column.statistics().is_some_and(|statistics| statistics.is_min_max_deprecated());
    match column.column_type() {
        PhysicalType::INT96 => false,
        PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY => !is_old,
        _ => true,
    }
}
