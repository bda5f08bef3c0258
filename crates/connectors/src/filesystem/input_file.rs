//! A file that is read: what is known of it, and the errors that name it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::Error;

use super::stamp::Stamp;

/// An input file.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// The canonical path; `None` for standard input.
    pub path: Option<PathBuf>,
    /// The file as a user would name it.
    pub label: Arc<str>,
    /// Its name without folders.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
    /// What the file system says of it otherwise.
    pub stamp: Option<Stamp>,
    /// Its first bytes, where it is followed.
    pub head: Vec<u8>,
    /// What its folders say: one value for each column of `PARTITIONED BY`.
    pub partition: Vec<ArrayRef>,
}

impl InputFile {
    /// Standard input.
    pub fn stdin() -> InputFile {
        InputFile {
            path: None,
            label: Arc::from("standard input"),
            name: "-".to_string(),
            size: 0,
            modified_ms: 0,
            stamp: None,
            head: Vec::new(),
            partition: Vec::new(),
        }
    }

    /// The same file under the name of another one.
    pub fn renamed(&self, to: &InputFile) -> InputFile {
        let InputFile { path, label, name, partition, .. } = to.clone();
        InputFile { path, label, name, partition, ..self.clone() }
    }
}

/// The error of a file that cannot be read.
pub fn read_error(file: &InputFile, error: &io::Error) -> Error {
    Error::io(format!("cannot read: {error}")).in_file(file.label.as_ref())
}

/// The error of a file that is not what it was when it was read.
pub fn changed(file: &InputFile, how: &str) -> Error {
    changed_name(&file.label, how)
}

/// The same by the file's name.
pub fn changed_name(label: &str, how: &str) -> Error {
    let message = format!("the file {how}: to read on would lose rows or read some twice");
    Error::data(message)
        .in_file(label)
        .hint("put the file back as it was, or start from scratch, without the snapshot")
}
