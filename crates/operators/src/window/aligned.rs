//! Tumbling, hopping and cumulating windows with aggregates, keyed or global.
//!
//! Where all aggregates are exact the operator is `Commuting`: any partition takes any row, and a
//! watermark has two phases. In the first each partition hands the states of slices that no row
//! can reach any more to the partitions that own their keys; in the second each owner merges what
//! it got and emits the windows that close. With one partition, or where an aggregate depends on
//! the order of rows (`Sequenced`: rows are scattered by key), partitions own what they take and
//! nothing is exchanged.
//!
//! Lateness is judged row by row against `watermark_before` (see `judge`); the watermark itself
//! only closes windows.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Bundle, Captured, Error, Extent, Grid, Opening, Operator, OperatorClass, Output, Partition,
    Piece, Progress, Restored, Result, Route, TableSchema,
};

use super::assembly::{Assembly, Combining};
use super::judge::{Judge, Rules, SliceKey};
use super::output::{LatePolicy, WindowRows, output_schema};
use super::slices::{Calls, Partial, RowsOf, Slices};
use super::snapshot::{SliceRows, recall_entered, recall_slices, tell_entered, tell_slices};
use super::spec::WindowSpec;
use super::spreading::Spreading;
use super::tables::Spare;
use super::tumbling::TumblingPartition;
use super::zone::Zone;
use crate::aggregate::{AggregateCall, RowOrder};
use crate::keys::{CanonicalOrder, hash_keys, partition_of};

/// What a [`WindowAggregate`] computes, by columns of its input.
#[derive(Clone, Debug)]
pub struct WindowAggregateSpec {
    /// The windows.
    pub window: WindowSpec,
    /// The column of the row time: TIMESTAMP or TIMESTAMP_LTZ of at most 3 digits.
    pub rowtime: usize,
    /// For a row time of TIMESTAMP_LTZ: the session's zone, to whose clocks windows are aligned.
    pub zone: Option<Tz>,
    /// The grouping columns.
    pub keys: Vec<usize>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// What happens to late rows.
    pub late: LatePolicy,
    /// The input's columns.
    pub input: TableSchema,
}

impl WindowAggregateSpec {
    pub(super) fn rules(&self) -> Rules<'_> {
        let WindowAggregateSpec { window, rowtime, late, input, .. } = self;
        Rules { window, rowtime: *rowtime, late: *late, input }
    }
}

/// What the partitions of an operator have in common.
pub(super) struct Shared {
    pub(super) spec: WindowAggregateSpec,
    pub(super) calls: Arc<Calls>,
    output: TableSchema,
    pub(super) arrow: SchemaRef,
    pub(super) exact: bool,
    invertible: bool,
    pub(super) spreading: Spreading,
    /// Where all rows are of one key: tables that no partition uses.
    pub(super) spare: Spare,
}

/// Aggregates per window and key. The result has the keys, the aggregates, and
/// `window_start`, `window_end`, `window_time`.
pub struct WindowAggregate {
    shared: Arc<Shared>,
}

impl WindowAggregate {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: WindowAggregateSpec) -> Result<Self> {
        spec.window.validate()?;
        check_columns(spec.rowtime, &spec.keys, &spec.input)?;
        let mut calls = Calls::new(&spec.aggregates, &spec.keys, &spec.input)?;
        if spec.window.shares_no_slice() {
            calls = calls.of_whole();
        }
        let output = output_schema(&spec.input, &spec.keys, &spec.aggregates, spec.zone);
        let shared = Shared {
            arrow: output.arrow(),
            output,
            calls: Arc::new(calls),
            exact: spec.aggregates.iter().all(AggregateCall::is_exact),
            invertible: spec.aggregates.iter().all(AggregateCall::is_invertible),
            spreading: Spreading::default(),
            spare: Spare::default(),
            spec,
        };
        Ok(WindowAggregate { shared: Arc::new(shared) })
    }

    /// The columns of the result.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }
}

/// The row time and the keys must be columns of the input.
pub(super) fn check_columns(rowtime: usize, keys: &[usize], input: &TableSchema) -> Result<()> {
    match keys.iter().chain([&rowtime]).find(|&&column| column >= input.len()) {
        Some(column) => Err(Error::internal(format!("there is no input column {column}"))),
        None => Ok(()),
    }
}

