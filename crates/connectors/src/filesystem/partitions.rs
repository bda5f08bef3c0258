//! Tables with `PARTITIONED BY`: a folder for each combination of values, as Hive and Flink lay
//! them out (`day=2024-01-01/shop=a%2Fb/part-0.csv`).
//!
//! Invariants:
//! - the columns of the partition stand in the names of folders and nowhere else;
//! - NULL and the empty string are `__HIVE_DEFAULT_PARTITION__`, which reads back as NULL;
//! - characters with a meaning in a path are `%` and two hexadecimal digits, so that no value leads
//!   out of the table's folder.
//!
//! Parts are read in the order of their numbers. `folder_sink.rs` writes them.

use std::collections::HashMap;
use std::path::Path;

use arrow_array::{ArrayRef, RecordBatch};
use chrono_tz::Tz;
use thalweg_core::connector::TableRequest;
use thalweg_core::text::TextColumn;
use thalweg_core::{Column, DataType, Error, Result};

use super::input_file::InputFile;
use crate::format::csv;

/// The folder of rows that have no value.
const DEFAULT_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// How rows are cut into folders. Without columns to cut by there is one folder, with an empty
/// name.
pub struct FolderNames {
    /// The columns that make the folder.
    by: Vec<(usize, Column)>,
    /// The columns that stand in the files.
    rest: Vec<usize>,
}

impl FolderNames {
    /// The folders of a table.
    pub fn new(request: &TableRequest) -> Self {
        let column = |&at: &usize| (at, request.schema.columns[at].clone());
        let is_rest = |at: &usize| !request.partitioned_by.contains(at);
        FolderNames {
            by: request.partitioned_by.iter().map(column).collect(),
            rest: (0..request.schema.len()).filter(is_rest).collect(),
        }
    }

    /// The columns that stand in the files.
    pub fn rest(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        Ok(batch.project(&self.rest)?)
    }

    /// The rows of each folder, folders in the order of their first rows.
    pub fn split(&self, batch: &RecordBatch) -> Vec<(Box<str>, Vec<u32>)> {
        if self.by.is_empty() {
            return vec![("".into(), (0..batch.num_rows() as u32).collect())];
        }
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

/// Puts the files of a partitioned table in order, and reads from their folders what their
/// partitions are.
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
            .hint("declare the column without NOT NULL, and leave it out of the primary key"));
        }
        csv::values::one(&column_type.data_type, text.as_deref())?.ok_or_else(|| {
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
