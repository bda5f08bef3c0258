//! Looks rows up in the table of the build side: stateless, by any number of workers at once.
//!
//! `apply` may take fewer rows than it was given, so that one bundle with many partners does not
//! become one huge batch. The caller passes the rest again. `TESTED_BY_PAIR` bounds the other
//! extreme: a residual condition that rejects nearly all pairs.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use thalweg_core::{Error, Result};

use super::table::Table;
use super::{HashJoinPlan, SharedTable};
use crate::join::JoinKind;
use crate::join::bounded::PAIRS_MAX;
use crate::join::sides::Side;
use crate::keys::ABSENT;
use crate::rows::columns::{keys_of, take_all};

/// This many pairs are tested for each that may leave at once: time counts, too.
const TESTED_BY_PAIR: usize = 16;

/// Looks the rows of the probe side up.
pub struct Probe {
    plan: Arc<HashJoinPlan>,
    shared: Arc<SharedTable>,
}

/// What becomes of a batch.
pub enum Probed {
    /// These of its rows stay, with the columns that they have.
    Kept(BooleanArray),
    /// Other rows take their place. `origins` are the rows that they come from, ascending; `None`
    /// where each row gave one.
    Joined {
        /// The rows.
        batch: RecordBatch,
        /// Where they come from.
        origins: Option<Vec<u32>>,
    },
}

/// Rows of the probe side next to rows of the build side.
#[derive(Default)]
struct ProbePairs {
    origins: Vec<u32>,
    /// [`ABSENT`] where there is no partner.
    partners: Vec<u32>,
}

impl Probe {
    pub(super) fn new(plan: Arc<HashJoinPlan>, shared: Arc<SharedTable>) -> Self {
        Probe { plan, shared }
    }

    /// True if the result depends on the time of day.
    pub fn reads_clock(&self) -> bool {
        let residual = self.plan.spec.join.residual.as_ref();
        residual.is_some_and(|expr| expr.uses_wall_clock() || !expr.is_deterministic())
    }

    /// How many columns a row of the build side has.
    pub fn columns(&self) -> usize {
        self.plan.spec.join.sides.schema(self.side().other()).len()
    }

    /// Looks up the rows of a batch, until there are about this many pairs. Says how many of the
    /// rows it has taken; the answer is about those.
    pub fn apply(
        &self,
        batch: &RecordBatch,
        wall_ms: i64,
        pairs_max: usize,
    ) -> Result<(Probed, usize)> {
        let table = self.shared.table()?;
        let rows = batch.num_rows();
        let mut ids = Vec::with_capacity(rows);
        let keys = keys_of(batch.columns(), self.plan.spec.join.keys(self.side()));
        table.find(&keys, rows, &mut ids)?;
        let keeps_partners = self.plan.spec.join.kind.has_right_columns();
        if self.plan.spec.is_null_aware {
            let could_be_in = table.could_hold(&keys[0], &ids);
            return Ok((self.kept(&|row| could_be_in.value(row), rows), rows));
        }
        if !self.plan.joined.has_mask() {
            if !keeps_partners {
                return Ok((self.kept(&|row| ids[row] != ABSENT, rows), rows));
            }
            let (pairs, taken) = self.all_pairs(&table, ids, pairs_max)?;
            return Ok((self.joined(&batch.slice(0, taken), &table, pairs)?, taken));
        }
        let (pairs, taken) = self.tested(batch, &table, &ids, (wall_ms, pairs_max))?;
        if keeps_partners {
            let pairs = if self.pads() { padded(pairs, taken) } else { pairs };
            return Ok((self.joined(&batch.slice(0, taken), &table, pairs)?, taken));
        }
        let mut found = vec![false; taken];
        pairs.origins.iter().for_each(|&row| found[row as usize] = true);
        Ok((self.kept(&|row| found[row], taken), taken))
    }

    /// The probe side.
    fn side(&self) -> Side {
        self.plan.spec.build.other()
    }

    /// True if rows without a partner leave.
    fn pads(&self) -> bool {
        matches!(self.plan.spec.join.kind, JoinKind::Left | JoinKind::Right)
    }

    fn kept(&self, is_found: &dyn Fn(usize) -> bool, rows: usize) -> Probed {
        let wanted = self.plan.spec.join.kind == JoinKind::Semi;
        let kept = BooleanBuffer::collect_bool(rows, |row| is_found(row) == wanted);
        Probed::Kept(BooleanArray::new(kept, None))
    }

    /// Every row next to every partner, where no condition is left to test.
    fn all_pairs(
        &self,
        table: &Table,
        ids: Vec<u32>,
        pairs_max: usize,
    ) -> Result<(ProbePairs, usize)> {
        let rows = ids.len();
        if table.is_unique() {
            return Ok((self.single_pairs(ids), rows));
        }
        let mut pairs = ProbePairs::default();
        for (row, &id) in ids.iter().enumerate() {
            if pairs.origins.len() >= pairs_max {
                return Ok((pairs, row));
            }
            if id != ABSENT {
                pairs.add(row as u32, table.rows_of(id))?;
            } else if self.pads() {
                pairs.origins.push(row as u32);
                pairs.partners.push(ABSENT);
            }
        }
        Ok((pairs, rows))
    }

