//! Compiled plans: what COMPILE PLAN writes into a file, and EXECUTE PLAN runs.
//!
//! A plan file is JSON. It holds the statement and all that decides what it means: the tables that
//! it reads and writes, the views and functions that it names, the database in which names are
//! looked up, and the settings that results depend on. As in Flink, what a session has declared
//! since then matters little:
//!
//! - a table of the session is used with the options that it has there, if its columns, watermark
//!   and key are those of the plan; else the plan is refused;
//! - a table that the session lacks is the one of the plan;
//! - views, functions and settings are those of the plan.
//!
//! The operators are made of the statement when it runs, and state is matched by what they compute.
//! So a plan of an earlier version runs, and resumes, as a SQL file of that time does.

use serde_json::{Value, json};
use thalweg_core::{Error, Result};

use crate::ast::{CreateTable, Name, Query, Statement, StatementKind};
use crate::catalog::path::DatabasePath;
use crate::catalog::{Catalog, DeclaredFunction, View};
use crate::parser::parse_script;

/// The version of the format.
const FORMAT: u64 = 1;
/// Marks a file as a plan.
const MARK: &str = "thalwegPlan";

/// The settings that results depend on.
const SETTINGS: [&str; 9] = [
    "execution.runtime-mode",
    "late.data",
    "pipeline.order",
    "table.exec.mini-batch.enabled",
    "table.exec.sink.not-null-enforcer",
    "table.exec.sink.type-length-enforcer",
    "table.exec.sink.upsert-materialize",
    "table.exec.state.ttl",
    "table.local-time-zone",
];

/// A statement with all that decides what it means.
#[derive(Clone, Debug)]
pub(crate) struct CompiledPlan {
    database: DatabasePath,
    settings: Vec<(String, String)>,
    pub tables: Vec<PlanTable>,
    views: Vec<View>,
    functions: Vec<(String, DeclaredFunction)>,
    /// The statement's text.
    statement: String,
}

/// A table that a plan reads or writes.
#[derive(Clone, Debug)]
pub(crate) struct PlanTable {
    /// Its definition, under its key.
    pub definition: CreateTable,
    /// What DESCRIBE answered.
    pub described: Vec<Vec<String>>,
}

impl CompiledPlan {
    /// The plan of a statement over these tables and views.
    pub(crate) fn new(
        catalog: &Catalog,
        statement: &str,
        tables: Vec<PlanTable>,
        views: &[String],
    ) -> CompiledPlan {
        let settings = SETTINGS.iter().filter_map(|&key| {
            let value = catalog.settings().set_value(key)?;
            Some((key.to_owned(), value.to_owned()))
        });
        CompiledPlan {
            database: catalog.current().clone(),
            settings: settings.collect(),
            tables,
            views: views.iter().filter_map(|key| catalog.view(key).cloned()).collect(),
            functions: catalog.declared_functions(),
            statement: statement.to_owned(),
        }
    }

    /// Declares views, functions and settings, and each table that is missing. The statement.
    ///
    /// # Errors
    /// If the statement makes no sense.
    pub(crate) fn declare(self, catalog: &mut Catalog) -> Result<Statement> {
        for (key, value) in &self.settings {
            catalog.settings_mut().set(key, value)?;
        }
        for table in self.tables {
            if catalog.table(&table.definition.name.text).is_none() {
                catalog.restore_table(table.definition);
            }
        }
        self.views.into_iter().for_each(|view| catalog.restore_view(view));
        for (key, function) in self.functions {
            catalog.restore_function(key, function);
        }
        catalog.restore_current(self.database);
        one_statement(&self.statement)
    }

