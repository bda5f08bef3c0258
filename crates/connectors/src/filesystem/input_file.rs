//! A file that is read: what is known of it, and the errors that name it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Error, Result};

use super::compression::Compression;
use super::input_handle::InputHandle;
use super::objects::{Object, ObjectReader, is_replaced};
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
    /// The object that it is, where it lies in an object store.
    pub object: Option<Object>,
    /// What its folders say: one value for each column of `PARTITIONED BY`.
    pub partition: Vec<ArrayRef>,
    /// What leaves rows of it out; where its rows lie in groups.
    pub filter: Option<Arc<dyn RowFilter>>,
}

/// Leaves rows of a file out.
pub trait RowFilter: std::fmt::Debug + Send + Sync {
    /// The rows of a batch that stay. `first_row`: the number in the file of its first one, from 0.
    ///
    /// # Errors
    /// If its columns are others than expected.
    fn filtered(&self, first_row: u64, batch: RecordBatch) -> Result<RecordBatch>;
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
            object: None,
            partition: Vec::new(),
            filter: None,
        }
    }

    /// Opens it to read any part of it.
    ///
    /// # Errors
    /// If that fails.
    pub fn open(&self) -> io::Result<InputHandle> {
        match &self.object {
            Some(object) => Ok(InputHandle::Object(ObjectReader::new(object.clone()))),
            None => {
                File::open(self.path.as_deref().unwrap_or(Path::new(""))).map(InputHandle::File)
            }
        }
    }

    /// Opens it to read its bytes from a place on.
    ///
    /// # Errors
    /// If that fails.
    pub fn stream(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        if let Some(object) = &self.object {
            return Ok(Box::new(object.stream(offset)?));
        }
        let Some(path) = &self.path else { return Ok(Box::new(io::stdin())) };
        let mut file = File::open(path)?;
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Box::new(file))
    }

    /// How it is compressed, if it is a text.
    pub fn compression(&self) -> Compression {
        self.path.as_deref().map_or(Compression::None, Compression::of)
    }

    /// True for a text that is not compressed, of which bytes can be read from any place on.
    pub fn is_plain(&self) -> bool {
        self.path.is_some() && self.compression() == Compression::None
    }

    /// True for a plain text that can grow.
    pub fn can_grow(&self) -> bool {
        self.is_plain() && self.object.is_none()
    }

    /// The same file under the name of another one.
    pub fn renamed(&self, to: &InputFile) -> InputFile {
        let InputFile { path, label, name, partition, .. } = to.clone();
        InputFile { path, label, name, partition, ..self.clone() }
    }
}

/// The error of a file that cannot be read.
pub fn read_error(file: &InputFile, error: &io::Error) -> Error {
    if is_replaced(error) {
        return changed(file, "was replaced while it was read");
    }
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
