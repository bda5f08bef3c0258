//! APPROX_COUNT_DISTINCT: how many different values a group has, about.
//!
//! Up to [`EXACT_MAX`] different values are counted exactly, by their hashes. Beyond, a group is a
//! HyperLogLog of 2^14 registers (Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog: the analysis
//! of a near-optimal cardinality estimation algorithm", 2007): 16 KiB, and a standard error of 0.81
//! %. The estimate is that of Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches", 2017, which needs no table of corrections.
//!
//! Invariant: a state is a function of the set of hashes alone, so states commute, and the same
//! values give the same estimate on every run. Values are hashed as keys are
//! ([`hash_keys`](crate::keys::hash_keys)). Nothing can be retracted.
//!
//! Merging takes the higher value of each register, which is why it commutes and repeats do no
//! harm.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::fold::Fold;
use super::values::nulls;
use super::{StateColumns, StateRows, UpdateInput};
use crate::keys::hash_keys;

/// How many different values are counted exactly.
const EXACT_MAX: usize = 256;
/// How many bits of a hash choose the register.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// The highest value of a register: the place of the first 1 in the other bits, or behind them.
const RANK_MAX: usize = (64 - INDEX_BITS) as usize + 1;

/// What a group has seen.
#[derive(Clone)]
pub(super) enum Sketch {
    /// The hashes, sorted.
    Few(Vec<u64>),
    Many(Box<Registers>),
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch::Few(Vec::new())
    }
}

/// The registers, and how many have each value.
#[derive(Clone)]
pub(super) struct Registers {
    ranks: [u8; REGISTERS],
    with_rank: [u32; RANK_MAX + 1],
}

impl Registers {
    fn new() -> Box<Self> {
        let mut registers =
            Box::new(Registers { ranks: [0; REGISTERS], with_rank: [0; RANK_MAX + 1] });
        registers.with_rank[0] = REGISTERS as u32;
        registers
    }

    fn add(&mut self, hash: u64) {
        let register = (hash >> (64 - INDEX_BITS)) as usize;
        let rank = ((hash << INDEX_BITS).leading_zeros() as usize + 1).min(RANK_MAX);
        self.raise(register, rank as u8);
    }

    /// Registers with these ranks; none unless they are as many and as high as registers have.
    fn from_ranks(ranks: &[u8]) -> Option<Box<Self>> {
        if ranks.len() != REGISTERS || ranks.iter().any(|&rank| usize::from(rank) > RANK_MAX) {
            return None;
        }
        let mut registers = Registers::new();
        ranks.iter().enumerate().for_each(|(register, &rank)| registers.raise(register, rank));
        Some(registers)
    }

    #[inline]
    fn raise(&mut self, register: usize, rank: u8) {
        let own = &mut self.ranks[register];
        if *own < rank {
            self.with_rank[usize::from(*own)] -= 1;
            self.with_rank[usize::from(rank)] += 1;
            *own = rank;
        }
    }

    /// Ertl's improved raw estimator (algorithm 6 there).
    fn estimate(&self) -> i64 {
        let total = REGISTERS as f64;
        let share = |rank: usize| f64::from(self.with_rank[rank]) / total;
        let mut sum = total * tau(1.0 - share(RANK_MAX));
        for rank in (1..RANK_MAX).rev() {
            sum = 0.5 * (sum + f64::from(self.with_rank[rank]));
        }
        sum += total * sigma(share(0));
        (total * total / (2.0 * std::f64::consts::LN_2 * sum)).round() as i64
    }
}

/// x + the sum of x^(2^k) 2^(k-1) for k from 1.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if sum == before {
            return sum;
        }
    }
}

/// A third of 1 - x - the sum of (1 - x^(2^-k))^2 2^-k for k from 1.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x).powi(2) * power;
        if sum == before {
            return sum / 3.0;
        }
    }
}

impl Sketch {
    /// Adds a value by its hash.
    pub fn add(&mut self, hash: u64) {
        match self {
            Sketch::Many(registers) => registers.add(hash),
            Sketch::Few(hashes) => {
                let Err(place) = hashes.binary_search(&hash) else { return };
                if hashes.len() < EXACT_MAX {
                    return hashes.insert(place, hash);
                }
                let mut registers = Registers::new();
                hashes.iter().for_each(|&hash| registers.add(hash));
                registers.add(hash);
                *self = Sketch::Many(registers);
            }
        }
    }

