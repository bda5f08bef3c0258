//! `CREATE TABLE … LIKE` and `… AS`: what a definition takes over from another table or from a
//! query.

use thalweg_core::{Error, Result};

use super::alter::set_options;
use crate::ast::{
    CreateTable, LikeAction, LikeClause, LikeFeature, Name, TableColumn, TableColumnKind,
};
use crate::logical::Field;

impl LikeClause {
    /// What becomes of a part: what is said of it, else of ALL, else as without brackets.
    fn action(&self, feature: LikeFeature) -> LikeAction {
        let of = |wanted| self.options.iter().rev().find(|(_, found, _)| *found == wanted);
        let said = of(feature).or_else(|| of(LikeFeature::All));
        let default = match feature {
            LikeFeature::Options => LikeAction::Overwriting,
            _ => LikeAction::Including,
        };
        said.map_or(default, |(action, ..)| *action)
    }
}

/// The whole definition of a table that is declared LIKE another one.
pub(super) fn like(
    own: &CreateTable,
    clause: &LikeClause,
    base: &CreateTable,
) -> Result<CreateTable> {
    let mut table = CreateTable { like: None, ..own.clone() };
    table.columns = columns(own, clause, base)?;
    let span = clause.table.span;
    let clash = |what: &str, excluding: &str| {
        Error::plan(format!("both {} and {} have {what}", own.name.text, base.name.text))
            .hint(format!("write LIKE {} (EXCLUDING {excluding})", base.name.text))
            .at(span)
    };
    match (clause.action(LikeFeature::Watermarks), &own.watermark, &base.watermark) {
        (LikeAction::Excluding, ..) | (LikeAction::Overwriting, Some(_), _) | (_, _, None) => {}
        (_, Some(_), Some(_)) => return Err(clash("a watermark", "WATERMARKS")),
        (_, None, Some(watermark)) => table.watermark = Some(watermark.clone()),
    }
    match (clause.action(LikeFeature::Constraints), own.primary_key.is_empty()) {
        (LikeAction::Excluding, _) => {}
        (_, true) => table.primary_key.clone_from(&base.primary_key),
        (_, false) if base.primary_key.is_empty() => {}
        _ => return Err(clash("a primary key", "CONSTRAINTS")),
    }
    match (clause.action(LikeFeature::Partitions), own.partitioned_by.is_empty()) {
        (LikeAction::Excluding, _) => {}
        (_, true) => table.partitioned_by.clone_from(&base.partitioned_by),
        (_, false) if base.partitioned_by.is_empty() => {}
        _ => return Err(clash("PARTITIONED BY", "PARTITIONS")),
    }
    match (clause.action(LikeFeature::Distribution), &own.distribution, &base.distribution) {
        (LikeAction::Excluding, ..) | (LikeAction::Overwriting, Some(_), _) | (_, _, None) => {}
        (_, Some(_), Some(_)) => return Err(clash("a distribution", "DISTRIBUTION")),
        (_, None, Some(distribution)) => table.distribution = Some(distribution.clone()),
    }
    let action = clause.action(LikeFeature::Options);
    if action != LikeAction::Excluding {
        table.options = base.options.clone();
        let is_known = |name: &Name| base.options.iter().any(|(known, _)| known.text == name.text);
        if action == LikeAction::Including
            && let Some((key, _)) = own.options.iter().find(|(key, _)| is_known(key))
        {
            return Err(clash(&format!("the option '{}'", key.text), "OPTIONS"));
        }
        set_options(&mut table.options, &own.options);
    }
    table.check()?;
    table.text = table.rendered();
    Ok(table)
}

/// Those of the other table that are taken over, then the table's own.
fn columns(own: &CreateTable, clause: &LikeClause, base: &CreateTable) -> Result<Vec<TableColumn>> {
    let mut columns = Vec::new();
    let mut replaced: Vec<&str> = Vec::new();
    for column in &base.columns {
        let action = match &column.kind {
            TableColumnKind::Physical(_) => LikeAction::Including,
            TableColumnKind::Computed(_) => clause.action(LikeFeature::Generated),
            TableColumnKind::Metadata { .. } => clause.action(LikeFeature::Metadata),
        };
        if action == LikeAction::Excluding {
            continue;
        }
        let again = own.columns.iter().find(|other| other.name.text == column.name.text);
        match (again, action) {
            (None, _) => columns.push(column.clone()),
            (Some(again), LikeAction::Overwriting) => {
                columns.push(again.clone());
                replaced.push(&again.name.text);
            }
            (Some(again), _) => {
                return Err(Error::plan(format!(
                    "table {} has a column {} already",
                    base.name.text, again.name.text
                ))
                .hint("OVERWRITING GENERATED or METADATA replaces computed and metadata columns")
                .at(again.name.span));
            }
        }
    }
    let is_new = |column: &&TableColumn| !replaced.contains(&column.name.text.as_str());
    columns.extend(own.columns.iter().filter(is_new).cloned());
    Ok(columns)
}

/// The whole definition of a table that is declared AS a query with these columns: its own columns
/// that the query lacks, then the query's, with the types that the table declares for them.
pub(super) fn of_query(own: &CreateTable, fields: &[Field]) -> Result<CreateTable> {
    let Some(clause) = &own.as_query else { return Ok(own.clone()) };
    let in_query = |name: &str| fields.iter().any(|field| field.name == name);
    let (given, others): (Vec<_>, Vec<_>) =
        own.columns.iter().cloned().partition(|column| in_query(&column.name.text));
    let column = |field: &Field| {
        let declared = given.iter().find(|column| column.name.text == field.name);
        declared.cloned().unwrap_or_else(|| TableColumn {
            name: Name { text: field.name.clone(), span: clause.query.span },
            kind: TableColumnKind::Physical(field.column_type.clone()),
        })
    };
    let mut columns: Vec<TableColumn> = fields.iter().map(column).collect();
    if !clause.order.is_empty() {
        columns = ordered(columns, &clause.order)?;
    }
    let columns = others.into_iter().chain(columns).collect();
    let mut table = CreateTable { columns, as_query: None, ..own.clone() };
    table.check()?;
    // Of a materialized table the query is a part of what it is.
    if table.materialized.is_none() {
        table.text = table.rendered();
    }
    Ok(table)
}

/// Columns in the order that a list of names gives them.
fn ordered(columns: Vec<TableColumn>, order: &[Name]) -> Result<Vec<TableColumn>> {
    let named = |name: &Name| {
        let found = columns.iter().find(|column| column.name.text == name.text);
        found.cloned().ok_or_else(|| {
            Error::plan(format!("the query has no column {}", name.text)).at(name.span)
        })
    };
    let placed = order.iter().map(named).collect::<Result<Vec<TableColumn>>>()?;
    match columns.iter().find(|column| !order.iter().any(|name| name.text == column.name.text)) {
        None => Ok(placed),
        Some(left_out) => Err(Error::plan(format!(
            "the query's column {} is not in the list of columns",
            left_out.name.text
        ))
        .at(order[0].span)),
    }
}
