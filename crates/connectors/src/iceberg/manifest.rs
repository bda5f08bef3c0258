//! Lists of files of rows and of deletions (manifests), and the list of those that a snapshot has.
//!
//! Source: the Iceberg table specification, version 2.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use thalweg_core::{Error, Result};

use super::avro::{Datum, Records, read};
use super::literal::Literal;
use super::place::TablePlace;
use super::schema::TableLayout;

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Content {
    /// Rows.
    #[default]
    Rows,
    /// Places of deleted rows: a file, and the number of a row in it.
    PositionDeletes,
    /// Keys of deleted rows, which lie in files with smaller sequence numbers.
    EqualityDeletes,
}

impl Content {
    const ALL: [Content; 3] = [Content::Rows, Content::PositionDeletes, Content::EqualityDeletes];

    fn code(self) -> i64 {
        self as i64
    }

    fn of_code(code: i64) -> Option<Content> {
        Content::ALL.into_iter().find(|content| content.code() == code)
    }
}

/// A file that is added to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFile {
    pub content: Content,
    /// Of deletions by key: the numbers of its columns.
    pub equality_ids: Vec<i32>,
    /// Which row delta of its commit it belongs to. Each becomes a snapshot of the table, so that
    /// the keys of a later one delete rows of those before.
    pub delta: u64,
    /// As metadata name it.
    pub location: String,
    /// The values by which it is partitioned.
    pub partition: Vec<Literal>,
    pub rows: i64,
    pub bytes: i64,
    /// By the number of a column: bytes, values, NULLs, and bounds.
    pub column_bytes: BTreeMap<i32, i64>,
    pub values: BTreeMap<i32, i64>,
    pub nulls: BTreeMap<i32, i64>,
    pub lower: BTreeMap<i32, Vec<u8>>,
    pub upper: BTreeMap<i32, Vec<u8>>,
}

impl DataFile {
    /// For the handle of a transaction.
    pub fn to_json(&self) -> Value {
        let bounds = |bounds: &BTreeMap<i32, Vec<u8>>| -> BTreeMap<i32, String> {
            bounds.iter().map(|(id, bytes)| (*id, BASE64_STANDARD.encode(bytes))).collect()
        };
        json!({
            "content": self.content.code(),
            "equalityIds": self.equality_ids,
            "delta": self.delta,
            "location": self.location,
            "partition": self.partition.iter().map(Literal::to_json).collect::<Vec<_>>(),
            "rows": self.rows,
            "bytes": self.bytes,
            "columnBytes": self.column_bytes,
            "values": self.values,
            "nulls": self.nulls,
            "lower": bounds(&self.lower),
            "upper": bounds(&self.upper),
        })
    }

    /// From the handle of a transaction.
    pub fn from_json(value: &Value) -> Option<DataFile> {
        let partition = value.get("partition")?.as_array()?.iter().map(Literal::from_json);
        let entries = |name: &str| value.get(name)?.as_object();
        let counts = |name: &str| -> Option<BTreeMap<i32, i64>> {
            let count = |(id, count): (&String, &Value)| Some((id.parse().ok()?, count.as_i64()?));
            entries(name)?.iter().map(count).collect()
        };
        let bounds = |name: &str| -> Option<BTreeMap<i32, Vec<u8>>> {
            let bound = |(id, bytes): (&String, &Value)| {
                Some((id.parse().ok()?, BASE64_STANDARD.decode(bytes.as_str()?).ok()?))
            };
            entries(name)?.iter().map(bound).collect()
        };
        // Handles of versions that only added rows do not say what a file holds.
        let content = value.get("content").map_or(Some(0), Value::as_i64);
        let equality_ids = value.get("equalityIds").and_then(Value::as_array);
        let equality_ids = equality_ids.into_iter().flatten();
        let id = |id: &Value| id.as_i64().and_then(|id| i32::try_from(id).ok());
        Some(DataFile {
            content: content.and_then(Content::of_code)?,
            equality_ids: equality_ids.map(id).collect::<Option<_>>()?,
            delta: value.get("delta").map_or(Some(0), Value::as_u64)?,
            location: value.get("location")?.as_str()?.to_owned(),
            partition: partition.collect::<Option<_>>()?,
            rows: value.get("rows")?.as_i64()?,
            bytes: value.get("bytes")?.as_i64()?,
            column_bytes: counts("columnBytes")?,
            values: counts("values")?,
            nulls: counts("nulls")?,
            lower: bounds("lower")?,
            upper: bounds("upper")?,
        })
    }

