//! Drives operators and transforms without the runtime, in every way that their contract allows.
//!
//! [`drive`] runs an operator over a scripted input once, with a given number of partitions, bundle
//! size and order of events; [`check_operator`] runs it in many ways and compares. The order of
//! calls is the one that `thalweg_core::operator` promises; what the contract leaves open (which
//! partition takes a bundle, which partition goes first, how far ahead rows of later epochs are,
//! whether time is up) is drawn from a seed.
//!
//! For tests of this and other crates: a difference is a panic that names the variant and its
//! seed.

mod aggregates;
mod captures;
mod changes;
mod check;
mod compare;
mod damage;
mod input;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SharedClock, SplitMix64};
use thalweg_core::{
    Bundle, Exchange, Extent, Operator, OperatorClass, OrderContract, Output, Partition,
    PartitionContext, Piece, Progress, Restored, Result, Route, RowKind, Share, Watermark,
    WatermarkBefore,
};

pub use aggregates::aggregate_pair;
pub use captures::{TableCapture, capture_table, check_captures, expiry_times};
pub use changes::{changelog_of, changes, inserts, lines, lines_of};
pub use check::{check_damaged_state, check_operator, check_transform, drive_transform};
pub use compare::{assert_same_rows, sorted};
pub use damage::check_damaged;
pub use input::{random_batches, split_rows, stamped};
pub use values::{rows_of, value_at};

use captures::Generations;
use input::{Action, Cut};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Event {
    /// Rows arrive.
    Rows {
        /// By which input, from 0.
        lane: u32,
        /// The rows.
        batch: RecordBatch,
        /// The running watermark of their split just before each.
        watermark_before: WatermarkBefore,
    },
    /// Changes arrive.
    Changes {
        /// By which input, from 0.
        lane: u32,
        /// The rows.
        batch: RecordBatch,
        /// What each does.
        kinds: Vec<RowKind>,
        /// The running watermark of their split just before each.
        watermark_before: WatermarkBefore,
    },
    /// The joint watermark of all lanes; ends an epoch. A last one at the end of time is added
    /// where it is missing.
    Watermark(Watermark),
}

/// How to run a script.
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// How many partitions, at least 1; a singleton always has one.
    pub partitions: usize,
    /// The most rows of a bundle.
    pub bundle_rows: usize,
    /// Where everything random comes from.
    pub seed: u64,
    /// True if time is up and the output is full whenever an operator asks, and pieces come in
    /// slices.
    pub refuse: bool,
    /// True if rows of later epochs come early and those of an epoch in any order. Only has an
    /// effect on operators whose class allows it.
    pub early: bool,
    /// True if bundles without rows come in between.
    pub empty_bundles: bool,
    /// True if now and then all partitions are captured and others, more or fewer of them, continue
    /// with what was captured: at once, or in several captures.
    pub restores: bool,
    /// True if as many partitions continue: the sequence of what leaves can then be compared.
    pub keeps_partitions: bool,
}

impl Default for DriveOptions {
    /// One partition, whole batches, all in order, and time enough.
    fn default() -> Self {
        DriveOptions {
            partitions: 1,
            bundle_rows: usize::MAX,
            seed: 0,
            refuse: false,
            early: false,
            empty_bundles: false,
            restores: false,
            keeps_partitions: false,
        }
    }
}

/// What an operator made of a script.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// What left by port 0, in order.
    pub emitted: Vec<RecordBatch>,
    /// The row kinds of each of these, where they are a changelog.
    pub kinds: Vec<Option<Arc<[RowKind]>>>,
    /// What left by port 1, in order.
    pub late_rows: Vec<RecordBatch>,
    /// Rows that went in.
    pub ingested: u64,
    /// Rows that the operator counted as taken.
    pub accepted: u64,
    /// Rows that it counted as late.
    pub late: u64,
    /// Rows that it counted as late for some windows.
    pub partly_late: u64,
    /// True once it said that it will emit no more.
    pub ended: bool,
    /// The most bytes of state that its partitions reported at a watermark.
    pub peak_state_bytes: usize,
    /// The bytes of state that were left after the end of time.
    pub final_state_bytes: usize,
}

/// A task that asks for time this often without finishing makes no progress.
const CALLS_MAX: usize = 10_000_000;

/// How often a long run is restored, about.
const RESTORES: usize = 16;
/// How many partitions continue at most after a restore.
const PARTITIONS_MAX: u64 = 5;

