//! Conditions: comparisons, three-valued logic, IN, BETWEEN, CASE.

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::arithmetic::to_decimal;
use super::casts::{cast, implicit_cast, implicit_cast_in};
use super::literals::boolean_literal;
use super::types::{self, common_type};
use crate::expr::{CompareOp, Expr, ExprKind, Session};
use crate::functions::sets;

/// Checks that an expression is a condition.
pub(super) fn condition(expr: Expr, place: &str) -> Result<Expr> {
    match &expr.column_type.data_type {
        DataType::Boolean => Ok(expr),
        DataType::Null => Ok(Expr::null(DataType::Boolean)),
        other => Err(Error::plan(format!("{place} needs a BOOLEAN, got {other}"))
            .hint("compare it with a value, or cast it to BOOLEAN")),
    }
}

fn boolean(nullable: bool) -> ColumnType {
    DataType::Boolean.nullable().with_nullable(nullable)
}

/// `left AND right`
pub(crate) fn and(left: Expr, right: Expr) -> Result<Expr> {
    let (left, right) = (condition(left, "AND")?, condition(right, "AND")?);
    let nullable = left.column_type.nullable || right.column_type.nullable;
    let kind = ExprKind::And(Box::new(left), Box::new(right));
    Ok(Expr::new(kind, boolean(nullable)).folded())
}

/// `left OR right`
pub(crate) fn or(left: Expr, right: Expr) -> Result<Expr> {
    let (left, right) = (condition(left, "OR")?, condition(right, "OR")?);
    let nullable = left.column_type.nullable || right.column_type.nullable;
    let kind = ExprKind::Or(Box::new(left), Box::new(right));
    Ok(Expr::new(kind, boolean(nullable)).folded())
}

/// `NOT expr`
pub(crate) fn not(expr: Expr) -> Result<Expr> {
    let expr = condition(expr, "NOT")?;
    let column_type = expr.column_type.clone();
    Ok(Expr::new(ExprKind::Not(Box::new(expr)), column_type).folded())
}

/// Casts two operands to the type in which they compare.
pub(super) fn comparable(
    op: CompareOp,
    left: Expr,
    right: Expr,
    session: &Session,
) -> Result<(Expr, Expr)> {
    let (l, r) = (&left.column_type.data_type, &right.column_type.data_type);
    if let Some(both) = with_text(op, &left, &right, session)? {
        return Ok(both);
    }
    // A text literal compared with a time is read as that time, as Flink does.
    if l.is_string() && r.is_time() && left.as_literal().is_some() {
        return comparable(op, time_literal(left, widest_time(r), session)?, right, session);
    }
    if r.is_string() && l.is_time() && right.as_literal().is_some() {
        let to = widest_time(l);
        return comparable(op, left, time_literal(right, to, session)?, session);
    }
    let both = [left.column_type.clone(), right.column_type.clone()];
    let common = common_type(&both).map_err(|_| {
        Error::plan(format!("cannot compare {l} {op} {r}: text, numbers and times do not mix"))
            .hint(format!("cast one side, for example CAST(… AS {l})"))
    })?;
    if !op.is_equality() {
        check_comparable(&common.data_type)?;
    }
    if types::loses_digits(l, r) {
        // No DECIMAL holds both exactly: the kernel compares them as they are.
        return Ok((to_decimal(left), to_decimal(right)));
    }
    let data_type = match common.data_type {
        DataType::Null => DataType::Boolean,
        data_type => data_type,
    };
    Ok((implicit_cast_in(left, &data_type, session), implicit_cast_in(right, &data_type, session)))
}

/// A text literal as the time that it is compared with.
fn time_literal(text: Expr, to: DataType, session: &Session) -> Result<Expr> {
    let shown = text.to_string();
    let time = cast(text, to.clone(), false, session)?;
    match time.as_literal() {
        Some(_) => Ok(time),
        None => Err(Error::plan(format!("{shown} is not a value of type {to}"))),
    }
}

/// A text compared with what is none, where Flink reads or writes it: a text that is no literal is
/// read as a time, or is NULL; a BOOLEAN is compared by its text; in an order with a number, a text
/// is read as one.
fn with_text(
    op: CompareOp,
    left: &Expr,
    right: &Expr,
    session: &Session,
) -> Result<Option<(Expr, Expr)>> {
    let (l, r) = (&left.column_type.data_type, &right.column_type.data_type);
    if r.is_string() && !l.is_string() {
        let both = with_text(op, right, left, session)?;
        return Ok(both.map(|(text, other)| (other, text)));
    }
    let is_literal = left.as_literal().is_some();
    Ok(match r {
        _ if !l.is_string() => None,
        _ if r.is_time() && !is_literal => {
            Some((cast(left.clone(), widest_time(r), true, session)?, right.clone()))
        }
        DataType::Boolean if op.is_equality() => {
            Some((left.clone(), cast(right.clone(), DataType::STRING, false, session)?))
        }
        r if r.is_numeric() && !op.is_equality() => {
            let mut number = cast(left.clone(), r.clone(), false, session)?;
            // A DECIMAL that does not hold the number is NULL.
            number.column_type.nullable |= matches!(r, DataType::Decimal(..));
            Some((number, right.clone()))
        }
        _ => None,
    })
    .and_then(|both| match both {
        // The times may differ in their digits, and the texts in their lengths.
        Some((left, right)) => comparable(op, left, right, session).map(Some),
        None => Ok(None),
    })
}

