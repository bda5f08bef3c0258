//! Rows that expire are forgotten by whole files, without being named, and without the table being
//! rewritten.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType, UInt8Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use common::request;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{CapturedTable, TableRows, partition_of_virtual, state_schema};
use thalweg_core::{Captured, ErrorKind, Extent};
use thalweg_state::SnapshotStore;

/// Virtual partition, time and number of a row; the first two and the number name it.
type Row = (u8, i64, i64);

const PARTITIONS: usize = 3;

fn schema() -> SchemaRef {
    state_schema(["time", "number", "value"].map(|name| Field::new(name, DataType::Int64, true)))
}

fn batch(rows: &[(Row, i64)]) -> RecordBatch {
    let owners = UInt8Array::from_iter_values(rows.iter().map(|(row, _)| row.0));
    let numbers = |of: &dyn Fn(&(Row, i64)) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(owners),
        numbers(&|(row, _)| row.1),
        numbers(&|(row, _)| row.2),
        numbers(&|(_, value)| *value),
    ];
    RecordBatch::try_new(schema(), columns).expect("four columns")
}

fn rows_by_key(batches: &[RecordBatch]) -> BTreeMap<Row, i64> {
    let mut all = BTreeMap::new();
    for batch in batches {
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>();
        let owners = batch.column(0).as_primitive::<UInt8Type>();
        let instants = batch.column(1).as_primitive_opt::<TimestampMillisecondType>();
        let times = instants.map_or_else(|| column(1).clone(), |own| own.reinterpret_cast());
        for row in 0..batch.num_rows() {
            let key = (owners.value(row), times.value(row), column(2).value(row));
            assert_eq!(all.insert(key, column(3).value(row)), None, "a row comes once");
        }
    }
    all
}

fn table(extent: Extent, made: TableRows, kept_from: Option<i64>) -> CapturedTable {
    let rows = Box::new(move || Ok(made));
    CapturedTable { name: "parts", schema: schema(), extent, identity_columns: 3, kept_from, rows }
}

/// The same table with instants for times, as rows have them that are identified by a time of their
/// own.
fn with_instants(table: CapturedTable) -> CapturedTable {
    let instants = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let others = ["number", "value"].map(|name| Field::new(name, DataType::Int64, true));
    let schema = state_schema([Field::new("time", instants, true)].into_iter().chain(others));
    let of_schema = Arc::clone(&schema);
    let rows = Box::new(move || {
        let mut made = (table.rows)()?;
        for batch in &mut made.rows {
            let mut columns = batch.columns().to_vec();
            let times = columns[1].as_primitive::<Int64Type>();
            let times = times.reinterpret_cast::<TimestampMillisecondType>();
            columns[1] = Arc::new(times.with_timezone("UTC"));
            *batch = RecordBatch::try_new(Arc::clone(&of_schema), columns)?;
        }
        Ok(made)
    });
    CapturedTable { schema, rows, ..table }
}

/// One row in this many is of another's place: it is captured again with another value.
const AGAIN: u64 = 7;

