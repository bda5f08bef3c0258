//! Anti joins on alternatives: `NOT IN` over columns that can be NULL, `NOT EXISTS (… WHERE a OR
//! b)`.
//!
//! A row without a partner by `a OR b` has none by `a` and none by `b`. So alternatives that are
//! equalities become joins by hash, one after another. `x NOT IN (SELECT y …)` has two more, `x IS
//! NULL` and `y IS NULL`: each speaks of one side alone, so of the right side only the values of
//! its conditions are joined, each combination once. No step compares all rows of one side with all
//! of the other, and changes pass through each as through any join.
//!
//! ```sql
//! SELECT * FROM l WHERE x NOT IN (SELECT y FROM r)
//! -- is, in the words of SQL,
//! SELECT * FROM l WHERE NOT EXISTS (SELECT * FROM r WHERE x = y OR x IS NULL OR y IS NULL)
//! -- and becomes (⊳ is an anti join)
//! (l ⊳ r ON x = y) ⊳ (SELECT DISTINCT TRUE, y IS NULL FROM r) AS c ON (x IS NULL AND c.0) OR c.1
//! ```
//!
//! The second table has one row for each combination of TRUE and FALSE that occurs, however large
//! `r` is. An empty `r` leaves every row of `l`, also those with `x` NULL, as SQL demands: then the
//! table is empty as well.
//!
//! A right side that ends while the left one does not is read first, into one table. It may be
//! readable once only, so there is one join: `NOT IN` asks that table about NULL as well.
//!
//! Conditions that compare both sides otherwise (`a < b`) stay one join that looks at every pair.
//!
//! **Invariant:** the rewrite is valid for anti joins alone. A semi join on alternatives is no
//! sequence of semi joins: a row must pass one of them, not all.

use thalweg_core::DataType;
use thalweg_expr::{Expr, ExprKind, Scalar};

use super::join::{Side, can_be_read_first, conjuncts, is_bounded, join, join_key};
use super::{Field, JoinBound, JoinCondition, JoinKind, LogicalPlan, Node, unit};

/// What makes a row of the right side a partner.
struct Alternatives {
    /// Conjuncts among which are equalities of both sides.
    /// Each becomes an anti join of its own.
    keyed: Vec<Vec<Expr>>,
    /// What has to hold of the left row, and of the right one.
    /// TRUE for a side that the alternative says nothing about. Columns of the right one count from
    /// 0.
    one_sided: Vec<(Expr, Expr)>,
}

/// The rows of the left side for which no row of the right side meets all these conditions.
pub fn anti_join(left: Node, right: Node, condition: Vec<Expr>) -> Node {
    let reads_first = is_bounded(&right)
        && !is_bounded(&left)
        && can_be_read_first(&right, JoinKind::Anti, Side::Right);
    let whole = JoinCondition::of(condition, &left.fields, &right.fields);
    let alternatives = match Alternatives::of(&whole, &left.fields, &right.fields) {
        Some(alternatives) if !reads_first => alternatives,
        alternatives => {
            let null_aware = alternatives.and_then(|all| all.not_in(&left.fields, &right.fields));
            let condition = null_aware.unwrap_or(whole);
            return join(left, right, JoinKind::Anti, condition);
        }
    };
    let mut node = left;
    for conjuncts in alternatives.keyed {
        let condition = JoinCondition::of(conjuncts, &node.fields, &right.fields);
        node = join(node, right.clone(), JoinKind::Anti, condition);
    }
    match alternatives.one_sided.is_empty() {
        true => node,
        false => one_sided(node, right, alternatives.one_sided),
    }
}

/// An anti join on alternatives that each speak of one side, or of both apart.
fn one_sided(left: Node, right: Node, alternatives: Vec<(Expr, Expr)>) -> Node {
    let width = left.fields.len();
    let (mut tests, mut columns) = (Vec::new(), Vec::new());
    for (place, (of_left, of_right)) in alternatives.into_iter().enumerate() {
        let is_met = Expr::column(width + place, of_right.column_type.clone());
        tests.push(both(of_left, is_met));
        columns.push((format!("condition{place}"), of_right));
    }
    let few = LogicalPlan::distinct(LogicalPlan::project(right, columns));
    let any = tests.into_iter().reduce(|a, b| logic(ExprKind::Or, a, b)).into_iter().collect();
    let condition = JoinCondition::of(any, &left.fields, &few.fields);
    join(left, few, JoinKind::Anti, condition)
}

