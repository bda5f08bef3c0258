//! A partitioned operator with ordered output, built of the bare structures as Prasaad et al. §5
//! do: inputs get serials, go to a worklist of 100 partitions, workers operate on them and send the
//! outcome through a reorder buffer. The figures of §7.2 and §7.3 as ratios: skew (Fig. 9), latency
//! against cost per tuple (Fig. 10), light operators (Fig. 12), many outputs per input (Fig. 13).
//!
//! Two workers on two cores; the paper had sixteen. Every run checks that all outputs left in
//! order.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_ordering::partitioned::{
    HybridQueue, PartitionedQueue, PartitionedWorklist, SharedQueue,
};
use thalweg_ordering::reorder::{LockedReorderBuffer, Reorder, ReorderBuffer};

use crate::figures::Figure;

const PARTITIONS: usize = 100;
const WORKERS: usize = 2;
/// How many inputs may be under way: the room of the reorder buffer.
const UNDER_WAY: u64 = 4096;

/// What an experiment varies.
#[derive(Clone, Copy)]
struct Load {
    inputs: u64,
    /// Time that an input takes.
    cost: Duration,
    /// Outputs per input.
    selectivity: u64,
    /// Deviation of the keys, of which [-1, 1] is spread over the partitions; `None` for uniform.
    sigma: Option<f64>,
}

struct Input {
    serial: u64,
    added: Instant,
}

/// Inputs per second and mean time between adding an input and the departure of its outputs.
struct Outcome {
    per_second: f64,
    latency_us: f64,
}

fn run(
    load: Load,
    worklist: &(impl PartitionedWorklist<Input> + Sync),
    reorder: &(impl Reorder<(u64, Instant)> + Sync),
) -> Outcome {
    let (added, departed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (latency_ns, adding) = (AtomicU64::new(0), AtomicBool::new(false));
    let random = Mutex::new(0x9E37_79B9_7F4A_7C15_u64);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while departed.load(Ordering::Relaxed) < load.inputs {
                    // Whoever finds little waiting adds, one at a time: arrival order is one order.
                    let first = added.load(Ordering::Relaxed);
                    let waiting = first - departed.load(Ordering::Relaxed).min(first);
                    if first < load.inputs
                        && waiting < UNDER_WAY / 2
                        && !adding.swap(true, Ordering::Acquire)
                    {
                        let first = added.load(Ordering::Relaxed);
                        let mut random = random.lock().expect("no panic");
                        for serial in first..(first + 64).min(load.inputs) {
                            let input = Input { serial, added: Instant::now() };
                            worklist.add(partition(load.sigma, &mut random), input);
                            added.store(serial + 1, Ordering::Relaxed);
                        }
                        adding.store(false, Ordering::Release);
                    }
                    let done = worklist.consume(64, |_, input| {
                        spin(load.cost);
                        while !reorder.has_room(input.serial) {
                            thread::yield_now();
                        }
                        let outcome = (input.serial, input.added);
                        let sent = reorder.send(input.serial, outcome, |(serial, added)| {
                            assert_eq!(serial, departed.load(Ordering::Relaxed), "in order");
                            for output in 0..load.selectivity {
                                std::hint::black_box(output);
                            }
                            let waited = added.elapsed().as_nanos() as u64;
                            latency_ns.fetch_add(waited, Ordering::Relaxed);
                            departed.store(serial + 1, Ordering::Relaxed);
                            Ok::<(), Infallible>(())
                        });
                        let _ = sent;
                    });
                    if done == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let inputs = load.inputs as f64;
    Outcome {
        per_second: inputs / seconds,
        latency_us: latency_ns.into_inner() as f64 / inputs / 1e3,
    }
}

fn spin(cost: Duration) {
    let started = Instant::now();
    while !cost.is_zero() && started.elapsed() < cost {
        std::hint::spin_loop();
    }
}

/// A partition: uniform, or the one that a key of a normal distribution falls into.
fn partition(sigma: Option<f64>, state: &mut u64) -> usize {
    let mut uniform = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) as f64 / (1u64 << 53) as f64
    };
    let Some(sigma) = sigma else { return (uniform() * PARTITIONS as f64) as usize };
    loop {
        // Box and Muller; keys outside are drawn again.
        let (radius, angle) = (uniform().max(1e-12), uniform());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let key = normal * sigma;
        if key.abs() < 1.0 {
            return ((key + 1.0) / 2.0 * PARTITIONS as f64) as usize;
        }
    }
}

fn hybrid() -> HybridQueue<Input> {
    HybridQueue::new(PARTITIONS)
}

fn ring() -> ReorderBuffer<(u64, Instant)> {
    ReorderBuffer::new(UNDER_WAY as usize, 0)
}

/// A structure under load.
type Variant<'a> = (&'static str, &'a dyn Fn() -> Outcome);

