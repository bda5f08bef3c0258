//! Tables with `PARTITIONED BY`: a folder for each combination of values, as Hive and Flink lay them
//! out (`day=2024-01-01/shop=a%2Fb/part-0.csv`).
//!
//! Invariants:
//! - the columns of the partition stand in the names of folders and nowhere else;
//! - NULL and the empty string are `__HIVE_DEFAULT_PARTITION__`, which reads back as NULL;
//! - characters with a meaning in a path are `%` and two hexadecimal digits, so that no value leads out
//!   of the table's folder; links inside it that lead out are refused;
//! - at most [`OPEN_FILES_MAX`] files are open: the one that was written longest ago is closed, and its
//!   partition goes on in the next part;
//! - nothing has its name before everything was written. The parts of an earlier run then give way, in
//!   the partitions that this one has written.
//!
//! Parts are read in the order of their numbers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use chrono_tz::Tz;
use thalweg_core::connector::{Sink, TableRequest};
use thalweg_core::text::TextColumn;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use super::csv::values;
use super::options::Changelog;
use super::paths::{InputFile, Target};
use super::sink::Claim;
use super::source::Format;
use super::writer::{Content, FileWriter, publish};

/// How many files are open at a time. Each has buffers of its own.
pub const OPEN_FILES_MAX: usize = 32;

/// The folder of rows that have no value.
const DEFAULT_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Where the parts of a table lie.
pub struct Parts {
    /// The table's folder.
    pub root: PathBuf,
    /// How the names of files end.
    pub extension: &'static str,
}

impl Parts {
    fn path(&self, folder: &str, part: usize) -> PathBuf {
        self.root.join(folder).join(format!("part-{part}.{}", self.extension))
    }
}

struct OpenPart {
    writer: FileWriter,
    last_used: u64,
}

/// Writes each row into the folder of its partition.
pub struct PartitionedSink {
    content: Content,
    /// The columns that make the folder.
    by: Vec<(usize, Column)>,
    /// The columns that stand in the files.
    rest: Vec<usize>,
    parts: Parts,
    /// How many parts of each folder were begun.
    begun: HashMap<Box<str>, usize>,
    open: HashMap<Box<str>, OpenPart>,
    uses: u64,
    claim: Option<Claim>,
}

impl PartitionedSink {
    /// A sink for a table; `record` are the columns that stand in its files.
    pub fn new(
        request: &TableRequest,
        record: TableSchema,
        format: Format,
        parts: Parts,
        changelog: Option<Changelog>,
    ) -> Self {
        let table = request.table.clone();
        let column = |&at: &usize| (at, request.schema.columns[at].clone());
        let is_rest = |at: &usize| !request.partitioned_by.contains(at);
        PartitionedSink {
            content: Content { table, schema: record, format, changelog },
            by: request.partitioned_by.iter().map(column).collect(),
            rest: (0..request.schema.len()).filter(is_rest).collect(),
            parts,
            begun: HashMap::new(),
            open: HashMap::new(),
            uses: 0,
            claim: None,
        }
    }

    /// The rows of each folder, folders in the order of their first rows.
    fn split(&self, batch: &RecordBatch) -> Vec<(Box<str>, Vec<u32>)> {
        let column = |(at, column): &(usize, Column)| FolderColumn::new(batch.column(*at), column);
        let columns: Vec<FolderColumn<'_>> = self.by.iter().map(column).collect();
        let mut places: HashMap<Box<str>, usize> = HashMap::new();
        let mut folders: Vec<(Box<str>, Vec<u32>)> = Vec::new();
        let (mut name, mut value) = (String::new(), String::new());
        for row in 0..batch.num_rows() {
            name.clear();
            for column in &columns {
                column.append(&mut name, &mut value, row);
            }
            match places.get(name.as_str()) {
                Some(&place) => folders[place].1.push(row as u32),
                None => {
                    places.insert(name.as_str().into(), folders.len());
                    folders.push((name.as_str().into(), vec![row as u32]));
                }
            }
        }
        folders
    }

