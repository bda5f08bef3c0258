//! Tables of runs that alternate: one worker and two, StreamBox's decisions as they are and taken
//! back, this engine and others.

use std::fmt::Write;

use serde_json::Value;

use super::percentiles::median;
use super::point::Kind;
use super::scaling::APART;
use super::tables::{Measured, met, short};
use crate::nexmark::peers::is_stateless;

/// Two workers do this many times what one does.
pub const SCALING_MIN: f64 = 1.85;

fn runs<'a>(groups: &[&Measured<'a>]) -> Vec<&'a Value> {
    let rows = groups.iter().flat_map(|group| group.rows.iter().copied());
    rows.filter_map(|row| row["runs"].as_array()).flatten().collect()
}

/// The median over runs that have these fields.
fn middle<'a>(
    runs: &[&'a Value],
    fields: &[(&str, &str)],
    of: impl Fn(&'a Value) -> Option<f64>,
) -> Option<f64> {
    let has = |run: &&&Value| fields.iter().all(|(key, value)| run[*key] == **value);
    let values = runs.iter().filter(has).filter_map(|run| of(run));
    median(values).map(|found| found.0)
}

fn names<'a>(runs: &[&'a Value], key: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in runs.iter().filter_map(|run| run[key].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Million rows per second of the clock.
fn wall(run: &Value) -> Option<f64> {
    Some(run["events"].as_f64()? / run["seconds"].as_f64()? / 1e6)
}

/// The same of processor time.
fn processor(run: &Value) -> Option<f64> {
    Some(run["events"].as_f64()? / run["cpu_seconds"].as_f64()? / 1e6)
}

/// Mebibytes that were resident at most, the input in memory among them. Rows of older builds do
/// not have this figure.
fn mebibytes(run: &Value) -> Option<f64> {
    Some(run["resident_peak_bytes"].as_f64()? / f64::from(1 << 20))
}

/// A workload by one worker and by two: million rows per second, and per second of processor time.
pub struct Scaled {
    pub workload: String,
    pub wall: [f64; 2],
    pub processor: [f64; 2],
    /// Resident at most.
    pub mebibytes: Option<[f64; 2]>,
    /// By wall clock, of two engines with a worker each; not every part has that.
    pub apart: Option<f64>,
}

/// Workloads that were run by both. One of them has the name of a building block.
pub fn scaled(groups: &[&Measured<'_>]) -> Vec<Scaled> {
    let mut all = scaled_of(groups, Kind::Scaling);
    all.extend(scaled_of(groups, Kind::Throughput).into_iter().map(|block| {
        let workload = format!("{} (building block)", block.workload);
        Scaled { workload, ..block }
    }));
    all
}

fn scaled_of(groups: &[&Measured<'_>], kind: Kind) -> Vec<Scaled> {
    let is_asked = |group: &&&Measured<'_>| group.point.kind == kind;
    let groups: Vec<&Measured<'_>> = groups.iter().filter(is_asked).copied().collect();
    let runs = runs(&groups);
    let of = |name: &str| {
        let rates = |of: fn(&Value) -> Option<f64>| {
            let by = |variant| middle(&runs, &[("workload", name), ("variant", variant)], of);
            Some([by("engine, 1 worker")?, by("engine, 2 workers")?])
        };
        let apart = middle(&runs, &[("workload", name), ("variant", APART)], wall);
        Some(Scaled {
            workload: name.to_owned(),
            wall: rates(wall)?,
            processor: rates(processor)?,
            mebibytes: rates(mebibytes),
            apart,
        })
    };
    names(&runs, "workload").into_iter().filter_map(of).collect()
}

/// The table of it.
pub fn scaling(groups: &[&Measured<'_>]) -> Option<String> {
    let scaled = scaled(groups);
    let mut text = String::from(
        "### One worker and two\n\n\
         Million input rows per second of the clock over records in memory; medians of runs in turn. Compared with them: two engines \
         of one worker each, which share nothing but the machine: what they lose, caches and memory take.\n\n\
         | workload | 1 worker | 2 workers | times | two engines, times | of that | ns CPU per row by one | by two | MB by one | by two | goal 1.85 |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Scaled { workload, wall, processor, mebibytes, apart } in &scaled {
        let times = wall[1] / wall[0];
        let bound = apart.map_or("– | –".to_owned(), |apart| {
            format!("{:.2} | {:.2}", apart / wall[0], wall[1] / apart)
        });
        let memory =
            mebibytes.map_or("– | –".to_owned(), |[one, two]| format!("{one:.0} | {two:.0}"));
        let _ = writeln!(
            text,
            "| {workload} | {} | {} | {times:.2} | {bound} | {} | {} | {memory} | {} |",
            short(wall[0]),
            short(wall[1]),
            short(1e3 / processor[0]),
            short(1e3 / processor[1]),
            met(times >= SCALING_MIN),
        );
    }
    (!scaled.is_empty()).then_some(text)
}

/// Not shown until it is measured again: with one source and two workers no boundary was contended.
const WITHDRAWN: &str = "boundaries ignored (fig. 10)";

/// A variant of a benchmark of StreamBox.
pub struct Ablated<'a> {
    pub figure: &'a str,
    pub workload: &'a str,
    pub variant: &'a str,
    /// Million rows per second of the clock, and of processor time.
    pub rates: (f64, f64),
    /// Resident at most.
    pub mebibytes: Option<f64>,
    /// Of results, in milliseconds: the median and 99 %.
    pub latency_ms: (f64, f64),
    /// The rate by wall clock to that of the first variant.
    pub of_first: f64,
}

/// All variants.
pub fn ablated<'a>(groups: &[&Measured<'a>]) -> Vec<Ablated<'a>> {
    let is_asked = |group: &&&Measured<'_>| group.point.kind == Kind::Ablations;
    let runs = runs(&groups.iter().filter(is_asked).copied().collect::<Vec<_>>());
    let mut all = Vec::new();
    for figure in names(&runs, "figure") {
        for workload in names(&runs, "workload") {
            let mut first = None;
            let is_here = |run: &&&Value| run["figure"] == figure && run["workload"] == workload;
            let here: Vec<&Value> = runs.iter().filter(is_here).copied().collect();
            for variant in names(&here, "variant").into_iter().filter(|name| *name != WITHDRAWN) {
                let of =
                    |of: &dyn Fn(&Value) -> Option<f64>| middle(&here, &[("variant", variant)], of);
                let latency =
                    |key: &str| of(&|run| run["latency"][key].as_f64()).unwrap_or(f64::NAN);
                let Some(rates) = of(&wall).zip(of(&processor)) else { continue };
                let of_first = rates.0 / *first.get_or_insert(rates.0);
                let latency_ms = (latency("p50_ms"), latency("p99_ms"));
                let mebibytes = of(&mebibytes);
                let of_variant =
                    Ablated { figure, workload, variant, rates, mebibytes, latency_ms, of_first };
                all.push(of_variant);
            }
        }
    }
    all
}

