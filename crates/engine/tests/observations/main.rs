//! What was observed of a real Flink 2.3, in 32 numbered observations, and what shows each of them
//! here.
//!
//! [`OBSERVATIONS`] leads from a number to the tests: `golden/NAME` is a case of `tests/golden`,
//! `FILE::NAME` a test (by its path in the repository), `differences: WORDS` a line of
//! docs/differences-from-flink.md, where we differ on purpose. Names without a path are tests of
//! this folder, one module for each group of observations; they show what the golden cases do not
//! reach. Their expected rows are what the observation says, never what the engine gave.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg::RowKind;
use thalweg::session::{Session, SessionOptions};

#[path = "../differential/engine.rs"]
#[allow(dead_code, reason = "the other half is for random queries")]
mod engine;

mod batch;
mod changes;
mod expressions;
mod texts;
mod windows;

use engine::{Configuration, Outcome};

/// A number, what was observed, and what shows it.
type Observation = (usize, &'static str, &'static [&'static str]);

const OBSERVATIONS: [Observation; 32] = [
    (
        1,
        "the watermark is the value of its expression; a row is late when its last window has fired",
        &["golden/late_boundary_delay0", "golden/tumble_late_dropped", "windows::a_millisecond"],
    ),
    (
        2,
        "a watermark is emitted behind a row, every 200 ms",
        &[
            "golden/current_watermark_fn",
            "golden/late_200ms_interval",
            "differences: advanced by more than 200 ms",
        ],
    ),
    (
        3,
        "a late row is in those of its windows that are open",
        &["golden/hop_basic", "golden/cumulate_basic"],
    ),
    (
        4,
        "OVER ROWS judges by the key, LAG and others by the watermark; joins within an interval drop late rows",
        &["golden/over_late_dropped", "golden/over_lag", "golden/interval_join_late"],
    ),
    (
        5,
        "late rows disappear silently; in batch mode none is late",
        &[
            "differences: Late rows are dropped; only a metric",
            "crates/engine/tests/queries/late_rows.rs::late_rows_go_to_their_table",
            "crates/engine/tests/golden/batch.rs::every_answer_in_batch_mode_is_flinks",
        ],
    ),
    (
        6,
        "a row time that is NULL fails a stream, not a batch",
        &["golden/null_rowtime_fails", "windows::null_times"],
    ),
    (
        7,
        "the files of a folder come in any order",
        &[
            "differences: The files of a folder are read in any order",
            "windows::files_come_by_name",
        ],
    ),
    (
        8,
        "the end of the input closes all windows",
        &["golden/tumble_basic", "golden/tumble_global_nokey"],
    ),
    (
        9,
        "windows over TIMESTAMP_LTZ lose rows in some zones",
        &[
            "differences: FLINK-38075",
            "golden/ltz_day_window_hourly_shanghai",
            "golden/ltz_hour_window_kolkata",
            "golden/ltz_day_window_hourly_utc",
        ],
    ),
    (
        10,
        "windows begin at multiples of their size since 1970, moved by an offset",
        &["golden/tumble_week_epoch_thursday", "golden/tumble_offset", "windows::before_1970"],
    ),
    (
        11,
        "window_start and window_end are TIMESTAMP(3) NOT NULL also for instants; window_time is a row time",
        &[
            "golden/ltz_day_window_hourly_utc",
            "golden/window_time_cascade",
            "crates/plan/src/bind/tests.rs::golden_schemas_are_exact",
        ],
    ),
    (
        12,
        "sessions exactly a gap apart are one, also where a row between them comes last",
        &["golden/session_gap_boundary_merge", "windows::sessions_meet"],
    ),
    (
        13,
        "empty windows have no row; a cumulating key comes again at every step",
        &["golden/cumulate_basic", "golden/tumble_global_nokey"],
    ),
    (
        14,
        "windows come by their end; within one, by no order that means something",
        &["golden/tumble_basic", "windows::windows_come_by_their_end"],
    ),
    (
        15,
        "an aggregate sends -U and +U for every row that changes it, and nothing otherwise",
        &["golden/group_agg_changelog", "golden/group_agg_same_value_no_update"],
    ),
    (
        16,
        "HAVING is a filter of changes: +U without +I, -U without -D, and sinks take them as upserts",
        &["golden/having_changelog", "changes::having_into_a_file_by_key"],
    ),
    (
        17,
        "what is padded goes by -D; so do groups without rows, and first rows without their number; equal rows rank by arrival",
        &[
            "golden/regular_join_left_changelog",
            "golden/topn_changelog",
            "golden/topn_no_rownum_output",
            "golden/order_by_limit_changelog",
            "golden/dedup_first_rowtime",
            "golden/dedup_last_proctime",
            "differences: It answers once, at the end of the input",
            "changes::a_group_without_rows_is_deleted",
            "changes::equal_rows_rank_by_arrival",
            "changes::the_last_row_by_time_is_not_an_older_one",
        ],
    ),
    (
        18,
        "an aggregate of nothing is nothing in a stream and a row in a batch",
        &[
            "golden/global_agg_empty_input",
            "crates/engine/tests/golden/batch.rs::every_answer_in_batch_mode_is_flinks",
        ],
    ),
    (
        19,
        "EXCEPT and NOT IN take a row back when the other side comes",
        &["golden/except_intersect", "golden/semi_join_in", "changes::not_in_retracts"],
    ),
    (
        20,
        "sums and averages have the type of what they are of, and wrap around or lose their fraction",
        &["golden/avg_types", "golden/sum_int_overflow", "changes::small_sums_wrap"],
    ),
    (
        21,
        "integers truncate and wrap, an integer by zero fails, a double does not",
        &[
            "golden/arith_int",
            "golden/int_div_by_zero_fails",
            "golden/nan_inf_double",
            "golden/cast_ok",
            "crates/expr/tests/semantics.rs::integers_wrap",
            "expressions::values",
        ],
    ),
    (
        22,
        "types of decimals, rounding half up, NULL where one is too large, which fails where none may be",
        &[
            "golden/arith_decimal",
            "golden/avg_types",
            "golden/decimal_overflow_null",
            "expressions::values",
            "expressions::types_of_decimals",
            "expressions::a_null_where_none_may_be",
        ],
    ),
    (
        23,
        "GREATEST of a NULL is NULL; 0.0 and -0.0 are two groups, all NaN one",
        &["golden/nan_inf_double", "expressions::values", "changes::groups_of_doubles"],
    ),
    (
        24,
        "NULLs are one group, never join by =, meet in INTERSECT, and are lowest in an order",
        &[
            "golden/null_keys_values",
            "golden/three_valued_logic",
            "golden/except_intersect",
            "golden/regular_join_left_changelog",
            "golden/string_fns",
            "golden/cast_ok",
            "changes::nulls_are_lowest",
        ],
    ),
    (
        25,
        "months end, differences truncate, weeks begin on Sunday, clocks show the session's zone",
        &[
            "golden/ts_arith",
            "crates/expr/tests/semantics.rs::the_sessions_zone_decides_what_a_clock_shows",
            "expressions::values",
        ],
    ),
    (
        26,
        "SUBSTRING from 0 and from the end, blanks count, lengths are of code points",
        &["golden/string_fns", "expressions::values"],
    ),
    (
        27,
        "an empty field is an empty STRING; of another type it fails, unless NULL is written so",
        &[
            "golden/csv_empty_string_default",
            "golden/csv_empty_int_fails",
            "golden/null_literal_option",
            "golden/null_string_empty_vs_null",
            "texts::empty_fields",
        ],
    ),
    (
        28,
        "a header is data; times have a blank, instants end in Z, more digits than three are cut",
        &[
            "golden/csv_header_not_skipped",
            "golden/csv_t_separator_fails",
            "golden/csv_ltz_without_z",
            "golden/csv_bool_ts_ltz",
            "golden/csv_quirks",
            "texts::digits_are_cut",
        ],
    ),
    (
        29,
        "rows of too few or too many fields fail; csv.ignore-parse-errors keeps what it can",
        &[
            "golden/csv_missing_cols",
            "golden/csv_extra_cols",
            "golden/csv_blank_line_fails",
            "golden/csv_ignore_parse_errors",
            "golden/csv_ignore_parse_errors_nowm",
        ],
    ),
    (
        30,
        "decimals are rounded to their scale, and NULL where too large; blanks around an INT pass",
        &[
            "golden/csv_decimal_rescale",
            "golden/csv_decimal_overflow",
            "golden/csv_numeric_padding_fails",
            "golden/csv_bool_ts_ltz",
            "texts::numbers",
        ],
    ),
    (
        31,
        "quotes are doubled, hold commas and line ends, and are literal within a field; CRLF passes",
        &["golden/csv_quirks", "golden/csv_no_final_newline", "texts::quotes_and_line_ends"],
    ),
    (
        32,
        "JSON: what is missing is NULL, numbers in quotes are numbers, objects are their text",
        &["golden/json_quirks", "texts::json_times"],
    ),
];

#[test]
fn every_observation_is_shown() {
    for (position, (number, what, shown_by)) in OBSERVATIONS.iter().enumerate() {
        assert_eq!(*number, position + 1);
        assert!(!shown_by.is_empty(), "{number}: {what}");
        shown_by
            .iter()
            .for_each(|name| assert!(is_there(name), "{number}: nothing is named {name}"));
    }
}

/// Whether there is such a golden case, test, or line of the differences.
fn is_there(name: &str) -> bool {
    if let Some(case) = name.strip_prefix("golden/") {
        return repository().join("tests/golden").join(case).join("query.sql").is_file();
    }
    if let Some(words) = name.strip_prefix("differences: ") {
        let page = read(&repository().join("docs/differences-from-flink.md"));
        return page.contains(words);
    }
    let (file, test) = name.split_once("::").expect("a file and a test");
    let own = format!("crates/engine/tests/observations/{file}.rs");
    let file = repository().join(if file.ends_with(".rs") { file } else { &own });
    read(&file).contains(&format!("fn {test}("))
}

/// Files, and tables over them.
pub struct Inputs {
    folder: PathBuf,
    declarations: String,
}

impl Inputs {
    /// An empty folder of this name.
    pub fn new(name: &str) -> Inputs {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("observation-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        Inputs { folder, declarations: "SET 'late.data' = 'drop';\n".to_owned() }
    }

    /// A CSV file, and a table of these columns over it.
    pub fn table(self, name: &str, columns: &str, rows: &str) -> Inputs {
        self.table_with(name, columns, "'format' = 'csv'", rows)
    }

    /// The same with more options, the format among them.
    pub fn table_with(mut self, name: &str, columns: &str, options: &str, rows: &str) -> Inputs {
        fs::write(self.folder.join(name), rows).expect("writing an input");
        self.declarations.push_str(&format!(
            "CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{name}', {options});\n"
        ));
        self
    }

    /// What a query sends, with the contract and the workers.
    pub fn run(
        &self,
        query: &str,
        order: &'static str,
        workers: usize,
    ) -> thalweg::Result<Outcome> {
        self.run_with(query, &Configuration::new(order, workers, 3))
    }

    /// What is left of a query in batch mode, in its order.
    pub fn batch(&self, query: &str) -> Vec<Vec<String>> {
        let configuration = Configuration { is_batch: true, ..Configuration::new("epoch", 2, 3) };
        let outcome = self.run_with(query, &configuration);
        let outcome = outcome.unwrap_or_else(|error| panic!("{query}: {error}"));
        outcome.sequence.into_iter().map(|(_, row)| row).collect()
    }

    fn run_with(&self, query: &str, configuration: &Configuration) -> thalweg::Result<Outcome> {
        engine::run(&self.folder, &self.declarations, query, configuration)
    }

    /// The changes in an ordered contract, as `+I(a,b)`; by any number of workers the same.
    pub fn changes_in(&self, order: &'static str, query: &str) -> Vec<String> {
        let run = |workers| {
            let outcome =
                self.run(query, order, workers).unwrap_or_else(|error| panic!("{query}: {error}"));
            let line = |(kind, row): &(RowKind, Vec<String>)| {
                format!("{}({})", kind.short(), row.join(","))
            };
            outcome.sequence.iter().map(line).collect::<Vec<_>>()
        };
        let one = run(1);
        [2, 4]
            .iter()
            .for_each(|workers| assert_eq!(run(*workers), one, "{query} with {workers} workers"));
        one
    }

    /// The changes in contract `arrival`; what is left of them is also left in `epoch`.
    pub fn changes(&self, query: &str) -> Vec<String> {
        let left = |order, workers| {
            let outcome =
                self.run(query, order, workers).unwrap_or_else(|error| panic!("{query}: {error}"));
            engine::final_rows(&outcome).unwrap_or_else(|error| panic!("{query}: {error}"))
        };
        let ordered = left("arrival", 1);
        for workers in [1, 2, 4] {
            assert_eq!(
                left("epoch", workers),
                ordered,
                "{query} in 'epoch' with {workers} workers"
            );
        }
        self.changes_in("arrival", query)
    }

    /// What a query that fails says; the same in each contract.
    pub fn error(&self, query: &str) -> String {
        let error = |order| match self.run(query, order, 2) {
            Ok(outcome) => panic!("{query} gives {:?}", outcome.sequence),
            Err(error) => error.to_string(),
        };
        let message = error("arrival");
        assert!(!error("epoch").is_empty());
        message
    }

    /// Writes a query to a table.
    pub fn insert(&self, table: &str, query: &str, order: &str) {
        let options = SessionOptions {
            base_dir: self.folder.clone(),
            allowed_roots: vec![self.folder.clone()],
            ..SessionOptions::default()
        };
        let script = format!(
            "{}SET 'pipeline.order' = '{order}'; INSERT INTO {table} {query};",
            self.declarations
        );
        let run = Session::new(options).and_then(|mut session| session.execute(&script));
        run.unwrap_or_else(|error| panic!("{query}: {error}"));
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
