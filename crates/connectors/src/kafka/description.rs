//! What the connectors say of themselves.

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, MetadataDescription,
    OptionDescription, metadata_table, option_table, option_tables,
};
use thalweg_core::snapshot::SinkGuarantee;

use crate::format::options::RECORD_FORMATS;

const CHANGES: &[AcceptedChanges] = &[AcceptedChanges::Inserts, AcceptedChanges::All];

/// `kafka`
pub const KAFKA: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE
        .reading(Boundedness::ByOptions, CHANGES)
        .writing(CHANGES, SinkGuarantee::Transactional),
    options: option_tables![COMMON, OF_KAFKA],
    formats: RECORD_FORMATS,
    metadata: METADATA,
    writable_metadata: WRITABLE,
    unsupported: &["sink.transaction-naming-strategy"],
    is_in_flink: true,
    ..ConnectorDescription::new("kafka", "topics of Kafka, each message a row")
};

/// `upsert-kafka`
pub const UPSERT_KAFKA: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE
        .reading(Boundedness::ByOptions, &[AcceptedChanges::Upserts])
        .writing(&[AcceptedChanges::Upserts], SinkGuarantee::Transactional),
    options: option_tables![COMMON, OF_UPSERT],
    name: "upsert-kafka",
    summary: "the last message of each key of topics of Kafka",
    ..KAFKA
};

const COMMON: &[OptionDescription] = &option_table! {
    "topic": Text, of_state(), as_in_flink()
        => "the topic, or several with `;` between them. When several are written to, the metadata column `topic` \
            says which one a row goes to";
    "topic-pattern": Text, of_state(), as_in_flink()
        => "a regular expression that the whole name of a topic fits, in place of `topic`";
    "properties.bootstrap.servers": Text, required(), as_in_flink()
        => "servers to ask first, with `,` between them: `HOST:PORT`";
    "properties.group.id": Text, as_in_flink()
        => "the consumer group whose offsets are read (`group-offsets`) and, with each snapshot that is kept, \
            committed, for tools that show how far a job is";
    "properties.*": Secret, as_in_flink()
        => "[settings of the client](kafka.md#settings-of-the-client), by the names of the Java client or of librdkafka";
    "value.format": Text, as_in_flink()
        => "the format of values, whose options begin with its name or with `value.` and its name";
    "key.format": Text, as_in_flink()
        => "the format of keys, whose options begin with `key.` and its name";
    "key.fields-prefix": Text, as_in_flink()
        => "what the names of columns in the key begin with in the table, but not in the key; needs \
            `'value.fields-include' = 'EXCEPT_KEY'`";
    "value.fields-include": Words(&["ALL", "EXCEPT_KEY"]), or("ALL"), as_in_flink()
        => "whether values have the columns of the key, too";
    "key.json.*": Text, as_in_flink() => "an option of the format of keys";
    "key.csv.*": Text, as_in_flink() => "an option of the format of keys";
    "key.raw.*": Text, as_in_flink() => "an option of the format of keys";
    "key.avro.*": Text, as_in_flink() => "an option of the format of keys";
    "key.avro-confluent.basic-auth.user-info": Secret, as_in_flink()
        => "an option of the format of keys";
    "key.avro-confluent.bearer-auth.token": Secret, as_in_flink()
        => "an option of the format of keys";
    "key.avro-confluent.*": Text, as_in_flink() => "an option of the format of keys";
    "key.protobuf.descriptor-file": Text, but_flink("Flink finds the class on its class path")
        => "an option of the format of keys";
    "key.protobuf.*": Text, as_in_flink() => "an option of the format of keys";
    "value.json.*": Text, as_in_flink() => "an option of the format of values";
    "value.csv.*": Text, as_in_flink() => "an option of the format of values";
    "value.raw.*": Text, as_in_flink() => "an option of the format of values";
    "value.avro.*": Text, as_in_flink() => "an option of the format of values";
    "value.avro-confluent.basic-auth.user-info": Secret, as_in_flink()
        => "an option of the format of values";
    "value.avro-confluent.bearer-auth.token": Secret, as_in_flink()
        => "an option of the format of values";
    "value.avro-confluent.*": Text, as_in_flink() => "an option of the format of values";
    "value.protobuf.descriptor-file": Text, but_flink("Flink finds the class on its class path")
        => "an option of the format of values";
    "value.protobuf.*": Text, as_in_flink() => "an option of the format of values";
    "value.debezium-json.*": Text, as_in_flink() => "an option of the format of values";
    "value.debezium-avro-confluent.basic-auth.user-info": Secret, as_in_flink()
        => "an option of the format of values";
    "value.debezium-avro-confluent.bearer-auth.token": Secret, as_in_flink()
        => "an option of the format of values";
    "value.debezium-avro-confluent.*": Text, as_in_flink() => "an option of the format of values";
    "value.maxwell-json.*": Text, as_in_flink() => "an option of the format of values";
    "value.canal-json.*": Text, as_in_flink() => "an option of the format of values";
    "value.ogg-json.*": Text, as_in_flink() => "an option of the format of values";
    "scan.bounded.mode": Words(&["unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"]), of_state(),
        or("unbounded"), of_source(), as_in_flink()
        => "where each partition ends, as found when it is first seen; what lies there is not read";
    "scan.bounded.specific-offsets": Text, of_state(), of_source(), as_in_flink()
        => "`partition:0,offset:42;partition:1,offset:300`; a partition that is not listed ends where its group has \
            committed, else at once";
    "scan.bounded.timestamp-millis": Number, of_state(), of_source(), as_in_flink()
        => "milliseconds since 1970: a partition ends with the first message that is as new";
    "scan.topic-partition-discovery.interval": Duration, or("5 min"), of_source(), as_in_flink()
        => "how often to look for new partitions and topics, which are read from their beginning; `0` for never";
    "bad-data": Words(&["fail", "skip", "drop", "dead-letter"]), of_state(), or("fail"), of_source(),
        but_flink("Flink has 'json.ignore-parse-errors' and the like")
        => "what happens to a message that cannot be read: the job fails, the message is left out (and counted), or \
            it goes [to a file or a topic](kafka.md#dead-letters-of-topics). `drop` means `skip`";
    "dead-letter.path": Text, of_source(), but_flink("Flink keeps no bad messages")
        => "the file for dead letters, as JSON lines";
    "dead-letter.topic": Text, of_source(), but_flink("Flink keeps no bad messages")
        => "the topic for dead letters, on the same servers: the same key, value and headers, and headers that say \
            where the message was and why it cannot be read";
    "sink.delivery-guarantee": Words(&["none", "at-least-once", "exactly-once"]), or("at-least-once"), of_sink(),
        as_in_flink()
        => "what a job with snapshots promises. With `exactly-once` rows become visible, to readers with \
            `isolation.level=read_committed`, when their snapshot is kept \
            ([how](kafka.md#exactly-once-into-kafka)); with `none` snapshots do not wait for the servers";
    "sink.transactional-id-prefix": Text, of_state(), of_sink(), as_in_flink()
        => "the name of the output's transactions, needed for `exactly-once`: of no other job on the same servers, \
            and the same after a restart";
    "sink.spool.path": Text, of_state(), or_else("`.thalweg-spool/PREFIX`"), of_sink(),
        but_flink("Flink leaves prepared transactions open on the servers")
        => "the folder, relative to the SQL file, in which `exactly-once` keeps rows until they are committed";
    "scan.parallelism": Number, of_source(), as_in_flink()
        => "ignored: `pipeline.workers` says how many threads a job has";
    "sink.parallelism": Number, of_sink(), as_in_flink()
        => "ignored: each table is written by one thread";
};

