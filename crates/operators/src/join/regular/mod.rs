//! Joins without a bound in time, as changelogs: every row of either side meets all rows of the
//! other side with its key, now and later. Semi and anti joins (IN, EXISTS, and their negations)
//! are the same with results of the left side only.
//!
//! The changes are those of Flink's streaming join:
//! - an inner join passes on the kind of the row that came;
//! - an outer join emits `+I` and `-D`: a row without a partner leaves padded with NULL; its first
//!   partner takes that back right before the pair leaves, and the last one to go puts it back
//!   right behind. Only pairs that are retracted by the side that is not padded keep the kind of
//!   the row that came;
//! - a semi or an anti join emits a row of the left side when its number of partners becomes, or
//!   ceases to be, 0. Semi joins pass on the kind of the row that caused it; anti joins turn it
//!   into `-D` or `+I`.
//!
//! **Invariants:**
//! - what leaves depends on the sequence of the rows of a key alone, not on bundles, on partitions
//!   or on other keys. Partners are met in the order of their arrival, and a retraction removes
//!   the newest of equal rows;
//! - a row with NULL in a key (unless NULL equals NULL there) has no partner and is not kept;
//! - memory follows the live rows; where no residual condition and no limited state asks for more,
//!   a row's number of partners is the length of the other side's chain, and the right side of a
//!   semi or an anti join is a number for each key.
//!
//! A piece is taken in two passes. The first (`partition`) goes through the rows in order, changes
//! the state, and lists each row's candidates. The residual condition is then evaluated over all of
//! them at once, and the second pass (`settle`) makes changes of those that are left. This works
//! because what is kept does not depend on the condition, only the numbers of partners do, and
//! these belong to the second pass.
//!
//! Nothing happens at watermarks, except that state whose time is over is freed.
//!
//! # Example
//!
//! `LEFT JOIN`, key `k`, both sides append-only, then the right row is retracted:
//!
//! ```text
//! input            output
//! L +I (1, 'a')    +I (1, 'a', NULL)
//! R +I (1, 'x')    -D (1, 'a', NULL)   +I (1, 'a', 'x')
//! R +I (1, 'y')    +I (1, 'a', 'y')
//! R -D (1, 'x')    -D (1, 'a', 'x')
//! R -D (1, 'y')    -D (1, 'a', 'y')    +I (1, 'a', NULL)
//! ```
//!
//! # Why a retraction finds its row
//!
//! The runtime keeps the order of the rows of a key from the operator that made them: a `-D` or
//! `-U` never overtakes its insertion, and equal keys go to one partition. A retraction without its
//! row means that the row has expired (`expiry`) or that the source sent it. It removes nothing
//! from state; pairs with the other side are emitted with its kind, as in Flink.
//!
//! # Where partners are counted
//!
//! | kind | residual or TTL | number of partners of a row |
//! |---|---|---|
//! | inner | any | not needed |
//! | outer, semi, anti | none | length of the other chain of the key |
//! | outer, semi, anti | some | a column next to the rows (`SideState::counts`) |
//!
//! What is not here: bounds in time (`interval`, `window`), versions (`temporal`), and inputs that
//! end (`hash`).

mod changes;
mod contents;
pub(crate) mod equal;
mod expiry;
mod incoming;
mod partition;
mod plan;
mod settle;
mod snapshot;
mod state;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use thalweg_core::{
    Bundle, DataType, Error, Operator, Partition, PartitionContext, Result, Route, TableSchema,
};

pub use plan::JoinSpec;

use super::pairs;
use super::residual::Residual;
use super::sides::Side;
use crate::capture::shared::SharedPartition;
use crate::join::equi::EquiJoin;
use crate::keys::KeyTable;
use plan::RegularJoinPlan;

/// The operator of regular, semi and anti joins.
pub struct RegularJoin {
    plan: Arc<RegularJoinPlan>,
}

impl RegularJoin {
    /// A join.
    ///
    /// # Errors
    /// If the keys of the two sides do not fit each other, or cannot be keys.
    pub fn new(spec: JoinSpec) -> Result<Self> {
        let key_types = key_types(&spec)?;
        KeyTable::new(&key_types)?;
        let EquiJoin { sides, kind, residual, .. } = &spec.join;
        let output =
            pairs::output_schema(sides.schema(Side::Left), sides.schema(Side::Right), *kind);
        let all = |side| (0..sides.schema(side).len()).collect();
        let plan = RegularJoinPlan {
            schema: output.arrow(),
            output,
            key_types,
            columns: [all(Side::Left), all(Side::Right)],
            residual: residual.as_ref().map(|condition| Residual::new(condition, sides)),
            spec,
        };
        Ok(RegularJoin { plan: Arc::new(plan) })
    }

    /// The columns of the left side, then those of the right side; those of a side that is padded
    /// can be NULL. For semi and anti joins the columns of the left side alone.
    pub fn output_schema(&self) -> &TableSchema {
        &self.plan.output
    }

    /// True if nothing is ever retracted, given whether the inputs take nothing back.
    pub fn emits_inserts_only(&self, left_appends: bool, right_appends: bool) -> bool {
        !self.plan.retracts() && left_appends && right_appends
    }
}

/// The types of the keys.
///
/// # Errors
/// If a key is no column, or the keys of both sides differ.
fn key_types(spec: &JoinSpec) -> Result<Vec<DataType>> {
    let types = spec.join.key_types()?;
    match spec.null_equals_null.len() == types.len() {
        true => Ok(types),
        false => Err(Error::internal("the keys of a join do not fit each other")),
    }
}

impl Operator for RegularJoin {
    fn name(&self) -> String {
        self.plan.spec.join.kind.name().to_owned()
    }
    fn is_singleton(&self) -> bool {
        self.plan.key_types.is_empty()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.plan.spec.join.route(bundle, partitions)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(SharedPartition::new(partition::JoinState::new(Arc::clone(&self.plan))?)))
    }
}
