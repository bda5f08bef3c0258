//! The parts of the suite and their points, in the short mode (`make bench`) and in the full one.
//!
//! Durations: the short mode as a whole stays within 45 minutes, the full one follows the rules of
//! the papers (warm-up 20 s; 240 s and 24,000 windows for a latency; 20 s and 60 s for a step of a
//! search, five repetitions of the step that wins).

use thalweg_workloads::streambox::pipelines::Benchmark;

use super::bisection::BOUNDS_MS;
use super::disorder::{SHARES, WORKLOADS};
use super::peers::SETTLES_S;
use super::point::{Engine, Kind, Point};
use super::step::NEXMARK;
use super::{scaling, streambox};
use crate::nexmark::peers;

/// NEXMark's queries that the short mode searches: windows, and a join of windows. It has no time
/// for the others, unless they are asked for by name.
const NEXMARK_SHORT: [&str; 2] = ["q5", "q8"];

/// How much time there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A few seconds for each point: to see that all works. Figures mean nothing.
    Smoke,
    Short,
    Full,
}

impl Mode {
    /// As rows name it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Smoke => "smoke",
            Mode::Short => "short",
            Mode::Full => "full",
        }
    }

    fn pick<T>(self, smoke: T, short: T, full: T) -> T {
        match self {
            Mode::Smoke => smoke,
            Mode::Short => short,
            Mode::Full => full,
        }
    }
}

/// What a part does.
pub enum Work {
    /// Its points in turn, so often.
    Points { points: Vec<Point>, repetitions: usize },
    /// For each workload the highest rates within the bounds.
    Searches(Vec<Search>),
}

/// A search.
pub struct Search {
    /// What its steps measure; the rate is what is searched.
    pub probe: Point,
    /// What is measured at the rates that win; the same as a step, or longer.
    pub step: Point,
    pub precision: f64,
    /// True if it is made only where the workload is asked for by name.
    pub only_by_name: bool,
    /// How often the rates that win are measured, by bound; bounds with 0 are not searched.
    pub repetitions: [usize; BOUNDS_MS.len()],
    /// About this many steps.
    pub steps: u64,
}

/// How long is looked at what it can do at all: to warm up, and measured.
pub const FREE_S: (u64, u64) = (2, 4);

/// Variants of points that are not what tables show: the rate without a bound, and steps on the
/// way.
pub const WITHOUT_A_BOUND: &str = "without a bound";
/// See above.
pub const PROBE: &str = "probe";

/// A part.
pub struct Part {
    pub name: &'static str,
    pub about: &'static str,
    pub work: Work,
}

/// All parts, in the sequence in which they run.
pub fn parts(mode: Mode) -> Vec<Part> {
    latency_parts(mode).into_iter().chain(throughput_parts(mode)).collect()
}

fn points(points: Vec<Point>, repetitions: usize) -> Work {
    Work::Points { points, repetitions }
}

fn latency_parts(mode: Mode) -> Vec<Part> {
    vec![
        Part {
            name: "latency-q5",
            about: "query 5, 10 s sliding by 10 ms, 10,000 keys, all rows; compared with Hazelcast",
            work: points(latency_q5(mode), mode.pick(1, 3, 3)),
        },
        Part {
            name: "latency-rows",
            about: "queries 1, 2 and 13 at 1 M events/s: rows",
            work: points(latency(mode, "latency-rows", &["q1", "q2", "q13"]), mode.pick(1, 2, 3)),
        },
        Part {
            name: "latency-queries",
            about: "queries 3, 4, 6, 7 and 8 at 1 M events/s",
            work: points(
                latency(mode, "latency-queries", &["q3", "q4", "q6", "q7", "q8"]),
                mode.pick(1, 1, 3),
            ),
        },
        Part {
            name: "burst",
            about: "ten times the rate for a second, and overload",
            work: points(bursts(mode), mode.pick(1, 1, 3)),
        },
        Part {
            name: "idle",
            about: "a single event into an idle pipeline, whose workers park or spin",
            work: points(idle(mode), mode.pick(1, 1, 3)),
        },
        Part {
            name: "jobs",
            about: "a hundred jobs on one pool of workers, 1 M events/s in all",
            work: points(vec![jobs(mode)], mode.pick(1, 1, 3)),
        },
    ]
}

