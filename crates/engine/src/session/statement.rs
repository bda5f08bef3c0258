//! What each kind of statement does in a session.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use thalweg_core::connector::JobTables;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Column, DataType, Error, OrderContract, Result, Sink, TableSchema};
use thalweg_plan::ast::{Insert, Statement, StatementKind};
use thalweg_plan::catalog::SnapshotSettings;
use thalweg_plan::explain::ExplainFormat;
use thalweg_plan::parser::parse_script_with_notes;
use thalweg_plan::physical::{
    PhysicalPlan, standard_input_has_the_statements, standard_input_twice,
};
use thalweg_plan::{Planner, ResultTable};
use thalweg_runtime::{Report, RunOptions};

use crate::interleaving::input_names;
use crate::jobs::{JobRuns, Recovery, ResumeFrom};

use super::limit::LimitSink;
use super::{JobDescription, JobReport, Observer, Session, settings};

/// Plans every statement in order, as if the script ran, and opens nothing. Returns the plans of
/// those that would be jobs. Standard input can be read once, by the statements or by one job. No
/// job replaces what an earlier one has read or written.
pub(super) fn rehearse(
    planner: &mut Planner,
    statements: &[Statement],
    format: ExplainFormat,
    statements_are_standard_input: bool,
) -> Result<Vec<String>> {
    let mut plans = Vec::new();
    let mut standard_input: Option<String> = None;
    let mut earlier: Vec<JobTables> = Vec::new();
    for statement in statements {
        let rehearsed = match &statement.kind {
            StatementKind::Insert(_)
            | StatementKind::StatementSet(_)
            | StatementKind::Select(_) => planner.rehearse(statement).and_then(|plan| {
                plans.push(planner.show(&plan, format));
                planner.connectors().check_files_after(&earlier, &plan.tables)?;
                earlier.push(plan.tables);
                let Some(table) = plan.standard_input else { return Ok(()) };
                if statements_are_standard_input {
                    return Err(standard_input_has_the_statements(&table));
                }
                match standard_input.replace(table.clone()) {
                    Some(other) => Err(standard_input_twice(&other, &table)),
                    None => Ok(()),
                }
            }),
            StatementKind::Explain(inner) => planner.explain(inner).map(drop),
            _ => planner.execute_ddl(statement).map(drop),
        };
        rehearsed.map_err(|error| super::located(error, statement))?;
    }
    Ok(plans)
}

/// Checks the options of the tables that a script declares.
pub(super) fn check_tables(planner: &mut Planner, statements: &[Statement]) -> Result<()> {
    for statement in statements {
        let checked = match &statement.kind {
            StatementKind::CreateTable(table) => {
                planner.execute_ddl(statement).and_then(|_| planner.check_table(table))
            }
            StatementKind::Insert(_)
            | StatementKind::StatementSet(_)
            | StatementKind::Select(_)
            | StatementKind::Explain(_) => Ok(()),
            _ => planner.execute_ddl(statement).map(drop),
        };
        checked.map_err(|error| super::located(error, statement))?;
    }
    Ok(())
}

/// A job that a script would run, of which nothing was opened.
pub struct PlannedJob {
    /// What it is called, also among snapshots.
    pub name: String,
    /// What is promised about the sequence of its results.
    pub order: OrderContract,
    /// Where its snapshots are kept, if it takes any.
    pub snapshot_location: Option<String>,
    /// Its stages. Sources deliver nothing, sinks keep nothing.
    pub graph: Graph,
}

impl Session {
    /// The jobs of INSERTs and statement sets that a script would run. Nothing is run or opened.
    ///
    /// # Errors
    /// Those of parsing and planning.
    pub fn planned_jobs(&self, text: &str) -> Result<Vec<PlannedJob>> {
        let mut planner = self.planner.fork();
        let (mut jobs, mut names) = (Vec::new(), HashMap::new());
        for statement in &parse_script_with_notes(text)?.statements {
            let planned = match &statement.kind {
                StatementKind::Insert(_) => self.planned_job(&planner, statement, "INSERT"),
                StatementKind::StatementSet(_) => {
                    self.planned_job(&planner, statement, "STATEMENT SET")
                }
                StatementKind::Select(_) | StatementKind::Explain(_) => continue,
                _ => planner.execute_ddl(statement).map(|_| None),
            };
            let planned = planned.map_err(|error| super::located(error, statement))?;
            jobs.extend(
                planned.map(|job| PlannedJob { name: numbered(&mut names, job.name), ..job }),
            );
        }
        Ok(jobs)
    }

