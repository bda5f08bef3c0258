//! Typed expressions over Arrow batches, with the types, arithmetic, nulls and functions of Apache
//! Flink SQL.
//!
//! An [`Expr`] is built by [`build`], which decides types exactly as Flink does and inserts every
//! cast; evaluation then only runs kernels. Nothing here knows of tables or statements: columns
//! are positions.

pub mod build;
mod display;
mod evaluate;
pub mod expr;
pub mod function;
mod functions;
mod kernels;
mod literal;

pub use expr::{ArithmeticOp, CompareOp, EvalContext, Expr, ExprKind, Scalar, Session};
pub use function::{Executor, FunctionRegistry, ScalarFunction, Task};
