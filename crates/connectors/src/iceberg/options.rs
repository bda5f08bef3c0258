//! The `WITH` options of tables of Iceberg.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "http")]
use thalweg_core::connector::Secret;
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, OptionDescription, Options,
    TableRequest, option_table,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};

use super::place::Catalog;
#[cfg(feature = "http")]
use super::rest::{RestCatalog, TableName};
#[cfg(feature = "http")]
use crate::network::http::{HttpSettings, parts_of};

/// The connector and its options.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities { is_partitioned: true, ..Capabilities::NONE }
        .reading(Boundedness::ByOptions, &[AcceptedChanges::Inserts])
        .writing(
            &[AcceptedChanges::Inserts, AcceptedChanges::Upserts],
            SinkGuarantee::Transactional,
        ),
    options: OPTIONS,
    unsupported: &["credential", "header.*", "overwrite-enabled", "write-*", "write.*"],
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
        => "without effect: a catalog is its warehouse, or its server";
    "catalog-type": Words(&["hadoop", "rest"]), required(), as_in_flink()
        => "`hadoop`: a table is a folder; `rest`: a server knows the tables. Other types are not \
            there";
    "warehouse": Text, as_in_flink()
        => "with `hadoop` the folder of all tables, or the URL of an object store; with `rest` \
            the name of the warehouse, if the server has several";
    "uri": Text, as_in_flink()
        => "with `rest` the URL of the server, without `/v1`";
    "token": Secret, as_in_flink()
        => "with `rest` what is sent to the server as a bearer token";
    "catalog-database": Text, or("default"), as_in_flink()
        => "the database, with `hadoop` a folder in the warehouse";
    "catalog-table": Text, or_else("the table's name"), as_in_flink()
        => "the table in it, with `hadoop` a folder in that";
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
    "write.upsert.enabled": Boolean, or_else("the table's, or `false`"), of_sink(), as_in_flink()
        => "a row replaces the one of its `PRIMARY KEY`, also of earlier jobs; a table that is \
            created keeps this as its property";
    "upsert-enabled": Boolean, or_else("`write.upsert.enabled`"), of_sink(), as_in_flink()
        => "the same for this job alone";
    "format-version": Words(&["2"]), or("2"), of_sink(), as_in_flink()
        => "the version of Iceberg's format in which a table is created";
    "write.format.default": Words(&["parquet"]), or("parquet"), of_sink(), as_in_flink()
        => "the format of its files";
};

const BOOLEANS: &[(&str, bool)] = &[("true", true), ("false", false)];

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

/// What knows the tables.
#[derive(Clone, Copy, Debug)]
pub enum CatalogPlace<'a> {
    /// A folder of folders.
    Folder { warehouse: &'a str },
    /// A server.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "there is no client of HTTP"))]
    Server { uri: &'a str, warehouse: Option<&'a str> },
}

/// The checked options of a table.
pub struct IcebergOptions<'a> {
    pub catalog: CatalogPlace<'a>,
    pub database: &'a str,
    pub table: &'a str,
    /// How often to look for new snapshots, if at all.
    pub monitor_interval: Option<Duration>,
    pub strategy: Strategy,
    pub file_bytes_max: Option<u64>,
    /// Whether rows replace those of their key, where the table is not to decide it.
    pub is_upsert: Option<bool>,
}

impl<'a> IcebergOptions<'a> {
    /// Reads and checks the options.
    ///
    /// # Errors
    /// If one is wrong or missing.
    pub fn read(request: &'a TableRequest) -> Result<Self> {
        let options = Options::of(request, &DESCRIPTION)?;
        options.required("catalog-type")?;
        let is_server = options.choice("catalog-type", &[("hadoop", false), ("rest", true)])?;
        let catalog = match is_server {
            Some(true) => server(&options)?,
            _ => CatalogPlace::Folder { warehouse: options.required("warehouse")? },
        };
        let words =
            [Strategy::Table, Strategy::Latest, Strategy::LatestExclusive, Strategy::Earliest]
                .map(|strategy| (strategy.name(), strategy));
        let interval = options.duration_ms("monitor-interval")?.unwrap_or_default();
        if interval == 0 {
            return Err(options.bad("monitor-interval", "0", "more than nothing: '1 s'"));
        }
        let interval = Duration::from_millis(interval);
        let table = IcebergOptions {
            catalog,
            database: options.text("catalog-database").unwrap_or("default"),
            table: options.get("catalog-table").unwrap_or(&request.table),
            monitor_interval: options.boolean("streaming")?.then_some(interval),
            strategy: options.choice("starting-strategy", &words)?.unwrap_or(Strategy::Latest),
            file_bytes_max: options.number("target-file-size-bytes")?,
            is_upsert: match options.choice("upsert-enabled", BOOLEANS)? {
                None => options.choice("write.upsert.enabled", BOOLEANS)?,
                is_upsert => is_upsert,
            },
        };
        for (name, only) in [("format-version", "2"), ("write.format.default", "parquet")] {
            let checked = options.choice(name, &[(only, ())]);
            checked.map_err(|error| error.hint("leave the option out: there is no other"))?;
        }
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

    /// The catalog, where that is a server: nothing is asked yet.
    ///
    /// # Errors
    /// If it is none, or a secret is not there.
    #[cfg(feature = "http")]
    pub fn server(&self, request: &TableRequest) -> Result<Arc<dyn Catalog>> {
        let CatalogPlace::Server { uri, warehouse } = self.catalog else {
            return Err(Error::internal("a catalog that is no server was asked as one"));
        };
        let options = Options::of(request, &DESCRIPTION)?;
        let token = options.secret("token")?;
        let bearer = |token: Secret| Secret::new(format!("Bearer {}", token.expose()));
        let headers = token.map(|token| ("authorization".to_owned(), bearer(token)));
        let settings = HttpSettings {
            headers: headers.into_iter().collect(),
            targets: options.targets().clone(),
            ..HttpSettings::default()
        };
        let name = TableName {
            uri: uri.to_owned(),
            warehouse: warehouse.map(str::to_owned),
            database: self.database.to_owned(),
            table: self.table.to_owned(),
        };
        Ok(Arc::new(RestCatalog::new(name, settings)))
    }

    /// The same in a program without a client of HTTP.
    ///
    /// # Errors
    /// Always: options that name a server are refused there.
    #[cfg(not(feature = "http"))]
    pub fn server(&self, _: &TableRequest) -> Result<Arc<dyn Catalog>> {
        Err(Error::internal("a program without HTTP asks a server"))
    }
}

/// The server of a catalog of type `rest`.
#[cfg(feature = "http")]
fn server<'a>(options: &Options<'a>) -> Result<CatalogPlace<'a>> {
    let uri = options.required("uri")?;
    let Some((host, port, ..)) = parts_of(uri).filter(|_| !uri.starts_with("ws")) else {
        return Err(options.bad("uri", uri, "'http://HOST:PORT/PATH', without a password"));
    };
    options.check_target(&host, port)?;
    Ok(CatalogPlace::Server { uri, warehouse: options.get("warehouse") })
}

#[cfg(not(feature = "http"))]
fn server<'a>(_: &Options<'a>) -> Result<CatalogPlace<'a>> {
    Err(Error::unsupported("catalogs of type 'rest' need a program with the feature http")
        .hint("build it with --features http"))
}
