//! Ties, silence, flow control, and many threads with random schedules against a sort.

use std::sync::Arc;

use super::*;

fn drain<T: Clone>(reader: &mut GateReader<T>) -> Vec<T> {
    std::iter::from_fn(|| reader.get_ready().map(|(_, _, tuple)| tuple)).collect()
}

#[test]
fn ties_go_to_the_first_source_and_wait_for_it() {
    let (mut sources, mut readers) = ScaleGate::register(3, 1, 100);
    let reader = &mut readers[0];
    sources[1].add(5, "b").expect("room");
    sources[2].add(5, "c").expect("room");
    assert_eq!(drain(reader), [""; 0], "the first source may still show a tuple of time 5");
    sources[0].advance(4);
    assert_eq!(drain(reader), [""; 0], "a watermark of 4 leaves time 5 open");
    sources[0].advance(5);
    assert_eq!(drain(reader), ["b"], "the second may show another of time 5, before the third");
    sources[1].add(5, "b2").expect("room");
    sources[1].advance(5);
    assert_eq!(drain(reader), ["b2", "c"]);
}

#[test]
fn later_sources_need_only_reach_the_time() {
    let (mut sources, mut readers) = ScaleGate::register(2, 1, 100);
    sources[0].add(5, "a").expect("room");
    assert_eq!(drain(&mut readers[0]), [""; 0]);
    sources[1].advance(4);
    assert_eq!(drain(&mut readers[0]), ["a"], "a tuple of time 5 of the second comes after it");
    assert!(!readers[0].has_ended());
    sources.clear();
    assert!(readers[0].has_ended());
}

#[test]
fn what_is_out_of_order_or_too_far_ahead_comes_back() {
    let (mut sources, mut readers) = ScaleGate::register(1, 2, 2);
    sources[0].add(5, 'x').expect("room");
    assert_eq!(sources[0].add(4, 'y'), Err(Refused::OutOfOrder { tuple: 'y', frontier_ms: 5 }));
    sources[0].add(6, 'y').expect("room");
    assert_eq!(sources[0].add(7, 'z'), Err(Refused::Full { tuple: 'z' }));
    assert_eq!(drain(&mut readers[0]), ['x', 'y']);
    assert_eq!(sources[0].add(7, 'z'), Err(Refused::Full { tuple: 'z' }), "the other is slow");
    assert_eq!(drain(&mut readers[1]), ['x', 'y']);
    sources[0].add(7, 'z').expect("room again");
    drop(readers);
    (0..10).for_each(|_| sources[0].add(8, 'w').expect("nobody holds it back"));
}

#[test]
fn tuples_are_freed_when_all_have_passed() {
    let alive = Arc::new(());
    let (mut sources, mut readers) = ScaleGate::register(1, 2, 10_000);
    (0..2000).for_each(|n| sources[0].add(n, Arc::clone(&alive)).expect("room"));
    sources[0].advance(2000);
    assert_eq!(drain(&mut readers[0]).len(), 2000);
    assert_eq!(Arc::strong_count(&alive), 2001, "the second reader needs them");
    assert_eq!(drain(&mut readers[1]).len(), 2000);
    assert!(Arc::strong_count(&alive) <= 1 + 256, "the last segment at most");
    drop((sources, readers));
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Sorted tuples with many ties: (time, number).
fn sorted(count: u64, seed: u64) -> Vec<(i64, u64)> {
    let (mut state, mut time) = (seed | 1, 0);
    (0..count)
        .map(|n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            time += (state % 3) as i64;
            (time, n)
        })
        .collect()
}

fn expected(of: &[Vec<(i64, u64)>]) -> Vec<(usize, i64, u64)> {
    let with_source = |(source, tuples): (usize, &Vec<(i64, u64)>)| {
        tuples.iter().map(|&(time, n)| (source, time, n)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = of.iter().enumerate().flat_map(with_source).collect();
    all.sort_by_key(|&(source, time, _)| (time, source));
    all
}

#[test]
fn many_sources_and_readers_with_random_pauses() {
    let count = if cfg!(miri) { 50 } else { 5_000 };
    for (sources, readers, bound) in [(1, 1, 4), (2, 2, 16), (4, 3, 700)] {
        let of: Vec<_> = (0..sources).map(|n| sorted(count, n as u64 + 7)).collect();
        let expected = expected(&of);
        let (gate_sources, gate_readers) = ScaleGate::register(sources, readers, bound);
        std::thread::scope(|scope| {
            for (mut source, tuples) in gate_sources.into_iter().zip(&of) {
                scope.spawn(move || {
                    for &(time, n) in tuples {
                        while source.add(time, n).is_err() {
                            // A full source has nothing else to do.
                            std::thread::yield_now();
                        }
                        if n.is_multiple_of(61) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for mut reader in gate_readers {
                let expected = &expected;
                scope.spawn(move || {
                    let mut seen = Vec::with_capacity(expected.len());
                    while !reader.has_ended() {
                        match reader.get_ready() {
                            Some(tuple) => seen.push(tuple),
                            None => std::thread::yield_now(),
                        }
                    }
                    assert!(seen == *expected, "{sources} sources, {readers} readers");
                });
            }
        });
    }
}

#[test]
fn the_thread_merges_alike() {
    let of: Vec<_> = (0..3).map(|n| sorted(2_000, n + 3)).collect();
    let (sources, merged, thread) = MergeThread::start(3, 64).expect("a thread").split();
    let adders: Vec<_> = sources
        .into_iter()
        .zip(of.clone())
        .map(|(source, tuples)| {
            std::thread::spawn(move || {
                tuples.into_iter().for_each(|t| source.send(t).expect("open"))
            })
        })
        .collect();
    let seen: Vec<_> = merged.iter().collect();
    assert!(seen == expected(&of));
    adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
    thread.join().expect("no panic");
}
