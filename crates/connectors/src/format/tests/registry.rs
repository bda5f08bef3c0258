//! Messages with registered schemas, and a stand-in for the registry that speaks its interface.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BinaryArray, Int32Array, RecordBatch, StringViewArray};
use serde_json::{Value, json};
use thalweg_core::connector::Secret;
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use super::super::avro::RegistryOptions;
use super::super::avro::registry::{Credentials, Registry};
use super::super::changes::Dialect;
use super::super::*;

/// The schemas that are registered, by number.
#[derive(Default)]
struct StandIn {
    schemas: Mutex<HashMap<u32, String>>,
    questions: AtomicUsize,
}

impl StandIn {
    /// Serves until the test ends. Returns the address.
    fn start(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}/some/path", listener.local_addr().expect("an address"));
        let registry = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                registry.answer(stream);
            }
        });
        address
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a request");
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).expect("a header");
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body");
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (status, body) = self.respond(&path, &body);
        let head = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("answered");
    }

    fn respond(&self, path: &str, body: &[u8]) -> (u16, String) {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let mut schemas = self.schemas.lock().expect("no panic");
        if let Some(number) = path.strip_prefix("/some/path/schemas/ids/") {
            let schema = number.parse().ok().and_then(|number: u32| schemas.get(&number));
            return match schema {
                Some(schema) => (200, json!({ "schema": schema }).to_string()),
                None => (404, json!({ "error_code": 40403 }).to_string()),
            };
        }
        if path == "/some/path/subjects/closed/versions" {
            return (409, json!({ "error_code": 409 }).to_string());
        }
        assert_eq!(path, "/some/path/subjects/t-value/versions");
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let number = 100 + schemas.len() as u32;
        schemas.insert(number, body["schema"].as_str().expect("a schema").to_owned());
        (200, json!({ "id": number }).to_string())
    }
}

fn options(url: &str, subject: &str) -> AvroOptions {
    AvroOptions {
        has_legacy_times: true,
        codec: Default::default(),
        registry: Some(RegistryOptions {
            registry: Arc::new(Registry::new(url, Credentials::default())),
            subject: Some(subject.to_owned()),
            schema: None,
        }),
    }
}

fn schema() -> TableSchema {
    let text = Column::new("name", DataType::STRING.nullable());
    TableSchema::new(vec![Column::new("id", DataType::Int.not_null()), text])
}

fn batch() -> RecordBatch {
    let names = StringViewArray::from_iter([Some("a"), None]);
    let ids = Int32Array::from(vec![1, 2]);
    RecordBatch::try_new(schema().arrow(), vec![Arc::new(ids), Arc::new(names)]).expect("columns")
}

