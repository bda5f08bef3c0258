//! The planner's front: statements in, physical plans and rows of text out.
//!
//! A [`Planner`] holds what a session has declared: catalog, settings, user functions. It plans; it
//! never runs anything, and opens connectors only for plans that will run (not for EXPLAIN).
//!
//! ```text
//! CREATE, ALTER, DROP, USE, SET,
//! SHOW, DESCRIBE                    ──▶ execute_ddl ──▶ the catalog changes, or rows of text
//! INSERT, statement set             ──▶ plan_insert ──▶ PhysicalPlan with table sinks
//! SELECT                            ──▶ plan_select ──▶ PhysicalPlan with the caller's sink
//! EXPLAIN                           ──▶ explain     ──▶ text, from the same plan as a dry run
//! COMPILE PLAN, EXECUTE PLAN        ──▶ compile_plan, executed_plan ──▶ a file, or INSERTs to plan
//! ```
//!
//! **Invariants:**
//! - each call binds with a [`Binder`] of its own, so a plan depends on the catalog and the
//!   settings of that moment and on nothing that earlier calls have bound;
//! - planning does not change the planner. Only DDL, SET and registrations do, and a failed one
//!   changes nothing;
//! - EXPLAIN takes the way of the statement that it explains, so it reports the same errors, except
//!   those that opening would find.

mod plan_files;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_core::connector::{Access, Connector, Connectors, TableRequest};
use thalweg_core::inlets::RowInlets;
use thalweg_core::shim::SharedClock;
use thalweg_core::{Error, Result, Sink, TableSchema};
use thalweg_expr::{Executor, Expr, FunctionRegistry, ScalarFunction, Session, build};
use thalweg_operators::aggregate::{self, UserAggregate};

use crate::ast::{
    CreateTable, Declaration, Explained, Insert, ListFilter, Name, Query, Show, Statement,
    StatementKind,
};
use crate::bind::composed_aggregates::COMPOSED_AGGREGATES;
use crate::bind::condition::check_condition;
use crate::bind::functions::OVER_ROWS;
use crate::bind::insert::check_result;
use crate::bind::{Binder, UserAggregates};
use crate::catalog::{self, Catalog, RuntimeMode, Settings, TextRows};
use crate::explain::graphviz::graphviz;
use crate::explain::{ExplainFormat, explain, explain_with};
use crate::logical::Node;
use crate::logical::changes::NodeChanges;
use crate::physical::{self, LateData, PhysicalPlan, Places, PlanEnvironment, PlanOutput, Target};
use crate::processes::{ProcessTable, ProcessTables};
use crate::resolved_table::ResolvedTable;

pub use plan_files::{ExecutedPlan, PlanFile};

/// The result of a SELECT, before it runs.
#[derive(Clone, Debug)]
pub struct ResultTable {
    /// Its columns.
    pub schema: TableSchema,
    /// True if rows are updated or retracted later: each then comes with its kind.
    pub has_updates: bool,
}

/// What a statement computes, the table that it writes, and where its query stands.
pub(crate) type BoundStatement = (Node, Option<Arc<ResolvedTable>>, thalweg_core::Span);

/// Makes the sink of a SELECT, once it is known what its result is like.
pub type MakeSink<'a> = &'a mut dyn FnMut(&ResultTable) -> Result<Box<dyn Sink>>;

/// What a planner is given once.
#[derive(Clone)]
pub struct PlannerOptions {
    /// The folder that relative paths start from.
    pub base_dir: PathBuf,
    /// No file outside these folders is touched.
    pub allowed_roots: Vec<PathBuf>,
    /// The folder of secrets, which no statement changes; else `secrets.file` names a file.
    pub secrets_folder: Option<PathBuf>,
    /// Whoever writes the statements need not be whoever runs the program.
    pub is_remote: bool,
    /// Where the sources of its jobs take rows from the process itself.
    pub inlets: Option<RowInlets>,
    /// How many workers run jobs; sources decode on as many threads.
    pub workers: usize,
    /// The clock of jobs.
    pub clock: SharedClock,
}

/// Plans the statements of a session.
#[derive(Clone)]
pub struct Planner {
    connectors: Arc<Connectors>,
    memory_limit_bytes: usize,
    /// As the settings say.
    access: Access,
    options: PlannerOptions,
    catalog: Catalog,
    functions: Arc<FunctionRegistry>,
    aggregates: UserAggregates,
    processes: ProcessTables,
    /// The compiled plans that a rehearsal would have written.
    noted_plans: BTreeMap<PathBuf, String>,
}

