//! Places, state that goes with its keys, processing time, and users' functions.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use thalweg_core::shim::{ManualClock, SharedClock};
use thalweg_core::{
    Bundle, ColumnType, DataType, Error, ErrorKind, Extent, Operator, Output, Partition,
    PartitionContext, Piece, Place, Result, RowKind, Stamps, TableSchema,
};

use super::{GroupSpec, batch, call, changes, distinct, lines, lines_of, operator, spec, table};
use crate::aggregate::{AggregateCall, AggregateFunction, UserAccumulator, UserAggregate};
use crate::group::GroupAggregate;
use crate::test_kit::{DriveOptions, check_operator, drive};

fn input() -> TableSchema {
    table(&[("k", DataType::BigInt), ("v", DataType::BigInt)])
}

fn rows(keys: &[i64], values: &[i64]) -> RecordBatch {
    let column = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    batch(&input(), vec![column(keys), column(values)])
}

/// A partition with a clock that the test moves.
struct Clocked {
    operator: GroupAggregate,
    partition: Box<dyn Partition>,
    clock: Arc<ManualClock>,
    /// Another partition continues with what this one captured, before each piece.
    restores: bool,
}

impl Clocked {
    fn new(spec: GroupSpec) -> Self {
        let operator = operator(spec);
        let partition = operator.open(PartitionContext::only()).expect("a partition");
        Clocked { operator, partition, clock: Arc::default(), restores: false }
    }
    fn restore(&mut self) {
        let captured = self.partition.capture(Extent::Full).expect("a capture");
        self.partition = self.operator.open(PartitionContext::only()).expect("a partition");
        self.partition.restore(&captured.into_restored().expect("rows")).expect("it fits");
    }
    fn pass_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
    fn rows(&mut self, batch: RecordBatch, kinds: Option<&[RowKind]>) -> Output {
        if self.restores {
            self.restore();
        }
        let mut bundle = Bundle::new(batch, Stamps::first());
        bundle.kinds = kinds.map(Arc::from);
        let mut output = Output::new(Arc::clone(&self.clock) as SharedClock, u64::MAX);
        let piece = Piece::whole(&bundle, 1);
        self.partition.rows(piece, &mut output).expect("taken");
        output
    }
    fn lines(&mut self, batch: RecordBatch, kinds: Option<&[RowKind]>) -> Vec<String> {
        let output = self.rows(batch, kinds);
        output.emitted.iter().flat_map(|e| lines_of(&e.batch, e.kinds.as_ref())).collect()
    }
}

fn sum_per_key() -> GroupSpec {
    spec(&input(), &[0], vec![call(&input(), "SUM", Some(1))])
}

