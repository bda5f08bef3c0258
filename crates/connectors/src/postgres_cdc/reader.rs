//! The thread that reads table and log in turn.
//!
//! It keeps a [`Position`] of its own, behind the last rows that it handed over. Where a connection
//! breaks it begins there again, as a job does that resumes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use thalweg_core::connector::Trouble;
use thalweg_core::{Error, RowKind};

use super::keys::KeyOrder;
use super::options::{CdcOptions, ChangelogMode, StartupMode};
use super::pgoutput::{self, Change, LogMessage, OldRow, Operation, Part, Place, Relation};
use super::position::{Key, Position, Seen};
use super::rows::{ChangedRow, ColumnPlaces, Group, GroupOrigin, key_of};
use super::slot;
use super::stream::LogStream;
use super::visibility::Visibility;
use crate::network::feed::FeedWriter;
use crate::network::{Cancel, TICK, Timer};
use crate::postgres::catalog::{ServerColumn, ServerTable, column_list};
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;
use crate::postgres::{list, literal};

/// Rows of a group.
const GROUP_ROWS: usize = 1024;
/// The log is said to be delivered, where it has nothing for the table, this often.
const REACH_EVERY: Duration = Duration::from_millis(200);
/// After this time without news the server is asked whether its log advances at all.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// What is read.
#[derive(Clone)]
pub struct Target {
    /// The table.
    pub table: ServerTable,
    /// The columns that are delivered.
    pub columns: Vec<ServerColumn>,
    /// The key, by which chunks are cut.
    pub key: Vec<ServerColumn>,
}

/// Reads table and log.
pub struct Reader {
    options: CdcOptions,
    target: Target,
    order: KeyOrder,
    session: Session,
    confirmed: Arc<AtomicU64>,
    /// Behind the last rows that were handed over; `None` before the start from scratch.
    position: Option<Position>,
    /// Transactions before the log begins, where the slot is of this run.
    base: Option<Visibility>,
    places: Option<ColumnPlaces>,
    /// The process of the server that serves the log.
    stream_pid: Option<String>,
}

/// The state of one connection to the log.
struct Run {
    stream: LogStream,
    /// By which the numbers of transactions in the log are completed.
    numbers: Visibility,
    transaction: Option<Transaction>,
    /// The log was sent up to here, and this was not handed over yet.
    reached: Option<u64>,
    /// Since something of the log was handed over.
    handed_over: Timer,
    /// Since the log advanced.
    moved: Timer,
}

/// A transaction of the log that is being read.
struct Transaction {
    lsn: u64,
    time_ms: i64,
    xid: u64,
    /// Rows of it that an earlier run has delivered.
    skipped: u64,
    /// Rows of it so far.
    count: u64,
    rows: Vec<ChangedRow>,
    /// Rows of it are left for a chunk to come.
    is_left_out: bool,
}

impl Reader {
    /// Reads from this position, or from scratch.
    pub fn new(
        options: CdcOptions,
        target: Target,
        position: Option<Position>,
        confirmed: Arc<AtomicU64>,
        cancel: Cancel,
        trouble: Trouble,
    ) -> Reader {
        Reader {
            order: KeyOrder::of(&target.key),
            session: Session::new(options.settings.clone(), cancel, options.give_up_after)
                .with_trouble(trouble),
            options,
            target,
            confirmed,
            position,
            base: None,
            places: None,
            stream_pid: None,
        }
    }

    /// Reads until the source has gone, or there is no more.
    ///
    /// # Errors
    /// If it can't continue; explained for a user.
    pub fn run(mut self, writer: &FeedWriter<Group>, doing: &str) -> Result<(), Error> {
        loop {
            let Err(failure) = self.run_once(writer) else { return Ok(()) };
            let failure = match failure.code() {
                // The server may not have noticed yet that our last connection has gone.
                "55006" => Failure::Broken("the replication slot is in use".to_owned()),
                _ => failure,
            };
            if let Err(failure) = self.session.pause_after(failure) {
                return Err(self.session.explained(failure, doing));
            }
        }
    }

