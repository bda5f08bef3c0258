//! FROM: tables, views, common table expressions, windowing functions, sub-queries, UNNEST, joins.
//!
//! Each factor becomes a node with a scope ([`BoundSource`]): the names by which clauses see its
//! columns. Factors are joined from left to right, as they are written; nothing is reordered. A
//! comma is a cross join, which WHERE may turn into an equi-join.
//!
//! A name is looked up as a placeholder of a windowing function, then as a common table expression
//! (the innermost first), then as a table or view.
//!
//! UNNEST is a lateral join: its array is an expression over what stands left of it, and each row
//! is repeated per element. An inner join drops rows without elements, a left join keeps them with
//! NULL.

use std::borrow::Cow;
use std::sync::Arc;

use sqlparser::ast::{self as sql, JoinConstraint, JoinOperator, TableFactor};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::{Expr, build};

use super::functions::function_name;
use super::names::PlainNames;
use super::query::{alias_columns, one_row, rename, with_distinct_names};
use super::scope::Scope;
use super::spans::{ident_span, span_of};
use super::state_table::state_call;
use super::{Binder, Context, unsupported};
use crate::ast::Name;
use crate::catalog::path::{dotted, last_part, parts};
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, drawn_again};

/// A relation with the names by which it is seen.
/// Both have the same columns.
pub(super) struct BoundSource {
    pub(super) node: Node,
    pub(super) scope: Scope,
}

impl BoundSource {
    fn of(node: Node, alias: Option<String>) -> Self {
        let scope = Scope::of(alias, node.fields.clone());
        BoundSource { node, scope }
    }
}

/// Refuses what stands behind a table and would change its rows if it were heard.
fn refuse_clauses(factor: &TableFactor) -> Result<()> {
    match factor {
        _ if is_unnest(factor) => Ok(()),
        TableFactor::Table { with_ordinality: true, .. } => {
            Err(unsupported::never("WITH ORDINALITY after a table").at(span_of(factor)))
        }
        _ => Ok(()),
    }
}

/// TABLESAMPLE of a factor.
pub(crate) fn sample(factor: &TableFactor) -> Option<&sql::TableSample> {
    let (TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. }) = factor else {
        return None;
    };
    match sample.as_ref()? {
        sql::TableSampleKind::BeforeTableAlias(sample)
        | sql::TableSampleKind::AfterTableAlias(sample) => Some(sample),
    }
}

/// FOR SYSTEM_TIME AS OF chooses versions for the rows of a left side, and here there is none.
fn refuse_version(factor: &TableFactor) -> Result<()> {
    let TableFactor::Table { version: Some(_), .. } = factor else { return Ok(()) };
    Err(unsupported::never("FOR SYSTEM_TIME AS OF after a table that is not joined")
        .hint("a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k")
        .at(span_of(factor)))
}

/// What an UNNEST says besides its array.
pub(super) struct UnnestCall<'q> {
    array: Cow<'q, sql::Expr>,
    alias: Option<&'q sql::TableAlias>,
    ordinality: bool,
    /// True for `LATERAL TABLE(f(x))`: each row is repeated for the rows that f gives.
    is_function: bool,
}

