//! Queries: WITH, set operations, VALUES, ORDER BY and LIMIT around a SELECT.
//!
//! **Limits.** A view that names another one twice doubles it, and thirty such views would have a
//! thousand million inputs or columns. The nodes are shared, so such a plan is small until
//! something walks it without sharing: a union is flattened, and a row has all columns. Both are
//! bounded here, when a view, a common table expression or a query is bound, before anything grows.
//!
//! **Types of set operations.** Both sides are cast to the common type of each column; names are
//! those of the left side. A column is a row time in a union only if it is one on both sides, with
//! the same type: the watermark of a union is the smaller of the two.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlparser::ast::{self as sql, SetExpr, SetOperator, SetQuantifier};
use thalweg_core::{ColumnType, Error, Result, Span};
use thalweg_expr::{Expr, build};

use super::order::{Ordered, bind_bounds};
use super::spans::{ident_span, span_of};
use super::{Binder, Context, unsupported};
use crate::ast::{Name, Query};
use crate::catalog::path::dotted;
use crate::logical::dag::refusal;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, TimeAttribute};

/// How many columns a query may have. Views that double one another would have endless ones.
const COLUMNS_MAX: usize = 4096;
/// How many inputs a union may have, for the same reason.
const UNION_INPUTS_MAX: usize = 1000;