#[test]
fn changes_stand_where_their_rows_stand() {
    let causes = |spec: GroupSpec| {
        let output = Clocked::new(spec).rows(rows(&[7, 8, 7, 8, 7], &[1, 1, 0, 2, 3]), None);
        match &output.emitted[0].place {
            Place::Caused(causes) => causes.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(causes(sum_per_key()), [0, 1, 3, 3, 4, 4], "row 2 adds nothing");
    assert_eq!(causes(GroupSpec { mini_batch: true, ..sum_per_key() }), [3, 4]);
}

#[test]
fn a_mini_batch_gives_net_changes() {
    use RowKind::{Delete, Insert};
    let mut net = Clocked::new(GroupSpec { mini_batch: true, retracts: true, ..sum_per_key() });
    let first = net.lines(
        rows(&[1, 2, 1, 3, 3], &[5, 6, 7, 1, 1]),
        Some(&[Insert, Insert, Insert, Insert, Delete]),
    );
    assert_eq!(first, ["+I,2,6", "+I,1,12"], "what comes and goes is not seen");
    let second =
        net.lines(rows(&[1, 1, 2, 2], &[1, 1, 6, 9]), Some(&[Insert, Delete, Delete, Insert]));
    assert_eq!(second, ["-U,2,6", "+U,2,9"], "what is the same again is not seen");
    let third = net.lines(rows(&[2, 4], &[9, 1]), Some(&[Delete, Delete]));
    assert_eq!(third, ["-D,2,9"]);
}

/// With ever-new keys that go again, the state stays as large as what lives at once.
#[test]
fn state_goes_with_its_keys() {
    let input = input();
    let of = |name| call(&input, name, Some(1));
    let calls = vec![of("COUNT"), of("MAX"), of("LAST_VALUE"), distinct(of("SUM"))];
    let spec = GroupSpec { retracts: true, ..spec(&input, &[0], calls) };
    let mut partition = Clocked::new(spec);
    let mut bytes = Vec::new();
    for round in 0..200 {
        let keys: Vec<i64> = (0..100).map(|key| round * 100 + key).collect();
        partition.rows(rows(&keys, &keys), None);
        assert_eq!(partition.partition.state_keys(), Some(100));
        let gone = partition.lines(rows(&keys, &keys), Some(&[RowKind::Delete; 100]));
        assert_eq!(gone.len(), 100);
        assert_eq!(partition.partition.state_keys(), Some(0));
        bytes.push(partition.partition.state_bytes());
    }
    assert!(bytes[199] <= 2 * bytes[10], "{} after 10 rounds, {} after 200", bytes[10], bytes[199]);
}

#[test]
fn retractions_for_unknown_keys_are_ignored() {
    use RowKind::{Delete, Insert, UpdateBefore};
    let spec = GroupSpec { retracts: true, ..sum_per_key() };
    let script = changes(
        &rows(&[1, 2, 1, 1, 1], &[5, 5, 5, 5, 5]),
        &[Delete, UpdateBefore, Insert, Delete, Delete],
    );
    let driven = check_operator(&operator(spec), &script);
    assert_eq!(lines(&driven), ["+I,1,5", "-D,1,5"]);
}

/// A value that is not there leaves a multiset as it is.
#[test]
fn values_that_are_not_there_are_ignored() {
    use RowKind::{Delete, Insert};
    let input = input();
    let of = |name| call(&input, name, Some(1));
    let calls =
        vec![of("MIN"), of("LAST_VALUE"), distinct(of("COUNT")), call(&input, "COUNT", None)];
    let spec = GroupSpec { retracts: true, ..spec(&input, &[0], calls) };
    let mut partition = Clocked::new(spec);
    partition.rows(rows(&[1, 1], &[5, 6]), None);
    let changes = partition.lines(rows(&[1, 1], &[9, 4]), Some(&[Delete, Insert]));
    assert_eq!(changes, ["-U,1,5,6,2,2", "+U,1,5,6,2,1", "-U,1,5,6,2,1", "+U,1,4,4,3,2"]);
}

/// A retraction of another value than came leaves something in every state; a group that begins
/// again, in the same bundle or a later one, must not see it.
#[test]
fn what_a_group_left_behind_is_not_seen_by_the_next() {
    use RowKind::{Delete, Insert};
    let input = input();
    let of = |name| call(&input, name, Some(1));
    let mut calls = ["SUM", "AVG", "MIN", "FIRST_VALUE", "COUNT", "VAR_POP"].map(of).to_vec();
    calls.extend([distinct(of("COUNT")), distinct(of("SUM"))]);
    let spec = GroupSpec { retracts: true, ..spec(&input, &[0], calls) };
    let script = changes(&rows(&[1, 1, 1, 1], &[5, 9, 7, 5]), &[Insert, Delete, Insert, Insert]);
    let driven = check_operator(&operator(spec), &script);
    let expected = [
        "+I,1,5,5,5,5,1,0,1,5",
        "-D,1,5,5,5,5,1,0,1,5",
        "+I,1,7,7,7,7,1,0,1,7",
        "-U,1,7,7,7,7,1,0,1,7",
        "+U,1,12,6,5,7,2,1,2,12",
    ];
    assert_eq!(lines(&driven), expected);
}

#[test]
fn keys_without_rows_for_long_are_forgotten() {
    let spec = GroupSpec { state_ttl_ms: Some(1000), retracts: true, ..sum_per_key() };
    for restores in [false, true] {
        check_forgotten(Clocked { restores, ..Clocked::new(spec.clone()) });
    }
}

fn check_forgotten(mut partition: Clocked) {
    assert_eq!(partition.lines(rows(&[1, 2], &[1, 1]), None), ["+I,1,1", "+I,2,1"]);
    partition.pass_ms(600);
    let same = partition.lines(rows(&[1], &[0]), None);
    assert_eq!(same, ["-U,1,1", "+U,1,1"], "with a TTL updates leave that change nothing");
    partition.pass_ms(600);
    assert_eq!(partition.lines(rows(&[1], &[2]), None), ["-U,1,1", "+U,1,3"]);
    let late = partition.lines(rows(&[2], &[1]), Some(&[RowKind::Delete]));
    assert!(late.is_empty(), "key 2 was forgotten: {late:?}");
    partition.pass_ms(1000);
    assert_eq!(partition.lines(rows(&[1, 1], &[4, 1]), None), ["+I,1,4", "-U,1,4", "+U,1,5"]);
}

/// Sweeps find keys that no row reaches again, some at each call.
#[test]
fn sweeps_free_what_no_row_reaches() {
    let spec = GroupSpec { state_ttl_ms: Some(1000), ..sum_per_key() };
    let mut partition = Clocked::new(spec);
    let mut most = 0;
    for round in 0..300 {
        let keys: Vec<i64> = (0..50).map(|key| round * 50 + key).collect();
        partition.rows(rows(&keys, &keys), None);
        partition.pass_ms(100);
        most = most.max(partition.partition.state_bytes());
        if round == 100 {
            most = 0;
        }
    }
    // Ten rounds live at once, and about as many wait for the sweep: 15,000 keys would take more.
    assert!(most < 200_000, "{most} bytes");
}

/// Lists have no typed loop: they go row by row, or by number where rows are retracted.
#[test]
fn nested_values_have_a_first_and_a_last() {
    use RowKind::{Delete, Insert};
    let lists = DataType::Array(Box::new(DataType::Int.nullable()));
    let input = table(&[("k", DataType::BigInt), ("v", lists)]);
    let values =
        [Some(1), None, Some(2), Some(1)].map(|value| value.map(|value| vec![Some(value)]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1; 4])),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(values)),
    ];
    let rows = batch(&input, columns);
    let calls = ["FIRST_VALUE", "LAST_VALUE"].map(|name| call(&input, name, Some(1))).to_vec();
    let plain = spec(&input, &[0], calls);
    let driven = check_operator(&operator(plain.clone()), &super::inserts(&rows));
    let expected = ["+I,1,[1],[1]", "-U,1,[1],[1]", "+U,1,[1],[2]", "-U,1,[1],[2]", "+U,1,[1],[1]"];
    assert_eq!(lines(&driven), expected);
    let spec = GroupSpec { retracts: true, ..plain };
    let script = changes(&rows, &[Insert, Insert, Insert, Delete]);
    let driven = check_operator(&operator(spec), &script);
    let expected = ["+I,1,[1],[1]", "-U,1,[1],[1]", "+U,1,[1],[2]", "-U,1,[1],[2]", "+U,1,[2],[2]"];
    assert_eq!(lines(&driven), expected);
}