/// Medians of each variant. The variants take turns, after one turn to warm up: what changes on the
/// machine meanwhile changes all of them.
fn medians(repeat: usize, variants: &[Variant<'_>]) -> Vec<Outcome> {
    let mut outcomes: Vec<Vec<Outcome>> = variants.iter().map(|_| Vec::new()).collect();
    for turn in 0..=repeat {
        for ((_, run), outcomes) in variants.iter().zip(&mut outcomes) {
            let outcome = run();
            if turn > 0 {
                outcomes.push(outcome);
            }
        }
    }
    let of = |outcomes: &[Outcome], value: fn(&Outcome) -> f64| {
        let mut values: Vec<f64> = outcomes.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let median = |outcomes: &Vec<Outcome>| Outcome {
        per_second: of(outcomes, |outcome| outcome.per_second),
        latency_us: of(outcomes, |outcome| outcome.latency_us),
    };
    outcomes.iter().map(median).collect()
}

/// A figure of the paper, and what of an outcome it shows.
struct Experiment {
    /// Its number and matter.
    title: &'static str,
    figure: Figure,
    shown: fn(&Outcome) -> f64,
}

impl Experiment {
    fn of_throughput(name: &'static str, title: &'static str, x: &'static str) -> Self {
        let measure = "Throughput (ratio to the first)";
        let figure = Figure::new(name, format!("Prasaad et al., figure {title}"), x, measure);
        Self { title, figure, shown: |outcome| outcome.per_second }
    }

    fn of_latency(name: &'static str, title: &'static str, x: &'static str) -> Self {
        let measure = "Mean latency (ratio to the first)";
        let figure = Figure::new(name, format!("Prasaad et al., figure {title}"), x, measure);
        Self { title, figure, shown: |outcome| outcome.latency_us }
    }
}

fn line(
    experiment: &mut Experiment,
    setting: &str,
    variant: &str,
    outcome: &Outcome,
    base: &Outcome,
) {
    let Experiment { title, figure, shown } = experiment;
    figure.add(setting, variant, shown(outcome) / shown(base));
    println!(
        "{{\"figure\":\"{title}\",\"setting\":\"{setting}\",\"variant\":\"{variant}\",\
         \"thousand_per_second\":{:.1},\"latency_us\":{:.1},\"throughput_ratio\":{:.3},\
         \"latency_ratio\":{:.3}}}",
        outcome.per_second / 1e3,
        outcome.latency_us,
        outcome.per_second / base.per_second,
        outcome.latency_us / base.latency_us
    );
}

/// Runs all experiments; each line names the figure of the paper that it stands for.
pub fn report(repeat: usize) -> Vec<Figure> {
    let micros = Duration::from_micros;
    let load = |inputs, cost| Load { inputs, cost, selectivity: 1, sigma: None };
    let mut skew = Experiment::of_throughput("prasaad-9", "9: skew", "Distribution of the keys");
    for (setting, sigma) in
        [("sigma 0.05", Some(0.05)), ("sigma 0.2", Some(0.2)), ("uniform", None)]
    {
        compare_queues(&mut skew, setting, Load { sigma, ..load(20_000, micros(20)) }, repeat);
    }
    let mut costs = Experiment::of_latency("prasaad-10", "10: cost per tuple", "Cost per tuple");
    for (setting, inputs, cost) in
        [("10 us", 20_000, micros(10)), ("100 us", 4_000, micros(100)), ("1 ms", 600, micros(1000))]
    {
        compare_queues(&mut costs, setting, load(inputs, cost), repeat);
    }
    let mut light =
        Experiment::of_throughput("prasaad-12", "12: light operators", "Cost per tuple");
    for (setting, inputs, cost) in
        [("no work", 300_000, Duration::ZERO), ("1 us", 200_000, micros(1))]
    {
        compare_reordering(&mut light, setting, load(inputs, cost), repeat);
    }
    let mut outputs =
        Experiment::of_throughput("prasaad-13", "13: 50 outputs per input", "Cost per tuple");
    let many = Load { selectivity: 50, ..load(200_000, Duration::ZERO) };
    compare_reordering(&mut outputs, "no work", many, repeat);
    let many = Load { selectivity: 50, ..load(4_000, micros(100)) };
    compare_reordering(&mut outputs, "100 us", many, repeat);
    [skew, costs, light, outputs].into_iter().map(|experiment| experiment.figure).collect()
}

fn compare_queues(experiment: &mut Experiment, setting: &str, load: Load, repeat: usize) {
    let variants: [Variant<'_>; 3] = [
        ("hybrid queue", &|| run(load, &hybrid(), &ring())),
        ("partitioned queue", &|| run(load, &PartitionedQueue::new(PARTITIONS), &ring())),
        ("shared queue", &|| run(load, &SharedQueue::new(PARTITIONS), &ring())),
    ];
    compare(experiment, setting, repeat, &variants);
}

fn compare_reordering(experiment: &mut Experiment, setting: &str, load: Load, repeat: usize) {
    let locked = || LockedReorderBuffer::new(UNDER_WAY as usize, 0);
    let variants: [Variant<'_>; 2] = [
        ("non-blocking", &|| run(load, &hybrid(), &ring())),
        ("lock-based", &|| run(load, &hybrid(), &locked())),
    ];
    compare(experiment, setting, repeat, &variants);
}

/// Adds the variants to the figure, as ratios to the first.
fn compare(experiment: &mut Experiment, setting: &str, repeat: usize, variants: &[Variant<'_>]) {
    let outcomes = medians(repeat, variants);
    for ((variant, _), outcome) in variants.iter().zip(&outcomes) {
        line(experiment, setting, variant, outcome, &outcomes[0]);
    }
}
