//! `thalweg move --flink`: a job that runs here continues on Apache Flink, each result once.
//!
//! ```text
//! can it be moved?  would Flink take it?  is the name free?     nothing has changed so far
//!   └─▶ stop with a snapshot ─▶ where do open windows begin? ─▶ submit the edited script
//!                               groups: write them to a topic
//! ```
//!
//! What fails before the stop leaves the job as it is; what fails behind it leaves it stopped, and
//! it can be started here again. What moves, and why that is exact, is decided in
//! [`thalweg_plan::flink_move`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use thalweg::jobs::open_snapshots;
use thalweg::session::{PlannedJob, Session, SessionOptions};
use thalweg_core::connector::Access;
use thalweg_core::graph::{Stage, StageKind};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};
use thalweg_plan::catalog::substitute;
use thalweg_plan::flink_check::{Queries, Translation};
use thalweg_plan::flink_move::{HandOver, HeldState, MovableJob, Need, Offsets, Stop};
use thalweg_state::{JobLock, SnapshotStore};

use super::super::arguments::{ColorChoice, ScriptArguments};
use super::super::check::print_findings;
use super::super::exit::{FAILED, Failure, with_source};
use super::super::flink_arguments::{FlinkSubmitArguments, MoveArguments};
use super::super::server;
use super::super::snapshot;
use super::super::terminal::{print, say};
use super::sent_secrets::SentSecrets;
use super::stopped::StoppedJob;
use super::submit::{Order, Submission};

/// `thalweg move --flink URL JOB`; the exit status.
pub fn move_job(arguments: &MoveArguments) -> u8 {
    if !arguments.job.ends_with(".sql") {
        let moved = Origin::on_server(arguments).and_then(|origin| {
            let text = Some(origin.text.clone());
            moved(arguments, &origin).map_err(|failure| Failure { text, ..failure })
        });
        return moved.unwrap_or_else(|failure| failure.report(None, ColorChoice::Auto));
    }
    let script = ScriptArguments {
        file: Some(PathBuf::from(&arguments.job)),
        execute: None,
        settings: arguments.settings.clone(),
        parameters: arguments.params.clone(),
        allow_paths: Vec::new(),
        color: ColorChoice::Auto,
    };
    with_source(&script, |source| {
        let text = super::super::check::substituted(source, &script)?;
        let options = source.session_options(&script)?;
        let settings = arguments.settings.clone();
        let origin = Origin { text, options, settings, is_on_server: false };
        let text = Some(origin.text.clone());
        moved(arguments, &origin).map_err(|failure| Failure { text, ..failure })
    })
}

/// A job as it runs here.
struct Origin {
    /// Its statements, with parameters put in.
    text: String,
    options: SessionOptions,
    /// Options that are set before the first statement.
    settings: Vec<(String, String)>,
    is_on_server: bool,
}

impl Origin {
    /// Options of a session that hands groups over: a job of its own, without snapshots, which
    /// reads those of this one.
    fn hand_over_options(&self) -> SessionOptions {
        let mut options = self.options.clone();
        options.name = Some("hand over".to_owned());
        options
            .settings
            .retain(|(key, _)| !key.starts_with("execution.") && !key.starts_with("pipeline."));
        options.allowed_roots = vec![PathBuf::from("/")];
        options
    }

    fn on_server(arguments: &MoveArguments) -> std::result::Result<Origin, Failure> {
        if arguments.server.server.is_some() {
            return Err(Error::plan("the snapshots of the job are on the machine of its server")
                .hint("run `thalweg move` there, with --data-dir")
                .into());
        }
        let name = &arguments.job;
        let found = server::statements_of(&arguments.server, name)?;
        let params: BTreeMap<String, String> = found.params.into_iter().collect();
        let text = substitute(&found.sql, &params)?;
        let data_dir = server::data_dir(arguments.server.data_dir.as_deref());
        let data_dir = std::path::absolute(&data_dir).map_err(Error::from)?;
        let state = data_dir.join("jobs").join(name).join("state");
        let settings: Vec<_> =
            found.settings.into_iter().chain(arguments.settings.clone()).collect();
        let place = ("execution.checkpointing.dir".to_owned(), state.display().to_string());
        let options = SessionOptions {
            name: Some(name.clone()),
            base_dir: data_dir.join("files"),
            allowed_roots: vec![PathBuf::from("/")],
            settings: std::iter::once(place).chain(settings.clone()).collect(),
            secrets_folder: Some(data_dir.join("secrets")),
            ..SessionOptions::default()
        };
        Ok(Origin { text, options, settings, is_on_server: true })
    }
}