/// Twice the sum of what came, as a user might write it.
struct Doubled {
    retracts: bool,
}

#[derive(Default)]
struct DoubledState(i64);

impl UserAggregate for Doubled {
    fn name(&self) -> &str {
        "DOUBLED"
    }
    fn result_type(&self, _argument: &ColumnType) -> Result<DataType> {
        Ok(DataType::BigInt)
    }
    fn create(&self) -> Box<dyn UserAccumulator> {
        Box::<DoubledState>::default()
    }
    fn decode(&self, state: &[u8]) -> Result<Box<dyn UserAccumulator>> {
        let sum = state.try_into().map_err(|_| Error::data("a sum of other than eight bytes"))?;
        Ok(Box::new(DoubledState(i64::from_le_bytes(sum))))
    }
    fn retracts(&self) -> bool {
        self.retracts
    }
}

impl UserAccumulator for DoubledState {
    fn accumulate(&mut self, values: &ArrayRef) -> Result<()> {
        self.0 += values.as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        Ok(())
    }
    fn retract(&mut self, values: &ArrayRef) -> Result<()> {
        self.0 -= values.as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        Ok(())
    }
    fn merge(&mut self, _other: &dyn UserAccumulator) -> Result<()> {
        Ok(())
    }
    fn result(&self) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(vec![self.0 * 2])))
    }
    fn encode(&self) -> Result<Option<Vec<u8>>> {
        Ok(Some(self.0.to_le_bytes().to_vec()))
    }
}

fn doubled(retracts: bool) -> AggregateCall {
    AggregateCall {
        function: AggregateFunction::user(Arc::new(Doubled { retracts })),
        argument: Some(1),
        distinct: false,
        filter: None,
        result: DataType::BigInt.nullable(),
        name: "doubled".to_string(),
    }
}

#[test]
fn users_aggregates_take_values_back_if_they_can() {
    use RowKind::{Delete, Insert};
    let script = changes(
        &rows(&[1, 1, 2, 1, 1, 2], &[3, 3, 5, 3, 3, 5]),
        &[Insert, Insert, Insert, Delete, Delete, Delete],
    );
    let retracting = |calls| GroupSpec { retracts: true, ..spec(&input(), &[0], calls) };
    let both = vec![doubled(true), distinct(doubled(true))];
    let driven = check_operator(&operator(retracting(both)), &script);
    let expected = [
        "+I,1,6,6",
        "-U,1,6,6",
        "+U,1,12,6",
        "+I,2,10,10",
        "-U,1,12,6",
        "+U,1,6,6",
        "-D,1,6,6",
        "-D,2,10,10",
    ];
    assert_eq!(lines(&driven), expected);
    let refused = super::GroupAggregate::new(retracting(vec![doubled(false)]));
    let refused = refused.err().expect("it cannot take values back");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("DOUBLED"), "{refused}");
    let inserting = operator(spec(&input(), &[0], vec![doubled(false)]));
    let driven =
        drive(&inserting, &super::inserts(&rows(&[1, 1], &[1, 2])), &DriveOptions::default());
    assert_eq!(lines(&driven.unwrap()), ["+I,1,2", "-U,1,2", "+U,1,6"]);
}
