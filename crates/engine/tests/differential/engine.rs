//! Runs a query through [`thalweg::session`], by a file or at once, and takes what is left of its
//! changes.
//!
//! Every step of the changelog is checked: nothing may be retracted that is not there, and a
//! result whose rows are said to stay has insertions only.

use std::collections::BTreeMap;
use std::path::Path;

use chrono_tz::Tz;
use thalweg::pipeline::Collect;
use thalweg::session::{Observer, Session, SessionOptions};
use thalweg::{Error, Result, RowKind, Sink, TableSchema};
use thalweg_core::text::TextColumn;
use thalweg_plan::ResultTable;

/// A row as text; NULL is `\N`.
pub type Row = Vec<String>;

/// What a query runs with.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The contract about order.
    pub order: &'static str,
    /// Worker threads.
    pub workers: usize,
    /// The largest bundle.
    pub bundle_rows_max: usize,
    /// Whether aggregates send one update per key and bundle.
    pub mini_batch: bool,
    /// Whether final results are asked for.
    pub is_batch: bool,
    /// The format of a file that the changes are written to, and read back from.
    pub file: Option<&'static str>,
}

impl Configuration {
    /// A contract, workers and the largest bundle, and nothing else.
    pub fn new(order: &'static str, workers: usize, bundle_rows_max: usize) -> Self {
        Self { order, workers, bundle_rows_max, mini_batch: false, is_batch: false, file: None }
    }
}

/// What a query gave.
#[derive(Debug)]
pub struct Outcome {
    /// Every row with its kind, in order.
    pub sequence: Vec<(RowKind, Row)>,
    /// Whether the planner said that rows change.
    pub has_updates: bool,
}

/// Declares tables in a folder and runs a query over them; the changes of the query.
pub fn run(
    folder: &Path,
    declarations: &str,
    query: &str,
    configuration: &Configuration,
) -> Result<Outcome> {
    let mut session = session(folder, configuration)?;
    let mut result = SelectResult::default();
    match configuration.file {
        None => session.run_script(&format!("{declarations}{query};"), &mut result)?,
        Some(format) => {
            session.execute(declarations)?;
            let columns = session.result_schema(query)?.columns;
            let columns = columns.iter().map(|c| format!("{} {}", c.name, c.column_type));
            let columns = columns.collect::<Vec<_>>().join(", ");
            session.execute(&format!(
                "CREATE TABLE changes ({columns}) WITH ('connector' = 'filesystem', 'changelog' = 'op',
                   'path' = 'changes.{format}', {});
                 INSERT INTO changes {query};",
                options_of(format)
            ))?;
            session.run_script("SELECT * FROM changes", &mut result)?
        }
    };
    Ok(result.outcome())
}

/// Runs statements that print nothing.
pub fn run_script(folder: &Path, script: &str) -> Result<()> {
    session(folder, &Configuration::new("arrival", 1, 1_000))?.execute(script).map(drop)
}

/// NULL and the empty text differ in a file.
fn options_of(format: &str) -> String {
    let null = if format == "csv" { ", 'csv.null-literal' = 'NULL'" } else { "" };
    format!("'format' = '{format}'{null}")
}

fn session(folder: &Path, configuration: &Configuration) -> Result<Session> {
    let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mode = if configuration.is_batch { "batch" } else { "streaming" };
    Session::new(SessionOptions {
        base_dir: folder.to_path_buf(),
        allowed_roots: vec![folder.to_path_buf()],
        workers: Some(configuration.workers),
        memory_limit: Some("1gb".to_owned()),
        settings: vec![
            set("pipeline.order", configuration.order),
            set("pipeline.bundle-rows-max", &configuration.bundle_rows_max.to_string()),
            set("table.exec.mini-batch.enabled", &configuration.mini_batch.to_string()),
            set("execution.runtime-mode", mode),
            set("late.data", "fail"),
        ],
        ..SessionOptions::default()
    })
}

/// What is left when all changes are done: rows in order, each as often as it is there.
pub fn final_rows(outcome: &Outcome) -> std::result::Result<Vec<Row>, String> {
    let mut counts: BTreeMap<&Row, usize> = BTreeMap::new();
    for (position, (kind, row)) in outcome.sequence.iter().enumerate() {
        if *kind != RowKind::Insert && !outcome.has_updates {
            return Err(format!("{} in a result whose rows stay", kind.short()));
        }
        let count = counts.entry(row).or_default();
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => *count += 1,
            RowKind::UpdateBefore | RowKind::Delete => {
                *count = count.checked_sub(1).ok_or_else(|| {
                    format!("change {position} retracts a row that is not there: {row:?}")
                })?;
            }
        }
    }
    let rows = counts.into_iter().flat_map(|(row, count)| std::iter::repeat_n(row.clone(), count));
    Ok(rows.collect())
}

/// Takes the rows of the SELECT.
#[derive(Default)]
struct SelectResult {
    rows: Collect,
    schema: Option<TableSchema>,
    has_updates: bool,
}

impl Observer for SelectResult {
    fn result(&mut self, table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        self.schema = Some(table.schema.clone());
        self.has_updates = table.has_updates;
        Ok(Box::new(self.rows.sink()))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Err(Error::plan("no query of this test explains"))
    }
}

impl SelectResult {
    fn outcome(&self) -> Outcome {
        let mut sequence = Vec::new();
        let schema = self.schema.as_ref().expect("the script had a SELECT");
        for changes in self.rows.changes() {
            let arrays = changes.batch.columns().iter().zip(&schema.columns);
            let columns: Vec<TextColumn<'_>> = arrays
                .map(|(array, column)| {
                    TextColumn::new(array, &column.column_type.data_type, Tz::UTC)
                })
                .collect();
            for row in 0..changes.batch.num_rows() {
                let values = columns.iter().map(|column| value_text(column, row));
                sequence.push((changes.kind(row), values.collect()));
            }
        }
        Outcome { sequence, has_updates: self.has_updates }
    }
}

fn value_text(column: &TextColumn<'_>, row: usize) -> String {
    if column.is_null(row) {
        return "\\N".to_owned();
    }
    let mut text = String::new();
    column.append(&mut text, row);
    text
}

/// A row in a form that both engines agree on: of decimals, how many zeros end them may differ.
pub fn normalized(row: &Row) -> Row {
    let value = |text: &String| {
        let is_decimal =
            text.contains('.') && !text.contains(':') && !text.contains(char::is_alphabetic);
        if !is_decimal {
            return text.clone();
        }
        let short = text.trim_end_matches('0').trim_end_matches('.');
        if matches!(short, "-0" | "-" | "") { "0".to_owned() } else { short.to_owned() }
    };
    row.iter().map(value).collect()
}