fn throughput_parts(mode: Mode) -> Vec<Part> {
    vec![
        Part {
            name: "bounded-streambox",
            about: "StreamBox's six benchmarks: the highest rate within 50 ms, 500 ms and 1 s",
            work: Work::Searches(searches(mode, "bounded-streambox", &streambox::NAMES)),
        },
        Part {
            name: "bounded-nexmark",
            about: "NEXMark's queries 0 to 8, 11 and 13 (short mode: 5 and 8, others by name): the same",
            work: Work::Searches(searches(mode, "bounded-nexmark", &NEXMARK)),
        },
        Part {
            name: "throughput-blocks",
            about: "the building blocks compared with loops by hand, one and two workers",
            work: points(
                throughput(
                    "throughput-blocks",
                    mode,
                    &["filter-project", "count-per-key", "wordcount", "merge"],
                    mode.pick("--scale 0.02", "--scale 0.3", "--scale 1"),
                ),
                1,
            ),
        },
        Part {
            name: "throughput-nexmark",
            about: "NEXMark's queries compared with loops by hand",
            work: points(throughput_of_nexmark(mode), 1),
        },
        Part {
            name: "throughput-peers",
            about: "NEXMark-like queries compared with Hazelcast and Flink (full mode and THALWEG_PEERS)",
            work: points(throughput_of_peers(mode), 1),
        },
        Part {
            name: "disorder",
            about: "throughput with 0, 20 and 40 % of the records before their time",
            work: points(disorder(), mode.pick(1, 3, 5)),
        },
        Part {
            name: "scaling",
            about: "StreamBox's benchmarks and NEXMark's queries by one worker and by two",
            work: points(scaling_points(mode), 1),
        },
        Part {
            name: "ablations",
            about: "StreamBox's decisions removed, epochs of several lengths, early records",
            work: points(ablations(mode), 1),
        },
    ]
}

fn latency_q5(mode: Mode) -> Vec<Point> {
    let (warm_up_s, measured_s) = mode.pick((2, 3), (11, 12), (20, 240));
    let mut points = Vec::new();
    let rates = [100_000, 500_000, 1_000_000, 5_000_000, 20_000_000];
    // In the short mode there is no time for the one in between.
    for rate in rates.into_iter().filter(|&rate| mode != Mode::Short || rate != 500_000) {
        let point = Point::new("latency-q5", Kind::Latency, "q5", rate);
        points.push(point.clone().lasting(warm_up_s, measured_s));
        // Above this it can't follow on two cores.
        if rate <= 1_000_000 {
            let peer = Point { engine: Engine::Hazelcast, ..point };
            // Its code is compiled while it runs: with less it is still slow when it is measured.
            let warm_up_s = warm_up_s.max(mode.pick(0, 20, 20));
            points.push(peer.lasting(warm_up_s, measured_s));
        }
    }
    points
}

fn latency(mode: Mode, part: &str, queries: &[&str]) -> Vec<Point> {
    // Watermarks of query 6 stay behind by four seconds, and its auctions wait for one.
    let (warm_up_s, measured_s) = mode.pick((6, 2), (11, 10), (20, 240));
    let point = |query: &&str| {
        // Windows of ten seconds want to be full; rows have none.
        let warm_up_s = if part == "latency-rows" { warm_up_s.min(5) } else { warm_up_s };
        Point::new(part, Kind::Latency, query, 1_000_000).lasting(warm_up_s, measured_s)
    };
    queries.iter().map(point).collect()
}

fn idle(mode: Mode) -> Vec<Point> {
    let point = |variant| Point::new("idle", Kind::Idle, "filter", 0).of_variant(variant);
    ["park", "spin"].map(|variant| point(variant).lasting(1, mode.pick(3, 15, 60))).into()
}

