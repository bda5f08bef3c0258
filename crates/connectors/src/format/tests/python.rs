//! Oracles that are programs of Python.
//!
//! `THALWEG_PYTHON` names a Python that has what they need (`make test` sees to that). Without one
//! a test is skipped, and says so; with `THALWEG_SKIPS=refuse` it fails.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow_array::{Array, BinaryArray};

/// A Python that has this module.
pub fn python_with(module: &str) -> Option<PathBuf> {
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain([repository().join(".venv/bin/python")]);
    let works = |python: &PathBuf| {
        let mut check = Command::new(python);
        let check = check.args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        check.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(works);
    if found.is_none() {
        let why = format!("no Python with {module}; `make venv` installs one");
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        eprintln!("SKIPPED: {why}");
    }
    found
}

/// What an oracle answers to these bytes.
pub fn answer<A: AsRef<OsStr>>(
    python: &Path,
    script: &str,
    arguments: &[A],
    input: &[u8],
) -> Vec<u8> {
    let mut command = Command::new(python);
    command.arg(repository().join("scripts").join(script)).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
    let mut pipe = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        // It may answer before it has read all.
        scope.spawn(move || pipe.write_all(input).expect("sent"));
        child.wait_with_output().expect("an answer")
    });
    assert!(output.status.success(), "the oracle failed");
    output.stdout
}

/// What an oracle makes of each record; `None` if it cannot read it.
pub fn records<A: AsRef<OsStr>>(
    python: &Path,
    script: &str,
    arguments: &[A],
    records: &BinaryArray,
) -> BinaryArray {
    let mut input = Vec::new();
    for record in records.iter().flatten() {
        input.extend((record.len() as u32).to_be_bytes());
        input.extend_from_slice(record);
    }
    let output = answer(python, script, arguments, &input);
    let (mut rest, mut again) = (output.as_slice(), Vec::new());
    while let Some((head, body)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*head);
        let (record, next) = match length {
            u32::MAX => (None, body),
            length => {
                let (record, next) = body.split_at(length as usize);
                (Some(record), next)
            }
        };
        again.push(record);
        rest = next;
    }
    assert_eq!(again.len(), records.len());
    BinaryArray::from_iter(again)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
