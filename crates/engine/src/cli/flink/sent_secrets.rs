//! Statements with their secrets in them (`--send-secrets`): Flink has no `${secret:NAME}`.
//!
//! **Invariant:** a secret comes into no message, also not by an error of Flink that repeats a
//! statement.

use thalweg_core::connector::{Secrets, names_secret};
use thalweg_core::{Error, Result};
use thalweg_flink::Wait;
use thalweg_flink::gateway::{Outcome, Session};

/// What stands for places of secrets.
#[derive(Default)]
pub(super) struct SentSecrets(Option<Secrets>);

impl SentSecrets {
    /// Secrets of the environment, or of a server's folder, if they may be sent.
    pub(super) fn new(may_be_sent: bool, folder: Option<std::path::PathBuf>) -> SentSecrets {
        SentSecrets(may_be_sent.then(|| Secrets { folder, ..Secrets::default() }))
    }

    /// Executes a statement in a session, at most `rows_max` rows of its result.
    pub(super) fn execute(
        &self,
        session: &Session,
        statement: &str,
        rows_max: usize,
        wait: &mut dyn Wait,
    ) -> Result<Outcome> {
        let Some(secrets) = self.0.as_ref().filter(|_| names_secret(statement)) else {
            return session.execute(statement, rows_max, wait);
        };
        let resolved = secrets.resolve_in_statement(statement).map_err(|error| {
            match secrets.folder.is_some() {
                true => error,
                false => Error::new(error.kind(), error.message())
                    .hint("--send-secrets takes it from the variable THALWEG_SECRET_NAME"),
            }
        })?;
        session.execute(resolved.expose(), rows_max, wait).map_err(|error| {
            let redacted = Error::new(error.kind(), resolved.redact(error.message()));
            match error.help() {
                Some(help) => redacted.hint(resolved.redact(help)),
                None => redacted,
            }
        })
    }
}
