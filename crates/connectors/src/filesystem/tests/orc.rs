//! Files of ORC that pyarrow has written: the same rows are read of them, from every position.

use std::fs;

use thalweg_core::shim::SplitMix64;

use super::*;
use crate::conformance::check_replayable;
use crate::format::tests::python;

/// The columns that the oracle writes.
fn columns() -> TableSchema {
    let nullable = |data_type: DataType| Box::new(data_type.nullable());
    schema(&[
        ("b", DataType::Boolean),
        ("t", DataType::TinyInt),
        ("s", DataType::SmallInt),
        ("i", DataType::Int),
        ("l", DataType::BigInt),
        ("f", DataType::Float),
        ("d", DataType::Double),
        ("str", DataType::STRING),
        ("bin", DataType::BYTES),
        ("dec", DataType::Decimal(12, 3)),
        ("day", DataType::Date),
        ("ts", DataType::Timestamp(6)),
        ("lz", DataType::TimestampLtz(6)),
        ("arr", DataType::Array(nullable(DataType::Int))),
        ("m", DataType::Map(Box::new(DataType::STRING.not_null()), nullable(DataType::BigInt))),
        (
            "r",
            DataType::Row(vec![
                Column::new("x", DataType::Int.nullable()),
                Column::new("y", DataType::STRING.nullable()),
            ]),
        ),
    ])
}

/// Writes `in.orc` and `in.json`.
fn write(python: &Path, dir: &Path, seed: u64, rows: usize, compression: &str) {
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (seed, rows) = (seed.to_string(), rows.to_string());
    let arguments = [path("in.orc"), path("in.json"), seed, rows, compression.to_owned()];
    python::answer(python, "orc_oracle.py", &arguments, b"");
}

#[test]
fn rows_that_pyarrow_has_written_are_read_whatever_is_wanted_of_them() {
    let Some(python) = python::python_with("pyarrow.orc") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let codecs = ["uncompressed", "snappy", "zlib", "zstd", "lz4"];
    for (seed, codec) in (1..).zip(codecs) {
        write(&python, dir.path(), seed, 700, codec);
        let mut orc = request(dir.path(), columns(), &[("path", "in.orc"), ("format", "orc")]);
        let mut json = request(dir.path(), columns(), &[("path", "in.json"), ("format", "json")]);
        let expected = read(&json).expect("lines");
        assert_eq!(expected.len(), 700);
        assert_eq!(read(&orc).unwrap_or_else(|e| panic!("{codec}: {e}")), expected, "{codec}");
        (orc.projection, json.projection) = (Some(vec![3, 7, 15]), Some(vec![3, 7, 15]));
        assert_eq!(read(&orc).expect("some columns"), read(&json).expect("some columns"));
        orc.projection = Some(Vec::new());
        assert_eq!(read(&orc).expect("no column").len(), 700);
    }
}

#[test]
fn files_of_orc_resume_from_every_position_and_damaged_ones_are_errors() {
    let Some(python) = python::python_with("pyarrow.orc") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    write(&python, dir.path(), 9, 500, "uncompressed");
    let options = [("path", "in.orc"), ("format", "orc")];
    let mut whole = request(dir.path(), columns(), &options);
    whole.projection = Some(vec![4, 13]);
    check_replayable(&|| Ok(Box::new(open_source(&whole, None)?) as Box<dyn Source>), 12)
        .expect("readable");
    let wrong = request(dir.path(), schema(&[("l", DataType::Int)]), &options);
    let error = read(&wrong).expect_err("narrower");
    assert!(error.message().contains("column l is BIGINT in the file"), "{error}");
    write(&python, dir.path(), 9, 500, "zlib");
    let bytes = fs::read(dir.path().join("in.orc")).expect("bytes");
    let mut random = SplitMix64::new(4);
    for round in 0..60 {
        let mut damaged = bytes.clone();
        let at = random.below(damaged.len() as u64) as usize;
        match round % 3 {
            0 => damaged.truncate(at),
            // The footer says where all the rest is.
            1 => {
                let end = damaged.len();
                damaged[end - 1 - at % 300] = random.next_u64() as u8;
            }
            _ => damaged[at] = random.next_u64() as u8,
        }
        fs::write(dir.path().join("in.orc"), damaged).expect("written");
        if let Err(error) = read(&request(dir.path(), columns(), &options)) {
            assert_ne!(error.kind(), thalweg_core::ErrorKind::Internal, "{error}");
        }
    }
}