/// Options of `submit` by which a job would begin from a savepoint, which a moved one does not
/// have.
fn refuse_savepoints(on_flink: &FlinkSubmitArguments) -> Result<()> {
    match on_flink.replace || on_flink.savepoint.is_some() {
        false => Ok(()),
        true => {
            Err(Error::plan("a job that is moved begins from the snapshot it was stopped with")
                .hint("leave out --savepoint and --replace"))
        }
    }
}

fn moved(arguments: &MoveArguments, origin: &Origin) -> std::result::Result<u8, Failure> {
    refuse_savepoints(&arguments.on_flink)?;
    let mut session = Session::new(origin.options.clone())?;
    session.validate(&origin.text)?;
    let movable = session.movable_job(&origin.text)?;
    let planned = session.planned_jobs(&origin.text)?;
    let [job] = &planned[..] else {
        return Err(Error::internal("a script that can be moved has one job").into());
    };
    // The text as it is has the same faults as the moved one.
    let unmoved = translated(&session, arguments, &origin.text)?;
    if !unmoved.left.is_empty() && !arguments.on_flink.unchecked {
        let name = ("the translation", unmoved.text.as_str());
        print_findings(&unmoved.left, name, ColorChoice::Auto)?;
        return Ok(FAILED);
    }
    let order = || Order {
        flink: &arguments.flink,
        on_flink: &arguments.on_flink,
        settings: &origin.settings,
        secrets: SentSecrets::new(
            arguments.on_flink.send_secrets,
            origin.options.secrets_folder.clone(),
        ),
        name: job.name.clone(),
    };
    let hand_over = hand_over_to(arguments, &movable, job)?;
    // The moved text could have faults of its own. It has the same form wherever the job stops.
    let form = movable.script(&Stop { hand_over: hand_over.clone(), ..Stop::default() })?;
    checked_form(&mut session, arguments, &form)?;
    if !arguments.dry_run {
        Submission::open(order())?.check_name()?;
        if let Some(hand_over) = &hand_over {
            Session::new(origin.hand_over_options())?.execute(&movable.probe(&hand_over.topic)?)?;
        }
        stop(arguments, origin, job)?;
    }
    let submitted = continued(arguments, origin, (&session, &movable, job), (hand_over, order));
    submitted.map_err(|error| match arguments.dry_run || !origin.is_on_server {
        true => error.into(),
        false => error
            .hint(format!("the job is stopped: `thalweg start {}` starts it here", arguments.job))
            .into(),
    })
}

/// From the last snapshot to the job on Flink; the exit status.
fn continued<'a>(
    arguments: &MoveArguments,
    origin: &Origin,
    (session, movable, job): (&Session, &MovableJob, &PlannedJob),
    (hand_over, order): (Option<HandOver>, impl FnOnce() -> Order<'a>),
) -> Result<u8> {
    let store = snapshots(job)?;
    let number = snapshot::newest(&store)?;
    let outputs =
        job.graph.stages.iter().filter(|stage| matches!(stage.kind, StageKind::Sink(_))).count();
    let by_watermark = movable.is_by_watermark();
    let stopped = StoppedJob::of(&store.describe(number)?, outputs, by_watermark)?;
    let at = match stopped.watermark_ms {
        Some(at_ms) => format!(", watermark {}", format_timestamp_millis(at_ms, 3)),
        None => String::new(),
    };
    say(&format!("{}: snapshot {number}{at}\n", job.name));
    if movable.writes_again() {
        say(&format!(
            "{}: all is read and written again: until Flink has caught up, keys have earlier values\n",
            job.name
        ));
    }
    let stop = Stop {
        watermark_ms: stopped.watermark_ms.unwrap_or(0),
        starts: starts(origin, movable, &stopped)?,
        ends: if movable.marks_rows() { stopped.all()? } else { BTreeMap::new() },
        hand_over,
    };
    if let (Some(to), false) = (&stop.hand_over, arguments.dry_run) {
        hand_over_groups(origin, movable, job, (to, number))?;
    }
    let text = movable.script(&stop)?;
    let translation = translated(session, arguments, &text)?;
    if arguments.dry_run {
        print(&translation.text)?;
        return Ok(0);
    }
    for lost in &translation.lost {
        say(&format!("lost: {}\n", lost.message));
    }
    Submission::open(order())?.run(&translation)
}

