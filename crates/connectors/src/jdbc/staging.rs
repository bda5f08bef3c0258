//! Exactly once into a table: rows wait in a table of ours until their snapshot is kept.
//!
//! ```text
//! write    rows ─▶ thalweg_staging (committed, seen by nobody who reads the target)
//! prepare  the rest of them; the handle is the number of the transaction
//! commit   BEGIN; rows ─▶ target; thalweg_progress.transaction = number; COMMIT
//! ```
//!
//! `PREPARE TRANSACTION` would save the second copy, but servers refuse it by default
//! (`max_prepared_transactions = 0`), and one that is forgotten holds locks and keeps the server
//! from cleaning up.
//!
//! **Why nothing is lost or doubled:**
//! - what a handle names was committed to `thalweg_staging` before the snapshot with the handle is
//!   kept;
//! - rows move to the target in the transaction that raises the number in `thalweg_progress`, under
//!   a lock of its row. A commit that is repeated (its answer was lost, the job died behind it)
//!   finds the number and does nothing;
//! - rows with a greater number than that of the snapshot are removed by `recover`, before the job
//!   writes them again;
//! - rows are numbered within their transaction, so that a batch whose answer was lost is first
//!   removed and then written again;
//! - one job at a time writes a table exactly once: it holds an advisory lock, and each commit
//!   checks that the row of `thalweg_progress` still has the job's lineage.

use std::collections::BTreeMap;

use serde_json::json;
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart};
use thalweg_core::{Error, Result};

use super::statements::{Statements, TextRow};
use crate::network::{Cancel, TICK};
use crate::postgres::catalog::{ServerColumn, ServerTable};
use crate::postgres::connection::Connection;
use crate::postgres::encode::{append_copy_line, array_text};
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;
use crate::postgres::{identifier, list, literal};
use crate::saved::read_saved;

/// Text of rows that are staged together.
const STAGE_BYTES: usize = 1 << 20;

/// How often the lock of an output is asked for, each [`TICK`].
const LOCK_TRIES: u32 = 30;

/// Rows of a table that wait for their snapshot.
pub struct Staging {
    /// The table of the job, for messages.
    table: String,
    /// The target, as `thalweg_progress` names it.
    output: String,
    /// The tables of ours, in SQL.
    progress_table: String,
    staging_table: String,
    /// The lineage that this job has noted.
    lineage: Option<String>,
    /// The transaction that is written.
    transaction: u64,
    /// The rows of it that are staged.
    staged: u64,
    /// Rows that are not staged yet.
    lines: String,
    rows: u64,
    /// The transactions that were prepared and not committed, and how many rows they have.
    prepared: BTreeMap<u64, u64>,
}

/// The row of `thalweg_progress`.
struct Progress {
    mark: OutputMark,
    /// The last transaction whose rows are in the target.
    transaction: u64,
    is_finished: bool,
}

impl Staging {
    /// For this table of a job, which stands for that table of the server.
    pub fn new(table: &str, target: &ServerTable) -> Staging {
        let of_schema = |name: &str| format!("{}.{}", identifier(&target.schema), identifier(name));
        Staging {
            table: table.to_owned(),
            output: target.shown(),
            progress_table: of_schema("thalweg_progress"),
            staging_table: of_schema("thalweg_staging"),
            lineage: None,
            transaction: 1,
            staged: 0,
            lines: String::new(),
            rows: 0,
            prepared: BTreeMap::new(),
        }
    }

    fn doing(&self) -> String {
        format!("table {}", self.table)
    }

    /// A call that does no harm when it is repeated, over a connection that holds the lock.
    fn call<T>(
        &self,
        session: &mut Session,
        call: &mut dyn FnMut(&mut Connection) -> Outcome<T>,
    ) -> Result<T> {
        let cancel = session.cancel().clone();
        session.call(&self.doing(), &mut |connection| {
            self.lock(connection, &cancel)?;
            call(connection)
        })
    }

    /// Takes the lock of the output, once per connection: taking it again costs nothing. Waits a
    /// little: the server may not have noticed yet that an earlier connection has gone.
    fn lock(&self, connection: &mut Connection, cancel: &Cancel) -> Outcome<()> {
        let key = format!("hashtextextended({}, 0)", literal(&format!("thalweg {}", self.output)));
        let sql = format!(
            "SELECT CASE WHEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) \
             THEN true ELSE pg_try_advisory_lock({key}) END"
        );
        for _ in 0..=LOCK_TRIES {
            if connection.query_value(&sql)?.as_deref() == Some("t") {
                return Ok(());
            }
            if !cancel.sleep(TICK) {
                return Err(Failure::Cancelled);
            }
        }
        Err(Failure::Error(
            Error::plan(format!("{}: another job writes {} exactly once", self.doing(), self.output)).hint(
                "stop that job, or write at least once; where it was killed, its connection may live for some seconds",
            ),
        ))
    }

