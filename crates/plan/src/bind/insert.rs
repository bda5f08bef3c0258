//! INSERT INTO: a query fitted to the columns of a table.
//!
//! The query's columns go to the table's by position, or to those of the column list; columns that
//! the list leaves out are NULL. Then each value goes through three steps, as in Flink: an implicit
//! cast to the declared type, the length of CHAR, VARCHAR and BINARY
//! (`table.exec.sink.type-length-enforcer`), and a check for NULL
//! (`table.exec.sink.not-null-enforcer`).
//!
//! **Invariants:**
//! - the result has exactly the table's physical columns in declared order, then its metadata
//!   columns that are not VIRTUAL, with the declared types. Computed columns are not written;
//! - a NOT NULL column is checked unless the plan proves that no NULL can come. So a sink may rely
//!   on it;
//! - the check is the last node before the sink: an error names the column of the table and points
//!   at the expression that is written into it.

use std::sync::Arc;

use thalweg_core::{Error, Result, Span};
use thalweg_expr::{Expr, Session, build};
use thalweg_operators::chain::NotNull;

use super::Binder;
use super::near::did_you_mean;
use crate::ast::{Insert, Name};
use crate::catalog::RuntimeMode;
use crate::logical::not_null::is_never_null;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node};
use crate::resolved_table::{ColumnOrigin, ResolvedTable};

/// A bound INSERT.
#[derive(Debug)]
pub struct InsertPlan {
    /// The table that is written.
    pub table: Arc<ResolvedTable>,
    /// The rows, with the columns that are written.
    pub node: Node,
}

