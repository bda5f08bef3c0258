//! The concurrent structures bare: elements per second of process CPU time, compared with the
//! baselines of their papers and a crossbeam queue.
//!
//! ```text
//! cargo run --release --manifest-path benches/structures/Cargo.toml [-- --repeat N] [--figures
//! [--json FILE]]
//! ```
//! `--figures` runs the experiments of Prasaad et al. §7.2 and §7.3 instead (see `ordered`);
//! `--json` appends them to a file that the example `plot` of `thalweg-workloads` draws. All
//! variants of a structure alternate in one process; a table of medians follows the JSON lines.

mod figures;
mod gate;
mod ordered;
mod partitioned;
mod reorder;

use std::fs::{File, OpenOptions};
use std::time::Instant;

use cpu_time::ProcessTime;

/// A variant: its name and a function that moves this many elements and returns how many it did.
pub type Variant = (String, Box<dyn Fn() -> u64>);

/// Elements moved in one run.
pub const ELEMENTS: u64 = 2_000_000;

fn main() {
    let repeat = std::env::args().skip_while(|a| a != "--repeat").nth(1);
    let repeat = repeat.and_then(|n| n.parse().ok()).unwrap_or(5);
    if std::env::args().any(|a| a == "--figures") {
        // Opened first: a mistyped path must not cost a run.
        let file = json_file();
        let figures = ordered::report(repeat);
        if let Some((file, path)) = file {
            let note = format!(
                "2 workers, medians of {repeat} runs; {}; thalweg-structures --figures --repeat {repeat}",
                figures::machine()
            );
            let written = figures::write(file, &figures, &note);
            written.unwrap_or_else(|error| fail(&format!("{path}: {error}")));
        }
        return;
    }
    report("reorder", repeat, &reorder::variants());
    report("partitioned", repeat, &partitioned::variants());
    report("gate", repeat, &gate::variants());
}

/// The file that `--json` names.
fn json_file() -> Option<(File, String)> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--json");
    arguments.next()?;
    let path = arguments.next().unwrap_or_else(|| fail("--json needs a file"));
    let file = OpenOptions::new().append(true).create(true).open(&path);
    let file = file.unwrap_or_else(|error| fail(&format!("{path}: {error}")));
    Some((file, path))
}

fn fail(message: &str) -> ! {
    eprintln!("thalweg-structures: {message}");
    std::process::exit(2)
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
