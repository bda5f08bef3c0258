//! Values of runs: which rows they read is collected run by run, then all are computed at once.
//!
//! Aggregates of conditions are kept from row to row: a run has a *slot*, in which each of them has
//! its state and remembers the rows that it has seen. Where a run continues, only the rows that
//! have come are added; where it does not (a run has been split in two), the state starts from
//! scratch.
//!
//! A value of a run is read in two steps, so that columns are gathered once for all runs: `collect`
//! notes which rows each run reads, `take` gathers them and computes.
//!
//! **Invariant:** slots belong to one run at a time. A run that is split gives its slot to the
//! first run that it becomes; others start without and build their state from the rows.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow_schema::SchemaRef;
use thalweg_core::{ColumnType, Error, Result, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr};

use super::rows::PatternRows;
use super::runs::{Key, Taken};
use super::spec::{End, PatternValue, only_column};
use crate::aggregate::{Accumulator, AggregateCall, RowOrder, UpdateInput};
use crate::rows::chunks::RowRef;
use crate::rows::columns::batch_of;

/// One value, for every run that was collected.
enum ValuePart {
    Row { variable: Option<usize>, end: End, offset: u32, column: usize, rows: Vec<RowRef> },
    Aggregate(Box<Aggregate>),
    Time { column_type: ColumnType, times: Vec<i64> },
}

/// An aggregate and the rows that it reads.
struct Aggregate {
    variable: Option<usize>,
    argument: Option<Argument>,
    states: Box<dyn Accumulator>,
    /// The rows that are added next, and the slot of each.
    rows: Vec<RowRef>,
    ids: Vec<u32>,
    /// The slot of each run that was collected.
    slots: Vec<u32>,
    /// For each slot the numbers of the rows that its state holds.
    held: Vec<Range<u64>>,
    /// Slots that start from scratch.
    stale: Vec<u32>,
    /// How often rows have been added: FIRST_VALUE and LAST_VALUE go by it.
    updates: u64,
}

/// The argument of an aggregate over some of the columns.
struct Argument {
    columns: Vec<usize>,
    schema: SchemaRef,
    expr: Expr,
}

/// Values of the same kind for several runs.
pub(super) struct Values {
    parts: Vec<ValuePart>,
    count: usize,
}

impl Values {
    /// Collects such values over rows with these columns.
    pub fn new(values: &[PatternValue], input: &TableSchema) -> Result<Self> {
        let parts = values.iter().map(|value| part(value, input)).collect::<Result<_>>()?;
        Ok(Values { parts, count: 0 })
    }

    /// True if runs need slots.
    pub fn has_aggregates(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ValuePart::Aggregate(_)))
    }

    /// Takes note of a run, whose aggregates stand in this slot, or of a match that was found at
    /// this time. Slots of one call of [`Values::take`] differ.
    pub fn collect(&mut self, key: &Key, taken: Taken<'_>, slot: Option<u32>, time: i64) {
        for part in &mut self.parts {
            match part {
                ValuePart::Row { variable, end, offset, rows, .. } => {
                    let row = taken.row(*variable, *end, *offset);
                    rows.push(row.map_or(RowRef::NONE, |row| key.row(row)));
                }
                ValuePart::Aggregate(aggregate) => {
                    aggregate.collect(key, taken, slot, self.count as u32);
                }
                ValuePart::Time { times, .. } => times.push(time),
            }
        }
        self.count += 1;
    }

    /// The values of all runs that were collected, a column for each value.
    pub fn take(&mut self, kept: &PatternRows, wall_ms: i64) -> Result<Vec<ArrayRef>> {
        self.count = 0;
        let mut columns = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            columns.push(match part {
                ValuePart::Row { column, rows, .. } => {
                    let values = kept.column(rows, *column)?;
                    rows.clear();
                    values
                }
                ValuePart::Aggregate(aggregate) => aggregate.take(kept, wall_ms)?,
                ValuePart::Time { column_type, times } => {
                    let times = TimestampMillisecondArray::from(std::mem::take(times));
                    of_type(times, column_type)?
                }
            });
        }
        Ok(columns)
    }

    /// Nobody uses these slots any more.
    pub fn forget(&mut self, slots: &[u32]) {
        for part in &mut self.parts {
            if let ValuePart::Aggregate(aggregate) = part {
                aggregate.forget(slots);
            }
        }
    }

    pub fn bytes(&self) -> usize {
        let part = |part: &ValuePart| match part {
            ValuePart::Row { rows, .. } => rows.capacity() * size_of::<RowRef>(),
            ValuePart::Aggregate(aggregate) => {
                aggregate.rows.capacity() * size_of::<RowRef>()
                    + (aggregate.ids.capacity() + aggregate.slots.capacity()) * 4
                    + aggregate.held.capacity() * size_of::<Range<u64>>()
                    + aggregate.states.bytes()
            }
            ValuePart::Time { times, .. } => times.capacity() * 8,
        };
        self.parts.iter().map(part).sum()
    }
}

