//! Whatever call fails while a snapshot is written, kept or cleaned up, and however: afterwards the
//! old one or the new one is found, whole. Never neither, never a mixture. A write that reported
//! success is found after a power loss.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::disk::{self, Disk};
use common::objects::{self, FaultyObjects};
use common::{changes, key, request, rows, sorted_rows, whole};
use object_store::memory::InMemory;
use thalweg_core::Captured;
use thalweg_state::{SnapshotKind, SnapshotStore, WriteRequest, WrittenSnapshot};

fn state(number: u64) -> Vec<Captured> {
    let value = i64::try_from(number).expect("small");
    let many: Vec<_> = (0..200).map(|n| (key(n), value)).collect();
    match number {
        1 => vec![whole(vec![rows(&many)])],
        _ => vec![changes(vec![rows(&many[..20])], vec![])],
    }
}

/// A whole round of a job: write, keep two, clean up.
fn round(store: &mut SnapshotStore, number: u64) -> thalweg_core::Result<WrittenSnapshot> {
    let base = (number > 1).then(|| number - 1);
    let written = store.write(request(state(number), number, base))?;
    store.retain(2)?;
    Ok(written)
}

/// The number of the newest usable snapshot, whose rows are those that were captured.
fn newest(store: &mut SnapshotStore, why: &str) -> u64 {
    let found = store.newest_usable().unwrap_or_else(|error| panic!("{why}: {error}"));
    assert!(found.passed_over.is_empty(), "{why}: {:?}", found.passed_over);
    let snapshot = found.snapshot.unwrap_or_else(|| panic!("{why}: neither is there"));
    let number = snapshot.header.number;
    let mut values = vec![1; 200];
    let newest = i64::try_from(number).expect("small");
    values[..20].fill(newest);
    let mut rows = sorted_rows(snapshot.cut.stages[1].state.table("counts"));
    let place_of = |key: &str| key["key ".len()..].parse::<usize>().expect("a number");
    rows.sort_by_key(|row| place_of(&row.0.1));
    assert_eq!(rows.into_iter().map(|row| row.1).collect::<Vec<_>>(), values, "{why}");
    number
}

/// Resumes after a fault, as another run does: it takes a new number and captures everything.
fn resume(store: &mut SnapshotStore, why: &str) {
    let number = store.next_number().unwrap_or_else(|error| panic!("{why}: {error}"));
    let all: Vec<_> = (0..200).map(|n| (key(n), 7)).collect();
    let wanted = request(vec![whole(vec![rows(&all)])], number, None);
    store.write(wanted).unwrap_or_else(|error| panic!("{why}: {error}"));
    store.retain(1).unwrap_or_else(|error| panic!("{why}: {error}"));
    let left = store.list().expect("listed");
    assert_eq!(left.len(), 1, "{why}: {left:?}");
    let rows = sorted_rows(store.read(number).expect("read").cut.stages[1].state.table("counts"));
    assert!(rows.len() == 200 && rows.iter().all(|row| row.1 == 7), "{why}");
}

fn on_disk(disk: &Disk) -> SnapshotStore {
    SnapshotStore::over_files(Arc::new(disk.clone()), Path::new("/state/job"), "job")
}

fn disk_with_rounds(rounds: u64) -> Disk {
    let disk = Disk::with_folder(Path::new("/state"));
    let mut store = on_disk(&disk);
    for number in 1..=rounds {
        round(&mut store, number).expect("nothing fails yet");
    }
    disk
}

