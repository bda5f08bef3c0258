//! A catalog that is a server: Iceberg's protocol of REST.
//!
//! The server says where a table lies and what its newest version is. It makes the next one if the
//! branch `main` is where the writer saw it. Lists and rows lie in the table's folder, as with any
//! catalog.
//!
//! | what | request |
//! |---|---|
//! | what the server wants of its clients | `GET /v1/config` |
//! | a table | `GET …/namespaces/N/tables/T` |
//! | a table is created | `POST …/namespaces/N/tables` |
//! | a commit | `POST …/namespaces/N/tables/T` |
//!
//! Every request can be repeated. A commit that the server had made before the connection broke is
//! refused when it is sent again, as if another writer had been faster; the writer then finds its
//! name in the newest version.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_core::connector::Waker;
use thalweg_core::{Error, Result};
use ureq::http::Method;

use super::place::{Catalog, Version};
use super::schema::TableLayout;
use crate::network::http::{HttpClient, HttpSettings, Reply};
use crate::network::{Backoff, Cancel, Failure};
use crate::percent::encoded;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(25);
/// How long a server that cannot answer is asked again.
const PATIENCE: Duration = Duration::from_secs(60);
/// A longer answer is refused.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Where a table is, by the names that a server knows.
pub struct TableName {
    pub uri: String,
    /// Which of its warehouses, if the server has several.
    pub warehouse: Option<String>,
    pub database: String,
    pub table: String,
}

/// A table of a catalog that is a server.
pub struct RestCatalog {
    client: HttpClient,
    name: TableName,
    /// What comes between `/v1/` and the rest of a path, once the server has said it.
    prefix: OnceLock<String>,
    cancel: Cancel,
    /// Ends calls for the table's files.
    files: Mutex<Option<Waker>>,
}

impl RestCatalog {
    /// A table that is asked for when it is needed.
    pub fn new(name: TableName, settings: HttpSettings) -> RestCatalog {
        let cancel = Cancel::default();
        let settings = HttpSettings { timeout: Some(TIMEOUT), ..settings };
        let client = HttpClient::new(settings, &cancel);
        RestCatalog { client, name, prefix: OnceLock::new(), cancel, files: Mutex::default() }
    }

    /// Asks until the server can answer.
    fn ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Reply> {
        let url = format!("{}/v1/{path}", self.name.uri.trim_end_matches('/'));
        let text = body.map(Value::to_string);
        let headers = [("content-type", "application/json"), ("accept", "application/json")];
        let mut backoff = Backoff::default();
        loop {
            let bytes = text.as_ref().map(String::as_bytes);
            let reply = self.client.ask(method, &url, &headers, bytes, ANSWER_BYTES_MAX);
            let why = match reply {
                Ok(reply) if !matches!(reply.status, 408 | 425 | 429 | 500..=599) => {
                    return Ok(reply);
                }
                Ok(reply) => format!("it answers {} {}", reply.status, reply.excerpt()),
                Err(Failure::Passing(why)) => why,
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Cancelled) => return Err(Error::cancelled()),
            };
            let Some(pause) = backoff.pause(PATIENCE) else {
                return Err(Error::io(format!("the catalog cannot be reached: {why}"))
                    .in_file(self.name.uri.clone())
                    .hint("start the server, or correct 'uri'"));
            };
            if !self.cancel.sleep(pause) {
                return Err(Error::cancelled());
            }
        }
    }

    /// The error of an answer that was not hoped for.
    fn refused(&self, reply: &Reply) -> Error {
        let message = message_of(reply);
        let error = Error::io(format!("the catalog answers {} {message}", reply.status));
        let error = error.in_file(self.name.uri.clone());
        match reply.status {
            401 | 403 => error.hint("set 'token' to one that may do this"),
            404 => error.hint("check 'uri' and 'warehouse'"),
            _ => error,
        }
    }

    fn json(&self, reply: &Reply) -> Result<Value> {
        if reply.status != 200 {
            return Err(self.refused(reply));
        }
        serde_json::from_slice(&reply.body).map_err(|error| {
            Error::data(format!("the answer of the catalog is no JSON: {error}"))
                .in_file(self.name.uri.clone())
        })
    }

    /// What the server wants between `/v1/` and the rest.
    fn prefix(&self) -> Result<&str> {
        if let Some(prefix) = self.prefix.get() {
            return Ok(prefix);
        }
        let asked = match &self.name.warehouse {
            Some(warehouse) => format!("config?warehouse={}", encoded(warehouse)),
            None => "config".to_owned(),
        };
        let config = self.json(&self.ask(&Method::GET, &asked, None)?)?;
        let said = ["overrides", "defaults"].map(|what| config[what]["prefix"].as_str());
        let prefix = said.into_iter().flatten().next().map_or(String::new(), |said| {
            let levels: Vec<String> = said.split('/').map(encoded).collect();
            format!("{}/", levels.join("/"))
        });
        Ok(self.prefix.get_or_init(|| prefix))
    }

    fn levels(&self) -> Vec<&str> {
        self.name.database.split('.').collect()
    }

    /// The path of the tables of the database.
    fn tables(&self) -> Result<String> {
        let levels = self.levels().join("\u{1f}");
        Ok(format!("{}namespaces/{}/tables", self.prefix()?, encoded(&levels)))
    }

    fn table(&self) -> Result<String> {
        Ok(format!("{}/{}", self.tables()?, encoded(&self.name.table)))
    }

    /// Makes the database, where it is not there.
    fn create_database(&self) -> Result<()> {
        let body = json!({ "namespace": self.levels(), "properties": {} });
        let path = format!("{}namespaces", self.prefix()?);
        let reply = self.ask(&Method::POST, &path, Some(&body))?;
        // 409: it is there.
        if matches!(reply.status, 200 | 409) { Ok(()) } else { Err(self.refused(&reply)) }
    }
}