    fn planned_job(
        &self,
        planner: &Planner,
        statement: &Statement,
        what: &str,
    ) -> Result<Option<PlannedJob>> {
        let settings = planner.settings();
        let snapshots = settings.snapshots();
        let location =
            snapshots.map(|snapshots| self.options.snapshot_location(&snapshots.location));
        Ok(Some(PlannedJob {
            name: self.name_in(planner, what),
            order: settings.order(),
            snapshot_location: location.transpose()?,
            graph: planner.rehearse(statement)?.graph,
        }))
    }

    /// Says whether a run of a script would start the job of this name, as [`SessionOptions`] say
    /// where it resumes: the first phase of its start is done and ended, so inputs and outputs are
    /// looked at and nothing is changed.
    ///
    /// # Errors
    /// What the start would refuse; the kind is [`ErrorKind::Resource`](thalweg_core::ErrorKind)
    /// where another run holds the job or one of its outputs.
    ///
    /// [`SessionOptions`]: super::SessionOptions
    pub fn rehearse_start(&mut self, text: &str, job: &str) -> Result<()> {
        for statement in &parse_script_with_notes(text)?.statements {
            let (inserts, what) = match &statement.kind {
                StatementKind::Insert(insert) => (std::slice::from_ref(insert), "INSERT"),
                StatementKind::StatementSet(inserts) => (&inserts[..], "STATEMENT SET"),
                StatementKind::Select(_) | StatementKind::Explain(_) => continue,
                _ => {
                    self.planner.execute_ddl(statement)?;
                    continue;
                }
            };
            let mut runs = self.job_runs(what)?;
            if runs.name == job {
                runs.recovery.is_rehearsal = true;
                let memory_limit_bytes = self.run_options()?.memory_limit_bytes;
                self.planner.set_memory_limit(memory_limit_bytes);
                let plan = self.planner.plan_insert(inserts)?;
                return runs.rehearse(plan.graph, self.run_options()?);
            }
        }
        Err(Error::internal(format!("the script has no job '{job}'")))
    }

    pub(super) fn run_statement(
        &mut self,
        statement: &Statement,
        observer: &mut dyn Observer,
    ) -> Result<Option<JobReport>> {
        let memory_limit_bytes = self.run_options()?.memory_limit_bytes;
        self.planner.set_memory_limit(memory_limit_bytes);
        match &statement.kind {
            StatementKind::Insert(insert) => {
                self.run_inserts(std::slice::from_ref(insert), "INSERT", observer).map(Some)
            }
            StatementKind::StatementSet(inserts) => {
                self.run_inserts(inserts, "STATEMENT SET", observer).map(Some)
            }
            StatementKind::Select(query) => {
                let limit = self.options.row_limit;
                let zone = self.planner.zone();
                observer.planning(true);
                let plan = self.planner.plan_select(query, &mut |table| {
                    let sink = observer.result(table, zone)?;
                    Ok(match limit {
                        Some(rows) => Box::new(LimitSink::new(sink, rows)),
                        None => sink,
                    })
                });
                observer.planning(false);
                self.run_query(plan?, observer).map(Some)
            }
            StatementKind::Explain(inner) => {
                observer.planning(true);
                let explained = self.planner.explain(inner);
                observer.planning(false);
                observer.explanation(&explained?)?;
                Ok(None)
            }
            _ => {
                observer.planning(true);
                let rows = self.planner.execute_ddl(statement);
                observer.planning(false);
                if let Some(rows) = rows? {
                    let (schema, batch) = text_rows(&rows.header, &rows.rows)?;
                    let table = ResultTable { schema, has_updates: false };
                    let mut sink = observer.result(&table, self.planner.zone())?;
                    sink.open()?;
                    sink.write(&batch, None)?;
                    sink.finish()?;
                }
                Ok(None)
            }
        }
    }

    fn run_options(&self) -> Result<RunOptions> {
        let options = settings::run_options(self.planner.settings(), &self.options)?;
        Ok(RunOptions { clock: self.clock.clone(), ..options })
    }

