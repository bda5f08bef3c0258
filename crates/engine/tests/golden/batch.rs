//! The cases in batch mode: every answer that Flink gave there, as a multiset of rows without
//! kinds.

use super::{
    copy_of, expected_file, parse_csv, read, remove, sort_below_header, successful, thalweg,
};

/// Cases that give something else in batch mode here, and why.
const DIFFERENT: [(&str, &str); 7] = [
    (
        "dedup_last_proctime",
        "all rows have the same processing time there, so that the first one is the last",
    ),
    ("csv_blank_line_fails", "an empty line is an error here, and a row of NULL there"),
    ("csv_decimal_overflow", "a DECIMAL out of range is an error here, and NULL there"),
    (
        "count_distinct_filter",
        "LISTAGG and FIRST_VALUE take rows in the order of the file here, and in that of a shuffle there",
    ),
    (
        "gagg_json_arrayagg",
        "JSON_ARRAYAGG takes rows in the order of the file here, and in that of a shuffle there",
    ),
    ("wagg_json_arrayagg", "as gagg_json_arrayagg"),
    ("update_sink_filesystem_fails", "the answer is the number of a job; see the test below"),
];

#[test]
fn every_answer_in_batch_mode_is_flinks() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for case in super::listed() {
        let file = expected_file(case, "expected_batch.csv");
        if !file.is_file() || DIFFERENT.iter().any(|(name, _)| *name == case) {
            continue;
        }
        let mut want = parse_csv(&read(&file));
        sort_below_header(&mut want);
        for options in [
            ["--workers", "1", "pipeline.order=epoch"],
            ["--workers", "3", "pipeline.order=arrival"],
        ] {
            let setup = options.join(" ");
            let folder = copy_of(case, &setup);
            let [workers, number, order] = options;
            let mode = "execution.runtime-mode=batch";
            let options = [workers, number, "--set", order, "--set", mode];
            let output = thalweg(&folder.join("query.sql"), &options);
            remove(&folder);
            if !output.status.success() {
                wrong.push(format!("{case}, {setup}: {}", String::from_utf8_lossy(&output.stderr)));
                continue;
            }
            let output = successful(case, &setup, output);
            let mut got = parse_csv(&String::from_utf8_lossy(&output.stdout));
            sort_below_header(&mut got);
            if got != want {
                wrong.push(format!("{case}, {setup}:\n  got    {got:?}\n  wanted {want:?}"));
            }
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{} of {checked} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// The rows of a batch job, as a multiset.
pub fn compare(case: &str, setup: &str, stdout: &[u8]) {
    let mut want = parse_csv(&read(&expected_file(case, "expected_batch.csv")));
    let mut got = parse_csv(&String::from_utf8_lossy(stdout));
    sort_below_header(&mut want);
    sort_below_header(&mut got);
    super::assert_same(case, setup, &got, &want);
}

#[test]
fn sorted_results_come_in_their_order() {
    let case = "order_by_nontime_no_limit";
    let folder = copy_of(case, "batch in order");
    let mode = "execution.runtime-mode=batch";
    let output = thalweg(&folder.join("query.sql"), &["--workers", "3", "--set", mode]);
    remove(&folder);
    let rows = parse_csv(&String::from_utf8_lossy(&successful(case, "batch", output).stdout));
    let quantities: Vec<i64> =
        rows[1..].iter().map(|row| row[1].parse().expect("a number")).collect();
    assert!(quantities.len() > 5 && quantities.is_sorted_by(|a, b| a >= b), "{quantities:?}");
}

#[test]
fn files_take_the_final_rows_of_results_that_change() {
    let case = "update_sink_filesystem_fails";
    let folder = copy_of(case, "batch into a file");
    let mode = "execution.runtime-mode=batch";
    let output = thalweg(&folder.join("query.sql"), &["--workers", "2", "--set", mode]);
    successful(case, "batch", output);
    let mut rows = parse_csv(&read(&folder.join("out")));
    rows.sort();
    remove(&folder);
    assert_eq!(rows, [["A", "6"], ["B", "3"], ["C", "1"]]);
}
