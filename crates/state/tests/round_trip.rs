//! What is written is read back by another store, whatever the place; what a user looks at is
//! there.

mod common;

use std::path::Path;

use common::{cut, key, request, rows, sorted_rows, whole};
use thalweg_core::{Captured, ErrorKind, OrderContract};
use thalweg_state::{SnapshotKind, SnapshotStore, SnapshotSummary, WriteRequest};

fn two_partitions() -> Vec<Captured> {
    vec![
        whole(vec![rows(&[(key(1), 10), (key(2), 20)]), rows(&[((None, "all".to_owned()), 5)])]),
        whole(vec![rows(&[(key(3), 30)])]),
    ]
}

fn every_field_comes_back(location: &str) {
    let mut store = SnapshotStore::open(location, "flights/2").expect("a place");
    assert!(store.newest_usable().expect("nothing").snapshot.is_none());
    assert_eq!(store.next_number().expect("listed"), 1);
    let expected = cut(two_partitions(), vec![whole(vec![rows(&[(key(9), 90)])])]);
    let taken = cut(two_partitions(), vec![whole(vec![rows(&[(key(9), 90)])])]);
    let request = WriteRequest::new(taken, 1, SnapshotKind::Manual, OrderContract::EventTime);
    let written = store.write(request).expect("written");
    assert_eq!((written.files, written.rows), (2, 5));

    let mut other = SnapshotStore::open(location, "flights/2").expect("a place");
    let snapshot = other.read(1).expect("read");
    assert_eq!(snapshot.header.order, OrderContract::EventTime);
    assert_eq!(snapshot.header.kind, SnapshotKind::Manual);
    assert_eq!((snapshot.cut.serial, snapshot.cut.is_complete), (41, false));
    assert_eq!(snapshot.cut.stages.len(), expected.stages.len());
    for (read, taken) in snapshot.cut.stages.iter().zip(&expected.stages) {
        assert_eq!((&read.id, &read.name, read.ended), (&taken.id, &taken.name, taken.ended));
        assert_eq!((&read.inputs, read.places), (&taken.inputs, taken.places));
        assert_eq!((&read.source, &read.sink), (&taken.source, &taken.sink));
    }
    let operator = &snapshot.cut.stages[1];
    let all = vec![(key(1), 10), (key(2), 20), ((None, "all".to_owned()), 5), (key(3), 30)];
    assert_eq!(sorted_rows(operator.state.table("counts")), all);
    assert_eq!(sorted_rows(operator.waiting.table("counts")), vec![(key(9), 90)]);

    assert!(other.verify(1).expect("verified").is_empty());
    let tables = other.state_of(1, "the count").expect("by its name");
    assert_eq!(sorted_rows(&tables["counts"]), all);
    assert_eq!(sorted_rows(&tables["waiting.counts"]), vec![(key(9), 90)]);
    let error = other.state_of(1, "nobody").expect_err("no such operator");
    assert!(error.help().is_some_and(|help| help.contains("'count'")), "{error}");
    let found = other.newest_usable().expect("found");
    assert_eq!(found.snapshot.map(|snapshot| snapshot.header.number), Some(1));
    assert_eq!(other.next_number().expect("listed"), 2);
}

#[test]
fn every_field_comes_back_from_a_directory() {
    let directory = tempfile::tempdir().expect("a folder");
    let location = directory.path().join("not/yet/there");
    every_field_comes_back(&location.display().to_string());
    assert!(location.join("flights%2F2/snapshots/0000000001/manifest.json").is_file());
    every_field_comes_back(&format!("file://{}", directory.path().display()));
}

#[test]
fn every_field_comes_back_from_an_object_store() {
    every_field_comes_back("memory://round-trip");
}

#[test]
fn a_number_that_is_taken_is_refused_and_stays() {
    let mut store = SnapshotStore::open("memory://taken", "job").expect("a place");
    store.write(request(two_partitions(), 4, None)).expect("written");
    for number in [4, 3] {
        let error = store.write(request(Vec::new(), number, None)).expect_err("taken");
        assert!(error.message().contains("snapshot 4 is there"), "{error}");
    }
    assert_eq!(
        sorted_rows(store.read(4).expect("read").cut.stages[1].state.table("counts")).len(),
        4
    );
}

#[test]
fn a_snapshot_that_is_not_there_is_named() {
    let mut store = SnapshotStore::open("memory://absent", "job").expect("a place");
    for error in [
        store.read(7).expect_err("absent"),
        store.verify(7).expect_err("absent"),
        store.delete(7).expect_err("absent"),
        store.header(7).expect_err("absent"),
    ] {
        assert!(error.message().contains("no snapshot 7 of job 'job'"), "{error}");
    }
}

