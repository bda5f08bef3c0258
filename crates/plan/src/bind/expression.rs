//! Scalar expressions: syntax to typed trees.
//!
//! Names are decided by a [`Names`]; everything about types is decided by `thalweg_expr::build`.
//! Errors point at the smallest expression that is wrong.
//!
//! [`Binder::expression`] is called for every node of the tree, so that a [`Names`] can take over
//! any sub-expression: an aggregate, a key of GROUP BY that is an expression, a call OVER rows.
//! Only what it leaves is bound by kind.
//!
//! Sub-queries are joins: `bind::subquery` takes them out of WHERE before it binds the rest, and
//! `bind::values` joins what they stand for before a clause is bound.

use sqlparser::ast::{self as sql, BinaryOperator, Expr as SqlExpr};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp, PatternKind, UnaryOp};

use super::Binder;
use super::functions::{function_name, plain_arguments, refuse_clauses};
use super::literal::{bind_interval, bind_value, unit_name};
use super::names::{Names, PlainNames};
use super::scope::{Scope, dotted, name_parts};
use super::spans::{convert, ident_span, span_of};
use super::unsupported;

impl Binder<'_> {
    /// Binds an expression.
    pub fn expression(&self, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        let bound = match names.intercept(self, expr) {
            Ok(Some(bound)) => Ok(bound),
            Ok(None) => self.by_kind(expr, names),
            // The one function that may stand without brackets and is no word of the grammar.
            Err(_) if is_pi(expr) => build::call("PI", Vec::new(), self.session),
            Err(error) => Err(error),
        };
        // Noted for `physical::ordered`, which refuses such functions in the ordered contracts and
        // needs the place.
        // Parts are bound before the whole, so the smallest expression is remembered.
        if let Ok(Some(function)) = bound.as_ref().map(Expr::undecided_function) {
            let mut undecided = self.undecided.borrow_mut();
            undecided.entry(function.name.clone()).or_insert_with(|| span_of(expr));
        }
        let span = span_of(expr);
        bound.map(|bound| bound.at(span)).map_err(|error| error.at(span))
    }

    /// Binds a condition, which must be BOOLEAN. `clause` is for the message.
    pub fn condition(&self, expr: &SqlExpr, clause: &str, names: &mut dyn Names) -> Result<Expr> {
        let bound = self.expression(expr, names)?;
        match bound.column_type.data_type {
            DataType::Boolean => Ok(bound),
            // WHERE NULL keeps no row.
            DataType::Null => Ok(Expr::null(DataType::Boolean)),
            ref other => {
                Err(Error::plan(format!("{clause} must be BOOLEAN, but is {other}"))
                    .at(span_of(expr)))
            }
        }
    }

    /// The same where no column can be seen.
    pub(super) fn without_columns(&self, expr: &SqlExpr, clause: &str) -> Result<Expr> {
        self.expression(expr, &mut PlainNames::of(&Scope::empty(), clause))
    }

    /// Split in three, so that no function has all kinds: operators and literals here, predicates,
    /// then functions with a syntax of their own.
    fn by_kind(&self, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        match expr {
            SqlExpr::Value(value) => bind_value(&value.value),
            SqlExpr::Nested(inner) => self.expression(inner, names),
            SqlExpr::TypedString(typed) => typed_string(typed),
            SqlExpr::Interval(interval) => bind_interval(interval),
            SqlExpr::BinaryOp { left, op, right } => self.binary(left, op, right, names),
            SqlExpr::UnaryOp { op, expr } => self.unary(*op, expr, names),
            SqlExpr::Cast { format: Some(format), .. } => Err(cast_format(format)),
            SqlExpr::Cast { kind, expr, data_type, .. } => self.cast(kind, expr, data_type, names),
            SqlExpr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), names)
            }
            SqlExpr::Function(function) => self.function(function, names),
            SqlExpr::InSubquery { .. }
            | SqlExpr::Exists { .. }
            | SqlExpr::Subquery(_)
            | SqlExpr::AnyOp { .. }
            | SqlExpr::AllOp { .. } => self.joined_value(expr),
            SqlExpr::GroupingSets(_) | SqlExpr::Cube(_) | SqlExpr::Rollup(_) => {
                Err(Error::plan("GROUPING SETS, CUBE and ROLLUP stand in GROUP BY only"))
            }
            _ => self.by_predicate(expr, names),
        }
    }

    fn by_predicate(&self, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        match expr {
            SqlExpr::IsNull(inner) => Ok(build::is_null(self.expression(inner, names)?, false)),
            SqlExpr::IsNotNull(inner) => Ok(build::is_null(self.expression(inner, names)?, true)),
            SqlExpr::IsUnknown(inner) => self.truth(UnaryOp::IsUnknown, inner, names),
            SqlExpr::IsNotUnknown(inner) => self.truth(UnaryOp::IsNotUnknown, inner, names),
            SqlExpr::IsTrue(inner) => self.truth(UnaryOp::IsTrue, inner, names),
            SqlExpr::IsNotTrue(inner) => self.truth(UnaryOp::IsNotTrue, inner, names),
            SqlExpr::IsFalse(inner) => self.truth(UnaryOp::IsFalse, inner, names),
            SqlExpr::IsNotFalse(inner) => self.truth(UnaryOp::IsNotFalse, inner, names),
            SqlExpr::IsDistinctFrom(left, right) => self.distinct_from(left, right, false, names),
            SqlExpr::IsNotDistinctFrom(left, right) => self.distinct_from(left, right, true, names),
            SqlExpr::Between { expr, negated, low, high } => {
                self.between([expr, low, high], *negated, names)
            }
            SqlExpr::InList { expr, list, negated } => {
                let value = self.expression(expr, names)?;
                build::in_list(value, self.expressions(list.iter(), names)?, *negated, self.session)
            }
            SqlExpr::Like { negated, any: false, expr, pattern, escape_char } => {
                let found = self.like([expr, pattern], escape_char, PatternKind::Like, names)?;
                self.negated(found, *negated)
            }
            SqlExpr::ILike { negated, expr, pattern, .. } => {
                let not = if *negated { "NOT " } else { "" };
                Err(unsupported::never("ILIKE")
                    .hint(format!("write UPPER({expr}) {not}LIKE UPPER({pattern})")))
            }
            SqlExpr::SimilarTo { negated, expr, pattern, escape_char } => {
                let found =
                    self.like([expr, pattern], escape_char, PatternKind::SimilarTo, names)?;
                self.negated(found, *negated)
            }
            _ => self.by_special_function(expr, names),
        }
    }

    fn by_special_function(&self, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        match expr {
            SqlExpr::Extract { field, expr, .. } => {
                let unit = build::string_literal(&unit_name(field)?);
                let value = self.expression(expr, names)?;
                build::call("EXTRACT", vec![unit, value], self.session)
            }
            SqlExpr::Floor { expr, field } => self.round_to("FLOOR", expr, field, names),
            SqlExpr::Ceil { expr, field } => self.round_to("CEIL", expr, field, names),
            SqlExpr::Position { expr, r#in } => {
                self.call("POSITION", [expr.as_ref(), r#in.as_ref()], names)
            }
            SqlExpr::Substring { expr, substring_from, substring_for, .. } => {
                let parts = [Some(expr), substring_from.as_ref(), substring_for.as_ref()];
                self.call("SUBSTRING", parts.into_iter().flatten().map(AsRef::as_ref), names)
            }
            SqlExpr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let parts =
                    [Some(expr), Some(overlay_what), Some(overlay_from), overlay_for.as_ref()];
                self.call("OVERLAY", parts.into_iter().flatten().map(AsRef::as_ref), names)
            }
            SqlExpr::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                self.trim(*trim_where, trim_what.as_deref(), expr, names)
            }
            SqlExpr::IsJson { expr, kind, unique_keys: None, negated } => {
                let mut args = vec![self.expression(expr, names)?];
                args.extend(kind.as_ref().map(|kind| build::string_literal(&kind.to_string())));
                self.negated(build::call("IS JSON", args, self.session)?, *negated)
            }
            SqlExpr::Array(array) => self.call("ARRAY", array.elem.iter(), names),
            SqlExpr::CompoundFieldAccess { root, access_chain } => {
                self.access(root, access_chain, names)
            }
            SqlExpr::Tuple(items) => self.call("ROW", items.iter(), names),
            other => match name_parts(other) {
                Some(parts) => Err(Error::plan(format!("there is no column '{}'", dotted(parts)))),
                None => Err(unsupported::never(&format!("the expression {other}"))),
            },
        }
    }

    fn expressions<'e>(
        &self,
        list: impl Iterator<Item = &'e SqlExpr>,
        names: &mut dyn Names,
    ) -> Result<Vec<Expr>> {
        list.map(|expr| self.expression(expr, names)).collect()
    }

    fn call<'e>(
        &self,
        name: &str,
        args: impl IntoIterator<Item = &'e SqlExpr>,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        build::call(name, self.expressions(args.into_iter(), names)?, self.session)
    }

    fn binary(
        &self,
        left: &SqlExpr,
        op: &BinaryOperator,
        right: &SqlExpr,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        if *op == BinaryOperator::Overlaps {
            return self.overlaps(left, right, names);
        }
        let op = binary_op(op).ok_or_else(|| unsupported::never(&format!("the operator {op}")))?;
        let left = self.expression(left, names)?;
        let right = self.expression(right, names)?;
        build::binary(op, left, right, self.session)
    }

    fn unary(&self, op: sql::UnaryOperator, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        let operand = self.expression(expr, names)?;
        match op {
            sql::UnaryOperator::Minus => build::unary(UnaryOp::Minus, operand),
            sql::UnaryOperator::Plus => build::unary(UnaryOp::Plus, operand),
            sql::UnaryOperator::Not => build::unary(UnaryOp::Not, operand),
            other => Err(unsupported::never(&format!("the operator {other}"))),
        }
    }

    fn cast(
        &self,
        kind: &sql::CastKind,
        expr: &SqlExpr,
        data_type: &sql::DataType,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let safe = match kind {
            sql::CastKind::Cast => false,
            sql::CastKind::TryCast => true,
            _ => {
                return Err(unsupported::never("the cast ::")
                    .hint(format!("write CAST({expr} AS {data_type})")));
            }
        };
        let input = self.expression(expr, names)?;
        // The nullability of the written type does not count: a cast keeps that of its input.
        if let Some(interval) = self.cast_to_interval(&input, data_type)? {
            return Ok(interval);
        }
        let target = crate::parser::data_type(data_type)?;
        build::cast(input, target.data_type, safe, self.session)
    }

    /// `CASE x WHEN v THEN …` compares x with each value; x is written once and evaluated per
    /// branch.
    fn case(
        &self,
        operand: Option<&SqlExpr>,
        conditions: &[sql::CaseWhen],
        otherwise: Option<&SqlExpr>,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let operand = operand.map(|e| self.expression(e, names)).transpose()?;
        let mut branches = Vec::with_capacity(conditions.len());
        for when in conditions {
            let condition = match &operand {
                None => self.condition(&when.condition, "a CASE condition", names)?,
                Some(operand) => self.case_matches(operand, &when.condition, names)?,
            };
            branches.push((condition, self.expression(&when.result, names)?));
        }
        let otherwise = otherwise.map(|e| self.expression(e, names)).transpose()?;
        build::case(branches, otherwise)
    }

    fn truth(&self, op: UnaryOp, expr: &SqlExpr, names: &mut dyn Names) -> Result<Expr> {
        build::unary(op, self.expression(expr, names)?)
    }

    fn distinct_from(
        &self,
        left: &SqlExpr,
        right: &SqlExpr,
        negated: bool,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let left = self.expression(left, names)?;
        let right = self.expression(right, names)?;
        build::is_distinct_from(left, right, negated, self.session)
    }

    fn like(
        &self,
        [expr, pattern]: [&SqlExpr; 2],
        escape: &Option<Box<SqlExpr>>,
        kind: PatternKind,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let value = self.expression(expr, names)?;
        let pattern = self.expression(pattern, names)?;
        let escape = escape.as_deref().map(escape_text).transpose()?;
        build::like(value, pattern, escape, kind, false, self.session)
    }

    pub(super) fn negated(&self, expr: Expr, negated: bool) -> Result<Expr> {
        if negated { build::unary(UnaryOp::Not, expr) } else { Ok(expr) }
    }

    fn round_to(
        &self,
        name: &str,
        expr: &SqlExpr,
        kind: &sql::CeilFloorKind,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let value = self.expression(expr, names)?;
        let args = match kind {
            sql::CeilFloorKind::DateTimeField(sql::DateTimeField::NoDateTime) => vec![value],
            sql::CeilFloorKind::DateTimeField(field) => {
                vec![value, build::string_literal(&unit_name(field)?)]
            }
            sql::CeilFloorKind::Scale(scale) => vec![value, bind_value(&scale.value)?],
        };
        build::call(name, args, self.session)
    }

    /// `TRIM([BOTH | LEADING | TRAILING] [what] FROM text)`; without `what` it removes blanks.
    fn trim(
        &self,
        side: Option<sql::TrimWhereField>,
        what: Option<&SqlExpr>,
        expr: &SqlExpr,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let value = self.expression(expr, names)?;
        let side = match (side, what) {
            (None, None) => return build::call("TRIM", vec![value], self.session),
            (None | Some(sql::TrimWhereField::Both), _) => "BOTH",
            (Some(sql::TrimWhereField::Leading), _) => "LEADING",
            (Some(sql::TrimWhereField::Trailing), _) => "TRAILING",
        };
        let what = match what {
            Some(what) => self.expression(what, names)?,
            None => build::string_literal(" "),
        };
        build::call("TRIM", vec![build::string_literal(side), what, value], self.session)
    }

    /// `array[1]`, `map['k']`
    fn access(
        &self,
        root: &SqlExpr,
        chain: &[sql::AccessExpr],
        names: &mut dyn Names,
    ) -> Result<Expr> {
        // `r.items[1]`: what stands in front of the brackets is one name, as it is without them.
        let is_field = |access: &&sql::AccessExpr| field_name(access).is_some();
        let dots = chain.iter().take_while(is_field).filter_map(field_name).cloned();
        let (mut value, chain) = match root {
            SqlExpr::Identifier(first) => {
                let parts: Vec<sql::Ident> = std::iter::once(first.clone()).chain(dots).collect();
                let behind = &chain[parts.len() - 1..];
                (self.expression(&SqlExpr::CompoundIdentifier(parts), names)?, behind)
            }
            _ => (self.expression(root, names)?, chain),
        };
        for access in chain {
            value = match access {
                sql::AccessExpr::Subscript(sql::Subscript::Index { index }) => {
                    let index = self.expression(index, names)?;
                    build::call("ARRAY_AT", vec![value, index], self.session)?
                }
                sql::AccessExpr::Subscript(_) => return Err(unsupported::never("an array slice")),
                sql::AccessExpr::Dot(SqlExpr::Identifier(field)) => {
                    self.fields(value, std::slice::from_ref(field))?
                }
                sql::AccessExpr::Dot(other) => {
                    return Err(unsupported::never(&format!("'.' before {other}")));
                }
            };
        }
        Ok(value)
    }

    /// `row.field.field`
    pub(super) fn fields(&self, row: Expr, fields: &[sql::Ident]) -> Result<Expr> {
        fields.iter().try_fold(row, |row, field| {
            let name = build::string_literal(&field.value);
            build::call("ROW_FIELD", vec![row, name], self.session)
                .map_err(|error| error.at(ident_span(field)))
        })
    }

    fn function(&self, function: &sql::Function, names: &mut dyn Names) -> Result<Expr> {
        let name = function_name(function);
        if function.over.is_some() {
            return Err(unsupported::over_here(&name));
        }
        if function.filter.is_some() {
            return Err(Error::plan(format!("FILTER is for aggregates, and {name} is none")));
        }
        refuse_clauses(function)?;
        let args = plain_arguments(function)?;
        match name.as_str() {
            "TIMESTAMPDIFF" | "TIMESTAMPADD" => self.timestamp_function(&name, &args, names),
            crate::parser::MINUS => self.distance(&args, names),
            "CURRENT_WATERMARK" => self.current_watermark(&args, names),
            _ => self.named_function(&name, args, names),
        }
    }

    /// A function by its name: one that SQL has declared, or one that is registered or built in.
    fn named_function(
        &self,
        name: &str,
        args: Vec<&SqlExpr>,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let Some(declared) = self.declared_function(name) else {
            return self.call(name, args, names);
        };
        let registered = self.session.functions.get(&declared.identifier.to_uppercase());
        let identifier = registered.ok_or_else(|| declared.not_registered())?.name;
        self.call(&identifier, args, names)
    }

    /// `TIMESTAMPDIFF(SECOND, a, b)`: the unit is a word, not a column.
    fn timestamp_function(
        &self,
        name: &str,
        args: &[&SqlExpr],
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let [unit, rest @ ..] = args else {
            return Err(Error::plan(format!("{name} takes a unit and two values"))
                .hint(format!("write {name}(SECOND, a, b)")));
        };
        let unit = match name_parts(unit) {
            Some([word]) => build::string_literal(&word.value.to_uppercase()),
            _ => self.expression(unit, names)?,
        };
        let mut bound = vec![unit];
        bound.extend(self.expressions(rest.iter().copied(), names)?);
        build::call(name, bound, self.session)
    }

    /// `CURRENT_WATERMARK(rowtime)`: the watermark before the row, NULL before the first.
    fn current_watermark(&self, args: &[&SqlExpr], names: &mut dyn Names) -> Result<Expr> {
        let bound = self.expressions(args.iter().copied(), names)?;
        if let [argument] = bound.as_slice() {
            let column = crate::logical::column_of(argument);
            if !column.is_some_and(|c| names.is_rowtime(c)) {
                return Err(Error::plan(format!(
                    "the argument of CURRENT_WATERMARK() must be a row time attribute, but {} is {}",
                    args[0], argument.column_type.data_type
                ))
                .hint("name the column of WATERMARK FOR"));
            }
        }
        build::call("CURRENT_WATERMARK", bound, self.session)
    }
}

