//! Messages of Protocol Buffers: Google's library reads what is written here, and finds in any
//! bytes what is found here.

use std::path::Path;

use arrow_array::{Array, BinaryArray, RecordBatch};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, ColumnType, DataType, TableSchema};

use super::super::*;
use super::python;
use super::values::{decoder, random_batch};

/// A random type of columns, and how a `.proto` file declares it.
struct Declared {
    schema: TableSchema,
    text: String,
}

const SYNTAXES: [&str; 2] = ["proto2", "proto3"];

fn declared(syntax: &str, random: &mut SplitMix64) -> Declared {
    let mut messages = String::new();
    let columns = message("M", syntax, 2, random, &mut messages);
    Declared {
        schema: TableSchema::new(columns),
        text: format!("syntax = \"{syntax}\";\n{messages}"),
    }
}

/// Declares a message with random fields in a random order of numbers.
fn message(
    name: &str,
    syntax: &str,
    depth: u64,
    random: &mut SplitMix64,
    messages: &mut String,
) -> Vec<Column> {
    let (mut columns, mut lines) = (Vec::new(), String::new());
    for at in 0..1 + random.below(5) {
        let number = (at * 7 + random.below(7)) * 3 + 1;
        let inner = format!("{name}_{at}");
        let shape = random.below(if depth > 0 { 6 } else { 4 });
        let (kind, data_type) = match shape {
            5 => {
                (inner.clone(), DataType::Row(message(&inner, syntax, depth - 1, random, messages)))
            }
            _ => scalar(random),
        };
        let optional = if syntax == "proto2" { "optional " } else { "" };
        let element = |data_type: &DataType| Box::new(data_type.clone().not_null());
        let (line, data_type) = match random.below(4) {
            0 => (format!("repeated {kind}"), DataType::Array(element(&data_type))),
            1 => {
                let key = Box::new(DataType::STRING.not_null());
                (format!("map<string, {kind}>"), DataType::Map(key, element(&data_type)))
            }
            _ => (format!("{optional}{kind}"), data_type),
        };
        lines += &format!("  {line} f{at} = {number};\n");
        columns.push(Column::new(format!("f{at}"), data_type.nullable()));
    }
    *messages += &format!("message {name} {{\n{lines}}}\n");
    columns
}

fn scalar(random: &mut SplitMix64) -> (String, DataType) {
    let kinds = [
        ("bool", DataType::Boolean),
        ("int32", DataType::Int),
        ("uint32", DataType::Int),
        ("sint32", DataType::Int),
        ("fixed32", DataType::Int),
        ("sfixed32", DataType::Int),
        ("int64", DataType::BigInt),
        ("uint64", DataType::BigInt),
        ("sint64", DataType::BigInt),
        ("fixed64", DataType::BigInt),
        ("sfixed64", DataType::BigInt),
        ("float", DataType::Float),
        ("double", DataType::Double),
        ("string", DataType::STRING),
        ("bytes", DataType::BYTES),
    ];
    let (name, data_type) = kinds[random.below(kinds.len() as u64) as usize].clone();
    (name.to_owned(), data_type)
}

/// The format of message `M` in a file with this text, of which the descriptors are left as well.
fn format_of(folder: &Path, text: &str) -> Format {
    let file = folder.join("m.proto");
    std::fs::write(&file, text).expect("written");
    let set = protox::compile([&file], [folder]).unwrap_or_else(|e| panic!("{e}: {text}"));
    use protox::prost::Message;
    std::fs::write(folder.join("m.set"), set.encode_to_vec()).expect("written");
    Format::Protobuf(ProtobufOptions::of_file(&file, "M").expect("a message"))
}

fn oracle(python: &Path, folder: &Path, messages: &BinaryArray) -> BinaryArray {
    let set = folder.join("m.set");
    python::records(python, "protobuf_oracle.py", &[set.as_os_str(), "M".as_ref()], messages)
}

fn encoded(format: &Format, schema: &TableSchema, batch: &RecordBatch) -> BinaryArray {
    let encoder = TextEncoder::new(format, schema.clone()).expect("record by record");
    encoder.messages(batch, None).expect("short")
}

