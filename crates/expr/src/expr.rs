//! The expression tree and the values of literals.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{ColumnType, Result, WatermarkBefore};

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
}

impl Default for Session {
    fn default() -> Self {
        Session { zone: chrono_tz::Tz::UTC }
    }
}

/// A typed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// The type of the result.
    pub column_type: ColumnType,
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

// --- the rest of this file is written with the evaluator ---

/// The kinds of expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// The column at this position.
    Column(usize),
    /// A constant.
    Literal(Scalar),
}

impl Expr {
    /// Evaluates to an array as long as the batch (constants are spread out).
    pub fn evaluate(&self, _context: &EvalContext<'_>) -> Result<ArrayRef> {
        Err(thalweg_core::Error::internal("not written yet"))
    }
}
