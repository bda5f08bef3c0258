//! The concurrent structures bare: elements per second of process CPU time, beside the baselines of
//! their papers and a crossbeam queue.
//!
//! ```text
//! cargo run --release --manifest-path benches/structures/Cargo.toml [-- --repeat N] [--figures]
//! ```
//! `--figures` runs the experiments of Prasaad et al. §7.2 and §7.3 instead (see `ordered`).
//! All variants of a structure alternate in one process; a table of medians follows the JSON lines.

mod gate;
mod ordered;
mod partitioned;
mod reorder;

use std::time::Instant;

use cpu_time::ProcessTime;

/// A variant: its name and a function that moves so many elements and returns how many it did.
pub type Variant = (String, Box<dyn Fn() -> u64>);

/// Elements moved in one run.
pub const ELEMENTS: u64 = 2_000_000;

fn main() {
    let repeat = std::env::args().skip_while(|a| a != "--repeat").nth(1);
    let repeat = repeat.and_then(|n| n.parse().ok()).unwrap_or(5);
    if std::env::args().any(|a| a == "--figures") {
        ordered::report(repeat);
        return;
    }
    report("reorder", repeat, &reorder::variants());
    report("partitioned", repeat, &partitioned::variants());
    report("gate", repeat, &gate::variants());
}

fn report(structure: &str, repeat: usize, variants: &[Variant]) {
    let mut rates = vec![(Vec::new(), Vec::new()); variants.len()];
    for repetition in 0..=repeat {
        for ((name, run), rates) in variants.iter().zip(&mut rates) {
            let (cpu, wall) = (ProcessTime::now(), Instant::now());
            let elements = run() as f64 / 1e6;
            let cpu = elements / cpu.elapsed().as_secs_f64();
            let wall = elements / wall.elapsed().as_secs_f64();
            if repetition > 0 {
                println!(
                    "{{\"structure\":\"{structure}\",\"variant\":\"{name}\",\
                     \"million_per_cpu_second\":{cpu:.2},\"million_per_second\":{wall:.2}}}"
                );
                rates.0.push(cpu);
                rates.1.push(wall);
            }
        }
    }
    println!("\n{structure}, million elements: medians of {repeat} runs in turn");
    for ((name, _), (cpu, wall)) in variants.iter().zip(rates) {
        let (cpu, low, high) = median(cpu);
        let (wall, ..) = median(wall);
        println!("  {name:44} {cpu:7.1} per CPU s ({low:.1} to {high:.1}), {wall:7.1} per s");
    }
    println!();
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}
