//! ORDER BY, LIMIT, OFFSET and FETCH.
//!
//! On a stream there are two orders that end: by ascending row time, where the watermark says
//! which rows are complete, and the first rows of a bounded input, once, at its end.

use sqlparser::ast::{self as sql, Expr as SqlExpr, LimitClause, OrderByKind, Value};
use thalweg_core::{Error, Result, Span};

use super::scope::name_parts;
use super::spans::span_of;
use super::unsupported;
use crate::catalog::RuntimeMode;
use crate::logical::changes::NodeChanges;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, SortKey};

/// LIMIT and OFFSET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many rows.
    pub limit: Option<u64>,
    /// How many to skip before.
    pub offset: u64,
}

/// A relation with what it is to be sorted by; columns behind `visible` are only for sorting.
pub struct Ordered {
    /// The rows.
    pub node: Node,
    /// How many columns belong to the result.
    pub visible: usize,
    /// What to sort by.
    pub keys: Vec<SortKey>,
    /// Where ORDER BY stands.
    pub span: Span,
}

impl Ordered {
    /// Sorts, cuts and drops the columns that were only for sorting.
    pub fn finish(self, bounds: Option<Bounds>, mode: RuntimeMode) -> Result<Node> {
        let visible = self.visible;
        let node = self.sort(bounds, mode)?;
        if node.fields.len() == visible {
            return Ok(node);
        }
        let columns = node.columns().take(visible).collect();
        Ok(LogicalPlan::project(node, columns))
    }

    fn sort(self, bounds: Option<Bounds>, mode: RuntimeMode) -> Result<Node> {
        let Ordered { node, keys, span, .. } = self;
        let Some(first) = keys.first() else { return Ok(cut(node, bounds)) };
        // Rows leave a sort at or behind watermarks that were passed on: no row time any more.
        let fields: Vec<Field> = node.fields.iter().cloned().map(Field::without_time).collect();
        let by_time = node.fields[first.column].time.is_rowtime() && !first.descending;
        let waits = mode == RuntimeMode::Batch || (has_limit(bounds) && changes(&node));
        if by_time && !waits {
            let sorted = LogicalPlan::node(LogicalKind::TemporalSort { input: node, keys }, fields);
            return Ok(cut(sorted, bounds));
        }
        let Bounds { limit, offset } = bounds.unwrap_or(Bounds { limit: None, offset: 0 });
        if limit.is_none() && mode != RuntimeMode::Batch {
            return Err(unbounded_sort(&node.fields[first.column], span));
        }
        Ok(LogicalPlan::node(LogicalKind::SortLimit { input: node, keys, limit, offset }, fields))
    }
}

fn has_limit(bounds: Option<Bounds>) -> bool {
    bounds.is_some_and(|bounds| bounds.limit.is_some())
}

/// Rows that change can't be sorted as they come, but the first of them are a Top-N.
fn changes(node: &Node) -> bool {
    NodeChanges::of(std::slice::from_ref(node), RuntimeMode::Streaming)
        .is_ok_and(|changes| changes.has_updates(node))
}

fn cut(input: Node, bounds: Option<Bounds>) -> Node {
    match bounds {
        None | Some(Bounds { limit: None, offset: 0 }) => input,
        Some(Bounds { limit, offset }) => {
            let fields = input.fields.clone();
            LogicalPlan::node(LogicalKind::Limit { input, limit, offset }, fields)
        }
    }
}

fn unbounded_sort(field: &Field, span: Span) -> Error {
    let (name, data_type) = (&field.name, &field.column_type.data_type);
    Error::plan(format!(
        "ORDER BY '{name}' ({data_type}) needs a LIMIT: a stream can only be sorted as a whole by its row time, ascending"
    ))
    .hint(
        "add LIMIT n (for bounded inputs), order by the row time first, or SET 'execution.runtime-mode' = 'batch'",
    )
    .at(span)
}

/// The items of an ORDER BY.
pub fn items(order: Option<&sql::OrderBy>) -> Result<&[sql::OrderByExpr]> {
    match order.map(|o| &o.kind) {
        None => Ok(&[]),
        Some(OrderByKind::Expressions(items)) => Ok(items),
        Some(OrderByKind::All(_)) => Err(unsupported::never("ORDER BY ALL")),
    }
}

/// Where an ORDER BY stands.
pub fn span(order: Option<&sql::OrderBy>) -> Span {
    order.map_or(Span::default(), span_of)
}

/// The sort key that an item means.
pub fn sort_key(item: &sql::OrderByExpr, column: usize) -> SortKey {
    let descending = matches!(item.options.sort, Some(sql::OrderBySort::Desc));
    SortKey { column, descending, nulls_first: item.options.nulls_first }
}

/// The output column that an expression of ORDER BY means by number or name, if it is such.
pub fn output_column(expr: &SqlExpr, fields: &[Field]) -> Result<Option<usize>> {
    if let SqlExpr::Value(value) = expr
        && let Value::Number(text, _) = &value.value
    {
        let number = text.parse::<usize>().ok().filter(|n| (1..=fields.len()).contains(n));
        return match number {
            Some(number) => Ok(Some(number - 1)),
            None => Err(Error::plan(format!(
                "ORDER BY {text} names no column: there are {}",
                fields.len()
            ))
            .at(span_of(expr))),
        };
    }
    match name_parts(expr) {
        Some([name]) => Ok(fields.iter().position(|f| f.name == name.value)),
        _ => Ok(None),
    }
}

/// LIMIT, OFFSET and FETCH of a query.
pub fn bind_bounds(query: &sql::Query) -> Result<Option<Bounds>> {
    let mut bounds = Bounds { limit: None, offset: 0 };
    match &query.limit_clause {
        None => {}
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            if !limit_by.is_empty() {
                return Err(unsupported::never("LIMIT BY"));
            }
            bounds.limit = limit.as_ref().map(|e| row_count(e, "LIMIT")).transpose()?;
            let offset = offset.as_ref().map(|o| row_count(&o.value, "OFFSET")).transpose()?;
            bounds.offset = offset.unwrap_or(0);
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => {
            return Err(unsupported::never("LIMIT offset, count").hint("write LIMIT n OFFSET m"));
        }
    }
    if let Some(fetch) = &query.fetch {
        if fetch.with_ties || fetch.percent {
            return Err(unsupported::never("FETCH … PERCENT or WITH TIES"));
        }
        let quantity = fetch.quantity.as_ref().map(|e| row_count(e, "FETCH")).transpose()?;
        bounds.limit = Some(quantity.unwrap_or(1));
    }
    Ok((bounds != Bounds { limit: None, offset: 0 }).then_some(bounds))
}

fn row_count(expr: &SqlExpr, clause: &str) -> Result<u64> {
    let number = match expr {
        SqlExpr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    number.ok_or_else(|| {
        Error::plan(format!("{clause} takes a whole number, not {expr}")).at(span_of(expr))
    })
}
