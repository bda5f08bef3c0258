//! Cuts to write, and stores to write them to.

// Each test binary uses its part of this.
#![allow(dead_code)]

pub mod disk;
pub mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType, Field, SchemaRef};
use thalweg_core::snapshot::{
    AssignerPosition, CapturedTable, InputState, LaneState, SinkGuarantee, SinkState, SourceState,
    StageState, TakenCut, state_schema,
};
use thalweg_core::{Captured, Extent, OrderContract, TableRows, Watermark};
use thalweg_state::{SnapshotKind, WriteRequest};

/// A key with its virtual partition; `None` is for all.
pub type Key = (Option<u8>, String);

/// The columns of the table `counts`: `$partition`, key, count.
pub fn schema() -> SchemaRef {
    let key = Field::new("key", DataType::Utf8, true);
    state_schema([key, Field::new("count", DataType::Int64, true)])
}

/// Rows of the table.
pub fn rows(rows: &[(Key, i64)]) -> RecordBatch {
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    let [owners, keys] = identity(rows.iter().map(|row| &row.0));
    RecordBatch::try_new(schema(), vec![owners, keys, counts]).expect("three columns")
}

/// Identities of rows of the table.
pub fn removed<'a>(keys: impl Iterator<Item = &'a Key> + Clone) -> RecordBatch {
    let identity_schema = Arc::new(schema().project(&[0, 1]).expect("two columns"));
    RecordBatch::try_new(identity_schema, identity(keys).to_vec()).expect("two columns")
}

fn identity<'a>(keys: impl Iterator<Item = &'a Key> + Clone) -> [ArrayRef; 2] {
    let owners: UInt8Array = keys.clone().map(|key| key.0).collect();
    let texts = StringArray::from_iter_values(keys.map(|key| &key.1));
    [Arc::new(owners), Arc::new(texts)]
}

/// What batches of the table hold, in their order.
pub fn sorted_rows(batches: &[RecordBatch]) -> Vec<(Key, i64)> {
    let mut all = Vec::new();
    for batch in batches {
        let owners = batch.column(0).as_primitive::<UInt8Type>();
        let keys = batch.column(1).as_string::<i32>();
        let counts = batch.column(2).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let owner = owners.is_valid(row).then(|| owners.value(row));
            all.push(((owner, keys.value(row).to_owned()), counts.value(row)));
        }
    }
    all
}

/// The table, captured in full.
pub fn whole(batches: Vec<RecordBatch>) -> Captured {
    let mut captured = Captured::default();
    captured.add("counts", schema(), batches);
    captured
}

/// What has changed of the table.
pub fn changes(rows: Vec<RecordBatch>, removed: Vec<RecordBatch>) -> Captured {
    let made = TableRows { rows, removed };
    let table = CapturedTable {
        name: "counts",
        schema: schema(),
        extent: Extent::Incremental,
        identity_columns: 2,
        kept_from: None,
        rows: Box::new(move || Ok(made)),
    };
    Captured { tables: vec![table] }
}

fn stage(id: &str) -> StageState<Vec<Captured>> {
    StageState {
        id: id.to_owned(),
        name: format!("the {id}"),
        ended: false,
        inputs: None,
        places: 0,
        source: None,
        sink: None,
        state: Vec::new(),
        waiting: Vec::new(),
    }
}

/// A source, an operator that keeps this, and a sink; every field says something.
pub fn cut(state: Vec<Captured>, waiting: Vec<Captured>) -> TakenCut {
    let lane = |watermark, idle| LaneState { watermark, idle };
    let source = SourceState {
        position: Some("{\"file\": \"a.csv\", \"offset\": 12}".to_owned()),
        assigner: Some(AssignerPosition { running: Watermark(-5), taken: Watermark::MIN }),
        splits: Vec::new(),
        finished: false,
        idle: true,
        epoch: 3,
        serial: u64::MAX,
        taken: Watermark(77),
        frontier_ms: i64::MIN,
    };
    let inputs = InputState {
        lanes: vec![lane(Watermark(7), false), lane(Watermark::END, true)],
        ended_at: Watermark(6),
        joint: Watermark(7),
        passed: Watermark::MIN,
    };
    let sink = SinkState {
        guarantee: SinkGuarantee::Transactional,
        handle: Some("{\"files\": [\"out/part-1\"]}".to_owned()),
        has_ended: true,
    };
    let operator = StageState { inputs: Some(inputs), places: 9, state, waiting, ..stage("count") };
    TakenCut {
        stages: vec![
            StageState { source: Some(source), ..stage("source") },
            operator,
            StageState { sink: Some(sink), ended: true, ..stage("sink") },
        ],
        serial: 41,
        is_complete: false,
    }
}

/// A request to write what an operator keeps.
pub fn request(state: Vec<Captured>, number: u64, base: Option<u64>) -> WriteRequest {
    let notes = BTreeMap::from([("plan".to_owned(), format!("fingerprint {number}"))]);
    let request = WriteRequest::new(
        cut(state, Vec::new()),
        number,
        SnapshotKind::Periodic,
        OrderContract::Arrival,
    );
    WriteRequest { base, notes, taken_at_ms: 1_700_000_000_000, ..request }
}

/// Keys that are easy to distinguish from others.
pub fn key(n: u64) -> Key {
    let owner = u8::try_from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).expect("eight bits");
    (Some(owner), format!("key {n}"))
}
