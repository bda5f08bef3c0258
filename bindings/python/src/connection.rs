//! A connection in process: a session of the engine, and queries that run in copies of it.
//!
//! A query is planned when it is made, so that mistakes show at once, and runs each time that its
//! rows are asked for. Tables that come with it by keyword are declared in its copy of the session
//! alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch as Batch;
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyCapsule;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;
use thalweg::jobs::Interface;
use thalweg::session::{
    ExplainFormat, Session, SessionOptions, UserAccumulator, UserAggregate, substitute,
};
use thalweg::testing::Registered;
use thalweg::{DataType, Error, Result, RowKind, TableSchema};
use thalweg_core::quoting::{quoted_name, quoted_text};
use thalweg_plan::ast::StatementKind;
use thalweg_plan::parser::parse_script;

use crate::batch::{RecordBatch, stream_capsule};
use crate::errors;
use crate::functions::PythonFunction;
use crate::jobs::{self, JobStart, RunningJob};
use crate::lanes::Lanes;
use crate::processes::{ProcessRelation, PythonProcess};
use crate::running::{Message, Rows, RunningScript, run};
use crate::sinks::PythonSinks;
use crate::sources::TableRows;
use crate::types::declared;

/// A table as the package hands it over: name, rows, row time, delay in ms, whether it ends.
type GivenTable<'py> = (String, Bound<'py, PyAny>, Option<String>, i64, bool);

/// A column as the package sees it: name, type, whether it can be NULL.
type ColumnText = (String, String, bool);

/// A session of the engine.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Connection {
    session: Mutex<Session>,
    sinks: PythonSinks,
    /// What was registered, for tests, which have sessions of their own.
    registered: Mutex<Registered>,
}

