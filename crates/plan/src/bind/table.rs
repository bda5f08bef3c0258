//! Resolves the definitions of tables: types every column, binds computed columns and watermark.
//!
//! Computed columns may refer to physical and metadata columns, the watermark to all of them, as in
//! Flink.
//!
//! **Invariants:**
//! - three kinds of position are in use: among the *declared* columns (expressions of a
//!   [`ResolvedTable`], the row time), among the *physical* ones (primary key, partitions, what a
//!   connector knows), and among the *base* columns that computed columns are bound over (only
//!   inside of this module);
//! - the row time is declared as TIMESTAMP or TIMESTAMP_LTZ of at most three digits, the unit of
//!   watermarks, and read with three; its watermark has the same kind of type;
//! - a table's options are not checked here: CREATE TABLE accepts what its connector refuses when
//!   the table is used. Only how it reads is asked, for the rules about bounded inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlparser::ast::Expr as SqlExpr;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};
use thalweg_expr::Expr;

use super::Binder;
use super::names::PlainNames;
use super::near::did_you_mean;
use super::scope::Scope;
use crate::ast::{CreateTable, Name, TableColumn, TableColumnKind, WatermarkSpec};
use crate::catalog::RuntimeMode;
use crate::catalog::path::last_part;
use crate::logical::Field;
use crate::resolved_table::{
    ColumnOrigin, Reading, ResolvedColumn, ResolvedTable, ResolvedWatermark, TableSpans,
};

impl Binder<'_> {
    /// The table with this definition, typed. Bound once per statement.
    /// Bound at CREATE TABLE too, and the result dropped: only its errors matter then.
    pub fn resolve_table(&self, definition: &CreateTable) -> Result<Arc<ResolvedTable>> {
        if let Some(found) = self.tables.borrow().get(&definition.name.text) {
            return Ok(found.clone());
        }
        let table = Arc::new(self.bind_table(definition)?);
        self.tables.borrow_mut().insert(definition.name.text.clone(), table.clone());
        Ok(table)
    }

    pub(super) fn bind_table(&self, definition: &CreateTable) -> Result<ResolvedTable> {
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

    /// Computed columns are bound over the base columns and moved to declared positions.
    fn bind_columns(&self, definition: &CreateTable) -> Result<Vec<ResolvedColumn>> {
        let name = last_part(&definition.name.text);
        let scope = Scope::of(Some(name), base_fields(definition).into());
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
        let row_time_type = self.row_time_type(&rowtime.column_type);
        if is_source_watermark(&spec.expression) {
            let expression = Expr::column(column, rowtime.column_type.clone());
            return Ok(ResolvedWatermark { column, row_time_type, expression, is_of_source: true });
        }
        let scope = Scope::of(Some(last_part(&table.name)), table.fields().into());
        let expression = self
            .expression(&spec.expression, &mut PlainNames::of(&scope, "a watermark"))
            .map_err(|e| e.at(spec.column.span))?;
        check_watermark_type(rowtime, &expression.column_type)
            .map_err(|e| e.at(spec.column.span))?;
        Ok(ResolvedWatermark { column, row_time_type, expression, is_of_source: false })
    }

    /// The type of a row time of this declared type: see [`ResolvedWatermark`].
    fn row_time_type(&self, declared: &ColumnType) -> ColumnType {
        let data_type = match &declared.data_type {
            _ if self.mode() == RuntimeMode::Batch => declared.data_type.clone(),
            DataType::Timestamp(_) => DataType::Timestamp(3),
            DataType::TimestampLtz(_) => DataType::TimestampLtz(3),
            other => other.clone(),
        };
        ColumnType { data_type, nullable: declared.nullable }
    }

    /// The table of a definition, for reading.
    pub(super) fn read_table(&self, definition: &CreateTable) -> Result<Arc<ResolvedTable>> {
        let table = self.resolve_table(definition)?;
        Self::check_watermark_source(&table)?;
        Ok(table)
    }

    /// A table whose watermarks its connector is to supply can be declared and written. No
    /// connector supplies any, so it is not read.
    pub(super) fn check_watermark_source(table: &ResolvedTable) -> Result<()> {
        let Some(watermark) = table.watermark.as_ref().filter(|watermark| watermark.is_of_source)
        else {
            return Ok(());
        };
        let rowtime = &table.columns[watermark.column].column.name;
        let connector = table.options.get("connector").map_or("", String::as_str);
        Err(Error::plan(format!(
            "the watermark of table {} is SOURCE_WATERMARK(), and the connector '{connector}' supplies none",
            table.name
        ))
        .hint(format!("declare how late rows may come: WATERMARK FOR {rowtime} AS {rowtime} - INTERVAL '5' SECOND")))
    }
}

/// True for `SOURCE_WATERMARK()`.
fn is_source_watermark(expression: &SqlExpr) -> bool {
    expression.to_string().eq_ignore_ascii_case("SOURCE_WATERMARK()")
}

/// True for a type that can carry row time.
/// Watermarks are in milliseconds.
fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3))
}

/// A TIMESTAMP and a TIMESTAMP_LTZ can't be compared without a time zone, so the kinds must agree.
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
