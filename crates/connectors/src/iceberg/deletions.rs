//! Rows of a table that were deleted: which rows of its files are left out when it is read.
//!
//! - A place deletes one row of a file that is not newer than the deletion.
//! - A key deletes the rows of all files that are older than the deletion, in its partition, or in
//!   all where the deletions are not partitioned. NULL is equal to NULL.
//!
//! All deletions of a snapshot are read before its first row, and kept in memory as long as rows
//! are read: of each place 8 bytes, of each key once, with the newest snapshot that deletes it. A
//! table with more of them than a quarter of the job's memory limit is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchReader};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType as Arrow, Field, Schema};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, ProjectionMask};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Error, Result};

use super::manifest::{Content, ListedFile};
use super::schema::{TableField, position_fields};
use crate::filesystem::{InputFile, RowFilter};

/// A file of deletions in an object store is fetched at once, if it is no larger than this.
const FETCHED_BYTES_MAX: usize = 64 << 20;
/// About what an entry of a map costs besides the bytes of its key.
const ENTRY_BYTES: usize = 64;

/// A column by which rows are deleted.
#[derive(Clone, Debug)]
pub struct DeletionColumn {
    pub field: TableField,
    /// Its place among the columns that are read.
    pub place: usize,
}

/// The deletions of a snapshot.
pub struct Deletions {
    columns: Vec<DeletionColumn>,
    /// By file: the rows that are deleted, in order.
    places: HashMap<String, Vec<i64>>,
    by_key: BTreeMap<KeyGroup, DeletedKeys>,
    bytes: usize,
    bytes_max: usize,
}

/// Deletions by the same columns that concern the same files.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct KeyGroup {
    /// `None`: all partitions.
    partition: Option<(i64, String)>,
    ids: Vec<i32>,
}

/// Keys whose rows are deleted.
#[derive(Debug)]
struct DeletedKeys {
    columns: Vec<DeletionColumn>,
    converter: RowConverter,
    /// The sequence number of the newest deletion of each.
    newest: HashMap<Box<[u8]>, i64>,
}

