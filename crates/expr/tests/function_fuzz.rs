//! Calls every function and operator with arguments of every type: nulls, the ends of each range
//! and texts that break parsers.
//!
//! Nothing may panic and nothing may be an internal error, at planning (where literals are
//! computed) or over columns. A call says the same whichever of its arguments are literals and
//! which are columns, and whatever stands in the rows next to it.
//!
//! `THALWEG_FUNCTION_CALLS=1000000` makes a million random calls; `THALWEG_FUNCTION_SEED` begins
//! elsewhere.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, ListArray, MapArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType as ArrowType;
use arrow_select::concat::concat;
use thalweg_core::shim::SplitMix64;
use thalweg_core::text::TextColumn;
use thalweg_core::types::Column;
use thalweg_core::{DataType, ErrorKind, Result, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::build::{self, BinaryOp, UnaryOp};
use thalweg_expr::{EvalContext, Expr, Scalar, Session};

/// An argument: a constant where there is one, and a column of one row.
#[derive(Clone)]
struct Sample {
    constant: Option<Expr>,
    data_type: DataType,
    array: ArrayRef,
}

impl Sample {
    fn of(constant: Expr) -> Sample {
        let array = evaluate(&constant, &[], 1).expect("a constant has a value");
        Sample {
            data_type: constant.column_type.data_type.clone(),
            array,
            constant: Some(constant),
        }
    }
    fn literal(value: Scalar, data_type: &DataType) -> Sample {
        Sample::of(Expr::literal(value, data_type.clone().not_null()))
    }
}

fn evaluate(expr: &Expr, columns: &[(DataType, ArrayRef)], rows: usize) -> Result<ArrayRef> {
    let fields = columns.iter().map(|(t, _)| Column::new("c", t.clone().nullable())).collect();
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = TableSchema::new(fields).arrow();
    let batch = RecordBatch::try_new_with_options(schema, arrays, &options).expect("a batch");
    let none = WatermarkBefore::All(Watermark::MIN);
    expr.evaluate(&EvalContext { batch: &batch, watermark_before: &none, wall_ms: 1_000 })
}

fn scalars(data_type: &DataType) -> Vec<Scalar> {
    let integers = |values: &[i64]| values.iter().map(|v| Scalar::Integer(*v)).collect();
    let ends = |low: i64, high: i64| integers(&[low, low + 1, -1, 0, 1, 2, 7, 31, high]);
    match data_type {
        DataType::Boolean => vec![Scalar::Boolean(true), Scalar::Boolean(false)],
        DataType::TinyInt => ends(i8::MIN.into(), i8::MAX.into()),
        DataType::SmallInt => ends(i16::MIN.into(), i16::MAX.into()),
        DataType::Int => {
            ends(i32::MIN.into(), i32::MAX.into()).into_iter().chain(integers(&[256])).collect()
        }
        DataType::IntervalYearMonth => ends(i32::MIN.into(), i32::MAX.into()),
        DataType::BigInt | DataType::IntervalDayTime => ends(i64::MIN, i64::MAX),
        DataType::Float | DataType::Double => {
            let values = [
                0.0,
                -0.0,
                1.5,
                -2.5,
                0.1,
                1e19,
                -1e300,
                f64::MAX,
                f64::MIN_POSITIVE / 4.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                253_402_300_799_999.0,
            ];
            let narrow = *data_type == DataType::Float;
            let fit = |v: f64| Scalar::Double(if narrow { f64::from(v as f32) } else { v });
            values.into_iter().map(fit).collect()
        }
        DataType::Decimal(precision, _) => {
            let most = 10i128.pow(u32::from(*precision)) - 1;
            [most, -most, 0, 1, -1, most / 2, 5].map(Scalar::Decimal).into()
        }
        // Whatever a Parquet file may hold.
        DataType::Date => ends(i32::MIN.into(), i32::MAX.into())
            .into_iter()
            .chain(integers_of(&[-719_162, -719_163, 2_932_896, 19_782, -719_893]))
            .collect(),
        DataType::Time(_) => integers(&[0, 1, 999, 43_200_000, 86_399_999]),
        DataType::Timestamp(precision) | DataType::TimestampLtz(precision) => {
            integers_of(&readings(*precision)).into_iter().chain(ends(i64::MIN, i64::MAX)).collect()
        }
        DataType::Binary(length) => {
            vec![Scalar::Binary(vec![0xc3; *length as usize].into())]
        }
        DataType::Varbinary(_) => [&b""[..], b"ab", &[0, 0xff, 0xc3, 0x28], &[b'x'; 5_000]]
            .map(|bytes| Scalar::Binary(bytes.into()))
            .into(),
        _ => texts().into_iter().map(|text| Scalar::String(text.into())).collect(),
    }
}

/// Years 1 and 9999, both sides of 1970, in and around hours that New York skips or repeats, in the
/// unit of a precision.
fn readings(precision: u8) -> Vec<i64> {
    let per_ms = match precision {
        0..=3 => 1,
        4..=6 => 1_000,
        _ => 1_000_000,
    };
    let readings: [i64; 10] = [
        -62_135_596_800_000,
        -62_135_596_800_001,
        253_402_300_799_999,
        1_710_055_800_000,
        1_730_597_400_000,
        1_730_615_400_000,
        1_709_201_472_345,
        -86_400_001,
        // Where the calendar of time zones ends.
        8_210_266_876_799_999,
        -8_334_601_228_800_000,
    ];
    readings.into_iter().map(|ms| ms.saturating_mul(per_ms)).collect()
}

fn integers_of(values: &[i64]) -> Vec<Scalar> {
    values.iter().map(|v| Scalar::Integer(*v)).collect()
}

/// Texts that mean something to some function, and texts that mean nothing to any.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    texts.extend(["x".repeat(70_000), "äß".repeat(3_000), "[".repeat(2_000), "(".repeat(300)]);
    texts.extend(["1".repeat(400), "(a{1000}){1000}".to_owned(), "\u{1F600}\u{301}é".repeat(40)]);
    texts
}