/// Runs an operator over a script.
pub fn drive(operator: &dyn Operator, script: &[Event], options: &DriveOptions) -> Result<Driven> {
    let mut driver = Driver::new(operator, script, options)?;
    let early = options.early && operator.class() == OperatorClass::Commuting;
    let cut = Cut { bundle_rows: options.bundle_rows, empty_bundles: options.empty_bundles, early };
    let actions = input::actions(script, &cut, &mut driver.random);
    // About this many restores are enough, however small the bundles are.
    let each = (actions.len() / RESTORES).max(4) as u64;
    let mut actions = actions.into_iter().peekable();
    while let Some(action) = actions.next() {
        if options.restores {
            match driver.random.below(each) {
                0 => driver.restore()?,
                1 => driver.generations.capture(&mut driver.partitions)?,
                _ => {}
            }
        }
        match action {
            Action::Rows(bundle) => driver.rows(&bundle)?,
            Action::Watermark(watermark) => {
                // Between two phases a commuting operator may be given rows of later epochs.
                let mut between = Vec::new();
                while let (true, Some(Action::Rows(_)), 1..) =
                    (early, actions.peek(), driver.random.below(3))
                {
                    if let Some(Action::Rows(bundle)) = actions.next() {
                        between.push(bundle);
                    }
                }
                driver.watermark(watermark, between)?;
            }
        }
    }
    Ok(driver.finish())
}

struct Driver<'a> {
    operator: &'a dyn Operator,
    partitions: Vec<Box<dyn Partition>>,
    exchange: Exchange,
    lanes: usize,
    random: SplitMix64,
    clock: Arc<ManualClock>,
    refuses: bool,
    keeps_partitions: bool,
    /// What these partitions have captured.
    generations: Generations,
    driven: Driven,
}

impl<'a> Driver<'a> {
    fn new(operator: &'a dyn Operator, script: &[Event], options: &DriveOptions) -> Result<Self> {
        let count = if operator.is_singleton() { 1 } else { options.partitions.max(1) };
        let lanes = script.iter().map(|event| match event {
            Event::Rows { lane, .. } | Event::Changes { lane, .. } => *lane as usize + 1,
            Event::Watermark(_) => 1,
        });
        Ok(Driver {
            operator,
            partitions: openings(count)
                .map(|opening| operator.open(opening))
                .collect::<Result<_>>()?,
            exchange: Exchange::new(count),
            lanes: lanes.max().unwrap_or(1),
            random: SplitMix64::new(options.seed),
            clock: Arc::default(),
            refuses: options.refuse,
            keeps_partitions: options.keeps_partitions,
            generations: Generations::default(),
            driven: Driven::default(),
        })
    }

    /// Other partitions continue where these are.
    fn restore(&mut self) -> Result<()> {
        let most = if self.operator.is_singleton() { 1 } else { PARTITIONS_MAX };
        let count = match self.keeps_partitions {
            true => self.partitions.len(),
            false => 1 + self.random.below(most) as usize,
        };
        let mut generations = std::mem::take(&mut self.generations);
        let restored = match self.random.below(2) {
            0 => capture_all(&mut self.partitions)?,
            _ => {
                generations.capture(&mut self.partitions)?;
                generations.restored()
            }
        };
        self.partitions = opened(self.operator, &restored, count, OrderContract::Epoch)?;
        self.exchange = Exchange::new(count);
        Ok(())
    }

    fn output(&self) -> Output {
        let clock = Arc::clone(&self.clock) as SharedClock;
        if self.refuses { Output::new(clock, 0).with_room(1) } else { Output::new(clock, u64::MAX) }
    }

    fn rows(&mut self, bundle: &Bundle) -> Result<()> {
        self.driven.ingested += bundle.num_rows() as u64;
        let count = self.partitions.len();
        let route = self.operator.route(bundle, count)?;
        match &route {
            Route::Scatter(parts) => assert_eq!(parts.len(), count, "one list for each partition"),
            Route::Any | Route::Partly { .. } => {
                assert_eq!(self.operator.class(), OperatorClass::Commuting, "only these may");
            }
        }
        let chosen = self.random.below(count as u64) as usize;
        let mut shares: Vec<Share> = route.shares(chosen).collect();
        if shares.iter().all(|share| share.rows.is_some()) {
            assert_scattered(&shares, bundle.num_rows());
        }
        input::shuffle(&mut shares, &mut self.random);
        shares.iter().try_for_each(|share| self.share(bundle, share))
    }

    fn share(&mut self, bundle: &Bundle, share: &Share) -> Result<()> {
        let whole = share.piece(bundle, self.lanes);
        if !self.refuses || !self.operator.takes_slices() {
            return self.slice(share.partition, whole).map(drop);
        }
        let all =
            whole.rows.map_or_else(|| (0..bundle.num_rows() as u32).collect(), <[u32]>::to_vec);
        let mut rest = &all[..];
        while !rest.is_empty() {
            let count = 1 + self.random.below(rest.len() as u64) as usize;
            let piece = Piece { rows: Some(&rest[..count]), ..whole };
            rest = &rest[self.slice(share.partition, piece)?..];
        }
        Ok(())
    }