    /// The sinks that print: tables of a connector that does, and results that are no tables.
    fn printing_stages(&self, graph: &Graph) -> Vec<usize> {
        let prints = |sink: &dyn Sink| {
            let Some(table) = self.planner.catalog().table(&sink.name()) else { return true };
            let name = table.options.iter().find(|(key, _)| key.text == "connector");
            let connector = name.and_then(|(_, name)| self.connectors().get(&name.text));
            connector.is_some_and(|found| found.description().capabilities.is_printed)
        };
        let stages = graph.stages.iter().enumerate();
        stages
            .filter(|(_, stage)| matches!(&stage.kind, StageKind::Sink(sink) if prints(&**sink)))
            .map(|(place, _)| place)
            .collect()
    }

    fn job_name(&self, what: &str) -> String {
        self.name_in(&self.planner, what)
    }

    fn name_in(&self, planner: &Planner, what: &str) -> String {
        let set = planner.settings().pipeline_name();
        set.or(self.options.name.as_deref()).unwrap_or(what).to_owned()
    }

    /// Hands the job what it has to follow, and what takes down how its inputs come in.
    fn follow_interleaving(
        &mut self,
        job: &JobDescription,
        graph: &Graph,
        options: &mut RunOptions,
    ) -> Result<()> {
        let is_asked = self.recording.is_some() || self.replays.is_some();
        if is_asked && options.order != OrderContract::Arrival {
            return Err(only_in_arrival(options.order));
        }
        let sources = graph.stages.iter().filter(|s| matches!(s.kind, StageKind::Source { .. }));
        let inputs = input_names(sources.map(|stage| stage.name.as_str()));
        if let Some(replays) = &mut self.replays {
            let recorded = replays.pop_front().ok_or_else(|| {
                Error::plan(format!("the recording has no job left for '{}'", job.name))
                    .hint("replay the statements that the run was recorded with")
            })?;
            options.replay = Some(recorded.replay(&job.name, &inputs)?);
        }
        if let Some(recording) = &mut self.recording {
            options.record = Some(recording.begin(&job.name, &inputs)?);
        }
        Ok(())
    }

    /// Closes the recording of a job. Its own error comes first.
    fn end_recording(&mut self, result: Result<Report>) -> Result<Report> {
        let Some(recording) = &mut self.recording else { return result };
        let is_complete = result.as_ref().is_ok_and(|report| !report.cancelled);
        let ended = recording.end(is_complete);
        result.and_then(|report| ended.map(|()| report))
    }

    /// Runs a query until it is done, stopped or failed; it takes no snapshots.
    fn run_query(&mut self, plan: PhysicalPlan, observer: &mut dyn Observer) -> Result<JobReport> {
        let mut options = self.run_options()?;
        let job = self.describe(&plan, "SELECT", &options, observer);
        let mut graph = plan.graph;
        self.follow_interleaving(&job, &graph, &mut options)?;
        observer.starting(&job, &mut graph);
        let result = thalweg_runtime::start(graph, options).and_then(|running| {
            observer.started(&job, &running.control());
            running.wait()
        });
        let result = self.end_recording(result);
        observer.ended(&job, &result);
        Ok(JobReport { job, report: result? })
    }

    /// Runs INSERTs until they are done, stopped, or have failed for good.
    fn run_inserts(
        &mut self,
        inserts: &[Insert],
        what: &str,
        observer: &mut dyn Observer,
    ) -> Result<JobReport> {
        let mut runs = self.job_runs(what)?;
        loop {
            observer.planning(true);
            let plan = self.planner.plan_insert(inserts);
            observer.planning(false);
            let ran = self.run_once(plan?, what, &mut runs, observer);
            let Err(error) = ran else { return ran };
            let Some(restart) = runs.failed(&error, observer.is_stopped()) else {
                return Err(error);
            };
            observer.warning(&restart.warning);
            if !runs.pause(&restart, || observer.is_stopped()) {
                return Err(error);
            }
        }
    }

    /// The runs of the next job of the script.
    fn job_runs(&mut self, what: &str) -> Result<JobRuns> {
        let recovery = Recovery {
            resume: self.options.resume.clone(),
            drop_state: self.options.drop_state,
            overwrites: self.options.overwrite,
            ..Recovery::default()
        };
        let snapshots = self.snapshot_settings()?;
        Ok(JobRuns::new(
            (self.own_name(what), snapshots),
            (recovery, self.planner.settings().restarts()),
            self.options.drain,
            self.clock.clone(),
        ))
    }

