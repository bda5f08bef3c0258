//! CSV and JSON (observations 27 to 32).

use crate::Inputs;

#[test]
fn empty_fields() {
    for column_type in ["INT", "DECIMAL(10, 2)", "TIMESTAMP(3)"] {
        let columns = format!("s STRING, v {column_type}");
        let error = Inputs::new("empty").table("t", &columns, ",\n").error("SELECT * FROM t");
        assert!(error.contains('v') && error.contains("row 1"), "{column_type}: {error}");
        let options = "'format' = 'csv', 'csv.null-literal' = ''";
        let inputs = Inputs::new("empty-null").table_with("t", &columns, options, ",\n\"\",\n");
        assert_eq!(
            inputs.changes("SELECT * FROM t"),
            ["+I(\\N,\\N)", "+I(\\N,\\N)"],
            "{column_type}"
        );
    }
    let inputs = Inputs::new("empty-string").table("t", "n INT, s STRING", "1,\n");
    assert_eq!(inputs.changes("SELECT s, s IS NULL FROM t"), ["+I(,FALSE)"]);
}

#[test]
fn digits_are_cut() {
    let rows = "2026-01-01 00:00:00.9999\n2026-01-01 00:00:01\n";
    let inputs = Inputs::new("digits").table("t", "ts TIMESTAMP(3)", rows);
    let want = ["+I(2026-01-01 00:00:00.999)", "+I(2026-01-01 00:00:01.000)"];
    assert_eq!(inputs.changes("SELECT ts FROM t"), want);
}

#[test]
fn numbers() {
    let rows = "1.555, 3 ,yes\n-0.005,4,true\n1e2,5,TRUE\n123456.1,6,0\n";
    let columns = "d DECIMAL(5, 2), n INT, b BOOLEAN";
    let ignoring = "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'";
    let inputs = Inputs::new("numbers").table_with("t", columns, ignoring, rows);
    let want = ["+I(1.56,3,FALSE)", "+I(-0.01,4,TRUE)", "+I(100.00,5,TRUE)", "+I(\\N,6,FALSE)"];
    assert_eq!(inputs.changes("SELECT d, n, b FROM t"), want);
    // Else a DECIMAL that is out of range is bad here; Flink's is NULL.
    let inputs = Inputs::new("numbers-bad").table("t", columns, rows);
    let error = inputs.error("SELECT d, n, b FROM t");
    assert!(error.contains("123456.1"), "{error}");
}

#[test]
fn quotes_and_line_ends() {
    let rows = "\"a,b\",1\r\n\"say \"\"hi\"\"\",2\r\n\"two\nlines\",3\r\nx\"y,4";
    let inputs = Inputs::new("quotes").table("t", "s STRING, n INT", rows);
    let want = ["+I(a,b,1)", "+I(say \"hi\",2)", "+I(two\nlines,3)", "+I(x\"y,4)"];
    assert_eq!(inputs.changes("SELECT s, n FROM t"), want);
}

#[test]
fn json_times() {
    let columns = "ts TIMESTAMP(3), n INT, s STRING";
    let rows = r#"{"ts": "2026-01-01T00:00:00", "n": "7", "s": 12, "more": 1}
{"ts": "2026-01-01T00:00:01", "n": 2.9, "s": {"k":1}}
"#;
    let iso = "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'";
    let inputs = Inputs::new("json").table_with("t", columns, iso, rows);
    let want = ["+I(2026-01-01 00:00:00.000,7,12)", "+I(2026-01-01 00:00:01.000,2,{\"k\":1})"];
    assert_eq!(inputs.changes("SELECT ts, n, s FROM t"), want);
    let inputs = Inputs::new("json-sql").table_with("t", columns, "'format' = 'json'", rows);
    let error = inputs.error("SELECT ts, n, s FROM t");
    assert!(error.contains("ts"), "{error}");
}

/// What goes into a table, held to its columns as it is set; the first answer is Flink's.
#[test]
fn lengths_and_nulls_are_enforced_as_set() {
    let written = |settings: &str, rows: &str| {
        let options = "'format' = 'csv', 'csv.null-literal' = ''";
        let mut inputs = Inputs::new("enforced").table_with("t", "s STRING, n INT", options, rows);
        inputs.declarations.push_str(&format!(
            "{settings}
             CREATE TABLE o (a VARCHAR(3), n INT NOT NULL)
               WITH ('connector' = 'filesystem', 'path' = 'o.csv', 'format' = 'csv');
             SET 'table.dml-sync' = 'true';
             INSERT INTO o SELECT s, n FROM t;\n"
        ));
        inputs
    };
    let length = |word: &str| format!("SET 'table.exec.sink.type-length-enforcer' = '{word}';");
    let read = "SELECT a, n FROM o";
    let long = "abcdef,1\näöüß,2\nxy,3\n";
    let cut = ["+I(abc,1)", "+I(äöü,2)", "+I(xy,3)"];
    assert_eq!(written(&length("TRIM_PAD"), long).changes(read), cut);
    let whole = ["+I(abcdef,1)", "+I(äöüß,2)", "+I(xy,3)"];
    assert_eq!(written(&length("IGNORE"), long).changes(read), whole);
    let error = written(&length("ERROR"), long).error(read);
    assert!(error.contains("'a'") && error.contains("6 characters"), "{error}");
    assert_eq!(written(&length("ERROR"), "xy,3\n").changes(read), ["+I(xy,3)"]);
    let nulls = "SET 'table.exec.sink.not-null-enforcer' = 'DROP';";
    assert_eq!(written(nulls, "a,1\nb,\nc,3\n").changes(read), ["+I(a,1)", "+I(c,3)"]);
    let error = written("", "a,1\nb,\nc,3\n").error(read);
    assert!(error.contains("'n'") && error.contains("NOT NULL"), "{error}");
}
