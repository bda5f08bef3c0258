//! Writing Parquet.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType as Arrow, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use thalweg_core::connector::Options;
use thalweg_core::{Error, Result};

/// Small enough that a file is read by several threads.
const ROW_GROUP_ROWS: usize = 256 << 10;

/// How files are written.
#[derive(Clone, Debug)]
pub struct ParquetOptions {
    compression: Compression,
    /// The most bytes of a row group.
    row_group_bytes: usize,
    page_bytes: usize,
    dictionary_page_bytes: usize,
    has_dictionaries: bool,
    version: WriterVersion,
    /// In which unit times are written; `None`: in the one in which their column is stored.
    time_unit: Option<TimeUnit>,
}

impl Default for ParquetOptions {
    /// What holds where no option is set.
    fn default() -> Self {
        ParquetOptions {
            compression: Compression::ZSTD(ZstdLevel::try_new(3).expect("a level that there is")),
            row_group_bytes: 128 << 20,
            page_bytes: 1 << 20,
            dictionary_page_bytes: 1 << 20,
            has_dictionaries: true,
            version: WriterVersion::PARQUET_1_0,
            time_unit: None,
        }
    }
}

impl ParquetOptions {
    /// Reads `parquet.*`.
    ///
    /// # Errors
    /// If one is wrong, or asks for what is not supported.
    pub fn read(options: &Options<'_>) -> Result<Self> {
        check_times(options)?;
        // Without effect, but a wrong one is a mistake.
        options.number::<u32>("parquet.batch-size")?;
        let level = options.number("parquet.compression.codec.zstd.level")?.unwrap_or(3);
        let level = ZstdLevel::try_new(level).map_err(|_| {
            let name = "parquet.compression.codec.zstd.level";
            options.bad(name, options.text(name).unwrap_or_default(), "1 to 22")
        })?;
        let codecs = [
            ("UNCOMPRESSED", Compression::UNCOMPRESSED),
            ("SNAPPY", Compression::SNAPPY),
            ("ZSTD", Compression::ZSTD(level)),
            ("GZIP", Compression::GZIP(GzipLevel::default())),
            ("LZ4_RAW", Compression::LZ4_RAW),
        ];
        let compression = options.choice("parquet.compression", &codecs)?;
        let versions = [
            ("PARQUET_1_0", WriterVersion::PARQUET_1_0),
            ("v1", WriterVersion::PARQUET_1_0),
            ("PARQUET_2_0", WriterVersion::PARQUET_2_0),
            ("v2", WriterVersion::PARQUET_2_0),
        ];
        let version = options.choice("parquet.writer.version", &versions)?;
        let units = [
            ("millis", TimeUnit::Millisecond),
            ("micros", TimeUnit::Microsecond),
            ("nanos", TimeUnit::Nanosecond),
        ];
        Ok(ParquetOptions {
            compression: compression.unwrap_or(Compression::ZSTD(level)),
            row_group_bytes: size(options, "parquet.block.size")?,
            page_bytes: size(options, "parquet.page.size")?,
            dictionary_page_bytes: size(options, "parquet.dictionary.page.size")?,
            has_dictionaries: options.boolean("parquet.enable.dictionary")?,
            version: version.unwrap_or(WriterVersion::PARQUET_1_0),
            time_unit: options.choice("parquet.timestamp.time.unit", &units)?,
        })
    }

    fn properties(&self) -> WriterProperties {
        WriterProperties::builder()
            .set_compression(self.compression)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_max_row_group_bytes(Some(self.row_group_bytes))
            .set_data_page_size_limit(self.page_bytes)
            .set_dictionary_page_size_limit(self.dictionary_page_bytes)
            .set_dictionary_enabled(self.has_dictionaries)
            .set_writer_version(self.version)
            .set_created_by("thalweg".to_string())
            .build()
    }
}

/// What depends on the zone of a machine is not read or written.
fn check_times(options: &Options<'_>) -> Result<()> {
    let (utc, int64) = ("parquet.utc-timezone", "parquet.write.int64.timestamp");
    let unsupported = |what: &str, name: &str| {
        Err(Error::unsupported(format!("table {}: {what}", options.table()))
            .hint(format!("remove the option, or set '{name}' = 'true'")))
    };
    if !options.boolean(utc)? {
        return unsupported("times of Parquet are not moved by the zone of this machine", utc);
    }
    if !options.boolean(int64)? {
        return unsupported("times are not written as INT96, which Parquet has given up", int64);
    }
    Ok(())
}

/// A number of bytes, which parquet-mr writes without a unit.
fn size(options: &Options<'_>, name: &str) -> Result<usize> {
    let bytes = match options.text(name).and_then(|text| text.trim().parse().ok()) {
        Some(bytes) => Some(bytes),
        None => options.bytes(name)?,
    };
    let bytes = bytes.and_then(|bytes: u64| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    let text = options.text(name).unwrap_or_default();
    bytes.ok_or_else(|| options.bad(name, text, "a number of bytes, more than 0"))
}

/// Writes batches to an output.
pub struct ParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
    /// The columns that are given, and those that are written.
    schema: SchemaRef,
    written: SchemaRef,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts an output with these columns.
    pub fn new(options: &ParquetOptions, out: W, schema: SchemaRef) -> Result<Self> {
        let written = match options.time_unit {
            None => schema.clone(),
            Some(unit) => Arc::new(Schema::new(with_unit(schema.fields(), unit))),
        };
        let writer = ArrowWriter::try_new(out, written.clone(), Some(options.properties()));
        Ok(ParquetWriter { writer: writer.map_err(failed)?, schema, written })
    }

    /// Adds rows.
    pub fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let columns = match Arc::ptr_eq(&self.schema, &self.written) {
            true => columns,
            false => {
                let fields = self.written.fields().iter();
                let columns = columns.iter().zip(fields);
                let columns = columns.map(|(column, field)| cast(column, field.data_type()));
                columns.collect::<std::result::Result<_, _>>()?
            }
        };
        let batch = RecordBatch::try_new(self.written.clone(), columns)?;
        self.writer.write(&batch).map_err(failed)
    }

    /// About how many bytes the output has.
    pub fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Writes the footer and returns the output.
    pub fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(failed)
    }
}

/// The same columns with times in this unit, also within others.
fn with_unit(fields: &Fields, unit: TimeUnit) -> Fields {
    let field = |field: &FieldRef| field_with_unit(field, unit);
    fields.iter().map(field).collect()
}

fn field_with_unit(field: &FieldRef, unit: TimeUnit) -> FieldRef {
    let data_type = match field.data_type() {
        Arrow::Timestamp(_, zone) => Arrow::Timestamp(unit, zone.clone()),
        Arrow::List(item) => Arrow::List(field_with_unit(item, unit)),
        Arrow::Map(entry, is_sorted) => Arrow::Map(field_with_unit(entry, unit), *is_sorted),
        Arrow::Struct(fields) => Arrow::Struct(with_unit(fields, unit)),
        _ => return field.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

fn failed(error: ParquetError) -> Error {
    Error::io(format!("cannot write Parquet: {error}"))
}
