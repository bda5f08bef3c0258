//! Writes a table.
//!
//! | guarantee | how |
//! |---|---|
//! | at least once, without a key | `COPY`, a batch in a transaction |
//! | at least once, with a key | the last change of each key, in the order of the keys (so that writers of one table can't lock each other out), `INSERT … ON CONFLICT` and `DELETE` in a transaction |
//! | exactly once | [`Staging`] |

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::connector::{Sink, TableRequest, Trouble, Waker};
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::options::JdbcOptions;
use super::staging::{self, Staging};
use super::statements::{Statements, TextRow};
use crate::network::{Cancel, Timer};
use crate::postgres::catalog::ServerTable;
use crate::postgres::encode::{TextRows, append_copy_line};
use crate::postgres::failure::Failure;
use crate::postgres::session::Session;

/// Text of rows that are written together at most.
const FLUSH_BYTES: usize = 4 << 20;

/// Writes a table.
pub struct JdbcSink {
    request: TableRequest,
    options: JdbcOptions,
    session: Session,
    statements: Option<Statements>,
    buffer: Buffer,
    /// When the first row of the buffer came.
    since: Timer,
    /// The job takes snapshots, and rows become visible with them.
    is_transactional: bool,
    staging: Option<Staging>,
}

/// Rows that wait for others.
#[derive(Default)]
struct Buffer {
    /// Lines of `COPY`, where rows are added.
    lines: String,
    /// The last change of each key, where rows have one: `None` for a deletion.
    changes: BTreeMap<TextRow, Option<TextRow>>,
    rows: usize,
    bytes: usize,
}

impl JdbcSink {
    /// A sink of this table.
    pub fn new(request: TableRequest, options: JdbcOptions) -> JdbcSink {
        let settings = options.settings.clone();
        let mut session = Session::new(settings, Cancel::default(), options.give_up_after);
        if options.is_exactly_once {
            session = session.with_opening("SET synchronous_commit = on".to_owned());
        }
        JdbcSink {
            request,
            options,
            session,
            statements: None,
            buffer: Buffer::default(),
            since: Timer::default(),
            is_transactional: false,
            staging: None,
        }
    }

    fn doing(&self) -> String {
        format!("table {}", self.request.table)
    }

    /// Finds the table, once.
    fn prepare_statements(&mut self) -> Result<()> {
        if self.statements.is_some() {
            return Ok(());
        }
        let (named, doing) = (self.options.table_name.clone(), self.doing());
        let table = ServerTable::open(&mut self.session, &self.request.table, &named)?;
        let (schema, key) = (&self.request.schema, &self.request.primary_key);
        let statements = Statements::new(&table, schema, key);
        self.statements = Some(statements.map_err(|error| error.in_operator(doing))?);
        if self.options.is_exactly_once {
            self.staging = Some(Staging::new(&self.request.table, &table));
        }
        Ok(())
    }

    /// The staging area and what it needs, where rows become visible with snapshots.
    fn staged(&mut self) -> Option<(&mut Staging, &mut Session, &Statements)> {
        match (&mut self.staging, &self.statements, self.is_transactional) {
            (Some(staging), Some(statements), true) => {
                Some((staging, &mut self.session, statements))
            }
            _ => None,
        }
    }

    fn write_buffer(&mut self) -> Result<()> {
        if self.buffer.rows == 0 {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let statements = self.statements.as_ref().expect("open() found the table");
        let (copy, sql) = match statements.key.is_empty() {
            true => (Some(statements.copy()), String::new()),
            false => (None, buffer.sql(statements)),
        };
        let mut tries = 0;
        loop {
            let written = self.session.try_call(&mut |connection| match &copy {
                Some(copy) => connection.copy_in(copy, &buffer.lines),
                None => connection.execute(&sql),
            });
            match written {
                Ok(_) => {
                    self.session.succeeded();
                    return Ok(());
                }
                Err(failure) => self.pause_after(failure, &mut tries)?,
            }
        }
    }

    /// Waits where rows that could not be written may be written again.
    fn pause_after(&mut self, failure: Failure, tries: &mut u32) -> Result<()> {
        let doing = self.doing();
        if let Failure::Server(_) = &failure
            && failure.is_passing()
        {
            *tries += 1;
            if *tries > self.options.max_retries {
                return Err(self.session.explained(failure, &doing));
            }
            self.session.trouble().set(failure.to_string());
            return match self.session.cancel().sleep(Duration::from_secs(u64::from(*tries))) {
                true => Ok(()),
                false => Err(Error::cancelled()),
            };
        }
        let paused = self.session.pause_after(failure);
        paused.map_err(|failure| self.session.explained(failure, &doing))
    }

    fn is_due(&self) -> bool {
        self.buffer.rows >= self.options.flush_rows
            || self.buffer.bytes >= FLUSH_BYTES
            || (!self.options.flush_interval.is_zero()
                && self.since.elapsed() >= self.options.flush_interval)
    }
}

impl Buffer {
    fn add(&mut self, statements: &Statements, row: TextRow, kind: RowKind) {
        self.rows += 1;
        self.bytes += row.iter().flatten().map(String::len).sum::<usize>() + 8 * row.len();
        if statements.key.is_empty() {
            append_copy_line(&mut self.lines, &row);
            return;
        }
        let key = statements.key_of(&row);
        self.changes.insert(key, (kind != RowKind::Delete).then_some(row));
    }

