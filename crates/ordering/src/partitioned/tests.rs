//! One thread, panics, and many threads with random schedules.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::master::{AT_ONCE, MasterQueue};
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

/// Dies with every 37th item of a long queue, of which a worker takes several entries at once.
#[test]
fn what_a_dying_worker_had_in_hand_goes_to_others() {
    let (queue, count) = (HybridQueue::new(5), 1000);
    (0..count).for_each(|item| queue.add(item % 5, item));
    let (mut seen, mut died) = (vec![Vec::new(); 5], 0);
    loop {
        let consumed = catch_unwind(AssertUnwindSafe(|| {
            queue.consume(200, |partition, item| {
                assert!(item % 37 != 36, "dies with this one");
                seen[partition].push(item);
            })
        }));
        match consumed {
            Ok(0) => break,
            Ok(handled) => assert!(handled <= 200),
            Err(_) => died += 1,
        }
    }
    assert_eq!(died, (0..count).filter(|item| item % 37 == 36).count());
    for (partition, seen) in seen.into_iter().enumerate() {
        let expected = (0..count).filter(|item| item % 5 == partition && item % 37 != 36);
        assert!(seen.into_iter().eq(expected), "{partition}");
    }
}

#[test]
fn a_queue_that_has_been_long_needs_no_more_blocks() {
    let (queue, mut next) = (HybridQueue::new(3), 0);
    let mut cycle = |count: u64| {
        let first = next;
        (0..count).for_each(|n| queue.add((n % 3) as usize, first + n));
        let mut seen = [const { Vec::new() }; 3];
        while queue.consume(64, |partition, item| seen[partition].push(item)) > 0 {}
        for (partition, seen) in seen.into_iter().enumerate() {
            let expected = (0..count).filter(|n| n % 3 == partition as u64).map(|n| first + n);
            assert!(seen.into_iter().eq(expected), "{partition} of {count}");
        }
        next += count;
        queue.blocks()
    };
    let long = if cfg!(miri) { 1_000 } else { 50_000 };
    let blocks = cycle(long);
    // 32 items to a block of a lane, 128 entries to one of the master queue; some are begun.
    assert!((long / 32 + long / 128..=long / 32 + long / 128 + 12).contains(&blocks), "{blocks}");
    for count in [1, 31, 32, 33, 127, 128, 129, 1_000, long] {
        // The ends of a row may lie in one block more.
        let now = cycle(count);
        assert!((blocks..=blocks + 4).contains(&now), "{now} for {blocks} after {count} more");
    }
}

#[test]
fn what_nobody_has_consumed_is_dropped_once() {
    let item = Arc::new(());
    let queue = HybridQueue::new(2);
    (0..100).for_each(|n| queue.add(n % 2, Arc::clone(&item)));
    assert_eq!(queue.consume(30, |_, _| ()), 30);
    assert_eq!(Arc::strong_count(&item), 71);
    drop(queue);
    assert_eq!(Arc::strong_count(&item), 1);
}

/// A worker that was slow with an item remembers a front whose block has another turn by then.
#[test]
fn a_worker_that_was_late_finds_the_front() {
    let master = MasterQueue::new();
    let (mut late, mut early) = (master.front(), master.front());
    let mut numbers = [0; AT_ONCE];
    for number in 0..1000 {
        master.push(number);
        assert_eq!(master.take(&mut early, 1, &mut numbers), 1);
    }
    master.push(1000);
    assert_eq!((master.take(&mut late, 1, &mut numbers), numbers[0]), (1, 1000));
    assert_eq!(master.take(&mut early, 1, &mut numbers), 0);
}

/// Several threads add and consume; what one of them adds to a partition is handled in its order.
#[test]
fn many_threads_that_add_and_consume() {
    const PARTITIONS: usize = 3;
    let (threads, count) = (4, if cfg!(miri) { 40 } else { 20_000 });
    let queue = HybridQueue::new(PARTITIONS);
    // The next number of each thread in each partition.
    let next: Vec<Mutex<Vec<usize>>> =
        (0..PARTITIONS).map(|first| Mutex::new(vec![first; threads])).collect();
    let handled = AtomicUsize::new(0);
    let (queue, next, handled) = (&queue, &next, &handled);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut added = 0;
                while handled.load(Ordering::Relaxed) < threads * count {
                    for number in added..(added + 20).min(count) {
                        queue.add(number % PARTITIONS, (thread, number));
                    }
                    added = (added + 20).min(count);
                    let now = queue.consume(20, |partition, (thread, number)| {
                        let mut next = next[partition].try_lock().expect("one at a time");
                        assert_eq!(number, next[thread], "in order");
                        next[thread] += PARTITIONS;
                    });
                    handled.fetch_add(now, Ordering::Relaxed);
                    if now == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(handled.load(Ordering::Relaxed), threads * count);
    assert_eq!(queue.consume(1, |_, _| ()), 0);
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