/// Query 5 as a hundred jobs, the ten auctions with most bids of each slide.
fn jobs(mode: Mode) -> Point {
    let (warm_up_s, measured_s) = mode.pick((2, 3), (12, 20), (20, 240));
    let point = Point::new("jobs", Kind::Jobs, "q5", mode.pick(100_000, 1_000_000, 1_000_000));
    point.of_variant(mode.pick("10 jobs", "100 jobs", "100 jobs")).lasting(warm_up_s, measured_s)
}

fn bursts(mode: Mode) -> Vec<Point> {
    let point = |variant| {
        let point = Point::new("burst", Kind::Burst, "q5", mode.pick(100_000, 500_000, 500_000));
        let (warm_up_s, measured_s) = mode.pick((1, 6), (11, 12), (20, 60));
        point.lasting(warm_up_s, measured_s).of_variant(variant)
    };
    vec![point("10 for 1 s"), point("100 for 2 s")]
}

/// The rule is 20 s and 60 s for each step, and five repetitions of the one that wins, which the
/// full mode keeps. That takes hours, so in the short mode the way to the rates that win is made in
/// steps of 4 s, and only those rates are measured for 15 s behind 5 s: three times within 500 ms,
/// once within 50 ms. A rate within 500 ms is one within a second, too; whether there is a higher
/// one is looked for in the full mode.
fn searches(mode: Mode, part: &str, workloads: &[&str]) -> Vec<Search> {
    let search = |workload: &&str| {
        let step = Point::new(part, Kind::Step, workload, 0);
        let (warm_up_s, measured_s) = mode.pick((1, 2), (5, 15), (20, 60));
        let step = step.lasting(warm_up_s, measured_s);
        let probe = step.clone().of_variant(PROBE).lasting(1, mode.pick(2, 3, 0));
        Search {
            probe: if mode == Mode::Full { step.clone() } else { probe },
            step,
            precision: mode.pick(2.5, 1.25, 1.05),
            only_by_name: mode == Mode::Short
                && NEXMARK.contains(workload)
                && !NEXMARK_SHORT.contains(workload),
            repetitions: mode.pick([1; 3], [1, 3, 0], [5; 3]),
            // Windows of a length of their own: the rates that hold bounds are far apart.
            steps: mode.pick(3, if NEXMARK.contains(workload) { 8 } else { 3 }, 12),
        }
    };
    workloads.iter().map(search).collect()
}

/// Arguments of this program, which are the workload of the point.
fn throughput(part: &str, mode: Mode, workloads: &[&str], size: &str) -> Vec<Point> {
    let repeat = mode.pick(1, 3, 5);
    let point = |workload: &&str| {
        Point::new(part, Kind::Throughput, workload, 0)
            .of_variant(format!("{size} --repeat {repeat}"))
    };
    workloads.iter().map(point).collect()
}

/// A million events are through queries without state in two milliseconds, of which starting a job
/// is a good part: these read more.
fn throughput_of_nexmark(mode: Mode) -> Vec<Point> {
    let part = "throughput-nexmark";
    let events = mode.pick("--events 100000", "--events 20000000", "--events 50000000");
    let mut points = throughput(part, mode, &["nexmark q0 q1 q2 q14"], events);
    let events = mode.pick("--events 100000", "--events 1000000", "--events 5000000");
    points.extend(throughput(part, mode, &["nexmark q3 q4 q9 q15 q17 q18 q19 q20"], events));
    points
}

/// A query is a point, so what was measured stays when a run of hours is stopped.
fn throughput_of_peers(mode: Mode) -> Vec<Point> {
    let workloads = peers::QUERIES.map(|query| format!("nexmark {query}"));
    let workloads = workloads.each_ref().map(String::as_str);
    match mode {
        Mode::Full => {
            throughput("throughput-peers", mode, &workloads, "--events 20000000 --workers 2")
        }
        // A virtual machine for each run takes longer than the short mode has.
        Mode::Short => Vec::new(),
        Mode::Smoke => {
            throughput("throughput-peers", mode, &workloads, "--events 2000000 --workers 2")
        }
    }
}

