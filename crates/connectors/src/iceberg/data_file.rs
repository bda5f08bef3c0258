//! Writing a file of rows, or of what is deleted: Parquet with the numbers of its columns, and what
//! is known of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as Arrow, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use thalweg_core::{Error, Result};

use super::literal::Literal;
use super::manifest::{Content, DataFile};
use super::place::{TablePlace, failed};
use super::schema::{TableField, TableLayout, arrow_of};
use crate::filesystem::OutFile;

const ROW_GROUP_ROWS: usize = 256 << 10;
const ROW_GROUP_BYTES: usize = 128 << 20;

/// Which files' rows lie together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKind {
    pub content: Content,
    pub partition: Vec<Literal>,
}

/// A file that is being written. It is hidden until it is closed, and no reader knows of it before
/// a snapshot lists it.
pub struct DataFileWriter {
    hidden: PathBuf,
    path: PathBuf,
    /// As metadata name it.
    location: Arc<str>,
    kind: FileKind,
    fields: Vec<TableField>,
    writer: ArrowWriter<Box<dyn OutFile>>,
    rows: i64,
    pub last_used: u64,
}

impl DataFileWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(
        place: &TablePlace,
        path: PathBuf,
        fields: Vec<TableField>,
        kind: FileKind,
    ) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        place.files.create_folder(folder).map_err(|e| failed(folder, &e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{name}"));
        let file = place.files.create(&hidden).map_err(|e| failed(&hidden, &e))?;
        let level = ZstdLevel::try_new(3).expect("a level that there is");
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_created_by("thalweg".to_string())
            .build();
        let writer = ArrowWriter::try_new(file, arrow_of(&fields), Some(properties));
        let writer = writer.map_err(|e| unwritten(&path, &e))?;
        let location = place.location_of(&path).into();
        Ok(DataFileWriter { hidden, path, location, kind, fields, writer, rows: 0, last_used: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as i64;
        self.writer.write(batch).map_err(|e| unwritten(&self.path, &e))
    }

    /// About how many bytes it has.
    pub fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Where its next row will lie.
    pub fn next_place(&self) -> RowPlace {
        RowPlace { file: self.location.clone(), row: self.rows }
    }

    /// The folder that it lies in.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Ends the file: it has its name, and its bytes are durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn close(mut self, place: &TablePlace) -> Result<DataFile> {
        let metadata = self.writer.finish().map_err(|e| unwritten(&self.path, &e))?;
        let bytes = self.writer.bytes_written() as i64;
        let file = self.writer.inner_mut();
        file.sync().map_err(|e| failed(&self.path, &e))?;
        drop(self.writer);
        place.files.rename(&self.hidden, &self.path).map_err(|e| failed(&self.path, &e))?;
        let mut found = DataFile {
            content: self.kind.content,
            location: self.location.to_string(),
            partition: self.kind.partition,
            rows: self.rows,
            bytes,
            ..DataFile::default()
        };
        if found.content == Content::EqualityDeletes {
            found.equality_ids = self.fields.iter().map(|field| field.id).collect();
        }
        self.fields.iter().enumerate().for_each(|(at, field)| {
            add_column(&mut found, field, at, &metadata);
        });
        Ok(found)
    }

    /// Removes what was written, as far as that is possible.
    pub fn discard(self, place: &TablePlace) {
        drop(self.writer);
        let _ = place.files.remove(&self.hidden);
    }
}

/// Where a row lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The file as metadata name it.
    pub file: Arc<str>,
    pub row: i64,
}

fn unwritten(path: &Path, error: &ParquetError) -> Error {
    Error::io(format!("cannot write Parquet: {error}")).in_file(path.display().to_string())
}

/// Adds what is known of a column.
fn add_column(file: &mut DataFile, field: &TableField, at: usize, metadata: &ParquetMetaData) {
    let chunks: Vec<&ColumnChunkMetaData> =
        metadata.row_groups().iter().map(|group| group.column(at)).collect();
    let sum = |count: fn(&ColumnChunkMetaData) -> i64| {
        chunks.iter().map(|chunk| count(chunk)).sum::<i64>()
    };
    file.column_bytes.insert(field.id, sum(ColumnChunkMetaData::compressed_size));
    file.values.insert(field.id, sum(ColumnChunkMetaData::num_values));
    let nulls = chunks.iter().map(|chunk| Some(chunk.statistics()?.null_count_opt()? as i64));
    if let Some(nulls) = nulls.sum::<Option<i64>>() {
        file.nulls.insert(field.id, nulls);
    }
    let mut bounds: Option<(Bound, Bound)> = None;
    for chunk in &chunks {
        let Some(statistics) = chunk.statistics() else { return };
        let is_null = statistics.null_count_opt() == Some(chunk.num_values() as u64);
        match (Bound::of(statistics, &field.arrow), bounds.take()) {
            (None, kept) if is_null => bounds = kept,
            (None, _) => return,
            (Some(found), None) => bounds = Some(found),
            (Some((low, high)), Some((lowest, highest))) => {
                bounds = Some((low.min(lowest), high.max(highest)));
            }
        }
    }
    if let Some((lower, upper)) = bounds {
        file.lower.insert(field.id, lower.to_bytes(&field.arrow));
        file.upper.insert(field.id, upper.to_bytes(&field.arrow));
    }
}

