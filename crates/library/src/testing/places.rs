//! What stands in the place of connectors in a test: inputs whose rows the test gives, outputs that
//! keep what is written, and tables that are looked up.
//!
//! A table keeps its connector's description and options, which are checked as ever, and whether it
//! ends. It opens nothing: its rows are those of the test's input of its name.
//!
//! **Invariants**
//! - A source has rows exactly from the moment on at which the test gives them; behind each it
//!   makes a promise that says nothing, so that no row waits for company and time.
//! - The position of a source is the number of lines of its input that it has delivered. A run that
//!   resumes is given the lines before the crash again, and passes over those before its position.

use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{ArrayRef, Int8Array, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, KIND_COLUMN, SinkGuarantee, SplitEvent,
    SplitStatus, TableRequest, Waker, near_miss,
};
use thalweg_core::lookup::{Answer, AsyncLookup, LookupRequest};
use thalweg_core::shim::{Clock, ManualClock};
use thalweg_core::{
    Error, Result, RowKind, Sink, Source, SourceBatch, SourcePoll, SplitId, TableSchema,
};
use thalweg_expr::Session;

use super::cells::{self, Cell};
use super::markdown::{InputTable, Table, wrong};

/// What the jobs of a test read and write.
pub(super) struct Places {
    clock: Arc<ManualClock>,
    inputs: Vec<InputTable>,
    /// The columns that the table of each input declares; none where it is not declared yet.
    declared: Mutex<Vec<Option<Vec<String>>>>,
    /// The zone in which instants are written in cells.
    zone: Mutex<chrono_tz::Tz>,
    open: Mutex<Vec<Opened>>,
    outputs: Mutex<Vec<Written>>,
    /// Set once rows of the test could not be read.
    has_wrong_rows: AtomicBool,
}

/// A source, or a table that is looked up, of a job that runs.
struct Opened {
    /// The place of its input.
    input: usize,
    feed: Arc<Mutex<Feed>>,
    rows: Prepared,
    is_bounded: bool,
    /// Its rows are there from the beginning: a table that is looked up, without times.
    has_all: bool,
}

/// What a test does to an input with one line of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This row of the input's batch comes in.
    Row { row: u32, split: u32 },
    /// The watermark of a split is at least this, in milliseconds since 1970.
    Watermark { at_ms: i64, split: u32 },
    /// The input ends.
    End,
    /// Time passes.
    Nothing,
}

/// The rows of an input with the columns that a source delivers.
struct Prepared {
    batch: RecordBatch,
    events: Vec<Event>,
}

/// Between the test, which gives, and a source, which is asked.
#[derive(Default)]
struct Feed {
    /// Answers, and the position behind each.
    polls: VecDeque<(SourcePoll, usize)>,
    /// How many lines were delivered, or lie before the position that the source resumes from.
    position: usize,
    /// What has come, for lookups.
    arrived: Vec<u32>,
    waker: Option<Waker>,
}

/// Lines of an input that come together.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// When; [`i64::MIN`] for the beginning.
    pub at_ms: i64,
    /// The place of the input.
    pub input: usize,
    pub lines: std::ops::Range<usize>,
    pub split: Option<String>,
    /// True if they are rows.
    pub is_row: bool,
    /// What happens to the job, with the line of the file that says so.
    pub action: Option<(JobAction, usize)>,
}

/// What a test does to its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobAction {
    Snapshot,
    Crash,
    Restore,
}

impl JobAction {
    fn of(text: &str) -> Option<JobAction> {
        match text {
            "job snapshot" => Some(JobAction::Snapshot),
            "job crash" => Some(JobAction::Crash),
            "job restore" => Some(JobAction::Restore),
            _ => None,
        }
    }
}

/// Rows that were written to a table at one time.
pub(super) struct Written {
    pub table: String,
    pub schema: TableSchema,
    pub primary_key: Vec<usize>,
    pub at_ms: i64,
    pub batch: RecordBatch,
    pub kinds: Option<Vec<RowKind>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

impl Places {
    pub(super) fn new(clock: Arc<ManualClock>, inputs: Vec<InputTable>) -> Places {
        let zone = Mutex::new(chrono_tz::Tz::UTC);
        let declared = Mutex::new(vec![None; inputs.len()]);
        let (open, outputs) = (Mutex::default(), Mutex::default());
        let has_wrong_rows = AtomicBool::new(false);
        Places { clock, inputs, declared, zone, open, outputs, has_wrong_rows }
    }

