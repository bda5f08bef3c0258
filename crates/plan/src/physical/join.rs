//! Joins and set operations: both inputs are tagged with their side and become one stream.
//!
//! An operator has one input. So each side goes through a stage that appends the other side's
//! columns as NULL and puts a flag in front; rows of both then come in one sequence, which the
//! ordered contracts can define.
//!
//! ```text
//! ON UPPER(l.k) = r.k
//! left:   a | 1           $side | k | v | key$0 | k | w
//! right:  A | 7      ──▶  FALSE | a | 1 | A     | · | ·
//!                         TRUE  | · | · | ·     | A | 7
//! ```
//!
//! **Invariants:**
//! - a side has all columns of its input, then the keys that had to be computed (a key that is a
//!   column is not repeated). The join's output has them too, and a projection drops them
//!   (`without_keys`), so positions shift in two places: the residual condition, and the columns
//!   behind the left side;
//! - both sides have the same number of keys, of the same types: the binder has added casts;
//! - set operations compare all columns and have no keys of their own.
//!
//! Joins with a side that is read first are in `hash_join`, those with tables that are asked by key
//! in `lookup`.

use std::sync::Arc;

use thalweg_core::graph::{Input, StageKind};
use thalweg_core::{Error, Operator, Result};
use thalweg_expr::Expr;
use thalweg_operators::chain::Step;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::regular::{JoinSpec, RegularJoin};
use thalweg_operators::join::set_operation::{SetOperation, SetOperationKind};
use thalweg_operators::join::sides::{Side, Sides, TagSide};
use thalweg_operators::join::temporal::{TemporalJoin, TemporalJoinSpec};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::window::LatePolicy;

use super::identity::table_name;
use super::lower::{Edges, Lowering};
use super::window::{Prepared, windows_of_column};
use crate::bind::strip::conjunction;
use crate::logical::upserts::is_unique_by;
use crate::logical::{JoinBound, JoinCondition, JoinKind, Node};

/// A side of a join with its keys among its columns.
/// `keys` are positions in `columns`.
pub(super) struct PreparedSide {
    pub(super) columns: Prepared,
    pub(super) keys: Vec<usize>,
}

/// Sides of a join whose late rows go to a table, with the positions of its columns in their rows.
/// `None` for a column that only the other side has.
type LateSides = Vec<(Side, Vec<Option<usize>>)>;

/// A join with its keys computed.
pub(super) struct PreparedJoin {
    pub(super) join: EquiJoin,
    /// Of the left and of the right side.
    pub(super) columns: [Prepared; 2],
    /// How many columns each of them has, without and with computed keys.
    pub(super) widths: [(usize, usize); 2],
}

impl PreparedSide {
    /// All columns of the input at their places, then the keys that are no columns, as `key$n`.
    pub(super) fn of<'e>(input: &Node, keys: impl Iterator<Item = &'e Expr>) -> Self {
        let mut columns = Prepared::of(input);
        let keys = keys.enumerate().map(|(i, key)| columns.place(&format!("key${i}"), key));
        let keys = keys.collect();
        PreparedSide { columns, keys }
    }
}

