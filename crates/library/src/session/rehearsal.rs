//! A script is planned as a whole before its first job starts: mistakes, files that statements
//! would take from each other, and what its jobs have to share.
//!
//! Nothing is run or opened here.

use std::collections::HashMap;
use std::time::Duration;

use thalweg_core::connector::JobTables;
use thalweg_core::{Error, Result};
use thalweg_plan::Planner;
use thalweg_plan::ast::{Insert, Statement, StatementKind};
use thalweg_plan::explain::ExplainFormat;
use thalweg_plan::physical::{
    PhysicalPlan, standard_input_has_the_statements, standard_input_twice,
};
use thalweg_runtime::RunOptions;

use super::job_names::check_command;
use super::{SessionOptions, settings};

/// What jobs that run at the same time share.
#[derive(Clone, Copy)]
pub(super) struct Sharing {
    pub workers: usize,
    pub spin: Duration,
    pub memory_limit_bytes: usize,
}

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
    /// The names of the jobs of INSERTs, and whether each takes snapshots.
    pub names: Vec<(String, bool)>,
}

/// Plans statement after statement, as if the script ran. Standard input can be read once, by the
/// statements or by one job. No job replaces what an earlier one has read or written, and those
/// that run at the same time have nothing to do with each other's outputs.
pub(super) struct Rehearsing<'a> {
    options: &'a SessionOptions,
    planner: Planner,
    format: ExplainFormat,
    found: Rehearsal,
    names: HashMap<String, usize>,
    /// The most that any job asks for.
    most: Option<Sharing>,
    /// The tables of the jobs before.
    earlier: Vec<JobTables>,
    /// What messages call each of those, if later statements do not wait for it.
    running: Vec<Option<String>>,
    /// The table that reads it.
    standard_input: Option<String>,
}

impl<'a> Rehearsing<'a> {
    /// In this planner, which it may change; `names` says how often a job had each name.
    pub(super) fn new(
        (planner, options): (Planner, &'a SessionOptions),
        names: HashMap<String, usize>,
        format: ExplainFormat,
    ) -> Self {
        Rehearsing {
            options,
            planner,
            format,
            found: Rehearsal::default(),
            names,
            most: None,
            earlier: Vec::new(),
            running: Vec::new(),
            standard_input: None,
        }
    }

    /// # Errors
    /// The first mistake, with its place.
    pub(super) fn run(mut self, statements: &[Statement]) -> Result<Rehearsal> {
        for statement in statements {
            self.statement(statement).map_err(|error| located(error, statement))?;
        }
        Ok(self.found)
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        match &statement.kind {
            StatementKind::Insert(_)
            | StatementKind::StatementSet(_)
            | StatementKind::Select(_) => {
                let plan = self.planner.rehearse(statement)?;
                self.job(statement, plan)
            }
            StatementKind::Explain(inner) => self.planner.explain_details(inner).map(drop),
            StatementKind::Jobs(command) => check_command(command, &self.found.names),
            _ => {
                if let Some(executed) = self.planner.executed_plan(statement)? {
                    let plan = executed.planner.rehearse(&executed.statement)?;
                    let own = Statement { span: statement.span, ..executed.statement };
                    self.job(&own, plan)?;
                }
                self.planner.execute_ddl(statement).map(drop)
            }
        }
    }

    fn job(&mut self, statement: &Statement, plan: PhysicalPlan) -> Result<()> {
        self.found.plans.push(self.planner.show(&plan, self.format));
        self.check_files(&plan, statement)?;
        self.check_standard_input(&plan)?;
        self.share()?;
        self.found.jobs += 1;
        let what = inserts_of(statement).map(|(_, what)| what);
        if let Some(what) = what {
            let name = numbered(&mut self.names, name_in(&self.planner, self.options, what));
            let takes_snapshots = self.planner.settings().snapshots().is_some();
            self.found.with_snapshots.extend(takes_snapshots.then(|| name.clone()));
            self.found.names.push((name, takes_snapshots));
        }
        let is_awaited = what.is_none() || self.planner.settings().awaits_inserts();
        self.earlier.push(plan.tables);
        self.running.push((!is_awaited).then(|| title(statement)));
        Ok(())
    }

    fn check_files(&self, plan: &PhysicalPlan, statement: &Statement) -> Result<()> {
        let connectors = self.planner.connectors();
        let overwrites =
            matches!(&statement.kind, StatementKind::Insert(insert) if insert.overwrites);
        if !overwrites {
            connectors.check_files_after(&self.earlier, &plan.tables)?;
        }
        for (tables, running) in self.earlier.iter().zip(&self.running) {
            let Some(other) = running else { continue };
            let checked = connectors.check_files_at_once(tables, &plan.tables);
            checked.map_err(|error| meeting(&error, other, statement))?;
        }
        Ok(())
    }

    fn check_standard_input(&mut self, plan: &PhysicalPlan) -> Result<()> {
        let Some(table) = &plan.standard_input else { return Ok(()) };
        if self.options.script_is_standard_input {
            return Err(standard_input_has_the_statements(table));
        }
        match self.standard_input.replace(table.clone()) {
            Some(other) => Err(standard_input_twice(&other, table)),
            None => Ok(()),
        }
    }

    /// Jobs that run at the same time share workers and memory with them. The largest wish counts.
    fn share(&mut self) -> Result<()> {
        let RunOptions { workers, spin, memory_limit_bytes, .. } =
            settings::run_options(self.planner.settings(), self.options)?;
        let most = self.most.get_or_insert(Sharing { workers, spin, memory_limit_bytes });
        most.workers = most.workers.max(workers);
        most.spin = most.spin.max(spin);
        most.memory_limit_bytes = most.memory_limit_bytes.max(memory_limit_bytes);
        let is_shared = self.running.iter().any(Option::is_some);
        self.found.sharing = is_shared.then_some(*most);
        Ok(())
    }
}

/// The INSERTs of a statement that is a job of them, and what it is called.
pub(crate) fn inserts_of(statement: &Statement) -> Option<(&[Insert], &'static str)> {
    match &statement.kind {
        StatementKind::Insert(insert) => Some((std::slice::from_ref(insert), "INSERT")),
        StatementKind::StatementSet(inserts) => Some((inserts, "STATEMENT SET")),
        _ => None,
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
fn meeting(error: &Error, other: &str, statement: &Statement) -> Error {
    let message = error.message();
    let own = title(statement);
    let meeting = Error::plan(format!("{message}: {own} does not wait for {other}"));
    let meeting = error.file().iter().fold(meeting, |meeting, file| meeting.in_file(*file));
    meeting.at(statement.span).hint(format!(
        "SET 'table.dml-sync' = 'true' before {other}: then each INSERT is awaited before the next statement begins; or put \
         INSERTs that write the same into one EXECUTE STATEMENT SET"
    ))
}

/// What a job is called, but for its number.
pub(super) fn name_in(planner: &Planner, options: &SessionOptions, what: &str) -> String {
    let set = planner.settings().pipeline_name();
    set.or(options.name.as_deref()).unwrap_or(what).to_owned()
}

/// Mistakes in a statement point at it; what happens to a job has a place of its own.
pub(crate) fn located(error: Error, statement: &Statement) -> Error {
    if error.is_plan_error() { error.at(statement.span) } else { error }
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

/// The name of a job, with a number behind it if there was one of that name.
pub(super) fn numbered(names: &mut HashMap<String, usize>, name: String) -> String {
    let uses = names.entry(name.clone()).or_insert(0);
    *uses += 1;
    if *uses == 1 { name } else { format!("{name}-{uses}") }
}
