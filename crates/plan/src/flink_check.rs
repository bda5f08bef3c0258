//! What Apache Flink would refuse in a script that runs here (`validate --flink`).
//!
//! The check reads statements only. It finds what is an extension of ours in the text (the table
//! below) and the connectors, formats and options that Flink does not know, as their descriptions
//! say. It does not plan the query as Flink would, so a script without findings can still be
//! refused there.
//!
//! | extension | what Flink takes |
//! |---|---|
//! | TUMBLE(t, ts, …) in FROM | TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)) |
//! | HOP sizes that are no multiple of the slide | a multiple of the slide |
//! | CUMULATE sizes that are no multiple of the step | a multiple of the step |
//! | CREATE OR REPLACE VIEW | DROP VIEW and CREATE VIEW |
//! | 'path' = '-', globs, relative paths | absolute paths, or file:///… |
//! | options and connectors of ours | the options of Flink's connectors |
//! | ${secret:name} in an option | the text itself |
//! | ORDER BY … LIMIT into a filesystem table | a sink that takes updates |
//! | SHOW CONNECTORS, DESCRIBE CONNECTOR | the documentation |
//! | DESCRIBE DATABASE | SHOW DATABASES |
//! | CREATE FUNCTION … LANGUAGE RUST | JAVA, SCALA or PYTHON |
//! | snapshot(…) in FROM | the State Processor API |
//! | ASOF JOIN | a temporal join: JOIN t FOR SYSTEM_TIME AS OF time |
//!
//! A finding is no error here: the script runs. Options are judged by the connectors' own
//! descriptions, so a new option needs no change in this module.

use sqlparser::ast as sql;
use thalweg_core::Span;
use thalweg_core::connector::{ConnectorDescription, Connectors, names_secret};

use crate::bind::spans::span_of;
use crate::bind::state_table::state_call;
use crate::catalog::table_options::table_option;

use crate::ast::{
    CreateTable, Declaration, Insert, Name, Query, Show, Statement, StatementKind, WindowCall,
    WindowInput,
};

/// Something that Flink would refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Where it stands.
    pub span: Span,
    /// What it is and what to write instead.
    pub message: String,
}

/// Connectors that Flink has, itself or as a download, and Thalweg lacks.
const OTHER_CONNECTORS: &str = "kafka upsert-kafka jdbc hbase-2.2 hbase-2.6 elasticsearch-6 \
    elasticsearch-7 opensearch mongodb kinesis firehose dynamodb pulsar rabbitmq";

/// Looks for what Flink would refuse, in the order of the text. These connectors say which of their
/// options are ours.
pub fn flink_refusals(statements: &[Statement], connectors: &Connectors) -> Vec<Finding> {
    let mut check = Check { findings: Vec::new(), filesystem: Vec::new(), connectors };
    for statement in statements {
        check.statement(statement);
    }
    check.findings.sort_by_key(|finding| (finding.span.line, finding.span.column));
    check.findings
}

struct Check<'c> {
    findings: Vec<Finding>,
    /// Tables of the filesystem so far: they take no updates.
    filesystem: Vec<String>,
    connectors: &'c Connectors,
}

