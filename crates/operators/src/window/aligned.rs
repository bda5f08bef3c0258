//! Tumbling, hopping and cumulating windows with aggregates, keyed or global.
//!
//! Where all aggregates are exact the operator is `Commuting`: any partition takes any bundle (or
//! each row goes to the owner of its key, if that is cheaper: `key_spread`), and a watermark has
//! two phases. In the first each partition hands the states of slices that no row can reach any
//! more to the partitions that own their keys; in the second each owner merges what it got and
//! emits the windows that close. With one partition, or where an aggregate depends on the order of
//! rows (`Sequenced`: rows are scattered by key), partitions own what they take and nothing is
//! exchanged.
//!
//! A window of all rows ([`WindowAggregate::of_whole`]) closes at the end of the input; that is
//! GROUP BY where results are wanted only once, and no time is asked for.
//!
//! Lateness is judged row by row against `watermark_before` (see `judge`); the watermark itself
//! only closes windows.
//!
//! Windows that share no slice (`TUMBLE`, `HOP` with gaps, all rows) are `TumblingWindows`, and so
//! are all windows over a changelog ([`super::changelog`]); all others are `SlicedWindows`. Both
//! write the same tables of state.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Error, Grid, Operator, OperatorClass, Partition, PartitionContext, Result, Route,
    TableSchema, Watermark,
};

use super::calls::Calls;
use super::key_spread::KeySpread;
use super::output::{LatePolicy, WindowColumns, output_schema};
use super::partition::SlicedWindows;
use super::shared::{CHUNK_ROWS, WindowAggregateSpec, WindowContext};
use super::spec::WindowSpec;
use super::tables::Spare;
use super::top::{TopChooser, WindowTop};
use super::tumbling::TumblingWindows;
use super::zone::Zone;
use crate::aggregate::{AggregateCall, with_results};
use crate::capture::shared::SharedPartition;
use crate::keys::route_by_keys;
use crate::rows::columns::{check_columns, schema_of};

/// Aggregates per window and key. The result has the keys, the aggregates, and
/// `window_start`, `window_end`, `window_time`.
pub struct WindowAggregate {
    pub(super) shared: Arc<WindowContext>,
}

impl WindowAggregate {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: WindowAggregateSpec) -> Result<Self> {
        spec.window.validate()?;
        let is_whole = spec.window == WindowSpec::Whole;
        let rowtime = (!is_whole).then_some(spec.rowtime);
        check_columns(&spec.input, spec.keys.iter().copied().chain(rowtime))?;
        let mut calls = Calls::new(&spec.aggregates, &spec.keys, &spec.input)?;
        if spec.window.shares_no_slice() {
            calls = calls.of_whole();
        }
        let output = match is_whole {
            true => with_results(schema_of(&spec.input, &spec.keys), &spec.aggregates),
            false => output_schema(&spec.input, &spec.keys, &spec.aggregates, spec.zone),
        };
        let shared = WindowContext {
            arrow: output.arrow(),
            output,
            columns: WindowColumns::all(),
            calls: Arc::new(calls),
            exact: spec.aggregates.iter().all(AggregateCall::is_exact),
            invertible: spec.aggregates.iter().all(AggregateCall::is_invertible),
            key_spread: KeySpread::default(),
            spread_by: spread_by(&spec),
            spare: Spare::default(),
            top: None,
            otherwise: None,
            spec,
        };
        Ok(WindowAggregate { shared: Arc::new(shared) })
    }

    /// Aggregates per key over all rows of an input that ends. The result has the keys and the
    /// aggregates; a key without rows is not there, and without keys there is no row where none
    /// came (but see [`WindowAggregate::or_else`]).
    ///
    /// # Errors
    /// If the specification does not fit together.
    pub fn of_whole(
        keys: Vec<usize>,
        aggregates: Vec<AggregateCall>,
        input: TableSchema,
    ) -> Result<Self> {
        let (window, late) = (WindowSpec::Whole, LatePolicy::Drop);
        let spec =
            WindowAggregateSpec { window, rowtime: 0, zone: None, keys, aggregates, late, input };
        WindowAggregate::new(spec)
    }

    /// The same, and if no rows come at all these are given: the result that an aggregate without
    /// keys has anyway.
    ///
    /// # Errors
    /// If windows are open already.
    pub fn or_else(mut self, rows: RecordBatch) -> Result<Self> {
        self.shared_mut()?.otherwise = Some(rows);
        Ok(self)
    }

    /// The same windows over a changelog, whose rows may be retracted.
    ///
    /// # Errors
    /// If an aggregate cannot retract, or windows are open already.
    pub fn with_retractions(mut self) -> Result<Self> {
        let shared = self.shared_mut()?;
        shared.calls = Arc::new(shared.calls.of_changelog());
        shared.calls.accumulators()?;
        shared.exact = false;
        Ok(self)
    }

    /// The same windows, of which each partition gives at least the first rows and may leave out
    /// others. Those that share no slice give all.
    ///
    /// # Errors
    /// If there is no order of such columns.
    pub fn with_top(mut self, top: &WindowTop) -> Result<Self> {
        let shared = self.shared_mut()?;
        shared.top = Some(TopChooser::new(top, &shared.output)?);
        Ok(self)
    }

    /// The same windows, where of `window_start`, `window_end` and `window_time` only those columns
    /// are read for which this is true. The others hold no defined values.
    ///
    /// # Errors
    /// If windows are open already.
    pub fn with_read_columns(mut self, read: [bool; 3]) -> Result<Self> {
        self.shared_mut()?.columns = WindowColumns::some(read, CHUNK_ROWS);
        Ok(self)
    }

    fn shared_mut(&mut self) -> Result<&mut WindowContext> {
        let shared = Arc::get_mut(&mut self.shared);
        shared.ok_or_else(|| Error::internal("windows are open already"))
    }

    /// The columns of the result.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }
}