const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "abc",
    "äöü ß",
    "\u{1F600}",
    "日本",
    "\0\u{1}\n\r\t\u{7f}",
    "İıſK",
    "-",
    "+",
    ".",
    "..",
    "%",
    "_",
    "%a_%",
    "\\",
    "\\d",
    "$1",
    "$9",
    "$",
    "[a",
    "a|b",
    "(a)|(b)",
    "(?i)a",
    "[^",
    "1",
    "-1",
    " 12 ",
    "1e999",
    "1e-999",
    "1e2147483647",
    "-0",
    ".5",
    "0x1F",
    "NaN",
    "-Infinity",
    "9223372036854775808",
    "99999999999999999999999999999999999999999",
    "true",
    " false ",
    "2024-02-29",
    "2024-02-30 24:00:00",
    "0000-00-00",
    "-0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999999",
    "99999-12-31 23:59:59",
    "999999999-12-31 00:00:00",
    "2024-03-10 02:30:00",
    "2024-11-03 01:30:00",
    "é026-01-01 00:00:0",
    "2024-02-29T10:11:12Z",
    "10:11:12.123456789123",
    "+é1:00",
    "+99:99",
    "UTC",
    "America/New_York",
    "GMT+08:00",
    "+99:00",
    "Nowhere/Land",
    "DAY",
    "MONTH",
    "YEAR",
    "WEEK",
    "MILLISECOND",
    "MICROSECOND",
    "EPOCH",
    "CENTURY",
    "MILLENNIUM",
    "QUARTER",
    "BOTH",
    "LEADING",
    "TRAILING",
    "UTF-8",
    "UTF-16",
    "US-ASCII",
    "yyyy-MM-dd HH:mm:ss.SSS",
    "yyyyyyyyyyyyyyyyyyyyyyyyyy",
    "SSSSSSSSSSSSSSSSSSSSSSSS",
    "nnnnnnnnnnnnnnnnnnnnnnnnn",
    "D E a h K k w Q e X VV [[",
    "MMM MMMM MMMMM MMMMMM EEEEEEE",
    "yy d'q",
    "]] [' ]",
    "x Z XXX",
    "{\"a\":{\"b\":[1,2,{\"c\":null}]}}",
    "{\"a\":1e400,\"a\":2}",
    "[1,2",
    "null",
    "\"\\ud800\"",
    "$.a",
    "$.a.b[1]",
    "$.*",
    "$['a']['b'][*]",
    "lax $.a",
    "$[99999999999999999999]",
    "$['",
    "$[ü]",
    "http://u@h:1/p?q=1&é=2#r",
    "://@:?#",
    "HOST",
    "QUERY",
    "FILE",
    "REF",
    "aGVsbG8=",
    "aGVsbG8",
    "====",
    "f0",
    "EXPR$0",
    "EXPR$1",
];

