//! Captures of rows that may be retracted hold what has changed, and no more.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, DataType, Extent, Operator, Output, Partition, PartitionContext, Piece, RowKind,
    Stamps, TableSchema,
};

use super::{FUNCTIONS, batch, changes, check_changes, operator, spec, table};
use crate::sort::SortKey;
use crate::test_kit::{check_damaged_state, check_operator};
use crate::top_n::TopNSpec;

fn input() -> TableSchema {
    table(&[("k", DataType::BigInt), ("v", DataType::BigInt), ("id", DataType::BigInt)])
}

fn rows(rows: &[[i64; 3]]) -> RecordBatch {
    let column = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
    let column =
        |at: usize| Arc::new(arrow_array::Int64Array::from(column(at))) as arrow_array::ArrayRef;
    batch(&input(), vec![column(0), column(1), column(2)])
}

/// A changelog in which rows come, are retracted, and take the place of others with their `id`.
fn changelog(random: &mut SplitMix64, is_by_id: bool) -> (Vec<[i64; 3]>, Vec<RowKind>) {
    let mut live: Vec<[i64; 3]> = Vec::new();
    let (mut log, mut kinds) = (Vec::new(), Vec::new());
    for id in 0..300 {
        let key = random.below(4) as i64;
        match random.below(5) {
            0 | 1 if !live.is_empty() => {
                let gone = live.swap_remove(random.below(live.len() as u64) as usize);
                log.push(gone);
                kinds.push(RowKind::Delete);
            }
            2 if is_by_id && !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                // Sometimes it stays where it was.
                live[at][1] += random.below(3) as i64;
                log.push(live[at]);
                kinds.push(RowKind::UpdateAfter);
            }
            _ => {
                live.push([key, random.below(9) as i64, id]);
                log.push(live[live.len() - 1]);
                kinds.push(RowKind::Insert);
            }
        }
    }
    (log, kinds)
}

#[test]
fn changes_put_together_are_the_whole() {
    for seed in 0..12 {
        let mut random = SplitMix64::new(seed);
        let unique = (seed % 2 == 1).then(|| vec![2]);
        let (log, kinds) = changelog(&mut random, unique.is_some());
        let keys: &[usize] = if seed % 3 == 0 { &[] } else { &[0] };
        let top = TopNSpec {
            retracts: true,
            unique,
            function: FUNCTIONS[seed as usize % 3],
            ..spec(&input(), keys, vec![SortKey::descending(1)], 3)
        };
        let script = changes(&rows(&log), &kinds);
        let forever = operator(top.clone());
        check_operator(&forever, &script);
        check_changes(&forever, &script);
        let limited = operator(TopNSpec { state_ttl_ms: Some(60), ..top });
        check_damaged_state(&limited, &script);
        check_changes(&limited, &script);
    }
}

/// What a capture of changes writes: rows, names of rows that have gone, and whether that is all.
fn capture(partition: &mut dyn Partition) -> (usize, usize, Extent) {
    let captured = partition.capture(Extent::Incremental).expect("it is captured");
    let table = captured.tables.into_iter().next().expect("there is a table");
    let rows = (table.rows)().expect("it is read");
    let count = |batches: &[RecordBatch]| batches.iter().map(|batch| batch.num_rows()).sum();
    (count(&rows.rows), count(&rows.removed), table.extent)
}

#[test]
fn captures_follow_what_changes() {
    for unique in [None, Some(vec![2])] {
        let is_by_id = unique.is_some();
        let top = spec(&input(), &[], vec![SortKey::descending(1)], 10);
        let operator = operator(TopNSpec { retracts: true, unique, ..top });
        let mut partition = operator.open(PartitionContext::only()).expect("a partition");
        let mut take = |log: Vec<[i64; 3]>, kind: RowKind| {
            let mut bundle = Bundle::new(rows(&log), Stamps::first());
            bundle.kinds = Some(vec![kind; log.len()].into());
            let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
            let piece = Piece::whole(&bundle, 1);
            partition.rows(piece, &mut output).expect("taken");
            capture(partition.as_mut())
        };
        let row = |id: i64| [0, id * 7919 % 10_000, id];
        let all = take((0..20_000).map(row).collect(), RowKind::Insert);
        assert_eq!(all, (20_000, 0, Extent::Full), "the first");
        let more = take((20_000..20_100).map(row).collect(), RowKind::Insert);
        assert_eq!(more, (100, 0, Extent::Incremental), "rows that came");
        let less = take((50..120).map(row).collect(), RowKind::Delete);
        assert_eq!(less, (0, 70, Extent::Incremental), "rows that went");
        if is_by_id {
            let same = take((200..210).map(row).collect(), RowKind::UpdateAfter);
            assert_eq!(same, (10, 0, Extent::Incremental), "rows that took the place of others");
            let moved = take((200..210).map(|id| [0, -id, id]).collect(), RowKind::UpdateAfter);
            assert_eq!(moved, (10, 10, Extent::Incremental), "rows that moved");
        }
    }
}
