//! Evaluates expressions over columns.
//!
//! Every node is one kernel over whole columns; a constant stays one value until a kernel needs it
//! spread. What can fail runs only on the rows that need it: the right side of AND and OR on the
//! undecided rows, the branches of CASE and COALESCE on the rows that reach them. Everything else
//! runs on all rows, because that is faster than choosing.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, NullArray, UInt32Array, new_empty_array, new_null_array,
};
use arrow_buffer::BooleanBuffer;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use arrow_select::zip::zip;
use thalweg_core::{Result, Watermark, WatermarkBefore};

use crate::expr::{EvalContext, Expr, ExprKind};
use crate::function::{Arguments, Function, Value};
use crate::kernels::logic;
use crate::{kernels, literal};

/// The rows in hand: all of a batch, or those that reach a branch.
pub(crate) struct Rows<'a> {
    columns: Cow<'a, [ArrayRef]>,
    len: usize,
    watermark_before: Cow<'a, WatermarkBefore>,
    wall_ms: i64,
}

impl<'a> Rows<'a> {
    pub fn new(context: &EvalContext<'a>) -> Self {
        Rows {
            columns: Cow::Borrowed(context.batch.columns()),
            len: context.batch.num_rows(),
            watermark_before: Cow::Borrowed(context.watermark_before),
            wall_ms: context.wall_ms,
        }
    }
    /// One row without columns.
    pub fn one(wall_ms: i64) -> Self {
        Rows {
            columns: Cow::Borrowed(&[]),
            len: 1,
            watermark_before: Cow::Owned(WatermarkBefore::All(Watermark::MIN)),
            wall_ms,
        }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    /// The rows at these indices, with the columns that the expression reads.
    fn take(&self, indices: &[u32], expr: &Expr) -> Result<Rows<'static>> {
        let needed = expr.columns();
        let unused: ArrayRef = Arc::new(NullArray::new(indices.len()));
        let mut columns = vec![unused; needed.last().map_or(0, |last| last + 1)];
        let picks = UInt32Array::from(indices.to_vec());
        for index in needed {
            columns[index] = take(&self.columns[index], &picks, None)?;
        }
        Ok(Rows {
            columns: Cow::Owned(columns),
            len: indices.len(),
            watermark_before: Cow::Owned(self.watermark_before.take(indices)),
            wall_ms: self.wall_ms,
        })
    }
}

/// Evaluates over the rows; an error says which part of the expression fails. Without rows nothing
/// runs, so nothing fails.
pub(crate) fn evaluate(expr: &Expr, rows: &Rows<'_>) -> Result<Value> {
    evaluate_kind(expr, rows).map_err(|error| error.at(expr.span))
}

fn evaluate_kind(expr: &Expr, rows: &Rows<'_>) -> Result<Value> {
    if rows.len == 0 {
        return Ok(Value::Rows(new_empty_array(&expr.column_type.data_type.arrow())));
    }
    let data_type = &expr.column_type.data_type;
    match &expr.kind {
        ExprKind::Column(index) => Ok(Value::Rows(rows.columns[*index].clone())),
        ExprKind::Literal(value) => Ok(Value::Constant(literal::to_array(value, data_type)?)),
        ExprKind::Call { function, args } => call(expr, function, args, rows),
        ExprKind::Case { branches, otherwise } => {
            if branches.iter().any(|(c, r)| c.can_fail() || r.can_fail()) || otherwise.can_fail() {
                case_by_rows(expr, branches, otherwise, rows)
            } else {
                case_by_masks(branches, otherwise, rows)
            }
        }
        ExprKind::Coalesce(args) => coalesce(expr, args, rows),
        ExprKind::Cast { input, safe, zone } => {
            let value = evaluate(input, rows)?;
            let cast = kernels::cast::Cast {
                from: &input.column_type.data_type,
                to: data_type,
                safe: *safe,
                zone: *zone,
            };
            Ok(value.with(cast.apply(value.array())?))
        }
        ExprKind::And(left, right) => and_or(left, right, rows, true),
        ExprKind::Or(left, right) => and_or(left, right, rows, false),
        ExprKind::Not(input) => {
            let value = evaluate(input, rows)?;
            Ok(value.with(Arc::new(logic::not(value.array().as_boolean()))))
        }
        ExprKind::IsNull { input, negated } => {
            let value = evaluate(input, rows)?;
            Ok(value.with(Arc::new(logic::is_null(value.array(), *negated))))
        }
        ExprKind::Compare { op, left, right } => {
            let (left, right) = (evaluate(left, rows)?, evaluate(right, rows)?);
            kernels::compare::compare(*op, &left, &right)
        }
        ExprKind::Arithmetic { op, left, right } => {
            let (left, right) = (evaluate(left, rows)?, evaluate(right, rows)?);
            kernels::arithmetic::arithmetic(*op, &left, &right, data_type)
        }
        ExprKind::Negate(input) => {
            let value = evaluate(input, rows)?;
            Ok(value.with(kernels::arithmetic::negate(value.array())?))
        }
    }
}

