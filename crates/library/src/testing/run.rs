//! A case, run once for each variant.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_core::connector::Connector;
use thalweg_core::shim::{ManualClock, SharedClock};
use thalweg_core::{Column, Error, OrderContract, Result, RowKind, TableSchema};
use thalweg_expr::{Executor, ScalarFunction, Session as ExprSession, Task};
use thalweg_operators::aggregate::UserAggregate;
use thalweg_plan::Planner;
use thalweg_plan::ast::{Statement, StatementKind};
use thalweg_plan::catalog::{LateData, substitute};
use thalweg_plan::parser::parse_script_with_notes;
use thalweg_plan::physical::PhysicalPlan;
use thalweg_runtime::RunOptions;

use super::cells::{self, FIRST_MS};
use super::compare::{Change, Changes, Comparison, Difference};
use super::job::{JobOfCase, LateRow};
use super::markdown::{Expectation, Expected, SqlPart, TestCase, TestFile, wrong};
use super::places::Places;
use super::record::read_columns;
use crate::session::{Session, SessionOptions, inserts_of, located};

/// What the bare SELECTs of a test are called.
const RESULT: &str = "result";

/// What applies to all cases.
#[derive(Clone, Debug, Default)]
pub struct TestOptions {
    /// What `${NAME}` stands for.
    pub params: BTreeMap<String, String>,
    /// Options that are set before the first statement.
    pub settings: Vec<(String, String)>,
    /// What a program has made known to SQL.
    pub registered: Registered,
}

/// What statements can use besides what comes with the engine.
#[derive(Clone, Default)]
pub struct Registered {
    /// Functions that run on threads of their own outside of tests. Here their stages are the same,
    /// and they run at once: a test has no other threads.
    pub outside_functions: Vec<ScalarFunction>,
    /// Aggregate functions.
    pub aggregates: Vec<Arc<dyn UserAggregate>>,
    /// Connectors, in whose place the test stands as in that of all others.
    pub connectors: Vec<Arc<dyn Connector>>,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let aggregates: Vec<&str> = self.aggregates.iter().map(|own| own.name()).collect();
        let connectors: Vec<&str> =
            self.connectors.iter().map(|own| own.description().name).collect();
        f.debug_struct("Registered")
            .field("outside_functions", &self.outside_functions)
            .field("aggregates", &aggregates)
            .field("connectors", &connectors)
            .finish()
    }
}

/// Runs functions where they are called.
struct AtOnce;

impl Executor for AtOnce {
    fn execute(&self, task: Task) {
        task();
    }
    fn description(&self) -> String {
        "at once".to_owned()
    }
}

/// In which way a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What is promised about the sequence of results.
    pub order: OrderContract,
    /// How many workers there are.
    pub workers: usize,
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.workers == 1 { "" } else { "s" };
        write!(f, "order {}, {} worker{plural}", self.order, self.workers)
    }
}

/// How a case went.
#[derive(Clone, Debug, Default)]
pub struct CaseReport {
    /// The ways in which it ran.
    pub variants: usize,
    /// The contracts in which it cannot run, and why.
    pub left_out: Vec<(OrderContract, String)>,
    /// Where rows differ from those that were expected, and in which variant that was seen first.
    pub differences: Vec<(Variant, Difference)>,
    /// Why the statements could not run, in which variant, and the file and text that it is about.
    pub error: Option<(Variant, Error, String, String)>,
}

impl CaseReport {
    /// True if all was as expected.
    pub fn has_passed(&self) -> bool {
        self.differences.is_empty() && self.error.is_none()
    }
}

impl TestFile {
    /// The text of the file with what came out in the place of what was expected. `None` if nothing
    /// has to change.
    pub fn updated(&self, reports: &[CaseReport]) -> Option<String> {
        let mut tables: Vec<(std::ops::Range<usize>, String)> = Vec::new();
        for (_, difference) in reports.iter().flat_map(|report| &report.differences) {
            let is_known = tables.iter().any(|(lines, _)| *lines == difference.table);
            if !difference.table.is_empty() && !is_known {
                tables.push((difference.table.clone(), difference.text.clone()));
            }
        }
        (!tables.is_empty()).then(|| self.replaced(tables))
    }
}

