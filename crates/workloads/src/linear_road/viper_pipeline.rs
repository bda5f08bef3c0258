//! Viper's two operators on the engine: k injectors, n instances, in contract `event_time`.
//!
//! The injectors are sources of their own, each sorted by time; their rows meet by (time, injector,
//! position) in the channel before the operator. A merge operator of its own in front of it, as in
//! the system that Viper was measured against, is in the benchmarks.

use thalweg::Result;
use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Rows};

use super::records::{POSITION_REPORT, Record};

/// The injectors' rows as one stream.
///
/// # Errors
/// None for rows of one type.
pub fn injected(pipeline: &Pipeline, injectors: Vec<PackedRows<Record>>) -> Result<Rows<Record>> {
    let mut streams =
        injectors.into_iter().map(|rows| pipeline.read_packed_rows("injector", rows, 0));
    let first = streams.next().expect("there is an injector");
    let others: Vec<_> = streams.collect();
    if others.is_empty() { Ok(first) } else { first.union(others) }
}

/// `pos_rep`: forwards position reports.
pub fn position_reports(records: Rows<Record>) -> Rows<Record> {
    records.filter("pos_rep", |record| record.kind == POSITION_REPORT)
}

/// `new_seg` over position reports, in this many instances: forwards a car's first report and each
/// one in another segment than the one before.
pub fn new_segments(reports: Rows<Record>, instances: usize) -> Rows<Record> {
    reports.key_by(instances, |report| report.vehicle).stateful(
        "new_seg",
        |_, last: &mut Option<(i32, i32, i32)>, report: Record, out| {
            let here = (report.expressway, report.direction, report.segment);
            if last.replace(here) != Some(here) {
                out.emit(report);
            }
        },
    )
}
