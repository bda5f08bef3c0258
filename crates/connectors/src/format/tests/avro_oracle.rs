//! fastavro reads what is written here, and what it writes is read here.

use thalweg_core::shim::SplitMix64;

use super::super::avro::schema;
use super::super::*;
use super::python;
use super::values::{decoder, random_batch, random_schema};

#[test]
fn fastavro_reads_and_writes_the_same_records() {
    let Some(python) = python::python_with("fastavro") else { return };
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
            let again = python::records(&python, "avro_oracle.py", &[&file], &written);
            let decoder = decoder(&format, &columns, BadDataPolicy::Fail);
            let decoded = decoder.decode(&TextBlock::messages(&again)).expect("records");
            assert_eq!(decoded.batch, batch, "round {round}");
        }
    }
}
