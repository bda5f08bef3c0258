//! What each kind of statement does in a session.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use thalweg_connectors::filesystem::letters_path;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Column, DataType, Error, OrderContract, Result, Sink, TableSchema};
use thalweg_plan::ast::{Insert, Query, Statement, StatementKind};
use thalweg_plan::catalog::SnapshotSettings;
use thalweg_plan::parser::parse_script_with_notes;
use thalweg_plan::physical::PhysicalPlan;
use thalweg_plan::{ExecutedPlan, Planner, ResultTable};
use thalweg_runtime::{Beginning, Report, RunOptions};

use crate::interleaving::input_names;
use crate::jobs::{JobRuns, Recovery, ResumeFrom, SnapshotReference};

use super::limit::LimitSink;
use super::rehearsal::{inserts_of, located, name_in, numbered};
use super::script_jobs::{Agreed, AgreedStart, ScriptJobs};
use super::{JobDescription, Observer, Session, settings};

/// What makes the runs of INSERTs, with the declarations and settings that stood before them.
pub(super) struct InsertJob {
    planner: Planner,
    inserts: Vec<Insert>,
    pub runs: JobRuns,
}

impl Session {
    /// Executes a declaration, or lets a job agree to start. SELECTs, and INSERTs with
    /// `table.dml-sync`, are begun and awaited; other INSERTs begin with what follows them.
    pub(super) fn run_statement(
        &mut self,
        statement: &Statement,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.live.forget_versions();
        let memory_limit_bytes = self.run_options(&self.planner)?.memory_limit_bytes;
        self.planner.set_memory_limit(memory_limit_bytes);
        if inserts_of(statement).is_some() {
            let planner = self.planner.fork();
            return self.run_inserts(planner, statement, (jobs, observer));
        }
        let executed = jobs.planning(observer, |_| self.planner.executed_plan(statement))?;
        if let Some(ExecutedPlan { planner, statement: inner, written }) = executed {
            written.map_or(Ok(()), |file| file.write())?;
            let own = Statement { span: statement.span, ..inner };
            return self.run_inserts(planner, &own, (jobs, observer));
        }
        match &statement.kind {
            StatementKind::CompilePlan(compile) => {
                let file = jobs.planning(observer, |_| self.planner.compile_plan(compile))?;
                file.map_or(Ok(()), |file| file.write())
            }
            StatementKind::Jobs(command) => self.job_command(command, jobs, observer),
            StatementKind::Select(query) => {
                let agreed = self.agree_to_query(query, jobs, observer)?;
                let place = jobs.add(agreed, statement.span, None);
                self.run_to_end(place, jobs, observer);
                Ok(())
            }
            StatementKind::Explain(inner) => {
                let explained = jobs.planning(observer, |_| self.planner.explain_details(inner))?;
                observer.explanation(&explained)
            }
            _ => {
                let rows = jobs.planning(observer, |_| self.planner.execute_ddl(statement))?;
                let Some(rows) = rows else { return Ok(()) };
                let (schema, batch) = text_rows(&rows.header, &rows.rows)?;
                let table = ResultTable { schema, has_updates: false };
                observer.rows(&table, self.planner.zone(), &batch)
            }
        }
    }

    /// Lets the job of INSERTs agree to start, and awaits its end if that is wanted.
    fn run_inserts(
        &mut self,
        planner: Planner,
        statement: &Statement,
        (jobs, observer): (&mut ScriptJobs, &mut dyn Observer),
    ) -> Result<()> {
        let Some((inserts, what)) = inserts_of(statement) else {
            return Err(Error::internal("a compiled plan holds INSERTs"));
        };
        let is_awaited = self.planner.settings().awaits_inserts();
        let runs = self.job_runs(what)?;
        let mut maker = InsertJob { planner, inserts: inserts.to_vec(), runs };
        let agreed = self.agree_to_inserts(&mut maker, jobs.next_place(), jobs, observer)?;
        let place = jobs.add(agreed, statement.span, Some(maker));
        if is_awaited {
            self.run_to_end(place, jobs, observer);
        }
        Ok(())
    }

    /// How jobs run that are planned by this planner.
    pub(crate) fn run_options(&self, planner: &Planner) -> Result<RunOptions> {
        let options = settings::run_options(planner.settings(), &self.options)?;
        Ok(RunOptions { clock: self.clock.clone(), ..options })
    }