    /// Runs a plan once.
    fn run_once(
        &mut self,
        plan: PhysicalPlan,
        what: &str,
        runs: &mut JobRuns,
        observer: &mut dyn Observer,
    ) -> Result<JobReport> {
        let mut options = self.run_options()?;
        let mut job = self.describe(&plan, what, &options, observer);
        runs.name.clone_into(&mut job.name);
        let mut graph = plan.graph;
        if runs.snapshots.is_some() && (self.recording.is_some() || self.replays.is_some()) {
            return Err(runs.recovery.interface.no_interleaving());
        }
        self.follow_interleaving(&job, &graph, &mut options)?;
        let prepared = runs.prepare(&graph, &mut options)?;
        prepared.notes.iter().for_each(|note| observer.note(note));
        observer.starting(&job, &mut graph);
        let started = runs.start(prepared, graph, options);
        let result = started.and_then(|looked_after| {
            looked_after.note.iter().for_each(|note| observer.note(note));
            observer.started(&job, &looked_after.control());
            looked_after.wait()
        });
        let result = self.end_recording(result);
        observer.ended(&job, &result);
        Ok(JobReport { job, report: result? })
    }

    /// What is reported of a job before it runs.
    fn describe(
        &self,
        plan: &PhysicalPlan,
        what: &str,
        options: &RunOptions,
        observer: &mut dyn Observer,
    ) -> JobDescription {
        for note in &plan.notes {
            observer.note(note);
        }
        JobDescription {
            name: self.job_name(what),
            workers: options.workers,
            memory_limit_bytes: options.memory_limit_bytes,
            order: options.order,
            order_costs: plan.stages.iter().map(|stage| stage.order.clone()).collect(),
            is_bounded: plan.is_bounded,
            printing: self.printing_stages(&plan.graph),
        }
    }

    /// The name of a job among those of the script: the second with a name gets a number behind it.
    fn own_name(&mut self, what: &str) -> String {
        let name = self.job_name(what);
        numbered(&mut self.names, name)
    }

    /// Whether snapshots are taken, and where they are kept.
    fn snapshot_settings(&self) -> Result<Option<SnapshotSettings>> {
        let Some(mut settings) = self.planner.settings().snapshots() else {
            let is_asked = self.options.resume != ResumeFrom::Nothing || self.options.drain;
            return if is_asked { Err(no_place()) } else { Ok(None) };
        };
        settings.location = self.options.snapshot_location(&settings.location)?;
        Ok(Some(settings))
    }
}

/// The name of a job, with a number behind it if there was one of that name.
fn numbered(names: &mut HashMap<String, usize>, name: String) -> String {
    let uses = names.entry(name.clone()).or_insert(0);
    *uses += 1;
    if *uses == 1 { name } else { format!("{name}-{uses}") }
}

fn no_place() -> Error {
    Error::plan("there is no place for snapshots to resume from").hint(
        "say where they are kept: SET 'execution.checkpointing.dir' = '…', or --set execution.checkpointing.dir=…",
    )
}

fn only_in_arrival(order: OrderContract) -> Error {
    let why = match order {
        OrderContract::EventTime => "the data alone decide the sequence",
        _ => "no sequence is promised",
    };
    Error::plan(format!(
        "--record and --replay are for 'pipeline.order' = 'arrival': in '{order}' {why}"
    ))
    .hint("SET 'pipeline.order' = 'arrival', or leave the option out")
}

/// Rows of text as a table of STRING columns.
pub(super) fn text_rows(
    header: &[String],
    rows: &[Vec<String>],
) -> Result<(TableSchema, RecordBatch)> {
    let column = |name: &String| Column::new(name.clone(), DataType::STRING.not_null());
    let schema = TableSchema::new(header.iter().map(column).collect());
    let array = |position: usize| -> ArrayRef {
        let values = rows.iter().map(|row| row.get(position).map(String::as_str));
        Arc::new(values.map(Option::unwrap_or_default).map(Some).collect::<StringViewArray>())
    };
    let arrays = (0..header.len()).map(array).collect();
    let batch = RecordBatch::try_new(schema.arrow(), arrays)?;
    Ok((schema, batch))
}
