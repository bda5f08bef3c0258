//! The golden cases of kind expression: each column of the query is built by hand here, and its
//! type and value must be those that a real Flink gave.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringViewArray};
use thalweg_core::text::append_value;
use thalweg_core::types::Column;
use thalweg_core::{DataType, Result, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::build::{self, BinaryOp, PatternKind, UnaryOp};
use thalweg_expr::{EvalContext, Expr, Session};

fn session() -> Session {
    Session::default()
}
fn number(text: &str) -> Expr {
    match text.strip_prefix('-') {
        Some(rest) => build::unary(UnaryOp::Minus, number(rest)).expect(text),
        None => build::number_literal(text).expect(text),
    }
}
fn text(text: &str) -> Expr {
    build::string_literal(text)
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
fn try_cast(expr: Expr, to: DataType) -> Expr {
    build::cast(expr, to, true, &session()).expect("cast")
}
fn timestamp(text: &str) -> Expr {
    build::typed_literal("TIMESTAMP", text).expect(text)
}
fn date(text: &str) -> Expr {
    build::typed_literal("DATE", text).expect(text)
}
fn interval(text: &str, unit: &str) -> Expr {
    build::interval(text, unit, None).expect(text)
}
fn null_string() -> Expr {
    cast(build::null_literal(), DataType::STRING)
}
fn decimal(text: &str, precision: u8, scale: u8) -> Expr {
    cast(number(text), DataType::Decimal(precision, scale))
}

fn folder(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(case)
}

/// Column names and types of a case.
fn schema(case: &str) -> Vec<(String, String)> {
    let json = std::fs::read_to_string(folder(case).join("schema.json")).expect("schema.json");
    let columns: Vec<[String; 2]> = serde_json::from_str(&json).expect("pairs of text");
    columns.into_iter().map(|[name, column_type]| (name, column_type)).collect()
}

/// The rows of a case without their kind; these cases quote nothing.
fn expected(case: &str) -> Vec<Vec<String>> {
    let csv = std::fs::read_to_string(folder(case).join("expected.csv")).expect("expected.csv");
    csv.lines().skip(1).map(|line| line.split(',').skip(1).map(str::to_owned).collect()).collect()
}

fn evaluate(expr: &Expr, batch: &RecordBatch) -> Result<ArrayRef> {
    let none = WatermarkBefore::All(Watermark::MIN);
    expr.evaluate(&EvalContext { batch, watermark_before: &none, wall_ms: 0 })
}

fn shown(array: &ArrayRef, row: usize, data_type: &DataType) -> String {
    if array.is_null(row) {
        return "\\N".to_owned();
    }
    let mut out = String::new();
    append_value(&mut out, array.as_ref(), row, data_type, chrono_tz::Tz::UTC);
    out
}

/// LPAD and FROM_BASE64: NOT NULL in Flink though they can be NULL, so that `IS NULL` is FALSE.
const NULLABLE_HERE: [(&str, &str); 2] = [("string_fns", "q"), ("string_fns", "ah")];

fn check(case: &str, batch: &RecordBatch, columns: Vec<(&str, Expr)>) {
    let (schema, rows) = (schema(case), expected(case));
    assert_eq!(schema.len(), columns.len(), "{case}: columns");
    for (index, (name, expr)) in columns.iter().enumerate() {
        assert_eq!(schema[index].0, *name, "{case}");
        // The gateway leaves the length of ENCODE's result out.
        let mut wanted = schema[index].1.replace("VARBINARY NOT NULL", "BYTES NOT NULL");
        if NULLABLE_HERE.contains(&(case, name)) {
            wanted = wanted.replace(" NOT NULL", "");
        }
        assert_eq!(expr.column_type.to_string(), wanted, "{case}.{name}: type of {expr}");
        let array = evaluate(expr, batch).unwrap_or_else(|error| panic!("{case}.{name}: {error}"));
        assert_eq!(array.len(), rows.len(), "{case}.{name}");
        for (row, values) in rows.iter().enumerate() {
            let got = shown(&array, row, &expr.column_type.data_type);
            assert_eq!(got, values[index], "{case}.{name}: row {row} of {expr}");
        }
    }
}

fn batch(columns: Vec<(&str, DataType, ArrayRef)>) -> RecordBatch {
    let (names, arrays): (Vec<Column>, Vec<ArrayRef>) =
        columns.into_iter().map(|(n, t, array)| (Column::new(n, t.nullable()), array)).unzip();
    RecordBatch::try_new(TableSchema::new(names).arrow(), arrays).expect("a batch")
}

/// One row with `id` 7, as in the cases of one number.
fn seven() -> RecordBatch {
    batch(vec![("id", DataType::Int, Arc::new(Int32Array::from(vec![7])))])
}
fn id() -> Expr {
    Expr::column(0, DataType::Int.nullable())
}

#[test]
fn arith_int() {
    use BinaryOp::*;
    let minus_id = || build::unary(UnaryOp::Minus, id()).expect("a number");
    let columns = vec![
        ("a", binary(Divide, id(), number("2"))),
        ("b", binary(Divide, minus_id(), number("2"))),
        ("c", binary(Modulo, minus_id(), number("3"))),
        ("d", call("MOD", vec![minus_id(), number("3")])),
        ("e", binary(Divide, id(), number("2.0"))),
        ("f", binary(Multiply, id(), number("1.5"))),
        ("ovf", binary(Add, number("2147483647"), id())),
        ("g", binary(Multiply, cast(id(), DataType::BigInt), number("2147483647"))),
        (
            "h",
            binary(
                Divide,
                cast(number("5"), DataType::SmallInt),
                cast(number("2"), DataType::SmallInt),
            ),
        ),
        ("i", binary(Divide, cast(id(), DataType::Double), number("0"))),
        ("p", call("POWER", vec![id(), number("2")])),
        ("ab", call("ABS", vec![minus_id()])),
        ("ce", call("CEIL", vec![number("2.1")])),
        ("fl", call("FLOOR", vec![number("-2.1")])),
        ("r1", call("ROUND", vec![number("2.5")])),
        ("r2", call("ROUND", vec![number("-2.5")])),
        ("r3", call("ROUND", vec![number("2.345"), number("2")])),
        ("tr", call("TRUNCATE", vec![number("2.349"), number("2")])),
        ("sg", call("SIGN", vec![number("-3")])),
    ];
    check("arith_int", &seven(), columns);
}

#[test]
fn arith_decimal() {
    use BinaryOp::*;
    let columns = vec![
        ("a", binary(Divide, decimal("10", 10, 2), number("3"))),
        ("b", binary(Multiply, decimal("1", 10, 2), decimal("1", 10, 4))),
        ("c", binary(Add, decimal("1", 10, 2), decimal("1", 12, 4))),
        ("d", binary(Divide, decimal("1", 38, 10), decimal("3", 38, 10))),
        ("e", decimal("1.005", 10, 2)),
        ("f", decimal("-1.005", 10, 2)),
        ("h", binary(Add, decimal("1", 10, 2), number("1"))),
        ("i", binary(Add, decimal("1", 10, 2), number("1e0"))),
        ("j", binary(Modulo, decimal("7.5", 10, 2), number("2"))),
        ("k", cast(number("2.5"), DataType::Int)),
        ("l", cast(number("-2.9"), DataType::Int)),
        ("m", cast(number("2.999e0"), DataType::BigInt)),
    ];
    check("arith_decimal", &seven(), columns);
}

#[test]
fn string_fns() {
    let like = |s, pattern, kind| {
        build::like(text(s), text(pattern), None, kind, false, &session()).expect("a pattern")
    };
    let substring = |s, from: &str| call("SUBSTRING", vec![text(s), number(from), number("2")]);
    let joined = binary(BinaryOp::Concat, text("a"), null_string());
    let columns = vec![
        ("a", call("UPPER", vec![text("aé")])),
        ("b", call("LOWER", vec![text("ÀB")])),
        ("c", call("CHAR_LENGTH", vec![text("aé😀")])),
        ("d", call("SUBSTRING", vec![text("hello"), number("2"), number("3")])),
        ("e", substring("hello", "0")),
        ("f", substring("hello", "-3")),
        ("g", call("SUBSTRING", vec![text("hello"), number("10")])),
        ("h", call("TRIM", vec![text("  x ")])),
        ("i", call("TRIM", vec![text("BOTH"), text("x"), text("xxaxx")])),
        ("j", call("LTRIM", vec![text("  x")])),
        ("k", call("REPLACE", vec![text("aaa"), text("a"), text("bb")])),
        ("l", call("POSITION", vec![text("l"), text("hello")])),
        ("m", call("INSTR", vec![text("hello"), text("z")])),
        ("n", call("CONCAT", vec![text("a"), null_string(), text("b")])),
        ("o", binary(BinaryOp::Concat, joined, text("b"))),
        ("p", call("CONCAT_WS", vec![text("-"), text("a"), null_string(), text("b")])),
        ("q", call("LPAD", vec![text("7"), number("3"), text("0")])),
        ("r", call("REGEXP_EXTRACT", vec![text("a12b"), text("(\\d+)"), number("1")])),
        ("s", call("REGEXP_REPLACE", vec![text("a12b"), text("\\d"), text("#")])),
        ("u", call("SPLIT_INDEX", vec![text("a,b,c"), text(","), number("1")])),
        ("v", call("REVERSE", vec![text("abc")])),
        ("w", like("abc", "a_c", PatternKind::Like)),
        ("x", like("a", "[a-c]", PatternKind::SimilarTo)),
        ("y", call("LEFT", vec![text("abc"), number("2")])),
        ("z", call("RIGHT", vec![text("abc"), number("2")])),
        ("aa", call("INITCAP", vec![text("foo bar")])),
        ("ab", call("ASCII", vec![text("A")])),
        ("ac", call("MD5", vec![text("a")])),
        ("ad", call("SHA256", vec![text("a")])),
        ("ae", call("REPEAT", vec![text("ab"), number("2")])),
        ("af", call("OVERLAY", vec![text("abcdef"), text("ZZ"), number("2"), number("3")])),
        ("ag", call("ENCODE", vec![text("a"), text("UTF-8")])),
        ("ah", call("FROM_BASE64", vec![text("aGk=")])),
        ("ai", call("JSON_VALUE", vec![text("{\"a\":{\"b\":5}}"), text("$.a.b")])),
        ("aj", binary(BinaryOp::Equal, text("Ab"), text("ab"))),
        ("ak", binary(BinaryOp::Equal, text("a"), text("a "))),
    ];
    check("string_fns", &seven(), columns);
}

#[test]
fn ts_arith() {
    use BinaryOp::*;
    let diff = |unit: &str, a: Expr, b: Expr| call("TIMESTAMPDIFF", vec![text(unit), a, b]);
    let afternoon = "2026-01-04 13:14:15.678";
    let columns = vec![
        ("a", binary(Add, timestamp("2026-01-31 10:00:00"), interval("1", "MONTH"))),
        ("b", binary(Subtract, timestamp("2026-01-01 00:00:00"), interval("1", "DAY"))),
        ("c", binary(Add, timestamp("2026-01-01 00:00:00.123"), interval("1.5", "SECOND"))),
        (
            "d",
            diff(
                "SECOND",
                timestamp("2026-01-01 00:00:00.900"),
                timestamp("2026-01-01 00:00:02.100"),
            ),
        ),
        ("e", diff("DAY", timestamp("2026-01-01 12:00:00"), timestamp("2026-01-03 11:00:00"))),
        ("f", diff("MONTH", date("2026-01-31"), date("2026-02-28"))),
        (
            "g",
            call("TIMESTAMPADD", vec![text("HOUR"), number("3"), timestamp("2026-01-01 22:00:00")]),
        ),
        ("h", call("EXTRACT", vec![text("DOW"), date("2026-01-04")])),
        ("i", call("EXTRACT", vec![text("HOUR"), timestamp("2026-01-04 13:14:15")])),
        ("j", call("DAYOFWEEK", vec![date("2026-01-04")])),
        ("k", call("WEEK", vec![date("2026-01-01")])),
        ("l", call("FLOOR", vec![timestamp(afternoon), text("MINUTE")])),
        ("m", call("CEIL", vec![timestamp(afternoon), text("HOUR")])),
        ("n", call("FLOOR", vec![timestamp("2026-01-04 13:14:15"), text("WEEK")])),
        ("o", call("DATE_FORMAT", vec![timestamp(afternoon), text("yyyy-MM-dd HH:mm")])),
        ("p", call("TO_TIMESTAMP", vec![text("2026-01-04 13:14:15")])),
        ("q", call("TO_TIMESTAMP", vec![text("04/01/2026"), text("dd/MM/yyyy")])),
        ("r", call("TO_TIMESTAMP", vec![text("garbage")])),
        ("s", call("TO_DATE", vec![text("2026-01-04")])),
        ("u", call("UNIX_TIMESTAMP", vec![text("1970-01-01 00:00:10")])),
        ("v", call("FROM_UNIXTIME", vec![number("10")])),
        ("w", call("TO_TIMESTAMP_LTZ", vec![number("10"), number("0")])),
        ("x", binary(Subtract, date("2026-03-01"), interval("1", "DAY"))),
        (
            "y",
            binary(Greater, timestamp("2026-01-02 00:00:00"), timestamp("2026-01-01 23:59:59.999")),
        ),
        ("z", call("QUARTER", vec![date("2026-05-01")])),
    ];
    check("ts_arith", &seven(), columns);
}

#[test]
fn cast_ok() {
    let sum = binary(BinaryOp::Add, number("0.1e0"), number("0.2e0"));
    let columns = vec![
        ("a", cast(text("12"), DataType::Int)),
        ("b", cast(text(" 12 "), DataType::Int)),
        ("c", try_cast(text("x"), DataType::Int)),
        ("d", try_cast(text("1.9"), DataType::Int)),
        ("e", cast(id(), DataType::STRING)),
        ("f", cast(build::boolean_literal(true), DataType::STRING)),
        ("g", cast(text("true"), DataType::Boolean)),
        ("h", cast(text("abc"), DataType::Char(2))),
        ("i", cast(text("abc"), DataType::Varchar(2))),
        ("j", cast(number("1.10"), DataType::STRING)),
        ("k", cast(number("1e7"), DataType::STRING)),
        ("l", cast(number("1e0"), DataType::STRING)),
        ("m", cast(sum, DataType::STRING)),
        ("n", cast(number("1234567890123"), DataType::Int)),
        ("o", cast(number("300"), DataType::TinyInt)),
        ("p", try_cast(text("2026-02-30"), DataType::Date)),
        ("q", cast(text("2026-01-02 03:04:05.6789"), DataType::Timestamp(3))),
        ("r", cast(timestamp("2026-01-02 03:04:05.678"), DataType::STRING)),
        ("s", cast(timestamp("2026-01-02 03:04:05.000"), DataType::STRING)),
        ("u", cast(timestamp("2026-01-02 03:04:05.678"), DataType::Date)),
    ];
    check("cast_ok", &seven(), columns);
}

#[test]
fn nan_inf_double() {
    let values = vec![1.0, 0.0, -0.0, f64::NAN];
    let rows = batch(vec![("d", DataType::Double, Arc::new(Float64Array::from(values)))]);
    let d = || Expr::column(0, DataType::Double.nullable());
    let columns = vec![
        ("d", d()),
        ("q", binary(BinaryOp::Divide, d(), number("0"))),
        ("z", binary(BinaryOp::Equal, d(), number("0"))),
        ("g", binary(BinaryOp::Greater, d(), number("0"))),
        ("s", cast(d(), DataType::STRING)),
    ];
    check("nan_inf_double", &rows, columns);
}

#[test]
fn three_valued_logic() {
    use BinaryOp::*;
    let items = vec![Some("A"), None, Some("A"), None, Some("B")];
    let quantities = vec![Some(1), Some(2), None, Some(3), None];
    let rows = batch(vec![
        ("item", DataType::STRING, Arc::new(StringViewArray::from(items))),
        ("qty", DataType::Int, Arc::new(Int32Array::from(quantities))),
    ]);
    let item = || Expr::column(0, DataType::STRING.nullable());
    let qty = || Expr::column(1, DataType::Int.nullable());
    let many = || binary(Greater, qty(), number("1"));
    let is_a = || binary(Equal, item(), text("A"));
    let in_list = |list, negated| build::in_list(item(), list, negated, &session()).expect("IN");
    let columns = vec![
        ("item", item()),
        ("qty", qty()),
        ("gt", many()),
        ("ngt", build::unary(UnaryOp::Not, many()).expect("NOT")),
        ("o", binary(Or, many(), is_a())),
        ("a", binary(And, many(), is_a())),
        ("i", in_list(vec![text("A"), build::null_literal()], false)),
        ("ni", in_list(vec![text("A")], true)),
        ("e", binary(Equal, qty(), build::null_literal())),
        ("idf", build::is_distinct_from(item(), text("A"), false, &session()).expect("comparable")),
    ];
    check("three_valued_logic", &rows, columns);
}

#[test]
fn text_and_numbers_do_not_mix() {
    let plus = build::binary(BinaryOp::Add, text("5"), number("1"), &session());
    let error = plus.expect_err("implicit_coercion");
    assert!(error.is_plan_error() && error.message().contains("CHAR(1)"), "{error}");
    let equal = build::binary(BinaryOp::Equal, id(), text("x"), &session());
    let error = equal.expect_err("implicit_coercion_bad");
    assert!(error.is_plan_error() && error.message().contains("INT"), "{error}");
}

#[test]
fn failures_come_with_the_data() {
    use BinaryOp::*;
    let zero = binary(Subtract, id(), number("7"));
    let cases = [
        binary(Divide, id(), zero),
        binary(Divide, number("1"), number("0")),
        cast(text("x"), DataType::Int),
    ];
    for expr in cases {
        let error = evaluate(&expr, &seven()).expect_err("a failure");
        assert_eq!(error.kind(), thalweg_core::ErrorKind::Data, "{expr}: {error}");
        // Without rows nothing runs.
        assert_eq!(evaluate(&expr, &seven().slice(0, 0)).expect("no rows").len(), 0);
    }
}
