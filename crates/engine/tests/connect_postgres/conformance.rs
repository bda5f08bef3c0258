//! The checks that every connector must pass, over a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Int64Array, RecordBatch, StringViewArray};
use thalweg::conformance::{self, SinkCase, Visibility};
use thalweg_connectors::jdbc::Jdbc;
use thalweg_connectors::postgres_cdc::PostgresCdc;
use thalweg_core::connector::{Connector, TableRequest};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use super::server::Server;

/// A table of these options, as they stand in a statement.
fn request(options: &str, has_key: bool) -> TableRequest {
    let option = |text: &str| {
        let (name, value) = text.split_once('=').expect("an option");
        let plain = |text: &str| text.trim().trim_matches('\'').to_owned();
        (plain(name), plain(value))
    };
    TableRequest {
        table: "t".to_owned(),
        schema: TableSchema::new(vec![
            Column::new("n", DataType::BigInt.not_null()),
            Column::new("name", DataType::Varchar(2_147_483_647).nullable()),
        ]),
        primary_key: if has_key { vec![0] } else { Vec::new() },
        options: options.split(", '").map(option).collect(),
        ..TableRequest::default()
    }
}

fn batch(rows: impl Iterator<Item = (i64, Option<String>)>) -> RecordBatch {
    let (numbers, names): (Vec<i64>, Vec<Option<String>>) = rows.unzip();
    let columns: (Int64Array, StringViewArray) = (numbers.into(), names.into_iter().collect());
    let schema = request("'a' = 'b'", false).schema.arrow();
    RecordBatch::try_new(schema, vec![Arc::new(columns.0), Arc::new(columns.1)]).expect("a batch")
}

fn read(server: &Server, table: &str) -> RecordBatch {
    let found = server.sql(&format!("SELECT n, coalesce(name, 'NULL') FROM {table}"));
    batch(found.lines().map(|line| {
        let (n, name) = line.split_once('|').expect("two columns");
        (n.parse().expect("a number"), (name != "NULL").then(|| name.to_owned()))
    }))
}

/// Writes rows through failures at every call, and at random.
fn check_sink(
    server: &Server,
    guarantee: SinkGuarantee,
    options: &str,
    rows: &RecordBatch,
    kinds: Option<&[RowKind]>,
) {
    static TABLES: AtomicUsize = AtomicUsize::new(0);
    let make = || {
        let table = format!("c{}", TABLES.fetch_add(1, Ordering::Relaxed));
        let key = if kinds.is_some() { "PRIMARY KEY" } else { "" };
        server.sql(&format!("CREATE TABLE {table} (n bigint {key}, name text)"));
        table
    };
    let open = |table: &String| {
        Jdbc.sink(&request(&format!("{}{options}", server.jdbc(table)), kinds.is_some()))
    };
    let case = SinkCase {
        make: &make,
        open: &open,
        read: &|table| Ok(vec![read(server, table)]),
        rows,
        kinds,
        guarantee,
        visibility: Visibility::AtCommit,
        in_order: false,
        key: &[0],
    };
    conformance::check_sink(&case, 5).expect("no error");
}

#[test]
fn jdbc_keeps_what_its_sinks_promise() {
    let Some(server) = Server::start() else { return };
    let name = |n: i64| (n % 7 != 0).then(|| format!("row {n}"));
    let rows = batch((0..120).map(|n| (n, name(n))));
    let exactly = ", 'sink.delivery-guarantee' = 'exactly-once'";
    check_sink(&server, SinkGuarantee::Transactional, exactly, &rows, None);
    check_sink(&server, SinkGuarantee::AtLeastOnce, "", &rows, None);
    let rows = batch((0..120).map(|n| (n % 20, name(n))));
    let kind = |n: i64| match n {
        0..20 => RowKind::Insert,
        100.. if n % 3 == 0 => RowKind::Delete,
        _ => RowKind::UpdateAfter,
    };
    let kinds: Vec<RowKind> = (0..120).map(kind).collect();
    check_sink(&server, SinkGuarantee::Idempotent, "", &rows, Some(&kinds));
}

#[test]
fn sources_deliver_the_same_rows_from_every_position() {
    let Some(server) = Server::start() else { return };
    server.sql("CREATE TABLE t (n bigint PRIMARY KEY, name text); INSERT INTO t SELECT i * 3, 'row ' || i FROM generate_series(1, 400) i");
    let jdbc = request(&server.jdbc("t"), true);
    conformance::check_description(&Jdbc, &jdbc);
    conformance::check_replayable(&|| Jdbc.source(&jdbc), 5).expect("no error");
    let ranges = ", 'scan.partition.column' = 'n', 'scan.partition.num' = '5', 'scan.partition.lower-bound' = '1', \
        'scan.partition.upper-bound' = '2000'";
    let ranges = request(&format!("{}{ranges}", server.jdbc("t")), true);
    conformance::check_replayable(&|| Jdbc.source(&ranges), 5).expect("no error");
    let options =
        ", 'scan.startup.mode' = 'snapshot', 'scan.incremental.snapshot.chunk.size' = '50'";
    let cdc = request(&format!("{}{options}", server.cdc("t", "slot")), true);
    conformance::check_description(&PostgresCdc, &cdc);
    conformance::check_replayable(&|| PostgresCdc.source(&cdc), 3).expect("no error");
}
