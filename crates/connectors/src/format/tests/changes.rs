//! Changes in each dialect: which rows they make, what is written, and what bad ones become.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{Array, BinaryArray};
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use super::super::changes::Dialect;
use super::super::*;

fn options(dialect: Dialect) -> ChangeOptions {
    ChangeOptions {
        dialect,
        json: JsonOptions::default(),
        avro: None,
        has_schema: false,
        databases: None,
        tables: None,
    }
}

fn schema() -> TableSchema {
    let text = Column::new("name", DataType::STRING.nullable());
    TableSchema::new(vec![Column::new("id", DataType::Int.not_null()), text])
}

fn decode(
    options: ChangeOptions,
    policy: BadDataPolicy,
    metadata: Vec<(String, Column)>,
    messages: &[&str],
) -> Result<DecodedRecords, DecodeError> {
    let layout = RecordLayout::new("t", schema(), vec![0, 1], false);
    let layout = layout.of_changes(metadata).with_policy(policy, Vec::new());
    let decoder = RecordDecoder::new(Format::Changes(options), layout);
    decoder.decode(&TextBlock::messages(&BinaryArray::from_iter_values(messages)))
}

/// `+I 1 a`
fn rows(decoded: &DecodedRecords) -> Vec<String> {
    let batch = &decoded.batch;
    let ids = batch.column(0).as_primitive::<Int32Type>();
    let names = batch.column(1).as_string_view();
    let kinds = batch.column(batch.num_columns() - 1).as_primitive::<Int8Type>();
    let row = |row: usize| {
        let kind = RowKind::from_code(kinds.value(row)).expect("a kind").short();
        let name = if names.is_null(row) { "NULL" } else { names.value(row) };
        format!("{kind} {} {name}", ids.value(row))
    };
    (0..batch.num_rows()).map(row).collect()
}

#[test]
fn each_dialect_makes_the_same_rows() {
    let debezium = [
        r#"{"before":null,"after":{"id":1,"name":"a"},"op":"c"}"#,
        r#"{"before":{"id":1,"name":"a"},"after":{"id":1,"name":null},"op":"u"}"#,
        r#"{"before":{"id":1,"name":null},"after":null,"op":"d"}"#,
    ];
    let ogg = debezium.map(|message| {
        let message = message.replace("\"op\":\"c\"", "\"op_type\":\"I\"");
        message
            .replace("\"op\":\"u\"", "\"op_type\":\"U\"")
            .replace("\"op\":\"d\"", "\"op_type\":\"D\"")
    });
    let maxwell = [
        r#"{"data":{"id":1,"name":"a"},"type":"insert"}"#,
        r#"{"data":{"id":1,"name":null},"old":{"name":"a"},"type":"update"}"#,
        r#"{"data":{"id":1,"name":null},"type":"delete"}"#,
    ];
    let canal = [
        r#"{"data":[{"id":"1","name":"a"}],"type":"INSERT"}"#,
        r#"{"data":[{"id":"1","name":null}],"old":[{"name":"a"}],"type":"UPDATE"}"#,
        r#"{"data":null,"type":"CREATE"}"#,
        r#"{"data":[{"id":"1","name":null}],"type":"DELETE"}"#,
    ];
    let ogg = ogg.each_ref().map(String::as_str);
    let all: [(Dialect, &[&str]); 4] = [
        (Dialect::Debezium, &debezium),
        (Dialect::Ogg, &ogg),
        (Dialect::Maxwell, &maxwell),
        (Dialect::Canal, &canal),
    ];
    for (dialect, messages) in all {
        let decoded = decode(options(dialect), BadDataPolicy::Fail, Vec::new(), messages);
        let decoded = decoded.unwrap_or_else(|e| panic!("{dialect:?}: {}", e.error));
        let expected = ["+I 1 a", "-U 1 a", "+U 1 NULL", "-D 1 NULL"];
        assert_eq!(rows(&decoded), expected, "{dialect:?}");
    }
}

#[test]
fn what_was_null_before_differs_from_what_did_not_change() {
    let messages = [
        r#"{"data":[{"id":1,"name":"a"},{"id":2,"name":"b"}],"old":[{"name":null},{"id":3}],"type":"UPDATE"}"#,
    ];
    let decoded = decode(options(Dialect::Canal), BadDataPolicy::Fail, Vec::new(), &messages);
    let decoded = decoded.expect("an update of two rows");
    assert_eq!(rows(&decoded), ["-U 1 NULL", "+U 1 a", "-U 3 b", "+U 2 b"]);
    assert_eq!(decoded.messages, [0, 0, 0, 0]);
}

