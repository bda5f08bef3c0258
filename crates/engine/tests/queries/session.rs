//! SQL from Rust: results as batches, user functions, observers.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg::pipeline::MemorySource;
use thalweg::session::{Executor, JobDescription, Observer, Session, SessionOptions, Task};
use thalweg::{Error, ErrorKind, Report, Result};
use thalweg_core::connector::{SourceBatch, SourcePoll, Waker};
use thalweg_core::{Column, ColumnType, DataType, Sink, Source, TableSchema};
use thalweg_expr::ScalarFunction;
use thalweg_operators::aggregate::{UserAccumulator, UserAggregate};
use thalweg_plan::ResultTable;

use super::workspace;

const NUMBERS: &str = "CREATE TABLE numbers (n INT, ts AS TO_TIMESTAMP(FROM_UNIXTIME(n)),
    WATERMARK FOR ts AS ts)
  WITH ('connector' = 'datagen',
    'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '100');";

fn ints(batches: &[RecordBatch]) -> Vec<i32> {
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Int32Type>());
    let mut values: Vec<i32> = columns.flat_map(|column| column.values().to_vec()).collect();
    values.sort_unstable();
    values
}

#[test]
fn declarations_stay_and_the_last_result_comes_back() {
    let mut session = Session::default();
    assert!(session.execute(NUMBERS).expect("declares").is_empty());
    let batches = session
        .execute("SELECT n FROM numbers; SELECT n FROM numbers WHERE n > 97;")
        .expect("runs");
    assert_eq!(ints(&batches), [98, 99, 100]);
    let shown = session.execute("SHOW TABLES").expect("shows");
    assert_eq!(shown[0].column(0).as_string_view().value(0), "numbers");
    let explained = session.execute("EXPLAIN SELECT n FROM numbers").expect("explains");
    assert!(explained[0].column(0).as_string_view().value(0).contains("== Stages =="));
    let schema = session.result_schema("SELECT n, ts FROM numbers").expect("is typed");
    assert_eq!(schema.columns[1].name, "ts");
}

/// The row that an array without a table is unnested from has a column of its own, which stood in
/// the place of the first element: the result was read as another type.
#[test]
fn arrays_and_maps_of_literals_are_tables() {
    let mut session = Session::default();
    let mut run = |sql: &str| session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(ints(&run("SELECT a FROM UNNEST(ARRAY[3, 1, 2]) AS t (a)")), [1, 2, 3]);
    assert_eq!(ints(&run("SELECT * FROM UNNEST(ARRAY[7]) WITH ORDINALITY AS t (a, n)")), [7]);
    assert_eq!(ints(&run("SELECT v FROM UNNEST(MAP['a', 5]) AS t (k, v) WHERE k = 'a'")), [5]);
    let joined =
        "SELECT a + b FROM UNNEST(ARRAY[1, 2]) AS t (a) CROSS JOIN UNNEST(ARRAY[10, a]) AS u (b)";
    assert_eq!(ints(&run(joined)), [2, 4, 11, 12]);
    assert_eq!(ints(&run("SELECT a FROM (VALUES (4)) AS v (x), UNNEST(ARRAY[x]) AS t (a)")), [4]);
}

#[test]
fn a_mistake_anywhere_runs_nothing_and_declares_nothing() {
    let mut session = Session::default();
    let error = session
        .execute(&format!("{NUMBERS} SELECT m FROM numbers"))
        .expect_err("there is no column m");
    assert_eq!(error.kind(), ErrorKind::Plan);
    assert!(error.span().is_some());
    session.execute(NUMBERS).expect("the table was not declared by the script that failed");
}

