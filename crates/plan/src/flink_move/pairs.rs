//! Inner joins of topics: rows that may still find a partner are read again, and of all pairs only
//! those are emitted that were not.
//!
//! A pair leaves with its second row. So it was written if and only if both of its rows lie before
//! the positions at which the job was stopped. Each topic gets a column that says so of a row
//! ([`flag_columns`](super::tables::flag_columns)), and the query one more condition:
//!
//! ```text
//! … FROM t AS a JOIN u AS b ON a.k = b.k WHERE NOT (a.`$was_read` AND b.`$was_read`) AND (…)
//! ```
//!
//! In inner joins a condition means the same in WHERE and in ON.

use std::collections::BTreeMap;

use sqlparser::ast::{SelectItem, TableFactor};
use thalweg_core::Result;
use thalweg_core::quoting::quoted_name;

use super::clauses::{Clauses, factors, select_of};
use super::needs::unmovable;
use super::tables::{MovedTable, WAS_READ};
use crate::ast::Insert;
use crate::script_text::{Edit, ScriptText};

/// The edits of a query that let it emit only pairs with a row that the job has not read.
///
/// # Errors
/// If it does not join topics by their names.
pub(super) fn unwritten_pairs(
    source: &ScriptText<'_>,
    insert: &Insert,
    tables: &BTreeMap<String, MovedTable>,
) -> Result<Vec<Edit>> {
    let select = select_of(&insert.query).map_err(|error| error.at(insert.query.span))?;
    let is_star = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    if select.projection.iter().any(is_star) {
        return Err(unmovable(
            "its join selects *, and gets one more column while it is moved",
            "name the columns",
        )
        .at(insert.query.span));
    }
    let clauses = Clauses::of(source, &insert.query)?;
    let mut flags = Vec::new();
    for factor in factors(select) {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return Err(unmovable(
                "it joins what is no table",
                "join the topics by their names, and select from the result",
            )
            .at(insert.query.span));
        };
        let last = name.0.last().and_then(|part| part.as_ident());
        let Some(last) = last.filter(|name| tables.contains_key(&name.value)) else { continue };
        let name = alias.as_ref().map_or(last, |alias| &alias.name);
        flags.push(format!("{}.{WAS_READ}", quoted_name(&name.value)));
    }
    if flags.len() < 2 {
        return Err(unmovable(
            "it joins topics through views or sub-queries",
            "join the topics by their names in the INSERT",
        )
        .at(insert.query.span));
    }
    let condition = format!("NOT ({})", flags.join(" AND "));
    let place = |at: usize, text: String| (at..at, text);
    Ok(match clauses.filter {
        Some(filter) => vec![
            place(filter.start, format!(" {condition} AND (")),
            place(filter.end, ")".to_owned()),
        ],
        None => vec![place(clauses.from.end, format!(" WHERE {condition}"))],
    })
}