impl Binder<'_> {
    /// Binds a FROM clause. Without one there is one row without columns.
    pub(super) fn bind_from(
        &self,
        from: &[sql::TableWithJoins],
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let Some((first, rest)) = from.split_first() else {
            return Ok(BoundSource { node: one_row(), scope: Scope::empty() });
        };
        let mut source = self.bind_joined(None, first, context)?;
        for next in rest {
            source = self.bind_joined(Some(source), next, context)?;
        }
        Ok(source)
    }

    /// A factor with the joins that follow it. Behind a comma `left` is what stands before.
    fn bind_joined(
        &self,
        left: Option<BoundSource>,
        tables: &sql::TableWithJoins,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let cross = JoinOperator::CrossJoin(JoinConstraint::None);
        let mut source = match left {
            None => {
                refuse_version(&tables.relation)?;
                self.bind_factor(&tables.relation, context)?
            }
            Some(left) => self.bind_join(left, &tables.relation, &cross, context)?,
        };
        for join in &tables.joins {
            source = self.bind_join(source, &join.relation, &join.join_operator, context)?;
        }
        Ok(source)
    }

    /// One element of FROM. UNNEST and windowing functions look like tables with arguments to
    /// sqlparser, so they are recognized first.
    pub(super) fn bind_factor(
        &self,
        factor: &TableFactor,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        refuse_clauses(factor)?;
        let source = self.bind_whole_factor(factor, context)?;
        match sample(factor) {
            None => Ok(source),
            Some(sample) => self.sampled(source, sample).map_err(|e| e.at(span_of(factor))),
        }
    }

    /// `TABLESAMPLE BERNOULLI (percent) [REPEATABLE (seed)]`: each row is kept by chance.
    fn sampled(&self, source: BoundSource, sample: &sql::TableSample) -> Result<BoundSource> {
        let is_bernoulli = matches!(&sample.name, Some(sql::TableSampleMethod::Bernoulli));
        if !is_bernoulli || sample.bucket.is_some() || sample.offset.is_some() {
            return Err(unsupported::never("TABLESAMPLE of another method than BERNOULLI")
                .hint("write TABLESAMPLE BERNOULLI (percent)"));
        }
        let percent = sample.quantity.as_ref().map(|quantity| quantity.value.to_string());
        let percent = percent.and_then(|text| text.parse::<f64>().ok());
        let Some(percent) = percent.filter(|percent| (0.0..=100.0).contains(percent)) else {
            return Err(Error::plan("TABLESAMPLE takes a number from 0 to 100, the percentage"));
        };
        if percent >= 100.0 {
            return Ok(source);
        }
        let seed = match &sample.seed {
            None => Vec::new(),
            Some(seed) => vec![build::number_literal(&seed.value.to_string())?],
        };
        let drawn = build::call("RAND", seed, self.session)?;
        let share = build::number_literal(&format!("{}e0", percent / 100.0))?;
        let is_kept = build::binary(build::BinaryOp::Less, drawn, share, self.session)?;
        let BoundSource { node, scope } = source;
        Ok(BoundSource { node: LogicalPlan::filter(node, is_kept), scope })
    }

    fn bind_whole_factor(
        &self,
        factor: &TableFactor,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        if let Some((arguments, alias)) = state_call(factor) {
            return self.named(self.bind_state_table(factor, arguments)?, alias, None);
        }
        if let Some(call) = self.lateral_call(factor)? {
            let none = BoundSource { node: one_row(), scope: Scope::empty() };
            return self.bind_unnest(none, &call, false);
        }
        match factor {
            TableFactor::Table { name, alias, args, .. } => {
                if args.is_some() {
                    return Err(
                        unsupported::later(&format!("the table function {name}")).at(span_of(name))
                    );
                }
                let node = self.bind_table_name(name, context)?;
                let own_name = self.visible_name(name, context);
                let mut source = self.named(node, alias.as_ref(), own_name.clone())?;
                if let (None, Some(_), [relation]) =
                    (alias, own_name, &mut source.scope.relations[..])
                {
                    let (path, _) = self.database.borrow().object(&table_path(name)?.text);
                    relation.qualifiers = vec![path.catalog, path.database];
                }
                Ok(source)
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let node = self.bind_tree(subquery, context)?;
                self.named(with_distinct_names(node), alias.as_ref(), None)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let source = self.bind_joined(None, table_with_joins, context)?;
                match alias {
                    None => Ok(source),
                    Some(_) => self.named(source.node, alias.as_ref(), None),
                }
            }
            TableFactor::MatchRecognize { .. } => self.bind_match(factor, context),
            TableFactor::Function { name, .. } => {
                Err(unsupported::later(&format!("the table function {name}")).at(span_of(factor)))
            }
            other => Err(unsupported::never("this kind of table in FROM").at(span_of(other))),
        }
    }

    fn bind_table_name(&self, name: &sql::ObjectName, context: &Context<'_>) -> Result<Node> {
        let name = table_path(name)?;
        // A placeholder holds a character that no plain name has, so it may stand in backticks.
        let own = last_part(&name.text);
        if let Some(call) = context.windows.iter().find(|w| w.placeholder == own) {
            return self.bind_window_call(call, context);
        }
        if let Some((_, query)) = context.matched.iter().find(|(name, _)| *name == own) {
            return self.bind_query(query, context);
        }
        self.named_relation(&name, context)
    }

    /// The common table expression, table or view of this name.
    /// Each use of one that draws (`RAND()`) draws for itself.
    pub(super) fn named_relation(&self, name: &Name, context: &Context<'_>) -> Result<Node> {
        let end = (name.span.line, name.span.end_column);
        let options = context.table_options.iter().find(|hint| hint.behind == end);
        let cte = context.ctes.iter().rev().find(|(cte, _)| dotted(&[cte]) == name.text);
        match (cte, options) {
            (Some(_), Some(_)) => Err(Error::plan(format!(
                "'{}' is a common table expression, and the hint OPTIONS is for tables",
                name.text
            ))
            .at(name.span)),
            (Some((_, node)), None) => Ok(drawn_again(node)),
            (None, Some(hint)) => self.relation_with(name, &hint.options),
            (None, None) => self.relation(name).map(|node| drawn_again(&node)),
        }
    }

    /// The name by which a table without alias is seen; a windowing function has none.
    fn visible_name(&self, name: &sql::ObjectName, context: &Context<'_>) -> Option<String> {
        let name = last_part(&table_path(name).ok()?.text);
        let is_window = context.windows.iter().any(|w| w.placeholder == name);
        let is_matched = context.matched.iter().any(|(own, _)| *own == name);
        (!is_window && !is_matched).then_some(name)
    }

    /// A node under a name: its alias, which may rename the columns too, or else the name of the
    /// table. Without either only bare column names reach it.
    pub(super) fn named(
        &self,
        node: Node,
        alias: Option<&sql::TableAlias>,
        own_name: Option<String>,
    ) -> Result<BoundSource> {
        match alias {
            None => Ok(BoundSource::of(node, own_name)),
            Some(alias) => {
                let what = format!("'{}'", alias.name.value);
                let node = rename(node, &alias_columns(alias), &what)?;
                Ok(BoundSource::of(node, Some(alias.name.value.clone())))
            }
        }
    }

    /// What repeats the rows left of it: the array of UNNEST, or the call of a function where a
    /// table stands, `LATERAL TABLE(words(line))` or, if the function is registered, `words(line)`.
    /// Its ARRAY's elements are rows.
    pub(super) fn lateral_call<'q>(
        &self,
        factor: &'q TableFactor,
    ) -> Result<Option<UnnestCall<'q>>> {
        if is_unnest(factor) {
            return unnest_call(factor).map(Some);
        }
        let Some((array, alias, is_named_table)) = table_function_call(factor) else {
            return Ok(None);
        };
        let sql::Expr::Function(function) = &*array else { return Ok(None) };
        let name = function_name(function);
        let is_there =
            is_named_table || self.session.functions.get(&self.implemented_as(&name)).is_some();
        let call = UnnestCall { array, alias, ordinality: false, is_function: true };
        Ok(is_there.then_some(call))
    }

    /// `CROSS JOIN UNNEST(array)`. Without a left side the array is constant, and one row stands
    /// for it.
    pub(super) fn bind_unnest(
        &self,
        left: BoundSource,
        call: &UnnestCall<'_>,
        outer: bool,
    ) -> Result<BoundSource> {
        let array = self.expression(&call.array, &mut PlainNames::of(&left.scope, "UNNEST"))?;
        let mut fresh = element_fields(&array).ok_or_else(|| {
            let found = &array.column_type.data_type;
            let message = match call.is_function {
                true => format!("a table function gives an ARRAY, and this one {found}"),
                false => format!("UNNEST takes an ARRAY or a MAP, not {found}"),
            };
            Error::plan(message).at(span_of(&*call.array))
        })?;
        if call.ordinality {
            fresh.push(Field::plain("ORDINALITY", DataType::Int.not_null()));
        }
        // A row without elements is kept with NULL, so the columns of a left join may be NULL.
        for field in &mut fresh {
            field.column_type.nullable |= outer;
        }
        if let Some(alias) = call.alias {
            name_elements(&mut fresh, alias)?;
        }
        let alias = call.alias.map(|a| a.name.value.clone());
        let right = Scope::of(alias, fresh.clone().into());
        left.scope.check_names(&right).map_err(|error| error.at(span_of(&*call.array)))?;
        let ordinality = call.ordinality;
        if left.node.fields.is_empty() {
            let kind = LogicalKind::Unnest { input: unit_row(), array, outer, ordinality };
            return Ok(BoundSource { node: behind_unit(kind, &fresh), scope: right });
        }
        let fields: Arc<[Field]> = left.node.fields.iter().cloned().chain(fresh).collect();
        let scope = left.scope.joined(&right, fields.clone());
        let kind = LogicalKind::Unnest { input: left.node, array, outer, ordinality };
        Ok(BoundSource { node: LogicalPlan::node(kind, fields), scope })
    }
}