    /// Gives a partition some rows. How many it took.
    fn slice(&mut self, partition: usize, piece: Piece<'_>) -> Result<usize> {
        let mut output = self.output();
        let rows = piece.num_rows();
        self.partitions[partition].rows(piece, &mut output)?;
        let taken = output.taken_of(rows);
        assert!(taken == rows || self.refuses, "there was room for all");
        self.collect(output);
        Ok(taken)
    }

    fn watermark(&mut self, watermark: Watermark, mut between: Vec<Bundle>) -> Result<()> {
        let phases = self.operator.watermark_phases();
        for phase in 0..phases {
            for partition in self.any_order() {
                self.phase(partition, watermark, phase)?;
            }
            if phase + 1 < phases {
                for bundle in between.drain(..) {
                    self.rows(&bundle)?;
                }
            }
        }
        for bundle in between {
            self.rows(&bundle)?;
        }
        let bytes = self.partitions.iter().map(|partition| partition.state_bytes()).sum();
        self.driven.peak_state_bytes = self.driven.peak_state_bytes.max(bytes);
        self.driven.final_state_bytes = bytes;
        let passed = self.operator.output_watermark(watermark);
        assert!(
            watermark != Watermark::END || passed == Some(Watermark::END),
            "the end of time is always passed on"
        );
        Ok(())
    }

    fn phase(&mut self, partition: usize, watermark: Watermark, phase: usize) -> Result<()> {
        for _ in 0..CALLS_MAX {
            let mut output = self.output();
            let call = WatermarkCall { watermark, phase, exchange: &self.exchange };
            let progress = self.partitions[partition].watermark(&call, &mut output)?;
            self.collect(output);
            if progress == Progress::Done {
                return Ok(());
            }
        }
        panic!("phase {phase} of watermark {watermark} makes no progress");
    }

    fn collect(&mut self, output: Output) {
        let driven = &mut self.driven;
        driven.accepted += output.accepted;
        driven.late += output.late;
        driven.partly_late += output.partly_late;
        driven.ended |= output.ended;
        for emitted in output.emitted {
            assert!(emitted.port < self.operator.ports(), "port {} is not declared", emitted.port);
            if emitted.port == 0 {
                driven.emitted.push(emitted.batch);
                driven.kinds.push(emitted.kinds);
            } else {
                driven.late_rows.push(emitted.batch);
            }
        }
    }

    fn any_order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.partitions.len()).collect();
        input::shuffle(&mut order, &mut self.random);
        order
    }

    fn finish(self) -> Driven {
        let driven = self.driven;
        if self.operator.judges_lateness() {
            assert_eq!(
                driven.accepted + driven.late,
                driven.ingested,
                "accepted + late = ingested"
            );
        }
        driven
    }
}

fn openings(count: usize) -> impl Iterator<Item = PartitionContext> {
    let order = OrderContract::Epoch;
    (0..count).map(move |partition| PartitionContext { partition, partitions: count, order })
}

/// What partitions of one operator capture.
///
/// # Errors
/// If one cannot capture what it keeps.
///
/// # Panics
/// If a table is not as it says.
pub fn capture_all(partitions: &mut [Box<dyn Partition>]) -> Result<Restored> {
    let mut restored = Restored::default();
    for partition in partitions {
        for table in partition.capture(Extent::Full)?.tables {
            let rows = (table.rows)()?.rows;
            let is_declared = rows.iter().all(|batch| batch.schema() == table.schema);
            assert!(is_declared, "table {} has another schema", table.name);
            restored.add(table.name, captures::folded(rows, table.identity_columns)?);
        }
    }
    Ok(restored)
}

/// This many other partitions that continue where these are.
///
/// # Errors
/// If one cannot capture what it keeps, or restore it.
pub fn reopened(
    operator: &dyn Operator,
    partitions: &mut [Box<dyn Partition>],
    count: usize,
    order: OrderContract,
) -> Result<Vec<Box<dyn Partition>>> {
    opened(operator, &capture_all(partitions)?, count, order)
}

fn opened(
    operator: &dyn Operator,
    restored: &Restored,
    count: usize,
    order: OrderContract,
) -> Result<Vec<Box<dyn Partition>>> {
    let open = |partition| {
        let opening = PartitionContext { partition, partitions: count, order };
        let mut partition = operator.open(opening)?;
        partition.restore(&restored.of_partition(opening)?)?;
        Ok(partition)
    };
    (0..count).map(open).collect()
}

fn assert_scattered(shares: &[Share], num_rows: usize) {
    let rows = || shares.iter().flat_map(|share| &share.rows);
    let mut all: Vec<u32> = rows().flatten().copied().collect();
    assert!(rows().all(|rows| rows.is_sorted()), "the rows of a piece ascend");
    all.sort_unstable();
    assert!(all.into_iter().eq(0..num_rows as u32), "each row goes to one partition");
}