/// Refuses values of types that have no order here.
pub(crate) fn check_comparable(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Map(..) | DataType::Row(_) | DataType::Array(_) | DataType::Variant => {
            Err(Error::unsupported(format!("comparing values of type {data_type}")))
        }
        _ => Ok(()),
    }
}

/// The type of a time, with room for the digits of a literal.
fn widest_time(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(precision) => DataType::Timestamp((*precision).max(3)),
        DataType::TimestampLtz(precision) => DataType::TimestampLtz((*precision).max(3)),
        other => other.clone(),
    }
}

/// `left op right`
pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr, session: &Session) -> Result<Expr> {
    if let (DataType::Row(l), DataType::Row(r)) =
        (&left.column_type.data_type, &right.column_type.data_type)
        && op.is_equality()
        && l.len() == r.len()
    {
        let fields = l.len();
        return compare_rows(op, (&left, &right), fields, session);
    }
    let (left, right) = comparable(op, left, right, session)?;
    let is_distinct = matches!(op, CompareOp::Distinct | CompareOp::NotDistinct);
    let nullable = !is_distinct && (left.column_type.nullable || right.column_type.nullable);
    let kind = ExprKind::Compare { op, left: Box::new(left), right: Box::new(right) };
    Ok(Expr::new(kind, boolean(nullable)).folded())
}

/// Rows are equal if all of their fields are: NULL if that is not known.
fn compare_rows(
    op: CompareOp,
    (left, right): (&Expr, &Expr),
    fields: usize,
    session: &Session,
) -> Result<Expr> {
    let (each, negated) = match op {
        CompareOp::Distinct => (CompareOp::NotDistinct, true),
        CompareOp::NotEqual => (CompareOp::Equal, true),
        same => (same, false),
    };
    let same = |index| {
        let (l, r) = (row_field(left, index, session)?, row_field(right, index, session)?);
        compare(each, l, r, session)
    };
    let equal = (0..fields).map(same).reduce(|before, same| and(before?, same?));
    let equal = equal.unwrap_or_else(|| Ok(boolean_literal(true)))?;
    if negated { not(equal) } else { Ok(equal) }
}

/// A field of a row, without the row where it is made of its fields.
fn row_field(row: &Expr, index: usize, session: &Session) -> Result<Expr> {
    if let ExprKind::Call { function, args } = &row.kind
        && function.name == "ROW"
    {
        return Ok(args[index].clone());
    }
    let DataType::Row(columns) = &row.column_type.data_type else {
        return Err(Error::internal("a field of what is no row"));
    };
    let name = super::string_literal(&columns[index].name);
    crate::functions::call("ROW_FIELD", vec![row.clone(), name], session)
}

/// `expr IS [NOT] NULL`
pub fn is_null(expr: Expr, negated: bool) -> Expr {
    if !expr.column_type.can_be_null() {
        return boolean_literal(negated);
    }
    let kind = ExprKind::IsNull { input: Box::new(expr), negated };
    Expr::new(kind, boolean(false)).folded()
}

/// `left IS [NOT] DISTINCT FROM right`
pub fn is_distinct_from(left: Expr, right: Expr, negated: bool, session: &Session) -> Result<Expr> {
    let op = if negated { CompareOp::NotDistinct } else { CompareOp::Distinct };
    compare(op, left, right, session)
}

/// `expr [NOT] BETWEEN low AND high`
pub fn between(
    expr: Expr,
    low: Expr,
    high: Expr,
    negated: bool,
    session: &Session,
) -> Result<Expr> {
    let above = compare(CompareOp::GreaterOrEqual, expr.clone(), low, session)?;
    let below = compare(CompareOp::LessOrEqual, expr, high, session)?;
    let inside = and(above, below)?;
    if negated { not(inside) } else { Ok(inside) }
}

/// `expr [NOT] IN (list…)`
pub fn in_list(expr: Expr, list: Vec<Expr>, negated: bool, session: &Session) -> Result<Expr> {
    let found = match sets::in_set(&expr, &list, session)? {
        Some(found) => found,
        None => {
            let equal = |item| compare(CompareOp::Equal, expr.clone(), item, session);
            let found = list.into_iter().map(equal).reduce(|before, equal| or(before?, equal?));
            found.unwrap_or_else(|| Err(Error::plan("IN needs at least one value")))?
        }
    };
    if negated { not(found) } else { Ok(found) }
}

/// `CASE WHEN condition THEN result … [ELSE otherwise] END`. `CASE x WHEN y` is the caller's to
/// write as `x = y`.
pub fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Result<Expr> {
    let otherwise = otherwise.unwrap_or_else(|| Expr::null(DataType::Null));
    let types: Vec<ColumnType> = branches
        .iter()
        .map(|(_, result)| result.column_type.clone())
        .chain([otherwise.column_type.clone()])
        .collect();
    let column_type = common_type(&types).map_err(|_| {
        let list: Vec<String> = types.iter().map(|t| t.data_type.to_string()).collect();
        Error::plan(format!("the branches of CASE have no common type: {}", list.join(", ")))
            .hint("cast them to one type")
    })?;
    let mut typed = Vec::with_capacity(branches.len());
    for (when, result) in branches {
        let when = condition(when, "CASE WHEN")?;
        typed.push((when, implicit_cast(result, &column_type.data_type)));
    }
    let otherwise = Box::new(implicit_cast(otherwise, &column_type.data_type));
    Ok(Expr::new(ExprKind::Case { branches: typed, otherwise }, column_type).folded())
}
