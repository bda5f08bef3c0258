//! SELECT: FROM, WHERE, GROUP BY, HAVING and the select list, and the keys of ORDER BY that need to
//! see them.
//!
//! A SELECT aggregates if it has GROUP BY or HAVING, or an aggregate in its list; then `Grouping`
//! decides what names mean, otherwise `OverCalls`. Both bind the list first, collect what has to be
//! computed, and make the node when the list is complete.
//!
//! ORDER BY is bound here and not after SELECT, since its keys may be columns that are not
//! selected, or aggregates. Such keys become hidden columns behind the visible ones.
//!
//! Names of columns without an alias: that of the column, else `EXPR$n` with its position, as in
//! Flink.

use sqlparser::ast::{self as sql, GroupByExpr, SelectItem};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::Expr;

use super::aggregate::Grouping;
use super::behind_groups::{BehindGroups, placed, value_parts};
use super::children::children;
use super::from::BoundSource;
use super::functions::{function_name, is_aggregate};
use super::hints::hint_places;
use super::names::Names;
use super::order::{Ordered, items, output_column, sort_key, span as order_span};
use super::over::OverCalls;
use super::scope::{Scope, name_parts};
use super::spans::span_of;
use super::{Binder, Context, unsupported};
use crate::ast::Name;
use crate::logical::join::conjuncts;
use crate::logical::{LogicalPlan, Node, ranks};

/// The columns of a select list: their names and what they compute.
type Columns = Vec<(String, Expr)>;

