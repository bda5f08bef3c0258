//! Runs the golden SQL cases of `tests/golden` through the command line and compares with Flink.
//!
//! Every case is a test of its own: `append::NAME` compares rows as a multiset, `sequence::NAME` in
//! order, `final_state::NAME` with what is left of a changelog, `error::NAME` expects a refusal
//! that says where. Cases that need a later version are ignored tests with the reason. Each case
//! runs with several worker counts, which must not show in the result.
//!
//! `append::ordered::NAME` and the like run a case in the ordered contracts (see [`ordered`]);
//! [`restored`] runs them in jobs that are killed and resume from their snapshots.
//!
//! Types are not compared here: the planner's tests do that for every case that has an answer, from
//! `schema.json` (`golden_schemas_are_exact`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod batch;
mod flink;
#[path = "../recovery/killed/mod.rs"]
mod killed;
mod ordered;
mod restored;
mod whole;

const WORKER_COUNTS: [usize; 3] = [1, 2, 4];
/// Far more than a case needs in a debug build on a busy machine: a hang must not hang the suite.
const CASE_LIMIT: Duration = Duration::from_secs(60);

macro_rules! cases {
    ($module:ident, $names:ident, $check:path, $check_got:path: $($name:ident),* $(,)?) => {
        const $names: &[&str] = &[$(stringify!($name)),*];
        mod $module {
            $(
                #[test]
                fn $name() {
                    $check(stringify!($name));
                }
            )*
            mod ordered {
                $(
                    #[test]
                    fn $name() {
                        crate::ordered::check(stringify!($name), $check_got);
                    }
                )*
            }
        }
    };
}

macro_rules! two_input_cases {
    ($($name:ident),* $(,)?) => {
        const TWO_INPUTS: &[&str] = &[$(stringify!($name)),*];
        mod two_inputs {
            $(
                #[test]
                fn $name() {
                    crate::check_left(stringify!($name));
                }
            )*
            mod ordered {
                $(
                    #[test]
                    fn $name() {
                        crate::ordered::check_two_inputs(stringify!($name));
                    }
                )*
            }
        }
    };
}

macro_rules! error_cases {
    ($($name:ident: $status:expr, $words:expr;)*) => {
        const ERRORS: &[&str] = &[$(stringify!($name)),*];
        mod error {
            use super::ExitStatus::{Either, Planning, Running};
            $(
                #[test]
                fn $name() {
                    super::check_error(stringify!($name), $status, &$words);
                }
            )*
        }
    };
}

macro_rules! later_cases {
    ($($name:ident: $reason:literal;)*) => {
        const LATER: &[(&str, &str)] = &[$((stringify!($name), $reason)),*];
        mod later {
            $(
                #[test]
                #[ignore = $reason]
                fn $name() {
                    super::check_append(stringify!($name));
                }
            )*
        }
    };
}

