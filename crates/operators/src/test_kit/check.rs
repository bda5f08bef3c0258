//! Running in many ways and comparing.

use arrow_array::RecordBatch;
use thalweg_core::operator::Part;
use thalweg_core::{
    Bundle, Error, Extent, Operator, PartitionContext, Result, Stamps, Transform, WatermarkBefore,
};

use super::compare::{assert_same_rows, sorted};
use super::damage::check_damaged;
use super::input::{Action, Cut, actions, split_rows};
use super::values::rows_of;
use super::{DriveOptions, Driven, Driver, Event, drive};

const BUNDLE_ROWS: [usize; 4] = [1, 7, 1000, usize::MAX];
const PARTITIONS: [usize; 3] = [1, 2, 5];

/// Runs an operator over a script one row at a time and in bulk, with several numbers of
/// partitions, with time that is always up, with empty bundles, and early where it may; returns the
/// plainest run.
///
/// # Panics
/// If a run fails or differs from the plainest: a singleton in the sequence of its rows, others in
/// the multiset.
pub fn check_operator(operator: &dyn Operator, script: &[Event]) -> Driven {
    let plain = drive(operator, script, &DriveOptions::default())
        .unwrap_or_else(|error| panic!("{}, plainest run: {error}", operator.name()));
    let mut seed = 1;
    for bundle_rows in BUNDLE_ROWS {
        for partitions in PARTITIONS {
            for refuse in [false, true] {
                let options = DriveOptions {
                    partitions,
                    bundle_rows,
                    seed,
                    refuse,
                    early: seed % 3 != 0,
                    empty_bundles: seed % 2 == 0,
                    ..DriveOptions::default()
                };
                seed += 1;
                check_variant(operator, script, &options, &plain);
                if captures_state(operator) {
                    let options = DriveOptions { restores: true, ..options };
                    check_variant(operator, script, &options, &plain);
                }
            }
        }
    }
    plain
}

/// Runs an operator over a script but for what follows the last rows, and gives what it captures
/// back with one column after the other spoilt (see [`check_damaged`]).
///
/// # Panics
/// If the run fails, or as [`check_damaged`].
pub fn check_damaged_state(operator: &dyn Operator, script: &[Event]) {
    let what = |error: Error| -> Driver<'_> { panic!("{}: {error}", operator.name()) };
    let mut driver = driven_to_last_rows(operator, script).unwrap_or_else(what);
    check_damaged(operator, &mut driver.partitions);
}

fn driven_to_last_rows<'a>(operator: &'a dyn Operator, script: &[Event]) -> Result<Driver<'a>> {
    let mut driver = Driver::new(operator, script, &DriveOptions::default())?;
    let cut = Cut { bundle_rows: 100, empty_bundles: false, early: false };
    let actions = actions(script, &cut, &mut driver.random);
    let last = actions.iter().rposition(|action| matches!(action, Action::Rows(_))).unwrap_or(0);
    for action in actions.into_iter().take(last + 1) {
        match action {
            Action::Rows(bundle) => driver.rows(&bundle)?,
            Action::Watermark(watermark) => driver.watermark(watermark, Vec::new())?,
        }
    }
    Ok(driver)
}

fn captures_state(operator: &dyn Operator) -> bool {
    operator.open(PartitionContext::only()).is_ok_and(|mut open| open.capture(Extent::Full).is_ok())
}

