//! What a table is: JSON of Iceberg's format version 2. What is not known of it stays as it is.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use thalweg_core::connector::TableRequest;
use thalweg_core::shim::unique_name;
use thalweg_core::snapshot::OutputMark;
use thalweg_core::{Error, Result};

use super::manifest::{Content, DataFile};
use super::place::Version;
use super::schema::TableLayout;

/// The property of a table that names the commits of this engine that came last.
const COMMITS: &str = "thalweg.commits";
/// The property of a table that says that rows replace those of their key.
const UPSERT: &str = "write.upsert.enabled";
/// How many it names. A job that resumes asks for one that it made just before it died.
const COMMITS_MAX: usize = 100;
/// What a snapshot's summary says of the job that has made it.
const LINEAGE: &str = "thalweg.lineage";
const SNAPSHOT: &str = "thalweg.snapshot";
const COMMIT: &str = "thalweg.commit";

/// A snapshot of a table.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    pub id: i64,
    pub parent: Option<i64>,
    /// What was done: `append`, `replace`, `overwrite`, `delete`.
    pub operation: String,
    /// Where the list of its lists of files is.
    pub manifest_list: String,
    summary: Value,
}

impl TableSnapshot {
    fn read(value: &Value) -> Option<TableSnapshot> {
        Some(TableSnapshot {
            id: value["snapshot-id"].as_i64()?,
            parent: value["parent-snapshot-id"].as_i64(),
            operation: value["summary"]["operation"].as_str()?.to_owned(),
            manifest_list: value["manifest-list"].as_str()?.to_owned(),
            summary: value["summary"].clone(),
        })
    }

    /// The job that has made it, if that was one of this engine, and which of its snapshots.
    pub fn mark(&self) -> Option<OutputMark> {
        let lineage = self.summary[LINEAGE].as_str()?.to_owned();
        Some(OutputMark { lineage, snapshot: self.summary[SNAPSHOT].as_str()?.parse().ok()? })
    }

    fn total(&self, name: &str) -> i64 {
        self.summary[name].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// What a snapshot adds.
pub struct Added<'a> {
    /// The name of the commit, of no other one.
    pub commit: &'a str,
    /// The job that commits, and which of its snapshots.
    pub mark: Option<&'a OutputMark>,
    pub manifest_list: String,
    pub files: &'a [DataFile],
}

/// The properties of a table that is created; rows replace those of their key if `is_upsert`.
pub fn new_properties(is_upsert: bool) -> Value {
    let mut properties = json!({"write.format.default": "parquet"});
    if is_upsert {
        properties[UPSERT] = json!("true");
    }
    properties
}

/// A table that is created.
pub fn new_table(layout: &TableLayout, properties: &Value, location: &str, now_ms: i64) -> Version {
    let partition_ids = layout.partition_ids.iter().copied();
    let metadata = json!({
        "format-version": 2,
        "table-uuid": uuid(),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": layout.fields.iter().map(|field| field.id).max().unwrap_or_default(),
        "current-schema-id": layout.schema_id,
        "schemas": [layout.schema_json()],
        "default-spec-id": layout.spec_id,
        "partition-specs": [{"spec-id": layout.spec_id, "fields": layout.spec_fields()}],
        "last-partition-id": partition_ids.max().unwrap_or(999),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties,
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    });
    Version { number: 1, metadata, new_snapshots: 0 }
}

fn uuid() -> String {
    let digits = format!("{}{}", unique_name(), unique_name());
    let part = |range: std::ops::Range<usize>| &digits[range];
    format!("{}-{}-4{}-8{}-{}", part(0..8), part(8..12), part(13..16), part(17..20), part(20..32))
}

/// A number that no other snapshot has.
pub fn new_snapshot_id() -> i64 {
    let digits = u64::from_str_radix(&unique_name(), 16).unwrap_or_default();
    ((digits >> 1) as i64).max(1)
}

impl Version {
    /// Checks that this version of the format is known.
    ///
    /// # Errors
    /// If it is not.
    pub fn check_format(&self) -> Result<()> {
        match self.metadata["format-version"].as_i64() {
            Some(2) => Ok(()),
            other => Err(Error::unsupported(format!(
                "a table of Iceberg with format version {}",
                other.map_or("unknown".to_owned(), |version| version.to_string())
            ))
            .hint(
                "only version 2 is read and written; a table of version 1 can be upgraded to it",
            )),
        }
    }

