//! What a family of functions says of each: name, signature, type of the result, kernel.
//!
//! The families list [`Definition`]s; [`super::call`] finds one, fits the arguments to its
//! signature and builds the expression.

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::{ColumnType, DataType, Error, Result};

use crate::build::{common_type, implicit_cast_in};
use crate::expr::{Expr, ExprKind, Scalar, Session};
use crate::function::{Arguments, Function, KernelCode};

/// A function in a table.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) signature: &'static str,
    pub(crate) build: Build,
}

/// What a call of it becomes.
pub(crate) enum Build {
    /// One kernel for all arguments, a rule for the type of the result, and whether data can make
    /// it fail.
    Plain(Returns, fn(&Arguments<'_>) -> Result<ArrayRef>, bool),
    /// Code that looks at the arguments.
    Custom(fn(Call<'_>) -> Result<Expr>),
}

/// A call whose arguments fit the signature.
pub(crate) struct Call<'a> {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<Expr>,
    pub(crate) session: &'a Session,
}

/// The type of a result. Where not said otherwise it is nullable if an argument is.
#[derive(Clone, Copy)]
pub(crate) enum Returns {
    /// STRING
    Text,
    /// STRING, always nullable
    TextOrNull,
    /// The type of the first argument
    First,
    /// VARCHAR of the first argument's length
    FirstVarchar,
    /// The same, always nullable
    FirstVarcharOrNull,
    /// `CHAR(n)`
    Char(u32),
    /// INT
    Int,
    /// BIGINT
    BigInt,
    /// DOUBLE
    Double,
}

impl Returns {
    /// The type for these arguments.
    pub fn resolve(self, args: &[Expr]) -> ColumnType {
        let nullable = args.iter().any(|arg| arg.column_type.nullable);
        let first = || args[0].column_type.data_type.clone();
        let varchar = || match first() {
            DataType::Char(length) => DataType::Varchar(length),
            other => other,
        };
        let (data_type, nullable) = match self {
            Returns::Text => (DataType::STRING, nullable),
            Returns::TextOrNull => (DataType::STRING, true),
            Returns::First => (first(), nullable),
            Returns::FirstVarchar => (varchar(), nullable),
            Returns::FirstVarcharOrNull => (varchar(), true),
            Returns::Char(length) => (DataType::Char(length), nullable),
            Returns::Int => (DataType::Int, nullable),
            Returns::BigInt => (DataType::BigInt, nullable),
            Returns::Double => (DataType::Double, nullable),
        };
        ColumnType { data_type, nullable }
    }
}

/// A function with one kernel, which never fails.
pub(crate) const fn plain(
    name: &'static str,
    signature: &'static str,
    returns: Returns,
    kernel: fn(&Arguments<'_>) -> Result<ArrayRef>,
) -> Definition {
    Definition { name, signature, build: Build::Plain(returns, kernel, false) }
}

/// [`plain`] for a kernel that fails on some data.
pub(crate) const fn fallible(
    name: &'static str,
    signature: &'static str,
    returns: Returns,
    kernel: fn(&Arguments<'_>) -> Result<ArrayRef>,
) -> Definition {
    Definition { name, signature, build: Build::Plain(returns, kernel, true) }
}

/// A function whose code looks at the arguments.
pub(crate) const fn custom(
    name: &'static str,
    signature: &'static str,
    build: fn(Call<'_>) -> Result<Expr>,
) -> Definition {
    Definition { name, signature, build: Build::Custom(build) }
}

impl Call<'_> {
    /// The common type of some of the arguments.
    pub fn common_type<'e>(&self, args: impl IntoIterator<Item = &'e Expr>) -> Result<ColumnType> {
        let types: Vec<ColumnType> = args.into_iter().map(|arg| arg.column_type.clone()).collect();
        common_type(&types).map_err(|error| self.error(error.message()))
    }
    /// The call with all arguments as their common type, and that type.
    pub fn unified(self) -> Result<(Self, ColumnType)> {
        let common = self.common_type(&self.args)?;
        let cast = |arg| implicit_cast_in(arg, &common.data_type, self.session);
        let args = self.args.into_iter().map(cast).collect();
        Ok((Call { args, ..self }, common))
    }
    /// The call as a function of this type, whose result is NULL where an argument is.
    pub fn strict(self, data_type: DataType, kernel: impl KernelCode) -> Expr {
        let column_type = ColumnType { nullable: self.nullable(), data_type };
        self.with_kernel(column_type, kernel)
    }
    /// An expression that calls a kernel which never fails.
    pub fn with_kernel(self, column_type: ColumnType, kernel: impl KernelCode) -> Expr {
        self.with_function(column_type, kernel, |_| {})
    }
    /// An expression that calls a kernel, with flags set by `adjust`.
    pub fn with_function(
        self,
        column_type: ColumnType,
        kernel: impl KernelCode,
        adjust: impl FnOnce(&mut Function),
    ) -> Expr {
        self.unfolded(column_type, kernel, adjust).folded()
    }
    /// As [`Call::with_function`], for an expression that is computed when it runs, also if its
    /// arguments are literals.
    pub fn unfolded(
        self,
        column_type: ColumnType,
        kernel: impl KernelCode,
        adjust: impl FnOnce(&mut Function),
    ) -> Expr {
        let mut function = Function {
            name: self.name.to_owned(),
            kernel: Arc::new(kernel),
            zone: self.session.zone,
            deterministic: true,
            uses_wall_clock: false,
            uses_watermark: false,
            can_fail: false,
            executor: None,
        };
        adjust(&mut function);
        let kind = ExprKind::Call { function: Arc::new(function), args: self.args };
        Expr::new(kind, column_type)
    }
    /// True if any argument can be NULL.
    pub fn nullable(&self) -> bool {
        self.args.iter().any(|arg| arg.column_type.nullable)
    }
    /// The type of an argument.
    pub fn arg_type(&self, index: usize) -> &DataType {
        &self.args[index].column_type.data_type
    }
    /// The text of an argument that is a literal.
    pub fn text(&self, index: usize) -> Option<&str> {
        match self.args.get(index)?.as_literal()? {
            Scalar::String(text) => Some(text),
            _ => None,
        }
    }
    /// An error that names the function.
    pub fn error(&self, message: impl fmt::Display) -> Error {
        Error::plan(format!("{}: {message}", self.name))
    }
}
