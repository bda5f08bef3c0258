//! `'connector' = 'nexmark'`: the persons, auctions and bids of the NEXMark benchmark.
//!
//! Event i is a pure function of the options and i, whatever the speed, the bundle size, the order
//! of emission and the number of splits. Columns are made straight into Arrow, only those that are
//! asked for. A table of one kind has the events of that kind among the first `'events'` of all.
//!
//! With a `'rate'` each event is due at a time that is fixed when the job starts; a source that
//! falls behind catches up, and the delay counts. Event times follow `'event-time-rate'`.
//!
//! | module | holds |
//! |---|---|
//! | `events` | which events, in which order, at which times |
//! | `columns` | columns that can be declared |
//! | `mixed`, `jet`, `beam`, `peer` | the values, one module per preset |
//! | `random`, `text` | what they are made of |
//!
//! It makes no watermarks: `WATERMARK FOR dateTime` does.

mod beam;
mod columns;
mod events;
mod jet;
mod mixed;
mod options;
mod peer;
mod random;
mod text;

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use serde_json::{Value, json};
use thalweg_core::connector::{
    Connector, ConnectorDescription, Source, SourceBatch, SourcePoll, TableRequest, Waker,
    unread_rows,
};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};

use self::columns::{Column, Events, Preset};
use self::events::{Selection, Timeline};
use self::options::{Base, DESCRIPTION, NexmarkOptions};
use crate::pacing::Pacing;

/// The connector.
pub struct Nexmark;

impl Connector for Nexmark {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        NexmarkOptions::read(request).map(drop)
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        NexmarkOptions::read(request).is_ok_and(|options| options.selection.events.is_some())
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = NexmarkOptions::read(request)?;
        let columns = match &request.projection {
            None => options.columns,
            Some(wanted) => wanted.iter().map(|&at| options.columns[at].clone()).collect(),
        };
        let base_ms = match options.base {
            Base::At(base_ms) => base_ms,
            Base::Now => SystemClock::new().wall_ms(),
        };
        Ok(Box::new(NexmarkSource {
            name: request.table.clone(),
            preset: options.values.preset()?,
            columns,
            schema: request.delivered().arrow(),
            next: options.selection.split,
            selection: options.selection,
            pacing: Pacing::new(options.events_per_second),
            overdue_ns: 0,
            timeline: Timeline { base_ms, events_per_second: options.event_time_per_second },
            starts_now: options.base == Base::Now,
            numbers: Vec::new(),
        }))
    }
    fn state_options(&self, request: &TableRequest, _as_sink: bool) -> BTreeMap<String, String> {
        request.generated_by(|name| !["connector", "rate"].contains(&name))
    }
}

struct NexmarkSource {
    name: String,
    preset: Box<dyn Preset>,
    columns: Vec<Column>,
    schema: SchemaRef,
    selection: Selection,
    /// The next slot.
    next: u64,
    /// When slots are due.
    pacing: Pacing,
    /// For how long the first slot of the last batch had been.
    overdue_ns: u64,
    timeline: Timeline,
    starts_now: bool,
    /// The numbers of the events of one batch; kept for its memory.
    numbers: Vec<u64>,
}

impl NexmarkSource {
    fn batch(&self) -> Result<RecordBatch> {
        let events = Events { numbers: &self.numbers, timeline: self.timeline };
        let columns = self.columns.iter();
        let columns = columns
            .map(|column| column.make(self.preset.as_ref(), events))
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.numbers.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl Source for NexmarkSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        if self.starts_now {
            self.timeline.base_ms = SystemClock::new().wall_ms();
        }
        self.pacing.start(waker)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        self.numbers.clear();
        let due = self.pacing.due();
        self.overdue_ns = self.pacing.overdue_ns(self.next);
        self.next = self.selection.take(self.next, due, rows_max.max(1), &mut self.numbers);
        if !self.numbers.is_empty() {
            return Ok(SourcePoll::Batch(SourceBatch::new(self.batch()?)));
        }
        if self.next >= self.selection.slots_end() {
            self.stop();
            return Ok(SourcePoll::End);
        }
        Ok(SourcePoll::Pending)
    }

    fn is_bounded(&self) -> bool {
        self.selection.events.is_some()
    }

    fn stop(&mut self) {
        self.pacing.stop();
    }

    fn overdue_ns(&self) -> u64 {
        self.overdue_ns
    }

    fn position(&self) -> Option<String> {
        Some(json!({ "slot": self.next, "baseMs": self.timeline.base_ms }).to_string())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let parsed: Option<Value> = serde_json::from_str(position).ok();
        let place =
            parsed.and_then(|place| Some((place["slot"].as_u64()?, place["baseMs"].as_i64()?)));
        let splits = self.selection.splits;
        let (slot, base_ms) = place
            .filter(|(slot, _)| slot % splits == self.selection.split % splits)
            .ok_or_else(|| {
                Error::user(format!("this is no position in these events: {position}")).hint(
                    "the snapshot is of a table with other options, of another version, or damaged",
                )
            })?;
        (self.next, self.timeline.base_ms) = (slot, base_ms);
        self.pacing.begin_at(slot);
        self.starts_now = false;
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        self.seek(position)?;
        match self.next >= self.selection.slots_end() {
            true => Ok(()),
            false => Err(unread_rows(&format!("event {} and later ones", self.next + 1))),
        }
    }
}
