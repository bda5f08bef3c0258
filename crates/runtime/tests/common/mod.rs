//! Small sources, operators and sinks to drive the runtime with.
#![allow(dead_code, reason = "each test file uses some of these")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, Schema};
use thalweg_core::connector::{Assign, Assigned, ExactStamps, Waker};
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::shim::mix64;
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::*;
use thalweg_runtime::SchedulerPolicy;

/// Every scheduling policy: results are the same under each.
pub const POLICIES: [SchedulerPolicy; 6] = [
    SchedulerPolicy::Nem,
    SchedulerPolicy::RoundRobin,
    SchedulerPolicy::LastInPipeline,
    SchedulerPolicy::CurrentThroughput,
    SchedulerPolicy::EstimatedTime,
    SchedulerPolicy::QueueSizeThrottling,
];

/// Each policy in turn, odd and even seeds alike.
pub fn policy_of(seed: u64) -> SchedulerPolicy {
    POLICIES[(seed / 2) as usize % POLICIES.len()]
}

/// A batch of (time, key) rows.
pub fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1)));
    let fields = ["time", "key"].map(|n| Field::new(n, DataType::Int64, true));
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), vec![times, keys]).expect("fits")
}

pub fn column(batch: &RecordBatch, n: usize) -> Vec<i64> {
    batch.column(n).as_primitive::<Int64Type>().values().to_vec()
}

/// Serves rows in batches of the size asked for.
pub struct Rows {
    pub rows: VecDeque<(i64, i64)>,
    pub bounded: bool,
    pub given: usize,
}

impl Rows {
    pub fn boxed(rows: Vec<(i64, i64)>) -> Box<dyn Source> {
        Box::new(Rows { rows: rows.into(), bounded: true, given: 0 })
    }
}

impl Source for Rows {
    fn name(&self) -> String {
        "rows".into()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.rows.is_empty() {
            return Ok(if self.bounded { SourcePoll::End } else { SourcePoll::Pending });
        }
        let take = rows_max.min(self.rows.len());
        let rows: Vec<_> = self.rows.drain(..take).collect();
        self.given += take;
        Ok(SourcePoll::Batch(SourceBatch::new(batch(&rows))))
    }
    fn is_bounded(&self) -> bool {
        self.bounded
    }
    fn position(&self) -> Option<String> {
        Some(self.given.to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.given = position.parse().map_err(|_| Error::data("a position is a number of rows"))?;
        self.rows.drain(..self.given);
        Ok(())
    }
}

/// The watermark is the newest time minus `delay`; epochs end when it crosses a multiple of `step`.
pub struct Delay {
    pub delay: i64,
    pub step: i64,
}

impl Delay {
    pub fn boxed(delay: i64, step: i64) -> Option<Box<dyn Assign>> {
        Some(Box::new(Delay { delay, step }))
    }
}

impl Assign for Delay {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, _: i64) -> Result<Assigned> {
        let mut running = before.0;
        let mut stamps = Vec::new();
        for time in column(&batch.batch, 0) {
            stamps.push(running);
            running = running.max(time - self.delay);
        }
        Ok(Assigned {
            batch: batch.batch,
            watermark_before: WatermarkBefore::Rows(stamps.into()),
            watermark_after: Watermark(running),
            time_extremes: None,
            quarantined: 0,
        })
    }
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        let grid = Grid { period_ms: self.step, offset_ms: 0 };
        to > from && (from == Watermark::MIN || grid.crossed(from.0 + 1, to.0 + 1))
    }
    fn highest(&self, batch: &RecordBatch) -> Option<Watermark> {
        let highest = column(batch, 0).into_iter().map(|time| time - self.delay).max();
        Some(Watermark(highest.unwrap_or(i64::MIN)))
    }
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        Ok(Some(column(batch, 0).into()))
    }
    fn stamp_exactly(&mut self, _: ExactStamps) {}
}

/// One of 256 virtual partitions: a run-time partition is a range of them.
pub fn virtual_partition(key: i64) -> usize {
    (mix64(key as u64) >> 56) as usize
}

fn partition_of(key: i64, partitions: usize) -> usize {
    virtual_partition(key) * partitions / 256
}

/// Adds 0 to every row, slowly if asked to; drops rows with a negative key.
pub struct Keep;