#[test]
fn google_reads_the_same_values_in_any_order_and_with_repetitions() {
    let Some(python) = python::python_with("google.protobuf") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = SplitMix64::new(17);
    for round in 0..12 {
        let Declared { schema, text } = declared(SYNTAXES[round % 2], &mut random);
        let format = format_of(folder.path(), &text);
        let written = encoded(&format, &schema, &random_batch(&schema, &mut random));
        // Messages one after the other are one message, in which the last value of each counts.
        let mut messages: Vec<Vec<u8>> = written.iter().flatten().map(<[u8]>::to_vec).collect();
        for _ in 0..10 {
            let parts = 0..2 + random.below(2);
            let part = |_| written.value(random.below(written.len() as u64) as usize);
            let mut joined: Vec<u8> = parts.map(part).collect::<Vec<_>>().concat();
            joined.extend([0xF8, 0x7F, 1, 0xF3, 0x7F, 0x08, 1, 0xF4, 0x7F]);
            messages.push(joined);
        }
        let messages = BinaryArray::from_iter_values(&messages);
        let decoder = decoder(&format, &schema, BadDataPolicy::Fail);
        let decoded = decoder.decode(&TextBlock::messages(&messages));
        let decoded = decoded.unwrap_or_else(|e| panic!("{round} {text}: {:?}", e.error));
        assert_eq!(decoded.batch.num_rows(), messages.len());
        let again = encoded(&format, &schema, &decoded.batch);
        let expected = oracle(&python, folder.path(), &messages);
        assert_eq!(oracle(&python, folder.path(), &again), expected, "{round} {text}");
        // Without maps of several entries, whose order is free, the bytes are Google's.
        if !text.contains("map<") {
            assert_eq!(again, expected, "{round} {text}");
        }
    }
}

#[test]
fn broken_messages_are_those_that_google_refuses() {
    let Some(python) = python::python_with("google.protobuf") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = SplitMix64::new(23);
    for round in 0..8 {
        let Declared { schema, text } = declared("proto3", &mut random);
        let format = format_of(folder.path(), &text);
        let written = encoded(&format, &schema, &random_batch(&schema, &mut random));
        let mut messages = Vec::new();
        for _ in 0..200 {
            let mut bytes = written.value(random.below(written.len() as u64) as usize).to_vec();
            if bytes.is_empty() {
                continue;
            }
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(2) {
                0 => bytes.truncate(at),
                _ => bytes[at] = random.next_u64() as u8,
            }
            messages.push(bytes);
        }
        let messages = BinaryArray::from_iter_values(&messages);
        let expected = oracle(&python, folder.path(), &messages);
        let decoder = decoder(&format, &schema, BadDataPolicy::Reject);
        let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("bad ones rejected");
        assert_eq!(decoded.batch.num_rows() + decoded.rejected.len(), messages.len());
        let refused = |number: usize| decoded.rejected.iter().find(|r| r.number == number as u64);
        for number in 0..messages.len() {
            let bytes = messages.value(number);
            let (ours, theirs) = (refused(number), expected.is_null(number));
            assert_eq!(ours.is_some(), theirs, "{round} {text} {bytes:02x?}: {ours:?}");
        }
        // Google's Python, unlike its Java, leaves out entries of maps with fields of their own.
        if text.contains("map<") {
            continue;
        }
        let again = encoded(&format, &schema, &decoded.batch);
        let kept = decoded.messages.iter().map(|&number| expected.value(number as usize));
        let kept = BinaryArray::from_iter_values(kept);
        assert_eq!(oracle(&python, folder.path(), &again), kept, "{round} {text}");
    }
}

fn columns(columns: &[(&str, DataType)]) -> TableSchema {
    let column = |(name, data_type): &(&str, DataType)| {
        Column::new(*name, ColumnType { data_type: data_type.clone(), nullable: true })
    };
    TableSchema::new(columns.iter().map(column).collect())
}

/// The rows of messages as JSON.
fn rows(format: &Format, schema: &TableSchema, messages: &[&[u8]]) -> Vec<String> {
    let messages = BinaryArray::from_iter_values(messages);
    let decoder = decoder(format, schema, BadDataPolicy::Fail);
    let decoded = decoder.decode(&TextBlock::messages(&messages));
    let decoded = decoded.unwrap_or_else(|e| panic!("{:?}", e.error));
    let json = TextEncoder::new(&Format::Json(JsonOptions::default()), schema.clone());
    let mut lines = String::new();
    json.expect("text").lines(&mut lines, &decoded.batch, None).expect("written");
    lines.lines().map(str::to_owned).collect()
}

const KINDS: &str = "enum E { A = 5; B = 7; }
message Inner { optional int32 x = 1; }
message M {
  optional E e = 1; optional E n = 2; repeated E all = 3; optional int32 i = 4 [default = -7];
  optional Inner inner = 5; map<string, Inner> map = 6;
  oneof one { int32 a = 7; string b = 8; int32 other = 9; }
}";

fn kinds() -> TableSchema {
    let inner = DataType::Row(vec![Column::new("x", DataType::Int.nullable())]);
    let map =
        DataType::Map(Box::new(DataType::STRING.not_null()), Box::new(inner.clone().nullable()));
    columns(&[
        ("e", DataType::STRING),
        ("n", DataType::TinyInt),
        ("all", DataType::Array(Box::new(DataType::STRING.nullable()))),
        ("i", DataType::Int),
        ("inner", inner),
        ("map", map),
        ("a", DataType::Int),
        ("b", DataType::STRING),
    ])
}