impl Check<'_> {
    fn find(&mut self, span: Span, message: impl Into<String>) {
        self.findings.push(Finding { span, message: message.into() });
    }

    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::CreateTable(table) => self.table(table),
            StatementKind::CreateView { query, or_replace, .. } => {
                if *or_replace {
                    let text = "Flink has no CREATE OR REPLACE VIEW: drop the view first";
                    self.find(statement.span, text);
                }
                self.query(query);
            }
            StatementKind::Insert(insert) => self.insert(insert),
            StatementKind::StatementSet(inserts) => {
                inserts.iter().for_each(|insert| self.insert(insert));
            }
            StatementKind::Explain(inner) => self.statement(&inner.statement),
            StatementKind::Select(query) => self.query(query),
            StatementKind::Show(Show::Connectors | Show::Connector(_)) => {
                let text = "Flink has no SHOW CONNECTORS and no DESCRIBE CONNECTOR";
                self.find(statement.span, text);
            }
            StatementKind::Show(Show::Database { .. }) => {
                self.find(statement.span, "Flink has no DESCRIBE DATABASE");
            }
            StatementKind::Declare(Declaration::CreateFunction(function)) => {
                let language = function.language.as_ref();
                if let Some(name) = language.filter(|name| name.text.eq_ignore_ascii_case("RUST")) {
                    let text = "Flink has no functions in Rust: JAVA, SCALA and PYTHON";
                    self.find(name.span, text);
                }
            }
            StatementKind::Drop { .. }
            | StatementKind::Declare(_)
            | StatementKind::Show(_)
            | StatementKind::Describe(_)
            | StatementKind::Set { .. }
            | StatementKind::Reset(_) => {}
        }
    }

    fn insert(&mut self, insert: &Insert) {
        let bounded =
            insert.query.query.limit_clause.is_some() || insert.query.query.fetch.is_some();
        let sorted = insert.query.query.order_by.is_some();
        if sorted && bounded && self.filesystem.contains(&insert.table.text) {
            self.find(
                insert.query.span,
                "Flink's ORDER BY … LIMIT sends updates, which its filesystem table refuses",
            );
        }
        self.query(&insert.query);
    }

    fn query(&mut self, query: &Query) {
        for &span in &query.asof_joins {
            let text = "Flink has no ASOF JOIN: write a temporal join, JOIN … FOR SYSTEM_TIME AS OF, with the last row of \
                        each key (ROW_NUMBER() … = 1)";
            self.find(span, text);
        }
        self.tree(&query.query);
        for window in &query.windows {
            self.window(window);
            if let WindowInput::Query(inner) = &window.input {
                self.query(inner);
            }
        }
    }

    /// Looks for tables of state in FROM.
    fn tree(&mut self, query: &sql::Query) {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.tree(&cte.query);
        }
        self.body(&query.body);
    }

    fn body(&mut self, body: &sql::SetExpr) {
        match body {
            sql::SetExpr::Query(query) => self.tree(query),
            sql::SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            sql::SetExpr::Select(select) => select.from.iter().for_each(|from| self.tables(from)),
            _ => {}
        }
    }

    fn tables(&mut self, tables: &sql::TableWithJoins) {
        let joined = tables.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&tables.relation).chain(joined) {
            match factor {
                sql::TableFactor::Derived { subquery, .. } => self.tree(subquery),
                sql::TableFactor::NestedJoin { table_with_joins, .. } => {
                    self.tables(table_with_joins)
                }
                factor if state_call(factor).is_some() => {
                    let text =
                        "Flink has no table snapshot(…): read state with its State Processor API";
                    self.find(span_of(factor), text);
                }
                _ => {}
            }
        }
    }

    fn window(&mut self, window: &WindowCall) {
        let name = window.function.name;
        if window.is_short {
            self.find(
                window.span,
                format!("Flink does not know this short form: write TABLE({name}(TABLE t, DESCRIPTOR(ts), …))"),
            );
        }
        let lengths: Vec<Option<i64>> = window.intervals.iter().map(interval_ms).collect();
        if let (true, [Some(step), Some(size), ..]) = (window.function.has_step(), &lengths[..])
            && *step > 0
            && size % step != 0
        {
            let text =
                format!("Flink wants the size of {name} to be a multiple of its first interval");
            self.find(window.span, text);
        }
    }

    fn table(&mut self, table: &CreateTable) {
        let option = |name: &str| table.options.iter().find(|(key, _)| key.text == name);
        let Some((key, connector)) = option("connector") else { return };
        let connector = connector.text.as_str();
        let description = self.connectors.get(connector).map(|found| found.description());
        let is_known = match description {
            Some(description) => description.is_in_flink,
            None => OTHER_CONNECTORS.split(' ').any(|other| other == connector),
        };
        if !is_known {
            self.find(key.span, format!("Flink has no connector '{connector}'"));
            return;
        }
        if connector == "filesystem" {
            self.filesystem.push(table.name.text.clone());
            if let Some((key, path)) = option("path")
                && let Some(message) = path_problem(&path.text)
            {
                self.find(key.span, message);
            }
        }
        for (key, value) in &table.options {
            self.option(key, &value.text, description);
        }
    }

    /// An option, or its value, that only we know.
    fn option(&mut self, key: &Name, value: &str, description: Option<&ConnectorDescription>) {
        let of_connector = description.and_then(|description| description.option(&key.text));
        let option = of_connector.or_else(|| table_option(&key.text));
        if let Some(instead) = option.and_then(|option| option.flink_instead(value)) {
            self.find(key.span, format!("the option '{}' is ours: {instead}", key.text));
        }
        if names_secret(value) {
            self.find(
                key.span,
                format!(
                    "Flink takes the text of '{}' literally: it has no ${{secret:…}}",
                    key.text
                ),
            );
        }
        let formats = description.map_or(&[][..], |description| description.formats);
        let format = formats.iter().find(|format| key.text == "format" && format.name == value);
        if format.is_some_and(|format| !format.is_in_flink) {
            self.find(key.span, format!("Flink has no format '{value}'"));
        }
    }
}

fn path_problem(path: &str) -> Option<String> {
    if path == "-" {
        return Some("Flink reads and writes no standard input and output ('-')".to_owned());
    }
    if path.contains(['*', '?', '[']) {
        return Some(format!(
            "Flink takes '{path}' literally: it has no globs, but reads a folder"
        ));
    }
    let is_absolute = path.starts_with('/') || path.contains("://") || path.starts_with("file:");
    (!is_absolute).then(|| {
        format!("Flink resolves the relative path '{path}' on each task manager: write it absolute, or as file:///…")
    })
}

