//! One conformance case for each built-in connector.

use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, TableSchema};

use crate::builtin;
use crate::conformance::check_description;
#[cfg(feature = "messaging")]
use crate::conformance::check_start_cancel;
#[cfg(feature = "messaging")]
use crate::test_server::TestServer;

/// A connector, the column of a table, and its options.
type Table = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// A table of each connector that it accepts. A new connector adds its own.
const TABLES: &[Table] = &[
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
    for table in TABLES {
        let connector = connectors.get(table.0).expect("a built-in connector");
        check_description(connector, &request(table, None));
    }
}

/// What a job waits for before it has begun does not keep it from being stopped.
#[cfg(feature = "messaging")]
#[test]
fn sources_that_wait_for_their_servers_at_the_start_can_be_stopped() {
    let wait = ["websocket", "postgres-cdc", "redis", "mqtt", "nats"];
    let connectors = builtin(Default::default());
    for table in TABLES.iter().filter(|table| wait.contains(&table.0)) {
        let silent =
            TestServer::start(|_stream| std::thread::sleep(std::time::Duration::from_secs(10)));
        let connector = connectors.get(table.0).expect("a built-in connector");
        let source = connector.source(&request(table, Some(silent.port))).expect(table.0);
        println!("{}", table.0);
        check_start_cancel(source);
    }
}

/// What the table asks of its connector, whose server is at this port.
fn request(&(name, column, options): &Table, port: Option<u16>) -> TableRequest {
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
    if let Some(port) = port {
        for (option, value) in &mut request.options {
            let server =
                if option == "hostname" { "127.0.0.1" } else { &format!("127.0.0.1:{port}") };
            *value = value.replace(":9092", "").replace("localhost", server);
        }
        if request.options.contains_key("hostname") {
            request.options.insert("port".to_owned(), port.to_string());
        }
    }
    request
}