#[test]
fn schemas_are_registered_and_asked_for_once() {
    let registry = Arc::new(StandIn::default());
    let format = Format::Avro(options(&registry.start(), "t-value"));
    let encoder = TextEncoder::new(&format, schema()).expect("record by record");
    let messages = encoder.messages(&batch(), None).expect("registered");
    assert_eq!(messages.value(0)[..5], [0, 0, 0, 0, 100]);
    assert_eq!(encoder.messages(&batch(), None).expect("known"), messages);
    assert_eq!(registry.questions.load(Ordering::Relaxed), 1);

    // A reader with other columns: wider numbers, and one that was not written.
    let reader = TableSchema::new(vec![
        Column::new("extra", DataType::Double.nullable()),
        Column::new("id", DataType::BigInt.nullable()),
    ]);
    let layout = RecordLayout::new("t", reader, vec![1, 0], false);
    let layout = layout.with_policy(BadDataPolicy::Reject, Vec::new());
    let decoder = RecordDecoder::new(format, layout);
    let mut all: Vec<Vec<u8>> = messages.iter().flatten().map(<[u8]>::to_vec).collect();
    all.extend([b"\x00\x00\x00\x00\x07x".to_vec(), b"{}".to_vec(), vec![0, 0, 0, 0, 100]]);
    let decoded = decoder.decode(&TextBlock::messages(&BinaryArray::from_iter_values(&all)));
    let decoded = decoded.expect("bad ones are rejected");
    assert_eq!(decoded.batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(decoded.batch.column(1).null_count(), 2);
    let reasons: Vec<&str> = decoded.rejected.iter().map(|r| r.reason.as_str()).collect();
    assert_eq!(reasons[0], "the registry has no schema 7");
    assert!(reasons[1].contains("zero byte") && reasons[2].contains("ends before"), "{reasons:?}");
    assert_eq!(registry.questions.load(Ordering::Relaxed), 3);
}

#[test]
fn a_registry_that_refuses_or_is_away_fails_the_job() {
    let address = Arc::new(StandIn::default()).start();
    let encoder = TextEncoder::new(&Format::Avro(options(&address, "closed")), schema());
    let error = encoder.expect("record by record").messages(&batch(), None).expect_err("409");
    assert!(error.message().contains("not compatible"), "{error}");
    let away = Format::Avro(options("http://127.0.0.1:1", "t-value"));
    let layout = RecordLayout::new("t", schema(), vec![0], false);
    let layout = layout.with_policy(BadDataPolicy::Reject, Vec::new());
    let messages = BinaryArray::from_iter_values([[0u8, 0, 0, 0, 1, 2]]);
    let error = RecordDecoder::new(away, layout).decode(&TextBlock::messages(&messages));
    assert!(error.expect_err("nobody answers").error.message().contains("does not answer"));
}

#[test]
fn changes_in_avro_come_back() {
    let registry = Arc::new(StandIn::default());
    let format = Format::Changes(ChangeOptions {
        dialect: Dialect::Debezium,
        json: JsonOptions::default(),
        avro: Some(options(&registry.start(), "t-value")),
        has_schema: false,
        databases: None,
        tables: None,
    });
    let encoder = TextEncoder::new(&format, schema()).expect("record by record");
    let kinds = [RowKind::UpdateAfter, RowKind::Delete];
    let messages = encoder.messages(&batch(), Some(&kinds)).expect("registered");
    let layout = RecordLayout::new("t", schema(), vec![0, 1], false).of_changes(Vec::new());
    let decoded = RecordDecoder::new(format, layout).decode(&TextBlock::messages(&messages));
    let decoded = decoded.expect("changes").batch;
    assert_eq!(decoded.project(&[0, 1]).expect("columns"), batch());
    let codes = [RowKind::Insert, RowKind::Delete].map(RowKind::code);
    assert_eq!(decoded.column(2).as_primitive::<arrow_array::types::Int8Type>().values(), &codes);
}

/// Its columns were left out without a sound.
#[test]
fn a_schema_that_is_named_must_have_every_column() {
    let check = |schema: &str, columns: &[Column]| {
        let mut options = options("http://localhost", "t");
        if let Some(registry) = &mut options.registry {
            registry.schema = Some(schema.to_owned());
        }
        Format::Avro(options).check_columns(columns, true)
    };
    let id = r#"{"name": "id", "type": "int"}"#;
    let name = r#"{"name": "name", "type": ["null", "string"]}"#;
    let record =
        |fields: &str| format!(r#"{{"type": "record", "name": "r", "fields": [{fields}]}}"#);
    let columns = schema().columns;
    check(&record(&format!("{name}, {id}")), &columns).expect("fits");
    let error = check(&record(id), &columns).expect_err("name is missing");
    assert!(error.message().contains("no field name") && error.is_plan_error(), "{error}");
    let error = check(&record(&format!("{name}, {id}")), &columns[..1]).expect_err("too many");
    assert!(error.message().contains("a field name"), "{error}");
    let error = check(&record(&format!("{id}, {}", id.replace("id", "name"))), &columns);
    assert!(error.expect_err("another type").message().contains("does not fit"));
}

/// A server that was made with `openssl req -x509`, and that asks for a password.
#[test]
fn a_registry_is_asked_over_tls_by_whom_it_knows() {
    let certificate = include_bytes!("registry.pem");
    let address = tls_server(certificate);
    let ask = |credentials: Credentials| Registry::new(&address, credentials).schema(1);
    let trusting =
        || Credentials { authorities: Some(certificate.to_vec()), ..Credentials::default() };
    let error = ask(Credentials::default()).expect_err("nobody has signed it");
    assert!(error.message().contains("does not answer"), "{error}");
    let secret = |text: &str| Some(Secret::new(text));
    let known = Credentials { authorization: secret("Bearer open sesame"), ..trusting() };
    assert_eq!(ask(known).expect("an answer").expect("a schema"), "\"int\"");
    let (authorization, token) = (secret("Bearer wrong word"), secret("wrong word"));
    let unknown = Credentials { authorization, secret: token, ..trusting() };
    let error = ask(unknown).expect_err("refused");
    assert!(error.message().contains("401") && !error.message().contains("wrong"), "{error}");
}

/// Answers requests over TLS until the test ends. It repeats what a stranger says.
fn tls_server(pem: &'static [u8]) -> String {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let chain = vec![CertificateDer::from_pem_slice(pem).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_slice(pem).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(chain, key).expect("a pair");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).expect("a server");
            let mut stream = BufReader::new(rustls::StreamOwned::new(connection, stream));
            let (mut line, mut said) = (String::new(), String::new());
            while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                said.push_str(&std::mem::take(&mut line));
            }
            let (status, body) = match said.contains("Bearer open sesame") {
                true => (200, json!({ "schema": "\"int\"" }).to_string()),
                false => (401, said),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            // Whoever does not trust the server has gone.
            let _ = stream.get_mut().write_all(answer.as_bytes());
            let _ = stream.get_mut().flush();
        }
    });
    format!("https://localhost:{port}")
}
