//! Reading Parquet: columns are checked against the declaration once per file, and then any row
//! group can be read.

use arrow_array::RecordBatch;
use arrow_schema::{DataType as Arrow, Fields, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Type as PhysicalType};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use std::ops::Range;
use std::sync::Arc;
use thalweg_core::{Error, Result};

use super::needed::needed_groups;
use super::types::with_views;
use crate::format::bad_data::DecodeError;
use crate::format::columns::FileColumns;
use crate::format::records::RecordLayout;

/// A Parquet file whose footer was read and whose columns were checked. It keeps no handle: each
/// row group is read through one of its own, so that several threads can.
pub struct ParquetFile {
    metadata: ArrowReaderMetadata,
    projection: ProjectionMask,
    columns: FileColumns,
    /// For each row group, whether it may hold rows that are needed.
    needed: Vec<bool>,
}

impl ParquetFile {
    /// Reads the footer.
    ///
    /// # Errors
    /// If it is damaged, a column is missing or of another type, or the compression is not read.
    pub fn open(input: &impl ChunkReader, layout: &RecordLayout) -> Result<ParquetFile> {
        // The embedded Arrow schema is passed over: what counts is what Parquet itself says.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata =
            ArrowReaderMetadata::load(input, options.clone()).map_err(|e| damaged(&e))?;
        let schema = Arc::new(read_schema(&metadata, layout));
        let options = options.with_schema(schema);
        let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options);
        let metadata = metadata.map_err(|e| damaged(&e))?;
        let columns = FileColumns::find(layout, metadata.schema().fields(), "file")?;
        check_compression(&metadata)?;
        let roots = metadata.metadata().file_metadata().schema_descr();
        let projection = ProjectionMask::roots(roots, columns.in_file().iter().copied());
        let needed = needed_groups(&metadata, layout);
        Ok(ParquetFile { metadata, projection, columns, needed })
    }

    /// How many rows a group has; `None` behind the last one.
    pub fn group_rows(&self, group: usize) -> Option<u64> {
        let groups = self.metadata.metadata().row_groups();
        groups.get(group).map(|group| group.num_rows() as u64)
    }

    /// False if no row of a group is needed.
    pub fn is_needed(&self, group: usize) -> bool {
        self.needed[group]
    }

    /// Where the columns of a group lie that are read.
    pub fn group_ranges(&self, group: usize) -> Vec<Range<u64>> {
        let group = self.metadata.metadata().row_group(group);
        let columns = group.columns().iter().enumerate();
        let read = columns.filter(|(leaf, _)| self.projection.leaf_included(*leaf));
        let range = |column: &ColumnChunkMetaData| {
            let (start, length) = column.byte_range();
            start..start + length
        };
        read.map(|(_, column)| range(column)).collect()
    }

    /// Reads the rows of a group behind its first `passed` ones.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn read_group<'f>(
        &'f self,
        input: impl ChunkReader + 'static,
        layout: &'f RecordLayout,
        group: usize,
        passed: u64,
        batch_rows: usize,
    ) -> Result<RowGroupBatches<'f>> {
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(input, self.metadata.clone())
                .with_row_groups(vec![group])
                .with_projection(self.projection.clone())
                .with_batch_size(batch_rows)
                .with_offset(usize::try_from(passed).unwrap_or(usize::MAX))
                .build()
                .map_err(|e| damaged(&e))?;
        Ok(RowGroupBatches { reader, file: self, layout, row: passed })
    }
}

/// The batches of a row group. Errors have the row in the group, from 0.
pub struct RowGroupBatches<'f> {
    reader: ParquetRecordBatchReader,
    file: &'f ParquetFile,
    layout: &'f RecordLayout,
    row: u64,
}

impl Iterator for RowGroupBatches<'_> {
    type Item = Result<RecordBatch, DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(damaged(&error).into())),
        };
        let first_row = self.row;
        self.row += batch.num_rows() as u64;
        let delivered = self.file.columns.delivered(self.layout, &batch);
        Some(delivered.map_err(|error| DecodeError {
            number: error.number.map(|row| first_row + row),
            ..error
        }))
    }
}

/// The schema with which a file is read: strings as views, and times of INT96, which has room for
/// 5,000 years in nanoseconds, in the unit in which the column has room for them, too.
fn read_schema(metadata: &ArrowReaderMetadata, layout: &RecordLayout) -> Schema {
    let roots = metadata.metadata().file_metadata().schema_descr().root_schema().get_fields();
    let schema = with_views(metadata.schema());
    let fields = schema.fields().iter().zip(roots).map(|(field, root)| {
        let is_int96 = root.is_primitive() && root.get_physical_type() == PhysicalType::INT96;
        let declared = layout.schema.columns.iter().find(|column| column.name == *field.name());
        match declared.filter(|_| is_int96).map(|column| column.column_type.data_type.arrow()) {
            Some(Arrow::Timestamp(unit, _)) => {
                Arc::new(field.as_ref().clone().with_data_type(Arrow::Timestamp(unit, None)))
            }
            _ => field.clone(),
        }
    });
    Schema::new(fields.collect::<Fields>())
}

/// Refuses what cannot be decompressed, before any row is read.
fn check_compression(metadata: &ArrowReaderMetadata) -> Result<()> {
    let groups = metadata.metadata().row_groups().iter();
    let unfit = groups.flat_map(RowGroupMetaData::columns).find(|column| {
        !matches!(
            column.compression(),
            Compression::UNCOMPRESSED
                | Compression::SNAPPY
                | Compression::ZSTD(_)
                | Compression::GZIP(_)
                | Compression::LZ4
                | Compression::LZ4_RAW
        )
    });
    let Some(column) = unfit else { return Ok(()) };
    let codec = column.compression().to_string();
    let codec = codec.split('(').next().unwrap_or_default().to_owned();
    let path = column.column_path().string();
    Err(Error::unsupported(format!("column {path} is compressed with {codec}")).hint(
        "write the file with Zstandard, Snappy, GZIP or LZ4, or not compressed; these are read",
    ))
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::data(format!("not a readable Parquet file: {error}"))
        .hint("check that the file is complete and that 'format' is right")
}