impl Binder<'_> {
    /// Binds a query of a statement. Parts that can't be run are refused here.
    ///
    /// Here and not while parts are bound: a name that is misspelt elsewhere is the better message.
    pub fn bind_statement_query(&self, query: &Query) -> Result<Node> {
        let node = self.bind_query(query, &Context::default())?;
        let node = self.with_rows_of_sessions(node).map_err(|e| e.at(query.span))?;
        self.check_size(&node, "the query").map_err(|e| e.at(query.span))?;
        match refusal(&node) {
            Some(error) => Err(error.at(query.span)),
            None => Ok(node),
        }
    }

    /// Binds a query whose result is shown: its columns get different names, as in Flink.
    /// INSERT needs no such names, since it goes by position.
    pub fn bind_result(&self, query: &Query) -> Result<Node> {
        self.bind_statement_query(query).map(with_distinct_names)
    }

    /// Binds a query with its own windowing functions; it sees the common table expressions of
    /// `around`.
    pub(super) fn bind_query(&self, query: &Query, around: &Context<'_>) -> Result<Node> {
        let (windows, hints) = (&query.windows[..], &query.hints[..]);
        let matched = &query.matched[..];
        let ctes = around.ctes.clone();
        let table_options = &query.table_options[..];
        let hint_places = Default::default();
        let context = Context { windows, matched, hints, table_options, hint_places, ctes };
        let node = self.bind_tree(&query.query, &context).map_err(|e| e.at(query.span))?;
        self.check_hints(hints)?;
        Ok(node)
    }

    /// Refuses what would take for ever to plan: views or common table expressions of which each
    /// stands twice in the next. `what` names it.
    fn check_size(&self, node: &Node, what: &str) -> Result<()> {
        let (columns, inputs) = (node.fields.len(), self.inputs_of_unions(node));
        let found = match (columns > COLUMNS_MAX, inputs > UNION_INPUTS_MAX) {
            (true, _) => format!("{columns} columns, and at most {COLUMNS_MAX} are possible"),
            (_, true) => {
                format!(
                    "a UNION ALL of {inputs} inputs, and at most {UNION_INPUTS_MAX} are possible"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::plan(format!("{what} has {found}, those of the views in it included"))
            .hint("name the columns that are needed instead of *, or use fewer views that stand on each other"))
    }

    /// The inputs that the rows of a node come from by way of unions, each as often as they come:
    /// nothing is shared above a union.
    ///
    /// Saturates, so that the number itself can't overflow; remembered by node, so that the walk is
    /// linear.
    fn inputs_of_unions(&self, node: &Node) -> usize {
        if let Some((_, known)) = self.inputs.borrow().get(&Arc::as_ptr(node)) {
            return *known;
        }
        let inputs = match &node.kind {
            LogicalKind::UnionAll { inputs } => inputs
                .iter()
                .map(|input| self.inputs_of_unions(input))
                .fold(0, usize::saturating_add),
            LogicalKind::Filter { input, .. }
            | LogicalKind::Project { input, .. }
            | LogicalKind::WindowRows { input, .. }
            | LogicalKind::Unnest { input, .. } => self.inputs_of_unions(input),
            _ => 1,
        };
        self.inputs.borrow_mut().insert(Arc::as_ptr(node), (node.clone(), inputs));
        inputs
    }

    /// The plan of a view. Its names are looked up in the database that was the current one when it
    /// was created.
    pub(super) fn bind_view(&self, name: &Name, key: &str) -> Result<Node> {
        let Some(view) = self.catalog.view(key) else {
            return Err(self.unknown_table(name));
        };
        let around = self.database.replace(view.database.clone());
        let bound = self.bind_view_query(name, &view.columns, &view.query);
        self.database.replace(around);
        bound
    }

    /// Binds the query of a view that is being created, to find its mistakes.
    /// The view's own name may still mean an older view here.
    pub fn check_view(&self, name: &Name, columns: &[Name], query: &Query) -> Result<()> {
        self.bind_view_query(name, columns, query).map(drop)
    }

    fn bind_view_query(&self, name: &Name, columns: &[Name], query: &Query) -> Result<Node> {
        let node = self.bind_query(query, &Context::default())?;
        self.check_size(&node, &format!("view '{}'", name.text)).map_err(|e| e.at(name.span))?;
        let columns: Vec<(String, thalweg_core::Span)> =
            columns.iter().map(|c| (c.text.clone(), c.span)).collect();
        rename(node, &columns, &format!("view '{}'", name.text))
    }

    /// Binds a query of sqlparser's tree.
    pub(super) fn bind_tree(&self, query: &sql::Query, context: &Context<'_>) -> Result<Node> {
        refuse_clauses(query)?;
        let mut inner = context.clone();
        if let Some(with) = &query.with {
            self.bind_ctes(with, &mut inner)?;
        }
        let bounds = bind_bounds(query)?;
        let ordered = match query.body.as_ref() {
            SetExpr::Select(select) => self.bind_select(select, query.order_by.as_ref(), &inner)?,
            body => {
                let node = self.bind_body(body, &inner)?;
                self.order_by_output(node, query.order_by.as_ref())?
            }
        };
        ordered.finish(bounds, self.mode())
    }

    /// Each sees those before it. They are bound once, whether they are used or not, so that
    /// mistakes in them are found.
    fn bind_ctes(&self, with: &sql::With, context: &mut Context<'_>) -> Result<()> {
        if with.recursive {
            return Err(unsupported::never("WITH RECURSIVE"));
        }
        for (place, cte) in with.cte_tables.iter().enumerate() {
            let name = &cte.alias.name;
            if with.cte_tables[..place].iter().any(|before| before.alias.name.value == name.value) {
                return Err(Error::plan(format!(
                    "there are two common table expressions '{}' in one WITH",
                    name.value
                ))
                .hint("give one of them another name")
                .at(ident_span(name)));
            }
            let node = self.bind_tree(&cte.query, context)?;
            let what = format!("the common table expression '{}'", cte.alias.name.value);
            self.check_size(&node, &what)?;
            let node = rename(node, &alias_columns(&cte.alias), "the common table expression")?;
            context.ctes.push((cte.alias.name.value.clone(), node));
        }
        Ok(())
    }

    fn bind_body(&self, body: &SetExpr, context: &Context<'_>) -> Result<Node> {
        match body {
            SetExpr::Select(select) => {
                self.bind_select(select, None, context)?.finish(None, self.mode())
            }
            SetExpr::Query(query) => self.bind_tree(query, context),
            SetExpr::Values(values) => self.bind_values(values),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let left = self.bind_body(left, context)?;
                let right_node = self.bind_body(right, context)?;
                self.bind_set_operation(left, right_node, (*op, *set_quantifier))
                    .map_err(|e| e.at(span_of(right.as_ref())))
            }
            SetExpr::Table(table) => self.bind_table_statement(table, context),
            _ => Err(unsupported::never("a statement inside a query")),
        }
    }

    /// `TABLE t`: all of its rows.
    fn bind_table_statement(&self, table: &sql::Table, context: &Context<'_>) -> Result<Node> {
        let parts = table.schema_name.iter().chain(&table.table_name);
        let parts: Vec<&str> = parts.map(String::as_str).collect();
        let name = Name { text: dotted(&parts), span: Span::default() };
        self.named_relation(&name, context)
    }

    /// Each column gets the common type of its rows. Names are `EXPR$n`, as in Flink.
    fn bind_values(&self, values: &sql::Values) -> Result<Node> {
        let mut rows: Vec<Vec<Expr>> = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let bind = |expr| self.without_columns(expr, "VALUES");
            let row = row.content.iter().map(bind).collect::<Result<Vec<Expr>>>()?;
            if rows.first().is_some_and(|first| first.len() != row.len()) {
                return Err(Error::plan("the rows of VALUES have different numbers of columns")
                    .at(span_of(values)));
            }
            rows.push(row);
        }
        let width = rows.first().map_or(0, Vec::len);
        let mut fields = Vec::with_capacity(width);
        for column in 0..width {
            let types: Vec<ColumnType> =
                rows.iter().map(|row| row[column].column_type.clone()).collect();
            let common = build::common_type(&types).map_err(|e| e.at(span_of(values)))?;
            for row in &mut rows {
                row[column] = self.convert(row[column].clone(), &common)?;
            }
            fields.push(Field::plain(format!("EXPR${column}"), common));
        }
        Ok(LogicalPlan::node(LogicalKind::Values { rows }, fields))
    }

    fn bind_set_operation(
        &self,
        left: Node,
        right: Node,
        (operator, quantifier): (SetOperator, SetQuantifier),
    ) -> Result<Node> {
        let all = match quantifier {
            SetQuantifier::All => true,
            SetQuantifier::None | SetQuantifier::Distinct => false,
            _ => return Err(unsupported::never("a set operation BY NAME")),
        };
        let fields = self.common_fields(&left, &right)?;
        if operator == SetOperator::Union {
            let union = self.bind_union(left, right, fields)?;
            return Ok(if all { union } else { LogicalPlan::distinct(union) });
        }
        let left = self.convert_relation(left, &fields)?;
        let right = self.convert_relation(right, &fields)?;
        let intersects = operator == SetOperator::Intersect;
        let fields: Vec<Field> = fields.into_iter().map(Field::without_time).collect();
        let kind = LogicalKind::SetOperation { left, right, intersects, all };
        Ok(LogicalPlan::node(kind, fields))
    }

    /// The columns of a set operation: the names of the first side, types that both sides fit.
    fn common_fields(&self, left: &Node, right: &Node) -> Result<Vec<Field>> {
        if left.fields.len() != right.fields.len() {
            return Err(Error::plan(format!(
                "the two sides of a set operation have {} and {} columns",
                left.fields.len(),
                right.fields.len()
            )));
        }
        let mut fields = Vec::with_capacity(left.fields.len());
        for (a, b) in left.fields.iter().zip(right.fields.iter()) {
            let types = [a.column_type.clone(), b.column_type.clone()];
            let column_type = build::common_type(&types).map_err(|e| {
                Error::plan(format!("column '{}' of a set operation: {}", a.name, e.message()))
            })?;
            let both_time = a.time.is_rowtime()
                && b.time.is_rowtime()
                && a.column_type.data_type == b.column_type.data_type;
            let time = if both_time { TimeAttribute::RowTime } else { TimeAttribute::None };
            fields.push(Field { name: a.name.clone(), column_type, time });
        }
        Ok(fields)
    }

    /// A union of unions is one flat union, so that a stage reads all inputs without stages
    /// between.
    fn bind_union(&self, left: Node, right: Node, fields: Vec<Field>) -> Result<Node> {
        let mut inputs = Vec::new();
        for side in [left, right] {
            let side = self.convert_relation(side, &fields)?;
            match &side.kind {
                LogicalKind::UnionAll { inputs: more } => inputs.extend(more.iter().cloned()),
                _ => inputs.push(side),
            }
        }
        if inputs.len() > UNION_INPUTS_MAX {
            return Err(Error::unsupported(format!(
                "UNION ALL of more than {UNION_INPUTS_MAX} inputs, views counted by what they hold"
            )));
        }
        Ok(LogicalPlan::node(LogicalKind::UnionAll { inputs }, fields))
    }

    /// Casts the columns of a relation to these types and names, where they differ.
    /// Nullability is no difference: the union's fields have the common one.
    fn convert_relation(&self, node: Node, fields: &[Field]) -> Result<Node> {
        let same = |(a, b): (&Field, &Field)| {
            a.name == b.name && a.column_type.data_type == b.column_type.data_type
        };
        if node.fields.iter().zip(fields).all(same) {
            return Ok(node);
        }
        let convert = |(i, field): (usize, &Field)| {
            let column = Expr::column(i, node.fields[i].column_type.clone());
            Ok((field.name.clone(), self.convert(column, &field.column_type)?))
        };
        let columns = fields.iter().enumerate().map(convert).collect::<Result<Vec<_>>>()?;
        Ok(LogicalPlan::project(node, columns))
    }

    /// Casts a value to a common type.
    pub(super) fn convert(&self, expr: Expr, to: &ColumnType) -> Result<Expr> {
        if expr.column_type.data_type == to.data_type {
            return Ok(expr);
        }
        build::cast(expr, to.data_type.clone(), false, self.session)
    }

    /// ORDER BY of a set operation or of VALUES, which has no FROM that a key could refer to.
    fn order_by_output(&self, node: Node, order: Option<&sql::OrderBy>) -> Result<Ordered> {
        let visible = node.fields.len();
        let mut keys = Vec::new();
        for item in super::order::items(order)? {
            let column =
                super::order::output_column(&item.expr, &node.fields)?.ok_or_else(|| {
                    Error::plan("ORDER BY of a set operation names an output column or its number")
                        .at(span_of(&item.expr))
                })?;
            keys.push(super::order::sort_key(item, column));
        }
        Ok(Ordered { node, visible, keys, span: super::order::span(order) })
    }
}

