//! Goes through the statements of a script, asks every rule, and replays declarations.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};
use thalweg_core::Span;

use crate::ast::{
    CreateTable, Declaration, Insert, JobCommand, Name, Query, Show, Statement, StatementKind,
    TableColumnKind, WindowCall, WindowInput,
};
use crate::catalog::RuntimeMode;
use crate::parser::FlinkDialect;
use crate::planner::Planner;

use super::finding::{Finding, FlinkCluster};
use super::intervals::long_intervals;
use super::queries::{QueryCheck, reserved_name};
use super::reserved::is_reserved;
use super::{plans, queries, shared_names, tables};

/// Looks for what Flink would refuse or ignore, in the order of the text.
///
/// The statements are those of the text. They are replayed in a planner of the same declarations.
pub(super) fn flink_findings(
    text: &str,
    statements: &[Statement],
    planner: Planner,
    cluster: &FlinkCluster,
) -> Vec<Finding> {
    let mut check = Check {
        findings: Vec::new(),
        lines: text.lines().collect(),
        planner,
        cluster: cluster.clone(),
        settings: BTreeMap::new(),
        views_cast: false,
        compiled: BTreeSet::new(),
    };
    check.tokens(text);
    for statement in statements {
        check.statement(statement);
    }
    let place = |finding: &Finding| (finding.span.line, finding.span.column);
    check.findings.sort_by_key(place);
    check.findings.dedup();
    check.findings
}

struct Check<'t> {
    findings: Vec<Finding>,
    lines: Vec<&'t str>,
    planner: Planner,
    /// With the jars that statements so far have added.
    cluster: FlinkCluster,
    /// What the statements so far have set.
    settings: BTreeMap<String, String>,
    /// A view so far casts something to a timestamp.
    views_cast: bool,
    /// The plans that statements so far compile.
    compiled: BTreeSet<String>,
}

