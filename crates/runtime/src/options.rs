//! What a caller can set for a run.

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::OrderContract;
use thalweg_core::shim::{SharedClock, SystemClock};

use crate::interleaving::{Replay, StepRecorder};
use crate::memory::{self, MemoryBudget};
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::policies::{PartitionScheme, ReorderScheme, SchedulerPolicy, SnapshotMode};
use crate::pool::Pool;

/// The window over which `ct` compares the time spent on stages, unless a caller says otherwise.
pub const SCHEDULER_WINDOW: Duration = Duration::from_millis(100);

/// Settings of a run.
#[derive(Clone)]
pub struct RunOptions {
    /// Threads that work, at least 1. Default: one per core.
    pub workers: usize,
    /// Keep workers to a core each if there are as many as cores, and to a NUMA node if there are
    /// fewer, where the platform allows it. Only cores that the process may use count.
    pub pin_workers: bool,
    /// How long an idle worker looks for news before it parks: news find it at once then, but it
    /// takes a core meanwhile. Default: not at all.
    pub spin: Duration,
    /// Workers that other jobs have as well, in the place of its own; they have their own places
    /// and way to wait. `workers` says over how many of them keyed operators are spread; any of
    /// them works.
    pub pool: Option<Pool>,
    /// The order in which bundles are taken.
    pub scheduler: SchedulerPolicy,
    /// The window over which `ct` compares the time spent on stages.
    pub scheduler_window: Duration,
    /// What is promised about the sequence of results.
    pub order: OrderContract,
    /// How the order is restored where it is promised.
    pub reorder: ReorderScheme,
    /// How partitions with work are found.
    pub partitioning: PartitionScheme,
    /// The largest bundle, in rows.
    pub bundle_rows_max: usize,
    /// How long rows of a source may wait for company while the pipeline is busy.
    pub bundle_linger: Duration,
    /// Everything that the job may keep in memory, in bytes.
    pub memory_limit_bytes: usize,
    /// A limit that other jobs keep to as well, all of them together; `None` if there is none.
    pub memory_budget: Option<MemoryBudget>,
    /// After this long without rows an unbounded input no longer holds the joint watermark back.
    pub idle_timeout: Option<Duration>,
    /// The most partitions of an operator that names a number of them; `None` for as many as others
    /// have.
    pub partitions_max: Option<usize>,
    /// Lets the clock change the sequence of an ordered contract: without it the idle timeout has
    /// no effect there.
    pub allow_nondeterministic_order: bool,
    /// Run-time partitions per keyed operator; default about two per worker, four where an order is
    /// promised. There, one with timers that names a number of partitions has at most half of them.
    pub partitions: Option<usize>,
    /// Contract `arrival`: where to take down in which sequence inputs came in.
    pub record: Option<StepRecorder>,
    /// Contract `arrival`: the sequence in which inputs have to come in.
    pub replay: Option<Replay>,
    /// For benchmarks: a decision of the design that is switched off. Contract `epoch` only.
    #[cfg(feature = "baselines")]
    pub ablation: Ablation,
    /// Snapshots are taken, and this is what they promise of the output.
    pub snapshots: Option<SnapshotMode>,
    /// The clock.
    pub clock: SharedClock,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            pin_workers: true,
            spin: Duration::ZERO,
            pool: None,
            scheduler: SchedulerPolicy::default(),
            scheduler_window: SCHEDULER_WINDOW,
            order: OrderContract::default(),
            reorder: ReorderScheme::default(),
            partitioning: PartitionScheme::default(),
            bundle_rows_max: 64 * 1024,
            bundle_linger: Duration::from_millis(1),
            memory_limit_bytes: memory::default_limit_bytes(),
            memory_budget: None,
            idle_timeout: Some(Duration::from_secs(30)),
            partitions_max: None,
            allow_nondeterministic_order: false,
            partitions: None,
            record: None,
            replay: None,
            #[cfg(feature = "baselines")]
            ablation: Ablation::default(),
            snapshots: None,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl RunOptions {
    /// True if what the clock says may change what comes of the rows.
    pub(crate) fn may_use_clock(&self) -> bool {
        let is_replayed = self.order == OrderContract::Arrival && self.replay.is_some();
        !self.order.is_ordered() || (self.allow_nondeterministic_order && !is_replayed)
    }

    /// How partitions are found under the contract that is asked for.
    pub(crate) fn partitioning(&self) -> PartitionScheme {
        match self.partitioning {
            PartitionScheme::Hybrid if !self.order.is_ordered() => PartitionScheme::Cells,
            scheme => scheme,
        }
    }

    /// Run-time partitions of a keyed operator: with one worker there is nothing to spread.
    pub(crate) fn partitions(&self) -> usize {
        let wanted = match (self.partitions, self.workers) {
            (Some(partitions), _) => partitions,
            (None, 1) => 1,
            (None, workers) => (self.order.partitions_of_worker() * workers).next_power_of_two(),
        };
        wanted.clamp(1, 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_chosen_by_name_and_epoch_lists_cells_once() {
        let schemes = PartitionScheme::NAMES.map(|name| name.parse().expect("a scheme"));
        let [hybrid, cells, partitioned] = schemes;
        assert_eq!(hybrid, PartitionScheme::default());
        let error = "queue".parse::<PartitionScheme>().expect_err("no scheme");
        let help = error.help().expect("a way out");
        assert!(PartitionScheme::NAMES.iter().all(|name| help.contains(name)), "{help}");
        let under = |order, partitioning| {
            RunOptions { order, partitioning, ..RunOptions::default() }.partitioning()
        };
        assert_eq!(schemes.map(|scheme| under(OrderContract::Arrival, scheme)), schemes);
        let of_epoch = schemes.map(|scheme| under(OrderContract::Epoch, scheme));
        assert_eq!(of_epoch, [cells, cells, partitioned]);
    }

    #[test]
    fn workers_have_more_partitions_where_an_order_is_promised() {
        let of = |order, workers, partitions| {
            RunOptions { order, workers, partitions, ..RunOptions::default() }.partitions()
        };
        let by_workers = |order| [1, 2, 3, 4, 100].map(|workers| of(order, workers, None));
        assert_eq!(by_workers(OrderContract::Epoch), [1, 4, 8, 8, 256]);
        assert_eq!(by_workers(OrderContract::Arrival), [1, 8, 16, 16, 256]);
        assert_eq!(by_workers(OrderContract::EventTime), [1, 8, 16, 16, 256]);
        assert_eq!(of(OrderContract::Epoch, 1, Some(7)), 7);
        assert_eq!(of(OrderContract::Epoch, 1, Some(1000)), 256);
    }
}