/// Runs a case in all variants that it can run in, until one differs from what is expected.
pub fn run_case(file: &TestFile, case: &TestCase, options: &TestOptions) -> CaseReport {
    let mut report = CaseReport::default();
    for order in orders(case, options) {
        for workers in [1, 4] {
            let variant = Variant { order, workers };
            let mut run = VariantRun::new(file, case, options, variant);
            match run.run() {
                Ok(differences) => {
                    report.variants += 1;
                    report.differences =
                        differences.into_iter().map(|own| (variant, own)).collect();
                }
                Err(Stop::NotInThisOrder(error)) => {
                    if workers == 1 {
                        report.left_out.push((order, error.message().to_owned()));
                    }
                }
                Err(Stop::Failed(error)) => {
                    let (name, text) = run.source;
                    report.error = Some((variant, error, name, text));
                }
            }
            if !report.has_passed() {
                return report;
            }
        }
    }
    if report.variants == 0 {
        let all = report.left_out.first().map(|(_, why)| why.as_str()).unwrap_or_default();
        let variant = Variant { order: OrderContract::Epoch, workers: 1 };
        let error = wrong(case.line, format!("it runs in no contract about order: {all}"));
        report.error = Some((variant, error, file.name.clone(), file.text.clone()));
    }
    report
}

/// Why a variant does not end.
enum Stop {
    /// The statements are refused in this contract, and not in all.
    NotInThisOrder(Error),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// A case in one variant.
struct VariantRun<'a> {
    file: &'a TestFile,
    case: &'a TestCase,
    options: &'a TestOptions,
    variant: Variant,
    clock: Arc<ManualClock>,
    places: Arc<Places>,
    /// What an error is about: the name and the text of a file.
    source: (String, String),
    /// Late rows so far.
    late: Vec<LateRow>,
    /// The error that is expected, once it has come.
    error: Option<Error>,
    results: usize,
    zone: chrono_tz::Tz,
}

impl<'a> VariantRun<'a> {
    fn new(
        file: &'a TestFile,
        case: &'a TestCase,
        options: &'a TestOptions,
        variant: Variant,
    ) -> Self {
        let clock = Arc::new(ManualClock::starting_at(first_ms(case)));
        let places = Arc::new(Places::new(Arc::clone(&clock), case.inputs.clone()));
        let source = (file.name.clone(), file.text.clone());
        let (late, error, results, zone) = (Vec::new(), None, 0, chrono_tz::Tz::UTC);
        VariantRun {
            file,
            case,
            options,
            variant,
            clock,
            places,
            source,
            late,
            error,
            results,
            zone,
        }
    }

    fn run(&mut self) -> Result<Vec<Difference>, Stop> {
        if self.case.sql.is_empty() {
            return Err(wrong(
                self.case.line,
                format!("the case '{}' has no statements", self.case.name),
            )
            .hint("add a block of code marked `sql`, or a line `sql FILE`")
            .into());
        }
        let mut session = self.session()?;
        for part in &self.case.sql {
            self.source = match part.folder {
                Some(_) => (part.name.clone(), part.text.clone()),
                // A part may use what stands in another one of the same file.
                None => (self.file.name.clone(), self.file.text.clone()),
            };
            if let Err(stop) = self.run_part(&mut session, part) {
                if self.places.has_wrong_rows() {
                    self.source = (self.file.name.clone(), self.file.text.clone());
                }
                match stop {
                    Stop::Failed(error) if self.expects_error() => {
                        self.error = Some(error);
                        break;
                    }
                    other => return Err(other),
                }
            }
        }
        self.source = (self.file.name.clone(), self.file.text.clone());
        Ok(self.differences()?)
    }

