//! Snapshots in what speaks S3: written, read, passed over, deleted, and of two runs that write the
//! same number one is refused. Where the server is, the usual variables say (CONTRIBUTING.md has a
//! server for this machine):
//!
//! ```text
//! AWS_ENDPOINT=http://127.0.0.1:5000 AWS_ALLOW_HTTP=true AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=x
//! \
//!   AWS_SECRET_ACCESS_KEY=x THALWEG_S3_BUCKET=thalweg cargo test -p thalweg-state --features s3
//!   --test s3 -- --ignored
//! ```
#![cfg(feature = "s3")]

mod common;

use common::{changes, key, request, rows, sorted_rows, whole};
use thalweg_core::Captured;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_state::SnapshotStore;

/// A place in the bucket that nobody has used before.
fn location(test: &str) -> String {
    let bucket = std::env::var("THALWEG_S3_BUCKET").expect("THALWEG_S3_BUCKET names a bucket");
    format!("s3://{bucket}/tests/{test}-{}-{}", std::process::id(), SystemClock::new().wall_ms())
}

fn open(location: &str) -> SnapshotStore {
    SnapshotStore::open(location, "job").expect("the variables say where")
}

fn many(value: i64) -> Vec<Captured> {
    let rows_of: Vec<_> = (0..2_000).map(|n| (key(n), value)).collect();
    vec![whole(vec![rows(&rows_of)])]
}

#[test]
#[ignore = "needs a server"]
fn snapshots_are_kept_in_a_bucket() {
    let location = location("kept");
    let mut store = open(&location);
    assert!(store.list().expect("an empty place").is_empty());
    store.write(request(many(1), 1, None)).expect("written");
    let few: Vec<_> = (0..20).map(|n| (key(n), 2)).collect();
    store.write(request(vec![changes(vec![rows(&few)], vec![])], 2, Some(1))).expect("written");

    // Another run finds the newest, with the rows of both.
    let mut other = open(&location);
    let found = other.newest_usable().expect("found");
    let snapshot = found.snapshot.expect("one is whole");
    assert_eq!((snapshot.header.number, found.passed_over.len()), (2, 0));
    let found = sorted_rows(snapshot.cut.stages[1].state.table("counts"));
    assert_eq!(found.len(), 2_000);
    assert_eq!(found.iter().filter(|row| row.1 == 2).count(), 20);
    assert!(other.verify(2).expect("it is there").is_empty());
    assert_eq!(other.next_number().expect("a number"), 3);

    other.write(request(many(3), 3, None)).expect("written");
    other.retain(1).expect("older ones go");
    assert_eq!(open(&location).list().expect("listed").len(), 1);
}

#[test]
#[ignore = "needs a server"]
fn of_two_runs_that_write_the_same_number_one_is_refused() {
    let location = location("twice");
    open(&location).write(request(many(1), 1, None)).expect("written");
    // It asks for no listing, so that only the server can know.
    let error = open(&location).write(request(many(2), 1, None)).expect_err("the number is taken");
    assert!(error.help().is_some(), "{error}");
    let newest = open(&location).newest_usable().expect("found").snapshot.expect("the first");
    assert!(sorted_rows(newest.cut.stages[1].state.table("counts")).iter().all(|row| row.1 == 1));
}