impl Aggregate {
    /// Without the slot of a run there is one for this time only.
    fn collect(&mut self, key: &Key, taken: Taken<'_>, slot: Option<u32>, spare: u32) {
        let (is_run, slot) = (slot.is_some(), slot.unwrap_or(spare));
        if self.held.len() <= slot as usize {
            self.held.resize(slot as usize + 1, 0..0);
        }
        let rows = taken.rows(self.variable);
        let held = std::mem::replace(&mut self.held[slot as usize], rows.clone());
        let continues = is_run && held.start == rows.start && held.end <= rows.end;
        if !continues && !held.is_empty() {
            self.stale.push(slot);
        }
        let from = if continues { held.end } else { rows.start };
        self.rows.extend((from..rows.end).map(|row| key.row(row)));
        self.ids.resize(self.rows.len(), slot);
        self.slots.push(slot);
    }

    /// The results of the runs that were collected.
    fn take(&mut self, kept: &PatternRows, wall_ms: i64) -> Result<ArrayRef> {
        let argument = match &self.argument {
            None => None,
            Some(argument) => Some(argument.evaluate(kept, &self.rows, wall_ms)?),
        };
        self.states.grow(self.held.len());
        self.states.reset(&self.stale);
        self.updates += 1;
        self.states.update(&UpdateInput {
            ids: &self.ids,
            rows: None,
            argument: argument.as_ref(),
            order: RowOrder { ordinal: self.updates, ..RowOrder::default() },
        })?;
        let results = self.states.evaluate(&self.slots)?;
        self.rows.clear();
        self.ids.clear();
        self.slots.clear();
        self.stale.clear();
        Ok(results)
    }

    fn forget(&mut self, slots: &[u32]) {
        let known = slots.iter().copied().filter(|&slot| (slot as usize) < self.held.len());
        let known: Vec<u32> = known.collect();
        known.iter().for_each(|&slot| self.held[slot as usize] = 0..0);
        self.states.reset(&known);
    }
}

impl Argument {
    fn new(expr: &Expr, input: &TableSchema) -> Self {
        let columns: Vec<usize> = expr.columns().into_iter().collect();
        let kept = columns.iter().map(|&column| input.columns[column].clone()).collect();
        let place = |column: usize| columns.partition_point(|&other| other < column);
        Argument { schema: TableSchema::new(kept).arrow(), expr: expr.remap(&place), columns }
    }

    fn evaluate(&self, kept: &PatternRows, rows: &[RowRef], wall_ms: i64) -> Result<ArrayRef> {
        let columns = self.columns.iter().map(|&column| kept.column(rows, column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        if only_column(&self.expr).is_some() {
            return columns.into_iter().next().ok_or_else(|| Error::internal("a column is gone"));
        }
        let batch = batch_of(&self.schema, columns, rows.len())?;
        self.expr.evaluate(&context(&batch, wall_ms))
    }
}

/// Expressions of a pattern do not read the watermarks before rows.
static NO_WATERMARK: WatermarkBefore = WatermarkBefore::All(Watermark::MIN);

/// What expressions over rows of a pattern know besides them.
pub(super) fn context(batch: &RecordBatch, wall_ms: i64) -> EvalContext<'_> {
    EvalContext { batch, watermark_before: &NO_WATERMARK, wall_ms }
}

fn of_type(times: TimestampMillisecondArray, column_type: &ColumnType) -> Result<ArrayRef> {
    let times: ArrayRef = Arc::new(times);
    match column_type.data_type.arrow() {
        arrow_schema::DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None) => Ok(times),
        other => Ok(arrow_cast::cast(&times, &other)?),
    }
}

fn part(value: &PatternValue, input: &TableSchema) -> Result<ValuePart> {
    Ok(match value {
        PatternValue::Row { variable, end, offset, column, .. } => ValuePart::Row {
            variable: *variable,
            end: *end,
            offset: *offset,
            column: *column,
            rows: Vec::new(),
        },
        PatternValue::Aggregate { variable, function, argument, column_type } => {
            let call = AggregateCall {
                function: function.clone(),
                argument: argument.as_ref().map(|_| 0),
                distinct: false,
                filter: None,
                result: column_type.clone(),
                name: function.name().to_string(),
            };
            let data_type = argument.as_ref().map(|expr| &expr.column_type.data_type);
            ValuePart::Aggregate(Box::new(Aggregate {
                variable: *variable,
                argument: argument.as_ref().map(|expr| Argument::new(expr, input)),
                states: call.accumulator(data_type)?,
                rows: Vec::new(),
                ids: Vec::new(),
                slots: Vec::new(),
                held: Vec::new(),
                stale: Vec::new(),
                updates: 0,
            }))
        }
        PatternValue::Time { column_type } => {
            ValuePart::Time { column_type: column_type.clone(), times: Vec::new() }
        }
    })
}
