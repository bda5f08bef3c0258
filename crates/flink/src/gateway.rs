//! The SQL gateway: a session with its settings and declarations, and one statement after another.
//!
//! ```text
//! POST /sessions ──▶ session
//! POST /sessions/S/statements ──▶ operation       (once: a second one would be a second job)
//! GET  …/operations/O/result/0, 1, … ──▶ NOT_READY │ PAYLOAD … │ EOS, or the error
//! DELETE …/operations/O/close, DELETE /sessions/S
//! ```
//!
//! A session that is idle for ten minutes is closed by the gateway; asking for results counts as
//! use, and [`Session::heartbeat`] does where nothing is asked.

use serde_json::{Value, json};
use thalweg_core::{Error, Result};
use ureq::http::Method;

use crate::Wait;
use crate::http::{Place, encoded};

/// The version of the interface: the first whose results have the text of values.
const VERSION: &str = "/v2";
/// The longest pause between two questions for a result.
const PAUSE_MS_MAX: u64 = 500;

/// A session.
#[derive(Debug)]
pub struct Session {
    place: Place,
    path: String,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type as the gateway says it, such as `{"type": "INTEGER", "nullable": true}`.
    pub logical_type: Value,
}

/// A row of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `INSERT`, `UPDATE_BEFORE`, `UPDATE_AFTER` or `DELETE`.
    pub kind: String,
    /// The values as texts; `None` is NULL.
    pub fields: Vec<Option<String>>,
}

/// What a statement came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The job that it has started, if it has.
    pub job: Option<String>,
    /// The columns of its result.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// False if a limit of rows or of time has ended the reading.
    pub is_complete: bool,
}

impl Session {
    /// Opens a session with these properties, any of Flink's options.
    ///
    /// # Errors
    /// If there is no gateway, or it refuses them.
    pub fn open(place: &Place, name: &str, properties: &[(String, String)]) -> Result<Session> {
        let info = place.get_answer(&format!("{VERSION}/info"))?;
        // A job manager has no such file.
        let is_other = info.is_success() && info.body["productName"] != "Apache Flink";
        if is_other || info.status == 404 {
            return Err(Error::plan(format!("no SQL gateway of Flink answers at {}", place.url()))
                .hint("it listens at port 8083 unless sql-gateway.endpoint.rest.port says so"));
        }
        info.checked(place)?;
        let own = |(key, value): &(String, String)| (key.clone(), Value::String(value.clone()));
        let properties: serde_json::Map<String, Value> = properties.iter().map(own).collect();
        let body = json!({ "sessionName": name, "properties": properties });
        let answer = place.send(Method::POST, &format!("{VERSION}/sessions"), Some(&body))?;
        let Some(handle) = answer["sessionHandle"].as_str() else {
            return Err(unexpected("a session", &answer));
        };
        let path = format!("{VERSION}/sessions/{}", encoded(handle));
        Ok(Session { place: place.clone(), path })
    }

    /// The settings that hold in it, those of the cluster included.
    ///
    /// # Errors
    /// If the gateway does not answer.
    pub fn properties(&self) -> Result<Value> {
        Ok(self.place.get(&self.path)?["properties"].take())
    }

    /// Executes a statement and reads its result up to a number of rows. A query's job ends when
    /// its result is left before its end; that of an INSERT continues.
    ///
    /// # Errors
    /// Why Flink refuses the statement, or why its job has failed.
    pub fn execute(
        &self,
        statement: &str,
        rows_max: usize,
        wait: &mut dyn Wait,
    ) -> Result<Outcome> {
        let body = json!({ "statement": statement });
        let path = format!("{}/statements", self.path);
        let answer = self.place.send(Method::POST, &path, Some(&body))?;
        let Some(operation) = answer["operationHandle"].as_str() else {
            return Err(unexpected("an operation", &answer));
        };
        let operation = format!("{}/operations/{}", self.path, encoded(operation));
        let outcome = self.result(&operation, rows_max, wait);
        // Nothing depends on it: an operation is closed with its session, too.
        let _ = self.place.send(Method::DELETE, &format!("{operation}/close"), None);
        outcome
    }

    fn result(&self, operation: &str, rows_max: usize, wait: &mut dyn Wait) -> Result<Outcome> {
        let (mut outcome, mut token, mut pause_ms) = (Outcome::default(), 0, 10);
        while outcome.rows.len() < rows_max {
            let page = format!("{operation}/result/{token}?rowFormat=PLAIN_TEXT");
            let answer = self.place.get(&page)?;
            if let Some(job) = answer["jobID"].as_str() {
                outcome.job = Some(job.to_owned());
            }
            let has_rows = take_rows(&answer["results"], &mut outcome)?;
            match answer["resultType"].as_str() {
                Some("EOS") => {
                    outcome.is_complete = true;
                    return Ok(outcome);
                }
                Some("PAYLOAD") => token = next_token(&answer, token),
                _ => {}
            }
            if has_rows {
                pause_ms = 10;
            } else {
                if !wait.pause(pause_ms) {
                    break;
                }
                pause_ms = (pause_ms * 3 / 2).min(PAUSE_MS_MAX);
            }
        }
        Ok(outcome)
    }

    /// Keeps the session from being closed as idle.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn heartbeat(&self) -> Result<()> {
        let path = format!("{}/heartbeat", self.path);
        self.place.send(Method::POST, &path, Some(&json!({}))).map(|_| ())
    }

    /// Closes it: jobs of queries end, those of INSERTs continue.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn close(self) -> Result<()> {
        self.place.send(Method::DELETE, &self.path, None).map(|_| ())
    }
}

/// The number of the next page, which stands in its address.
fn next_token(answer: &Value, token: u64) -> u64 {
    let uri = answer["nextResultUri"].as_str().unwrap_or_default();
    let path = uri.split('?').next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    last.parse().unwrap_or(token + 1)
}

/// Adds the rows of a page; whether there are any.
fn take_rows(results: &Value, outcome: &mut Outcome) -> Result<bool> {
    if outcome.columns.is_empty()
        && let Some(columns) = results["columns"].as_array()
    {
        let column = |column: &Value| Column {
            name: column["name"].as_str().unwrap_or_default().to_owned(),
            logical_type: column["logicalType"].clone(),
        };
        outcome.columns = columns.iter().map(column).collect();
    }
    let rows = results["data"].as_array().map_or(&[][..], Vec::as_slice);
    for row in rows {
        let Some(fields) = row["fields"].as_array() else {
            return Err(unexpected("a row", row));
        };
        let text = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let kind = row["kind"].as_str().unwrap_or("INSERT").to_owned();
        outcome.rows.push(Row { kind, fields: fields.iter().map(text).collect() });
    }
    Ok(!rows.is_empty())
}

fn unexpected(what: &str, answer: &Value) -> Error {
    Error::io(format!("Flink's gateway does not answer with {what}: {answer}"))
}
