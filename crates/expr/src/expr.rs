//! The expression tree and the values of literals.
//!
//! A tree is made by [`crate::build`], which has already decided every type and inserted every
//! cast: the operands of a comparison or of integer arithmetic have one type here. Evaluation is
//! in `evaluate`. Columns are positions; names are the planner's business.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use thalweg_core::{ColumnType, DataType, Result, Span, WatermarkBefore};

use crate::evaluate::{self, Rows};
use crate::function::{Executor, Function, FunctionRegistry};
use crate::kernels::ticks_per_second;
use crate::literal;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// NULL of any type.
    Null,
    /// BOOLEAN
    Boolean(bool),
    /// TINYINT, SMALLINT, INT, BIGINT (the expression's type says which), DATE (days), TIME (ms),
    /// TIMESTAMP and TIMESTAMP_LTZ (in the unit of their Arrow type), intervals (months, ms).
    Integer(i64),
    /// FLOAT, DOUBLE
    Double(f64),
    /// DECIMAL, unscaled
    Decimal(i128),
    /// CHAR, VARCHAR, STRING
    String(Arc<str>),
    /// BINARY, VARBINARY, BYTES
    Binary(Arc<[u8]>),
}

/// What the session says about time zones and the like; part of what an expression means.
#[derive(Clone, Debug)]
pub struct Session {
    /// `table.local-time-zone`
    pub zone: chrono_tz::Tz,
    /// The scalar functions that the user registered.
    pub functions: Arc<FunctionRegistry>,
}

impl Default for Session {
    fn default() -> Self {
        Session { zone: chrono_tz::Tz::UTC, functions: Arc::default() }
    }
}

/// A typed expression. Displays as SQL with columns as `$3`; equal text means an equal expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// The type of the result.
    pub column_type: ColumnType,
    /// Where it stands in the text of a statement, for errors of its values; unknown where a rule
    /// of the planner made it.
    pub span: Span,
}

/// The rows that an expression is evaluated over.
#[derive(Clone, Copy)]
pub struct EvalContext<'a> {
    /// The columns.
    pub batch: &'a RecordBatch,
    /// Each row's running watermark, for `CURRENT_WATERMARK`.
    pub watermark_before: &'a WatermarkBefore,
    /// Processing time in milliseconds since 1970, for `PROCTIME()` and `NOW()`.
    pub wall_ms: i64,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `IS DISTINCT FROM`: like `<>`, but NULL is a value
    Distinct,
    /// `IS NOT DISTINCT FROM`
    NotDistinct,
}

impl CompareOp {
    /// True if it asks only whether values are equal, not which is larger.
    pub fn is_equality(self) -> bool {
        use CompareOp::*;
        matches!(self, Equal | NotEqual | Distinct | NotDistinct)
    }
}

/// Arithmetic on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

/// The kinds of expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// The column at this position.
    Column(usize),
    /// A constant.
    Literal(Scalar),
    /// A function of its arguments.
    Call {
        /// What is called, resolved for the types of the arguments.
        function: Arc<Function>,
        /// The arguments, cast to what the function takes.
        args: Vec<Expr>,
    },
    /// `CASE WHEN … THEN … ELSE … END`; a branch runs only on the rows that reach it.
    Case {
        /// Condition and result, in order.
        branches: Vec<(Expr, Expr)>,
        /// The result where no condition is true.
        otherwise: Box<Expr>,
    },
    /// The first that is not NULL; later ones run only on the rows that are still NULL.
    Coalesce(Vec<Expr>),
    /// A change of type.
    Cast {
        /// What is cast; the type is that of the expression.
        input: Box<Expr>,
        /// `TRY_CAST`: NULL where the value does not fit.
        safe: bool,
        /// The session's time zone.
        zone: chrono_tz::Tz,
    },
    /// `AND` of three-valued logic.
    And(Box<Expr>, Box<Expr>),
    /// `OR` of three-valued logic.
    Or(Box<Expr>, Box<Expr>),
    /// `NOT`
    Not(Box<Expr>),
    /// `IS NULL`, or `IS NOT NULL`
    IsNull {
        /// What is tested.
        input: Box<Expr>,
        /// `IS NOT NULL`
        negated: bool,
    },
    /// A comparison of two values of one type.
    Compare {
        /// Which.
        op: CompareOp,
        /// Left side.
        left: Box<Expr>,
        /// Right side.
        right: Box<Expr>,
    },
    /// Arithmetic on two numbers of one type, or on two DECIMAL of any precision.
    Arithmetic {
        /// Which.
        op: ArithmeticOp,
        /// Left side.
        left: Box<Expr>,
        /// Right side.
        right: Box<Expr>,
    },
    /// Unary minus.
    Negate(Box<Expr>),
}