#[test]
fn a_scalar_function_of_the_users_is_called_from_sql() {
    let mut session = Session::default();
    session.register_function(ScalarFunction {
        name: "TRIPLE".to_owned(),
        arguments: vec![DataType::Int],
        result: DataType::Int.nullable(),
        deterministic: true,
        function: Arc::new(|arguments, _rows| {
            let input = arguments[0].as_primitive::<Int32Type>();
            let output: ArrayRef = Arc::new(input.unary::<_, Int32Type>(|n| n * 3));
            Ok(output)
        }),
    });
    session.execute(NUMBERS).expect("declares");
    let batches = session.execute("SELECT triple(n) FROM numbers WHERE n < 4").expect("runs");
    assert_eq!(ints(&batches), [3, 6, 9]);
}

#[test]
fn a_panic_in_user_code_becomes_an_error() {
    let mut session = Session::default();
    session.register_function(ScalarFunction {
        name: "EXPLODE".to_owned(),
        arguments: vec![DataType::Int],
        result: DataType::Int.nullable(),
        deterministic: false,
        function: Arc::new(|_arguments, _rows| panic!("as asked")),
    });
    session.execute(NUMBERS).expect("declares");
    let error = session.execute("SELECT explode(n) FROM numbers").expect_err("panics");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.message().contains("as asked"), "{error}");
    assert!(error.operator().is_some(), "{error}");
}

/// A thread for each task.
struct Threads;

impl Executor for Threads {
    fn execute(&self, task: Task) {
        std::thread::Builder::new().name("outside".to_owned()).spawn(task).expect("starts");
    }
    fn description(&self) -> String {
        "threads of a test".to_owned()
    }
}

/// A function of one INT with an executor.
fn outside(
    name: &str,
    function: impl Fn(i32) -> i32 + Send + Sync + 'static,
) -> (Arc<Threads>, ScalarFunction) {
    let function = ScalarFunction {
        name: name.to_owned(),
        arguments: vec![DataType::Null],
        result: DataType::Int.nullable(),
        deterministic: true,
        function: Arc::new(move |arguments, _rows| {
            let input = arguments[0].as_primitive::<Int32Type>();
            let output: ArrayRef = Arc::new(input.unary::<_, Int32Type>(&function));
            Ok(output)
        }),
    };
    (Arc::new(Threads), function)
}

#[test]
fn a_function_with_an_executor_is_never_called_by_a_worker() {
    let mut session = Session::default();
    let (threads, function) = outside("TRIPLE", |n| {
        assert_eq!(std::thread::current().name(), Some("outside"));
        n * 3
    });
    session.register_function_on(threads, function);
    session.execute(NUMBERS).expect("declares");
    let query = "SELECT triple(n) AS m FROM numbers WHERE n + 1 < 5 AND triple(n) > 3";
    assert_eq!(ints(&session.execute(query).expect("runs")), [6, 9]);
    let grouped = "SELECT CAST(SUM(triple(n)) AS INT) FROM numbers GROUP BY triple(n) > 0";
    let grouped = format!("SET 'execution.runtime-mode' = 'batch'; {grouped}");
    assert_eq!(ints(&session.execute(&grouped).expect("runs")), [15_150]);
    let plan = session.execute(&format!("EXPLAIN {query}")).expect("explains");
    let plan = plan[0].column(0).as_string_view().value(0).to_owned();
    assert!(plan.contains("runs in: threads of a test"), "{plan}");
}

#[test]
fn a_panic_on_another_thread_becomes_an_error() {
    let mut session = Session::default();
    let (threads, function) = outside("EXPLODE", |_| panic!("as asked"));
    session.register_function_on(threads, function);
    session.execute(NUMBERS).expect("declares");
    let error = session.execute("SELECT explode(n) FROM numbers").expect_err("panics");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.message().contains("as asked"), "{error}");
}

#[test]
fn what_a_fork_declares_does_not_show_in_its_session() {
    let mut session = Session::default();
    session.execute(NUMBERS).expect("declares");
    let mut fork = session.fork();
    fork.execute("CREATE VIEW few AS SELECT n FROM numbers WHERE n < 3").expect("declares");
    assert_eq!(ints(&fork.execute("SELECT n FROM few").expect("runs")), [1, 2]);
    session.execute("SELECT n FROM few").expect_err("there is no such view");
}

