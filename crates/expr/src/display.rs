//! The text of an expression: SQL, with columns as `$3`.

use std::fmt::{self, Display, Formatter};

use thalweg_core::DataType;
use thalweg_core::quoting::quoted_text;

use crate::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use crate::kernels;

impl Display for CompareOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompareOp::Equal => "=",
            CompareOp::NotEqual => "<>",
            CompareOp::Less => "<",
            CompareOp::LessOrEqual => "<=",
            CompareOp::Greater => ">",
            CompareOp::GreaterOrEqual => ">=",
            CompareOp::Distinct => "IS DISTINCT FROM",
            CompareOp::NotDistinct => "IS NOT DISTINCT FROM",
        })
    }
}

impl Display for ArithmeticOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Modulo => "%",
        })
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Column(index) => write!(f, "${index}"),
            ExprKind::Literal(value) => literal(value, &self.column_type.data_type, f),
            ExprKind::Call { function, args } => call(&function.name, args, f),
            ExprKind::Coalesce(args) => call("COALESCE", args, f),
            ExprKind::Case { branches, otherwise } => {
                f.write_str("CASE")?;
                for (condition, result) in branches {
                    write!(f, " WHEN {condition} THEN {result}")?;
                }
                write!(f, " ELSE {otherwise} END")
            }
            ExprKind::Cast { input, safe, .. } => {
                let name = if *safe { "TRY_CAST" } else { "CAST" };
                write!(f, "{name}({input} AS {})", self.column_type.data_type)
            }
            ExprKind::And(left, right) => write!(f, "({left} AND {right})"),
            ExprKind::Or(left, right) => write!(f, "({left} OR {right})"),
            ExprKind::Not(input) => write!(f, "NOT {input}"),
            ExprKind::Negate(input) => write!(f, "-{input}"),
            ExprKind::IsNull { input, negated } => {
                write!(f, "{input} IS {}NULL", if *negated { "NOT " } else { "" })
            }
            ExprKind::Compare { op, left, right } => write!(f, "({left} {op} {right})"),
            ExprKind::Arithmetic { op, left, right } => write!(f, "({left} {op} {right})"),
        }
    }
}

fn call(name: &str, args: &[Expr], f: &mut Formatter<'_>) -> fmt::Result {
    match args {
        [value] if name.starts_with("IN (") => return write!(f, "{value} {name}"),
        [left, right] if matches!(name, "+" | "-" | "*" | "||" | "LIKE" | "SIMILAR TO") => {
            return write!(f, "({left} {name} {right})");
        }
        _ => {}
    }
    write!(f, "{name}(")?;
    for (i, arg) in args.iter().enumerate() {
        write!(f, "{}{arg}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str(")")
}

fn literal(value: &Scalar, data_type: &DataType, f: &mut Formatter<'_>) -> fmt::Result {
    match (value, data_type) {
        (Scalar::Null, _) => f.write_str("NULL"),
        (Scalar::Boolean(v), _) => f.write_str(if *v { "TRUE" } else { "FALSE" }),
        (Scalar::Integer(v), DataType::IntervalDayTime) => write!(f, "INTERVAL {v} MS"),
        (Scalar::Integer(v), DataType::IntervalYearMonth) => write!(f, "INTERVAL {v} MONTH"),
        (Scalar::Integer(v), t) if t.is_integer() => write!(f, "{v}"),
        (Scalar::Decimal(v), DataType::Decimal(_, scale)) => {
            let mut text = String::new();
            kernels::text::append_decimal(&mut text, *v, *scale);
            f.write_str(&text)
        }
        (Scalar::String(v), _) => f.write_str(&quoted_text(v)),
        (Scalar::Binary(v), _) => {
            f.write_str("x'")?;
            v.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("'")
        }
        (value, data_type) => match kernels::text::scalar_text(value, data_type) {
            Some(text) if data_type.is_float() => f.write_str(&text),
            Some(text) => write!(f, "{} '{text}'", data_type),
            None => write!(f, "{value:?}"),
        },
    }
}
