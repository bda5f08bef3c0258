//! Parts of files that hold no row within the bounds of a query are passed over, and nothing else.

use std::fs::File;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type, TimestampMillisecondType};
use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, StringViewArray, TimestampMillisecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use thalweg_core::connector::{ColumnBound, Connector};
use thalweg_core::shim::SplitMix64;

use super::*;
use crate::conformance::check_replayable;
use crate::filesystem::Filesystem;

/// The rows of a row group.
const GROUP: usize = 10;

fn columns() -> TableSchema {
    schema(&[
        ("i", DataType::Int),
        ("s", DataType::STRING),
        ("dec", DataType::Decimal(12, 2)),
        ("ts", DataType::Timestamp(3)),
        ("d", DataType::Double),
    ])
}

/// Groups with values around the number of each, some with NULLs, some with nothing else.
fn rows(random: &mut SplitMix64, groups: usize) -> RecordBatch {
    let value = |random: &mut SplitMix64, group: usize| -> Option<i64> {
        let all_null = group % 7 == 3;
        let value = (group * 10) as i64 + random.below(15) as i64 - 20;
        (!all_null && random.below(5) > 0).then_some(value)
    };
    let values: Vec<Option<i64>> =
        (0..groups * GROUP).map(|row| value(random, row / GROUP)).collect();
    let texts = values.iter().map(|value| value.map(|value| format!("{:05}é", value + 1_000)));
    let doubles = values.iter().map(|value| match value {
        Some(value) if value % 4 == 0 => Some(f64::NAN),
        value => value.map(|value| value as f64),
    });
    let decimals: Decimal128Array =
        values.iter().map(|value| value.map(|value| i128::from(value) * 50)).collect();
    let batch: Vec<ArrayRef> = vec![
        Arc::new(values.iter().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        Arc::new(StringViewArray::from_iter(texts)),
        Arc::new(decimals.with_precision_and_scale(12, 2).expect("it fits")),
        Arc::new(values.iter().copied().collect::<TimestampMillisecondArray>()),
        Arc::new(doubles.collect::<Float64Array>()),
    ];
    RecordBatch::try_new(columns().arrow(), batch).expect("matches")
}

fn write(path: &Path, batch: &RecordBatch, statistics: EnabledStatistics) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP))
        .set_statistics_enabled(statistics)
        .build();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("opened");
    writer.write(batch).expect("written");
    writer.close().expect("closed");
}

fn bound(column: &str, is_lower: bool, is_inclusive: bool, value: i64) -> ColumnBound {
    let value: ArrayRef = match column {
        "i" => Arc::new(Int32Array::from_value(value as i32, 1)),
        "s" => Arc::new(StringViewArray::from_iter_values([format!("{:05}é", value + 1_000)])),
        "dec" => Arc::new(
            Decimal128Array::from_value(i128::from(value) * 50, 1)
                .with_precision_and_scale(12, 2)
                .expect("it fits"),
        ),
        "ts" => Arc::new(TimestampMillisecondArray::from_value(value, 1)),
        _ => Arc::new(Float64Array::from_value(value as f64, 1)),
    };
    ColumnBound { column: column.to_owned(), is_lower, is_inclusive, value }
}

/// The numbers of the rows that fulfil all bounds, as SQL compares: NaN is above all.
fn within(batch: &RecordBatch, bounds: &[ColumnBound]) -> Vec<usize> {
    let fulfils = |row: usize, bound: &ColumnBound| {
        let column = batch.column_by_name(&bound.column).expect("it has it");
        if column.is_null(row) {
            return false;
        }
        let compared = match bound.column.as_str() {
            "i" => of::<Int32Type>(column, row).cmp(&of::<Int32Type>(&bound.value, 0)),
            "s" => column.as_string_view().value(row).cmp(bound.value.as_string_view().value(0)),
            "dec" => of::<Decimal128Type>(column, row).cmp(&of::<Decimal128Type>(&bound.value, 0)),
            "ts" => of::<TimestampMillisecondType>(column, row)
                .cmp(&of::<TimestampMillisecondType>(&bound.value, 0)),
            _ => {
                let float = |array: &ArrayRef, row| {
                    array.as_primitive::<arrow_array::types::Float64Type>().value(row)
                };
                float(column, row).total_cmp(&float(&bound.value, 0))
            }
        };
        match bound.is_lower {
            true => compared.is_gt() || (bound.is_inclusive && compared.is_eq()),
            false => compared.is_lt() || (bound.is_inclusive && compared.is_eq()),
        }
    };
    (0..batch.num_rows()).filter(|&row| bounds.iter().all(|b| fulfils(row, b))).collect()
}

