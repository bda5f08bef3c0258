//! What the golden cases do not reach: laziness, wrap-around, zones, and a table of functions whose
//! results are known from Flink's documentation or from arithmetic.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringViewArray,
    StructArray, TimestampMillisecondArray,
};
use thalweg_core::text::append_value;
use thalweg_core::types::Column;
use thalweg_core::{DataType, ErrorKind, Result, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::build::{self, BinaryOp, PatternKind, UnaryOp};
use thalweg_expr::{EvalContext, Expr, ScalarFunction, Session};

fn session() -> Session {
    Session::default()
}
fn in_zone(name: &str) -> Session {
    Session { zone: name.parse().expect("a zone"), ..Session::default() }
}
fn n(text: &str) -> Expr {
    match text.strip_prefix('-') {
        Some(rest) => build::unary(UnaryOp::Minus, n(rest)).expect(text),
        None => build::number_literal(text).expect(text),
    }
}
fn s(text: &str) -> Expr {
    build::string_literal(text)
}
fn null() -> Expr {
    build::null_literal()
}
fn ts(text: &str) -> Expr {
    build::typed_literal("TIMESTAMP", text).expect(text)
}
fn call(name: &str, args: Vec<Expr>) -> Expr {
    build::call(name, args, &session()).expect(name)
}
fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    build::binary(op, left, right, &session()).expect("binary")
}
fn cast(expr: Expr, to: DataType) -> Expr {
    build::cast(expr, to, false, &session()).expect("cast")
}
fn int(index: usize) -> Expr {
    Expr::column(index, DataType::Int.nullable())
}
fn string(index: usize) -> Expr {
    Expr::column(index, DataType::STRING.nullable())
}

fn batch(columns: Vec<(DataType, ArrayRef)>) -> RecordBatch {
    let (columns, arrays): (Vec<Column>, Vec<ArrayRef>) =
        columns.into_iter().map(|(t, array)| (Column::new("c", t.nullable()), array)).unzip();
    RecordBatch::try_new(TableSchema::new(columns).arrow(), arrays).expect("a batch")
}
fn ints(values: Vec<Option<i32>>) -> (DataType, ArrayRef) {
    (DataType::Int, Arc::new(Int32Array::from(values)))
}
fn strings(values: Vec<Option<&str>>) -> (DataType, ArrayRef) {
    (DataType::STRING, Arc::new(StringViewArray::from(values)))
}

fn evaluate(expr: &Expr, batch: &RecordBatch) -> Result<ArrayRef> {
    let none = WatermarkBefore::All(Watermark::MIN);
    expr.evaluate(&EvalContext { batch, watermark_before: &none, wall_ms: 1_000 })
}
fn texts(expr: &Expr, batch: &RecordBatch) -> Vec<String> {
    let array = evaluate(expr, batch).unwrap_or_else(|error| panic!("{expr}: {error}"));
    assert_eq!(array.data_type(), &expr.column_type.data_type.arrow(), "{expr}");
    let text = |row: usize| {
        if array.is_null(row) {
            return "NULL".to_owned();
        }
        let mut out = String::new();
        let data_type = &expr.column_type.data_type;
        append_value(&mut out, array.as_ref(), row, data_type, chrono_tz::Tz::UTC);
        out
    };
    (0..array.len()).map(text).collect()
}
fn text(expr: &Expr) -> String {
    texts(expr, &batch(vec![ints(vec![Some(1)])])).remove(0)
}

