//! Goes through the tree of a query and shows every part that a rule may look at, sub-queries
//! included.
//!
//! What the dialect does not have is not gone into: such a query is refused before it is checked.

use sqlparser::ast::{self as sql, FunctionArguments, SetExpr, TableFactor};

use crate::bind::children::children;

/// A part of a query.
pub(super) enum Syntax<'a> {
    /// A query, with its ORDER BY.
    Query(&'a sql::Query),
    /// A SELECT.
    Select(&'a sql::Select),
    /// A name of a column, table, alias or window.
    Name(&'a sql::Ident),
    /// An expression; those inside of it are shown, too.
    Expression(&'a sql::Expr),
    /// An expression of a SELECT list, or of a row of VALUES.
    Item(&'a sql::Expr),
    /// What rows are grouped or sorted by.
    Key(&'a sql::Expr),
    /// A join.
    Join(&'a sql::Join),
    /// A table in FROM.
    Factor(&'a TableFactor),
}

type Visit<'v, 'a> = &'v mut dyn FnMut(Syntax<'a>);

/// Shows the parts of a query.
pub(super) fn walk_query<'a>(query: &'a sql::Query, visit: Visit<'_, 'a>) {
    visit(Syntax::Query(query));
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        walk_alias(&cte.alias, visit);
        walk_query(&cte.query, visit);
    }
    walk_body(&query.body, visit);
    if let Some(sql::OrderBy { kind: sql::OrderByKind::Expressions(keys), .. }) = &query.order_by {
        keys.iter().for_each(|key| walk_key(&key.expr, visit));
    }
}

fn walk_key<'a>(key: &'a sql::Expr, visit: Visit<'_, 'a>) {
    visit(Syntax::Key(key));
    walk_expression(key, visit);
}

fn walk_body<'a>(body: &'a SetExpr, visit: Visit<'_, 'a>) {
    match body {
        SetExpr::Query(query) => walk_query(query, visit),
        SetExpr::SetOperation { left, right, .. } => {
            walk_body(left, visit);
            walk_body(right, visit);
        }
        SetExpr::Select(select) => walk_select(select, visit),
        SetExpr::Values(values) => {
            for value in values.rows.iter().flat_map(|row| &row.content) {
                visit(Syntax::Item(value));
                walk_expression(value, visit);
            }
        }
        _ => {}
    }
}

fn walk_select<'a>(select: &'a sql::Select, visit: Visit<'_, 'a>) {
    visit(Syntax::Select(select));
    for item in &select.projection {
        match item {
            sql::SelectItem::UnnamedExpr(expr) => {
                visit(Syntax::Item(expr));
                walk_expression(expr, visit);
            }
            sql::SelectItem::ExprWithAlias { expr, alias } => {
                visit(Syntax::Item(expr));
                visit(Syntax::Name(alias));
                walk_expression(expr, visit);
            }
            sql::SelectItem::QualifiedWildcard(
                sql::SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) => walk_object(name, visit),
            _ => {}
        }
    }
    select.from.iter().for_each(|tables| walk_tables(tables, visit));
    let conditions = [&select.selection, &select.having, &select.qualify];
    conditions.into_iter().flatten().for_each(|expr| walk_expression(expr, visit));
    if let sql::GroupByExpr::Expressions(keys, _) = &select.group_by {
        keys.iter().for_each(|key| walk_group_key(key, visit));
    }
    for sql::NamedWindowDefinition(name, window) in &select.named_window {
        visit(Syntax::Name(name));
        if let sql::NamedWindowExpr::WindowSpec(window) = window {
            walk_window(window, visit);
        }
    }
}

fn walk_group_key<'a>(key: &'a sql::Expr, visit: Visit<'_, 'a>) {
    match key {
        sql::Expr::GroupingSets(sets) | sql::Expr::Cube(sets) | sql::Expr::Rollup(sets) => {
            sets.iter().flatten().for_each(|key| walk_expression(key, visit));
        }
        key => walk_key(key, visit),
    }
}

fn walk_tables<'a>(tables: &'a sql::TableWithJoins, visit: Visit<'_, 'a>) {
    walk_factor(&tables.relation, visit);
    for join in &tables.joins {
        walk_factor(&join.relation, visit);
        visit(Syntax::Join(join));
        match crate::bind::join::join_kind(&join.join_operator) {
            Some((_, sql::JoinConstraint::On(condition))) => walk_expression(condition, visit),
            Some((_, sql::JoinConstraint::Using(names))) => {
                names.iter().for_each(|name| walk_object(name, visit));
            }
            _ => {}
        }
    }
}

