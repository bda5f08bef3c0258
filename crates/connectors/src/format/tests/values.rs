//! Random values of every type come back as they were written, and no bytes make a decoder panic.

use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, ColumnType, DataType, TableSchema};

use super::super::builder::{ColumnBuilder, Values};
use super::super::json::NullKeys;
use super::super::raw::Charset;
use super::super::*;

fn scalars(format: &Format) -> Vec<DataType> {
    let all = vec![
        DataType::Boolean,
        DataType::TinyInt,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::Float,
        DataType::Double,
        DataType::Decimal(10, 2),
        DataType::Decimal(38, 10),
        DataType::Char(4),
        DataType::STRING,
        DataType::BYTES,
        DataType::Date,
        DataType::Time(0),
        DataType::Time(3),
        DataType::Timestamp(0),
        DataType::Timestamp(3),
        DataType::Timestamp(6),
        DataType::Timestamp(9),
        DataType::TimestampLtz(3),
        DataType::TimestampLtz(6),
        DataType::IntervalYearMonth,
        DataType::IntervalDayTime,
    ];
    all.into_iter().filter(|data_type| format.is_supported(data_type)).collect()
}

/// A type that the format holds, with parts at most this deep.
fn random_type(format: &Format, random: &mut SplitMix64, depth: u64) -> DataType {
    let scalars = scalars(format);
    let has_parts = !matches!(format, Format::Raw(_));
    loop {
        let inner = |random: &mut SplitMix64| {
            let nullable = random.below(3) > 0;
            ColumnType { data_type: random_type(format, random, depth - 1), nullable }
        };
        let made = match random.below(if depth > 0 && has_parts { 12 } else { 1 }) {
            9 => DataType::Array(Box::new(inner(random))),
            10 => DataType::Map(Box::new(DataType::STRING.not_null()), Box::new(inner(random))),
            11 => {
                let columns = 0..1 + random.below(3);
                let column = |n| Column::new(format!("f{n}"), inner(random));
                DataType::Row(columns.map(column).collect())
            }
            _ => scalars[random.below(scalars.len() as u64) as usize].clone(),
        };
        if format.is_supported(&made) {
            return made;
        }
    }
}

fn text(random: &mut SplitMix64) -> String {
    let pieces = ["a", "é", "\"", "\\", "\n", "😀", "\u{1}", "0", "true", " ", ""];
    (0..random.below(8)).map(|_| pieces[random.below(11) as usize]).collect()
}

fn append(out: &mut ColumnBuilder, random: &mut SplitMix64) {
    if out.is_nullable() && random.below(5) == 0 {
        return out.append_null();
    }
    let units = |precision: u8| [1_000i64, 1_000_000, 1_000_000_000][usize::from(precision / 4)];
    let data_type = out.data_type().clone();
    match &mut out.values {
        Values::Text(values) => return values.append_value(text(random)),
        Values::Bytes(values) => return values.append_value(text(random)),
        Values::Boolean(values) => values.append(random.below(2) == 0),
        Values::TinyInt(values) => values.push(random.next_u64() as i8),
        Values::SmallInt(values) => values.push(random.next_u64() as i16),
        Values::Int(values) | Values::Months(values) => values.push(random.next_u64() as i32),
        Values::BigInt(values) | Values::Millis(values) => values.push(random.next_u64() as i64),
        Values::Float(values) => values.push((random.next_u64() as i32) as f32 / 7.0),
        Values::Double(values) => values.push((random.next_u64() as i64) as f64 / 7e5),
        Values::Decimal(_, _, values) => {
            let digits = 10i128.pow(random.below(10) as u32);
            values.push(i128::from(random.next_u64() as i64) % digits);
        }
        Values::Date(values) => values.push(random.below(40_000) as i32 - 10_000),
        Values::Time(precision, values) => {
            let unit = if *precision == 0 { 1_000 } else { 1 };
            values.push(random.below(86_400_000) as i32 / unit * unit);
        }
        Values::Timestamp(precision, _, values) => {
            let second = random.below(4_000_000_000) as i64 - 1_000_000_000;
            let unit = units(*precision);
            let fraction = if *precision == 0 { 0 } else { random.below(unit as u64) as i64 };
            values.push(second * unit + fraction);
        }
        Values::Array(ends, element) => {
            (0..random.below(4)).for_each(|_| append(element, random));
            ends.push(element.len());
        }
        Values::Map(ends, key, value) => {
            for n in 0..random.below(4) {
                let Values::Text(keys) = &mut key.values else { panic!("{data_type}") };
                keys.append_value(format!("{n}{}", text(random)));
                append(value, random);
            }
            ends.push(key.len());
        }
        Values::Row(fields) => {
            fields.iter_mut().for_each(|field| append(&mut field.column, random));
        }
    }
    out.appended();
}

pub(super) fn random_batch(schema: &TableSchema, random: &mut SplitMix64) -> RecordBatch {
    let rows = 1 + random.below(12);
    let column = |column: &Column| -> ArrayRef {
        let mut values = ColumnBuilder::new(&column.column_type).expect("a type");
        (0..rows).for_each(|_| append(&mut values, random));
        values.finish().expect("an array")
    };
    let columns: Vec<ArrayRef> = schema.columns.iter().map(column).collect();
    RecordBatch::try_new(schema.arrow(), columns).expect("columns")
}