const OF_KAFKA: &[OptionDescription] = &option_table! {
    "format": Text, as_in_flink()
        => "the format of values: the same as `value.format`; one of them is needed";
    "key.fields": Text, as_in_flink()
        => "the columns of the key, with `;` between them; with `key.format`, or neither";
    "scan.startup.mode": Words(&["earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"]),
        or("group-offsets"), of_source(), as_in_flink()
        => "where a job begins that does not resume from a snapshot";
    "scan.startup.specific-offsets": Text, of_source(), as_in_flink()
        => "`partition:0,offset:42;partition:1,offset:300`; a partition that is not listed begins where its group has \
            committed, else with its first message";
    "scan.startup.timestamp-millis": Number, of_source(), as_in_flink()
        => "milliseconds since 1970: a partition begins with the first message that is as new";
    "sink.partitioner": Words(&["default", "fixed", "round-robin"]), or("default"), of_sink(), as_in_flink()
        => "which partition a row goes to: `default` by a hash of its key, as the Java client computes it, or any; \
            `fixed` the first one; `round-robin` any";
    "sink.semantic": Words(&["none", "at-least-once", "exactly-once"]), of_sink(), as_in_flink()
        => "the former name of `sink.delivery-guarantee`";
};

const OF_UPSERT: &[OptionDescription] = &option_table! {
    "sink.buffer-flush.max-rows": Number, or("0"), of_sink(), as_in_flink()
        => "with `sink.buffer-flush.interval`: of this number of rows only the last of each key is written; `0` for no buffer";
    "sink.buffer-flush.interval": Duration, or("0 s"), of_sink(), as_in_flink()
        => "the longest that a row waits for others while more come; rows are also written when nothing more comes, \
            and before a snapshot";
};

/// Metadata that can be written, too.
pub const WRITABLE: &[&str] = &["topic", "headers", "timestamp"];

/// All metadata.
pub const METADATA: &[MetadataDescription] = &metadata_table! {
    "topic": "STRING" => "the topic; written where a table has several";
    "partition": "INT" => "the partition";
    "headers": "MAP<STRING, BYTES>"
        => "the headers, of those with one name the last; can be written";
    "leader-epoch": "INT"
        => "how often the partition had got a new leader when the message was written";
    "offset": "BIGINT" => "the offset";
    "timestamp": "TIMESTAMP_LTZ(3)" => "when the message was made or arrived; can be written";
    "timestamp-type": "STRING" => "`CreateTime`, `LogAppendTime` or `NoTimestampType`";
};