    /// The sinks that print: tables of a connector that does, and results that are no tables.
    fn printing_stages(&self, planner: &Planner, graph: &Graph) -> Vec<usize> {
        let prints = |sink: &dyn Sink| {
            let Some(table) = planner.catalog().table(&sink.name()) else { return true };
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

    /// Hands the job what it has to follow, and what takes down how its inputs come in. The section
    /// of the recording that is its own.
    fn follow_interleaving(
        &mut self,
        job: &str,
        graph: &Graph,
        options: &mut RunOptions,
    ) -> Result<Option<usize>> {
        let is_asked = self.recording.is_some() || self.replays.is_some();
        if is_asked && options.order != OrderContract::Arrival {
            return Err(only_in_arrival(options.order));
        }
        let sources = graph.stages.iter().filter(|s| matches!(s.kind, StageKind::Source { .. }));
        let inputs = input_names(sources.map(|stage| stage.name.as_str()));
        if let Some(replays) = &mut self.replays {
            let recorded = replays.pop_front().ok_or_else(|| {
                Error::plan(format!("the recording has no job left for '{job}'"))
                    .hint("replay the statements that the run was recorded with")
            })?;
            options.replay = Some(recorded.replay(job, &inputs)?);
        }
        let Some(recording) = &mut self.recording else { return Ok(None) };
        let (section, recorder) = recording.begin(job, &inputs)?;
        options.record = Some(recorder);
        Ok(Some(section))
    }

    /// Closes the recording of a job. Its own error comes first.
    pub(super) fn end_recording(
        &mut self,
        section: Option<usize>,
        result: Result<Report>,
    ) -> Result<Report> {
        let (Some(recording), Some(section)) = (&mut self.recording, section) else {
            return result;
        };
        let is_complete = result.as_ref().is_ok_and(|report| !report.cancelled);
        let ended = recording.end(section, is_complete);
        result.and_then(|report| ended.map(|()| report))
    }

    /// The first phase of the start of a query; it takes no snapshots.
    fn agree_to_query(
        &mut self,
        query: &Query,
        jobs: &ScriptJobs,
        observer: &mut dyn Observer,
    ) -> Result<Agreed> {
        let (limit, zone) = (self.options.row_limit, self.planner.zone());
        let plan = jobs.planning(observer, |observer| {
            self.planner.plan_select(query, &mut |table| {
                let sink = observer.result(table, zone)?;
                Ok(match limit {
                    Some(rows) => Box::new(LimitSink::new(sink, rows)),
                    None => sink,
                })
            })
        })?;
        let mut options = jobs.shared(self.run_options(&self.planner)?);
        let name = name_in(&self.planner, &self.options, "SELECT");
        let job = self.describe(&plan, (name, jobs.next_place()), (&self.planner, &options));
        plan.notes.iter().for_each(|note| observer.note(note));
        let mut graph = plan.graph;
        let section = self.follow_interleaving(&job.name, &graph, &mut options)?;
        observer.starting(&job, &mut graph);
        let agreed = thalweg_runtime::agree_to_start(graph, options, Beginning::default())?;
        Ok(Agreed { job, section, start: AgreedStart::Query(agreed) })
    }

    /// The first phase of the start of a run of INSERTs.
    pub(super) fn agree_to_inserts(
        &mut self,
        maker: &mut InsertJob,
        place: usize,
        jobs: &ScriptJobs,
        observer: &mut dyn Observer,
    ) -> Result<Agreed> {
        let InsertJob { planner, inserts, runs } = maker;
        let plan = jobs.planning(observer, |_| planner.plan_insert(inserts))?;
        let mut options = jobs.shared(self.run_options(planner)?);
        let job = self.describe(&plan, (runs.name.clone(), place), (planner, &options));
        plan.notes.iter().for_each(|note| observer.note(note));
        let mut graph = plan.graph;
        if runs.snapshots.is_some() && (self.recording.is_some() || self.replays.is_some()) {
            return Err(runs.recovery.interface.no_interleaving());
        }
        let section = self.follow_interleaving(&job.name, &graph, &mut options)?;
        let prepared = runs.prepare(&graph, &mut options)?;
        prepared.notes.iter().for_each(|note| observer.note(note));
        observer.starting(&job, &mut graph);
        let agreed = runs.agree(prepared, graph, options)?;
        Ok(Agreed { job, section, start: AgreedStart::Inserts(Box::new(agreed)) })
    }

    /// The runs of the next job of the script.
    pub(super) fn job_runs(&mut self, what: &str) -> Result<JobRuns> {
        let name = self.own_name(what);
        let recovery = Recovery {
            resume: self.resume_of(&name),
            drop_state: self.options.drop_state,
            overwrites: self.options.overwrite,
            interface: self.options.interface,
            ..Recovery::default()
        };
        let snapshots = self.snapshot_settings()?;
        Ok(JobRuns::new(
            (name, snapshots),
            (recovery, self.planner.settings().restarts()),
            self.options.drain,
            self.clock.clone(),
        ))
    }

    /// What is reported of a job before it runs.
    fn describe(
        &self,
        plan: &PhysicalPlan,
        (name, place): (String, usize),
        (planner, options): (&Planner, &RunOptions),
    ) -> JobDescription {
        JobDescription {
            name,
            place,
            workers: options.workers,
            memory_limit_bytes: options.memory_limit_bytes,
            order: options.order,
            order_costs: plan.stages.iter().map(|stage| stage.order.clone()).collect(),
            is_bounded: plan.is_bounded,
            printing: self.printing_stages(planner, &plan.graph),
        }
    }

    /// What a job resumes from. Of several jobs, the one that a snapshot's folder is of goes back
    /// to it, and the others resume from their newest.
    fn resume_of(&self, job: &str) -> ResumeFrom {
        match (&self.options.resume, &self.resumed_job) {
            (ResumeFrom::Snapshot(SnapshotReference::Folder(_)), Some(resumed))
                if resumed != job =>
            {
                ResumeFrom::Newest
            }
            (resume, _) => resume.clone(),
        }
    }

    /// The name of a job among those of the script: the second with a name gets a number behind it.
    fn own_name(&mut self, what: &str) -> String {
        let name = name_in(&self.planner, &self.options, what);
        numbered(&mut self.names, name)
    }

    /// Whether snapshots are taken, and where they are kept.
    fn snapshot_settings(&self) -> Result<Option<SnapshotSettings>> {
        let Some(mut settings) = self.planner.settings().snapshots() else {
            let is_asked = self.options.resume != ResumeFrom::Nothing || self.options.drain;
            return if is_asked { Err(no_place()) } else { Ok(None) };
        };
        settings.location = match &self.options.trial {
            None => self.options.snapshot_location(&settings.location)?,
            Some(trial) => {
                settings.interval = None;
                trial.folder.display().to_string()
            }
        };
        settings.access = self.planner.access().clone();
        Ok(Some(settings))
    }
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
            let planned = match (inserts_of(statement), &statement.kind) {
                (Some((_, what)), _) => self.planned_job(&planner, statement, what).map(Some),
                (None, StatementKind::Select(_) | StatementKind::Explain(_)) => continue,
                _ => self.declared_or_planned(&mut planner, statement),
            };
            let planned = planned.map_err(|error| located(error, statement))?;
            jobs.extend(
                planned.map(|job| PlannedJob { name: numbered(&mut names, job.name), ..job }),
            );
        }
        Ok(jobs)
    }

