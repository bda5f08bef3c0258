//! Any bytes become rows or an error that names the file; how they are batched does not matter.
//!
//! The first byte chooses options, the rest is the file.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use thalweg_connectors::builtin;
use thalweg_core::connector::{SourcePoll, TableRequest};
use thalweg_core::{Column, ColumnType, DataType, TableSchema};

/// What came out: how many rows, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Outcome {
    rows: usize,
    error: Option<String>,
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, content)) = data.split_first() else { return };
    let folder = std::env::temp_dir().join(format!("thalweg-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    fs::write(folder.join("in.csv"), content).expect("writing the input");
    let all = read(&folder, choice, 64 * 1024);
    let few = read(&folder, choice, 3);
    // What is delivered before a bad row depends on the batch; the verdict does not.
    assert_eq!(all.error, few.error);
    if all.error.is_none() {
        assert_eq!(all.rows, few.rows);
    }
});

fn read(folder: &Path, choice: u8, rows_max: usize) -> Outcome {
    let connectors = builtin(Default::default());
    let mut outcome = Outcome { rows: 0, error: None };
    let mut source = match connectors.source(&request(folder.to_path_buf(), choice)) {
        Ok(source) => source,
        Err(error) => return Outcome { error: Some(error.to_string()), ..outcome },
    };
    if let Err(error) = source.start(Arc::new(|| {})) {
        return Outcome { error: Some(error.to_string()), ..outcome };
    }
    loop {
        match source.poll(rows_max) {
            Ok(SourcePoll::Batch(batch)) => outcome.rows += batch.batch.num_rows(),
            Ok(SourcePoll::Pending | SourcePoll::Heartbeat(..) | SourcePoll::Split(..)) => std::thread::yield_now(),
            Ok(SourcePoll::End) => break,
            Err(error) => {
                assert!(error.to_string().contains("in.csv"), "{error}");
                outcome.error = Some(error.to_string());
                break;
            }
        }
    }
    source.stop();
    outcome
}

fn request(folder: PathBuf, choice: u8) -> TableRequest {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |key: &str, value: &str| options.insert(key.to_string(), value.to_string());
    set("connector", "filesystem");
    set("format", "csv");
    set("path", "in.csv");
    let switches = [
        ("csv.header", "true"),
        ("csv.ignore-parse-errors", "true"),
        ("csv.allow-comments", "true"),
        ("csv.null-literal", ""),
        ("csv.field-delimiter", ";"),
        ("csv.escape-character", "\\"),
        ("csv.disable-quote-character", "true"),
        ("bad-data", "drop"),
    ];
    for (bit, (key, value)) in switches.iter().enumerate() {
        if choice >> bit & 1 == 1 {
            set(key, value);
        }
    }
    TableRequest {
        table: "fuzz".to_string(),
        schema: schema(),
        options,
        base_dir: folder.clone(),
        allowed_roots: vec![folder],
        parallelism: 1,
        ..TableRequest::default()
    }
}

fn schema() -> TableSchema {
    let types = [
        DataType::STRING,
        DataType::Int,
        DataType::Double,
        DataType::Decimal(10, 2),
        DataType::Timestamp(3),
        DataType::Boolean,
    ];
    let column = |(position, data_type): (usize, DataType)| {
        Column::new(format!("c{position}"), ColumnType { data_type, nullable: true })
    };
    TableSchema::new(types.into_iter().enumerate().map(column).collect())
}
