//! The `WITH` options of tables of Iceberg.

use std::time::Duration;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, OptionDescription, Options,
    SinkCapability, SourceCapability, TableRequest, option_table,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};

/// The connector and its options.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::ByOptions,
            changes: &[AcceptedChanges::Inserts],
            has_positions: true,
            prunes_columns: true,
        }),
        sink: Some(SinkCapability {
            changes: &[AcceptedChanges::Inserts],
            guarantee: SinkGuarantee::Transactional,
        }),
        is_partitioned: true,
        ..Capabilities::NONE
    },
    options: OPTIONS,
    unsupported: &["uri", "credential", "token", "upsert-enabled", "overwrite-enabled", "write-*"],
    is_in_flink: true,
    ..ConnectorDescription::new("iceberg", "tables of Apache Iceberg, in folders and object stores")
};

const STRATEGIES: &[&str] = &[
    "TABLE_SCAN_THEN_INCREMENTAL",
    "INCREMENTAL_FROM_LATEST_SNAPSHOT",
    "INCREMENTAL_FROM_LATEST_SNAPSHOT_EXCLUSIVE",
    "INCREMENTAL_FROM_EARLIEST_SNAPSHOT",
];

const OPTIONS: &[OptionDescription] = &option_table! {
    "catalog-name": Text, as_in_flink()
        => "without effect: a catalog of type `hadoop` is its warehouse";
    "catalog-type": Words(&["hadoop"]), required(), as_in_flink()
        => "`hadoop`: a table is a folder. Other types are not there";
    "warehouse": Text, required(), as_in_flink()
        => "the folder of all tables, or the URL of an object store";
    "catalog-database": Text, or("default"), as_in_flink()
        => "the folder in it";
    "catalog-table": Text, or_else("the table's name"), as_in_flink()
        => "the folder in that";
    "streaming": Boolean, or("false"), of_source(), as_in_flink()
        => "rows that are added later are read as well, and the table has no end";
    "monitor-interval": Duration, or("60 s"), of_source(), as_in_flink()
        => "how often to look for new snapshots";
    "starting-strategy": Words(STRATEGIES), or("INCREMENTAL_FROM_LATEST_SNAPSHOT"), of_source(),
        as_in_flink()
        => "with `streaming`, what comes before the rows that are added later: the whole table, \
            what the latest snapshot has added, nothing, or all snapshots that there are, one \
            after the other";
    "target-file-size-bytes": Number, or_else("the table's, or 512 MiB"), of_sink(), as_in_flink()
        => "a file that is as large as this is closed, and the next one begun";
};

/// What is read first of a table that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Table,
    Latest,
    LatestExclusive,
    Earliest,
}

impl Strategy {
    /// Its name among the words of the option.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Table => STRATEGIES[0],
            Strategy::Latest => STRATEGIES[1],
            Strategy::LatestExclusive => STRATEGIES[2],
            Strategy::Earliest => STRATEGIES[3],
        }
    }
}

/// The checked options of a table.
pub struct IcebergOptions<'a> {
    pub warehouse: &'a str,
    pub database: &'a str,
    pub table: &'a str,
    /// How often to look for new snapshots, if at all.
    pub monitor_interval: Option<Duration>,
    pub strategy: Strategy,
    pub file_bytes_max: Option<u64>,
}

impl<'a> IcebergOptions<'a> {
    /// Reads and checks the options.
    ///
    /// # Errors
    /// If one is wrong or missing.
    pub fn read(request: &'a TableRequest) -> Result<Self> {
        let options = Options::of(request, &DESCRIPTION)?;
        options.required("catalog-type")?;
        options.choice("catalog-type", &[("hadoop", ())])?;
        let words =
            [Strategy::Table, Strategy::Latest, Strategy::LatestExclusive, Strategy::Earliest]
                .map(|strategy| (strategy.name(), strategy));
        let interval = options.duration_ms("monitor-interval")?.unwrap_or_default();
        if interval == 0 {
            return Err(options.bad("monitor-interval", "0", "more than nothing: '1 s'"));
        }
        let interval = Duration::from_millis(interval);
        let table = IcebergOptions {
            warehouse: options.required("warehouse")?,
            database: options.text("catalog-database").unwrap_or("default"),
            table: options.get("catalog-table").unwrap_or(&request.table),
            monitor_interval: options.boolean("streaming")?.then_some(interval),
            strategy: options.choice("starting-strategy", &words)?.unwrap_or(Strategy::Latest),
            file_bytes_max: options.number("target-file-size-bytes")?,
        };
        for (name, text) in [("catalog-database", table.database), ("catalog-table", table.table)] {
            let is_name = !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\\']);
            if !is_name {
                return Err(options.bad(name, text, "the name of a folder"));
            }
        }
        if !request.metadata.is_empty() {
            return Err(Error::unsupported(format!(
                "table {}: a table of Iceberg has no metadata columns",
                request.table
            ))
            .hint("leave METADATA columns out"));
        }
        Ok(table)
    }
}