#[test]
fn a_query_is_described_without_running_it() {
    let mut session = Session::default();
    session.execute(NUMBERS).expect("declares");
    let (table, is_bounded) = session.describe_query("SELECT n FROM numbers").expect("plans");
    assert!(is_bounded && !table.has_updates);
    let counted = "SELECT n, COUNT(*) AS c FROM numbers GROUP BY n";
    let (table, _) = session.describe_query(counted).expect("plans");
    assert!(table.has_updates);
    assert_eq!(table.schema.columns[1].name, "c");
    session.describe_query("SHOW TABLES").expect_err("it is no query");
}

/// The product of all values.
struct Product;

struct ProductState(i64);

impl UserAggregate for Product {
    fn name(&self) -> &str {
        "PRODUCT"
    }
    fn result_type(&self, argument: &ColumnType) -> Result<DataType> {
        match argument.data_type {
            DataType::Int => Ok(DataType::BigInt),
            _ => Err(Error::plan("PRODUCT takes an INT")),
        }
    }
    fn create(&self) -> Box<dyn UserAccumulator> {
        Box::new(ProductState(1))
    }
}

impl UserAccumulator for ProductState {
    fn accumulate(&mut self, values: &ArrayRef) -> Result<()> {
        let values = values.as_primitive::<Int32Type>();
        self.0 *= values.iter().flatten().map(i64::from).product::<i64>();
        Ok(())
    }
    fn merge(&mut self, other: &dyn UserAccumulator) -> Result<()> {
        let other = (other as &dyn Any).downcast_ref::<ProductState>();
        self.0 *= other.expect("states of one function").0;
        Ok(())
    }
    fn result(&self) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(vec![self.0])))
    }
}

#[test]
fn an_aggregate_function_of_the_users_is_called_from_sql() {
    let mut session = Session::default();
    session.register_aggregate(Arc::new(Product));
    session.execute(NUMBERS).expect("declares");
    let batches = session
        .execute(
            "SELECT PRODUCT(n) AS product
             FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '5' SECOND))
             WHERE n < 10 GROUP BY window_start, window_end",
        )
        .expect("runs");
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>());
    let mut products: Vec<i64> = columns.flat_map(|column| column.values().to_vec()).collect();
    products.sort_unstable();
    assert_eq!(products, [2 * 3 * 4, 5 * 6 * 7 * 8 * 9]);
}

/// An aggregate that a scalar function computes from the values of a group.
struct OverValues;

impl UserAggregate for OverValues {
    fn name(&self) -> &str {
        "MIDDLE"
    }
    fn result_type(&self, _: &ColumnType) -> Result<DataType> {
        Ok(DataType::Int)
    }
    fn create(&self) -> Box<dyn UserAccumulator> {
        unreachable!("the function takes its place")
    }
    fn over_values(&self) -> Option<&str> {
        Some("MIDDLE_OF")
    }
}

/// A session with MIDDLE, computed by MIDDLE_OF.
fn with_middle() -> Session {
    let mut session = Session::default();
    session.register_function(ScalarFunction {
        name: "MIDDLE_OF".to_owned(),
        arguments: vec![DataType::Null],
        result: DataType::Int.nullable(),
        deterministic: true,
        function: Arc::new(|arguments, _rows| {
            let groups = arguments[0].as_list::<i32>().iter();
            let middle = groups.map(|values| {
                let mut values = values?.as_primitive::<Int32Type>().values().to_vec();
                values.sort_unstable();
                values.get(values.len() / 2).copied()
            });
            Ok(Arc::new(middle.collect::<arrow_array::Int32Array>()) as ArrayRef)
        }),
    });
    session.register_aggregate(Arc::new(OverValues));
    session.execute(NUMBERS).expect("declares");
    session
}

