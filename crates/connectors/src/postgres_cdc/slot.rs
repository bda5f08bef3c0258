//! The publication and the replication slot of a table.

use std::time::Duration;

use thalweg_core::{Error, Result};

use super::lsn;
use super::options::{CdcOptions, Publication};
use super::visibility::Visibility;
use crate::network::{Deadline, TICK};
use crate::postgres::catalog::ServerTable;
use crate::postgres::connection::Connection;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;
use crate::postgres::{identifier, literal};

/// How long a slot may be in use by a run that was killed, before the server notices.
const IN_USE_FOR: Duration = Duration::from_secs(5);

/// Finds the table that the options name.
///
/// # Errors
/// If none or several are of that name.
pub fn find_table(connection: &mut Connection, options: &CdcOptions) -> Outcome<ServerTable> {
    let (schema, table) = &options.table;
    let pattern = |text: &str| literal(&format!("^({text})$"));
    let sql = format!(
        "SELECT c.oid, n.nspname || '.' || c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND n.nspname ~ {} AND c.relname ~ {} ORDER BY 2",
        pattern(schema),
        pattern(table)
    );
    let found = connection.query(&sql)?;
    match found.as_slice() {
        [row] => match row.as_slice() {
            [Some(_), Some(name), Some(kind)] if kind == "p" => Err(Failure::Error(
                Error::unsupported(format!("{name} is a partitioned table, which can't be read yet"))
                    .hint("read its partitions, each as a table of its own"),
            )),
            [Some(oid), ..] => ServerTable::read(connection, oid),
            _ => Err(Failure::Error(Error::internal("a table has a number and a name"))),
        },
        [] => Err(Failure::Error(
            Error::io(format!("the database has no table '{schema}.{table}'"))
                .hint("check 'schema-name' and 'table-name'; this user may also lack the right to see the schema"),
        )),
        several => {
            let names: Vec<&str> = several.iter().filter_map(|row| row.get(1)?.as_deref()).collect();
            let shown = names.iter().take(10).copied().collect::<Vec<_>>().join(", ");
            Err(Failure::Error(
                Error::unsupported(format!("'{schema}.{table}' names {} tables: {shown}", several.len()))
                    .hint("name one table; each has a slot of its own"),
            ))
        }
    }
}

/// Checks that the server writes a log that can be read.
///
/// # Errors
/// If it does not.
pub fn check_server(connection: &mut Connection) -> Outcome<()> {
    let level = connection.query_value("SHOW wal_level")?.unwrap_or_default();
    if level != "logical" {
        return Err(Failure::Error(
            Error::io(format!("the server's log can't be read: wal_level is {level}"))
                .hint("set wal_level = logical in postgresql.conf and restart the server"),
        ));
    }
    Ok(())
}

/// Where the log that a slot of this name needs begins, and whether someone reads it; `None`
/// without such a slot.
///
/// # Errors
/// If it is of another kind, or has lost its log.
pub fn find(connection: &mut Connection, name: &str) -> Outcome<Option<(u64, bool)>> {
    let sql = format!(
        "SELECT confirmed_flush_lsn, active, plugin, database = current_database(), wal_status FROM pg_replication_slots \
         WHERE slot_name = {}",
        literal(name)
    );
    let Some(row) = connection.query(&sql)?.into_iter().next() else { return Ok(None) };
    let mut texts = row.into_iter().map(Option::unwrap_or_default);
    let mut next = || texts.next().unwrap_or_default();
    let (confirmed, active, plugin, is_here, status) = (next(), next(), next(), next(), next());
    let error = |what: &str, help: &str| {
        Failure::Error(Error::io(format!("the replication slot '{name}' {what}")).hint(help))
    };
    if plugin != "pgoutput" || is_here != "t" {
        return Err(error("is of another plugin or database", "choose another 'slot.name'"));
    }
    if status == "lost" {
        return Err(error(
            "has lost its log: it was further behind than max_slot_wal_keep_size allows",
            "drop it, and start from scratch",
        ));
    }
    Ok(Some((lsn::read(&confirmed)?, active == "t")))
}

/// Checks that nobody else reads the slot. Waits a little: the server may not have noticed yet that
/// an earlier run was killed.
///
/// # Errors
/// If another process does.
pub fn check_free(session: &mut Session, name: &str) -> Outcome<Option<u64>> {
    let deadline = Deadline::after(IN_USE_FOR);
    loop {
        match session.try_call(&mut |connection| find(connection, name))? {
            None => return Ok(None),
            Some((confirmed, false)) => return Ok(Some(confirmed)),
            Some((_, true)) if !deadline.is_over() && session.cancel().sleep(TICK) => {}
            Some((_, true)) => return Err(Failure::Error(in_use(name))),
        }
    }
}

