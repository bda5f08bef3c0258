//! Any bytes in any format that is read record by record become rows or rejected records, and the
//! good record behind them is read.
//!
//! The first byte chooses the format, the rest is one message.
#![no_main]

use arrow_array::BinaryArray;
use libfuzzer_sys::fuzz_target;
use thalweg_connectors::format::changes::Dialect;
use thalweg_connectors::format::{
    AvroOptions, BadDataPolicy, ChangeOptions, Format, JsonOptions, RawOptions, RecordDecoder,
    RecordLayout, TextBlock, TextEncoder,
};
use thalweg_core::{Column, ColumnType, DataType, TableSchema};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, message)) = data.split_first() else { return };
    let format = format(choice);
    let schema = if matches!(format, Format::Raw(_)) { raw_schema() } else { schema() };
    let good = good_record(&format, &schema);
    let messages = BinaryArray::from_iter_values([message, &good]);
    let layout = RecordLayout::new("t", schema.clone(), (0..schema.len()).collect(), false);
    let layout = match format.has_changes() {
        true => layout.of_changes(Vec::new()),
        false => layout,
    };
    let decoder = RecordDecoder::new(format, layout.with_policy(BadDataPolicy::Reject, Vec::new()));
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("bad records are rejected");
    assert_eq!(decoded.messages.last(), Some(&1), "{:?}", decoded.rejected);
});

fn format(choice: u8) -> Format {
    let changes = |dialect| {
        Format::Changes(ChangeOptions {
            dialect,
            json: JsonOptions::default(),
            avro: None,
            has_schema: false,
            databases: None,
            tables: None,
        })
    };
    match choice % 8 {
        0 => Format::Json(JsonOptions::default()),
        1 => Format::Json(JsonOptions { fail_on_missing_field: true, ..JsonOptions::default() }),
        2 => Format::Avro(AvroOptions { has_legacy_times: true, ..AvroOptions::default() }),
        3 => Format::Raw(RawOptions::default()),
        4 => changes(Dialect::Debezium),
        5 => changes(Dialect::Maxwell),
        6 => changes(Dialect::Canal),
        _ => changes(Dialect::Ogg),
    }
}

/// A record of NULLs, which every column allows.
fn good_record(format: &Format, schema: &TableSchema) -> Vec<u8> {
    if matches!(format, Format::Raw(_)) {
        return b"good".to_vec();
    }
    let columns = schema.arrow().fields().iter().map(|field| {
        arrow_array::new_null_array(field.data_type(), 1)
    }).collect();
    let batch = arrow_array::RecordBatch::try_new(schema.arrow(), columns).expect("columns");
    let encoder = TextEncoder::new(format, schema.clone()).expect("record by record");
    encoder.messages(&batch, None).expect("short").value(0).to_vec()
}

fn raw_schema() -> TableSchema {
    TableSchema::new(vec![Column::new("s", DataType::STRING.nullable())])
}

fn schema() -> TableSchema {
    let int = || Box::new(DataType::Int.nullable());
    let types = [
        DataType::STRING,
        DataType::Int,
        DataType::Double,
        DataType::Decimal(10, 2),
        DataType::Timestamp(3),
        DataType::Boolean,
        DataType::BYTES,
        DataType::Array(int()),
        DataType::Map(Box::new(DataType::STRING.not_null()), int()),
        DataType::Row(vec![Column::new("x", DataType::Int.not_null())]),
    ];
    let column = |(position, data_type): (usize, DataType)| {
        Column::new(format!("c{position}"), ColumnType { data_type, nullable: true })
    };
    TableSchema::new(types.into_iter().enumerate().map(column).collect())
}