impl Catalog for RestCatalog {
    fn newest(&self) -> Result<Option<Version>> {
        let reply = self.ask(&Method::GET, &self.table()?, None)?;
        if reply.status == 404 {
            return Ok(None);
        }
        let mut answer = self.json(&reply)?;
        // The server numbers its versions itself.
        let metadata = answer["metadata"].take();
        Ok(Some(Version { number: 0, metadata, new_snapshots: 0 }))
    }

    fn create(&self, layout: &TableLayout, mut properties: Value) -> Result<()> {
        self.create_database()?;
        properties["format-version"] = json!("2");
        let body = json!({
            "name": self.name.table,
            "schema": layout.schema_json(),
            "partition-spec": {"spec-id": layout.spec_id, "fields": layout.spec_fields()},
            "properties": properties,
        });
        let reply = self.ask(&Method::POST, &self.tables()?, Some(&body))?;
        // 409: another writer was faster, and it is that one's table.
        if matches!(reply.status, 200 | 409) { Ok(()) } else { Err(self.refused(&reply)) }
    }

    fn commit(&self, version: &Version) -> Result<bool> {
        let metadata = &version.metadata;
        let snapshots = metadata["snapshots"].as_array().map_or(&[][..], Vec::as_slice);
        let new = &snapshots[snapshots.len().saturating_sub(version.new_snapshots)..];
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return Err(Error::internal("a commit without a snapshot"));
        };
        let (id, parent) = (&last["snapshot-id"], &first["parent-snapshot-id"]);
        let requirements = json!([
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ]);
        let add = |snapshot| json!({"action": "add-snapshot", "snapshot": snapshot});
        let mut updates: Vec<Value> = new.iter().map(add).collect();
        updates.extend([
            json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id}),
            json!({"action": "set-properties", "updates": version.own_properties()}),
        ]);
        let body = json!({ "requirements": requirements, "updates": updates });
        let reply = self.ask(&Method::POST, &self.table()?, Some(&body))?;
        match reply.status {
            200 => Ok(true),
            409 => Ok(false),
            _ => Err(self.refused(&reply)),
        }
    }

    fn files_are_ended_by(&self, waker: Option<Waker>) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    fn cancel(&self) {
        self.cancel.set();
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cancel) = files {
            cancel();
        }
    }
}

/// What a server says of a refusal.
fn message_of(reply: &Reply) -> String {
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    match answer["error"]["message"].as_str() {
        Some(message) => message.chars().filter(|c| !c.is_control()).take(300).collect(),
        None => reply.excerpt(),
    }
}