#[test]
fn an_aggregate_over_values_takes_distinct_filter_and_windows() {
    let mut session = with_middle();
    let query = "SELECT MIDDLE(DISTINCT n) FILTER (WHERE n > 3) + 1 AS m
         FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '5' SECOND))
         WHERE n < 10 GROUP BY window_start, window_end";
    let mut middles = ints(&session.execute(query).expect("runs"));
    middles.sort_unstable();
    assert_eq!(middles, [5, 8]);
    let error = session.execute("SELECT MIDDLE(n) OVER (ORDER BY ts) FROM numbers");
    error.expect_err("it is no aggregate over rows before");
}

#[test]
fn a_registered_function_that_returns_an_array_is_a_table_function() {
    let mut session = Session::default();
    session.register_function(ScalarFunction {
        name: "TWO_OF".to_owned(),
        arguments: vec![DataType::Int],
        result: DataType::Array(Box::new(DataType::Int.nullable())).nullable(),
        deterministic: true,
        function: Arc::new(|arguments, _rows| {
            let mut lists =
                arrow_array::builder::ListBuilder::new(arrow_array::builder::Int32Builder::new());
            for n in arguments[0].as_primitive::<Int32Type>().iter() {
                lists.append_value(n.into_iter().flat_map(|n| [Some(n), Some(-n)]));
            }
            Ok(Arc::new(lists.finish()) as ArrayRef)
        }),
    });
    session.execute(NUMBERS).expect("declares");
    for call in ["CROSS JOIN LATERAL TABLE(two_of(n))", ", LATERAL TABLE(two_of(n))"] {
        let query = format!("SELECT m FROM numbers {call} AS t (m) WHERE n < 3");
        assert_eq!(ints(&session.execute(&query).expect("runs")), [-2, -1, 1, 2], "{call}");
    }
    let error = session.execute("SELECT * FROM numbers, LATERAL TABLE(nothing(n))");
    assert!(error.expect_err("no function").to_string().contains("NOTHING"));
}