fn types() -> Vec<DataType> {
    use DataType as T;
    vec![
        T::Boolean,
        T::TinyInt,
        T::SmallInt,
        T::Int,
        T::BigInt,
        T::Float,
        T::Double,
        T::Decimal(10, 2),
        T::Decimal(38, 0),
        T::Decimal(38, 38),
        T::Decimal(38, 18),
        T::Decimal(1, 0),
        T::STRING,
        T::Varchar(3),
        T::Binary(3),
        T::BYTES,
        T::Date,
        T::Time(0),
        T::Time(3),
        T::Timestamp(0),
        T::Timestamp(3),
        T::Timestamp(6),
        T::Timestamp(9),
        T::TimestampLtz(3),
        T::TimestampLtz(9),
        T::IntervalYearMonth,
        T::IntervalDayTime,
    ]
}

/// The arguments by their type.
fn catalogue() -> Vec<Vec<Sample>> {
    let session = Session::default();
    let call = |name: &str, args: &[&Sample]| {
        let args = args.iter().filter_map(|sample| sample.constant.clone()).collect();
        build::call(name, args, &session).ok().map(Sample::of)
    };
    let mut all = Vec::new();
    for data_type in types() {
        let fits = |scalar: &Scalar| match (scalar, &data_type) {
            (Scalar::String(text), DataType::Varchar(length)) => {
                text.chars().count() <= *length as usize
            }
            _ => true,
        };
        let scalars = scalars(&data_type).into_iter().filter(fits);
        let mut samples: Vec<Sample> =
            scalars.map(|scalar| Sample::literal(scalar, &data_type)).collect();
        samples.push(Sample::of(Expr::null(data_type)));
        all.push(samples);
    }
    // Literals have CHAR types, which are all different.
    all.push(texts().iter().map(|text| Sample::of(build::string_literal(text))).collect());
    all.push(vec![Sample::of(build::null_literal())]);
    let (n, s, r) = (all[3].clone(), all[12].clone(), all[6].clone());
    let null = |samples: &[Sample]| samples[samples.len() - 1].clone();
    let arrays = [
        call("ARRAY", &[&n[0], &null(&n), &n[8]]),
        call("ARRAY", &[&n[3]]),
        call("ARRAY", &[&null(&n)]),
    ];
    all.push(with_empty(arrays));
    all.push(with_empty([call("ARRAY", &[&s[3], &null(&s), &s[7]]), call("ARRAY", &[&s[0]])]));
    all.push(with_empty([call("ARRAY", &[&r[9], &r[0], &r[1]])]));
    all.push(with_empty([call("MAP", &[&s[2], &n[0], &s[0], &null(&n)])]));
    all.push(with_empty([call("MAP", &[&n[3], &s[2], &n[4], &s[5]])]));
    let rows = [call("ROW", &[&n[0], &s[4]]), call("ROW", &[&null(&n), &null(&s)])];
    let rows: Vec<Sample> = rows.into_iter().flatten().collect();
    let nested = call("ARRAY", &[&rows[0], &rows[1]]);
    all.push(rows);
    all.push(with_empty([nested]));
    all
}

/// These, one that is empty and one that is NULL, of the type of the first. Those two have no
/// literals.
fn with_empty<const N: usize>(samples: [Option<Sample>; N]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = samples.into_iter().flatten().collect();
    let first = samples[0].clone();
    samples.retain(|sample| sample.data_type == first.data_type);
    let column = |array: ArrayRef| Sample { constant: None, array, ..first.clone() };
    samples.push(column(new_null_array(&first.data_type.arrow(), 1)));
    samples.push(column(emptied(&first.array)));
    samples
}

/// The same list or map, without what was in it.
fn emptied(array: &ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([0]);
    match (array.as_list_opt::<i32>(), array.data_type()) {
        (Some(list), ArrowType::List(field)) => {
            Arc::new(ListArray::new(field.clone(), offsets, list.values().slice(0, 0), None))
        }
        (None, ArrowType::Map(field, sorted)) => {
            let entries = array.as_map().entries().slice(0, 0);
            Arc::new(MapArray::new(field.clone(), offsets, entries, None, *sorted))
        }
        _ => array.clone(),
    }
}