    fn write(&self, out: &mut Records) {
        out.long(self.content.code());
        out.bytes(self.location.as_bytes());
        out.bytes(b"PARQUET");
        self.partition.iter().for_each(|value| value.write(out));
        out.long(self.rows);
        out.long(self.bytes);
        for counts in [&self.column_bytes, &self.values, &self.nulls] {
            out.optional(Some(counts), |out, counts| {
                out.list(counts.iter(), |out, (id, count)| {
                    out.long((*id).into());
                    out.long(*count);
                });
            });
        }
        for bounds in [&self.lower, &self.upper] {
            out.optional(Some(bounds), |out, bounds| {
                out.list(bounds.iter(), |out, (id, bound)| {
                    out.long((*id).into());
                    out.bytes(bound);
                });
            });
        }
        let ids = (!self.equality_ids.is_empty()).then_some(&self.equality_ids);
        out.optional(ids, |out, ids| out.list(ids.iter(), |out, id| out.long((*id).into())));
    }
}

fn field(id: i32, name: &str, schema: Value) -> Value {
    json!({"name": name, "type": schema, "field-id": id})
}

fn optional(id: i32, name: &str, schema: Value) -> Value {
    json!({"name": name, "type": ["null", schema], "default": null, "field-id": id})
}

/// A map with numbers as keys, which Avro has as a list.
fn map(key_id: i32, value_id: i32, value: &str) -> Value {
    json!({"type": "array", "logicalType": "map", "items": {
        "type": "record", "name": format!("k{key_id}_v{value_id}"),
        "fields": [field(key_id, "key", json!("int")), field(value_id, "value", json!(value))]}})
}

fn partition_schema(layout: &TableLayout) -> Value {
    let parts = layout.partitioned_by.iter().zip(&layout.partition_ids);
    let fields: Vec<Value> = parts
        .map(|(&at, id)| {
            let own = &layout.fields[at];
            let schema = match own.type_name.as_str() {
                "date" => json!({"type": "int", "logicalType": "date"}),
                "timestamp" | "timestamptz" => json!({
                    "type": "long", "logicalType": "timestamp-micros",
                    "adjust-to-utc": own.type_name == "timestamptz"}),
                name => json!(name),
            };
            optional(*id, &avro_name(&own.name), schema)
        })
        .collect();
    json!({"type": "record", "name": "r102", "fields": fields})
}

/// A name of Avro for a column: others stand for themselves as in Iceberg's library.
fn avro_name(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.chars().enumerate() {
        match c {
            c if c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit()) => {
                out.push(c)
            }
            c if c.is_ascii_digit() => out.extend(['_', c]),
            c => out.push_str(&format!("_x{:X}", c as u32)),
        }
    }
    out
}

fn entry_schema(layout: &TableLayout) -> Value {
    let file = json!({"type": "record", "name": "r2", "fields": [
        field(134, "content", json!("int")),
        field(100, "file_path", json!("string")),
        field(101, "file_format", json!("string")),
        field(102, "partition", partition_schema(layout)),
        field(103, "record_count", json!("long")),
        field(104, "file_size_in_bytes", json!("long")),
        optional(108, "column_sizes", map(117, 118, "long")),
        optional(109, "value_counts", map(119, 120, "long")),
        optional(110, "null_value_counts", map(121, 122, "long")),
        optional(125, "lower_bounds", map(126, 127, "bytes")),
        optional(128, "upper_bounds", map(129, 130, "bytes")),
        optional(135, "equality_ids", json!({"type": "array", "items": "int", "element-id": 136})),
    ]});
    json!({"type": "record", "name": "manifest_entry", "fields": [
        field(0, "status", json!("int")),
        optional(1, "snapshot_id", json!("long")),
        optional(3, "sequence_number", json!("long")),
        optional(4, "file_sequence_number", json!("long")),
        field(2, "data_file", file),
    ]})
}

/// A manifest with files that a snapshot adds: all of rows, or all of deletions.
///
/// # Errors
/// If it cannot be compressed.
pub fn manifest(
    layout: &TableLayout,
    schema: &Value,
    snapshot_id: i64,
    files: &[DataFile],
) -> Result<Vec<u8>> {
    let mut records = Records::default();
    for file in files {
        // Added; its numbers of sequence are those that the manifest gets.
        records.long(1);
        records.optional(Some(snapshot_id), Records::long);
        records.optional(None, Records::long);
        records.optional(None, Records::long);
        file.write(&mut records);
        records.end();
    }
    records.into_file(&[
        ("avro.schema", &entry_schema(layout).to_string()),
        ("schema", &schema.to_string()),
        ("schema-id", &layout.schema_id.to_string()),
        ("partition-spec", &json!(layout.spec_fields()).to_string()),
        ("partition-spec-id", &layout.spec_id.to_string()),
        ("format-version", "2"),
        ("content", if has_deletions(files) { "deletes" } else { "data" }),
    ])
}