/// The lowest or highest value of a column.
#[derive(Clone, Debug)]
enum Bound {
    Number(i128),
    Float(f64),
    Bytes(Vec<u8>),
}

impl Bound {
    /// Both bounds of a piece of a column; `None` where they are not known.
    fn of(statistics: &Statistics, arrow: &Arrow) -> Option<(Bound, Bound)> {
        let number = |value: i128| Bound::Number(value);
        Some(match statistics {
            Statistics::Boolean(own) => {
                (number((*own.min_opt()?).into()), number((*own.max_opt()?).into()))
            }
            Statistics::Int32(own) => {
                (number((*own.min_opt()?).into()), number((*own.max_opt()?).into()))
            }
            Statistics::Int64(own) => {
                (number((*own.min_opt()?).into()), number((*own.max_opt()?).into()))
            }
            Statistics::Float(own) => {
                (Bound::Float((*own.min_opt()?).into()), Bound::Float((*own.max_opt()?).into()))
            }
            Statistics::Double(own) => {
                (Bound::Float(*own.min_opt()?), Bound::Float(*own.max_opt()?))
            }
            Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
                let (low, high) = (statistics.min_bytes_opt()?, statistics.max_bytes_opt()?);
                match arrow {
                    Arrow::Decimal128(..) => (number(big_endian(low)), number(big_endian(high))),
                    _ => (Bound::Bytes(low.to_vec()), Bound::Bytes(high.to_vec())),
                }
            }
            Statistics::Int96(_) => return None,
        })
    }

    fn is_less(&self, other: &Bound) -> bool {
        match (self, other) {
            (Bound::Number(own), Bound::Number(other)) => own < other,
            (Bound::Float(own), Bound::Float(other)) => own < other,
            (Bound::Bytes(own), Bound::Bytes(other)) => own < other,
            _ => false,
        }
    }

    fn min(self, other: Bound) -> Bound {
        if other.is_less(&self) { other } else { self }
    }

    fn max(self, other: Bound) -> Bound {
        if self.is_less(&other) { other } else { self }
    }

    /// As Iceberg writes a single value.
    fn to_bytes(&self, arrow: &Arrow) -> Vec<u8> {
        match (self, arrow) {
            (Bound::Bytes(bytes), _) => bytes.clone(),
            (Bound::Float(value), Arrow::Float32) => (*value as f32).to_le_bytes().to_vec(),
            (Bound::Float(value), _) => value.to_le_bytes().to_vec(),
            (Bound::Number(value), Arrow::Boolean) => vec![*value as u8],
            (Bound::Number(value), Arrow::Int32 | Arrow::Date32) => {
                (*value as i32).to_le_bytes().to_vec()
            }
            (Bound::Number(value), Arrow::Decimal128(..)) => shortest(*value),
            (Bound::Number(value), _) => (*value as i64).to_le_bytes().to_vec(),
        }
    }
}

fn big_endian(bytes: &[u8]) -> i128 {
    let sign = bytes.first().map_or(0, |first| if first & 0x80 == 0 { 0 } else { -1 });
    bytes.iter().fold(sign, |value, byte| (value << 8) | i128::from(*byte))
}

/// A number in as few bytes as hold it, the highest first.
fn shortest(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let is_needless = |pair: &[u8]| match pair[0] {
        0 => pair[1] & 0x80 == 0,
        0xFF => pair[1] & 0x80 != 0,
        _ => false,
    };
    let needless = bytes.windows(2).take_while(|pair| is_needless(pair)).count();
    bytes[needless..].to_vec()
}

/// The folder of a partition, below that of the rows.
pub fn partition_folder(layout: &TableLayout, partition: &[Literal]) -> String {
    let parts = layout.partitioned_by.iter().zip(partition);
    let names = parts.map(|(&at, value)| {
        let name = Literal::Text(layout.fields[at].name.clone()).folder();
        format!("{name}={}", value.folder())
    });
    names.collect::<Vec<_>>().join("/")
}

/// The columns of rows as they are written.
///
/// # Errors
/// If a value does not fit, which the types rule out.
pub fn converted(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => arrow_cast::cast(column, field.data_type()),
    });
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_as_few_bytes_as_hold_them() {
        let values = [0, 1, -1, 127, 128, -128, -129, 255, 256, i128::from(i64::MAX), i128::MIN];
        for value in values {
            let bytes = shortest(value);
            assert_eq!(big_endian(&bytes), value);
            let is_short = bytes.len() == 1 || big_endian(&bytes[1..]) != value;
            assert!(is_short, "{value}: {bytes:?}");
        }
        assert_eq!(shortest(128), [0, 128]);
        assert_eq!(shortest(-128), [128]);
    }
}
