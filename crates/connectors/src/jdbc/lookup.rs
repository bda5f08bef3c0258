//! Looks rows up by key: each batch of keys is a query, and a few of them run at the same time.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::lookup::LookupRequest;
use thalweg_core::{Result, TableSchema};

use super::options::JdbcOptions;
use super::statements::{TextRow, is_one_of};
use crate::lookup_workers::{CONNECTIONS, LookupWorker, WorkerLookup};
use crate::network::Cancel;
use crate::postgres::catalog::{ServerColumn, ServerTable, column_list};
use crate::postgres::decode::RowBuilder;
use crate::postgres::encode::TextRows;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;

/// What is asked.
struct Asked {
    table: String,
    delivered: TableSchema,
    select: String,
    key_columns: TableSchema,
    keys: Vec<ServerColumn>,
}

/// Asks over a connection.
struct Worker {
    session: Session,
    asked: Arc<Asked>,
}

/// Finds the table that is looked up.
///
/// # Errors
/// If it is not there, or lacks a column.
pub fn open(request: &LookupRequest, options: &JdbcOptions) -> Result<WorkerLookup> {
    let (table, cancel) = (request.table.table.clone(), Cancel::default());
    let session = || Session::new(options.settings.clone(), cancel.clone(), options.give_up_after);
    let mut first = session();
    let found = ServerTable::open(&mut first, &table, &options.table_name)?;
    let delivered = request.columns();
    let key_columns = request.key_columns();
    let columns = column_list(&found.match_columns(&delivered)?);
    let asked = Arc::new(Asked {
        table: format!("lookup {table}"),
        select: format!("SELECT {columns} FROM {}", found.sql_name()),
        keys: found.match_columns(&key_columns)?,
        key_columns,
        delivered,
    });
    let others = (1..CONNECTIONS).map(|_| session());
    let workers = std::iter::once(first).chain(others);
    let workers = workers.map(|session| Worker { session, asked: Arc::clone(&asked) });
    WorkerLookup::start(&table, cancel.clone(), workers)
}

impl LookupWorker for Worker {
    fn answer(&mut self, keys: &RecordBatch) -> Result<RecordBatch> {
        let rows = TextRows::new(keys, &self.asked.key_columns);
        let keys: Vec<TextRow> = (0..keys.num_rows()).map(|row| rows.row(row)).collect();
        // A connection that was idle may have been closed meanwhile; a second attempt shows it.
        let mut result = ask(&mut self.session, &self.asked, &keys);
        if result.as_ref().is_err_and(Failure::is_passing) {
            result = ask(&mut self.session, &self.asked, &keys);
        }
        result.map_err(|failure| self.session.explained(failure, &self.asked.table))
    }
}

fn ask(session: &mut Session, asked: &Asked, keys: &[TextRow]) -> Outcome<RecordBatch> {
    let columns: Vec<&ServerColumn> = asked.keys.iter().collect();
    let sql = format!("{} WHERE {}", asked.select, is_one_of(&columns, keys.iter()));
    session.try_call(&mut |connection| {
        let mut builder = RowBuilder::new(&asked.delivered);
        connection.query_each(&sql, &mut |row| Ok(builder.append(row.values())?))?;
        Ok(builder.finish()?)
    })
}