    /// A connector whose tables are those of the test.
    pub(super) fn wrap(self: &Arc<Self>, connector: Arc<dyn Connector>) -> Arc<dyn Connector> {
        Arc::new(TestConnector { connector, places: Arc::clone(self) })
    }

    /// A job is about to be planned: instants in cells are of this zone, and these are the columns
    /// of its tables, if they are declared. What an earlier job has opened is not its own.
    ///
    /// # Errors
    /// If an input names columns that its table has not.
    pub(super) fn prepare_job(
        &self,
        zone: chrono_tz::Tz,
        declared: impl Fn(&str) -> Option<Vec<String>>,
    ) -> Result<()> {
        *locked(&self.zone) = zone;
        locked(&self.open).clear();
        let found: Vec<_> = self.inputs.iter().map(|input| declared(&input.table)).collect();
        for (input, declared) in self.inputs.iter().zip(&found) {
            declared.iter().try_for_each(|declared| check_columns(input, declared))?;
        }
        *locked(&self.declared) = found;
        Ok(())
    }

    /// The lines of each input that has come to be declared, with the times at which they come.
    ///
    /// # Errors
    /// If a time is none.
    pub(super) fn timeline(&self) -> Result<Vec<Moment>> {
        let mut moments = Vec::new();
        let day_ms = self.clock.wall_ms();
        for (input, of) in self.inputs.iter().enumerate() {
            let own = self.own(input);
            let mut at_ms = i64::MIN;
            for (line, row) in of.rows.rows.iter().enumerate() {
                if let Some(text) = own.at.and_then(|at| row.cells[at].as_deref()) {
                    let found = cells::time_ms(text, day_ms.max(at_ms));
                    let found = found.filter(|&found_ms| found_ms >= at_ms);
                    at_ms = found.ok_or_else(|| {
                        wrong(row.line, format!("'{text}' is no time at which a row can come here"))
                            .hint("write 09:00:05, or 2026-01-01 09:00:05; times of an input do not go back")
                    })?;
                }
                let split = own.split.and_then(|split| row.cells[split].clone());
                let found = own.line(row)?;
                let is_row = found == Line::Row;
                let action = match found {
                    Line::Job(action) => Some((action, row.line)),
                    _ => None,
                };
                moments.push(Moment { at_ms, input, lines: line..line + 1, split, is_row, action });
            }
        }
        moments.sort_by_key(|moment| moment.at_ms);
        check_actions(&moments)?;
        Ok(moments)
    }

    /// Another run of the job is about to be planned: what the one before has opened is not its.
    pub(super) fn forget_opened(&self) {
        locked(&self.open).clear();
    }

    /// How many times rows were written.
    pub(super) fn written(&self) -> usize {
        locked(&self.outputs).len()
    }

    /// Drops what was written behind the first `count` times, as transactions do that no snapshot
    /// covers.
    pub(super) fn roll_back(&self, count: usize) {
        locked(&self.outputs).truncate(count);
    }

    fn own(&self, input: usize) -> Own {
        let declared = locked(&self.declared);
        let has_column = |name: &str| {
            declared[input].as_ref().is_some_and(|columns| columns.iter().any(|own| own == name))
        };
        Own::of(&self.inputs[input].rows.header, has_column)
    }

    /// Sources that end with their last line and have none end now.
    pub(super) fn begin(&self) {
        for opened in locked(&self.open).iter().filter(|opened| opened.is_bounded) {
            if opened.rows.events.is_empty() {
                opened.give(0, [SourcePoll::End]);
            }
        }
    }

    /// Lets something come in: lines of an input, of one split.
    pub(super) fn give(&self, moment: &Moment) -> Result<()> {
        let open = locked(&self.open);
        for opened in open.iter().filter(|opened| opened.input == moment.input && !opened.has_all) {
            opened.give_lines(moment.lines.clone())?;
        }
        Ok(())
    }

    /// True if a source could not be opened because of what the test's own table holds: the error
    /// is about that.
    pub(super) fn has_wrong_rows(&self) -> bool {
        self.has_wrong_rows.load(Ordering::Relaxed)
    }

    fn prepare(&self, input: usize, request: &TableRequest) -> Result<Prepared> {
        let session = Session { zone: *locked(&self.zone), ..Session::default() };
        let prepared = prepare(&self.inputs[input].rows, &self.own(input), request, &session);
        prepared.inspect_err(|_| self.has_wrong_rows.store(true, Ordering::Relaxed))
    }

