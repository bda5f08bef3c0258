//! What can go wrong with a server, and whose fault it is.

use std::fmt;
use std::io;

use thalweg_core::Error;

use super::settings::Settings;
use crate::network;
use crate::network::feed::Gone;

/// Why a call of a server has failed.
#[derive(Debug)]
pub enum Failure {
    /// The server says so. The session is usable.
    Server(ServerError),
    /// The connection has broken.
    Broken(String),
    /// What came back makes no sense, or must not be: nothing to be tried again.
    Error(Error),
    /// The work is not wanted any more.
    Cancelled,
}

/// An error of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerError {
    /// SQLSTATE.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What the server proposes.
    pub hint: Option<String>,
}

/// The result of a call.
pub type Outcome<T> = Result<T, Failure>;

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Broken(error.to_string())
    }
}

impl From<network::Failure> for Failure {
    fn from(failure: network::Failure) -> Self {
        match failure {
            network::Failure::Passing(why) => Failure::Broken(why),
            network::Failure::Final(error) => Failure::Error(error),
            network::Failure::Cancelled => Failure::Cancelled,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Cancelled
    }
}

impl ServerError {
    /// Reads the fields of an ErrorResponse.
    pub fn read(body: &[u8]) -> ServerError {
        let mut error = ServerError::default();
        for field in body.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            let text = String::from_utf8_lossy(&field[1..]).into_owned();
            match field[0] {
                b'C' => error.code = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
        }
        error
    }

    /// True if the same call may succeed later: the server is short of something, starts, stops, or
    /// has chosen this transaction as the victim of a deadlock.
    fn is_passing(&self) -> bool {
        let code = self.code.as_str();
        code.starts_with("08")
            || code.starts_with("53")
            || matches!(code, "40001" | "40P01" | "55P03" | "57P01" | "57P02" | "57P03" | "57014")
    }

    /// What a user can do, where that is known.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code.as_str() {
            "28P01" | "28000" => "check user name and password, and the server's pg_hba.conf",
            "3D000" => "check the name of the database",
            "42P01" => "check the name of the table, with its schema: 'schema.table'",
            "42703" => "declare the columns that the table has in the database",
            "42501" => "GRANT the right to this user, or connect as another one",
            "42P10" => {
                "the PRIMARY KEY of the declaration must be that of the table, or a UNIQUE constraint"
            }
            "53300" => "the server has no room for more connections: raise max_connections",
            _ => return None,
        })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Server(error) => error.fmt(f),
            Failure::Broken(why) => f.write_str(why),
            Failure::Error(error) => error.fmt(f),
            Failure::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl Failure {
    /// True if a new connection may do better.
    pub fn is_passing(&self) -> bool {
        match self {
            Failure::Server(error) => error.is_passing(),
            Failure::Broken(_) => true,
            Failure::Error(_) | Failure::Cancelled => false,
        }
    }

    /// The SQLSTATE, if the server has said one.
    pub fn code(&self) -> &str {
        match self {
            Failure::Server(error) => &error.code,
            _ => "",
        }
    }

    /// The error for a user, who knows the server by these settings; `doing` is what failed.
    pub fn into_error(self, settings: &Settings, doing: &str) -> Error {
        match self {
            Failure::Error(error) => error,
            Failure::Cancelled => Error::cancelled(),
            Failure::Broken(why) => Error::io(format!("{doing}: {settings}: {why}"))
                .hint("check that the server runs and can be reached from here"),
            Failure::Server(error) => {
                let advice = error.advice().map(str::to_owned).or_else(|| error.hint.clone());
                let shown = Error::io(format!("{doing}: {settings} answers: {error}"));
                match advice {
                    Some(advice) => shown.hint(advice),
                    None => shown.hint(format!("SQLSTATE {}", error.code)),
                }
            }
        }
    }
}
