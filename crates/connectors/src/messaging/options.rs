//! Options that all connectors of messages have.

use std::path::PathBuf;

use thalweg_core::connector::{
    AcceptedChanges, MetadataDescription, OptionDescription, Options, TableRequest, option_table,
};
use thalweg_core::{Error, Result};

use super::Startup;
use super::rows::OF_FORMAT;
use crate::filesystem::letters_path;
use crate::format::Format;
use crate::metadata;
use crate::network::wire::Address;

/// What messages can hold.
pub const CHANGES: &[AcceptedChanges] = &[AcceptedChanges::Inserts, AcceptedChanges::All];

/// What happens to messages that can't be read.
pub const BAD_DATA: [OptionDescription; 2] = option_table! {
    "bad-data": Words(&["fail", "skip", "drop", "dead-letter"]), of_state(), or("fail"), of_source()
        => "what happens to a message that cannot be read: the job fails, the message is left out (and counted), or \
            it goes to the file `dead-letter.path`. `drop` means `skip`";
    "dead-letter.path": Text, of_source()
        => "the file for dead letters, as JSON lines";
};

/// How connections are encrypted and who signs in.
pub const CONNECTION: [OptionDescription; 3] = option_table! {
    "username": Text
        => "who signs in";
    "password": Secret
        => "with this password";
    "tls.ca-file": Text
        => "with an encrypted `url`: the file of certificates (PEM) of authorities that may have signed the \
            server's";
};

/// What happens to a message that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadData {
    /// The job fails.
    Fail,
    /// It is left out.
    Skip,
    /// It goes to this file.
    File(String),
}

impl BadData {
    /// True if it fails the job.
    pub fn is_fatal(&self) -> bool {
        *self == BadData::Fail
    }

    /// The file of dead letters, if there is one.
    ///
    /// # Errors
    /// If it lies outside the allowed folders.
    pub fn letters_path(&self, request: &TableRequest) -> Result<Option<PathBuf>> {
        match self {
            BadData::File(path) => letters_path(request, path).map(Some),
            _ => Ok(None),
        }
    }

    fn read(options: &Options<'_>) -> Result<BadData> {
        let words = [("fail", 0), ("skip", 1), ("drop", 1), ("dead-letter", 2)];
        let choice = options.choice("bad-data", &words)?.unwrap_or(0);
        match (choice, options.get("dead-letter.path")) {
            (0, None) => Ok(BadData::Fail),
            (1, None) => Ok(BadData::Skip),
            (2, Some(path)) => Ok(BadData::File(path.to_owned())),
            (2, None) => Err(options
                .conflict("'bad-data' = 'dead-letter' needs a file")
                .hint("add 'dead-letter.path' = 'FILE'")),
            _ => Err(options
                .conflict("a file for dead letters is given, but bad messages do not go there")
                .hint("add 'bad-data' = 'dead-letter'")),
        }
    }
}

fn read_format(
    options: &Options<'_>,
    request: &TableRequest,
    subject: &str,
    opens: bool,
) -> Result<Format> {
    let name = options.required("format")?;
    let format = Format::read(name, options, request.schema.len(), opens)?;
    let of_messages = "a format of messages: json, csv, raw, avro, …";
    let format = format.ok_or_else(|| options.bad("format", name, of_messages))?;
    Ok(format.with_default_subject(&format!("{subject}-value")))
}

/// What records look like.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Their format.
    pub format: Format,
    /// What happens to those that can't be read.
    pub bad_data: BadData,
    /// The name of the messages, under which schemas are registered.
    subject: String,
}

impl RecordOptions {
    /// Reads them, to check them: secrets are not looked up. `subject` is the name of the messages,
    /// under which schemas are registered.
    ///
    /// # Errors
    /// If one is wrong, or the format can't hold a column.
    pub fn read(options: &Options<'_>, request: &TableRequest, subject: &str) -> Result<Self> {
        let format = read_format(options, request, subject, false)?;
        format.check_types(&request.table, &request.schema.columns)?;
        let subject = subject.to_owned();
        Ok(RecordOptions { format, bad_data: BadData::read(options)?, subject })
    }

    /// Those of a format without options.
    #[cfg(test)]
    pub fn of(format: Format, bad_data: BadData) -> Self {
        RecordOptions { format, bad_data, subject: "test".to_owned() }
    }