impl Binder<'_> {
    /// Binds an INSERT.
    pub fn bind_insert(&self, insert: &Insert) -> Result<InsertPlan> {
        let table = self.insert_table(insert)?;
        let node = self.bind_statement_query(&insert.query)?;
        let fixed = self.partition_values(&table, insert)?;
        let targets = match insert.is_by_name {
            true => columns_of_names(&table, &node)?,
            false => target_columns(&table, insert, &fixed)?,
        };
        if targets.len() != node.fields.len() {
            return Err(arity_error(&table, &targets, &node).at(insert.query.span));
        }
        let columns = self.fit(&table, (&targets, &fixed), &node);
        let columns = columns.map_err(|e| e.at(insert.query.span))?;
        let places = columns.iter().map(|(_, written)| match written.span.line {
            0 => insert.query.span,
            _ => written.span,
        });
        let places: Vec<Span> = places.collect();
        let node = LogicalPlan::project(node, columns);
        let node = match self.catalog.settings().drops_nulls() {
            true => drop_nulls(&table, node)?,
            false => check_not_null(&table, node, &places),
        };
        Ok(InsertPlan { table, node })
    }

    /// The table of an INSERT, with the options of a hint.
    fn insert_table(&self, insert: &Insert) -> Result<Arc<ResolvedTable>> {
        let table = match insert.options.is_empty() {
            true => self.sink_table(&insert.table)?,
            false => {
                let table = self.table_with(&insert.table, &insert.options)?;
                self.check_writable(&table).map_err(|e| e.at(insert.table.span))?;
                table
            }
        };
        self.refuse_buckets(&insert.table)?;
        self.refuse_materialized(insert)?;
        if insert.overwrites {
            self.check_overwritable(&table).map_err(|e| e.at(insert.table.span))?;
        }
        Ok(table)
    }

    /// A materialized table holds what its own query says, and nothing else.
    fn refuse_materialized(&self, insert: &Insert) -> Result<()> {
        let table = self.catalog.table(&self.key(&insert.table));
        if insert.is_by_name || table.is_none_or(|table| table.materialized.is_none()) {
            return Ok(());
        }
        Err(Error::plan(format!(
            "{} is a materialized table: its own query fills it",
            insert.table.text
        ))
        .hint("change its query, or write to another table")
        .at(insert.table.span))
    }

    /// A table that is DISTRIBUTED can be declared and read; rows go into buckets only if the
    /// connector knows them, and none here does. Flink's connectors for files, Kafka and JDBC do
    /// not either.
    fn refuse_buckets(&self, name: &Name) -> Result<()> {
        let table = self.catalog.table(&self.key(name));
        if table.is_none_or(|table| table.distribution.is_none()) {
            return Ok(());
        }
        Err(Error::plan(format!(
            "table {} is DISTRIBUTED, and its connector does not write into buckets",
            name.text
        ))
        .hint("ALTER TABLE … DROP DISTRIBUTION before")
        .at(name.span))
    }

    /// INSERT OVERWRITE replaces the files of a table, which INSERT INTO does here as well, unless
    /// it adds to them. As in Flink it is for batch jobs.
    fn check_overwritable(&self, table: &ResolvedTable) -> Result<()> {
        let option = |name: &str| table.options.get(name).map(String::as_str);
        if option("connector") != Some("filesystem") {
            return Err(Error::plan(format!(
                "INSERT OVERWRITE is for tables of files, and '{}' is of connector '{}'",
                table.name,
                option("connector").unwrap_or_default()
            ))
            .hint("write INSERT INTO"));
        }
        if option("sink.append") == Some("true") {
            return Err(Error::plan(format!(
                "'{}' adds to its files ('sink.append'), so INSERT OVERWRITE can't replace them",
                table.name
            ))
            .hint("leave the option 'sink.append' out"));
        }
        if self.mode() != RuntimeMode::Batch {
            return Err(Error::plan("INSERT OVERWRITE is for batch jobs")
                .hint("SET 'execution.runtime-mode' = 'batch', or write INSERT INTO, which replaces files as well"));
        }
        Ok(())
    }

    /// The columns of PARTITION with what they hold, among those that are written.
    fn partition_values(
        &self,
        table: &ResolvedTable,
        insert: &Insert,
    ) -> Result<Vec<(usize, Expr)>> {
        let written = table.written_schema();
        let mut values: Vec<(usize, Expr)> = Vec::with_capacity(insert.partition.len());
        for (name, value) in &insert.partition {
            let position = written.index_of(&name.text).ok_or_else(|| not_writable(table, name))?;
            if !table.partitioned_by.contains(&position) {
                return Err(Error::plan(format!(
                    "column '{}' of '{}' is not in PARTITIONED BY",
                    name.text, table.name
                ))
                .at(name.span));
            }
            if values.iter().any(|(known, _)| *known == position) {
                return Err(
                    Error::plan(format!("column '{}' is named twice", name.text)).at(name.span)
                );
            }
            let value = self.without_columns(value, "PARTITION")?;
            let target = written.columns[position].column_type.data_type.clone();
            let value = build::cast(value, target, false, self.session);
            values.push((position, value.map_err(|error| error.at(name.span))?));
        }
        Ok(values)
    }

    /// Fails for a table with a metadata column that a row would have to fill, and whose connector
    /// does not write it.
    fn check_writable(&self, table: &ResolvedTable) -> Result<()> {
        let name = table.options.get("connector").map_or("", String::as_str);
        let connector = self.places.as_ref().and_then(|places| places.connectors.get(name));
        let writable = connector.map_or(&[][..], |known| known.description().writable_metadata);
        let written = table.written_metadata();
        match written.iter().find(|(key, _)| !writable.contains(&key.as_str())) {
            None => Ok(()),
            Some((_, column)) => Err(super::later(&format!(
                "writing the metadata column '{}' of '{}'",
                column.name, table.name
            ))
            .hint("declare it VIRTUAL: it is then only read")),
        }
    }

    /// The table of this name, for writing.
    pub fn sink_table(&self, name: &Name) -> Result<Arc<ResolvedTable>> {
        let key = self.key(name);
        match self.catalog.table(&key) {
            Some(definition) => {
                let table = self.resolve_table(definition)?;
                self.check_writable(&table).map_err(|e| e.at(name.span))?;
                Ok(table)
            }
            None if self.catalog.view(&key).is_some() => {
                Err(Error::plan(format!("'{}' is a view and can't be written", name.text))
                    .at(name.span))
            }
            None => Err(self.unknown_table(name)),
        }
    }

    /// For each column of a row that is written what is written to it.
    /// The place of each expression is kept, for errors while the job runs.
    fn fit(
        &self,
        table: &ResolvedTable,
        (targets, fixed): (&[usize], &[(usize, Expr)]),
        node: &Node,
    ) -> Result<Vec<(String, Expr)>> {
        let written = table.written_schema();
        let mut columns = Vec::with_capacity(written.len());
        for (position, column) in written.columns.iter().enumerate() {
            let source = targets.iter().position(|&t| t == position);
            let value = fixed.iter().find(|(column, _)| *column == position);
            let expr = match source {
                None if value.is_some() => {
                    value.map(|(_, value)| value.clone()).unwrap_or_else(build::null_literal)
                }
                Some(i) => {
                    Expr::column(i, node.fields[i].column_type.clone()).at(place_of(node, i))
                }
                None if column.column_type.nullable => {
                    Expr::null(column.column_type.data_type.clone())
                }
                None => {
                    return Err(Error::plan(format!(
                        "column '{}' of '{}' is NOT NULL, but the column list leaves it out",
                        column.name, table.name
                    )));
                }
            };
            let target = column.column_type.clone();
            let expr = build::coerce(expr, &target, self.session).map_err(|e| {
                let found =
                    source.map_or("NULL".to_string(), |i| node.fields[i].column_type.to_string());
                Error::plan(format!(
                    "column '{}' of '{}' is {}, but the query gives {found}",
                    column.name, table.name, target
                ))
                .hint(e.help().map_or_else(
                    || format!("write CAST(… AS {})", target.data_type),
                    str::to_string,
                ))
            })?;
            let name = format!("'{}' of '{}'", column.name, table.name);
            let misfit = self.catalog.settings().length_misfit();
            let span = expr.span;
            let expr = build::enforce_length(expr, &target.data_type, misfit, &name, self.session)?;
            let expr = expr.at(span);
            columns.push((column.name.clone(), expr));
        }
        Ok(columns)
    }
}