    /// The files in which tables of a script's INSERTs and statement sets keep rows that cannot be
    /// read, each with the table's name. Nothing is run or opened.
    ///
    /// # Errors
    /// Those of parsing and planning.
    pub fn dead_letter_files(&self, text: &str) -> Result<Vec<(String, PathBuf)>> {
        let mut planner = self.planner.fork();
        let mut files = Vec::new();
        for statement in &parse_script_with_notes(text)?.statements {
            let tables = match (inserts_of(statement), &statement.kind) {
                (Some(_), _) => planner.rehearse(statement)?.tables.reads,
                (None, StatementKind::Select(_) | StatementKind::Explain(_)) => continue,
                _ => {
                    let executed = planner.executed_plan(statement)?;
                    planner.execute_ddl(statement)?;
                    let Some(executed) = executed else { continue };
                    executed.planner.rehearse(&executed.statement)?.tables.reads
                }
            };
            for request in &tables {
                if let Some(path) = request.options.get("dead-letter.path") {
                    files.push((request.table.clone(), letters_path(request, path)?));
                }
            }
        }
        files.dedup();
        Ok(files)
    }

    /// The job of a compiled plan that is executed. Any other statement is a declaration.
    fn declared_or_planned(
        &self,
        planner: &mut Planner,
        statement: &Statement,
    ) -> Result<Option<PlannedJob>> {
        let executed = planner.executed_plan(statement)?;
        planner.execute_ddl(statement)?;
        let planned = executed.map(|executed| {
            let what = inserts_of(&executed.statement).map_or("INSERT", |(_, what)| what);
            self.planned_job(&executed.planner, &executed.statement, what)
        });
        planned.transpose()
    }

    fn planned_job(
        &self,
        planner: &Planner,
        statement: &Statement,
        what: &str,
    ) -> Result<PlannedJob> {
        let settings = planner.settings();
        let snapshots = settings.snapshots();
        let location =
            snapshots.map(|snapshots| self.options.snapshot_location(&snapshots.location));
        Ok(PlannedJob {
            name: name_in(planner, &self.options, what),
            order: settings.order(),
            snapshot_location: location.transpose()?,
            graph: planner.rehearse(statement)?.graph,
        })
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
            let executed = self.planner.executed_plan(statement)?;
            let inner = executed.as_ref().map_or(statement, |executed| &executed.statement);
            let Some((inserts, what)) = inserts_of(inner) else {
                if !matches!(statement.kind, StatementKind::Select(_) | StatementKind::Explain(_)) {
                    self.planner.execute_ddl(statement)?;
                }
                continue;
            };
            let mut runs = self.job_runs(what)?;
            if runs.name == job {
                runs.recovery.is_rehearsal = true;
                let mut planner = match &executed {
                    Some(executed) => executed.planner.fork(),
                    None => self.planner.fork(),
                };
                planner.set_memory_limit(self.run_options(&planner)?.memory_limit_bytes);
                let plan = planner.plan_insert(inserts)?;
                return runs.rehearse(plan.graph, self.run_options(&planner)?);
            }
        }
        Err(Error::internal(format!("the script has no job '{job}'")))
    }
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
