//! Tables as the planner sees them: every column typed, computed columns and the watermark bound.
//!
//! The binder makes them of definitions; the logical plan scans them, and lowering hands them to
//! connectors.
//!
//! Two kinds of position, which must not be mixed:
//!
//! ```text
//! CREATE TABLE t (a INT, p AS PROCTIME(), f STRING METADATA, b INT, PRIMARY KEY (b) …)
//!
//! declared:  a = 0, p = 1, f = 2, b = 3     scans, computed columns, the watermark
//! physical:  a = 0, b = 1                   primary_key = [1], partitioned_by, connectors, sinks
//! ```
//!
//! A row that is written has the physical columns. A row that is read has the declared ones that
//! are needed.

use std::collections::BTreeMap;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{Column, ColumnType, Error, Span, TableSchema};
use thalweg_expr::Expr;

use crate::ast::{CreateTable, Name, TableColumn};
use crate::logical::{Field, TimeAttribute};

/// A table with typed columns.
#[derive(Debug)]
pub struct ResolvedTable {
    /// Its name.
    pub name: String,
    /// The declared columns in order.
    pub columns: Vec<ResolvedColumn>,
    /// The declared watermark.
    pub watermark: Option<ResolvedWatermark>,
    /// The `WITH` options.
    pub options: BTreeMap<String, String>,
    /// Where its definition stands.
    pub spans: TableSpans,
    /// The primary key, as positions among the physical columns.
    pub primary_key: Vec<usize>,
    /// The columns of `PARTITIONED BY`, as positions among the physical columns.
    pub partitioned_by: Vec<usize>,
    /// What reading it is like, as far as its connector knows.
    pub reading: Reading,
}

/// Where the parts of a definition stand in the text; empty for a table that no text defines.
/// Keyed by name, since connectors name options and columns in their errors and know no places.
#[derive(Debug, Default)]
pub struct TableSpans {
    /// The table's name.
    pub name: Span,
    /// Each option, from its name to its value.
    pub options: BTreeMap<String, Span>,
    /// The names of the columns.
    pub columns: BTreeMap<String, Span>,
}

impl TableSpans {
    /// Those of a definition.
    pub fn of(definition: &CreateTable) -> TableSpans {
        let option = |(name, value): &(Name, Name)| (name.text.clone(), joined(name, value));
        let column = |column: &TableColumn| (column.name.text.clone(), column.name.span);
        TableSpans {
            name: definition.name.span,
            options: definition.options.iter().map(option).collect(),
            columns: definition.columns.iter().map(column).collect(),
        }
    }

    /// Where a column is declared.
    pub fn column(&self, name: &str) -> Span {
        self.columns.get(name).copied().unwrap_or_default()
    }

    /// Adds to the error of a connector, which knows no text, the place of the option that it
    /// quotes first or of the column that it names.
    ///
    /// It reads messages, so connectors keep to a form: `option 'name'` and `column name`.
    pub fn locate(&self, error: Error) -> Error {
        let message = error.message();
        // A value that is quoted before the word may look like a name.
        let start = message.find("option '").unwrap_or(0);
        let quoted = message[start..].split('\'').skip(1).step_by(2);
        let option = quoted.filter_map(|name| self.options.get(name)).next();
        let mut words = message.split([' ', ',', ':']).skip_while(|word| *word != "column");
        let column = words.nth(1).and_then(|name| self.columns.get(name.trim_matches('\'')));
        match option.or(column).copied() {
            Some(span) => error.at(span),
            None => error,
        }
    }
}

/// From the first character of a name to the last of a value on the same line.
fn joined(name: &Name, value: &Name) -> Span {
    let same_line = name.span.line == value.span.line && value.span.end_column > 0;
    let end_column = if same_line { value.span.end_column } else { name.span.end_column };
    Span { end_column, ..name.span }
}

/// What reading a table is like.
/// Asked of the connector once, when the table is bound. The default is that of a table without
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which changes its rows are.
    pub changes: AcceptedChanges,
    /// True if it ends by itself.
    pub is_bounded: bool,
    /// True if lookup joins ask it by key.
    pub is_looked_up: bool,
}

