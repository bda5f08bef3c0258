//! `'connector' = 'postgres-cdc'`: the changes of a table of PostgreSQL, behind what it held first.
//!
//! ```text
//! chunks of the table (SELECT) ─┐
//!                               ├─▶ Reader (a thread) ─▶ feed ─▶ CdcSource
//! log of the server (pgoutput) ─┘
//! ```
//!
//! | what | where |
//! |---|---|
//! | options | [`options`] |
//! | positions in the log | [`lsn`] |
//! | messages of the log | [`pgoutput`] |
//! | which transactions a query sees | [`visibility`] |
//! | how far table and log were read | [`position`] |
//! | columns of a row in a message | [`rows`] |
//! | the order of keys | [`keys`] |
//! | publication and slot | [`slot`] |
//! | reading both in turn | [`reader`], [`stream`] |
//! | the source | [`source`] |

mod keys;
mod lsn;
mod options;
mod pgoutput;
mod position;
mod reader;
mod rows;
mod slot;
mod source;
mod stream;
mod visibility;

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Source, TableRequest,
};

use self::options::{CdcOptions, ChangelogMode, DESCRIPTION, StartupMode};
use self::source::CdcSource;

/// The connector.
pub struct PostgresCdc;

impl Connector for PostgresCdc {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        CdcOptions::read(request).map(drop)
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        CdcOptions::read(request).is_ok_and(|options| options.startup == StartupMode::Snapshot)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        match CdcOptions::read(request) {
            Ok(options) if options.is_append_only => AcceptedChanges::Inserts,
            Ok(options) if options.mode == ChangelogMode::Upsert => AcceptedChanges::Upserts,
            _ => AcceptedChanges::All,
        }
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(CdcSource::new(request.clone(), CdcOptions::open(request)?)))
    }
}
