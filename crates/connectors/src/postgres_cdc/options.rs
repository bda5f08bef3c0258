//! The options of `postgres-cdc`.

use std::time::Duration;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, Options, TableRequest,
    metadata_table, option_table,
};
use thalweg_core::{Error, Result};

use crate::postgres::decode::check_types;
use crate::postgres::settings::{Settings, protection};

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.reading(
        Boundedness::ByOptions,
        &[AcceptedChanges::All, AcceptedChanges::Upserts, AcceptedChanges::Inserts],
    ),
    options: &option_table! {
        "hostname": Text, required(), as_in_flink()
            => "the server";
        "port": Number, or("5432"), as_in_flink()
            => "its port";
        "username": Text, required(), as_in_flink()
            => "who signs in: with the right to replicate, and to read the table";
        "password": Secret, required(), as_in_flink()
            => "with this password";
        "database-name": Text, of_state(), required(), as_in_flink()
            => "the database";
        "schema-name": Text, of_state(), required(), as_in_flink()
            => "the schema of the table, or a regular expression";
        "table-name": Text, of_state(), required(), as_in_flink()
            => "the table, or a regular expression. One table must match: several are not supported yet";
        "slot.name": Text, of_state(), required(), as_in_flink()
            => "the replication slot, which is made if it is not there. One job at a time reads a slot, and each table \
                has one of its own. It outlives the job: `SELECT pg_drop_replication_slot('…')` when it is not needed \
                any more, or the server keeps its log for ever";
        "decoding.plugin.name": Words(&["pgoutput"]), or("pgoutput"),
            but_flink("Flink's default is `decoderbufs`, which servers do not have by themselves")
            => "how the server writes changes: `pgoutput` is part of it";
        "changelog-mode": Words(&["all", "upsert"]), of_state(), or("all"), as_in_flink()
            => "`all` changes, with what rows were before; or `upsert` by the `PRIMARY KEY`, for tables without \
                `REPLICA IDENTITY FULL`";
        "scan.startup.mode": Words(&["initial", "snapshot", "latest-offset", "committed-offset"]), or("initial"),
            as_in_flink()
            => "what a job reads that starts from scratch: the table and then its changes; the table alone; changes from \
                now on; changes from where the slot was confirmed";
        "scan.incremental.snapshot.enabled": Boolean, or("false"), as_in_flink()
            => "ignored: the table is always read in chunks, without a lock, and reading resumes within them";
        "scan.incremental.snapshot.chunk.size": Number, or("8096"), as_in_flink()
            => "rows of a chunk";
        "scan.incremental.snapshot.backfill.skip": Boolean, or("false"), as_in_flink()
            => "ignored: rows are there once in either case";
        "scan.incremental.snapshot.unbounded-chunk-first.enabled": Boolean, or("true"), as_in_flink()
            => "ignored";
        "scan.incremental.close-idle-reader.enabled": Boolean, or("false"), as_in_flink()
            => "ignored";
        "scan.snapshot.fetch.size": Number, or("1024"), as_in_flink()
            => "ignored: rows are taken as the server sends them";
        "chunk-meta.group.size": Number, or("1000"), as_in_flink()
            => "ignored: chunks are not listed";
        "connect.timeout": Duration, or("30 s"), as_in_flink()
            => "how long connecting may take";
        "connect.max-retries": Number, or("3"), as_in_flink()
            => "a server that was lost is tried for this many times `connect.timeout`, with growing pauses";
        "connection.pool.size": Number, or("20"), as_in_flink()
            => "ignored: a table takes two connections";
        "heartbeat.interval.ms": Duration, or("30 s"), as_in_flink()
            => "how often at least the server is asked how far its log goes, so that a table without changes does not \
                keep it from removing the log; never more than 10 s";
        "scan.lsn-commit.checkpoints-num-delay": Number, or("3"), as_in_flink()
            => "how many snapshots behind the newest one the slot is confirmed: the older ones can be resumed from";
        "scan.read-changelog-as-append-only.enabled": Boolean, of_state(), or("false"), as_in_flink()
            => "every change is an insert; `row_kind` says what it was";
        "debezium.publication.name": Text, or("dbz_publication"), as_in_flink()
            => "the publication";
        "debezium.publication.autocreate.mode": Words(&["filtered", "all_tables", "disabled"]), or("filtered"),
            but_flink("Flink's default is `all_tables`, which needs a superuser")
            => "who makes the publication: the job, for its table (which it adds where the publication is there), or \
                for all tables; or nobody";
        "debezium.skipped.operations": Text, or("none"),
            but_flink("Flink skips `t` if nothing is set")
            => "`t` overlooks TRUNCATE, at which a job stops otherwise: the rows would stay for ever";
        "debezium.database.sslmode": Words(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]),
            or("prefer"), as_in_flink()
            => "how the connection is protected";
        "debezium.database.sslrootcert": Text, as_in_flink()
            => "a file of certificates of trusted authorities, for `verify-ca` and `verify-full`";
    },
    metadata: &metadata_table! {
        "database_name": "STRING NOT NULL" => "the database";
        "schema_name": "STRING NOT NULL" => "the schema";
        "table_name": "STRING NOT NULL" => "the table";
        "op_ts": "TIMESTAMP_LTZ(3) NOT NULL"
            => "when the change was committed; 1970-01-01 for rows that the table held first";
        "row_kind": "STRING NOT NULL" => "`+I`, `-U`, `+U` or `-D`";
    },
    unsupported: &[
        "scan.incremental.snapshot.chunk.key-column",
        "scan.newly-added-table.enabled",
        "scan.include-partitioned-tables.enabled",
        "chunk-key.even-distribution.factor.*",
        "debezium.*",
    ],
    is_in_flink: true,
    has_one_reader: true,
    ..ConnectorDescription::new("postgres-cdc", "a table of PostgreSQL and its changes")
};

