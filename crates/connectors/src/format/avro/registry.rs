//! Schemas that are registered at a service with the interface of Confluent's schema registry.
//!
//! A message is a zero byte, the schema's number in four bytes, and the record. Source: Confluent
//! documentation, "Wire Format", and its REST interface (`/schemas/ids/N`,
//! `/subjects/NAME/versions`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use thalweg_core::connector::Secret;
use thalweg_core::{Error, Result};

use crate::percent::encoded;

/// A registry.
#[derive(Debug)]
pub struct Registry {
    url: String,
    credentials: Credentials,
}

/// Who asks a registry, and whom it trusts.
#[derive(Debug, Default)]
pub struct Credentials {
    /// The value of the header `Authorization`.
    pub authorization: Option<Secret>,
    /// What must not be seen of it.
    pub secret: Option<Secret>,
    /// The certificates that are trusted, in PEM form; `None`: those of the usual authorities.
    pub authorities: Option<Vec<u8>>,
    /// The certificate of whoever asks and its key, in PEM form.
    pub identity: Option<Secret>,
}

impl Registry {
    /// The registry at this address, which may have a path.
    pub fn new(url: &str, credentials: Credentials) -> Self {
        Registry { url: url.trim_end_matches('/').to_owned(), credentials }
    }

    /// A text of the registry, without secrets.
    fn redacted(&self, text: &str) -> String {
        let Credentials { authorization, secret, .. } = &self.credentials;
        let secrets = authorization.iter().chain(secret);
        secrets.fold(text.to_owned(), |text, secret| secret.redact(&text))
    }

    /// The text of the schema with this number. The inner error: there is none.
    ///
    /// # Errors
    /// If the registry does not answer, or refuses.
    pub fn schema(&self, number: u32) -> Result<Result<String, String>> {
        let answer = self.ask(&format!("/schemas/ids/{number}"), None)?;
        if answer.status == 404 {
            return Ok(Err(format!("the registry has no schema {number}")));
        }
        let answer = self.accepted(answer)?;
        match answer.get("schemaType").and_then(Value::as_str) {
            None | Some("AVRO") => {}
            Some(other) => return Ok(Err(format!("schema {number} is of type {other}, not Avro"))),
        }
        let schema = answer.get("schema").and_then(Value::as_str);
        schema.map(|schema| Ok(schema.to_owned())).ok_or_else(|| self.no_answer("no schema in it"))
    }

    /// Registers a schema, and returns its number. One that is there is found.
    ///
    /// # Errors
    /// If the registry does not answer, or refuses.
    pub fn register(&self, subject: &str, schema: &str) -> Result<u32> {
        let body = json!({ "schema": schema }).to_string();
        let answer = self.ask(&format!("/subjects/{}/versions", encoded(subject)), Some(body))?;
        if answer.status == 409 {
            return Err(Error::data(format!(
                "the registry refuses the schema for subject '{subject}': it is not compatible with an earlier one"
            ))
            .hint("change the table's columns, name another subject, or relax the subject's compatibility"));
        }
        let answer = self.accepted(answer)?;
        let number = answer.get("id").and_then(Value::as_u64);
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.no_answer("no number in it"))
    }

    fn accepted(&self, answer: Answer) -> Result<Value> {
        if answer.status != 200 {
            let text: String = self.redacted(&answer.body).chars().take(200).collect();
            let message =
                format!("the schema registry {} refuses: {} {text}", self.url, answer.status);
            let error = Error::io(message);
            return Err(match answer.status {
                401 | 403 => error.hint("see the options of basic-auth and bearer-auth"),
                _ => error,
            });
        }
        serde_json::from_str(&answer.body).map_err(|_| self.no_answer("it is not JSON"))
    }

    fn no_answer(&self, why: &str) -> Error {
        Error::io(format!("the answer of the schema registry {} is wrong: {why}", self.url))
            .hint("check the address, which may need a path")
    }

    #[cfg(feature = "registry")]
    fn ask(&self, path: &str, body: Option<String>) -> Result<Answer> {
        let url = format!("{}{path}", self.url);
        crate::format::http::ask(&url, &self.credentials, body).map_err(|reason| {
            let reason = self.redacted(&reason);
            Error::io(format!("the schema registry {} does not answer: {reason}", self.url))
                .hint("is it running, and is the address right?")
        })
    }

    #[cfg(not(feature = "registry"))]
    fn ask(&self, _path: &str, _body: Option<String>) -> Result<Answer> {
        let _ = &self.credentials;
        Err(Error::unsupported("this program was built without schema registries")
            .hint("build it with `--features registry`"))
    }
}

/// What a server answers.
pub struct Answer {
    /// Its HTTP status.
    pub status: u16,
    /// Its text.
    pub body: String,
}

/// What was made of the schemas that were met, each once.
pub struct Registered<T>(Mutex<HashMap<u32, Result<Arc<T>, String>>>);

impl<T> Default for Registered<T> {
    fn default() -> Self {
        Registered(Mutex::default())
    }
}

impl<T> Registered<T> {
    /// What was made of a schema. Threads that meet it at the same time ask once.
    ///
    /// # Errors
    /// That of `make`, which is not remembered.
    pub fn get(
        &self,
        number: u32,
        make: impl FnOnce() -> Result<Result<T, String>>,
    ) -> Result<Result<Arc<T>, String>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&number) {
            return Ok(found.clone());
        }
        let made = make()?.map(Arc::new);
        known.insert(number, made.clone());
        Ok(made)
    }
}

/// The number of a message's schema, and the record.
///
/// # Errors
/// If it has none.
pub fn framed(message: &[u8]) -> Result<(u32, &[u8]), String> {
    match message {
        [0, a, b, c, d, record @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), record)),
        _ => {
            Err("the message does not begin with a zero byte and the number of a schema".to_owned())
        }
    }
}

/// Appends what stands in front of a record.
pub fn frame(out: &mut Vec<u8>, number: u32) {
    out.push(0);
    out.extend(number.to_be_bytes());
}
