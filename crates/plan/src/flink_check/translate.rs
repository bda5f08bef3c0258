//! Makes a script that Flink takes out of one that runs here (`translate --flink`).
//!
//! The text is edited, not printed again, so that comments and layout stay:
//!
//! | in the script | in the translation |
//! |---|---|
//! | reserved words as names, `!=`, REGEXP_LIKE, unquoted keys | as the check's finding says ([`Fix`]) |
//! | TUMBLE(t, ts, …) in FROM | TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)) |
//! | a bare SELECT | a table of the connector print, and an INSERT into it |
//! | options of ours | left out, with a comment that says what is lost |
//! | relative paths and folders of checkpoints | file:///… |
//! | globs | the folder, and 'source.path.regex-pattern' |
//! | 'path' = '-' of a table that is written | the connector print |
//! | exactly-once without a timeout of transactions | the timeout that brokers allow |
//! | SHOW CONNECTORS, DESCRIBE CONNECTOR | left out |
//! | settings of object stores and secrets | left out |
//!
//! A translation is itself a script of this dialect, so the check is asked once more: what it still
//! finds has no translation, and stands in [`Translation::left`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use sqlparser::tokenizer::Token;
use thalweg_core::quoting::quoted_name;
use thalweg_core::{DataType, Result, Span};

use super::check::flink_findings;
use super::finding::{Finding, Fix, FlinkCluster, Severity};
use super::tables::FOLDERS;
use crate::ast::{
    CreateTable, Insert, Name, Query, Show, Statement, StatementKind, WindowCall, WindowInput,
};
use crate::parser::parse_script;
use crate::planner::Planner;
use crate::script_text::{Edit, ScriptText, closing, in_order, quoted_options};

/// Flink's transactions last an hour without it, and brokers refuse those.
const TRANSACTION_TIMEOUT: &str = "properties.transaction.timeout.ms";
/// What brokers allow unless they are configured otherwise.
const TRANSACTION_MS: &str = "900000";

/// A script for Flink.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The whole text, with what is lost as comments.
    pub text: String,
    /// Its statements in order, without comments around them.
    pub statements: Vec<TranslatedStatement>,
    /// What is lost, with places of the original.
    pub lost: Vec<Finding>,
    /// What Flink refuses all the same, with places of the translation.
    pub left: Vec<Finding>,
}

/// A statement for Flink.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedStatement {
    /// Its text, without a semicolon.
    pub text: String,
    /// The text that it stems from; nothing for one that was added.
    pub original: String,
    /// Where the statement that it stems from begins.
    pub span: Span,
    /// What it does.
    pub role: Role,
}

/// What becomes of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// Jobs: a SELECT prints through a table.
    Jobs,
    /// Results: an INSERT is the query that it writes, so that its rows can be read.
    Results,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It declares or sets something.
    Declaration,
    /// It starts a job.
    Job,
    /// It shows something.
    Show,
}

/// The script as Flink takes it, and what is lost in it. It must be valid here; the planner's
/// declarations hold before its first statement.
///
/// # Errors
/// If the text cannot be parsed.
pub fn translate(
    text: &str,
    planner: &Planner,
    cluster: &FlinkCluster,
    queries: Queries,
) -> Result<Translation> {
    let statements = &parse_script(text)?[..];
    let findings = flink_findings(text, statements, planner.fork(), cluster);
    let mut work = Translator {
        source: ScriptText::new(text)?,
        planner: planner.fork(),
        written: written_tables(statements),
        edits: Vec::new(),
        lost: Vec::new(),
        prints: 0,
        queries,
    };
    for finding in &findings {
        if let Fix::Text(replacement) = &finding.fix {
            work.replace(finding.span, replacement.clone());
        }
    }
    let mut outputs = Vec::with_capacity(statements.len());
    for (position, statement) in statements.iter().enumerate() {
        let next = statements.get(position + 1).map(|next| next.span);
        outputs.extend(work.statement(statement, next, &findings));
    }
    work.finish(text, &outputs, planner, cluster)
}

/// A part of the original, and what comes of it.
#[derive(Clone)]
struct Output {
    /// The statement in the text, without its semicolon.
    range: Range<usize>,
    span: Span,
    role: Role,
    /// Statements in front of it.
    before: Vec<String>,
    is_dropped: bool,
}

struct Translator<'t> {
    source: ScriptText<'t>,
    planner: Planner,
    written: BTreeSet<String>,
    edits: Vec<Edit>,
    lost: Vec<Finding>,
    prints: usize,
    queries: Queries,
}

