//! What every join of two inputs says: its inputs, their keys, and what must hold besides.

use thalweg_core::{Bundle, DataType, Error, Result, Route};
use thalweg_expr::Expr;

use super::JoinKind;
use super::sides::{Side, Sides};
use crate::rows::columns::types_of;

/// A join of rows with equal keys.
#[derive(Clone, Debug)]
pub struct EquiJoin {
    /// The columns of both inputs.
    pub sides: Sides,
    /// Which rows leave.
    pub kind: JoinKind,
    /// Key columns of the left side, as positions in its own columns. Without keys there is one
    /// partition.
    pub left_keys: Vec<usize>,
    /// Key columns of the right side, of the same types in the same order.
    pub right_keys: Vec<usize>,
    /// What must hold besides, over the columns of the left side, then those of the right.
    pub residual: Option<Expr>,
}

impl EquiJoin {
    /// The key columns of a side.
    pub(crate) fn keys(&self, side: Side) -> &[usize] {
        side.pick(&self.left_keys, &self.right_keys)
    }

    /// The types of the keys.
    ///
    /// # Errors
    /// If they are not of the same types on both sides, or no columns of them.
    pub(crate) fn key_types(&self) -> Result<Vec<DataType>> {
        let types = |side: Side| {
            let (schema, keys) = (self.sides.schema(side), self.keys(side));
            keys.iter().all(|&key| key < schema.len()).then(|| types_of(schema, keys))
        };
        let arrow = |types: &[DataType]| types.iter().map(DataType::arrow).collect::<Vec<_>>();
        match (types(Side::Left), types(Side::Right)) {
            (Some(left), Some(right)) if arrow(&left) == arrow(&right) => Ok(left),
            _ => Err(Error::internal("the keys of a join are not of the same types on both sides")),
        }
    }

    /// Rows of both sides by the hash of their key.
    ///
    /// # Errors
    /// If rows do not say which side they belong to.
    pub(crate) fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.sides.route(bundle, &self.left_keys, &self.right_keys, partitions)
    }
}
