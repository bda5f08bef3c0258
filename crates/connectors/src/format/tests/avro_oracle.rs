//! fastavro reads what is written here, and what it writes is read here.
//!
//! `THALWEG_PYTHON` names a Python that has it (`make test` sees to that). Without one the test is
//! skipped, and says so; with `THALWEG_SKIPS=refuse` it fails.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow_array::{Array, BinaryArray};
use thalweg_core::shim::SplitMix64;

use super::super::avro::schema;
use super::super::*;
use super::values::{decoder, random_batch, random_schema};

#[test]
fn fastavro_reads_and_writes_the_same_records() {
    let Some(python) = python_with_fastavro() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = SplitMix64::new(5);
    for has_legacy_times in [true, false] {
        let format = Format::Avro(AvroOptions { has_legacy_times, ..AvroOptions::default() });
        for round in 0..10 {
            let columns = random_schema(&format, &mut random);
            let batch = random_batch(&columns, &mut random);
            let text = schema::text_of_record(&columns.columns, has_legacy_times);
            let file = folder.path().join("schema.json");
            std::fs::write(&file, text.expect("a schema")).expect("written");
            let encoder = TextEncoder::new(&format, columns.clone()).expect("record by record");
            let written = encoder.messages(&batch, None).expect("short");
            let again = fastavro(&python, &file, &written);
            let decoder = decoder(&format, &columns, BadDataPolicy::Fail);
            let decoded = decoder.decode(&TextBlock::messages(&again)).expect("records");
            assert_eq!(decoded.batch, batch, "round {round}");
        }
    }
}

/// The records as fastavro writes what it has read of them.
fn fastavro(python: &Path, schema: &Path, records: &BinaryArray) -> BinaryArray {
    let mut input = Vec::new();
    for record in records.iter().flatten() {
        input.extend((record.len() as u32).to_be_bytes());
        input.extend_from_slice(record);
    }
    let mut command = Command::new(python);
    command.arg(repository().join("scripts/avro_oracle.py")).arg(schema);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
    child.stdin.take().expect("a pipe").write_all(&input).expect("sent");
    let output = child.wait_with_output().expect("an answer");
    assert!(output.status.success(), "the oracle failed");
    let (mut rest, mut again) = (output.stdout.as_slice(), Vec::new());
    while let Some((head, body)) = rest.split_first_chunk::<4>() {
        let (record, next) = body.split_at(u32::from_be_bytes(*head) as usize);
        again.push(record);
        rest = next;
    }
    assert_eq!(again.len(), records.len());
    BinaryArray::from_iter_values(again)
}

fn python_with_fastavro() -> Option<PathBuf> {
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain([repository().join(".venv/bin/python")]);
    let works = |python: &PathBuf| {
        let mut check = Command::new(python);
        let check = check.args(["-c", "import fastavro"]).stderr(Stdio::null()).status();
        check.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(works);
    if found.is_none() {
        let why = "no Python with fastavro; `make venv` installs one";
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        eprintln!("SKIPPED: {why}");
    }
    found
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