impl DeletedKeys {
    fn new(columns: Vec<DeletionColumn>) -> Result<DeletedKeys> {
        let fields = columns.iter().map(|column| SortField::new(column.field.arrow.clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(DeletedKeys { columns, converter, newest: HashMap::new() })
    }

    /// Keys in the form in which they are compared.
    fn keys(&self, columns: &[ArrayRef]) -> Result<Rows> {
        let columns = columns.iter().zip(&self.columns);
        let columns = columns.map(|(column, own)| arrow_cast::cast(column, &own.field.arrow));
        Ok(self.converter.convert_columns(&columns.collect::<Result<Vec<_>, _>>()?)?)
    }

    /// Adds keys. How many bytes that takes.
    fn add(&mut self, keys: &Rows, sequence_number: i64) -> usize {
        let mut bytes = 0;
        for key in keys {
            match self.newest.get_mut(key.as_ref()) {
                Some(newest) => *newest = sequence_number.max(*newest),
                None => {
                    self.newest.insert(key.as_ref().into(), sequence_number);
                    bytes += key.as_ref().len() + ENTRY_BYTES;
                }
            }
        }
        bytes
    }
}

impl Deletions {
    /// Reads the deletions of a snapshot. `rows`: its files of rows; `columns`: those by which it
    /// deletes; `unpartitioned`: the specifications without partitions.
    ///
    /// # Errors
    /// If a file cannot be read, or there are too many.
    pub fn read(
        request: &TableRequest,
        (rows, deletions): (&[ListedFile], &[(ListedFile, InputFile)]),
        columns: Vec<DeletionColumn>,
        unpartitioned: &BTreeSet<i64>,
    ) -> Result<Deletions> {
        let bytes_max = request.memory_limit_bytes / 4;
        let (places, by_key) = (HashMap::new(), BTreeMap::new());
        let mut found = Deletions { columns, places, by_key, bytes: 0, bytes_max };
        let numbers = rows.iter().map(|file| (file.location.as_str(), file.sequence_number));
        let numbers: HashMap<&str, i64> = numbers.collect();
        for (listed, file) in deletions {
            let read = match listed.content {
                Content::PositionDeletes => found.read_places(listed, file, &numbers),
                _ => found.read_keys(listed, file, unpartitioned),
            };
            read.map_err(|error| error.about_table(&request.table).in_file(file.label.as_ref()))?;
        }
        for rows in found.places.values_mut() {
            rows.sort_unstable();
            rows.dedup();
        }
        Ok(found)
    }

    fn read_places(
        &mut self,
        listed: &ListedFile,
        file: &InputFile,
        numbers: &HashMap<&str, i64>,
    ) -> Result<()> {
        let fields = position_fields();
        for_each_batch(file, &fields.iter().collect::<Vec<_>>(), |columns| {
            let files = arrow_cast::cast(&columns[0], &Arrow::Utf8)?;
            let files = files.as_string::<i32>();
            let rows = columns[1].as_primitive_opt::<Int64Type>();
            let rows = rows.ok_or_else(|| Error::data("a place is no number"))?;
            for (file, row) in files.iter().zip(rows) {
                let (Some(file), Some(row)) = (file, row) else { continue };
                let is_older = |number: &i64| *number <= listed.sequence_number;
                if !numbers.get(file).is_some_and(is_older) {
                    continue;
                }
                self.bytes += size_of::<i64>();
                match self.places.get_mut(file) {
                    Some(rows) => rows.push(row),
                    None => drop(self.places.insert(file.to_owned(), vec![row])),
                }
            }
            self.check_size()
        })
    }

    fn read_keys(
        &mut self,
        listed: &ListedFile,
        file: &InputFile,
        unpartitioned: &BTreeSet<i64>,
    ) -> Result<()> {
        let is_global = unpartitioned.contains(&listed.partition.0);
        let partition = (!is_global).then(|| listed.partition.clone());
        let group = KeyGroup { partition, ids: listed.equality_ids.clone() };
        let column = |id: &i32| {
            let found = self.columns.iter().find(|column| column.field.id == *id);
            found.cloned().ok_or_else(|| Error::internal("a key of deletions was not looked up"))
        };
        let columns: Vec<DeletionColumn> = group.ids.iter().map(column).collect::<Result<_>>()?;
        if !self.by_key.contains_key(&group) {
            self.by_key.insert(group.clone(), DeletedKeys::new(columns.clone())?);
        }
        let fields: Vec<&TableField> = columns.iter().map(|column| &column.field).collect();
        for_each_batch(file, &fields, |columns| {
            let keys = self.by_key.get_mut(&group).expect("it was added");
            let rows = keys.keys(columns)?;
            self.bytes += keys.add(&rows, listed.sequence_number);
            self.check_size()
        })
    }

    fn check_size(&self) -> Result<()> {
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        let mib = self.bytes_max >> 20;
        Err(Error::resource(format!(
            "its deletions take more than {mib} MiB, a quarter of the memory limit"
        ))
        .hint("compact the table (rewrite_data_files), or raise the job's memory limit"))
    }

    /// Which rows of a file stay; `None`: all.
    pub fn filters(self, rows: &[ListedFile]) -> Vec<Option<Arc<dyn RowFilter>>> {
        let mut places = self.places;
        let by_key = self.by_key.into_iter();
        let by_key: Vec<_> = by_key.map(|(group, keys)| (group, Arc::new(keys))).collect();
        let filter = |file: &ListedFile| -> Option<Arc<dyn RowFilter>> {
            let concerns = |group: &KeyGroup| {
                group.partition.as_ref().is_none_or(|partition| *partition == file.partition)
            };
            let keys = by_key.iter().filter(|(group, _)| concerns(group));
            let filter = FileDeletions {
                sequence_number: file.sequence_number,
                places: places.remove(&file.location).unwrap_or_default(),
                keys: keys.map(|(_, keys)| keys.clone()).collect(),
            };
            let is_empty = filter.places.is_empty() && filter.keys.is_empty();
            (!is_empty).then(|| Arc::new(filter) as Arc<dyn RowFilter>)
        };
        rows.iter().map(filter).collect()
    }
}

/// The deletions that concern a file.
#[derive(Debug)]
struct FileDeletions {
    sequence_number: i64,
    places: Vec<i64>,
    keys: Vec<Arc<DeletedKeys>>,
}

impl RowFilter for FileDeletions {
    fn filtered(&self, first_row: u64, batch: RecordBatch) -> Result<RecordBatch> {
        let first_row = first_row as i64;
        let rows = batch.num_rows();
        let mut stays = vec![true; rows];
        let begin = self.places.partition_point(|place| *place < first_row);
        let places = self.places[begin..].iter().map(|place| (place - first_row) as usize);
        for place in places.take_while(|place| *place < rows) {
            stays[place] = false;
        }
        for deleted in &self.keys {
            let columns = deleted.columns.iter().map(|own| batch.column(own.place).clone());
            let keys = deleted.keys(&columns.collect::<Vec<_>>())?;
            for (stays, key) in stays.iter_mut().zip(&keys) {
                let newest = deleted.newest.get(key.as_ref());
                *stays &= newest.is_none_or(|newest| *newest <= self.sequence_number);
            }
        }
        match stays.iter().all(|stays| *stays) {
            true => Ok(batch),
            false => Ok(filter_record_batch(&batch, &BooleanArray::from(stays))?),
        }
    }
}

/// Reads some columns of a file, which are known by their numbers, or else by their names.
fn for_each_batch(
    file: &InputFile,
    wanted: &[&TableField],
    mut each: impl FnMut(&[ArrayRef]) -> Result<()>,
) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::io(format!("cannot read deletions: {e}"));
    let input = file.open().map_err(|e| failed(&e))?;
    let all = 0..file.size;
    input.expect(std::slice::from_ref(&all), FETCHED_BYTES_MAX).map_err(|e| failed(&e))?;
    // The embedded Arrow schema is passed over: what counts is what Parquet itself says.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(input, options);
    let builder = builder.map_err(|e| failed(&e))?;
    let find = |schema: &Schema| -> Result<Vec<usize>> {
        wanted.iter().map(|field| place_of(schema, field)).collect()
    };
    let roots = ProjectionMask::roots(builder.parquet_schema(), find(builder.schema())?);
    let batches = builder.with_projection(roots).build().map_err(|e| failed(&e))?;
    let places = find(&batches.schema())?;
    for batch in batches {
        let batch = batch.map_err(|e| failed(&e))?;
        let columns: Vec<ArrayRef> = places.iter().map(|&at| batch.column(at).clone()).collect();
        each(&columns)?;
    }
    Ok(())
}

/// Where a column is among those of a file.
fn place_of(schema: &Schema, field: &TableField) -> Result<usize> {
    let id = field.id.to_string();
    let has_id = |own: &Arc<Field>| own.metadata().get(PARQUET_FIELD_ID_META_KEY) == Some(&id);
    let found = schema.fields().iter().position(has_id);
    found
        .or_else(|| schema.index_of(&field.name).ok())
        .ok_or_else(|| Error::data(format!("a file of deletions has no column {}", field.name)))
}
