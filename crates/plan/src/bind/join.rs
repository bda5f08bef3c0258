//! Joins of FROM. The sub-queries of WHERE that are joins stand in `subquery`.
//!
//! **Invariants:**
//! - conditions are bound over the columns of both sides with the time attributes that they have
//!   *before* the join: a bound in time is found by them. The joined node has those that are left
//!   after it ([`source`] replaces the scope's fields);
//! - comma joins are inner joins without a condition; WHERE moves its conjuncts into them
//!   (`logical::join::filter`), so `FROM a, b WHERE a.k = b.k` is no cross join;
//! - a join with FOR SYSTEM_TIME AS OF is decided by the kind of time: a row time means versions, a
//!   processing time a lookup.

use sqlparser::ast::{self as sql, JoinConstraint, JoinOperator, TableFactor, TableVersion};
use thalweg_core::{Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp};

use super::asof;
use super::from::BoundSource;
use super::names::PlainNames;
use super::scope::Scope;
use super::spans::span_of;
use super::{Binder, Context, unsupported};
use crate::logical::join::{Side, can_be_read_first, conjuncts, join};
use crate::logical::{
    JoinBound, JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node, TimeAttribute, column_of,
};

impl Binder<'_> {
    /// Binds what stands right of a join.
    pub(super) fn bind_join(
        &self,
        left: BoundSource,
        right: &TableFactor,
        operator: &JoinOperator,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let span = span_of(right);
        let Some((kind, constraint)) = join_kind(operator) else {
            return Err(unsupported::never("this kind of join").at(span));
        };
        if let Some(call) = self.lateral_call(right)? {
            let outer = match kind {
                JoinKind::Inner => false,
                JoinKind::Left => true,
                _ => return Err(unsupported::unnest_join().at(span)),
            };
            return self.bind_unnest(left, &call, outer);
        }
        if let TableFactor::Derived { lateral: true, subquery, alias, .. } = right {
            let lateral = (&**subquery, alias.as_ref());
            let joined = self.bind_lateral(left, lateral, (kind, constraint), context);
            return joined.map_err(|error| error.at(span));
        }
        if let TableFactor::Table { version: Some(version), .. } = right {
            return self.bind_version_join(left, right, version, (kind, constraint), context);
        }
        let right = self.bind_factor(right, context)?;
        left.scope.check_names(&right.scope).map_err(|error| error.at(span))?;
        if let Some((time, rest)) = asof::condition(constraint) {
            return self
                .bind_asof_join(left, right, kind, (time, &rest))
                .map_err(|error| error.at(span));
        }
        self.join_sources(left, right, (kind, constraint), context)
    }

    /// A join of two relations that do not speak of each other but in its condition.
    pub(super) fn join_sources(
        &self,
        left: BoundSource,
        right: BoundSource,
        (kind, constraint): (JoinKind, &JoinConstraint),
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        left.scope.check_names(&right.scope)?;
        let shared =
            (*constraint == JoinConstraint::Natural).then(|| shared_columns(&left, &right));
        let constraint = shared.as_ref().unwrap_or(constraint);
        let scope = joined_scope(&left, &right);
        let condition = self.join_condition(&left, &right, &scope, constraint)?;
        let read_first = self.hinted_side(&left, &right, kind, context)?;
        let mut condition = JoinCondition::of(condition, &left.node.fields, &right.node.fields)
            .reading_first(read_first);
        if condition.bound == JoinBound::None {
            let lifetime = |side: &BoundSource| self.hinted_lifetime(&side.scope, context);
            condition.state_ttl_ms = (lifetime(&left), lifetime(&right));
        }
        let sides = using_columns(&left, &right, constraint)?;
        // Behind a semi or an anti join the names of the right side mean nothing.
        let scope = if kind.has_right_columns() { scope } else { left.scope };
        let joined = source(join(left.node, right.node, kind, condition), scope);
        self.merge_columns(joined, kind, sides)
    }

    /// Makes the columns of USING one: that of the side whose rows all stay, else the one that is
    /// there.
    ///
    /// A FULL join has neither, so a column COALESCE(left, right) is appended behind the others.
    fn merge_columns(
        &self,
        joined: BoundSource,
        kind: JoinKind,
        columns: Vec<(String, [usize; 2])>,
    ) -> Result<BoundSource> {
        let BoundSource { mut node, mut scope } = joined;
        let mut expressions: Vec<(String, Expr)> = (0..node.fields.len())
            .map(|i| (node.fields[i].name.clone(), scope.column(i)))
            .collect();
        for (name, sides) in &columns {
            let column = match kind {
                JoinKind::Right => sides[1],
                JoinKind::Full => {
                    let both = sides.map(|side| scope.column(side)).to_vec();
                    let either = build::call("COALESCE", both, self.session)?;
                    expressions.push((name.clone(), either));
                    expressions.len() - 1
                }
                _ => sides[0],
            };
            let sides = if kind.has_right_columns() { *sides } else { [sides[0]; 2] };
            scope.merge(name, column, sides);
        }
        // The columns of this join come before those of joins on its left.
        scope.merged.rotate_right(columns.len());
        if expressions.len() > node.fields.len() {
            node = LogicalPlan::project(node, expressions);
        }
        Ok(source(node, scope))
    }

    /// The conjuncts of ON, or of USING.
    fn join_condition(
        &self,
        left: &BoundSource,
        right: &BoundSource,
        scope: &Scope,
        constraint: &JoinConstraint,
    ) -> Result<Vec<Expr>> {
        match constraint {
            JoinConstraint::None => Ok(Vec::new()),
            JoinConstraint::On(condition) => {
                let mut names = PlainNames::of(scope, "ON");
                Ok(conjuncts(self.condition(condition, "ON", &mut names)?))
            }
            JoinConstraint::Using(names) => {
                let columns = using_columns(left, right, constraint)?;
                let equal = |((_, sides), name): (&(String, [usize; 2]), &sql::ObjectName)| {
                    let [of_left, of_right] = sides.map(|side| scope.column(side));
                    build::binary(BinaryOp::Equal, of_left, of_right, self.session)
                        .map_err(|error| error.at(span_of(name)))
                };
                columns.iter().zip(names).map(equal).collect()
            }
            JoinConstraint::Natural => Err(Error::internal("NATURAL is USING by now")),
        }
    }

    /// `JOIN versions FOR SYSTEM_TIME AS OF left.time ON …`
    ///
    /// The right side is replaced by its versions: what stands below the deduplication that makes
    /// it a table of last rows ([`versions_of`]).
    fn bind_version_join(
        &self,
        left: BoundSource,
        right: &TableFactor,
        version: &TableVersion,
        (kind, constraint): (JoinKind, &JoinConstraint),
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let span = span_of(right);
        let TableVersion::ForSystemTimeAsOf(time) = version else {
            return Err(unsupported::never("this kind of table version").at(span));
        };
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            return Err(
                Error::plan("a join FOR SYSTEM_TIME AS OF is an inner or a left join").at(span)
            );
        }
        let time =
            self.expression(time, &mut PlainNames::of(&left.scope, "FOR SYSTEM_TIME AS OF"))?;
        if LogicalPlan::time_of(&time, &left.node.fields) == TimeAttribute::ProcTime {
            return self.bind_lookup_join(left, right, (kind, constraint), context);
        }
        let left_time = column_of(&time)
            .filter(|&column| left.node.fields[column].time.is_rowtime())
            .ok_or_else(|| {
                Error::plan(
                    "FOR SYSTEM_TIME AS OF takes a row time or a processing time of the left side",
                )
                .hint("declare one: WATERMARK FOR a TIMESTAMP column, or a column AS PROCTIME()")
                .at(span)
            })?;
        let mut right = self.bind_factor(right, context)?;
        left.scope.check_names(&right.scope).map_err(|error| error.at(span))?;
        let (versions, right_time) = versions_of(&right.node).ok_or_else(|| {
            Error::plan("the right side of a join FOR SYSTEM_TIME AS OF has no versions")
                .hint(
                    "it is a table with a PRIMARY KEY and a WATERMARK, or a view that keeps the last row \
                     per key: ROW_NUMBER() OVER (PARTITION BY key ORDER BY row time DESC) = 1",
                )
                .at(span)
        })?;
        right.node = versions;
        let scope = joined_scope(&left, &right);
        let condition = self.join_condition(&left, &right, &scope, constraint)?;
        let bound = JoinBound::Version { left_time, right_time, is_asof: false };
        let condition = JoinCondition::of(condition, &left.node.fields, &right.node.fields)
            .within(bound, left.node.fields.len());
        let sides = using_columns(&left, &right, constraint)?;
        let joined = source(join(left.node, right.node, kind, condition), scope);
        self.merge_columns(joined, kind, sides)
    }

    /// `JOIN table FOR SYSTEM_TIME AS OF left.processing_time ON …`: the rows that the table has by
    /// then.
    fn bind_lookup_join(
        &self,
        left: BoundSource,
        right: &TableFactor,
        (kind, constraint): (JoinKind, &JoinConstraint),
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let span = span_of(right);
        let right = self.bind_factor(right, context)?;
        left.scope.check_names(&right.scope).map_err(|error| error.at(span))?;
        // A bare scan: an alias adds no node, but a view with a filter would, and can't be asked by
        // key.
        let asked = matches!(&right.node.kind, LogicalKind::Scan { table, .. } if table.reading.is_looked_up);
        if !asked && !can_be_read_first(&right.node, kind, Side::Right) {
            return Err(Error::plan("the right side of a lookup join never ends, or its rows change")
                .hint("a table is looked up that can be read as a whole: files, VALUES, a bounded datagen")
                .at(span));
        }
        let scope = joined_scope(&left, &right);
        let condition = self.join_condition(&left, &right, &scope, constraint)?;
        let condition =
            JoinCondition::without_bound(condition, &left.node.fields, &right.node.fields)
                .reading_first(Some(Side::Right));
        let condition = JoinCondition { is_lookup: true, ..condition };
        let condition = match asked {
            true => condition.within(JoinBound::Lookup, left.node.fields.len()),
            false => condition,
        };
        if condition.keys.is_empty() {
            return Err(Error::plan("a lookup join needs an equality of both sides")
                .hint("write ON left.key = right.key")
                .at(span));
        }
        if asked && condition.keys.iter().any(|key| column_of(&key.right).is_none()) {
            return Err(Error::plan("a table that is asked by key is joined by its columns")
                .hint("compute the other side: ON f(left.key) = right.key")
                .at(span));
        }
        let sides = using_columns(&left, &right, constraint)?;
        let joined = source(join(left.node, right.node, kind, condition), scope);
        self.merge_columns(joined, kind, sides)
    }
}

