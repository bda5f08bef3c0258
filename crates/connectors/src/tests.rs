//! One conformance case for each built-in connector.

use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, TableSchema};

use crate::builtin;
use crate::conformance::check_description;

/// A table of each connector that it accepts. A new connector adds its own.
const TABLES: &[(&str, &str, &[(&str, &str)])] = &[
    ("filesystem", "n", &[("path", "f"), ("format", "csv")]),
    ("filesystem", "n", &[("path", "f"), ("format", "json")]),
    ("filesystem", "n", &[("path", "f"), ("format", "parquet")]),
    ("filesystem", "n", &[("path", "f"), ("format", "arrow")]),
    ("datagen", "n", &[]),
    ("nexmark", "auction", &[("kind", "bid"), ("preset", "jet")]),
    ("print", "n", &[]),
    ("blackhole", "n", &[]),
    ("iceberg", "n", &[("catalog-type", "hadoop"), ("warehouse", "lake")]),
    #[cfg(feature = "kafka")]
    (
        "kafka",
        "n",
        &[("topic", "t"), ("properties.bootstrap.servers", "localhost:9092"), ("format", "json")],
    ),
    #[cfg(feature = "kafka")]
    (
        "upsert-kafka",
        "n",
        &[
            ("topic", "t"),
            ("properties.bootstrap.servers", "localhost:9092"),
            ("key.format", "json"),
            ("value.format", "json"),
        ],
    ),
    #[cfg(feature = "messaging")]
    ("socket", "n", &[("hostname", "localhost"), ("port", "9000"), ("format", "json")]),
    #[cfg(feature = "http")]
    ("http", "n", &[("url", "http://localhost/rows"), ("format", "json")]),
    #[cfg(feature = "http")]
    ("http-async-sink", "n", &[("url", "http://localhost/rows"), ("format", "json")]),
    #[cfg(feature = "websocket")]
    ("websocket", "n", &[("url", "ws://localhost/rows"), ("format", "json")]),
    #[cfg(feature = "postgres")]
    (
        "jdbc",
        "n",
        &[("url", "jdbc:postgresql://localhost/d?user=u&password=p"), ("table-name", "t")],
    ),
    #[cfg(feature = "postgres")]
    (
        "postgres-cdc",
        "n",
        &[
            ("hostname", "localhost"),
            ("username", "u"),
            ("password", "p"),
            ("database-name", "d"),
            ("schema-name", "public"),
            ("table-name", "t"),
            ("slot.name", "s"),
        ],
    ),
    #[cfg(feature = "redis")]
    (
        "redis",
        "n",
        &[("url", "redis://localhost"), ("stream", "s"), ("format", "json"), ("password", "p")],
    ),
    #[cfg(feature = "mqtt")]
    (
        "mqtt",
        "n",
        &[("url", "mqtt://localhost"), ("topic", "t"), ("format", "json"), ("client-id", "c")],
    ),
    #[cfg(feature = "nats")]
    (
        "nats",
        "n",
        &[("url", "nats://localhost"), ("stream", "s"), ("subject", "t"), ("format", "json")],
    ),
];

#[test]
fn every_connector_is_as_it_describes_itself() {
    let connectors = builtin(Default::default());
    for description in connectors.descriptions() {
        let name = description.name;
        assert!(TABLES.iter().any(|table| table.0 == name), "connector '{name}' has no case");
    }
    for &(name, column, options) in TABLES {
        let connector = connectors.get(name).expect("a built-in connector");
        let mut request = TableRequest {
            table: "t".to_owned(),
            primary_key: if name == "upsert-kafka" { vec![0] } else { Vec::new() },
            schema: TableSchema::new(vec![Column::new(column, DataType::BigInt.nullable())]),
            base_dir: "/".into(),
            allowed_roots: vec!["/".into()],
            ..TableRequest::default()
        };
        for (option, value) in [("connector", name)].iter().chain(options) {
            request.options.insert((*option).to_owned(), (*value).to_owned());
        }
        check_description(connector, &request);
    }
}
