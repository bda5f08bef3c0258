//! One message is one record: a decoder over messages finds what it finds in the same records as
//! lines of a text, whatever stands in the messages around them.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, BinaryArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use super::csv::CsvReading;
use super::csv::scan::Dialect;
use super::*;

fn csv_options() -> CsvOptions {
    CsvOptions {
        dialect: Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            comments: false,
            skip_blank_lines: false,
            ends_with_blank_lines: true,
            trims_spaces: false,
        },
        null_literal: None,
        header: false,
        array_delimiter: ";".to_owned(),
        ignore_parse_errors: false,
        reading: CsvReading::default(),
        scientific_decimals: false,
    }
}

fn schema() -> TableSchema {
    let text = Column::new("s", DataType::STRING.nullable());
    TableSchema::new(vec![text, Column::new("n", DataType::Int.nullable())])
}

fn decoder(format: Format, policy: BadDataPolicy) -> RecordDecoder {
    let layout = RecordLayout::new("t", schema(), vec![0, 1], false);
    RecordDecoder::new(format, layout.with_policy(policy, Vec::new()))
}

/// The rows of a batch.
fn rows(decoded: &DecodedRecords) -> Vec<(Option<String>, Option<i32>)> {
    let texts = decoded.batch.column(0).as_string_view().iter();
    let numbers = decoded.batch.column(1).as_primitive::<Int32Type>().iter();
    texts.map(|text| text.map(str::to_owned)).zip(numbers).collect()
}

fn row(text: &str, number: i32) -> (Option<String>, Option<i32>) {
    (Some(text.to_owned()), Some(number))
}

#[test]
fn each_message_is_a_record_of_its_own() {
    let messages: Vec<Option<&[u8]>> = vec![
        Some(b"a,1"),
        None,
        // The quote that is missing here must not reach into the next message.
        Some(b"\"open,2"),
        Some(b"\"two\nlines\",3"),
        Some(b""),
        Some(b"b,4\n"),
        Some(b"c,5\nd,6"),
        Some(b"bad\xFFbytes,7"),
        Some(b"e,x"),
        Some(b"f,8"),
    ];
    let messages = BinaryArray::from(messages);
    let decoder = decoder(Format::Csv(csv_options()), BadDataPolicy::Reject);
    let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("bad ones are rejected");
    assert_eq!(rows(&decoded), [row("a", 1), row("two\nlines", 3), row("b", 4), row("f", 8)]);
    assert_eq!(decoded.messages, [0, 3, 5, 9]);
    let rejected: Vec<(u64, &str, &[u8])> =
        decoded.rejected.iter().map(|r| (r.number, r.reason.as_str(), r.raw.as_slice())).collect();
    assert_eq!(
        rejected,
        [
            (2, "a quote is not closed before the end of the file", &b"\"open,2"[..]),
            (6, "the message has more than one record", b"c,5\nd,6"),
            (7, "the text is not valid UTF-8", b"bad\xFFbytes,7"),
            (8, "column n (INT): cannot read 'x'", b"e,x"),
        ]
    );
}

#[test]
fn a_message_of_json_may_have_many_lines() {
    let messages: Vec<Option<&[u8]>> = vec![
        Some(b"{\n \"s\": \"a\",\n \"n\": 1\n}"),
        Some(b"  "),
        Some(b"{\"s\": \"b\""),
        Some(b"{\"s\": \"c\", \"n\": 2} {}"),
        Some(b"{\"n\": 3}"),
    ];
    let messages = BinaryArray::from(messages);
    let lenient = decoder(Format::Json(JsonOptions::default()), BadDataPolicy::Reject);
    let decoded = lenient.decode(&TextBlock::messages(&messages)).expect("bad ones are rejected");
    assert_eq!(rows(&decoded), [row("a", 1), (None, Some(3))]);
    assert_eq!(decoded.messages, [0, 4]);
    assert_eq!(decoded.rejected.iter().map(|r| r.number).collect::<Vec<_>>(), [2, 3]);
    assert!(decoded.rejected[0].reason.starts_with("the message is not a JSON object"));
    let strict = decoder(Format::Json(JsonOptions::default()), BadDataPolicy::Fail);
    let error = strict.decode(&TextBlock::messages(&messages)).expect_err("message 2 is broken");
    assert_eq!(error.number, Some(2));
}

