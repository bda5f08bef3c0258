//! The job manager: which jobs there are, and stopping them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use thalweg_core::{Error, Result};
use ureq::http::Method;

use crate::Wait;
use crate::causes;
use crate::gateway::Session;
use crate::http::{Place, encoded};

/// Why Flink takes no savepoint while tasks start.
const NOT_READY: &str = "Not all required tasks are currently running";

/// The job manager of a cluster.
#[derive(Clone, Debug)]
pub struct JobManager {
    place: Place,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedJob {
    /// Its identifier: 32 hexadecimal digits.
    pub id: String,
    /// Its name, `pipeline.name`.
    pub name: String,
    /// Its state, such as `RUNNING`.
    pub state: String,
    /// When it began, in milliseconds since 1970.
    pub start_ms: i64,
    /// For how long it has run, in milliseconds.
    pub duration_ms: i64,
}

impl ListedJob {
    /// True once its state will never change again.
    pub fn is_over(&self) -> bool {
        is_final(&self.state)
    }
}

/// True for a state that will never change again.
pub fn is_final(state: &str) -> bool {
    matches!(state, "FINISHED" | "FAILED" | "CANCELED")
}

impl JobManager {
    /// The job manager at a place.
    ///
    /// # Errors
    /// If none answers there.
    pub fn at(place: Place) -> Result<JobManager> {
        let overview = place.get("/overview")?;
        if overview["flink-version"].is_null() {
            return Err(Error::plan(format!("no job manager of Flink answers at {}", place.url())));
        }
        Ok(JobManager { place })
    }

    /// The job manager behind a gateway, as the gateway's own settings say.
    ///
    /// # Errors
    /// If they do not say where it is, or it does not answer there.
    pub fn behind(gateway: &Place, session: &Session) -> Result<JobManager> {
        let properties = session.properties()?;
        let text = |key: &str| properties[key].as_str();
        let host = match text("rest.address").or_else(|| text("jobmanager.rpc.address")) {
            // The address that the gateway has for a cluster of its own machine.
            Some("localhost" | "0.0.0.0") | None => gateway.host(),
            Some(host) => host.to_owned(),
        };
        let port = text("rest.port").and_then(|port| port.parse().ok()).unwrap_or(8081);
        JobManager::at(gateway.with_port(&host, port)?).map_err(|error| {
            error.hint("--flink-rest says where the job manager answers, such as http://host:8081")
        })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.place.url()
    }

    /// What the cluster has: `slots-total`, `slots-available`, `taskmanagers`, `flink-version`.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn overview(&self) -> Result<Value> {
        self.place.get("/overview")
    }

