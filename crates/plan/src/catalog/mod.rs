//! What the statements of a session have declared: tables, views and settings.
//!
//! The catalog keeps declarations as they were written. It checks names, not types: types of
//! computed columns and of views come from the binder, which is why [`describe_table`] asks for
//! them. Names are case-sensitive, as in Flink.
//!
//! **Invariants:**
//! - tables and views share their names;
//! - a declaration that is here has been bound once, without errors, against the catalog of that
//!   time (`Planner::execute_ddl`). It is bound again for every statement, since what it refers to
//!   may have been dropped or replaced;
//! - nothing is written to disk: a catalog lives as long as its session. `Clone` gives an
//!   independent copy, which is what sessions that fork need.
//!
//! Objects are kept by their key: their path without the default catalog and database ([`path`]).
//! Whoever looks up a name that a user wrote asks [`Catalog::key`] first.

mod alter;
mod connectors;
mod databases;
mod functions;
mod keys;
mod like;
mod partitions;
pub mod path;
mod quantity;
mod settings;
mod show;
mod snapshots;
mod substitute;
pub mod table_options;

use std::collections::BTreeMap;

use thalweg_core::{ColumnType, Error, Result, TableSchema};

use self::databases::Databases;
use self::functions::DeclaredFunctions;
use self::path::DatabasePath;
use crate::ast::{
    CreateTable, Declaration, Name, OptionList, Query, Statement, StatementKind, TableChange,
    TableColumnKind, ViewChange,
};
use crate::diagnostic::nearest;
use crate::logical::Field;

pub use functions::DeclaredFunction;
pub use keys::{KEYS, Origin, SettingKey, SettingKind};
pub use quantity::{parse_duration, parse_size_bytes};
pub use settings::{LateData, MemoryLimit, RuntimeMode, Scheduler, Settings, UpsertMaterialize};
pub use snapshots::{OnSnapshotFailure, RestartSettings, SnapshotSettings};
pub use substitute::substitute;

/// A named query.
#[derive(Clone, Debug)]
pub struct View {
    /// Its name.
    pub name: Name,
    /// New names for the columns, if given.
    pub columns: Vec<Name>,
    /// What it stands for.
    pub query: Query,
    /// The database in which the names of the query are looked up.
    pub database: DatabasePath,
}

impl View {
    /// The statement that makes it.
    fn create_text(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.text.as_str()).collect();
        let columns =
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!("CREATE VIEW {}{columns} AS {}", self.name.text, self.query.text)
    }
}

/// Rows of text, the answer of SHOW and DESCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRows {
    /// The names of the columns.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
}

impl TextRows {
    fn new(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        TextRows { header: header.iter().map(|name| (*name).to_owned()).collect(), rows }
    }
}

/// Tables, views, functions and settings.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    databases: Databases,
    functions: DeclaredFunctions,
    /// The files that ADD JAR has named, in order.
    jars: Vec<String>,
    tables: BTreeMap<String, CreateTable>,
    views: BTreeMap<String, View>,
    settings: Settings,
    notes: Vec<String>,
}

