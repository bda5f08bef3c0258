//! GROUPING SETS, CUBE and ROLLUP: one aggregation for several keys.
//!
//! Each row is repeated once per set, with the number of the set behind its columns, and that
//! number is one more key. A key that is not in a set is NULL in its rows; GROUPING distinguishes
//! such a NULL from one in the data. Several elements of GROUP BY are combined each with each, as
//! the SQL standard has it; a set that comes twice gives its groups twice.
//!
//! ```sql
//! SELECT a, b, COUNT(*) FROM t GROUP BY ROLLUP (a, b)
//! -- becomes, with the sets 0 = (a, b), 1 = (a), 2 = ()
//! SELECT a, b, COUNT(*)
//! FROM (SELECT CASE WHEN s IN (0, 1) THEN a END AS a, CASE WHEN s IN (0) THEN b END AS b, s
//!       FROM t CROSS JOIN UNNEST(ARRAY[0, 1, 2]) AS u (s))
//! GROUP BY a, b, s
//! ```
//!
//! Flink does the same by its Expand operator. The input is read once, however many sets there are.
//!
//! **Invariants:**
//! - the number of the set is always the last key, and never visible to the query except by
//!   GROUPING;
//! - a key that every set has keeps its expression and its nullability; others become nullable;
//! - the set () over an empty input has no group, since groups are made by rows.

use sqlparser::ast::{self as sql, Expr as SqlExpr};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{Expr, Scalar};

use super::Binder;
use super::spans::span_of;
use crate::logical::{Field, LogicalKind, LogicalPlan, Node};

/// How many sets a GROUP BY may have: rows are repeated so often.
const SETS_MAX: usize = 256;

/// The sets of a GROUP BY: for each the expressions that it groups by.
pub(super) fn grouping_sets(list: &[SqlExpr]) -> Result<Vec<Vec<&SqlExpr>>> {
    let mut sets: Vec<Vec<&SqlExpr>> = vec![Vec::new()];
    for element in list {
        let own = sets_of(element)?;
        if sets.len() * own.len() > SETS_MAX {
            let error = Error::unsupported(format!("GROUP BY with more than {SETS_MAX} sets"));
            return Err(error.hint("list the sets that are needed").at(span_of(element)));
        }
        let joined = |before: &Vec<_>, own: &Vec<_>| before.iter().chain(own).copied().collect();
        sets =
            sets.iter().flat_map(|before| own.iter().map(move |own| joined(before, own))).collect();
    }
    Ok(sets)
}

/// The sets that one element of GROUP BY stands for.
fn sets_of(element: &SqlExpr) -> Result<Vec<Vec<&SqlExpr>>> {
    match element {
        SqlExpr::GroupingSets(sets) => {
            let own = sets.iter().map(|set| match nested(set) {
                Some(("ROLLUP", parts)) => Ok(rollup(&parts)),
                Some((_, parts)) => cube(&parts, element),
                None => Ok(vec![set.iter().collect()]),
            });
            let mut all = own.collect::<Result<Vec<_>>>()?.concat();
            if sets.iter().any(|set| nested(set).is_some()) {
                // As Flink has them: the sets of more keys first.
                all.sort_by_key(|set| std::cmp::Reverse(set.len()));
            }
            Ok(all)
        }
        SqlExpr::Rollup(parts) => Ok(rollup(&borrowed(parts))),
        SqlExpr::Cube(parts) => cube(&borrowed(parts), element),
        SqlExpr::Tuple(items) => Ok(vec![items.iter().collect()]),
        other => Ok(vec![vec![other]]),
    }
}

/// The parts of ROLLUP or CUBE, each one key or several.
type Parts<'e> = Vec<Vec<&'e SqlExpr>>;

fn borrowed(parts: &[Vec<SqlExpr>]) -> Parts<'_> {
    parts.iter().map(|part| part.iter().collect()).collect()
}

/// `ROLLUP (…)` or `CUBE (…)` in the place of a set, which the parser takes for a function.
fn nested(set: &[SqlExpr]) -> Option<(&'static str, Parts<'_>)> {
    let [SqlExpr::Function(call)] = set else { return None };
    let name = match super::functions::function_name(call).as_str() {
        "ROLLUP" => "ROLLUP",
        "CUBE" => "CUBE",
        _ => return None,
    };
    let parts = super::functions::plain_arguments(call).ok()?;
    Some((name, parts.into_iter().map(keys_of_part).collect()))
}

/// `(a, b)` in brackets is one part.
fn keys_of_part(part: &SqlExpr) -> Vec<&SqlExpr> {
    match part {
        SqlExpr::Tuple(keys) => keys.iter().collect(),
        SqlExpr::Nested(key) => vec![key.as_ref()],
        key => vec![key],
    }
}

fn rollup<'e>(parts: &Parts<'e>) -> Vec<Vec<&'e SqlExpr>> {
    (0..=parts.len()).rev().map(|length| parts[..length].concat()).collect()
}

