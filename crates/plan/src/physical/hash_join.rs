//! Joins with a side that is read first: an operator that takes that side, a step that looks the
//! rows of the other side up, and a gate that keeps the sources of the other side waiting.
//!
//! ```text
//! source b ──▶ chain ──▶ build (one partition) ┄┄ opens the gate of ┄┄▶ source p
//!                          └┄┄┄┄ table ┄┄┄┄┐
//!                         source p ──▶ chain: …, probe, … ──▶
//! ```
//!
//! The protocol:
//!
//! 1. the runtime polls only sources without a gate, here `b`;
//! 2. the build operator collects all rows of `b`, and publishes the table when it has seen the
//!    last watermark;
//! 3. the gate opens: the sources of `p` are polled from now on, and each row is looked up in
//!    passing, by whichever worker runs the chain.
//!
//! **Invariant:** the side that is read first has sources of its own, which feed nothing else. So
//! no gate ever waits for a source behind itself, however joins are nested and whatever tables
//! stand on both sides: waiting follows the tree of the plan. The price is that such a table is
//! read more than once.
//!
//! A join in a loop of readers would deadlock without this: `t JOIN v` with `v` made from `t` would
//! gate source `t` until `v` is complete, which needs `t`.
//!
//! The probe is a step, so the result keeps order, kinds and watermarks of the probe side, and
//! nothing of that side is state. The table is state: a snapshot holds it, so that a resumed job
//! need not read it again.

use std::sync::Arc;

use thalweg_core::Result;
use thalweg_core::graph::StageKind;
use thalweg_operators::chain::Step;
use thalweg_operators::join::hash::{HashJoin, HashJoinSpec};
use thalweg_operators::join::sides::Side;

use super::identity::table_name;
use super::join::{PreparedJoin, without_keys};
use super::lower::{Edges, Lowering};
use crate::logical::{JoinCondition, JoinKind, Node};

impl Lowering<'_> {
    /// The rows of the join as steps behind those of its probe side.
    ///
    /// The steps are: the keys of the probe side, the lookup, and the projection that drops the
    /// keys. The caller may add more to the same chain.
    pub(super) fn open_hash_join(
        &mut self,
        node: &Node,
        (left, right): (&Node, &Node),
        kind: JoinKind,
        condition: &JoinCondition,
        build: Side,
    ) -> Result<(Edges, Vec<Step>)> {
        let prepared = self.prepare_join((left, right), kind, condition)?;
        let PreparedJoin { join, columns: [left_columns, right_columns], widths } = prepared;
        let is_null_aware = condition.is_null_aware;
        let join = HashJoin::new(HashJoinSpec { join, build, is_null_aware })?;
        let [(build_input, build_columns), (probe_input, probe_columns)] = match build {
            Side::Right => [(right, right_columns), (left, left_columns)],
            Side::Left => [(left, left_columns), (right, right_columns)],
        };
        let reload = match condition.is_lookup {
            true => self.reload(build_input, &build_columns)?,
            false => None,
        };
        // Sources of its own: nothing that was made for other readers is seen here.
        // Nor do later readers see what is made here: the map is put back.
        let others = std::mem::take(&mut self.done);
        let edges = self.prepare_input(build_input, build_columns)?;
        self.done = others;
        let id = self.identities.give("build", "", &[node]);
        let name = format!("table {} of {}", table_name(build_input), kind.name());
        let mut details = vec![format!("read first for: {}", node.describe())];
        let mut operator = join.build();
        if let Some((interval, reader)) = reload {
            details.push(format!("read again every {} ms", interval.as_millis()));
            operator = operator.reloading(interval, reader);
        }
        let kind_of_stage = StageKind::Operator(Arc::new(operator));
        let word = "operator (sequenced, one partition)";
        let stage = self.add(id, name, kind_of_stage, edges, word, details);
        let what = format!("{} in {}", node.describe(), self.stage_name(stage));
        let (edges, mut steps) = self.open_chain(probe_input)?;
        steps.extend(probe_columns.into_step(probe_input));
        steps.push(Step::Probe { table: Arc::new(join.probe()), what });
        steps.extend(without_keys(node, kind, widths));
        // The sources below the probe side, also those of joins nested in it. `Graph::add_gate`
        // keeps each pair once.
        self.graph.add_gate(&edges, stage);
        Ok((edges, steps))
    }
}