    fn run_once(&mut self, writer: &FeedWriter<Group>) -> Outcome<()> {
        let position = self.begin()?;
        let numbers = self.visibility_now()?;
        let (confirmed, cancel) = (self.confirmed.clone(), self.session.cancel());
        let stream = LogStream::start(&self.options, position.lsn, confirmed, cancel)?;
        self.stream_pid = Some(stream.pid().to_owned());
        let is_start = self.position.replace(position.clone()).is_none();
        let mut run = Run {
            stream,
            numbers,
            transaction: None,
            reached: None,
            handed_over: Timer::default(),
            moved: Timer::default(),
        };
        self.session.succeeded();
        if is_start {
            let origin = GroupOrigin::Start(Box::new(position));
            self.hand_over(&mut run, writer, Vec::new(), 0, origin, None)?;
        }
        while !self.step(&mut run, writer)? {}
        Ok(())
    }

    /// The position to read from. The first time it makes publication and slot, or finds them.
    fn begin(&mut self) -> Outcome<Position> {
        let options = self.options.clone();
        if self.position.is_none() {
            let table = &self.target.table;
            self.session.try_call(&mut |connection| slot::publish(connection, &options, table))?;
        }
        if let Some(pid) = self.stream_pid.take() {
            self.session
                .try_call(&mut |connection| slot::end_reader(connection, &options.slot, &pid))?;
        }
        let found = slot::check_free(&mut self.session, &options.slot)?;
        if let Some(position) = &self.position {
            let error = |what: &str| {
                let message = format!("the replication slot '{}' {what}", options.slot);
                Failure::Error(
                    Error::data(message).hint("changes are lost since then: start from scratch"),
                )
            };
            return match found {
                None => Err(error("is not there any more")),
                Some(confirmed) if confirmed > position.lsn => {
                    Err(error("was confirmed beyond the position to resume from"))
                }
                Some(_) => Ok(position.clone()),
            };
        }
        let is_new = found.is_none();
        let confirmed = match found {
            Some(confirmed) => confirmed,
            None if options.startup == StartupMode::CommittedOffset => {
                return Err(Failure::Error(
                    Error::io(format!(
                        "there is no replication slot '{}' to continue",
                        options.slot
                    ))
                    .hint("make it, or use another 'scan.startup.mode'"),
                ));
            }
            None => {
                let (confirmed, base) = slot::create(&mut self.session, &options)?;
                self.base = Some(base);
                confirmed
            }
        };
        let lsn = match options.startup == StartupMode::LatestOffset && !is_new {
            true => self.log_end()?,
            false => confirmed,
        };
        Ok(Position { lsn, is_complete: !options.startup.reads_table(), ..Position::default() })
    }

    fn visibility_now(&mut self) -> Outcome<Visibility> {
        let text = self
            .session
            .try_call(&mut |connection| connection.query_value("SELECT pg_current_snapshot()"))?;
        Visibility::read(&text.unwrap_or_default())
    }

    fn log_end(&mut self) -> Outcome<u64> {
        let text = self.session.try_call(&mut |connection| {
            connection.query_value("SELECT pg_current_wal_insert_lsn()")
        })?;
        super::lsn::read(&text.unwrap_or_default())
    }

    fn position(&self) -> &Position {
        self.position.as_ref().expect("set when a run begins")
    }

    /// Reads a little. True if there is no more to be read.
    fn step(&mut self, run: &mut Run, writer: &FeedWriter<Group>) -> Outcome<bool> {
        let is_complete = self.position().is_complete;
        let ends = self.options.startup == StartupMode::Snapshot;
        if run.transaction.is_none() && (!is_complete || ends) && self.is_between_chunks(run) {
            self.hand_over_reached(run, writer)?;
            if is_complete {
                return Ok(true);
            }
            self.read_chunk(run, writer)?;
            run.stream.ask()?;
            run.moved = Timer::default();
        }
        match run.stream.poll()? {
            Some(Part::Log(bytes)) => self.take_message(run, &bytes, writer)?,
            Some(Part::Reached(lsn, _)) if run.transaction.is_none() => {
                if run.reached.max(Some(self.position().lsn)) < Some(lsn) {
                    run.moved = Timer::default();
                }
                run.reached = run.reached.max(Some(lsn));
            }
            Some(Part::Reached(..)) => {}
            None => self.look_for_quiet_log(run)?,
        }
        if run.transaction.is_none() && run.handed_over.elapsed() >= REACH_EVERY {
            self.hand_over_reached(run, writer)?;
        }
        Ok(false)
    }