    /// What was written, in its order.
    pub(super) fn take_outputs(&self) -> Vec<Written> {
        std::mem::take(&mut *locked(&self.outputs))
    }

    /// A sink that keeps what is written.
    pub(super) fn sink(
        self: &Arc<Self>,
        table: &str,
        schema: TableSchema,
        key: &[usize],
    ) -> Box<dyn Sink> {
        let (places, table, primary_key) = (Arc::clone(self), table.to_owned(), key.to_vec());
        Box::new(TestSink { places, table, schema, primary_key })
    }

    fn open(
        &self,
        request: &TableRequest,
        is_bounded: bool,
        is_lookup: bool,
    ) -> Result<Arc<Mutex<Feed>>> {
        let table = &request.table;
        let found = self.inputs.iter().position(|input| input.table == *table);
        let input = found.ok_or_else(|| {
            Error::plan(format!("the test has no input for table {table}, which is read"))
                .hint(format!("add a line `input {table}` with a table below it; with no rows in it the table is empty"))
        })?;
        let (own, table) = (self.own(input), &self.inputs[input].rows);
        let rows = self.prepare(input, request)?;
        let feed = Arc::<Mutex<Feed>>::default();
        let has_all = is_lookup && own.at.is_none();
        if has_all {
            locked(&feed).arrived = (0..rows.batch.num_rows() as u32).collect();
        }
        let opened = Opened { input, feed: Arc::clone(&feed), rows, is_bounded, has_all };
        opened.open_splits(&splits(table, &own));
        locked(&self.open).push(opened);
        Ok(feed)
    }
}

impl Opened {
    fn give(&self, position: usize, polls: impl IntoIterator<Item = SourcePoll>) {
        let mut feed = locked(&self.feed);
        feed.polls.extend(polls.into_iter().map(|poll| (poll, position)));
        let waker = feed.waker.clone();
        drop(feed);
        waker.into_iter().for_each(|wake| wake());
    }

    fn open_splits(&self, names: &[String]) {
        let open = |(split, name): (u32, &String)| {
            SourcePoll::Split(SplitId(split), SplitEvent::Opened(name.as_str().into()))
        };
        self.give(0, (0..).zip(names).map(open));
    }

    /// Gives these lines, or what is left of them behind the position that the source resumes from.
    fn give_lines(&self, lines: std::ops::Range<usize>) -> Result<()> {
        let behind = lines.end;
        let is_last = behind == self.rows.events.len();
        let delivered = locked(&self.feed).position.clamp(lines.start, behind);
        let events = &self.rows.events[delivered..behind];
        let rows: Vec<u32> = events.iter().filter_map(row_of).collect();
        if let Some(&Event::Row { split, .. }) = events.iter().find(|event| row_of(event).is_some())
        {
            let batch = take_record_batch(&self.rows.batch, &UInt32Array::from(rows.clone()))?;
            locked(&self.feed).arrived.extend(rows);
            let split = SplitId(split);
            let batch = SourceBatch { batch, origin: None, split };
            self.give(behind, [SourcePoll::Batch(batch), SourcePoll::Heartbeat(split, i64::MIN)]);
        }
        for event in events {
            if let Event::Watermark { at_ms, split } = *event {
                let promise = SourcePoll::Heartbeat(SplitId(split), at_ms.saturating_add(1));
                self.give(behind, [promise]);
            }
        }
        // An end is given again: a source that had seen it is not asked.
        let ends = self.rows.events[lines].contains(&Event::End);
        if ends || (is_last && self.is_bounded) {
            self.give(behind, [SourcePoll::End]);
        }
        Ok(())
    }
}

fn row_of(event: &Event) -> Option<u32> {
    match *event {
        Event::Row { row, .. } => Some(row),
        _ => None,
    }
}

/// What a line of an input's table is, before its values are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Row,
    Watermark(i64),
    End,
    Nothing,
    Job(JobAction),
}

/// Which columns of a test's table are its own and not the table's, by their places.
pub(super) struct Own {
    pub at: Option<usize>,
    pub split: Option<usize>,
    pub op: Option<usize>,
}

impl Own {
    /// `has_column` says which names the table has: those are its columns, and the test's own is
    /// written with an `@`.
    pub(super) fn of(header: &[String], has_column: impl Fn(&str) -> bool) -> Own {
        let find = |name: &str| {
            let marked = header.iter().position(|found| *found == format!("@{name}"));
            let bare = || header.iter().position(|found| found == name);
            marked.or_else(|| bare().filter(|_| !has_column(name)))
        };
        Own { at: find("at"), split: find("split"), op: find("op") }
    }

