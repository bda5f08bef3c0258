//! Values and types of expressions (observations 21 to 26).

use thalweg::session::Session;

use crate::Inputs;

/// Observation, expression, value.
const VALUES: [(usize, &str, &str); 34] = [
    (21, "7 / 2 + n - n", "3"),
    (21, "-7 / 2", "-3"),
    (21, "-7 % 3", "-1"),
    (21, "CAST(n AS DOUBLE) / 0", "Infinity"),
    (21, "CAST(n - 1 AS DOUBLE) / 0", "NaN"),
    (21, "2147483647 + n", "-2147483648"),
    (21, "CAST(4294967297 * n AS INT)", "1"),
    (21, "CAST(300 * n AS TINYINT)", "44"),
    (22, "CAST(10 AS DECIMAL(10, 2)) / 3", "3.3333333333333"),
    (22, "CAST(1 AS DECIMAL(38, 10)) / CAST(3 AS DECIMAL(38, 10))", "0.333333"),
    (22, "CAST(1.005 AS DECIMAL(10, 2))", "1.01"),
    (22, "CAST(2.5 AS DECIMAL(10, 0))", "3"),
    (22, "CAST(-2.5 AS DECIMAL(10, 0))", "-3"),
    (23, "LEAST(1, 2)", "1"),
    (23, "GREATEST(CAST(NULL AS INT), 2)", "\\N"),
    (24, "'a' || CAST(NULL AS STRING)", "\\N"),
    (24, "CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", "a-b"),
    (24, "TRY_CAST('1.9' AS INT)", "1"),
    (24, "CAST(' 12 ' AS INT)", "12"),
    (24, "CAST(1e7 AS STRING)", "1.0E7"),
    (24, "CAST(n = 1 AS STRING)", "TRUE"),
    (25, "TIMESTAMP '2026-01-31 00:00:00' + INTERVAL '1' MONTH", "2026-02-28 00:00:00"),
    (
        25,
        "TIMESTAMPDIFF(SECOND, TIMESTAMP '2026-01-01 00:00:00.900', TIMESTAMP '2026-01-01 00:00:02.100')",
        "1",
    ),
    (25, "TIMESTAMPDIFF(MONTH, DATE '2026-01-31', DATE '2026-02-28')", "1"),
    (25, "EXTRACT(DOW FROM DATE '2026-01-04')", "1"),
    (25, "FLOOR(TIMESTAMP '2026-01-07 13:14:15' TO WEEK)", "2026-01-04 00:00:00"),
    (25, "TO_TIMESTAMP('garbage')", "\\N"),
    (25, "FROM_UNIXTIME(10)", "1970-01-01 08:00:10"),
    (25, "UNIX_TIMESTAMP('1970-01-01 08:00:10')", "10"),
    (25, "CAST(TO_TIMESTAMP_LTZ(10, 0) AS TIMESTAMP(3))", "1970-01-01 08:00:10.000"),
    (26, "SUBSTRING('hello', 0, 2)", "he"),
    (26, "SUBSTRING('hello', -3, 2)", "ll"),
    (26, "'a' = 'a '", "FALSE"),
    (26, "INSTR('hello', 'z') * 10 + CHAR_LENGTH('😀')", "1"),
];

fn one_row() -> Inputs {
    let mut inputs = Inputs::new("values").table("t", "n INT", "1\n");
    inputs.declarations.push_str("SET 'table.local-time-zone' = 'Asia/Shanghai';\n");
    inputs
}

#[test]
fn values() {
    let inputs = one_row();
    let list: Vec<String> =
        VALUES.iter().enumerate().map(|(at, (_, text, _))| format!("{text} AS c{at}")).collect();
    let outcome = inputs.run(&format!("SELECT {} FROM t", list.join(", ")), "epoch", 1);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    let [(_, row)] = &outcome.sequence[..] else { panic!("one row") };
    for ((number, expression, want), got) in VALUES.iter().zip(row) {
        assert_eq!(got, want, "observation {number}: {expression}");
    }
    let error = inputs.error("SELECT n / (n - 1) FROM t");
    assert!(error.contains("division by zero"), "{error}");
}

#[test]
fn types_of_decimals() {
    let d = |precision: u8, scale: u8| format!("CAST(n AS DECIMAL({precision}, {scale}))");
    let cases = [
        (format!("{} / n", d(10, 2)), "DECIMAL(21, 13)"),
        (format!("{} * {}", d(10, 2), d(10, 4)), "DECIMAL(21, 6)"),
        (format!("{} + {}", d(10, 2), d(12, 4)), "DECIMAL(13, 4)"),
        (format!("{} / {}", d(38, 10), d(38, 10)), "DECIMAL(38, 6)"),
        (format!("SUM({})", d(10, 2)), "DECIMAL(38, 2)"),
        (format!("AVG({})", d(10, 2)), "DECIMAL(38, 6)"),
        ("SUM(n)".to_owned(), "INT"),
        ("SUM(CAST(n AS TINYINT))".to_owned(), "TINYINT"),
        ("STDDEV_POP(n)".to_owned(), "INT"),
    ];
    let mut session = Session::default();
    session.execute("CREATE TABLE t (n INT) WITH ('connector' = 'datagen')").expect("it declares");
    for (expression, want) in cases {
        let schema = session.result_schema(&format!("SELECT {expression} AS c FROM t"));
        let schema = schema.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let got = schema.columns[0].column_type.data_type.to_string();
        assert_eq!(got.replace(", ", ","), want.replace(", ", ","), "{expression}");
    }
}

/// What does not fit is NULL; where the type says that there is none, the job fails.
#[test]
fn a_null_where_none_may_be() {
    let large = "SELECT k, CAST(n * 12345.6 AS DECIMAL(5, 2)) AS large FROM t";
    let rows = "a,0\nb,1\n";
    let inputs = Inputs::new("may-be-null").table("t", "k STRING, n INT", rows);
    assert_eq!(inputs.changes(large), ["+I(a,0.00)", "+I(b,\\N)"]);
    let inputs = Inputs::new("never-null").table("t", "k STRING, n INT NOT NULL", rows);
    let error = inputs.error(large);
    assert!(error.contains("'large'") && error.contains("NOT NULL"), "{error}");
    let read = inputs.changes("SELECT k FROM t WHERE n > 0");
    assert_eq!(read, ["+I(b)"], "what nobody reads fails nothing");
}

/// The types of these say NOT NULL in Flink, and `IS NULL` was FALSE without a look at the value.
#[test]
fn a_value_that_is_null_is_null_whatever_its_type_says() {
    let inputs = one_row();
    let nulls = ["LPAD('x', n - 2, ' ')", "FROM_BASE64('?')", "CAST(n * 1000 AS DECIMAL(3, 0))"];
    for text in nulls {
        let query = format!("SELECT {text} AS v, ({text}) IS NULL AS is_null FROM t");
        let outcome = inputs.run(&query, "epoch", 1).unwrap_or_else(|error| panic!("{error}"));
        let [(_, row)] = &outcome.sequence[..] else { panic!("one row") };
        assert_eq!(row[..], ["\\N", "TRUE"], "{text}");
    }
}
