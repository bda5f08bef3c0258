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
//! There are no databases and no catalogs of Flink; the parser accepts the names of the default
//! ones.

mod connectors;
mod keys;
mod quantity;
mod settings;
mod snapshots;
mod substitute;
pub mod table_options;

use std::collections::BTreeMap;

use thalweg_core::connector::Connectors;
use thalweg_core::{ColumnType, Error, Result, TableSchema};

use crate::ast::{CreateTable, Name, Query, Show, Statement, StatementKind, TableColumnKind};
use crate::diagnostic::nearest;

pub use keys::{KEYS, Origin, SettingKey};
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

/// Tables, views and settings.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
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
    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&CreateTable> {
        self.tables.get(name)
    }
    /// The view of this name.
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.get(name)
    }
    /// All tables and views, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tables.keys().chain(self.views.keys()).cloned().collect();
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
            StatementKind::CreateTable(table) => self.create_table(table)?,
            StatementKind::CreateView { name, columns, query, if_not_exists, or_replace } => {
                let view =
                    View { name: name.clone(), columns: columns.clone(), query: query.clone() };
                self.create_view(view, *if_not_exists, *or_replace)?;
            }
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

    fn create_table(&mut self, table: &CreateTable) -> Result<()> {
        let name = &table.name;
        if table.if_not_exists && self.tables.contains_key(&name.text) {
            return Ok(());
        }
        self.refuse_taken(name, false)?;
        self.tables.insert(name.text.clone(), table.clone());
        Ok(())
    }

    fn create_view(&mut self, view: View, if_not_exists: bool, or_replace: bool) -> Result<()> {
        if if_not_exists && self.views.contains_key(&view.name.text) {
            return Ok(());
        }
        self.refuse_taken(&view.name, or_replace)?;
        self.views.insert(view.name.text.clone(), view);
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
        let found = if is_view {
            self.views.remove(&name.text).is_some()
        } else {
            self.tables.remove(&name.text).is_some()
        };
        if found || if_exists { Ok(()) } else { Err(self.missing(name, is_view)) }
    }

    fn missing(&self, name: &Name, is_view: bool) -> Error {
        let (what, other) = if is_view { ("view", "table") } else { ("table", "view") };
        let error = Error::plan(format!("there is no {what} {}", name.text)).at(name.span);
        let is_other = self.tables.contains_key(&name.text) || self.views.contains_key(&name.text);
        if is_other {
            return error.hint(format!("{} is a {other}", name.text));
        }
        let names = self.names();
        match nearest(&name.text, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error,
        }
    }

    /// Answers SHOW, and DESCRIBE CONNECTOR. `functions` are the names of all functions.
    pub fn show(
        &self,
        show: &Show,
        functions: &[String],
        connectors: &Connectors,
    ) -> Result<TextRows> {
        let single = |names: Vec<String>| names.into_iter().map(|name| vec![name]).collect();
        match show {
            Show::Tables => Ok(TextRows::new(&["table name"], single(self.names()))),
            Show::Views => {
                Ok(TextRows::new(&["view name"], single(self.views.keys().cloned().collect())))
            }
            Show::Functions => {
                let mut names = functions.to_vec();
                names.sort();
                Ok(TextRows::new(&["function name"], single(names)))
            }
            Show::Connectors => Ok(connectors::show(connectors)),
            Show::Connector(name) => connectors::describe(connectors, name),
            Show::Settings => Ok(self.settings.rows()),
            Show::CreateTable(name) => {
                let table = self.table(&name.text).ok_or_else(|| self.missing(name, false))?;
                Ok(TextRows::new(&["create table"], vec![vec![table.text.clone()]]))
            }
            Show::CreateView(name) => {
                let view = self.view(&name.text).ok_or_else(|| self.missing(name, true))?;
                Ok(TextRows::new(&["create view"], vec![vec![create_view_text(view)]]))
            }
        }
    }
}

fn create_view_text(view: &View) -> String {
    let names: Vec<&str> = view.columns.iter().map(|column| column.text.as_str()).collect();
    let columns = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("CREATE VIEW {}{columns} AS {}", view.name.text, view.query.text)
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
