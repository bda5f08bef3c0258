//! The golden cases in the ordered contracts: whatever the workers, the bundles and the scheduling
//! policy, each sink's bytes are those of one worker that takes one row at a time.
//!
//! In `arrival` the rows are Flink's as well. In `event_time` every table is sorted by its row time
//! (`source.sort-within`), so that rows are no longer late: there the bytes alone are compared.
//!
//! Combinations are drawn by a seed, which every failure prints. `THALWEG_SWEEP_SEEDS` says how
//! many seeds to take (`make sweep` takes 50), `THALWEG_SWEEP_FIRST_SEED` where to begin.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use thalweg_core::shim::SplitMix64;

use super::{copy_of, read, remove, successful, thalweg};

const WORKERS: [usize; 5] = [1, 2, 3, 4, 8];
const BUNDLE_ROWS: [usize; 4] = [1, 7, 1000, 65_536];
const SCHEDULERS: [&str; 6] = ["nem", "round-robin", "lp", "ct", "et", "qst"];

/// Combinations drawn from each seed: for `arrival`, and for `event_time`.
const SAMPLES: [usize; 2] = [14, 6];

/// One way to run a case.
#[derive(Clone, Copy)]
pub struct Combination {
    pub workers: usize,
    pub bundle_rows: usize,
    pub scheduler: &'static str,
}

impl Combination {
    /// One row after the other.
    pub const ONE_BY_ONE: Combination =
        Combination { workers: 1, bundle_rows: 1, scheduler: "nem" };

    fn draw(random: &mut SplitMix64) -> Self {
        let mut below = |count: usize| random.below(count as u64) as usize;
        Combination {
            workers: WORKERS[below(WORKERS.len())],
            bundle_rows: BUNDLE_ROWS[below(BUNDLE_ROWS.len())],
            scheduler: SCHEDULERS[below(SCHEDULERS.len())],
        }
    }

    fn options(self, order: &str) -> Vec<String> {
        let set = |key: &str, value: String| ["--set".to_owned(), format!("{key}={value}")];
        let settings = [
            set("pipeline.order", order.to_owned()),
            set("pipeline.bundle-rows-max", self.bundle_rows.to_string()),
            set("pipeline.scheduler", self.scheduler.to_owned()),
        ];
        let workers = ["--workers".to_owned(), self.workers.to_string()];
        settings.into_iter().flatten().chain(workers).collect()
    }
}

impl Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination { workers, bundle_rows, scheduler } = self;
        write!(f, "{workers} workers, bundles of {bundle_rows}, {scheduler}")
    }
}

/// Seeds to take: one, or as many as a sweep asks for.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    };
    let first = number("THALWEG_SWEEP_FIRST_SEED", 1);
    first..first + number("THALWEG_SWEEP_SEEDS", 1)
}

/// Runs a case in both contracts with drawn combinations. `compare` compares with Flink's rows.
pub fn check(case: &str, compare: fn(&str, &str, &[u8])) {
    let folder = copy_of(case, "ordered");
    let query = folder.join("query.sql");
    let reference = bytes(&query, case, "arrival", Combination::ONE_BY_ONE);
    compare(case, "order arrival, one by one", &reference);
    sweep(&query, case, "arrival", SAMPLES[0], &reference);
    if let Some(sorted) = sorted_by_time(&read(&query)) {
        fs::write(&query, sorted).expect("writing the query");
        let reference = bytes(&query, case, "event_time", Combination::ONE_BY_ONE);
        sweep(&query, case, "event_time", SAMPLES[1], &reference);
    }
    remove(&folder);
}

/// Runs a case with two inputs: in `event_time` its bytes depend on nothing but the data; in
/// `arrival` they depend on how the inputs came in, so only what is left is compared.
pub fn check_two_inputs(case: &str) {
    let folder = copy_of(case, "ordered");
    let query = folder.join("query.sql");
    let mut random = SplitMix64::new(1);
    for _ in 0..SAMPLES[1] {
        let combination = Combination::draw(&mut random);
        let got = bytes(&query, case, "arrival", combination);
        super::compare_left(case, &format!("order arrival, {combination}"), &got);
    }
    if let Some(sorted) = sorted_by_time(&read(&query)) {
        fs::write(&query, sorted).expect("writing the query");
        let reference = bytes(&query, case, "event_time", Combination::ONE_BY_ONE);
        sweep(&query, case, "event_time", SAMPLES[1], &reference);
    }
    remove(&folder);
}

fn sweep(query: &Path, case: &str, order: &str, samples: usize, reference: &[u8]) {
    for seed in seeds() {
        let mut random = SplitMix64::new(seed);
        for _ in 0..samples {
            let combination = Combination::draw(&mut random);
            let got = bytes(query, case, order, combination);
            assert!(
                got == reference,
                "{case}, order {order}, seed {seed}, {combination}: got\n{}\none by one\n{}",
                String::from_utf8_lossy(&got),
                String::from_utf8_lossy(reference)
            );
        }
    }
}

fn bytes(query: &Path, case: &str, order: &str, combination: Combination) -> Vec<u8> {
    let options = combination.options(order);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let setup = format!("order {order}, {combination}");
    successful(case, &setup, thalweg(query, &options)).stdout
}

/// The case with every table sorted by time; nothing if one has no time to be sorted by.
pub fn sorted_by_time(query: &str) -> Option<String> {
    let tables = query.matches("CREATE TABLE").count();
    let sortable = query.matches("WATERMARK FOR").count();
    let connector = "'connector'='filesystem'";
    (tables > 0 && tables == sortable && tables == query.matches(connector).count())
        .then(|| query.replace(connector, "'source.sort-within'='10 d', 'connector'='filesystem'"))
}