fn formats() -> Vec<Format> {
    let raw = |is_little_endian| RawOptions { charset: Charset::Utf8, is_little_endian };
    let json = JsonOptions::default();
    let other = JsonOptions {
        iso_timestamps: true,
        plain_decimals: true,
        ignore_null_fields: true,
        null_keys: NullKeys::Drop,
        ..JsonOptions::default()
    };
    let avro =
        |has_legacy_times| Format::Avro(AvroOptions { has_legacy_times, ..AvroOptions::default() });
    vec![
        Format::Json(json),
        Format::Json(other),
        avro(true),
        avro(false),
        Format::Raw(raw(false)),
        Format::Raw(raw(true)),
    ]
}

pub(super) fn random_schema(format: &Format, random: &mut SplitMix64) -> TableSchema {
    let columns = if matches!(format, Format::Raw(_)) { 1 } else { 1 + random.below(6) };
    let column = |n| {
        let nullable = random.below(3) > 0;
        let data_type = random_type(format, random, 2);
        Column::new(format!("c{n}"), ColumnType { data_type, nullable })
    };
    TableSchema::new((0..columns).map(column).collect())
}

pub(super) fn decoder(
    format: &Format,
    schema: &TableSchema,
    policy: BadDataPolicy,
) -> RecordDecoder {
    let wanted = (0..schema.len()).collect();
    let layout = RecordLayout::new("t", schema.clone(), wanted, false);
    RecordDecoder::new(format.clone(), layout.with_policy(policy, Vec::new()))
}

#[test]
fn values_of_every_type_come_back() {
    let mut random = SplitMix64::new(3);
    for format in formats() {
        for round in 0..300 {
            let schema = random_schema(&format, &mut random);
            let batch = random_batch(&schema, &mut random);
            let encoder = TextEncoder::new(&format, schema.clone()).expect("record by record");
            let messages = encoder.messages(&batch, None).expect("short");
            let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
            let decoded = decoder.decode(&TextBlock::messages(&messages));
            let decoded = decoded.unwrap_or_else(|e| panic!("{round} {schema:?}: {:?}", e.error));
            assert_eq!(decoded.batch, batch, "{format:?} round {round}");
        }
    }
}

/// Records that are cut, changed in one byte, or random: each is a row or rejected, and the good
/// ones around it are there.
#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut random = SplitMix64::new(11);
    for format in formats() {
        for _ in 0..400 {
            let schema = random_schema(&format, &mut random);
            let batch = random_batch(&schema, &mut random);
            let encoder = TextEncoder::new(&format, schema.clone()).expect("record by record");
            let good = encoder.messages(&batch, None).expect("short");
            let good: Vec<Option<Vec<u8>>> = good.iter().map(|m| m.map(<[u8]>::to_vec)).collect();
            let mut bad = good[0].clone().unwrap_or_default();
            match random.below(3) {
                0 => bad.truncate(random.below(bad.len() as u64 + 1) as usize),
                1 if !bad.is_empty() => {
                    let at = random.below(bad.len() as u64) as usize;
                    bad[at] = random.next_u64() as u8;
                }
                _ => bad = (0..random.below(40)).map(|_| random.next_u64() as u8).collect(),
            }
            let mut messages = good.clone();
            messages.insert(1, Some(bad));
            let messages = BinaryArray::from_iter(messages);
            let decoder = decoder(&format, &schema, BadDataPolicy::Reject);
            let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("rejects");
            let rows = decoded.batch.num_rows();
            assert_eq!(rows, decoded.messages.len());
            let kept: Vec<usize> = (0..rows).filter(|&row| decoded.messages[row] != 1).collect();
            assert_eq!(kept.len(), batch.num_rows(), "{:?}", decoded.rejected);
            for (place, &row) in kept.iter().enumerate() {
                assert_eq!(decoded.batch.slice(row, 1), batch.slice(place, 1));
            }
        }
    }
}

#[test]
fn json_is_read_by_flinks_rules() {
    let schema = TableSchema::new(vec![
        Column::new("s", DataType::STRING.nullable()),
        Column::new("n", DataType::Int.nullable()),
        Column::new("b", DataType::Boolean.nullable()),
        Column::new(
            "m",
            DataType::Map(
                Box::new(DataType::STRING.not_null()),
                Box::new(DataType::Int.nullable()),
            )
            .nullable(),
        ),
    ]);
    let messages = BinaryArray::from_iter_values([
        r#"{"s": {"a" : [1, 2.50]}, "n": 2.9, "b": "TRUE", "m": {"k": 1, "k": 2}}"#,
        r#"[{"n": "7", "x": {"y": [true, null, {}]}}, {"s": 1.50, "b": 1}]"#,
        "null",
        r#"{"s": "tab	in\u0041 \ud83d\ude00 \ud83d", "n": 1, "n": 2, "\u006e": 3}"#,
    ]);
    let format = Format::Json(JsonOptions::default());
    let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("objects");
    assert_eq!(decoded.messages, [0, 1, 1, 3]);
    let encoder = TextEncoder::new(&format, schema).expect("text");
    let mut lines = String::new();
    encoder.lines(&mut lines, &decoded.batch, None).expect("written");
    let expected = [
        r#"{"s":"{\"a\":[1,2.50]}","n":2,"b":true,"m":{"k":2}}"#,
        r#"{"s":null,"n":7,"b":null,"m":null}"#,
        r#"{"s":"1.50","n":null,"b":false,"m":null}"#,
        r#"{"s":"tab\tinA \uD83D\uDE00 ?","n":1,"b":null,"m":null}"#,
        "",
    ];
    assert_eq!(lines, expected.join("\n"));
}