    /// The text of the file.
    pub(crate) fn to_json(&self) -> String {
        let functions = self.functions.iter().map(|(key, function)| {
            json!({
                "key": key,
                "name": function.name,
                "identifier": function.identifier,
                "language": function.language,
                "isSystem": function.is_system,
            })
        });
        let tables = self.tables.iter().map(|table| {
            json!({
                "name": table.definition.name.text,
                "schema": table.described,
                "statement": table.definition.text,
            })
        });
        let views = self.views.iter().map(|view| {
            json!({
                "name": view.name.text,
                "columns": view.columns.iter().map(|name| &name.text).collect::<Vec<_>>(),
                "query": view.query.text,
                "database": database_json(&view.database),
            })
        });
        let settings = self.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
        let plan = json!({
            MARK: FORMAT,
            "thalwegVersion": env!("CARGO_PKG_VERSION"),
            "statement": self.statement,
            "database": database_json(&self.database),
            "settings": settings.collect::<serde_json::Map<_, _>>(),
            "tables": tables.collect::<Vec<_>>(),
            "views": views.collect::<Vec<_>>(),
            "functions": functions.collect::<Vec<_>>(),
        });
        format!("{plan:#}\n")
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// If it is none that [`CompiledPlan::to_json`] has written.
    pub(crate) fn from_json(text: &str) -> Result<CompiledPlan> {
        let plan: Value = serde_json::from_str(text)
            .map_err(|error| Error::plan(format!("it is not JSON: {error}")))?;
        match plan.get(MARK).and_then(Value::as_u64) {
            Some(FORMAT) => read(&plan),
            Some(other) => Err(Error::plan(format!(
                "it has the format {other}, and this version reads {FORMAT}"
            ))
            .hint("COMPILE PLAN writes it again")),
            None if plan.get("flinkVersion").is_some() => {
                Err(Error::plan("Flink has compiled it, and its operators are not those of here")
                    .hint("COMPILE PLAN … FOR the same statement writes a plan that runs here"))
            }
            None => Err(Error::plan("it is not a compiled plan")),
        }
    }
}

fn database_json(path: &DatabasePath) -> Value {
    json!({ "catalog": path.catalog, "database": path.database })
}

fn read(plan: &Value) -> Result<CompiledPlan> {
    let settings = plan.get("settings").and_then(Value::as_object);
    let settings = settings.ok_or_else(|| missing("settings"))?;
    let settings = settings.iter().map(|(key, value)| {
        Ok((key.clone(), value.as_str().ok_or_else(|| missing(key))?.to_owned()))
    });
    Ok(CompiledPlan {
        database: database_of(plan)?,
        settings: settings.collect::<Result<_>>()?,
        tables: list(plan, "tables")?.iter().map(table_of).collect::<Result<_>>()?,
        views: list(plan, "views")?.iter().map(view_of).collect::<Result<_>>()?,
        functions: list(plan, "functions")?.iter().map(function_of).collect::<Result<_>>()?,
        statement: text(plan, "statement")?,
    })
}

fn table_of(table: &Value) -> Result<PlanTable> {
    let name = text(table, "name")?;
    let statements = parse_script(&text(table, "statement")?)?;
    let Some(StatementKind::CreateTable(definition)) =
        statements.into_iter().next().map(|statement| statement.kind)
    else {
        return Err(Error::plan(format!("the table {name} of the plan has no definition")));
    };
    let row = |row: &Value| {
        let cells = row.as_array().ok_or_else(|| missing("schema"))?.iter();
        cells
            .map(|cell| cell.as_str().map(str::to_owned).ok_or_else(|| missing("schema")))
            .collect()
    };
    Ok(PlanTable {
        definition: CreateTable { name: nowhere(name), ..definition },
        described: list(table, "schema")?.iter().map(row).collect::<Result<_>>()?,
    })
}

fn view_of(view: &Value) -> Result<View> {
    let columns = list(view, "columns")?.iter();
    let columns = columns.map(|name| name.as_str().ok_or_else(|| missing("columns")));
    Ok(View {
        name: nowhere(text(view, "name")?),
        columns: columns.map(|name| name.map(nowhere)).collect::<Result<_>>()?,
        query: query_of(&text(view, "query")?)?,
        database: database_of(view)?,
    })
}

fn function_of(function: &Value) -> Result<(String, DeclaredFunction)> {
    let declared = DeclaredFunction {
        name: text(function, "name")?,
        identifier: text(function, "identifier")?,
        language: text(function, "language")?,
        is_system: function.get("isSystem") == Some(&Value::Bool(true)),
    };
    Ok((text(function, "key")?, declared))
}

fn query_of(text: &str) -> Result<Query> {
    match one_statement(text)?.kind {
        StatementKind::Select(query) => Ok(query),
        _ => Err(Error::plan("a view of the plan is no query")),
    }
}

fn one_statement(text: &str) -> Result<Statement> {
    let mut statements = parse_script(text)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(Error::plan("the plan holds no statement, or several")),
    }
}

fn database_of(value: &Value) -> Result<DatabasePath> {
    let path = value.get("database").ok_or_else(|| missing("database"))?;
    Ok(DatabasePath::new(&text(path, "catalog")?, &text(path, "database")?))
}

fn text(value: &Value, key: &str) -> Result<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(key))
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v Vec<Value>> {
    value.get(key).and_then(Value::as_array).ok_or_else(|| missing(key))
}

fn missing(key: &str) -> Error {
    Error::plan(format!("its '{key}' is missing or of another form"))
}

/// A name that stands in no text of the user's.
fn nowhere(text: impl Into<String>) -> Name {
    Name { text: text.into(), span: thalweg_core::Span::default() }
}