    /// Looks up the secrets of the format, for a table that is opened now.
    ///
    /// # Errors
    /// If a secret is not set.
    pub fn open(&mut self, options: &Options<'_>, request: &TableRequest) -> Result<()> {
        self.format = read_format(options, request, &self.subject, true)?;
        Ok(())
    }

    /// Checks that a table into which these (`entries of a stream`) are written has no key, unless
    /// the format says what happens to rows.
    ///
    /// # Errors
    /// If it has one.
    pub fn check_key(
        &self,
        options: &Options<'_>,
        request: &TableRequest,
        written: &str,
    ) -> Result<()> {
        if self.format.has_changes() || request.primary_key.is_empty() {
            return Ok(());
        }
        Err(options
            .conflict(&format!("a PRIMARY KEY, but {written} are never updated"))
            .hint("remove the key, or use a format of changes, such as debezium-json"))
    }

    /// Checks the metadata columns of a table.
    ///
    /// # Errors
    /// If one is not known, has another type, or can't be written.
    pub fn check_metadata(
        &self,
        request: &TableRequest,
        known: &[MetadataDescription],
        writable: Option<&[&str]>,
    ) -> Result<()> {
        let table = &request.table;
        for (key, column) in &request.metadata {
            if let Some(writable) = writable
                && !writable.contains(&key.as_str())
            {
                let message = format!("table {table}: metadata '{key}' can't be written");
                return Err(
                    Error::plan(message).hint(format!("declare column {} VIRTUAL", column.name))
                );
            }
            let of_format = key.strip_prefix(OF_FORMAT);
            if let Some(of_format) = of_format
                && self.format.description().metadata.iter().any(|known| known.key == of_format)
            {
                self.format.check_metadata(of_format, column)?;
                continue;
            }
            let Some(described) = known.iter().find(|known| known.key == key) else {
                return Err(metadata::unknown(table, key, known.iter().map(|known| known.key)));
            };
            metadata::check(table, described, &column.name, &column.column_type.data_type)?;
        }
        Ok(())
    }
}

/// Reads `SCHEME://HOST[:PORT][/REST]`, of which schemes say whether bytes are encrypted, and
/// checks that the table may talk there. Returns the rest as well.
///
/// # Errors
/// If it is no such URL, or holds a password.
pub fn address<'a>(
    options: &Options<'a>,
    name: &str,
    schemes: &[(&str, bool)],
    default_port: u16,
) -> Result<(Address, Option<&'a str>)> {
    let text = options.required(name)?;
    if text.contains('@') {
        return Err(options
            .conflict(&format!("'{name}' holds who signs in, which would be shown in plans"))
            .hint("set 'username' and 'password' instead"));
    }
    let (known, _) = schemes[0];
    let expected = format!("'{known}://HOST:PORT'");
    let wrong = || options.bad(name, text, &expected);
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let found = schemes.iter().find(|(word, _)| word.eq_ignore_ascii_case(scheme));
    let &(_, is_encrypted) = found.ok_or_else(wrong)?;
    let (authority, rest) = match rest.split_once('/') {
        Some((authority, rest)) => (authority, Some(rest).filter(|rest| !rest.is_empty())),
        None => (rest, None),
    };
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() {
        return Err(wrong());
    }
    options.check_target(host, port)?;
    let authorities = options.get("tls.ca-file").map(PathBuf::from);
    if is_encrypted && authorities.is_none() {
        return Err(options.conflict(&format!("an encrypted '{name}' needs 'tls.ca-file'")).hint(
            "name the file of certificates of authorities: /etc/ssl/certs/ca-certificates.crt",
        ));
    }
    let (host, targets) = (host.to_owned(), options.targets().clone());
    Ok((Address { host, port, is_encrypted, authorities, targets }, rest))
}

/// Where a job begins, and whether it ends.
pub const STARTUP: [OptionDescription; 3] = option_table! {
    "scan.startup.mode": Words(&["earliest-offset", "latest-offset", "timestamp"]), or("earliest-offset"), of_source()
        => "where a job begins that does not resume from a snapshot";
    "scan.startup.timestamp-millis": Number, of_source()
        => "milliseconds since 1970: with the first message that is as new";
    "scan.bounded.mode": Words(&["unbounded", "latest-offset"]), of_state(), or("unbounded"), of_source()
        => "`latest-offset`: the table ends behind the last message that is there at the start";
};

