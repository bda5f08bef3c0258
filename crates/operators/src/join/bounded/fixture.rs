//! For tests: rows of two sides with keys and times as scripts, and their values.
//!
//! The left side has the columns `id`, `ts`, `n`, the right side `ts`, `id`, `n`: keys and times do
//! not stand in the same places.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Operator, Output, Partition, PartitionContext, Piece,
    Progress, RowKind, Stamps, TableSchema, Watermark, WatermarkBefore,
};
use thalweg_expr::{CompareOp, Expr, ExprKind};

use crate::join::sides::{Side, Sides};
use crate::reference::Value;
use crate::test_kit::Event;

/// A row of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) key: Option<i64>,
    pub(crate) time: i64,
    pub(crate) n: i64,
    /// The watermark before it.
    pub(crate) before: i64,
    pub(crate) kind: RowKind,
}

/// A row or a joint watermark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Row(Row),
    Watermark(i64),
}

/// What keys are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Integer,
    Text,
}

impl Keys {
    fn data_type(self) -> DataType {
        match self {
            Keys::Integer => DataType::BigInt,
            Keys::Text => DataType::STRING,
        }
    }
    fn column(self, keys: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        match self {
            Keys::Integer => Arc::new(keys.collect::<Int64Array>()),
            Keys::Text => {
                let texts = keys.map(|key| key.map(text));
                Arc::new(texts.collect::<StringViewArray>())
            }
        }
    }
    /// A key as it is compared.
    pub(crate) fn value(self, key: Option<i64>) -> Value {
        match (self, key) {
            (_, None) => Value::Null,
            (Keys::Integer, Some(key)) => Value::Integer(key),
            (Keys::Text, Some(key)) => Value::String(text(key)),
        }
    }
}

fn text(key: i64) -> String {
    if key % 2 == 0 { format!("{key}") } else { format!("a key that is not inlined, {key}") }
}

pub(crate) fn sides(keys: Keys) -> Sides {
    let id = Column::new("id", keys.data_type().nullable());
    let ts = Column::new("ts", DataType::Timestamp(3).not_null());
    let n = Column::new("n", DataType::BigInt.not_null());
    let left = TableSchema::new(vec![id.clone(), ts.clone(), n.clone()]);
    Sides::new(left, TableSchema::new(vec![ts, id, n]))
}

/// `left.n < right.n`
pub(crate) fn smaller_on_the_left() -> Expr {
    let column = |place| Box::new(Expr::column(place, DataType::BigInt.not_null()));
    let kind = ExprKind::Compare { op: CompareOp::Less, left: column(2), right: column(5) };
    Expr::new(kind, DataType::Boolean.not_null())
}

/// Rows as they come in.
pub(crate) fn tagged(keys: Keys, rows: &[Row]) -> RecordBatch {
    let own = |row: &Row, side| row.side == side;
    let key_of =
        |side| keys.column(rows.iter().map(move |row| if own(row, side) { row.key } else { None }));
    let of = |side, value: &dyn Fn(&Row) -> i64| -> Vec<Option<i64>> {
        rows.iter().map(|row| own(row, side).then(|| value(row))).collect()
    };
    let times =
        |side| -> ArrayRef { Arc::new(TimestampMillisecondArray::from(of(side, &|row| row.time))) };
    let numbers = |side| -> ArrayRef { Arc::new(Int64Array::from(of(side, &|row| row.n))) };
    let tags: Vec<bool> = rows.iter().map(|row| own(row, Side::Right)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(tags)),
        key_of(Side::Left),
        times(Side::Left),
        numbers(Side::Left),
        times(Side::Right),
        key_of(Side::Right),
        numbers(Side::Right),
    ];
    RecordBatch::try_new(sides(keys).combined().arrow(), columns).unwrap()
}

/// The steps as one lane whose bundles mix both sides, or as a lane for each side.
pub(crate) fn script(keys: Keys, steps: &[Step], lanes: u32) -> Vec<Event> {
    let mut script = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let lane = |side| if lanes == 2 && side == Side::Right { 1 } else { 0 };
    let flush = |rows: &mut Vec<Row>, script: &mut Vec<Event>| {
        for part in rows.chunk_by(|a, b| lane(a.side) == lane(b.side)) {
            let befores: Vec<i64> = part.iter().map(|row| row.before).collect();
            let (lane, batch) = (lane(part[0].side), tagged(keys, part));
            let watermark_before = WatermarkBefore::Rows(befores.into());
            script.push(match part.iter().all(|row| row.kind == RowKind::Insert) {
                true => Event::Rows { lane, batch, watermark_before },
                false => {
                    let kinds = part.iter().map(|row| row.kind).collect();
                    Event::Changes { lane, batch, kinds, watermark_before }
                }
            });
        }
        rows.clear();
    };
    for step in steps {
        match step {
            Step::Row(row) => rows.push(*row),
            Step::Watermark(watermark) => {
                flush(&mut rows, &mut script);
                script.push(Event::Watermark(Watermark(*watermark)));
            }
        }
    }
    flush(&mut rows, &mut script);
    script
}