/// Which changes are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangelogMode {
    /// All.
    All,
    /// By the key, without what rows were before.
    Upsert,
}

/// What a job reads that starts from scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupMode {
    /// The table, then changes.
    Initial,
    /// The table.
    Snapshot,
    /// Changes from now on.
    LatestOffset,
    /// Changes from where the slot was confirmed.
    CommittedOffset,
}

impl StartupMode {
    /// True if the table is read.
    pub fn reads_table(self) -> bool {
        matches!(self, StartupMode::Initial | StartupMode::Snapshot)
    }
}

/// Who makes the publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The job, for its table.
    Filtered,
    /// The job, for all tables.
    AllTables,
    /// Nobody.
    Disabled,
}

/// The options of a table.
#[derive(Clone)]
pub struct CdcOptions {
    /// Where the database is.
    pub settings: Settings,
    /// Regular expressions of schema and table.
    pub table: (String, String),
    /// The slot.
    pub slot: String,
    /// The publication.
    pub publication: String,
    /// Who makes it.
    pub autocreate: Publication,
    /// Which changes are delivered.
    pub mode: ChangelogMode,
    /// What a job reads that starts from scratch.
    pub startup: StartupMode,
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// How long a server that was lost is tried.
    pub give_up_after: Duration,
    /// How often the server is asked how far its log goes.
    pub heartbeat: Duration,
    /// How many snapshots behind the newest one the slot is confirmed.
    pub commits_behind: usize,
    /// Every change is an insert.
    pub is_append_only: bool,
    /// TRUNCATE is overlooked.
    pub skips_truncate: bool,
}

