//! StreamBox's decisions removed one at a time (figures 9 and 10, and §9.2), epochs of several
//! lengths (figure 11), and records that come early (figure 7). The variant of a point is how many
//! million records a run has and how many runs are measured behind one to warm up: `4 x 3`.
//!
//! Variants alternate. All of a benchmark with the same records must have the same results.

use std::time::Instant;

use cpu_time::ProcessTime;
use serde_json::{Value, json};
use thalweg::{Error, Result};
use thalweg_runtime::{Ablation, RunOptions, start};
use thalweg_workloads::streambox::Table;
use thalweg_workloads::streambox::pipelines::{
    Benchmark, DESIGNS, EARLY_PERCENT, EPOCHS, Reading, Variation, graph, table,
};

use super::point::Point;
use super::process::{forget_resident_peak, resident_peak_bytes};
use super::streambox::Total;

/// The figures of the paper, as rows name them.
pub const FIGURES: [&str; 3] = ["9-10", "11", "7"];

/// A variant: what is different.
struct Variant<'a> {
    figure: &'static str,
    name: String,
    records: &'a Table,
    watermark_step_ms: Option<i64>,
    ablation: Ablation,
    sum: Option<u64>,
}

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let problem = || Error::plan(format!("no size and runs: '{}', try '4 x 3'", point.variant));
    let (millions, repeat) = point.variant.split_once(" x ").ok_or_else(problem)?;
    let millions: u64 = millions.parse().map_err(|_| problem())?;
    let repeat: usize = repeat.parse().map_err(|_| problem())?;
    let benchmark = Benchmark::ALL.into_iter().find(|of| of.name() == point.workload);
    let benchmark = benchmark
        .ok_or_else(|| Error::plan(format!("there are no ablations of '{}'", point.workload)))?;
    let how = Variation::with_records(1_000_000, millions);
    let plain = table(benchmark, &how);
    let early = EARLY_PERCENT
        .map(|percent| table(benchmark, &Variation { early_percent: Some(percent), ..how }));
    let mut variants = variants(&plain, &early);
    let mut runs = Vec::new();
    for repetition in 0..=repeat {
        for variant in &mut variants {
            let run = variant.run(benchmark, point.workers)?;
            if repetition > 0 {
                runs.push(run);
            }
        }
    }
    Ok(json!({ "runs": runs, "check": check(&variants) }))
}

fn variants<'a>(plain: &'a Table, early: &'a [Table; 3]) -> Vec<Variant<'a>> {
    let of = |figure, name: String, records| Variant {
        figure,
        name,
        records,
        watermark_step_ms: None,
        ablation: Ablation::Nothing,
        sum: None,
    };
    let [of_designs, of_epochs, of_early] = FIGURES;
    let designs = DESIGNS
        .map(|(name, ablation)| Variant { ablation, ..of(of_designs, name.to_owned(), plain) });
    let epochs = EPOCHS.map(|(name, step)| Variant {
        watermark_step_ms: step,
        ..of(of_epochs, name.to_owned(), plain)
    });
    let early = EARLY_PERCENT.iter().zip(early);
    let early = early.map(|(percent, table)| of(of_early, percent.to_string(), table));
    designs.into_iter().chain(epochs).chain(early).collect()
}

impl Variant<'_> {
    fn run(&mut self, benchmark: Benchmark, workers: usize) -> Result<Value> {
        let total = Total::of_column(benchmark.checked());
        let reading = Reading { watermark_step_ms: self.watermark_step_ms, ..Reading::default() };
        let graph = graph(benchmark, self.records, reading, total.sink())?;
        let options = RunOptions { workers, ablation: self.ablation, ..RunOptions::default() };
        forget_resident_peak();
        let (wall, processor) = (Instant::now(), ProcessTime::now());
        let report = start(graph, options)?.wait()?;
        let (wall, processor) = (wall.elapsed(), processor.elapsed());
        let sum = total.get();
        if self.sum.is_some_and(|before| before != sum) {
            return Err(Error::internal(format!("{}: {:?}, then {sum}", self.name, self.sum)));
        }
        self.sum = Some(sum);
        let latency = report.latency.map(|of| {
            let ms = |us: u64| us as f64 / 1000.0;
            json!({ "p50_ms": ms(of.p50_us), "p99_ms": ms(of.p99_us) })
        });
        Ok(json!({
            "figure": self.figure, "workload": benchmark.name(), "variant": self.name,
            "workers": workers, "events": self.records.num_rows(),
            "seconds": wall.as_secs_f64(), "cpu_seconds": processor.as_secs_f64(),
            "latency": latency, "resident_peak_bytes": resident_peak_bytes("self"),
        }))
    }
}

/// Records that come early are counted in other windows of the same number, so only results over
/// the same records are compared.
fn check(variants: &[Variant<'_>]) -> Value {
    let first = &variants[0];
    let other = variants
        .iter()
        .find(|other| std::ptr::eq(other.records, first.records) && other.sum != first.sum);
    match other {
        None => json!("ok"),
        Some(other) => {
            json!(format!("WRONG: {}: {:?}, not {:?}", other.name, other.sum, first.sum))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn every_variant_runs_and_has_the_same_result() {
        let point = Point::new("ablations", Kind::Ablations, "counts", 0).of_variant("1 x 1");
        let row = run(&point).expect("it runs");
        assert_eq!(row["check"], "ok");
        let variants = DESIGNS.len() + EPOCHS.len() + EARLY_PERCENT.len();
        assert_eq!(row["runs"].as_array().map(Vec::len), Some(variants));
    }
}
