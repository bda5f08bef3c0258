//! StreamBox's benchmarks on small data against naive oracles that share no code with the engine:
//! the same rows in `epoch` with 1, 2 and 4 workers, and in the ordered contracts the same sequence
//! for sampled combinations of workers, bundles, policies and schemes as of one worker that takes
//! one row at a time.

#[path = "../common/mod.rs"]
mod common;
mod oracles;
mod rows;

use std::collections::BTreeMap;

use common::{Combination, combinations, scale};
use rows::{Cell, Row, read, rows_of};
use thalweg::OrderContract::{self, Arrival, Epoch, EventTime};
use thalweg::pipeline::Collect;
use thalweg::{Report, Result, RunOptions};
use thalweg_runtime::{Ablation, start};
use thalweg_workloads::streambox::grep::{self, Output, Search};
use thalweg_workloads::streambox::join::{self, Keys};
use thalweg_workloads::streambox::pipelines::{self, Benchmark, Reading, Variation};
use thalweg_workloads::streambox::{Job, RunSettings, distinct, netmon, tweets, wordcount};

const ABLATIONS: [Ablation; 4] = [
    Ablation::Nothing,
    Ablation::InOrderEpochs,
    Ablation::IgnoreEpochBoundaries,
    Ablation::NoPriority,
];

/// This many workers, and bundles of this many rows.
fn combination(workers: usize, bundle_rows: usize) -> Combination {
    let mut combination = Combination::sample(0);
    (combination.workers, combination.bundle_rows) = (workers, bundle_rows);
    combination
}

/// How SQL runs in a combination.
fn settings(how: &Combination, order: OrderContract) -> RunSettings {
    RunSettings { workers: how.workers, order, bundle_rows_max: how.bundle_rows }
}

/// Runs a benchmark in every contract; the rows must be the expected ones.
fn check(
    mut expected: Vec<Row>,
    ordered: &[OrderContract],
    run: impl Fn(&Combination, OrderContract, &Collect) -> Result<Report>,
) {
    assert!(expected.len() > 20, "only {} rows are expected", expected.len());
    expected.sort();
    let collect = |how: &Combination, order| {
        let results = Collect::new();
        let report = run(how, order, &results).expect("the job runs");
        assert_eq!(report.metrics.late(), 0);
        rows_of(&results.batches())
    };
    let sorted = |mut rows: Vec<Row>| {
        rows.sort();
        rows
    };
    for workers in [1, 2, 4] {
        let got = sorted(collect(&combination(workers, 65_536), Epoch));
        assert_eq!(got.len(), expected.len(), "{workers} workers");
        assert!(got == expected, "{workers} workers in epoch: not the oracle's rows");
    }
    for &order in ordered {
        let one_by_one = collect(&combination(1, 1), order);
        assert!(sorted(one_by_one.clone()) == expected, "{order}: not the oracle's rows");
        for how in
            [combination(2, 1000), combination(4, 1000)].into_iter().chain(combinations().take(3))
        {
            let got = collect(&how, order);
            assert!(got == one_by_one, "{order}, seed {}: {how:?}: another sequence", how.seed);
        }
    }
}

/// Runs a benchmark in SQL in every contract that says its sequence.
fn check_job(expected: Vec<Row>, ordered: &[OrderContract], job: &Job) {
    check(expected, ordered, |how, order, results| job.run(settings(how, order), results.sink()));
}

#[test]
fn grep_finds_what_the_oracle_finds() {
    let settings = grep::Settings { records: 700 * scale(), laps: 3, records_per_ms: 1, seed: 11 };
    let table = grep::table(&settings);
    let records = read(&table.batches);
    for search in [Search::Literal, Search::Regex] {
        for output in [Output::Rows, Output::Counts] {
            let job = grep::job(table.clone(), search, output);
            let expected = oracles::grep(&records, search, output);
            check_job(expected, &[Arrival, EventTime], &job);
        }
    }
}

#[test]
fn words_are_counted_as_the_oracle_counts() {
    let (records, records_per_ms) = (300 * scale(), scale());
    let settings = wordcount::Settings { records, records_per_ms, seed: 12 };
    let table = wordcount::table(&settings);
    let expected = oracles::wordcount(&read(&table.batches));
    check(expected, &[Arrival, EventTime], |how, order, results| {
        wordcount::run(&table, how.options(order), results.sink())
    });
}

