//! Reading Arrow IPC files: a task is some record batches, columns are checked once per file.
//!
//! How many rows a batch has is known only when it is read, so rows have no numbers here and errors name the
//! file alone.

use std::collections::VecDeque;
use std::io::BufReader;
use std::sync::Arc;

use arrow_ipc::reader::FileReader;
use arrow_schema::ArrowError;
use thalweg_core::connector::SourceBatch;
use thalweg_core::{Error, Result};

use crate::filesystem::columns::FileColumns;
use crate::filesystem::identity::open_listed;
use crate::filesystem::paths::InputFile;
use crate::filesystem::position::{Excerpt, Mark, Place, Reached, RowPlace, Work};
use crate::filesystem::source::{Reading, marking};
use crate::handover::{Cut, Decoded, Emit, Splitter, Task};

/// Record batches of a task: opening the file anew for each would cost more than small ones are worth.
const TASK_BATCHES: usize = 8;

/// A file whose footer was read and whose columns were checked.
struct Opened {
    number: usize,
    file: Arc<InputFile>,
    /// The last bytes of the file.
    end: Excerpt,
    columns: FileColumns,
    batches: usize,
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
            if first >= opened.batches {
                let Opened { number, ref file, end, .. } = *opened;
                let place = Place::Rows(RowPlace { group: first, row: 0, end });
                let mark = Mark { number, file: file.clone(), place, reached: Reached::End };
                return Ok(Cut::Task(marking(mark, &self.reading)));
            }
            let end = opened.batches.min(first + TASK_BATCHES);
            self.open = Some((opened.clone(), end));
            let reading = self.reading.clone();
            return Ok(Cut::Task(Box::new(RecordBatches { reading, opened, first, end })));
        }
    }
}

fn open(reading: &Reading, work: &Work) -> Result<(Arc<Opened>, usize)> {
    let file = &work.file;
    let label = file.label.as_ref();
    let cannot_read = |e: std::io::Error| Error::io(format!("cannot read: {e}")).in_file(label);
    let end = Excerpt::of_end(&mut open_listed(file)?).map_err(cannot_read)?;
    let reader = FileReader::try_new(BufReader::new(open_listed(file)?), None);
    let reader = reader.map_err(|e| damaged(&e, label))?;
    let columns = FileColumns::find(reading, reader.schema().fields());
    let columns = columns.map_err(|e| e.in_file(label))?;
    let batches = reader.num_batches();
    let opened = Opened { number: work.number, file: file.clone(), end, columns, batches };
    Ok((Arc::new(opened), work.first_row_place(end)?.group))
}

fn damaged(error: &ArrowError, label: &str) -> Error {
    Error::data(format!("not a readable Arrow IPC file: {error}"))
        .in_file(label)
        .hint("check that the file is complete, is no stream, and is not compressed with LZ4")
}

struct RecordBatches {
    reading: Arc<Reading>,
    opened: Arc<Opened>,
    first: usize,
    end: usize,
}

impl Task for RecordBatches {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Opened { number, ref file, end, ref columns, .. } = *self.opened;
        let label = file.label.as_ref();
        let told = |e: ArrowError| damaged(&e, label);
        let projection = Some(columns.in_file().to_vec());
        let mut reader =
            FileReader::try_new(BufReader::new(open_listed(file)?), projection).map_err(told)?;
        reader.set_index(self.first).map_err(told)?;
        for group in self.first..self.end {
            let Some(batch) = reader.next() else { break };
            let batch = batch.map_err(told)?;
            let batch = columns.delivered(&self.reading, file, &batch);
            let batch = batch.map_err(|(e, _)| e.in_file(label))?;
            let place = Place::Rows(RowPlace { group: group + 1, row: 0, end });
            let end = Some(Mark { number, file: file.clone(), place, reached: Reached::Block });
            let batch = SourceBatch { batch, origin: None };
            if emit.emit(Decoded { batch, bad: Vec::new(), end }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}