cases! { append, APPEND, super::check_append, crate::compare_append:
    arith_decimal, arith_int, cast_ok, computed_col_metadata, csv_blank_lines_comments,
    csv_bool_ts_ltz, csv_decimal_rescale, csv_empty_string_default,
    csv_ignore_parse_errors_nowm, csv_no_final_newline, csv_quirks, cumulate_basic,
    current_watermark_fn, day_window_session_tz_ltz, decimal_overflow_null, hop_basic, hop_dense,
    json_quirks, late_200ms_interval, late_boundary_delay0, legacy_group_window,
    ltz_day_window_hourly_shanghai, ltz_day_window_hourly_utc, ltz_hour_window_kolkata,
    nan_inf_double, null_literal_option, null_string_empty_vs_null, session_gap_boundary_merge,
    session_no_partition, string_fns, three_valued_logic, ts_arith, tumble_basic,
    tumble_global_nokey, tumble_late_dropped, tumble_offset, tumble_week_epoch_thursday,
    unnest_array, window_time_cascade, window_tvf_rows, distinct_select, over_lag,
    match_recognize, cep_range_quant, over_late_dropped, over_range_rows, over_rows,
    over_unbounded_peers, dedup_first_rowtime, window_topn, lookup_join_filesystem_fails,
    fnc_collection_op_1, fnc_time_to_timestamp_ltz_1, regexp_replace_group, fmt_csv_blank_single,
    fmt_json_dup_keys, cast_varbinary_no_length, cast_varchar_no_length, fn_arithmetic_8,
    fnx_arithmetic_op,
    fnx_cast_text_try_cast, fnx_convert_cast, fnx_convert_try_cast, fnx_json_is_json,
    fnx_json_json_exists, fnx_json_json_query, fnx_json_json_value, fnx_math_op, fnx_text_initcap,
    fmt_json_case_keys, fmt_json_ignore_errors,
    fnx_text_replace, fnx_text_substring, fnx_text_trim, fnx_time_convert_tz,
    fnx_time_newyork_unix_timestamp, fnx_time_timestampadd, fnx_time_to_timestamp,
    fnx_time_to_timestamp_ltz, fnx_regexp_regexp,
    fnu_cast_matrix_syntax_1, fnu_cast_matrix_syntax_2, fnu_cast_matrix_syntax_4,
    fnu_collection_array_append, fnu_collection_array_concat, fnu_collection_array_distinct,
    fnu_collection_array_except, fnu_collection_array_intersect, fnu_collection_array_min,
    fnu_collection_array_prepend, fnu_collection_array_remove, fnu_collection_array_slice,
    fnu_collection_array_sort, fnu_collection_array_union, fnu_collection_map_entries,
    fnu_compare_row, fnu_compare_syntax_1, fnu_compare_syntax_2, fnu_compare_syntax_3,
    fnu_compare_syntax_6, fnu_compare_syntax_7, fnu_condition_is_alpha, fnu_condition_syntax_1,
    fnu_equals_matrix_syntax_1, fnu_equals_matrix_syntax_2, fnu_equals_matrix_syntax_4,
    fnu_hash_sha2, fnu_json_json_array, fnu_json_json_exists, fnu_json_json_object,
    fnu_json_json_query, fnu_json_json_quote, fnu_json_json_string, fnu_json_json_unquote,
    fnu_json_json_value, fnu_json_syntax_1, fnu_json_syntax_2, fnu_json_syntax_3,
    fnu_json_syntax_4, fnu_json_syntax_5, fnu_math_decode, fnu_math_syntax_1, fnu_regexp_regexp,
    fnu_regexp_regexp_extract_all, fnu_regexp_regexp_instr, fnu_regexp_regexp_substr,
    fnu_text_startswith, fnu_text_str_to_map, fnu_text_syntax_1, fnu_text_to_base64,
    fnu_text_trim, fnu_text_typeof, fnu_text_url_encode, fnu_time_convert_tz,
    fnu_time_date_format, fnu_time_syntax_4, fnu_time_syntax_6, fnu_time_syntax_7,
    fnu_time_timestampdiff, fnu_time_to_timestamp_ltz, wagg_json_arrayagg,
    wagg_json_objectagg,
    changelog_tumble, changelog_tumble_late, changelog_hop, changelog_hop_partly_late,
    changelog_cumulate, changelog_session, changelog_session_global, changelog_window_aggregates,
    changelog_group_window, changelog_top_tumble,
}

cases! { sequence, SEQUENCE, super::check_sequence, crate::compare_sequence:
    limit_no_order, order_by_time,
}

// The input is bounded, so that ORDER BY … LIMIT answers once, at the end, instead of by a
// changelog.
cases! { final_state, FINAL_STATE, super::check_final_state, crate::compare_final_state:
    order_by_limit_changelog,
}

// One input: in `arrival` the changes are Flink's, one by one; in `epoch` what is left of them is.
cases! { changelog, CHANGELOG, super::check_changelog, crate::compare_changelog:
    avg_types, cdc_canal, cdc_debezium, cdc_debezium_agg, cdc_maxwell, count_distinct_filter, global_agg_changelog,
    global_agg_empty_input,
    group_agg_changelog, group_agg_same_value_no_update, having_changelog, null_keys_values,
    sum_int_overflow, dedup_last_proctime, dedup_last_short_row_time, rank_not_row_number,
    topn_changelog,
    topn_no_rownum_output,
    fne_map_values, gagg_group_id, gagg_json_arrayagg,
    changelog_window_rows, over_values, over_values_peers, over_values_rows, over_values_changelog,
    over_values_rows_changelog, over_values_row_number, over_values_texts, over_values_of_group,
    over_values_expression,
}

