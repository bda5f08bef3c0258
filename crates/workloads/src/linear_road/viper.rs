//! Viper's two operators over Linear Road, one row at a time.
//!
//! `pos_rep` is stateless, `new_seg` keeps the last segment of each car. Neither knows of re-entry,
//! lanes or accidents.

use std::collections::HashMap;

use super::records::{POSITION_REPORT, Record};

/// `pos_rep`: forwards position reports and drops queries.
pub fn position_reports(records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    records.into_iter().filter(|record| record.kind == POSITION_REPORT).collect()
}

/// `new_seg` over position reports: forwards a car's first report and each one whose (expressway,
/// direction, segment) differs from that of the car's report before.
pub fn new_segments(reports: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mut last = HashMap::new();
    let mut forwarded = Vec::new();
    for report in reports {
        let here = (report.expressway, report.direction, report.segment);
        if last.insert(report.vehicle, here) != Some(here) {
            forwarded.push(report);
        }
    }
    forwarded
}

#[cfg(test)]
mod tests {
    use super::super::traffic::{Traffic, TrafficSettings};
    use super::*;

    fn report(time_s: i64, vehicle: i32, direction: i32, segment: i32) -> Record {
        Record { expressway: 0, direction, segment, ..Record::bare(0, time_s, vehicle) }
    }

    #[test]
    fn a_segment_is_new_when_the_car_was_elsewhere_before() {
        let reports = [
            report(0, 1, 0, 5),
            report(0, 2, 0, 5),
            report(30, 1, 0, 5),
            report(30, 2, 1, 5),
            report(60, 1, 0, 6),
            report(90, 1, 0, 5),
        ];
        let expected: Vec<Record> = [0, 1, 3, 4, 5].map(|index| reports[index]).to_vec();
        assert_eq!(new_segments(reports), expected);
    }

    #[test]
    fn selectivities_are_those_of_the_paper() {
        let mut records = 0;
        let reports =
            position_reports(Traffic::new(TrafficSettings::full_hour()).inspect(|_| records += 1));
        let entered = new_segments(reports.iter().copied());
        let position_share = reports.len() as f64 / f64::from(records);
        let segment_share = entered.len() as f64 / reports.len() as f64;
        println!("{} reports, pos_rep {position_share}, new_seg {segment_share}", reports.len());
        assert!((position_share - 0.99).abs() < 0.003, "pos_rep {position_share}");
        assert!((segment_share - 0.34).abs() < 0.005, "new_seg {segment_share}");
    }
}
