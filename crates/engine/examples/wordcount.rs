//! Word counts of the lines of a file, per window of ten lines' worth of time.
//!
//! ```text
//! cargo run --release --example wordcount [FILE]
//! ```
//! Each line gets the time of its number in seconds, so that windows have something to cut.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMillisecondArray};
use thalweg::pipeline::{Collect, MemorySource, Pipeline, Window, count};
use thalweg::{Column, DataType, Error, Result, RunOptions, TableSchema};

fn columns(text: &str) -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new(text, DataType::STRING.not_null()),
    ])
}

/// One row per line: the line's number as seconds, and its text.
fn lines(text: &str) -> Result<RecordBatch> {
    let times = text.lines().enumerate().map(|(line, _)| line as i64 * 1000);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(text.lines()));
    Ok(RecordBatch::try_new(columns("line").arrow(), vec![times, texts])?)
}

/// Splits lines into words, and says for each word which row it comes from.
fn split(batch: &RecordBatch) -> Result<(RecordBatch, Vec<u32>)> {
    let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
    let lines = batch.column(1).as_string_view();
    let (mut words, mut rows) = (Vec::new(), Vec::new());
    for row in 0..batch.num_rows() {
        let letters = |c: char| !c.is_ascii_alphabetic() && c != '\'';
        for word in lines.value(row).split(letters).filter(|word| !word.is_empty()) {
            words.push(word.to_ascii_lowercase());
            rows.push(row as u32);
        }
    }
    let word_times = rows.iter().map(|&row| times.value(row as usize));
    let word_times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(word_times));
    let words: ArrayRef = Arc::new(StringViewArray::from_iter_values(words));
    Ok((RecordBatch::try_new(columns("word").arrow(), vec![word_times, words])?, rows))
}

fn main() -> Result<()> {
    let text = match std::env::args().nth(1) {
        Some(file) => std::fs::read_to_string(&file).map_err(|e| Error::from(e).in_file(file))?,
        None => "the river runs\nand the thalweg is where the river runs fastest\n".to_owned(),
    };
    let (pipeline, counts) = (Pipeline::new(), Collect::new());
    pipeline
        .read("lines", MemorySource::new(columns("line"), vec![lines(&text)?]), columns("line"))
        .watermark("ts", 0)?
        .flat_map("split", columns("word"), split)
        .window(Window::tumbling(10_000), "ts")?
        .key_by(&["word"])?
        .aggregate(vec![count().named("n")])?
        .write("counts", counts.sink());
    let report = pipeline.run(RunOptions::default())?;

    let mut top: Vec<(i64, String)> = Vec::new();
    for batch in counts.batches() {
        let (words, counts) = (batch.column(0).as_string_view(), batch.column(1));
        let counts = counts.as_primitive::<Int64Type>();
        top.extend((0..batch.num_rows()).map(|i| (counts.value(i), words.value(i).to_owned())));
    }
    top.sort_by(|a, b| b.cmp(a));
    for (count, word) in top.iter().take(10) {
        println!("{count:6}  {word}");
    }
    eprintln!("{} lines, {} counts", report.metrics.rows_in(), counts.num_rows());
    Ok(())
}