impl Binder<'_> {
    /// Binds a SELECT together with the ORDER BY behind it.
    pub(super) fn bind_select(
        &self,
        select: &sql::Select,
        order: Option<&sql::OrderBy>,
        context: &Context<'_>,
    ) -> Result<Ordered> {
        refuse_clauses(select)?;
        let hint_places = hint_places(select);
        let own = Context { hint_places, ..context.clone() };
        let source = self.bind_from(&select.from, &own)?;
        let source = match &select.selection {
            Some(condition) => self.bind_where(source, condition, context)?,
            None => source,
        };
        let node = source.node;
        let group_by = group_expressions(&select.group_by, || self.group_by_all(select))?;
        let ordered = if group_by.is_empty() && select.having.is_none() && !self.aggregates(select)
        {
            let source = BoundSource { node, scope: source.scope };
            let parts = value_parts(select, order)?;
            let (source, _clause) = self.join_values(source, &parts, false, context)?;
            self.bind_list(select, order, source.node, &source.scope)?
        } else {
            if let Some(condition) = &select.qualify {
                return Err(unsupported::never("QUALIFY behind GROUP BY")
                    .hint("number the groups in a query around: SELECT … FROM (SELECT *, ROW_NUMBER() OVER (…) AS n FROM (…)) WHERE n <= 1")
                    .at(span_of(condition)));
            }
            let grouping = Grouping::new(self, (&source.scope, &node), group_by)?;
            let lifetime = match grouping.is_unwindowed() {
                true => self.hinted_lifetime(&source.scope, &own),
                false => None,
            };
            let mut grouping = grouping.kept_for(lifetime);
            let (behind, _clause) =
                self.values_behind_groups(select, order, &mut grouping, context)?;
            let grouping = (grouping, behind);
            self.bind_grouped((select, order), node, &source.scope, grouping, context)?
        };
        match &select.distinct {
            None | Some(sql::Distinct::All) => Ok(ordered),
            Some(sql::Distinct::Distinct) => distinct(ordered),
            Some(sql::Distinct::On(_)) => Err(unsupported::never("DISTINCT ON")),
        }
    }

    /// A SELECT without aggregation. The list is bound before the node of its OVER calls exists,
    /// then moved to its columns by the layout.
    fn bind_list(
        &self,
        select: &sql::Select,
        order: Option<&sql::OrderBy>,
        node: Node,
        scope: &Scope,
    ) -> Result<Ordered> {
        let mut names = OverCalls::of(scope, select);
        let mut columns = self.select_list(select, scope, &mut names)?;
        let visible = columns.len();
        let keys = self.sort_columns(order, &mut columns, &mut names)?;
        let qualified = match &select.qualify {
            Some(condition) => Some(self.qualification(condition, select, &columns, &mut names)?),
            None => None,
        };
        let (mut node, layout) = names.finish(node);
        if let Some(condition) = qualified {
            // The rank is looked for behind a projection, as that of a sub-query.
            let passed = node.columns().collect();
            let conditions = conjuncts(layout.place(&condition));
            node = ranks::filter(LogicalPlan::project(node, passed), conditions);
        }
        let columns = columns.into_iter().map(|(name, expr)| (name, layout.place(&expr))).collect();
        let node = LogicalPlan::project(node, columns);
        let keys = keys.into_iter().map(|(item, column)| sort_key(item, column)).collect();
        Ok(Ordered { node, visible, keys, span: order_span(order) })
    }

    /// The condition of QUALIFY, which may name columns of the list.
    fn qualification(
        &self,
        condition: &sql::Expr,
        select: &sql::Select,
        columns: &Columns,
        names: &mut OverCalls<'_>,
    ) -> Result<Expr> {
        let is_named = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { .. });
        let items = select.projection.iter();
        let is_simple = items.clone().all(|item| {
            !matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
        });
        let aliases = items.enumerate().filter(|(_, item)| is_named(item)).map(|(at, item)| {
            // A `*` in front of it makes its place another one: then its name finds it.
            let SelectItem::ExprWithAlias { alias, .. } = item else { return (String::new(), at) };
            let named = columns.iter().rposition(|(name, _)| *name == alias.value);
            (alias.value.clone(), if is_simple { at } else { named.unwrap_or(at) })
        });
        let aliases: Vec<(String, Expr)> =
            aliases.map(|(name, at)| (name, columns[at].1.clone())).collect();
        let mut names = QualifyNames { names, aliases: &aliases };
        self.condition(condition, "QUALIFY", &mut names)
    }

    /// A SELECT with aggregation. HAVING is a filter over the aggregate; keys of ORDER BY may be
    /// aggregates that the list does not have.
    pub(super) fn bind_grouped(
        &self,
        (select, order): (&sql::Select, Option<&sql::OrderBy>),
        node: Node,
        scope: &Scope,
        (mut grouping, behind): (Grouping<'_>, BehindGroups),
        context: &Context<'_>,
    ) -> Result<Ordered> {
        let mut columns = self.select_list(select, scope, &mut grouping)?;
        let visible = columns.len();
        let having = match &select.having {
            None => None,
            Some(condition) => Some(self.condition(condition, "HAVING", &mut grouping)?),
        };
        let keys = self.sort_columns(order, &mut columns, &mut grouping)?;
        let keys = keys.into_iter().map(|(item, column)| sort_key(item, column)).collect();
        let (node, layout) = grouping.finish(self, node)?;
        let (mut node, values) = self.join_behind_groups(node, behind, &layout, context)?;
        let place = |expr: &Expr| placed(expr, &layout, &values);
        if let Some(condition) = having {
            node = LogicalPlan::filter(node, place(&condition));
        }
        let columns = columns.into_iter().map(|(name, expr)| (name, place(&expr))).collect();
        let node = LogicalPlan::project(node, columns);
        Ok(Ordered { node, visible, keys, span: order_span(order) })
    }

    /// `GROUP BY ALL`, with the keys that it stands for.
    fn group_by_all(&self, select: &sql::Select) -> Error {
        let key = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                (!self.contains_aggregate(expr)).then(|| expr.to_string())
            }
            _ => None,
        };
        let keys: Vec<String> = select.projection.iter().filter_map(key).collect();
        let error = unsupported::never("GROUP BY ALL");
        match keys.is_empty() {
            true => error.hint("leave it out: without keys all rows are one group"),
            false => error.hint(format!("write GROUP BY {}", keys.join(", "))),
        }
    }

    /// True if the select list aggregates.
    pub(super) fn aggregates(&self, select: &sql::Select) -> bool {
        select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                self.contains_aggregate(expr)
            }
            _ => false,
        })
    }

    /// True if an expression holds an aggregate function that is not OVER a window.
    pub(super) fn contains_aggregate(&self, expr: &sql::Expr) -> bool {
        if let sql::Expr::Function(function) = expr
            && function.over.is_none()
            && is_aggregate(self, &function_name(function))
        {
            return true;
        }
        children(expr).into_iter().any(|child| self.contains_aggregate(child))
    }

    /// The columns of the list, with `*` and `row.*` expanded.
    fn select_list(
        &self,
        select: &sql::Select,
        scope: &Scope,
        names: &mut dyn Names,
    ) -> Result<Columns> {
        let mut columns = Vec::with_capacity(select.projection.len());
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let bound = self.expression(expr, names)?;
                    columns.push((implied_name(expr, columns.len()), bound));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    columns.push((alias.value.clone(), self.expression(expr, names)?));
                }
                SelectItem::Wildcard(options) => {
                    refuse_wildcard_options(options)?;
                    if scope.fields.is_empty() {
                        return Err(Error::plan("SELECT * needs a FROM clause").at(span_of(item)));
                    }
                    self.expand(scope.all_columns(), scope, item, names, &mut columns)?;
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    refuse_wildcard_options(options)?;
                    match wildcard_range(kind, scope) {
                        Ok(range) => self.expand(range, scope, item, names, &mut columns)?,
                        Err(unknown) => {
                            let row = self.wildcard_row(kind, names)?.ok_or(unknown)?;
                            columns.extend(self.row_columns(&row)?);
                        }
                    }
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(
                        unsupported::never("an expression with several names").at(span_of(item))
                    );
                }
            }
        }
        Ok(columns)
    }

    /// What stands in front of `.*`, if it is a ROW.
    fn wildcard_row(
        &self,
        kind: &sql::SelectItemQualifiedWildcardKind,
        names: &mut dyn Names,
    ) -> Result<Option<Expr>> {
        let row = match kind {
            sql::SelectItemQualifiedWildcardKind::Expr(expr) => self.expression(expr, names)?,
            sql::SelectItemQualifiedWildcardKind::ObjectName(name) => {
                let parts = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
                let Ok(row) = self.expression(&sql::Expr::CompoundIdentifier(parts), names) else {
                    return Ok(None);
                };
                row
            }
        };
        Ok(matches!(row.column_type.data_type, DataType::Row(_)).then_some(row))
    }

    /// The fields of a ROW as columns.
    fn row_columns(&self, row: &Expr) -> Result<Columns> {
        let DataType::Row(fields) = &row.column_type.data_type else { return Ok(Vec::new()) };
        let column = |field: &thalweg_core::Column| {
            let name = sql::Ident::new(field.name.clone());
            Ok((field.name.clone(), self.fields(row.clone(), &[name])?))
        };
        fields.iter().map(column).collect()
    }

    /// Appends the columns of a `*`, each as if it had been written out.
    fn expand(
        &self,
        range: impl IntoIterator<Item = usize>,
        scope: &Scope,
        item: &SelectItem,
        names: &mut dyn Names,
        columns: &mut Columns,
    ) -> Result<()> {
        for index in range {
            let name = scope.fields[index].name.clone();
            let expr = names.column(index).map_err(|e| e.at(span_of(item)))?;
            columns.push((name, expr));
        }
        Ok(())
    }

    /// For each item of ORDER BY the column of the select list that it means; what is not in the
    /// list is appended to it.
    ///
    /// A name or a number of an output column comes first, then an expression over the input; of
    /// equal expressions the column of the list is used.
    fn sort_columns<'q>(
        &self,
        order: Option<&'q sql::OrderBy>,
        columns: &mut Columns,
        names: &mut dyn Names,
    ) -> Result<Vec<(&'q sql::OrderByExpr, usize)>> {
        let visible: Vec<crate::logical::Field> = columns
            .iter()
            .map(|(name, expr)| {
                crate::logical::Field::plain(name.clone(), expr.column_type.clone())
            })
            .collect();
        let mut keys = Vec::new();
        for item in items(order)? {
            let column = match output_column(&item.expr, &visible)? {
                Some(column) => column,
                None => {
                    let bound = self.expression(&item.expr, names)?;
                    let text = bound.to_string();
                    let found = columns.iter().position(|(_, expr)| expr.to_string() == text);
                    found.unwrap_or_else(|| {
                        columns.push((implied_name(&item.expr, columns.len()), bound));
                        columns.len() - 1
                    })
                }
            };
            keys.push((item, column));
        }
        Ok(keys)
    }
}

