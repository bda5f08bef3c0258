//! Cutting files of Parquet into row groups and those of ORC into stripes: one is a task.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::Result;
use thalweg_core::connector::{Origin, SourceBatch};

use super::excerpt::Excerpt;
use super::identity::open_listed;
use super::input_file::{InputFile, read_error};
use super::input_handle::InputHandle;
use super::position::{FileMark, FilePlace, Reached, RowPlace, Work};
use super::reading::{Reading, marking};
use super::record_batches::RecordBatchSplitter;
#[cfg(feature = "orc")]
use crate::format::orc::OrcFile;
use crate::format::parquet::reader::ParquetFile;
use crate::format::{DecodeError, Format, RecordLayout};
use crate::handover::{Cut, Decoded, Emit, Splitter, Task};

/// Cuts files that hold rows in groups.
pub fn rows_of(reading: &Arc<Reading>, work: Vec<Work>) -> Box<dyn Splitter> {
    match reading.format() {
        Format::Arrow | Format::Avro(_) => {
            Box::new(RecordBatchSplitter::new(reading.clone(), work))
        }
        _ => Box::new(RowGroupSplitter::new(reading.clone(), work)),
    }
}

/// The first batches are small, so that first results appear at once.
const FIRST_BATCH_ROWS: usize = 4 << 10;
const BATCH_ROWS: usize = 32 << 10;
/// What is wanted of a group in an object store is fetched at once, if it is no more than this.
const FETCHED_BYTES_MAX: usize = 64 << 20;

/// A file whose footer was read and whose columns were checked.
struct Opened {
    number: usize,
    file: Arc<InputFile>,
    /// The last bytes of the file.
    end: Excerpt,
    /// False if its folder says that no row of it is needed.
    is_needed: bool,
    contents: Contents,
}

/// What is known of a file. A stripe of ORC is a row group.
enum Contents {
    Parquet(ParquetFile),
    #[cfg(feature = "orc")]
    Orc(OrcFile),
}

/// The batches of a row group. Errors have the row in the group, from 0.
type Batches<'f> = Box<dyn Iterator<Item = std::result::Result<RecordBatch, DecodeError>> + 'f>;

impl Contents {
    fn open(file: InputHandle, reading: &Reading) -> Result<Contents> {
        match reading.format() {
            #[cfg(feature = "orc")]
            Format::Orc => OrcFile::open(file, reading.layout()).map(Contents::Orc),
            _ => ParquetFile::open(&file, reading.layout()).map(Contents::Parquet),
        }
    }

    fn group_rows(&self, group: usize) -> Option<u64> {
        match self {
            Contents::Parquet(file) => file.group_rows(group),
            #[cfg(feature = "orc")]
            Contents::Orc(file) => file.group_rows(group),
        }
    }

    /// False if no row of a group is needed.
    fn is_needed(&self, group: usize) -> bool {
        match self {
            Contents::Parquet(file) => file.is_needed(group),
            #[cfg(feature = "orc")]
            Contents::Orc(_) => true,
        }
    }

    /// Where the columns of a group lie that are read, where that is known before they are.
    fn group_ranges(&self, group: usize) -> Vec<Range<u64>> {
        match self {
            Contents::Parquet(file) => file.group_ranges(group),
            #[cfg(feature = "orc")]
            Contents::Orc(_) => Vec::new(),
        }
    }

    /// Reads the rows of a group behind its first `passed` ones.
    fn read_group<'f>(
        &'f self,
        input: InputHandle,
        layout: &'f RecordLayout,
        (group, passed): (usize, u64),
        batch_rows: usize,
    ) -> Result<Batches<'f>> {
        Ok(match self {
            Contents::Parquet(file) => {
                Box::new(file.read_group(input, layout, group, passed, batch_rows)?)
            }
            #[cfg(feature = "orc")]
            Contents::Orc(file) => {
                Box::new(file.read_group(input, layout, group, passed, batch_rows)?)
            }
        })
    }
}

/// Cuts files into row groups.
pub struct RowGroupSplitter {
    reading: Arc<Reading>,
    files: VecDeque<Work>,
    open: Option<Remaining>,
    is_first: bool,
}

/// What is left of a file.
struct Remaining {
    opened: Arc<Opened>,
    group: usize,
    /// The number in the file of the group's first row, from 1.
    first_row: u64,
    /// Rows of the group that were read before.
    passed: u64,
}

