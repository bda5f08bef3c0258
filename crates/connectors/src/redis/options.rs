//! The options of `redis`.

use thalweg_core::connector::{
    Boundedness, Capabilities, ConnectorDescription, MetadataDescription, OptionDescription,
    Options, TableRequest, metadata_table, option_table, option_tables,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};

use super::reading::RecordField;
use super::session::Server;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::Startup;
use crate::messaging::options::{
    BAD_DATA, CHANGES, CONNECTION, REMOVED, RecordOptions, STARTUP, address, ignores_removed,
    startup,
};

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::LOOKUP
        .reading(Boundedness::ByOptions, CHANGES)
        .writing(CHANGES, SinkGuarantee::AtLeastOnce),
    options: option_tables![OF_REDIS, CONNECTION, STARTUP, REMOVED, BAD_DATA],
    formats: RECORD_FORMATS,
    metadata: METADATA,
    ..ConnectorDescription::new(
        "redis",
        "streams of Redis, each entry a row; and its keys, looked up",
    )
};

const OF_REDIS: &[OptionDescription] = &option_table! {
    "url": Other("a URL"), required()
        => "`redis://HOST:PORT`, with `/NUMBER` of a database behind it; `rediss://` over TLS. The port is 6379 where \
            none is named";
    "stream": Text, of_state()
        => "the stream, or several to read with `;` between them; not for a table that is only looked up";
    "format": Text
        => "the format of records";
    "field": Text, or("value")
        => "the field of entries that holds the record. `*`: the record is the entry, its fields are columns; for \
            reading with format `json`, which takes numbers written as texts";
    "sink.max-length": Number, of_sink()
        => "about how many entries the stream keeps; older ones are removed (`MAXLEN ~`)";
    "lookup.type": Words(&["hash", "string"]), or("hash"), of_source()
        => "what keys hold that are looked up: a hash, whose fields are the other columns, or a string, which is a \
            record in `format` with the other columns";
    "lookup.key-prefix": Text, or(""), of_source()
        => "what names of keys begin with, in front of the value that is looked up: `device:`";
};

/// The metadata of entries.
const METADATA: &[MetadataDescription] = &metadata_table! {
    "stream": "STRING" => "the stream";
    "id": "STRING" => "the entry's id: `1526919030474-55`";
    "timestamp": "TIMESTAMP_LTZ(3)"
        => "the time in the id: by the server's clock, when it was added";
    "fields": "MAP<STRING, STRING>" => "all fields of the entry";
};

/// What keys hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupType {
    /// Fields with values.
    Hash,
    /// A record.
    String,
}

/// The options of a table.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The server.
    pub server: Server,
    /// Its streams.
    pub streams: Vec<String>,
    /// What records look like; `None` for a table of hashes that are looked up.
    records: Option<RecordOptions>,
    /// Which field holds the record.
    pub field: RecordField,
    /// Entries may be removed unread.
    pub ignores_removed: bool,
    /// About how many entries a stream keeps.
    pub length_max: Option<u64>,
    /// Where a job begins.
    pub startup: Startup,
    /// It ends behind what is there at the start.
    pub is_bounded: bool,
    /// What keys hold that are looked up.
    pub lookup_type: LookupType,
    /// What their names begin with.
    pub key_prefix: String,
}

impl RedisOptions {
    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest) -> Result<RedisOptions> {
        let mut read = RedisOptions::read(request)?;
        let options = Options::of(request, &DESCRIPTION)?;
        if let Some(records) = &mut read.records {
            records.open(&options, request)?;
        }
        read.server.password = options.secret("password")?;
        Ok(read)
    }

    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong, or the server may not be talked to.
    pub fn read(request: &TableRequest) -> Result<RedisOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let (address, rest) =
            address(&options, "url", &[("redis", false), ("rediss", true)], 6379)?;
        let wrong = |text| options.bad("url", text, "'redis://HOST:PORT/NUMBER'");
        let database = rest.map_or(Ok(0), |text| text.parse().map_err(|_| wrong(text)))?;
        let username = options.get("username").map(str::to_owned);
        if username.is_some() && options.get("password").is_none() {
            return Err(options
                .conflict("'username' needs 'password'")
                .hint("set both, or neither"));
        }
        let streams = options.get("stream").unwrap_or_default().split(';').map(str::trim);
        let mut streams: Vec<String> =
            streams.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        streams.sort();
        streams.dedup();
        let subject = streams.first().map_or("redis", String::as_str);
        let records =
            options.get("format").map(|_| RecordOptions::read(&options, request, subject));
        let field = match options.text("field").unwrap_or("value") {
            "*" => RecordField::All,
            name => RecordField::Named(name.to_owned()),
        };
        let words = [("hash", LookupType::Hash), ("string", LookupType::String)];
        let (startup, is_bounded) = startup(&options)?;
        Ok(RedisOptions {
            server: Server { address, database, username, password: None },
            streams,
            records: records.transpose()?,
            field,
            ignores_removed: ignores_removed(&options)?,
            length_max: options.number("sink.max-length")?,
            startup,
            is_bounded,
            lookup_type: options.choice("lookup.type", &words)?.unwrap_or(LookupType::Hash),
            key_prefix: options.text("lookup.key-prefix").unwrap_or_default().to_owned(),
        })
    }

    /// Checks what depends on how the table is used.
    ///
    /// # Errors
    /// If options do not fit.
    pub fn check(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let options = Options::of(request, &DESCRIPTION)?;
        if self.streams.is_empty() {
            return match as_sink {
                true => Err(options.conflict("no stream to write").hint("add 'stream' = 'NAME'")),
                false => self.check_lookup(request, &options),
            };
        }
        let records = self.records()?;
        records.check_metadata(request, METADATA, as_sink.then_some(&[]))?;
        if as_sink {
            records.check_key(&options, request, "entries of a stream")?;
        }
        if as_sink && self.streams.len() > 1 {
            return Err(options.conflict("one stream can be written").hint("name one in 'stream'"));
        }
        if self.field == RecordField::All && (as_sink || records.format.name() != "json") {
            return Err(options
                .conflict("'field' = '*' is for reading with format 'json'")
                .hint("name the field that holds the record"));
        }
        Ok(())
    }

    fn check_lookup(&self, request: &TableRequest, options: &Options<'_>) -> Result<()> {
        if self.lookup_type == LookupType::String && self.records.is_none() {
            return Err(options
                .conflict("strings that are looked up are records: which format do they have?")
                .hint("add 'format' = 'json'"));
        }
        if let Some((key, _)) = request.metadata.first() {
            return Err(
                options.conflict(&format!("keys that are looked up have no metadata '{key}'"))
            );
        }
        Ok(())
    }

    /// What records look like.
    ///
    /// # Errors
    /// If no option says it.
    pub fn records(&self) -> Result<&RecordOptions> {
        self.records.as_ref().ok_or_else(|| {
            Error::plan("the table of 'redis' needs the option 'format'")
                .hint("add 'format' = 'json' (or csv, raw, avro, …)")
        })
    }

    /// The field that holds written records.
    pub fn written_field(&self) -> &str {
        match &self.field {
            RecordField::Named(name) => name,
            RecordField::All => "value",
        }
    }
}