    fn by_id(&self, list: &str, key: &str, current: &str) -> Result<&Value> {
        let wanted = &self.metadata[current];
        let mut listed = self.metadata[list].as_array().into_iter().flatten();
        listed.find(|one| one[key] == *wanted).ok_or_else(|| {
            Error::data(format!("the table's metadata have no '{list}' of number {wanted}"))
        })
    }

    /// The schema that is in force.
    ///
    /// # Errors
    /// If there is none.
    pub fn schema(&self) -> Result<&Value> {
        self.by_id("schemas", "schema-id", "current-schema-id")
    }

    /// How new rows are partitioned.
    ///
    /// # Errors
    /// If it does not say.
    pub fn spec(&self) -> Result<&Value> {
        self.by_id("partition-specs", "spec-id", "default-spec-id")
    }

    /// Checks that deletions by a key concern all rows: those of one partition concern files of the
    /// same specification alone.
    ///
    /// # Errors
    /// If there are files of several, and the one in force has partitions.
    pub fn check_one_partitioning(&self) -> Result<()> {
        let others = self.metadata["partition-specs"].as_array().map_or(0, Vec::len) > 1;
        let is_whole = |id: i64| self.unpartitioned_specs().contains(&id);
        match others && !self.metadata["default-spec-id"].as_i64().is_some_and(is_whole) {
            false => Ok(()),
            true => Err(Error::unsupported(
                "the table was partitioned in another way before, and older rows of a key would stay",
            )
            .hint("write to a new table, or to one without partitions")),
        }
    }

    /// The numbers of the specifications without partitions.
    pub fn unpartitioned_specs(&self) -> BTreeSet<i64> {
        let specs = self.metadata["partition-specs"].as_array().into_iter().flatten();
        let is_whole = |spec: &&Value| {
            let fields = spec["fields"].as_array().map_or(&[][..], Vec::as_slice);
            fields.iter().all(|field| field["transform"] == json!("void"))
        };
        specs.filter(is_whole).filter_map(|spec| spec["spec-id"].as_i64()).collect()
    }

    /// The declared columns in this table.
    ///
    /// # Errors
    /// If they do not fit it.
    pub fn layout(&self, request: &TableRequest, as_sink: bool) -> Result<TableLayout> {
        self.check_format()?;
        TableLayout::find(request, self.schema()?, self.spec()?, as_sink)
    }

    /// A property of the table.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.metadata["properties"][name].as_str()
    }