impl Lowering<'_> {
    /// A join of two streams: the sides are tagged, joined, and the computed keys are dropped
    /// again.
    pub(super) fn lower_join(
        &mut self,
        node: &Node,
        (left, right): (&Node, &Node),
        kind: JoinKind,
        condition: &JoinCondition,
    ) -> Result<Edges> {
        let late = self.late_of_sides((left, right), condition)?;
        let prepared = self.prepare_join((left, right), kind, condition)?;
        let PreparedJoin { join, columns: [left_columns, right_columns], widths } = prepared;
        let sides = join.sides.clone();
        let operator = self.join_operator((left, right), join, late.1, condition)?;
        let edges = self.tagged((left, left_columns), (right, right_columns), &sides)?;
        let edges = match condition.bound {
            JoinBound::Interval { .. } => {
                let edge = self.add_judging(node, left, operator, edges, "join", late.1);
                for (side, columns) in &late.0 {
                    self.late.add_side(edge.from, &sides, *side, columns);
                }
                vec![edge]
            }
            _ => self.add_operator(node, left, operator, edges, "join"),
        };
        match without_keys(node, kind, widths) {
            None => Ok(edges),
            Some(step) => Ok(self.close_chain(edges, vec![step], node)),
        }
    }

    /// What is joined, over the columns of both sides and their keys.
    pub(super) fn prepare_join(
        &self,
        (left, right): (&Node, &Node),
        kind: JoinKind,
        condition: &JoinCondition,
    ) -> Result<PreparedJoin> {
        let of_left = PreparedSide::of(left, condition.keys.iter().map(|key| &key.left));
        let of_right = PreparedSide::of(right, condition.keys.iter().map(|key| &key.right));
        let sides = Sides::new(of_left.columns.schema(), of_right.columns.schema());
        let width = |input: &Node, side| (input.fields.len(), sides.schema(side).len());
        let widths = [width(left, Side::Left), width(right, Side::Right)];
        let residual = self.residual(condition, widths[0])?;
        let (left_keys, right_keys) = (of_left.keys, of_right.keys);
        Ok(PreparedJoin {
            join: EquiJoin { sides, kind, left_keys, right_keys, residual },
            columns: [of_left.columns, of_right.columns],
            widths,
        })
    }

    /// The sides of a join within an interval whose late rows go to a table, with the positions of
    /// the table's columns, and what happens to late rows.
    fn late_of_sides(
        &self,
        (left, right): (&Node, &Node),
        condition: &JoinCondition,
    ) -> Result<(LateSides, LatePolicy)> {
        let JoinBound::Interval { left_time, right_time, .. } = condition.bound else {
            return Ok((Vec::new(), LatePolicy::Drop));
        };
        let (mut sides, mut policy) = (Vec::new(), LatePolicy::Drop);
        for (side, input, other, time) in
            [(Side::Left, left, right, left_time), (Side::Right, right, left, right_time)]
        {
            let late = &self.environment.late;
            let columns = late.columns_of_side(&input.fields, &other.fields, time)?;
            let of_side = self.late_policy(input, time);
            // One policy for both sides: a side that can't be late never uses it.
            if of_side != LatePolicy::Drop {
                policy = of_side;
            }
            if of_side == LatePolicy::Emit {
                sides.push((side, columns));
            }
        }
        Ok((sides, policy))
    }

    /// The operator for a bound. Keys and bound are positions on their own side; the residual
    /// condition is over the prepared columns of both.
    fn join_operator(
        &self,
        (left, right): (&Node, &Node),
        join: EquiJoin,
        late: LatePolicy,
        condition: &JoinCondition,
    ) -> Result<Arc<dyn Operator>> {
        Ok(match condition.bound {
            JoinBound::Build(_) | JoinBound::Lookup => {
                return Err(Error::internal("a join with a table is no operator"));
            }
            JoinBound::None => Arc::new(RegularJoin::new(JoinSpec {
                join,
                null_equals_null: condition.keys.iter().map(|k| k.null_equals_null).collect(),
                // Safe if unknown: a side that is not unique by its keys keeps all its rows.
                left_unique: is_unique_by(left, condition.keys.iter().map(|key| &key.left)),
                right_unique: is_unique_by(right, condition.keys.iter().map(|key| &key.right)),
                state_ttl_ms: (
                    self.environment.lifetime_ms(condition.state_ttl_ms.0),
                    self.environment.lifetime_ms(condition.state_ttl_ms.1),
                ),
            })?),
            JoinBound::Interval { left_time, right_time, lower_ms, upper_ms } => {
                Arc::new(IntervalJoin::new(IntervalJoinSpec {
                    join,
                    left_time,
                    right_time,
                    lower_ms,
                    upper_ms,
                    late,
                })?)
            }
            JoinBound::Window { left: left_window, right: right_window } => {
                self.window_join(left, WindowJoinSpec { join, left_window, right_window })?
            }
            JoinBound::Version { left_time, right_time, is_asof } => {
                let join = TemporalJoin::new(TemporalJoinSpec { join, left_time, right_time })?;
                Arc::new(if is_asof { join.append_only_versions() } else { join })
            }
        })
    }

    /// A join of windows, woken where those end.
    /// The left side's windows suffice: rows meet in equal windows only.
    fn window_join(&self, left: &Node, spec: WindowJoinSpec) -> Result<Arc<dyn Operator>> {
        let (end, session) = (spec.left_window.1, self.environment.session);
        let join = WindowJoin::new(spec)?;
        Ok(Arc::new(join.of(windows_of_column(left, end, session))))
    }

    /// What has to hold besides keys and bound. Positions after the left columns move by the number
    /// of keys that were computed for the left side.
    ///
    /// `widths` are the left side's without and with these keys.
    ///
    /// # Errors
    /// If it reads the watermark: a pair of rows has none before it. If it calls a function that
    /// no worker may wait for.
    pub(super) fn residual(
        &self,
        condition: &JoinCondition,
        widths: (usize, usize),
    ) -> Result<Option<Expr>> {
        if let Some(expr) = condition.residual.iter().find(|expr| expr.uses_watermark()) {
            let message = "CURRENT_WATERMARK is not supported in the condition of a join";
            return Err(Error::unsupported(message)
                .hint("filter by it with WHERE, or select it in a query over one of the inputs")
                .at(expr.span));
        }
        if let Some(expr) = condition.residual.iter().find(|expr| !expr.executors().is_empty()) {
            return Err(Error::unsupported(
                "a function that runs on threads of its own in the condition of a join that is no inner join",
            )
            .hint("compute its value in a sub-query over one of the inputs, and join by that column")
            .at(expr.span));
        }
        let place = |i: usize| if i < widths.0 { i } else { i - widths.0 + widths.1 };
        let residual = conjunction(condition.residual.clone(), self.environment.session)?;
        Ok(residual.map(|expr| expr.remap(&place)))
    }

    /// INTERSECT and EXCEPT compare whole rows, so there are no keys and nothing is computed. NULLs
    /// are equal to one another there.
    pub(super) fn lower_set_operation(
        &mut self,
        node: &Node,
        (left, right): (&Node, &Node),
        (intersects, all): (bool, bool),
    ) -> Result<Edges> {
        let columns = |input: &Node| PreparedSide::of(input, std::iter::empty()).columns;
        let sides = Sides::new(left.schema(), right.schema());
        let kind = match intersects {
            true => SetOperationKind::Intersect,
            false => SetOperationKind::Except,
        };
        let operator = Arc::new(SetOperation::new(sides.clone(), kind, all)?);
        let edges = self.tagged((left, columns(left)), (right, columns(right)), &sides)?;
        Ok(self.add_operator(node, left, operator, edges, "set"))
    }

    /// Both inputs, each with its side.
    fn tagged(
        &mut self,
        left: (&Node, Prepared),
        right: (&Node, Prepared),
        sides: &Sides,
    ) -> Result<Edges> {
        let mut edges = Vec::new();
        for (side, (input, prepared)) in [(Side::Left, left), (Side::Right, right)] {
            let from = self.prepare_input(input, prepared)?;
            let word = if side == Side::Left { "left" } else { "right" };
            let id = self.identities.give("side", word, &[input]);
            let name = format!("{word} side {}", table_name(input));
            let kind = StageKind::Transform(Arc::new(TagSide::new(side, sides)));
            let stage = self.add(id, name, kind, from, "side (free: any worker)", Vec::new());
            edges.push(Input { from: stage, port: 0 });
        }
        Ok(edges)
    }
}

/// Drops the keys that were computed for a join: they stand behind the columns of each side.
/// `widths` are the numbers of columns of the inputs, `prepared` those with the keys.
pub(super) fn without_keys(
    node: &Node,
    kind: JoinKind,
    [left, right]: [(usize, usize); 2],
) -> Option<Step> {
    let has_none = |(width, prepared): (usize, usize)| width == prepared;
    if has_none(left) && (has_none(right) || !kind.has_right_columns()) {
        return None;
    }
    Some(without_computed(node, left.0, left.1))
}

/// The columns of a node, out of rows with `prepared` columns in the place of its first `width`.
pub(super) fn without_computed(node: &Node, width: usize, prepared: usize) -> Step {
    let place = |i: usize| if i < width { i } else { i - width + prepared };
    let columns = node.fields.iter().enumerate();
    Step::Project(columns.map(|(i, field)| (field.column(), field.at(place(i)))).collect())
}