impl Planner {
    /// A planner with an empty catalog and default settings.
    pub fn new(connectors: Connectors, options: PlannerOptions) -> Self {
        let mut planner = Planner {
            connectors: Arc::new(connectors),
            memory_limit_bytes: usize::MAX,
            access: Access::default(),
            options,
            catalog: Catalog::new(),
            functions: Arc::default(),
            aggregates: UserAggregates::new(),
            processes: ProcessTables::new(),
            noted_plans: BTreeMap::new(),
        };
        planner.find_access();
        planner
    }

    /// A planner with the same declarations; what is declared in one does not show in the other.
    /// Registered scalar functions are the exception: the registry is shared.
    #[must_use]
    pub fn fork(&self) -> Planner {
        self.clone()
    }

    /// Makes a connector known, in place of any of the same name.
    pub fn register_connector(&mut self, connector: Arc<dyn Connector>) {
        Arc::make_mut(&mut self.connectors).add(connector);
    }

    /// The connectors that tables can name.
    pub fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    /// What jobs may keep in memory.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory_limit_bytes = bytes;
    }

    /// The folder that relative paths start from.
    pub(crate) fn base_dir(&self) -> &std::path::Path {
        &self.options.base_dir
    }

    /// A query as it is bound: what it means, before anything is lowered.
    pub(crate) fn bound_query(&self, query: &Query) -> Result<Node> {
        let session = self.session();
        self.binder(&session).bind_statement_query(query)
    }

    /// INSERTs as they are bound, each with the table that it writes and its place.
    pub(crate) fn bound_inserts(&self, inserts: &[Insert]) -> Result<Vec<BoundStatement>> {
        let session = self.session();
        let binder = self.binder(&session);
        let bind = |insert: &Insert| {
            let bound = binder.bind_insert(insert)?;
            Ok((bound.node, Some(bound.table), insert.query.span))
        };
        inserts.iter().map(bind).collect()
    }

    /// Makes a scalar function known, in place of any of the same name.
    pub fn register_function(&mut self, function: ScalarFunction) {
        self.functions.register(function);
    }

    /// Makes a scalar function known that runs on threads of its own, in place of any of the same
    /// name.
    pub fn register_function_on(&mut self, executor: Arc<dyn Executor>, function: ScalarFunction) {
        self.functions.register_on(executor, function);
    }

    /// Makes an aggregate function known, in place of any of the same name.
    pub fn register_aggregate(&mut self, aggregate: Arc<dyn UserAggregate>) {
        self.aggregates.insert(aggregate.name().to_uppercase(), aggregate);
    }

    /// Gives a name to a relation that a process function makes, in place of any of the same name.
    /// Tables and views of that name hide it.
    pub fn register_process(&mut self, name: &str, process: Arc<dyn ProcessTable>) {
        self.processes.insert(name.to_owned(), process);
    }

    /// `SET 'key' = 'value'`. Returns a note where the key is accepted but changes nothing.
    pub fn set(&mut self, key: &str, value: &str) -> Result<Option<String>> {
        let note = self.catalog.settings_mut().set(key, value)?;
        self.find_access();
        Ok(note)
    }

    /// What tables may get at follows from the settings.
    fn find_access(&mut self) {
        let PlannerOptions { base_dir, allowed_roots, .. } = &self.options;
        self.access = self.catalog.settings().access(base_dir, allowed_roots);
        self.access.secrets.folder.clone_from(&self.options.secrets_folder);
        self.access.is_remote = self.options.is_remote;
        self.access.inlets.clone_from(&self.options.inlets);
    }

    /// What tables, and snapshots, may get at beyond files.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        self.catalog.settings()
    }

    /// What has been declared.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What was accepted but changes nothing, since this was last asked.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.catalog.take_notes()
    }

    /// The session's time zone.
    pub fn zone(&self) -> chrono_tz::Tz {
        self.catalog.settings().zone()
    }

    /// How long state is kept, where a setting says so.
    pub(crate) fn state_ttl_ms(&self) -> Option<i64> {
        self.catalog.settings().state_ttl_ms()
    }

    fn binder<'a>(&'a self, session: &'a Session) -> Binder<'a> {
        Binder::new(&self.catalog, session, &self.aggregates)
            .with_processes(&self.processes)
            .over(self.places())
    }

    fn places(&self) -> Places<'_> {
        Places {
            connectors: &self.connectors,
            base_dir: &self.options.base_dir,
            allowed_roots: &self.options.allowed_roots,
            zone: self.zone(),
            access: &self.access,
            memory_limit_bytes: self.memory_limit_bytes,
        }
    }

    fn session(&self) -> Session {
        Session { zone: self.zone(), functions: self.functions.clone() }
    }

    /// Executes CREATE, DROP, SET, RESET, SHOW and DESCRIBE. Those that show something return it.
    /// Tables and views are bound when they are created, so that mistakes show there. COMPILE PLAN
    /// and EXECUTE PLAN are rehearsed, and statements about jobs do nothing here.
    pub fn execute_ddl(&mut self, statement: &Statement) -> Result<Option<TextRows>> {
        let session = self.session();
        let binder = self.binder(&session);
        let mut completed = None;
        match &statement.kind {
            StatementKind::CreateTable(table) => {
                let table = self.completed(&binder, table)?;
                binder.resolve_table(&table)?;
                let kind = StatementKind::CreateTable(table);
                completed = Some(Statement { kind, span: statement.span });
            }
            StatementKind::CreateView { query, columns, name, .. } => {
                binder.check_view(name, columns, query)?;
            }
            StatementKind::Declare(declaration) => {
                self.check_altered(&binder, declaration)?;
                self.check_jar(declaration)?;
            }
            StatementKind::CompilePlan(compile) => {
                self.note_plan(compile)?;
                return Ok(None);
            }
            StatementKind::ExecutePlan(_) => {
                self.executed_plan(statement)?;
                return Ok(None);
            }
            StatementKind::Jobs(_) => return Ok(None),
            StatementKind::Show(Show::Columns(filter)) => {
                return self.show_columns(&binder, filter).map(Some);
            }
            StatementKind::Show(show) => {
                let functions = self.function_names();
                return self.catalog.show(show, &functions, &self.connectors).map(Some);
            }
            StatementKind::Describe(name) => return self.describe(&binder, name).map(Some),
            StatementKind::Drop { .. } | StatementKind::Set { .. } | StatementKind::Reset(_) => {}
            _ => return Err(Error::internal("this statement is no declaration")),
        }
        self.catalog.apply(completed.as_ref().unwrap_or(statement))?;
        self.find_access();
        Ok(None)
    }

    /// A definition with all that LIKE and AS give it.
    fn completed(&self, binder: &Binder<'_>, table: &CreateTable) -> Result<CreateTable> {
        let node = match &table.as_query {
            Some(clause) => Some(binder.bind_result(&clause.query)?),
            None => None,
        };
        self.catalog.completed(table, node.as_ref().map(|node| &node.fields[..]))
    }

    /// Binds what ALTER makes of a table or a view, so that mistakes show before anything changes.
    fn check_altered(&self, binder: &Binder<'_>, declaration: &Declaration) -> Result<()> {
        if let Some(table) = self.catalog.altered_table(declaration)? {
            binder.resolve_table(&table)?;
        }
        if let Some(view) = self.catalog.altered_view(declaration)? {
            binder.check_view(&view.name, &view.columns, &view.query)?;
        }
        Ok(())
    }

    /// `SHOW COLUMNS FROM table`
    fn show_columns(&self, binder: &Binder<'_>, filter: &ListFilter) -> Result<TextRows> {
        let Some(name) = &filter.of else {
            return Err(Error::internal("SHOW COLUMNS of no table"));
        };
        let mut described = self.describe(binder, name)?;
        described.rows.retain(|row| row.first().is_some_and(|name| filter.lets_pass(name)));
        Ok(described)
    }

    /// Checks the options of a table as a statement that reads or writes it would.
    ///
    /// # Errors
    /// If it can be neither read nor written: what stands in the way of the one that is more nearly
    /// right.
    pub fn check_table(&self, definition: &CreateTable) -> Result<()> {
        let session = self.session();
        let declared = self.catalog.table(&self.catalog.key(&definition.name.text));
        let table = self.binder(&session).resolve_table(declared.unwrap_or(definition))?;
        let request = self.places().request(&table, 1);
        let check = |as_sink: bool| {
            let request = TableRequest {
                metadata: if as_sink { table.written_metadata() } else { table.metadata() },
                ..request.clone()
            };
            self.connectors.validate(&request, as_sink).map_err(|e| table.spans.locate(e))
        };
        let Err(reading) = check(false) else { return Ok(()) };
        let Err(writing) = check(true) else { return Ok(()) };
        let error = if reading.span().is_none() { writing } else { reading };
        Err(error.at(table.spans.name))
    }

    /// The names of all functions, in order.
    pub(crate) fn function_names(&self) -> Vec<String> {
        let builtin = build::function_names().into_iter();
        let builtin = builtin
            .chain(aggregate::names())
            .chain(OVER_ROWS.iter().copied())
            .chain(COMPOSED_AGGREGATES);
        let mut names: Vec<String> = builtin.map(str::to_string).collect();
        names.extend(self.functions.names());
        names.extend(self.aggregates.keys().cloned());
        names.sort();
        names.dedup();
        names
    }

    /// What DESCRIBE answers.
    pub(crate) fn columns_of(&self, name: &Name) -> Result<TextRows> {
        let session = self.session();
        self.describe(&self.binder(&session), name)
    }

    fn describe(&self, binder: &Binder<'_>, name: &Name) -> Result<TextRows> {
        if let Some(definition) = self.catalog.table(&self.catalog.key(&name.text)) {
            let table = binder.resolve_table(definition)?;
            let computed = |column: &str| {
                let found = table.columns.iter().find(|c| c.column.name == column);
                found.map(|c| c.column.column_type.clone())
            };
            return Ok(catalog::describe_table(definition, &computed));
        }
        Ok(catalog::describe_schema(&binder.relation(name)?.schema()))
    }

    /// The plan of one INSERT, or of the INSERTs of a statement set, as one job.
    pub fn plan_insert(&self, inserts: &[Insert]) -> Result<PhysicalPlan> {
        self.lower_inserts(inserts, false)
    }

    fn lower_inserts(&self, inserts: &[Insert], dry_run: bool) -> Result<PhysicalPlan> {
        let session = self.session();
        let binder = self.binder(&session);
        let mut outputs = Vec::with_capacity(inserts.len());
        for insert in inserts {
            let bound = binder.bind_insert(insert).map_err(|e| e.at(insert.table.span))?;
            let target = Target::Table(bound.table);
            outputs.push(PlanOutput { node: bound.node, target, span: insert.table.span });
        }
        physical::lower(outputs, &self.environment(&binder, &session, dry_run)?)
    }

    /// The plan of a SELECT. `make_sink` is called once.
    /// It is called before the plan is lowered, so an error of lowering drops the sink unused.
    pub fn plan_select(&self, query: &Query, make_sink: MakeSink<'_>) -> Result<PhysicalPlan> {
        self.lower_select(query, make_sink, false)
    }

    fn lower_select(
        &self,
        query: &Query,
        make_sink: MakeSink<'_>,
        dry_run: bool,
    ) -> Result<PhysicalPlan> {
        let session = self.session();
        let binder = self.binder(&session);
        let node = binder.bind_result(query)?;
        let environment = self.environment(&binder, &session, dry_run)?;
        // What a query prints has been seen, and can't be retracted.
        // So a SELECT takes no snapshots, whatever the settings say.
        let environment = PlanEnvironment { takes_snapshots: false, ..environment };
        let has_updates =
            NodeChanges::of(std::slice::from_ref(&node), self.settings().runtime_mode())
                .map_err(|e| e.at(query.span))?
                .has_updates(&node);
        let sink = make_sink(&ResultTable { schema: node.schema(), has_updates })?;
        let node = check_result(node);
        let output = PlanOutput { node, target: Target::Given(sink), span: query.span };
        physical::lower(vec![output], &environment).map_err(|e| e.at(query.span))
    }

    /// How a statement would run, in words. Opens nothing.
    pub fn explain(&self, statement: &Statement) -> Result<String> {
        self.explain_as(statement, ExplainFormat::Text)
    }

    /// What EXPLAIN answers.
    pub fn explain_details(&self, explained: &Explained) -> Result<String> {
        let plan = self.rehearse(&explained.statement)?;
        let text = explain_with(&plan, &self.order_in_words(), explained.details);
        text.map_err(|error| error.at(explained.statement.span))
    }

    /// The plan of an INSERT, statement set or query, of which nothing is opened.
    ///
    /// # Errors
    /// Those of planning; and if the statement is none of these.
    pub fn rehearse(&self, statement: &Statement) -> Result<PhysicalPlan> {
        match &statement.kind {
            StatementKind::Insert(insert) => self.lower_inserts(std::slice::from_ref(insert), true),
            StatementKind::StatementSet(inserts) => self.lower_inserts(inserts, true),
            StatementKind::Select(query) => {
                self.lower_select(query, &mut |_| Ok(physical::no_sink()), true)
            }
            StatementKind::CreateTable(table) if table.as_query.is_some() => {
                let mut planner = self.fork();
                planner.execute_ddl(statement)?;
                let insert = crate::parser::insert_of_table(table);
                planner.lower_inserts(insert.as_slice(), true)
            }
            _ => {
                Err(Error::plan("EXPLAIN takes INSERT, a statement set or a query")
                    .at(statement.span))
            }
        }
    }

    /// How a statement would run. Opens nothing.
    pub fn explain_as(&self, statement: &Statement, format: ExplainFormat) -> Result<String> {
        if let StatementKind::Explain(inner) = &statement.kind {
            return self.explain_as(&inner.statement, format);
        }
        Ok(self.show(&self.rehearse(statement)?, format))
    }

    /// A plan, in words or as a picture.
    pub fn show(&self, plan: &PhysicalPlan, format: ExplainFormat) -> String {
        let order = self.order_in_words();
        match format {
            ExplainFormat::Text => explain(plan, &order),
            ExplainFormat::Graphviz => graphviz(plan, &order),
        }
    }

    /// The contract about order, and what weakens it.
    fn order_in_words(&self) -> String {
        let settings = self.settings();
        let mut order = settings.order().to_string();
        if settings.order().is_ordered() && settings.allows_nondeterministic() {
            order.push_str(" (runs may differ: 'pipeline.order.allow-nondeterministic' is set)");
        }
        order
    }

    /// What the result of a query is like, and whether the query ends by itself. Opens nothing.
    ///
    /// # Errors
    /// Those of planning.
    pub fn describe_select(&self, query: &Query) -> Result<(ResultTable, bool)> {
        let mut described = None;
        let mut make_sink = |table: &ResultTable| {
            described = Some(table.clone());
            Ok(physical::no_sink())
        };
        let is_bounded = self.lower_select(query, &mut make_sink, true)?.is_bounded;
        let table = described.ok_or_else(|| Error::internal("a query has a result"))?;
        Ok((table, is_bounded))
    }

    /// The names and types of a query's result.
    pub fn result_schema(&self, query: &Query) -> Result<TableSchema> {
        let session = self.session();
        let binder = self.binder(&session);
        Ok(binder.bind_result(query)?.schema())
    }

    /// A condition over rows that are no table, as it stands behind WHERE.
    ///
    /// # Errors
    /// If the text is none, or names a column that there is not. It has no place in the text.
    pub fn condition(&self, columns: &TableSchema, text: &str) -> Result<Expr> {
        let session = self.session();
        self.binder(&session).row_condition(columns, text).map_err(wrong_condition)
    }

    /// Whether a text may be such a condition, over whatever columns.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_condition(&self, text: &str) -> Result<()> {
        check_condition(text).map_err(wrong_condition)
    }

    fn environment<'a>(
        &'a self,
        binder: &Binder<'_>,
        session: &'a Session,
        dry_run: bool,
    ) -> Result<PlanEnvironment<'a>> {
        let settings = self.catalog.settings();
        let late = match settings.late_data() {
            catalog::LateData::Drop => LateData::Drop,
            catalog::LateData::Fail => LateData::Fail,
            catalog::LateData::Table(name) => {
                let name = Name { text: name, span: thalweg_core::Span::default() };
                LateData::Table(binder.sink_table(&name).map_err(|e| {
                    Error::plan(format!("'late.data': {}", e.message()))
                        .hint(e.help().unwrap_or("CREATE TABLE it first").to_string())
                })?)
            }
        };
        let skew = settings.max_future_skew();
        let mode = settings.runtime_mode();
        Ok(PlanEnvironment {
            places: self.places(),
            session,
            clock: self.options.clock.clone(),
            parallelism: settings.workers().unwrap_or(self.options.workers),
            late,
            drops_nulls: settings.drops_nulls(),
            mode,
            // All that a result needs is kept, and nobody sees what comes in between.
            // Mini-batches cost nothing in batch mode for the same reason.
            state_ttl_ms: settings.state_ttl_ms().filter(|_| mode == RuntimeMode::Streaming),
            mini_batch: settings.mini_batch() || mode == RuntimeMode::Batch,
            upsert_materialize: settings.upsert_materialize(),
            order: settings.order(),
            allows_nondeterministic: settings.allows_nondeterministic(),
            takes_snapshots: settings.snapshots().is_some(),
            snapshots: settings.snapshots().map(|snapshots| snapshots.location),
            undecided: binder.undecided_functions(),
            max_future_skew_ms: skew.map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
            dry_run,
        })
    }
}

/// Its place is one of a text that nobody has written.
fn wrong_condition(error: Error) -> Error {
    let plain = Error::plan(format!("the condition is wrong: {}", error.message()));
    error.help().into_iter().fold(plain, |plain, help| plain.hint(help))
}
