//! Combinations in which a run may differ without showing it.

use thalweg::{OrderContract, PartitionScheme, ReorderScheme, RunOptions, SchedulerPolicy};
use thalweg_workloads::random::Random;

const WORKERS: [usize; 5] = [1, 2, 3, 4, 8];
const BUNDLE_ROWS: [usize; 4] = [1, 7, 1000, 65_536];
const PARTITIONS: [usize; 5] = [1, 4, 16, 100, 256];

/// One combination.
#[derive(Debug)]
pub struct Combination {
    pub seed: u64,
    pub workers: usize,
    pub bundle_rows: usize,
    policy: SchedulerPolicy,
    reorder: ReorderScheme,
    partitioning: PartitionScheme,
    /// Of a pipeline's keyed operators; SQL chooses for itself.
    #[allow(dead_code, reason = "not every workload is a pipeline")]
    pub partitions: usize,
}

impl Combination {
    pub fn sample(seed: u64) -> Self {
        let mut random = Random::new(seed, 0, 0);
        let mut pick = |count: usize| random.below(count as u64) as usize;
        Combination {
            seed,
            workers: WORKERS[pick(5)],
            bundle_rows: BUNDLE_ROWS[pick(4)],
            policy: SchedulerPolicy::NAMES[pick(6)].parse().expect("a policy"),
            reorder: [ReorderScheme::NonBlocking, ReorderScheme::Locked][pick(2)],
            partitioning: PartitionScheme::NAMES[pick(3)].parse().expect("a scheme"),
            partitions: PARTITIONS[pick(5)],
        }
    }

    pub fn options(&self, order: OrderContract) -> RunOptions {
        RunOptions {
            workers: self.workers,
            bundle_rows_max: self.bundle_rows,
            scheduler: self.policy,
            reorder: self.reorder,
            partitioning: self.partitioning,
            order,
            pin_workers: false,
            ..RunOptions::default()
        }
    }
}

/// How many combinations per case; `make sweep` asks for more by `THALWEG_SWEEP_SEEDS`.
pub fn combinations() -> impl Iterator<Item = Combination> {
    let asked = std::env::var("THALWEG_SWEEP_SEEDS").ok();
    let seeds = asked.and_then(|text| text.parse().ok()).unwrap_or(20);
    (0..seeds).map(Combination::sample)
}

/// How much larger the inputs are where the build is optimized.
pub fn scale() -> u64 {
    if cfg!(debug_assertions) { 1 } else { 10 }
}
