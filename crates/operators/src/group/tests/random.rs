//! Random changelogs against the reference: NULLs, duplicates, keys that end and start from
//! scratch, retractions in any order.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringViewArray, UInt32Array,
};
use arrow_select::take::take_record_batch;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{DataType, RowKind, TableSchema};

use super::{
    GroupSpec, batch, call, changes, distinct, filtered, inserts, operator, reference, spec, table,
};
use crate::aggregate::AggregateCall;
use crate::group::GroupAggregate;
use crate::reference::doubles::wild_double;
use crate::test_kit::{
    DriveOptions, assert_same_rows, check_captures, check_operator, drive, rows_of,
};
use crate::window::WindowAggregate;

fn input() -> TableSchema {
    table(&[
        ("k", DataType::BigInt),
        ("s", DataType::STRING),
        ("v", DataType::BigInt),
        ("d", DataType::Double),
        ("p", DataType::Decimal(10, 2)),
        ("f", DataType::Boolean),
    ])
}

fn rows(random: &mut SplitMix64, count: usize) -> RecordBatch {
    const TEXTS: [&str; 5] =
        ["", "b", "a text of more than twelve bytes", "a text of more than", "z"];
    let mut some = |bound: u64| (random.below(8) > 0).then(|| random.below(bound) as i64);
    let mut all = |bound: u64| (0..count).map(|_| some(bound)).collect::<Vec<_>>();
    let (keys, texts, values) = (all(4), all(5), all(7));
    let (doubles, prices, conditions) = (all(6), all(5), all(2));
    let prices: Decimal128Array =
        prices.into_iter().map(|price| price.map(|price| i128::from(price * 125 - 250))).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(keys)),
        Arc::new(
            texts
                .into_iter()
                .map(|at| at.map(|at| TEXTS[at as usize]))
                .collect::<StringViewArray>(),
        ),
        Arc::new(values.into_iter().map(|v| v.map(|v| v - 3)).collect::<Int64Array>()),
        Arc::new(
            doubles.into_iter().map(|v| v.map(|v| v as f64 * 0.25 - 0.5)).collect::<Float64Array>(),
        ),
        Arc::new(prices.with_precision_and_scale(10, 2).unwrap()),
        Arc::new(conditions.into_iter().map(|v| v.map(|v| v == 1)).collect::<BooleanArray>()),
    ];
    batch(&input(), columns)
}

/// Rows and retractions of rows that are there, in any order; now and then all that are there go.
fn changelog(random: &mut SplitMix64, count: usize) -> (RecordBatch, Vec<RowKind>) {
    let fresh = rows(random, count);
    let (mut live, mut picks, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut shrinking) = (0, false);
    while picks.len() < count {
        if random.below(20) == 0 {
            shrinking = !shrinking;
        }
        let either = |random: &mut SplitMix64, a, b| if random.below(2) == 0 { a } else { b };
        if !live.is_empty() && random.below(10) < if shrinking { 8 } else { 3 } {
            picks.push(live.swap_remove(random.below(live.len() as u64) as usize));
            kinds.push(either(random, RowKind::UpdateBefore, RowKind::Delete));
        } else {
            live.push(next);
            picks.push(next);
            kinds.push(either(random, RowKind::UpdateAfter, RowKind::Insert));
            next += 1;
        }
    }
    (take_record_batch(&fresh, &UInt32Array::from(picks)).unwrap(), kinds)
}

fn calls() -> Vec<AggregateCall> {
    let input = input();
    let of = |name, argument| call(&input, name, argument);
    let mut calls = vec![of("COUNT", None), filtered(of("COUNT", None), 5)];
    for name in ["COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"] {
        for argument in [2, 3, 4] {
            calls.push(of(name, Some(argument)));
        }
        calls.push(distinct(of(name, Some(2))));
        calls.push(filtered(distinct(of(name, Some(4))), 5));
    }
    for name in ["MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "COUNT"] {
        for argument in [1, 5] {
            calls.push(of(name, Some(argument)));
            calls.push(filtered(of(name, Some(argument)), 5));
            calls.push(distinct(of(name, Some(argument))));
        }
    }
    for (name, argument) in [("LISTAGG", 1), ("ARRAY_AGG", 1), ("ARRAY_AGG", 2), ("PERCENTILE", 2)]
    {
        calls.push(of(name, Some(argument)));
        calls.push(filtered(of(name, Some(argument)), 5));
        calls.push(distinct(of(name, Some(argument))));
    }
    calls.extend([
        of("VAR_POP", Some(2)),
        of("VAR_SAMP", Some(2)),
        distinct(of("VAR_POP", Some(2))),
    ]);
    calls
}