fn check_variant(
    operator: &dyn Operator,
    script: &[Event],
    options: &DriveOptions,
    plain: &Driven,
) {
    let what = format!("{} with {options:?}", operator.name());
    let driven = drive(operator, script, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let order = |rows| if operator.is_singleton() { rows } else { sorted(rows) };
    assert_same_rows(&order(driven.changes()), &order(plain.changes()), &what);
    let late = |driven: &Driven| order(rows_of(&driven.late_rows));
    assert_same_rows(&late(&driven), &late(plain), &format!("{what}, late"));
    let counts = |driven: &Driven| (driven.accepted, driven.late, driven.partly_late);
    assert_eq!(counts(&driven), counts(plain), "{what}: accepted, late, partly late");
}

/// Runs a transform over rows cut into bundles of at most this many; returns what came out and its
/// stamps, one per bundle.
///
/// # Panics
/// If the transform changes a stamp that it must keep.
pub fn drive_transform(
    transform: &dyn Transform,
    batch: &RecordBatch,
    watermark_before: &WatermarkBefore,
    bundle_rows: usize,
) -> Result<Vec<Bundle>> {
    drive_in_parts(transform, batch, watermark_before, (bundle_rows, usize::MAX))
}

/// The same in parts, where there is room for this many bytes.
fn drive_in_parts(
    transform: &dyn Transform,
    batch: &RecordBatch,
    watermark_before: &WatermarkBefore,
    (bundle_rows, room_bytes): (usize, usize),
) -> Result<Vec<Bundle>> {
    let mut results = Vec::new();
    for (serial, (rows, stamps)) in
        split_rows(batch, watermark_before, bundle_rows).into_iter().enumerate()
    {
        let serial = serial as u64;
        let stamps = Stamps {
            lane: 3,
            epoch: 5,
            ordinal: serial,
            serial,
            watermark_before: stamps,
            ..Stamps::first()
        };
        let mut part = transform.begin_parts(Bundle::new(rows, stamps), room_bytes)?;
        loop {
            let Part { bundle: result, rest } = part;
            let kept = &result.stamps;
            assert_eq!((kept.lane, kept.epoch, kept.ordinal, kept.serial), (3, 5, serial, serial));
            if let WatermarkBefore::Rows(rows) = &kept.watermark_before {
                assert_eq!(rows.len(), result.num_rows(), "one watermark per row that is left");
            }
            results.push(result);
            let Some(rest) = rest else { break };
            part = transform.next_part(rest, room_bytes)?;
        }
    }
    Ok(results)
}

/// Runs a transform over one row at a time and in bulk; returns the rows and their watermarks.
///
/// # Panics
/// If a run fails, or if the size of the bundles changes the rows, their order, their watermarks or
/// their schema.
pub fn check_transform(
    transform: &dyn Transform,
    batch: &RecordBatch,
    watermark_before: &WatermarkBefore,
) -> (RecordBatch, Vec<i64>) {
    let run = |bundle_rows, room_bytes| {
        let how = (bundle_rows, room_bytes);
        let bundles = drive_in_parts(transform, batch, watermark_before, how)
            .unwrap_or_else(|error| panic!("{}: {error}", transform.name()));
        let stamps = bundles.iter().flat_map(stamps_of).collect::<Vec<i64>>();
        let batches: Vec<RecordBatch> = bundles.into_iter().map(|bundle| bundle.batch).collect();
        (batches, stamps)
    };
    let (mut plain, plain_stamps) = run(usize::MAX, usize::MAX);
    for (bundle_rows, room_bytes) in
        BUNDLE_ROWS.into_iter().flat_map(|rows| [(rows, usize::MAX), (rows, 1), (rows, 100)])
    {
        let what = format!(
            "{} in bundles of {bundle_rows}, parts of {room_bytes} bytes",
            transform.name()
        );
        let (batches, stamps) = run(bundle_rows, room_bytes);
        assert_same_rows(&rows_of(&batches), &rows_of(&plain), &what);
        assert_eq!(stamps, plain_stamps, "{what}: watermarks");
        assert!(batches.iter().all(|b| b.schema() == plain[0].schema()), "{what}: schema");
    }
    (plain.swap_remove(0), plain_stamps)
}

fn stamps_of(bundle: &Bundle) -> Vec<i64> {
    (0..bundle.num_rows()).map(|row| bundle.stamps.watermark_before.at(row).0).collect()
}
