//! Reads records of dead letters again as a table has them now.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Result, Source};

use super::blocks::ONLY_BEGINNING;
use super::input_file::InputFile;
use super::objects::Objects;
use super::options::{BadData, FileOptions};
use super::reading::{FileMetadata, Reading};
use super::{letters_path, paths, reading_of};
use crate::format::{BadDataPolicy, TextBlock};
use crate::replay::{Letter, LetterReader, replaying};

/// A source of files, which reads dead letters again where they are kept and are text.
///
/// # Errors
/// If the options of the table are wrong.
pub fn replaying_records(
    request: &TableRequest,
    source: Box<dyn Source>,
) -> Result<Box<dyn Source>> {
    let options = FileOptions::read(request, false)?;
    let BadData::DeadLetter(path) = options.bad_data else { return Ok(source) };
    if request.is_read_again || !options.format.is_text() || options.path == "-" {
        return Ok(source);
    }
    let letters = letters_path(request, path)?;
    replaying(source, Some(&letters), || {
        let path = options.path.to_owned();
        let reading = reading_of(request, options, BadDataPolicy::Reject);
        Ok(Box::new(RecordReader { reading, request: request.clone(), path }))
    })
}

/// Reads one record at a time.
struct RecordReader {
    reading: Reading,
    request: TableRequest,
    path: String,
}

impl RecordReader {
    /// True if columns say something of the file that a record is in.
    fn needs_file(&self) -> bool {
        let is_of_file = |key: &FileMetadata| !matches!(key, FileMetadata::OfFormat(_));
        !self.reading.from_folder.is_empty() || self.reading.metadata.iter().any(is_of_file)
    }

    /// The file that a record is in, as it is now.
    fn file(&self, label: &str) -> Result<InputFile, String> {
        if !self.needs_file() {
            return Ok(InputFile { label: Arc::from(label), ..InputFile::stdin() });
        }
        let objects = Objects::of(&self.request, &self.path);
        let files = objects.and_then(|objects| match objects {
            Some(objects) => objects.present(&self.request, &self.path),
            None => paths::present(&self.request, &self.path),
        });
        let found = files.map_err(|error| error.to_string())?.into_iter();
        let mut found = found.filter(|file| *file.label == *label);
        found.next().ok_or_else(|| {
            "its file is not there any more, and columns of the table are about the file".to_owned()
        })
    }
}

impl LetterReader for RecordReader {
    fn read(&self, letter: &Letter) -> Result<RecordBatch, String> {
        if letter.message.get(ONLY_BEGINNING).is_some() {
            return Err("only the beginning of the record was kept".to_owned());
        }
        let file = self.file(&letter.file)?;
        let record = BinaryArray::from_iter_values([&letter.raw]);
        let decoded = self.reading.decoder.decode(&TextBlock::messages(&record));
        let decoded = decoded.map_err(|error| error.error.to_string())?;
        match decoded.rejected.into_iter().next() {
            Some(rejected) => Err(rejected.reason),
            None => {
                let batch = self.reading.batch(decoded.batch, &file);
                batch.map_err(|error| error.to_string())
            }
        }
    }
}
