//! Viper's two operators on the engine: k injectors, n instances.
//!
//! The injectors are sources of their own, each sorted by time. Every instance is to take its rows
//! by (time, injector, position), whatever the timing. Two places can see to that:
//!
//! - [`Merge::Channel`]: the rows meet in the channel, in contract `event_time`;
//! - [`Merge::Operators`]: each instance has a merge operator in front of it, as in the systems
//!   that Viper was measured against (its "operator layer"). With one injector there is nothing to
//!   merge, and none. It brings the order about by itself in any contract that keeps the order of a
//!   source.
//!
//! Both lead to the same operator with the same rows, and each row goes to the instance of its car.

use std::collections::{HashMap, VecDeque};

use thalweg::pipeline::Pipeline;
use thalweg::rows::Rows;
use thalweg::rows::vertex::{Context, Edge, Inbox, Processor};
use thalweg::{Error, Result};

use super::records::{POSITION_REPORT, Record};

/// Where injectors' rows are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// By the engine, between the sources and the operator.
    Channel,
    /// By an operator in front of each instance.
    Operators,
}

/// Which operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// `pos_rep`: forwards position reports.
    PositionReports,
    /// `new_seg`: forwards a car's first position report and each one in another segment than the
    /// one before. Other records are dropped.
    NewSegments,
}

/// What the operator forwards.
///
/// # Errors
/// None for injectors of one pipeline.
pub fn forwarded(
    pipeline: &Pipeline,
    injectors: Vec<Rows<Record>>,
    merge: Merge,
    query: Query,
    instances: usize,
) -> Result<Rows<Record>> {
    let of_car = move |record: &Record| virtual_partition(record.vehicle, instances);
    let (rows, edge) = match merge {
        Merge::Operators if injectors.len() > 1 => {
            let count = injectors.len();
            let merge = pipeline.vertex("merge", move |_| MergeOperator::new(count));
            let merge = injectors
                .into_iter()
                .fold(merge, |merge, rows| merge.input(rows, Edge::partitioned_by(of_car)));
            let merge = merge.partitions(instances).watermark_grid_ms(None).outputs(1)?;
            (merge.output(0)?, Edge::isolated())
        }
        _ => (united(injectors)?, Edge::partitioned_by(of_car)),
    };
    let outputs = match query {
        Query::PositionReports => {
            let vertex = pipeline.vertex("pos_rep", |_| PositionReports).input(rows, edge);
            vertex.partitions(instances).watermark_grid_ms(None).outputs(1)?
        }
        Query::NewSegments => {
            let vertex = pipeline.vertex("new_seg", |_| NewSegments::default()).input(rows, edge);
            vertex.partitions(instances).watermark_grid_ms(None).outputs(1)?
        }
    };
    outputs.output(0)
}

fn united(mut injectors: Vec<Rows<Record>>) -> Result<Rows<Record>> {
    let first = injectors.remove(0);
    if injectors.is_empty() { Ok(first) } else { first.union(injectors) }
}

/// A virtual partition of the instance that has the car: cars are dealt out by a multiplicative
/// hash (Knuth, The Art of Computer Programming, vol. 3, §6.4).
pub fn virtual_partition(vehicle: i32, instances: usize) -> u8 {
    let hash = (vehicle as u32).wrapping_mul(0x9e37_79b1) >> 16;
    let instance = hash as usize % instances;
    // The middle of the instance's range of the 256.
    ((instance * 256 + 128) / instances) as u8
}

struct PositionReports;

impl Processor for PositionReports {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, ()>,
    ) -> Result<()> {
        while let Some(record) = inbox.peek::<Record>()? {
            if record.kind == POSITION_REPORT && !context.offer(0, &record)? {
                break;
            }
            inbox.remove();
        }
        Ok(())
    }
}

/// Where each car was last: expressway, direction, segment.
#[derive(Default)]
struct NewSegments {
    last: HashMap<i32, (i32, i32, i32)>,
}

impl Processor for NewSegments {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, ()>,
    ) -> Result<()> {
        while let Some(record) = inbox.peek::<Record>()? {
            let here = (record.expressway, record.direction, record.segment);
            if record.kind == POSITION_REPORT && self.last.get(&record.vehicle) != Some(&here) {
                if !context.offer(0, &record)? {
                    break;
                }
                self.last.insert(record.vehicle, here);
            }
            inbox.remove();
        }
        Ok(())
    }
}

/// The merge operator in front of an instance: an input for each injector.
struct MergeOperator {
    /// Rows that wait for those of other injectors, by injector.
    waiting: Vec<VecDeque<Record>>,
    has_ended: Vec<bool>,
}

impl MergeOperator {
    fn new(injectors: usize) -> Self {
        MergeOperator {
            waiting: vec![VecDeque::new(); injectors],
            has_ended: vec![false; injectors],
        }
    }

    /// The injector whose row is next, once every injector has shown its next row or its end.
    fn next(&self) -> Option<usize> {
        let mut least = None;
        for (injector, rows) in self.waiting.iter().enumerate() {
            match rows.front() {
                Some(row) if least.is_none_or(|(time_s, _)| row.time_s < time_s) => {
                    least = Some((row.time_s, injector));
                }
                None if !self.has_ended[injector] => return None,
                _ => {}
            }
        }
        least.map(|(_, injector)| injector)
    }

    /// Offers what is ready. False if the outbox is full.
    fn release(&mut self, context: &mut Context<'_, ()>) -> Result<bool> {
        while let Some(injector) = self.next() {
            let rows = &mut self.waiting[injector];
            let Some(row) = rows.front() else { break };
            if !context.offer(0, row)? {
                return Ok(false);
            }
            rows.pop_front();
        }
        Ok(true)
    }
}

impl Processor for MergeOperator {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, ()>,
    ) -> Result<()> {
        // What is refused here is offered in the next call, or at the end.
        while self.release(context)?
            && let Some(record) = inbox.take::<Record>()?
        {
            if self.waiting[input].back().is_some_and(|last| last.time_s > record.time_s) {
                return Err(Error::internal(format!("injector {input} is not sorted")));
            }
            self.waiting[input].push_back(record);
        }
        Ok(())
    }

    fn complete_input(&mut self, input: usize, context: &mut Context<'_, ()>) -> Result<bool> {
        self.has_ended[input] = true;
        self.release(context)
    }

    fn complete(&mut self, context: &mut Context<'_, ()>) -> Result<bool> {
        self.release(context)
    }
}