impl Transform for Keep {
    fn name(&self) -> String {
        "keep".into()
    }
    fn apply(&self, mut bundle: Bundle) -> Result<Bundle> {
        let keys = column(&bundle.batch, 1);
        let kept: Vec<u32> = (0..keys.len() as u32).filter(|&i| keys[i as usize] >= 0).collect();
        let times = column(&bundle.batch, 0);
        let rows: Vec<_> = kept.iter().map(|&i| (times[i as usize], keys[i as usize])).collect();
        bundle.batch = batch(&rows);
        bundle.stamps.watermark_before = bundle.stamps.watermark_before.take(&kept);
        let ordinals = bundle.stamps.row_places.take();
        bundle.stamps.row_places =
            ordinals.map(|rows| kept.iter().map(|&row| rows[row as usize]).collect());
        Ok(bundle)
    }
}

/// Results that a partition of [`Count`] makes in one call in ordered contracts.
const RESULTS_OF_CALL: usize = 3;

/// Counts rows per tumbling window and key: (window end, key * 1_000_000 + count) rows come out.
pub struct Count {
    pub size: i64,
    pub class: OperatorClass,
    pub cancel_between: bool,
}

struct CountPartition {
    place: usize,
    size: i64,
    phases: usize,
    counts: BTreeMap<(i64, i64), i64>,
    merged: BTreeMap<(i64, i64), i64>,
    /// Results of the watermark that is under way.
    made: VecDeque<(i64, i64)>,
    results_of_call: usize,
    partitions: usize,
}

impl Operator for Count {
    fn name(&self) -> String {
        "count".into()
    }
    fn class(&self) -> OperatorClass {
        self.class
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(vec![Grid { period_ms: self.size, offset_ms: 0 }])
    }
    /// Late rows apart, for which no test waits.
    fn emits_only_at_watermarks(&self) -> bool {
        true
    }
    fn ports(&self) -> usize {
        2
    }
    fn watermark_phases(&self) -> usize {
        if self.class == OperatorClass::Commuting { 2 } else { 1 }
    }
    fn judges_lateness(&self) -> bool {
        true
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        if self.class == OperatorClass::Commuting && bundle.num_rows().is_multiple_of(2) {
            return Ok(Route::Any);
        }
        let mut parts = vec![Vec::new(); partitions];
        for (row, key) in column(&bundle.batch, 1).into_iter().enumerate() {
            parts[partition_of(key, partitions)].push(row as u32);
        }
        if self.class == OperatorClass::Commuting && bundle.num_rows().is_multiple_of(3) {
            let local = std::mem::take(&mut parts[0]);
            return Ok(Route::Partly { scattered: parts, local });
        }
        Ok(Route::Scatter(parts))
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let PartitionContext { partition: place, partitions, order, .. } = opening;
        Ok(Box::new(CountPartition {
            place,
            partitions,
            size: self.size,
            phases: self.watermark_phases(),
            counts: BTreeMap::new(),
            merged: BTreeMap::new(),
            made: VecDeque::new(),
            results_of_call: if order.is_ordered() { RESULTS_OF_CALL } else { usize::MAX },
        }))
    }
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        let odd = Grid { period_ms: self.size, offset_ms: 0 }.index(input.0) % 2 != 0;
        (!(self.cancel_between && odd)).then_some(input)
    }
}