    /// The next part of a folder that has no open file.
    fn begin(&mut self, folder: &str) -> Result<OpenPart> {
        while self.open.len() >= OPEN_FILES_MAX {
            self.close_oldest()?;
        }
        let part = self.begun.get(folder).copied().unwrap_or(0);
        let path = self.parts.path(folder, part);
        self.create_folder(&path)?;
        let writer = FileWriter::create(&Target::File(path), &self.content)?;
        self.begun.insert(folder.into(), part + 1);
        Ok(OpenPart { writer, last_used: 0 })
    }

    /// Creates the folder of a file; a link inside the table's folder must not lead out of it.
    fn create_folder(&self, path: &Path) -> Result<()> {
        super::paths::create_parent(path)?;
        let folder = path.parent().unwrap_or(path).canonicalize()?;
        if folder.starts_with(self.parts.root.canonicalize()?) {
            return Ok(());
        }
        let place = path.display().to_string();
        Err(Error::io("a link leads out of the table's folder").in_file(place).hint("remove it"))
    }

    fn close_oldest(&mut self) -> Result<()> {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.last_used);
        let oldest = oldest.map(|(folder, _)| folder.clone());
        match oldest.and_then(|folder| self.open.remove(&folder)) {
            Some(open) => open.writer.close(),
            None => Ok(()),
        }
    }

    /// Removes the parts that an earlier run has left behind those of this one.
    fn remove_older(&self, folder: &str, mut part: usize) -> Result<()> {
        loop {
            let path = self.parts.path(folder, part);
            if !path.is_file() {
                return Ok(());
            }
            fs::remove_file(&path)?;
            part += 1;
        }
    }
}

impl Sink for PartitionedSink {
    fn name(&self) -> String {
        self.content.table.clone()
    }

    fn open(&mut self) -> Result<()> {
        self.claim = Some(Claim::take(&self.content.table, &self.parts.root)?);
        Ok(fs::create_dir_all(&self.parts.root)?)
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let (batch, kinds) = self.content.rows(batch, kinds)?;
        let folders = self.split(&batch);
        let batch = batch.project(&self.rest)?;
        for (folder, rows) in folders {
            let kinds: Option<Vec<RowKind>> =
                kinds.as_ref().map(|kinds| rows.iter().map(|&row| kinds[row as usize]).collect());
            let rows = take_record_batch(&batch, &UInt32Array::from(rows))?;
            let mut open = match self.open.remove(&folder) {
                Some(open) => open,
                None => self.begin(&folder)?,
            };
            self.uses += 1;
            open.last_used = self.uses;
            open.writer.write(&rows, kinds.as_deref(), &self.content)?;
            self.open.insert(folder, open);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.open.values_mut().try_for_each(|open| open.writer.flush())
    }

    fn finish(&mut self) -> Result<()> {
        for (_, open) in self.open.drain() {
            open.writer.close()?;
        }
        for (folder, &parts) in &self.begun {
            let paths: Vec<PathBuf> =
                (0..parts).map(|part| self.parts.path(folder, part)).collect();
            publish(&paths)?;
            self.remove_older(folder, parts)?;
        }
        self.claim = None;
        Ok(())
    }

    fn abort(&mut self) {
        // Best effort: what was written so far may help to find the cause.
        let _ = self.flush();
        self.open.clear();
        self.claim = None;
    }
}

/// A column that makes a part of the folder.
struct FolderColumn<'a> {
    /// `name=`, escaped.
    key: String,
    text: TextColumn<'a>,
    is_instant: bool,
}

impl<'a> FolderColumn<'a> {
    fn new(array: &'a ArrayRef, column: &Column) -> Self {
        let mut key = String::new();
        escape(&mut key, &column.name);
        key.push('=');
        let data_type = &column.column_type.data_type;
        let text = TextColumn::new(array.as_ref(), data_type, Tz::UTC);
        let is_instant = matches!(data_type, DataType::TimestampLtz(_));
        FolderColumn { key, text, is_instant }
    }