/// Where the text computes a column of a query, if it is one place.
/// Only if the query's last node is a projection. Otherwise the place is that of the whole query.
fn place_of(node: &Node, column: usize) -> Span {
    match &node.kind {
        LogicalKind::Project { expressions, .. } => expressions[column].span,
        _ => Span::default(),
    }
}

/// Adds the check that Flink makes in front of a sink: no NULL in a NOT NULL column. `places` are
/// those of what is written into the columns.
fn check_not_null(table: &ResolvedTable, node: Node, places: &[Span]) -> Node {
    let check = |column: usize| NotNull {
        column,
        is_key: table.primary_key.contains(&column),
        span: places[column],
    };
    let checked = columns_to_check(table, &node).into_iter().map(check).collect();
    let fields = declared_fields(table, &node);
    checked_for(&table.name, node, checked, fields.into())
}

/// The rows of a node behind the check, if there is something to check.
fn checked_for(sink: &str, input: Node, columns: Vec<NotNull>, fields: Arc<[Field]>) -> Node {
    if columns.is_empty() {
        return input;
    }
    let sink = sink.to_owned();
    LogicalPlan::node(LogicalKind::CheckNotNull { input, columns, sink }, fields)
}

/// Leaves out the rows that such a check would fail on.
/// Rows are left out silently, as in Flink.
fn drop_nulls(table: &ResolvedTable, node: Node) -> Result<Node> {
    let is_there = |&column: &usize| {
        let data_type = node.fields[column].column_type.data_type.clone();
        build::is_null(Expr::column(column, data_type.nullable()), true)
    };
    let checked = columns_to_check(table, &node);
    let Some(predicate) =
        checked.iter().map(is_there).map(Ok).reduce(|all, one| {
            build::binary(build::BinaryOp::And, all?, one?, &Session::default())
        })
    else {
        return Ok(node);
    };
    let fields = declared_fields(table, &node);
    let kind = LogicalKind::Filter { predicate: predicate?, input: node };
    Ok(LogicalPlan::node(kind, fields))
}