/// The keys; where there are none, the column of which distinct values are wanted, if it is one.
fn spread_by(spec: &WindowAggregateSpec) -> Vec<usize> {
    if !spec.keys.is_empty() || !spec.window.shares_no_slice() {
        return spec.keys.clone();
    }
    let distinct = spec.aggregates.iter().filter(|call| call.distinct);
    let columns: BTreeSet<usize> = distinct.filter_map(|call| call.argument).collect();
    if columns.len() == 1 { Vec::from_iter(columns) } else { Vec::new() }
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
        let WindowContext { spec, output, .. } = self.shared.as_ref();
        if let Some(name) = spec.window.operator_name() {
            return name.to_string();
        }
        let keys = output.columns[..spec.keys.len()].iter();
        match keys.map(|key| &key.name[..]).collect::<Vec<_>>().join(", ") {
            keys if keys.is_empty() => "aggregate".to_string(),
            keys => format!("group by {keys}"),
        }
    }
    fn class(&self) -> OperatorClass {
        if self.shared.exact { OperatorClass::Commuting } else { OperatorClass::Sequenced }
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        let spec = &self.shared.spec;
        if spec.window == WindowSpec::Whole {
            return WatermarkInterest::EndOnly;
        }
        WatermarkInterest::Grids(vec![closing_watermarks(spec.window, spec.zone)])
    }
    fn emits_only_at_watermarks(&self) -> bool {
        self.shared.spec.late != LatePolicy::Emit
    }
    fn ports(&self) -> usize {
        if self.shared.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let WindowContext { spec, exact, key_spread, spread_by, .. } = self.shared.as_ref();
        match exact {
            true => key_spread.route(bundle, (spread_by, !spec.keys.is_empty()), partitions),
            false => route_by_keys(bundle, &spec.keys, partitions),
        }
    }
    fn watermark_phases(&self) -> usize {
        if self.shared.exact { 2 } else { 1 }
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let shared = Arc::clone(&self.shared);
        shared.key_spread.opened(opening.order);
        if shared.spec.window.shares_no_slice() || shared.calls.retracts() {
            return Ok(Box::new(SharedPartition::new(TumblingWindows::new(shared, opening)?)));
        }
        Ok(Box::new(SharedPartition::new(SlicedWindows::new(shared, opening)?)))
    }
    /// Of a window of all rows nothing leaves before the end of time, so nothing is promised
    /// before.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (self.shared.spec.window != WindowSpec::Whole || input == Watermark::END).then_some(input)
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}
