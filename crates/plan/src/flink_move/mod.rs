//! Moves a job that was stopped at a watermark to Apache Flink (`thalweg move`, design note 034).
//!
//! The job was stopped under a snapshot, so three things are known: which windows were written,
//! those that end at or before the watermark; how far each partition was read; and which rows the
//! windows that are open hold ([`needs`]). The script is edited so that it begins there:
//!
//! ```text
//! written by the snapshot     │ open windows        │ rows to come
//! ────────────────────────────┼─────────────────────┼───────────▶ row time
//!                 start of the first open window
//!                             └─ 'scan.startup.specific-offsets': the first row of it in each partition
//! ```
//!
//! | in the script | in the moved one |
//! |---|---|
//! | options of a topic that is read | `specific-offsets` of each partition |
//! | `TABLE(TUMBLE(…))` | `(SELECT * FROM TABLE(TUMBLE(…)) WHERE window_time > the watermark)` |
//!
//! It stays a script of this dialect: what it becomes in Flink's is left to
//! [`translate`](crate::flink_check::translate).
//!
//! **Invariants:**
//! - rows before a start belong to no open window, whatever order rows came in: it is the first row
//!   of its partition with such a time. So a row is late after the move if it was late before;
//! - of windows that were written nothing is written again, also of those whose rows are read again
//!   in part;
//! - what has no first row is refused before anything is stopped.

mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chrono_tz::Tz;
use sqlparser::tokenizer::Token;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{DataType, Error, Result};

use crate::ast::{CreateTable, Insert, Name, Query, Statement, StatementKind, WindowCall};
use crate::logical::Node;
use crate::parser::parse_script;
use crate::planner::Planner;
use crate::script_text::{Edit, ScriptText, closing, in_order, quoted_options};

pub use needs::Need;
use needs::needs;

/// The next offset of each partition of a topic.
pub type Offsets = BTreeMap<i32, i64>;

/// The metadata columns that a search adds to a table.
const PARTITION: &str = "`$partition`";
const OFFSET: &str = "`$offset`";

/// A script with one job that can be moved.
#[derive(Debug)]
pub struct MovableJob {
    text: String,
    queries: Vec<Node>,
    /// The statements that declare or set something.
    declarations: Vec<Range<usize>>,
    /// The tables that it reads.
    tables: BTreeMap<String, MovedTable>,
    /// The windowing functions whose results leave the job, not those that feed others.
    windows: Vec<MovedWindow>,
    zone: Tz,
}

/// A table that is read, in the text.
#[derive(Debug)]
struct MovedTable {
    /// Between the brackets of WITH.
    options_range: Range<usize>,
    options: Vec<(String, String)>,
    /// Where its first column stands.
    columns_start: usize,
    /// Its row time, and whether that is a TIMESTAMP_LTZ.
    row_time: Option<(String, bool)>,
}

#[derive(Debug)]
struct MovedWindow {
    range: Range<usize>,
    is_instant: bool,
}

impl MovableJob {
    /// Looks at a script that is valid here. The planner's declarations hold before it.
    ///
    /// # Errors
    /// If it has no job or several, or its job holds what cannot be moved: the reason is said.
    pub fn new(text: &str, planner: &Planner) -> Result<MovableJob> {
        let statements = parse_script(text)?;
        let source = ScriptText::new(text)?;
        let mut planner = planner.fork();
        let (mut declarations, mut job) = (Vec::new(), None);
        for (position, statement) in statements.iter().enumerate() {
            let next = statements.get(position + 1).map(|next| next.span);
            let start = source.start(statement.span);
            match (&statement.kind, inserts_of(statement)) {
                (_, Some(_)) if job.is_some() => {
                    return Err(Error::plan(
                        "this file has several jobs, and one is moved at a time",
                    )
                    .at(statement.span)
                    .hint("put each INSERT into a file of its own, or all into a statement set"));
                }
                (_, Some(inserts)) => {
                    let bound = planner.bound_inserts(inserts)?;
                    job = Some((
                        inserts,
                        bound.into_iter().map(|(node, ..)| node).collect::<Vec<Node>>(),
                    ));
                }
                (StatementKind::Select(query), _) => {
                    return Err(Error::plan(
                        "a SELECT prints to whoever runs it: it cannot be moved",
                    )
                    .at(query.span)
                    .hint("write its result to a table: INSERT INTO …"));
                }
                (
                    StatementKind::Show(_) | StatementKind::Describe(_) | StatementKind::Explain(_),
                    _,
                ) => {}
                _ => {
                    planner.execute_ddl(statement)?;
                    declarations.push(start..source.end(start, next));
                }
            }
        }
        let Some((inserts, queries)) = job else {
            return Err(Error::plan("this file has no INSERT: there is no job to move"));
        };
        let zone = planner.zone();
        let read = needs(&queries, 0, zone)?;
        let tables = moved_tables(&source, &statements, &planner, &read)?;
        let windows = moved_windows(&source, &statements, inserts, &planner)?;
        let text = text.to_owned();
        Ok(MovableJob { text, queries, declarations, tables, windows, zone })
    }

