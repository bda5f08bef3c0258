//! A table as its connector sees it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::ArrayRef;
use chrono_tz::Tz;

use super::{AllowedTargets, Secrets};
use crate::error::Span;
use crate::inlets::RowInlets;
use crate::types::{Column, DataType, TableSchema};

/// The column in which a source says what each row does: [`crate::RowKind::code`], a TINYINT.
pub const KIND_COLUMN: &str = "$kind";

/// A table as its connector sees it.
#[derive(Clone, Debug)]
pub struct TableRequest {
    /// The table's name, for messages.
    pub table: String,
    /// The physical columns in declared order: what a record of the outside holds.
    pub schema: TableSchema,
    /// Metadata columns to append behind the physical ones: the connector's key and the column.
    pub metadata: Vec<(String, Column)>,
    /// Positions in `schema` of the columns that are needed, ascending; `None` means all. A source
    /// returns only these (and the metadata columns), and a record is still checked as a whole
    /// where the format demands it.
    pub projection: Option<Vec<usize>>,
    /// Conditions that all rows fulfil that are needed. A source may leave out rows of which it
    /// knows that they don't ([`super::Connector::leaves_rows_out`]), and need not: whoever reads
    /// filters.
    pub bounds: Vec<ColumnBound>,
    /// The `WITH` options.
    pub options: BTreeMap<String, String>,
    /// The primary key, as positions in `schema`.
    pub primary_key: Vec<usize>,
    /// True if rows that are written are updated and retracted later, each with its kind.
    pub has_updates: bool,
    /// True if a source delivers row kinds, in a last column [`KIND_COLUMN`].
    pub reads_kinds: bool,
    /// The columns by which the table is cut into partitions, as positions in `schema`.
    pub partitioned_by: Vec<usize>,
    /// The folder that relative paths start from.
    pub base_dir: PathBuf,
    /// No file outside these folders is touched.
    pub allowed_roots: Vec<PathBuf>,
    /// How many threads may decode at once, at least 1.
    pub parallelism: usize,
    /// True if the job has read the table before: what could not be read then is noted nowhere
    /// again.
    pub is_read_again: bool,
    /// The zone in which instants are shown to people.
    pub zone: Tz,
    /// What the job may keep in memory, of which one record may take a part.
    pub memory_limit_bytes: usize,
    /// What it may get at beyond files.
    pub access: Access,
}

/// `column >= value` and the like. No row fulfils it whose column is NULL.
#[derive(Clone, Debug)]
pub struct ColumnBound {
    /// The name of a physical column.
    pub column: String,
    /// True for `>=` and `>`, false for `<=` and `<`.
    pub is_lower: bool,
    /// True if the value itself fulfils it.
    pub is_inclusive: bool,
    /// The value: an array of one, of the column's type.
    pub value: ArrayRef,
}

/// What a table may get at beyond files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Where its secrets are. [`super::Options::secret`] asks them.
    pub secrets: Secrets,
    /// The hosts that it may talk to.
    pub targets: AllowedTargets,
    /// What the session says of object stores: settings such as `s3.endpoint`, by their names.
    pub stores: BTreeMap<String, String>,
    /// Whoever wrote the statements need not be whoever runs the program: they learn nothing of
    /// places that are not allowed, not even what is there, and hints name no options of a command
    /// line.
    pub is_remote: bool,
    /// Where sources take rows from the process itself; none where nothing hands them any.
    pub inlets: Option<RowInlets>,
}

impl Default for TableRequest {
    /// A table without columns or options, in UTC, without a limit of memory.
    fn default() -> Self {
        TableRequest {
            table: String::new(),
            schema: TableSchema::default(),
            metadata: Vec::new(),
            projection: None,
            bounds: Vec::new(),
            options: BTreeMap::new(),
            primary_key: Vec::new(),
            has_updates: false,
            reads_kinds: false,
            partitioned_by: Vec::new(),
            base_dir: PathBuf::new(),
            allowed_roots: Vec::new(),
            parallelism: 0,
            is_read_again: false,
            zone: Tz::UTC,
            memory_limit_bytes: usize::MAX,
            access: Access::default(),
        }
    }
}

impl TableRequest {
    /// The physical columns that are asked for, as positions in `schema`.
    pub fn wanted_columns(&self) -> Vec<usize> {
        self.projection.clone().unwrap_or_else(|| (0..self.schema.len()).collect())
    }

    /// The columns that a source delivers: the projected physical ones, then the metadata, then
    /// what each row does, if that is asked for.
    pub fn delivered(&self) -> TableSchema {
        let wanted = self.wanted_columns();
        let mut columns: Vec<Column> =
            wanted.iter().map(|&at| self.schema.columns[at].clone()).collect();
        columns.extend(self.metadata.iter().map(|(_, column)| column.clone()));
        if self.reads_kinds {
            columns.push(Column::new(KIND_COLUMN, DataType::TinyInt.not_null()));
        }
        TableSchema::new(columns)
    }

    /// The columns with their types, as text.
    pub fn columns_text(&self) -> String {
        let column = |column: &Column| format!("{} {}", column.name, column.column_type);
        self.schema.columns.iter().map(column).collect::<Vec<_>>().join(", ")
    }

    /// What decides the rows of a table that is generated: its columns, and these of its options.
    pub fn generated_by(&self, decides: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let options = self.options.iter().filter(|(name, _)| decides(name));
        let options = options.map(|(name, value)| (name.clone(), value.clone()));
        options.chain([("columns".to_owned(), self.columns_text())]).collect()
    }
}

/// A table of state in a snapshot, as SQL names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateTableRequest {
    /// A folder of snapshots, of a job or of one snapshot; or the name of a job.
    pub place: String,
    /// The identifier or the name of the operator's stage.
    pub operator: String,
    /// The table's name; `None` for the only one.
    pub table: Option<String>,
    /// The snapshot's number; `None` for the newest.
    pub number: Option<u64>,
    /// Where jobs of the session keep their snapshots, if they take any.
    pub location: Option<String>,
    /// The folder that relative paths start from.
    pub base_dir: PathBuf,
    /// No file outside these folders is touched.
    pub allowed_roots: Vec<PathBuf>,
    /// What the session may get at beyond files.
    pub access: Access,
}

/// Where a table of state is, and what it is like.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// What it is called, for messages and in plans; of no other table of state.
    pub name: String,
    /// Its columns.
    pub schema: TableSchema,
    /// The options of a table that reads just this.
    pub options: BTreeMap<String, String>,
}

/// Which changes a table takes when it is written to, or holds when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedChanges {
    /// Inserts alone: an append-only stream.
    Inserts,
    /// Also updates and deletions, by the table's primary key: without what a row was before.
    Upserts,
    /// Every kind of change.
    All,
}

/// What a job reads and writes, for [`super::Connectors::check_files`].
#[derive(Clone, Debug, Default)]
pub struct JobTables {
    /// The tables that it reads.
    pub reads: Vec<TableRequest>,
    /// The tables that it writes, and where the statement says so.
    pub writes: Vec<(TableRequest, Span)>,
    /// Where its snapshots are kept, as it was written, if it takes any.
    pub snapshots: Option<String>,
    /// The folder that a relative place of snapshots starts from.
    pub base_dir: PathBuf,
    /// No file outside these folders is touched.
    pub allowed_roots: Vec<PathBuf>,
}
