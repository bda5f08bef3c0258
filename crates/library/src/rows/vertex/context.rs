//! What a processor is called with: items that come, and a place for those that leave.
//!
//! **Invariant:** an outbox takes at least one item in each call of the engine, so a processor that
//! returns when it is refused gets on.

use std::cell::Cell;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int16Array};
use arrow_schema::SchemaRef;
use thalweg_core::{Column, DataType, Error, ErrorKind, Output, Place, Result, TableSchema};

use super::plan::VertexPlan;
use super::{ITEM, ItemType, PARTITION, PORT};
use crate::rows::codec::{RowWriter, unpack};
use crate::rows::operator::{TimerChange, TimerKind};
use crate::rows::{Row, RowKey};

/// What items that leave now belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// The row of the piece, or a time.
    pub place: i64,
    /// The virtual partition.
    pub partition: i16,
}

/// Items of one input that wait for the processor.
pub struct Inbox<'a> {
    pub(super) items: &'a BinaryArray,
    pub(super) partitions: &'a Int16Array,
    /// The rows of the items.
    pub(super) rows: &'a [u32],
    pub(super) removed: usize,
    pub(super) cause: &'a Cell<Cause>,
    pub(super) item_type: ItemType,
    pub(super) first_partition: i16,
    /// What items belong to that have waited; else each is a cause of its own.
    pub(super) place: Option<i64>,
    /// The vertex and the input, for errors.
    pub(super) owner: (&'a str, usize),
}

impl Inbox<'_> {
    /// How many items are left.
    pub fn len(&self) -> usize {
        self.rows.len() - self.removed
    }

    /// True if none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next item, which stays until it is [removed](Self::remove). What is offered from now on
    /// is because of it.
    ///
    /// # Errors
    /// If the items of this input are of another type.
    pub fn peek<T: Row>(&self) -> Result<Option<T>> {
        let (vertex, input) = self.owner;
        self.item_type.check::<T>(|| format!("'{vertex}', input {input}"))?;
        let Some(&row) = self.rows.get(self.removed) else { return Ok(None) };
        let is_for_all = self.partitions.is_null(row as usize);
        let partition = match is_for_all {
            true => self.first_partition,
            false => self.partitions.value(row as usize),
        };
        self.cause.set(Cause { place: self.place.unwrap_or(i64::from(row)), partition });
        unpack(self.items, row).map(Some)
    }

    /// Removes the next item: it is processed.
    pub fn remove(&mut self) {
        self.removed = (self.removed + 1).min(self.rows.len());
    }

    /// Takes the next item out.
    ///
    /// # Errors
    /// If the items of this input are of another type.
    pub fn take<T: Row>(&mut self) -> Result<Option<T>> {
        let item = self.peek()?;
        if item.is_some() {
            self.remove();
        }
        Ok(item)
    }
}

/// What is kept of a context between calls.
pub(super) struct Outbox<K> {
    writer: RowWriter,
    ports: Vec<i16>,
    partitions: Vec<i16>,
    places: Vec<i64>,
    room_bytes: usize,
    pub(super) refused: bool,
    pub(super) timers: Vec<(K, TimerChange)>,
    pub(super) now_ms: Option<i64>,
    pub(super) watermark_ms: i64,
    schema: SchemaRef,
}

/// The columns of items that leave a vertex.
pub(super) fn output_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new(PORT, DataType::SmallInt.not_null()),
        Column::new(PARTITION, DataType::SmallInt.not_null()),
        Column::new(ITEM, DataType::BYTES.not_null()),
    ])
}

impl<K> Outbox<K> {
    pub(super) fn new() -> Self {
        Outbox {
            writer: RowWriter::new(),
            ports: Vec::new(),
            partitions: Vec::new(),
            places: Vec::new(),
            room_bytes: usize::MAX,
            refused: false,
            timers: Vec::new(),
            now_ms: None,
            watermark_ms: i64::MIN,
            schema: output_schema().arrow(),
        }
    }

    /// A call of the engine begins.
    pub(super) fn begin(&mut self, output: &Output) {
        self.room_bytes = output.room_bytes();
        self.refused = false;
    }

    fn is_full(&self, items_max: usize) -> bool {
        let items = self.writer.len();
        items > 0 && (items >= items_max || self.writer.bytes() >= self.room_bytes)
    }