/// The table of them.
pub fn ablations(groups: &[&Measured<'_>]) -> Option<String> {
    let all = ablated(groups);
    let mut text = String::from(
        "### StreamBox's decisions removed, epochs and early records\n\n\
         Figures are those of the paper; two workers, medians of runs in turn. Latency is how long after its last \
         record a result leaves when records come as fast as they are taken.\n\n\
         | figure | benchmark | variant | million rows per wall second | of the first | ns CPU per row | MB | latency ms, median | 99 % |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for of in &all {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} | {} | {} | {} | {} |",
            of.figure,
            of.workload,
            of.variant,
            short(of.rates.0),
            of.of_first,
            short(1e3 / of.rates.1),
            of.mebibytes.map_or("–".to_owned(), |mebibytes| format!("{mebibytes:.0}")),
            short(of.latency_ms.0),
            short(of.latency_ms.1),
        );
    }
    (!all.is_empty()).then_some(text)
}

/// Goals of a query compared with others: million events per second and core.
const PER_CORE_MIN: [(&str, f64); 2] = [("peer-q5s10", 30.0), ("peer-q5s500", 50.0)];
const PEERS: [&str; 2] = ["Hazelcast", "Flink"];

/// This many times as much per core as another engine; none is set for stateless queries on
/// Hazelcast, which passes each event through two queues.
fn times_min(query: &str, engine: &str) -> Option<f64> {
    match (engine, is_stateless(query)) {
        ("Hazelcast", true) => None,
        ("Hazelcast", false) => Some(5.0),
        (_, true) => Some(3.0),
        (_, false) => Some(10.0),
    }
}

/// A query on this engine and on others, in million events per second and core.
pub struct Compared<'a> {
    pub query: &'a str,
    /// By wall clock, of this engine.
    pub wall: Option<f64>,
    pub here: f64,
    pub goal: Option<f64>,
    /// Engine, its rate, and how many times as much is the goal.
    pub others: Vec<(&'static str, f64, Option<f64>)>,
}

