//! `'connector' = 'iceberg'`: tables of Apache Iceberg, in folders and object stores.
//!
//! A table is a folder (`place.rs`), whose metadata lie there too or at a server (`rest.rs`). Rows
//! are Parquet files that lists name (`manifest.rs`), and the newest version of the table's
//! metadata (`metadata.rs`) names the lists. The library of Iceberg for Rust is not used: see the
//! design note 022.
//!
//! | what | where |
//! |---|---|
//! | rows are added, replaced and deleted, each once | `sink.rs`, `row_delta.rs`, `data_file.rs` |
//! | rows are read, without those that were deleted | `source.rs`, `deletions.rs` |
//! | columns and their numbers | `schema.rs`, `literal.rs` |
//! | lists are files of Avro | `avro.rs` |

mod avro;
mod data_file;
mod deletions;
mod literal;
mod manifest;
mod metadata;
mod options;
mod place;
#[cfg(feature = "http")]
mod rest;
mod row_delta;
mod schema;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Sink, Source, TableRequest,
};

use self::options::{CatalogPlace, DESCRIPTION, IcebergOptions};
use self::schema::TableLayout;
use self::sink::IcebergSink;
use self::source::IcebergSource;
use crate::filesystem::check_place_of;

/// The connector.
#[derive(Clone, Copy, Debug, Default)]
pub struct Iceberg;

impl Connector for Iceberg {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let options = IcebergOptions::read(request)?;
        match as_sink {
            true => sink::new_layout(request, &options).map(drop)?,
            false => TableLayout::of_new(request).map(drop)?,
        }
        match options.catalog {
            CatalogPlace::Folder { warehouse } => check_place_of(request, warehouse),
            CatalogPlace::Server { .. } => Ok(()),
        }
    }

    fn accepted_changes(&self, _: &TableRequest) -> AcceptedChanges {
        AcceptedChanges::Upserts
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        IcebergOptions::read(request).is_ok_and(|options| options.monitor_interval.is_none())
    }

    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        let Ok(options) = IcebergOptions::read(request) else { return BTreeMap::new() };
        let follows = options.monitor_interval.is_some();
        let mut found = vec![
            ("catalog-database", options.database.to_owned()),
            ("catalog-table", options.table.to_owned()),
        ];
        if !as_sink {
            found.push(("streaming", follows.to_string()));
            let strategy = if follows { options.strategy.name() } else { "" };
            found.push(("starting-strategy", strategy.to_owned()));
        }
        found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn leaves_rows_out(&self, _: &TableRequest) -> bool {
        true
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(IcebergSource::new(request)?))
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(IcebergSink::new(request)?))
    }
}
