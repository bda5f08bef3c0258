//! `sink.partition-commit.*`: a partition that got rows is declared complete by an empty file in
//! its folder.
//!
//! A folder waits from the transaction that first wrote to it until its delay has passed. The file
//! comes after the parts of that transaction are visible, never before. Which folders wait stands
//! in the handle of each transaction, so a job that resumes continues to wait. Rows that come later
//! are added to the folder, and its file is written again.
//!
//! What it does not do: it knows processing time alone. A sink sees no watermarks.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use thalweg_core::connector::Options;
use thalweg_core::{Error, Result};

use super::files::Files;
use super::writer::failed;

const KIND: &str = "sink.partition-commit.policy.kind";
const TRIGGER: &str = "sink.partition-commit.trigger";
const DELAY: &str = "sink.partition-commit.delay";
const FILE_NAME: &str = "sink.partition-commit.success-file.name";

/// How partitions are declared complete.
#[derive(Clone, Debug)]
pub struct PartitionCommit {
    delay_ms: i64,
    file_name: String,
}

impl PartitionCommit {
    /// Reads the options; `None` where partitions are not declared complete.
    ///
    /// # Errors
    /// If one is wrong, or asks for what is not supported.
    pub fn read(options: &Options<'_>, is_partitioned: bool) -> Result<Option<PartitionCommit>> {
        let delay_ms = options.duration_ms(DELAY)?.unwrap_or_default();
        let triggers = [("process-time", false), ("partition-time", true)];
        let needs_watermarks = options.choice(TRIGGER, &triggers)? == Some(true);
        let Some(kinds) = options.get(KIND) else { return Ok(None) };
        for kind in kinds.split(',').map(str::trim) {
            match kind {
                "success-file" => {}
                "metastore" | "custom" => {
                    let message = format!("the way '{kind}' to declare partitions complete");
                    return Err(Error::unsupported(message).hint("set 'success-file'"));
                }
                _ => return Err(options.bad(KIND, kinds, "'success-file'")),
            }
        }
        if needs_watermarks {
            return Err(Error::unsupported(format!(
                "'{TRIGGER}' = 'partition-time': a sink sees no watermarks"
            ))
            .hint("set 'process-time' with a delay as long as rows may be late"));
        }
        if !is_partitioned {
            let message = format!("'{KIND}' is for tables with PARTITIONED BY");
            return Err(options.conflict(&message).hint("remove it, or partition the table"));
        }
        let file_name = options.text(FILE_NAME).unwrap_or_default();
        // Readers pass over these names, and names with a dot are those of unfinished files.
        if !file_name.starts_with('_') || file_name.contains('/') {
            return Err(options.bad(FILE_NAME, file_name, "a name that begins with '_'"));
        }
        let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        Ok(Some(PartitionCommit { delay_ms, file_name: file_name.to_owned() }))
    }
}

/// The folders that wait to be declared complete, and since when (milliseconds since 1970).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Waiting(BTreeMap<String, i64>);

impl Waiting {
    fn of_handle(handle: &str) -> Waiting {
        let value: Value = serde_json::from_str(handle).unwrap_or_default();
        let folders = value.get("waiting").and_then(Value::as_object);
        let folders = folders.into_iter().flatten();
        let since = folders.filter_map(|(name, since)| Some((name.clone(), since.as_i64()?)));
        Waiting(since.collect())
    }
}

/// Declares folders complete.
pub struct PartitionCompletion {
    policy: PartitionCommit,
    waiting: Waiting,
}

impl PartitionCompletion {
    /// Nothing waits yet.
    pub fn new(policy: PartitionCommit) -> Self {
        PartitionCompletion { policy, waiting: Waiting::default() }
    }

    /// Rows of these folders are part of the next transaction.
    pub fn add<'a>(&mut self, folders: impl Iterator<Item = &'a str>, now_ms: i64) {
        for folder in folders {
            self.waiting.0.entry(folder.to_owned()).or_insert(now_ms);
        }
    }

    /// A handle with what waits.
    ///
    /// # Errors
    /// Never: a handle is JSON.
    pub fn noted_in(&self, handle: &str) -> Result<String> {
        let mut value: Value =
            serde_json::from_str(handle).map_err(|e| Error::internal(e.to_string()))?;
        value["waiting"] = json!(self.waiting.0);
        Ok(value.to_string())
    }

    /// Continues where a handle was made.
    pub fn recover(&mut self, handle: Option<&str>) {
        self.waiting = handle.map(Waiting::of_handle).unwrap_or_default();
    }

    /// A transaction is visible: declares those of its folders complete that have waited long
    /// enough.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn commit(
        &mut self,
        files: &dyn Files,
        root: &Path,
        handle: &str,
        now_ms: i64,
    ) -> Result<()> {
        let delay_ms = self.policy.delay_ms;
        let is_due = |since: i64| delay_ms == 0 || now_ms > since.saturating_add(delay_ms);
        let due = Waiting::of_handle(handle).0.into_iter().filter(|(_, since)| is_due(*since));
        for (folder, _) in due {
            self.complete(files, root, &folder)?;
            self.waiting.0.remove(&folder);
        }
        Ok(())
    }

    /// There will be no more rows: declares all folders complete that wait.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(&mut self, files: &dyn Files, root: &Path) -> Result<()> {
        for folder in std::mem::take(&mut self.waiting).0.into_keys() {
            self.complete(files, root, &folder)?;
        }
        Ok(())
    }

    fn complete(&self, files: &dyn Files, root: &Path, folder: &str) -> Result<()> {
        let path = root.join(folder).join(&self.policy.file_name);
        files.replace(&path, b"").map_err(|e| failed(Some(&path), &e))
    }

    /// True for the file that declares a folder complete.
    pub fn is_its_file(&self, name: &str) -> bool {
        name == self.policy.file_name
    }
}