fn call(expr: &Expr, function: &Function, args: &[Expr], rows: &Rows<'_>) -> Result<Value> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(evaluate(arg, rows)?);
    }
    let once = (function.deterministic || function.uses_wall_clock) && !function.uses_watermark;
    let constant = once && values.iter().all(Value::is_constant);
    let result = (function.kernel)(&Arguments {
        values: &values,
        rows: if constant { 1 } else { rows.len },
        result: &expr.column_type.data_type,
        zone: function.zone,
        wall_ms: rows.wall_ms,
        watermark_before: &rows.watermark_before,
    })?;
    Ok(if constant { Value::Constant(result) } else { Value::Rows(result) })
}

/// The rows on which a condition is true; NULL is not.
pub(crate) fn true_mask(array: &ArrayRef) -> Result<BooleanBuffer> {
    let array = array.as_boolean();
    Ok(match array.nulls() {
        None => array.values().clone(),
        Some(nulls) => array.values() & nulls.inner(),
    })
}

/// AND or OR of three-valued logic.
fn and_or(left: &Expr, right: &Expr, rows: &Rows<'_>, is_and: bool) -> Result<Value> {
    let first = evaluate(left, rows)?;
    let second = if right.can_fail() {
        let known = first.into_rows(rows.len)?;
        let second = evaluate_undecided(&known, right, rows, is_and)?;
        return Ok(Value::Rows(kleene(&known, &second, is_and)));
    } else {
        evaluate(right, rows)?
    };
    if first.is_constant() && second.is_constant() {
        return Ok(Value::Constant(kleene(first.array(), second.array(), is_and)));
    }
    let (first, second) = (first.into_rows(rows.len)?, second.into_rows(rows.len)?);
    Ok(Value::Rows(kleene(&first, &second, is_and)))
}

fn kleene(left: &ArrayRef, right: &ArrayRef, is_and: bool) -> ArrayRef {
    Arc::new(logic::kleene(left.as_boolean(), right.as_boolean(), is_and))
}

/// Evaluates the right side where the left side has not decided the result; elsewhere its value
/// does not matter.
fn evaluate_undecided(
    known: &ArrayRef,
    right: &Expr,
    rows: &Rows<'_>,
    is_and: bool,
) -> Result<ArrayRef> {
    let known = known.as_boolean();
    // FALSE decides AND, TRUE decides OR.
    let undecided: Vec<u32> = (0..rows.len as u32)
        .filter(|&row| known.is_null(row as usize) || known.value(row as usize) == is_and)
        .collect();
    if undecided.len() == rows.len {
        return evaluate(right, rows)?.into_rows(rows.len);
    }
    if undecided.is_empty() {
        return Ok(Arc::new(known.clone()));
    }
    let part = evaluate(right, &rows.take(&undecided, right)?)?.into_rows(undecided.len())?;
    let part = part.as_boolean();
    let mut spread = vec![None; rows.len];
    for (place, row) in undecided.into_iter().enumerate() {
        spread[row as usize] = part.is_valid(place).then(|| part.value(place));
    }
    Ok(Arc::new(BooleanArray::from(spread)))
}