/// The first snapshot makes folders, the second shares files, the fourth has something to delete.
#[test]
fn a_disk_may_fail_at_any_call() {
    let mut cases = 0;
    for before in [1, 3] {
        let calm = disk_with_rounds(before);
        let counted = calm.copy();
        counted.arm(None);
        round(&mut on_disk(&counted), before + 1).expect("nothing fails");
        assert!(counted.calls() > 15);
        for call in 0..counted.calls() {
            for fault in disk::FAULTS {
                for power in [false, true] {
                    fail_on_disk(&calm, before, call, fault, power);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
}

fn fail_on_disk(calm: &Disk, before: u64, call: usize, fault: disk::Fault, power: bool) {
    let why = format!("{fault:?} at call {call} after {before} snapshots, power lost: {power}");
    let disk = calm.copy();
    disk.arm(Some((call, fault)));
    let outcome = round(&mut on_disk(&disk), before + 1);
    disk.arm(None);
    if power {
        disk.lose_power();
    }
    let mut store = on_disk(&disk);
    let found = newest(&mut store, &why);
    assert!(found == before || found == before + 1, "{why}: {found}");
    if outcome.is_ok() {
        assert_eq!(found, before + 1, "{why}: it was reported as written");
    }
    resume(&mut store, &why);
}

#[test]
fn the_first_snapshot_is_there_or_there_is_none() {
    let calm = Disk::with_folder(Path::new("/"));
    let counted = calm.copy();
    round(&mut on_disk(&counted), 1).expect("nothing fails");
    for call in 0..counted.calls() {
        for fault in disk::FAULTS {
            let disk = calm.copy();
            disk.arm(Some((call, fault)));
            let outcome = round(&mut on_disk(&disk), 1);
            disk.arm(None);
            disk.lose_power();
            let found = on_disk(&disk).newest_usable().expect("readable");
            assert!(found.passed_over.is_empty(), "{fault:?} at {call}: {:?}", found.passed_over);
            assert!(found.snapshot.is_some() || outcome.is_err(), "{fault:?} at {call}");
            resume(&mut on_disk(&disk), &format!("{fault:?} at {call}"));
        }
    }
}

#[test]
fn an_object_store_may_fail_at_any_call() {
    let open = |objects: &Arc<FaultyObjects>| {
        SnapshotStore::over_objects(objects.clone(), "faulty://here", "prefix/job", "job")
            .expect("a place")
    };
    let calm = || {
        let inner = Arc::new(InMemory::new());
        let objects = Arc::new(FaultyObjects::new(inner.clone(), None));
        let mut store = open(&objects);
        for number in 1..=3 {
            round(&mut store, number).expect("nothing fails yet");
        }
        inner
    };
    let counted = Arc::new(FaultyObjects::new(calm(), None));
    round(&mut open(&counted), 4).expect("nothing fails");
    for call in 0..counted.calls() {
        for fault in objects::FAULTS {
            let why = format!("{fault:?} at call {call}");
            let inner = calm();
            let faulty = Arc::new(FaultyObjects::new(inner.clone(), Some((call, fault))));
            let outcome = round(&mut open(&faulty), 4);
            let mut store = open(&Arc::new(FaultyObjects::new(inner, None)));
            let found = newest(&mut store, &why);
            assert!(found == 3 || found == 4, "{why}: {found}");
            assert!(outcome.is_err() || found == 4, "{why}: it was reported as written");
            resume(&mut store, &why);
        }
    }
}

#[test]
fn of_two_runs_that_write_the_same_number_one_is_refused() {
    let inner: Arc<InMemory> = Arc::default();
    let open = || {
        SnapshotStore::over_objects(inner.clone(), "objects://here", "job", "job").expect("a place")
    };
    let (mut first, mut second) = (open(), open());
    let slow = move || {
        // The other run is faster, and writes its snapshot while the rows of this one are made.
        first.write(request(state(1), 1, None)).map(|_| thalweg_core::TableRows::default())
    };
    let mut captured = Captured::default();
    captured.add_later("counts", common::schema(), Box::new(slow));
    let error = second.write(request(vec![captured], 1, None)).expect_err("the number is taken");
    assert!(error.help().is_some_and(|help| help.contains("another run")), "{error}");
    assert_eq!(newest(&mut open(), "the first one is whole"), 1);
}

/// Every stretch of 64 bytes of every file, changed, and every file cut short there, or missing.
#[test]
fn damage_anywhere_is_found_named_and_passed_over() {
    let disk = Disk::with_folder(Path::new("/state"));
    let mut store = on_disk(&disk);
    store
        .write(WriteRequest { kind: SnapshotKind::Manual, ..request(state(1), 1, None) })
        .expect("written");
    let old: Vec<PathBuf> = disk.files().into_keys().collect();
    // It shares nothing with the first, so that the first is left whatever happens to it.
    store.write(request(state(1), 2, None)).expect("written");
    let mut cases = 0;
    for (path, bytes) in disk.files().into_iter().filter(|(path, _)| !old.contains(path)) {
        for from in (0..bytes.len()).step_by(64) {
            let to = (from + 64).min(bytes.len());
            let with = |change: &dyn Fn(&mut u8)| {
                let mut damaged = bytes.clone();
                damaged[from..to].iter_mut().for_each(change);
                Some(damaged)
            };
            let mut bit = bytes.clone();
            bit[from + (to - from) / 2] ^= 1 << (from / 64 % 8);
            let longer = [&bytes[..], &bytes[from..to]].concat();
            for damaged in [
                with(&|byte| *byte = !*byte),
                with(&|byte| *byte = 0).filter(|damaged| *damaged != bytes),
                Some(bit),
                Some(bytes[..from].to_vec()),
                Some(longer),
            ] {
                let Some(damaged) = damaged else { continue };
                disk.overwrite(&path, Some(damaged));
                check_damage(&disk, &path);
                cases += 1;
            }
        }
        disk.overwrite(&path, None);
        if path.ends_with("manifest.json") {
            // Without a manifest it is one that was never finished.
            assert_eq!(on_disk(&disk).newest_usable().expect("found").passed_over.len(), 0);
        } else {
            check_damage(&disk, &path);
        }
        disk.overwrite(&path, Some(bytes));
    }
    assert!(cases > 200, "{cases}");
}

fn check_damage(disk: &Disk, path: &Path) {
    let before = disk.files();
    let mut store = on_disk(disk);
    let found = store.newest_usable().expect("the place is fine");
    assert_eq!(found.snapshot.map(|snapshot| snapshot.header.number), Some(1), "{path:?}");
    assert_eq!(found.passed_over.len(), 1);
    assert_eq!(Path::new(&found.passed_over[0].path), path);
    let damage = store.verify(2).expect("it is there");
    assert_eq!(Path::new(&damage[0].path), path, "{damage:?}");
    assert!(store.read(2).expect_err("damaged").to_string().contains(&path.display().to_string()));
    store.retain(1).expect("retained");
    store.clean().expect("cleaned");
    assert_eq!(disk.files(), before, "nothing is deleted");
}