impl Expr {
    /// An expression of this type that stands nowhere in a text.
    pub fn new(kind: ExprKind, column_type: ColumnType) -> Expr {
        Expr { kind, column_type, span: Span::default() }
    }
    /// The same, standing here in the text of a statement.
    #[must_use]
    pub fn at(self, span: Span) -> Expr {
        Expr { span, ..self }
    }
    /// The value of a constant other than NULL, as an array of one.
    pub fn constant(&self) -> Option<ArrayRef> {
        match &self.kind {
            ExprKind::Literal(Scalar::Null) => None,
            ExprKind::Literal(value) => literal::to_array(value, &self.column_type.data_type).ok(),
            _ => None,
        }
    }
    /// The column at a position.
    pub fn column(index: usize, column_type: ColumnType) -> Expr {
        Expr::new(ExprKind::Column(index), column_type)
    }
    /// A constant of a type.
    pub fn literal(value: Scalar, column_type: ColumnType) -> Expr {
        Expr::new(ExprKind::Literal(value), column_type)
    }
    /// NULL of a type.
    pub fn null(data_type: DataType) -> Expr {
        Expr::literal(Scalar::Null, data_type.nullable())
    }

    /// Evaluates to an array as long as the batch (constants are spread out).
    pub fn evaluate(&self, context: &EvalContext<'_>) -> Result<ArrayRef> {
        let rows = Rows::new(context);
        evaluate::evaluate(self, &rows)?.into_rows(rows.len())
    }
    /// Evaluates what reads no column, to an array of one.
    pub fn evaluate_constant(&self, wall_ms: i64) -> Result<ArrayRef> {
        evaluate::evaluate(self, &Rows::one(wall_ms))?.into_rows(1)
    }
    /// Evaluates a condition; NULL counts as false, so the mask has no nulls.
    pub fn evaluate_mask(&self, context: &EvalContext<'_>) -> Result<BooleanArray> {
        let array = self.evaluate(context)?;
        evaluate::true_mask(&array).map(|mask| BooleanArray::new(mask, None))
    }