#[test]
fn what_is_encoded_is_decoded_again_as_lines_and_as_messages() {
    let mut random = SplitMix64::new(7);
    let pieces = ["a", "\"", ",", "\n", "é", "#", " ", "\\", "\r\n", "0"];
    for round in 0..300 {
        let texts: Vec<String> = (0..1 + random.below(20))
            .map(|_| (0..random.below(6)).map(|_| pieces[random.below(10) as usize]).collect())
            .collect();
        let numbers = (0..texts.len() as i32).map(Some);
        let columns: Vec<arrow_array::ArrayRef> = vec![
            std::sync::Arc::new(arrow_array::StringViewArray::from_iter_values(&texts)),
            std::sync::Arc::new(arrow_array::Int32Array::from_iter(numbers)),
        ];
        let batch = arrow_array::RecordBatch::try_new(schema().arrow(), columns).expect("columns");
        for format in [Format::Csv(csv_options()), Format::Json(JsonOptions::default())] {
            let encoder = TextEncoder::new(&format, schema()).expect("a text format");
            let decoder = decoder(format, BadDataPolicy::Fail);
            let messages = encoder.messages(&batch, None).expect("short");
            assert_eq!(messages.len(), texts.len());
            let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("as encoded");
            assert_eq!(decoded.batch, batch, "round {round}");
            let mut text = String::new();
            encoder.lines(&mut text, &batch, None).expect("written");
            let lines = TextBlock::lines(text.as_bytes(), 1, true, true);
            assert_eq!(decoder.decode(&lines).expect("as encoded").batch, batch, "round {round}");
        }
    }
}

/// As Jackson reads them, which Flink passes its options to.
#[test]
fn options_of_csv_decide_which_records_are_bad() {
    let read = |reading: CsvReading, policy: BadDataPolicy, text: &str| {
        let mut options = CsvOptions { reading, ..csv_options() };
        options.dialect.trims_spaces = true;
        let decoder = decoder(Format::Csv(options), policy);
        let decoded = decoder.decode(&TextBlock::lines(text.as_bytes(), 1, true, true));
        let decoded = decoded.expect("bad ones are rejected");
        (rows(&decoded), decoded.rejected.len())
    };
    let (usual, reject) = (CsvReading::default(), BadDataPolicy::Reject);
    let text = " a ,1\n\" b \" , 2 ,\nc,3,x\nd\n,\n";
    assert_eq!(read(usual, reject, text), (vec![row("a", 1), row(" b ", 2)], 3));
    let strict = CsvReading { refuses_trailing_delimiter: true, ..usual };
    assert_eq!(read(strict, reject, text), (vec![row("a", 1)], 4));
    let lenient = CsvReading { ignores_trailing_fields: true, has_empty_nulls: true, ..usual };
    let expected = vec![row("a", 1), row(" b ", 2), row("c", 3), (None, None)];
    assert_eq!(read(lenient, reject, text), (expected, 1));
    // Where bad fields are NULL, a record that is too short is filled up, or left out.
    let filled = (Some("d".to_owned()), None);
    assert_eq!(read(usual, BadDataPolicy::Null, "d\n"), (vec![filled], 0));
    let whole = CsvReading { refuses_missing_fields: true, ..usual };
    assert_eq!(read(whole, BadDataPolicy::Null, "d\na,1\n"), (vec![row("a", 1)], 0));
}

#[test]
fn row_kinds_are_read_as_they_are_written() {
    let columns: Vec<arrow_array::ArrayRef> = vec![
        std::sync::Arc::new(arrow_array::StringViewArray::from(vec!["a", "b"])),
        std::sync::Arc::new(arrow_array::Int32Array::from(vec![1, 2])),
    ];
    let batch = arrow_array::RecordBatch::try_new(schema().arrow(), columns).expect("columns");
    let kinds = [RowKind::Delete, RowKind::UpdateAfter];
    let with_op = TableSchema::new(
        [Column::new("op", DataType::STRING.nullable())]
            .into_iter()
            .chain(schema().columns)
            .collect(),
    );
    for format in [Format::Csv(csv_options()), Format::Json(JsonOptions::default())] {
        let encoder = TextEncoder::new(&format, schema()).expect("a text format");
        let messages = encoder.messages(&batch, Some(&kinds)).expect("short");
        let layout = RecordLayout::new("t", with_op.clone(), vec![1, 2, 0], true);
        let decoded = RecordDecoder::new(format, layout).decode(&TextBlock::messages(&messages));
        let batch = decoded.expect("as encoded").batch;
        let codes = batch.column(2).as_primitive::<arrow_array::types::Int8Type>();
        assert_eq!(codes.values(), &kinds.map(RowKind::code));
    }
}

mod avro_oracle;
mod changes;
#[cfg(feature = "protobuf")]
mod protobuf;
pub(crate) mod python;
#[cfg(feature = "registry")]
mod registry;
mod values;