/// The exact sequence in one partition, whatever the bundles; in several what `check_operator`
/// asks, and captures between bundles of several sizes.
fn check(spec: GroupSpec, batch: &RecordBatch, kinds: Option<&[RowKind]>, what: &str) {
    check_with(spec, batch, kinds, &[(1, 1), (2, 7), (3, 100)], what);
}

/// The same, with captures for these seeds between bundles of that many rows.
fn check_with(
    spec: GroupSpec,
    batch: &RecordBatch,
    kinds: Option<&[RowKind]>,
    captures: &[(u64, usize)],
    what: &str,
) {
    let all_inserts = vec![RowKind::Insert; batch.num_rows()];
    let rows = rows_of(std::slice::from_ref(batch));
    let mut expected = reference::changes(&spec, &rows, kinds.unwrap_or(&all_inserts));
    let script = kinds.map_or_else(|| inserts(batch), |kinds| changes(batch, kinds));
    let operator = operator(spec);
    if operator.emits_inserts_only() {
        expected.iter_mut().for_each(|change| drop(change.remove(0)));
    }
    for bundle_rows in [1, 2, 7, 100, usize::MAX] {
        let options = DriveOptions { bundle_rows, empty_bundles: true, ..DriveOptions::default() };
        let driven = drive(&operator, &script, &options).expect("a run");
        assert_same_rows(
            &driven.changes(),
            &expected,
            &format!("{what}, bundles of {bundle_rows}"),
        );
    }
    check_operator(&operator, &script);
    for &(seed, bundle_rows) in captures {
        let options = DriveOptions { partitions: 3, bundle_rows, seed, ..DriveOptions::default() };
        check_captures(&operator, &script, &options);
    }
}

#[test]
fn changes_are_those_of_the_reference() {
    let input = input();
    for seed in 0..3 {
        let random = &mut SplitMix64::new(seed);
        let (batch, kinds) = changelog(random, 120);
        let fresh = rows(random, 60);
        for keys in [&[0][..], &[1], &[0, 1], &[3], &[]] {
            let what = format!("seed {seed}, keys {keys:?}");
            let plain = spec(&input, keys, calls());
            // All calls together have hundreds of tables, so few captures are taken here; each call
            // alone is captured between any two rows.
            let captures = [(2, 31), (3, 100)];
            check_with(plain.clone(), &fresh, None, &captures, &what);
            let retracting = GroupSpec { retracts: true, ..plain };
            check_with(retracting.clone(), &batch, Some(&kinds), &captures, &what);
            check_with(retracting, &fresh, None, &captures, &what);
        }
    }
}

/// Each call alone: what it says about changes is not hidden by another's.
#[test]
fn each_call_counts_its_own_changes() {
    let input = input();
    let random = &mut SplitMix64::new(99);
    let (batch, kinds) = changelog(random, 120);
    let fresh = rows(random, 120);
    let estimate = call(&input, "APPROX_COUNT_DISTINCT", Some(1));
    for call in calls().into_iter().chain([estimate]) {
        let what = format!("{call:?}");
        let is_estimate = call.function.name() == "APPROX_COUNT_DISTINCT";
        let plain = spec(&input, &[0], vec![call]);
        check(plain.clone(), &fresh, None, &what);
        if is_estimate {
            let refused = GroupAggregate::new(GroupSpec { retracts: true, ..plain });
            assert!(refused.is_err_and(|error| error.to_string().contains("retracted")));
            continue;
        }
        check(GroupSpec { retracts: true, ..plain }, &batch, Some(&kinds), &what);
    }
}