    fn expects_error(&self) -> bool {
        let mut expectations = self.case.expectations.iter();
        expectations.any(|expectation| matches!(expectation.what, Expected::Error(_)))
    }

    /// Relative names of files start where the statements are.
    fn session(&self) -> Result<Session> {
        let defaults = SessionOptions::default();
        let of_file = self.case.sql.iter().find_map(|part| part.folder.as_ref());
        let base_dir = defaults.base_dir.join(of_file.unwrap_or(&self.file.folder));
        let mut allowed_roots = defaults.allowed_roots.clone();
        allowed_roots.push(base_dir.clone());
        let settings = self.options.settings.clone();
        let options = SessionOptions { base_dir, allowed_roots, settings, ..defaults };
        let clock = Arc::clone(&self.clock) as SharedClock;
        let mut session = Session::over(options, clock, |own| self.places.wrap(own))?;
        let registered = &self.options.registered;
        for connector in &registered.connectors {
            session.register_connector(self.places.wrap(Arc::clone(connector)));
        }
        for function in &registered.outside_functions {
            session.register_function_on(Arc::new(AtOnce), function.clone());
        }
        for aggregate in &registered.aggregates {
            session.register_aggregate(Arc::clone(aggregate));
        }
        Ok(session)
    }

    fn run_part(&mut self, session: &mut Session, part: &SqlPart) -> Result<(), Stop> {
        let text = substitute(&part.text, &self.options.params)?;
        if part.folder.is_some() {
            self.source.1.clone_from(&text);
        }
        for statement in &parse_script_with_notes(&text)?.statements {
            self.run_statement(session, statement).map_err(|stop| match stop {
                Stop::Failed(error) => Stop::Failed(located(error, statement)),
                other => other,
            })?;
        }
        Ok(())
    }

    fn run_statement(&mut self, session: &mut Session, statement: &Statement) -> Result<(), Stop> {
        let executed = session.planner.executed_plan(statement)?;
        if executed.is_some() {
            // Later statements find the plan, which no test writes.
            session.planner.execute_ddl(statement)?;
        }
        let (mut planner, statement) = match &executed {
            Some(executed) => (executed.planner.fork(), &executed.statement),
            None => (session.planner.fork(), statement),
        };
        let is_job =
            inserts_of(statement).is_some() || matches!(statement.kind, StatementKind::Select(_));
        if !is_job {
            if !matches!(statement.kind, StatementKind::Explain(_)) {
                session.planner.execute_ddl(statement)?;
            }
            return Ok(());
        }
        if !self.is_wanted(session, statement)? {
            return Ok(());
        }
        self.zone = planner.zone();
        self.source_of_test(|places| {
            places.prepare_job(planner.zone(), |table| declared_columns(&planner, table))
        })?;
        planner.set("pipeline.order", &self.variant.order.to_string())?;
        self.results += usize::from(inserts_of(statement).is_none());
        let plan = self.plan(&planner, statement).map_err(|error| self.refused(error))?;
        let workers = self.variant.workers;
        let options = RunOptions { workers, ..session.run_options(&planner)? };
        let timeline = self.source_of_test(|places| places.timeline())?;
        let job = JobOfCase {
            session,
            places: &self.places,
            clock: &self.clock,
            zone: self.zone,
            options,
            seed: workers as u64 - 1,
        };
        let late = job.run(plan, timeline, || self.plan(&planner, statement))?;
        self.late.extend(late);
        Ok(())
    }

    /// An error of the test's own tables is about the test file.
    fn source_of_test<T>(&mut self, ask: impl FnOnce(&Arc<Places>) -> Result<T>) -> Result<T> {
        let asked = ask(&self.places);
        if asked.is_err() {
            self.source = (self.file.name.clone(), self.file.text.clone());
        }
        asked
    }

