//! Typed expressions over Arrow batches, with the types, arithmetic, nulls and functions of Apache
//! Flink SQL.
//!
//! An [`Expr`] is built by [`build`], which decides types exactly as Flink does and inserts every
//! cast; evaluation then only runs kernels. Nothing here knows of tables or statements: columns
//! are positions.

pub mod build;
pub mod expr;

pub use expr::{EvalContext, Expr, ExprKind, Scalar, Session};
