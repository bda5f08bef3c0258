//! Statements that come one by one: what each of them is, and declarations without jobs.
//!
//! Whoever takes single statements from a client has to know which of them runs, which answers at
//! once, and which only changes what later ones mean.

use thalweg_core::{Error, Result};
use thalweg_plan::ast::{Name, Statement, StatementKind};
use thalweg_plan::parser::parse_script_with_notes;

use super::Session;
use super::rehearsal::{inserts_of, located};

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementClass {
    /// A query that prints its result.
    Query,
    /// An INSERT, a statement set or CREATE TABLE AS: a job that writes.
    Job {
        /// The first table that it writes, or the name of the compiled plan's file.
        table: String,
        /// The job is of CREATE TABLE AS: the table is declared by it.
        is_created: bool,
    },
    /// `SET 'key' = 'value'`
    Set {
        /// The option.
        key: String,
        /// Its value.
        value: String,
    },
    /// `RESET ['key']`
    Reset(Option<String>),
    /// CREATE, DROP, ALTER, USE and the like.
    Declaration,
    /// SHOW, DESCRIBE, EXPLAIN, COMPILE PLAN: it answers, and the session stays as it is.
    Answer,
}

impl StatementClass {
    /// What the one statement of a text does.
    ///
    /// # Errors
    /// If the text cannot be parsed, or has none or several statements.
    pub fn of(text: &str) -> Result<StatementClass> {
        let statements = parse_script_with_notes(text)?.statements;
        match &statements[..] {
            [statement] => Ok(StatementClass::of_one(statement)),
            [Statement { kind: StatementKind::CreateTable(table), .. }, _]
                if table.as_query.is_some() =>
            {
                // A materialized table is read in the database of its job.
                let is_created = table.materialized.is_none();
                Ok(StatementClass::Job { table: table.name.text.clone(), is_created })
            }
            [] => Err(Error::plan("there is no statement")),
            [_, second, ..] => {
                Err(Error::plan("one statement was expected, and here a second one begins")
                    .at(second.span))
            }
        }
    }

    fn of_one(statement: &Statement) -> StatementClass {
        match &statement.kind {
            StatementKind::Select(_) => StatementClass::Query,
            StatementKind::Insert(_) | StatementKind::StatementSet(_) => {
                let first = inserts_of(statement).and_then(|(inserts, _)| inserts.first());
                let table = first.map_or_else(String::new, |insert| insert.table.text.clone());
                StatementClass::Job { table, is_created: false }
            }
            StatementKind::Set { key, value } => {
                StatementClass::Set { key: key.text.clone(), value: value.clone() }
            }
            StatementKind::Reset(key) => {
                StatementClass::Reset(key.as_ref().map(|key| key.text.clone()))
            }
            StatementKind::ExecutePlan(name) => of_plan(name),
            StatementKind::CompilePlan(compile) if compile.is_executed => of_plan(&compile.path),
            StatementKind::Show(_)
            | StatementKind::Describe(_)
            | StatementKind::Explain(_)
            | StatementKind::CompilePlan(_)
            | StatementKind::Jobs(_) => StatementClass::Answer,
            StatementKind::CreateTable(_)
            | StatementKind::CreateView { .. }
            | StatementKind::Drop { .. }
            | StatementKind::Declare(_) => StatementClass::Declaration,
        }
    }
}

/// A compiled plan: what it writes stands in its file.
fn of_plan(path: &Name) -> StatementClass {
    let file = path.text.rsplit('/').next().unwrap_or_default();
    let table = file.split_once('.').map_or(file, |(stem, _)| stem).to_owned();
    StatementClass::Job { table, is_created: false }
}

/// The statement of a materialized table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterializedTable {
    /// The table's name.
    pub name: String,
    /// The statement as it was written. It ends with the query.
    pub text: String,
    /// The query as it was written.
    pub query: String,
}