/// All queries that were run on this engine and on others.
pub fn compared<'a>(groups: &[&Measured<'a>]) -> Vec<Compared<'a>> {
    let runs = runs(groups);
    let of_query = |query: &'a str| {
        let of = |engine: &str, key: &str| {
            middle(&runs, &[("peer_query", query), ("engine", engine)], |run| run[key].as_f64())
        };
        let per_core = |engine: &str| of(engine, "million_per_core_second");
        let goal = PER_CORE_MIN.iter().find(|(name, _)| *name == query).map(|(_, goal)| *goal);
        let other =
            |engine: &'static str| Some((engine, per_core(engine)?, times_min(query, engine)));
        let others = PEERS.into_iter().filter_map(other).collect();
        let wall = of("Thalweg", "million_per_second");
        Some(Compared { query, wall, here: per_core("Thalweg")?, goal, others })
    };
    names(&runs, "peer_query").into_iter().filter_map(of_query).collect()
}

/// This engine compared with others.
pub fn peers(groups: &[&Measured<'_>]) -> Option<String> {
    let queries = compared(groups);
    let mut text = String::from(
        "### Compared with Hazelcast and Flink\n\n\
         Million events per second of the clock, and per core that worked, medians of runs in turn; each makes its events \
         itself or has them in memory, and all have the same rows.\n\n\
         | query | here | per core | goal per core | Hazelcast per core | times | Flink per core | times |\n|---|---|---|---|---|---|---|---|\n",
    );
    for Compared { query, wall, here, goal, others } in &queries {
        let goal = goal.map_or(String::new(), |goal| format!("≥ {goal}: {}", met(*here >= goal)));
        let cells = PEERS.map(|engine| {
            let Some((_, there, least)) = others.iter().find(|other| other.0 == engine) else {
                return "– | –".to_owned();
            };
            let times = here / there;
            let goal = least
                .map_or(String::new(), |least| format!(", goal {least}: {}", met(times >= least)));
            format!("{} | {}{goal}", short(*there), short(times))
        });
        let wall = wall.map_or("–".to_owned(), short);
        let _ = writeln!(
            text,
            "| {query} | {wall} | {} | {goal} | {} |",
            short(*here),
            cells.join(" | ")
        );
    }
    (!queries.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::point::Point;
    use super::super::tables::group;
    use super::*;
    use serde_json::json;

    fn table(of: fn(&[&Measured<'_>]) -> Option<String>, kind: Kind, runs: Value) -> String {
        let rows = [json!({ "point": Point::new("x", kind, "w", 0), "runs": runs })];
        let groups = group(&rows);
        of(&groups.iter().collect::<Vec<_>>()).expect("a table")
    }

    #[test]
    fn scaling_is_reported_with_what_it_costs() {
        let run = |variant: &str, seconds: f64, cpu_seconds: f64| {
            json!({ "workload": "w", "variant": variant,
            "events": 1e6, "seconds": seconds, "cpu_seconds": cpu_seconds,
            "resident_peak_bytes": 64 << 20 })
        };
        let mut runs = vec![run("engine, 1 worker", 1.0, 1.0), run("engine, 2 workers", 0.5, 1.2)];
        let text = table(scaling, Kind::Scaling, json!(runs));
        let row = "| w | 1.00 | 2.00 | 2.00 | – | – | 1000 | 1200 | 64 | 64 | met |";
        assert!(text.contains(row), "{text}");
        runs.push(run(APART, 0.625, 1.2));
        let text = table(scaling, Kind::Scaling, json!(runs));
        let row = "| w | 1.00 | 2.00 | 2.00 | 1.60 | 1.25 | 1000 | 1200 | 64 | 64 | met |";
        assert!(text.contains(row), "{text}");
        let text = table(scaling, Kind::Throughput, json!(runs));
        assert!(text.contains("| w (building block) | 1.00 | 2.00 |"), "{text}");
    }

    #[test]
    fn what_is_removed_is_compared_with_the_first() {
        let run = |variant: &str, seconds: f64| {
            json!({ "figure": "11", "workload": "w", "variant": variant,
            "events": 1e6, "seconds": seconds, "cpu_seconds": 1.0, "latency": { "p50_ms": 1.0, "p99_ms": 9.0 } })
        };
        let text = table(ablations, Kind::Ablations, json!([run("1 M", 1.0), run("1 K", 2.0)]));
        assert!(text.contains("| 11 | w | 1 K | 0.50 | 0.50 | 1000 | – | 1.00 | 9.00 |"), "{text}");
    }

    #[test]
    fn peers_have_their_goals() {
        let run = |engine: &str, rate: f64| {
            json!({ "peer_query": "peer-q5s10", "engine": engine,
            "million_per_second": rate, "million_per_core_second": rate })
        };
        let text =
            table(peers, Kind::Throughput, json!([run("Thalweg", 31.0), run("Hazelcast", 7.0)]));
        assert!(
            text.contains(
                "| peer-q5s10 | 31.0 | 31.0 | ≥ 30: met | 7.00 | 4.43, goal 5: **missed** | – | – |"
            ),
            "{text}"
        );
    }
}