/// CASE of branches that cannot fail: evaluates all of them and selects.
fn case_by_masks(branches: &[(Expr, Expr)], otherwise: &Expr, rows: &Rows<'_>) -> Result<Value> {
    let mut result = evaluate(otherwise, rows)?;
    for (condition, value) in branches.iter().rev() {
        let condition = evaluate(condition, rows)?.into_rows(rows.len)?;
        let mask = BooleanArray::new(true_mask(&condition)?, None);
        let value = evaluate(value, rows)?;
        result = Value::Rows(zip(&mask, &value, &result)?);
    }
    Ok(result)
}

/// Collects the result of rows that are computed in several pieces.
struct Assembly {
    pieces: Vec<Value>,
    /// For each row, its piece and its place there.
    places: Vec<(usize, usize)>,
}

impl Assembly {
    fn new(rows: usize) -> Self {
        Assembly { pieces: Vec::new(), places: vec![(0, 0); rows] }
    }
    /// Evaluates an expression on the rows at these indices.
    fn add(&mut self, expr: &Expr, indices: &[u32], rows: &Rows<'_>) -> Result<&Value> {
        let piece = if indices.len() == rows.len {
            evaluate(expr, rows)?
        } else {
            evaluate(expr, &rows.take(indices, expr)?)?
        };
        let number = self.pieces.len();
        for (place, &row) in indices.iter().enumerate() {
            self.places[row as usize] = (number, piece.place(place));
        }
        self.pieces.push(piece);
        Ok(&self.pieces[number])
    }
    fn finish(self, expr: &Expr) -> Result<Value> {
        if self.places.is_empty() {
            return Ok(Value::Rows(new_empty_array(&expr.column_type.data_type.arrow())));
        }
        if let [only] = &self.pieces[..] {
            return Ok(only.clone());
        }
        let arrays: Vec<&dyn Array> = self.pieces.iter().map(|p| p.array().as_ref()).collect();
        Ok(Value::Rows(interleave(&arrays, &self.places)?))
    }
}

/// CASE with a branch that can fail: each branch sees the rows that reach it.
fn case_by_rows(
    expr: &Expr,
    branches: &[(Expr, Expr)],
    otherwise: &Expr,
    rows: &Rows<'_>,
) -> Result<Value> {
    let mut assembly = Assembly::new(rows.len);
    let mut remaining: Vec<u32> = (0..rows.len as u32).collect();
    for (condition, value) in branches {
        if remaining.is_empty() {
            break;
        }
        let tested = evaluate(condition, &rows.take(&remaining, condition)?)?;
        let mask = true_mask(&tested.into_rows(remaining.len())?)?;
        let mut places = mask.iter();
        let (chosen, rest): (Vec<u32>, Vec<u32>) =
            remaining.iter().partition(|_| places.next().unwrap_or(false));
        if !chosen.is_empty() {
            assembly.add(value, &chosen, rows)?;
        }
        remaining = rest;
    }
    if !remaining.is_empty() {
        assembly.add(otherwise, &remaining, rows)?;
    }
    assembly.finish(expr)
}

/// The first argument that is not NULL.
fn coalesce(expr: &Expr, args: &[Expr], rows: &Rows<'_>) -> Result<Value> {
    let mut assembly = Assembly::new(rows.len);
    let mut remaining: Vec<u32> = (0..rows.len as u32).collect();
    for arg in args {
        if remaining.is_empty() {
            break;
        }
        let piece = assembly.add(arg, &remaining, rows)?;
        let constant = piece.is_constant();
        let array = piece.array();
        if array.logical_null_count() == 0 {
            remaining.clear();
        } else if !constant {
            let nulls = array.logical_nulls();
            let mut places = 0..;
            remaining.retain(|_| {
                let place = places.next().unwrap_or(0);
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(place))
            });
        }
    }
    if assembly.pieces.is_empty() {
        let data_type = expr.column_type.data_type.arrow();
        return Ok(Value::Constant(new_null_array(&data_type, 1)));
    }
    assembly.finish(expr)
}