/// A name of one part: of a column, or of a relation of FROM.
pub(super) fn simple_name(name: &sql::ObjectName) -> Result<Name> {
    let path = table_path(name)?;
    match &parts(&path.text)[..] {
        [only] => Ok(Name { text: only.clone(), span: path.span }),
        _ => Err(Error::plan(format!("'{name}' has too many parts"))
            .hint("name it without what it belongs to")
            .at(path.span)),
    }
}

/// The name of a table, which may be preceded by those of catalog and database.
pub(super) fn table_path(name: &sql::ObjectName) -> Result<Name> {
    let mut parts = Vec::new();
    for part in &name.0 {
        match part {
            sql::ObjectNamePart::Identifier(ident) => parts.push(ident.value.as_str()),
            _ => return Err(unsupported::never("a computed table name").at(span_of(name))),
        }
    }
    Ok(Name { text: dotted(&parts), span: span_of(name) })
}

/// True for `UNNEST(…)`, which the parser takes for a table with arguments.
fn is_unnest(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::UNNEST { .. } => true,
        TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
            name.to_string().eq_ignore_ascii_case("UNNEST")
        }
        _ => false,
    }
}

/// The call in any of the three forms in which sqlparser delivers it.
fn unnest_call(factor: &TableFactor) -> Result<UnnestCall<'_>> {
    let (arrays, alias, ordinality): (Vec<&sql::Expr>, _, bool) = match factor {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, with_offset: false, .. } => {
            (array_exprs.iter().collect(), alias, *with_ordinality)
        }
        TableFactor::Table { args: Some(args), alias, with_ordinality, .. } => {
            (argument_expressions(&args.args), alias, *with_ordinality)
        }
        TableFactor::Function { args, alias, with_ordinality, .. } => {
            (argument_expressions(args), alias, *with_ordinality)
        }
        _ => return Err(unsupported::never("UNNEST WITH OFFSET").at(span_of(factor))),
    };
    match arrays.as_slice() {
        [array] => Ok(UnnestCall {
            array: Cow::Borrowed(array),
            alias: alias.as_ref(),
            ordinality,
            is_function: false,
        }),
        _ => Err(Error::plan(format!("UNNEST takes one array, not {}", arrays.len()))
            .at(span_of(factor))),
    }
}