/// Where groups are handed over: a topic, and a name of this attempt.
fn hand_over_to(
    arguments: &MoveArguments,
    movable: &MovableJob,
    job: &PlannedJob,
) -> Result<Option<HandOver>> {
    if !movable.hands_over() {
        return Ok(None);
    }
    let Some(topic) = &arguments.state_topic else {
        return Err(Error::plan(
            "the groups of this job are handed over by a topic, and none is named",
        )
        .hint("create a topic where the job reads from, and name it with --state-topic"));
    };
    let wall_ms = SystemClock::default().wall_ms();
    Ok(Some(HandOver { topic: topic.clone(), attempt: format!("{} {wall_ms}", job.name) }))
}

/// The moved script has to be valid on both; else it says which form of the query would be.
fn checked_form(session: &mut Session, arguments: &MoveArguments, form: &str) -> Result<()> {
    let translated = session.validate(form).and_then(|_| translated(session, arguments, form));
    let problem = match translated {
        Err(error) => error.message().to_owned(),
        Ok(translation) => match translation.left.first() {
            Some(finding) if !arguments.on_flink.unchecked => finding.message.clone(),
            _ => return Ok(()),
        },
    };
    Err(Error::plan(format!(
        "this job cannot be moved: the query that continues it would not be valid: {problem}"
    ))
    .hint("write keys in SELECT as in GROUP BY, and give columns names of their own"))
}

/// Writes the groups of the last snapshot to the topic.
fn hand_over_groups(
    origin: &Origin,
    movable: &MovableJob,
    job: &PlannedJob,
    (to, snapshot): (&HandOver, u64),
) -> Result<()> {
    let is_groups = |stage: &&Stage| {
        matches!(stage.kind, StageKind::Operator(_)) && stage.id.starts_with("group-")
    };
    let (Some(stage), Some(location)) =
        (job.graph.stages.iter().find(is_groups), &job.snapshot_location)
    else {
        return Err(Error::internal("a job with groups has an operator that holds them"));
    };
    let folder = Path::new(location).join(&job.name).display().to_string();
    let state = HeldState { folder: &folder, snapshot, operator: &stage.id };
    let mut session = Session::new(origin.hand_over_options())?;
    let counted = session.execute(&state.count())?;
    session.execute(&movable.hand_over(to, &state)?)?;
    let groups = counted.first().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0));
    let (groups, topic) = (groups.unwrap_or(0), &to.topic);
    say(&format!("{}: {groups} groups handed over by the topic '{topic}'\n", job.name));
    Ok(())
}

fn translated(session: &Session, arguments: &MoveArguments, text: &str) -> Result<Translation> {
    session.translate_for_flink(text, &arguments.on_flink.cluster(), Queries::Jobs)
}

/// The snapshots of the job.
fn snapshots(job: &PlannedJob) -> Result<SnapshotStore> {
    let Some(location) = &job.snapshot_location else {
        return Err(Error::plan(format!("the job '{}' takes no snapshots", job.name))
            .hint("SET 'execution.checkpointing.dir' names a folder for them"));
    };
    open_snapshots(location, &job.name, &Access::default())
}

/// Stops the job; one of a file must have been stopped.
fn stop(arguments: &MoveArguments, origin: &Origin, job: &PlannedJob) -> Result<()> {
    if origin.is_on_server {
        server::stop_with_snapshot(&arguments.server, &arguments.job)?;
        say(&format!("{}: stopped\n", job.name));
        return Ok(());
    }
    match snapshots(job)?.directory().filter(|folder| folder.exists()).map(Path::to_owned) {
        Some(folder) => JobLock::take(&folder).map(drop).map_err(|error| {
            error.hint("stop it with Ctrl-C, which takes a last snapshot, and move it then")
        }),
        None => Ok(()),
    }
}

