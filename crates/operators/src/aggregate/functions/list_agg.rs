//! `LISTAGG(x [, separator])`: the texts by arrival, with a separator between them.
//!
//! NULLs are passed over. A group of NULLs alone gives NULL and not an empty text. The separator is
//! a constant of the function and not an argument of the rows, so states do not hold it.

use std::sync::Arc;

use thalweg_core::quoting::quoted_text;
use thalweg_core::{ColumnType, DataType, Error, Result};
use thalweg_expr::{Expr, Scalar};

use super::super::description::{Aggregate, AggregateFunction, Exactness, Types};
use super::super::fold::Groups;
use super::super::lists::JoinedTexts;
use super::super::running::joined::Joined;
use super::super::{Accumulator, RunningAggregate};

/// The texts of a group in one.
pub struct ListAgg {
    /// What stands between two texts.
    separator: Arc<str>,
}

impl Default for ListAgg {
    fn default() -> Self {
        ListAgg { separator: Arc::from(",") }
    }
}

impl Aggregate for ListAgg {
    fn name(&self) -> &str {
        "LISTAGG"
    }
    fn constants(&self) -> Option<String> {
        Some(format!(", {}", quoted_text(&self.separator)))
    }
    fn result(&self, argument: &DataType) -> Option<ColumnType> {
        argument.is_string().then(|| DataType::STRING.nullable())
    }
    fn bind(&self, arguments: &[Expr], _: bool) -> Result<Option<AggregateFunction>> {
        let [_, separator] = arguments else { return Ok(None) };
        let Some(Scalar::String(separator)) = separator.as_literal() else {
            return Err(Error::plan("the separator of LISTAGG must be a text in quotes"));
        };
        Ok(Some(AggregateFunction::new(ListAgg { separator: Arc::clone(separator) })))
    }
    fn exactness(&self, _: &DataType) -> Exactness {
        Exactness::Ordered
    }
    fn accumulator(&self, _: &Types) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Groups::new(JoinedTexts::new(&self.separator))))
    }
    fn running(&self, _: &Types, _: bool) -> Result<Box<dyn RunningAggregate>> {
        Ok(Box::new(Joined::new(&self.separator)))
    }
}