fn cube<'e>(parts: &Parts<'e>, element: &SqlExpr) -> Result<Vec<Vec<&'e SqlExpr>>> {
    if parts.len() > SETS_MAX.ilog2() as usize {
        let error = Error::unsupported(format!("CUBE of more than {SETS_MAX} sets"));
        return Err(error.hint("list the sets that are needed").at(span_of(element)));
    }
    // The first part is the highest bit, so that sets come as Flink lists them: the full one first.
    let is_in = |bits: usize, part: usize| bits >> (parts.len() - 1 - part) & 1 == 1;
    let set = |bits: usize| {
        let chosen = parts.iter().enumerate().filter(|(part, _)| is_in(bits, *part));
        chosen.flat_map(|(_, part)| part.iter().copied()).collect()
    };
    Ok((0..1usize << parts.len()).rev().map(set).collect())
}

/// Which keys are in which set.
pub(super) struct Sets {
    /// For each set its keys, by position.
    pub(super) keys: Vec<Vec<usize>>,
}

impl Sets {
    /// The numbers of the sets that a key is in.
    fn with(&self, key: usize) -> Vec<usize> {
        (0..self.keys.len()).filter(|&set| self.keys[set].contains(&key)).collect()
    }

    /// True if a key is in every set.
    pub(super) fn all_have(&self, key: usize) -> bool {
        self.keys.iter().all(|keys| keys.contains(&key))
    }

    /// The type of the number of a set.
    pub(super) fn number_type() -> thalweg_core::ColumnType {
        DataType::Int.not_null()
    }

    /// The rows, each once per set with the set's number behind it; and the keys over them, the
    /// number being the last.
    ///
    /// `keys` are over `input`, without the number. They stay valid, since the number is appended
    /// behind.
    pub(super) fn expand(
        &self,
        binder: &Binder<'_>,
        input: Node,
        keys: Vec<Expr>,
    ) -> Result<(Node, Vec<Expr>)> {
        let number = Expr::column(input.fields.len(), Sets::number_type());
        let numbers = (0..self.keys.len()).map(set_number).collect();
        let array = build::call("ARRAY", numbers, binder.session)?;
        let own = Field::plain("grouping$set", Sets::number_type());
        let fields: Vec<Field> = input.fields.iter().cloned().chain([own]).collect();
        let kind = LogicalKind::Unnest { input, array, outer: false, ordinality: false };
        let node = LogicalPlan::node(kind, fields);
        let mut expanded = Vec::with_capacity(keys.len() + 1);
        for (at, key) in keys.into_iter().enumerate() {
            expanded.push(match self.all_have(at) {
                true => key,
                false => self.only_where_in(binder, at, key, &number)?,
            });
        }
        expanded.push(number);
        Ok((node, expanded))
    }

    fn only_where_in(
        &self,
        binder: &Binder<'_>,
        at: usize,
        key: Expr,
        number: &Expr,
    ) -> Result<Expr> {
        let null = Expr::null(key.column_type.data_type.clone());
        let sets = self.with(at).into_iter().map(set_number).collect();
        let is_in = build::in_list(number.clone(), sets, false, binder.session)?;
        build::case(vec![(is_in, key)], Some(null))
    }

    /// GROUPING of these keys: a bit for each, 1 where the row's set lacks it.
    /// A CASE over the number of the set, since the answer is known per set when the query is
    /// planned.
    pub(super) fn grouping(
        &self,
        binder: &Binder<'_>,
        keys: &[usize],
        number: &Expr,
    ) -> Result<Expr> {
        let value = |set: &Vec<usize>| {
            keys.iter().fold(0i64, |bits, key| bits << 1 | i64::from(!set.contains(key)))
        };
        let mut branches = Vec::with_capacity(self.keys.len());
        for (set, own) in self.keys.iter().enumerate() {
            let is_this =
                build::binary(BinaryOp::Equal, number.clone(), set_number(set), binder.session)?;
            branches.push((is_this, grouping_value(value(own))));
        }
        let Some((_, last)) = branches.pop() else { return Ok(grouping_value(0)) };
        if branches.is_empty() {
            return Ok(last);
        }
        build::case(branches, Some(last))
    }
}

/// A value of GROUPING.
pub(super) fn grouping_value(bits: i64) -> Expr {
    Expr::literal(Scalar::Integer(bits), DataType::BigInt.not_null())
}

fn set_number(set: usize) -> Expr {
    Expr::literal(Scalar::Integer(set as i64), Sets::number_type())
}

/// True for GROUPING and GROUPING_ID.
pub(super) fn is_grouping(name: &str) -> bool {
    matches!(name, "GROUPING" | "GROUPING_ID")
}

/// The arguments of GROUPING, of which there must be some, and not more than a BIGINT has bits.
pub(super) fn grouping_arguments(call: &sql::Function) -> Result<Vec<&SqlExpr>> {
    let arguments = super::functions::plain_arguments(call)?;
    if arguments.is_empty() || arguments.len() > 63 {
        return Err(Error::plan("GROUPING takes keys of GROUP BY").at(span_of(call)));
    }
    Ok(arguments)
}
