//! How long a large table takes to write, with all of it and with few changes, to verify and to
//! read: `cargo run --release -p thalweg-state --example large_table [FOLDER] [ROWS]`. Prints
//! seconds and bytes.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::snapshot::{CapturedTable, StageState, TakenCut, state_schema};
use thalweg_core::{Captured, Extent, OrderContract, Result, TableRows};
use thalweg_state::{SnapshotKind, SnapshotStore, WriteRequest};

const BATCH_ROWS: i64 = 65_536;

fn rows(from: i64, to: i64, value: i64) -> Result<TableRows> {
    let fields = ["key", "count", "sum"].map(|name| Field::new(name, DataType::Int64, true));
    let schema = state_schema(fields);
    let mut made = TableRows::default();
    let mut next = from;
    while next < to {
        let end = (next + BATCH_ROWS).min(to);
        // Keys are spread as hashes are, so that compression has nothing to find in them.
        let key = |n: i64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
        let owners = UInt8Array::from_iter_values((next..end).map(|n| (key(n) as u64 >> 56) as u8));
        let keys = Int64Array::from_iter_values((next..end).map(key));
        let counts = Int64Array::from_iter_values((next..end).map(|n| n % 100));
        let sums = Int64Array::from_iter_values((next..end).map(|n| n * value));
        let columns: Vec<ArrayRef> =
            vec![Arc::new(owners), Arc::new(keys), Arc::new(counts), Arc::new(sums)];
        made.rows.push(RecordBatch::try_new(schema.clone(), columns)?);
        next = end;
    }
    Ok(made)
}

fn cut(made: TableRows, extent: Extent) -> TakenCut {
    let schema = made.rows[0].schema();
    let rows = Box::new(move || Ok(made));
    let (identity_columns, kept_from) = (2, None);
    let table = CapturedTable { name: "groups", schema, extent, identity_columns, kept_from, rows };
    let stage = StageState {
        id: "group".to_owned(),
        name: "group".to_owned(),
        ended: false,
        inputs: None,
        places: 0,
        source: None,
        sink: None,
        state: vec![Captured { tables: vec![table] }],
        waiting: Vec::new(),
    };
    TakenCut { stages: vec![stage], serial: 0, is_complete: false }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let location = arguments.next().unwrap_or_else(|| "memory://large".to_owned());
    let count: i64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let clock = SystemClock::new();
    let mut store = SnapshotStore::open(&location, "large-table")?;
    let first = store.next_number()?;
    let timed = |what: &str, work: &mut dyn FnMut() -> Result<u64>| -> Result<()> {
        let begin_ns = clock.now_ns();
        let bytes = work()?;
        let seconds = (clock.now_ns() - begin_ns) as f64 / 1e9;
        println!("{what:<22} {seconds:>7.2} s {bytes:>12} bytes");
        Ok(())
    };
    println!("{count} rows of 25 bytes");
    let mut all = Some(cut(rows(0, count, 1)?, Extent::Full));
    let mut few = Some(cut(rows(0, count / 10, 2)?, Extent::Incremental));
    let request = |cut: &mut Option<TakenCut>, number, base| {
        let cut = cut.take().expect("written once");
        WriteRequest {
            base,
            ..WriteRequest::new(cut, number, SnapshotKind::Manual, OrderContract::Epoch)
        }
    };
    timed("write all", &mut || Ok(store.write(request(&mut all, first, None))?.bytes))?;
    timed("write a tenth", &mut || {
        Ok(store.write(request(&mut few, first + 1, Some(first)))?.bytes)
    })?;
    timed("verify", &mut || store.verify(first + 1).map(|damage| damage.len() as u64))?;
    timed("read and fold", &mut || Ok(store.read(first + 1)?.header.bytes))?;
    store.delete(first)?;
    store.delete(first + 1)
}