#[test]
fn the_condition_of_a_join_calls_functions_with_an_executor_behind_it() {
    let mut session = Session::default();
    let (threads, function) = outside("NEGATED", |n| {
        assert_eq!(std::thread::current().name(), Some("outside"));
        -n
    });
    session.register_function_on(threads, function);
    session.execute(NUMBERS).expect("declares");
    session.execute("CREATE VIEW few AS SELECT n FROM numbers WHERE n < 4").expect("declares");
    let mut joined = ints(
        &session
            .execute("SELECT a.n FROM few a JOIN few b ON a.n = b.n AND negated(a.n) < b.n - 3")
            .expect("runs"),
    );
    joined.sort_unstable();
    assert_eq!(joined, [2, 3]);
    let error = session
        .execute("SELECT a.n FROM few a LEFT JOIN few b ON a.n = b.n AND negated(a.n) < b.n - 3")
        .expect_err("it decides which rows are padded");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// Counts what it is notified of.
#[derive(Default)]
struct Counter {
    jobs: Vec<JobDescription>,
    reports: Vec<Report>,
    stop_after: usize,
}

impl Observer for Counter {
    fn result(&mut self, _: &ResultTable, _: chrono_tz::Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(thalweg::pipeline::Collect::new().sink()))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
    fn ended(&mut self, job: &JobDescription, result: &Result<Report>) {
        self.jobs.push(job.clone());
        self.reports.extend(result.clone());
    }
    fn is_stopped(&self) -> bool {
        self.jobs.len() >= self.stop_after
    }
}

#[test]
fn an_observer_sees_every_job_and_can_stop_the_script() {
    let options = SessionOptions {
        settings: vec![("pipeline.name".to_owned(), "three".to_owned())],
        workers: Some(2),
        row_limit: Some(10),
        ..SessionOptions::default()
    };
    let mut session = Session::new(options).expect("valid options");
    let mut counter = Counter { stop_after: 2, ..Counter::default() };
    let select = "SELECT n FROM numbers;";
    let script = format!("{NUMBERS} {select} {select} {select}");
    let report = session.run_script(&script, &mut counter).expect("runs");
    assert_eq!(report.jobs.len(), 2, "the third is not begun");
    assert_eq!(counter.jobs[0].name, "three");
    assert_eq!((counter.jobs[0].workers, counter.jobs[0].is_bounded), (2, true));
    assert!(counter.reports.iter().all(|report| !report.cancelled), "limited, not cancelled");
}

/// An input that gives its row once others have been asked as well, and then ends or fails.
struct Meeting {
    own: usize,
    asked: Arc<[AtomicBool; 2]>,
    waker: Option<Waker>,
    has_met: bool,
}

impl Source for Meeting {
    fn name(&self) -> String {
        format!("meeting {}", self.own)
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        self.asked[self.own].store(true, Ordering::SeqCst);
        if self.has_met {
            return Ok(SourcePoll::End);
        }
        if !self.asked.iter().all(|asked| asked.load(Ordering::SeqCst)) {
            let waker = self.waker.clone().expect("started");
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                waker();
            });
            return Ok(SourcePoll::Pending);
        }
        self.has_met = true;
        Ok(SourcePoll::Batch(SourceBatch::new(levels(vec![Some(1)]))))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// A session with two inputs that wait for each other, and what reads them.
fn meeting(options: SessionOptions, statements: &str) -> (Session, String) {
    let mut session = Session::new(options).expect("valid options");
    let asked: Arc<[AtomicBool; 2]> = Arc::default();
    for own in 0..2 {
        let asked = Arc::clone(&asked);
        session.register_source(&format!("m{own}"), move || {
            Ok(Box::new(Meeting { own, asked: Arc::clone(&asked), waker: None, has_met: false }))
        });
    }
    let input = |n: usize| {
        format!(
            "CREATE TABLE m{n} (level BIGINT) WITH ('connector' = 'registered', 'source' = 'm{n}');\n"
        )
    };
    let sink = "CREATE TABLE nowhere (level BIGINT) WITH ('connector' = 'blackhole');\n";
    (session, format!("{}{}{sink}{statements}", input(0), input(1)))
}

#[test]
fn inserts_and_a_query_run_at_the_same_time() {
    let statements = "INSERT INTO nowhere SELECT level FROM m0; SELECT level FROM m1;";
    let (mut session, script) = meeting(SessionOptions::default(), statements);
    let batches = session.execute(&script).expect("none waits for the end of the other");
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}

/// Collects what it is notified of.
#[derive(Default)]
struct Endings {
    ended: Vec<(usize, bool)>,
    failed: Vec<String>,
}

impl Observer for Endings {
    fn result(&mut self, _: &ResultTable, _: chrono_tz::Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(thalweg::pipeline::Collect::new().sink()))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
    fn ended(&mut self, job: &JobDescription, result: &Result<Report>) {
        self.ended.push((job.place, result.as_ref().is_ok_and(|report| !report.cancelled)));
    }
    fn failed(&mut self, error: &Error) {
        self.failed.push(error.to_string());
    }
}

#[test]
fn a_failure_is_returned_and_the_observer_is_notified_of_all() {
    for keep_going in [false, true] {
        let statements = "INSERT INTO nowhere SELECT level / (level - 1) FROM m0;
            INSERT INTO nowhere SELECT level / (level - 1) FROM m1;
            CREATE TABLE ever (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10'
              ENDS);
            INSERT INTO nowhere SELECT n FROM ever;"
            .replace("ENDS", if keep_going { ", 'number-of-rows' = '5'" } else { "" });
        let options = SessionOptions {
            keep_going,
            settings: vec![("pipeline.name".to_owned(), "three".to_owned())],
            ..SessionOptions::default()
        };
        let (mut session, script) = meeting(options, &statements);
        let mut endings = Endings::default();
        let error = session.run_script(&script, &mut endings).expect_err("it divides by zero");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("job three"), "{error}");
        assert!(error.span().is_some(), "it points at the statement");
        assert_eq!(endings.failed[0], error.to_string(), "the first one is returned");
        let mut places: Vec<usize> = endings.ended.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2], "each has ended once");
        assert!(endings.ended.contains(&(2, keep_going)), "stopped, or done");
        if keep_going {
            assert_eq!(endings.failed.len(), 2, "{:?}", endings.failed);
        }
    }
}

