//! `thalweg submit --flink`: the check, the session, the statements, the jobs.

use std::path::PathBuf;

use thalweg_core::quoting::quoted_text;
use thalweg_core::{Error, Result};
use thalweg_flink::gateway::{Outcome, Session};
use thalweg_flink::job_manager::JobManager;
use thalweg_flink::{Deadline, Wait};
use thalweg_plan::flink_check::{Queries, Role, TranslatedStatement, Translation};

use super::super::arguments::{ColorChoice, ScriptArguments};
use super::super::check::substituted;
use super::super::exit::{FAILED, Failure, with_source};
use super::super::flink_arguments::{FlinkArguments, FlinkSubmitArguments};
use super::super::server_arguments::SubmitArguments;
use super::super::source::ScriptSource;
use super::super::terminal::{print, say};
use super::sent_secrets::SentSecrets;
use super::translate::{print_left, translation};
use super::{SAVEPOINT_S, follow, place};

/// The setting that names a job.
const NAME: &str = "pipeline.name";
/// The setting that says where a job begins.
const RECOVERY: &str = "execution.state-recovery.path";

/// Waits for ever: the gateway says when a statement has come to its end.
struct ForEver;

impl Wait for ForEver {
    fn pause(&mut self, milliseconds: u64) -> bool {
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        true
    }
}

/// `thalweg submit --flink URL FILE`; the exit status.
pub fn submit(arguments: &SubmitArguments) -> u8 {
    let script = ScriptArguments {
        file: Some(arguments.file.clone()),
        execute: None,
        settings: arguments.settings.clone(),
        parameters: arguments.params.clone(),
        // Nothing is opened here.
        allow_paths: vec![PathBuf::from("/")],
        color: ColorChoice::Auto,
    };
    with_source(&script, |source| {
        let text = substituted(source, &script)?;
        let translation =
            translation(source, &script, &text, (&arguments.on_flink.cluster(), Queries::Jobs))?;
        for lost in &translation.lost {
            say(&format!("{}:{}: lost: {}\n", source.name, lost.span.line, lost.message));
        }
        if !translation.left.is_empty() && !arguments.on_flink.unchecked {
            print_left(&translation, &script)?;
            return Ok(FAILED);
        }
        if arguments.dry_run {
            print(&translation.text)?;
            return Ok(0);
        }
        let order = Order {
            flink: &arguments.flink,
            on_flink: &arguments.on_flink,
            settings: &arguments.settings,
            secrets: SentSecrets::new(arguments.on_flink.send_secrets, None),
            name: job_name(arguments, source),
        };
        let submitted = Submission::open(order).and_then(|open| open.run(&translation));
        submitted.map_err(|error| Failure { error, text: Some(text.clone()) })
    })
}

/// Where something runs, and how.
pub(super) struct Order<'a> {
    pub(super) flink: &'a FlinkArguments,
    pub(super) on_flink: &'a FlinkSubmitArguments,
    pub(super) settings: &'a [(String, String)],
    pub(super) secrets: SentSecrets,
    /// Of the job; several have numbers behind it.
    pub(super) name: String,
}

/// A session in which something is submitted.
pub(super) struct Submission<'a> {
    order: Order<'a>,
    session: Session,
    manager: JobManager,
}

impl<'a> Submission<'a> {
    /// Opens a session.
    pub(super) fn open(order: Order<'a>) -> Result<Self> {
        let place = place(order.flink)?;
        let session = Session::open(&place, "thalweg submit", &properties(&order))?;
        let manager = match &order.flink.flink_rest {
            Some(url) => JobManager::at(thalweg_flink::http::Place::new(
                url,
                order.flink.flink_headers.clone(),
            )?)?,
            None => JobManager::behind(&place, &session)?,
        };
        Ok(Submission { order, session, manager })
    }

    /// Fails if a job of this name runs, whose place one job is to take.
    pub(super) fn check_name(&self) -> Result<()> {
        let jobs = self.manager.jobs()?;
        match jobs.iter().find(|job| job.name == self.order.name && !job.is_over()) {
            Some(job) => Err(runs_already(&self.order.name, &job.id)),
            None => Ok(()),
        }
    }

