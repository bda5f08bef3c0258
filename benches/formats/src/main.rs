//! Reads records of ten fields on one core, as JSON and as Avro, and prints MB/s next to floors of
//! the same run: simd-json's tape, which builds no column, and a loop by hand that knows the
//! records.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray, TimestampMillisecondArray,
};
use thalweg_connectors::format::{
    AvroOptions, Format, JsonOptions, RecordDecoder, RecordLayout, TextBlock, TextEncoder,
};
use thalweg_core::{Column, DataType, TableSchema};

/// That of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: usize = 20_000;
const LAPS: usize = 15;

fn main() {
    let batch = records();
    let json = encoded(&Format::Json(JsonOptions::default()), &batch);
    let avro = Format::Avro(AvroOptions { has_legacy_times: true, ..AvroOptions::default() });
    let messages = encoded(&avro, &batch);
    let lines: Vec<u8> = json.iter().flatten().flat_map(|line| [line, b"\n"].concat()).collect();

    let decoder = decoder(Format::Json(JsonOptions::default()));
    let ours = rate("json: lines to columns", lines.len(), || {
        let block = TextBlock::lines(&lines, 1, true, true);
        decoder.decode(&block).expect("objects").batch.num_rows()
    });
    let ours_messages = rate("json: messages to columns", json.value_data().len(), || {
        decoder.decode(&TextBlock::messages(&json)).expect("objects").batch.num_rows()
    });
    let mut copy = lines.clone();
    let mut buffers = simd_json::Buffers::new(4 << 10);
    let tape = rate("floor: simd-json's tape", lines.len(), || {
        copy.copy_from_slice(&lines);
        let records = copy.split_mut(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        records.map(|line| {
            simd_json::to_tape_with_buffers(line, &mut buffers).expect("objects").0.len().min(1)
        }).sum()
    });
    let by_hand = rate("floor: a loop by hand over quotes and digits", lines.len(), || json_by_hand(&lines));
    println!("json: lines {:.2} of the tape, {:.2} of the loop", ours / tape, ours / by_hand);
    println!("json: messages {:.2} of the tape", ours_messages / tape);

    let decoder = self::decoder(avro);
    let bytes = messages.value_data().len();
    let ours = rate("avro: messages to columns", bytes, || {
        decoder.decode(&TextBlock::messages(&messages)).expect("records").batch.num_rows()
    });
    let by_hand = rate("floor: a loop by hand into columns", bytes, || avro_by_hand(&messages));
    println!("avro: {:.2} of the loop", ours / by_hand);
}

/// The best of some laps, in MB/s.
fn rate(name: &str, bytes: usize, mut lap: impl FnMut() -> usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..LAPS {
        let start = Instant::now();
        black_box(lap());
        best = best.min(start.elapsed().as_secs_f64());
    }
    let rate = bytes as f64 / best / 1e6;
    println!("{name}: {rate:.0} MB/s ({:.0} ns a record)", best * 1e9 / ROWS as f64);
    rate
}

fn schema() -> TableSchema {
    let columns = [
        ("id", DataType::BigInt),
        ("customer", DataType::STRING),
        ("item", DataType::STRING),
        ("price", DataType::Double),
        ("quantity", DataType::Int),
        ("at", DataType::Timestamp(3)),
        ("paid", DataType::Boolean),
        ("country", DataType::STRING),
        ("session", DataType::BigInt),
        ("note", DataType::STRING),
    ];
    let column = |(name, data_type): (&str, DataType)| Column::new(name, data_type.nullable());
    TableSchema::new(columns.into_iter().map(column).collect())
}

fn decoder(format: Format) -> RecordDecoder {
    RecordDecoder::new(format, RecordLayout::new("t", schema(), (0..10).collect(), false))
}

fn encoded(format: &Format, batch: &RecordBatch) -> BinaryArray {
    let encoder = TextEncoder::new(format, schema()).expect("read record by record");
    encoder.messages(batch, None).expect("short")
}

fn records() -> RecordBatch {
    let rows = 0..ROWS as i64;
    let text = |make: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(rows.clone().map(make)))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.clone())),
        text(&|n| format!("customer-{:06}", n * 7919 % 100_000)),
        text(&|n| ["tea", "coffee", "a book about rivers"][n as usize % 3].to_owned()),
        Arc::new(Float64Array::from_iter_values(rows.clone().map(|n| (n % 9_973) as f64 / 100.0))),
        Arc::new(Int32Array::from_iter_values(rows.clone().map(|n| n as i32 % 12))),
        Arc::new(TimestampMillisecondArray::from_iter_values(
            rows.clone().map(|n| 1_767_225_600_000 + n * 137),
        )),
        Arc::new(BooleanArray::from_iter(rows.clone().map(|n| Some(n % 5 != 0)))),
        text(&|n| ["DE", "FR", "PL", "JP"][n as usize % 4].to_owned()),
        Arc::new(Int64Array::from_iter_values(rows.clone().map(|n| n * 2_654_435_761))),
        text(&|n| format!("left at the door of number {}", n % 200)),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns")
}

/// Finds every string and adds up every digit, and keeps nothing.
fn json_by_hand(lines: &[u8]) -> usize {
    let (mut strings, mut sum, mut at) = (0, 0u64, 0);
    while at < lines.len() {
        match lines[at] {
            b'"' => {
                at += 1;
                while lines[at] != b'"' {
                    at += 1 + usize::from(lines[at] == b'\\');
                }
                strings += 1;
            }
            byte @ b'0'..=b'9' => sum = sum.wrapping_mul(10).wrapping_add(u64::from(byte)),
            _ => {}
        }
        at += 1;
    }
    strings + (sum & 1) as usize
}

fn avro_by_hand(messages: &BinaryArray) -> usize {
    fn long(bytes: &mut &[u8]) -> i64 {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
            shift += 7;
        }
    }
    let mut numbers: [Vec<i64>; 4] = Default::default();
    let (mut prices, mut paid) = (Vec::new(), Vec::new());
    let mut texts = arrow_array::builder::StringViewBuilder::new();
    for mut bytes in messages.iter().flatten() {
        for field in 0..10 {
            assert_eq!(long(&mut bytes), 1, "no field is NULL");
            match field {
                0 | 4 | 5 | 8 => numbers[[0, 4, 5, 8].iter().position(|at| *at == field).expect("one")].push(long(&mut bytes)),
                3 => {
                    let (price, rest) = bytes.split_at(8);
                    prices.push(f64::from_le_bytes(price.try_into().expect("8 bytes")));
                    bytes = rest;
                }
                6 => {
                    paid.push(bytes[0]);
                    bytes = &bytes[1..];
                }
                _ => {
                    let length = long(&mut bytes) as usize;
                    let (text, rest) = bytes.split_at(length);
                    texts.append_value(std::str::from_utf8(text).expect("text"));
                    bytes = rest;
                }
            }
        }
    }
    black_box((numbers, paid, texts.finish()));
    prices.len()
}
