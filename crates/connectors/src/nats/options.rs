//! The options of `nats`.

use thalweg_core::Result;
use thalweg_core::connector::{
    Boundedness, Capabilities, ConnectorDescription, MetadataDescription, OptionDescription,
    Options, TableRequest, metadata_table, option_table, option_tables,
};
use thalweg_core::snapshot::SinkGuarantee;

use super::protocol::is_subject;
use super::session::Server;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::Startup;
use crate::messaging::options::{
    BAD_DATA, CHANGES, CONNECTION, REMOVED, RecordOptions, STARTUP, address, ignores_removed,
    startup,
};

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE
        .reading(Boundedness::ByOptions, CHANGES)
        .writing(CHANGES, SinkGuarantee::AtLeastOnce),
    options: option_tables![OF_NATS, CONNECTION, STARTUP, REMOVED, BAD_DATA],
    formats: RECORD_FORMATS,
    metadata: METADATA,
    writable_metadata: WRITABLE,
    has_one_reader: true,
    ..ConnectorDescription::new(
        "nats",
        "subjects of NATS and streams of JetStream, each message a row",
    )
};

const OF_NATS: &[OptionDescription] = &option_table! {
    "url": Other("a URL"), required()
        => "`nats://HOST:PORT`, or `tls://` over TLS. The port is 4222 where none is named. `password` without \
            `username` is a token";
    "stream": Text, of_state()
        => "a stream of JetStream, which must be there. Without it messages are those of plain NATS, which keeps none";
    "subject": Text, of_state()
        => "what is read: subjects with `;` between them, in which `*` stands for a word and `>` for all that follow; \
            of a stream all, where none is named. What is written: one subject, unless a column `subject` says it for \
            each row";
    "format": Text, required()
        => "the format of messages";
    "queue-group": Text, of_source()
        => "without a stream: readers of one group share the messages";
};

/// Metadata that can be written.
const WRITABLE: &[&str] = &["subject", "message-id"];

/// The metadata of messages.
const METADATA: &[MetadataDescription] = &metadata_table! {
    "subject": "STRING" => "the subject; written, where a row is to say it";
    "message-id": "STRING" => "the header `Nats-Msg-Id`, by which a stream drops what comes twice";
    "sequence": "BIGINT" => "the number of the message in its stream";
    "timestamp": "TIMESTAMP_LTZ(3)" => "when the stream got it";
    "headers": "MAP<STRING, STRING>" => "all headers";
};

/// The options of a table.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The server.
    pub server: Server,
    /// The stream, if there is one.
    pub stream: Option<String>,
    /// Its subjects.
    pub subjects: Vec<String>,
    /// Readers of this group share messages.
    pub queue_group: Option<String>,
    /// What records look like.
    pub records: RecordOptions,
    /// Where a job begins.
    pub startup: Startup,
    /// It ends behind what is there at the start.
    pub is_bounded: bool,
    /// Messages may be removed unread.
    pub ignores_removed: bool,
}

impl NatsOptions {
    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest, as_sink: bool) -> Result<NatsOptions> {
        let mut read = NatsOptions::read(request, as_sink)?;
        let options = Options::of(request, &DESCRIPTION)?;
        read.records.open(&options, request)?;
        read.server.password = options.secret("password")?;
        Ok(read)
    }

    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong, or the server may not be talked to.
    pub fn read(request: &TableRequest, as_sink: bool) -> Result<NatsOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let (address, rest) = address(&options, "url", &[("nats", false), ("tls", true)], 4222)?;
        if let Some(rest) = rest {
            return Err(options.bad("url", rest, "'nats://HOST:PORT' without a path"));
        }
        let stream = options.get("stream").map(str::to_owned);
        if let Some(name) = &stream
            && (name.is_empty() || !is_subject(name, false) || name.contains('.'))
        {
            return Err(options.bad("stream", name, "the name of a stream"));
        }
        let subjects = subjects(&options, request, as_sink)?;
        let queue_group = options.get("queue-group").map(str::to_owned);
        if let Some(group) = &queue_group
            && (!is_subject(group, false) || stream.is_some())
        {
            return Err(options.bad("queue-group", group, "a word, in a table without 'stream'"));
        }
        let subject = stream.as_deref().or(subjects.first().map(String::as_str));
        let records = RecordOptions::read(&options, request, subject.unwrap_or("nats"))?;
        records.check_metadata(request, METADATA, as_sink.then_some(WRITABLE))?;
        if as_sink {
            records.check_key(&options, request, "messages")?;
        }
        let (startup, is_bounded) = startup(&options)?;
        if stream.is_none() && (startup != Startup::Earliest || is_bounded) {
            return Err(options
                .conflict("'scan.startup.mode' and 'scan.bounded.mode' are for streams: plain NATS keeps nothing")
                .hint("name the 'stream', or remove the options"));
        }
        let username = options.get("username").map(str::to_owned);
        Ok(NatsOptions {
            server: Server { address, username, password: None },
            stream,
            subjects,
            queue_group,
            records,
            startup,
            is_bounded,
            ignores_removed: ignores_removed(&options)?,
        })
    }
}

fn subjects(options: &Options<'_>, request: &TableRequest, as_sink: bool) -> Result<Vec<String>> {
    let text = options.get("subject").unwrap_or_default();
    let names = text.split(';').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    let has_column = request.metadata.iter().any(|(key, _)| key == "subject");
    if let Some(wrong) = names.iter().find(|name| !is_subject(name, !as_sink)) {
        return Err(options.bad("subject", wrong, "words with '.' between them, without blanks"));
    }
    match as_sink {
        true if names.len() > 1 || names.is_empty() != has_column => Err(options
            .conflict("rows are written to one 'subject', or to that of a column")
            .hint("set 'subject', or declare: subject STRING NOT NULL METADATA")),
        false if names.is_empty() && options.get("stream").is_none() => {
            options.required("subject").map(|_| Vec::new())
        }
        _ => Ok(names),
    }
}