    /// Only where it is not the first contract that was asked for.
    fn refused(&self, error: Error) -> Stop {
        let is_first = self.variant.order == OrderContract::Epoch || self.case.orders.is_some();
        match error.is_plan_error() && !is_first {
            true => Stop::NotInThisOrder(error),
            false => Stop::Failed(error),
        }
    }

    /// A job whose output nobody looks at does not run.
    fn is_wanted(&self, session: &Session, statement: &Statement) -> Result<bool> {
        let named: Vec<&str> = self.case.expectations.iter().filter_map(table_of).collect();
        if named.is_empty() || named.iter().any(|name| name.starts_with(RESULT)) {
            return Ok(true);
        }
        let Some((inserts, _)) = inserts_of(statement) else { return Ok(false) };
        let late = match session.planner.settings().late_data() {
            LateData::Table(table) => Some(table),
            LateData::Drop | LateData::Fail => None,
        };
        let written = inserts.iter().map(|insert| &insert.table.text).chain(&late);
        Ok(written.into_iter().any(|table| named.contains(&table.as_str())))
    }

    fn plan(&self, planner: &Planner, statement: &Statement) -> Result<PhysicalPlan> {
        if let Some((inserts, _)) = inserts_of(statement) {
            return planner.plan_insert(inserts);
        }
        let StatementKind::Select(query) = &statement.kind else {
            return Err(Error::internal("a job is INSERTs or a query"));
        };
        let name = match self.results {
            1 => RESULT.to_owned(),
            number => format!("{RESULT}-{number}"),
        };
        let places = Arc::clone(&self.places);
        planner.plan_select(query, &mut |table| Ok(places.sink(&name, table.schema.clone(), &[])))
    }

    /// Where what came out differs from what was expected.
    fn differences(&mut self) -> Result<Vec<Difference>> {
        let session = ExprSession { zone: self.zone, ..ExprSession::default() };
        let mut outputs: BTreeMap<String, Changes> = BTreeMap::new();
        for written in self.places.take_outputs() {
            let rows = cells::rows_of(&written.batch, &written.schema, self.zone);
            let changes = outputs.entry(written.table).or_insert_with(|| Changes {
                schema: written.schema,
                primary_key: written.primary_key,
                all: Vec::new(),
            });
            changes.all.extend(rows.into_iter().enumerate().map(|(row, cells)| {
                let kind = written.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[row]);
                Change { kind, at_ms: written.at_ms, cells }
            }));
        }
        let mut differences = Vec::new();
        for expectation in &self.case.expectations {
            differences.extend(self.difference(expectation, &outputs, &session)?);
        }
        Ok(differences)
    }

    fn difference(
        &self,
        expectation: &Expectation,
        outputs: &BTreeMap<String, Changes>,
        session: &ExprSession,
    ) -> Result<Option<Difference>> {
        let nothing = Changes::default();
        let (schema, found, what) = match &expectation.what {
            Expected::Error(wanted) => return Ok(self.error_difference(expectation, wanted)),
            Expected::Rows(table) => {
                let changes = outputs.get(table).unwrap_or(&nothing);
                (changes.schema.clone(), changes.folded(), format!("expect {table}"))
            }
            // How changes of the same row are taken together depends on what comes together.
            Expected::Changes(_) if self.variant.order == OrderContract::Epoch => return Ok(None),
            Expected::Changes(table) => {
                let changes = outputs.get(table).unwrap_or(&nothing);
                (changes.schema.clone(), changes.all.clone(), format!("expect changes of {table}"))
            }
            Expected::Late => {
                let (schema, found) = self.late_rows();
                (schema, found, "expect late".to_owned())
            }
        };
        let is_sequence = matches!(expectation.what, Expected::Changes(_));
        let rows = &expectation.rows;
        // Without rows nothing is known of the columns, and nothing has to be.
        let is_unknown = schema.is_empty();
        let comparison = Comparison { table: rows, schema: &schema, session, is_sequence };
        if let Some(name) = comparison.unknown_column().filter(|_| !is_unknown) {
            let names = schema.columns.iter().map(|column| column.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(wrong(
                rows.lines.start + 1,
                format!("{what}: there is no column '{name}'"),
            )
            .hint(format!("there are {names}")));
        }
        let compared = comparison.compare(&found);
        Ok((!compared.is_equal).then(|| Difference {
            line: expectation.line,
            what,
            diff: compared.diff,
            text: rows.with_rows(&compared.rows),
            rows: compared.rows,
            table: rows.lines.clone(),
        }))
    }

    /// Late rows with the columns of all of them.
    fn late_rows(&self) -> (TableSchema, Vec<Change>) {
        let mut columns: Vec<Column> = Vec::new();
        for column in self.late.iter().flat_map(|row| &row.schema.columns) {
            if !columns.iter().any(|known| known.name == column.name) {
                columns.push(column.clone());
            }
        }
        let schema = TableSchema::new(columns);
        let widened = |row: &LateRow| {
            let place = |column: &Column| row.schema.index_of(&column.name);
            let cell = |column| place(column).and_then(|place| row.change.cells[place].clone());
            let cells = schema.columns.iter().map(cell).collect();
            Change { cells, ..row.change.clone() }
        };
        let rows = self.late.iter().map(widened).collect();
        (schema, rows)
    }

    fn error_difference(&self, expectation: &Expectation, wanted: &str) -> Option<Difference> {
        let found = self.error.as_ref().map(ToString::to_string);
        if found.as_ref().is_some_and(|found| found.contains(wanted)) {
            return None;
        }
        let found = found.unwrap_or_else(|| "no error".to_owned());
        let diff = format!("- {wanted}\n+ {found}\n");
        let (line, what) = (expectation.line, "expect error".to_owned());
        Some(Difference { line, what, diff, rows: Vec::new(), table: 0..0, text: String::new() })
    }
}