#[test]
fn words_are_counted_however_the_input_varies_and_whatever_is_removed() {
    let plain = Variation { records_per_ms: 1, ..Variation::with_records(1200, 2) };
    for early_percent in [None, Some(0), Some(40)] {
        let how = Variation { early_percent, ..plain };
        let table = pipelines::table(Benchmark::WordCount, &how);
        let mut expected = oracles::wordcount(&read(&table.batches));
        expected.sort();
        let readings = [(None, 1), (Some(10), 1), (None, 3)];
        for (ablation, (step, sources)) in
            ABLATIONS.into_iter().flat_map(|ablation| readings.map(|reading| (ablation, reading)))
        {
            let results = Collect::new();
            let reading = Reading { watermark_step_ms: step, sources };
            let graph = pipelines::graph(Benchmark::WordCount, &table, reading, results.sink());
            let options =
                RunOptions { workers: 3, bundle_rows_max: 100, ablation, ..RunOptions::default() };
            let graph = graph.expect("the table fits");
            let report = start(graph, options).and_then(|job| job.wait()).expect("the job runs");
            let what = format!("{early_percent:?} %, {ablation:?}, {reading:?}");
            assert_eq!(report.metrics.late(), 0, "{what}");
            let mut got = rows_of(&results.batches());
            got.sort();
            assert!(got == expected, "{what}: other rows");
        }
    }
}

#[test]
fn keys_meet_as_in_the_oracle() {
    let unique = join::Settings {
        records: 4000 * scale(),
        records_per_ms: scale(),
        ..join::Settings::unique(0)
    };
    let skewed = |keys| join::Settings {
        records: 1200 * scale(),
        records_per_ms: 10,
        ..join::Settings::skewed(0, keys)
    };
    for settings in [unique, skewed(Keys::Zipf(0.8)), skewed(Keys::Hot)] {
        let tables = join::tables(&settings);
        let sides = [read(&tables[0].batches), read(&tables[1].batches)];
        let expected = oracles::join(&sides, settings.reach_ms);
        let job = join::job(tables, &settings);
        // With two inputs the sequence of `arrival` depends on how they came in.
        check_job(expected, &[EventTime], &job);
    }
}

#[test]
fn half_of_the_unique_keys_find_their_partner() {
    let settings = join::Settings { records_per_ms: 4, ..join::Settings::unique(40_000) };
    let tables = join::tables(&settings);
    let sides = [read(&tables[0].batches), read(&tables[1].batches)];
    let mut keys = BTreeMap::new();
    sides.iter().flatten().for_each(|row| *keys.entry(row[1].clone()).or_insert(0) += 1);
    let met = oracles::join(&sides, settings.reach_ms).len();
    assert!((18_000..22_000).contains(&met), "{met} of 40,000 meet");
    assert!(keys.values().all(|&count| count <= 2), "a key comes once on either side");
}

#[test]
fn urls_are_distinguished_as_in_the_oracle() {
    let settings = distinct::Settings {
        records_per_ms: 1,
        ids: 3000,
        seed: 13,
        ..distinct::Settings::with_records(25_000)
    };
    let table = distinct::table(&settings);
    let expected = oracles::distinct(&read(&table.batches));
    let job = distinct::job(table);
    check_job(expected, &[Arrival, EventTime], &job);
}

#[test]
fn latencies_are_averaged_as_in_the_oracle() {
    let settings = netmon::Settings {
        records_per_ms: 2,
        hosts: 50,
        pairs: 500,
        ..netmon::Settings::with_records(6000 * scale())
    };
    let table = netmon::table(&settings);
    let expected = oracles::netmon(&read(&table.batches));
    let job = netmon::job(table);
    check_job(expected, &[Arrival, EventTime], &job);
}

#[test]
fn tweets_show_when_the_mood_turns() {
    let settings = tweets::Settings {
        records_per_ms: 1,
        windows_of_mood: 1,
        ..tweets::Settings::with_records(5000)
    };
    let table = tweets::table(&settings);
    let expected = oracles::tweets(&read(&table.batches), &settings);
    // The mood flips each second: every window but the first turns, and has ten words.
    assert_eq!(expected.len(), 4 * 10);
    let job = tweets::job(table, &settings);
    check_job(expected, &[Arrival, EventTime], &job);
}

#[test]
fn a_record_is_the_same_whoever_asks() {
    let of = |records| grep::Settings { records, laps: 1, ..grep::Settings::default() };
    let (few, many) = (grep::table(&of(10)), grep::table(&of(50)));
    assert_eq!(read(&few.batches)[..], read(&many.batches)[..10]);
    assert!(matches!(&read(&few.batches)[0][2], Cell::Text(text) if text.len() == 1024));
}
