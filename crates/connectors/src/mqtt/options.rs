//! The options of `mqtt`.

use thalweg_core::Result;
use thalweg_core::connector::{
    Boundedness, Capabilities, ConnectorDescription, MetadataDescription, OptionDescription,
    Options, TableRequest, metadata_table, option_table, option_tables,
};
use thalweg_core::shim::unique_name;
use thalweg_core::snapshot::SinkGuarantee;

use super::session::Broker;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::options::{BAD_DATA, CHANGES, CONNECTION, RecordOptions, address};

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE
        .reading(Boundedness::Unbounded, CHANGES)
        .writing(CHANGES, SinkGuarantee::AtLeastOnce),
    options: option_tables![OF_MQTT, CONNECTION, BAD_DATA],
    formats: RECORD_FORMATS,
    metadata: METADATA,
    writable_metadata: WRITABLE,
    has_one_reader: true,
    ..ConnectorDescription::new("mqtt", "topics of a broker of MQTT 5, each message a row")
};

const OF_MQTT: &[OptionDescription] = &option_table! {
    "url": Other("a URL"), required()
        => "`mqtt://HOST:PORT`, or `mqtts://` over TLS. The port is 1883, and 8883 over TLS, where none is named";
    "topic": Text
        => "what is read: filters of topics with `;` between them, in which `+` stands for a level and `#` for all \
            levels below. What is written: one topic, unless a column `topic` says it for each row";
    "format": Text, required()
        => "the format of messages";
    "qos": Words(&["0", "1"]), or("1")
        => "`1`: each message is acknowledged, when a snapshot that covers it is kept; `0`: at most once";
    "client-id": Text, or_else("random, where nothing must outlive a connection")
        => "the name of the session, needed to read with QoS 1: of no other client of the broker, and the same after a \
            restart";
    "session-expiry-interval": Duration, or("7 d"), of_source()
        => "how long the broker keeps messages of QoS 1 for a job that is away";
    "receive-maximum": Number, or("10000"), of_source()
        => "messages that the broker sends before the first of them is acknowledged, at most 65535: this is also how many can come \
            between two snapshots";
    "sink.retain": Boolean, or("false"), of_sink()
        => "the broker keeps the last message of each topic for those who subscribe later";
};

/// Metadata that can be written.
const WRITABLE: &[&str] = &["topic"];

/// The metadata of messages.
const METADATA: &[MetadataDescription] = &metadata_table! {
    "topic": "STRING" => "the topic; written, where a row is to say it";
    "qos": "INT" => "the QoS with which it came";
    "retained": "BOOLEAN" => "true for a message that the broker had kept, or that is to be kept";
    "user-properties": "MAP<STRING, STRING>" => "what the sender has added";
};

/// The options of a table.
#[derive(Clone, Debug)]
pub struct MqttOptions {
    /// The broker.
    pub broker: Broker,
    /// Filters of topics; the one that is written, if any.
    pub topics: Vec<String>,
    /// What records look like.
    pub records: RecordOptions,
    /// 0 or 1.
    pub qos: u8,
    /// Written messages are kept.
    pub is_retained: bool,
}

impl MqttOptions {
    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest, as_sink: bool) -> Result<MqttOptions> {
        let mut read = MqttOptions::read(request, as_sink)?;
        let options = Options::of(request, &DESCRIPTION)?;
        read.records.open(&options, request)?;
        read.broker.password = options.secret("password")?;
        Ok(read)
    }

    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong, or the broker may not be talked to.
    pub fn read(request: &TableRequest, as_sink: bool) -> Result<MqttOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let is_encrypted = options.required("url")?.starts_with("mqtts:");
        let port = if is_encrypted { 8883 } else { 1883 };
        let (address, rest) = address(&options, "url", &[("mqtt", false), ("mqtts", true)], port)?;
        if let Some(rest) = rest {
            return Err(options.bad("url", rest, "'mqtt://HOST:PORT' without a path"));
        }
        let topics = topics(&options, request, as_sink)?;
        let subject = topics.first().map_or("mqtt", String::as_str);
        let records = RecordOptions::read(&options, request, subject)?;
        records.check_metadata(request, METADATA, as_sink.then_some(WRITABLE))?;
        if as_sink {
            records.check_key(&options, request, "messages")?;
        }
        let qos = options.choice("qos", &[("0", 0), ("1", 1)])?.unwrap_or(1);
        let (client_id, keeps) = client_id(&options, qos == 1 && !as_sink)?;
        let expiry_ms = options.duration_ms("session-expiry-interval")?.unwrap_or(0);
        let expiry_s = u32::try_from(expiry_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
        let maximum = options.number::<u16>("receive-maximum")?.unwrap_or(10_000);
        if maximum == 0 {
            return Err(options.bad("receive-maximum", "0", "1 to 65535"));
        }
        let broker = Broker {
            address,
            client_id,
            username: options.get("username").map(str::to_owned),
            password: None,
            session_expiry_s: if keeps { expiry_s.max(1) } else { 0 },
            receive_maximum: maximum,
        };
        let is_retained = options.boolean("sink.retain")?;
        Ok(MqttOptions { broker, topics, records, qos, is_retained })
    }
}

fn topics(options: &Options<'_>, request: &TableRequest, as_sink: bool) -> Result<Vec<String>> {
    let text = options.get("topic").unwrap_or_default();
    let names = text.split(';').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    let has_column = request.metadata.iter().any(|(key, _)| key == "topic");
    match as_sink {
        false if names.is_empty() => Err(options.required("topic").err().unwrap_or_else(|| {
            options.bad("topic", text, "filters of topics: 'plant/+/temperature;plant/alarms/#'")
        })),
        true if has_column => Ok(Vec::new()),
        true if names.len() != 1 || text.contains(['+', '#']) => Err(options
            .bad("topic", text, "one topic without '+' and '#', as rows are written to it")
            .hint("or declare a column that says it for each row: topic STRING NOT NULL METADATA")),
        _ => match names.iter().find(|name| !is_filter(name)) {
            Some(name) => {
                Err(options.bad("topic", name, "'+' and '#' as whole levels, '#' as the last one"))
            }
            None => Ok(names),
        },
    }
}

/// True if a filter of topics is well formed.
fn is_filter(name: &str) -> bool {
    let levels: Vec<&str> = name.split('/').collect();
    levels.iter().enumerate().all(|(at, level)| match *level {
        "+" => true,
        "#" => at + 1 == levels.len(),
        level => !level.contains(['+', '#', '\0']),
    })
}

/// The name of the session, and whether it outlives its connection.
fn client_id(options: &Options<'_>, must_stay: bool) -> Result<(String, bool)> {
    match options.get("client-id") {
        Some(id) if id.is_empty() => Err(options.bad("client-id", id, "a name")),
        Some(id) => Ok((id.to_owned(), must_stay)),
        None if must_stay => Err(options.conflict("reading with QoS 1 needs 'client-id'").hint(
            "a name of this table's session alone, or 'qos' = '0' for messages at most once",
        )),
        None => Ok((format!("thalweg-{}", unique_name()), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_wildcards_as_whole_levels() {
        for right in ["a", "a/+/b", "#", "a/#", "+", "/a", "$share/g/a/+"] {
            assert!(is_filter(right), "{right}");
        }
        for wrong in ["a+", "#/a", "a/b#", "a/#/b"] {
            assert!(!is_filter(wrong), "{wrong}");
        }
    }
}