    /// The value, if this is a constant.
    pub fn as_literal(&self) -> Option<&Scalar> {
        match &self.kind {
            ExprKind::Literal(value) => Some(value),
            _ => None,
        }
    }
    /// The column and the distance, if this is a column of a time in milliseconds, or one minus a
    /// constant INTERVAL of days to seconds.
    pub fn as_time_minus_constant(&self) -> Option<(usize, i64)> {
        let column = |expr: &Expr| match (&expr.kind, &expr.column_type.data_type) {
            (
                ExprKind::Column(column),
                DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3),
            ) => Some(*column),
            _ => None,
        };
        if let ExprKind::Call { function, args } = &self.kind
            && function.name == "-"
            && let [time, interval] = &args[..]
            && interval.column_type.data_type == DataType::IntervalDayTime
            && let Some(&Scalar::Integer(distance_ms)) = interval.as_literal()
        {
            return Some((column(time)?, distance_ms));
        }
        Some((column(self)?, 0))
    }
    /// The direct operands, in the order of their text.
    pub fn children(&self) -> Vec<&Expr> {
        let mut children = Vec::new();
        self.any_child(&mut |child| {
            children.push(child);
            false
        });
        children
    }
    /// True if the test is true of it or of an expression in it; stops at the first, from left to
    /// right. Allocates nothing, because evaluation asks with each batch.
    fn any<'e>(&'e self, test: &mut dyn FnMut(&'e Expr) -> bool) -> bool {
        test(self) || self.any_child(&mut |child| child.any(test))
    }
    /// The same of its direct operands alone.
    fn any_child<'e>(&'e self, test: &mut dyn FnMut(&'e Expr) -> bool) -> bool {
        match &self.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => false,
            ExprKind::Call { args, .. } | ExprKind::Coalesce(args) => args.iter().any(test),
            ExprKind::Case { branches, otherwise } => {
                branches.iter().any(|(condition, result)| test(condition) || test(result))
                    || test(otherwise)
            }
            ExprKind::Cast { input, .. }
            | ExprKind::IsNull { input, .. }
            | ExprKind::Not(input)
            | ExprKind::Negate(input) => test(input),
            ExprKind::And(left, right)
            | ExprKind::Or(left, right)
            | ExprKind::Compare { left, right, .. }
            | ExprKind::Arithmetic { left, right, .. } => test(left) || test(right),
        }
    }
    /// The positions of the columns that it reads.
    pub fn columns(&self) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        self.any(&mut |expr| {
            if let ExprKind::Column(index) = expr.kind {
                found.insert(index);
            }
            false
        });
        found
    }
    /// The same expression over a batch whose columns stand elsewhere.
    #[must_use]
    pub fn remap(&self, position: &dyn Fn(usize) -> usize) -> Expr {
        self.replace(&|expr| match expr.kind {
            ExprKind::Column(index) => {
                let moved = Expr::column(position(index), expr.column_type.clone());
                Some(moved.at(expr.span))
            }
            _ => None,
        })
    }
    /// Replaces, from the top down, every sub-expression for which `with` has something to say.
    #[must_use]
    pub fn replace(&self, with: &dyn Fn(&Expr) -> Option<Expr>) -> Expr {
        if let Some(replacement) = with(self) {
            return replacement;
        }
        let boxed = |expr: &Expr| Box::new(expr.replace(with));
        let list = |exprs: &[Expr]| exprs.iter().map(|expr| expr.replace(with)).collect();
        let kind = match &self.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => self.kind.clone(),
            ExprKind::Call { function, args } => {
                ExprKind::Call { function: function.clone(), args: list(args) }
            }
            ExprKind::Case { branches, otherwise } => ExprKind::Case {
                branches: branches
                    .iter()
                    .map(|(c, r)| (c.replace(with), r.replace(with)))
                    .collect(),
                otherwise: boxed(otherwise),
            },
            ExprKind::Coalesce(args) => ExprKind::Coalesce(list(args)),
            ExprKind::Cast { input, safe, zone } => {
                ExprKind::Cast { input: boxed(input), safe: *safe, zone: *zone }
            }
            ExprKind::And(left, right) => ExprKind::And(boxed(left), boxed(right)),
            ExprKind::Or(left, right) => ExprKind::Or(boxed(left), boxed(right)),
            ExprKind::Not(input) => ExprKind::Not(boxed(input)),
            ExprKind::Negate(input) => ExprKind::Negate(boxed(input)),
            ExprKind::IsNull { input, negated } => {
                ExprKind::IsNull { input: boxed(input), negated: *negated }
            }
            ExprKind::Compare { op, left, right } => {
                ExprKind::Compare { op: *op, left: boxed(left), right: boxed(right) }
            }
            ExprKind::Arithmetic { op, left, right } => {
                ExprKind::Arithmetic { op: *op, left: boxed(left), right: boxed(right) }
            }
        };
        Expr::new(kind, self.column_type.clone()).at(self.span)
    }

    /// False if two evaluations over the same rows can differ (`RAND`, `NOW`, `UUID`, …).
    pub fn is_deterministic(&self) -> bool {
        !self.calls(&|function| !function.deterministic)
    }
    /// True if the result depends on the time of day at which it is evaluated.
    pub fn uses_wall_clock(&self) -> bool {
        self.calls(&|function| function.uses_wall_clock)
    }
    /// The first function in it whose value the data do not decide (`RAND`, `NOW`, `UUID`, …).
    pub fn undecided_function(&self) -> Option<&Function> {
        let mut found = None;
        self.any(&mut |expr| {
            if let ExprKind::Call { function, .. } = &expr.kind {
                let is_such = !function.deterministic || function.uses_wall_clock;
                found = is_such.then_some(&**function);
            }
            found.is_some()
        });
        found
    }
    /// True if it reads the running watermark of the rows (`CURRENT_WATERMARK`).
    pub fn uses_watermark(&self) -> bool {
        self.calls(&|function| function.uses_watermark)
    }
    /// Where the functions run that it calls and no worker may wait for.
    pub fn executors(&self) -> Vec<Arc<dyn Executor>> {
        let mut found = Vec::new();
        self.any(&mut |expr| {
            if let ExprKind::Call { function, .. } = &expr.kind {
                found.extend(function.executor.clone());
            }
            false
        });
        found
    }
    /// True if the data can make it fail (a division by zero, a text that is no number). Such an
    /// expression must run on the rows that need it and on no others.
    pub fn can_fail(&self) -> bool {
        self.any(&mut |expr| match &expr.kind {
            ExprKind::Call { function, .. } => function.can_fail,
            ExprKind::Cast { input, safe, .. } => {
                !safe && cast_can_fail(&input.column_type.data_type, &expr.column_type.data_type)
            }
            ExprKind::Arithmetic { op, right, .. } => division_can_fail(*op, right),
            _ => false,
        })
    }

    /// How long a value can be, where values of columns have these lengths, both as multiples of a
    /// row's length. Infinite where an argument says how long it is, 0 where the type does.
    pub fn length(&self, columns: &dyn Fn(usize) -> f64) -> f64 {
        self.lengths(columns, &mut 0.0)
    }

    /// The most of that which is computed at once: of the value, or of one on the way to it. A
    /// column alone is passed on and takes nothing.
    pub fn computed_length(&self, columns: &dyn Fn(usize) -> f64) -> f64 {
        let mut longest = 0.0;
        self.lengths(columns, &mut longest);
        longest
    }

    fn lengths(&self, columns: &dyn Fn(usize) -> f64, longest: &mut f64) -> f64 {
        match &self.kind {
            ExprKind::Column(column) => return columns(*column),
            ExprKind::Literal(Scalar::String(text)) => return text.len() as f64 / ROW_BYTES,
            _ => {}
        }
        let children = self.children().into_iter().map(|child| child.lengths(columns, longest));
        let length = match &self.kind {
            ExprKind::Call { function, .. } => grown(&function.name, children.sum()),
            ExprKind::Cast { .. } => children.sum::<f64>().max(1.0),
            _ => children.fold(0.0, f64::max),
        };
        let length = if has_length(&self.column_type.data_type) { length } else { 0.0 };
        *longest = longest.max(length);
        length
    }

    /// True if a value can take milliseconds: its time depends on a pattern that the query gives.
    pub fn can_be_slow(&self) -> bool {
        self.calls(&|function| function.name.starts_with("REGEXP") || function.name == "SIMILAR TO")
    }

    /// True if a function that is called, at any depth, is such a one.
    fn calls(&self, is_such: &dyn Fn(&Function) -> bool) -> bool {
        self.any(&mut |expr| match &expr.kind {
            ExprKind::Call { function, .. } => is_such(function),
            _ => false,
        })
    }

    /// Evaluates now what needs no rows. An expression that fails stays as it is, so that it fails
    /// when it runs, as an error of the data.
    #[must_use]
    pub(crate) fn folded(self) -> Expr {
        let children = self.children();
        let constant = children.iter().all(|child| child.as_literal().is_some());
        let leaf = matches!(self.kind, ExprKind::Literal(_) | ExprKind::Column(_));
        if leaf || !constant || !self.is_deterministic() || self.uses_watermark() {
            return self;
        }
        let Ok(value) = self.evaluate_constant(0) else { return self };
        match literal::from_array(&value) {
            Some(scalar) => Expr::literal(scalar, self.column_type),
            None => self,
        }
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.column_type == other.column_type && self.to_string() == other.to_string()
    }
}

