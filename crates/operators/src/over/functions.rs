//! All calls of an OVER window: which part computes each, and their results side by side.
//!
//! Results stand in the order of the calls, whichever part computes them. All parts see the same
//! rows in the same order.

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::Result;

use super::frame::FrameAggregates;
use super::neighbor::Lag;
use super::number::{Numbering, Numbers};
use super::spec::{OverFunction, OverSpec, OverTime};
use crate::aggregate::{StateColumns, StateRows};
use crate::rows::event_time::DueRows;
use crate::tables::unique_names;

/// Who computes a call.
enum OverPart {
    /// The aggregate with this number.
    Aggregate(usize),
    Lag(Box<Lag>),
    Numbers(Numbers),
    /// A row behind, for which others wait.
    Lead,
}

/// The calls and their states, by dense key id.
pub(super) struct Functions {
    aggregates: FrameAggregates,
    parts: Vec<OverPart>,
    /// What calls are called in tables of state.
    names: Vec<String>,
}

impl Functions {
    pub fn new(spec: &OverSpec) -> Result<Self> {
        // In processing time each row leaves at once, and has no peers behind it.
        let has_peers = matches!(spec.time, OverTime::EventTime(_));
        let mut aggregates = Vec::new();
        let mut parts = Vec::with_capacity(spec.calls.len());
        let keys = spec.keys.iter().map(|&key| &spec.input.columns[key].name[..]);
        let names = keys.chain(spec.calls.iter().map(|call| &call.name[..]));
        let names = unique_names(names).split_off(spec.keys.len());
        for (call, name) in spec.calls.iter().zip(&names) {
            if let Some(aggregate) = call.aggregate() {
                parts.push(OverPart::Aggregate(aggregates.len()));
                aggregates.push((name.clone(), aggregate));
                continue;
            }
            let numbers = |numbering| OverPart::Numbers(Numbers::new(numbering, has_peers));
            parts.push(match call.function {
                OverFunction::Lag { column, offset, default } => {
                    OverPart::Lag(Box::new(Lag::new(spec, column, offset, default)?))
                }
                OverFunction::Rank => numbers(Numbering::Rank),
                OverFunction::DenseRank => numbers(Numbering::DenseRank),
                OverFunction::Lead { .. } => OverPart::Lead,
                _ => numbers(Numbering::Row),
            });
        }
        let aggregates = FrameAggregates::new(spec, &aggregates, has_peers)?;
        Ok(Functions { aggregates, parts, names })
    }

    /// Makes room for ids below `groups`.
    pub fn grow(&mut self, groups: usize) {
        self.aggregates.grow(groups);
        for part in &mut self.parts {
            match part {
                OverPart::Lag(lag) => lag.grow(groups),
                OverPart::Numbers(numbers) => numbers.grow(groups),
                OverPart::Aggregate(_) | OverPart::Lead => {}
            }
        }
    }

    /// The results of these rows, a column for each call but those of LEAD.
    pub fn run(&mut self, fired: &DueRows) -> Result<Vec<ArrayRef>> {
        let aggregates = self.aggregates.run(fired)?;
        let mut results = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            results.push(match part {
                OverPart::Aggregate(number) => ArrayRef::clone(&aggregates[*number]),
                OverPart::Lag(lag) => lag.run(fired)?,
                OverPart::Numbers(numbers) => numbers.run(fired),
                OverPart::Lead => continue,
            });
        }
        Ok(results)
    }

    /// Forgets these keys.
    pub fn reset(&mut self, ids: &[u32]) -> Result<()> {
        self.aggregates.reset(ids)?;
        for part in &mut self.parts {
            match part {
                OverPart::Lag(lag) => lag.reset(ids)?,
                OverPart::Numbers(numbers) => numbers.reset(ids),
                OverPart::Aggregate(_) | OverPart::Lead => {}
            }
        }
        Ok(())
    }

    /// Captures what is known of these keys.
    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.aggregates.capture(ids, columns)?;
        for (part, name) in self.parts.iter().zip(&self.names) {
            columns.begin(name);
            match part {
                OverPart::Lag(lag) => lag.capture(ids, columns)?,
                OverPart::Numbers(numbers) => numbers.capture(ids, columns),
                OverPart::Aggregate(_) | OverPart::Lead => {}
            }
        }
        Ok(())
    }

    /// Restores what [`Functions::capture`] wrote of these keys, of which nothing is known.
    pub fn restore(&mut self, ids: &[u32], rows: &RecordBatch) -> Result<()> {
        self.aggregates.restore(ids, rows)?;
        for (part, name) in self.parts.iter_mut().zip(&self.names) {
            let rows = StateRows::new(rows, name);
            match part {
                OverPart::Lag(lag) => lag.restore(ids, &rows)?,
                OverPart::Numbers(numbers) => numbers.restore(ids, &rows)?,
                OverPart::Aggregate(_) | OverPart::Lead => {}
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let part = |part: &OverPart| match part {
            OverPart::Lag(lag) => lag.bytes(),
            OverPart::Numbers(numbers) => numbers.bytes(),
            OverPart::Aggregate(_) | OverPart::Lead => 0,
        };
        self.aggregates.bytes() + self.parts.iter().map(part).sum::<usize>()
    }
}