/// They were refused within objects, though not in strings themselves.
#[test]
fn control_characters_and_halves_of_characters_are_read_within_objects_that_are_texts() {
    let schema = TableSchema::new(vec![Column::new("s", DataType::STRING.nullable())]);
    let messages = BinaryArray::from_iter_values([
        "{\"s\": {\"a\u{1}\": [\"tab\t\", \"\\ud83d\", \"\\ud83d\\ude00\", 1.50], \"b\": \"\\\"\"}}",
    ]);
    let format = Format::Json(JsonOptions::default());
    let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("an object");
    let texts = arrow_array::cast::AsArray::as_string_view(decoded.batch.column(0));
    let expected = r#"{"a\u0001":["tab\t","?","😀",1.50],"b":"\""}"#;
    assert_eq!(texts.value(0), expected);
}

#[test]
fn decimals_are_written_as_java_writes_them() {
    let schema = TableSchema::new(vec![Column::new("d", DataType::Decimal(20, 10).nullable())]);
    let cases = [
        ("1.5", "1.5"),
        ("100", "1E+2"),
        ("0", "0"),
        ("-20.50", "-20.5"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1E-7"),
        ("1230000000", "1.23E+9"),
        ("0.00000123", "0.00000123"),
    ];
    let messages = cases.map(|(number, _)| format!("{{\"d\":{number}}}"));
    let messages = BinaryArray::from_iter_values(&messages);
    let format = Format::Json(JsonOptions::default());
    let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("objects");
    let encoder = TextEncoder::new(&format, schema).expect("text");
    let written = encoder.messages(&decoded.batch, None).expect("short");
    for ((number, expected), written) in cases.iter().zip(&written) {
        let written = String::from_utf8_lossy(written.expect("no NULL"));
        assert_eq!(written, format!("{{\"d\":{expected}}}"), "{number}");
    }
}

#[test]
fn raw_keeps_missing_and_empty_messages_apart() {
    let schema = TableSchema::new(vec![Column::new("s", DataType::STRING.nullable())]);
    let messages: BinaryArray = [Some("a"), None, Some(""), Some("b\nc")].into_iter().collect();
    let format = Format::Raw(RawOptions::default());
    let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("texts");
    let encoder = TextEncoder::new(&format, schema).expect("record by record");
    assert_eq!(encoder.messages(&decoded.batch, None).expect("short"), messages);
    let mut lines = String::new();
    let error = encoder.lines(&mut lines, &decoded.batch, None).expect_err("a line feed");
    assert!(error.message().contains("line feed"));
}

/// Files of every codec come back, and one that is cut or changed is an error or has other values,
/// but never a panic.
#[test]
fn avro_files_come_back_and_damaged_ones_are_errors() {
    use super::super::avro::Codec;
    use super::super::avro::file::{AvroFile, AvroWriter};
    use std::io::Cursor;

    let mut random = SplitMix64::new(13);
    for round in 0..80 {
        let codec = Codec::NAMES[round % Codec::NAMES.len()].1;
        let options = AvroOptions { has_legacy_times: round % 3 == 0, codec, registry: None };
        let schema = random_schema(&Format::Avro(options.clone()), &mut random);
        let batch = random_batch(&schema, &mut random);
        let mut writer = AvroWriter::new(&options, Vec::new(), schema.clone()).expect("a schema");
        writer.write(batch.columns().to_vec()).expect("written");
        let bytes = writer.finish().expect("written");
        let layout = RecordLayout::new("t", schema.clone(), (0..schema.len()).collect(), false);
        let read = |bytes: &[u8]| -> thalweg_core::Result<Vec<RecordBatch>> {
            let file = AvroFile::open(Cursor::new(bytes), &layout, 1 << 20)?;
            file.read(Cursor::new(bytes), &layout, 0..file.batches()).collect()
        };
        assert_eq!(read(&bytes).expect("whole"), [batch], "{codec:?}");
        for _ in 0..20 {
            let mut damaged = bytes.clone();
            let at = random.below(damaged.len() as u64) as usize;
            match random.below(2) {
                0 => damaged.truncate(at),
                _ => damaged[at] = random.next_u64() as u8,
            }
            let _ = read(&damaged);
        }
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }
}