/// The same rows with a name of its own for each column: `k`, `k0`, `k1`.
pub(super) fn with_distinct_names(node: Node) -> Node {
    let names = distinct_names(&node.fields);
    if names.iter().zip(node.fields.iter()).all(|(name, field)| *name == field.name) {
        return node;
    }
    let columns = names.into_iter().zip(node.columns());
    let columns = columns.map(|(name, (_, column))| (name, column)).collect();
    LogicalPlan::project(node, columns)
}

/// The names of columns, with numbers behind those that came before: a, a0, a1.
fn distinct_names(fields: &[Field]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    let mut taken: HashSet<String> = HashSet::new();
    // The number to try next: those below it are taken.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for field in fields {
        let mut name = field.name.clone();
        while !taken.insert(name.clone()) {
            let number = numbers.entry(&field.name).or_insert(0);
            name = format!("{}{number}", field.name);
            *number += 1;
        }
        names.push(name);
    }
    names
}

/// Clauses of other dialects.
fn refuse_clauses(query: &sql::Query) -> Result<()> {
    let clause = if !query.locks.is_empty() {
        "FOR UPDATE"
    } else if query.for_clause.is_some() {
        "FOR XML/JSON"
    } else if query.settings.is_some() || query.format_clause.is_some() {
        "SETTINGS/FORMAT"
    } else if !query.pipe_operators.is_empty() {
        "the pipe operator |>"
    } else {
        return Ok(());
    };
    Err(unsupported::never(clause))
}

/// The column names of an alias with their places.
pub(super) fn alias_columns(alias: &sql::TableAlias) -> Vec<(String, thalweg_core::Span)> {
    alias.columns.iter().map(|c| (c.name.value.clone(), ident_span(&c.name))).collect()
}

/// Gives the columns of a relation new names. No names mean no change.
pub(super) fn rename(
    node: Node,
    names: &[(String, thalweg_core::Span)],
    what: &str,
) -> Result<Node> {
    if names.is_empty() {
        return Ok(node);
    }
    if names.len() != node.fields.len() {
        return Err(Error::plan(format!(
            "{what} has {} columns, but {} names are given",
            node.fields.len(),
            names.len()
        ))
        .at(names[0].1));
    }
    let columns = names.iter().zip(node.columns());
    let columns = columns.map(|((name, _), (_, column))| (name.clone(), column)).collect();
    Ok(LogicalPlan::project(node, columns))
}

/// A relation with one row and no columns: what a SELECT without FROM reads.
/// `physical::values` gives the row a column that nobody reads.
pub(super) fn one_row() -> Node {
    let fields: Arc<[Field]> = Arc::from(Vec::new());
    LogicalPlan::node(LogicalKind::Values { rows: vec![Vec::new()] }, fields)
}