    /// The tables that it reads, with what is needed of them after this watermark.
    ///
    /// # Errors
    /// None that [`MovableJob::new`] has not found.
    pub fn needs(&self, watermark_ms: i64) -> Result<BTreeMap<String, Need>> {
        needs(&self.queries, watermark_ms, self.zone)
    }

    /// A script whose one query finds the first row of each partition of a topic with this row time
    /// or a later one: the partition, that row's offset, and that of the first row there is. Rows
    /// from `ends` on are not read.
    ///
    /// # Errors
    /// If the table has no row time.
    pub fn search(&self, table: &str, from_ms: i64, ends: &Offsets) -> Result<String> {
        let found = self.table(table)?;
        let Some((column, is_instant)) = &found.row_time else {
            return Err(Error::internal(format!("windows over '{table}', which has no row time")));
        };
        let mut options = found.options_from(None);
        options.retain(|(key, _)| {
            !key.starts_with("scan.bounded.") && !key.starts_with("scan.watermark.")
        });
        options.push(option("scan.bounded.mode", "specific-offsets".to_owned()));
        options.push(option("scan.bounded.specific-offsets", offsets_text(ends)));
        let columns = format!(
            "{PARTITION} INT METADATA FROM 'partition' VIRTUAL, {OFFSET} BIGINT METADATA FROM 'offset' VIRTUAL, "
        );
        let edits = [
            (found.columns_start..found.columns_start, columns),
            (found.options_range.clone(), quoted_options(&options, ", ")),
        ];
        let source = ScriptText::new(&self.text)?;
        let declarations =
            self.declarations.iter().map(|range| source.edited(range.clone(), &edits));
        let mut script: String = declarations.map(|declaration| declaration + ";\n").collect();
        script.push_str("SET 'execution.runtime-mode' = 'batch';\n");
        script.push_str(&format!(
            "SELECT {PARTITION}, MIN({OFFSET}) FILTER (WHERE {} >= {}), MIN({OFFSET}) FROM {} GROUP BY {PARTITION}",
            quoted_name(column),
            literal(from_ms, *is_instant),
            quoted_name(table),
        ));
        Ok(script)
    }

    /// The script as it runs on from a watermark, each topic read from these offsets; a topic
    /// without any is read as the job has read it, from its beginning.
    ///
    /// # Errors
    /// None for a script that was parsed before.
    pub fn script(&self, watermark_ms: i64, starts: &BTreeMap<String, Offsets>) -> Result<String> {
        let source = ScriptText::new(&self.text)?;
        let mut edits: Vec<Edit> = Vec::new();
        for window in &self.windows {
            let call = &self.text[window.range.clone()];
            let after = literal(watermark_ms, window.is_instant);
            let filtered = format!("(SELECT * FROM {call} WHERE window_time > {after})");
            edits.push((window.range.clone(), filtered));
        }
        for (table, found) in &self.tables {
            let options = found.options_from(starts.get(table));
            edits.push((found.options_range.clone(), quoted_options(&options, ", ")));
        }
        in_order(&mut edits);
        Ok(source.edited(0..self.text.len(), &edits))
    }

    /// Whether a search of this topic begins at its first row, because the job did or because it is
    /// not known where it began.
    pub fn is_searched_from_its_beginning(&self, table: &str) -> bool {
        self.tables.get(table).is_some_and(|table| !table.begins_at_a_place())
    }

    fn table(&self, name: &str) -> Result<&MovedTable> {
        let found = self.tables.get(name);
        found.ok_or_else(|| Error::internal(format!("the job does not read a topic as '{name}'")))
    }
}

impl MovedTable {
    /// Whether its options say where in the topic the job began.
    fn begins_at_a_place(&self) -> bool {
        let is_place = |mode: &str| matches!(mode, "specific-offsets" | "timestamp");
        self.options.iter().any(|(key, value)| key == "scan.startup.mode" && is_place(value))
    }