    /// Submits everything; the exit status.
    pub(super) fn run(self, translation: &Translation) -> Result<u8> {
        let count = translation.statements.iter().filter(|one| one.role == Role::Job).count();
        let names = job_names(&self.order.name, count);
        let savepoints = self.clear_the_way(&names)?;
        for jar in &self.order.on_flink.jars {
            let path = std::path::absolute(jar).map_or(jar.clone(), |p| p.display().to_string());
            self.execute(&format!("ADD JAR {}", quoted_text(&path)))?;
        }
        let mut jobs: Vec<(String, String)> = Vec::new();
        for statement in &translation.statements {
            match statement.role {
                // Its answer is for people who look at it.
                Role::Show => continue,
                Role::Declaration => self.checked(statement, &jobs)?,
                Role::Job => {
                    let name = names[jobs.len()].clone();
                    let savepoint = savepoints.get(jobs.len()).cloned().flatten();
                    self.name_job(&name, savepoint.as_deref())?;
                    let id = self.start(statement, &jobs)?;
                    print(&format!("{name}: job {id}\n"))?;
                    jobs.push((id, name));
                }
            }
        }
        self.session.close()?;
        match self.order.on_flink.detach {
            true => Ok(0),
            false => follow::follow(&self.manager, &jobs),
        }
    }

    /// A job of the same name is refused, or stopped with a savepoint, and its place is kept.
    fn clear_the_way(&self, names: &[String]) -> Result<Vec<Option<String>>> {
        let listed = self.manager.jobs()?;
        let mut savepoints = Vec::with_capacity(names.len());
        for name in names {
            let running = listed.iter().find(|job| job.name == *name && !job.is_over());
            let Some(job) = running else {
                savepoints.push(self.order.on_flink.savepoint.clone());
                continue;
            };
            if !self.order.on_flink.replace {
                return Err(runs_already(name, &job.id).hint(
                    "--replace stops it with a savepoint and begins from that; --name gives another name",
                ));
            }
            let wait = &mut Deadline::after_seconds(SAVEPOINT_S);
            let location = self.manager.stop(&job.id, None, false, wait)?;
            say(&format!("{name}: the job {} is stopped; savepoint {location}\n", job.id));
            savepoints.push(Some(location));
        }
        Ok(savepoints)
    }

    fn name_job(&self, name: &str, savepoint: Option<&str>) -> Result<()> {
        self.execute(&format!("SET '{NAME}' = {}", quoted_text(name)))?;
        match savepoint {
            Some(path) => self.execute(&format!("SET '{RECOVERY}' = {}", quoted_text(path))),
            None => self.execute(&format!("RESET '{RECOVERY}'")),
        }
    }

    fn execute(&self, statement: &str) -> Result<()> {
        self.outcome(statement).map(|_| ())
    }

    fn outcome(&self, statement: &str) -> Result<Outcome> {
        self.order.secrets.execute(&self.session, statement, usize::MAX, &mut ForEver)
    }

    fn checked(&self, statement: &TranslatedStatement, jobs: &[(String, String)]) -> Result<()> {
        self.execute(&statement.text).map_err(|error| located(error, statement, jobs))
    }

    /// Starts a job; its identifier.
    fn start(&self, statement: &TranslatedStatement, jobs: &[(String, String)]) -> Result<String> {
        let outcome =
            self.outcome(&statement.text).map_err(|error| located(error, statement, jobs))?;
        outcome.job.ok_or_else(|| Error::io("Flink names no job that the statement has started"))
    }
}

/// An error of a statement, at its place, with the jobs that run all the same.
fn located(error: Error, statement: &TranslatedStatement, jobs: &[(String, String)]) -> Error {
    let error = error.at(statement.span);
    match jobs {
        [] => error,
        jobs => {
            let names: Vec<&str> = jobs.iter().map(|(_, name)| name.as_str()).collect();
            error.hint(format!("these jobs were started before it and run: {}", names.join(", ")))
        }
    }
}

fn runs_already(name: &str, id: &str) -> Error {
    Error::plan(format!("a job '{name}' runs already: {id}"))
}

fn properties(order: &Order<'_>) -> Vec<(String, String)> {
    let mut properties = order.settings.to_vec();
    if let Some(parallelism) = order.on_flink.parallelism {
        properties.push(("parallelism.default".to_owned(), parallelism.to_string()));
    }
    if let Some(interval) = &order.on_flink.checkpoint_interval {
        properties.push(("execution.checkpointing.interval".to_owned(), interval.clone()));
    }
    properties
}

/// The name that is given, or the file's.
fn job_name(arguments: &SubmitArguments, source: &ScriptSource) -> String {
    let stem = arguments.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    arguments.name.clone().or(stem).unwrap_or_else(|| source.name.clone())
}

/// One job has the name itself; of several each has a number, too.
fn job_names(name: &str, jobs: usize) -> Vec<String> {
    match jobs {
        1 => vec![name.to_owned()],
        jobs => (1..=jobs).map(|number| format!("{name}-{number}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::job_names;

    #[test]
    fn jobs_of_one_file_have_names_of_their_own() {
        assert_eq!(job_names("orders", 1), ["orders"]);
        assert_eq!(job_names("orders", 2), ["orders-1", "orders-2"]);
    }
}