impl Reading {
    /// True if rows of the table come for ever.
    /// A table that is asked by key has no rows of its own.
    pub fn is_endless(&self) -> bool {
        !self.is_bounded && !self.is_looked_up
    }
}

impl Default for Reading {
    fn default() -> Self {
        Reading { changes: AcceptedChanges::Inserts, is_bounded: true, is_looked_up: false }
    }
}

/// A declared column.
#[derive(Debug)]
pub struct ResolvedColumn {
    /// Its name and type.
    pub column: Column,
    /// Where its values come from.
    pub origin: ColumnOrigin,
}

/// Where the values of a column come from.
#[derive(Debug)]
pub enum ColumnOrigin {
    /// From the record: the position among the physical columns.
    Physical(usize),
    /// From the connector, by its key.
    Metadata {
        /// The connector's name for it.
        key: String,
        /// True if it can't be written.
        is_virtual: bool,
    },
    /// From the other columns: an expression over the declared columns.
    Computed(Expr),
}

/// `WATERMARK FOR column AS expression`, bound.
#[derive(Debug)]
pub struct ResolvedWatermark {
    /// The position of the row time among the declared columns.
    pub column: usize,
    /// The type of the row time behind its watermark.
    /// In a stream, TIMESTAMP or TIMESTAMP_LTZ of three digits, as in Flink, however few are
    /// declared; in a batch the declared type.
    pub row_time_type: ColumnType,
    /// The watermark, over the declared columns.
    pub expression: Expr,
    /// `SOURCE_WATERMARK()`: the connector is to supply it, and no expression.
    pub is_of_source: bool,
}

impl ResolvedTable {
    /// The columns that are read, with what they mean for time.
    pub fn fields(&self) -> Vec<Field> {
        let rowtime = self.watermark.as_ref().map(|w| w.column);
        let time = |index: usize, column: &ResolvedColumn| match &column.origin {
            _ if Some(index) == rowtime => TimeAttribute::RowTime,
            ColumnOrigin::Computed(expr) if is_proctime(expr) => TimeAttribute::ProcTime,
            _ => TimeAttribute::None,
        };
        let field = |(i, c): (usize, &ResolvedColumn)| Field {
            name: c.column.name.clone(),
            column_type: self.read_type(i).clone(),
            time: time(i, c),
        };
        self.columns.iter().enumerate().map(field).collect()
    }

    /// The type of a declared column where it is read.
    /// Times of up to three digits are stored alike, so values stay as they are.
    pub fn read_type(&self, column: usize) -> &ColumnType {
        match &self.watermark {
            Some(watermark) if watermark.column == column => &watermark.row_time_type,
            _ => &self.columns[column].column.column_type,
        }
    }

    /// The metadata columns: the connector's key and the column.
    /// In declared order.
    pub fn metadata(&self) -> Vec<(String, Column)> {
        self.metadata_where(|_| true)
    }

    /// The metadata columns that are written, as [`ResolvedTable::metadata`].
    pub fn written_metadata(&self) -> Vec<(String, Column)> {
        self.metadata_where(|is_virtual| !is_virtual)
    }

    fn metadata_where(&self, is_wanted: fn(bool) -> bool) -> Vec<(String, Column)> {
        let metadata = |column: &ResolvedColumn| match &column.origin {
            ColumnOrigin::Metadata { key, is_virtual } if is_wanted(*is_virtual) => {
                Some((key.clone(), column.column.clone()))
            }
            _ => None,
        };
        self.columns.iter().filter_map(metadata).collect()
    }

    /// The columns that a row which is written has: the physical ones, then metadata.
    pub fn written_schema(&self) -> TableSchema {
        let mut written = self.physical_schema();
        written.columns.extend(self.written_metadata().into_iter().map(|(_, column)| column));
        written
    }

    /// The physical columns: what a record holds.
    pub fn physical_schema(&self) -> TableSchema {
        let physical = |c: &&ResolvedColumn| matches!(c.origin, ColumnOrigin::Physical(_));
        TableSchema::new(self.columns.iter().filter(physical).map(|c| c.column.clone()).collect())
    }
}

/// True for `PROCTIME()`.
fn is_proctime(expr: &Expr) -> bool {
    expr.to_string().eq_ignore_ascii_case("PROCTIME()")
}