impl Connection {
    /// What statements can use besides what comes with the engine.
    pub fn registered(&self) -> Registered {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, add: impl FnOnce(&mut Registered)) {
        add(&mut self.registered.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn session<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, Session> {
        // Statements of another thread may run under the lock.
        self.session.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the session with these tables.
    fn fork(&self, py: Python<'_>, tables: Vec<GivenTable<'_>>) -> PyResult<Session> {
        let mut session = self.session(py).fork();
        for table in tables {
            declare(&mut session, table)?;
        }
        Ok(session)
    }
}

#[pymethods]
impl Connection {
    #[new]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        roots: Vec<PathBuf>,
        settings: Vec<(String, String)>,
        workers: Option<usize>,
        memory_limit: Option<String>,
    ) -> PyResult<Self> {
        let options = SessionOptions {
            base_dir: folder,
            allowed_roots: roots,
            interface: Interface::Python,
            settings,
            workers,
            memory_limit,
            ..SessionOptions::default()
        };
        let mut session =
            Session::new(options).map_err(|error| errors::to_python(py, &error, ""))?;
        let sinks = PythonSinks::default();
        let connector = Arc::new(sinks.clone());
        session.register_connector(connector.clone());
        let registered = Registered { connectors: vec![connector], ..Registered::default() };
        let registered = Mutex::new(registered);
        Ok(Connection { session: Mutex::new(session), sinks, registered })
    }

    /// Executes statements; a query that is the last one is returned and runs when it is asked.
    fn sql(
        &self,
        py: Python<'_>,
        text: &str,
        tables: Vec<GivenTable<'_>>,
        params: Option<BTreeMap<String, String>>,
    ) -> PyResult<Query> {
        let filled = filled(py, text, params.as_ref())?;
        let wrong = |error: Error| errors::to_python(py, &error, &filled);
        let (statements, query) = split(&filled).map_err(wrong)?;
        let mut own = match tables.is_empty() {
            true => None,
            false => Some(self.fork(py, tables)?),
        };
        let mut done = (None, Vec::new());
        if let Some(statements) = statements {
            done = match &mut own {
                Some(session) => run(py, session, (&statements, &filled))?,
                None => run(py, &mut self.session(py), (&statements, &filled))?,
            };
        }
        let Some(query) = query else { return Ok(Query::done(done)) };
        let session = own.unwrap_or_else(|| self.session(py).fork());
        Query::planned(session, query, filled.as_str().into()).map_err(wrong)
    }

    /// Declares a table over rows of Python.
    fn register(&self, py: Python<'_>, table: GivenTable<'_>) -> PyResult<()> {
        declare(&mut self.session(py), table)
    }

    /// Starts INSERTs as a job, and waits until it runs.
    fn start(
        &self,
        py: Python<'_>,
        start: JobStart,
        tables: Vec<GivenTable<'_>>,
    ) -> PyResult<RunningJob> {
        jobs::start(py, self.fork(py, tables)?, start)
    }

    /// Gives a name to an object that tables write into.
    fn register_sink(&self, name: String, sink: Py<PyAny>) {
        self.sinks.add(name, sink);
    }

    /// Makes an aggregate function known: the call is that of a scalar function, which is
    /// registered under another name, over the array of a group's values.
    fn register_aggregate(
        &self,
        py: Python<'_>,
        name: String,
        function: String,
        result: &str,
    ) -> PyResult<()> {
        let mut session = self.session(py);
        let result = sql_type_of(&session, result);
        let result = result.map_err(|error| errors::to_python(py, &error, ""))?;
        let aggregate = Arc::new(AggregateOverValues { name, function, result });
        session.register_aggregate(aggregate.clone());
        self.remember(|registered| registered.aggregates.push(aggregate));
        Ok(())
    }

    /// Gives a name to what a process function makes of a relation.
    #[pyo3(signature = (name, input, columns, result, state, make))]
    fn register_process(
        &self,
        py: Python<'_>,
        name: String,
        input: String,
        columns: Vec<String>,
        result: Vec<ColumnText>,
        state: Vec<ColumnText>,
        make: Py<PyAny>,
    ) -> PyResult<()> {
        let mut session = self.session(py);
        let wrong = |error: Error| errors::to_python(py, &error, "");
        let result = TableSchema::new(columns_of(&session, &result).map_err(wrong)?);
        let state = columns_of(&session, &state).map_err(wrong)?;
        let process = PythonProcess { name: name.clone(), input, columns, result, state, make };
        session.register_process(&name, Arc::new(ProcessRelation(Arc::new(process))));
        Ok(())
    }

    /// Makes a function known.
    #[pyo3(signature = (name, call, arguments, result, *, by_rows, isolated, strict, is_nullable, deterministic))]
    #[expect(clippy::too_many_arguments, reason = "keywords, from one place in the package")]
    fn register_function(
        &self,
        py: Python<'_>,
        name: String,
        call: Py<PyAny>,
        arguments: Vec<Option<String>>,
        result: &str,
        by_rows: bool,
        isolated: bool,
        strict: Vec<bool>,
        is_nullable: bool,
        deterministic: bool,
    ) -> PyResult<()> {
        let mut session = self.session(py);
        let of = |text: &str| {
            sql_type_of(&session, text).map_err(|error| errors::to_python(py, &error, ""))
        };
        let arguments = arguments.iter().map(|text| text.as_deref().map_or(Ok(DataType::Null), of));
        let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
        let result = of(result)?;
        let lanes = match (isolated, by_rows) {
            (true, _) => Lanes::ISOLATED,
            (false, true) => Lanes::ROWS,
            (false, false) => Lanes::VECTORS,
        };
        // A process of its own takes whole columns, and calls the function for each row there.
        let by_rows = by_rows && !isolated;
        let function = PythonFunction { name, call, result, by_rows, strict, is_nullable };
        let function = function.into_scalar(arguments, deterministic);
        session.register_function_on(Arc::new(lanes), function.clone());
        self.remember(|registered| registered.outside_functions.push(function));
        Ok(())
    }
}

/// The columns that texts declare: name, type, whether it can be NULL.
fn columns_of(session: &Session, columns: &[ColumnText]) -> Result<Vec<thalweg::Column>> {
    let column = |(name, text, nullable): &ColumnText| {
        let column_type = sql_type_of(session, text)?.nullable().with_nullable(*nullable);
        Ok(thalweg::Column::new(name, column_type))
    };
    columns.iter().map(column).collect()
}

/// An aggregate function of Python: a scalar function over the array of a group's values.
struct AggregateOverValues {
    name: String,
    function: String,
    result: DataType,
}

impl UserAggregate for AggregateOverValues {
    fn name(&self) -> &str {
        &self.name
    }
    fn result_type(&self, _argument: &thalweg::ColumnType) -> Result<DataType> {
        Ok(self.result.clone())
    }
    fn create(&self) -> Box<dyn UserAccumulator> {
        unreachable!("the function over the values takes the place of the aggregate")
    }
    fn over_values(&self) -> Option<&str> {
        Some(&self.function)
    }
}

/// The type that a text declares.
fn sql_type_of(session: &Session, text: &str) -> Result<DataType> {
    let schema = session.result_schema(&format!("SELECT CAST(NULL AS {text}) AS x"));
    let schema = schema.map_err(|error| {
        Error::plan(format!("'{text}' is no type of SQL: {}", error.message()))
            .hint("such as BIGINT, DOUBLE, STRING, DECIMAL(10, 2), TIMESTAMP(3) or ARRAY<STRING>")
    })?;
    let column = schema.columns.into_iter().next();
    column
        .map(|column| column.column_type.data_type)
        .ok_or_else(|| Error::internal("a column was asked for"))
}

/// Declares a table over rows of Python, in place of any of the same name.
fn declare(
    session: &mut Session,
    (name, given, rowtime, delay_ms, is_bounded): GivenTable<'_>,
) -> PyResult<()> {
    let py = given.py();
    let TableRows { schema, data } = TableRows::of(&given, rowtime.as_deref(), is_bounded)?;
    let statement = declaration(&name, &schema, rowtime.map(|time| (time, delay_ms)));
    session.register_source(&name, move || Ok(data.source(&schema)));
    let wrong = |error: Error| errors::to_python(py, &error, &statement);
    let drop_first = format!("DROP TEMPORARY TABLE IF EXISTS {}", quoted_name(&name));
    session.execute(&drop_first).map_err(wrong)?;
    session.execute(&statement).map_err(wrong)?;
    Ok(())
}

fn declaration(name: &str, schema: &TableSchema, time: Option<(String, i64)>) -> String {
    let column = |column: &thalweg::Column| {
        let not_null = if column.column_type.nullable { "" } else { " NOT NULL" };
        format!(
            "{} {}{not_null}",
            quoted_name(&column.name),
            declared(&column.column_type.data_type)
        )
    };
    let mut parts: Vec<String> = schema.columns.iter().map(column).collect();
    if let Some((time, delay_ms)) = time {
        let time = quoted_name(&time);
        let (seconds, rest) = (delay_ms / 1000, delay_ms % 1000);
        parts.push(format!(
            "WATERMARK FOR {time} AS {time} - INTERVAL '{seconds}.{rest:03}' SECOND"
        ));
    }
    format!(
        "CREATE TEMPORARY TABLE {} (\n  {}\n) WITH ('connector' = 'registered', 'source' = {})",
        quoted_name(name),
        parts.join(",\n  "),
        quoted_text(name),
    )
}

/// The statements of a text that come before its query, and the query, if it ends with one. In the
/// query everything before it is blank, so that its lines and columns are those of the text.
fn split(text: &str) -> Result<(Option<String>, Option<String>)> {
    let Some((begin, has_others)) = query_at_end(text)? else {
        return Ok((Some(text.to_owned()), None));
    };
    let (before, query) = text.split_at(begin);
    let blank = |character: char| if character == '\n' { '\n' } else { ' ' };
    let blanks: String = before.chars().map(blank).collect();
    Ok((has_others.then(|| before.to_owned()), Some(blanks + query)))
}

/// Where the query begins that is the last statement of a text, and whether others come before it.
/// `None` if the last statement is none.
fn query_at_end(text: &str) -> Result<Option<(usize, bool)>> {
    let statements = parse_script(text)?;
    let Some(last) = statements.last() else {
        return Err(Error::plan("there is no statement").hint("such as SELECT 1"));
    };
    if !matches!(last.kind, StatementKind::Select(_)) {
        return Ok(None);
    }
    let line_start = text.split_inclusive('\n').take(last.span.line.saturating_sub(1) as usize);
    let line_start: usize = line_start.map(str::len).sum();
    let column = last.span.column.saturating_sub(1) as usize;
    let in_line = text[line_start..].char_indices().nth(column).map_or(0, |(place, _)| place);
    Ok(Some((line_start + in_line, statements.len() > 1)))
}

/// A text with the values of its parameters; the statements in it that come before its query, as
/// all do if there is none; and whether it ends with one.
#[pyfunction]
pub fn split_query(
    py: Python<'_>,
    text: &str,
    params: Option<BTreeMap<String, String>>,
) -> PyResult<(String, String, bool)> {
    let filled = filled(py, text, params.as_ref())?;
    let found = query_at_end(&filled).map_err(|error| errors::to_python(py, &error, &filled))?;
    let before = match found {
        Some((begin, true)) => filled[..begin].to_owned(),
        Some((_, false)) => String::new(),
        None => filled.clone(),
    };
    Ok((filled, before, found.is_some()))
}

/// A text with the values of its parameters.
pub fn filled(
    py: Python<'_>,
    text: &str,
    params: Option<&BTreeMap<String, String>>,
) -> PyResult<String> {
    match params {
        None => Ok(text.to_owned()),
        Some(params) => {
            substitute(text, params).map_err(|error| errors::to_python(py, &error, text))
        }
    }
}

/// A query that runs each time that its rows are asked for, or the rows of a statement that was
/// executed.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Query {
    columns: TableSchema,
    has_updates: bool,
    is_bounded: bool,
    rows: QueryRows,
}

enum QueryRows {
    Planned { session: Box<Mutex<Session>>, text: String, sql: Arc<str> },
    Done(Rows),
}

impl Query {
    fn planned(session: Session, text: String, sql: Arc<str>) -> Result<Self> {
        let (table, is_bounded) = session.describe_query(&text)?;
        let rows = QueryRows::Planned { session: Box::new(Mutex::new(session)), text, sql };
        Ok(Query { columns: table.schema, has_updates: table.has_updates, is_bounded, rows })
    }

