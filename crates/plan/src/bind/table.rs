//! Tables as the planner sees them: every column typed, computed columns and the watermark bound.
//!
//! Computed columns may refer to physical and metadata columns, the watermark to all of them, as
//! in Flink.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{Column, ColumnType, DataType, Error, Result, Span, TableSchema};
use thalweg_expr::Expr;

use super::Binder;
use super::names::PlainNames;
use super::near::did_you_mean;
use super::scope::Scope;
use crate::ast::{CreateTable, Name, TableColumn, TableColumnKind, WatermarkSpec};
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
    fn of(definition: &CreateTable) -> TableSpans {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which changes its rows are.
    pub changes: AcceptedChanges,
    /// True if it ends by itself.
    pub is_bounded: bool,
    /// True if it is asked by key and can't be read as a whole.
    pub is_looked_up: bool,
}

impl Reading {
    /// True if rows of the table come for ever.
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
    /// The watermark, over the declared columns.
    pub expression: Expr,
}

impl ResolvedTable {
    /// The declared columns with what they mean for time.
    pub fn fields(&self) -> Vec<Field> {
        let rowtime = self.watermark.as_ref().map(|w| w.column);
        let time = |index: usize, column: &ResolvedColumn| match &column.origin {
            _ if Some(index) == rowtime => TimeAttribute::RowTime,
            ColumnOrigin::Computed(expr) if is_proctime(expr) => TimeAttribute::ProcTime,
            _ => TimeAttribute::None,
        };
        let field = |(i, c): (usize, &ResolvedColumn)| Field {
            name: c.column.name.clone(),
            column_type: c.column.column_type.clone(),
            time: time(i, c),
        };
        self.columns.iter().enumerate().map(field).collect()
    }

    /// The metadata columns: the connector's key and the column.
    pub fn metadata(&self) -> Vec<(String, Column)> {
        let metadata = |column: &ResolvedColumn| match &column.origin {
            ColumnOrigin::Metadata { key, .. } => Some((key.clone(), column.column.clone())),
            _ => None,
        };
        self.columns.iter().filter_map(metadata).collect()
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

impl Binder<'_> {
    /// The table with this definition, typed. Bound once per statement.
    pub fn resolve_table(&self, definition: &CreateTable) -> Result<Arc<ResolvedTable>> {
        if let Some(found) = self.tables.borrow().get(&definition.name.text) {
            return Ok(found.clone());
        }
        let table = Arc::new(self.bind_table(definition)?);
        self.tables.borrow_mut().insert(definition.name.text.clone(), table.clone());
        Ok(table)
    }

    fn bind_table(&self, definition: &CreateTable) -> Result<ResolvedTable> {
        check_names(definition)?;
        let columns = self.bind_columns(definition)?;
        let mut table = ResolvedTable {
            name: definition.name.text.clone(),
            columns,
            watermark: None,
            options: texts(&definition.options),
            spans: TableSpans::of(definition),
            primary_key: Vec::new(),
            partitioned_by: Vec::new(),
            reading: Reading::default(),
        };
        table.primary_key = physical_columns("PRIMARY KEY", &definition.primary_key, &table)?;
        table.partitioned_by =
            physical_columns("PARTITIONED BY", &definition.partitioned_by, &table)?;
        if let Some(spec) = &definition.watermark {
            table.watermark = Some(self.bind_watermark(spec, &table)?);
        }
        if let Some(places) = self.places {
            table.reading = places.reading(&table);
        }
        Ok(table)
    }

    fn bind_columns(&self, definition: &CreateTable) -> Result<Vec<ResolvedColumn>> {
        let scope = Scope::of(Some(definition.name.text.clone()), base_fields(definition).into());
        let mut columns = Vec::with_capacity(definition.columns.len());
        let mut physical = 0;
        for column in &definition.columns {
            let (column_type, origin) = match &column.kind {
                TableColumnKind::Physical(column_type) => {
                    physical += 1;
                    (column_type.clone(), ColumnOrigin::Physical(physical - 1))
                }
                TableColumnKind::Metadata { column_type, key, is_virtual } => (
                    column_type.clone(),
                    ColumnOrigin::Metadata { key: key.clone(), is_virtual: *is_virtual },
                ),
                TableColumnKind::Computed(expression) => {
                    let expr = self
                        .expression(expression, &mut PlainNames::of(&scope, "a computed column"))
                        .map_err(|e| e.at(column.name.span))?;
                    let expr = expr.remap(&declared_positions(definition));
                    (expr.column_type.clone(), ColumnOrigin::Computed(expr))
                }
            };
            let column = Column::new(column.name.text.clone(), column_type);
            columns.push(ResolvedColumn { column, origin });
        }
        Ok(columns)
    }

    fn bind_watermark(
        &self,
        spec: &WatermarkSpec,
        table: &ResolvedTable,
    ) -> Result<ResolvedWatermark> {
        let names = || table.columns.iter().map(|c| c.column.name.as_str());
        let Some(column) = names().position(|n| n == spec.column.text) else {
            let error = Error::plan(format!(
                "WATERMARK FOR names column '{}', which table '{}' does not have",
                spec.column.text, table.name
            ));
            return Err(did_you_mean(error, &spec.column.text, names()).at(spec.column.span));
        };
        let rowtime = &table.columns[column].column;
        if !is_time(&rowtime.column_type.data_type) {
            return Err(Error::plan(format!(
                "the row time column '{}' is {}, but it must be TIMESTAMP(p) or TIMESTAMP_LTZ(p) with p at most 3",
                rowtime.name, rowtime.column_type.data_type
            ))
            .at(spec.column.span));
        }
        let scope = Scope::of(Some(table.name.clone()), table.fields().into());
        let expression = self
            .expression(&spec.expression, &mut PlainNames::of(&scope, "a watermark"))
            .map_err(|e| e.at(spec.column.span))?;
        check_watermark_type(rowtime, &expression.column_type)
            .map_err(|e| e.at(spec.column.span))?;
        Ok(ResolvedWatermark { column, expression })
    }
}

/// True for a type that can carry row time.
fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3))
}