    /// The jobs, the newest first.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn jobs(&self) -> Result<Vec<ListedJob>> {
        let answer = self.place.get("/jobs/overview")?;
        let job = |job: &Value| ListedJob {
            id: text(&job["jid"]),
            name: text(&job["name"]),
            state: text(&job["state"]),
            start_ms: job["start-time"].as_i64().unwrap_or(0),
            duration_ms: job["duration"].as_i64().unwrap_or(0),
        };
        let mut jobs: Vec<ListedJob> =
            answer["jobs"].as_array().into_iter().flatten().map(job).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.start_ms));
        Ok(jobs)
    }

    /// The job of an identifier or a name; of several of one name the one that runs, else the
    /// newest.
    ///
    /// # Errors
    /// If there is none, or several run.
    pub fn find(&self, job: &str) -> Result<ListedJob> {
        let jobs = self.jobs()?;
        if let Some(found) = jobs.iter().find(|listed| listed.id == job) {
            return Ok(found.clone());
        }
        let named: Vec<&ListedJob> = jobs.iter().filter(|listed| listed.name == job).collect();
        let live: Vec<&&ListedJob> = named.iter().filter(|listed| !listed.is_over()).collect();
        match (&live[..], named.first()) {
            ([one], _) => Ok((**one).clone()),
            ([], Some(newest)) => Ok((*newest).clone()),
            ([], None) => {
                let names = jobs.iter().map(|listed| listed.name.as_str());
                let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
                let error = Error::plan(format!("Flink has no job '{job}'"));
                Err(match names.is_empty() {
                    true => error.hint("it has no jobs"),
                    false => error.hint(format!("its jobs are {}", names.join(", "))),
                })
            }
            (several, _) => {
                let ids: Vec<&str> = several.iter().map(|listed| listed.id.as_str()).collect();
                Err(Error::plan(format!("{} jobs of the name '{job}' run", several.len()))
                    .hint(format!("name one by its identifier: {}", ids.join(", "))))
            }
        }
    }

    /// An answer about a job: `path` is empty, or begins with `/`.
    ///
    /// # Errors
    /// If there is no such job, or no answer.
    pub fn about(&self, job: &str, path: &str) -> Result<Value> {
        self.place.get(&format!("/jobs/{}{path}", encoded(job)))
    }

    /// The checkpoints of a job; null for one that has none, as in batch mode.
    ///
    /// # Errors
    /// If there is no such job, or no answer.
    pub fn checkpoints(&self, job: &str) -> Result<Value> {
        let answer = self.place.get_answer(&format!("/jobs/{}/checkpoints", encoded(job)))?;
        match answer.status == 404 && answer.text.contains("Checkpointing has not been enabled") {
            true => Ok(Value::Null),
            false => answer.checked(&self.place),
        }
    }

    /// The state of a job.
    ///
    /// # Errors
    /// If there is no such job, or no answer.
    pub fn state(&self, job: &str) -> Result<String> {
        Ok(text(&self.about(job, "/status")?["status"]))
    }

    /// Ends a job without a savepoint.
    ///
    /// # Errors
    /// If there is no such job, or it has ended.
    pub fn cancel(&self, job: &str) -> Result<()> {
        let path = format!("/jobs/{}?mode=cancel", encoded(job));
        self.place.send(Method::PATCH, &path, None).map(|_| ())
    }

    /// Stops a job with a savepoint; where that lies. With `drain` all windows close before.
    ///
    /// # Errors
    /// If the job cannot be stopped so, or the savepoint fails: the job then continues.
    pub fn stop(
        &self,
        job: &str,
        folder: Option<&str>,
        drain: bool,
        wait: &mut dyn Wait,
    ) -> Result<String> {
        let body = json!({ "targetDirectory": folder, "drain": drain });
        let path = format!("/jobs/{}/stop", encoded(job));
        loop {
            let asked = self.place.send(Method::POST, &path, Some(&body)).map_err(|error| {
                error.hint("--savepoint-dir names a folder, if execution.checkpointing.savepoint-dir is not set")
            })?;
            match self.savepoint(job, &text(&asked["request-id"]), wait) {
                // Of a job that has just begun, or recovers. It takes a savepoint soon.
                Err(error) if error.message().contains(NOT_READY) && wait.pause(1_000) => {}
                stopped => return stopped,
            }
        }
    }

    fn savepoint(&self, job: &str, request: &str, wait: &mut dyn Wait) -> Result<String> {
        loop {
            let answer = self.about(job, &format!("/savepoints/{}", encoded(request)))?;
            if answer["status"]["id"] == "COMPLETED" {
                let operation = &answer["operation"];
                if let Some(location) = operation["location"].as_str() {
                    return Ok(location.to_owned());
                }
                let cause = &operation["failure-cause"]["stack-trace"];
                let reason = causes::of_trace(cause.as_str().unwrap_or("no reason is given"));
                return Err(Error::io(format!("the savepoint has failed: {reason}"))
                    .hint("the job continues, unless its own state says otherwise"));
            }
            if !wait.pause(300) {
                return Err(Error::io("the savepoint is not complete yet")
                    .hint("the job stops once it is; ask for its state again"));
            }
        }
    }

    /// The names of the log files of the job manager, and of each task manager.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn log_files(&self) -> Result<Vec<String>> {
        let mut found = self.files_of("/jobmanager")?;
        let managers = self.place.get("/taskmanagers")?;
        for manager in managers["taskmanagers"].as_array().into_iter().flatten() {
            found.extend(
                self.files_of(&format!("/taskmanagers/{}", encoded(&text(&manager["id"]))))?,
            );
        }
        Ok(found)
    }

    fn files_of(&self, process: &str) -> Result<Vec<String>> {
        let answer = self.place.get(&format!("{process}/logs"))?;
        let names = answer["logs"].as_array().into_iter().flatten();
        Ok(names.map(|log| format!("{process}/logs/{}", encoded(&text(&log["name"])))).collect())
    }

    /// The text of a log file.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn log(&self, file: &str) -> Result<String> {
        Ok(self.place.get_answer(file)?.text)
    }
}

/// A text, or nothing.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
