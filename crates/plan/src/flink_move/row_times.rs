//! Functions over earlier rows, and the first row of each key, by a row time: a row leaves when the
//! watermark has passed its time. So rows up to the watermark of the stop were written, and the
//! moved query keeps later ones:
//!
//! ```text
//! SELECT `c0`, `c1` FROM (SELECT …, `ts` FROM …) AS `moved` (`c0`, `c1`, `$time`) WHERE `$time` > …
//! ```

use std::collections::BTreeMap;

use thalweg_core::Result;
use thalweg_core::quoting::quoted_name;

use super::clauses::{Clauses, factors, select_of};
use super::literals::literal;
use super::needs::unmovable;
use super::tables::MovedTable;
use crate::ast::Insert;
use crate::planner::Planner;
use crate::script_text::ScriptText;

/// A query whose rows leave by their row time.
#[derive(Debug)]
pub(super) struct RowsByTime {
    clauses: Clauses,
    /// The row time, and whether that is a TIMESTAMP_LTZ.
    row_time: (String, bool),
    /// How many columns are selected.
    width: usize,
}

impl RowsByTime {
    /// The query of an INSERT.
    ///
    /// # Errors
    /// If it is no plain SELECT from one topic.
    pub(super) fn of(
        source: &ScriptText<'_>,
        insert: &Insert,
        tables: &BTreeMap<String, MovedTable>,
        planner: &Planner,
    ) -> Result<RowsByTime> {
        let at = |error: thalweg_core::Error| error.at(insert.query.span);
        let select = select_of(&insert.query).map_err(at)?;
        let row_time = tables.values().next().and_then(|table| table.row_time.clone());
        let (Some(row_time), 1, 1) = (row_time, tables.len(), factors(select).count()) else {
            return Err(at(unmovable(
                "functions over earlier rows are over more than one topic",
                "write them over one topic in the INSERT",
            )));
        };
        let clauses = Clauses::of(source, &insert.query)?;
        if clauses.is_distinct || clauses.group.is_some() {
            return Err(at(unmovable(
                "the rows of functions over earlier rows are grouped",
                "group windows of them",
            )));
        }
        let width = planner.result_schema(&insert.query)?.columns.len();
        Ok(RowsByTime { clauses, row_time, width })
    }

    /// The query of the rows behind the watermark.
    pub(super) fn moved(&self, text: &str, watermark_ms: i64) -> String {
        let columns: Vec<String> = (0..self.width).map(|place| format!("`c{place}`")).collect();
        let columns = columns.join(", ");
        let (name, is_instant) = &self.row_time;
        let selected = &text[self.clauses.query.start..self.clauses.items.end];
        let rest = &text[self.clauses.items.end..self.clauses.query.end];
        let after = literal(watermark_ms, *is_instant);
        format!(
            "SELECT {columns} FROM ({selected}, {}{rest}) AS `moved` ({columns}, `$time`) WHERE `$time` > {after}",
            quoted_name(name)
        )
    }

    /// The place of the query.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.clauses.query.clone()
    }
}
