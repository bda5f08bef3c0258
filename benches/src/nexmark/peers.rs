//! Other engines over the same events (preset `peer`), in turn with this one.
//!
//! `THALWEG_PEERS` names a folder with a script `run.sh CLASS key=value…`, where CLASS is `HzMain`
//! or `FlinkMain`. It runs a query once to warm up and then as often as asked for, checks its
//! results, and prints a line `THROUGHPUT … median=M M/s … rows=N cpu/wall=C … result=ok …`.
//! Without it the engine runs alone, and the table says so. The number of rows must agree, but
//! where a peer reads more events, to run for seconds.
//!
//! A peer makes its events while it runs (210 million a second, which costs it little); it is warm
//! when it is measured. The table has the rate by wall clock and the rate by the time that
//! processors worked, which other work on the machine does not lower.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use thalweg::bench::{Benchmark, Preset, find};

use crate::engine::{How, Input, wordcount};
use crate::suite::limited;

use super::{Settings, engine, lines};

/// A run of a peer that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(600);

const PREFIX: &str = "peer-";

/// What can be compared.
pub const QUERIES: [&str; 9] = [
    "peer-q0",
    "peer-q1",
    "peer-q2",
    "peer-q5s500",
    "peer-q5s10",
    "peer-q7",
    "peer-q8",
    "peer-session",
    WORDCOUNT,
];

/// Not SQL, and a tenth of the events: lines of fourteen words each.
const WORDCOUNT: &str = "peer-wordcount";
const EVENTS_PER_LINE: u64 = 10;

/// On Flink these are one loop each. Queries may have `peer-` in front.
pub fn is_stateless(query: &str) -> bool {
    matches!(query.trim_start_matches(PREFIX), "q0" | "q1" | "q2")
}

/// Another engine: its class, its argument for a query (`None` where it has no such query), and
/// how many times the events it reads, so that it runs for seconds.
struct Peer {
    name: &'static str,
    class: &'static str,
    argument: fn(&str) -> Option<&'static str>,
    times: fn(&str) -> u64,
}

const PEERS: [Peer; 2] = [
    Peer { name: "Hazelcast", class: "HzMain", argument: |_| Some("check=1"), times: |_| 1 },
    Peer {
        name: "Flink",
        class: "FlinkMain",
        // The faster of its two ways to count in sliding windows.
        argument: |query| match query {
            "q5s10" => None,
            "q5s500" | "wordcount" => Some("variant=twostep"),
            _ => Some("variant=window"),
        },
        times: |query| if is_stateless(query) { 20 } else { 1 },
    },
];

/// What a peer said.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    million_per_second: f64,
    /// How many processors worked for it, on average.
    cores: f64,
    rows: u64,
}

/// Millions of events by wall clock, and by the time of processors.
#[derive(Clone, Copy)]
struct Rates {
    wall: f64,
    per_core: f64,
}

impl Rates {
    fn of(events: u64, elapsed: Duration, processor: Duration) -> Rates {
        let rate = |time: Duration| events as f64 / time.as_secs_f64() / 1e6;
        Rates { wall: rate(elapsed), per_core: rate(processor) }
    }

    /// A row of one run.
    fn line(self, query: &str, engine: &str, rows: u64) -> serde_json::Value {
        serde_json::json!({
            "peer_query": query, "engine": engine, "rows": rows, "million_per_second": self.wall,
            "million_per_core_second": self.per_core,
        })
    }
}

/// What is run here.
enum Own {
    Query(Box<Benchmark>),
    Wordcount(Input),
}

impl Own {
    fn new(name: &str, query: &str, settings: &Settings) -> Own {
        if name == WORDCOUNT {
            return Own::Wordcount(lines::input(settings.events / EVENTS_PER_LINE));
        }
        let found = find(Preset::Peer, query).unwrap_or_else(|error| panic!("{error}"));
        let benchmark = Benchmark::new(found, &settings.options(Preset::Peer));
        Own::Query(Box::new(benchmark.unwrap_or_else(|error| panic!("{name}: {error}"))))
    }

    /// Runs it once; how many rows of its result are left.
    fn run(&mut self, settings: &Settings) -> (Rates, u64) {
        match self {
            Own::Query(benchmark) => {
                let (run, outcome) = engine(benchmark);
                let rates = Rates::of(settings.events, run.elapsed, run.processor_time);
                (rates, outcome.rows_left)
            }
            Own::Wordcount(input) => {
                let (wall, processor) = (Instant::now(), ProcessTime::now());
                let (_, totals) = wordcount(input, How::workers(settings.workers))
                    .unwrap_or_else(|error| panic!("the engine failed: {error}"));
                let lines = settings.events / EVENTS_PER_LINE;
                (Rates::of(lines, wall.elapsed(), processor.elapsed()), totals.get().0)
            }
        }
    }
}