    /// Its options, with these offsets to begin at, or the place where the job began.
    fn options_from(&self, offsets: Option<&Offsets>) -> Vec<(String, String)> {
        if offsets.is_none() && self.begins_at_a_place() {
            return self.options.clone();
        }
        let is_other = |(key, _): &&(String, String)| !key.starts_with("scan.startup.");
        let mut options: Vec<_> = self.options.iter().filter(is_other).cloned().collect();
        match offsets {
            Some(offsets) => {
                options.push(option("scan.startup.mode", "specific-offsets".to_owned()));
                options.push(option("scan.startup.specific-offsets", offsets_text(offsets)));
            }
            None => options.push(option("scan.startup.mode", "earliest-offset".to_owned())),
        }
        options
    }
}

fn option(key: &str, value: String) -> (String, String) {
    (key.to_owned(), value)
}

fn offsets_text(offsets: &Offsets) -> String {
    let part = |(partition, offset): (&i32, &i64)| format!("partition:{partition},offset:{offset}");
    offsets.iter().map(part).collect::<Vec<_>>().join(";")
}

fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn literal(at_ms: i64, is_instant: bool) -> String {
    match is_instant {
        true => format!("TO_TIMESTAMP_LTZ({at_ms}, 3)"),
        false => format!("TIMESTAMP '{}'", format_timestamp_millis(at_ms, 3)),
    }
}

fn inserts_of(statement: &Statement) -> Option<&[Insert]> {
    match &statement.kind {
        StatementKind::Insert(insert) => Some(std::slice::from_ref(insert)),
        StatementKind::StatementSet(inserts) => Some(inserts),
        _ => None,
    }
}

/// The topics among the tables that are read. A table that is read whole stays as it is.
fn moved_tables(
    source: &ScriptText<'_>,
    statements: &[Statement],
    planner: &Planner,
    read: &BTreeMap<String, Need>,
) -> Result<BTreeMap<String, MovedTable>> {
    let mut tables = BTreeMap::new();
    for (name, need) in read {
        if *need == Need::Whole {
            continue;
        }
        let definition = statements.iter().rev().find_map(|statement| match &statement.kind {
            StatementKind::CreateTable(table) if table.name.text == *name => Some(table),
            _ => None,
        });
        let Some(definition) = definition else {
            return Err(Error::plan(format!("the table '{name}' is not declared in this file"))
                .hint("put its CREATE TABLE into the file"));
        };
        tables.insert(name.clone(), moved_table(source, definition, planner)?);
    }
    Ok(tables)
}

fn moved_table(
    source: &ScriptText<'_>,
    definition: &CreateTable,
    planner: &Planner,
) -> Result<MovedTable> {
    let name = &definition.name;
    let refused = |why: String, hint: &str| {
        Error::plan(format!("this job cannot be moved: {why}")).at(name.span).hint(hint)
    };
    let value = |name: &str| {
        let found = definition.options.iter().find(|(key, _)| key.text == name);
        found.map_or("", |(_, value)| value.text.as_str())
    };
    if value("connector") != "kafka" {
        return Err(refused(
            format!(
                "'{}' is no topic: Flink cannot begin to read it where this job stopped",
                name.text
            ),
            "topics of the connector kafka have offsets that both know",
        ));
    }
    if value("topic").is_empty() || value("topic").contains(';') {
        return Err(refused(
            format!("'{}' reads several topics, and start offsets belong to one", name.text),
            "declare a table for each topic, and read their UNION ALL",
        ));
    }
    let ends = (definition.options.first(), definition.options.last(), definition.columns.first());
    let (Some((first, _)), Some((_, last)), Some(column)) = ends else {
        return Err(refused(
            format!("'{}' takes its columns from another table", name.text),
            "write its columns and options out",
        ));
    };
    let (Some(start), Some(end)) = (source.range(first.span), source.range(last.span)) else {
        return Err(Error::internal("an option has a place of one line").at(first.span));
    };
    let row_time = match &definition.watermark {
        Some(watermark) => {
            let column = &watermark.column.text;
            let query = format!("SELECT {} FROM {}", quoted_name(column), quoted_name(&name.text));
            Some((column.clone(), is_instant(planner, &query)?))
        }
        None => None,
    };
    let pair = |(key, value): &(Name, Name)| (key.text.clone(), value.text.clone());
    Ok(MovedTable {
        options_range: start.start..end.end,
        options: definition.options.iter().map(pair).collect(),
        columns_start: source.start(column.name.span),
        row_time,
    })
}

/// Whether the one column of a query is a TIMESTAMP_LTZ.
fn is_instant(planner: &Planner, query: &str) -> Result<bool> {
    let statements = parse_script(query)?;
    let [Statement { kind: StatementKind::Select(query), .. }] = &statements[..] else {
        return Err(Error::internal(format!("one query was expected: {query}")));
    };
    let schema = planner.result_schema(query)?;
    let first = schema.columns.first().map(|column| &column.column_type.data_type);
    Ok(matches!(first, Some(DataType::TimestampLtz(_))))
}