fn has_deletions(files: &[DataFile]) -> bool {
    files.iter().any(|file| file.content != Content::Rows)
}

/// A manifest as the list of a snapshot has it.
#[derive(Clone, Debug)]
pub struct ManifestEntry {
    pub location: String,
    bytes: i64,
    spec_id: i64,
    /// It has deletions, not rows.
    pub has_deletions: bool,
    sequence_number: i64,
    min_sequence_number: i64,
    pub snapshot_id: i64,
    /// Files and rows that are added, kept and removed.
    files: [i64; 3],
    rows: [i64; 3],
    /// What is known of each field of the partition.
    partitions: Vec<Datum>,
}

fn list_schema() -> Value {
    let summary = json!({"type": "record", "name": "r508", "fields": [
        field(509, "contains_null", json!("boolean")),
        optional(518, "contains_nan", json!("boolean")),
        optional(510, "lower_bound", json!("bytes")),
        optional(511, "upper_bound", json!("bytes")),
    ]});
    let summaries = json!({"type": "array", "items": summary, "element-id": 508});
    let long = || json!("long");
    json!({"type": "record", "name": "manifest_file", "fields": [
        field(500, "manifest_path", json!("string")),
        field(501, "manifest_length", long()),
        field(502, "partition_spec_id", json!("int")),
        field(517, "content", json!("int")),
        field(515, "sequence_number", long()),
        field(516, "min_sequence_number", long()),
        field(503, "added_snapshot_id", long()),
        field(504, "added_files_count", json!("int")),
        field(505, "existing_files_count", json!("int")),
        field(506, "deleted_files_count", json!("int")),
        field(512, "added_rows_count", long()),
        field(513, "existing_rows_count", long()),
        field(514, "deleted_rows_count", long()),
        optional(507, "partitions", summaries),
    ]})
}

impl ManifestEntry {
    /// The manifest of files that a snapshot adds.
    pub fn of_added(
        (location, bytes): (String, usize),
        layout: &TableLayout,
        (snapshot_id, sequence_number): (i64, i64),
        files: &[DataFile],
    ) -> ManifestEntry {
        let rows = files.iter().map(|file| file.rows).sum();
        ManifestEntry {
            location,
            bytes: bytes as i64,
            spec_id: layout.spec_id,
            has_deletions: has_deletions(files),
            sequence_number,
            min_sequence_number: sequence_number,
            snapshot_id,
            files: [files.len() as i64, 0, 0],
            rows: [rows, 0, 0],
            partitions: (0..layout.partitioned_by.len())
                .map(|part| summary(layout, part, files))
                .collect(),
        }
    }

    fn read(record: &Datum) -> Option<ManifestEntry> {
        let long = |name: &str| record.field(name).long();
        let files = |what: &str| {
            long(&format!("{what}_files_count")).or(long(&format!("{what}_data_files_count")))
        };
        let counts = |count: &dyn Fn(&str) -> Option<i64>| {
            ["added", "existing", "deleted"].map(|what| count(what).unwrap_or_default())
        };
        let partitions = match record.field("partitions") {
            Datum::List(summaries) => summaries.clone(),
            _ => Vec::new(),
        };
        Some(ManifestEntry {
            location: record.field("manifest_path").text()?.to_owned(),
            bytes: long("manifest_length")?,
            spec_id: long("partition_spec_id")?,
            has_deletions: long("content").unwrap_or_default() != 0,
            sequence_number: long("sequence_number").unwrap_or_default(),
            min_sequence_number: long("min_sequence_number").unwrap_or_default(),
            snapshot_id: long("added_snapshot_id")?,
            files: counts(&files),
            rows: counts(&|what| long(&format!("{what}_rows_count"))),
            partitions,
        })
    }

    fn write(&self, out: &mut Records) {
        out.bytes(self.location.as_bytes());
        out.long(self.bytes);
        out.long(self.spec_id);
        out.long(self.has_deletions.into());
        out.long(self.sequence_number);
        out.long(self.min_sequence_number);
        out.long(self.snapshot_id);
        self.files.iter().chain(&self.rows).for_each(|count| out.long(*count));
        out.optional(Some(&self.partitions), |out, partitions| {
            out.list(partitions.iter(), |out, summary| {
                out.boolean(*summary.field("contains_null") == Datum::Boolean(true));
                let nan = match summary.field("contains_nan") {
                    Datum::Boolean(value) => Some(*value),
                    _ => None,
                };
                out.optional(nan, Records::boolean);
                for bound in ["lower_bound", "upper_bound"] {
                    let bound = match summary.field(bound) {
                        Datum::Bytes(bytes) => Some(bytes),
                        _ => None,
                    };
                    out.optional(bound, |out, bytes| out.bytes(bytes));
                }
            });
        });
        out.end();
    }
}

