//! The runtime: containers, dispatcher and workers.
//!
//! A job is a [`Graph`](thalweg_core::graph::Graph) of stages. Sources end epochs; each stage keeps
//! a container per epoch and lane; bundles and watermarks flow from container to container; any
//! worker does any work that the dispatcher finds, oldest and most urgent first, and none ever
//! waits inside a task. [`start()`] runs a job on threads; `simulate` (feature `simulator`) runs
//! the same dispatcher, containers and operators on one thread by a seed.
//!
//! From top to bottom; modules know only those below them:
//!
//! | modules | hold |
//! |---|---|
//! | `start`, `control`, `simulate` | jobs are built, started, waited for and stopped |
//! | `observed` | copies of counters for whoever watches |
//! | `options` | what a caller can set |
//! | `pool` | workers, and how they spread over the jobs that share them |
//! | `dispatcher`, `scheduler` | which task is next: policies and heuristics |
//! | `task` | what a worker does with a task; `sources`: with a source; `cells`: with a partition |
//! | `task_lengths` | how long tasks take, by kind |
//! | `snapshots`, `idleness` | cuts are taken and restored; what no row causes |
//! | `flow` | the seam between all of these and how rows move |
//! | `epoch`, `ordered` | its two sides: containers of `epoch`; elements of `arrival` and `event_time` |
//! | `sinks` | what is sent to sinks, and their threads |
//! | `tap`, `late` | people look at rows on their way, and at those that were late |
//! | `job` | what all workers of a job share, each duty in a type of its own: `stages`, `lifecycle`, `queues`, `cut`, `gates`, `news`, [`memory`], [`metrics`] |
//! | `stage`, `barrier` | a stage at run time; one watermark on its way through its partitions |
//! | `container`, `lane` | epochs in flight, their life cycle, the lists that hold them |
//! | `parked`, `returned`, `leaving` | what waits for room; for the outside; for what is before it |
//! | `policies` | what a caller can choose by name |
//! | [`sorted_merge`] | sorted inputs become one sequence by time |
//! | [`interleaving`] | the sequence in which inputs came in, recorded and replayed |
//! | `source_batcher` | small batches of a source become one bundle |
//! | `ablation` | decisions of the design switched off (feature `baselines`) |
//! | [`numa_memory`] | on which NUMA node rows are |
//! | [`topology`] | NUMA nodes and cores |

#[cfg(feature = "baselines")]
mod ablation;
mod barrier;
mod cells;
mod container;
mod control;
mod cut;
mod dispatcher;
mod epoch;
mod flow;
mod gates;
mod idleness;
pub mod interleaving;
mod job;
mod joint_watermark;
mod lane;
mod late;
mod leaving;
mod lifecycle;
pub mod memory;
pub mod metrics;
mod news;
pub mod numa_memory;
mod observed;
mod options;
mod ordered;
mod pace;
mod parked;
mod policies;
mod pool;
mod queues;
mod returned;
mod scheduler;
#[cfg(any(test, feature = "simulator"))]
pub mod simulate;
mod sinks;
mod slices;
mod snapshots;
pub mod sorted_merge;
mod source_batcher;
mod sources;
mod splits;
mod stage;
mod stages;
mod start;
mod tap;
mod task;
mod task_lengths;
pub mod topology;
mod transforms;

pub use control::{JobControl, Report, Tap};
pub use cut::ChooseExtent;
pub use late::LateAt;
pub use memory::MemoryBudget;
pub use metrics::{MetricsSnapshot, SnapshotMetrics, StageSnapshot};
pub use options::RunOptions;
#[cfg(feature = "baselines")]
pub use policies::Ablation;
pub use policies::{PartitionScheme, ReorderScheme, SchedulerPolicy, SnapshotMode};
pub use pool::Pool;
pub use snapshots::{AfterCut, CutTimes, Taken};
pub use start::{
    AgreedJob, Beginning, RunningJob, agree_to_start, rehearse_start, start, start_from,
};
pub use tap::TappedRows;
pub use task_lengths::{TASK_NS_MAX, TaskKind, TaskLengths};