    fn done((columns, rows): (Option<TableSchema>, Rows)) -> Self {
        let columns = columns.unwrap_or_default();
        Query { columns, has_updates: false, is_bounded: true, rows: QueryRows::Done(rows) }
    }

    fn start(&self, py: Python<'_>, with_changes: bool) -> PyResult<Batches> {
        let (session, text, sql) = match &self.rows {
            QueryRows::Done(rows) => return Ok(Batches::of(rows.clone())),
            QueryRows::Planned { session, text, sql } => (session, text, sql),
        };
        let wrong = |error: Error| errors::to_python(py, &error, sql);
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner).fork();
        if self.has_updates && !with_changes {
            if !self.is_bounded {
                return Err(wrong(
                    Error::plan(
                        "the result of this query is updated for ever, so no row of it is final",
                    )
                    .hint("iterate over .changes(), which says what each row does"),
                ));
            }
            // Then results are final when they come.
            session.execute("SET 'execution.runtime-mode' = 'batch'").map_err(wrong)?;
        }
        let script = RunningScript::start(session, text.clone(), Arc::clone(sql)).map_err(wrong)?;
        Ok(Batches(Mutex::new(Rest::Running(Arc::new(script)))))
    }
}

#[pymethods]
impl Query {
    /// Name, type and whether it can be NULL of each column.
    #[getter]
    fn columns(&self) -> Vec<ColumnText> {
        let column = |column: &thalweg::Column| {
            let of = &column.column_type;
            (column.name.clone(), of.data_type.to_string(), of.nullable)
        };
        self.columns.columns.iter().map(column).collect()
    }
    /// True if rows are updated or retracted later.
    #[getter]
    fn has_updates(&self) -> bool {
        self.has_updates
    }
    /// True if it ends by itself.
    #[getter]
    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
    /// Begins to run, and returns what its batches come from.
    #[pyo3(signature = (*, with_changes=false))]
    fn batches(&self, py: Python<'_>, with_changes: bool) -> PyResult<Batches> {
        self.start(py, with_changes)
    }
    /// How it would run.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let QueryRows::Planned { session, text, sql } = &self.rows else {
            return Ok("the statement was executed".to_owned());
        };
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let plans = session.explain(text, ExplainFormat::Text);
        Ok(plans.map_err(|error| errors::to_python(py, &error, sql))?.join("\n"))
    }
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let batches = self.start(py, false)?;
        stream_capsule(py, &self.columns.arrow(), StreamedBatches(batches), requested_schema)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.columns.arrow().as_ref())
    }
    /// The whole result as an object with Arrow's stream interface.
    fn collect(&self, py: Python<'_>) -> PyResult<Collected> {
        let batches = self.start(py, false)?;
        let mut rows = Vec::new();
        while let Some((batch, _)) = batches.next(py)? {
            rows.push(batch);
        }
        Ok(Collected { columns: self.columns.clone(), rows })
    }
}

