//! Linear Road and Viper's operators on the engine against their serial oracles: the very sequence,
//! for sampled combinations of workers, partitions, bundle sizes, policies and reorder schemes.

mod common;

use common::{Combination, combinations, scale};
use thalweg::OrderContract::{Arrival, Epoch, EventTime};
use thalweg::pipeline::Pipeline;
use thalweg::rows::PackedRows;
use thalweg_workloads::linear_road::viper_pipeline::Query::{NewSegments, PositionReports};
use thalweg_workloads::linear_road::viper_pipeline::{self, Merge, virtual_partition};
use thalweg_workloads::linear_road::{
    Answer, Record, Traffic, TrafficSettings, new_segments, pipeline, position_reports,
    validate_serially,
};

fn packed(records: &[Record]) -> PackedRows<Record> {
    let rows = records.iter().copied();
    PackedRows::timed(rows, |record: &Record| record.time_s * 1000).expect("rows are written")
}

fn check_answers(records: &[Record], combination: &Combination) -> Vec<Answer> {
    let expected = validate_serially(records.iter().copied());
    let job = Pipeline::new();
    let source = job.read_packed_rows("records", packed(records), 0);
    let answers = pipeline::answers(source, combination.partitions).collect("answers");
    job.run(combination.options(Arrival)).expect("the job runs");
    assert!(answers.rows() == expected, "seed {}: {combination:?}", combination.seed);
    expected
}

#[test]
fn a_few_minutes_have_the_validators_answers_in_every_combination() {
    let settings = TrafficSettings {
        seconds: 400 * scale() as i64 / 2,
        rate: 3.0,
        expressways: 2,
        ..TrafficSettings::ci()
    };
    let records: Vec<Record> = Traffic::new(settings).collect();
    for combination in combinations() {
        check_answers(&records, &combination);
    }
}

#[test]
fn busy_traffic_with_accidents_has_the_validators_answers() {
    let records: Vec<Record> = Traffic::new(TrafficSettings::ci()).collect();
    // Large bundles: without optimization small ones take long.
    let combination = combinations().find(|combination| combination.bundle_rows >= 1000);
    let answers = check_answers(&records, &combination.expect("some have large bundles"));
    let charged = |answer: &&Answer| matches!(answer, Answer::Toll { toll, .. } if *toll > 0);
    let alerted = |answer: &&Answer| matches!(answer, Answer::Accident { .. });
    let balanced =
        |answer: &&Answer| matches!(answer, Answer::Balance { balance, .. } if *balance > 0);
    assert!(answers.iter().filter(charged).count() > 4000);
    assert!(answers.iter().filter(alerted).count() > 500);
    assert!(answers.iter().filter(balanced).count() > 50);
}

/// The rows of an injector: every k-th record.
fn injector(records: &[Record], number: usize, injectors: usize) -> Vec<Record> {
    records.iter().copied().skip(number).step_by(injectors).collect()
}

#[test]
fn injectors_and_instances_do_not_show() {
    let settings =
        TrafficSettings { seconds: 200 * scale() as i64, rate: 2.0, ..TrafficSettings::ci() };
    let records: Vec<Record> = Traffic::new(settings).collect();
    for (injectors, instances) in [(1, 1), (1, 4), (2, 1), (2, 2), (4, 1), (4, 4)] {
        let inputs: Vec<Vec<Record>> =
            (0..injectors).map(|number| injector(&records, number, injectors)).collect();
        let mut merged: Vec<(i64, usize, Record)> = Vec::new();
        for (number, rows) in inputs.iter().enumerate() {
            merged.extend(rows.iter().map(|record| (record.time_s, number, *record)));
        }
        merged.sort_by_key(|&(time_s, number, _)| (time_s, number));
        let reports = position_reports(merged.into_iter().map(|(.., record)| record));
        let expected = new_segments(reports.iter().copied());
        for (query, expected) in [(PositionReports, &reports), (NewSegments, &expected)] {
            for combination in combinations().take(4) {
                let run = |merge, order| {
                    let job = Pipeline::new();
                    let sources = inputs
                        .iter()
                        .map(|rows| job.read_packed_rows("injector", packed(rows), 0))
                        .collect();
                    let forwarded =
                        viper_pipeline::forwarded(&job, sources, merge, query, instances);
                    let forwarded = forwarded.expect("one type").collect("forwarded");
                    job.run(combination.options(order)).expect("the job runs");
                    forwarded.rows()
                };
                let shape = format!("{query:?}, {injectors} x {instances}, {combination:?}");
                assert!(run(Merge::Channel, EventTime) == *expected, "{shape}");
                // Merge operators put the rows of each instance in order, not the instances.
                let by_instance = |mut rows: Vec<Record>| {
                    rows.sort_by_key(|record| virtual_partition(record.vehicle, instances));
                    rows
                };
                let operators = by_instance(run(Merge::Operators, Epoch));
                assert!(operators == by_instance(expected.clone()), "{shape}");
            }
        }
    }
}