fn disorder() -> Vec<Point> {
    let point = |workload: &str, share| {
        Point::new("disorder", Kind::Disorder, workload, 0).of_variant(share)
    };
    WORKLOADS.into_iter().flat_map(|workload| SHARES.map(|share| point(workload, share))).collect()
}

fn scaling_points(mode: Mode) -> Vec<Point> {
    let point = |workload: &str| {
        Point::new("scaling", Kind::Scaling, workload, 0).of_variant(mode.pick(1, 3, 5))
    };
    streambox::NAMES.into_iter().chain(scaling::QUERIES).map(point).collect()
}

fn ablations(mode: Mode) -> Vec<Point> {
    let point = |of: Benchmark| {
        Point::new("ablations", Kind::Ablations, of.name(), 0)
            .of_variant(mode.pick("1 x 1", "4 x 2", "8 x 5"))
    };
    Benchmark::ALL.map(point).into()
}

/// How long noise is listened to, before a point and after it.
pub fn noise_s(mode: Mode) -> u64 {
    mode.pick(1, 1, 5)
}

impl Part {
    /// About how long it takes in seconds; with peers, if there are any.
    pub fn estimated_s(&self, mode: Mode, has_peers: bool) -> u64 {
        match &self.work {
            Work::Points { points, repetitions } => {
                let wanted = points.iter().filter(|p| has_peers || p.engine == Engine::Thalweg);
                wanted.map(|point| estimated_s(point, mode)).sum::<u64>() * *repetitions as u64
            }
            Work::Searches(searches) => {
                let made = searches.iter().filter(|search| !search.only_by_name);
                made.map(Search::estimated_s).sum()
            }
        }
    }
}

impl Search {
    /// Besides, data are made and results are checked.
    fn estimated_s(&self) -> u64 {
        const MAKES_S: u64 = 3;
        let lasts_s = |point: &Point| point.warm_up_s + point.measured_s + MAKES_S;
        let free_s = FREE_S.0 + FREE_S.1 + MAKES_S;
        // A run at the rate that wins within one bound counts for others, too, and most often it is
        // the same.
        let repetitions = self.repetitions.iter().copied().max().unwrap_or_default();
        free_s + lasts_s(&self.probe) * self.steps + lasts_s(&self.step) * repetitions as u64
    }
}

fn estimated_s(point: &Point, mode: Mode) -> u64 {
    let listening_s = 2 * noise_s(mode);
    match (point.kind, point.engine) {
        // The virtual machine starts, warms up, and checks its result.
        (_, Engine::Hazelcast) => point.warm_up_s + point.measured_s + 12 + SETTLES_S + listening_s,
        // Two virtual machines for each repetition.
        (Kind::Throughput, _) => mode.pick(5, 40, 300),
        (Kind::Scaling, _) => mode.pick(5, 14, 25),
        (Kind::Ablations, _) if point.workload == "wordcount" => mode.pick(15, 75, 400),
        (Kind::Ablations, _) => mode.pick(4, 12, 60),
        (Kind::Disorder, _) => 4,
        // Closing the last windows and checking them.
        _ => point.warm_up_s + point.measured_s + 3 + listening_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_mode_fits_into_three_quarters_of_an_hour() {
        let total: u64 =
            parts(Mode::Short).iter().map(|part| part.estimated_s(Mode::Short, true)).sum();
        assert!(total <= 45 * 60, "{} minutes", total / 60);
    }

    #[test]
    fn latencies_of_the_full_mode_have_their_windows() {
        for part in parts(Mode::Full).iter().filter(|part| part.name.starts_with("latency")) {
            let Work::Points { points, repetitions } = &part.work else { panic!("points") };
            assert_eq!(*repetitions, 3);
            assert!(points.iter().all(|point| point.measured_s * 100 >= 24_000));
        }
    }
}