impl Partition for CountPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let (times, keys) = (column(&piece.bundle.batch, 0), column(&piece.bundle.batch, 1));
        let all: Vec<u32> = (0..times.len() as u32).collect();
        let (mut late, mut causes) = (Vec::new(), Vec::new());
        for &row in piece.rows.unwrap_or(&all) {
            let row = row as usize;
            let end = (times[row].div_euclid(self.size) + 1) * self.size;
            if piece.bundle.stamps.watermark_before.at(row).closes(end) {
                late.push((times[row], keys[row]));
                causes.push(row as u32);
                continue;
            }
            output.accepted += 1;
            *self.counts.entry((end, keys[row])).or_default() += 1;
        }
        output.late += late.len() as u64;
        output.emit_late(batch(&late), causes);
        Ok(())
    }
    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let closed = |counts: &mut BTreeMap<(i64, i64), i64>| {
            let keys: Vec<_> =
                counts.keys().copied().filter(|(end, _)| call.watermark.closes(*end)).collect();
            keys.into_iter().map(|k| (k, counts.remove(&k).expect("listed"))).collect::<Vec<_>>()
        };
        if self.phases == 2 && call.phase == 0 {
            for (key, count) in closed(&mut self.counts) {
                let owner = partition_of(key.1, self.partitions);
                call.exchange.put(owner, Box::new((key, count)));
            }
            return Ok(Progress::Done);
        }
        if self.phases == 2 {
            for parcel in call.exchange.take(self.place) {
                let (key, count) = *parcel.downcast::<((i64, i64), i64)>().expect("our parcel");
                *self.merged.entry(key).or_default() += count;
            }
        }
        let from = if self.phases == 2 { &mut self.merged } else { &mut self.counts };
        let mut closed = closed(from);
        closed.sort_by_key(|&((end, key), _)| (end, virtual_partition(key), key));
        self.made.extend(closed.into_iter().map(|((end, key), n)| (end, key * 1_000_000 + n)));
        let count = self.made.len().min(self.results_of_call);
        let rows: Vec<_> = self.made.drain(..count).collect();
        let ends = rows.iter().map(|&(end, _)| end).collect();
        output.emit_at(batch(&rows), Place::WindowEnds(ends));
        Ok(if self.made.is_empty() { Progress::Done } else { Progress::More })
    }
    fn state_bytes(&self) -> usize {
        (self.counts.len() + self.merged.len()) * 64
    }
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let mut columns: [Vec<i64>; 3] = Default::default();
        let mut owners = Vec::new();
        for (&(end, key), &count) in self.counts.iter().chain(&self.merged) {
            owners.push(virtual_partition(key) as u8);
            columns.iter_mut().zip([end, key, count]).for_each(|(column, n)| column.push(n));
        }
        let owners: ArrayRef = Arc::new(arrow_array::UInt8Array::from(owners));
        let numbers = columns.map(|column| Arc::new(Int64Array::from(column)) as ArrayRef);
        let columns = std::iter::once(owners).chain(numbers).collect();
        let fields = ["end", "key", "count"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = snapshot::state_schema(fields);
        let mut captured = Captured::default();
        captured.add("counts", Arc::clone(&schema), vec![RecordBatch::try_new(schema, columns)?]);
        Ok(captured)
    }
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table("counts") {
            let (ends, keys, counts) = (column(batch, 1), column(batch, 2), column(batch, 3));
            for ((end, key), count) in ends.into_iter().zip(keys).zip(counts) {
                *self.counts.entry((end, key)).or_default() += count;
            }
        }
        Ok(())
    }
}

/// Collects rows, slowly if asked to, and remembers how it ended.
#[derive(Clone, Default)]
pub struct Collect {
    pub rows: Arc<Mutex<Vec<(i64, i64)>>>,
    pub ended: Arc<Mutex<&'static str>>,
    pub pause: Duration,
    pub fail_at: Option<usize>,
}

impl Collect {
    pub fn rows(&self) -> Vec<(i64, i64)> {
        self.rows.lock().expect("no panic").clone()
    }
    pub fn sorted(&self) -> Vec<(i64, i64)> {
        let mut rows = self.rows();
        rows.sort_unstable();
        rows
    }
}

impl Sink for Collect {
    fn name(&self) -> String {
        "collect".into()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        std::thread::sleep(self.pause);
        let mut rows = self.rows.lock().expect("no panic");
        rows.extend(column(batch, 0).into_iter().zip(column(batch, 1)));
        match self.fail_at {
            Some(at) if rows.len() >= at => Err(Error::io("the disk is full")),
            _ => Ok(()),
        }
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        *self.ended.lock().expect("no panic") = "finished";
        Ok(())
    }
    fn abort(&mut self) {
        *self.ended.lock().expect("no panic") = "aborted";
    }
}

/// What sinks with transactions have brought to the outside.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    pub prepared: BTreeMap<u64, Vec<(i64, i64)>>,
    pub visible: Vec<(i64, i64)>,
    /// The next call of this kind fails, before it does anything.
    pub fails_at: Option<Call>,
    next: u64,
}

/// A call of a sink with transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Prepare,
    Commit,
}

impl Outside {
    fn fail_if_due(&mut self, call: Call) -> Result<()> {
        match self.fails_at == Some(call) {
            true => Err(Error::io("the sink failed: the test wants it")),
            false => Ok(()),
        }
    }
}

/// Rows become visible when their transaction is committed.
#[derive(Clone, Default)]
pub struct Durable {
    pub outside: Arc<Mutex<Outside>>,
    pending: Vec<(i64, i64)>,
}