/// `PI` without brackets.
fn is_pi(expr: &SqlExpr) -> bool {
    matches!(expr, SqlExpr::Identifier(name) if name.quote_style.is_none()
        && name.value.eq_ignore_ascii_case("PI"))
}

/// The field that an access names, if it is one by name.
fn field_name(access: &sql::AccessExpr) -> Option<&sql::Ident> {
    match access {
        sql::AccessExpr::Dot(SqlExpr::Identifier(name)) => Some(name),
        _ => None,
    }
}

/// The error for a cast with a format:
/// `CAST(x AS type FORMAT '…')`, which is BigQuery's.
fn cast_format(format: &sql::CastFormat) -> Error {
    let (sql::CastFormat::Value(pattern) | sql::CastFormat::ValueAtTimeZone(pattern, _)) = format;
    unsupported::never("FORMAT in CAST")
        .hint("DATE_FORMAT(time, 'yyyy-MM-dd') writes a time in a form, TO_TIMESTAMP(text, form) reads it")
        .at(convert(pattern.span))
}

/// `TIMESTAMP '…'`, `DATE '…'`, `TIME '…'`
fn typed_string(typed: &sql::TypedString) -> Result<Expr> {
    let name = typed.data_type.to_string().to_uppercase();
    match &typed.value.value {
        sql::Value::SingleQuotedString(text) => build::typed_literal(&name, text),
        other => Err(unsupported::never(&format!("the literal {name} {other}"))),
    }
}

