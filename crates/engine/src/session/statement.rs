//! What each kind of statement does in a session.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Column, DataType, Error, OrderContract, Result, Sink, TableSchema};
use thalweg_plan::ast::{Statement, StatementKind};
use thalweg_plan::explain::ExplainFormat;
use thalweg_plan::physical::PhysicalPlan;
use thalweg_plan::{Planner, ResultTable};
use thalweg_runtime::{Report, RunOptions};

use crate::interleaving::input_names;

use super::limit::{LimitSink, LimitSwitch};
use super::{JobDescription, JobReport, Observer, Session, settings};

/// Plans every statement in order, as if the script ran, and opens nothing. Returns the plans of
/// those that would be jobs.
pub(super) fn rehearse(
    planner: &mut Planner,
    statements: &[Statement],
    format: ExplainFormat,
) -> Result<Vec<String>> {
    let mut plans = Vec::new();
    for statement in statements {
        let rehearsed = match &statement.kind {
            StatementKind::Insert(_)
            | StatementKind::StatementSet(_)
            | StatementKind::Select(_) => {
                planner.explain_as(statement, format).map(|plan| plans.push(plan))
            }
            StatementKind::Explain(inner) => planner.explain(inner).map(drop),
            _ => planner.execute_ddl(statement).map(drop),
        };
        rehearsed.map_err(|error| super::located(error, statement))?;
    }
    Ok(plans)
}

impl Session {
    pub(super) fn run_statement(
        &mut self,
        statement: &Statement,
        observer: &mut dyn Observer,
    ) -> Result<Option<JobReport>> {
        self.connectors.set_zone(self.planner.zone());
        match &statement.kind {
            StatementKind::Insert(insert) => {
                let plan = self.planner.plan_insert(std::slice::from_ref(insert))?;
                self.run_job(plan, "INSERT", None, observer).map(Some)
            }
            StatementKind::StatementSet(inserts) => {
                let plan = self.planner.plan_insert(inserts)?;
                self.run_job(plan, "STATEMENT SET", None, observer).map(Some)
            }
            StatementKind::Select(query) => {
                let limit = self.options.row_limit.map(|rows| (rows, LimitSwitch::default()));
                let zone = self.planner.zone();
                let plan = self.planner.plan_select(query, &mut |table| {
                    let sink = observer.result(table, zone)?;
                    Ok(match &limit {
                        Some((rows, switch)) => {
                            Box::new(LimitSink::new(sink, *rows, switch.clone()))
                        }
                        None => sink,
                    })
                })?;
                let switch = limit.map(|(_, switch)| switch);
                self.run_job(plan, "SELECT", switch, observer).map(Some)
            }
            StatementKind::Explain(inner) => {
                observer.explanation(&self.planner.explain(inner)?)?;
                Ok(None)
            }
            _ => {
                if let Some(rows) = self.planner.execute_ddl(statement)? {
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

    /// The sinks that print: tables of the connector `print`, and whatever is no table.
    fn printing_stages(&self, graph: &Graph) -> Vec<usize> {
        let prints = |sink: &dyn Sink| match self.planner.catalog().table(&sink.name()) {
            Some(table) => {
                table.options.iter().any(|(key, value)| key.text == "connector" && value == "print")
            }
            None => true,
        };
        let stages = graph.stages.iter().enumerate();
        stages
            .filter(|(_, stage)| matches!(&stage.kind, StageKind::Sink(sink) if prints(&**sink)))
            .map(|(place, _)| place)
            .collect()
    }

    fn job_name(&self, what: &str) -> String {
        let set = self.planner.settings().pipeline_name();
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

    /// Runs a plan until it is done, stopped or failed.
    fn run_job(
        &mut self,
        plan: PhysicalPlan,
        what: &str,
        limit: Option<LimitSwitch>,
        observer: &mut dyn Observer,
    ) -> Result<JobReport> {
        for note in &plan.notes {
            observer.note(note);
        }
        let mut options = self.run_options()?;
        let job = JobDescription {
            name: self.job_name(what),
            workers: options.workers,
            memory_limit_bytes: options.memory_limit_bytes,
            order: options.order,
            order_costs: plan.stages.iter().map(|stage| stage.order.clone()).collect(),
            is_bounded: plan.is_bounded,
            printing: self.printing_stages(&plan.graph),
        };
        let mut graph = plan.graph;
        self.follow_interleaving(&job, &graph, &mut options)?;
        observer.starting(&job, &mut graph);
        let result = thalweg_runtime::start(graph, options).and_then(|running| {
            let control = running.control();
            if let Some(switch) = &limit {
                switch.connect(control.clone());
            }
            observer.started(&job, &control);
            running.wait()
        });
        let result = result.map(|report| as_done(report, limit.as_ref()));
        let result = self.end_recording(result);
        observer.ended(&job, &result);
        Ok(JobReport { job, report: result? })
    }
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

/// A job that its row limit has stopped is done, and not cancelled.
fn as_done(report: Report, limit: Option<&LimitSwitch>) -> Report {
    let is_reached = limit.is_some_and(LimitSwitch::is_reached);
    Report { cancelled: report.cancelled && !is_reached, ..report }
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