impl Translator<'_> {
    fn replace(&mut self, span: Span, with: String) {
        if let Some(range) = self.source.range(span) {
            self.edits.push((range, with));
        }
    }

    fn lose(&mut self, span: Span, message: impl Into<String>) {
        self.lost.push(Finding::refused(span, message));
    }

    fn statement(
        &mut self,
        statement: &Statement,
        next: Option<Span>,
        findings: &[Finding],
    ) -> Vec<Output> {
        let start = self.source.start(statement.span);
        let mut output = Output {
            range: start..self.source.end(start, next),
            span: statement.span,
            role: role_of(&statement.kind),
            before: Vec::new(),
            is_dropped: false,
        };
        match &statement.kind {
            StatementKind::CreateTable(table) => {
                self.table(table, findings);
                table.as_query.iter().for_each(|clause| self.query(&clause.query));
            }
            StatementKind::CreateView { query, .. } => self.query(query),
            StatementKind::Insert(insert) => {
                self.query(&insert.query);
                if self.queries == Queries::Results {
                    return vec![self.result(&insert.query, output)];
                }
            }
            StatementKind::StatementSet(inserts) => {
                inserts.iter().for_each(|insert| self.query(&insert.query));
                if self.queries == Queries::Results {
                    let result = |insert: &Insert| {
                        self.result(&insert.query, Output { before: Vec::new(), ..output.clone() })
                    };
                    return inserts.iter().map(result).collect();
                }
            }
            StatementKind::Select(query) if self.queries == Queries::Results => self.query(query),
            StatementKind::Select(query) => self.select(query, &mut output),
            StatementKind::CompilePlan(compile) => match &compile.statement.kind {
                StatementKind::Insert(insert) => self.query(&insert.query),
                StatementKind::StatementSet(inserts) => {
                    inserts.iter().for_each(|insert| self.query(&insert.query));
                }
                _ => {}
            },
            StatementKind::Explain(inner) => match &inner.statement.kind {
                StatementKind::Select(query) => self.query(query),
                StatementKind::Insert(insert) => self.query(&insert.query),
                _ => {}
            },
            StatementKind::Show(Show::Connectors | Show::Connector(_)) => {
                output.is_dropped = true;
                self.lose(statement.span, "Flink has no SHOW CONNECTORS and no DESCRIBE CONNECTOR");
            }
            StatementKind::Set { key, .. } if is_of_this_machine(&key.text) => {
                output.is_dropped = true;
                self.lose(
                    key.span,
                    format!("Flink has '{}' in the configuration of the cluster", key.text),
                );
            }
            StatementKind::Set { key, value } => self.setting(key, value, output.range.clone()),
            _ => {}
        }
        // Statements behind it are bound with what it declares.
        let _ = self.planner.execute_ddl(statement);
        vec![output]
    }

    /// The query of an INSERT alone.
    fn result(&self, query: &Query, output: Output) -> Output {
        let start = self.source.start(query.span);
        Output { range: start..start + query.text.len(), span: query.span, ..output }
    }

    /// A SELECT becomes an INSERT into a table that prints.
    fn select(&mut self, query: &Query, output: &mut Output) {
        self.query(query);
        let Ok(schema) = self.planner.result_schema(query) else { return };
        // A column without a type has none that a table could declare.
        if schema.columns.iter().any(|column| column.column_type.data_type == DataType::Null) {
            return;
        }
        let name = loop {
            self.prints += 1;
            let name = format!("print_{}", self.prints);
            if self.planner.catalog().table(&name).is_none() {
                break name;
            }
        };
        let column = |column: &thalweg_core::Column| {
            format!("  {} {}", quoted_name(&column.name), column.column_type.data_type)
        };
        let columns: Vec<String> = schema.columns.iter().map(column).collect();
        output.before.push(format!(
            "CREATE TABLE {name} (\n{}\n) WITH ('connector' = 'print')",
            columns.join(",\n")
        ));
        self.edits.push((output.range.start..output.range.start, format!("INSERT INTO {name}\n")));
        self.lose(query.span, "a SELECT prints on the task managers: see their standard output");
    }

    fn query(&mut self, query: &Query) {
        for window in &query.windows {
            if window.is_short {
                self.window(window);
            }
            if let WindowInput::Query(inner) = &window.input {
                self.query(inner);
            }
        }
        query.matched.iter().for_each(|(_, inner)| self.query(inner));
    }

    /// `TUMBLE(t, ts, …)` gets TABLE(…), TABLE and DESCRIPTOR.
    fn window(&mut self, window: &WindowCall) {
        let start = self.source.start(window.span);
        let words: Vec<(Token, Range<usize>)> =
            self.source.words_from(start).map(|(token, range)| (token.clone(), range)).collect();
        let Some(close) = closing(&words) else { return };
        let has = |word: &str, at: usize| words[at].0.to_string().eq_ignore_ascii_case(word);
        self.edits.push((start..start, "TABLE(".to_owned()));
        self.edits.push((words[close].1.end..words[close].1.end, ")".to_owned()));
        if let WindowInput::Table(name) = &window.input
            && words.len() > 2
            && !has("TABLE", 2)
            && self.source.start(name.span) == words[2].1.start
        {
            self.edits.push((words[2].1.start..words[2].1.start, "TABLE ".to_owned()));
        }
        let at = self.source.start(window.time_column.span);
        let position = words.iter().position(|(_, range)| range.start == at);
        if let Some(position) = position
            && !(position >= 2 && has("DESCRIPTOR", position - 2))
        {
            let range = &words[position].1;
            self.edits.push((range.start..range.start, "DESCRIPTOR(".to_owned()));
            self.edits.push((range.end..range.end, ")".to_owned()));
        }
    }

    fn setting(&mut self, key: &Name, value: &str, range: Range<usize>) {
        let has_scheme = value.contains("://") || value.starts_with("file:");
        if FOLDERS.contains(&key.text.as_str()) && !has_scheme {
            let text = format!("SET '{}' = '{}'", key.text, self.absolute(value));
            self.edits.push((range, text));
        } else if key.text == "late.data" && !matches!(value, "drop" | "fail") {
            self.lose(
                key.span,
                format!("late rows are not written to '{value}': Flink drops them"),
            );
        } else if key.text == "late.data" && value == "fail" {
            self.lose(key.span, "Flink drops late rows, where this makes the job fail");
        }
    }

    fn absolute(&self, path: &str) -> String {
        let path = Path::new(path);
        let path =
            if path.is_absolute() { path.to_owned() } else { self.planner.base_dir().join(path) };
        format!("file://{}", normal(&path))
    }

    fn table(&mut self, table: &CreateTable, findings: &[Finding]) {
        let value = |name: &str| {
            table
                .options
                .iter()
                .find(|(key, _)| key.text == name)
                .map(|(_, value)| value.text.as_str())
        };
        let (Some((first, _)), Some((_, last))) = (table.options.first(), table.options.last())
        else {
            return;
        };
        let (Some(start), Some(end)) =
            (self.source.range(first.span), self.source.range(last.span))
        else {
            return;
        };
        let is_printed = value("connector") == Some("filesystem")
            && value("path") == Some("-")
            && self.written.contains(&table.name.text);
        let mut kept: Vec<(String, String)> = Vec::new();
        let mut is_changed = is_printed;
        for (key, value) in &table.options {
            let dropped = findings
                .iter()
                .find(|finding| finding.span == key.span && finding.fix == Fix::DropOption);
            if let Some(finding) = dropped {
                self.lost.push(finding.clone());
                is_changed = true;
                continue;
            }
            match self.path_options(table, key, &value.text) {
                Some(options) => {
                    is_changed = true;
                    kept.extend(options);
                }
                None => kept.push((key.text.clone(), value.text.clone())),
            }
        }
        if value("connector") == Some("kafka")
            && value("sink.delivery-guarantee") == Some("exactly-once")
            && value(TRANSACTION_TIMEOUT).is_none()
        {
            kept.push((TRANSACTION_TIMEOUT.to_owned(), TRANSACTION_MS.to_owned()));
            is_changed = true;
        }
        if is_printed {
            kept = vec![("connector".to_owned(), "print".to_owned())];
        }
        if !is_changed {
            return;
        }
        let many_lines = last.span.line > first.span.line;
        let separator = if many_lines { ",\n  " } else { ", " };
        self.edits.push((start.start..end.end, quoted_options(&kept, separator)));
    }

    /// What a path of ours is for Flink, if it is anything else.
    fn path_options(
        &mut self,
        table: &CreateTable,
        key: &Name,
        path: &str,
    ) -> Option<Vec<(String, String)>> {
        let is_file = table
            .options
            .iter()
            .any(|(key, value)| key.text == "connector" && value.text == "filesystem");
        if !is_file || key.text != "path" || path == "-" || path.contains("://") {
            return None;
        }
        if self.written.contains(&table.name.text) && !path.ends_with('/') {
            self.lose(
                key.span,
                format!("Flink writes a folder of parts called '{path}', not one file"),
            );
        }
        let option = |key: &str, value: String| (key.to_owned(), value);
        if !path.contains(['*', '?', '[']) {
            let absolute = path.starts_with('/') || path.starts_with("file:");
            return (!absolute).then(|| vec![option("path", self.absolute(path))]);
        }
        let (folder, pattern) = self.folder_and_pattern(path);
        Some(vec![option("path", folder), option("source.path.regex-pattern", pattern)])
    }

    /// The folder of a glob, and an expression for the paths below that it means.
    fn folder_and_pattern(&self, glob: &str) -> (String, String) {
        let first = glob.find(['*', '?', '[']).unwrap_or(glob.len());
        let folder = glob[..first].rfind('/').map_or("", |slash| &glob[..slash]);
        let absolute = self.absolute(glob);
        let path = absolute.strip_prefix("file://").unwrap_or(&absolute);
        let mut pattern = String::new();
        for character in path.chars() {
            match character {
                '*' => pattern.push_str("[^/]*"),
                '?' => pattern.push_str("[^/]"),
                '.' | '(' | ')' | '{' | '}' | '+' | '$' | '^' | '|' | '\\' => {
                    pattern.push('\\');
                    pattern.push(character);
                }
                other => pattern.push(other),
            }
        }
        let folder = if folder.is_empty() && glob.starts_with('/') { "/" } else { folder };
        (self.absolute(folder), pattern.replace("[^/]*[^/]*/", "(.*/)?"))
    }

    /// Puts the text together.
    fn finish(
        mut self,
        text: &str,
        outputs: &[Output],
        planner: &Planner,
        cluster: &FlinkCluster,
    ) -> Result<Translation> {
        in_order(&mut self.edits);
        let (mut result, mut statements, mut at) = (String::new(), Vec::new(), 0);
        for output in outputs {
            // Between the queries of a statement set there is nothing of use.
            if self.queries == Queries::Jobs {
                result.push_str(&text[at..output.range.start]);
            }
            let next = outputs.iter().map(|o| o.range.start).find(|&s| s > output.range.start);
            let end = next.unwrap_or(usize::MAX);
            for lost in &self.lost {
                let place = self.source.start(lost.span);
                if (output.range.start..end).contains(&place) {
                    result.push_str(&format!("-- lost: {}\n", lost.message.replace('\n', " ")));
                }
            }
            for before in &output.before {
                result.push_str(&format!("{before};\n"));
                let (text, span) = (before.clone(), output.span);
                let (original, role) = (String::new(), Role::Declaration);
                statements.push(TranslatedStatement { text, original, span, role });
            }
            at = output.range.end;
            if output.is_dropped {
                let rest = &text[at..];
                at += rest.len() - rest.trim_start().strip_prefix(';').unwrap_or(rest).len();
                continue;
            }
            let edited = self.source.edited(output.range.clone(), &self.edits);
            result.push_str(&edited);
            if self.queries == Queries::Results {
                result.push_str(";\n");
            }
            statements.push(TranslatedStatement {
                text: edited,
                original: text[output.range.clone()].to_owned(),
                span: output.span,
                role: output.role,
            });
        }
        if self.queries == Queries::Jobs {
            result.push_str(&text[at..]);
        }
        let parsed = parse_script(&result)?;
        let left = flink_findings(&result, &parsed, planner.fork(), cluster);
        let left = left.into_iter().filter(|f| f.severity == Severity::Refused).collect();
        Ok(Translation { text: result, statements, lost: self.lost, left })
    }
}

/// Settings of object stores and secrets, which Flink's sessions have none of.
fn is_of_this_machine(key: &str) -> bool {
    ["s3.", "azure.", "gcs.", "secrets."].iter().any(|prefix| key.starts_with(prefix))
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::Normal(name) => parts.push(name.to_str().unwrap_or_default()),
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

fn role_of(kind: &StatementKind) -> Role {
    match kind {
        StatementKind::Insert(_)
        | StatementKind::StatementSet(_)
        | StatementKind::Select(_)
        | StatementKind::ExecutePlan(_) => Role::Job,
        StatementKind::CompilePlan(compile) if compile.is_executed => Role::Job,
        StatementKind::Show(_)
        | StatementKind::Describe(_)
        | StatementKind::Explain(_)
        | StatementKind::Jobs(_) => Role::Show,
        _ => Role::Declaration,
    }
}

fn written_tables(statements: &[Statement]) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for statement in statements {
        match &statement.kind {
            StatementKind::Insert(insert) => {
                tables.insert(insert.table.text.clone());
            }
            StatementKind::StatementSet(inserts) => {
                tables.extend(inserts.iter().map(|insert| insert.table.text.clone()));
            }
            _ => {}
        }
    }
    tables
}