    /// Sends out what was offered, at places of this kind.
    pub(super) fn send(
        &mut self,
        output: &mut Output,
        place: impl FnOnce(Vec<i64>) -> Place,
    ) -> Result<()> {
        if self.writer.len() == 0 {
            return Ok(());
        }
        let numbers = |column: &mut Vec<i16>| -> ArrayRef {
            Arc::new(Int16Array::from(std::mem::take(column)))
        };
        let columns = vec![numbers(&mut self.ports), numbers(&mut self.partitions)];
        let batch = self.writer.finish(&self.schema, columns)?;
        output.emit_at(batch, place(std::mem::take(&mut self.places)));
        Ok(())
    }
}

/// What a processor can do in a call: offer items, set timers, ask for times.
pub struct Context<'a, K> {
    pub(super) outbox: &'a mut Outbox<K>,
    pub(super) cause: &'a Cell<Cause>,
    pub(super) plan: &'a VertexPlan,
}

impl<K: RowKey> Context<'_, K> {
    /// Offers an item to the outbox, to leave by a port. False if the outbox is full: the item is
    /// not taken then, and the processor returns to be called again. Items for a port that nobody
    /// reads are taken and dropped.
    ///
    /// # Errors
    /// If there is no such port, its items are of another type, or serde can't write the item.
    pub fn offer<T: Row>(&mut self, port: usize, item: &T) -> Result<bool> {
        let Some(of_port) = self.plan.ports.get(port) else {
            let (name, ports) = (&self.plan.name, self.plan.ports.len());
            return Err(Error::user(format!("'{name}' has {ports} ports, and no port {port}")));
        };
        let Some(item_type) = of_port.get() else { return Ok(true) };
        item_type.check::<T>(|| format!("'{}', port {port}", self.plan.name))?;
        if self.outbox.is_full(self.plan.outbox_items) {
            self.outbox.refused = true;
            return Ok(false);
        }
        let cause = self.cause.get();
        self.outbox.writer.push(item)?;
        self.outbox.ports.push(port as i16);
        self.outbox.partitions.push(cause.partition);
        self.outbox.places.push(cause.place);
        Ok(true)
    }

    /// True once the outbox takes nothing more in this call.
    pub fn is_full(&self) -> bool {
        self.outbox.is_full(self.plan.outbox_items)
    }

    fn change(&mut self, kind: TimerKind, key: &K, at_ms: i64, is_set: bool) {
        self.outbox.timers.push((key.clone(), TimerChange { kind, at_ms, is_set }));
    }

    fn check_clock(&self) -> Result<()> {
        match self.plan.uses_processing_time {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::User,
                format!("'{}' asks for the time of the clock", self.plan.name),
            )
            .hint("call `uses_processing_time` of its vertex")),
        }
    }

    /// Sets a timer of event time: it fires once the watermark of all inputs has reached the first
    /// point of the [grid](super::Vertex::watermark_grid_ms) at or after this time. Setting the
    /// same one again changes nothing. One that a timer sets fires later than that timer.
    pub fn set_timer(&mut self, key: &K, at_ms: i64) {
        self.change(TimerKind::EventTime, key, at_ms, true);
    }

    /// Sets a timer at the end of all inputs. It fires with time `i64::MAX`.
    pub fn set_timer_at_end(&mut self, key: &K) {
        self.set_timer(key, i64::MAX);
    }

    /// Cancels a timer that [`set_timer`](Self::set_timer) has set, if it has not fired.
    pub fn delete_timer(&mut self, key: &K, at_ms: i64) {
        self.change(TimerKind::EventTime, key, at_ms, false);
    }

    /// Sets a timer that fires once the wall clock has reached this time. Timers that are left at
    /// the end of all inputs do not fire.
    ///
    /// # Errors
    /// If the vertex does not [say](super::Vertex::uses_processing_time) that it uses it.
    pub fn set_processing_timer(&mut self, key: &K, at_ms: i64) -> Result<()> {
        self.check_clock()?;
        self.change(TimerKind::ProcessingTime, key, at_ms, true);
        Ok(())
    }

    /// Cancels a timer of processing time, if it has not fired.
    pub fn delete_processing_timer(&mut self, key: &K, at_ms: i64) {
        self.change(TimerKind::ProcessingTime, key, at_ms, false);
    }

    /// The wall clock when the engine called, in milliseconds since 1970.
    ///
    /// # Errors
    /// If the vertex does not [say](super::Vertex::uses_processing_time) that it uses it.
    pub fn processing_time_ms(&self) -> Result<i64> {
        self.check_clock()?;
        Ok(self.outbox.now_ms.unwrap_or(i64::MIN))
    }

    /// The watermark of all inputs that the processor has seen last; for a timer of event time the
    /// millisecond before its time.
    pub fn watermark_ms(&self) -> i64 {
        self.outbox.watermark_ms
    }
}
