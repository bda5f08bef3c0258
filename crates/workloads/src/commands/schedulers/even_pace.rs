//! A source whose rows are due one after the other, at equal distances.
//!
//! **Invariant:** no row is handed out before it is due, and what it was late by counts as its own
//! delay ([`SourceLayer::overdue_ns`]): a run that falls behind shows in the latencies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg::Clock;
use thalweg::pipeline::MemorySource;
use thalweg_core::connector::{SourceLayer, SourcePoll, Waker};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Result, Source};
use thalweg_runtime::simulate::VirtualClock;

use super::super::paced::Sleeper;

/// A clock that calls wakers.
pub trait Alarm: Send + Sync {
    /// Nanoseconds since it was made, or since the run began.
    fn now_ns(&self) -> u64;
    /// Calls the waker at this time.
    fn wake_at(&self, at_ns: u64, waker: Waker);
}

impl Alarm for VirtualClock {
    fn now_ns(&self) -> u64 {
        Clock::now_ns(self)
    }
    fn wake_at(&self, at_ns: u64, waker: Waker) {
        VirtualClock::wake_at(self, at_ns, waker);
    }
}

/// Of this machine.
pub struct RealTime {
    began: Instant,
    sleeper: Sleeper,
}

impl RealTime {
    /// Begins now.
    pub fn new() -> Self {
        RealTime { began: Instant::now(), sleeper: Sleeper::new() }
    }
}

impl Alarm for RealTime {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
    fn wake_at(&self, at_ns: u64, waker: Waker) {
        self.sleeper.wake_at(self.began + Duration::from_nanos(at_ns), waker);
    }
}

/// Makes the rows of all sources of a graph due at this distance from one another.
pub fn pace(graph: &mut Graph, pause_ns: u64, alarm: &Arc<dyn Alarm>) {
    for stage in &mut graph.stages {
        if let StageKind::Source { source: place, .. } = &mut stage.kind {
            let source = std::mem::replace(place, Box::new(MemorySource::replay(Vec::new())));
            let alarm = alarm.clone();
            *place =
                Box::new(Paced { source, alarm, pause_ns, given: 0, overdue_ns: 0, waker: None });
        }
    }
}

struct Paced {
    source: Box<dyn Source>,
    alarm: Arc<dyn Alarm>,
    pause_ns: u64,
    given: u64,
    overdue_ns: u64,
    waker: Option<Waker>,
}

impl SourceLayer for Paced {
    fn inner(&self) -> &dyn Source {
        self.source.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.source.as_mut()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.waker = Some(waker.clone());
        self.source.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let (now_ns, due_ns) = (self.alarm.now_ns(), self.given * self.pause_ns);
        if due_ns > now_ns {
            let waker = self.waker.clone().expect("it was started");
            self.alarm.wake_at(due_ns, waker);
            return Ok(SourcePoll::Pending);
        }
        self.overdue_ns = now_ns - due_ns;
        let are_due = self.overdue_ns / self.pause_ns + 1;
        let polled = self.source.poll(rows_max.min(are_due as usize))?;
        if let SourcePoll::Batch(of_rows) = &polled {
            self.given += of_rows.batch.num_rows() as u64;
        }
        Ok(polled)
    }
    fn overdue_ns(&self) -> u64 {
        self.overdue_ns
    }
}
