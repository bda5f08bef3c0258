//! The runtime: containers, dispatcher and workers.
//!
//! A job is a [`Graph`](thalweg_core::graph::Graph) of stages. Sources end epochs; each stage keeps
//! a [`container`] per epoch and lane; bundles and watermarks flow from container to container;
//! any worker does any work that the [`dispatcher`] finds, oldest and most urgent first, and none
//! ever waits inside a task. [`start`] runs a job on threads, `simulate` (feature `simulator`) runs
//! the same dispatcher, containers and operators on one thread by a seed.
//!
//! | module | holds |
//! |---|---|
//! | [`options`] | what a caller can set, [`memory`]: the one limit |
//! | [`container`], [`lane`] | epochs in flight, their life cycle, the lists that hold them |
//! | [`stage`] | a stage at run time: cells, sequencers, sinks |
//! | [`barrier`] | one watermark on its way through the partitions of an operator |
//! | [`flow`] | deposit, consume, close: how bundles and watermarks move |
//! | [`ordered`] | the flow of the contracts `arrival` and `event_time` |
//! | [`sorted_merge`] | sorted inputs become one sequence by time |
//! | [`interleaving`] | the sequence in which inputs came in, recorded and replayed |
//! | `gates` | sources that wait for others to end |
//! | [`source_batcher`] | small batches of a source become one bundle |
//! | [`dispatcher`] | which task is next, policies `nem` and `round-robin` |
//! | [`scheduler`] | the heuristics `lp`, `ct`, `et`, `qst`, and what they measure |
//! | [`task`] | what a worker does with a task |
//! | [`job`] | start, wait, cancel, fail |
//! | [`pool`] | workers, and how they spread over the jobs that share them; `news`: which jobs may have work |
//! | [`metrics`] | what is counted |
//! | `snapshots` | cuts are taken, and jobs resume from them; `presence`: how a cut knows that nothing is under way |
//! | `waiting` | bundles of stages that wait for the outside |
//! | `ablation` | decisions of the design switched off (feature `baselines`) |
//! | [`topology`] | NUMA nodes and cores |

#[cfg(feature = "baselines")]
mod ablation;
mod barrier;
mod cells;
mod container;
mod control;
mod dispatcher;
mod epoch;
mod flow;
mod gates;
mod hold;
mod idleness;
pub mod interleaving;
mod job;
mod joint_watermark;
mod lane;
mod leaving;
mod lifecycle;
pub mod memory;
pub mod metrics;
mod news;
mod options;
mod ordered;
mod pace;
mod parked;
mod policies;
mod pool;
mod presence;
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
mod stage;
mod stages;
mod start;
mod task;
pub mod topology;
mod transforms;

pub use control::{JobControl, Report};
pub use metrics::{MetricsSnapshot, SnapshotMetrics, StageSnapshot};
pub use options::RunOptions;
#[cfg(feature = "baselines")]
pub use policies::Ablation;
pub use policies::{PartitionScheme, ReorderScheme, SchedulerPolicy, SnapshotMode};
pub use pool::Pool;
pub use snapshots::{AfterCut, ChooseExtent, CutTimes, Taken};
pub use start::{Beginning, RunningJob, rehearse_start, start, start_from};