impl RowGroupSplitter {
    /// Reads these files one after the other.
    pub fn new(reading: Arc<Reading>, files: Vec<Work>) -> Self {
        RowGroupSplitter { reading, files: files.into(), open: None, is_first: true }
    }
}

impl Splitter for RowGroupSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        loop {
            let Some(remaining) = self.open.take() else {
                let Some(work) = self.files.pop_front() else { return Ok(Cut::End) };
                self.open = (!work.is_done).then(|| open(&self.reading, &work)).transpose()?;
                continue;
            };
            let Remaining { opened, group, first_row, passed } = remaining;
            let Some(rows) = opened.contents.group_rows(group) else {
                let Opened { number, ref file, end, .. } = *opened;
                let place = FilePlace::Rows(RowPlace { group, row: 0, end });
                let mark = FileMark { number, file: file.clone(), place, reached: Reached::End };
                return Ok(Cut::Task(marking(mark, &self.reading)));
            };
            self.open = Some(Remaining {
                opened: opened.clone(),
                group: group + 1,
                first_row: first_row + rows,
                passed: 0,
            });
            if !opened.is_needed || !opened.contents.is_needed(group) {
                continue;
            }
            let is_first = std::mem::take(&mut self.is_first);
            let batch_rows = if is_first { FIRST_BATCH_ROWS } else { BATCH_ROWS };
            let reading = self.reading.clone();
            let task = RowGroup { reading, opened, group, first_row, passed, batch_rows };
            return Ok(Cut::Task(Box::new(task)));
        }
    }
}

fn open(reading: &Reading, work: &Work) -> Result<Remaining> {
    let file = &work.file;
    let check = || -> Result<Opened> {
        let mut handle = open_listed(file)?;
        let end = Excerpt::of_end(&mut handle).map_err(|e| read_error(file, &e))?;
        let contents = Contents::open(handle, reading)?;
        let is_needed = reading.is_needed(file);
        Ok(Opened { number: work.number, file: file.clone(), end, is_needed, contents })
    };
    let opened = check().map_err(|error| error.in_file(file.label.as_ref()))?;
    let at = work.first_row_place(opened.end)?;
    let before = (0..at.group).map_while(|group| opened.contents.group_rows(group));
    let first_row = 1 + before.sum::<u64>();
    Ok(Remaining { opened: Arc::new(opened), group: at.group, first_row, passed: at.row })
}

struct RowGroup {
    reading: Arc<Reading>,
    opened: Arc<Opened>,
    group: usize,
    first_row: u64,
    passed: u64,
    batch_rows: usize,
}

impl Task for RowGroup {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Opened { file, contents, .. } = self.opened.as_ref();
        let label = file.label.as_ref();
        let input = open_listed(file)?;
        input
            .expect(&contents.group_ranges(self.group), FETCHED_BYTES_MAX)
            .map_err(|e| read_error(file, &e))?;
        let batches = contents
            .read_group(input, self.reading.layout(), (self.group, self.passed), self.batch_rows)
            .map_err(|error| error.in_file(label))?;
        let mut row = self.passed;
        for batch in batches {
            let batch = batch.map_err(|error| {
                let number = error.number.map(|row| self.first_row + row);
                DecodeError { number, ..error }.in_input(label)
            })?;
            let batch = self.reading.batch(batch, file)?;
            let (first_row, rows) = (self.first_row + row, batch.num_rows());
            row += rows as u64;
            let batch = match &file.filter {
                None => batch,
                Some(filter) => filter.filtered(first_row - 1, batch)?,
            };
            // What is left of them lies in no one place.
            let is_whole = batch.num_rows() == rows;
            let origin = is_whole.then(|| Origin { file: file.label.clone(), first_row });
            let batch = SourceBatch { origin, ..SourceBatch::new(batch) };
            if emit.emit(Decoded { batch, bad: Vec::new(), end: Some(self.mark(row)) }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl RowGroup {
    /// The mark behind this many rows of the group.
    fn mark(&self, row: u64) -> FileMark {
        let Opened { number, ref file, end, .. } = *self.opened;
        let place = FilePlace::Rows(RowPlace { group: self.group, row, end });
        FileMark { number, file: file.clone(), place, reached: Reached::Block }
    }
}