#[test]
fn what_has_expired_is_not_there_and_its_files_go() {
    for seed in 0..12 {
        let random = &mut SplitMix64::new(seed);
        let location = format!("memory://expiry-{seed}");
        let mut store = SnapshotStore::open(&location, "job").expect("a place");
        let mut live: BTreeMap<Row, i64> = BTreeMap::new();
        let mut floors = [i64::MIN; PARTITIONS];
        let (mut now, mut number, mut merged) = (0, 0, 0);
        for step in 1..=60_u64 {
            let mut fresh: BTreeMap<Row, i64> = BTreeMap::new();
            for _ in 0..random.below(120) {
                number += 1;
                let own = (random.below(256) as u8, now + random.below(30) as i64, number);
                let again = live.keys().nth(random.below(live.len() as u64 + 1) as usize).copied();
                let is_again = random.below(AGAIN) == 0;
                fresh.insert(again.filter(|_| is_again).unwrap_or(own), random.below(9) as i64);
            }
            live.extend(fresh.clone());
            now += random.below(8) as i64;
            floors.iter_mut().for_each(|floor| {
                if random.below(4) > 0 {
                    *floor = now;
                }
            });
            let of = |row: &Row| partition_of_virtual(row.0, PARTITIONS);
            live.retain(|row, _| row.1 >= floors[of(row)]);
            fresh.retain(|row, _| row.1 >= floors[of(row)]);
            let is_whole = step == 1;
            let capture = |partition: usize| {
                let (extent, all) =
                    match is_whole || (seed + step + partition as u64).is_multiple_of(11) {
                        true => (Extent::Full, &live),
                        false => (Extent::Incremental, &fresh),
                    };
                let own = all.iter().filter(|(row, _)| of(row) == partition);
                let rows: Vec<(Row, i64)> = own.map(|(row, value)| (*row, *value)).collect();
                let made = TableRows { rows: vec![batch(&rows)], removed: Vec::new() };
                let captured = table(extent, made, Some(floors[partition]));
                Captured {
                    tables: vec![if seed % 2 == 0 { captured } else { with_instants(captured) }],
                }
            };
            let state = (0..PARTITIONS).map(capture).collect();
            let base = (!is_whole).then(|| step - 1);
            merged += store.write(request(state, step, base)).expect("written").merged_tables;
            store.retain(1).expect("retained");
            let read = store.read(step).expect("read");
            assert_eq!(
                rows_by_key(read.cut.stages[1].state.table("parts")),
                live,
                "seed {seed}, step {step}"
            );
        }
        assert!(merged <= 8, "seed {seed}: {merged} tables were folded in sixty snapshots");
    }
}

#[test]
fn files_do_not_pile_up() {
    // A partition that has nothing may not know how far time has come.
    for has_idle in [false, true] {
        let location = format!("memory://expiry-files-{has_idle}");
        let mut store = SnapshotStore::open(&location, "job").expect("a place");
        let mut sizes = Vec::new();
        for step in 1..=30_i64 {
            let rows: Vec<(Row, i64)> =
                (0..5000).map(|n| (((n % 128) as u8, step, n), n * step)).collect();
            let made = TableRows { rows: vec![batch(&rows)], removed: Vec::new() };
            let extent = if step == 1 { Extent::Full } else { Extent::Incremental };
            let mut state = vec![Captured { tables: vec![table(extent, made, Some(step - 4))] }];
            let idle = table(Extent::Full, TableRows::default(), Some(i64::MIN));
            state.extend(has_idle.then(|| Captured { tables: vec![idle] }));
            let base = (step > 1).then(|| step as u64 - 1);
            let written = store.write(request(state, step as u64, base)).expect("written");
            assert_eq!(written.merged_tables, 0, "nothing is rewritten");
            store.retain(1).expect("retained");
            sizes.push(store.header(step as u64).expect("there").bytes);
            let read = store.read(step as u64).expect("read");
            let kept = rows_by_key(read.cut.stages[1].state.table("parts"));
            assert_eq!(kept.len() as i64, 5000 * step.min(5), "step {step}");
        }
        assert!(sizes[29] <= sizes[5] + sizes[5] / 10, "{sizes:?}");
    }
}

#[test]
fn tables_that_expire_have_a_column_of_times() {
    let mut store = SnapshotStore::open("memory://expiry-wrong", "job").expect("a place");
    let fields = ["time", "number"].map(|name| Field::new(name, DataType::Utf8, true));
    let wrong = CapturedTable {
        schema: state_schema(fields.clone()),
        rows: Box::new(move || {
            let schema = state_schema(fields);
            let text = || -> ArrayRef { Arc::new(arrow_array::StringArray::from(vec!["x"])) };
            let columns = vec![Arc::new(UInt8Array::from(vec![0])) as ArrayRef, text(), text()];
            Ok(TableRows {
                rows: vec![RecordBatch::try_new(schema, columns)?],
                removed: Vec::new(),
            })
        }),
        ..table(Extent::Full, TableRows::default(), Some(1))
    };
    let state = vec![Captured { tables: vec![wrong] }];
    let error = store.write(request(state, 1, None)).expect_err("no times");
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
}
