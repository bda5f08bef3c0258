//! What can be chosen for a run: policies, schemes and promises, each by its name.

use std::fmt;
use std::str::FromStr;

use thalweg_core::Error;

/// In which order the dispatcher looks for bundles. Watermark work comes first under
/// every policy, and results are the same under each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerPolicy {
    /// By the next externalization moment (StreamBox §6): the oldest container that the next
    /// result needs, else the stage with the most open containers.
    #[default]
    Nem,
    /// Each stage in turn.
    RoundRobin,
    /// `lp`: the stage furthest downstream that has work (Prasaad §6.2).
    LastInPipeline,
    /// `ct`: the stage with the lowest normalized throughput (Prasaad §6.4).
    CurrentThroughput,
    /// `et`: the stage whose waiting work would take longest (Prasaad §6.3).
    EstimatedTime,
    /// `qst`: the earliest stage whose output queue is below its threshold (Prasaad §6.1).
    QueueSizeThrottling,
}

impl SchedulerPolicy {
    /// The names by which policies are chosen.
    pub const NAMES: [&'static str; 6] = ["nem", "round-robin", "lp", "ct", "et", "qst"];

    /// The policies in the order of their names.
    const ALL: [SchedulerPolicy; 6] = [
        SchedulerPolicy::Nem,
        SchedulerPolicy::RoundRobin,
        SchedulerPolicy::LastInPipeline,
        SchedulerPolicy::CurrentThroughput,
        SchedulerPolicy::EstimatedTime,
        SchedulerPolicy::QueueSizeThrottling,
    ];

    /// True for the policies that rank the stages for each task.
    pub(crate) fn chooses_stages(self) -> bool {
        !matches!(self, SchedulerPolicy::Nem | SchedulerPolicy::RoundRobin)
    }
}

impl fmt::Display for SchedulerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SchedulerPolicy::NAMES[*self as usize])
    }
}

impl FromStr for SchedulerPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        chosen(text, Self::NAMES, Self::ALL, "scheduling policy")
    }
}

/// What stands at the place of this name.
fn chosen<T: Copy, const N: usize>(
    text: &str,
    names: [&str; N],
    all: [T; N],
    what: &str,
) -> Result<T, Error> {
    let name = text.trim().to_ascii_lowercase();
    let place = names.iter().position(|known| *known == name);
    place.map(|place| all[place]).ok_or_else(|| {
        let names = names.map(|name| format!("'{name}'")).join(", ");
        Error::plan(format!("'{name}' is no {what}")).hint(format!("choose one of {names}"))
    })
}

/// How outcomes that were made out of order get back into it (ordered contracts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReorderScheme {
    /// A ring and a try-flag: no worker waits for another (Prasaad §3.2).
    #[default]
    NonBlocking,
    /// One lock (Prasaad §3.1), to compare with.
    #[cfg(feature = "baselines")]
    Locked,
}

/// How workers find the partitions of an operator that have work (Prasaad et al. §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionScheme {
    /// In the order in which work came, over all partitions (§4.3). Under `epoch`, where no result
    /// waits for another's, as `Cells`.
    #[default]
    Hybrid,
    /// In the order in which partitions got work: one is listed once while it has any, and its
    /// worker stays with it.
    Cells,
    /// Each worker looks at the partitions in turn (§4.2), to compare with.
    Partitioned,
}

impl PartitionScheme {
    /// The names by which schemes are chosen.
    pub const NAMES: [&'static str; 3] = ["hybrid", "cells", "partitioned"];
}

impl FromStr for PartitionScheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [PartitionScheme::Hybrid, PartitionScheme::Cells, PartitionScheme::Partitioned];
        chosen(text, Self::NAMES, all, "way to find partitions")
    }
}

/// What snapshots promise of the output of a job that has failed and resumes from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Each result is there once, where sinks have transactions or rows have keys.
    ExactlyOnce,
    /// No result is lost; sinks write at once, and some results may be there twice.
    AtLeastOnce,
}

/// Which decision of the design is switched off (see [`ablation`](crate::ablation)).
#[cfg(feature = "baselines")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ablation {
    /// None: the engine as it is.
    #[default]
    Nothing,
    /// A stage works on an epoch once all of its rows have arrived and every older one is finished
    /// ("hold and sort" without the sort).
    InOrderEpochs,
    /// What a stage makes goes to the youngest container that is open downstream.
    IgnoreEpochBoundaries,
    /// What the next result needs is estimated for open epochs as well.
    EstimatedMoments,
    /// A worker drains the stage that it is at, then moves to the next one; watermarks wait for
    /// their turn.
    NoPriority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_chosen_by_name() {
        for name in SchedulerPolicy::NAMES {
            let policy: SchedulerPolicy = name.parse().expect("a policy");
            assert_eq!(policy.to_string(), name);
        }
        assert_eq!(" QST ".parse::<SchedulerPolicy>().expect("a policy").to_string(), "qst");
        let error = "fifo".parse::<SchedulerPolicy>().expect_err("no policy");
        let help = error.help().expect("a way out");
        assert!(SchedulerPolicy::NAMES.iter().all(|name| help.contains(name)), "{help}");
    }
}