/// What is called.
#[derive(Clone, Debug)]
enum Callee {
    Function(&'static str),
    Binary(BinaryOp),
    Unary(UnaryOp),
    Cast(DataType, bool),
    IsNull,
    IsDistinct,
    Between,
    In,
    Case,
}

impl Callee {
    fn all() -> Vec<Callee> {
        use BinaryOp as B;
        use UnaryOp as U;
        const HIDDEN: &[&str] =
            &["LIKE", "SIMILAR TO", "ARRAY_AT", "ROW_FIELD", "IS JSON", "ARRAY", "MAP"];
        let binary = [B::Add, B::Subtract, B::Multiply, B::Divide, B::Modulo, B::Concat, B::And];
        let compare = [B::Or, B::Equal, B::NotEqual, B::Less, B::LessOrEqual, B::Greater];
        let unary = [U::Not, U::Minus, U::Plus, U::IsTrue, U::IsNotTrue, U::IsFalse, U::IsUnknown];
        // The type of a literal is another than that of a column, and TYPEOF says so.
        let names = build::function_names().into_iter().filter(|name| *name != "TYPEOF");
        let names = names.chain(HIDDEN.iter().copied());
        let mut all: Vec<Callee> = names.map(Callee::Function).collect();
        all.extend(binary.into_iter().chain(compare).map(Callee::Binary));
        all.extend(unary.map(Callee::Unary));
        all.extend([Callee::IsNull, Callee::IsDistinct, Callee::Between, Callee::In, Callee::Case]);
        for data_type in types() {
            all.push(Callee::Cast(data_type.clone(), false));
            all.push(Callee::Cast(data_type, true));
        }
        all.push(Callee::Cast(DataType::Char(5), false));
        all.push(Callee::Cast(DataType::Varbinary(2), true));
        all
    }
    fn arities(&self) -> std::ops::RangeInclusive<usize> {
        match self {
            Callee::Function(_) => 0..=4,
            Callee::Binary(_) | Callee::IsDistinct => 2..=2,
            Callee::Unary(_) | Callee::Cast(..) | Callee::IsNull => 1..=1,
            Callee::Between | Callee::Case => 3..=3,
            Callee::In => 5..=5,
        }
    }
    fn build(&self, mut args: Vec<Expr>, session: &Session) -> Result<Expr> {
        let mut next = || args.remove(0);
        match self {
            Callee::Function(name) => build::call(name, args, session),
            Callee::Binary(op) => build::binary(*op, next(), next(), session),
            Callee::Unary(op) => build::unary(*op, next()),
            Callee::Cast(to, safe) => build::cast(next(), to.clone(), *safe, session),
            Callee::IsNull => Ok(build::is_null(next(), false)),
            Callee::IsDistinct => build::is_distinct_from(next(), next(), false, session),
            Callee::Between => build::between(next(), next(), next(), true, session),
            Callee::In => {
                let value = next();
                build::in_list(value, args, false, session)
            }
            Callee::Case => build::case(vec![(next(), next())], Some(next())),
        }
    }
}

/// What a call comes to.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused,
    Failed,
    Value(String),
}

/// A call with certain arguments.
struct Call<'a> {
    callee: &'a Callee,
    args: Vec<Sample>,
    /// What stands two rows below, where it has the same type.
    below: Vec<Sample>,
    session: Session,
}