/// The table that an expectation is about, if it is one.
fn table_of(expectation: &Expectation) -> Option<&str> {
    match &expectation.what {
        Expected::Rows(table) | Expected::Changes(table) => Some(table),
        Expected::Late | Expected::Error(_) => None,
    }
}

/// When the first row of a test comes.
fn first_ms(case: &TestCase) -> i64 {
    let first = |input: &super::markdown::InputTable| {
        let at = input.rows.header.iter().position(|name| name == "@at" || name == "at")?;
        let text = input.rows.rows.iter().find_map(|row| row.cells[at].clone())?;
        cells::time_ms(&text, FIRST_MS)
    };
    case.inputs.iter().filter_map(first).min().unwrap_or(FIRST_MS)
}

/// The contracts in which a case runs: those that it names, or that its statements and whoever runs
/// it choose; else those that every input can have. `event_time` needs sorted inputs, and waits for
/// each of them.
fn orders(case: &TestCase, options: &TestOptions) -> Vec<OrderContract> {
    if let Some(orders) = &case.orders {
        return orders.clone();
    }
    let is_order = |key: &str| key.eq_ignore_ascii_case("pipeline.order");
    let given = options.settings.iter().filter(|(key, _)| is_order(key));
    let mut chosen: Vec<String> = given.map(|(_, value)| value.clone()).collect();
    for part in &case.sql {
        let script = parse_script_with_notes(&part.text);
        for statement in script.iter().flat_map(|script| &script.statements) {
            match &statement.kind {
                StatementKind::Set { key, value } if is_order(&key.text) => {
                    chosen.push(value.clone());
                }
                _ => {}
            }
        }
    }
    match chosen.last().and_then(|order| order.parse().ok()) {
        Some(order) => vec![order],
        None => vec![OrderContract::Epoch, OrderContract::Arrival],
    }
}

/// The columns of a table that are read from outside, if it is declared.
fn declared_columns(planner: &Planner, table: &str) -> Option<Vec<String>> {
    let catalog = planner.catalog();
    let table = catalog.table(&catalog.key(table))?;
    Some(read_columns(table))
}
