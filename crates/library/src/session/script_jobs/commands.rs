//! SHOW JOBS, DESCRIBE JOB and STOP JOB in a script: about the jobs of the script so far.
//!
//! The id of a job is its name, which no other job of the script has: `pipeline.name`, or what the
//! statement does, with a number behind it from the second one on. So a script can name a job that
//! has not begun when it is written, and a mistake shows when the script is planned.
//!
//! Jobs that have agreed to start begin before such a statement, for it is about what runs.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use thalweg_core::{Column, DataType, Error, Result, TableSchema};
use thalweg_plan::ResultTable;
use thalweg_plan::ast::{JobCommand, Name};

use super::{JobState, ScriptJob, ScriptJobs};
use crate::jobs::{newest_number, open_snapshots};
use crate::session::statement::text_rows;
use crate::session::{Observer, Session};

/// Checks a statement about jobs while the script is planned. `jobs` are those of INSERTs before
/// it, and whether each takes snapshots.
///
/// # Errors
/// If it names no job of the script, or wants a snapshot of a job that takes none.
pub(in crate::session) fn check_command(
    command: &JobCommand,
    jobs: &[(String, bool)],
) -> Result<()> {
    let (id, with_savepoint) = match command {
        JobCommand::Show => return Ok(()),
        JobCommand::Describe(id) => (id, false),
        JobCommand::Stop { id, with_savepoint, .. } => (id, *with_savepoint),
    };
    match jobs.iter().find(|(name, _)| *name == id.text) {
        Some((_, false)) if with_savepoint => Err(no_snapshots(id)),
        Some(_) => Ok(()),
        None => Err(no_job(id, jobs.iter().map(|(name, _)| name.as_str()))),
    }
}

fn no_job<'n>(id: &Name, names: impl Iterator<Item = &'n str>) -> Error {
    let error = Error::plan(format!("the script has no job '{}' before this", id.text));
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    let error = match names.is_empty() {
        true => error.hint("INSERTs are jobs; 'pipeline.name' names the next one"),
        false => error.hint(format!("a job's id is its name; there are {}", names.join(", "))),
    };
    error.at(id.span)
}

fn no_snapshots(id: &Name) -> Error {
    Error::plan(format!("the job '{}' keeps no snapshots", id.text))
        .hint("SET 'execution.checkpointing.dir' = '…' before its INSERT, or leave WITH SAVEPOINT out")
        .at(id.span)
}

impl Session {
    /// Carries out a statement about the jobs of the script.
    ///
    /// # Errors
    /// If there is no such job, or it does not stop as it was asked to.
    pub(in crate::session) fn job_command(
        &mut self,
        command: &JobCommand,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.begin_agreed(jobs, observer);
        while let Ok(end) = jobs.ends.1.try_recv() {
            self.job_ended(end, jobs, observer);
        }
        match command {
            JobCommand::Show => self.show_jobs(&jobs.jobs, observer),
            JobCommand::Describe(id) => {
                let place = jobs.place_of(id)?;
                self.show_jobs(&jobs.jobs[place..=place], observer)
            }
            JobCommand::Stop { id, with_savepoint, with_drain } => {
                let place = jobs.place_of(id)?;
                self.stop_job(place, (*with_savepoint, *with_drain), (jobs, observer))?;
                match with_savepoint {
                    true => self.show_savepoint(id, &jobs.jobs[place], observer),
                    false => Ok(()),
                }
            }
        }
    }

    /// Stops a job, and waits for that.
    fn stop_job(
        &mut self,
        place: usize,
        (with_savepoint, with_drain): (bool, bool),
        (jobs, observer): (&mut ScriptJobs, &mut dyn Observer),
    ) -> Result<()> {
        let own = &mut jobs.jobs[place];
        own.is_stopped = true;
        match &own.state {
            JobState::Running(control, _) => match (with_savepoint, with_drain) {
                (_, true) => control.drain(),
                (true, false) => control.stop(),
                (false, false) => control.cancel(),
            },
            JobState::Pausing { .. } => own.state = JobState::Ended(None),
            JobState::Agreed(_) | JobState::Ended(_) => {}
        }
        self.wait_until(jobs, observer, |jobs| jobs.has_ended(place));
        Ok(())
    }

    fn show_savepoint(
        &self,
        id: &Name,
        own: &ScriptJob,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let runs = own.maker.as_ref().map(|maker| &maker.runs);
        let Some((name, settings)) =
            runs.and_then(|runs| Some((&runs.name, runs.snapshots.as_ref()?)))
        else {
            return Err(no_snapshots(id));
        };
        let store = open_snapshots(&settings.location, name, &settings.access)?;
        let number = newest_number(&store)?.ok_or_else(|| {
            Error::user(format!("the job '{name}' has ended without a snapshot")).at(id.span)
        })?;
        let place = match store.snapshot_directory(number) {
            Some(folder) => folder.display().to_string(),
            None => format!("{}/{name}/{number}", settings.location.trim_end_matches('/')),
        };
        let (schema, batch) = text_rows(&["savepoint path".to_owned()], &[vec![place]])?;
        observer.rows(&ResultTable { schema, has_updates: false }, self.planner.zone(), &batch)
    }

    fn show_jobs(&self, jobs: &[ScriptJob], observer: &mut dyn Observer) -> Result<()> {
        let text = |name: &str| Column::new(name, DataType::STRING.not_null());
        let schema = TableSchema::new(vec![
            text("job id"),
            text("job name"),
            text("status"),
            Column::new("start time", DataType::TimestampLtz(6).nullable()),
        ]);
        let names: ArrayRef =
            Arc::new(jobs.iter().map(|own| Some(&own.job.name)).collect::<StringViewArray>());
        let status: ArrayRef =
            Arc::new(jobs.iter().map(|own| Some(own.status())).collect::<StringViewArray>());
        let begun = jobs.iter().map(|own| own.begun_ms.map(|ms| ms.saturating_mul(1_000)));
        let begun = begun.collect::<TimestampMicrosecondArray>().with_timezone("UTC");
        let arrays = vec![Arc::clone(&names), names, status, Arc::new(begun)];
        let batch = RecordBatch::try_new(schema.arrow(), arrays)?;
        observer.rows(&ResultTable { schema, has_updates: false }, self.planner.zone(), &batch)
    }
}

impl ScriptJobs {
    fn place_of(&self, id: &Name) -> Result<usize> {
        let found = self.jobs.iter().position(|own| own.job.name == id.text);
        found.ok_or_else(|| no_job(id, self.jobs.iter().map(|own| own.job.name.as_str())))
    }
}

impl ScriptJob {
    /// Flink's word for its state.
    fn status(&self) -> &'static str {
        match &self.state {
            JobState::Agreed(_) => "CREATED",
            JobState::Running(..) => "RUNNING",
            JobState::Pausing { .. } => "RESTARTING",
            JobState::Ended(Some(report)) if report.cancelled => "CANCELED",
            JobState::Ended(Some(_)) => "FINISHED",
            JobState::Ended(None) if self.is_stopped => "CANCELED",
            JobState::Ended(None) => "FAILED",
        }
    }
}
