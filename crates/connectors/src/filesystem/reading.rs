//! What a reader of files delivers: records, the columns of their folders, and metadata of files.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
    TimestampMillisecondArray, UInt32Array,
};
use arrow_schema::SchemaRef;
use thalweg_core::connector::SourceBatch;
use thalweg_core::{Error, Result};

use super::input_file::InputFile;
use super::position::FileMark;
use crate::format::parquet::needed::is_outside;
use crate::format::{BadDataPolicy, Format, RecordDecoder, RecordLayout};
use crate::handover::{Decoded, Emit, Task};

/// How long a record may be.
#[derive(Clone, Copy)]
pub struct RecordLimit {
    /// Bytes of a record.
    pub bytes_max: usize,
    /// A longer one is a bad record that is left out; else it fails the job.
    pub rejects: bool,
}

/// A property of the file that a column can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMetadata {
    /// `file.name`
    Name,
    /// `file.path`
    Path,
    /// `file.size`
    Size,
    /// `file.modification-time`
    ModificationTime,
    /// What the format says, in the column of this number behind those of the record.
    OfFormat(usize),
}

/// What a reader delivers; shared by all its threads.
pub struct Reading {
    /// Decodes records, and knows their columns.
    pub decoder: RecordDecoder,
    /// Which delivered columns the folder names: their places and which part of the folder.
    pub from_folder: Vec<(usize, usize)>,
    /// The metadata columns behind them.
    pub metadata: Vec<FileMetadata>,
    /// The Arrow schema of what is delivered.
    pub delivered: SchemaRef,
    /// How long a record may be.
    pub record_bytes_max: usize,
    /// How large a batch may be that is read as a whole.
    pub batch_bytes_max: usize,
    /// The size of all blocks, for tests; normally blocks grow.
    pub first_block_bytes: Option<usize>,
}

impl Reading {
    /// What the files hold.
    pub fn format(&self) -> &Format {
        self.decoder.format()
    }

    /// How long records may be, and what happens to a longer one.
    pub fn record_limit(&self) -> RecordLimit {
        let rejects = self.layout().policy == BadDataPolicy::Reject;
        RecordLimit { bytes_max: self.record_bytes_max, rejects }
    }

    /// Which columns records have.
    pub fn layout(&self) -> &RecordLayout {
        self.decoder.layout()
    }

    /// False if the folder of a file says that no row of it is needed.
    pub fn is_needed(&self, file: &InputFile) -> bool {
        let is_beyond = |&(place, part): &(usize, usize)| {
            let name = self.delivered.field(place).name();
            let mut bounds = self.layout().bounds.iter().filter(|bound| bound.column == *name);
            let value = file.partition.get(part);
            value.is_some_and(|value| bounds.any(|bound| is_outside(value, bound)))
        };
        !self.from_folder.iter().any(is_beyond)
    }

    /// Lines at the beginning of each file that hold no row.
    pub fn header_lines(&self) -> usize {
        usize::from(matches!(self.format(), Format::Csv(csv) if csv.header))
    }

    /// Adds to what was read the columns of the folder and the metadata. Row kinds stay last.
    pub fn batch(&self, records: RecordBatch, file: &InputFile) -> Result<RecordBatch> {
        let rows = records.num_rows();
        let mut columns = records.columns().to_vec();
        let kinds = if self.layout().reads_kinds { columns.pop() } else { None };
        let of_format = columns.split_off(columns.len() - self.layout().metadata.len());
        for &(place, part) in &self.from_folder {
            let value = file.partition.get(part);
            let value = value.ok_or_else(|| Error::internal("a file without its partition"))?;
            columns.insert(place, repeated(value, rows));
        }
        columns.extend(self.metadata.iter().map(|key| match key {
            FileMetadata::OfFormat(place) => of_format[*place].clone(),
            key => metadata_column(*key, file, rows),
        }));
        columns.extend(kinds);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.delivered.clone(), columns, &options)?)
    }
}

/// One value many times. Views share its text.
fn repeated(one: &ArrayRef, rows: usize) -> ArrayRef {
    let zeros = UInt32Array::from(vec![0; rows]);
    arrow_select::take::take(one, &zeros, None).expect("index 0 of one value")
}

fn metadata_column(key: FileMetadata, file: &InputFile, rows: usize) -> ArrayRef {
    let text = |text: &str| -> ArrayRef {
        let one: ArrayRef = Arc::new(StringViewArray::from_iter_values([text]));
        repeated(&one, rows)
    };
    match key {
        FileMetadata::Name => text(&file.name),
        FileMetadata::Path => {
            text(&file.path.as_ref().map_or_else(|| "-".into(), |path| path.to_string_lossy()))
        }
        FileMetadata::OfFormat(_) => unreachable!("it comes with the records"),
        FileMetadata::Size => Arc::new(Int64Array::from(vec![file.size as i64; rows])),
        FileMetadata::ModificationTime => Arc::new(
            TimestampMillisecondArray::from(vec![file.modified_ms; rows]).with_timezone("UTC"),
        ),
    }
}

/// A task that says how far a file was read, without rows.
pub fn marking(mark: FileMark, reading: &Arc<Reading>) -> Box<dyn Task> {
    Box::new(Marking { mark, reading: reading.clone() })
}

struct Marking {
    mark: FileMark,
    reading: Arc<Reading>,
}

impl Task for Marking {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let batch = RecordBatch::new_empty(self.reading.delivered.clone());
        let batch = SourceBatch::new(batch);
        // When the consumer has gone, there is nothing left to do anyway.
        let _ = emit.emit(Decoded { batch, bad: Vec::new(), end: Some(self.mark) });
        Ok(())
    }
}
