//! Reads a table as a whole.
//!
//! Ranges of the table are read over connections of their own, a few at the same time, and
//! delivered in order. Where a primary key is declared rows come in its order, and a position is
//! the key of the last row: reading resumes behind it, also over a new connection after one has
//! broken.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde_json::{Value, json};
use thalweg_core::connector::{Source, SourceBatch, SourcePoll, TableRequest, Waker};
use thalweg_core::{Error, Result, TableSchema};

use super::options::JdbcOptions;
use crate::network::Cancel;
use crate::network::feed::{Fed, Feed, FeedWriter};
use crate::postgres::catalog::{ServerColumn, ServerTable, column_list};
use crate::postgres::connection::Row;
use crate::postgres::decode::RowBuilder;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;
use crate::postgres::{identifier, literals};
use crate::saved::read_saved;

/// Rows of a batch.
const BATCH_ROWS: usize = 4096;
/// Batches that wait for the job, for each range.
const BATCHES_AHEAD: usize = 2;
/// Ranges that are read at the same time.
const RANGES_AT_ONCE: usize = 4;

/// A key, as the server writes it.
type Key = Vec<Option<String>>;

/// Reads a table.
pub struct JdbcSource {
    request: TableRequest,
    options: JdbcOptions,
    position: Position,
    waker: Option<Waker>,
    scan: Option<Arc<Scan>>,
    /// The ranges that are read, from that of the position.
    running: VecDeque<Feed<Scanned>>,
    /// The next range to be begun.
    next_range: usize,
    current: Option<Scanned>,
    /// Ends the waits of a start.
    starting: Cancel,
}

/// Where reading resumes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    range: usize,
    after: Option<Key>,
}

/// What is read.
struct Scan {
    delivered: TableSchema,
    columns: Vec<ServerColumn>,
    table: ServerTable,
    key: Vec<ServerColumn>,
    ranges: Vec<Option<String>>,
}

/// Rows that were read, with their keys where there are such.
struct Scanned {
    batch: RecordBatch,
    rows: Vec<Row>,
}

impl JdbcSource {
    /// A source of this table.
    pub fn new(request: TableRequest, options: JdbcOptions) -> JdbcSource {
        JdbcSource {
            request,
            options,
            position: Position::default(),
            waker: None,
            scan: None,
            running: VecDeque::new(),
            next_range: 0,
            current: None,
            starting: Cancel::default(),
        }
    }

    fn session(&self, cancel: Cancel) -> Session {
        Session::new(self.options.settings.clone(), cancel, self.options.give_up_after)
    }

    fn find_table(&self) -> Result<Scan> {
        let (named, table) = (&self.options.table_name, &self.request.table);
        let mut session = self.session(self.starting.clone());
        let found = ServerTable::open(&mut session, table, named)?;
        let in_table = |error: Error| error.in_operator(table.clone());
        let delivered = self.request.delivered();
        let key =
            self.request.primary_key.iter().map(|&at| self.request.schema.columns[at].clone());
        let key = found.match_columns(&TableSchema::new(key.collect())).map_err(in_table)?;
        let columns = found.match_columns(&delivered).map_err(in_table)?;
        let ranges = match &self.options.ranges {
            None => vec![None],
            Some(ranges) => {
                let column = identifier(&ranges.column);
                let range =
                    |(low, high): &(i64, i64)| Some(format!("{column} BETWEEN {low} AND {high}"));
                ranges.bounds.iter().map(range).collect()
            }
        };
        Ok(Scan { delivered, columns, table: found, key, ranges })
    }

    /// Begins ranges, up to as many as are read at once.
    fn begin_ranges(&mut self) -> Result<()> {
        let (Some(scan), Some(waker)) = (&self.scan, &self.waker) else { return Ok(()) };
        let at_once = RANGES_AT_ONCE.min(self.request.parallelism.max(1));
        while self.running.len() < at_once && self.next_range < scan.ranges.len() {
            let range = self.next_range;
            let after =
                if range == self.position.range { self.position.after.clone() } else { None };
            // A flag of its own, which is set when its feed is dropped.
            let cancel = Cancel::default();
            let mut session = self.session(cancel.clone());
            let (scan, table) = (scan.clone(), self.request.table.clone());
            let body = move |writer: &FeedWriter<Scanned>| {
                read_range(&mut session, &scan, range, after, writer)
                    .map_err(|failure| session.explained(failure, &format!("table {table}")))
            };
            let name = format!("read {}", self.request.table);
            let feed = Feed::start(name, BATCHES_AHEAD, waker.clone(), cancel, body)?;
            self.running.push_back(feed);
            self.next_range += 1;
        }
        Ok(())
    }