fn walk_factor<'a>(factor: &'a TableFactor, visit: Visit<'_, 'a>) {
    visit(Syntax::Factor(factor));
    match factor {
        TableFactor::Table { name, alias, args, .. } => {
            if args.is_none() {
                walk_object(name, visit);
            }
            alias.iter().for_each(|alias| walk_alias(alias, visit));
        }
        TableFactor::Derived { subquery, alias, .. } => {
            walk_query(subquery, visit);
            alias.iter().for_each(|alias| walk_alias(alias, visit));
        }
        TableFactor::UNNEST { alias, array_exprs, .. } => {
            array_exprs.iter().for_each(|expr| walk_expression(expr, visit));
            alias.iter().for_each(|alias| walk_alias(alias, visit));
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            walk_tables(table_with_joins, visit);
            alias.iter().for_each(|alias| walk_alias(alias, visit));
        }
        TableFactor::MatchRecognize {
            table,
            partition_by,
            order_by,
            measures,
            symbols,
            alias,
            ..
        } => {
            walk_factor(table, visit);
            partition_by.iter().for_each(|key| walk_expression(key, visit));
            order_by.iter().for_each(|key| walk_expression(&key.expr, visit));
            for measure in measures {
                visit(Syntax::Name(&measure.alias));
                walk_expression(&measure.expr, visit);
            }
            for symbol in symbols {
                visit(Syntax::Name(&symbol.symbol));
                walk_expression(&symbol.definition, visit);
            }
            alias.iter().for_each(|alias| walk_alias(alias, visit));
        }
        _ => {}
    }
}

fn walk_alias<'a>(alias: &'a sql::TableAlias, visit: Visit<'_, 'a>) {
    visit(Syntax::Name(&alias.name));
    alias.columns.iter().for_each(|column| visit(Syntax::Name(&column.name)));
}

fn walk_object<'a>(name: &'a sql::ObjectName, visit: Visit<'_, 'a>) {
    name.0.iter().filter_map(|part| part.as_ident()).for_each(|part| visit(Syntax::Name(part)));
}

/// Shows the parts of an expression.
pub(super) fn walk_expression<'a>(expr: &'a sql::Expr, visit: Visit<'_, 'a>) {
    visit(Syntax::Expression(expr));
    match expr {
        sql::Expr::Identifier(name) => visit(Syntax::Name(name)),
        sql::Expr::CompoundIdentifier(names) => {
            names.iter().for_each(|name| visit(Syntax::Name(name)));
        }
        sql::Expr::Subquery(query) | sql::Expr::Exists { subquery: query, .. } => {
            walk_query(query, visit);
        }
        sql::Expr::InSubquery { expr, subquery, .. } => {
            walk_expression(expr, visit);
            walk_query(subquery, visit);
        }
        sql::Expr::CompoundFieldAccess { access_chain, .. } => {
            for access in access_chain {
                match access {
                    sql::AccessExpr::Dot(inner) => walk_expression(inner, visit),
                    sql::AccessExpr::Subscript(sql::Subscript::Index { index }) => {
                        walk_expression(index, visit);
                    }
                    sql::AccessExpr::Subscript(_) => {}
                }
            }
        }
        sql::Expr::Function(function) => walk_clauses(function, visit),
        _ => {}
    }
    // The first argument of these is a unit, which looks like a name.
    let units = usize::from(has_unit(expr));
    children(expr).into_iter().skip(units).for_each(|child| walk_expression(child, visit));
}

fn has_unit(expr: &sql::Expr) -> bool {
    let sql::Expr::Function(function) = expr else { return false };
    let name = crate::bind::functions::function_name(function);
    matches!(name.as_str(), "TIMESTAMPDIFF" | "TIMESTAMPADD")
}

/// What stands behind the arguments of a function.
fn walk_clauses<'a>(function: &'a sql::Function, visit: Visit<'_, 'a>) {
    function.filter.iter().for_each(|filter| walk_expression(filter, visit));
    function.within_group.iter().for_each(|key| walk_expression(&key.expr, visit));
    if let FunctionArguments::Subquery(query) = &function.args {
        walk_query(query, visit);
    }
    match &function.over {
        Some(sql::WindowType::WindowSpec(window)) => walk_window(window, visit),
        Some(sql::WindowType::NamedWindow(name)) => visit(Syntax::Name(name)),
        None => {}
    }
}

fn walk_window<'a>(window: &'a sql::WindowSpec, visit: Visit<'_, 'a>) {
    window.window_name.iter().for_each(|name| visit(Syntax::Name(name)));
    window.partition_by.iter().for_each(|key| walk_expression(key, visit));
    window.order_by.iter().for_each(|key| walk_expression(&key.expr, visit));
}
