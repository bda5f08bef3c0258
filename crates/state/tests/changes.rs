//! Changes fold into what a map would hold, whatever was merged, deleted or captured in full on the
//! way.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Key, changes, key, removed, request, rows, sorted_rows, whole};
use proptest::prelude::*;
use thalweg_core::snapshot::partition_of_virtual;
use thalweg_core::{Captured, ErrorKind};
use thalweg_state::SnapshotStore;

/// What one partition does between two snapshots.
#[derive(Clone, Debug)]
struct Step {
    /// Keys that get a value.
    set: Vec<(u64, i64)>,
    /// Keys that go, unless they get a value as well.
    gone: Vec<u64>,
    /// Partitions with full captures, by bit.
    whole: u8,
    /// Where a table would be captured without rows: capture no table at all.
    silent: bool,
}

fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    let number = 0..40_u64;
    let set = prop::collection::vec((number.clone(), any::<i64>()), 0..25);
    let gone = prop::collection::vec(number, 0..12);
    let whole = prop_oneof![3 => Just(0_u8), 2 => any::<u8>()];
    let step = (set, gone, whole, any::<bool>()).prop_map(|(set, gone, whole, silent)| Step {
        set,
        gone,
        whole,
        silent,
    });
    (prop_oneof![Just(1_usize), Just(3), Just(4)], prop::collection::vec(step, 1..45))
}

/// The partition that captures a key: rows for all are captured by the first.
fn teller(key: &Key, partitions: usize) -> usize {
    key.0.map_or(0, |owner| partition_of_virtual(owner, partitions))
}

fn some_key(n: u64) -> Key {
    if n.is_multiple_of(10) { (None, format!("for all {n}")) } else { key(n) }
}

fn capture(
    step: &Step,
    map: &mut BTreeMap<Key, i64>,
    partitions: usize,
    first: bool,
) -> Vec<Captured> {
    let set: BTreeMap<Key, i64> = step.set.iter().map(|&(n, value)| (some_key(n), value)).collect();
    let gone: BTreeSet<Key> = step.gone.iter().map(|&n| some_key(n)).collect();
    let gone: Vec<Key> = gone.into_iter().filter(|key| !set.contains_key(key)).collect();
    map.retain(|key, _| !gone.contains(key));
    map.extend(set.clone());
    let of = |partition: usize| {
        let own = move |key: &Key| teller(key, partitions) == partition;
        if first || step.whole >> partition & 1 == 1 {
            let all: Vec<_> = map.clone().into_iter().filter(|(key, _)| own(key)).collect();
            if all.is_empty() && step.silent {
                Captured::default()
            } else {
                whole(vec![rows(&all)])
            }
        } else {
            let set: Vec<_> = set.clone().into_iter().filter(|(key, _)| own(key)).collect();
            let gone: Vec<&Key> = gone.iter().filter(|key| own(key)).collect();
            changes(vec![rows(&set)], vec![removed(gone.into_iter())])
        }
    };
    (0..partitions).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn changes_fold_into_what_a_map_holds(
        (partitions, steps) in steps(),
        kept in 1..4_usize,
        // Where many rows stay, changes are folded together before they reach the table.
        staying in prop_oneof![Just(0), Just(6000)],
    ) {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let location = format!("memory://changes-{}", CASES.fetch_add(1, Ordering::Relaxed));
        let mut store = SnapshotStore::open(&location, "job").expect("a place");
        let mut map: BTreeMap<Key, i64> = (100..100 + staying).map(|n| (key(n), 0)).collect();
        let mut expected = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            let number = place as u64 + 1;
            let state = capture(step, &mut map, partitions, place == 0);
            let base = (place > 0).then(|| number - 1);
            store.write(request(state, number, base)).expect("written");
            expected.push(map.clone());
            store.retain(kept).expect("retained");
        }
        let first = expected.len().saturating_sub(kept);
        for (place, expected) in expected.iter().enumerate().skip(first) {
            let number = place as u64 + 1;
            let damage = store.verify(number).expect("there");
            prop_assert!(damage.is_empty(), "snapshot {}: {:?}", number, damage);
            let snapshot = store.read(number).expect("read");
            let rows = sorted_rows(snapshot.cut.stages[1].state.table("counts"));
            prop_assert_eq!(rows.len(), expected.len());
            prop_assert_eq!(&rows.into_iter().collect::<BTreeMap<_, _>>(), expected);
        }
    }
}