/// The character behind ESCAPE.
fn escape_text(expr: &SqlExpr) -> Result<&str> {
    if let SqlExpr::Value(value) = expr
        && let sql::Value::SingleQuotedString(text) = &value.value
    {
        return Ok(text);
    }
    Err(Error::plan("ESCAPE takes one character in quotes").at(span_of(expr)))
}

pub(super) fn binary_op(op: &BinaryOperator) -> Option<BinaryOp> {
    Some(match op {
        BinaryOperator::Plus => BinaryOp::Add,
        BinaryOperator::Minus => BinaryOp::Subtract,
        BinaryOperator::Multiply => BinaryOp::Multiply,
        BinaryOperator::Divide => BinaryOp::Divide,
        BinaryOperator::Modulo => BinaryOp::Modulo,
        BinaryOperator::StringConcat => BinaryOp::Concat,
        BinaryOperator::Gt => BinaryOp::Greater,
        BinaryOperator::Lt => BinaryOp::Less,
        BinaryOperator::GtEq => BinaryOp::GreaterOrEqual,
        BinaryOperator::LtEq => BinaryOp::LessOrEqual,
        BinaryOperator::Eq => BinaryOp::Equal,
        BinaryOperator::NotEq => BinaryOp::NotEqual,
        BinaryOperator::And => BinaryOp::And,
        BinaryOperator::Or => BinaryOp::Or,
        _ => return None,
    })
}