#[test]
fn values_that_are_not_set_are_read_as_flink_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = kinds();
    let old = format_of(folder.path(), &format!("syntax = \"proto2\";\n{KINDS}"));
    let nothing =
        r#"{"e":null,"n":null,"all":null,"i":null,"inner":null,"map":null,"a":null,"b":null}"#;
    assert_eq!(rows(&old, &schema, &[b""]), [nothing]);
    let Format::Protobuf(options) = &old else { panic!("of messages") };
    let defaults = Format::Protobuf(options.clone().with_defaults());
    let all = r#"{"e":"A","n":5,"all":[],"i":-7,"inner":{"x":0},"map":{},"a":0,"b":""}"#;
    assert_eq!(rows(&defaults, &schema, &[b""]), [all]);
    let kinds = KINDS
        .replace("optional ", "")
        .replace(" [default = -7]", "")
        .replace("A = 5", "Z = 0; A = 5");
    let new = format_of(folder.path(), &format!("syntax = \"proto3\";\n{kinds}"));
    let scalars = r#"{"e":"Z","n":0,"all":null,"i":0,"inner":null,"map":null,"a":0,"b":""}"#;
    assert_eq!(rows(&new, &schema, &[b""]), [scalars]);
    // Numbers that an enum does not list: no values in proto2, without a name in proto3.
    let unlisted = b"\x08\x06\x10\x06\x1a\x02\x05\x06";
    let expected = nothing.replace("\"all\":null", "\"all\":[\"A\"]");
    assert_eq!(rows(&old, &schema, &[unlisted]), [expected]);
    let expected = scalars.replace(
        r#""e":"Z","n":0,"all":null"#,
        r#""e":"UNRECOGNIZED","n":6,"all":["A","UNRECOGNIZED"]"#,
    );
    assert_eq!(rows(&new, &schema, &[unlisted]), [expected]);
    // Of a oneof the last counts, also one that is no column.
    let one = b"\x38\x01\x42\x01x";
    let expected = nothing.replace("\"b\":null", "\"b\":\"x\"");
    assert_eq!(rows(&old, &schema, &[one, b"\x38\x01\x48\x01"]), [expected.as_str(), nothing]);
}

#[test]
fn nulls_are_written_as_flink_writes_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = kinds();
    let format = format_of(folder.path(), &format!("syntax = \"proto2\";\n{KINDS}"));
    let json = decoder(&Format::Json(JsonOptions::default()), &schema, BadDataPolicy::Fail);
    let text = br#"{"e":"no such","n":9,"all":[null,"B"],"map":{"k":null},"a":1,"b":"x"}"#;
    let decoded = json.decode(&TextBlock::lines(text, 1, true, true)).expect("an object");
    let messages = encoded(&format, &schema, &decoded.batch);
    let expected = b"\x08\x05\x10\x05\x18\x05\x18\x07\x32\x05\x0a\x01k\x12\x00\x42\x01x";
    assert_eq!(messages.value(0), expected, "{:02x?}", messages.value(0));
}

#[test]
fn messages_are_found_by_the_names_that_java_has_for_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let find = |file: &str, text: &str, name: &str| {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("created");
        std::fs::write(&file, text).expect("written");
        ProtobufOptions::of_file(&file, name).map(|_| ())
    };
    let head = "syntax = \"proto3\"; package p.q;\n";
    let nested = format!("{head}message M {{ message Inner {{ int32 i = 1; }} }}");
    for name in ["p.q.M", "p.q.M.Inner", "p.q.MyOrders$M", "p.q.MyOrders$M$Inner"] {
        find("my_orders.proto", &nested, name).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    find("m.proto", &nested, "p.q.MOuterClass$M").expect("the class's name is taken");
    let options = "option java_package = \"com.x\"; option java_multiple_files = true;\n";
    find("m.proto", &nested.replace("message M", &format!("{options}message M")), "com.x.M$Inner")
        .expect("a file of its own");
    let outer = "option java_outer_classname = \"Out\";\n";
    find("m.proto", &nested.replace("message M", &format!("{outer}message M")), "p.q.Out$M")
        .expect("a class that is named");
    let error = find("m.proto", &nested, "p.q.N").expect_err("no such message");
    assert!(error.help().is_some_and(|help| help.contains("p.q.MOuterClass$M")), "{error:?}");
    // Imports start above the file as well, but in no folder that is not to be read.
    find("a/b/common.proto", &nested, "p.q.M").expect("a message");
    let import = format!("{head}import \"b/common.proto\"; message N {{ M m = 1; }}");
    let file = folder.path().join("a/c/n.proto");
    let error = find("a/c/n.proto", &import, "p.q.N").expect_err("its folder alone is allowed");
    assert!(error.message().contains("common.proto"), "{error}");
    let roots = [folder.path().to_owned()];
    ProtobufOptions::of_file_within(&file, &roots, "p.q.N").expect("found in the folder above");
}
