//! A script is planned as a whole before its first job starts: mistakes, files that statements would
//! take from each other, and what its jobs have to share.
//!
//! Nothing is run or opened here.

use std::collections::HashMap;

use thalweg_core::connector::JobTables;
use thalweg_core::graph::Graph;
use thalweg_core::{Error, OrderContract, Result};
use thalweg_plan::Planner;
use thalweg_plan::ast::{Statement, StatementKind};
use thalweg_plan::explain::ExplainFormat;
use thalweg_plan::parser::parse_script_with_notes;
use thalweg_plan::physical::{
    PhysicalPlan, standard_input_has_the_statements, standard_input_twice,
};
use thalweg_runtime::RunOptions;

use super::script_jobs::Sharing;
use super::statement::numbered;
use super::{Session, located};

/// What planning a script has found.
#[derive(Default)]
pub(super) struct Rehearsal {
    /// The plans of statements that would be jobs.
    pub plans: Vec<String>,
    /// How many jobs there would be.
    pub jobs: usize,
    /// What jobs that run at the same time share; `None` where none do.
    pub sharing: Option<Sharing>,
    /// The names of the jobs that take snapshots.
    pub with_snapshots: Vec<String>,
}

/// A statement that would be a job, with those before it.
struct EarlierJob {
    tables: JobTables,
    /// What it is called in messages, if later statements do not wait for it.
    running: Option<String>,
}

/// Plans statement after statement, as if the script ran. Standard input can be read once, by the
/// statements or by one job. No job replaces what an earlier one has read or written, and those
/// that run at the same time have nothing to do with each other's outputs.
pub(super) struct Rehearsing<'a> {
    session: &'a Session,
    planner: Planner,
    format: ExplainFormat,
    found: Rehearsal,
    names: HashMap<String, usize>,
    /// The most that any job asks for.
    most: Option<Sharing>,
    earlier: Vec<EarlierJob>,
    /// The table that reads it.
    standard_input: Option<String>,
}

impl<'a> Rehearsing<'a> {
    pub(super) fn new(session: &'a Session, format: ExplainFormat) -> Self {
        Rehearsing {
            session,
            planner: session.planner.fork(),
            format,
            found: Rehearsal::default(),
            names: session.names.clone(),
            most: None,
            earlier: Vec::new(),
            standard_input: None,
        }
    }

    /// # Errors
    /// The first mistake, with its place.
    pub(super) fn run(mut self, statements: &[Statement]) -> Result<Rehearsal> {
        for statement in statements {
            let rehearsed = match &statement.kind {
                StatementKind::Insert(_)
                | StatementKind::StatementSet(_)
                | StatementKind::Select(_) => self.job(statement),
                StatementKind::Explain(inner) => self.planner.explain(inner).map(drop),
                _ => self.planner.execute_ddl(statement).map(drop),
            };
            rehearsed.map_err(|error| located(error, statement))?;
        }
        Ok(self.found)
    }

    fn job(&mut self, statement: &Statement) -> Result<()> {
        let plan = self.planner.rehearse(statement)?;
        self.found.plans.push(self.planner.show(&plan, self.format));
        self.check_files(&plan, statement)?;
        self.check_standard_input(&plan)?;
        self.share()?;
        self.found.jobs += 1;
        let what = match &statement.kind {
            StatementKind::Insert(_) => Some("INSERT"),
            StatementKind::StatementSet(_) => Some("STATEMENT SET"),
            _ => None,
        };
        if let Some(what) = what {
            let name = numbered(&mut self.names, self.session.name_in(&self.planner, what));
            let takes_snapshots = self.planner.settings().snapshots().is_some();
            self.found.with_snapshots.extend(takes_snapshots.then_some(name));
        }
        let is_awaited = what.is_none() || self.planner.settings().awaits_inserts();
        let running = (!is_awaited).then(|| title(statement));
        self.earlier.push(EarlierJob { tables: plan.tables, running });
        Ok(())
    }

    fn check_files(&self, plan: &PhysicalPlan, statement: &Statement) -> Result<()> {
        let connectors = self.planner.connectors();
        let earlier = self.earlier.iter().map(|job| job.tables.clone());
        connectors.check_files_after(&earlier.collect::<Vec<_>>(), &plan.tables)?;
        for EarlierJob { tables, running } in &self.earlier {
            let Some(other) = running else { continue };
            let checked = connectors.check_files_beside(tables, &plan.tables);
            checked.map_err(|error| beside(&error, other, statement))?;
        }
        Ok(())
    }

    fn check_standard_input(&mut self, plan: &PhysicalPlan) -> Result<()> {
        let Some(table) = &plan.standard_input else { return Ok(()) };
        if self.session.options.script_is_standard_input {
            return Err(standard_input_has_the_statements(table));
        }
        match self.standard_input.replace(table.clone()) {
            Some(other) => Err(standard_input_twice(&other, table)),
            None => Ok(()),
        }
    }

    /// Jobs that run beside others share workers and memory with them. The largest wish counts.
    fn share(&mut self) -> Result<()> {
        let RunOptions { workers, spin, memory_limit_bytes, .. } =
            self.session.run_options(&self.planner)?;
        let most = self.most.get_or_insert(Sharing { workers, spin, memory_limit_bytes });
        most.workers = most.workers.max(workers);
        most.spin = most.spin.max(spin);
        most.memory_limit_bytes = most.memory_limit_bytes.max(memory_limit_bytes);
        let is_shared = self.earlier.iter().any(|job| job.running.is_some());
        self.found.sharing = is_shared.then_some(*most);
        Ok(())
    }
}

/// What messages call a statement.
fn title(statement: &Statement) -> String {
    let line = statement.span.line;
    match &statement.kind {
        StatementKind::Insert(insert) => {
            format!("the INSERT INTO {} of line {line}", insert.table.text)
        }
        StatementKind::StatementSet(_) => format!("the STATEMENT SET of line {line}"),
        _ => format!("the SELECT of line {line}"),
    }
}

/// The error of a statement that meets the files of one that need not have ended.
fn beside(error: &Error, other: &str, statement: &Statement) -> Error {
    let message = error.message();
    let own = title(statement);
    let beside = Error::plan(format!("{message}: {own} does not wait for {other}"));
    let beside = error.file().iter().fold(beside, |beside, file| beside.in_file(*file));
    beside.at(statement.span).hint(format!(
        "SET 'table.dml-sync' = 'true' before {other}: then each INSERT is awaited before the next statement begins; or put \
         INSERTs that write the same into one EXECUTE STATEMENT SET"
    ))
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
        checked.map_err(|error| located(error, statement))?;
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
                let memory_limit_bytes = self.run_options(&self.planner)?.memory_limit_bytes;
                self.planner.set_memory_limit(memory_limit_bytes);
                let plan = self.planner.plan_insert(inserts)?;
                return runs.rehearse(plan.graph, self.run_options(&self.planner)?);
            }
        }
        Err(Error::internal(format!("the script has no job '{job}'")))
    }
}