/// The first materialized table that a script creates.
///
/// # Errors
/// If the script cannot be parsed.
pub fn materialized_table_of(text: &str) -> Result<Option<MaterializedTable>> {
    let statements = parse_script_with_notes(text)?.statements;
    Ok(statements.into_iter().find_map(|statement| match statement.kind {
        StatementKind::CreateTable(table) if table.materialized.is_some() => {
            let query = table.as_query?.query.text;
            Some(MaterializedTable { name: table.name.text, text: table.text, query })
        }
        _ => None,
    }))
}

impl Session {
    /// Executes the declarations of a text, and none of its jobs: CREATE TABLE AS declares its
    /// table, and fills it not.
    ///
    /// # Errors
    /// Those of parsing and planning.
    pub fn declare(&mut self, text: &str) -> Result<()> {
        for statement in &parse_script_with_notes(text)?.statements {
            let runs = inserts_of(statement).is_some()
                || matches!(
                    statement.kind,
                    StatementKind::Select(_)
                        | StatementKind::Explain(_)
                        | StatementKind::CompilePlan(_)
                        | StatementKind::ExecutePlan(_)
                );
            if !runs {
                let declared = self.planner.execute_ddl(statement);
                declared.map_err(|error| located(error, statement))?;
            }
        }
        // Nobody reads them here, and a session may last for days.
        drop(self.planner.take_notes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> StatementClass {
        StatementClass::of(text).expect(text)
    }

    #[test]
    fn the_query_of_a_materialized_table_is_the_end_of_its_statement() {
        let text = "SET 'a' = 'b'; CREATE MATERIALIZED TABLE `as` (PRIMARY KEY (k) NOT ENFORCED) -- as it is\n\
                    COMMENT 'as ever' FRESHNESS = INTERVAL '1' SECOND As SELECT k AS x FROM t; SELECT 1";
        let table = materialized_table_of(text).expect("SQL").expect("there is one");
        assert_eq!((table.name.as_str(), table.query.as_str()), ("as", "SELECT k AS x FROM t"));
        let before = table.text.strip_suffix(&table.query).expect("the end");
        assert!(
            before.starts_with("CREATE MATERIALIZED TABLE `as` (")
                && before.ends_with("SECOND As "),
            "{before}"
        );
        let none = materialized_table_of("CREATE TABLE t (x INT)").expect("SQL");
        assert_eq!(none, None);
    }

    #[test]
    fn statements_have_a_class() {
        let job =
            |table: &str, is_created| StatementClass::Job { table: table.to_owned(), is_created };
        assert_eq!(class("WITH t AS (SELECT 1 AS x) SELECT x FROM t;"), StatementClass::Query);
        assert_eq!(class("INSERT INTO t VALUES (1)"), job("t", false));
        assert_eq!(
            class("CREATE TABLE t WITH ('connector' = 'x') AS SELECT 1 AS x"),
            job("t", true)
        );
        let set =
            class("BEGIN STATEMENT SET; INSERT INTO a VALUES (1); INSERT INTO b VALUES (2); END;");
        assert_eq!(set, job("a", false));
        assert_eq!(class("CREATE VIEW v AS SELECT 1 AS x"), StatementClass::Declaration);
        assert_eq!(class("EXPLAIN SELECT 1"), StatementClass::Answer);
        assert_eq!(class("SET"), StatementClass::Answer);
        assert_eq!(
            class("RESET 'pipeline.name'"),
            StatementClass::Reset(Some("pipeline.name".to_owned()))
        );
        let (key, value) = ("pipeline.name".to_owned(), "orders".to_owned());
        assert_eq!(class("SET 'pipeline.name' = 'orders'"), StatementClass::Set { key, value });
    }

    #[test]
    fn a_second_statement_is_refused_where_it_begins() {
        let error = StatementClass::of("SELECT 1;\nSELECT 2").expect_err("two");
        assert_eq!(error.span().map(|span| span.line), Some(2));
        StatementClass::of(" ; ").expect_err("none");
    }

    #[test]
    fn create_table_as_declares_without_running() {
        let mut session = Session::default();
        session
            .declare("CREATE TABLE t WITH ('connector' = 'blackhole') AS SELECT 1 AS x, 'a' AS y")
            .expect("declared");
        let rows = session.execute("DESCRIBE t").expect("described");
        assert_eq!(rows.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 2);
    }
}