/// `SELECT DISTINCT`, with the ORDER BY behind it.
/// A hidden column would make different rows of equal ones, so it is refused.
fn distinct(ordered: Ordered) -> Result<Ordered> {
    let Ordered { node, visible, keys, span } = ordered;
    if node.fields.len() > visible {
        return Err(Error::plan("ORDER BY of SELECT DISTINCT names a column that is not selected")
            .hint("select the column as well")
            .at(span));
    }
    Ok(Ordered { node: LogicalPlan::distinct(node), visible, keys, span })
}

/// Names of a select list with those of its columns, as QUALIFY sees them.
struct QualifyNames<'n, 's> {
    names: &'n mut OverCalls<'s>,
    aliases: &'n [(String, Expr)],
}

impl Names for QualifyNames<'_, '_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &sql::Expr) -> Result<Option<Expr>> {
        if let Some([name]) = name_parts(expr)
            && let Some((_, column)) = self.aliases.iter().find(|(alias, _)| *alias == name.value)
        {
            return Ok(Some(column.clone()));
        }
        self.names.intercept(binder, expr)
    }

    fn column(&mut self, input: usize) -> Result<Expr> {
        self.names.column(input)
    }

    fn is_rowtime(&self, column: usize) -> bool {
        self.names.is_rowtime(column)
    }
}