impl CdcOptions {
    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest) -> Result<CdcOptions> {
        let read = CdcOptions::read(request)?;
        let settings = read.settings.with_password(&Options::of(request, &DESCRIPTION)?)?;
        Ok(CdcOptions { settings, ..read })
    }

    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong, or the server may not be talked to.
    pub fn read(request: &TableRequest) -> Result<CdcOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let settings = settings(&options)?;
        options.check_target(&settings.host, settings.port)?;
        check_types(options.table(), &request.schema)?;
        check_ignored(&options)?;
        let modes = [("all", ChangelogMode::All), ("upsert", ChangelogMode::Upsert)];
        let mode = options.choice("changelog-mode", &modes)?.unwrap_or(ChangelogMode::All);
        if mode == ChangelogMode::Upsert && request.primary_key.is_empty() {
            return Err(options
                .conflict("'changelog-mode' = 'upsert' needs a PRIMARY KEY")
                .hint("declare PRIMARY KEY (…) NOT ENFORCED"));
        }
        let startups = [
            ("initial", StartupMode::Initial),
            ("snapshot", StartupMode::Snapshot),
            ("latest-offset", StartupMode::LatestOffset),
            ("committed-offset", StartupMode::CommittedOffset),
        ];
        let autocreates = [
            ("filtered", Publication::Filtered),
            ("all_tables", Publication::AllTables),
            ("disabled", Publication::Disabled),
        ];
        let chunk_rows = options.number::<usize>("scan.incremental.snapshot.chunk.size")?;
        if chunk_rows == Some(0) {
            return Err(options.bad("scan.incremental.snapshot.chunk.size", "0", "at least 1"));
        }
        let retries = options.number::<u32>("connect.max-retries")?.unwrap_or(3);
        let heartbeat = options.duration_ms("heartbeat.interval.ms")?.unwrap_or(30_000);
        let skipped = options.text("debezium.skipped.operations").unwrap_or_default();
        let skips_truncate = skipped.split(',').any(|operation| operation.trim() == "t");
        let text = |name: &str| options.text(name).unwrap_or_default().to_owned();
        Ok(CdcOptions {
            give_up_after: settings.connect_timeout * retries.max(1),
            table: (text("schema-name"), text("table-name")),
            slot: slot_name(&options)?,
            publication: text("debezium.publication.name"),
            autocreate: options
                .choice("debezium.publication.autocreate.mode", &autocreates)?
                .unwrap_or(Publication::Filtered),
            startup: options
                .choice("scan.startup.mode", &startups)?
                .unwrap_or(StartupMode::Initial),
            chunk_rows: chunk_rows.unwrap_or(8096),
            heartbeat: Duration::from_millis(heartbeat.clamp(100, 10_000)),
            commits_behind: options.number("scan.lsn-commit.checkpoints-num-delay")?.unwrap_or(3),
            is_append_only: options.boolean("scan.read-changelog-as-append-only.enabled")?,
            skips_truncate,
            settings,
            mode,
        })
    }
}

fn settings(options: &Options<'_>) -> Result<Settings> {
    let mode = options.text("debezium.database.sslmode").unwrap_or("prefer");
    let required = |name: &str| options.required(name).map(str::to_owned);
    let timeout = options.duration_ms("connect.timeout")?.unwrap_or(30_000);
    let _named = (required("schema-name")?, required("table-name")?);
    let settings = Settings {
        host: required("hostname")?,
        port: options.number("port")?.unwrap_or(5432),
        database: required("database-name")?,
        user: required("username")?,
        password: required("password")?,
        protection: protection(mode)
            .map_err(|_| options.bad("debezium.database.sslmode", mode, "a mode of PostgreSQL"))?,
        authorities: options.get("debezium.database.sslrootcert").map(Into::into),
        targets: options.targets().clone(),
        connect_timeout: Duration::from_millis(timeout),
        ..Settings::default()
    };
    settings.check().map_err(|error| options.about(&error))?;
    Ok(settings)
}

/// Slots have names of their own.
fn slot_name(options: &Options<'_>) -> Result<String> {
    let name = options.required("slot.name")?;
    let is_right = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match !name.is_empty() && name.len() < 64 && name.chars().all(is_right) {
        true => Ok(name.to_owned()),
        false => Err(options.bad("slot.name", name, "lower-case letters, digits and '_'")),
    }
}

/// Checks options that have no effect here: they must be right all the same.
fn check_ignored(options: &Options<'_>) -> Result<(), Error> {
    for name in [
        "scan.incremental.snapshot.enabled",
        "scan.incremental.snapshot.backfill.skip",
        "scan.incremental.snapshot.unbounded-chunk-first.enabled",
        "scan.incremental.close-idle-reader.enabled",
        "scan.snapshot.fetch.size",
        "chunk-meta.group.size",
        "connection.pool.size",
        "decoding.plugin.name",
    ] {
        options.check(name)?;
    }
    Ok(())
}