/// Scatters rows by key. Without keys the first partition takes all.
pub(super) fn scatter(bundle: &Bundle, keys: &[usize], partitions: usize) -> Result<Route> {
    let rows = bundle.num_rows();
    let mut parts: Vec<Vec<u32>> = vec![Vec::new(); partitions];
    if keys.is_empty() || partitions == 1 {
        parts[0] = (0..rows as u32).collect();
        return Ok(Route::Scatter(parts));
    }
    let columns = key_columns(bundle, keys);
    parts.iter_mut().for_each(|part| part.reserve(rows / partitions));
    for (row, hash) in hash_keys(&columns, rows)?.into_iter().enumerate() {
        parts[partition_of(hash, partitions)].push(row as u32);
    }
    Ok(Route::Scatter(parts))
}

pub(super) fn key_columns(bundle: &Bundle, keys: &[usize]) -> Vec<ArrayRef> {
    keys.iter().map(|&key| ArrayRef::clone(bundle.batch.column(key))).collect()
}

pub(super) fn row_order(bundle: &Bundle) -> RowOrder {
    let stamps = &bundle.stamps;
    RowOrder { lane: stamps.lane, epoch: stamps.epoch, ordinal: stamps.ordinal }
}

/// The watermarks that close a window of this kind: where windows end, as instants. With a zone
/// windows follow its wall clock.
pub fn closing_watermarks(window: WindowSpec, zone: Option<Tz>) -> Grid {
    let ends = window.ends();
    let Grid { mut period_ms, offset_ms } = ends;
    if !Zone::new(zone).is_identity() {
        // Clocks differ from UTC by quarters of an hour, so among the points of the finest grid
        // that both fit are the ends of all local windows.
        let (mut a, mut b) = (period_ms, 15 * 60_000);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        period_ms = a;
    }
    // The ends themselves: whoever compares a watermark with them adds the millisecond by which a
    // window closes before its end.
    Grid { period_ms, offset_ms: offset_ms.rem_euclid(period_ms) }
}