/// The name of a column without alias: that of the column it is, else `EXPR$n`.
pub(super) fn implied_name(expr: &sql::Expr, position: usize) -> String {
    match name_parts(expr).and_then(<[sql::Ident]>::last) {
        Some(last) => last.value.clone(),
        None => format!("EXPR${position}"),
    }
}

/// The keys of GROUP BY; without the clause none.
fn group_expressions(
    group_by: &GroupByExpr,
    refuse_all: impl FnOnce() -> Error,
) -> Result<&[sql::Expr]> {
    match group_by {
        GroupByExpr::All(_) => Err(refuse_all()),
        GroupByExpr::Expressions(expressions, modifiers) => {
            if !modifiers.is_empty() {
                return Err(unsupported::never("a word after the keys of GROUP BY")
                    .hint("write GROUP BY ROLLUP (a, b), CUBE (a, b) or GROUPING SETS (…)"));
            }
            Ok(expressions)
        }
    }
}

/// The columns of `relation.*`.
pub(super) fn wildcard_range(
    kind: &sql::SelectItemQualifiedWildcardKind,
    scope: &Scope,
) -> Result<std::ops::Range<usize>> {
    let sql::SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
        return Err(unsupported::never("(expression).*"));
    };
    let path = super::from::table_path(name)?;
    let name = Name { text: crate::catalog::path::last_part(&path.text), ..path };
    let found = scope.relations.iter().find(|r| r.alias.as_deref() == Some(name.text.as_str()));
    match found {
        Some(relation) => Ok(relation.start..relation.start + relation.len),
        None => {
            let ident = sql::Ident::new(name.text.clone());
            Err(scope.unknown_relation(&ident).at(name.span))
        }
    }
}

fn refuse_wildcard_options(options: &sql::WildcardAdditionalOptions) -> Result<()> {
    let extra = options.opt_ilike.is_some()
        || options.opt_exclude.is_some()
        || options.opt_except.is_some()
        || options.opt_replace.is_some()
        || options.opt_rename.is_some();
    if extra { Err(unsupported::never("* with EXCLUDE, REPLACE or RENAME")) } else { Ok(()) }
}

/// Clauses of other dialects.
fn refuse_clauses(select: &sql::Select) -> Result<()> {
    let clause = if select.top.is_some() {
        "TOP (write LIMIT)"
    } else if select.into.is_some() {
        "SELECT INTO (write INSERT INTO)"
    } else if !select.lateral_views.is_empty() {
        "LATERAL VIEW (write CROSS JOIN UNNEST)"
    } else if select.prewhere.is_some() {
        "PREWHERE"
    } else if !select.connect_by.is_empty() {
        "CONNECT BY"
    } else if !(select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty())
    {
        "CLUSTER BY, DISTRIBUTE BY or SORT BY"
    } else {
        return Ok(());
    };
    Err(unsupported::never(clause).at(span_of(select)))
}
