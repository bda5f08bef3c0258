//! Functions of arrays, maps and JSON over columns: NULLs, empty arrays, and arguments that are
//! NULL in some rows. Golden cases show what Flink answers for literals.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int32Array, ListArray, RecordBatch, StringViewArray};
use thalweg_core::text::append_value;
use thalweg_core::types::Column;
use thalweg_core::{DataType, ErrorKind, Result, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{EvalContext, Expr, Session};

fn array_type() -> DataType {
    DataType::Array(Box::new(DataType::Int.nullable()))
}
fn arrays() -> Expr {
    Expr::column(0, array_type().nullable())
}
fn ints() -> Expr {
    Expr::column(1, DataType::Int.nullable())
}
fn texts() -> Expr {
    Expr::column(2, DataType::STRING.nullable())
}
fn n(text: &str) -> Expr {
    build::number_literal(text).expect(text)
}
fn s(text: &str) -> Expr {
    build::string_literal(text)
}
fn call(name: &str, args: Vec<Expr>) -> Expr {
    build::call(name, args, &Session::default()).expect(name)
}

/// Rows with an array, a number and a text.
fn batch() -> RecordBatch {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(2), Some(1), None, Some(2)]),
        Some(vec![]),
        None,
        Some(vec![None]),
        Some(vec![Some(7)]),
    ]);
    let numbers = Int32Array::from(vec![Some(2), Some(5), Some(1), None, Some(7)]);
    let texts = StringViewArray::from(vec![
        Some(r#"{"a": [1, "x"]}"#),
        Some(r#"{"a": null}"#),
        None,
        Some("no JSON"),
        Some(r#"{"a": 7.50}"#),
    ]);
    let column = |data_type: DataType| Column::new("c", data_type.nullable());
    let columns = vec![column(array_type()), column(DataType::Int), column(DataType::STRING)];
    let arrays: Vec<ArrayRef> = vec![Arc::new(lists), Arc::new(numbers), Arc::new(texts)];
    RecordBatch::try_new(TableSchema::new(columns).arrow(), arrays).expect("a batch")
}

fn evaluate(expr: &Expr, batch: &RecordBatch) -> Result<ArrayRef> {
    let none = WatermarkBefore::All(Watermark::MIN);
    expr.evaluate(&EvalContext { batch, watermark_before: &none, wall_ms: 1_000 })
}

/// The values of all rows as text.
fn shown(expr: &Expr) -> Vec<String> {
    let array = evaluate(expr, &batch()).unwrap_or_else(|error| panic!("{expr}: {error}"));
    assert_eq!(array.data_type(), &expr.column_type.data_type.arrow(), "{expr}");
    let text = |row: usize| {
        let mut out = String::new();
        match array.is_null(row) {
            true => out.push_str("NULL"),
            false => {
                let data_type = &expr.column_type.data_type;
                append_value(&mut out, array.as_ref(), row, data_type, chrono_tz::Tz::UTC);
            }
        }
        out
    };
    (0..array.len()).map(text).collect()
}

#[test]
fn functions_of_arrays_over_rows() {
    let cases = [
        (
            call("ARRAY_APPEND", vec![arrays(), ints()]),
            "[2, 1, NULL, 2, 2]|[5]|NULL|[NULL, NULL]|[7, 7]",
        ),
        (
            call("ARRAY_PREPEND", vec![arrays(), n("0")]),
            "[0, 2, 1, NULL, 2]|[0]|NULL|[0, NULL]|[0, 7]",
        ),
        (call("ARRAY_REMOVE", vec![arrays(), ints()]), "[1, NULL]|[]|NULL|[]|[]"),
        (call("ARRAY_POSITION", vec![arrays(), ints()]), "1|0|NULL|NULL|1"),
        (
            call("ARRAY_CONCAT", vec![arrays(), arrays()]),
            "[2, 1, NULL, 2, 2, 1, NULL, 2]|[]|NULL|[NULL, NULL]|[7, 7]",
        ),
        (call("ARRAY_DISTINCT", vec![arrays()]), "[2, 1, NULL]|[]|NULL|[NULL]|[7]"),
        (
            call("ARRAY_UNION", vec![arrays(), call("ARRAY", vec![n("7"), n("1")])]),
            "[2, 1, NULL, 7]|[7, 1]|NULL|[NULL, 7, 1]|[7, 1]",
        ),
        (call("ARRAY_INTERSECT", vec![arrays(), arrays()]), "[2, 1, NULL]|[]|NULL|[NULL]|[7]"),
        (
            call("ARRAY_EXCEPT", vec![arrays(), call("ARRAY", vec![n("2")])]),
            "[1, NULL]|[]|NULL|[NULL]|[7]",
        ),
        (call("ARRAY_REVERSE", vec![arrays()]), "[2, NULL, 1, 2]|[]|NULL|[NULL]|[7]"),
        (call("ARRAY_SLICE", vec![arrays(), ints(), n("3")]), "[1, NULL]|[]|NULL|NULL|[]"),
        (call("ARRAY_SORT", vec![arrays()]), "[NULL, 1, 2, 2]|[]|NULL|[NULL]|[7]"),
        (call("ARRAY_MAX", vec![arrays()]), "2|NULL|NULL|NULL|7"),
        (call("ARRAY_MIN", vec![arrays()]), "1|NULL|NULL|NULL|7"),
        (call("MAP_FROM_ARRAYS", vec![arrays(), arrays()]), "{2=2, 1=1}|{}|NULL|{}|{7=7}"),
        (
            call("MAP", vec![ints(), n("1"), n("7"), n("2")]),
            "{2=1, 7=2}|{5=1, 7=2}|{1=1, 7=2}|{7=2}|{7=2}",
        ),
        (
            build::binary(BinaryOp::Equal, arrays(), arrays(), &Session::default()).unwrap(),
            "TRUE|TRUE|NULL|TRUE|TRUE",
        ),
    ];
    for (expr, expected) in cases {
        assert_eq!(shown(&expr).join("|"), expected, "{expr}");
    }
}

#[test]
fn functions_of_json_over_rows() {
    let value = |clauses: Vec<Expr>| {
        let mut args = vec![texts(), s("$.a")];
        args.extend(clauses);
        args
    };
    let null = build::null_literal;
    let cases = [
        (call("JSON_VALUE", value(vec![])), "NULL|NULL|NULL|NULL|7.50"),
        (
            call("JSON_VALUE", value(vec![null(), s("NULL"), null(), s("DEFAULT"), s("?")])),
            "?|?|NULL|?|7.50",
        ),
        (call("JSON_VALUE", value(vec![s("DOUBLE")])), "NULL|NULL|NULL|NULL|7.5"),
        (call("JSON_QUERY", value(vec![])), "[1,\"x\"]|NULL|NULL|NULL|NULL"),
        (
            call("JSON_QUERY", value(vec![null(), s("ALWAYS"), s("NULL"), s("EMPTY ARRAY")])),
            "[[1,\"x\"]]|[]|NULL|[]|[7.50]",
        ),
        (call("JSON_QUERY", value(vec![s("ARRAY<STRING>")])), "[1, x]|NULL|NULL|NULL|NULL"),
        (call("JSON_EXISTS", value(vec![s("UNKNOWN")])), "TRUE|FALSE|NULL|NULL|TRUE"),
        (call("JSON_STRING", vec![arrays()]), "[2,1,null,2]|[]|NULL|[null]|[7]"),
        (
            call("JSON_OBJECT", vec![s("ABSENT"), s("n"), ints(), s("a"), arrays()]),
            "{\"a\":[2,1,null,2],\"n\":2}|{\"a\":[],\"n\":5}|{\"n\":1}|{\"a\":[null]}|{\"a\":[7],\"n\":7}",
        ),
        (
            call("JSON_ARRAY", vec![s("NULL"), ints(), s("x")]),
            "[2,\"x\"]|[5,\"x\"]|[1,\"x\"]|[null,\"x\"]|[7,\"x\"]",
        ),
        (call("IS JSON", vec![texts(), s("OBJECT")]), "TRUE|TRUE|FALSE|FALSE|TRUE"),
    ];
    for (expr, expected) in cases {
        assert_eq!(shown(&expr).join("|"), expected, "{expr}");
    }
}

#[test]
fn json_that_should_fail_does() {
    let strict = vec![
        texts(),
        s("$.b"),
        build::null_literal(),
        s("NULL"),
        build::null_literal(),
        s("ERROR"),
    ];
    let error = evaluate(&call("JSON_VALUE", strict), &batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    let not_json = call("JSON_ARRAY", vec![s("ABSENT"), call("JSON", vec![texts()])]);
    let error = evaluate(&not_json, &batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
}

#[test]
fn arrays_of_other_elements_are_refused() {
    let session = Session::default();
    for (name, args) in [
        ("ARRAY_APPEND", vec![arrays(), s("x")]),
        ("ARRAY_APPEND", vec![arrays(), n("2.5")]),
        ("ARRAY_UNION", vec![arrays(), call("ARRAY", vec![s("x")])]),
        ("ARRAY_JOIN", vec![arrays(), s(",")]),
        ("ARRAY_SORT", vec![call("ARRAY", vec![arrays()])]),
        ("MAP_KEYS", vec![arrays()]),
        ("JSON_STRING", vec![build::typed_literal("DATE", "2026-01-01").unwrap()]),
        ("JSON_OBJECT", vec![s("NULL"), texts(), n("1")]),
        ("JSON_VALUE", vec![texts(), s("$"), s("BIGINT")]),
    ] {
        let error = build::call(name, args, &session).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plan, "{name}: {error}");
    }
}

/// No rows give no rows, also where functions look at the first value.
#[test]
fn no_rows_give_no_rows() {
    let mut list = ListBuilder::new(Int32Builder::new());
    let empty: Vec<ArrayRef> = vec![
        Arc::new(list.finish()),
        Arc::new(Int32Array::from(Vec::<i32>::new())),
        Arc::new(StringViewArray::from(Vec::<&str>::new())),
    ];
    let batch = RecordBatch::try_new(batch().schema(), empty).expect("a batch");
    for expr in [
        call("ARRAY_SORT", vec![arrays()]),
        call("ARRAY_MAX", vec![arrays()]),
        call("JSON_OBJECT", vec![s("NULL"), s("a"), ints()]),
        call("STR_TO_MAP", vec![texts()]),
    ] {
        assert_eq!(evaluate(&expr, &batch).unwrap().len(), 0, "{expr}");
    }
}
