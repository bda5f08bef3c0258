//! Passwords and the like, which stand in options as `${secret:name}` and nowhere else.
//!
//! Plans, EXPLAIN, snapshots, recordings and SHOW CREATE TABLE have the option as it was written.
//! What it stands for is looked up when a table is opened ([`super::Options::secret`]), from the
//! environment variable `THALWEG_SECRET_NAME` or from the file that `secrets.file` names, and is
//! held in a [`Secret`], which does not print.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What a place for a secret begins with.
const BEGIN: &str = "${secret:";

/// A text that is shown nowhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// The parts of it that must not be seen.
    hidden: Vec<String>,
}

impl Secret {
    /// A text of which nothing may be seen.
    pub fn new(text: impl Into<String>) -> Secret {
        let text = text.into();
        Secret { hidden: vec![text.clone()], text }
    }

    /// The text itself, for whoever it is meant for. It must not come into a message.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// A message of someone who knows the secret, without it.
    pub fn redact(&self, message: &str) -> String {
        let parts = self.hidden.iter().filter(|part| !part.is_empty());
        parts.fold(message.to_owned(), |message, part| message.replace(part.as_str(), "***"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where secrets are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// A folder with a file for each secret, called as it is. Then nothing else is looked at.
    pub folder: Option<PathBuf>,
    /// A file with lines `name = value`; the environment has precedence.
    pub file: Option<PathBuf>,
    /// The file must lie in one of these folders.
    pub allowed_roots: Vec<PathBuf>,
}

/// True if a text has a place for a secret.
pub fn names_secret(text: &str) -> bool {
    text.contains(BEGIN)
}

/// The text in front of the first place for a secret, the name in it, and the rest.
fn next_place(text: &str) -> Result<Option<(&str, &str, &str)>> {
    let Some((before, rest)) = text.split_once(BEGIN) else { return Ok(None) };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match rest.split_once('}') {
        Some((name, rest)) if !name.is_empty() && name.chars().all(is_of_name) => {
            Ok(Some((before, name, rest)))
        }
        _ => Err(Error::plan("a secret is written ${secret:name}")
            .hint("names have letters, digits and the characters '_', '-' and '.'")),
    }
}

/// Checks that all places for secrets in a text are well formed; looks none up.
///
/// # Errors
/// If one is not.
pub fn check_places(mut text: &str) -> Result<()> {
    while let Some((_, _, rest)) = next_place(text)? {
        text = rest;
    }
    Ok(())
}

impl Secrets {
    /// A text with its secrets in it. One without a place for a secret is secret as a whole.
    ///
    /// # Errors
    /// If one is set nowhere, or the file can't be read. Names no value.
    pub fn resolve(&self, text: &str) -> Result<Secret> {
        match names_secret(text) {
            true => self.resolve_as(text, str::to_owned),
            false => Ok(Secret::new(text)),
        }
    }

    /// A statement of SQL with its secrets in it. They stand in its literals, so a quote in one is
    /// doubled.
    ///
    /// # Errors
    /// As [`Secrets::resolve`].
    pub fn resolve_in_statement(&self, statement: &str) -> Result<Secret> {
        self.resolve_as(statement, |value| value.replace('\'', "''"))
    }

    fn resolve_as(&self, text: &str, written: impl Fn(&str) -> String) -> Result<Secret> {
        let (mut secret, mut left) = (Secret::default(), text);
        while let Some((before, name, rest)) = next_place(left)? {
            let value = self.look_up(name)?;
            let text = written(&value);
            secret.text += before;
            secret.text += &text;
            secret.hidden.extend([text, value]);
            left = rest;
        }
        secret.text += left;
        Ok(secret)
    }

    fn look_up(&self, name: &str) -> Result<String> {
        if let Some(folder) = &self.folder {
            return in_folder(folder, name);
        }
        let variable = variable(name);
        if let Ok(value) = std::env::var(&variable) {
            return Ok(value);
        }
        let found = self.file.as_deref().map(|file| self.in_file(file, name)).transpose()?;
        found.flatten().ok_or_else(|| {
            let help = match &self.file {
                Some(file) => {
                    format!("set {variable}, or add a line '{name} = …' to {}", file.display())
                }
                None => format!("set {variable}, or name a file with SET 'secrets.file' = '…'"),
            };
            Error::user(format!("the secret '{name}' is not set")).hint(help)
        })
    }

    fn in_file(&self, file: &Path, name: &str) -> Result<Option<String>> {
        let fail = |why: String| {
            Error::user(format!("the file of secrets {} can't be read: {why}", file.display()))
                .hint("SET 'secrets.file' names it")
        };
        let place = allowed_file(file, &self.allowed_roots).map_err(fail)?;
        let text = std::fs::read_to_string(&place).map_err(|error| fail(error.to_string()))?;
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let mut pairs = lines.filter_map(|line| line.split_once('='));
        let found = pairs.find(|(key, _)| key.trim() == name);
        Ok(found.map(|(_, value)| value.trim().to_owned()))
    }
}

/// The secret in the file of its name. A line end behind it is not part of it.
fn in_folder(folder: &Path, name: &str) -> Result<String> {
    let fail = |why: &str| {
        Error::user(format!("the secret '{name}' {why}"))
            .hint("put it into a file of that name in the server's folder of secrets")
    };
    if name.starts_with('.') {
        return Err(fail("has a name that begins with a dot"));
    }
    match std::fs::read_to_string(folder.join(name)) {
        Ok(text) => Ok(text.trim_end_matches(['\n', '\r']).to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(fail("is not set")),
        Err(error) => Err(fail(&format!("cannot be read: {error}"))),
    }
}

/// The canonical path of a file that lies in one of these folders; or why it cannot be read.
pub(super) fn allowed_file(file: &Path, allowed_roots: &[PathBuf]) -> Result<PathBuf, String> {
    let found = file.canonicalize();
    // Of a file that is not there what counts is where it would be: else the answer would say what
    // is in other folders.
    let nearest = file.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok());
    let place = found.as_ref().ok().cloned().or(nearest).unwrap_or_default();
    let is_inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| place.starts_with(root));
    match allowed_roots.iter().any(is_inside) {
        true => found.map_err(|error| error.to_string()),
        false => Err("it lies outside of the allowed folders".to_owned()),
    }
}

/// The variable of the environment that holds a secret.
fn variable(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("THALWEG_SECRET_{}", name.chars().map(upper).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(text: &str) -> (Secrets, PathBuf) {
        let folder = std::env::temp_dir().join(format!("thalweg-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("secrets");
        std::fs::write(&file, text).unwrap();
        let allowed_roots = vec![folder.clone()];
        (Secrets { folder: None, file: Some(file), allowed_roots }, folder)
    }

    #[test]
    fn secrets_come_from_a_file_and_do_not_print() {
        let (secrets, folder) = of_file("# of the test\ndb-password = s3cr=t\nuser=me\n");
        let secret = secrets.resolve("//${secret:user}:${secret:db-password}@host").unwrap();
        assert_eq!(secret.expose(), "//me:s3cr=t@host");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.redact("no entry for s3cr=t"), "no entry for ***");
        assert_eq!(secrets.resolve("plain").unwrap().redact("is plain"), "is ***");
        let missing = secrets.resolve("${secret:other}").unwrap_err();
        assert!(missing.help().unwrap().contains("THALWEG_SECRET_OTHER"), "{missing}");
        let elsewhere = Secrets { allowed_roots: vec![folder.join("x")], ..secrets };
        let refused = elsewhere.resolve("${secret:user}").unwrap_err().to_string();
        assert!(refused.contains("outside"), "{refused}");
        let missing = allowed_file(&folder.join("nobody/has/this"), &elsewhere.allowed_roots);
        assert!(missing.unwrap_err().contains("outside"), "the answer is the same");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn places_are_checked_without_looking_up() {
        assert!(check_places("a ${secret:x.y_z-1} b ${secret:q}").is_ok());
        for wrong in ["${secret:}", "${secret:a b}", "x ${secret:a"] {
            assert!(check_places(wrong).is_err(), "{wrong}");
        }
        assert_eq!(variable("db-password.1"), "THALWEG_SECRET_DB_PASSWORD_1");
    }
}