/// Ends the process that served the log over a connection of ours which has broken: the server may
/// notice that only much later.
///
/// # Errors
/// If the server refuses.
pub fn end_reader(connection: &mut Connection, slot: &str, pid: &str) -> Outcome<()> {
    let sql = format!(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = {} AND active_pid = {pid}",
        literal(slot)
    );
    connection.execute(&sql).map(drop)
}

/// The error of a slot that another process reads.
fn in_use(name: &str) -> Error {
    Error::io(format!("the replication slot '{name}' is in use"))
        .hint("one job at a time reads a slot: stop the other one, or choose another 'slot.name'")
}

/// Makes the publication, or checks it.
///
/// # Errors
/// If it does not have the table.
pub fn publish(
    connection: &mut Connection,
    options: &CdcOptions,
    table: &ServerTable,
) -> Outcome<()> {
    let name = &options.publication;
    let shown = table.shown();
    let is_there = format!("SELECT 1 FROM pg_publication WHERE pubname = {}", literal(name));
    let is_there = connection.query_value(&is_there)?.is_some();
    if !is_there {
        let tables = match options.autocreate {
            Publication::Filtered => format!("TABLE {}", table.sql_name()),
            Publication::AllTables => "ALL TABLES".to_owned(),
            Publication::Disabled => {
                return Err(Failure::Error(
                    Error::io(format!("there is no publication '{name}'")).hint(format!(
                        "CREATE PUBLICATION {} FOR TABLE {}",
                        identifier(name),
                        table.sql_name()
                    )),
                ));
            }
        };
        return connection
            .execute(&format!("CREATE PUBLICATION {} FOR {tables}", identifier(name)))
            .map(drop);
    }
    let has_table = format!(
        "SELECT 1 FROM pg_publication_tables WHERE pubname = {} AND schemaname = {} AND tablename = {}",
        literal(name),
        literal(&table.schema),
        literal(&table.name)
    );
    if connection.query_value(&has_table)?.is_some() {
        return Ok(());
    }
    let add = format!("ALTER PUBLICATION {} ADD TABLE {}", identifier(name), table.sql_name());
    match options.autocreate {
        Publication::Filtered => connection.execute(&add).map(drop),
        _ => Err(Failure::Error(
            Error::io(format!("the publication '{name}' does not have the table {shown}"))
                .hint(add),
        )),
    }
}

/// Makes the slot. Where its log begins, and which transactions are before that.
///
/// # Errors
/// If the server refuses.
pub fn create(session: &mut Session, options: &CdcOptions) -> Outcome<(u64, Visibility)> {
    let mut replication = Connection::open_replication(&options.settings, session.cancel())?;
    let sql = format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput", identifier(&options.slot));
    let row = replication.query(&sql)?.into_iter().next().unwrap_or_default();
    let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let (confirmed, snapshot) = (lsn::read(&text(1))?, text(2));
    // The snapshot holds as long as the connection has nothing else to do.
    let visibility = session.try_call(&mut |connection| {
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        connection.execute(&format!("SET TRANSACTION SNAPSHOT {}", literal(&snapshot)))?;
        let text = connection.query_value("SELECT pg_current_snapshot()")?;
        connection.execute("COMMIT")?;
        Visibility::read(&text.unwrap_or_default())
    })?;
    Ok((confirmed, visibility))
}

/// Drops the slot, if it is there. Waits a little: the server may not have noticed yet that its
/// reader has gone.
///
/// # Errors
/// If the server refuses.
pub fn drop_slot(session: &mut Session, name: &str) -> Result<()> {
    let sql = format!(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {} AND NOT active",
        literal(name)
    );
    let left = format!("SELECT 1 FROM pg_replication_slots WHERE slot_name = {}", literal(name));
    let doing = "dropping the replication slot";
    let deadline = Deadline::after(IN_USE_FOR);
    loop {
        session.call(doing, &mut |connection| connection.execute(&sql))?;
        let is_left =
            session.call(doing, &mut |connection| connection.query_value(&left))?.is_some();
        if !is_left || deadline.is_over() || !session.cancel().sleep(TICK) {
            return Ok(());
        }
    }
}
