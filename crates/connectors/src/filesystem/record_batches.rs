//! Cutting files of Arrow IPC and of Avro into tasks of some record batches.

use std::collections::VecDeque;
use std::io::BufReader;
use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::Result;
use thalweg_core::connector::SourceBatch;

use super::excerpt::Excerpt;
use super::identity::open_listed;
use super::input_file::{InputFile, read_error};
use super::position::{FileMark, FilePlace, Reached, RowPlace, Work};
use super::reading::{Reading, marking};
use crate::format::Format;
use crate::format::arrow::reader::ArrowFile;
use crate::format::avro::file::AvroFile;
use crate::handover::{Cut, Decoded, Emit, Splitter, Task};

/// Record batches of a task: opening the file again for each would cost more than decoding small
/// ones.
const TASK_BATCHES: usize = 8;

/// A file whose footer was read and whose columns were checked.
struct Opened {
    number: usize,
    file: Arc<InputFile>,
    /// The last bytes of the file.
    end: Excerpt,
    contents: Contents,
}

/// What is known of a file.
enum Contents {
    Arrow(ArrowFile),
    Avro(AvroFile),
}

impl Contents {
    fn batches(&self) -> usize {
        match self {
            Contents::Arrow(file) => file.batches(),
            Contents::Avro(file) => file.batches(),
        }
    }
}

/// Cuts files into record batches.
pub struct RecordBatchSplitter {
    reading: Arc<Reading>,
    files: VecDeque<Work>,
    /// The file that is open, and the next of its batches.
    open: Option<(Arc<Opened>, usize)>,
}

impl RecordBatchSplitter {
    /// Reads these files one after the other.
    pub fn new(reading: Arc<Reading>, files: Vec<Work>) -> Self {
        RecordBatchSplitter { reading, files: files.into(), open: None }
    }
}

impl Splitter for RecordBatchSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        loop {
            let Some((opened, first)) = self.open.take() else {
                let Some(work) = self.files.pop_front() else { return Ok(Cut::End) };
                self.open = (!work.is_done).then(|| open(&self.reading, &work)).transpose()?;
                continue;
            };
            if first >= opened.contents.batches() {
                let Opened { number, ref file, end, .. } = *opened;
                let place = FilePlace::Rows(RowPlace { group: first, row: 0, end });
                let mark = FileMark { number, file: file.clone(), place, reached: Reached::End };
                return Ok(Cut::Task(marking(mark, &self.reading)));
            }
            let end = opened.contents.batches().min(first + TASK_BATCHES);
            self.open = Some((opened.clone(), end));
            let reading = self.reading.clone();
            return Ok(Cut::Task(Box::new(RecordBatches { reading, opened, first, end })));
        }
    }
}

fn open(reading: &Reading, work: &Work) -> Result<(Arc<Opened>, usize)> {
    let file = &work.file;
    let label = file.label.as_ref();
    let end = Excerpt::of_end(&mut open_listed(file)?).map_err(|e| read_error(file, &e))?;
    let input = open_listed(file)?;
    let (layout, bytes_max) = (reading.layout(), reading.batch_bytes_max);
    let contents = match reading.format() {
        // Only the heads of its blocks are looked at.
        Format::Avro(_) => AvroFile::open(input, layout, bytes_max).map(Contents::Avro),
        _ => ArrowFile::open(BufReader::new(input), layout, bytes_max).map(Contents::Arrow),
    };
    let contents = contents.map_err(|e| e.in_file(label))?;
    let opened = Opened { number: work.number, file: file.clone(), end, contents };
    Ok((Arc::new(opened), work.first_row_place(end)?.group))
}

struct RecordBatches {
    reading: Arc<Reading>,
    opened: Arc<Opened>,
    first: usize,
    end: usize,
}

impl Task for RecordBatches {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Opened { number, ref file, end, ref contents } = *self.opened;
        let label = file.label.as_ref();
        let input = BufReader::new(open_listed(file)?);
        let (layout, range) = (self.reading.layout(), self.first..self.end);
        let batches: Box<dyn Iterator<Item = Result<RecordBatch>>> = match contents {
            Contents::Avro(contents) => Box::new(contents.read(input, layout, range)),
            Contents::Arrow(contents) => {
                Box::new(contents.read(input, layout, range).map_err(|e| e.in_file(label))?)
            }
        };
        for (group, batch) in (self.first..).zip(batches) {
            let batch = self.reading.batch(batch.map_err(|e| e.in_file(label))?, file)?;
            let place = FilePlace::Rows(RowPlace { group: group + 1, row: 0, end });
            let end = Some(FileMark { number, file: file.clone(), place, reached: Reached::Block });
            let batch = SourceBatch::new(batch);
            if emit.emit(Decoded { batch, bad: Vec::new(), end }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}