    /// Takes the exclusive right to the output.
    ///
    /// # Errors
    /// If another job has it.
    pub fn claim(&self, session: &mut Session) -> Result<()> {
        let cancel = session.cancel().clone();
        let locked = session.try_call(&mut |connection| self.lock(connection, &cancel));
        locked.map_err(|failure| session.explained(failure, &self.doing()))
    }

    fn progress(&self, connection: &mut Connection, locking: &str) -> Outcome<Option<Progress>> {
        let exists = format!("SELECT to_regclass({})", literal(&self.progress_table));
        if connection.query_value(&exists)?.is_none() {
            return Ok(None);
        }
        let (table, output) = (&self.progress_table, literal(&self.output));
        let sql = format!(
            "SELECT lineage, snapshot, transaction, is_finished FROM {table} WHERE output = {output}{locking}"
        );
        let Some(row) = connection.query(&sql)?.into_iter().next() else { return Ok(None) };
        let mut texts = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || texts.next().unwrap_or_default();
        let (lineage, snapshot, transaction) = (next(), next(), next());
        let number = |text: &str| text.parse().unwrap_or(0);
        Ok(Some(Progress {
            mark: OutputMark { lineage, snapshot: number(&snapshot) },
            transaction: number(&transaction),
            is_finished: next() == "t",
        }))
    }

    /// As [`thalweg_core::Sink::check_start`]. A job without snapshots may write after an earlier
    /// one that has ended.
    ///
    /// # Errors
    /// If the output is not that of the snapshot, or an earlier job still needs it.
    pub fn check_start(
        &mut self,
        session: &mut Session,
        handle: Option<&str>,
        start: &OutputStart,
        is_transactional: bool,
    ) -> Result<()> {
        let found = self.call(session, &mut |connection| self.progress(connection, ""))?;
        self.transaction = found.as_ref().map_or(1, |found| found.transaction + 1);
        let Some(handle) = handle else {
            return self.check_unmarked(found.as_ref(), start, is_transactional);
        };
        let number = Handle::read(handle)?;
        self.check_mark(found.as_ref(), start)?;
        let committed = found.map_or(0, |found| found.transaction);
        if committed >= number.transaction {
            return Ok(());
        }
        let sql =
            self.of_transactions("SELECT count(*) FROM", &format!("<= {}", number.transaction));
        let staged = self.call(session, &mut |connection| connection.query_value(&sql))?;
        match staged.and_then(|count| count.parse().ok()) == Some(number.rows) {
            true => Ok(()),
            false => Err(Error::data(format!(
                "{}: the snapshot has {} rows to commit, and {} does not hold them",
                self.doing(),
                number.rows,
                self.staging_table
            ))
            .hint("restore the database together with the snapshot, or start from scratch")),
        }
    }

    fn check_unmarked(
        &self,
        found: Option<&Progress>,
        start: &OutputStart,
        is_transactional: bool,
    ) -> Result<()> {
        let Some(found) = found.filter(|found| !found.is_finished && !start.overwrites) else {
            return Ok(());
        };
        if is_transactional && start.fit(Some(&found.mark)) == MarkFit::Fits {
            return Ok(());
        }
        Err(Error::plan(format!(
            "{}: an earlier job writes {} exactly once and has not ended, and this one would write its rows again",
            self.doing(),
            self.output
        ))
        .hint(
            "resume that job with --resume; or start from scratch next to what is there with --overwrite, which forgets what it \
             has not committed",
        ))
    }

    fn check_mark(&self, found: Option<&Progress>, start: &OutputStart) -> Result<()> {
        let (doing, output) = (self.doing(), &self.output);
        let table = &self.progress_table;
        Err(match start.fit(found.map(|found| &found.mark)) {
            MarkFit::Fits => return Ok(()),
            MarkFit::Missing if !start.is_marked || start.overwrites => return Ok(()),
            MarkFit::Ahead(_) if start.overwrites => return Ok(()),
            MarkFit::Missing => Error::plan(format!(
                "{doing}: {table} does not say that the snapshot's job has written {output}"
            ))
            .hint("restore the database together with the snapshot; --overwrite continues with it as it is"),
            MarkFit::Ahead(number) => Error::plan(format!(
                "{doing}: {output} holds the rows of snapshot {number}, which is newer than the one to resume from; they \
                 would be written again"
            ))
            .hint(format!("resume from snapshot {number}; --overwrite goes back, and leaves these rows there")),
            MarkFit::Other => Error::plan(format!(
                "{doing}: {output} was written by another job, or another start of this one, since the snapshot"
            ))
            .hint("resume the job that has written it last, or start from scratch"),
        })
    }