    /// The same where no row has two partners. Origins are left out where each row has its one.
    fn single_pairs(&self, ids: Vec<u32>) -> ProbePairs {
        if self.pads() || !ids.contains(&ABSENT) {
            return ProbePairs { origins: Vec::new(), partners: ids };
        }
        let mut pairs = ProbePairs::default();
        for (row, &id) in ids.iter().enumerate().filter(|(_, id)| **id != ABSENT) {
            pairs.origins.push(row as u32);
            pairs.partners.push(id);
        }
        pairs
    }

    /// The pairs for which the condition holds, by row. Ends when there are this many, or many more
    /// were tested.
    fn tested(
        &self,
        batch: &RecordBatch,
        table: &Table,
        ids: &[u32],
        (wall_ms, pairs_max): (i64, usize),
    ) -> Result<(ProbePairs, usize)> {
        let (mut kept, mut open) = (ProbePairs::default(), ProbePairs::default());
        let mut count = 0;
        for (row, &id) in ids.iter().enumerate().filter(|(_, id)| **id != ABSENT) {
            // Checked before a row, not within it: all pairs of one row leave together, however
            // many they are.
            let is_enough = kept.origins.len() + open.origins.len() >= pairs_max;
            if is_enough || count >= pairs_max.saturating_mul(TESTED_BY_PAIR) {
                self.test(batch, table, &mut open, &mut kept, wall_ms)?;
                return Ok((kept, row));
            }
            let partners = table.rows_of(id);
            count += partners.len();
            let mut from = partners.start;
            while from < partners.end {
                let to = partners.end.min(from.saturating_add(PAIRS_MAX as u32));
                open.add(row as u32, from..to)?;
                from = to;
                if open.origins.len() >= PAIRS_MAX {
                    self.test(batch, table, &mut open, &mut kept, wall_ms)?;
                }
            }
        }
        self.test(batch, table, &mut open, &mut kept, wall_ms)?;
        Ok((kept, ids.len()))
    }

    /// Moves the pairs for which the condition holds.
    fn test(
        &self,
        batch: &RecordBatch,
        table: &Table,
        open: &mut ProbePairs,
        kept: &mut ProbePairs,
        wall_ms: i64,
    ) -> Result<()> {
        let ProbePairs { origins, partners } = std::mem::take(open);
        let joined = &self.plan.joined;
        let own = keys_of(batch.columns(), joined.residual_columns(self.side()));
        let of_partner = joined.residual_columns(self.side().other()).iter().copied();
        let of_partner = table.take_columns(partners.clone(), of_partner)?;
        let (left, right) = self.by_side(take_all(&own, &origins)?, of_partner);
        let mask = joined.mask_of_equal(None, left, right, origins.len(), wall_ms)?;
        let Some(mask) = mask else {
            kept.origins.extend(origins);
            kept.partners.extend(partners);
            return Ok(());
        };
        kept.origins.extend(mask.set_indices().map(|pair| origins[pair]));
        kept.partners.extend(mask.set_indices().map(|pair| partners[pair]));
        Ok(())
    }

    /// The rows that leave.
    fn joined(&self, batch: &RecordBatch, table: &Table, pairs: ProbePairs) -> Result<Probed> {
        let ProbePairs { origins, partners } = pairs;
        let rows = partners.len();
        let is_each = origins.is_empty() && rows == batch.num_rows();
        let own =
            if is_each { batch.columns().to_vec() } else { take_all(batch.columns(), &origins)? };
        let (left, right) = self.by_side(own, table.take(partners)?);
        let batch = self.plan.joined.batch(left, right, rows)?;
        Ok(Probed::Joined { batch, origins: (!is_each).then_some(origins) })
    }

    fn by_side(
        &self,
        own: Vec<ArrayRef>,
        partner: Vec<ArrayRef>,
    ) -> (Vec<ArrayRef>, Vec<ArrayRef>) {
        match self.side() {
            Side::Left => (own, partner),
            Side::Right => (partner, own),
        }
    }
}

impl ProbePairs {
    fn add(&mut self, row: u32, partners: std::ops::Range<u32>) -> Result<()> {
        if self.origins.len() + partners.len() > u32::MAX as usize {
            return Err(Error::resource(
                "a bundle of rows has more than 4 billion partners in a join",
            )
            .hint("SET 'pipeline.bundle-rows-max' to fewer rows, or join by more columns"));
        }
        self.origins.extend(std::iter::repeat_n(row, partners.len()));
        self.partners.extend(partners);
        Ok(())
    }
}

/// With a row of its own for each that has no partner.
fn padded(pairs: ProbePairs, rows: usize) -> ProbePairs {
    let mut all = ProbePairs::default();
    let mut next = 0;
    for row in 0..rows as u32 {
        let from = next;
        while pairs.origins.get(next) == Some(&row) {
            next += 1;
        }
        if from == next {
            all.origins.push(row);
            all.partners.push(ABSENT);
        }
        all.origins.extend(&pairs.origins[from..next]);
        all.partners.extend(&pairs.partners[from..next]);
    }
    all
}