/// How random rows come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) keys: u64,
    /// How far rows are out of order.
    pub(crate) disorder_ms: u64,
    /// How far the watermark stays behind the newest row of a side.
    pub(crate) delay_ms: i64,
}

/// Random rows of both sides; every side has a watermark of its own, and the lower one is passed on
/// now and then. Some keys are NULL.
pub(crate) fn random_steps(shape: Shape, random: &mut SplitMix64) -> Vec<Step> {
    let mut newest = [0i64, 0];
    let mut running = [i64::MIN, i64::MIN];
    let (mut last, mut steps) = (i64::MIN, Vec::new());
    for n in 0..shape.rows {
        let side = random.below(2) as usize;
        newest[side] += random.below(5) as i64;
        let time = newest[side] - random.below(shape.disorder_ms + 1) as i64;
        let key = (random.below(12) > 0).then(|| random.below(shape.keys) as i64);
        steps.push(Step::Row(Row {
            side: [Side::Left, Side::Right][side],
            key,
            time,
            n: random.below(100) as i64 + 1000 * n as i64 * random.below(2) as i64,
            before: running[side],
            kind: RowKind::Insert,
        }));
        running[side] = running[side].max(time - shape.delay_ms);
        let joint = running[0].min(running[1]);
        if joint > last && random.below(4) == 0 {
            steps.push(Step::Watermark(joint));
            last = joint;
        }
    }
    steps.push(Step::Watermark(i64::MAX));
    steps
}

/// The values of a row as they leave; NULL where it is none.
pub(crate) fn values(keys: Keys, side: Side, row: Option<&Row>) -> Vec<Value> {
    let Some(row) = row else { return vec![Value::Null; 3] };
    let (key, time) = (keys.value(row.key), Value::Integer(row.time));
    match side {
        Side::Left => vec![key, time, Value::Integer(row.n)],
        Side::Right => vec![time, key, Value::Integer(row.n)],
    }
}

/// A pair, or a row without a partner, as it leaves.
pub(crate) fn pair(keys: Keys, left: Option<&Row>, right: Option<&Row>) -> Vec<Value> {
    let mut values_of_both = values(keys, Side::Left, left);
    values_of_both.extend(values(keys, Side::Right, right));
    values_of_both
}

/// One partition of a join with integer keys, fed by hand.
pub(crate) struct Feed {
    pub(crate) partition: Box<dyn Partition>,
    exchange: Exchange,
}

impl Feed {
    pub(crate) fn new(operator: &dyn Operator) -> Self {
        let partition = operator.open(PartitionContext::only()).unwrap();
        Feed { partition, exchange: Exchange::new(1) }
    }

    /// Rows come, as of one of this many lanes. No watermark is before them.
    pub(crate) fn rows(&mut self, rows: impl Iterator<Item = Row>, lanes: usize) {
        self.rows_behind(i64::MIN, rows, lanes);
    }

    /// Rows come behind a watermark, as of one of this many lanes.
    pub(crate) fn rows_behind(
        &mut self,
        watermark: i64,
        rows: impl Iterator<Item = Row>,
        lanes: usize,
    ) {
        let rows: Vec<Row> = rows.collect();
        let watermark_before = WatermarkBefore::All(Watermark(watermark));
        let stamps = Stamps { watermark_before, ..Stamps::first() };
        let mut bundle = Bundle::new(tagged(Keys::Integer, &rows), stamps);
        if rows.iter().any(|row| row.kind != RowKind::Insert) {
            bundle.kinds = Some(rows.iter().map(|row| row.kind).collect());
        }
        let piece = Piece::whole(&bundle, lanes);
        self.partition.rows(piece, &mut output()).unwrap();
    }

    /// A watermark comes.
    pub(crate) fn pass(&mut self, time: i64) {
        let call = WatermarkCall { watermark: Watermark(time), phase: 0, exchange: &self.exchange };
        assert_eq!(self.partition.watermark(&call, &mut output()).unwrap(), Progress::Done);
    }
}

fn output() -> Output {
    Output::new(Arc::new(ManualClock::default()), u64::MAX)
}
