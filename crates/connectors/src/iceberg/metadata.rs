//! What a table is: JSON of Iceberg's format version 2. What is not known of it stays as it is.

use serde_json::{Value, json};
use thalweg_core::connector::TableRequest;
use thalweg_core::shim::unique_name;
use thalweg_core::snapshot::OutputMark;
use thalweg_core::{Error, Result};

use super::place::Version;
use super::schema::TableLayout;

/// The property of a table that names the commits of this engine that came last.
const COMMITS: &str = "thalweg.commits";
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
    pub files: i64,
    pub rows: i64,
    pub bytes: i64,
    pub partitions: i64,
}

/// A table that is created.
pub fn new_table(layout: &TableLayout, location: &str, now_ms: i64) -> Version {
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
        "properties": {"write.format.default": "parquet"},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    });
    Version { number: 1, metadata }
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
            .hint("tables of version 2 can be read and written")),
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

    /// The version behind this one, with a snapshot that adds to the current one. `location`: of
    /// this version's own file.
    pub fn with_snapshot(
        &self,
        id: i64,
        added: &Added<'_>,
        location: &str,
        now_ms: i64,
    ) -> Version {
        let mut metadata = self.metadata.clone();
        let current = self.current();
        let updated_ms = self.metadata["last-updated-ms"].as_i64().unwrap_or_default();
        let now_ms = now_ms.max(updated_ms);
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
        metadata["last-sequence-number"] = json!(sequence_number);
        metadata["last-updated-ms"] = json!(now_ms);
        metadata["current-snapshot-id"] = json!(id);
        metadata["refs"]["main"] = json!({"snapshot-id": id, "type": "branch"});
        let mut commits: Vec<&str> =
            self.property(COMMITS).unwrap_or_default().split(' ').collect();
        commits.push(added.commit);
        let first = commits.len().saturating_sub(COMMITS_MAX);
        metadata["properties"][COMMITS] = json!(commits[first..].join(" ").trim());
        push(&mut metadata["snapshots"], snapshot);
        push(&mut metadata["snapshot-log"], json!({"snapshot-id": id, "timestamp-ms": now_ms}));
        let log = json!({"metadata-file": location, "timestamp-ms": updated_ms});
        push(&mut metadata["metadata-log"], log);
        Version { number: self.number + 1, metadata }
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
    fn summary(&self, before: Option<&TableSnapshot>) -> Value {
        let total = |name: &str, added: i64| {
            (before.map_or(0, |before| before.total(name)) + added).to_string()
        };
        let mut summary = json!({
            "operation": "append",
            "added-data-files": self.files.to_string(),
            "added-records": self.rows.to_string(),
            "added-files-size": self.bytes.to_string(),
            "changed-partition-count": self.partitions.to_string(),
            "total-data-files": total("total-data-files", self.files),
            "total-records": total("total-records", self.rows),
            "total-files-size": total("total-files-size", self.bytes),
            "total-delete-files": total("total-delete-files", 0),
            "total-position-deletes": total("total-position-deletes", 0),
            "total-equality-deletes": total("total-equality-deletes", 0),
            COMMIT: self.commit,
        });
        if let Some(mark) = self.mark {
            summary[LINEAGE] = json!(mark.lineage);
            summary[SNAPSHOT] = json!(mark.snapshot.to_string());
        }
        summary
    }
}