// Two inputs: how they interleave is a matter of chance, so what is left of the changes is
// compared.
two_input_cases! {
    except_intersect, interval_join_full, interval_join_inner, interval_join_late,
    regular_join_inner, regular_join_left_changelog, semi_join_in, temporal_join_versioned,
    window_join,
}

/// What is in the files that an INSERT wrote, read line by line. Two jobs, of which none is the
/// case alone.
const WRITTEN: &[&str] = &[
    "sink_csv_bool_decimal_text",
    "sink_csv_nested",
    "sink_csv_options",
    "sink_csv_space_quotes",
    "sink_csv_text",
    "sink_csv_timestamp_text",
    "sink_json_iso",
    "sink_json_nested_text",
    "sink_json_text",
];

#[test]
fn files_hold_what_flink_writes_or_a_difference() {
    WRITTEN.iter().for_each(|case| check_append(case));
}

// The exit status, and words of which the message must hold at least one (without case).
error_cases! {
    cast_bad_fails: Either, ["'x'"];
    csv_bad_int_fails: Running, ["qty"];
    csv_blank_line_fails: Running, ["row 2", "line 2"];
    csv_decimal_overflow: Running, ["price"];
    csv_empty_int_fails: Running, ["qty"];
    csv_extra_cols: Running, ["row 1", "line 1"];
    csv_header_not_skipped: Running, ["bidtime"];
    csv_ignore_parse_errors: Running, ["bidtime"];
    csv_ltz_without_z: Running, ["column l", "`l`", "'l'", "\"l\""];
    csv_missing_cols: Running, ["row 1", "line 1"];
    csv_numeric_padding_fails: Running, ["price"];
    csv_t_separator_fails: Running, ["bidtime"];
    changelog_window_join_refused: Planning, ["join of windows"];
    changelog_window_top_refused: Planning, ["ROW_NUMBER() of a window"];
    over_values_bounded_refused: Planning, ["UNBOUNDED PRECEDING"];
    over_values_descending_refused: Planning, ["one column, ascending"];
    cumulate_not_multiple: Planning, ["CUMULATE"];
    fmt_json_missing_fails: Running, ["missing"];
    hop_not_multiple: Planning, ["HOP"];
    hop_slide_gt_size: Planning, ["HOP"];
    implicit_coercion: Planning, ["CHAR", "STRING"];
    implicit_coercion_bad: Planning, ["CHAR", "STRING"];
    int_div_by_zero_fails: Running, ["division by zero"];
    null_rowtime_fails: Running, ["bidtime"];
    order_by_nontime_no_limit: Planning, ["ORDER BY", "qty"];
    two_rowtime_join_output_fails: Planning, ["join"];
    update_sink_filesystem_fails: Planning, ["GROUP BY", "sink"];
    window_on_retract_input_fails: Planning, ["column mt", "'mt'", "GROUP BY"];
}

later_cases! {}

/// The cases that are in a list. All others are those of [`whole`].
fn listed() -> Vec<&'static str> {
    let mut listed: Vec<&str> =
        [APPEND, SEQUENCE, FINAL_STATE, CHANGELOG, TWO_INPUTS, WRITTEN, ERRORS].concat();
    listed.extend(LATER.iter().map(|(name, _)| *name));
    listed
}

/// A case that is listed and not there would silently not be tested.
#[test]
fn every_listed_case_is_there_and_listed_once() {
    let listed = listed();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "a case is listed twice");
    let present = folders(&golden_dir());
    let absent = unique.iter().find(|name| !present.iter().any(|present| present == *name));
    assert_eq!(absent, None, "a list in golden/main.rs has a case that is not in tests/golden");
}

