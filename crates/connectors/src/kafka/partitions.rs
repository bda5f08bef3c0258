//! To which partition messages without a key go: one for each batch, chosen at random, as the Java
//! client does (KIP-480, "Sticky Partitioner").
//!
//! The client's own choice is as good, but it reads the clock twice for each message, and looks up
//! and counts its partition four times. The choice stays with the client where it knows more: while
//! a server is in trouble, and where the servers don't say which partitions there are.

use std::time::Duration;

use rdkafka::producer::Producer as _;
use thalweg_core::shim::{Clock as _, SplitMix64, SystemClock};

use super::client::{CALL, Producer};
use crate::network::Deadline;

/// How long the partitions of a topic are taken for those that it had: as long as the Java client
/// does (`metadata.max.age.ms`).
const AGE_MAX: Duration = Duration::from_secs(300);
/// When servers that did not say are asked again.
const RETRY: Duration = Duration::from_secs(10);

/// The partitions of a topic, of which each batch gets one.
pub struct BatchPartitions {
    /// Those that can be written; none while that is not known.
    known: Vec<i32>,
    /// When the servers are asked next; none before the first time.
    next: Option<Deadline>,
    random: SplitMix64,
}

impl Default for BatchPartitions {
    fn default() -> Self {
        let random = SplitMix64::new(SystemClock::new().wall_ms() as u64);
        BatchPartitions { known: Vec::new(), next: None, random }
    }
}

impl BatchPartitions {
    /// The partition of the next batch; none if the client is to choose.
    pub fn choose(&mut self, producer: &Producer, topic: &str) -> Option<i32> {
        if self.next.as_ref().is_none_or(Deadline::is_over) {
            self.known = writable(producer, topic);
            let is_known = !self.known.is_empty();
            self.next = Some(Deadline::after(if is_known { AGE_MAX } else { RETRY }));
        }
        let count = self.known.len() as u64;
        (count > 0).then(|| self.known[self.random.below(count) as usize])
    }

    /// The topic has other partitions than it had.
    pub fn forget(&mut self) {
        self.known.clear();
        self.next = Some(Deadline::after(RETRY));
    }
}

fn writable(producer: &Producer, topic: &str) -> Vec<i32> {
    let Ok(metadata) = producer.client().fetch_metadata(Some(topic), CALL) else {
        return Vec::new();
    };
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    let writable = partitions.filter(|one| one.error().is_none() && one.leader() >= 0);
    writable.map(|one| one.id()).collect()
}