/// Reads [`STARTUP`].
///
/// # Errors
/// If an option is wrong.
pub fn startup(options: &Options<'_>) -> Result<(Startup, bool)> {
    let words = [("earliest-offset", 0), ("latest-offset", 1), ("timestamp", 2)];
    let (name, at_time) = ("scan.startup.mode", "scan.startup.timestamp-millis");
    let time = options.number::<i64>(at_time)?;
    let startup = match (options.choice(name, &words)?.unwrap_or(0), time) {
        (0, None) => Startup::Earliest,
        (1, None) => Startup::Latest,
        (2, Some(time)) => Startup::Time(time),
        (2, None) => {
            options.required(at_time)?;
            Startup::Earliest
        }
        (_, _) => {
            return Err(options
                .conflict(&format!("'{at_time}' has no effect in this mode"))
                .hint("remove it, or set 'scan.startup.mode' = 'timestamp'"));
        }
    };
    let words = [("unbounded", false), ("latest-offset", true)];
    Ok((startup, options.choice("scan.bounded.mode", &words)? == Some(true)))
}

/// What happens where messages were removed unread.
pub const REMOVED: [OptionDescription; 1] = option_table! {
    "scan.removed-messages": Words(&["fail", "ignore"]), or("fail"), of_source()
        => "what happens where a job finds that messages may have been removed before it read them (trimmed, expired, \
            deleted): it fails, or continues with the first that is there";
};

/// Reads [`REMOVED`].
///
/// # Errors
/// If it is none of the words.
pub fn ignores_removed(options: &Options<'_>) -> Result<bool> {
    let words = [("fail", false), ("ignore", true)];
    Ok(options.choice("scan.removed-messages", &words)? == Some(true))
}

#[cfg(test)]
mod tests {
    use thalweg_core::connector::{ConnectorDescription, option_tables};

    use super::*;

    const URL: [OptionDescription; 1] = option_table! { "url": Text => "where"; };
    const DESCRIPTION: ConnectorDescription = ConnectorDescription {
        options: option_tables![URL, CONNECTION],
        ..ConnectorDescription::new("broker", "")
    };
    const SCHEMES: &[(&str, bool)] = &[("redis", false), ("rediss", true)];

    fn read(url: &str, more: &[(&str, &str)]) -> Result<(String, Option<String>)> {
        let mut request = TableRequest { table: "t".to_owned(), ..TableRequest::default() };
        request.access.targets = "here; *.example.com:7000; [::1]".parse()?;
        for (name, value) in [("url", url)].iter().chain(more) {
            request.options.insert((*name).to_owned(), (*value).to_owned());
        }
        let options = Options::of(&request, &DESCRIPTION)?;
        let (address, rest) = address(&options, "url", SCHEMES, 6379)?;
        Ok((address.to_string(), rest.map(str::to_owned)))
    }

    #[test]
    fn addresses_have_a_scheme_a_host_and_perhaps_a_port() {
        let ca = [("tls.ca-file", "ca.pem")];
        for (url, expected, rest) in [
            ("redis://here", "here:6379", None),
            ("REDIS://a.example.com:7000/3", "a.example.com:7000", Some("3")),
            ("redis://[::1]:80/", "[::1]:80", None),
            ("rediss://here", "here:6379", None),
        ] {
            let found = read(url, &ca).expect(url);
            assert_eq!(found, (expected.to_owned(), rest.map(str::to_owned)), "{url}");
        }
    }

    #[test]
    fn addresses_that_are_wrong_or_not_allowed_are_refused() {
        for (url, word) in [
            ("here:6379", "redis://HOST:PORT"),
            ("http://here", "redis://HOST:PORT"),
            ("redis://", "redis://HOST:PORT"),
            ("redis://here:many", "redis://HOST:PORT"),
            ("redis://there", "not allowed"),
            ("redis://a.example.com", "not allowed"),
            ("rediss://here", "tls.ca-file"),
            ("redis://user:s3cret@here", "who signs in"),
        ] {
            let error = read(url, &[]).expect_err(url);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
