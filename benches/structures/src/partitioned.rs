//! One thread adds to 100 partitions while workers consume; with one worker they take turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use thalweg_ordering::partitioned::{
    HybridQueue, PartitionedQueue, PartitionedWorklist, SharedQueue,
};

use crate::{ELEMENTS, Variant};

const PARTITIONS: usize = 100;

pub fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for workers in [1, 2] {
        let name = |what: &str| format!("{what}, {workers} workers");
        variants.push((name("hybrid"), Box::new(move || {
            run(&HybridQueue::new(PARTITIONS), workers)
        })));
        variants.push((name("a queue per partition (baseline)"), Box::new(move || {
            run(&PartitionedQueue::new(PARTITIONS), workers)
        })));
        variants.push((name("one shared queue (baseline)"), Box::new(move || {
            run(&SharedQueue::new(PARTITIONS), workers)
        })));
        variants.push((name("crossbeam SegQueue, no partitions"), Box::new(move || queue(workers))));
    }
    variants
}

/// As in the engine, adding stops when this many are under way.
const UNDER_WAY: u64 = 2048;

/// Each worker adds a batch, then consumes about as much; who finds nothing lets others run.
fn run(queue: &(impl PartitionedWorklist<u64> + Sync), workers: u64) -> u64 {
    let (added, handled) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while handled.load(Ordering::Relaxed) < ELEMENTS {
                    let gone = handled.load(Ordering::Relaxed);
                    if added.load(Ordering::Relaxed) < (gone + UNDER_WAY).min(ELEMENTS) {
                        let first = added.fetch_add(256, Ordering::Relaxed);
                        for n in first..(first + 256).min(ELEMENTS) {
                            queue.add(n as usize % PARTITIONS, n);
                        }
                    }
                    let done = queue.consume(256, |_, n| {
                        std::hint::black_box(n);
                    });
                    handled.fetch_add(done as u64, Ordering::Relaxed);
                    if done == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    ELEMENTS
}

fn queue(workers: u64) -> u64 {
    let (added, queue) = (AtomicU64::new(0), crossbeam_queue::SegQueue::new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let first = added.fetch_add(256, Ordering::Relaxed);
                    if first >= ELEMENTS {
                        return;
                    }
                    (first..first + 256).for_each(|n| queue.push(n));
                    for _ in 0..256 {
                        std::hint::black_box(queue.pop());
                    }
                }
            });
        }
    });
    ELEMENTS
}
