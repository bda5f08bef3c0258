//! Sessions without GROUP BY: each row with the session that it belongs to.
//!
//! A session is known only when it has ended, so its rows wait until then. That is what an
//! aggregate does: the rows of a session are gathered by ARRAY_AGG and spread out again.
//!
//! ```text
//! WindowRows SESSION of k        Project ts, v, k, window_start, window_end, window_time
//!   t (ts, v, k)           ──▶     Unnest rows
//!                                    WindowAggregate SESSION by k: ARRAY_AGG(ROW(ts, v, k)) AS rows
//!                                      t
//! ```
//!
//! It is done when a whole query is bound: a GROUP BY with the columns of the session has taken the
//! windowing function out of the plan by then (`strip`).

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::{Column, DataType, Error, Result};
use thalweg_expr::{Expr, build};
use thalweg_operators::window::WindowKind;

use super::Binder;
use crate::logical::fields::window_fields;
use crate::logical::pushdown::with_inputs;
use crate::logical::traversal::post_order;
use crate::logical::{Aggregate, Field, LogicalKind, LogicalPlan, Node, Window};

impl Binder<'_> {
    /// A plan in which sessions that stand alone are gathered and spread out.
    pub(super) fn with_rows_of_sessions(&self, root: Node) -> Result<Node> {
        let is_session = |node: &Node| {
            matches!(&node.kind, LogicalKind::WindowRows { window, .. }
                if matches!(window.kind, WindowKind::Session { .. }))
        };
        let order = post_order(std::slice::from_ref(&root));
        if !order.iter().any(is_session) {
            return Ok(root);
        }
        let mut made: HashMap<*const LogicalPlan, Node> = HashMap::new();
        for node in &order {
            let again = |input: &&Node| made.get(&Arc::as_ptr(input)).unwrap_or(input).clone();
            let inputs: Vec<Node> = node.inputs().iter().map(again).collect();
            let node_again = with_inputs(node, &inputs);
            let node_again = match &node_again.kind {
                LogicalKind::WindowRows { input, window } if is_session(&node_again) => {
                    self.rows_of_sessions(input, window)?
                }
                _ => node_again,
            };
            made.insert(Arc::as_ptr(node), node_again);
        }
        made.remove(&Arc::as_ptr(&root)).ok_or_else(|| Error::internal("a plan without its root"))
    }

    fn rows_of_sessions(&self, input: &Node, window: &Window) -> Result<Node> {
        let columns = input.columns().map(|(_, column)| column).collect();
        let row = build::call("ROW", columns, self.session)?;
        let (function, column_type) =
            self.resolve_aggregate("ARRAY_AGG", false, false, std::slice::from_ref(&row))?;
        let rows = Column::new("array_agg$0", column_type);
        let of_key = |&column: &usize| input.fields[column].clone().without_time();
        let mut fields: Vec<Field> = window.partition_by.iter().map(of_key).collect();
        let keys: Vec<Expr> =
            window.partition_by.iter().map(|&column| input.fields[column].at(column)).collect();
        fields.push(Field::plain(rows.name.clone(), rows.column_type.clone()));
        fields.extend(window_fields(window.id, window.is_instant));
        let array = Expr::column(keys.len(), rows.column_type.clone());
        let first_window = keys.len() + 1;
        let aggregate = Aggregate {
            function,
            name: "ARRAY_AGG".to_owned(),
            column: rows,
            argument: Some(row),
            distinct: false,
            filter: None,
        };
        let kind = LogicalKind::WindowAggregate {
            input: input.clone(),
            window: Window { partition_by: Vec::new(), ..window.clone() },
            keys,
            aggregates: vec![aggregate],
            read: [true; 3],
        };
        let sessions = LogicalPlan::node(kind, fields);
        let DataType::Array(element) = &array.column_type.data_type else {
            return Err(Error::internal("ARRAY_AGG gives an array"));
        };
        let DataType::Row(of_row) = &element.data_type else {
            return Err(Error::internal("the rows of a session are rows"));
        };
        let first_row = sessions.fields.len();
        let spread: Vec<Field> = sessions
            .fields
            .iter()
            .cloned()
            .chain(of_row.iter().map(|c| Field::plain(c.name.clone(), c.column_type.clone())))
            .collect();
        let kind =
            LogicalKind::Unnest { input: sessions.clone(), array, outer: false, ordinality: false };
        let spread = LogicalPlan::node(kind, spread);
        let named = |(place, field): (usize, &Field)| {
            (field.name.clone(), spread.fields[first_row + place].at(first_row + place))
        };
        let columns = input.fields.iter().enumerate().map(named);
        let of_window = (first_window..first_row).map(|at| spread.fields[at].named_at(at));
        Ok(LogicalPlan::project(spread.clone(), columns.chain(of_window).collect()))
    }
}