impl Alternatives {
    /// The alternatives of a condition that can't be looked up as it is; `None` where it can, or
    /// where one of them has to be tested pair by pair.
    ///
    /// A condition is split only if evaluating its parts separately, and a different number of
    /// times, gives the same: it must be deterministic and must not read the watermark.
    fn of(whole: &JoinCondition, left: &[Field], right: &[Field]) -> Option<Alternatives> {
        let condition = &whole.conjuncts;
        let is_certain = |expr: &Expr| expr.is_deterministic() && !expr.uses_watermark();
        let is_looked_up = whole.bound != JoinBound::None || !whole.keys.is_empty();
        if condition.is_empty() || is_looked_up || !condition.iter().all(is_certain) {
            return None;
        }
        let all: Vec<Vec<Expr>> = match &condition[..] {
            [only] => disjuncts(only.clone()).into_iter().map(conjuncts).collect(),
            several => vec![several.to_vec()],
        };
        let mut alternatives = Alternatives { keyed: Vec::new(), one_sided: Vec::new() };
        for parts in all {
            if parts.iter().any(|part| join_key(part, left, right).is_some()) {
                alternatives.keyed.push(parts);
            } else {
                alternatives.one_sided.push(apart(parts, left.len())?);
            }
        }
        Some(alternatives)
    }

    /// The condition of one join by hash, if they are those of `NOT IN`: equality of two values,
    /// and NULL in either.
    ///
    /// A value is covered if NULL is tested for it or its type excludes NULL. Otherwise the table's
    /// null-aware test would reject rows that this condition keeps.
    fn not_in(&self, left: &[Field], right: &[Field]) -> Option<JoinCondition> {
        let [equality] = &self.keyed[..] else { return None };
        let condition = JoinCondition::of(equality.clone(), left, right);
        let ([key], true) = (&condition.keys[..], condition.residual.is_empty()) else {
            return None;
        };
        let tests = |expr: &Expr, value: &Expr| match &expr.kind {
            ExprKind::IsNull { input, negated: false } => {
                let input = input.to_string();
                input == value.to_string() || input == uncast(value).to_string()
            }
            _ => false,
        };
        let of_left =
            |(of_left, of_right): &(Expr, Expr)| is_true(of_right) && tests(of_left, &key.left);
        let of_right =
            |(of_left, of_right): &(Expr, Expr)| is_true(of_left) && tests(of_right, &key.right);
        let all = &self.one_sided;
        let knows = |value: &Expr, is_tested: bool| is_tested || !value.column_type.can_be_null();
        let is_meant = !key.null_equals_null
            && all.iter().all(|one| of_left(one) || of_right(one))
            && knows(&key.left, all.iter().any(of_left))
            && knows(&key.right, all.iter().any(of_right));
        is_meant.then_some(JoinCondition { is_null_aware: true, ..condition })
    }
}

/// What conjuncts say of the left row, and of the right one; `None` if one compares the two.
fn apart(parts: Vec<Expr>, width: usize) -> Option<(Expr, Expr)> {
    let (mut of_left, mut of_right) = (unit(), unit());
    for part in parts {
        let columns = part.columns();
        if columns.iter().all(|&column| column >= width) {
            of_right = both(of_right, part.remap(&|column| column - width));
        } else if columns.iter().all(|&column| column < width) {
            of_left = both(of_left, part);
        } else {
            return None;
        }
    }
    Some((of_left, of_right))
}

/// The parts of a condition of which one has to hold.
fn disjuncts(condition: Expr) -> Vec<Expr> {
    match condition.kind {
        ExprKind::Or(left, right) => {
            let mut parts = disjuncts(*left);
            parts.extend(disjuncts(*right));
            parts
        }
        _ => vec![condition],
    }
}

/// Both conditions, without what is TRUE anyway.
fn both(left: Expr, right: Expr) -> Expr {
    match (is_true(&left), is_true(&right)) {
        (true, _) => right,
        (_, true) => left,
        _ => logic(ExprKind::And, left, right),
    }
}

/// A value before it was cast, for a comparison, to a type that both sides fit.
/// The equality compares the cast value, `IS NULL` the one before. Casts that a comparison adds
/// turn NULL and nothing else into NULL, so both tests mean the same. TRY_CAST and a DECIMAL of
/// fewer digits turn other values into NULL too.
fn uncast(value: &Expr) -> &Expr {
    match &value.kind {
        ExprKind::Cast { input, safe: false, .. }
            if has_room(&value.column_type.data_type, &input.column_type.data_type) =>
        {
            input
        }
        _ => value,
    }
}

/// False if a value of the second type can be NULL as one of the first: beyond a DECIMAL's range.
fn has_room(to: &DataType, from: &DataType) -> bool {
    let DataType::Decimal(precision, scale) = to else { return true };
    let digits = match from {
        DataType::TinyInt => 3,
        DataType::SmallInt => 5,
        DataType::Int => 10,
        DataType::BigInt => 19,
        DataType::Decimal(precision, scale) => precision - scale,
        _ => return false,
    };
    digits <= precision - scale
}

fn is_true(expr: &Expr) -> bool {
    expr.as_literal() == Some(&Scalar::Boolean(true))
}

fn logic(kind: fn(Box<Expr>, Box<Expr>) -> ExprKind, left: Expr, right: Expr) -> Expr {
    let nullable = left.column_type.nullable || right.column_type.nullable;
    let column_type = DataType::Boolean.not_null().with_nullable(nullable);
    Expr::new(kind(Box::new(left), Box::new(right)), column_type)
}
