//! Where a database is, who signs in, and how the connection is protected.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_core::connector::{AllowedTargets, Options, near_miss};
use thalweg_core::{Error, Result};

use crate::network::tls::Checks;

/// How a connection is protected: `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// If the server can.
    Preferred,
    /// It is, with these checks of the server's certificate.
    Required(Checks),
}

/// Where a database is, and who signs in.
#[derive(Clone)]
pub struct Settings {
    /// The server's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// Who signs in.
    pub user: String,
    /// With this password.
    pub password: String,
    /// How the connection is protected.
    pub protection: Protection,
    /// A file of trusted authorities.
    pub authorities: Option<PathBuf>,
    /// How long connecting and signing in may take.
    pub connect_timeout: Duration,
    /// What the server shows as the program.
    pub application: String,
    /// Where tables without a schema are looked for.
    pub search_path: Option<String>,
    /// Which addresses the name of its host may lead to.
    pub targets: AllowedTargets,
}

/// The server and the database; no secrets.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL at {}:{}, database {}", self.host, self.port, self.database)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            host: "localhost".to_owned(),
            port: 5432,
            database: String::new(),
            user: String::new(),
            password: String::new(),
            protection: Protection::Preferred,
            authorities: None,
            connect_timeout: Duration::from_secs(10),
            application: "thalweg".to_owned(),
            search_path: None,
            targets: AllowedTargets::default(),
        }
    }
}

const PREFIX: &str = "jdbc:postgresql:";

/// Settings of the JDBC driver about the driver itself, which change no result.
const DRIVER_ONLY: &[&str] = &[
    "assumeMinServerVersion",
    "autosave",
    "binaryTransfer",
    "cancelSignalTimeout",
    "defaultRowFetchSize",
    "loggerLevel",
    "loginTimeout",
    "preferQueryMode",
    "preparedStatementCacheQueries",
    "preparedStatementCacheSizeMiB",
    "prepareThreshold",
    "readOnly",
    "reWriteBatchedInserts",
    "socketTimeout",
    "tcpKeepAlive",
    "tcpNoDelay",
    // Values are sent without a type, so that the server takes them for that of the column.
    "stringtype",
];

const KNOWN: &[&str] = &[
    "user",
    "password",
    "sslmode",
    "ssl",
    "sslrootcert",
    "connectTimeout",
    "ApplicationName",
    "currentSchema",
];

impl Settings {
    /// Reads a URL of JDBC: `jdbc:postgresql://HOST:PORT/DATABASE?NAME=VALUE&…`.
    ///
    /// # Errors
    /// If it is none, or of another kind of database.
    pub fn from_url(url: &str) -> Result<Settings> {
        let Some(rest) = url.strip_prefix(PREFIX) else {
            return Err(Error::unsupported(format!("'{}' is no PostgreSQL", kind_of(url)))
                .hint("'url' = 'jdbc:postgresql://HOST:PORT/DATABASE'"));
        };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut settings = Settings::default();
        let database = match place.strip_prefix("//") {
            None => place,
            Some(place) => {
                let (host, database) = place.split_once('/').unwrap_or((place, ""));
                settings.set_host(host)?;
                database
            }
        };
        settings.database = decoded(database)?;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            settings.set_parameter(name, decoded(value)?)?;
        }
        Ok(settings)
    }

    fn set_host(&mut self, host: &str) -> Result<()> {
        if host.contains(',') {
            return Err(Error::unsupported("a list of hosts is not supported yet").hint("name one"));
        }
        let bracketed = host.strip_prefix('[').and_then(|host| host.split_once(']'));
        let (name, port) = match bracketed {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match host.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (host, None),
            },
        };
        if !name.is_empty() {
            self.host = name.to_owned();
        }
        if let Some(port) = port {
            let bad = |_| Error::plan(format!("'{port}' is no port"));
            self.port = port.parse().map_err(bad)?;
        }
        Ok(())
    }

    fn set_parameter(&mut self, name: &str, value: String) -> Result<()> {
        match name {
            "user" => self.user = value,
            "password" => self.password = value,
            "sslmode" => self.protection = protection(&value)?,
            "ssl" if value != "false" => {
                self.protection = Protection::Required(Checks::AuthorityAndHost);
            }
            "ssl" => {}
            "sslrootcert" => self.authorities = Some(PathBuf::from(value)),
            "connectTimeout" => {
                let bad = |_| Error::plan(format!("connectTimeout={value}: seconds are expected"));
                self.connect_timeout = Duration::from_secs(value.parse().map_err(bad)?);
            }
            "ApplicationName" => self.application = value,
            "currentSchema" => self.search_path = Some(value),
            _ if DRIVER_ONLY.contains(&name) => {}
            _ => {
                let known = KNOWN.iter().chain(DRIVER_ONLY).copied();
                let help = match near_miss(name, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("it knows {}", KNOWN.join(", ")),
                };
                return Err(
                    Error::plan(format!("'url' has an unknown parameter {name}")).hint(help)
                );
            }
        }
        Ok(())
    }

    /// Puts in the password of the option `password`, whose secrets are looked up now.
    ///
    /// # Errors
    /// If a secret is not set.
    pub fn with_password(mut self, options: &Options<'_>) -> Result<Settings> {
        if let Some(password) = options.secret("password")? {
            password.expose().clone_into(&mut self.password);
        }
        Ok(self)
    }

    /// Checks that what the settings ask for can be done.
    ///
    /// # Errors
    /// If certificates are to be checked, and nobody is trusted.
    pub fn check(&self) -> Result<()> {
        let checks = match self.protection {
            Protection::Required(checks) => checks,
            _ => Checks::Nothing,
        };
        if checks != Checks::Nothing && self.authorities.is_none() {
            return Err(Error::plan("the server's certificate is to be checked, and no authority is trusted")
                .hint("name a file of certificates by sslrootcert, or use sslmode=require, which checks nothing"));
        }
        if self.user.is_empty() {
            return Err(Error::plan("no user is named").hint("add 'username' and 'password'"));
        }
        Ok(())
    }
}

