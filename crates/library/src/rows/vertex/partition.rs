//! One partition of a vertex: the processor, its timers, and what the engine knows of its inputs.
//!
//! **Invariants:**
//! - a call that the processor has not finished is made again before any other: its row is not
//!   taken, its timer is put back, or its watermark answers that there is more;
//! - an item waits while an input of a lower number has not ended, and so do the watermarks of its
//!   own input behind it;
//! - `ended` and `is_complete` are the same in all partitions where a snapshot is taken.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::{BinaryArray, Int16Array};
use thalweg_core::operator::{Partition, WatermarkCall};
use thalweg_core::{
    Captured, Error, Extent, Output, Piece, Place, Progress, Restored, Result, Watermark,
};

use super::context::{Cause, Context, Inbox, Outbox};
use super::edge::Items;
use super::input_tap::control_of;
use super::plan::VertexPlan;
use super::processor::{Processor, VertexContext};
use super::snapshot::{SavedEntries, SharedColumns, StateColumns, VertexProgress};
use super::waiting::WaitingItems;
use crate::rows::codec::unpack;
use crate::rows::operator::TimerKind;
use crate::rows::snapshot::{capture_timers, restore_timers};
use crate::rows::timers::Timers;
use crate::rows::{FiredTimer, virtual_partition};

/// Items that a processor is given at once.
const RUN_ITEMS: usize = 256;
/// Timers that fire between two looks at the clock.
const TIMERS_UNCHECKED: usize = 64;

/// Items of one input.
struct Run<'a> {
    input: usize,
    partitions: &'a Int16Array,
    items: &'a BinaryArray,
    rows: &'a [u32],
    /// See [`Inbox::place`].
    place: Option<i64>,
}

/// The processor of a range of keys.
pub(super) struct VertexPartition<P: Processor> {
    plan: Arc<VertexPlan>,
    context: VertexContext,
    processor: P,
    columns: SharedColumns<P>,
    outbox: Outbox<P::Key>,
    timers: Timers<P::Key>,
    clock_timers: Timers<P::Key>,
    waiting: WaitingItems,
    /// Inputs whose end the processor has completed.
    ended: Vec<bool>,
    is_complete: bool,
    has_ended: bool,
    /// The last watermark that the processor was called with.
    reported: Watermark,
    /// The clock when it was last read; it never goes back.
    now_ms: i64,
    is_at_watermark: bool,
    cause: Cell<Cause>,
    first_partition: i16,
}

impl<P: Processor> VertexPartition<P> {
    pub(super) fn new(
        plan: Arc<VertexPlan>,
        context: VertexContext,
        processor: P,
        columns: SharedColumns<P>,
    ) -> Self {
        let first_partition = i16::from(context.first_virtual());
        VertexPartition {
            ended: vec![false; plan.inputs.len()],
            timers: Timers::new(plan.grid_ms),
            clock_timers: Timers::new(Some(1)),
            plan,
            context,
            processor,
            columns,
            outbox: Outbox::new(),
            waiting: WaitingItems::default(),
            is_complete: false,
            has_ended: false,
            reported: Watermark::MIN,
            now_ms: i64::MIN,
            is_at_watermark: false,
            cause: Cell::new(Cause { place: 0, partition: first_partition }),
            first_partition,
        }
    }

    /// A call of the engine begins.
    fn begin(&mut self, output: &Output) {
        self.outbox.begin(output);
        if self.plan.uses_processing_time {
            self.now_ms = self.now_ms.max(output.wall_ms());
            self.outbox.now_ms = Some(self.now_ms);
        }
    }

    /// Calls the processor until it has finished. False if it was refused or time is up before.
    fn call(
        &mut self,
        time_is_up: impl Fn() -> bool,
        function: impl Fn(&mut P, &mut Context<'_, P::Key>) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let (outbox, cause, plan) = (&mut self.outbox, &self.cause, self.plan.as_ref());
            let is_done = function(&mut self.processor, &mut Context { outbox, cause, plan })?;
            self.change_timers();
            if is_done || self.outbox.refused || time_is_up() {
                return Ok(is_done);
            }
        }
    }

    /// Does what a call asked for.
    fn change_timers(&mut self) {
        for (key, change) in self.outbox.timers.drain(..) {
            let timers = match change.kind {
                TimerKind::EventTime => &mut self.timers,
                TimerKind::ProcessingTime => &mut self.clock_timers,
            };
            match change.is_set {
                true => timers.add(change.at_ms, &key),
                false => timers.remove(change.at_ms, &key),
            }
        }
    }