/// The windowing functions whose rows leave the job: those of its own queries, and those of views
/// that do not feed other windows.
fn moved_windows(
    source: &ScriptText<'_>,
    statements: &[Statement],
    inserts: &[Insert],
    planner: &Planner,
) -> Result<Vec<MovedWindow>> {
    let views: Vec<(&str, &Query)> = statements
        .iter()
        .filter_map(|statement| match &statement.kind {
            StatementKind::CreateView { name, query, .. } => Some((name.text.as_str(), query)),
            _ => None,
        })
        .collect();
    let own = inserts.iter().map(|insert| &insert.query);
    let all: Vec<&Query> = own.chain(views.iter().map(|(_, query)| *query)).collect();
    let calls: Vec<Range<usize>> = all
        .iter()
        .flat_map(|query| &query.windows)
        .map(|window| call_range(source, window))
        .collect::<Result<_>>()?;
    for query in &all {
        refuse_old_form(source, query, &calls)?;
    }
    let mut feeding = BTreeSet::new();
    for (name, query) in &views {
        let is_inside = |place: &usize| calls.iter().any(|call| call.contains(place));
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            places_behind(source, source.start(query.span), name).partition(is_inside);
        if inside.is_empty() || query.windows.is_empty() {
            continue;
        }
        if !outside.is_empty() {
            return Err(Error::plan(format!(
                "this job cannot be moved: the view '{name}' feeds windows and is read without them"
            ))
            .at(query.span)
            .hint("declare it twice, under two names"));
        }
        feeding.insert(*name);
    }
    let leaving = views.iter().filter(|(name, _)| !feeding.contains(name)).map(|(_, query)| *query);
    let leaving = inserts.iter().map(|insert| &insert.query).chain(leaving);
    leaving
        .flat_map(|query| &query.windows)
        .map(|window| moved_window(source, window, planner))
        .collect()
}

/// Windows of `GROUP BY TUMBLE(ts, …)` have no call of their own in FROM that a condition could
/// follow, so those that were written would be written again.
fn refuse_old_form(source: &ScriptText<'_>, query: &Query, calls: &[Range<usize>]) -> Result<()> {
    let words = source.words_from(source.start(query.span));
    let words: Vec<(&Token, Range<usize>)> =
        words.take_while(|(token, _)| **token != Token::SemiColon).collect();
    let old = words.windows(2).find(|pair| {
        let is_call = *pair[1].0 == Token::LParen && is_window_function(pair[0].0);
        is_call && !calls.iter().any(|call| call.contains(&pair[0].1.start))
    });
    match old {
        None => Ok(()),
        Some(_) => Err(Error::plan("this job cannot be moved: it groups by windows in the old form")
            .at(query.span)
            .hint(
                "write them in FROM: TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)), and GROUP BY window_start, window_end",
            )),
    }
}

fn is_window_function(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    ["TUMBLE", "HOP", "SESSION", "CUMULATE"]
        .iter()
        .any(|name| word.value.eq_ignore_ascii_case(name))
}

fn moved_window(
    source: &ScriptText<'_>,
    window: &WindowCall,
    planner: &Planner,
) -> Result<MovedWindow> {
    let range = call_range(source, window)?;
    let query = format!("SELECT window_time FROM {}", &source.text[range.clone()]);
    Ok(MovedWindow { is_instant: is_instant(planner, &query)?, range })
}

/// A call from its first word to its last bracket.
fn call_range(source: &ScriptText<'_>, window: &WindowCall) -> Result<Range<usize>> {
    let name = source.start(window.span);
    let words: Vec<(Token, Range<usize>)> =
        source.words_from(0).map(|(token, range)| (token.clone(), range)).collect();
    let position = words.iter().position(|(_, range)| range.start == name);
    // In front of the name stand TABLE and a bracket.
    let first = position.map(|at| if window.is_short { at } else { at.saturating_sub(2) });
    let found = first.and_then(|first| {
        let last = closing(&words[first..])?;
        Some(words[first].1.start..words[first + last].1.end)
    });
    found.ok_or_else(|| Error::internal("a window call has a place in its text").at(window.span))
}

/// Where a name stands behind a place of a script. A column may have it, too.
fn places_behind<'s>(
    source: &'s ScriptText<'_>,
    start: usize,
    name: &'s str,
) -> impl Iterator<Item = usize> + 's {
    let is_name = move |token: &Token| matches!(token, Token::Word(word) if word.value == name);
    let words = source.words_from(start).filter(move |(token, _)| is_name(token));
    words.map(|(_, range)| range.start)
}