    /// True if the log was read beyond all that the newest chunk has seen.
    fn is_between_chunks(&self, run: &Run) -> bool {
        let seen = self.position().seen.as_ref();
        seen.is_none_or(|seen| run.reached.is_some_and(|reached| reached >= seen.until))
    }

    /// Where the log is to advance for a chunk, and does not: it ends in front of a page's header,
    /// or the server has written no more.
    fn look_for_quiet_log(&mut self, run: &mut Run) -> Outcome<()> {
        let Some(until) = self.position().seen.as_ref().map(|seen| seen.until) else {
            return Ok(());
        };
        if run.transaction.is_some() || run.moved.elapsed() < QUIET_AFTER {
            return Ok(());
        }
        run.moved = Timer::default();
        let received = run.reached.unwrap_or(0).max(self.position().lsn);
        let sql = format!(
            "SELECT pg_current_wal_insert_lsn() = {} AND pg_current_wal_flush_lsn() <= {}",
            literal(&super::lsn::text(until)),
            literal(&super::lsn::text(received))
        );
        let is_quiet = self.session.try_call(&mut |connection| connection.query_value(&sql))?;
        match is_quiet.as_deref() {
            Some("t") => run.reached = Some(until),
            _ => run.stream.ask()?,
        }
        Ok(())
    }

    fn hand_over_reached(&mut self, run: &mut Run, writer: &FeedWriter<Group>) -> Outcome<()> {
        run.handed_over = Timer::default();
        let Some(reached) = run.reached.take() else { return Ok(()) };
        let origin = GroupOrigin::Log(0, 0);
        self.hand_over(run, writer, Vec::new(), 0, origin, Some(reached))
    }

    /// Hands rows over, and moves the position behind them.
    fn hand_over(
        &mut self,
        run: &mut Run,
        writer: &FeedWriter<Group>,
        rows: Vec<ChangedRow>,
        time_ms: i64,
        origin: GroupOrigin,
        reached: Option<u64>,
    ) -> Outcome<()> {
        let mut position = self.position().clone();
        let last = rows.last().map(|row| row.key(self.target.columns.len())).transpose()?;
        position.follow(&origin, rows.len() as u64, last, true);
        if let Some(reached) = reached {
            position.reach(reached);
        }
        let unseen = position.unseen.clone();
        let group = Group { rows, time_ms, origin, reached, unseen };
        writer.send(group, &mut || run.stream.keep_alive())?;
        self.position = Some(position);
        Ok(())
    }

    /// Reads the next chunk, by a query that sees all changes that were left out for it.
    fn read_chunk(&mut self, run: &mut Run, writer: &FeedWriter<Group>) -> Outcome<()> {
        let (rows, visibility) = loop {
            let (rows, visibility) = self.query_chunk()?;
            let is_hidden = |xid: &&u64| !visibility.sees(**xid);
            let before = self.base.as_ref();
            let is_before = |xid: &u64| before.is_some_and(|base| base.sees(*xid));
            let is_late = self.position().unseen.iter().any(|xid| is_hidden(&xid))
                || visibility.running().iter().any(is_before);
            if !is_late {
                break (rows, visibility);
            }
            run.stream.keep_alive()?;
            if !self.session.cancel().sleep(TICK) {
                return Err(Failure::Cancelled);
            }
        };
        let until = self.log_end()?;
        run.numbers = visibility.clone();
        self.position.as_mut().expect("set when a run begins").unseen.clear();
        let is_last = rows.len() < self.options.chunk_rows;
        let seen = Seen { from: self.position().done.clone(), visibility, until };
        let mut rows = rows.into_iter().peekable();
        loop {
            let part: Vec<ChangedRow> = rows.by_ref().take(GROUP_ROWS).collect();
            let is_end = rows.peek().is_none();
            let origin = GroupOrigin::Chunk(seen.clone(), is_end && is_last);
            self.hand_over(run, writer, part, 0, origin, None)?;
            if is_end {
                return Ok(());
            }
        }
    }