    /// Appends `/name=value`; `value` is scratch space.
    fn append(&self, folder: &mut String, value: &mut String, row: usize) {
        if !folder.is_empty() {
            folder.push('/');
        }
        folder.push_str(&self.key);
        value.clear();
        if !self.text.is_null(row) {
            self.text.append(value, row);
        }
        if value.is_empty() {
            return folder.push_str(DEFAULT_PARTITION);
        }
        if self.is_instant {
            value.push('Z');
        }
        escape(folder, value);
    }
}

/// The characters that Hive escapes.
fn is_special(c: char) -> bool {
    c.is_ascii_control() || "\"#%'*/:=?\\{[]^".contains(c)
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        if is_special(c) {
            out.push_str(&format!("%{:02X}", c as u32));
        } else {
            out.push(c);
        }
    }
}

/// The text that was escaped. A `%` without two digits behind it stands for itself.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| first == b'%').and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Puts the files of a partitioned table in order, and reads from their folders what their partitions
/// are.
///
/// # Errors
/// A file that does not lie in a folder for each column, or a value that is none of its type.
pub fn read_folders(request: &TableRequest, root: &Path, files: &mut [InputFile]) -> Result<()> {
    let columns = request.partitioned_by.iter().map(|&at| &request.schema.columns[at]);
    let columns: Vec<&Column> = columns.collect();
    for file in files.iter_mut() {
        let parent = file.path.as_deref().and_then(Path::parent).unwrap_or(root);
        let inside = parent.strip_prefix(root).unwrap_or(Path::new(""));
        let names: Vec<String> =
            inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        file.partition =
            partition(&columns, &names).map_err(|e| e.in_file(file.label.to_string()))?;
    }
    files.sort_by_cached_key(|file| {
        let parent = file.path.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        (parent, number_in(&file.name), file.name.clone())
    });
    Ok(())
}

/// The first number in a name: `part-10` comes behind `part-9`.
fn number_in(name: &str) -> Option<u64> {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// One value for each column.
fn partition(columns: &[&Column], names: &[String]) -> Result<Vec<ArrayRef>> {
    let expected = || {
        let parts: Vec<String> = columns.iter().map(|c| format!("{}=…", c.name)).collect();
        Error::data(format!("the file does not lie in a folder {}", parts.join("/")))
            .hint("move it, or leave PARTITIONED BY out of the table")
    };
    if names.len() != columns.len() {
        return Err(expected());
    }
    let value = |(column, name): (&&Column, &String)| {
        let (key, text) = name.split_once('=').ok_or_else(expected)?;
        if unescape(key) != column.name {
            return Err(expected());
        }
        let text = (text != DEFAULT_PARTITION).then(|| unescape(text));
        let column_type = &column.column_type;
        if text.is_none() && !column_type.nullable {
            return Err(Error::data(format!(
                "the folder says that column {} is NULL, but it is declared NOT NULL",
                column.name
            ))
            .hint("declare the column without NOT NULL"));
        }
        values::one(&column_type.data_type, text.as_deref())?.ok_or_else(|| {
            let text = text.unwrap_or_default();
            let message = format!(
                "the folder says that column {} is '{text}', which is no {}",
                column.name, column_type.data_type
            );
            Error::data(message).hint("declare the column as STRING, or rename the folder")
        })
    };
    columns.iter().zip(names).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_return() {
        for text in ["a/b", "..", "100%", "%41", "x=y:z", "\"'*?\\{[]^#", "ä\n", "%"] {
            let mut escaped = String::new();
            escape(&mut escaped, text);
            assert!(!escaped.contains(['/', '=', ':', '\n']), "{escaped}");
            assert_eq!(unescape(&escaped), text);
        }
        let mut slash = String::new();
        escape(&mut slash, "a/b c");
        assert_eq!(slash, "a%2Fb c", "as Hive writes it");
        assert_eq!(unescape("50%"), "50%");
    }

    #[test]
    fn parts_are_read_in_the_order_of_their_numbers() {
        let mut names = ["part-10.csv", "part-9.csv", "part-0.csv", "a.csv"];
        names.sort_by_key(|name| (number_in(name), *name));
        assert_eq!(names, ["a.csv", "part-0.csv", "part-9.csv", "part-10.csv"]);
    }
}
