//! Random changes against lists that are sorted again.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{DataType, RowKind, TableSchema};

use super::reference::{Reference, Row};
use super::{
    FUNCTIONS, batch, changes, check_changes, in_sequence, inserts, lines, operator, spec, table,
};
use crate::sort::SortKey;
use crate::test_kit::{check_damaged_state, check_operator, drive};
use crate::top_n::{RankFunction, TopNSpec};

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sorting {
    /// One integer, the highest first, NULL last.
    Number,
    /// One integer, the lowest first, NULL last.
    NullsLast,
    /// Texts with a common beginning.
    Text,
    /// A text and an integer.
    Both,
    Arrival,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Inserts,
    Retractions,
    Upserts,
}

const SORTINGS: [Sorting; 5] =
    [Sorting::Number, Sorting::NullsLast, Sorting::Text, Sorting::Both, Sorting::Arrival];

fn input() -> TableSchema {
    table(&[
        ("k", DataType::BigInt),
        ("s", DataType::BigInt),
        ("t", DataType::STRING),
        ("u", DataType::BigInt),
        ("v", DataType::BigInt),
    ])
}

fn long_text(number: i64) -> String {
    format!("a beginning that all have in common {number:03}")
}

fn rows(rows: &[Row]) -> RecordBatch {
    let numbers = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Int64Array>())
    };
    let texts: StringViewArray = rows.iter().map(|row| row.1.map(long_text)).collect();
    let columns = vec![
        numbers(|row| row.0),
        numbers(|row| row.1),
        Arc::new(texts),
        numbers(|row| Some(row.2)),
        numbers(|row| Some(row.3)),
    ];
    batch(&input(), columns)
}

fn line(row: &Row) -> String {
    let number = |number: Option<i64>| number.map_or("\\N".to_string(), |n| n.to_string());
    let text = row.1.map_or("\\N".to_string(), long_text);
    format!("{},{},{text},{},{}", number(row.0), number(row.1), row.2, row.3)
}

type SortedBy = fn(&Row) -> (i64, i64);

fn order(sorting: Sorting) -> (Vec<SortKey>, SortedBy) {
    let nulls_last = SortKey { nulls_first: Some(false), ..SortKey::ascending(1) };
    match sorting {
        Sorting::Number => {
            (vec![SortKey::descending(1)], |row| (row.1.map_or(i64::MAX, |s| -s), 0))
        }
        Sorting::NullsLast => (vec![nulls_last], |row| (row.1.unwrap_or(i64::MAX), 0)),
        Sorting::Text => (vec![SortKey::ascending(2)], |row| (row.1.unwrap_or(i64::MIN), 0)),
        Sorting::Both => (vec![SortKey::ascending(2), SortKey::descending(4)], |row| {
            (row.1.unwrap_or(i64::MIN), -row.3)
        }),
        Sorting::Arrival => (vec![], |_| (0, 0)),
    }
}

/// How many keys, sort keys and upsert keys there are, and how many changes of ten take rows back.
struct Domain {
    keys: u64,
    values: u64,
    uniques: u64,
    retracted: u64,
}

fn random_row(domain: &Domain, random: &mut SplitMix64) -> Row {
    let nullable = |number: u64| (number > 0).then_some(number as i64);
    let key = nullable(random.below(domain.keys));
    let value = nullable(random.below(domain.values));
    (key, value, random.below(domain.uniques) as i64, random.below(3) as i64)
}

fn random_changes(
    mode: Mode,
    count: usize,
    domain: &Domain,
    random: &mut SplitMix64,
) -> Vec<(RowKind, Row)> {
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
    let mut changes = Vec::new();
    let mut live: Vec<Row> = Vec::new();
    for _ in 0..count {
        let row = random_row(domain, random);
        let retracts = mode != Mode::Inserts && random.below(10) < domain.retracted;
        if !retracts {
            live.push(row);
            let is_update = mode == Mode::Upserts && random.below(2) == 0;
            changes.push((if is_update { UpdateAfter } else { Insert }, row));
            continue;
        }
        let kind = if random.below(2) == 0 { Delete } else { UpdateBefore };
        // Now and then a row that is not there.
        if live.is_empty() || random.below(10) == 0 {
            changes.push((kind, row));
        } else {
            changes.push((kind, live.swap_remove(random.below(live.len() as u64) as usize)));
        }
    }
    changes
}

