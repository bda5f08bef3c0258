//! Serials claimed by a counter, handed over, delivered in order.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use thalweg_ordering::reorder::{LockedReorderBuffer, Reorder, ReorderBuffer};

use crate::{ELEMENTS, Variant};

pub fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for workers in [1, 2] {
        let name = |what: &str| format!("{what}, {workers} workers");
        variants.push((name("ring with a try-flag"), Box::new(move || {
            run(&ReorderBuffer::new(1024, 0), workers)
        })));
        variants.push((name("lock (baseline)"), Box::new(move || {
            run(&LockedReorderBuffer::new(1024, 0), workers)
        })));
        variants.push((name("crossbeam ArrayQueue, no order"), Box::new(move || queue(workers))));
    }
    variants
}

fn run(buffer: &(impl Reorder<u64> + Sync), workers: u64) -> u64 {
    let (claimed, delivered) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let serial = claimed.load(Ordering::Relaxed);
                    if serial == ELEMENTS {
                        return;
                    }
                    if !buffer.has_room(serial) {
                        thread::yield_now();
                        continue;
                    }
                    let order = (Ordering::Relaxed, Ordering::Relaxed);
                    if claimed.compare_exchange(serial, serial + 1, order.0, order.1).is_ok() {
                        let sent = buffer.send(serial, serial, |value| {
                            // One at a time delivers, so a load and a store are enough.
                            let next = delivered.load(Ordering::Relaxed);
                            assert_eq!(value, next, "in order");
                            delivered.store(next + 1, Ordering::Relaxed);
                            Ok::<(), Infallible>(())
                        });
                        let _ = sent;
                    }
                }
            });
        }
    });
    assert_eq!(delivered.into_inner(), ELEMENTS);
    ELEMENTS
}

fn queue(workers: u64) -> u64 {
    let (claimed, queue) = (AtomicU64::new(0), crossbeam_queue::ArrayQueue::new(1024));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while claimed.fetch_add(1, Ordering::Relaxed) < ELEMENTS {
                    let _ = queue.push(1u64);
                    let _ = queue.pop();
                }
            });
        }
    });
    ELEMENTS
}