/// The batches of a query that runs.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Batches(Mutex<Rest>);

enum Rest {
    Running(Arc<RunningScript>),
    Done(std::vec::IntoIter<(Batch, Option<Vec<RowKind>>)>),
}

impl Batches {
    fn of(rows: Rows) -> Self {
        Batches(Mutex::new(Rest::Done(rows.into_iter())))
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<(Batch, Option<Vec<RowKind>>)>> {
        let script = match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Rest::Done(rows) => return Ok(rows.next()),
            Rest::Running(script) => Arc::clone(script),
        };
        loop {
            match script.next(py)? {
                Some(Message::Rows(batch, kinds)) if batch.num_rows() > 0 => {
                    return Ok(Some((batch, kinds)));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        Ok(self.next(py)?.map(|(batch, kinds)| RecordBatch::new(batch, kinds)))
    }
    /// Ends the query soon.
    fn close(&self) {
        if let Rest::Running(script) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            script.stop();
        }
    }
}

/// The batches of a query for whoever reads its stream, on any thread, with the lock or without.
struct StreamedBatches(Batches);

impl Iterator for StreamedBatches {
    type Item = Result<Batch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let ended = || ArrowError::ExternalError("Python is about to end".into());
        let next = Python::try_attach(|py| {
            self.0.next(py).map_err(|error| ArrowError::ExternalError(error.to_string().into()))
        });
        match next {
            None => Some(Err(ended())),
            Some(next) => next.map(|next| next.map(|(batch, _)| batch)).transpose(),
        }
    }
}

/// A result that is there.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Collected {
    columns: TableSchema,
    rows: Vec<Batch>,
}

#[pymethods]
impl Collected {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let batches = self.rows.clone().into_iter().map(Ok);
        stream_capsule(py, &self.columns.arrow(), batches, requested_schema)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.columns.arrow().as_ref())
    }
    /// The rows as tuples of Python values.
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyList>> {
        let list = pyo3::types::PyList::empty(py);
        for batch in &self.rows {
            crate::values::rows_of(py, batch, &list)?;
        }
        Ok(list)
    }
}