/// So that the property means something: tables are merged on the way, and files are shared.
#[test]
fn large_tables_are_shared_and_small_changes_folded_apart_until_all_has_changed() {
    let mut store = SnapshotStore::open("memory://sharing", "job").expect("a place");
    let many: Vec<_> = (0..100_000).map(|n| (key(n), 1)).collect();
    let first = store.write(request(vec![whole(vec![rows(&many)])], 1, None)).expect("written");
    let few: Vec<_> = (0..1000).map(|n| (key(n), 2)).collect();
    let mut merged = Vec::new();
    for number in 2..=12 {
        let state = vec![changes(vec![rows(&few)], vec![])];
        let written = store.write(request(state, number, Some(number - 1))).expect("written");
        merged.extend((written.merged_tables > 0).then_some(number));
        assert!(written.bytes * 5 < first.bytes, "{written:?}");
    }
    assert_eq!(merged, [6, 10], "five small ones become one");
    store.retain(1).expect("retained");
    // Files of others that it needs are no snapshots.
    assert_eq!(store.list().expect("listed").len(), 1);
    let all = sorted_rows(store.read(12).expect("read").cut.stages[1].state.table("counts"));
    assert_eq!((all.len(), all.iter().map(|row| row.1).sum::<i64>()), (100_000, 101_000));
    for (number, is_merged) in [(13, false), (14, true)] {
        let state = vec![changes(vec![rows(&many[..60_000])], vec![])];
        let written = store.write(request(state, number, Some(number - 1))).expect("written");
        assert_eq!(written.merged_tables > 0, is_merged, "snapshot {number}: {written:?}");
    }
    assert_eq!(files_and_changes(&store, 14), (1, 0), "one file, of all rows");
}

/// How many files of a snapshot the table has, and how many snapshots of changes they are of.
fn files_and_changes(store: &SnapshotStore, number: u64) -> (usize, usize) {
    let table = &store.describe(number).expect("there").stages[1].state[0];
    (table.files, table.changes)
}

/// A table in which rows come and go for long has few files at any time, those of what was removed
/// included.
#[test]
fn files_of_a_table_are_few_however_many_snapshots_there_were() {
    for staying in [0, 30_000] {
        let location = format!("memory://few-files-{staying}");
        let mut store = SnapshotStore::open(&location, "job").expect("a place");
        let stay: Vec<_> = (0..staying).map(|n| (key(n), 1)).collect();
        store.write(request(vec![whole(vec![rows(&stay)])], 1, None)).expect("written");
        for number in 2..=90 {
            let come: Vec<_> = (0..20).map(|n| (key(100_000 + number * 20 + n), 2)).collect();
            let gone: Vec<_> = (0..20).map(|n| key(100_000 + (number - 1) * 20 + n)).collect();
            let state = vec![changes(vec![rows(&come)], vec![removed(gone.iter())])];
            store.write(request(state, number, Some(number - 1))).expect("written");
            store.retain(1).expect("retained");
            let (files, changes) = files_and_changes(&store, number);
            assert!(files <= 9 && changes <= 4, "snapshot {number}: {files} files");
        }
        let all = sorted_rows(store.read(90).expect("read").cut.stages[1].state.table("counts"));
        assert_eq!(all.len(), staying as usize + 20);
    }
}

/// A job that has nothing to do takes snapshots all the same.
#[test]
fn snapshots_in_which_nothing_has_changed_leave_no_folders() {
    let directory = tempfile::tempdir().expect("a folder");
    let place = directory.path().display().to_string();
    let mut store = SnapshotStore::open(&place, "job").expect("a place");
    let first = whole(vec![rows(&[(key(1), 1)])]);
    store.write(request(vec![first], 1, None)).expect("written");
    for number in 2..=20 {
        let state = vec![changes(vec![], vec![])];
        store.write(request(state, number, Some(number - 1))).expect("written");
        store.retain(1).expect("retained");
    }
    let folders = std::fs::read_dir(directory.path().join("job/snapshots")).expect("a folder");
    let mut names: Vec<_> = folders.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    // The newest, and the one with its rows.
    assert!(names.len() == 2 && names[1] == "0000000020", "{names:?}");
}

#[test]
fn changes_of_something_that_is_not_there_are_refused() {
    let mut store = SnapshotStore::open("memory://baseless", "job").expect("a place");
    let state = || vec![changes(vec![rows(&[(key(1), 1)])], vec![])];
    let error = store.write(request(state(), 1, None)).expect_err("no base");
    assert_eq!(error.kind(), ErrorKind::Internal);
    store.write(request(vec![Captured::default()], 1, None)).expect("written");
    let error = store.write(request(state(), 2, Some(9))).expect_err("no such snapshot");
    assert!(error.message().contains("no snapshot 9"), "{error}");
    let mut other = request(state(), 2, Some(1));
    other.cut.stages[1].id = "renamed".to_owned();
    let error = store.write(other).expect_err("not there before");
    assert!(error.message().contains("'counts'"), "{error}");
    store.write(request(state(), 2, Some(1))).expect("what no partition captured was empty");
    let read = store.read(2).expect("read");
    assert_eq!(sorted_rows(read.cut.stages[1].state.table("counts")), [(key(1), 1)]);
}