/// The length of `INTERVAL '5' SECOND` and its like in milliseconds.
fn interval_ms(expression: &sql::Expr) -> Option<i64> {
    let sql::Expr::Interval(interval) = expression else { return None };
    let sql::Expr::Value(value) = interval.value.as_ref() else { return None };
    let sql::Value::SingleQuotedString(text) = &value.value else { return None };
    use sql::DateTimeField as Field;
    let unit = match interval.leading_field.as_ref()? {
        Field::Second | Field::Seconds => 1_000,
        Field::Minute | Field::Minutes => 60_000,
        Field::Hour | Field::Hours => 3_600_000,
        Field::Day | Field::Days => 86_400_000,
        _ => return None,
    };
    if interval.last_field.is_some() {
        return None;
    }
    text.trim().parse::<i64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_script;

    fn findings(text: &str) -> Vec<(u32, String)> {
        let statements = parse_script(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let connectors = thalweg_connectors::builtin(Default::default());
        flink_refusals(&statements, &connectors)
            .into_iter()
            .map(|f| (f.span.line, f.message))
            .collect()
    }

    #[test]
    fn a_source_that_sorts_is_ours() {
        let text = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
              ('connector' = 'kafka',
               'source.sort-within' = '1 h');";
        let [(3, message)] = &findings(text)[..] else { panic!("{:?}", findings(text)) };
        assert!(message.contains("'source.sort-within' is ours"), "{message}");
        let secret = "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', \
            'properties.sasl.jaas.config' = 'x ${secret:kafka-password}', \
            'scan.watermark.idle-timeout' = '5 s');";
        let [(_, message)] = &findings(secret)[..] else { panic!("{:?}", findings(secret)) };
        assert!(message.contains("it has no ${secret:…}"), "{message}");
    }

    #[test]
    fn a_file_of_flinks_dialect_has_no_findings() {
        let text = "SET 'late.data' = 'fail';
            CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
              ('connector' = 'filesystem', 'path' = '/d/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
            SELECT window_start, COUNT(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND,
              INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
            SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR);";
        assert_eq!(findings(text), []);
    }

    #[test]
    fn of_what_a_real_flink_was_given_only_the_window_sizes_it_refused_are_found() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
        let known = std::fs::read_to_string(format!("{folder}/known.tsv")).expect("a list");
        let mut cases = 0;
        for entry in std::fs::read_dir(folder).expect("tests/golden is part of the repository") {
            let path = entry.expect("an entry").path();
            let Ok(text) = std::fs::read_to_string(path.join("query.sql")) else { continue };
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if known.lines().any(|line| line.split('\t').next() == Some(name)) {
                continue;
            }
            let found = findings(&text.replace("@DIR@", "/data"));
            let refused = std::fs::read_to_string(path.join("error_streaming.txt"));
            let is_size = refused.is_ok_and(|error| error.contains("integral multiple"));
            assert_eq!(!found.is_empty(), is_size, "{}: {found:?}", path.display());
            cases += 1;
        }
        assert!(cases >= 85, "only {cases} golden queries");
    }

    #[test]
    fn functions_in_rust_are_ours() {
        let text = "CREATE FUNCTION f AS 'x' LANGUAGE PYTHON;
            CREATE FUNCTION g AS 'x' LANGUAGE RUST;
            DESCRIBE DATABASE default_database;";
        let found = findings(text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3], "{found:?}");
    }

    #[test]
    fn an_asof_join_is_ours_wherever_it_stands() {
        let text = "CREATE VIEW v AS
            SELECT * FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k;
            SELECT asof FROM (SELECT * FROM a
              ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts) AS asof;";
        let found = findings(text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4], "{found:?}");
        assert!(found[0].1.contains("no ASOF JOIN"), "{found:?}");
    }

    #[test]
    fn tables_of_state_are_ours_also_in_sub_queries() {
        let text = "SELECT * FROM a JOIN (SELECT * FROM
              snapshot('state', 'group a')) AS s ON a.k = s.k
            UNION ALL
            SELECT * FROM snapshot('state', 'group a') AS t;";
        let found = findings(text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4], "{found:?}");
    }

    #[test]
    fn extensions_of_ours_are_found_in_order() {
        let text = "CREATE TABLE t (ts TIMESTAMP(3)) WITH ('connector' = 'filesystem',
'path' = '-',
'csv.header' = 'true');
CREATE TABLE u (x INT) WITH ('connector' = 'nosuch');
CREATE TABLE o (x INT) WITH ('connector' = 'filesystem', 'path' = 'out.csv');
CREATE OR REPLACE VIEW v AS
  SELECT * FROM TUMBLE(t, ts, INTERVAL '1' HOUR);
SELECT 1 FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND));
INSERT INTO o SELECT x FROM u ORDER BY x LIMIT 3;
DESCRIBE CONNECTOR filesystem;
CREATE TABLE a (x INT) WITH ('connector' = 'filesystem', 'path' = '/out', 'format' = 'arrow',
'sink.append' = 'true');";
        let found = findings(text);
        let lines: Vec<u32> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "{found:?}");
        for ((_, message), part) in found.iter().zip([
            "standard input",
            "csv.header",
            "nosuch",
            "relative",
            "OR REPLACE",
            "short form",
            "multiple",
            "updates",
            "DESCRIBE CONNECTOR",
            "format 'arrow'",
            "sink.append",
        ]) {
            assert!(message.contains(part), "{message}");
        }
    }
}