fn levels(values: Vec<Option<i64>>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    RecordBatch::try_from_iter_with_nullable([("level", column, true)]).expect("one column")
}

/// A session whose source 'sensor' gives these batches, and a table that reads it.
fn with_sensor(batch: RecordBatch, columns: &str, source: &str) -> Result<Vec<RecordBatch>> {
    let mut session = Session::default();
    let schema = TableSchema::new(vec![Column::new("level", DataType::BigInt.nullable())]);
    session.register_source("sensor", move || {
        Ok(Box::new(MemorySource::new(schema.clone(), vec![batch.clone()])))
    });
    session.execute(&format!(
        "CREATE TABLE levels ({columns}) WITH ('connector' = 'registered', 'source' = '{source}');
         SELECT level FROM levels WHERE level > 8;"
    ))
}

#[test]
fn a_table_reads_from_a_source_of_the_programs() {
    let levels = levels(vec![Some(7), Some(9), None]);
    let batches = with_sensor(levels, "level BIGINT", "sensor").expect("runs");
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().values(), &[9]);
}

#[test]
fn a_registered_source_is_held_to_the_declaration() {
    let refused = |values, columns, source| {
        let error = with_sensor(levels(values), columns, source).expect_err("it does not fit");
        (error.kind(), error.to_string(), error.help().unwrap_or_default().to_owned())
    };
    let (kind, text, _) = refused(vec![Some(9)], "level INT", "sensor");
    assert_eq!(kind, ErrorKind::Data);
    assert!(text.contains("levels") && text.contains("Int32"), "{text}");
    let (kind, text, _) = refused(vec![None], "level BIGINT NOT NULL", "sensor");
    assert_eq!(kind, ErrorKind::Data);
    assert!(text.contains("'level', which is NOT NULL"), "{text}");
    let (kind, text, help) = refused(vec![Some(9)], "level BIGINT", "senzor");
    assert_eq!(kind, ErrorKind::Plan);
    assert!(text.contains("senzor") && help.contains("sensor"), "{text} {help}");
    let mut session = Session::default();
    let error = session.execute(
        "CREATE TABLE levels (level BIGINT) WITH ('connector' = 'registered', 'source' = 'sensor');
         INSERT INTO levels VALUES (1);",
    );
    assert_eq!(error.expect_err("it only gives rows").kind(), ErrorKind::Plan);
}

/// An input that cannot be read.
struct Refusing;

impl Source for Refusing {
    fn name(&self) -> String {
        "refusing".to_owned()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Err(Error::io("the sensor does not answer"))
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        Err(Error::internal("it was never started"))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// A source that refused in `start` did so after the outputs of an earlier run were replaced.
#[test]
fn a_source_that_refuses_to_start_leaves_every_output_as_it_was() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session-refusing-source");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let output = folder.join("levels.csv");
    std::fs::write(&output, "the rows of an earlier run\n").expect("written");
    let mut session = workspace::session(&folder);
    session.register_source("sensor", || Ok(Box::new(Refusing)));
    let error = session.execute(
        "CREATE TABLE levels (level BIGINT) WITH ('connector' = 'registered', 'source' = 'sensor');
         CREATE TABLE kept (level BIGINT)
           WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'levels.csv');
         INSERT INTO kept SELECT level FROM levels;",
    );
    let error = error.expect_err("the input cannot be read");
    assert!(error.to_string().contains("does not answer"), "{error}");
    let names = std::fs::read_dir(&folder).expect("readable");
    let names: Vec<_> = names.map(|entry| entry.expect("readable").file_name()).collect();
    assert_eq!(names, ["levels.csv"], "nothing was begun");
    assert_eq!(std::fs::read_to_string(&output).expect("readable"), "the rows of an earlier run\n");
}