fn of<T: arrow_array::types::ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

#[test]
fn no_row_within_the_bounds_is_left_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut random = SplitMix64::new(5);
    let mut left_out = 0;
    for round in 0..200 {
        let batch = rows(&mut random, 12);
        let statistics = match round % 5 {
            0 => EnabledStatistics::None,
            1 => EnabledStatistics::Page,
            _ => EnabledStatistics::Chunk,
        };
        write(&dir.path().join("in.parquet"), &batch, statistics);
        let options = [("format", "parquet"), ("path", "in.parquet")];
        let mut request = request(dir.path(), columns(), &options);
        for _ in 0..1 + random.below(2) {
            let column = ["i", "s", "dec", "ts", "d"][random.below(5) as usize];
            let value = random.below(140) as i64 - 20;
            let side = random.below(4);
            request.bounds.push(bound(column, side & 1 == 0, side & 2 == 0, value));
        }
        let all = texts(std::slice::from_ref(&batch), &columns());
        let found = read(&request).expect("readable");
        let needed: Vec<&Vec<String>> =
            within(&batch, &request.bounds).into_iter().map(|row| &all[row]).collect();
        let mut rest = found.iter();
        for row in needed {
            assert!(rest.any(|other| other == row), "{row:?} of {:?}", request.bounds);
        }
        left_out += usize::from(found.len() < all.len());
        if statistics == EnabledStatistics::None {
            assert_eq!(found.len(), all.len(), "nothing is known of a group");
        }
    }
    assert!(left_out > 80, "groups are passed over: {left_out}");
}

#[test]
fn groups_are_passed_over_by_either_end_and_for_nulls() {
    let dir = tempfile::tempdir().expect("a folder");
    let values = (0..40).map(|n| (!(20..30).contains(&n)).then_some(n));
    let values: ArrayRef = Arc::new(values.collect::<Int32Array>());
    let schema = schema(&[("i", DataType::Int)]);
    let batch = RecordBatch::try_new(schema.arrow(), vec![values]).expect("matches");
    write(&dir.path().join("in.parquet"), &batch, EnabledStatistics::Chunk);
    let options = [("format", "parquet"), ("path", "in.parquet")];
    let mut request = request(dir.path(), schema, &options);
    assert!(Filesystem::default().leaves_rows_out(&request));
    for (bounds, expected) in [
        (vec![bound("i", true, true, 10)], 20),
        (vec![bound("i", true, true, 9)], 30),
        (vec![bound("i", true, false, 9)], 20),
        (vec![bound("i", false, true, 9)], 10),
        (vec![bound("i", false, false, 30)], 20),
        (vec![bound("i", true, true, 12), bound("i", false, true, 12)], 10),
    ] {
        request.bounds = bounds;
        let found = read(&request).expect("readable");
        assert_eq!(found.len(), expected, "{:?}", request.bounds);
        let make = || Ok(Box::new(open_source(&request, None)?) as Box<dyn Source>);
        check_replayable(&make, 7).expect("it resumes from every position");
    }
    request.bounds = vec![bound("i", true, true, 100)];
    assert!(read(&request).expect("readable").is_empty());
}

#[test]
fn folders_are_passed_over_by_their_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let file_schema = schema(&[("i", DataType::Int)]);
    for (folder, first) in [("day=1", 0), ("day=2", 10), ("day=__HIVE_DEFAULT_PARTITION__", 20)] {
        let folder = dir.path().join("in").join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values(first..first + 10));
        let batch = RecordBatch::try_new(file_schema.arrow(), vec![values]).expect("matches");
        write(&folder.join("part-0.parquet"), &batch, EnabledStatistics::None);
    }
    let schema = schema(&[("day", DataType::Int), ("i", DataType::Int)]);
    let mut request = request(dir.path(), schema, &[("format", "parquet"), ("path", "in/")]);
    request.partitioned_by = vec![0];
    assert_eq!(read(&request).expect("readable").len(), 30);
    let of_day = |is_lower| ColumnBound { column: "day".into(), ..bound("i", is_lower, true, 2) };
    request.bounds = vec![of_day(true)];
    let rows = read(&request).expect("readable");
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row[0] == "2"));
    request.bounds = vec![of_day(false)];
    assert_eq!(read(&request).expect("readable").len(), 20);
}
