//! One thread, and many with random schedules.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

fn keep(out: &Mutex<Vec<u64>>) -> impl FnMut(u64) -> Result<(), Infallible> + '_ {
    |value| {
        out.lock().expect("no poison").push(value);
        Ok(())
    }
}

fn check_one_thread(buffer: &impl Reorder<u64>, first: u64) {
    let out = Mutex::new(Vec::new());
    let serial = |n: u64| first.wrapping_add(n);
    assert!(buffer.has_room(serial(3)) && !buffer.has_room(serial(4)));
    for n in [2, 1] {
        assert_eq!(buffer.send(serial(n), n, keep(&out)), Ok(Sent { delivered: 0 }));
    }
    assert_eq!(buffer.send(serial(0), 0, keep(&out)), Ok(Sent { delivered: 3 }));
    assert!(buffer.has_room(serial(6)) && !buffer.has_room(serial(7)));
    assert_eq!(buffer.send(serial(3), 3, keep(&out)), Ok(Sent { delivered: 1 }));
    assert_eq!(*out.lock().expect("no poison"), [0, 1, 2, 3]);
    assert_eq!(buffer.send(serial(4), 4, |_| Err("disk full")), Err("disk full"));
    assert_eq!(buffer.send(serial(5), 5, keep(&out)), Ok(Sent { delivered: 0 }));
    assert_eq!(out.lock().expect("no poison").len(), 4, "nothing overtakes a failure");
}

#[test]
fn values_leave_in_serial_order_also_around_the_end_of_serials() {
    for first in [0, 7, u64::MAX - 1, u64::MAX] {
        check_one_thread(&ReorderBuffer::new(4, first), first);
        check_one_thread(&LockedReorderBuffer::new(4, first), first);
    }
}

#[test]
fn the_ring_refuses_what_it_has_no_room_for() {
    let buffer = ReorderBuffer::new(1, 0);
    let out = Mutex::new(Vec::new());
    assert_eq!(buffer.try_send(1, 1, keep(&out)), Err(1));
    assert!(buffer.reserve(1).is_none());
    assert_eq!(buffer.try_send(0, 0, keep(&out)), Ok(Ok(Sent { delivered: 1 })));
    assert_eq!(buffer.try_send(1, 1, keep(&out)), Ok(Ok(Sent { delivered: 1 })));
}

#[test]
fn a_worker_that_dies_does_not_stop_the_others() {
    let buffer = ReorderBuffer::new(4, 0);
    let out = Mutex::new(Vec::new());
    let died = catch_unwind(AssertUnwindSafe(|| {
        let _place = buffer.reserve(0).expect("room");
        panic!("in the middle of its work");
    }));
    assert!(died.is_err());
    let place = buffer.reserve(1).expect("room");
    assert_eq!(place.send(1, keep(&out)), Ok(Sent { delivered: 1 }));
    // One that panics while it delivers loses its own value and no other.
    let died = catch_unwind(AssertUnwindSafe(|| {
        let _ = buffer.send(2, 2, |_| -> Result<(), Infallible> { panic!("downstream") });
    }));
    assert!(died.is_err());
    assert_eq!(buffer.send(3, 3, keep(&out)), Ok(Sent { delivered: 1 }));
    assert_eq!(*out.lock().expect("no poison"), [1, 3]);
}

#[test]
fn what_is_still_inside_is_dropped_once() {
    let alive = Arc::new(());
    let buffer = ReorderBuffer::new(8, 0);
    for serial in [1, 2, 5] {
        let sent = buffer.send(serial, Arc::clone(&alive), |_| Ok::<(), Infallible>(()));
        assert_eq!(sent, Ok(Sent { delivered: 0 }));
    }
    drop(buffer);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Workers claim serials, pause at random, and send. Everything leaves once, in order.
fn stress(buffer: &(impl Reorder<u64> + Sync), first: u64, count: u64, workers: u64) {
    let (claimed, out) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let spins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (claimed, out, spins) = (&claimed, &out, &spins);
            scope.spawn(move || {
                let mut random = worker.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                loop {
                    let n = claimed.load(Ordering::Relaxed);
                    if n == count {
                        return;
                    }
                    if !buffer.has_room(first.wrapping_add(n)) {
                        spins.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        continue;
                    }
                    let swap = (Ordering::Relaxed, Ordering::Relaxed);
                    if claimed.compare_exchange(n, n + 1, swap.0, swap.1).is_err() {
                        continue;
                    }
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    (0..random % 64).for_each(|_| std::hint::spin_loop());
                    if random.is_multiple_of(97) {
                        std::thread::yield_now();
                    }
                    let _ = buffer.send(first.wrapping_add(n), n, keep(out));
                }
            });
        }
    });
    let out = out.into_inner().expect("no poison");
    assert!(out.iter().copied().eq(0..count), "all once and in order");
}

#[test]
fn many_workers_with_random_pauses() {
    let count = if cfg!(miri) { 60 } else { 30_000 };
    for (capacity, workers) in [(1, 2), (2, 3), (8, 4), (64, 8)] {
        let first = u64::MAX - count / 2;
        stress(&ReorderBuffer::new(capacity, first), first, count, workers);
        stress(&LockedReorderBuffer::new(capacity, first), first, count, workers);
    }
}