impl Operator for WindowAggregate {
    fn name(&self) -> String {
        match self.shared.spec.window {
            WindowSpec::Tumble { .. } => "tumbling window".to_string(),
            WindowSpec::Hop { .. } => "hopping window".to_string(),
            WindowSpec::Cumulate { .. } => "cumulating window".to_string(),
        }
    }
    fn class(&self) -> OperatorClass {
        if self.shared.exact { OperatorClass::Commuting } else { OperatorClass::Sequenced }
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        let spec = &self.shared.spec;
        WatermarkInterest::Grids(vec![closing_watermarks(spec.window, spec.zone)])
    }
    fn ports(&self) -> usize {
        if self.shared.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let Shared { spec, exact, spreading, .. } = self.shared.as_ref();
        match exact {
            true if spec.window.shares_no_slice() => {
                spreading.route(bundle, &spec.keys, partitions)
            }
            true => Ok(Route::Any),
            false => scatter(bundle, &spec.keys, partitions),
        }
    }
    fn watermark_phases(&self) -> usize {
        if self.shared.exact { 2 } else { 1 }
    }
    fn open(&self, opening: Opening) -> Result<Box<dyn Partition>> {
        let Opening { partition, partitions, order } = opening;
        let shared = Arc::clone(&self.shared);
        if shared.spec.window.shares_no_slice() {
            return Ok(Box::new(TumblingPartition::new(shared, opening)?));
        }
        let owned = Slices::new(Arc::clone(&shared.calls))?;
        let canonical = CanonicalOrder::wanted(order, &shared.calls.key_types)?;
        let combining = match (shared.invertible, shared.exact) {
            (true, _) => Combining::Subtract,
            (false, false) if order.is_ordered() => Combining::InOrder,
            (false, _) => Combining::Tree,
        };
        let assembly = Assembly::new(shared.spec.window, &owned, combining, canonical)?;
        let foreign = match shared.exact && partitions > 1 {
            true => Some(Slices::new(Arc::clone(&shared.calls))?),
            false => None,
        };
        Ok(Box::new(WindowPartition {
            judge: Judge::new(shared.spec.zone),
            shared,
            partition,
            partitions,
            owned,
            foreign,
            assembly,
            inbox: Vec::new(),
        }))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

/// The states of one slice for one owner.
struct Parcel {
    key: SliceKey,
    keys: Vec<ArrayRef>,
    partial: Partial,
}

struct WindowPartition {
    shared: Arc<Shared>,
    partition: usize,
    partitions: usize,
    /// Slices of the keys that this partition owns.
    owned: Slices,
    /// Where any partition takes any row: the slices of what was taken here.
    foreign: Option<Slices>,
    assembly: Assembly,
    inbox: Vec<Parcel>,
    judge: Judge,
}

impl Partition for WindowPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let spec = &self.shared.spec;
        let judged = self.judge.piece(&spec.rules(), &piece, output)?;
        if judged.runs.is_empty() {
            return Ok(());
        }
        let keys = key_columns(piece.bundle, &spec.keys);
        let rows = if judged.as_given { piece.rows } else { Some(&judged.rows[..]) };
        let slices = self.foreign.as_mut().unwrap_or(&mut self.owned);
        slices.intern(&keys, rows, piece.bundle.num_rows())?;
        let of = RowsOf { batch: &piece.bundle.batch, order: row_order(piece.bundle) };
        for run in &judged.runs {
            let rows = rows.map(|rows| &rows[run.from..run.to]);
            slices.update(run.key, of, run.from..run.to, rows)?;
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let watermark = self.judge.zone.local_watermark(call.watermark.0);
        let exchanges = self.foreign.is_some();
        match call.phase {
            0 if exchanges => self.seal(watermark, call, output),
            0 if self.shared.exact => Ok(Progress::Done),
            _ => {
                if exchanges {
                    let parcels = call.exchange.take(self.partition);
                    self.receive(parcels)?;
                }
                self.assemble(watermark, output)
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let foreign = self.foreign.as_ref().map_or(0, Slices::bytes);
        self.owned.bytes() + foreign + self.assembly.bytes()
    }

    /// Told are the states of all slices, whoever's keys they hold. How rows are judged depends on the
    /// rows alone, and between two watermarks no parcel waits.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        if !self.inbox.is_empty() {
            return Err(Error::internal("a window was asked for its state in a watermark"));
        }
        let mut captured = Captured::default();
        let all = std::iter::once(&self.owned).chain(&self.foreign);
        tell_slices(&mut captured, &self.shared.calls, all.flat_map(Slices::states))?;
        let (next_end, entered) = self.assembly.entered()?;
        tell_entered(&mut captured, &self.owned, next_end, &entered)?;
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let (calls, span_ms) = (&self.shared.calls, self.shared.spec.window.span_ms());
        for part in recall_slices(restored, span_ms)? {
            let (keys, partial) = calls.recall(&part.rows)?;
            self.owned.absorb(part.key, &keys, partial)?;
        }
        let parts = recall_entered(restored, span_ms)?;
        let Some(next_end) = parts.first().map(|part| part.key.enter) else { return Ok(()) };
        let adopt = |part: SliceRows| {
            let (keys, partial) = calls.recall(&part.rows)?;
            Ok((part.key.leave, self.owned.adopt(&keys, partial)?))
        };
        let parts = parts.into_iter().map(adopt).collect::<Result<_>>()?;
        self.assembly.resume(next_end, parts, &self.owned)
    }
}

impl WindowPartition {
    /// Phase one: hands closed slices to the owners of their keys.
    fn seal(
        &mut self,
        watermark: i64,
        call: &WatermarkCall<'_>,
        output: &Output,
    ) -> Result<Progress> {
        let Some(slices) = &mut self.foreign else { return Ok(Progress::Done) };
        // Reached are the slices whose first window ends at or before the watermark + 1.
        while let Some((key, mut slice)) = slices.pop_entered(watermark.saturating_add(1)) {
            let mut shares: Vec<Vec<u32>> = vec![Vec::new(); self.partitions];
            for id in std::mem::take(&mut slice.keys) {
                shares[partition_of(slices.keys.hash_of(id), self.partitions)].push(id);
            }
            for (owner, ids) in shares.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
                let keys = slices.keys.take_keys(&ids)?;
                let partial = slice.take(ids)?;
                slices.release(&partial.ids);
                call.exchange.put(owner, Box::new(Parcel { key, keys, partial }));
            }
            slices.recycle(slice);
            slices.sweep();
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn receive(&mut self, parcels: Vec<Box<dyn std::any::Any + Send>>) -> Result<()> {
        for parcel in parcels {
            let parcel = parcel
                .downcast::<Parcel>()
                .map_err(|_| Error::internal("a window got another operator's parcel"))?;
            self.inbox.push(*parcel);
        }
        Ok(())
    }

    /// Phase two: merges what came in, and emits what closes.
    fn assemble(&mut self, watermark: i64, output: &mut Output) -> Result<Progress> {
        while let Some(Parcel { key, keys, partial }) = self.inbox.pop() {
            self.owned.absorb(key, &keys, partial)?;
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        let mut rows = WindowRows { schema: &self.shared.arrow, zone: &mut self.judge.zone };
        self.assembly.advance(watermark, &mut self.owned, &mut rows, output)
    }
}