impl Check<'_> {
    fn find(&mut self, span: Span, message: impl Into<String>) {
        self.findings.push(Finding::refused(span, message));
    }

    /// The character of the text at a place.
    fn first_character(&self, span: Span) -> Option<char> {
        let line = self.lines.get((span.line as usize).checked_sub(1)?)?;
        line.chars().nth((span.column as usize).checked_sub(1)?)
    }

    fn is_batch(&self) -> bool {
        self.planner.settings().runtime_mode() == RuntimeMode::Batch
    }

    /// What is seen in the words alone: `!=` is the same token as `<>`, and MINUS means EXCEPT.
    fn tokens(&mut self, text: &str) {
        let Ok(tokens) = Tokenizer::new(&FlinkDialect, text).tokenize_with_location() else {
            return;
        };
        for token in &tokens {
            if let Token::Whitespace(Whitespace::MultiLineComment(comment)) = &token.token
                && let Some(hint) = comment.strip_prefix('+').and_then(queries::unknown_hint)
            {
                let text = format!("Flink fails at the hint {hint}, which it does not know");
                self.find(crate::parser::span(token.span), text);
            }
        }
        let is_space = |token: &Token| matches!(token, Token::Whitespace(_));
        let words: Vec<_> = tokens.iter().filter(|token| !is_space(&token.token)).collect();
        self.findings.extend(long_intervals(&words));
        let mut words = words.into_iter().peekable();
        while let Some(token) = words.next() {
            let span = crate::parser::span(token.span);
            let next = words.peek().map(|next| next.token.to_string().to_ascii_uppercase());
            let begins_query =
                matches!(next.as_deref(), Some("SELECT" | "ALL" | "DISTINCT" | "VALUES" | "("));
            let is_minus = matches!(&token.token, Token::Word(word) if word.quote_style.is_none()
                && word.value.eq_ignore_ascii_case("MINUS"));
            if token.token == Token::Neq && self.first_character(span) == Some('!') {
                let finding = Finding::refused(span, "Flink has no !=: write <>");
                self.findings.push(finding.with_text("<>"));
            } else if is_minus && begins_query {
                let finding = Finding::refused(span, "Flink has no MINUS: write EXCEPT");
                self.findings.push(finding.with_text("EXCEPT"));
            }
        }
    }

    /// A name that stands where Flink reads no reserved word.
    fn name(&mut self, name: &Name) {
        if self.first_character(name.span) != Some('`') && is_reserved(&name.text) {
            self.findings.push(reserved_name(name.span, &name.text));
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::CreateTable(table) => {
                self.table(table);
                table.as_query.iter().for_each(|clause| self.query(&clause.query));
            }
            StatementKind::CreateView { name, columns, query, .. } => {
                self.name(name);
                columns.iter().for_each(|column| self.name(column));
                self.query(query);
                if columns.is_empty() {
                    self.view_columns(query);
                }
            }
            StatementKind::Insert(insert) => self.insert(insert),
            StatementKind::StatementSet(inserts) => {
                inserts.iter().for_each(|insert| self.insert(insert));
            }
            StatementKind::Explain(inner) => return self.statement(&inner.statement),
            StatementKind::CompilePlan(compile) => {
                self.compiled.insert(compile.path.text.clone());
                self.statement(&compile.statement);
            }
            StatementKind::ExecutePlan(path) if !self.compiled.contains(&path.text) => {
                let text = "Flink executes only plans that it has compiled itself: COMPILE PLAN \
                            before, in this file, or the INSERTs in the place of this";
                self.find(path.span, text);
            }
            StatementKind::Jobs(JobCommand::Describe(id) | JobCommand::Stop { id, .. })
                if !is_job_id(&id.text) =>
            {
                let text = "Flink's ids of jobs have 32 hexadecimal digits: SHOW JOBS lists them";
                self.find(id.span, text);
            }
            StatementKind::Declare(Declaration::AddJar(file)) => {
                self.cluster.jars.push(file.text.clone());
            }
            StatementKind::Declare(Declaration::RemoveJar(file)) => {
                self.find(file.span, "Flink's SQL gateway takes no REMOVE JAR");
            }
            StatementKind::Select(query) => self.query(query),
            StatementKind::Show(Show::Connectors | Show::Connector(_)) => {
                let text = "Flink has no SHOW CONNECTORS and no DESCRIBE CONNECTOR";
                self.find(statement.span, text);
            }
            StatementKind::Show(Show::CreateTable(name) | Show::CreateView(name))
            | StatementKind::Drop { name, .. }
            | StatementKind::Describe(name) => self.name(name),
            StatementKind::Set { key, value } => self.setting(key, value),
            StatementKind::Reset(Some(key)) => {
                self.key(key);
                self.settings.remove(&key.text);
            }
            StatementKind::Reset(None) => self.settings.clear(),
            _ => {}
        }
        self.plans(statement);
    }

    /// What the planner says of a statement, which then holds for those behind it.
    fn plans(&mut self, statement: &Statement) {
        let mode = plans::Mode { is_batch: self.is_batch(), ..self.mode_of(statement) };
        let is_view = matches!(statement.kind, StatementKind::CreateView { .. });
        self.views_cast |= is_view && mode.casts_to_timestamp;
        let bound = match &statement.kind {
            StatementKind::Insert(insert) => {
                self.planner.bound_inserts(std::slice::from_ref(insert))
            }
            StatementKind::StatementSet(inserts) => self.planner.bound_inserts(inserts),
            StatementKind::Select(query) => {
                self.planner.bound_query(query).map(|node| vec![(node, None, query.span)])
            }
            StatementKind::CreateView { query, .. } => {
                let bound = self.planner.bound_query(query);
                let bound = bound.map(|node| vec![(node, None, query.span)]);
                let _ = self.planner.execute_ddl(statement);
                bound
            }
            // What fails here has been reported when the script was planned.
            _ => {
                let _ = self.planner.execute_ddl(statement);
                return;
            }
        };
        let is_set = |key: &str| self.settings.get(key).is_some_and(|value| value == "true");
        if is_set("table.exec.mini-batch.enabled")
            && !self.settings.contains_key("table.exec.mini-batch.allow-latency")
        {
            let text =
                "Flink wants 'table.exec.mini-batch.allow-latency' where mini-batches are enabled";
            self.find(statement.span, text);
        }
        for (node, sink, span) in bound.unwrap_or_default() {
            for (at, message) in plans::refusals(&node, sink.as_deref(), mode) {
                self.find(at.filter(|at| at.line > 0).unwrap_or(span), message);
            }
        }
    }

    /// What the text of a statement says that its plan does not show any more.
    fn mode_of(&self, statement: &Statement) -> plans::Mode {
        let queries: Vec<&Query> = match &statement.kind {
            StatementKind::Insert(insert) => vec![&insert.query],
            StatementKind::StatementSet(inserts) => inserts.iter().map(|i| &i.query).collect(),
            StatementKind::Select(query) | StatementKind::CreateView { query, .. } => vec![query],
            _ => Vec::new(),
        };
        let text: String = queries.iter().map(|query| query.text.to_uppercase()).collect();
        plans::Mode {
            is_batch: false,
            has_window_tables: queries.iter().any(|query| !query.windows.is_empty()),
            casts_to_timestamp: text.contains("AS TIMESTAMP"),
            may_cast_row_times: self.views_cast || text.contains("AS TIMESTAMP"),
            has_bare_default: queries.iter().any(|query| queries::has_bare_default(&query.query)),
        }
    }

    /// The columns of a view that has no list of them.
    fn view_columns(&mut self, query: &Query) {
        let Ok(node) = self.planner.bound_query(query) else { return };
        let mut seen = BTreeSet::new();
        let twice = node.fields.iter().find(|field| !seen.insert(field.name.clone()));
        if let Some(field) = twice {
            let name = &field.name;
            self.find(
                query.span,
                format!("Flink takes no view with two columns '{name}': name them apart"),
            );
        }
    }

    fn insert(&mut self, insert: &Insert) {
        self.name(&insert.table);
        insert.columns.iter().for_each(|column| self.name(column));
        self.query(&insert.query);
    }

    fn query(&mut self, query: &Query) {
        for &span in &query.asof_joins {
            let text = "Flink has no ASOF JOIN: write a temporal join, JOIN … FOR SYSTEM_TIME AS OF, with the last row of \
                        each key (ROW_NUMBER() … = 1)";
            self.find(span, text);
        }
        self.look_into(|check| check.query(&query.query));
        self.natural_joins(query);
        for window in &query.windows {
            self.window(window);
            match &window.input {
                WindowInput::Query(inner) => self.query(inner),
                WindowInput::Table(name) => self.name(name),
            }
        }
        query.matched.iter().for_each(|(_, inner)| self.query(inner));
    }

    /// Names that NATURAL JOIN shares are found where the query is bound without it.
    fn natural_joins(&mut self, query: &Query) {
        let Some(plain) = shared_names::without_natural(query) else { return };
        if let Err(error) = self.planner.bound_query(&plain)
            && error.message().contains("is ambiguous")
            && let Some(span) = error.span()
        {
            self.findings.push(shared_names::ambiguous(span));
        }
    }

    /// Looks at the text of queries or expressions.
    fn look_into(&mut self, look: impl FnOnce(&mut QueryCheck<'_>)) {
        let (is_batch, mut found) = (self.is_batch(), Vec::new());
        look(&mut QueryCheck { is_batch, find: &mut |finding| found.push(finding) });
        self.findings.extend(found);
    }

    fn window(&mut self, window: &WindowCall) {
        let name = window.function.name;
        if window.is_short {
            self.find(
                window.span,
                format!("Flink does not know this short form: write TABLE({name}(TABLE t, DESCRIPTOR(ts), …))"),
            );
        }
        self.name(&window.time_column);
        window.partition_by.iter().for_each(|key| self.name(key));
    }

    /// `SET`
    fn setting(&mut self, key: &Name, value: &str) {
        self.key(key);
        self.settings.insert(key.text.clone(), value.to_owned());
        if let Some(message) = tables::setting_problem(&key.text, value) {
            self.find(key.span, message);
        }
    }

    fn key(&mut self, key: &Name) {
        if self.first_character(key.span) != Some('\'') {
            let finding =
                Finding::refused(key.span, "Flink wants the key and the value in single quotes");
            self.findings.push(finding.with_text(format!("'{}'", key.text)));
        }
    }

    fn table(&mut self, table: &CreateTable) {
        self.name(&table.name);
        for column in &table.columns {
            self.name(&column.name);
            match &column.kind {
                TableColumnKind::Computed(expression) => {
                    self.look_into(|check| check.expression(expression));
                }
                TableColumnKind::Physical(column_type)
                | TableColumnKind::Metadata { column_type, .. } => {
                    let problem = tables::type_problem(&column_type.data_type, &table.text);
                    problem.into_iter().for_each(|text| self.find(column.name.span, text));
                }
            }
        }
        if let Some(watermark) = &table.watermark {
            self.name(&watermark.column);
            self.look_into(|check| check.expression(&watermark.expression));
        }
        for name in table.primary_key.iter().chain(&table.partitioned_by) {
            self.name(name);
        }
        let found = tables::findings(table, self.planner.connectors(), &self.cluster);
        self.findings.extend(found);
    }
}

fn is_job_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