impl Durable {
    pub fn visible(&self) -> Vec<(i64, i64)> {
        self.outside.lock().expect("no panic").visible.clone()
    }
    /// What the outside is now, as a run finds it that resumes from here.
    pub fn copied(&self) -> Self {
        let outside = self.outside.lock().expect("no panic").clone();
        Durable { outside: Arc::new(Mutex::new(outside)), pending: Vec::new() }
    }
    /// The same outside, as another run of the job finds it.
    pub fn again(&self) -> Self {
        Durable { outside: Arc::clone(&self.outside), pending: Vec::new() }
    }
}

impl Sink for Durable {
    fn name(&self) -> String {
        "durable".into()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        self.pending.extend(column(batch, 0).into_iter().zip(column(batch, 1)));
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        assert!(self.pending.is_empty(), "the last transaction comes before the end");
        Ok(())
    }
    fn abort(&mut self) {}
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        self.outside.lock().expect("no panic").fails_at = None;
        handle.map_or(Ok(()), |handle| self.commit(handle))?;
        self.outside.lock().expect("no panic").prepared.clear();
        Ok(())
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        let mut outside = self.outside.lock().expect("no panic");
        outside.fail_if_due(Call::Prepare)?;
        let number = outside.next;
        outside.next += 1;
        // What was prepared for a snapshot that was not kept goes with the next one.
        let mut rows: Vec<_> =
            std::mem::take(&mut outside.prepared).into_values().flatten().collect();
        rows.append(&mut self.pending);
        outside.prepared.insert(number, rows);
        Ok(Some(number.to_string()))
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        let number: u64 = handle.parse().map_err(|_| Error::data("a handle is a number"))?;
        let mut outside = self.outside.lock().expect("no panic");
        outside.fail_if_due(Call::Commit)?;
        let rows = outside.prepared.remove(&number).unwrap_or_default();
        outside.visible.extend(rows);
        Ok(())
    }
}

/// A source and what stamps its rows.
pub type StampedSource = (Box<dyn Source>, Option<Box<dyn Assign>>);

/// source(s) → keep → count → sink, late rows to a sink of their own.
pub fn counting(inputs: Vec<StampedSource>, count: Count) -> (Graph, Collect, Collect) {
    counting_into(inputs, count, Collect::default())
}

/// The same, with this sink for the results.
pub fn counting_into(
    inputs: Vec<StampedSource>,
    count: Count,
    results: Collect,
) -> (Graph, Collect, Collect) {
    let late = Collect::default();
    let mut graph = Graph::default();
    let mut kept = Vec::new();
    for (n, (source, assigner)) in inputs.into_iter().enumerate() {
        let kind = StageKind::Source { source, assigner };
        let source = graph.add(format!("source-{n}"), "source", kind, vec![]);
        let keep = StageKind::Transform(Arc::new(Keep));
        let input = Input { from: source, port: 0 };
        kept.push(graph.add(format!("keep-{n}"), "keep", keep, vec![input]));
    }
    let inputs = kept.into_iter().map(|from: StageId| Input { from, port: 0 }).collect();
    let count = graph.add("count", "count", StageKind::Operator(Arc::new(count)), inputs);
    for (port, sink) in [(0, &results), (1, &late)] {
        let kind = StageKind::Sink(Box::new(sink.clone()));
        graph.add(format!("sink-{port}"), "sink", kind, vec![Input { from: count, port }]);
    }
    (graph, results, late)
}

/// The same, one row at a time.
pub fn reference(rows: &[(i64, i64)], delay: i64, size: i64) -> (Vec<(i64, i64)>, Vec<(i64, i64)>) {
    let (mut counts, mut late, mut running) = (BTreeMap::new(), Vec::new(), i64::MIN);
    for &(time, key) in rows {
        let end = (time.div_euclid(size) + 1) * size;
        if key >= 0 {
            if end - 1 <= running {
                late.push((time, key));
            } else {
                *counts.entry((end, key)).or_insert(0) += 1;
            }
        }
        running = running.max(time - delay);
    }
    let mut results: Vec<_> =
        counts.into_iter().map(|((end, key), n)| (end, key * 1_000_000 + n)).collect();
    results.sort_unstable();
    (results, late)
}

/// Times that wander, with stragglers.
pub fn disorder(count: usize, seed: u64) -> Vec<(i64, i64)> {
    let mut random = shim::SplitMix64::new(seed);
    (0..count as i64)
        .map(|n| {
            let back = if random.below(10) == 0 { random.below(80) } else { random.below(8) };
            (n / 3 - back as i64, random.below(7) as i64 - 1)
        })
        .collect()
}