/// The NOT NULL columns of the table that a row may have NULL in.
/// A DECIMAL is checked also where its type says NOT NULL, since one beyond its range is NULL
/// (`can_be_null`). Other types are believed, and so is a condition that excludes NULL.
fn columns_to_check(table: &ResolvedTable, node: &Node) -> Vec<usize> {
    let written = table.written_schema();
    (0..written.len())
        .filter(|&i| {
            let from = &node.fields[i].column_type;
            let is_known = from.nullable && is_never_null(node, i);
            !written.columns[i].column_type.nullable && from.can_be_null() && !is_known
        })
        .collect()
}

/// The columns of the rows, with the types of the table.
fn declared_fields(table: &ResolvedTable, node: &Node) -> Vec<Field> {
    let written = table.written_schema();
    node.fields
        .iter()
        .zip(&written.columns)
        .map(|(field, column)| Field { column_type: column.column_type.clone(), ..field.clone() })
        .collect()
}

/// The same in front of a result that nobody has declared: where its own type says NOT NULL.
/// That is, for DECIMAL: a computed one beyond its range is NULL.
pub fn check_result(node: Node) -> Node {
    let is_checked = |field: &Field| !field.column_type.nullable && field.column_type.can_be_null();
    let check = |column: usize| NotNull { column, is_key: false, span: place_of(&node, column) };
    let columns = (0..node.fields.len()).filter(|&i| is_checked(&node.fields[i]));
    let checked = columns.map(check).collect();
    let fields = node.fields.clone();
    checked_for(RESULT, node, checked, fields)
}

/// What messages call the table that a SELECT makes.
const RESULT: &str = "result";

/// The columns, among those that are written, that the query's columns go to: in declared order,
/// unless the statement lists them.
fn target_columns(
    table: &ResolvedTable,
    insert: &Insert,
    fixed: &[(usize, Expr)],
) -> Result<Vec<usize>> {
    let written = table.written_schema();
    let is_fixed = |position: &usize| fixed.iter().any(|(column, _)| column == position);
    if insert.columns.is_empty() {
        let names = table.columns.iter().map(|column| &column.column.name);
        let positions = names.filter_map(|name| written.index_of(name));
        return Ok(positions.filter(|position| !is_fixed(position)).collect());
    }
    let mut targets = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        let position = written.index_of(&name.text).ok_or_else(|| not_writable(table, name))?;
        if targets.contains(&position) || is_fixed(&position) {
            return Err(Error::plan(format!("column '{}' is named twice", name.text)).at(name.span));
        }
        targets.push(position);
    }
    Ok(targets)
}

/// The columns that have the names of the query's: of a table that was made for them.
fn columns_of_names(table: &ResolvedTable, node: &Node) -> Result<Vec<usize>> {
    let written = table.written_schema();
    let position = |field: &Field| {
        let name = Name { text: field.name.clone(), span: Span::default() };
        written.index_of(&field.name).ok_or_else(|| not_writable(table, &name))
    };
    node.fields.iter().map(position).collect()
}

fn not_writable(table: &ResolvedTable, name: &Name) -> Error {
    let found = table.columns.iter().find(|c| c.column.name == name.text);
    let error = match found.map(|c| &c.origin) {
        Some(ColumnOrigin::Computed(_)) => {
            Error::plan(format!("column '{}' is computed and can't be written", name.text))
        }
        Some(_) => Error::plan(format!("metadata column '{}' can't be written", name.text)),
        None => {
            let names = table.columns.iter().map(|c| c.column.name.as_str());
            let error =
                Error::plan(format!("table '{}' has no column '{}'", table.name, name.text));
            did_you_mean(error, &name.text, names)
        }
    };
    error.at(name.span)
}

fn arity_error(table: &ResolvedTable, targets: &[usize], node: &Node) -> Error {
    let written = table.written_schema();
    let wanted: Vec<&str> = targets.iter().map(|&i| written.columns[i].name.as_str()).collect();
    let found: Vec<&str> = node.fields.iter().map(|f| f.name.as_str()).collect();
    Error::plan(format!(
        "'{}' takes {} columns ({}), but the query gives {} ({})",
        table.name,
        wanted.len(),
        wanted.join(", "),
        found.len(),
        found.join(", ")
    ))
}
