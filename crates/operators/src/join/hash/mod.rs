//! Joins with a side that has ended: that side is read first and becomes one table, which all
//! workers then share to look the rows of the other side up.
//!
//! ```text
//! build side ──▶ [Build: one partition] ──▶ SharedTable ◀── [Probe: a step of a chain, any worker] ◀── probe side
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `table` | the rows of the build side by key |
//! | `build` | the operator that makes the table |
//! | `probe` | the step that looks rows up |
//! | `reload` | a table that is read again every so often |
//! | `snapshot` | what is captured of the table |
//!
//! **Invariants:**
//! - the table is published once, when the build side has ended, and no row is looked up before:
//!   the runtime does not ask the sources of the probe side until then
//!   (`thalweg_core::graph::Graph::gates`);
//! - a row meets its partners in the order in which they came, so that in the contracts that
//!   promise a sequence the result is that of the probe side's sequence;
//! - nothing is kept of the probe side: its kinds, watermarks and times continue as they are. A
//!   change of it (`-U`, `+U`, `-D`) meets the same partners as the row that it retracts.
//!
//! A lookup table that is refreshed is published again (`SharedTable::publish`). A bundle sees one
//! version, unless it is probed in parts: then each part sees the version of its time.
//!
//! What it does not do: rows of the build side that find no partner never leave, so a join that
//! pads them is none of these ([`HashJoin::can`]); rows of the build side stay.
//!
//! Build and probe are two operators for the runtime, joined by `SharedTable` alone. Sharing is
//! possible since the table never changes after it was published; a refresh replaces the whole.
//!
//! `Right` joins with a `Left` build side are the mirror image of `Left` joins with a `Right` build
//! side: the probe side is padded, never the build side.

mod build;
mod probe;
mod reload;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use thalweg_core::{Error, Result, TableSchema};

use super::JoinKind;
use super::sides::Side;
use crate::join::equi::EquiJoin;
use crate::join::pairs::Joined;

pub use build::{Build, BuildTable};
pub use probe::{Probe, Probed};
pub use reload::{Reader, Stop};
use table::Table;

/// What is joined.
#[derive(Clone)]
pub struct HashJoinSpec {
    /// The inputs, their keys, and which rows leave.
    pub join: EquiJoin,
    /// The side that is read first.
    pub build: Side,
    /// True for an anti join of one key as `NOT IN` means it: NULL could be equal to anything.
    pub is_null_aware: bool,
}

struct HashJoinPlan {
    spec: HashJoinSpec,
    joined: Joined,
}

/// A join whose build side is read first.
pub struct HashJoin {
    plan: Arc<HashJoinPlan>,
    shared: Arc<SharedTable>,
}

impl HashJoin {
    /// A join.
    ///
    /// # Errors
    /// If the specification does not fit together, or rows of the build side would have to be
    /// padded.
    pub fn new(spec: HashJoinSpec) -> Result<Self> {
        if !Self::can(spec.join.kind, spec.build) {
            return Err(Error::internal("a hash join cannot keep what its build side alone has"));
        }
        let is_plain_anti_join = spec.join.kind == JoinKind::Anti
            && (spec.join.left_keys.len(), spec.join.residual.is_none()) == (1, true);
        if spec.is_null_aware && !is_plain_anti_join {
            return Err(Error::internal("a join that knows NULL is an anti join of one key"));
        }
        let joined = Joined::new(&spec.join, true)?;
        crate::keys::KeyTable::new(&joined.key_types)?;
        Ok(HashJoin { plan: Arc::new(HashJoinPlan { spec, joined }), shared: Arc::default() })
    }

    /// True if this kind of join can be made with this build side.
    pub fn can(kind: JoinKind, build: Side) -> bool {
        match build {
            Side::Right => !kind.pads_right_rows(),
            Side::Left => matches!(kind, JoinKind::Inner | JoinKind::Right),
        }
    }

    /// The columns that leave.
    pub fn output_schema(&self) -> &TableSchema {
        &self.plan.joined.output
    }

    /// The operator that takes the build side.
    pub fn build(&self) -> Build {
        Build::new(Arc::clone(&self.plan), Arc::clone(&self.shared))
    }

    /// The step that takes the probe side.
    pub fn probe(&self) -> Probe {
        Probe::new(Arc::clone(&self.plan), Arc::clone(&self.shared))
    }
}

/// The place of the table: empty until the build side has ended.
#[derive(Default)]
struct SharedTable {
    table: Mutex<Option<Arc<Table>>>,
}

impl SharedTable {
    /// From now on rows are looked up here. A look-up under way continues with the table it
    /// has.
    fn publish(&self, table: Arc<Table>) {
        *self.table.lock().expect("no panic under this lock") = Some(table);
    }

    /// The table; it is asked for once per bundle, or once for each part of it. So a table that is
    /// published between two parts is seen by the rows of the second, as by those of the next
    /// bundle: a row meets one table, and the row behind it the same or a newer one. A part that
    /// waits for room keeps no old table in memory.
    fn table(&self) -> Result<Arc<Table>> {
        let table = self.table.lock().expect("no panic under this lock").clone();
        table.ok_or_else(|| Error::internal("a row was looked up before its table was there"))
    }
}