    /// True if rows that are written replace those of their key.
    pub fn is_upsert(&self) -> bool {
        self.property(UPSERT).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The properties of the table that a commit of this engine sets.
    #[cfg(feature = "http")]
    pub fn own_properties(&self) -> Value {
        json!({ COMMITS: self.property(COMMITS).unwrap_or_default() })
    }

    /// A snapshot by its number.
    pub fn snapshot(&self, id: i64) -> Option<TableSnapshot> {
        let snapshots = self.metadata["snapshots"].as_array()?;
        TableSnapshot::read(snapshots.iter().find(|one| one["snapshot-id"] == json!(id))?)
    }

    /// The snapshot that a reader sees.
    pub fn current(&self) -> Option<TableSnapshot> {
        self.snapshot(self.metadata["current-snapshot-id"].as_i64()?)
    }

    /// The current snapshot and those it was made from, as far as they are kept, newest first.
    pub fn ancestors(&self) -> Vec<TableSnapshot> {
        let parent = |own: &TableSnapshot| self.snapshot(own.parent?);
        std::iter::successors(self.current(), parent).collect()
    }

    /// True if a commit of this name was made.
    pub fn has_commit(&self, commit: &str) -> bool {
        let listed = self.property(COMMITS).unwrap_or_default();
        listed.split(' ').any(|own| own == commit)
            || self.ancestors().iter().any(|own| own.summary[COMMIT].as_str() == Some(commit))
    }

    /// The version behind this one, of a commit of this name; it has yet to get its snapshots.
    /// `location`: of this version's own file.
    pub fn successor(&self, commit: &str, location: &str, now_ms: i64) -> Version {
        let mut metadata = self.metadata.clone();
        let updated_ms = self.metadata["last-updated-ms"].as_i64().unwrap_or_default();
        metadata["last-updated-ms"] = json!(now_ms.max(updated_ms));
        let mut commits: Vec<&str> =
            self.property(COMMITS).unwrap_or_default().split(' ').collect();
        commits.push(commit);
        let first = commits.len().saturating_sub(COMMITS_MAX);
        metadata["properties"][COMMITS] = json!(commits[first..].join(" ").trim());
        let log = json!({"metadata-file": location, "timestamp-ms": updated_ms});
        push(&mut metadata["metadata-log"], log);
        Version { number: self.number + 1, metadata, new_snapshots: 0 }
    }

    /// Adds a snapshot, which becomes the current one.
    pub fn add_snapshot(&mut self, id: i64, added: &Added<'_>) {
        let current = self.current();
        let now_ms = self.metadata["last-updated-ms"].clone();
        let sequence_number = self.next_sequence_number();
        let mut snapshot = json!({
            "snapshot-id": id,
            "sequence-number": sequence_number,
            "timestamp-ms": now_ms,
            "manifest-list": added.manifest_list,
            "schema-id": self.metadata["current-schema-id"],
            "summary": added.summary(current.as_ref()),
        });
        if let Some(current) = &current {
            snapshot["parent-snapshot-id"] = json!(current.id);
        }
        let metadata = &mut self.metadata;
        metadata["last-sequence-number"] = json!(sequence_number);
        metadata["current-snapshot-id"] = json!(id);
        metadata["refs"]["main"] = json!({"snapshot-id": id, "type": "branch"});
        push(&mut metadata["snapshots"], snapshot);
        push(&mut metadata["snapshot-log"], json!({"snapshot-id": id, "timestamp-ms": now_ms}));
        self.new_snapshots += 1;
    }

    /// The number of the next snapshot's changes.
    pub fn next_sequence_number(&self) -> i64 {
        self.metadata["last-sequence-number"].as_i64().unwrap_or_default() + 1
    }
}

/// Metadata may lack a list that is empty.
fn push(list: &mut Value, value: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(value),
        None => *list = json!([value]),
    }
}

impl Added<'_> {
    fn files(&self, content: Content) -> impl Iterator<Item = &DataFile> {
        self.files.iter().filter(move |file| file.content == content)
    }

    /// How many files of a kind there are, and rows in them.
    fn count(&self, content: Content) -> (i64, i64) {
        (self.files(content).count() as i64, self.files(content).map(|file| file.rows).sum())
    }

    fn summary(&self, before: Option<&TableSnapshot>) -> Value {
        let (files, rows) = self.count(Content::Rows);
        let (position_files, positions) = self.count(Content::PositionDeletes);
        let (equality_files, keys) = self.count(Content::EqualityDeletes);
        let delete_files = position_files + equality_files;
        let bytes = self.files.iter().map(|file| file.bytes).sum();
        let mut summary = json!({
            "operation": match (files, delete_files) {
                (_, 0) => "append",
                (0, _) => "delete",
                _ => "overwrite",
            },
            "changed-partition-count": partitions_of(self.files).to_string(),
            COMMIT: self.commit,
        });
        let counts = [
            ("data-files", files),
            ("records", rows),
            ("files-size", bytes),
            ("delete-files", delete_files),
            ("position-deletes", positions),
            ("equality-deletes", keys),
        ];
        let kinds =
            [("position-delete-files", position_files), ("equality-delete-files", equality_files)];
        for (name, added) in counts.into_iter().chain(kinds).filter(|(_, added)| *added > 0) {
            summary[format!("added-{name}")] = json!(added.to_string());
        }
        for (name, added) in counts {
            let name = format!("total-{name}");
            let total = before.map_or(0, |before| before.total(&name)) + added;
            summary[name] = json!(total.to_string());
        }
        if let Some(mark) = self.mark {
            summary[LINEAGE] = json!(mark.lineage);
            summary[SNAPSHOT] = json!(mark.snapshot.to_string());
        }
        summary
    }
}

/// Counts partitions.
fn partitions_of(files: &[DataFile]) -> usize {
    files.iter().map(|file| &file.partition).collect::<BTreeSet<_>>().len()
}