    /// The next rows, up to `rows_max`.
    fn take(&mut self, scanned: Scanned, rows_max: usize) -> SourcePoll {
        let rows = scanned.batch.num_rows().min(rows_max.max(1));
        let width = self.scan.as_ref().map_or(0, |scan| scan.columns.len());
        if let Some(last) = scanned.rows.get(rows - 1) {
            let key = last.texts().unwrap_or_default().into_iter().skip(width);
            self.position.after = Some(key.collect());
        }
        let batch = scanned.batch.slice(0, rows);
        if rows < scanned.batch.num_rows() {
            let left = scanned.batch.slice(rows, scanned.batch.num_rows() - rows);
            let keys = scanned.rows.get(rows..).unwrap_or_default().to_vec();
            self.current = Some(Scanned { batch: left, rows: keys });
        }
        SourcePoll::Batch(SourceBatch::new(batch))
    }
}

impl Source for JdbcSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        self.scan = Some(Arc::new(self.find_table()?));
        self.waker = Some(waker);
        self.next_range = self.position.range;
        self.begin_ranges()
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(scanned) = self.current.take() {
            return Ok(self.take(scanned, rows_max));
        }
        loop {
            let Some(feed) = self.running.front() else { return Ok(SourcePoll::End) };
            match feed.next()? {
                Fed::Item(scanned) => return Ok(self.take(scanned, rows_max)),
                Fed::Pending => return Ok(SourcePoll::Pending),
                Fed::End => {
                    self.running.pop_front();
                    self.position = Position { range: self.position.range + 1, after: None };
                    self.begin_ranges()?;
                }
            }
        }
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn stop(&mut self) {
        self.running.clear();
    }

    fn buffered_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |scanned| scanned.batch.get_array_memory_size())
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.starting.waker())
    }

    fn position(&self) -> Option<String> {
        (!self.request.primary_key.is_empty()).then(|| self.position.write())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        self.position = Position::read(position, self.request.primary_key.len())?;
        Ok(())
    }

    fn abort(&mut self) {
        self.stop();
    }
}

impl Position {
    fn write(&self) -> String {
        json!({ "range": self.range, "after": self.after }).to_string()
    }

    fn read(text: &str, width: usize) -> Result<Position> {
        read_saved("position in a table", text, |value| {
            let after = match value.get("after")? {
                Value::Null => None,
                Value::Array(key) if key.len() == width => {
                    Some(key.iter().map(|value| value.as_str().map(str::to_owned)).collect())
                }
                _ => return None,
            };
            Some(Position { range: value.get("range")?.as_u64()? as usize, after })
        })
    }
}

impl Scan {
    /// The query of a range, behind a key.
    fn sql(&self, range: usize, after: Option<&Key>) -> String {
        let key = column_list(&self.key);
        let columns = column_list(self.columns.iter().chain(&self.key));
        let behind = after.map(|after| format!("({key}) > ({})", literals(after)));
        let conditions: Vec<String> = self.ranges[range].iter().cloned().chain(behind).collect();
        let mut sql = format!("SELECT {columns} FROM {}", self.table.sql_name());
        if !conditions.is_empty() {
            sql.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        if !self.key.is_empty() {
            sql.push_str(&format!(" ORDER BY {key}"));
        }
        sql
    }
}

/// Reads a range to its end. Where the connection breaks it resumes behind the last row that was
/// handed over.
fn read_range(
    session: &mut Session,
    scan: &Scan,
    range: usize,
    mut after: Option<Key>,
    writer: &FeedWriter<Scanned>,
) -> Outcome<()> {
    let has_key = !scan.key.is_empty();
    loop {
        let mut sent = false;
        let mut reader =
            RangeReader { scan, builder: RowBuilder::new(&scan.delivered), rows: Vec::new() };
        let sql = scan.sql(range, after.as_ref());
        let result = session.try_call(&mut |connection| {
            connection.query_each(&sql, &mut |row| {
                reader.add(row)?;
                if reader.builder.len() == BATCH_ROWS {
                    sent = true;
                    after = reader.send(writer)?.or(after.take());
                }
                Ok(())
            })?;
            reader.send(writer).map(drop)
        });
        let failure = match result {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        if sent && !has_key && failure.is_passing() {
            return Err(Failure::Error(
                Error::io("the connection broke in the middle of a table without a key")
                    .hint("declare PRIMARY KEY (…) NOT ENFORCED, so that reading can resume, or run the job again"),
            ));
        }
        if sent {
            session.succeeded();
        }
        session.pause_after(failure)?;
    }
}

struct RangeReader<'a> {
    scan: &'a Scan,
    builder: RowBuilder,
    rows: Vec<Row>,
}

impl RangeReader<'_> {
    fn add(&mut self, row: Row) -> Outcome<()> {
        self.builder.append(row.values())?;
        if !self.scan.key.is_empty() {
            self.rows.push(row);
        }
        Ok(())
    }

    /// Hands the rows over. The key of the last one, if there is one.
    fn send(&mut self, writer: &FeedWriter<Scanned>) -> Outcome<Option<Key>> {
        if self.builder.is_empty() {
            return Ok(None);
        }
        let (batch, rows) = (self.builder.finish()?, std::mem::take(&mut self.rows));
        let last = rows.last().map(Row::texts).transpose()?;
        let key = last.map(|texts| texts.into_iter().skip(self.scan.columns.len()).collect());
        writer.send::<Failure>(Scanned { batch, rows }, &mut || Ok(()))?;
        Ok(key)
    }
}