    fn query_chunk(&mut self) -> Outcome<(Vec<ChangedRow>, Visibility)> {
        let Target { table, columns, key } = &self.target;
        let names = column_list(key);
        let behind = self.position().done.as_ref().map_or_else(String::new, |done| {
            let values = list(done.iter().map(|value| literal(value)));
            format!(" WHERE ({names}) > ({values})")
        });
        let sql = format!(
            "SELECT {} FROM {}{behind} ORDER BY {names} LIMIT {}",
            column_list(columns.iter().chain(key)),
            table.sql_name(),
            self.options.chunk_rows
        );
        self.session.try_call(&mut |connection| {
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
            let visibility = connection.query_value("SELECT pg_current_snapshot()")?;
            let mut rows = Vec::new();
            connection.query_each(&sql, &mut |row| {
                rows.push(ChangedRow::of_result(&row));
                Ok(())
            })?;
            connection.execute("COMMIT")?;
            Ok((rows, Visibility::read(&visibility.unwrap_or_default())?))
        })
    }

    fn take_message(
        &mut self,
        run: &mut Run,
        bytes: &Bytes,
        writer: &FeedWriter<Group>,
    ) -> Outcome<()> {
        match pgoutput::message(bytes)? {
            LogMessage::Begin { lsn, time_ms, xid } => {
                let position = self.position();
                let skipped = if position.transaction == lsn { position.rows } else { 0 };
                let (xid, rows) = (run.numbers.complete(xid), Vec::new());
                let count = 0;
                let is_left_out = false;
                run.transaction =
                    Some(Transaction { lsn, time_ms, xid, skipped, count, rows, is_left_out });
                Ok(())
            }
            LogMessage::Commit(end) => self.commit(run, end, writer),
            LogMessage::Relation(relation) => self.take_relation(&relation),
            LogMessage::Change(change) if change.relation == self.target.table.oid => {
                self.take_change(run, bytes, &change)?;
                self.hand_over_rows(run, writer, GROUP_ROWS, None)
            }
            LogMessage::Truncate(tables)
                if tables.contains(&self.target.table.oid) && !self.options.skips_truncate =>
            {
                Err(Failure::Error(
                    Error::data(format!("the table {} was truncated", self.target.table.shown())).hint(
                        "start from scratch under another 'slot.name'; or continue with the rows as they were by \
                         'debezium.skipped.operations' = 't'",
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    fn commit(&mut self, run: &mut Run, end: u64, writer: &FeedWriter<Group>) -> Outcome<()> {
        run.moved = Timer::default();
        if let Some(transaction) = run.transaction.as_ref().filter(|found| found.is_left_out) {
            self.position.as_mut().expect("set when a run begins").unseen.push(transaction.xid);
        }
        // A position names one transaction: the end of one that gave rows comes before rows of the
        // next.
        let gave_rows = run.transaction.as_ref().is_some_and(|found| found.count > 0);
        if gave_rows {
            self.hand_over_rows(run, writer, 0, Some(end))?;
            run.reached = None;
        } else {
            run.reached = Some(end);
        }
        run.transaction = None;
        Ok(())
    }

    /// Hands over the rows of the transaction that is read, if there are `at_least` of them.
    fn hand_over_rows(
        &mut self,
        run: &mut Run,
        writer: &FeedWriter<Group>,
        at_least: usize,
        end: Option<u64>,
    ) -> Outcome<()> {
        let Some(transaction) = &mut run.transaction else { return Ok(()) };
        if transaction.rows.len() < at_least {
            return Ok(());
        }
        let rows = std::mem::take(&mut transaction.rows);
        let before = transaction.count - rows.len() as u64;
        let origin = GroupOrigin::Log(transaction.lsn, before);
        let time_ms = transaction.time_ms;
        self.hand_over(run, writer, rows, time_ms, origin, end)
    }

    fn take_relation(&mut self, relation: &Relation) -> Outcome<()> {
        if relation.id != self.target.table.oid {
            return Ok(());
        }
        let places = ColumnPlaces::find(relation, &self.target.columns, &self.target.key)?;
        if let Some(before) = &self.places {
            places.check_unchanged(before)?;
        }
        self.places = Some(places);
        Ok(())
    }

    /// Adds the rows of a change to its transaction.
    fn take_change(&mut self, run: &mut Run, body: &Bytes, change: &Change) -> Outcome<()> {
        let places = self.places.as_ref().ok_or_else(no_relation)?;
        let old = change.old.as_ref();
        let whole = old.filter(|(of, _)| *of == OldRow::Whole).map(|(_, row)| row.as_slice());
        let new = change.new.as_deref();
        let after = new.map(|row| places.select(row, whole)).transpose()?;
        let before = match (old, whole, self.options.mode) {
            (_, Some(row), _) => Some(places.select(row, None)?),
            (Some((_, row)), None, ChangelogMode::Upsert) => Some(places.select(row, None)?),
            (None, None, ChangelogMode::Upsert) => None,
            (_, None, ChangelogMode::All) if change.operation == Operation::Insert => None,
            (_, None, ChangelogMode::All) => return Err(self.no_row_before()),
        };
        let width = self.target.columns.len();
        let key = |row: &Option<Box<[Place]>>| {
            row.as_ref().map(|row| key_of(body, &row[width..])).transpose()
        };
        let (key_before, key_after) = (key(&before)?, key(&after)?);
        let moves = key_before.is_some() && key_after.is_some() && key_before != key_after;
        let is_upsert = self.options.mode == ChangelogMode::Upsert;
        let (leaving, coming) = match change.operation {
            Operation::Update if moves => (RowKind::Delete, RowKind::Insert),
            Operation::Update => (RowKind::UpdateBefore, RowKind::UpdateAfter),
            Operation::Insert | Operation::Delete => (RowKind::Delete, RowKind::Insert),
        };
        if let (Some(row), Some(key)) = (before, key_before)
            && !(is_upsert && leaving == RowKind::UpdateBefore)
        {
            self.add(run, leaving, body, row, key)?;
        }
        if let (Some(row), Some(key)) = (after, key_after) {
            self.add(run, coming, body, row, key)?;
        }
        Ok(())
    }

    fn no_row_before(&self) -> Failure {
        let table = self.target.table.sql_name();
        Failure::Error(
            Error::data(format!(
                "the log of {} has an update or a deletion without the row before it",
                self.target.table.shown()
            ))
            .hint(format!(
                "ALTER TABLE {table} REPLICA IDENTITY FULL, then start from scratch; or declare a PRIMARY KEY and \
                 'changelog-mode' = 'upsert'"
            )),
        )
    }

    /// Adds a row to its transaction, unless a chunk has it.
    fn add(
        &mut self,
        run: &mut Run,
        kind: RowKind,
        body: &Bytes,
        places: Box<[Place]>,
        key: Key,
    ) -> Outcome<()> {
        let Some(transaction) = &mut run.transaction else { return Err(no_relation()) };
        let position = self.position.as_ref().expect("set when a run begins");
        match place_of(position, &key, transaction.xid, &self.order, &mut self.session)? {
            KeyPlace::ToCome => transaction.is_left_out = true,
            KeyPlace::Seen => {}
            KeyPlace::Delivered => {
                if transaction.skipped > 0 {
                    transaction.skipped -= 1;
                } else {
                    transaction.rows.push(ChangedRow::new(kind, body.clone(), places));
                }
                transaction.count += 1;
            }
        }
        Ok(())
    }
}

/// Where the key of a change is, as seen from the chunks.
enum KeyPlace {
    /// A chunk to come has it.
    ToCome,
    /// The newest chunk has the change already.
    Seen,
    /// The change is delivered.
    Delivered,
}

fn place_of(
    position: &Position,
    key: &Key,
    xid: u64,
    order: &KeyOrder,
    session: &mut Session,
) -> Outcome<KeyPlace> {
    let seen = position.seen.as_ref();
    if position.is_complete && seen.is_none_or(|seen| !seen.visibility.sees(xid)) {
        return Ok(KeyPlace::Delivered);
    }
    let done = if position.is_complete { None } else { Some(position.done.as_ref()) };
    if done == Some(None) {
        return Ok(KeyPlace::ToCome);
    }
    let from = seen.and_then(|seen| seen.from.as_ref());
    let others: Vec<&Key> = done.flatten().into_iter().chain(from).collect();
    let mut behind = order.is_behind(session, key, &others)?.into_iter();
    if done.is_some() && behind.next() == Some(true) {
        return Ok(KeyPlace::ToCome);
    }
    let is_in_chunk = seen.is_some() && behind.next().unwrap_or(true);
    match is_in_chunk && seen.is_some_and(|seen| seen.visibility.sees(xid)) {
        true => Ok(KeyPlace::Seen),
        false => Ok(KeyPlace::Delivered),
    }
}

fn no_relation() -> Failure {
    Failure::Broken("the log has a change of a table that it has not described".to_owned())
}
