//! `'connector' = 'jdbc'`: tables of PostgreSQL, read as a whole, looked up by key, and written.
//!
//! | what | where |
//! |---|---|
//! | options | [`options`] |
//! | reading | [`source`] |
//! | looking up | [`lookup`] |
//! | writing | [`sink`], with the statements of [`statements`] |
//! | writing exactly once | [`staging`] |

mod lookup;
mod options;
mod sink;
mod source;
mod staging;
mod statements;

use std::sync::Arc;

use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Sink, Source, TableRequest,
};
use thalweg_core::lookup::{AsyncLookup, LookupRequest};
use thalweg_core::{Error, Result};

use self::options::{DESCRIPTION, JdbcOptions};
use self::sink::JdbcSink;
use self::source::JdbcSource;

/// The connector.
pub struct Jdbc;

impl Connector for Jdbc {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        JdbcOptions::read(request).map(drop)
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        match request.primary_key.is_empty() {
            true => AcceptedChanges::Inserts,
            false => AcceptedChanges::Upserts,
        }
    }

    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        match as_sink || !request.primary_key.is_empty() {
            true => Ok(()),
            false => Err(Error::plan(format!(
                "table {}: a job with snapshots can't resume in the middle of a table without a key",
                request.table
            ))
            .hint("declare PRIMARY KEY (…) NOT ENFORCED: rows are then read in its order")),
        }
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(JdbcSource::new(request.clone(), JdbcOptions::open(request)?)))
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(JdbcSink::new(request.clone(), JdbcOptions::open(request)?)))
    }

    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        let options = JdbcOptions::open(&request.table)?;
        Ok(Arc::new(lookup::open(request, &options)?))
    }
}