/// A value that is retracted leaves no trace, be it huge, tiny, infinite or no number.
#[test]
fn doubles_of_any_kind_are_retracted() {
    let input = input();
    let of = |name| call(&input, name, Some(3));
    let names = ["SUM", "AVG", "VAR_POP", "VAR_SAMP", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"];
    let calls: Vec<AggregateCall> =
        names.map(of).into_iter().chain([distinct(of("SUM")), filtered(of("AVG"), 5)]).collect();
    for seed in 0..6 {
        let random = &mut SplitMix64::new(seed);
        let (batch, kinds) = changelog(random, 120);
        let any: Vec<f64> = (0..6).map(|_| wild_double(random)).collect();
        let any = |simple: f64| any[(simple * 4.0 + 2.0) as usize];
        let simple = batch.column(3).as_primitive::<Float64Type>();
        let mut columns = batch.columns().to_vec();
        columns[3] = Arc::new(simple.unary::<_, Float64Type>(any));
        let batch = super::batch(&input, columns);
        for keys in [&[0][..], &[]] {
            let spec = GroupSpec { retracts: true, ..spec(&input, keys, calls.clone()) };
            check(spec, &batch, Some(&kinds), &format!("seed {seed}, keys {keys:?}"));
        }
    }
}

#[test]
fn distinct_rows_come_and_go() {
    let input = input();
    for seed in 0..10 {
        let random = &mut SplitMix64::new(seed);
        let (batch, kinds) = changelog(random, 300);
        for keys in [&[0][..], &[1], &[1, 5, 2]] {
            let what = format!("seed {seed}, keys {keys:?}");
            let plain = spec(&input, keys, vec![]);
            check(plain.clone(), &rows(random, 200), None, &what);
            check(GroupSpec { retracts: true, ..plain }, &batch, Some(&kinds), &what);
        }
    }
}

/// What is left at the end is the same, however rows are cut; and no key changes twice in a piece.
#[test]
fn mini_batches_leave_the_same_table() {
    let input = input();
    for seed in 0..10 {
        let random = &mut SplitMix64::new(seed);
        let (batch, kinds) = changelog(random, 300);
        let plain = GroupSpec { retracts: true, ..spec(&input, &[0, 1], calls()) };
        let script = changes(&batch, &kinds);
        let options = DriveOptions::default();
        let expected = drive(&operator(plain.clone()), &script, &options).expect("a run");
        let net = operator(GroupSpec { mini_batch: true, ..plain });
        for bundle_rows in [1, 3, 20, 1000] {
            let options = DriveOptions { bundle_rows, ..DriveOptions::default() };
            let driven = drive(&net, &script, &options).expect("a run");
            let what = format!("seed {seed}, bundles of {bundle_rows}");
            assert_same_rows(&driven.final_rows(), &expected.final_rows(), &what);
            for batch in rows_per_batch(&driven) {
                assert!(batch <= 2 * 30, "{what}: at most two rows per key");
            }
        }
    }
}

fn rows_per_batch(driven: &crate::test_kit::Driven) -> Vec<usize> {
    driven.emitted.iter().map(RecordBatch::num_rows).collect()
}

/// In batch mode results are given once: those that are left of the changes. LAST_VALUE(DISTINCT …)
/// is not given so: here it passes over values that have come before.
#[test]
fn results_given_once_are_what_is_left_of_changes() {
    let mut random = SplitMix64::new(77);
    let mut all = calls();
    all.retain(|call| !(call.distinct && call.function.name() == "LAST_VALUE"));
    let (exact, others): (Vec<_>, Vec<_>) = all.into_iter().partition(AggregateCall::is_exact);
    assert!(exact.len() > 20 && others.len() > 10);
    for count in [0, 1, 80] {
        let batch = rows(&mut random, count);
        for keys in [&[][..], &[0], &[1], &[0, 1], &[2, 5]] {
            for calls in [&exact, &others] {
                let once = WindowAggregate::of_whole(keys.to_vec(), calls.clone(), input());
                let once = once.expect("a valid specification");
                let left = check_operator(&once, &inserts(&batch));
                assert!(left.kinds.iter().all(Option::is_none), "rows that stay");
                let changing = operator(spec(&input(), keys, calls.clone()));
                let options = DriveOptions::default();
                let changes = drive(&changing, &inserts(&batch), &options).expect("a run");
                assert_same_rows(
                    &left.final_rows(),
                    &changes.final_rows(),
                    &format!("{count} rows by {keys:?}"),
                );
                for (seed, bundle_rows) in [(1, 1), (2, 7)] {
                    let partitions = 3;
                    let options =
                        DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
                    check_captures(&once, &inserts(&batch), &options);
                }
            }
        }
    }
}

/// An aggregate without keys has a result where nothing comes, and no other.
#[test]
fn a_result_of_nothing_is_given_where_nothing_comes() {
    let random = &mut SplitMix64::new(78);
    let all = calls();
    let (exact, others): (Vec<_>, Vec<_>) = all.into_iter().partition(AggregateCall::is_exact);
    for calls in [exact, others] {
        let once = || WindowAggregate::of_whole(vec![], calls.clone(), input()).expect("it fits");
        // Any row will do: that of a few others.
        let others = drive(&once(), &inserts(&rows(random, 5)), &DriveOptions::default());
        let row = others.expect("a run").emitted.remove(0);
        let otherwise = once().or_else(row.clone()).expect("no window is open");
        let given = check_operator(&otherwise, &[]).final_rows();
        assert_same_rows(&given, &rows_of(&[row]), "nothing came");
        let batch = rows(random, 40);
        let given = check_operator(&otherwise, &inserts(&batch)).final_rows();
        let wanted = check_operator(&once(), &inserts(&batch)).final_rows();
        assert_same_rows(&given, &wanted, "rows came");
        assert_eq!(given.len(), 1);
        for partitions in [1, 3] {
            let options = DriveOptions { partitions, bundle_rows: 7, ..DriveOptions::default() };
            check_captures(&otherwise, &inserts(&batch), &options);
            check_captures(&otherwise, &[], &options);
        }
    }
}
