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
//! | an inner join of topics | one more condition: not both rows were read before ([`pairs`]) |
//! | functions over earlier rows, first rows by time | `WHERE` its row time `>` the watermark ([`row_times`]) |
//! | groups without a window | the same over parts, those of the snapshot in front ([`groups`]) |
//! | newest rows, Top-N, other groups | nothing else: all is read and written again ([`reread`]) |
//!
//! It stays a script of this dialect: what it becomes in Flink's is left to
//! [`translate`](crate::flink_check::translate).
//!
//! **Invariants:**
//! - rows before a start belong to no open window, whatever order rows came in: it is the first row
//!   of its partition with such a time. So a row is late after the move if it was late before;
//! - of windows, pairs and rows that were written nothing is written again, also where their rows
//!   are read again in part;
//! - what has no first row is refused before anything is stopped.

mod clauses;
mod groups;
mod literals;
mod needs;
mod pairs;
mod reread;
mod row_times;
mod tables;
mod windows;

use std::collections::BTreeMap;
use std::ops::Range;

use chrono_tz::Tz;
use thalweg_core::quoting::quoted_name;
use thalweg_core::{Error, Result};

use crate::ast::{Insert, Statement, StatementKind};
use crate::logical::{LogicalKind, Node};
use crate::parser::parse_script;
use crate::planner::Planner;
use crate::resolved_table::ResolvedTable;
use crate::script_text::{Edit, ScriptText, in_order, quoted_options};

use groups::HeldGroups;
pub use groups::{HandOver, HeldState};
use literals::literal;
pub use needs::Need;
use needs::{Held, needs, unmovable};
use pairs::unwritten_pairs;
use reread::check_output;
use row_times::RowsByTime;
pub use tables::Offsets;
use tables::{
    MovedTable, OFFSET, PARTITION, flag_columns, moved_tables, offsets_text, option, place_columns,
};
use windows::{MovedWindow, moved_windows};

/// Where a job was stopped.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Windows that end at or before it were written.
    pub watermark_ms: i64,
    /// Where Flink begins to read, by table. A topic without any is read as the job has read it,
    /// from its beginning.
    pub starts: BTreeMap<String, Offsets>,
    /// The next offsets at the stop, by table; needed for [`MovableJob::marks_rows`] alone.
    pub ends: BTreeMap<String, Offsets>,
    /// Where groups were handed over, if the job has any.
    pub hand_over: Option<HandOver>,
}

/// A script with one job that can be moved.
#[derive(Debug)]
pub struct MovableJob {
    text: String,
    queries: Vec<Node>,
    /// The statements that declare or set something.
    declarations: Vec<Declaration>,
    /// Where the statement of the job begins.
    job_start: usize,
    /// The tables that it reads.
    tables: BTreeMap<String, MovedTable>,
    rest: Rest,
    zone: Tz,
}

/// A statement in front of the job.
#[derive(Debug)]
struct Declaration {
    range: Range<usize>,
    /// True for a setting that is not of jobs and their snapshots.
    is_common_setting: bool,
}