    pub(super) fn is_own(&self, column: usize) -> bool {
        [self.at, self.split, self.op].contains(&Some(column))
    }

    /// The first cell of a row that is a value.
    pub(super) fn line(&self, row: &super::markdown::Row) -> Result<Line> {
        let mut values = (0..row.cells.len()).filter(|&column| !self.is_own(column));
        let first = values.next().and_then(|column| row.cells[column].as_deref());
        let others_are_empty = values.all(|column| row.cells[column].is_none());
        if let Some(action) = first.and_then(JobAction::of).filter(|_| others_are_empty) {
            return Ok(Line::Job(action));
        }
        match first {
            Some("end") if others_are_empty && row.cells.len() > 1 => Ok(Line::End),
            Some(text) if others_are_empty && text.starts_with("watermark ") => {
                let time = text.trim_start_matches("watermark ");
                let at_ms = cells::time_ms(time, i64::MAX).filter(|&at_ms| at_ms < i64::MAX / 2);
                at_ms.map(Line::Watermark).ok_or_else(|| {
                    wrong(row.line, format!("'{time}' is no time for a watermark"))
                        .hint("write `watermark 2026-01-01 09:00:00`")
                })
            }
            None if others_are_empty && self.at.is_some_and(|at| row.cells[at].is_some()) => {
                Ok(Line::Nothing)
            }
            _ => Ok(Line::Row),
        }
    }
}

/// The names of an input's splits, in the order in which they appear.
fn splits(table: &Table, own: &Own) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in &table.rows {
        if let Some(name) = own.split.and_then(|column| row.cells[column].clone())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// A job crashes while it runs, and is restored behind that.
fn check_actions(moments: &[Moment]) -> Result<()> {
    let mut is_down = false;
    for (action, line) in moments.iter().filter_map(|moment| moment.action) {
        let what = match (action, is_down) {
            (JobAction::Snapshot, false) => continue,
            (JobAction::Crash, false) | (JobAction::Restore, true) => {
                is_down = !is_down;
                continue;
            }
            (JobAction::Restore, false) => "the job runs, so it cannot be restored",
            (_, true) => "the job has crashed already",
        };
        return Err(wrong(line, what).hint(
            "a job crashes, is restored, and may crash again: `job crash`, then `job restore`",
        ));
    }
    Ok(())
}

/// An input names columns of its table, and those of the test.
fn check_columns(input: &InputTable, declared: &[String]) -> Result<()> {
    let own = Own::of(&input.rows.header, |name| declared.iter().any(|column| column == name));
    let mut header = input.rows.header.iter().enumerate();
    let unknown = header.find(|(place, name)| !own.is_own(*place) && !declared.contains(name));
    let Some((_, name)) = unknown else { return Ok(()) };
    let what = format!("table {} has no column '{name}' that it reads", input.table);
    let error = wrong(input.rows.lines.start + 1, what);
    Err(match near_miss(name, declared.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => error.hint(format!(
            "it has {}; the test's own columns are at, split and op, or @at, @split and @op where the table has such columns",
            declared.join(", ")
        )),
    })
}

fn prepare(
    table: &Table,
    own: &Own,
    request: &TableRequest,
    session: &Session,
) -> Result<Prepared> {
    let names = splits(table, own);
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    for row in &table.rows {
        let split = own.split.and_then(|column| row.cells[column].as_ref());
        let split = split.and_then(|name| names.iter().position(|known| known == name));
        let split = split.unwrap_or(0) as u32;
        events.push(match own.line(row)? {
            Line::Row => {
                rows.push(row);
                Event::Row { row: rows.len() as u32 - 1, split }
            }
            Line::Watermark(at_ms) => Event::Watermark { at_ms, split },
            Line::End => Event::End,
            Line::Nothing | Line::Job(_) => Event::Nothing,
        });
    }
    let delivered = request.delivered();
    let column = |column: &thalweg_core::Column| -> Result<ArrayRef> {
        if column.name == KIND_COLUMN {
            return kinds(&rows, own.op);
        }
        let place = (0..table.header.len())
            .find(|&place| table.header[place] == column.name && !own.is_own(place));
        let cells: Vec<&Cell> =
            rows.iter().map(|row| place.map_or(&None, |at| &row.cells[at])).collect();
        cells::values(&cells, &column.column_type, session).map_err(|(row, error)| {
            let what = format!("column {} of {}: {}", column.name, request.table, error.message());
            wrong(rows[row].line, what)
        })
    };
    let columns = delivered.columns.iter().map(column).collect::<Result<_>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(delivered.arrow(), columns, &options)?;
    Ok(Prepared { batch, events })
}

fn kinds(rows: &[&super::markdown::Row], op: Option<usize>) -> Result<ArrayRef> {
    let kind = |row: &&super::markdown::Row| {
        let Some(text) = op.and_then(|op| row.cells[op].as_deref()) else {
            return Ok(RowKind::Insert.code());
        };
        let kind = RowKind::from_short(text).map(RowKind::code);
        kind.ok_or_else(|| wrong(row.line, format!("op is '{text}': it must be +I, -U, +U or -D")))
    };
    let codes = rows.iter().map(kind).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Int8Array::from(codes)))
}