#[test]
fn functions_of_text() {
    let cases = [
        (call("LOCATE", vec![s("l"), s("hello"), n("4")]), "4"),
        (call("INSTR", vec![s("banana"), s("an"), n("1"), n("2")]), "4"),
        (call("RPAD", vec![s("é"), n("3"), s("xy")]), "éxy"),
        (call("LPAD", vec![s("hello"), n("2"), s("?")]), "he"),
        (call("LPAD", vec![s("hello"), n("-1"), s("?")]), "NULL"),
        (call("SUBSTRING", vec![s("héllo"), n("2"), n("3")]), "éll"),
        (call("SUBSTRING", vec![s("hello"), n("-9"), n("6")]), ""),
        (call("LEFT", vec![s("😀ab"), n("1")]), "😀"),
        (call("BTRIM", vec![s("xyaxy"), s("yx")]), "a"),
        (call("TRIM", vec![s("LEADING"), s("x"), s("xxax")]), "ax"),
        (call("TRANSLATE", vec![s("abcba"), s("ab"), s("x")]), "xcx"),
        (call("ELT", vec![n("2"), s("a"), s("b")]), "b"),
        (call("ELT", vec![n("3"), s("a"), s("b")]), "NULL"),
        (call("CHR", vec![n("97")]), "a"),
        (call("TO_BASE64", vec![s("hello")]), "aGVsbG8="),
        (call("DECODE", vec![call("ENCODE", vec![s("é"), s("UTF-16LE")]), s("UTF-16LE")]), "é"),
        (call("HEX", vec![n("255")]), "FF"),
        (call("HEX", vec![s("AZ")]), "415A"),
        (call("BIN", vec![n("6")]), "110"),
        (call("SHA1", vec![s("abc")]), "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (call("REGEXP", vec![s("Foo12"), s("o\\d+$")]), "TRUE"),
        (call("REGEXP_REPLACE", vec![s("a-b"), s("(\\w)-(\\w)"), s("$2\\$$1")]), "$2\\$$1"),
        (call("REGEXP_EXTRACT", vec![s("x"), s("y")]), "NULL"),
        (call("PARSE_URL", vec![s("http://u@h.org:8/p?q=1&r=2#f"), s("HOST")]), "h.org"),
        (call("PARSE_URL", vec![s("http://h/p?q=1&r=2"), s("QUERY"), s("r")]), "2"),
        (call("SPLIT", vec![s("a,,b"), s(",")]), "[a, , b]"),
        (call("STARTSWITH", vec![s("abc"), s("ab")]), "TRUE"),
        (call("JSON_VALUE", vec![s(r#"{"a":[{"b":"x"}]}"#), s("$.a[0].b")]), "x"),
        (call("JSON_VALUE", vec![s(r#"{"a":{}}"#), s("$.a")]), "NULL"),
        (
            call("JSON_QUERY", vec![s(r#"{"a":{"z":1,"b":2.50}}"#), s("lax $.a")]),
            r#"{"b":2.50,"z":1}"#,
        ),
        (call("JSON_EXISTS", vec![s(r#"{"a":null}"#), s("$.a")]), "FALSE"),
        (call("JSON_EXISTS", vec![s(r#"{"a":0}"#), s("$.a")]), "TRUE"),
        (call("FROM_BASE64", vec![s("aGVsbG8")]), "hello"),
        (call("INSTR", vec![s("banana"), s("a"), n("-1")]), "6"),
        (call("INSTR", vec![s("banana"), s("a"), n("-2"), n("2")]), "2"),
        (call("INSTR", vec![s("banana"), s("a"), n("0")]), "0"),
        (call("LOCATE", vec![s("a"), s("banana"), n("0")]), "2"),
        (call("CONCAT_WS", vec![null(), s("a")]), "NULL"),
    ];
    for (expr, expected) in cases {
        assert_eq!(text(&expr), expected, "{expr}");
    }
}

/// Types and values that Flink 2.3 answered.
#[test]
fn floats_meet_other_numbers() {
    let float = |text: &str| cast(n(text), DataType::Float);
    let sum = binary(BinaryOp::Add, float("0.5"), n("1.25e0"));
    assert_eq!(sum.column_type.data_type, DataType::Float);
    assert_eq!(text(&sum), "1.75");
    assert_eq!(text(&cast(float("0.1"), DataType::Decimal(38, 10))), "0.1000000015");
    assert_eq!(text(&cast(n("0.1e0"), DataType::Decimal(38, 10))), "0.1000000000");
    for (left, right) in [(n("2.25e0"), n("3")), (n("3"), float("2"))] {
        let refused = build::binary(BinaryOp::Modulo, left.clone(), right, &session());
        assert_eq!(refused.expect_err("floats").kind(), ErrorKind::Plan, "{left}");
    }
}

/// A slip in a number must not fill the memory.
#[test]
fn texts_that_grow_have_a_limit() {
    let long = call("REPEAT", vec![s("0123456789abcdef"), n("65536")]);
    let page = call("REPEAT", vec![s("x"), n("2000")]);
    let rows = batch(vec![ints(vec![Some(1), Some(8)])]);
    let too_long = [
        call("REPEAT", vec![s("0123456789abcdef"), n("4194305")]),
        call("RPAD", vec![s("é"), n("2147483647"), s("é")]),
        call("REPLACE", vec![long.clone(), s("0"), page.clone()]),
        call("REGEXP_REPLACE", vec![long, s("[01]"), page]),
    ];
    for expr in too_long {
        let error = evaluate(&expr, &rows).expect_err("a limit");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.message().contains("more than 64 MiB"), "{error}");
    }
    let times = binary(BinaryOp::Multiply, int(0), n("500000"));
    let part = call("REPEAT", vec![s("0123456789abcdef"), times]);
    assert_eq!(evaluate(&part, &rows).expect("72 MB of two").len(), 2);
    let five = batch(vec![ints(vec![Some(8); 5])]);
    let error = evaluate(&part, &five).expect_err("320 MB of five rows");
    assert!(error.message().contains("256 MiB"), "{error}");
}

/// The field of a NULL that would be a ROW.
fn field_of_no_row() -> Expr {
    let row = call("ROW", vec![n("5"), s("x")]);
    let none = call("IF", vec![build::boolean_literal(false), row, null()]);
    call("ROW_FIELD", vec![none, s("EXPR$0")])
}

#[test]
fn functions_of_numbers() {
    let cases = [
        (call("LOG", vec![n("2"), n("8")]), "3.0"),
        (call("SQRT", vec![n("-1")]), "NaN"),
        (call("ROUND", vec![n("1.005e0"), n("2")]), "1.01"),
        (call("ROUND", vec![n("-2.5e0")]), "-3.0"),
        (call("ROUND", vec![n("127"), n("-1")]), "130"),
        (call("ROUND", vec![n("127.5"), n("-1")]), "130"),
        (call("TRUNCATE", vec![n("-2.99e0"), n("1")]), "-2.9"),
        (call("CEIL", vec![n("-0.5")]), "0"),
        (call("GREATEST", vec![n("1"), n("2.5")]), "2.5"),
        (call("GREATEST", vec![null(), n("2")]), "NULL"),
        (call("LEAST", vec![s("b"), s("a")]), "a"),
        (call("COALESCE", vec![null(), n("1"), n("2")]), "1"),
        (call("NULLIF", vec![n("1"), n("1")]), "NULL"),
        (call("IF", vec![build::boolean_literal(false), n("1"), n("2")]), "2"),
        (call("ARRAY_CONTAINS", vec![call("ARRAY", vec![n("1"), null()]), null()]), "TRUE"),
        (call("ARRAY_AT", vec![call("ARRAY", vec![n("5"), n("6")]), n("2")]), "6"),
        (call("ARRAY_AT", vec![call("ARRAY", vec![n("5"), n("6")]), n("3")]), "NULL"),
        (call("ARRAY_AT", vec![call("MAP", vec![s("a"), n("1"), s("b"), n("2")]), s("b")]), "2"),
        (call("ARRAY_AT", vec![call("MAP", vec![s("a"), n("1")]), s("zz")]), "NULL"),
        (call("CARDINALITY", vec![call("ARRAY", vec![n("5"), n("6")])]), "2"),
        (call("ROW_FIELD", vec![call("ROW", vec![n("5"), s("x")]), s("EXPR$1")]), "x"),
        (field_of_no_row(), "NULL"),
        (cast(n("1e30"), DataType::Int), "2147483647"),
        (cast(n("999.5"), DataType::Decimal(3, 0)), "NULL"),
        (cast(s("a"), DataType::Char(3)), "a  "),
        (cast(n("-128"), DataType::TinyInt), "-128"),
    ];
    for (expr, expected) in cases {
        assert_eq!(text(&expr), expected, "{expr}");
    }
}

#[test]
fn functions_of_time() {
    let date = |text: &str| build::typed_literal("DATE", text).expect(text);
    let diff = |unit: &str, a, b| call("TIMESTAMPDIFF", vec![s(unit), a, b]);
    let cases = [
        (diff("MONTH", ts("2026-03-31 12:00:00"), ts("2026-02-28 13:00:00")), "-1"),
        (diff("MONTH", ts("2026-01-31 12:00:00"), ts("2026-02-28 11:00:00")), "0"),
        (diff("YEAR", date("2020-02-29"), date("2026-02-28")), "6"),
        (call("FLOOR", vec![ts("2026-05-20 10:00:00"), s("QUARTER")]), "2026-04-01 00:00:00"),
        (call("CEIL", vec![date("2026-05-20"), s("MONTH")]), "2026-06-01"),
        (call("EXTRACT", vec![s("ISODOW"), date("2026-01-04")]), "7"),
        (call("EXTRACT", vec![s("DOY"), date("2026-02-01")]), "32"),
        (call("EXTRACT", vec![s("CENTURY"), date("2000-12-31")]), "20"),
        (call("EXTRACT", vec![s("EPOCH"), ts("1970-01-01 00:01:00")]), "60"),
        (call("TIMESTAMPADD", vec![s("MONTH"), n("1"), date("2024-01-31")]), "2024-02-29"),
        (call("TO_DATE", vec![s("31.12.2025"), s("dd.MM.yyyy")]), "2025-12-31"),
        (
            call("CONVERT_TZ", vec![s("1970-01-01 00:00:00"), s("UTC"), s("America/Los_Angeles")]),
            "1969-12-31 16:00:00",
        ),
        (
            binary(
                BinaryOp::Add,
                date("2026-01-01"),
                build::interval("36", "HOUR", None).expect("h"),
            ),
            "2026-01-02",
        ),
    ];
    for (expr, expected) in cases {
        assert_eq!(text(&expr), expected, "{expr}");
    }
}

#[test]
fn the_sessions_zone_decides_what_a_clock_shows() {
    let shanghai = in_zone("Asia/Shanghai");
    let local = |name: &str, args| build::call(name, args, &shanghai).expect(name);
    assert_eq!(text(&local("FROM_UNIXTIME", vec![n("10")])), "1970-01-01 08:00:10");
    assert_eq!(text(&local("UNIX_TIMESTAMP", vec![s("1970-01-01 08:00:10")])), "10");
    let instant = || local("TO_TIMESTAMP_LTZ", vec![n("10"), n("0")]);
    let wall = build::cast(instant(), DataType::Timestamp(3), false, &shanghai).expect("cast");
    assert_eq!(text(&wall), "1970-01-01 08:00:10.000");
    let back = build::cast(wall, DataType::TimestampLtz(3), false, &shanghai).expect("cast");
    assert_eq!(text(&back), "1970-01-01 00:00:10.000");
    let shown = build::cast(instant(), DataType::STRING, false, &shanghai).expect("cast");
    assert_eq!(text(&shown), "1970-01-01 08:00:10.000");
    assert_eq!(text(&local("HOUR", vec![instant()])), "8");
    assert_eq!(text(&local("LOCALTIMESTAMP", vec![])), "1970-01-01 08:00:01.000");
    assert!(local("NOW", vec![]).uses_wall_clock());
}

#[test]
fn numbers_outside_the_years_of_flink_are_no_instants() {
    let instant = |number: &str, precision: &str| {
        let args = vec![n(number), n(precision)];
        text(&build::call("TO_TIMESTAMP_LTZ", args, &in_zone("UTC")).expect("a call"))
    };
    assert_eq!(instant("253402300799", "0"), "9999-12-31 23:59:59.000");
    assert_eq!(instant("253402300800", "0"), "NULL");
    assert_eq!(instant("9223372036854775807", "0"), "NULL");
    assert_eq!(instant("9223372036854775807", "3"), "NULL");
}

#[test]
fn integers_wrap() {
    let rows = batch(vec![ints(vec![Some(i32::MIN), Some(i32::MAX), None])]);
    let wrapped = |op, by: &str| texts(&binary(op, int(0), n(by)), &rows);
    assert_eq!(wrapped(BinaryOp::Add, "1"), ["-2147483647", "-2147483648", "NULL"]);
    assert_eq!(wrapped(BinaryOp::Subtract, "1"), ["2147483647", "2147483646", "NULL"]);
    assert_eq!(wrapped(BinaryOp::Multiply, "2"), ["0", "-2", "NULL"]);
    assert_eq!(wrapped(BinaryOp::Divide, "-1"), ["-2147483648", "-2147483647", "NULL"]);
    assert_eq!(wrapped(BinaryOp::Modulo, "-1"), ["0", "0", "NULL"]);
    let long = cast(int(0), DataType::BigInt);
    assert_eq!(texts(&binary(BinaryOp::Add, long, n("1")), &rows)[1], "2147483648");
}

/// DECIMAL(38,0) and DECIMAL(38,10) have no DECIMAL in common that holds both.
#[test]
fn decimals_of_any_scale_compare_exactly() {
    let whole = |text: &str| cast(n(text), DataType::Decimal(38, 0));
    let fine = |text: &str| cast(n(text), DataType::Decimal(38, 10));
    let cases = [
        (BinaryOp::Equal, whole("2"), fine("1.5"), "FALSE"),
        (BinaryOp::Greater, whole("2"), fine("1.9999999999"), "TRUE"),
        (BinaryOp::Equal, whole("2"), fine("2"), "TRUE"),
        (BinaryOp::Less, fine("-0.1"), n("0"), "TRUE"),
    ];
    for (op, left, right, expected) in cases {
        let expr = binary(op, left, right);
        assert_eq!(text(&expr), expected, "{op:?}");
    }
}

/// Divides 10 by each value; fails on 0.
fn tenth() -> Expr {
    binary(BinaryOp::Divide, n("10"), int(0))
}
fn is_zero() -> Expr {
    binary(BinaryOp::Equal, int(0), n("0"))
}

#[test]
fn what_can_fail_runs_only_on_the_rows_that_reach_it() {
    let rows = batch(vec![ints(vec![Some(0), Some(5), None, Some(2)])]);
    assert!(evaluate(&tenth(), &rows).is_err());
    let guarded = build::case(vec![(is_zero(), n("-1"))], Some(tenth())).expect("CASE");
    assert_eq!(texts(&guarded, &rows), ["-1", "2", "NULL", "5"]);
    let big = || binary(BinaryOp::Greater, tenth(), n("3"));
    let not_zero = build::unary(UnaryOp::Not, is_zero()).expect("NOT");
    let both = binary(BinaryOp::And, not_zero, big());
    assert_eq!(texts(&both, &rows), ["FALSE", "FALSE", "NULL", "TRUE"]);
    let either = binary(BinaryOp::Or, is_zero(), big());
    assert_eq!(texts(&either, &rows), ["TRUE", "FALSE", "NULL", "TRUE"]);
    let spared = call("COALESCE", vec![call("NULLIF", vec![int(0), n("5")]), tenth()]);
    assert_eq!(texts(&spared, &rows), ["0", "2", "NULL", "2"]);
    // The right side of AND comes first in no other order: the failure is real there.
    assert!(evaluate(&binary(BinaryOp::And, big(), is_zero()), &rows).is_err());
}

/// What stands in the fields of a row that is NULL must not fail the cast.
#[test]
fn rows_are_cast_field_by_field() {
    let row = |types: &[DataType]| {
        let columns = types.iter().map(|t| Column::new("f", t.clone().nullable()));
        DataType::Row(columns.collect())
    };
    let from = row(&[DataType::STRING, DataType::Int]);
    let (numbers, texts_of_rows) =
        (ints(vec![Some(1), Some(2)]).1, strings(vec![Some("7"), Some("x")]).1);
    let arrow_schema::DataType::Struct(fields) = from.arrow() else { panic!("a struct") };
    let rows = |valid: Vec<bool>| {
        let arrays = vec![texts_of_rows.clone(), numbers.clone()];
        let array = StructArray::new(fields.clone(), arrays, Some(valid.into()));
        batch(vec![(from.clone(), Arc::new(array) as ArrayRef)])
    };
    let column = || Expr::column(0, from.clone().nullable());
    let to = row(&[DataType::Int, DataType::STRING]);
    let strict = cast(column(), to.clone());
    assert_eq!(texts(&strict, &rows(vec![true, false])), ["(7, 1)", "NULL"]);
    assert!(evaluate(&strict, &rows(vec![true, true])).is_err());
    let safe = build::cast(column(), to, true, &session()).expect("TRY_CAST");
    assert_eq!(texts(&safe, &rows(vec![true, true])), ["(7, 1)", "(NULL, 2)"]);
    assert!(build::cast(column(), row(&[DataType::STRING]), false, &session()).is_err());
}

#[test]
fn case_without_failures_selects_by_masks() {
    let rows = batch(vec![
        ints(vec![Some(1), Some(2), None, Some(3)]),
        strings(vec![Some("a"), None, Some("c"), Some("d")]),
    ]);
    let is = |value: &str| binary(BinaryOp::Equal, int(0), n(value));
    let branches = vec![(is("1"), s("one")), (is("2"), string(1))];
    let chosen = build::case(branches, Some(s("other"))).expect("CASE");
    assert_eq!(texts(&chosen, &rows), ["one", "NULL", "other", "other"]);
    assert_eq!(chosen.column_type.to_string(), "STRING");
    let mixed = build::case(vec![(is("1"), n("1"))], Some(n("2.5"))).expect("CASE");
    assert_eq!(mixed.column_type.to_string(), "DECIMAL(11,1) NOT NULL");
    assert_eq!(texts(&mixed, &rows), ["1.0", "2.5", "2.5", "2.5"]);
}

#[test]
fn patterns() {
    let values = vec![Some("abc"), Some("a%c"), Some("a\nc"), Some("xabcx"), None, Some("")];
    let rows = batch(vec![strings(values)]);
    let like = |pattern: &str, escape: Option<&str>, kind| {
        let expr = build::like(string(0), s(pattern), escape, kind, false, &session());
        texts(&expr.expect(pattern), &rows)
            .iter()
            .map(|truth| truth.chars().next().expect("T, F or N"))
            .collect::<String>()
    };
    assert_eq!(like("a%", None, PatternKind::Like), "TTTFNF");
    assert_eq!(like("%c", None, PatternKind::Like), "TTTFNF");
    assert_eq!(like("%bc%", None, PatternKind::Like), "TFFTNF");
    assert_eq!(like("a_c", None, PatternKind::Like), "TTTFNF");
    assert_eq!(like("a!%c", Some("!"), PatternKind::Like), "FTFFNF");
    assert_eq!(like("", None, PatternKind::Like), "FFFFNT");
    assert_eq!(like("(a|x)%(c|x)", None, PatternKind::SimilarTo), "TTTTNF");
    // The pattern in a column.
    let expr = build::like(string(0), string(0), None, PatternKind::Like, false, &session());
    assert_eq!(texts(&expr.expect("LIKE"), &rows)[..2], ["TRUE", "TRUE"]);
}

#[test]
fn in_a_long_list_is_a_look_up_with_the_same_answers() {
    let rows = batch(vec![ints(vec![Some(1), Some(9), None])]);
    let list = |numbers: &[&str]| numbers.iter().map(|text| n(text)).collect::<Vec<_>>();
    let long = build::in_list(int(0), list(&["1", "2", "3", "4", "5"]), false, &session());
    assert_eq!(texts(&long.expect("IN"), &rows), ["TRUE", "FALSE", "NULL"]);
    let mut with_null = list(&["1", "2", "3", "4"]);
    with_null.push(null());
    let unsure = build::in_list(int(0), with_null.clone(), false, &session()).expect("IN");
    assert_eq!(texts(&unsure, &rows), ["TRUE", "NULL", "NULL"]);
    let negated = build::in_list(int(0), with_null, true, &session()).expect("NOT IN");
    assert_eq!(texts(&negated, &rows), ["FALSE", "NULL", "NULL"]);
}

#[test]
fn current_watermark_is_null_before_the_first() {
    let times = TimestampMillisecondArray::from(vec![5, 6, 7]);
    let rows = batch(vec![(DataType::Timestamp(3), Arc::new(times) as ArrayRef)]);
    let column = Expr::column(0, DataType::Timestamp(3).nullable());
    let mark = call("CURRENT_WATERMARK", vec![column.clone()]);
    let marks = WatermarkBefore::Rows(vec![i64::MIN, 4, 5].into());
    let context = EvalContext { batch: &rows, watermark_before: &marks, wall_ms: 0 };
    let array = mark.evaluate(&context).expect("marks");
    let ticks: Vec<Option<i64>> =
        array.as_primitive::<arrow_array::types::TimestampMillisecondType>().iter().collect();
    assert_eq!(ticks, [None, Some(4), Some(5)]);
    // Rows chosen by CASE keep their own watermark.
    let one = build::cast(s("1"), DataType::Int, false, &session()).expect("cast");
    let failing = binary(BinaryOp::Greater, binary(BinaryOp::Divide, one, n("1")), n("0"));
    let text_of = cast(mark.clone(), DataType::STRING);
    let late = binary(BinaryOp::Greater, column, ts("1970-01-01 00:00:00.006"));
    let parsed = cast(text_of, DataType::Timestamp(3));
    let chosen = build::case(vec![(binary(BinaryOp::And, late, failing), parsed)], None);
    let array = chosen.expect("CASE").evaluate(&context).expect("marks");
    assert_eq!((array.null_count(), array.is_valid(2)), (2, true));
    assert!(mark.uses_watermark() && mark.is_deterministic());
}

#[test]
fn trees_can_be_read_and_moved() {
    let expr = binary(BinaryOp::And, is_zero(), binary(BinaryOp::Greater, int(3), n("1")));
    assert_eq!(expr.to_string(), "(($0 = 0) AND ($3 > 1))");
    assert_eq!(expr.columns().into_iter().collect::<Vec<_>>(), [0, 3]);
    let moved = expr.remap(&|index| index + 1);
    assert_eq!(moved.to_string(), "(($1 = 0) AND ($4 > 1))");
    assert!(moved != expr && expr == expr.remap(&|index| index));
    let day = build::interval("1", "DAY", None).expect("a day");
    let time = Expr::column(2, DataType::Timestamp(3).nullable());
    let before = binary(BinaryOp::Subtract, time, day);
    assert_eq!(before.to_string(), "($2 - INTERVAL 86400000 MS)");
    assert_eq!(call("UPPER", vec![s("it's")]).to_string(), "'IT''S'");
    assert!(!call("RAND", vec![]).is_deterministic());
}

#[test]
fn masks_count_null_as_false() {
    let rows = batch(vec![ints(vec![Some(0), None, Some(1)])]);
    let none = WatermarkBefore::All(Watermark::MIN);
    let context = EvalContext { batch: &rows, watermark_before: &none, wall_ms: 0 };
    let mask = is_zero().evaluate_mask(&context).expect("a mask");
    assert_eq!(mask, BooleanArray::from(vec![true, false, false]));
}

#[test]
fn errors_name_the_function_and_what_it_takes() {
    let error = build::call("SUBSTRNG", vec![s("a")], &session()).expect_err("unknown");
    assert_eq!(error.help(), Some("did you mean SUBSTRING?"));
    let error = build::call("UPPER", vec![n("1")], &session()).expect_err("a number");
    assert_eq!(error.message(), "UPPER does not take (INT)");
    let error = build::call("SUBSTRING", vec![s("a")], &session()).expect_err("too few");
    assert_eq!(error.help(), Some("supported: SUBSTRING(string, int [, int])"));
    let error = build::cast(n("1"), DataType::Timestamp(3), false, &session()).expect_err("cast");
    assert!(error.help().is_some_and(|help| help.contains("TO_TIMESTAMP_LTZ")));
    let args = vec![s("a"), s("("), s("b")];
    let error = build::call("REGEXP_REPLACE", args, &session()).expect_err("regex");
    assert_eq!(error.kind(), ErrorKind::Plan);
    assert!(error.message().contains("'(' is not a regular expression"), "{error}");
}

#[test]
fn insert_widens_but_never_narrows() {
    let target = |t: DataType| t.nullable();
    let wide = build::coerce(int(0), &target(DataType::BigInt), &session()).expect("wider");
    assert_eq!(wide.column_type.to_string(), "BIGINT");
    let long = Expr::column(0, DataType::BigInt.nullable());
    assert!(build::coerce(long, &target(DataType::Int), &session()).is_err());
    assert!(build::coerce(int(0), &target(DataType::STRING), &session()).is_err());
    // A text whose type says its length is cut as in Flink; another one is renamed.
    let to_two = |expr| build::coerce(expr, &target(DataType::Varchar(2)), &session());
    assert_eq!(text(&to_two(s("abc")).expect("CHAR(3)")), "ab");
    let any_text = build::cast(s("abc"), DataType::STRING, false, &session()).expect("STRING");
    assert_eq!(text(&to_two(any_text).expect("STRING")), "abc");
}

#[test]
fn user_functions_are_called_by_name() {
    let twice = ScalarFunction {
        name: "Twice".to_owned(),
        arguments: vec![DataType::BigInt],
        result: DataType::BigInt.nullable(),
        deterministic: true,
        function: Arc::new(|args, rows| {
            assert_eq!(args[0].len(), rows);
            let numbers = args[0].as_primitive::<Int64Type>();
            Ok(Arc::new(numbers.unary::<_, Int64Type>(|v| v * 2)))
        }),
    };
    let wrong = ScalarFunction {
        name: "wrong".to_owned(),
        function: Arc::new(|_, _| Ok(Arc::new(Int64Array::from(vec![1, 2, 3])))),
        ..twice.clone()
    };
    let session = session();
    session.functions.register(twice);
    session.functions.register(wrong);
    let rows = batch(vec![ints(vec![Some(4), None])]);
    let expr = build::call("TWICE", vec![int(0)], &session).expect("registered");
    assert_eq!(texts(&expr, &rows), ["8", "NULL"]);
    let constant = build::call("twice", vec![n("3")], &session).expect("registered");
    assert_eq!(texts(&constant, &rows), ["6", "6"]);
    let error = build::call("twice", vec![s("x")], &session).expect_err("text");
    assert!(error.help().is_some_and(|help| help.contains("Twice(BIGINT) -> BIGINT")));
    let expr = build::call("wrong", vec![int(0)], &session).expect("registered");
    let error = evaluate(&expr, &rows).expect_err("three values for two rows");
    assert_eq!(error.kind(), ErrorKind::User);
}

#[test]
fn types_in_common() {
    let common = |types: &[DataType]| {
        let types: Vec<_> = types.iter().map(|t| t.clone().not_null()).collect();
        build::common_type(&types).map(|t| t.to_string()).ok()
    };
    use DataType as T;
    let cases = [
        (vec![T::Int, T::BigInt], Some("BIGINT NOT NULL")),
        (vec![T::Int, T::Decimal(4, 2)], Some("DECIMAL(12,2) NOT NULL")),
        (vec![T::Decimal(10, 2), T::Double], Some("DOUBLE NOT NULL")),
        (vec![T::Char(1), T::Char(3)], Some("VARCHAR(3) NOT NULL")),
        (vec![T::Timestamp(0), T::Timestamp(3)], Some("TIMESTAMP(3) NOT NULL")),
        (vec![T::Int, T::STRING], None),
        (vec![T::Null, T::Int], Some("INT")),
    ];
    for (types, expected) in cases {
        assert_eq!(common(&types).as_deref(), expected, "{types:?}");
    }
}

/// The columns that a fold or a kernel reads must not depend on which rows are selected.
#[test]
fn pieces_of_a_batch_give_the_pieces_of_the_result() {
    let mut random = thalweg_core::shim::SplitMix64::new(5);
    let values: Vec<Option<i32>> =
        (0..300).map(|_| (random.below(5) > 0).then(|| random.below(7) as i32 - 3)).collect();
    let rows = batch(vec![ints(values)]);
    let guarded = build::case(vec![(is_zero(), null())], Some(tenth())).expect("CASE");
    let text = binary(BinaryOp::Concat, cast(guarded, DataType::STRING), s("!"));
    let whole = texts(&call("COALESCE", vec![text.clone(), s("none")]), &rows);
    for size in [1, 7, 100] {
        let expr = call("COALESCE", vec![text.clone(), s("none")]);
        let pieces: Vec<String> = (0..300)
            .step_by(size)
            .flat_map(|start| texts(&expr, &rows.slice(start, size.min(300 - start))))
            .collect();
        assert_eq!(pieces, whole, "pieces of {size}");
    }
    let quotients = rows.column(0).as_primitive::<Int32Type>().iter().map(|v| match v {
        Some(v) if v != 0 => format!("{}!", 10 / v),
        _ => "none".to_owned(),
    });
    assert_eq!(whole, quotients.collect::<Vec<_>>());
}

#[test]
fn texts_in_a_long_list_are_distinct_however_long_they_are() {
    let long = "thirteen bytes";
    let values = [Some("a"), Some("a\0"), Some(""), Some(long), Some("thirteen byteS"), None];
    let rows = batch(vec![strings(values.to_vec())]);
    let listed = ["a", "bb", "", "ccc", "twelve bytes", long];
    let mut list: Vec<Expr> = listed.iter().map(|text| s(text)).collect();
    let found = build::in_list(string(0), list.clone(), false, &session()).expect("IN");
    let expected = ["TRUE", "FALSE", "TRUE", "TRUE", "FALSE", "NULL"];
    assert_eq!(texts(&found, &rows), expected);
    let behind = batch(vec![strings(values.to_vec())]).slice(2, 3);
    assert_eq!(texts(&found, &behind), expected[2..5], "rows of a slice");
    let many = (0..20).map(|n| s(&format!("x{n}"))).chain(list.clone()).collect();
    let found = build::in_list(string(0), many, false, &session()).expect("IN");
    assert_eq!(texts(&found, &rows), expected, "of many");
    list.push(null());
    let unsure = build::in_list(string(0), list, true, &session()).expect("NOT IN");
    assert_eq!(texts(&unsure, &rows), ["FALSE", "NULL", "FALSE", "FALSE", "NULL", "NULL"]);
}

#[test]
fn texts_are_split_at_separators_of_any_length() {
    let rows = batch(vec![strings(vec![Some("a--bé-"), Some("-"), Some(""), None])]);
    let split = |separator: &str| texts(&call("SPLIT", vec![string(0), s(separator)]), &rows);
    assert_eq!(split("-"), ["[a, , bé, ]", "[, ]", "[]", "NULL"]);
    let text = "é-abcdefgh--ijklmnopqrs-tuvwxyz\u{80}\u{ad}-0123456-".repeat(5);
    for separator in ["-", "a", "z", "0", "~"] {
        let parts: Vec<&str> = text.split(separator).collect();
        let rows = batch(vec![strings(vec![Some(&text)])]);
        let split = texts(&call("SPLIT", vec![string(0), s(separator)]), &rows);
        assert_eq!(split, [format!("[{}]", parts.join(", "))]);
    }
    assert_eq!(split("--"), ["[a, bé-]", "[-]", "[]", "NULL"]);
    assert_eq!(split(""), ["[a, -, -, b, é, -]", "[-]", "[]", "NULL"]);
}