/// The call of a table function in the forms in which sqlparser delivers it, its alias, and whether
/// the word TABLE is in front of it.
fn table_function_call(
    factor: &TableFactor,
) -> Option<(Cow<'_, sql::Expr>, Option<&sql::TableAlias>, bool)> {
    let (name, args, alias) = match factor {
        TableFactor::TableFunction { expr, alias } => {
            return Some((Cow::Borrowed(expr), alias.as_ref(), true));
        }
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        _ => return None,
    };
    if name.to_string().eq_ignore_ascii_case("TABLE") {
        let [only] = argument_expressions(args)[..] else { return None };
        return Some((Cow::Borrowed(only), alias.as_ref(), true));
    }
    let list = sql::FunctionArgumentList {
        duplicate_treatment: None,
        args: args.clone(),
        clauses: Vec::new(),
    };
    let call = sql::Function {
        name: name.clone(),
        uses_odbc_syntax: false,
        parameters: sql::FunctionArguments::None,
        args: sql::FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    };
    Some((Cow::Owned(sql::Expr::Function(call)), alias.as_ref(), false))
}

fn argument_expressions(args: &[sql::FunctionArg]) -> Vec<&sql::Expr> {
    args.iter().filter_map(argument_expression).collect()
}

fn argument_expression(arg: &sql::FunctionArg) -> Option<&sql::Expr> {
    match arg {
        sql::FunctionArg::Unnamed(sql::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// One row of one column: rows that an operator repeats have columns.
fn unit_row() -> Node {
    let unit = build::boolean_literal(true);
    let fields = vec![Field::plain("unit", unit.column_type.clone())];
    LogicalPlan::node(LogicalKind::Values { rows: vec![vec![unit]] }, fields)
}

/// The columns that a node appends to those of [`unit_row`].
fn behind_unit(kind: LogicalKind, fresh: &[Field]) -> Node {
    let unit = Field::plain("unit", DataType::Boolean.not_null());
    let fields: Arc<[Field]> = std::iter::once(unit).chain(fresh.iter().cloned()).collect();
    let node = LogicalPlan::node(kind, fields);
    let columns = node.columns().skip(1).collect();
    LogicalPlan::project(node, columns)
}

/// The columns that the elements of an array or map become.
/// A ROW becomes its fields, anything else one column.
fn element_fields(array: &Expr) -> Option<Vec<Field>> {
    match &array.column_type.data_type {
        DataType::Array(element) => Some(match &element.data_type {
            DataType::Row(columns) => columns
                .iter()
                .map(|c| Field::plain(c.name.clone(), c.column_type.clone()))
                .collect(),
            _ => vec![Field::plain("EXPR$0", element.as_ref().clone())],
        }),
        DataType::Map(key, value) => Some(vec![
            Field::plain("KEY", key.as_ref().clone()),
            Field::plain("VALUE", value.as_ref().clone()),
        ]),
        _ => None,
    }
}

fn name_elements(fresh: &mut [Field], alias: &sql::TableAlias) -> Result<()> {
    let names = alias_columns(alias);
    if names.is_empty() {
        return Ok(());
    }
    if names.len() != fresh.len() {
        return Err(Error::plan(format!(
            "UNNEST makes {} columns, but '{}' names {}",
            fresh.len(),
            alias.name.value,
            names.len()
        ))
        .at(ident_span(&alias.name)));
    }
    for (field, (name, _)) in fresh.iter_mut().zip(names) {
        field.name = name;
    }
    Ok(())
}