/// USING of the columns whose names both sides have; of none, no condition.
fn shared_columns(left: &BoundSource, right: &BoundSource) -> JoinConstraint {
    let names = |side: &BoundSource| -> Vec<String> {
        let columns = side.scope.all_columns().into_iter();
        columns.map(|column| side.scope.fields[column].name.clone()).collect()
    };
    let of_right = names(right);
    let shared = names(left).into_iter().filter(|name| of_right.contains(name));
    let shared = shared.map(|name| sql::ObjectName::from(vec![sql::Ident::new(name)]));
    let shared: Vec<sql::ObjectName> = shared.collect();
    if shared.is_empty() { JoinConstraint::None } else { JoinConstraint::Using(shared) }
}

/// The columns of USING: names, and where they stand side by side.
fn using_columns(
    left: &BoundSource,
    right: &BoundSource,
    constraint: &JoinConstraint,
) -> Result<Vec<(String, [usize; 2])>> {
    let JoinConstraint::Using(names) = constraint else { return Ok(Vec::new()) };
    let width = left.node.fields.len();
    let mut columns: Vec<(String, [usize; 2])> = Vec::with_capacity(names.len());
    for name in names {
        let name = super::from::simple_name(name)?;
        let ident = [sql::Ident::new(name.text.clone())];
        let in_side = |side: &BoundSource| side.scope.resolve(&ident).map_err(|e| e.at(name.span));
        let column = (name.text.clone(), [in_side(left)?, in_side(right)? + width]);
        // As in Flink, a column that is named twice is the one column.
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    Ok(columns)
}

pub(super) fn source(node: Node, scope: Scope) -> BoundSource {
    let fields = node.fields.clone();
    BoundSource { node, scope: Scope { fields, ..scope } }
}

/// Both sides' names, over their columns side by side with the times that they have before the
/// join.
pub(super) fn joined_scope(left: &BoundSource, right: &BoundSource) -> Scope {
    let fields = left.node.fields.iter().chain(right.node.fields.iter()).cloned();
    left.scope.joined(&right.scope, fields.collect())
}

/// The versions of a table and when they began: rows before they were reduced to the last of each
/// key, or those of a table with a primary key. A filter behind that would end versions, which rows
/// alone can't decide.
fn versions_of(node: &Node) -> Option<(Node, usize)> {
    match &node.kind {
        LogicalKind::Deduplicate { input, keeps_last: true, rowtime: Some(rowtime), .. } => {
            Some((input.clone(), *rowtime))
        }
        LogicalKind::Scan { table, .. } if !table.primary_key.is_empty() => {
            let rowtime = node.fields.iter().position(|f| f.time == TimeAttribute::RowTime)?;
            Some((node.clone(), rowtime))
        }
        LogicalKind::Project { input, expressions } => {
            let (versions, below) = versions_of(input)?;
            let rowtime = expressions.iter().position(|expr| column_of(expr) == Some(below))?;
            let names = node.fields.iter().map(|field| field.name.clone());
            let versions = LogicalPlan::project(versions, names.zip(expressions.clone()).collect());
            Some((versions, rowtime))
        }
        _ => None,
    }
}

/// Which rows a join keeps, and its condition.
pub(crate) fn join_kind(operator: &JoinOperator) -> Option<(JoinKind, &JoinConstraint)> {
    Some(match operator {
        JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => {
            (JoinKind::Inner, c)
        }
        JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (JoinKind::Left, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (JoinKind::Right, c),
        JoinOperator::FullOuter(c) => (JoinKind::Full, c),
        JoinOperator::Semi(c) | JoinOperator::LeftSemi(c) => (JoinKind::Semi, c),
        JoinOperator::Anti(c) | JoinOperator::LeftAnti(c) => (JoinKind::Anti, c),
        _ => return None,
    })
}
