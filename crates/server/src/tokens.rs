//! Who may ask for what: tokens with roles.
//!
//! # Invariants
//! - A token is shown once, when it is made. The file has its SHA-256 only.
//! - Tokens are compared in constant time, all of them.
//! - The roles are ordered: each may do what those before it may.

use std::path::{Path, PathBuf};
use std::sync::RwLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thalweg_core::{Error, Result};

use crate::problem::Problem;

const FILE: &str = "tokens.json";
/// What tokens begin with, so that they are recognized where they leak.
const BEGIN: &str = "twt_";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks at jobs, but not at rows.
    Read,
    /// Starts and stops jobs and takes snapshots.
    Operate,
    /// Writes statements and sees rows: has the rights of the server's process.
    Write,
    /// Makes tokens and sees the audit log.
    Admin,
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredToken {
    #[serde(flatten)]
    about: TokenView,
    /// SHA-256, hexadecimal.
    hash: String,
}

/// A token as it is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TokenView {
    /// Its name, which the audit log has.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    /// What the names of jobs begin with that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<String>,
}

/// The tokens of a server.
pub struct Tokens {
    path: PathBuf,
    all: RwLock<Vec<StoredToken>>,
}

impl Tokens {
    /// Reads the tokens of a data directory.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(root: &Path) -> Result<Tokens> {
        let path = root.join(FILE);
        let all = read(&path)?;
        Ok(Tokens { path, all: RwLock::new(all) })
    }

    /// Reads them again. Where that fails they stay as they were.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn reload(&self) -> Result<()> {
        // Whoever makes one at the same time must not be read over.
        let mut all = self.all.write().expect("no panic under this lock");
        *all = read(&self.path)?;
        Ok(())
    }

    /// All tokens.
    pub fn list(&self) -> Vec<TokenView> {
        let all = self.all.read().expect("no panic under this lock");
        all.iter().map(|token| token.about.clone()).collect()
    }

    /// Makes a token. Its text, which nobody sees again.
    ///
    /// # Errors
    /// If there is one of this name; those of the disk.
    pub fn create(&self, about: TokenView) -> Result<String, Problem> {
        let mut all = self.all.write().expect("no panic under this lock");
        if all.iter().any(|token| token.about.name == about.name) {
            let detail = format!("there is a token '{}' already", about.name);
            return Err(Problem::new(409, "name-taken", detail));
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|error| Problem::new(500, "no-randomness", error.to_string()))?;
        let text = format!("{BEGIN}{}", hexadecimal(&bytes));
        let mut changed = all.clone();
        changed.push(StoredToken { about, hash: digest(&text) });
        self.save(&changed)?;
        *all = changed;
        Ok(text)
    }

    /// Does away with a token.
    ///
    /// # Errors
    /// If there is none of this name; those of the disk.
    pub fn delete(&self, name: &str) -> Result<(), Problem> {
        let mut all = self.all.write().expect("no panic under this lock");
        let mut changed = all.clone();
        changed.retain(|token| token.about.name != name);
        if changed.len() == all.len() {
            return Err(Problem::new(404, "no-such-token", format!("there is no token '{name}'")));
        }
        self.save(&changed)?;
        *all = changed;
        Ok(())
    }

    fn save(&self, all: &[StoredToken]) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            Problem::new(507, "storage-failed", format!("the tokens cannot be written: {error}"))
        };
        let text = serde_json::to_vec_pretty(all).map_err(|error| failed(error.into()))?;
        let half = self.path.with_extension("half");
        write_private(&half, &text).map_err(failed)?;
        std::fs::rename(&half, &self.path).map_err(failed)
    }

    /// Who shows this token; `None` if it is none, or has ended.
    pub fn find(&self, text: &str, now_ms: i64) -> Option<TokenView> {
        let own = digest(text);
        let all = self.all.read().expect("no panic under this lock");
        let mut found = None;
        // All of them are compared, so that the time says nothing.
        for token in all.iter() {
            if bool::from(token.hash.as_bytes().ct_eq(own.as_bytes())) {
                found = Some(token.about.clone());
            }
        }
        found.filter(|token| token.expires_ms.is_none_or(|end| end > now_ms))
    }
}

/// Writes a file that only this user may read, and makes it durable.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// SHA-256 of a text, hexadecimal.
pub fn digest(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

/// Two digits for each byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<Vec<StoredToken>> {
    let failed = |why: &dyn std::fmt::Display| {
        Error::io(format!("the tokens cannot be read: {why}")).in_file(path.display().to_string())
    };
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, expires_ms: Option<i64>) -> TokenView {
        TokenView { name: name.to_owned(), role: Role::Read, created_ms: 0, expires_ms, jobs: None }
    }

    #[test]
    fn only_the_hash_of_a_token_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::open(folder.path()).expect("none yet");
        let text = tokens.create(token("ci", None)).expect("made");
        tokens.create(token("ci", None)).expect_err("taken");
        let file = std::fs::read_to_string(folder.path().join(FILE)).expect("a file");
        assert!(!file.contains(&text) && file.contains(&digest(&text)));
        let again = Tokens::open(folder.path()).expect("read");
        assert_eq!(again.find(&text, 1).map(|token| token.name).as_deref(), Some("ci"));
        assert_eq!(again.find("twt_0", 1), None);
        again.delete("ci").expect("deleted");
        assert_eq!(again.find(&text, 1), None);
    }

    #[test]
    fn a_token_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::open(folder.path()).expect("none yet");
        let text = tokens.create(token("short", Some(10))).expect("made");
        assert!(tokens.find(&text, 9).is_some());
        assert!(tokens.find(&text, 10).is_none());
        assert!(Role::Read < Role::Operate && Role::Write < Role::Admin);
    }
}