/// True if a cast between these types can meet a value that it refuses.
fn cast_can_fail(from: &DataType, to: &DataType) -> bool {
    match from {
        DataType::Char(_) | DataType::Varchar(_) => !to.is_string() && !to.is_binary(),
        DataType::Float | DataType::Double => matches!(to, DataType::Decimal(..)),
        // A finer unit reaches less far.
        DataType::Date => ticks_per_second(to) > 1_000,
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
            ticks_per_second(to) > ticks_per_second(from)
        }
        DataType::Array(from) => match to {
            DataType::Array(to) => cast_can_fail(&from.data_type, &to.data_type),
            _ => false,
        },
        DataType::Map(from_key, from_value) => match to {
            DataType::Map(key, value) => {
                cast_can_fail(&from_key.data_type, &key.data_type)
                    || cast_can_fail(&from_value.data_type, &value.data_type)
            }
            _ => false,
        },
        _ => false,
    }
}

fn division_can_fail(op: ArithmeticOp, divisor: &Expr) -> bool {
    matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo)
        && !divisor.column_type.data_type.is_float()
        && !matches!(divisor.as_literal(),
            Some(Scalar::Integer(n)) if *n != 0)
        && !matches!(divisor.as_literal(),
            Some(Scalar::Decimal(n)) if *n != 0)
}

/// How long a row is at least where texts are made of it.
const ROW_BYTES: f64 = 16.0;

/// How long the value of a function can be whose arguments are so long together.
fn grown(function: &str, arguments: f64) -> f64 {
    match function {
        "REPEAT" | "SPACE" | "LPAD" | "RPAD" | "REPLACE" | "REGEXP_REPLACE" => f64::INFINITY,
        "HEX" | "BIN" | "ENCODE" | "TO_BASE64" => 2.0 * arguments,
        _ => arguments,
    }
}

/// True if values of this type can have any length.
fn has_length(data_type: &DataType) -> bool {
    data_type.is_string()
        || data_type.is_binary()
        || matches!(data_type, DataType::Array(_) | DataType::Map(..) | DataType::Row(_))
}