    /// Fires the timers of a kind that a watermark reaches. True if all have fired.
    fn fire(
        &mut self,
        kind: TimerKind,
        watermark: Watermark,
        time_is_up: impl Fn() -> bool + Copy,
    ) -> Result<bool> {
        let mut fired = 0;
        while fired % TIMERS_UNCHECKED != TIMERS_UNCHECKED - 1 || !time_is_up() {
            fired += 1;
            let timers = self.timers_of(kind);
            let Some((time_ms, key)) = timers.pop(watermark) else { return Ok(true) };
            let place = if self.is_at_watermark { time_ms } else { self.cause.get().place };
            self.cause.set(Cause { place, partition: i16::from(virtual_partition(&key)) });
            if kind == TimerKind::EventTime {
                self.outbox.watermark_ms = time_ms.saturating_sub(1);
            }
            let timer = FiredTimer { time_ms, kind };
            let is_done =
                self.call(time_is_up, |processor, context| processor.timer(&key, timer, context));
            if !is_done? {
                self.timers_of(kind).put_back(time_ms, key);
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn timers_of(&mut self, kind: TimerKind) -> &mut Timers<P::Key> {
        match kind {
            TimerKind::EventTime => &mut self.timers,
            TimerKind::ProcessingTime => &mut self.clock_timers,
        }
    }

    /// Fires the timers that the clock has reached. True if all have fired.
    fn fire_clock_timers(&mut self, time_is_up: impl Fn() -> bool + Copy) -> Result<bool> {
        // A watermark reaches a timer from the millisecond before it on.
        let now = Watermark(self.now_ms.saturating_sub(1));
        self.fire(TimerKind::ProcessingTime, now, time_is_up)
    }

    /// True if items of an input have to wait for another one to end.
    fn must_wait(&self, input: usize) -> bool {
        let others = self.ended.iter().enumerate().filter(|(_, ended)| !**ended);
        others.map(|(other, _)| other).any(|other| self.plan.waits_for(input, other))
    }

    /// How many rows of a piece are taken.
    fn take_rows(&mut self, piece: &Piece<'_>, output: &Output) -> Result<usize> {
        let rows: Cow<'_, [u32]> = match piece.rows {
            Some(rows) => rows.into(),
            None => (0..piece.bundle.num_rows() as u32).collect::<Vec<_>>().into(),
        };
        let items = Items::of(&piece.bundle.batch)?;
        let before = &piece.bundle.stamps.watermark_before;
        let is_ordered = self.context.opening.order.is_ordered();
        let fires_between = !is_ordered && piece.lanes == 1 && self.plan.grid_ms.is_some();
        let partition = self.first_partition;
        let place_of = |row: u32| Cause { place: i64::from(row), partition };
        let mut taken = 0;
        if let (true, Some(&first)) = (is_ordered && self.plan.uses_processing_time, rows.first()) {
            self.cause.set(place_of(first));
            if !self.fire_clock_timers(|| false)? {
                return Ok(0);
            }
        }
        while let Some(&row) = rows.get(taken).filter(|_| taken == 0 || !output.is_full()) {
            let place = place_of(row);
            self.cause.set(place);
            if fires_between {
                let before = before.at(row as usize);
                if !self.fire(TimerKind::EventTime, before, || false)? {
                    break;
                }
                self.outbox.watermark_ms = before.0;
            }
            let (input, rest) = (items.inputs.value(row as usize), &rows[taken..]);
            let is_same = |row: &&u32| items.inputs.value(**row as usize) == input;
            let run_max = if fires_between || input < 0 { 1 } else { RUN_ITEMS };
            let run = &rest[..rest.iter().take(run_max).take_while(is_same).count()];
            let owner = input.max(control_of(input)) as usize;
            let count = if self.must_wait(owner) {
                run.iter().for_each(|&row| self.waiting.add(&items, row as usize));
                run.len()
            } else if input < 0 {
                usize::from(self.take_control(owner, unpack(items.items, row)?, place.place)?)
            } else {
                let Items { partitions, items, .. } = items;
                self.process(&Run { input: owner, partitions, items, rows: run, place: None })?
            };
            taken += count;
            if count < run.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Gives the processor items. How many it has taken: fewer only if it was refused.
    fn process(&mut self, run: &Run<'_>) -> Result<usize> {
        let mut removed = 0;
        loop {
            let (outbox, cause, plan) = (&mut self.outbox, &self.cause, self.plan.as_ref());
            let mut inbox = Inbox {
                items: run.items,
                partitions: run.partitions,
                rows: run.rows,
                removed,
                cause,
                item_type: plan.inputs[run.input].item_type,
                first_partition: self.first_partition,
                place: run.place,
                owner: (&plan.name, run.input),
            };
            let mut context = Context { outbox, cause, plan };
            self.processor.process(run.input, &mut inbox, &mut context)?;
            let before = std::mem::replace(&mut removed, inbox.removed);
            self.change_timers();
            if removed == run.rows.len() || self.outbox.refused {
                return Ok(removed);
            }
            if removed == before {
                let (name, input) = (&self.plan.name, run.input);
                return Err(Error::user(format!(
                    "'{name}' leaves items of input {input} though its outbox has refused none"
                ))
                .hint(
                    "take all items of the inbox, or return when an offer is answered with false",
                ));
            }
        }
    }

    /// Takes a watermark of one input. False if the processor was refused.
    fn take_control(&mut self, input: usize, watermark_ms: i64, place: i64) -> Result<bool> {
        let not_yet = || false;
        if watermark_ms < Watermark::END.0 {
            return self.call(not_yet, |processor, context| {
                processor.input_watermark(input, watermark_ms, context)
            });
        }
        if !self.complete_input(input, not_yet)? {
            return Ok(false);
        }
        self.process_waiting(place)
    }

    fn complete_input(&mut self, input: usize, time_is_up: impl Fn() -> bool) -> Result<bool> {
        let is_done = self.ended[input]
            || self
                .call(time_is_up, |processor, context| processor.complete_input(input, context))?;
        self.ended[input] = is_done;
        Ok(is_done)
    }

    /// Takes what need not wait any more. False if the processor was refused.
    fn process_waiting(&mut self, place: i64) -> Result<bool> {
        loop {
            let free = self.waiting.free(|input| !self.must_wait(input), RUN_ITEMS);
            let Some(free) = free else { return Ok(true) };
            self.cause.set(Cause { place, partition: self.first_partition });
            let rows: Vec<u32> = (0..free.items.len() as u32).collect();
            let taken = match usize::try_from(free.input) {
                Ok(input) => {
                    let (partitions, items) = (&free.partitions, &free.items);
                    let place = Some(place);
                    self.process(&Run { input, partitions, items, rows: &rows, place })?
                }
                Err(_) => {
                    let input = control_of(free.input) as usize;
                    let watermark_ms = unpack(&free.items, 0)?;
                    let is_end = watermark_ms == Watermark::END.0;
                    let is_done = match is_end {
                        true => self.complete_input(input, || false)?,
                        false => self.take_control(input, watermark_ms, place)?,
                    };
                    usize::from(is_done)
                }
            };
            self.waiting.remove(free.input, taken);
            if self.outbox.refused {
                return Ok(false);
            }
        }
    }

    /// Takes the watermark of all inputs. True if that is done.
    fn take_watermark(
        &mut self,
        watermark: Watermark,
        time_is_up: impl Fn() -> bool + Copy,
    ) -> Result<bool> {
        if !self.fire(TimerKind::EventTime, watermark, time_is_up)? {
            return Ok(false);
        }
        let place = watermark.0.saturating_add(1);
        self.cause.set(Cause { place, partition: self.first_partition });
        self.outbox.watermark_ms = watermark.0;
        if watermark != Watermark::END {
            let is_done = self.reported >= watermark
                || self.call(time_is_up, |processor, context| {
                    processor.watermark(watermark.0, context)
                })?;
            self.reported = if is_done { watermark } else { self.reported };
            return Ok(is_done);
        }
        self.has_ended = true;
        if self.ended.len() == 1 && !self.complete_input(0, time_is_up)? {
            return Ok(false);
        }
        self.is_complete = self.is_complete
            || self.call(time_is_up, |processor, context| processor.complete(context))?;
        if self.is_complete {
            // They do not fire any more, and no snapshot has to remove them.
            self.clock_timers = Timers::new(Some(1));
        }
        Ok(self.is_complete)
    }
}

impl<P: Processor> Partition for VertexPartition<P> {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.begin(output);
        let taken = self.take_rows(&piece, output)?;
        output.accepted += taken as u64;
        let causes = |places: Vec<i64>| places.into_iter().map(|place| place as u32).collect();
        self.outbox.send(output, |places| Place::Caused(causes(places)))?;
        if taken < piece.num_rows() {
            output.stop_at(taken);
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.begin(output);
        self.is_at_watermark = true;
        let is_done = self.take_watermark(call.watermark, || output.time_is_up());
        self.is_at_watermark = false;
        let is_done = is_done?;
        self.outbox.send(output, Place::WindowEnds)?;
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    fn ticks_at(&self) -> Option<i64> {
        let first = self.clock_timers.first();
        (!self.has_ended && first != Watermark::END).then(|| first.0.saturating_add(1))
    }

    fn tick(&mut self, output: &mut Output) -> Result<Progress> {
        self.begin(output);
        let is_done = self.fire_clock_timers(|| output.time_is_up())?;
        self.outbox.send(output, |_| Place::AsEmitted)?;
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let mut saved = SavedEntries::new(self.context);
        self.processor.save(&mut saved)?;
        let columns = self.columns.get_or_init(StateColumns::new);
        let (waiting, ended) = (&mut self.waiting, self.ended.as_mut_slice());
        let progress = VertexProgress { waiting, ended, is_complete: &mut self.is_complete };
        let mut captured = columns.capture(&saved, &progress)?;
        let timers = (&mut self.timers, &mut self.clock_timers);
        capture_timers(&columns.keys, extent, timers, &mut captured);
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let columns = self.columns.get_or_init(StateColumns::new);
        let (waiting, ended) = (&mut self.waiting, self.ended.as_mut_slice());
        let mut progress = VertexProgress { waiting, ended, is_complete: &mut self.is_complete };
        columns.restore(restored, &mut self.processor, &mut progress)?;
        restore_timers(&columns.keys, restored, (&mut self.timers, &mut self.clock_timers))
    }

    fn state_bytes(&self) -> usize {
        let timers = self.timers.bytes() + self.clock_timers.bytes();
        self.processor.state_bytes() + timers + self.waiting.bytes()
    }
}