/// How a job emits only what was not written.
#[derive(Debug)]
enum Rest {
    /// The windowing functions whose results leave the job, not those that feed others.
    Windows(Vec<MovedWindow>),
    /// One more condition.
    Pairs(Vec<Edit>),
    RowsByTime(RowsByTime),
    Groups(Box<HeldGroups>),
    /// Nothing: all is written again.
    Everything,
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
            refuse_plan(&statement.kind)?;
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
                    job = Some((start, inserts, planner.bound_inserts(inserts)?));
                }
                (StatementKind::Select(query), _) => {
                    return Err(Error::plan(
                        "a SELECT prints to whoever runs it: it cannot be moved",
                    )
                    .at(query.span)
                    .hint("write its result to a table: INSERT INTO …"));
                }
                (kind, _) if is_no_declaration(kind) => {}
                _ => {
                    planner.execute_ddl(statement)?;
                    declarations.push(Declaration {
                        range: start..source.end(start, next),
                        is_common_setting: is_common_setting(&statement.kind),
                    });
                }
            }
        }
        let Some((job_start, inserts, bound)) = job else {
            return Err(Error::plan("this file has no INSERT: there is no job to move"));
        };
        let (queries, outputs): (Vec<Node>, Vec<_>) =
            bound.into_iter().map(|(node, table, _)| (node, table)).unzip();
        let zone = planner.zone();
        let needed = needs(&queries, 0, zone)?;
        let tables = moved_tables(&source, &statements, &planner, &needed.tables)?;
        let rest = match needed.held {
            None => Rest::Windows(moved_windows(&source, &statements, inserts, &planner)?),
            Some(held) => {
                refuse_state_lifetime(&planner)?;
                let output = outputs[0].as_deref();
                rest_of(held, (&source, &inserts[0]), (&tables, &planner), (&queries[0], output))?
            }
        };
        let begins =
            |name: &String| tables.get(name).is_none_or(MovedTable::begins_at_its_beginning);
        let needed = needed_of(needed.tables, &rest);
        let whole = needed.iter().find(|(name, need)| **need == Need::All && !begins(name));
        if let (Some((name, _)), Rest::Pairs(_) | Rest::Everything) = (whole, &rest) {
            return Err(unmovable(
                &format!("it has read '{name}' from an offset on that the file does not name"),
                "'scan.startup.mode' = 'earliest-offset' makes it begin with the first row",
            ));
        }
        let text = text.to_owned();
        Ok(MovableJob { text, queries, declarations, job_start, tables, rest, zone })
    }

    /// The tables that it reads, with what is needed of them after this watermark.
    ///
    /// # Errors
    /// None that [`MovableJob::new`] has not found.
    pub fn needs(&self, watermark_ms: i64) -> Result<BTreeMap<String, Need>> {
        Ok(needed_of(needs(&self.queries, watermark_ms, self.zone)?.tables, &self.rest))
    }

    /// Whether the watermark of the stop says what was written. Positions alone do otherwise.
    pub fn is_by_watermark(&self) -> bool {
        match &self.rest {
            Rest::Windows(_) | Rest::RowsByTime(_) => true,
            Rest::Groups(_) | Rest::Everything => false,
            Rest::Pairs(_) => {
                self.needs(0).is_ok_and(|needs| needs.values().any(|need| *need != Need::All))
            }
        }
    }

    /// Whether rows that the job has read are marked, so that the ends of its topics are needed.
    pub fn marks_rows(&self) -> bool {
        matches!(self.rest, Rest::Pairs(_))
    }

    /// Whether all rows of a topic have to be there, and not only those of the last session.
    pub fn needs_the_first_row(&self) -> bool {
        !matches!(self.rest, Rest::Windows(_))
    }

    /// Whether all that was written is written again.
    pub fn writes_again(&self) -> bool {
        matches!(self.rest, Rest::Everything)
    }

    /// Whether groups are handed over.
    pub fn hands_over(&self) -> bool {
        matches!(self.rest, Rest::Groups(_))
    }

    /// A script that looks at the topic for groups: it fails if there is none.
    ///
    /// # Errors
    /// If there are no groups.
    pub fn probe(&self, topic: &str) -> Result<String> {
        let (groups, connection) = self.groups()?;
        let declaration = groups.declaration(&connection, topic, true);
        Ok(format!("{}{declaration}SELECT COUNT(*) FROM `moved$state`;", self.settings()?))
    }

    /// A script that writes the groups of a snapshot to a topic.
    ///
    /// # Errors
    /// If there are no groups.
    pub fn hand_over(&self, to: &HandOver, state: &HeldState<'_>) -> Result<String> {
        let (groups, connection) = self.groups()?;
        let declaration = groups.declaration(&connection, &to.topic, false);
        let insert = groups.hand_over(state, &to.attempt);
        Ok(format!("{}{declaration}{insert}", self.settings()?))
    }

    /// The groups, and how to reach the brokers that the job reads from.
    fn groups(&self) -> Result<(&HeldGroups, Vec<(String, String)>)> {
        match (&self.rest, self.tables.values().next()) {
            (Rest::Groups(groups), Some(table)) => Ok((groups, table.connection())),
            _ => Err(Error::internal("no groups are handed over")),
        }
    }

    /// The settings of the script but those of jobs and snapshots.
    fn settings(&self) -> Result<String> {
        let source = ScriptText::new(&self.text)?;
        let common = self.declarations.iter().filter(|declared| declared.is_common_setting);
        Ok(common.map(|set| source.edited(set.range.clone(), &[]) + ";\n").collect())
    }

    /// A script whose one query finds the first row of each partition of a topic with this row
    /// time or a later one: the partition, that row's offset, and that of the first row there is.
    /// Without a time both are the first row. Rows from `ends` on are not read.
    ///
    /// # Errors
    /// If the table has no row time.
    pub fn search(&self, table: &str, from_ms: Option<i64>, ends: &Offsets) -> Result<String> {
        let found = self.table(table)?;
        let mut options = found.options_from(None);
        options.retain(|(key, _)| {
            !key.starts_with("scan.bounded.") && !key.starts_with("scan.watermark.")
        });
        options.push(option("scan.bounded.mode", "specific-offsets"));
        options.push(option("scan.bounded.specific-offsets", &offsets_text(ends)));
        let edits = [
            (found.columns_start..found.columns_start, place_columns()),
            (found.options_range.clone(), quoted_options(&options, ", ")),
        ];
        let source = ScriptText::new(&self.text)?;
        let declarations =
            self.declarations.iter().map(|declared| source.edited(declared.range.clone(), &edits));
        let mut script: String = declarations.map(|declaration| declaration + ";\n").collect();
        script.push_str("SET 'execution.runtime-mode' = 'batch';\n");
        let filter = match (from_ms, &found.row_time) {
            (None, _) => String::new(),
            (Some(from_ms), Some((column, is_instant))) => {
                let from = literal(from_ms, *is_instant);
                format!(" FILTER (WHERE {} >= {from})", quoted_name(column))
            }
            (Some(_), None) => {
                return Err(Error::internal(format!("windows over '{table}' without a row time")));
            }
        };
        script.push_str(&format!(
            "SELECT {PARTITION}, MIN({OFFSET}){filter}, MIN({OFFSET}) FROM {} GROUP BY {PARTITION}",
            quoted_name(table),
        ));
        Ok(script)
    }

    /// The script as it runs on from a stop.
    ///
    /// # Errors
    /// None for a script that was parsed before.
    pub fn script(&self, stop: &Stop) -> Result<String> {
        let source = ScriptText::new(&self.text)?;
        let mut edits = self.edits(&source, stop)?;
        for (table, found) in &self.tables {
            let options = found.options_from(stop.starts.get(table));
            edits.push((found.options_range.clone(), quoted_options(&options, ", ")));
            if self.marks_rows() {
                let ends = stop.ends.get(table).cloned().unwrap_or_default();
                edits.push((found.columns_start..found.columns_start, flag_columns(&ends)));
            }
        }
        in_order(&mut edits);
        Ok(source.edited(0..self.text.len(), &edits))
    }

    /// The edits of queries.
    fn edits(&self, source: &ScriptText<'_>, stop: &Stop) -> Result<Vec<Edit>> {
        Ok(match (&self.rest, &stop.hand_over) {
            (Rest::Windows(windows), _) => windows
                .iter()
                .map(|window| window.filtered(&self.text, stop.watermark_ms))
                .collect(),
            (Rest::Pairs(edits), _) => edits.clone(),
            (Rest::RowsByTime(rows), _) => {
                vec![(rows.range(), rows.moved(&self.text, stop.watermark_ms))]
            }
            (Rest::Groups(groups), Some(to)) => {
                let (_, connection) = self.groups()?;
                let declaration = groups.declaration(&connection, &to.topic, true);
                let at = self.job_start..self.job_start;
                vec![(at, declaration), groups.moved(source, &to.attempt)]
            }
            (Rest::Everything, _) => Vec::new(),
            (Rest::Groups(_), None) => {
                return Err(Error::internal("groups that were not handed over"));
            }
        })
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

fn inserts_of(statement: &Statement) -> Option<&[Insert]> {
    match &statement.kind {
        StatementKind::Insert(insert) => Some(std::slice::from_ref(insert)),
        StatementKind::StatementSet(inserts) => Some(inserts),
        _ => None,
    }
}

/// Statements that neither run a job nor change what follows.
fn is_no_declaration(kind: &StatementKind) -> bool {
    use StatementKind::{CompilePlan, Describe, Explain, Show};
    matches!(kind, Show(_) | Describe(_) | Explain(_) | CompilePlan(_))
}

/// Flink executes only plans that it has compiled itself.
fn refuse_plan(kind: &StatementKind) -> Result<()> {
    let path = match kind {
        StatementKind::ExecutePlan(path) => path,
        StatementKind::CompilePlan(compile) if compile.is_executed => &compile.path,
        _ => return Ok(()),
    };
    let hint = "write the INSERT of the plan in its place: its file holds the text";
    Err(unmovable("what it runs stands in a compiled plan", hint).at(path.span))
}

/// What is needed of tables, all of them if all is written again.
fn needed_of(mut needed: BTreeMap<String, Need>, rest: &Rest) -> BTreeMap<String, Need> {
    if matches!(rest, Rest::Everything) {
        let streams = needed.values_mut().filter(|need| **need != Need::Whole);
        streams.for_each(|need| *need = Need::All);
    }
    needed
}

/// What the moved job emits, where it holds more than windows.
fn rest_of(
    held: Held,
    (source, insert): (&ScriptText<'_>, &Insert),
    (tables, planner): (&BTreeMap<String, MovedTable>, &Planner),
    (query, output): (&Node, Option<&ResolvedTable>),
) -> Result<Rest> {
    let output = output.ok_or_else(|| Error::internal("an INSERT writes a table"))?;
    let everything = || {
        check_output(query, output).map_err(|error| error.at(insert.query.span))?;
        Ok(Rest::Everything)
    };
    match held {
        Held::Pairs => Ok(Rest::Pairs(unwritten_pairs(source, insert, tables)?)),
        Held::RowsByTime => {
            Ok(Rest::RowsByTime(RowsByTime::of(source, insert, tables, planner)?))
        }
        Held::Groups(node) if !takes_upserts(output, &node) => Err(unmovable(
            "groups without a window are written again when they are handed over",
            "write them to a table of upserts (upsert-kafka, jdbc) whose primary key is that of the groups, or group by window_start and window_end",
        )
        .at(insert.query.span)),
        // Groups that are not made of parts are read again.
        Held::Groups(node) => match HeldGroups::of(source, insert, &node) {
            Ok(groups) => Ok(Rest::Groups(Box::new(groups))),
            Err(error) => everything().map_err(|_| error),
        },
        Held::Everything => everything(),
    }
}

/// Whether a group that is written twice is there once. Flink wants the key of the groups to be
/// that of the table.
fn takes_upserts(output: &ResolvedTable, groups: &Node) -> bool {
    let is_key = matches!(&groups.kind, LogicalKind::Aggregate { keys, .. } if keys.len() == output.primary_key.len());
    let connector = output.options.get("connector").map_or("", String::as_str);
    matches!(connector, "upsert-kafka" | "jdbc") && is_key && !output.primary_key.is_empty()
}

fn refuse_state_lifetime(planner: &Planner) -> Result<()> {
    match planner.state_ttl_ms().filter(|&ttl_ms| ttl_ms > 0) {
        None => Ok(()),
        Some(_) => Err(unmovable(
            "its state expires ('table.exec.state.ttl'), and rows do not say when that was",
            "leave out the lifetime of state",
        )),
    }
}

/// Whether a statement sets what is not of jobs and their snapshots.
fn is_common_setting(kind: &StatementKind) -> bool {
    let StatementKind::Set { key, .. } = kind else { return false };
    let of_jobs = ["execution.", "pipeline.", "late.", "parallelism."];
    !of_jobs.iter().any(|prefix| key.text.starts_with(prefix))
}