#[test]
fn rows_that_cannot_be_made_leave_nothing_behind() {
    let mut store = SnapshotStore::open("memory://unmade", "job").expect("a place");
    let mut broken = two_partitions();
    let fails = Box::new(|| Err(thalweg_core::Error::user("the operator fails")));
    broken[1].tables.clear();
    broken[1].add_later("counts", common::schema(), fails);
    let error = store.write(request(broken, 1, None)).expect_err("not made");
    assert_eq!((error.kind(), error.operator()), (ErrorKind::User, Some("the count")));
    assert!(store.list().expect("listed").is_empty());
    store.write(request(two_partitions(), 1, None)).expect("the number is free");
}

#[test]
fn writing_can_be_given_up() {
    let mut store = SnapshotStore::open("memory://given-up", "job").expect("a place");
    let wanted = request(two_partitions(), 1, None);
    wanted.give_up.store(true, std::sync::atomic::Ordering::SeqCst);
    let error = store.write(wanted).expect_err("given up");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(store.list().expect("listed").is_empty());
}

#[test]
fn those_asked_for_stay_and_unfinished_ones_are_cleaned_up() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut store =
        SnapshotStore::open(&directory.path().display().to_string(), "job").expect("a place");
    for number in 1..=5 {
        let kind = if number == 2 { SnapshotKind::Manual } else { SnapshotKind::Periodic };
        store
            .write(WriteRequest { kind, ..request(two_partitions(), number, None) })
            .expect("written");
    }
    let folder = |number: u64| directory.path().join(format!("job/snapshots/{number:010}"));
    let orphan = |number: u64| {
        std::fs::create_dir_all(folder(number)).expect("made");
        std::fs::write(folder(number).join("0000-half.arrow"), "half").expect("written");
    };
    orphan(0);
    orphan(6);
    std::fs::write(directory.path().join("job/snapshots/notes.txt"), "a person's")
        .expect("written");
    assert_eq!(store.retain(2).expect("retained"), [1, 3]);
    let numbers = |store: &SnapshotStore| -> Vec<u64> {
        store.list().expect("listed").iter().map(SnapshotSummary::number).collect()
    };
    assert_eq!(numbers(&store), [2, 4, 5, 6], "6 may be one that is being written");
    assert!(!folder(1).exists() && !folder(0).exists());
    assert!(directory.path().join("job/snapshots/notes.txt").exists());
    assert_eq!(store.next_number().expect("listed"), 7);
    store.write(request(two_partitions(), 7, None)).expect("written");
    assert_eq!(store.clean().expect("cleaned").len(), 1);
    store.delete(2).expect("deleted");
    store.delete(7).expect("deleted");
    assert_eq!(numbers(&store), [4, 5]);
    assert!(!folder(7).exists());
    assert!(Path::new(&folder(5)).exists());
}

#[test]
fn a_damaged_one_is_neither_deleted_nor_counted() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut store =
        SnapshotStore::open(&directory.path().display().to_string(), "job").expect("a place");
    for number in 1..=4 {
        store.write(request(two_partitions(), number, None)).expect("written");
    }
    let folder = |number: u64| directory.path().join(format!("job/snapshots/{number:010}"));
    let table =
        std::fs::read_dir(folder(4)).expect("listed").map(|entry| entry.expect("entry").path());
    let table = table.into_iter().find(|path| path.extension().is_some_and(|e| e == "arrow"));
    std::fs::write(table.expect("a table"), "nonsense").expect("written");
    std::fs::write(folder(2).join("manifest.json"), "nonsense").expect("written");
    let found = store.newest_usable().expect("found");
    assert_eq!(found.snapshot.expect("one is left").header.number, 3);
    assert_eq!(found.passed_over.len(), 1);
    assert_eq!(store.retain(1).expect("retained"), [1]);
    let numbers = |store: &SnapshotStore| -> Vec<u64> {
        store.list().expect("listed").iter().map(SnapshotSummary::number).collect()
    };
    assert_eq!(numbers(&store), [1, 2, 3, 4], "nobody knows what 2 needs of 1");
    assert!(matches!(store.list().expect("listed")[0], SnapshotSummary::Unfinished { number: 1 }));
    store.delete(2).expect("a person may");
    assert_eq!(numbers(&store), [3, 4]);
}

#[test]
fn a_thread_in_the_background_may_write() {
    fn moves<T: Send>() {}
    moves::<SnapshotStore>();
    moves::<WriteRequest>();
}
