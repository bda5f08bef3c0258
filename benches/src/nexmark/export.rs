//! Writes the events to files for programs in other languages, so that they read the very same
//! rows.
//!
//! A file `TABLE.columns` holds all columns of one table. Numbers are big-endian, as Java reads
//! them:
//!
//! | part | what |
//! |---|---|
//! | head | u32: columns; of each: u16 and that many bytes of its name, one byte of type (`l` BIGINT, `t` TIMESTAMP(3), `s` VARCHAR) |
//! | batch, any number | u32: rows; of each column: u32 and that many bytes of values |
//! | end | u32: 0 |
//!
//! A value is an i64 (a time: milliseconds since 1970), or u32 and that many bytes of UTF-8. NULL
//! can't be written; events have none.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use thalweg::bench::{BenchOptions, Benchmark, Preset, Query, find};

/// A folder with the events in files. It is removed in the end.
pub struct Exported(PathBuf);

impl Exported {
    /// Writes all events: persons, auctions and bids.
    pub fn new(options: &BenchOptions) -> Exported {
        let folder = std::env::temp_dir().join(format!("thalweg-events-{}", std::process::id()));
        let exported = Exported(folder);
        let written = std::fs::create_dir_all(exported.path()).and_then(|()| {
            ["person", "auction", "bid"]
                .iter()
                .try_for_each(|table| write(exported.path(), table, &events(table, options)))
        });
        written.unwrap_or_else(|error| panic!("{}: {error}", exported.path().display()));
        exported
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // What stays behind lies where the system cleans up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The rows of a table as the engine reads them, all columns.
fn events(table: &str, options: &BenchOptions) -> Vec<RecordBatch> {
    let all = find(Preset::Nexmark, "q23").unwrap_or_else(|error| panic!("{error}"));
    let (declarations, _) = all.text.split_once("SELECT").expect("q23 declares all tables");
    let text = format!("{declarations} SELECT * FROM {table};");
    // The text of a query lives as long as the program. There are three.
    let query = Query { name: "export", text: text.leak() };
    let benchmark = Benchmark::new(&query, options);
    let mut benchmark = benchmark.unwrap_or_else(|error| panic!("{table}: {error}"));
    benchmark.run(&mut |_| {}).unwrap_or_else(|error| panic!("{table}: {error}"));
    benchmark.inputs()[0].batches.clone()
}

fn write(folder: &Path, table: &str, batches: &[RecordBatch]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(folder.join(format!("{table}.columns")))?);
    let schema = batches.first().expect("there are events of each kind").schema();
    write_length(&mut file, schema.fields().len())?;
    for field in schema.fields() {
        file.write_all(&(field.name().len() as u16).to_be_bytes())?;
        file.write_all(field.name().as_bytes())?;
        file.write_all(&[letter(field.data_type())?])?;
    }
    let mut values = Vec::new();
    for batch in batches {
        write_length(&mut file, batch.num_rows())?;
        for column in batch.columns() {
            values.clear();
            encode(column, &mut values)?;
            write_length(&mut file, values.len())?;
            file.write_all(&values)?;
        }
    }
    write_length(&mut file, 0)?;
    file.flush()
}

fn write_length(file: &mut impl Write, length: usize) -> io::Result<()> {
    let length = u32::try_from(length).map_err(io::Error::other)?;
    file.write_all(&length.to_be_bytes())
}

fn letter(data_type: &DataType) -> io::Result<u8> {
    Ok(match data_type {
        DataType::Int64 => b'l',
        DataType::Timestamp(..) => b't',
        DataType::Utf8View => b's',
        other => return Err(io::Error::other(format!("events have no {other}"))),
    })
}

fn encode(column: &ArrayRef, values: &mut Vec<u8>) -> io::Result<()> {
    if column.null_count() > 0 {
        return Err(io::Error::other("a column has NULL"));
    }
    let longs = |longs: &[i64], values: &mut Vec<u8>| {
        longs.iter().for_each(|long| values.extend_from_slice(&long.to_be_bytes()));
    };
    match letter(column.data_type())? {
        b'l' => longs(column.as_primitive::<Int64Type>().values(), values),
        b't' => longs(column.as_primitive::<TimestampMillisecondType>().values(), values),
        _ => {
            for text in column.as_string_view().iter().flatten() {
                write_length(values, text.len())?;
                values.extend_from_slice(text.as_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_its_file() {
        let options =
            BenchOptions { events: 1000, preset: Preset::Nexmark, ..BenchOptions::default() };
        let exported = Exported::new(&options);
        let person = std::fs::read(exported.path().join("person.columns")).expect("it is there");
        assert_eq!(&person[..8], b"\0\0\0\x08\0\x02id", "eight columns, the first is id");
        let rows = u32::from_be_bytes(person[person.len() - 4..].try_into().expect("four bytes"));
        assert_eq!(rows, 0, "the end");
        // 46 of 50 events are bids: the only batch begins behind the head.
        let bid = std::fs::read(exported.path().join("bid.columns")).expect("it is there");
        let names = ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"];
        let head = 4 + names.iter().map(|name| name.len() + 3).sum::<usize>();
        assert_eq!(bid[head..head + 4], 920_u32.to_be_bytes(), "bids");
        assert_eq!(bid[head + 4..head + 8], (920_u32 * 8).to_be_bytes(), "bytes of auction");
        let folder = exported.path().to_owned();
        drop(exported);
        assert!(!folder.exists(), "it cleans up");
    }
}