struct Case {
    function: RankFunction,
    sorting: Sorting,
    mode: Mode,
    ranks: (u64, u64),
    has_ranks: bool,
    is_keyed: bool,
}

fn check(case: &Case, changelog: &[(RowKind, Row)], everywhere: bool, what: &str) {
    let Case { function, sorting, mode, ranks, has_ranks, is_keyed } = *case;
    let (keys, sort_keys) = order(sorting);
    let top = operator(TopNSpec {
        function,
        from: ranks.0,
        rank_column: has_ranks.then(|| "rn".to_owned()),
        retracts: mode != Mode::Inserts,
        unique: (mode == Mode::Upserts).then(|| vec![3]),
        ..spec(&input(), if is_keyed { &[0] } else { &[] }, keys, ranks.1)
    });
    let (from, to) = (ranks.0 as usize, ranks.1 as usize);
    let is_upsert = mode == Mode::Upserts;
    let mut expected = Reference::new(function, (from, to), has_ranks, is_upsert, sort_keys, line);
    for &(kind, row) in changelog {
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => expected.add(row),
            RowKind::UpdateBefore | RowKind::Delete => expected.retract(row),
        }
    }
    let (kinds, all): (Vec<RowKind>, Vec<Row>) = changelog.iter().copied().unzip();
    let script = match mode {
        Mode::Inserts => inserts(&rows(&all)),
        _ => changes(&rows(&all), &kinds),
    };
    for (bundle_rows, restores) in [(1, false), (7, false), (usize::MAX, false), (5, true)] {
        let options = in_sequence(bundle_rows, restores);
        let driven = drive(&top, &script, &options).expect("a run");
        let actual = lines(&driven);
        for (n, (actual, expected)) in actual.iter().zip(&expected.lines).enumerate() {
            assert_eq!(actual, expected, "{what}, {options:?}: change {n}");
        }
        assert_eq!(actual.len(), expected.lines.len(), "{what}, {options:?}");
        driven.final_rows();
    }
    if everywhere {
        check_damaged_state(&top, &script);
        check_operator(&top, &script);
        check_changes(&top, &script);
    }
}

#[test]
fn changes_are_those_of_lists_that_are_sorted_again() {
    let mut seed = 0;
    for function in FUNCTIONS {
        for sorting in SORTINGS {
            for mode in [Mode::Inserts, Mode::Retractions, Mode::Upserts] {
                for ranks in [(1, 1), (1, 3), (2, 3), (3, u64::MAX / 4)] {
                    for has_ranks in [false, true] {
                        seed += 1;
                        let mut random = SplitMix64::new(seed);
                        let domain = Domain { keys: 4, values: 6, uniques: 7, retracted: 4 };
                        let changelog = random_changes(mode, 120, &domain, &mut random);
                        let case =
                            Case { function, sorting, mode, ranks, has_ranks, is_keyed: true };
                        let what = format!(
                            "seed {seed}, {function:?} {sorting:?} {mode:?} {ranks:?} {has_ranks}"
                        );
                        check(&case, &changelog, seed % 23 == 0, &what);
                    }
                }
            }
        }
    }
}

/// More rows than one chunk holds, with ranks in the middle of them.
#[test]
fn long_lists_keep_their_order() {
    for (seed, function) in (0..).zip(FUNCTIONS) {
        for mode in [Mode::Inserts, Mode::Retractions, Mode::Upserts] {
            for sorting in [Sorting::Number, Sorting::Both] {
                let mut random = SplitMix64::new(seed);
                let domain = Domain { keys: 1, values: 400, uniques: 3000, retracted: 2 };
                let changelog = random_changes(mode, 650, &domain, &mut random);
                let ranks = (270, 275);
                let has_ranks = sorting == Sorting::Both;
                let case = Case { function, sorting, mode, ranks, has_ranks, is_keyed: false };
                // Without keys all rows have the key NULL.
                let what = format!("seed {seed}, {function:?} {sorting:?} {mode:?}");
                check(&case, &changelog, false, &what);
            }
        }
    }
}
