//! Sorted sources on one thread, a reader on another.

use std::thread;

use thalweg_ordering::gate::{MergeThread, ScaleGate};

use crate::{ELEMENTS, Variant};

pub fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for sources in [2, 4] {
        variants.push((format!("ScaleGate, {sources} sources"), Box::new(move || gate(sources))));
        variants.push((format!("heap and a thread (baseline), {sources} sources"), Box::new(
            move || merge_thread(sources),
        )));
    }
    variants
}

fn gate(sources: usize) -> u64 {
    let (mut writers, mut readers) = ScaleGate::register(sources, 1, 4096);
    let mut reader = readers.pop().expect("one reader");
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..ELEMENTS {
                let source = &mut writers[n as usize % sources];
                while source.add(n as i64, n).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < ELEMENTS {
            match reader.get_ready() {
                Some((_, _, n)) => {
                    assert_eq!(n, next, "in order");
                    next += 1;
                }
                None => thread::yield_now(),
            }
        }
    });
    ELEMENTS
}

fn merge_thread(sources: usize) -> u64 {
    let (writers, merged, thread) = MergeThread::start(sources, 4096).expect("a thread").split();
    let adder = thread::spawn(move || {
        for n in 0..ELEMENTS {
            writers[n as usize % sources].send((n as i64, n)).expect("open");
        }
    });
    for (next, (_, _, n)) in (0..ELEMENTS).zip(merged.iter()) {
        assert_eq!(n, next, "in order");
    }
    adder.join().expect("no panic");
    thread.join().expect("no panic");
    ELEMENTS
}