    /// Notes which snapshot the output belongs to. The first time it makes the tables of ours.
    ///
    /// # Errors
    /// If it can't be noted.
    pub fn mark(&mut self, session: &mut Session, mark: &OutputMark) -> Result<()> {
        let (progress, staging) = (&self.progress_table, &self.staging_table);
        let create = match self.lineage {
            Some(_) => String::new(),
            None => format!(
                "CREATE TABLE IF NOT EXISTS {progress} (output text PRIMARY KEY, lineage text NOT NULL, \
                 snapshot bigint NOT NULL, transaction bigint NOT NULL, is_finished boolean NOT NULL); \
                 CREATE TABLE IF NOT EXISTS {staging} (output text, transaction bigint, place bigint, \
                 is_delete boolean NOT NULL, row text[] NOT NULL, PRIMARY KEY (output, transaction, place)); "
            ),
        };
        let (output, lineage) = (literal(&self.output), literal(&mark.lineage));
        let (snapshot, committed) = (mark.snapshot, self.transaction - 1);
        let sql = format!(
            "{create}INSERT INTO {progress} VALUES ({output}, {lineage}, {snapshot}, {committed}, false) \
             ON CONFLICT (output) DO UPDATE SET lineage = EXCLUDED.lineage, snapshot = EXCLUDED.snapshot, \
             is_finished = false"
        );
        self.call(session, &mut |connection| connection.execute(&sql)).map_err(|error| {
            error.hint(format!("exactly once needs the right to create {progress} and {staging}"))
        })?;
        self.lineage = Some(mark.lineage.clone());
        Ok(())
    }

    /// As [`thalweg_core::Sink::recover`].
    ///
    /// # Errors
    /// If what the handle names can't be committed.
    pub fn recover(
        &mut self,
        session: &mut Session,
        statements: &Statements,
        handle: Option<&str>,
    ) -> Result<()> {
        if let Some(handle) = handle {
            self.commit(session, statements, handle)?;
        }
        let sql = self.of_transactions("DELETE FROM", "> 0");
        self.call(session, &mut |connection| connection.execute(&sql))?;
        Ok(())
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If it can't be staged.
    pub fn add(&mut self, session: &mut Session, row: &TextRow, is_delete: bool) -> Result<()> {
        let place = self.staged + self.rows;
        let values = [
            self.output.clone(),
            self.transaction.to_string(),
            place.to_string(),
            if is_delete { "t" } else { "f" }.to_owned(),
            array_text(row),
        ];
        append_copy_line(&mut self.lines, &values.map(Some));
        self.rows += 1;
        if self.lines.len() >= STAGE_BYTES { self.stage(session) } else { Ok(()) }
    }

    fn stage(&mut self, session: &mut Session) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let copy = format!("COPY {} FROM STDIN", self.staging_table);
        let remove = self.of_transactions("DELETE FROM", &format!("= {}", self.transaction));
        let remove = format!("{remove} AND place >= {}", self.staged);
        let mut is_repeated = false;
        self.call(session, &mut |connection| {
            if std::mem::replace(&mut is_repeated, true) {
                connection.execute(&remove)?;
            }
            connection.copy_in(&copy, &self.lines)
        })?;
        self.staged += self.rows;
        self.rows = 0;
        self.lines.clear();
        Ok(())
    }

    /// As [`thalweg_core::Sink::prepare`].
    ///
    /// # Errors
    /// If rows can't be staged.
    pub fn prepare(&mut self, session: &mut Session) -> Result<Option<String>> {
        self.stage(session)?;
        if self.staged > 0 {
            self.prepared.insert(self.transaction, std::mem::take(&mut self.staged));
            self.transaction += 1;
        }
        let Some((&transaction, _)) = self.prepared.last_key_value() else { return Ok(None) };
        let rows = self.prepared.values().sum();
        Ok(Some(Handle { transaction, rows }.write(&self.output)))
    }

