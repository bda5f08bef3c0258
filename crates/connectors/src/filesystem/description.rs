//! What the connector says of itself.

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, MetadataDescription,
    OptionDescription, OptionKind, SinkCapability, SourceCapability,
};
use thalweg_core::snapshot::SinkGuarantee;

use crate::format::options::FORMATS;

const CHANGES: &[AcceptedChanges] =
    &[AcceptedChanges::Inserts, AcceptedChanges::Upserts, AcceptedChanges::All];

/// The connector, its options and those of its formats.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::ByOptions,
            changes: CHANGES,
            has_positions: true,
            prunes_columns: true,
        }),
        sink: Some(SinkCapability { changes: CHANGES, guarantee: SinkGuarantee::Transactional }),
        is_partitioned: true,
        ..Capabilities::NONE
    },
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

const OPTIONS: &[OptionDescription] = &[
    OptionDescription::new(
        "path",
        OptionKind::Text,
        "a file, a folder, a glob, or `-`. Relative to the SQL file. Names that end with `.gz` or \
         `.zst` are (de)compressed, unless they are Parquet or Arrow, which compress by themselves",
    )
    .required()
    .as_in_flink(),
    OptionDescription::new(
        "format",
        OptionKind::Words(&["csv", "json", "parquet", "arrow"]),
        "what the files hold",
    )
    .required()
    .as_in_flink(),
    OptionDescription::new(
        "bad-data",
        OptionKind::Words(&["fail", "drop", "dead-letter"]),
        "what happens to a record that cannot be read, is not UTF-8, has a DECIMAL that is out of \
         range, or has a NULL in a `NOT NULL` column. For `csv` and `json`",
    )
    .or("fail")
    .of_source()
    .but_flink("Flink has 'csv.ignore-parse-errors' and 'json.ignore-parse-errors'"),
    OptionDescription::new(
        "bad-data.check",
        OptionKind::Words(&["all", "read"]),
        "which columns make a record bad: `all` that are declared, so that every query over the \
         table leaves out the same records, or those that a query reads. Checking a column costs \
         what reading it costs; EXPLAIN names those that are checked only",
    )
    .or_else("`all` where `bad-data` is set, else `read`")
    .of_source()
    .but_flink("Flink reads the columns of a CSV row all, and those of JSON as needed"),
    OptionDescription::new(
        "dead-letter.path",
        OptionKind::Text,
        "where `dead-letter` writes file, line, reason and the raw record, as JSON lines \
         ([below](#dead-letters))",
    )
    .of_source()
    .but_flink("Flink keeps no bad rows"),
    OptionDescription::new(
        "changelog",
        OptionKind::Words(&["op", "upsert"]),
        "a first column (key) `op` says what each row does, so that results that change can be \
         [written and read](changelogs.md#changelogs-in-files): `op` for every change, `upsert` \
         for rows by the `PRIMARY KEY`",
    )
    .but_flink("Flink's filesystem table takes inserts alone"),
    OptionDescription::new(
        "source.monitor-interval",
        OptionKind::Duration,
        "how often to look for new files, and for growth, which Flink does not follow; the table \
         has no end then",
    )
    .of_source()
    .as_in_flink(),
    OptionDescription::new(
        "sink.append",
        OptionKind::Boolean,
        "what is there stays, and rows are added",
    )
    .or("false")
    .of_sink()
    .but_flink("Flink always adds files"),
    OptionDescription::new(
        "sink.delivery-guarantee",
        OptionKind::Words(&["exactly-once", "at-least-once", "none"]),
        "what a job with snapshots promises ([below](#files-and-snapshots))",
    )
    .or("exactly-once")
    .of_sink()
    .but_flink("Flink's files are exactly-once where checkpoints are taken"),
    OptionDescription::new(
        "sink.rolling-policy.file-size",
        OptionKind::Size,
        "with snapshots: a file in a folder that is as large as this is closed, and the next one \
         begun",
    )
    .or("128MB")
    .of_sink()
    .as_in_flink(),
    OptionDescription::new(
        "sink.rolling-policy.rollover-interval",
        OptionKind::Duration,
        "with snapshots: a file in a folder that is as old as this is closed. With `at-least-once` \
         a file is visible when it is closed: a longer interval makes fewer files",
    )
    .or_else("`30 min`; with `at-least-once` `1 s`")
    .of_sink()
    .as_in_flink(),
];

const METADATA: &[MetadataDescription] = &[
    MetadataDescription { key: "file.name", data_type: "STRING", help: "the file's name" },
    MetadataDescription { key: "file.path", data_type: "STRING", help: "its path, or `-`" },
    MetadataDescription { key: "file.size", data_type: "BIGINT", help: "its size in bytes" },
    MetadataDescription {
        key: "file.modification-time",
        data_type: "TIMESTAMP_LTZ(3)",
        help: "when it was changed last",
    },
];