/// A connector that opens nothing.
struct TestConnector {
    connector: Arc<dyn Connector>,
    places: Arc<Places>,
}

impl Connector for TestConnector {
    fn description(&self) -> &ConnectorDescription {
        self.connector.description()
    }
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        self.connector.validate(request, as_sink)
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        self.connector.is_bounded(request)
    }
    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        self.connector.accepted_changes(request)
    }
    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        self.connector.held_changes(request)
    }
    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        self.connector.state_options(request, as_sink)
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let is_bounded = self.connector.is_bounded(request);
        let feed = self.places.open(request, is_bounded, false)?;
        Ok(Box::new(TestSource { table: request.table.clone(), feed, is_bounded }))
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let metadata = request.metadata.iter().map(|(_, column)| column);
        let columns = request.schema.columns.iter().chain(metadata).cloned().collect();
        Ok(self.places.sink(&request.table, TableSchema::new(columns), &request.primary_key))
    }
    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        let feed = self.places.open(&request.table, false, true)?;
        let mut inputs = self.places.inputs.iter();
        let found = inputs.position(|input| input.table == request.table.table);
        let input = found.ok_or_else(|| Error::internal("an input that was opened is there"))?;
        let rows = self.places.prepare(input, &request.table)?.batch;
        Ok(Arc::new(TestLookup { feed, rows }))
    }
}

struct TestSource {
    table: String,
    feed: Arc<Mutex<Feed>>,
    is_bounded: bool,
}

impl Source for TestSource {
    fn name(&self) -> String {
        self.table.clone()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        locked(&self.feed).waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, _rows_max: usize) -> Result<SourcePoll> {
        let mut feed = locked(&self.feed);
        let Some((poll, position)) = feed.polls.pop_front() else { return Ok(SourcePoll::Pending) };
        feed.position = feed.position.max(position);
        Ok(poll)
    }
    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
    fn position(&self) -> Option<String> {
        Some(locked(&self.feed).position.to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let lines = position.parse().map_err(|_| Error::internal("its own position"))?;
        locked(&self.feed).position = lines;
        Ok(())
    }
    fn split_status(&self, _split: SplitId) -> SplitStatus {
        let is_caught_up = locked(&self.feed).polls.is_empty();
        SplitStatus { is_caught_up, ..SplitStatus::default() }
    }
}

struct TestSink {
    places: Arc<Places>,
    table: String,
    schema: TableSchema,
    primary_key: Vec<usize>,
}

impl Sink for TestSink {
    fn name(&self) -> String {
        self.table.clone()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let written = Written {
            table: self.table.clone(),
            schema: self.schema.clone(),
            primary_key: self.primary_key.clone(),
            at_ms: self.places.clock.wall_ms(),
            batch: batch.clone(),
            kinds: kinds.map(<[RowKind]>::to_vec),
        };
        locked(&self.places.outputs).push(written);
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
    /// A crash drops what was written behind the last snapshot ([`Places::roll_back`]).
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }
}

/// A table that has the rows which have come so far.
struct TestLookup {
    feed: Arc<Mutex<Feed>>,
    rows: RecordBatch,
}

impl AsyncLookup for TestLookup {
    fn lookup(&self, _keys: RecordBatch) -> Answer {
        let arrived = locked(&self.feed).arrived.clone();
        let found = take_record_batch(&self.rows, &UInt32Array::from(arrived));
        Box::pin(ready(found.map_err(Error::from)))
    }
}