/// Where Flink begins to read each topic.
fn starts(
    origin: &Origin,
    movable: &MovableJob,
    stopped: &StoppedJob,
) -> Result<BTreeMap<String, Offsets>> {
    let mut starts = BTreeMap::new();
    for (table, need) in movable.needs(stopped.watermark_ms.unwrap_or(0))? {
        let from_ms = match need {
            Need::Whole => continue,
            Need::Unread => {
                starts.insert(table.clone(), stopped.next(&table)?);
                continue;
            }
            Need::All if !movable.needs_the_first_row() => continue,
            Need::All => None,
            Need::From(from_ms) => Some(from_ms),
        };
        match from_ms {
            Some(at_ms) => {
                let at = format_timestamp_millis(at_ms, 3);
                say(&format!("{table}: looking for the first row of {at} or later\n"));
            }
            None => say(&format!("{table}: looking for its first row\n")),
        }
        let ends = stopped.ends(&table)?;
        let mut search = Session::new(origin.options.clone())?;
        let found = search.execute(&movable.search(&table, from_ms, &ends)?)?;
        let is_whole = movable.is_searched_from_its_beginning(&table);
        let offsets = first_rows(&found, ends, is_whole.then_some(table.as_str()))?;
        if from_ms.is_some() {
            starts.insert(table, offsets);
        }
    }
    Ok(starts)
}

/// The offsets that were found; where there is no such row, reading continues at the end. `whole`
/// names a topic that was read from its first row on.
fn first_rows(found: &[RecordBatch], ends: Offsets, whole: Option<&str>) -> Result<Offsets> {
    let mut starts = ends;
    for batch in found {
        let partitions = batch.column(0).as_primitive::<Int32Type>();
        let (first, oldest) = (
            batch.column(1).as_primitive::<Int64Type>(),
            batch.column(2).as_primitive::<Int64Type>(),
        );
        for row in (0..batch.num_rows()).filter(|&row| first.is_valid(row)) {
            let (partition, offset) = (partitions.value(row), first.value(row));
            if let Some(table) = whole
                && offset > 0
                && offset == oldest.value(row)
            {
                return Err(Error::data(format!(
                    "rows that are still needed may have been deleted: partition {partition} of '{table}' begins at offset {offset}, inside of them"
                ))
                .hint("move the job later, or keep rows longer (retention.ms)"));
            }
            starts.insert(partition, offset);
        }
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int32Array, Int64Array};

    use super::*;

    fn found(rows: &[(i32, Option<i64>, i64)]) -> RecordBatch {
        let partitions: Int32Array = rows.iter().map(|row| Some(row.0)).collect();
        let first: Int64Array = rows.iter().map(|row| row.1).collect();
        let oldest: Int64Array = rows.iter().map(|row| Some(row.2)).collect();
        let columns: [(&str, Arc<dyn Array>); 3] =
            [("p", Arc::new(partitions)), ("first", Arc::new(first)), ("oldest", Arc::new(oldest))];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    }

    #[test]
    fn a_partition_without_a_row_of_open_windows_is_read_on_at_its_end() {
        let ends = Offsets::from([(0, 40), (1, 50), (2, 0)]);
        let starts = first_rows(&[found(&[(0, Some(12), 3), (1, None, 0)])], ends, Some("t"));
        assert_eq!(starts.expect("found"), Offsets::from([(0, 12), (1, 50), (2, 0)]));
    }

    #[test]
    fn rows_that_the_topic_has_no_more_are_an_error() {
        let ends = Offsets::from([(0, 40)]);
        let error = first_rows(&[found(&[(0, Some(12), 12)])], ends.clone(), Some("t"));
        assert!(error.expect_err("deleted").message().contains("may have been deleted"));
        let starts = first_rows(&[found(&[(0, Some(12), 12)])], ends.clone(), None);
        assert_eq!(starts.expect("the job began there"), Offsets::from([(0, 12)]));
        let starts = first_rows(&[found(&[(0, Some(0), 0)])], ends, Some("t"));
        assert_eq!(starts.expect("the topic began there"), Offsets::from([(0, 0)]));
    }
}