fn check_watermark_type(rowtime: &Column, found: &ColumnType) -> Result<()> {
    let same_kind = matches!(
        (&rowtime.column_type.data_type, &found.data_type),
        (DataType::Timestamp(_), DataType::Timestamp(0..=3))
            | (DataType::TimestampLtz(_), DataType::TimestampLtz(0..=3))
    );
    if same_kind {
        return Ok(());
    }
    Err(Error::plan(format!(
        "the watermark of '{}' is {}, but its row time is {}",
        rowtime.name, found.data_type, rowtime.column_type.data_type
    ))
    .hint("write the watermark as the row time minus an interval, or CAST it"))
}

fn texts(options: &[(Name, Name)]) -> BTreeMap<String, String> {
    options.iter().map(|(name, value)| (name.text.clone(), value.text.clone())).collect()
}

fn check_names(definition: &CreateTable) -> Result<()> {
    for (i, column) in definition.columns.iter().enumerate() {
        if definition.columns[..i].iter().any(|c| c.name.text == column.name.text) {
            return Err(Error::plan(format!(
                "table '{}' has two columns named '{}'",
                definition.name.text, column.name.text
            ))
            .at(column.name.span));
        }
    }
    Ok(())
}

/// The physical and metadata columns, which computed columns may use.
fn base_fields(definition: &CreateTable) -> Vec<Field> {
    let field = |c: &TableColumn| match &c.kind {
        TableColumnKind::Physical(column_type) | TableColumnKind::Metadata { column_type, .. } => {
            Some(Field::plain(c.name.text.clone(), column_type.clone()))
        }
        TableColumnKind::Computed(_) => None,
    };
    definition.columns.iter().filter_map(field).collect()
}

/// From a position in [`base_fields`] to the position among the declared columns.
fn declared_positions(definition: &CreateTable) -> impl Fn(usize) -> usize + use<> {
    let computed = |c: &TableColumn| matches!(c.kind, TableColumnKind::Computed(_));
    let positions: Vec<usize> =
        (0..definition.columns.len()).filter(|&i| !computed(&definition.columns[i])).collect();
    move |i| positions[i]
}

/// The positions of the columns that a clause of CREATE TABLE names, among the physical ones.
fn physical_columns(clause: &str, names: &[Name], table: &ResolvedTable) -> Result<Vec<usize>> {
    let position = |name: &Name| {
        let found = table.columns.iter().find(|c| c.column.name == name.text);
        match found.map(|c| &c.origin) {
            Some(ColumnOrigin::Physical(position)) => Ok(*position),
            Some(_) => Err(Error::plan(format!(
                "{clause} column '{}' is not a physical column",
                name.text
            ))
            .at(name.span)),
            None => {
                let error = Error::plan(format!(
                    "{clause} names column '{}', which does not exist",
                    name.text
                ));
                let names = table.columns.iter().map(|c| c.column.name.as_str());
                Err(did_you_mean(error, &name.text, names).at(name.span))
            }
        }
    };
    names.iter().map(position).collect()
}