impl Call<'_> {
    fn shown(&self) -> String {
        let cut = |text: String| text.chars().take(60).collect::<String>();
        let args: Vec<String> = self
            .args
            .iter()
            .map(|a| format!("{} {}", a.data_type, cut(text_of(&a.array, &a.data_type, 0))))
            .collect();
        format!("{:?}({}) in {}", self.callee, args.join(", "), self.session.zone)
    }

    /// Plans it with those arguments as literals whose bit is set, the others as columns.
    fn plan(&self, literals: usize) -> Result<Expr> {
        let arg = |(index, sample): (usize, &Sample)| match &sample.constant {
            Some(constant) if literals >> index & 1 == 1 => constant.clone(),
            _ => Expr::column(index, sample.data_type.clone().nullable()),
        };
        self.callee.build(self.args.iter().enumerate().map(arg).collect(), &self.session)
    }

    /// A call of values that are not NULL, by columns that say so: its type says truly whether the
    /// result can be NULL. (`IS NULL` of what cannot be is FALSE without a look at the value.)
    fn check_nullability(&self) -> Result<(), String> {
        let column = |(index, sample): (usize, &Sample)| {
            let is_null = sample.data_type == DataType::Null || sample.array.is_null(0);
            Expr::column(index, sample.data_type.clone().nullable().with_nullable(is_null))
        };
        let args = self.args.iter().enumerate().map(column).collect();
        let Ok(expr) = self.callee.build(args, &self.session) else { return Ok(()) };
        match evaluate(&expr, &self.columns(false), 1) {
            Ok(array) if array.is_null(0) && !expr.column_type.can_be_null() => {
                Err(format!("NULL, where the type is {} NOT NULL", expr.column_type.data_type))
            }
            _ => Ok(()),
        }
    }

    fn columns(&self, with_rows_below: bool) -> Vec<(DataType, ArrayRef)> {
        let column = |(above, below): (&Sample, &Sample)| {
            let null = new_null_array(above.array.data_type(), 1);
            let last = if above.data_type == below.data_type { below } else { above };
            let rows: [&dyn Array; 3] = [&above.array, &null, &last.array];
            let array = match with_rows_below {
                true => concat(&rows).expect("arrays of one type"),
                false => above.array.clone(),
            };
            (above.data_type.clone(), array)
        };
        self.args.iter().zip(&self.below).map(column).collect()
    }

    /// The outcome in the first of `rows` rows.
    fn outcome(&self, expr: &Expr, rows: usize) -> Result<Outcome, String> {
        match evaluate(expr, &self.columns(rows > 1), rows) {
            Ok(array) if array.len() != rows => Err(format!("{} values", array.len())),
            Ok(array) => {
                let data_type = &expr.column_type.data_type;
                if array.data_type() != &data_type.arrow() {
                    return Err(format!("{} is not the type {data_type}", array.data_type()));
                }
                (1..rows).for_each(|row| drop(text_of(&array, data_type, row)));
                Ok(Outcome::Value(text_of(&array, data_type, 0)))
            }
            Err(error) if error.kind() == ErrorKind::Internal => Err(error.to_string()),
            Err(_) => Ok(Outcome::Failed),
        }
    }

    /// Makes the call in every form. An error says what is wrong; else whether any form was
    /// planned.
    fn check(&self) -> Result<bool, String> {
        let mut known: BTreeMap<String, Outcome> = BTreeMap::new();
        let forms = 1usize << self.args.len();
        for literals in 0..forms {
            let expr = match self.plan(literals) {
                Ok(expr) => expr,
                Err(error) if error.kind() == ErrorKind::Internal => return Err(error.to_string()),
                Err(_) => continue,
            };
            let alone = self.outcome(&expr, 1)?;
            let among_others = self.outcome(&expr, 3)?;
            if !expr.is_deterministic() {
                known.insert(String::new(), Outcome::Refused);
                continue;
            }
            if among_others != alone && among_others != Outcome::Failed {
                return Err(format!("{alone:?}, among other rows {among_others:?} ({expr})"));
            }
            let of_type = expr.column_type.data_type.to_string();
            match known.get(&of_type) {
                None => drop(known.insert(of_type, alone)),
                Some(before) if *before == alone => {}
                Some(before) => {
                    return Err(format!("{before:?}, but {alone:?} with literals {literals:b}"));
                }
            }
        }
        self.check_nullability()?;
        Ok(!known.is_empty())
    }
}

fn text_of(array: &ArrayRef, data_type: &DataType, row: usize) -> String {
    let column = TextColumn::new(array.as_ref(), data_type, chrono_tz::Tz::America__New_York);
    let mut text = String::new();
    match column.is_null(row) {
        true => text.push_str("NULL"),
        false => column.append(&mut text, row),
    }
    text
}

fn sessions() -> [Session; 2] {
    let zone = chrono_tz::Tz::America__New_York;
    [Session::default(), Session { zone, ..Session::default() }]
}

/// What was found, by the message so that a mistake that many calls make is shown once or twice.
#[derive(Default)]
struct Findings {
    calls: usize,
    planned: BTreeMap<String, usize>,
    wrong: BTreeMap<String, Vec<String>>,
}

impl Findings {
    fn make(&mut self, call: &Call<'_>) {
        self.calls += 1;
        let result = catch_unwind(AssertUnwindSafe(|| call.check()));
        let message = match result {
            Ok(Ok(planned)) => {
                let name = format!("{:?}", call.callee);
                *self.planned.entry(name).or_default() += usize::from(planned);
                return;
            }
            Ok(Err(message)) => message,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| t.to_string()));
                format!("panicked: {}", text.unwrap_or_default())
            }
        };
        let found = self.wrong.entry(format!("{:?}", call.callee)).or_default();
        if found.len() < 3 {
            let shown: String = message.chars().take(300).collect();
            found.push(format!("{}: {shown}", call.shown()));
        }
    }
    fn assert_none(&self) {
        let lines: Vec<String> = self.wrong.values().flatten().cloned().collect();
        assert!(lines.is_empty(), "{} calls, these are wrong:\n{}", self.calls, lines.join("\n"));
    }
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Draws calls.
struct Draw {
    catalogue: Vec<Vec<Sample>>,
    sessions: [Session; 2],
    random: SplitMix64,
}