    /// As [`thalweg_core::Sink::commit`].
    ///
    /// # Errors
    /// If it can't be done now, or another job has taken the output.
    pub fn commit(
        &mut self,
        session: &mut Session,
        statements: &Statements,
        handle: &str,
    ) -> Result<()> {
        let number = Handle::read(handle)?.transaction;
        let moves = self.moves(statements, number);
        self.call(session, &mut |connection| {
            connection.execute("BEGIN")?;
            let moved = self.move_rows(connection, number, &moves);
            if moved.is_err() && !connection.is_broken() {
                connection.execute("ROLLBACK")?;
            }
            moved
        })?;
        self.transaction = self.transaction.max(number + 1);
        self.prepared.retain(|&prepared, _| prepared > number);
        Ok(())
    }

    fn move_rows(&self, connection: &mut Connection, number: u64, moves: &str) -> Outcome<()> {
        let found = self.progress(connection, " FOR UPDATE")?;
        let is_done = found.as_ref().is_some_and(|found| found.transaction >= number);
        let is_own = |found: &Progress| Some(&found.mark.lineage) == self.lineage.as_ref();
        if !is_done && !found.as_ref().is_some_and(is_own) {
            return Err(Failure::Error(Error::data(format!(
                "{}: another job has taken {} over",
                self.doing(),
                self.output
            ))));
        }
        if !is_done {
            connection.execute(moves)?;
        }
        connection.execute("COMMIT").map(drop)
    }

    /// The statements that move the rows of transactions up to this one to the target.
    fn moves(&self, statements: &Statements, number: u64) -> String {
        let value = |(place, column): (usize, &ServerColumn)| {
            format!("(s.row[{}])::{}", place + 1, column.type_name)
        };
        let values = list(statements.columns.iter().enumerate().map(value));
        let of = self.of_transactions("FROM", &format!("<= {number}"));
        let mut sql = String::new();
        let insert = statements.insert();
        if statements.key.is_empty() {
            sql.push_str(&format!(
                "{insert} SELECT {values} FROM (SELECT row, transaction, place {of}) s ORDER BY transaction, place; "
            ));
        } else {
            let texts = list(statements.key.iter().map(|place| format!("row[{}]", place + 1)));
            let last = format!(
                "SELECT DISTINCT ON ({texts}) is_delete, row {of} ORDER BY {texts}, transaction DESC, place DESC"
            );
            let on_conflict = statements.on_conflict();
            sql.push_str(&format!(
                "{insert} SELECT {values} FROM ({last}) s WHERE NOT s.is_delete {on_conflict}; "
            ));
            let same = statements.key.iter().map(|&place| {
                let column = &statements.columns[place];
                format!("t.{} = {}", identifier(&column.name), value((place, column)))
            });
            let same = same.collect::<Vec<_>>().join(" AND ");
            let target = &statements.table;
            sql.push_str(&format!(
                "DELETE FROM {target} t USING ({last}) s WHERE s.is_delete AND {same}; "
            ));
        }
        let remove = self.of_transactions("DELETE FROM", &format!("<= {number}"));
        let (progress, output) = (&self.progress_table, literal(&self.output));
        sql.push_str(&format!(
            "{remove}; UPDATE {progress} SET transaction = {number} WHERE output = {output}"
        ));
        sql
    }

    /// A statement about the staged rows of these transactions.
    fn of_transactions(&self, begin: &str, which: &str) -> String {
        let (staging, output) = (&self.staging_table, literal(&self.output));
        format!("{begin} {staging} WHERE output = {output} AND transaction {which}")
    }

    /// The job is done: another one may write the output from scratch.
    ///
    /// # Errors
    /// If it can't be noted.
    pub fn finish(&mut self, session: &mut Session) -> Result<()> {
        let (progress, output) = (&self.progress_table, literal(&self.output));
        let sql = format!("UPDATE {progress} SET is_finished = true WHERE output = {output}");
        self.call(session, &mut |connection| connection.execute(&sql))?;
        Ok(())
    }
}

/// The error of a snapshot with rows to commit, where nothing is committed any more.
pub fn refused_handle(table: &str) -> Error {
    Error::plan(format!(
        "table {table}: the snapshot holds rows that are to be committed, and the table is now written at least once"
    ))
    .hint("resume under 'sink.delivery-guarantee' = 'exactly-once', as the snapshot was taken")
}

/// What a snapshot says of rows that are to be committed.
struct Handle {
    transaction: u64,
    rows: u64,
}

impl Handle {
    fn write(&self, output: &str) -> String {
        json!({ "output": output, "transaction": self.transaction, "rows": self.rows }).to_string()
    }

    fn read(text: &str) -> Result<Handle> {
        read_saved("transaction of a database", text, |value| {
            let number = |name: &str| value.get(name)?.as_u64();
            Some(Handle { transaction: number("transaction")?, rows: number("rows")? })
        })
    }
}