/// Runs a query here and there in turn; lines of the table.
pub(super) fn measure(name: &str, settings: &Settings) -> Vec<String> {
    let query = name.trim_start_matches(PREFIX);
    let mut here = Own::new(name, query, settings);
    let folder = std::env::var_os("THALWEG_PEERS").map(PathBuf::from);
    let (mut own, mut theirs) = (Vec::new(), [Vec::new(), Vec::new()]);
    for repetition in 0..=settings.repeat {
        let (rates, rows) = here.run(settings);
        if repetition == 0 {
            continue;
        }
        own.push(rates);
        println!("{}", rates.line(name, "Thalweg", rows));
        for (peer, said) in PEERS.iter().zip(&mut theirs) {
            let Some((folder, argument)) = folder.as_ref().zip((peer.argument)(query)) else {
                continue;
            };
            let times = (peer.times)(query);
            let one =
                ask((folder, peer), query, argument, settings.events * times, settings.workers);
            assert!(times > 1 || one.rows == rows, "{name}: {} has {} rows", peer.name, one.rows);
            let per_core = one.million_per_second / one.cores;
            let rates = Rates { wall: one.million_per_second, per_core };
            println!("{}", rates.line(name, peer.name, one.rows));
            said.push(rates);
        }
    }
    let here = median(&own);
    let other = |(peer, said): (&Peer, &Vec<Rates>)| match said.as_slice() {
        [] if folder.is_none() => format!("{} skipped: THALWEG_PEERS is not set |", peer.name),
        [] => format!("{} has no such query |", peer.name),
        _ => {
            let there = median(said);
            format!(
                "{} {:.2} ({:.1} times), {:.2} per core (**{:.1} times**) |",
                peer.name,
                there.wall,
                here.wall / there.wall,
                there.per_core,
                here.per_core / there.per_core
            )
        }
    };
    let others: Vec<String> = PEERS.iter().zip(&theirs).map(other).collect();
    let (wall, per_core) = (here.wall, here.per_core);
    vec![format!("| {name} | {wall:.1}, {per_core:.1} per core | {}", others.join(" "))]
}

/// A peer checks its rows against a loop of its own.
fn ask(
    (folder, peer): (&std::path::Path, &Peer),
    query: &str,
    argument: &str,
    events: u64,
    workers: usize,
) -> Said {
    let mut command = Command::new(folder.join("run.sh"));
    command
        .args([peer.class, "mode=throughput", "runs=1", argument])
        .args([format!("par={workers}"), format!("q={query}"), format!("n={events}")])
        .arg(format!("warm={}", events / 2));
    let output = limited::output(&mut command, LIMIT)
        .unwrap_or_else(|problem| panic!("{name}: {problem}", name = peer.name));
    let text = String::from_utf8_lossy(&output.stdout);
    said(&text).unwrap_or_else(|| {
        panic!("{} said\n{text}{}", peer.name, String::from_utf8_lossy(&output.stderr))
    })
}

/// Reads a peer's line; `None` unless it found its own results right.
fn said(text: &str) -> Option<Said> {
    let line = text.lines().find(|line| line.starts_with("THROUGHPUT"))?;
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    field("result=").filter(|&result| result == "ok")?;
    Some(Said {
        million_per_second: field("median=")?.parse().ok()?,
        cores: field("cpu/wall=")?.parse().ok()?,
        rows: field("rows=")?.parse().ok()?,
    })
}

/// The median of each rate.
fn median(runs: &[Rates]) -> Rates {
    let middle = |of: fn(&Rates) -> f64| {
        let mut sorted: Vec<f64> = runs.iter().map(of).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    Rates { wall: middle(|rates| rates.wall), per_core: middle(|rates| rates.per_core) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_whose_result_is_wrong_has_said_nothing() {
        let line = "THROUGHPUT HZ q7 par=2 n=100 evrate=10 median=6.690 M/s runs=[ 6.690 ] rows=3 cpu/wall=1.50 gc=0.1% result=ok load=1";
        assert_eq!(said(line), Some(Said { million_per_second: 6.69, cores: 1.5, rows: 3 }));
        assert_eq!(said(&line.replace("=ok", "=WRONG")), None);
    }
}
