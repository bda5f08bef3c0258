//! `'connector' = 'socket'`: records of a TCP connection, with a byte between them.
//!
//! The peer keeps nothing, so a record comes at most once: what it sends while the job is away, or
//! between the last snapshot and a crash, is lost. So is a record that a broken connection has cut.

use bytes::Buf;
use memchr::memchr;
use std::collections::BTreeMap;
use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, OptionDescription,
    Options, Source, SplitId, TableRequest, option_table, option_tables,
};

use crate::filesystem::FinishedLetters;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::options::{BAD_DATA, CHANGES, RecordOptions};
use crate::messaging::{self, Client, Inbox, Message, SourceParts};
use crate::network::wire::{Address, Wire};
use crate::network::{Attempt, Cancel};

const OPTIONS: &[OptionDescription] = &option_table! {
    "hostname": Text, required(), of_source()
        => "the host to connect to";
    "port": Number, required(), of_source()
        => "its port";
    "byte-delimiter": Number, or("10"), of_source()
        => "the code of the byte behind each record; 10 is a line feed";
    "format": Text, required(), of_source()
        => "the format of records";
};

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.reading(Boundedness::Unbounded, CHANGES),
    options: option_tables![OPTIONS, BAD_DATA],
    formats: RECORD_FORMATS,
    has_one_reader: true,
    ..ConnectorDescription::new("socket", "records of a TCP connection, at most once")
};

/// The connector.
#[derive(Default)]
pub struct Socket {
    finished: FinishedLetters,
}

struct SocketOptions {
    address: Address,
    delimiter: u8,
    records: RecordOptions,
}

impl SocketOptions {
    fn read(request: &TableRequest) -> Result<SocketOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let host = options.required("hostname")?.to_owned();
        options.required("port")?;
        let port = options.number("port")?.unwrap_or(0);
        let delimiter = options.number("byte-delimiter")?.unwrap_or(b'\n');
        options.check_target(&host, port)?;
        let records = RecordOptions::read(&options, request, &host)?;
        records.check_metadata(request, &[], None)?;
        let targets = request.access.targets.clone();
        let address = Address { host, port, is_encrypted: false, authorities: None, targets };
        Ok(SocketOptions { address, delimiter, records })
    }
}

impl Connector for Socket {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        SocketOptions::read(request).map(drop)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let options = SocketOptions::read(request);
        options.map_or(AcceptedChanges::Inserts, |options| options.records.format.changes())
    }

    fn state_options(&self, _request: &TableRequest, _as_sink: bool) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let SocketOptions { address, delimiter, mut records } = SocketOptions::read(request)?;
        records.open(&Options::of(request, &DESCRIPTION)?, request)?;
        let cancel = Cancel::default();
        let peer = address.to_string();
        let client = SocketReader {
            address,
            delimiter,
            searched: 0,
            wire: Wire::new(request.memory_limit_bytes / 4, cancel.clone()),
        };
        let finished = self.finished.clone();
        let parts = SourceParts::at_most_once(peer, records, Box::new(client), finished, cancel);
        messaging::open(request, parts)
    }
}

/// Reads a connection.
struct SocketReader {
    address: Address,
    delimiter: u8,
    /// How many bytes of the input have no delimiter.
    searched: usize,
    wire: Wire,
}

impl Client for SocketReader {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        self.searched = 0;
        self.wire.open(&self.address)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let filled = self.wire.fill();
        let input = &mut self.wire.input;
        while let Some(end) = memchr(self.delimiter, &input[self.searched..]) {
            let end = self.searched + end;
            let value = Some(&input[..end]);
            inbox.add(Message { split: SplitId::ONLY, mark: None, value, metadata: Vec::new() });
            input.advance(end + 1);
            self.searched = 0;
        }
        self.searched = input.len();
        if !filled? {
            inbox.caught_up(SplitId::ONLY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use thalweg_core::{Column, DataType, TableSchema};

    use super::*;
    use crate::conformance::{Started, check_source_cancel};
    use crate::test_server::TestServer;

    fn request(port: u16, options: &[(&str, &str)]) -> TableRequest {
        let columns = vec![Column::new("n", DataType::BigInt.nullable())];
        let port = port.to_string();
        let own = [("hostname", "127.0.0.1"), ("port", &port), ("format", "json")];
        let options = own.iter().chain(options).map(|(k, v)| (k.to_string(), v.to_string()));
        TableRequest {
            table: "t".to_owned(),
            schema: TableSchema::new(columns),
            options: options.collect(),
            ..TableRequest::default()
        }
    }

    #[test]
    fn records_come_over_new_connections_and_cut_ones_are_dropped() {
        let next = AtomicU64::new(0);
        let server = TestServer::start(move |mut stream| {
            let first = next.fetch_add(2, Ordering::SeqCst);
            let last = first + 1;
            let text = format!("{{\"n\": {first}}};{{\"n\": {last}}};{{\"n\": 1");
            stream.write_all(text.as_bytes()).expect("written");
            std::thread::sleep(Duration::from_millis(20));
        });
        let request = request(server.port, &[("byte-delimiter", "59")]);
        let source = Socket::default().source(&request).expect("a source");
        let mut started = Started::new(source, None).expect("started");
        assert_eq!(started.numbers(2), [0, 1]);
        server.cut();
        assert_eq!(started.numbers(2), [2, 3]);
        let position = started.source().position().expect("a position");
        assert_eq!(position, "{\"messages\":4}");
    }

    #[test]
    fn a_server_that_comes_back_is_found() {
        let serve = |mut stream: std::net::TcpStream| {
            let _ = stream.write_all(b"{\"n\": 7}\n");
            std::thread::sleep(Duration::from_secs(5));
        };
        let server = TestServer::start(serve);
        let source = Socket::default().source(&request(server.port, &[])).expect("a source");
        let mut started = Started::new(source, None).expect("started");
        assert_eq!(started.numbers(1), [7]);
        assert_eq!(started.source().reconnects(), Some(0));
        let port = server.kill();
        let _again = TestServer::start_at(port, serve);
        assert_eq!(started.numbers(1), [7]);
        assert_eq!(started.source().reconnects(), Some(1));
    }

    #[test]
    fn a_server_that_says_nothing_holds_nobody_up() {
        let server = TestServer::start(|_stream| std::thread::sleep(Duration::from_secs(5)));
        let source = Socket::default().source(&request(server.port, &[])).expect("a source");
        check_source_cancel(source).expect("started");
    }

    #[test]
    fn bad_records_fail_or_are_left_out() {
        let serve = |mut stream: std::net::TcpStream| {
            let _ = stream.write_all(b"{\"n\": x}\n{\"n\": 2}\n");
            std::thread::sleep(Duration::from_secs(5));
        };
        let server = TestServer::start(serve);
        let source = Socket::default().source(&request(server.port, &[])).expect("a source");
        let error = Started::new(source, None).expect("started").next(9).expect_err("a bad record");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        let skipping = request(server.port, &[("bad-data", "skip")]);
        let source = Socket::default().source(&skipping).expect("a source");
        let mut started = Started::new(source, None).expect("started");
        assert_eq!(started.numbers(1), [2]);
        assert_eq!(started.source().bad_rows(), 1);
    }
}
