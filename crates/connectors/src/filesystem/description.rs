//! What the connector says of itself.

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, MetadataDescription,
    OptionDescription, metadata_table, option_table,
};
use thalweg_core::snapshot::SinkGuarantee;

use crate::format::options::FORMATS;

const FORMAT_NAMES: [&str; FORMATS.len()] = {
    let mut names = [""; FORMATS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = FORMATS[at].name;
        at += 1;
    }
    names
};

const CHANGES: &[AcceptedChanges] =
    &[AcceptedChanges::Inserts, AcceptedChanges::Upserts, AcceptedChanges::All];

/// The connector, its options and those of its formats.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities { is_partitioned: true, ..Capabilities::NONE }
        .reading(Boundedness::ByOptions, CHANGES)
        .writing(CHANGES, SinkGuarantee::Transactional),
    options: OPTIONS,
    formats: &FORMATS,
    metadata: METADATA,
    unsupported: &[
        "source.*",
        "sink.*",
        "scan.*",
        "partition.*",
        "auto-compaction",
        "compaction.*",
    ],
    is_in_flink: true,
    ..ConnectorDescription::new("filesystem", "files, folders and globs, standard input and output")
};

const OPTIONS: &[OptionDescription] = &option_table! {
    "path": Text, required(), as_in_flink()
        => "a file, a folder, a glob, or `-`. Relative to the SQL file, or the URL of an [object \
            store](#files-in-object-stores). Names that end with `.gz` \
            or `.zst` are (de)compressed, unless they are Parquet or Arrow, which compress by \
            themselves";
    "format": Words(&FORMAT_NAMES), required(), as_in_flink()
        => "what the files hold";
    "bad-data": Words(&["fail", "skip", "drop", "dead-letter"]), or("fail"), of_source(),
        but_flink("Flink has 'csv.ignore-parse-errors' and 'json.ignore-parse-errors'")
        => "what happens to a record that cannot be read, is not UTF-8, has a DECIMAL that is out \
            of range, or has a NULL in a `NOT NULL` column. `skip` means \
            `drop`. For formats that are read record by record";
    "bad-data.check": Words(&["all", "read"]),
        or_else("`all` where `bad-data` is set, else `read`"), of_source(),
        but_flink("Flink reads the columns of a CSV row all, and those of JSON as needed")
        => "which columns make a record bad: `all` that are declared, so that every query over the \
            table leaves out the same records, or those that a query reads. Checking a column \
            costs what reading it costs; EXPLAIN names those that are checked only";
    "dead-letter.path": Text, of_source(), but_flink("Flink keeps no bad rows")
        => "where `dead-letter` writes file, line, reason and the raw record, as JSON lines \
            ([below](#dead-letters))";
    "changelog": Words(&["op", "upsert"]), but_flink("Flink's filesystem table takes inserts alone")
        => "a first column (key) `op` says what each row does, so that results that change can be \
            [written and read](../changelogs.md#changelogs-in-files): `op` for every change, `upsert` \
            for rows by the `PRIMARY KEY`";
    "source.monitor-interval": Duration, of_source(), as_in_flink()
        => "how often to look for new files, and for growth, which Flink does not follow; the \
            table has no end then";
    "sink.append": Boolean, or("false"), of_sink(), but_flink("Flink always adds files")
        => "what is there stays, and rows are added";
    "sink.delivery-guarantee": Words(&["exactly-once", "at-least-once", "none"]),
        or("exactly-once"), of_sink(),
        but_flink("Flink's files are exactly-once where checkpoints are taken")
        => "what a job with snapshots promises ([below](#files-and-snapshots))";
    "sink.rolling-policy.file-size": Size, or("128MB"), of_sink(), as_in_flink()
        => "with snapshots: a file in a folder that is as large as this is closed, and the next \
            one begun";
    "sink.rolling-policy.rollover-interval": Duration,
        or_else("`30 min`; with `at-least-once` `1 s`"), of_sink(), as_in_flink()
        => "with snapshots: a file in a folder that is as old as this is closed. With \
            `at-least-once` a file is visible when it is closed: a longer interval makes fewer \
            files";
    "sink.parallelism": Number, of_sink(), as_in_flink()
        => "ignored: each table is written by one thread";
    "sink.partition-commit.policy.kind": Text, of_sink(), as_in_flink()
        => "`success-file`: a partition that is complete gets an empty file that says so. Other \
            kinds are not there. For tables with PARTITIONED BY";
    "sink.partition-commit.trigger": Words(&["process-time", "partition-time"]),
        or("process-time"), of_sink(), as_in_flink()
        => "`process-time`: a partition is complete when the delay has passed since its first \
            rows. `partition-time` is not there";
    "sink.partition-commit.delay": Duration, or("0 s"), of_sink(), as_in_flink()
        => "how long a partition waits, looked at with each snapshot that is kept. What waits when \
            the job ends is complete then. Rows that come later are added, and the file is written \
            again";
    "sink.partition-commit.success-file.name": Text, or("_SUCCESS"), of_sink(), as_in_flink()
        => "its name, which begins with `_`";
};

const METADATA: &[MetadataDescription] = &metadata_table! {
    "file.name": "STRING" => "the file's name";
    "file.path": "STRING" => "its path, or `-`";
    "file.size": "BIGINT" => "its size in bytes";
    "file.modification-time": "TIMESTAMP_LTZ(3)" => "when it was changed last";
};