#[test]
fn bad_changes_are_left_out_as_a_whole() {
    let messages = [
        r#"{"before":null,"after":{"id":1,"name":"a"},"op":"r"}"#,
        r#"{"before":null,"after":{"id":1,"name":"b"},"op":"u"}"#,
        r#"{"before":{"id":null,"name":"b"},"after":{"id":1,"name":"c"},"op":"u"}"#,
        r#"{"before":null,"after":{"id":"x"},"op":"c"}"#,
        r#"{"op":"t"}"#,
        "{",
        r#"{"a":1}"#,
        r#"{"before":{"id":1,"name":"a"},"after":null,"op":"d"}"#,
    ];
    let decoded = decode(options(Dialect::Debezium), BadDataPolicy::Reject, Vec::new(), &messages);
    let decoded = decoded.expect("bad ones are rejected");
    assert_eq!(rows(&decoded), ["+I 1 a", "-D 1 a"]);
    assert_eq!(decoded.messages, [0, 7]);
    let numbers: Vec<u64> = decoded.rejected.iter().map(|rejected| rejected.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert!(decoded.rejected[0].reason.contains("REPLICA IDENTITY FULL"));
    let skipped = decode(options(Dialect::Debezium), BadDataPolicy::Null, Vec::new(), &messages);
    assert_eq!(rows(&skipped.expect("skipped"))[0], "+I 1 a");
    let error = decode(options(Dialect::Debezium), BadDataPolicy::Fail, Vec::new(), &messages);
    assert_eq!(error.expect_err("message 1 is bad").number, Some(1));
}

#[test]
fn metadata_filters_and_schemas_are_read() {
    let mut with_schema = options(Dialect::Debezium);
    with_schema.has_schema = true;
    let text = |key: &str| (key.to_owned(), Column::new(key, DataType::STRING.nullable()));
    let time = Column::new("at", DataType::TimestampLtz(3).nullable());
    let metadata = vec![
        text("source.table"),
        ("source.timestamp".to_owned(), time.clone()),
        text("schema"),
        ("ingestion-timestamp".to_owned(), time),
    ];
    let messages = [
        r#"{"schema":{"type":"struct"},"payload":{"before":null,"after":{"id":1},"op":"c","ts_ms":7,"source":{"table":"orders","ts_ms":5}}}"#,
    ];
    let decoded = decode(with_schema, BadDataPolicy::Fail, metadata, &messages).expect("a change");
    assert_eq!(rows(&decoded), ["+I 1 NULL"]);
    let batch = &decoded.batch;
    assert_eq!(batch.column(2).as_string_view().value(0), "orders");
    let millis = |at: usize| {
        batch.column(at).as_primitive::<arrow_array::types::TimestampMillisecondType>().value(0)
    };
    assert_eq!((millis(3), millis(5)), (5, 7));
    assert_eq!(batch.column(4).as_string_view().value(0), r#"{"type":"struct"}"#);

    let mut filtered = options(Dialect::Canal);
    filtered.tables = Some(regex::Regex::new("^(?:or.*)$").expect("a pattern"));
    let messages = [
        r#"{"data":[{"id":1}],"type":"INSERT","table":"orders"}"#,
        r#"{"data":[{"id":2}],"type":"INSERT","table":"floor"}"#,
    ];
    let decoded = decode(filtered.clone(), BadDataPolicy::Fail, Vec::new(), &messages);
    assert_eq!(rows(&decoded.expect("changes")), ["+I 1 NULL"]);
    // What is filtered out is never bad; what comes behind it is.
    let messages = [
        r#"{"data":[{"id":"x"}],"type":"INSERT","table":"floor"}"#,
        r#"{"data":[{"id":1}],"type":"INSERT","table":"orders"}"#,
        r#"{"data":[{"id":"y"}],"type":"INSERT","table":"orders"}"#,
    ];
    let decoded = decode(filtered.clone(), BadDataPolicy::Reject, Vec::new(), &messages);
    let decoded = decoded.expect("changes");
    assert_eq!((rows(&decoded), decoded.rejected.len()), (vec!["+I 1 NULL".to_owned()], 1));
    let error = decode(filtered, BadDataPolicy::Fail, Vec::new(), &messages);
    assert_eq!(error.expect_err("message 2 is bad").number, Some(2));
}

#[test]
fn changes_are_written_as_flink_writes_them() {
    let kinds = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];
    let messages =
        [r#"[{"id":1,"name":"a"},{"id":1,"name":"a"},{"id":1,"name":"b"},{"id":1,"name":"b"}]"#];
    let layout = RecordLayout::new("t", schema(), vec![0, 1], false);
    let decoder = RecordDecoder::new(Format::Json(JsonOptions::default()), layout);
    let batch = decoder.decode(&TextBlock::messages(&BinaryArray::from_iter_values(messages)));
    let batch = batch.expect("rows").batch;
    let expected = [
        (
            Dialect::Debezium,
            r#"{"before":null,"after":{"id":1,"name":"a"},"op":"c"}"#,
            r#"{"before":{"id":1,"name":"a"},"after":null,"op":"d"}"#,
        ),
        (
            Dialect::Ogg,
            r#"{"before":null,"after":{"id":1,"name":"a"},"op_type":"I"}"#,
            r#"{"before":{"id":1,"name":"a"},"after":null,"op_type":"D"}"#,
        ),
        (
            Dialect::Maxwell,
            r#"{"data":{"id":1,"name":"a"},"type":"insert"}"#,
            r#"{"data":{"id":1,"name":"a"},"type":"delete"}"#,
        ),
        (
            Dialect::Canal,
            r#"{"data":[{"id":1,"name":"a"}],"type":"INSERT"}"#,
            r#"{"data":[{"id":1,"name":"a"}],"type":"DELETE"}"#,
        ),
    ];
    for (dialect, insert, delete) in expected {
        let format = Format::Changes(options(dialect));
        let encoder = TextEncoder::new(&format, schema()).expect("text");
        let written = encoder.messages(&batch, Some(&kinds)).expect("short");
        assert_eq!(written.value(0), insert.as_bytes(), "{dialect:?}");
        assert_eq!(written.value(1), delete.as_bytes(), "{dialect:?}");
        let layout = RecordLayout::new("t", schema(), vec![0, 1], false).of_changes(Vec::new());
        let decoded = RecordDecoder::new(format, layout).decode(&TextBlock::messages(&written));
        assert_eq!(rows(&decoded.expect("changes")), ["+I 1 a", "-D 1 a", "+I 1 b", "-D 1 b"]);
    }
}