/// The kind of database of a URL: never the whole text, which may hold a password.
fn kind_of(url: &str) -> String {
    url.split(':').take(2).collect::<Vec<_>>().join(":")
}

/// Reads `sslmode`.
///
/// # Errors
/// If it is none.
pub fn protection(text: &str) -> Result<Protection> {
    Ok(match text {
        "disable" => Protection::None,
        "allow" | "prefer" => Protection::Preferred,
        "require" => Protection::Required(Checks::Nothing),
        "verify-ca" => Protection::Required(Checks::Authority),
        "verify-full" => Protection::Required(Checks::AuthorityAndHost),
        _ => {
            return Err(Error::plan(format!("'{text}' is no sslmode"))
                .hint("disable, allow, prefer, require, verify-ca or verify-full"));
        }
    })
}

/// A part of a URL without its `%XX`.
fn decoded(text: &str) -> Result<String> {
    let bad = || Error::plan(format!("'url': '{text}' is no encoded text"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
                let digits = std::str::from_utf8(&digits).map_err(|_| bad())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = "jdbc:postgresql://db.example:5433/my%20db?sslmode=require&reWriteBatchedInserts=true&user=u";
        let settings = Settings::from_url(url).expect("a URL");
        assert_eq!((settings.host.as_str(), settings.port), ("db.example", 5433));
        assert_eq!((settings.database.as_str(), settings.user.as_str()), ("my db", "u"));
        assert_eq!(settings.protection, Protection::Required(Checks::Nothing));
        let settings = Settings::from_url("jdbc:postgresql://[::1]/d").expect("a URL");
        assert_eq!((settings.host.as_str(), settings.port), ("::1", 5432));
    }

    #[test]
    fn wrong_urls_are_refused_without_their_secrets() {
        for (url, message) in [
            ("jdbc:mysql://u:secret@h/d", "'jdbc:mysql' is no PostgreSQL"),
            ("jdbc:postgresql://h:x/d", "'x' is no port"),
            ("jdbc:postgresql://h/d?sslmod=require", "unknown parameter sslmod"),
            ("jdbc:postgresql://h/d?sslmode=on", "'on' is no sslmode"),
            ("jdbc:postgresql://a,b/d", "list of hosts"),
        ] {
            let error = Settings::from_url(url).err().expect("refused");
            assert!(error.message().contains(message), "{url}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
        let url = "jdbc:postgresql://h/d?sslmode=verify-full&user=u";
        assert!(Settings::from_url(url).expect("a URL").check().is_err());
    }
}