impl Catalog {
    /// An empty catalog with the default settings.
    pub fn new() -> Self {
        Self::default()
    }
    /// The current database.
    pub fn current(&self) -> &DatabasePath {
        &self.databases.current
    }
    /// The key of what a name means in the current database.
    pub fn key(&self, name: &str) -> String {
        self.current().key(name)
    }
    /// The table with this key.
    pub fn table(&self, key: &str) -> Option<&CreateTable> {
        self.tables.get(key)
    }
    /// The view with this key.
    pub fn view(&self, key: &str) -> Option<&View> {
        self.views.get(key)
    }
    /// The function that SQL has declared under this name.
    pub fn function(&self, name: &str) -> Option<&DeclaredFunction> {
        self.function_in(self.current(), name)
    }
    /// The function that SQL has declared under this name, seen from a database.
    pub(crate) fn function_in(&self, here: &DatabasePath, name: &str) -> Option<&DeclaredFunction> {
        self.functions.get(here, name)
    }
    /// The functions that SQL has declared, by key.
    pub(crate) fn declared_functions(&self) -> Vec<(String, DeclaredFunction)> {
        self.functions.all()
    }
    /// Puts a function in the place of any of the same key.
    pub(crate) fn restore_function(&mut self, key: String, function: DeclaredFunction) {
        self.functions.restore(key, function);
    }
    /// Puts a table in the place of anything of the same key.
    pub(crate) fn restore_table(&mut self, table: CreateTable) {
        self.views.remove(&table.name.text);
        self.tables.insert(table.name.text.clone(), table);
    }
    /// Puts a view in the place of anything of the same key.
    pub(crate) fn restore_view(&mut self, view: View) {
        self.tables.remove(&view.name.text);
        self.views.insert(view.name.text.clone(), view);
    }
    /// Makes a database the current one, which need not exist.
    pub(crate) fn restore_current(&mut self, database: DatabasePath) {
        self.databases.current = database;
    }
    /// All tables and views, sorted, as they are named in the current database.
    pub fn names(&self) -> Vec<String> {
        let keys = self.tables.keys().chain(self.views.keys());
        let named = |key: &String| {
            let (path, name) = DatabasePath::default().object(key);
            if path == *self.current() { path::dotted(&[name]) } else { key.clone() }
        };
        let mut names: Vec<String> = keys.map(named).collect();
        names.sort();
        names
    }
    /// The tables, sorted by name.
    pub fn tables(&self) -> impl Iterator<Item = &CreateTable> {
        self.tables.values()
    }
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// The settings, to change them.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
    /// Notes about the statements so far, such as keys that have no effect here.
    /// Each note is returned once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Carries out CREATE, DROP, SET and RESET. False for any other statement.
    ///
    /// A statement that fails changes nothing. DROP does not look for views that refer to the name:
    /// they fail when they are next used.
    pub fn apply(&mut self, statement: &Statement) -> Result<bool> {
        match &statement.kind {
            StatementKind::CreateTable(table) if table.like.is_some() => {
                let table = self.completed(table, None)?;
                self.create_table(&table)?;
            }
            StatementKind::CreateTable(table) => self.create_table(table)?,
            StatementKind::CreateView { name, columns, query, if_not_exists, or_replace } => {
                let view = View {
                    name: self.keyed(name)?,
                    columns: columns.clone(),
                    query: query.clone(),
                    database: self.current().clone(),
                };
                self.create_view(view, *if_not_exists, *or_replace)?;
            }
            StatementKind::Declare(declaration) => self.declare(declaration)?,
            StatementKind::Drop { name, is_view, if_exists } => {
                self.drop_relation(name, *is_view, *if_exists)?;
            }
            StatementKind::Set { key, value } => {
                let note = self.settings.set(&key.text, value).map_err(|e| e.at(key.span))?;
                self.notes.extend(note);
            }
            StatementKind::Reset(None) => self.settings.reset_all(),
            StatementKind::Reset(Some(key)) => {
                self.settings.reset(&key.text).map_err(|e| e.at(key.span))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The table with this name.
    fn table_named(&self, name: &Name) -> Result<&CreateTable> {
        self.table(&self.key(&name.text)).ok_or_else(|| self.missing(name, false))
    }

    /// A name of a new object with its key as text. Its database exists.
    fn keyed(&self, name: &Name) -> Result<Name> {
        let (path, object) = self.current().object(&name.text);
        let database = path::dotted(&[&path.catalog, &path.database]);
        self.databases.existing(&Name { text: database, span: name.span })?;
        Ok(Name { text: path.key_of(&object), span: name.span })
    }

    fn create_table(&mut self, table: &CreateTable) -> Result<()> {
        let name = self.keyed(&table.name)?;
        if table.if_not_exists && self.tables.contains_key(&name.text) {
            return Ok(());
        }
        if table.is_replacing {
            self.tables.remove(&name.text);
        }
        self.refuse_taken(&name, false)?;
        if let Some(freshness) = table.materialized.and_then(|own| own.freshness) {
            self.settings.take_snapshots_every(freshness)?;
        }
        self.tables.insert(name.text.clone(), CreateTable { name, ..table.clone() });
        Ok(())
    }

    /// The whole definition of a table: with what LIKE takes over, and with the columns of the
    /// query of AS.
    pub(crate) fn completed(
        &self,
        table: &CreateTable,
        query_fields: Option<&[Field]>,
    ) -> Result<CreateTable> {
        if let Some(clause) = &table.like {
            return like::like(table, clause, self.table_named(&clause.table)?);
        }
        like::of_query(table, query_fields.unwrap_or_default())
    }

    fn create_view(&mut self, view: View, if_not_exists: bool, or_replace: bool) -> Result<()> {
        if if_not_exists && self.views.contains_key(&view.name.text) {
            return Ok(());
        }
        self.refuse_taken(&view.name, or_replace)?;
        self.views.insert(view.name.text.clone(), view);
        Ok(())
    }

    fn declare(&mut self, declaration: &Declaration) -> Result<()> {
        let here = self.current().clone();
        match declaration {
            Declaration::CreateCatalog { name, if_not_exists, comment, options } => {
                self.databases.create_catalog(name, *if_not_exists, (comment, options))
            }
            Declaration::AlterCatalog { name, change } => {
                self.databases.alter_catalog(name, change)
            }
            Declaration::CreateDatabase { name, if_not_exists, comment, options } => {
                self.databases.create(name, *if_not_exists, (comment, options))
            }
            Declaration::AlterDatabase { name, change } => self.databases.alter(name, change),
            Declaration::DropCatalog { name, if_exists } => self.drop_catalog(name, *if_exists),
            Declaration::DropDatabase { name, if_exists, cascades } => {
                self.drop_database(name, *if_exists, *cascades)
            }
            Declaration::UseCatalog(name) => self.databases.use_catalog(name),
            Declaration::UseDatabase(name) => {
                self.databases.current = self.databases.existing(name)?;
                Ok(())
            }
            Declaration::UseModules(names) => names.iter().try_for_each(check_module),
            Declaration::LoadModule(name) => Err(cannot_load(name)),
            Declaration::UnloadModule(name) => Err(cannot_unload(name)),
            Declaration::AddJar(file) => {
                if !self.jars.contains(&file.text) {
                    self.jars.push(file.text.clone());
                }
                Ok(())
            }
            Declaration::RemoveJar(file) => {
                match self.jars.iter().position(|jar| *jar == file.text) {
                    Some(place) => {
                        self.jars.remove(place);
                        Ok(())
                    }
                    None => Err(Error::plan(format!("ADD JAR has not named '{}'", file.text))
                        .hint("SHOW JARS lists the jars")
                        .at(file.span)),
                }
            }
            Declaration::CreateFunction(function) => self.functions.create(&here, function),
            Declaration::DropFunction { name, is_system, if_exists } => {
                self.functions.remove(&here, (name, *is_system), *if_exists)
            }
            Declaration::AlterTable { name, change, .. } => {
                match self.altered_table(declaration)? {
                    Some(table) => self.replace_table(name, table, change),
                    None => Ok(()),
                }
            }
            Declaration::AnalyzeTable { name, partition, columns } => {
                self.analyze(name, partition, columns)
            }
            Declaration::AlterView { name, change, .. } => match self.altered_view(declaration)? {
                Some(view) => self.replace_view(name, view, change),
                None => Ok(()),
            },
        }
    }

    /// The definition that ALTER TABLE makes; `None` if there is no such table and that is allowed.
    pub(crate) fn altered_table(&self, declaration: &Declaration) -> Result<Option<CreateTable>> {
        let Declaration::AlterTable { name, if_exists, change } = declaration else {
            return Ok(None);
        };
        match self.table_named(name) {
            Err(_) if *if_exists => Ok(None),
            found => found?.changed(change).map(Some),
        }
    }

    fn replace_table(
        &mut self,
        name: &Name,
        table: CreateTable,
        change: &TableChange,
    ) -> Result<()> {
        let key = self.key(&name.text);
        let TableChange::RenameTo(to) = change else {
            self.tables.insert(key, table);
            return Ok(());
        };
        let to = self.renamed(&key, to)?;
        self.tables.remove(&key);
        let mut table = CreateTable { name: to.clone(), ..table };
        table.text = table.rendered();
        self.tables.insert(to.text, table);
        Ok(())
    }

    /// The key of an object under its new name, which stays in its database and is free.
    fn renamed(&self, key: &str, to: &Name) -> Result<Name> {
        let (own, _) = DatabasePath::default().object(key);
        let (path, object) = own.object(&to.text);
        if path != own {
            return Err(Error::plan("a new name stays in its database")
                .hint(format!("write RENAME TO {}", path::dotted(&[object])))
                .at(to.span));
        }
        let to = Name { text: own.key_of(&object), span: to.span };
        self.refuse_taken(&to, false)?;
        Ok(to)
    }

    /// The view that ALTER VIEW makes; `None` if there is no such view and that is allowed.
    pub(crate) fn altered_view(&self, declaration: &Declaration) -> Result<Option<View>> {
        let Declaration::AlterView { name, if_exists, change } = declaration else {
            return Ok(None);
        };
        let view = match self.view(&self.key(&name.text)) {
            Some(view) => view.clone(),
            None if *if_exists => return Ok(None),
            None => return Err(self.missing(name, true)),
        };
        Ok(Some(match change {
            ViewChange::RenameTo(_) => view,
            ViewChange::Query(query) => View {
                columns: Vec::new(),
                query: query.clone(),
                database: self.current().clone(),
                ..view
            },
        }))
    }

    fn replace_view(&mut self, name: &Name, view: View, change: &ViewChange) -> Result<()> {
        let key = self.key(&name.text);
        let ViewChange::RenameTo(to) = change else {
            self.views.insert(key, view);
            return Ok(());
        };
        let to = self.renamed(&key, to)?;
        self.views.remove(&key);
        self.views.insert(to.text.clone(), View { name: to, ..view });
        Ok(())
    }

    fn drop_catalog(&mut self, name: &Name, if_exists: bool) -> Result<()> {
        if !self.databases.drop_catalog(name, if_exists)? {
            return Ok(());
        }
        let is_of = |key: &str| DatabasePath::default().object(key).0.catalog == name.text;
        self.tables.retain(|key, _| !is_of(key));
        self.views.retain(|key, _| !is_of(key));
        Ok(())
    }

    fn drop_database(&mut self, name: &Name, if_exists: bool, cascades: bool) -> Result<()> {
        let path = match self.databases.existing(name) {
            Err(_) if if_exists => return Ok(()),
            found => found?,
        };
        if path == *self.current() {
            return Err(Error::plan(format!("{} is the current database", name.text))
                .hint("USE another one before")
                .at(name.span));
        }
        let is_of = |key: &str| DatabasePath::default().object(key).0 == path;
        let held = self.tables.keys().chain(self.views.keys()).find(|key| is_of(key));
        if let (Some(held), false) = (held, cascades) {
            return Err(Error::plan(format!(
                "the database {} is not empty: it has {held}",
                name.text
            ))
            .hint("DROP DATABASE … CASCADE drops what is in it")
            .at(name.span));
        }
        self.tables.retain(|key, _| !is_of(key));
        self.views.retain(|key, _| !is_of(key));
        self.functions.remove_all(&path);
        self.databases.remove(&path);
        Ok(())
    }

    fn refuse_taken(&self, name: &Name, view_is_free: bool) -> Result<()> {
        let what = if self.tables.contains_key(&name.text) {
            "table"
        } else if self.views.contains_key(&name.text) && !view_is_free {
            "view"
        } else {
            return Ok(());
        };
        Err(Error::plan(format!("there is a {what} {} already", name.text))
            .hint(format!(
                "DROP {} {} first, or choose another name",
                what.to_uppercase(),
                name.text
            ))
            .at(name.span))
    }

    fn drop_relation(&mut self, name: &Name, is_view: bool, if_exists: bool) -> Result<()> {
        let key = self.key(&name.text);
        let found = if is_view {
            self.views.remove(&key).is_some()
        } else {
            self.tables.remove(&key).is_some()
        };
        if found || if_exists { Ok(()) } else { Err(self.missing(name, is_view)) }
    }

    fn missing(&self, name: &Name, is_view: bool) -> Error {
        let (what, other) = if is_view { ("view", "table") } else { ("table", "view") };
        let error = Error::plan(format!("there is no {what} {}", name.text)).at(name.span);
        let key = self.key(&name.text);
        let is_other = self.tables.contains_key(&key) || self.views.contains_key(&key);
        if is_other {
            return error.hint(format!("{} is a {other}", name.text));
        }
        let names = self.names();
        match nearest(&name.text, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error,
        }
    }
}

/// The one module that there is.
const MODULE: &str = "core";

fn check_module(name: &Name) -> Result<()> {
    match name.text == MODULE {
        true => Ok(()),
        false => Err(cannot_load(name)),
    }
}

fn cannot_load(name: &Name) -> Error {
    let error = match name.text == MODULE {
        true => Error::plan("the module core is there already"),
        false => Error::unsupported(format!("there is no module {}", name.text))
            .hint("functions are registered with the session, and named by CREATE FUNCTION"),
    };
    error.at(name.span)
}

fn cannot_unload(name: &Name) -> Error {
    let error = match name.text == MODULE {
        true => Error::unsupported("the module core can't be unloaded")
            .hint("it holds the built-in functions; CREATE TEMPORARY SYSTEM FUNCTION hides one"),
        false => Error::plan(format!("there is no module {}", name.text)),
    };
    error.at(name.span)
}

/// The options of a definition with those of a hint, which count more.
pub(crate) fn with_options(table: &CreateTable, options: &OptionList) -> CreateTable {
    let mut table = table.clone();
    alter::set_options(&mut table.options, options);
    table
}

const DESCRIBE_HEADER: [&str; 6] = ["name", "type", "null", "key", "extras", "watermark"];

/// DESCRIBE of a table. `computed` gives the types of computed columns by name.
/// One row per declared column, in Flink's six columns.
pub fn describe_table(
    table: &CreateTable,
    computed: &dyn Fn(&str) -> Option<ColumnType>,
) -> TextRows {
    let mut rows = Vec::with_capacity(table.columns.len());
    let keys: Vec<&str> = table.primary_key.iter().map(|key| key.text.as_str()).collect();
    for column in &table.columns {
        let name = &column.name.text;
        let (column_type, extras) = match &column.kind {
            TableColumnKind::Physical(column_type) => (Some(column_type.clone()), String::new()),
            TableColumnKind::Computed(expression) => (computed(name), format!("AS {expression}")),
            TableColumnKind::Metadata { column_type, key, is_virtual } => {
                let suffix = if *is_virtual { " VIRTUAL" } else { "" };
                (Some(column_type.clone()), format!("METADATA FROM '{key}'{suffix}"))
            }
        };
        let is_key = keys.contains(&name.as_str());
        let key = if is_key { format!("PRI({})", keys.join(", ")) } else { String::new() };
        let watermark = table.watermark.as_ref().filter(|w| w.column.text == *name);
        rows.push(vec![
            name.clone(),
            column_type.as_ref().map_or_else(String::new, |t| t.data_type.to_string()),
            column_type.map_or_else(String::new, |t| t.nullable.to_string().to_uppercase()),
            key,
            extras,
            watermark.map_or_else(String::new, |w| w.expression.to_string()),
        ]);
    }
    TextRows::new(&DESCRIBE_HEADER, rows)
}

/// DESCRIBE of a view, of which only names and types are known.
pub fn describe_schema(schema: &TableSchema) -> TextRows {
    let row = |column: &thalweg_core::Column| {
        let nullable = column.column_type.nullable.to_string().to_uppercase();
        let mut row = vec![column.name.clone(), column.column_type.data_type.to_string(), nullable];
        row.resize(DESCRIBE_HEADER.len(), String::new());
        row
    };
    TextRows::new(&DESCRIBE_HEADER, schema.columns.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_script;

    fn catalog(text: &str) -> Result<Catalog> {
        let mut catalog = Catalog::new();
        for statement in parse_script(text)? {
            assert!(catalog.apply(&statement)?, "{statement:?}");
        }
        Ok(catalog)
    }

    fn message(text: &str) -> String {
        let error = catalog(text).expect_err(text);
        format!("{error} | {}", error.help().unwrap_or_default())
    }

    #[test]
    fn names_are_taken_once_and_given_back_by_drop() -> Result<()> {
        let text = "CREATE TABLE a (x INT); CREATE TABLE IF NOT EXISTS a (y INT); \
            CREATE VIEW v AS SELECT 1; CREATE OR REPLACE VIEW v AS SELECT 2; \
            DROP TABLE IF EXISTS nothing; CREATE TABLE b (z INT); DROP TABLE b; \
            CREATE VIEW b AS SELECT 3;";
        let catalog = catalog(text)?;
        assert_eq!(catalog.names(), ["a", "b", "v"]);
        assert_eq!(catalog.table("a").map(|t| t.columns[0].name.text.as_str()), Some("x"));
        assert_eq!(catalog.view("v").map(|v| v.query.text.as_str()), Some("SELECT 2"));
        assert!(
            message("CREATE TABLE a (x INT); CREATE VIEW a AS SELECT 1")
                .contains("a table a already")
        );
        assert!(message("CREATE VIEW a AS SELECT 1; DROP TABLE a").contains("a is a view"));
        assert!(
            message("CREATE TABLE events (x INT); DROP TABLE event")
                .contains("did you mean events?")
        );
        Ok(())
    }

    #[test]
    fn describe_and_show_answer_as_flink_does() -> Result<()> {
        let create = "CREATE TABLE t (k STRING, ts TIMESTAMP(3), d AS k || 'x', \
            f STRING METADATA FROM 'file.name' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, \
            PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'print')";
        let catalog = catalog(create)?;
        let table = catalog.table("t").expect("created");
        let computed = |_: &str| Some(thalweg_core::DataType::STRING.nullable());
        use thalweg_core::connector::Connectors;
        let rows = describe_table(table, &computed).rows;
        let expected = [
            ["k", "STRING", "FALSE", "PRI(k)", "", ""],
            ["ts", "TIMESTAMP(3)", "TRUE", "", "", "ts - INTERVAL '5' SECOND"],
            ["d", "STRING", "TRUE", "", "AS k || 'x'", ""],
            ["f", "STRING", "TRUE", "", "METADATA FROM 'file.name' VIRTUAL", ""],
        ];
        assert_eq!(rows, expected);
        let shown = parse_script("SHOW CREATE TABLE t")?;
        let StatementKind::Show(show) = &shown[0].kind else { panic!("{shown:?}") };
        assert_eq!(catalog.show(show, &[], &Connectors::default())?.rows, [[create]]);
        Ok(())
    }

    #[test]
    fn set_and_reset_change_settings_and_errors_point_at_the_key() -> Result<()> {
        let catalog =
            catalog("SET 'late.data' = 'fail'; SET pipeline.workers = 3; RESET 'late.data';")?;
        assert_eq!(catalog.settings().workers(), Some(3));
        assert_eq!(catalog.settings().late_data(), LateData::Drop);
        let mut catalog = Catalog::new();
        let statements = parse_script("SET 'late.dat' = 'drop'")?;
        let error = catalog.apply(&statements[0]).expect_err("unknown key");
        assert_eq!(error.span().map(|s| (s.column, s.end_column)), Some((5, 15)));
        assert!(error.help().is_some_and(|help| help.contains("late.data")));
        Ok(())
    }
}