/// What is known of a field of the partitions of some files.
fn summary(layout: &TableLayout, part: usize, files: &[DataFile]) -> Datum {
    let values: BTreeSet<&Literal> =
        files.iter().filter_map(|file| file.partition.get(part)).collect();
    let type_name = layout.fields[layout.partitioned_by[part]].type_name.as_str();
    let is_int = matches!(type_name, "int" | "date");
    let bound = |literal: Option<&&Literal>| {
        literal.and_then(|literal| literal.bound(is_int)).map_or(Datum::Null, Datum::Bytes)
    };
    let others = || values.iter().filter(|value| ***value != Literal::Null);
    Datum::Record(vec![
        ("contains_null".to_owned(), Datum::Boolean(values.contains(&Literal::Null))),
        ("lower_bound".to_owned(), bound(others().next())),
        ("upper_bound".to_owned(), bound(others().next_back())),
    ])
}

/// The list of the manifests of a snapshot.
///
/// # Errors
/// If it cannot be compressed.
pub fn manifest_list(
    (id, parent): (i64, Option<i64>),
    sequence_number: i64,
    manifests: &[ManifestEntry],
) -> Result<Vec<u8>> {
    let mut records = Records::default();
    manifests.iter().for_each(|entry| entry.write(&mut records));
    records.into_file(&[
        ("avro.schema", &list_schema().to_string()),
        ("snapshot-id", &id.to_string()),
        ("parent-snapshot-id", &parent.map_or("null".to_owned(), |parent| parent.to_string())),
        ("sequence-number", &sequence_number.to_string()),
        ("format-version", "2"),
    ])
}

fn damaged(location: &str) -> Error {
    Error::data("this is no list of Iceberg's format version 2").in_file(location)
}

/// The manifests of a snapshot.
///
/// # Errors
/// If the list cannot be read.
pub fn manifests(
    place: &TablePlace,
    metadata: &Value,
    location: &str,
) -> Result<Vec<ManifestEntry>> {
    let bytes = place.read(&place.path_of(metadata, location)?)?;
    let records = read(&bytes).map_err(|error| error.in_file(location))?;
    let read = records.iter().map(ManifestEntry::read).collect::<Option<_>>();
    read.ok_or_else(|| damaged(location))
}

/// A file that a manifest lists.
#[derive(Debug)]
pub struct ListedFile {
    pub content: Content,
    pub location: String,
    /// The snapshot that has added it.
    pub snapshot_id: i64,
    /// The number of that snapshot's changes.
    pub sequence_number: i64,
    /// The partition, by the number of its specification and its values as text, which are only
    /// compared.
    pub partition: (i64, String),
    /// Of deletions by key: the numbers of its columns.
    pub equality_ids: Vec<i32>,
}

impl ListedFile {
    fn read(record: &Datum, manifest: &ManifestEntry) -> Option<ListedFile> {
        let file = record.field("data_file");
        let equality_ids = match file.field("equality_ids") {
            Datum::List(ids) => ids.as_slice(),
            _ => &[],
        };
        let id = |id: &Datum| id.long().and_then(|id| i32::try_from(id).ok());
        Some(ListedFile {
            content: Content::of_code(file.field("content").long().unwrap_or_default())?,
            location: file.field("file_path").text()?.to_owned(),
            snapshot_id: record.field("snapshot_id").long().unwrap_or(manifest.snapshot_id),
            sequence_number: (record.field("sequence_number").long())
                .unwrap_or(manifest.sequence_number),
            partition: (manifest.spec_id, format!("{:?}", file.field("partition").values())),
            equality_ids: equality_ids.iter().map(id).collect::<Option<_>>()?,
        })
    }
}

impl ManifestEntry {
    /// The files that are live.
    ///
    /// # Errors
    /// If the manifest cannot be read, or has files that are not of Parquet.
    pub fn files(&self, place: &TablePlace, metadata: &Value) -> Result<Vec<ListedFile>> {
        let bytes = place.read(&place.path_of(metadata, &self.location)?)?;
        let records = read(&bytes).map_err(|error| error.in_file(self.location.as_str()))?;
        let mut found = Vec::new();
        for record in &records {
            let file = record.field("data_file");
            // 2: it was removed.
            if record.field("status").long() == Some(2) {
                continue;
            }
            let listed = ListedFile::read(record, self).ok_or_else(|| damaged(&self.location))?;
            let format = file.field("file_format").text().unwrap_or_default();
            if !format.eq_ignore_ascii_case("parquet") {
                return Err(Error::unsupported(format!("files of {format} in a table of Iceberg"))
                    .in_file(listed.location)
                    .hint("files of Parquet can be read"));
            }
            found.push(listed);
        }
        Ok(found)
    }
}
