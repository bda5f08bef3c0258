//! One thread, panics, and many threads with random schedules.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

fn check_one_thread(queue: &impl PartitionedWorklist<u32>) {
    for (partition, item) in [(0, 1), (1, 2), (0, 3), (0, 4), (1, 5)] {
        queue.add(partition, item);
    }
    let mut of = [Vec::new(), Vec::new()];
    let mut handled = 0;
    while handled < 5 {
        let now = queue.consume(2, |partition, item| of[partition].push(item));
        assert!((1..=2).contains(&now), "{now} within a budget of 2");
        handled += now;
    }
    assert_eq!(of, [vec![1, 3, 4], vec![2, 5]]);
    assert_eq!(queue.consume(10, |_, _| panic!("nothing is left")), 0);
}

#[test]
fn each_partition_in_order_within_the_budget() {
    check_one_thread(&HybridQueue::new(2));
    check_one_thread(&PartitionedQueue::new(2));
    check_one_thread(&SharedQueue::new(2));
}

fn check_panic(queue: &impl PartitionedWorklist<u32>) {
    (0..6).for_each(|item| queue.add(0, item));
    let mut seen = Vec::new();
    let died = catch_unwind(AssertUnwindSafe(|| {
        queue.consume(10, |_, item| {
            assert!(item != 2, "dies with this one");
            seen.push(item);
        })
    }));
    assert!(died.is_err());
    while queue.consume(10, |_, item| seen.push(item)) > 0 {}
    assert_eq!(seen, [0, 1, 3, 4, 5], "lost is the one, doubled is none");
}

#[test]
fn a_worker_that_dies_loses_its_item_and_no_other() {
    check_panic(&HybridQueue::new(1));
    check_panic(&PartitionedQueue::new(1));
    check_panic(&SharedQueue::new(1));
}

/// One thread adds with skew, others consume; each partition is handled in order by one at a time.
fn stress(queue: &(impl PartitionedWorklist<u64> + Sync), partitions: usize, workers: u64) {
    let count: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let busy: Vec<AtomicBool> = (0..partitions).map(|_| AtomicBool::new(false)).collect();
    let seen: Vec<Mutex<Vec<u64>>> = (0..partitions).map(|_| Mutex::default()).collect();
    let handled = AtomicUsize::new(0);
    let partition_of = |n: u64| if n.is_multiple_of(3) { n as usize % partitions } else { 0 };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count).for_each(|n| queue.add(partition_of(n), n)));
        for worker in 0..workers {
            let (busy, seen, handled) = (&busy, &seen, &handled);
            scope.spawn(move || {
                let mut random = worker.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                while handled.load(Ordering::Relaxed) < count as usize {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let now = queue.consume(1 + random as usize % 9, |partition, item| {
                        assert!(!busy[partition].swap(true, Ordering::Acquire), "two at once");
                        (0..item % 32).for_each(|_| std::hint::spin_loop());
                        seen[partition].lock().expect("no poison").push(item);
                        busy[partition].store(false, Ordering::Release);
                    });
                    handled.fetch_add(now, Ordering::Relaxed);
                    if now == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    for (partition, seen) in seen.into_iter().enumerate() {
        let expected = (0..count).filter(|&n| partition_of(n) == partition);
        assert!(seen.into_inner().expect("no poison").into_iter().eq(expected), "{partition}");
    }
}

#[test]
fn many_workers_with_skewed_partitions() {
    for (partitions, workers) in [(1, 3), (4, 2), (16, 4)] {
        stress(&HybridQueue::new(partitions), partitions, workers);
        stress(&PartitionedQueue::new(partitions), partitions, workers);
        stress(&SharedQueue::new(partitions), partitions, workers);
    }
}