    fn sql(&self, statements: &Statements) -> String {
        let rows: Vec<&TextRow> = self.changes.values().flatten().collect();
        let deleted = self.changes.iter().filter(|(_, row)| row.is_none());
        let deleted: Vec<&TextRow> = deleted.map(|(key, _)| key).collect();
        let mut sql = String::new();
        if !rows.is_empty() {
            sql.push_str(&statements.upsert(rows.into_iter()));
            sql.push_str("; ");
        }
        if !deleted.is_empty() {
            sql.push_str(&statements.delete(deleted.into_iter()));
        }
        sql
    }
}

impl Sink for JdbcSink {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn claim(&mut self) -> Result<()> {
        self.prepare_statements()?;
        match &self.staging {
            Some(staging) => staging.claim(&mut self.session),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> Result<()> {
        self.claim()
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let text = TextRows::new(batch, &self.request.schema);
        for row in 0..batch.num_rows() {
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
            if kind == RowKind::UpdateBefore {
                continue;
            }
            let values = text.row(row);
            if let Some((staging, session, _)) = self.staged() {
                staging.add(session, &values, kind == RowKind::Delete)?;
                continue;
            }
            if self.buffer.rows == 0 {
                self.since = Timer::default();
            }
            let statements = self.statements.as_ref().expect("open() found the table");
            self.buffer.add(statements, values, kind);
            if self.is_due() {
                self.write_buffer()?;
            }
        }
        Ok(())
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.session.cancel().waker())
    }

    fn trouble(&self) -> Option<Trouble> {
        Some(self.session.trouble().clone())
    }

    fn flush(&mut self) -> Result<()> {
        self.write_buffer()
    }

    fn finish(&mut self) -> Result<()> {
        self.write_buffer()?;
        if let Some((staging, session, _)) = self.staged() {
            staging.finish(session)?;
        }
        self.session.close();
        Ok(())
    }

    fn abort(&mut self) {
        self.buffer = Buffer::default();
        self.session.cancel().set();
        self.session.close();
    }

    fn use_transactions(&mut self) -> SinkGuarantee {
        self.is_transactional = self.options.is_exactly_once;
        match (self.is_transactional, self.request.primary_key.is_empty()) {
            (true, _) => SinkGuarantee::Transactional,
            (false, false) => SinkGuarantee::Idempotent,
            (false, true) => SinkGuarantee::AtLeastOnce,
        }
    }

    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        let is_transactional = self.is_transactional;
        if handle.is_some() && !is_transactional {
            return Err(staging::refused_handle(&self.request.table));
        }
        match &mut self.staging {
            Some(staging) => {
                staging.check_start(&mut self.session, handle, start, is_transactional)
            }
            None => Ok(()),
        }
    }

    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        match self.staged() {
            Some((staging, session, _)) => staging.mark(session, mark),
            None => Ok(()),
        }
    }

    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        match self.staged() {
            Some((staging, session, statements)) => staging.recover(session, statements, handle),
            None => Ok(()),
        }
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        self.write_buffer()?;
        match self.staged() {
            Some((staging, session, _)) => staging.prepare(session),
            None => Ok(None),
        }
    }

    fn commit(&mut self, handle: &str) -> Result<()> {
        match self.staged() {
            Some((staging, session, statements)) => staging.commit(session, statements, handle),
            None => Err(Error::internal("nothing was prepared")),
        }
    }
}