/// A difference without its reason, or of a case that is gone, means nothing.
#[test]
fn every_difference_has_a_reason() {
    let differences = golden_dir().join("differences");
    for name in folders(&differences) {
        assert!(golden_dir().join(&name).is_dir(), "no golden case {name}");
        let reason = read(&differences.join(&name).join("reason.txt"));
        assert!(reason.len() > 80, "{name}: reason.txt says too little");
    }
}

type Row = Vec<String>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ExitStatus {
    Planning,
    Running,
    Either,
}

impl ExitStatus {
    fn allows(self, status: Option<i32>) -> bool {
        match self {
            ExitStatus::Planning => status == Some(2),
            ExitStatus::Running => status == Some(1),
            ExitStatus::Either => matches!(status, Some(1 | 2)),
        }
    }
}

fn check_append(case: &str) {
    check_rows(case, compare_append);
}

fn check_sequence(case: &str) {
    check_rows(case, compare_sequence);
}

fn check_final_state(case: &str) {
    check_rows(case, compare_final_state);
}

fn check_rows(case: &str, compare: fn(&str, &str, &[u8])) {
    for workers in WORKER_COUNTS {
        let setup = format!("{workers} workers");
        let folder = copy_of(case, &setup);
        let output = thalweg(&folder.join("query.sql"), &["--workers", &workers.to_string()]);
        compare(case, &setup, &successful(case, &setup, output).stdout);
        remove(&folder);
    }
}

/// Panics with what the command said unless it was successful.
fn successful(case: &str, setup: &str, output: Output) -> Output {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case} with {setup}: {}\n{stderr}", output.status);
    output
}

fn compare_append(case: &str, setup: &str, stdout: &[u8]) {
    compare_rows(case, setup, stdout, expected_rows(case, "expected.csv"), true);
}

fn compare_sequence(case: &str, setup: &str, stdout: &[u8]) {
    compare_rows(case, setup, stdout, expected_rows(case, "expected.csv"), false);
}

fn compare_final_state(case: &str, setup: &str, stdout: &[u8]) {
    let expected = parse_csv(&read(&golden_dir().join(case).join("final.csv")));
    compare_rows(case, setup, stdout, expected, true);
}

fn check_changelog(case: &str) {
    check_rows(case, compare_left);
}

fn check_left(case: &str) {
    check_rows(case, compare_left);
}

/// The changes, one by one, with their kinds.
fn compare_changelog(case: &str, setup: &str, stdout: &[u8]) {
    let got = parse_csv(&String::from_utf8_lossy(stdout));
    assert_same(case, setup, &got, &parse_csv(&read(&expected_file(case, "expected.csv"))));
}

/// What is left when all changes were applied.
fn compare_left(case: &str, setup: &str, stdout: &[u8]) {
    let mut left = Vec::new();
    let rows = parse_csv(&String::from_utf8_lossy(stdout));
    let is_changelog = rows.first().is_some_and(|header| header[0] == "op");
    for (position, mut row) in rows.into_iter().enumerate() {
        let kind = if is_changelog { row.remove(0) } else { "+I".to_owned() };
        match kind.as_str() {
            _ if position == 0 => left.push(row),
            "+I" | "+U" => left.push(row),
            _ => {
                let found = left.iter().skip(1).position(|other| *other == row);
                let found = found.unwrap_or_else(|| {
                    panic!("{case} with {setup}: {kind} of a row that is not there: {row:?}")
                });
                left.remove(found + 1);
            }
        }
    }
    let mut want = parse_csv(&read(&expected_file(case, "final.csv")));
    sort_below_header(&mut left);
    sort_below_header(&mut want);
    assert_same(case, setup, &left, &want);
}

fn compare_rows(case: &str, setup: &str, stdout: &[u8], mut want: Vec<Row>, as_multiset: bool) {
    let mut got = parse_csv(&String::from_utf8_lossy(stdout));
    if as_multiset {
        sort_below_header(&mut got);
        sort_below_header(&mut want);
    }
    assert_same(case, setup, &got, &want);
}

fn sort_below_header(rows: &mut [Row]) {
    if let Some(rows) = rows.get_mut(1..) {
        rows.sort();
    }
}