impl Draw {
    /// Most functions take these: BOOLEAN, INT, BIGINT, STRING, DATE, TIMESTAMP(3), and literal
    /// texts.
    const COMMON: [usize; 8] = [0, 3, 4, 12, 12, 16, 20, 27];
    /// The group of literal texts.
    const LITERAL_TEXTS: usize = 27;
    const ATTEMPTS: usize = 60;
    /// Texts that are few among all, for functions that take no others.
    const WORDS: [(&'static str, &'static [&'static str]); 7] = [
        ("DECODE", &["UTF-8", "UTF-16", "US-ASCII", "ISO-8859-1", "UTF-16LE"]),
        ("ENCODE", &["UTF-8", "UTF-16", "US-ASCII"]),
        ("JSON_ARRAY", &["NULL", "ABSENT"]),
        ("JSON_OBJECT", &["NULL", "ABSENT", "a"]),
        ("ROW_FIELD", &["EXPR$0", "EXPR$1"]),
        ("TIMESTAMPADD", &["DAY", "MONTH", "MILLISECOND", "MILLENNIUM", "SQL_TSI_YEAR"]),
        ("TIMESTAMPDIFF", &["SECOND", "WEEK", "MONTH", "CENTURY", "QUARTER"]),
    ];

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }
    fn group(&mut self) -> usize {
        match self.below(4) {
            0 => self.below(self.catalogue.len()),
            _ => Self::COMMON[self.below(Self::COMMON.len())],
        }
    }
    fn call<'a>(&mut self, callee: &'a Callee, groups: &[usize]) -> Call<'a> {
        let words = match callee {
            Callee::Function(name) => Self::WORDS.iter().find(|(of, _)| of == name),
            _ => None,
        };
        let mut pick = |group: &usize| {
            if let (Some((_, words)), Self::LITERAL_TEXTS) = (words, *group) {
                let word = words[self.random.below(words.len() as u64) as usize];
                return Sample::of(build::string_literal(word));
            }
            let at = self.random.below(self.catalogue[*group].len() as u64) as usize;
            self.catalogue[*group][at].clone()
        };
        let args = groups.iter().map(&mut pick).collect();
        let below = groups.iter().map(&mut pick).collect();
        let session = self.sessions[self.below(2)].clone();
        Call { callee, args, below, session }
    }
    /// A call of any arity, if one is found that is not refused.
    fn planned_call<'a>(&mut self, callee: &'a Callee) -> Option<Call<'a>> {
        let arities = callee.arities();
        for _ in 0..Self::ATTEMPTS {
            let arity = arities.start() + self.below(arities.end() - arities.start() + 1);
            let groups: Vec<usize> = (0..arity).map(|_| self.group()).collect();
            let call = self.call(callee, &groups);
            let is_planned = catch_unwind(AssertUnwindSafe(|| {
                call.plan(0).is_ok() || call.plan(usize::MAX).is_ok()
            }));
            if is_planned.unwrap_or(true) {
                return Some(call);
            }
        }
        None
    }
}

/// Each type and pair of types with each function, and random calls of up to five arguments.
#[test]
fn no_call_panics_and_literals_say_what_columns_say() {
    let random = SplitMix64::new(number_from("THALWEG_FUNCTION_SEED", 0));
    let mut draw = Draw { catalogue: catalogue(), sessions: sessions(), random };
    let callees = Callee::all();
    let mut findings = Findings::default();
    let groups = draw.catalogue.len();
    for callee in &callees {
        for arity in callee.arities().filter(|arity| *arity <= 2) {
            for pair in 0..groups.pow(arity as u32) {
                let call = draw.call(callee, &[pair % groups, pair / groups][..arity]);
                findings.make(&call);
            }
        }
    }
    for number in 0..number_from("THALWEG_FUNCTION_CALLS", 10_000) as usize {
        if let Some(call) = draw.planned_call(&callees[number % callees.len()]) {
            findings.make(&call);
        }
    }
    findings.assert_none();
    let never = findings.planned.iter().filter(|(_, count)| **count == 0);
    let never: Vec<&String> = never.map(|(name, _)| name).collect();
    assert!(never.is_empty(), "no arguments were found for {never:?}");
}