    fn merge(&mut self, from: &Sketch) {
        match from {
            Sketch::Few(hashes) => hashes.iter().for_each(|&hash| self.add(hash)),
            Sketch::Many(theirs) => {
                if let Sketch::Few(hashes) = self {
                    let mut registers = theirs.clone();
                    hashes.iter().for_each(|&hash| registers.add(hash));
                    *self = Sketch::Many(registers);
                } else if let Sketch::Many(own) = self {
                    let theirs = theirs.ranks.iter().enumerate();
                    theirs.for_each(|(register, &rank)| own.raise(register, rank));
                }
            }
        }
    }

    /// How many values there were, about.
    pub fn estimate(&self) -> i64 {
        match self {
            Sketch::Few(hashes) => hashes.len() as i64,
            Sketch::Many(registers) => registers.estimate(),
        }
    }

    /// What it takes next to its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Sketch::Few(hashes) => hashes.capacity() * 8,
            Sketch::Many(_) => size_of::<Registers>(),
        }
    }
}

/// Captures sketches: the hashes of those that are exact, the registers of the others.
fn capture_sketches<'a>(sketches: impl Iterator<Item = &'a Sketch>, columns: &mut StateColumns) {
    let mut hashes = ListBuilder::new(UInt64Builder::new());
    let mut registers = BinaryBuilder::new();
    for sketch in sketches {
        match sketch {
            Sketch::Few(few) => {
                hashes.values().append_slice(few);
                hashes.append(true);
                registers.append_null();
            }
            Sketch::Many(many) => {
                hashes.append(false);
                registers.append_value(many.ranks);
            }
        }
    }
    columns.add("hashes", Arc::new(hashes.finish()));
    columns.add("registers", Arc::new(registers.finish()));
}

/// The sketch in a row of a snapshot.
fn restore_sketch(hashes: Option<&[u64]>, ranks: Option<&[u8]>) -> Option<Sketch> {
    if let Some(ranks) = ranks {
        return Registers::from_ranks(ranks).map(Sketch::Many);
    }
    let mut sketch = Sketch::default();
    hashes?.iter().for_each(|&hash| sketch.add(hash));
    Some(sketch)
}

/// APPROX_COUNT_DISTINCT.
pub(super) struct DistinctEstimate;

impl Fold for DistinctEstimate {
    type Group = Sketch;
    const ON_HEAP: bool = true;

    fn update(&self, groups: &mut [Sketch], input: &UpdateInput<'_>) -> Result<()> {
        let column = crate::keys::select(input.column()?, input.rows)?;
        let hashes = hash_keys(std::slice::from_ref(&column), column.len())?;
        let valid = nulls(&column);
        for (place, (&id, &hash)) in input.ids.iter().zip(&hashes).enumerate() {
            if valid.is_none_or(|nulls| nulls.is_valid(place)) {
                groups[id as usize].add(hash);
            }
        }
        Ok(())
    }
    fn merge(&self, into: &mut Sketch, from: &Sketch) {
        into.merge(from);
    }
    fn evaluate(&self, groups: &[Sketch], ids: &[u32]) -> Result<ArrayRef> {
        let estimates = ids.iter().map(|&id| groups[id as usize].estimate());
        Ok(Arc::new(Int64Array::from_iter_values(estimates)))
    }
    fn capture(&self, groups: &[Sketch], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        capture_sketches(ids.iter().map(|&id| &groups[id as usize]), columns);
        Ok(())
    }
    fn restore(&self, groups: &mut [Sketch], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let lists = rows.lists("hashes", &Arrow::UInt64)?;
        let registers = rows.column("registers", &Arrow::Binary)?;
        let registers: &BinaryArray = registers.as_binary();
        let hashes: &[u64] = lists.values().as_primitive::<UInt64Type>().values();
        let offsets = lists.value_offsets();
        for (row, &id) in ids.iter().enumerate() {
            let few = lists.is_valid(row).then(|| {
                let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
                &hashes[from..to]
            });
            let ranks = registers.is_valid(row).then(|| registers.value(row));
            let no_sketch = || rows.damaged("registers", "holds no sketch");
            groups[id as usize] = restore_sketch(few, ranks).ok_or_else(no_sketch)?;
        }
        Ok(())
    }
    fn heap_bytes(&self, group: &Sketch) -> usize {
        group.heap_bytes()
    }
}