fn check_error(case: &str, status: ExitStatus, words: &[&str]) {
    for workers in WORKER_COUNTS {
        let setup = format!("{workers} workers");
        let folder = copy_of(case, &setup);
        let output = thalweg(&folder.join("query.sql"), &["--workers", &workers.to_string()]);
        let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(
            status.allows(output.status.code()),
            "{case} with {setup}: {} instead of {status:?}\n{stderr}",
            output.status
        );
        assert!(
            words.iter().any(|word| stderr.contains(&word.to_lowercase())),
            "{case}: the message names none of {words:?}:\n{stderr}"
        );
        assert!(!stderr.contains("internal error"), "{case}: {stderr}");
        assert!(!stderr.contains("panicked"), "{case}: {stderr}");
        remove(&folder);
    }
}

/// A copy of the case, so that nothing is written into the repository.
fn copy_of(case: &str, setup: &str) -> PathBuf {
    let name = format!("golden-{case}-{}", setup.replace(' ', "-"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    remove(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    let source = golden_dir().join(case);
    for entry in fs::read_dir(&source).expect("the case's folder").flatten() {
        let name = entry.file_name();
        let name_text = name.to_string_lossy();
        let is_answer = ["expected", "final"].iter().any(|word| name_text.starts_with(word));
        if name_text.ends_with(".csv") && !is_answer || name_text.starts_with("in") {
            fs::copy(entry.path(), folder.join(&name)).expect("copying an input");
        }
    }
    let query = read(&source.join("query.sql")).replace("@DIR@", &folder.display().to_string());
    fs::write(folder.join("query.sql"), query).expect("writing the query");
    folder
}

/// Runs the query file with these options; kills the process when it takes absurdly long.
fn thalweg(file: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    // Cases that read what they have written were asked with awaited INSERTs.
    command.args(["run", "--format", "csv", "--null", "\\N", "--set", "table.dml-sync=true"]);
    command.args(options);
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starting thalweg");
    // The cases' outputs fit into a pipe, so that waiting before reading cannot block the child.
    let started = Instant::now();
    while child.try_wait().expect("waiting for thalweg").is_none() {
        if started.elapsed() > CASE_LIMIT {
            child.kill().expect("stopping thalweg");
            panic!("{} hangs with {options:?}", file.display());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("the output of thalweg")
}

/// The rows of an expected file, header first, without the row kind: all are inserts.
fn expected_rows(case: &str, file: &str) -> Vec<Row> {
    let mut rows = parse_csv(&read(&expected_file(case, file)));
    for (position, row) in rows.iter_mut().enumerate() {
        let kind = row.remove(0);
        assert_eq!(kind, if position == 0 { "op" } else { "+I" }, "{case} is no append-only case");
    }
    rows
}

/// Where an expected answer stands: with Flink's, or with ours where we differ on purpose.
fn expected_file(case: &str, file: &str) -> PathBuf {
    let different = golden_dir().join("differences").join(case).join(file);
    if different.exists() { different } else { golden_dir().join(case).join(file) }
}

/// RFC 4180: quoted fields may hold commas, line ends and doubled quotes.
fn parse_csv(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = Row::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !quoted => {}
            other => field.push(other),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows
}

fn assert_same(case: &str, setup: &str, got: &[Row], want: &[Row]) {
    if got == want {
        return;
    }
    let mut report = format!("{case} with {setup}\n");
    for row in want.iter().filter(|row| !got.contains(row)) {
        report.push_str(&format!("  missing     {}\n", row.join(",")));
    }
    for row in got.iter().filter(|row| !want.contains(row)) {
        report.push_str(&format!("  unexpected  {}\n", row.join(",")));
    }
    panic!("{report}  {} rows instead of {}, or another order", got.len(), want.len());
}

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

fn folders(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a folder of golden cases").flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("removing a temporary folder");
    }
}

#[test]
fn the_csv_parser_knows_quotes() {
    let rows = parse_csv("a,b\n\"x,\"\"y\n\",\n,z");
    assert_eq!(rows, [vec!["a", "b"], vec!["x,\"y\n", ""], vec!["", "z"]]);
}
