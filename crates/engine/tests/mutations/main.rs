//! Statements that are almost right: all SQL of this repository with tokens deleted, doubled,
//! swapped, replaced.
//!
//! Whatever the text, planning answers, and a plan that is accepted runs: no panic, no internal
//! error, no hang. A refusal says where, and the place lies inside the text. The golden cases,
//! whose inputs are small, are also run.
//!
//! A failure prints the number of the case; `THALWEG_MUTATION=NUMBER` repeats it alone. More than
//! the usual cases, and others:
//!
//! ```sh
//! THALWEG_MUTATIONS=100000 THALWEG_MUTATION_SEED=7 cargo test -p thalweg --test mutations -- --nocapture
//! ```

mod corpus;
mod layout;
mod mutate;
mod trial;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use corpus::{Corpus, Script};
use mutate::Random;
use trial::Outcome;

/// What continuous integration has time for.
const USUAL_CASES: u64 = 2000;
/// Far more than any case needs in a debug build on a busy machine: the budget of a run and the
/// time to stop it.
const PATIENCE: Duration = Duration::from_secs(60);
/// At most this many failures are shown.
const SHOWN: usize = 20;

/// The cases that took longest, and those that failed.
#[derive(Default)]
struct Findings {
    slowest: Vec<(Duration, u64)>,
    failures: Vec<String>,
    refused: u64,
    planned: u64,
    ran: u64,
}

#[test]
fn mutated_statements_are_answered() {
    let corpus = Corpus::read();
    assert!(
        corpus.scripts.len() > 150,
        "only {} scripts: has the layout changed?",
        corpus.scripts.len()
    );
    let seed = variable("THALWEG_MUTATION_SEED").unwrap_or(1);
    let cases = match variable("THALWEG_MUTATION") {
        Some(only) => only..only + 1,
        None => 0..variable("THALWEG_MUTATIONS").unwrap_or(USUAL_CASES),
    };
    let (next, findings) = (AtomicU64::new(cases.start), Mutex::new(Findings::default()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases.end {
                        break;
                    }
                    examine(&corpus, seed, case, &findings);
                }
            });
        }
    });
    let findings = findings.into_inner().expect("no panic under this lock");
    let Findings { mut slowest, failures, refused, planned, ran } = findings;
    slowest.sort_unstable_by(|a, b| b.cmp(a));
    slowest.truncate(5);
    println!("{refused} refused, {planned} planned, {ran} run; the slowest: {slowest:?}");
    assert!(
        failures.is_empty(),
        "{} failures of seed {seed}:\n{}",
        failures.len(),
        failures[..failures.len().min(SHOWN)].join("\n")
    );
    // Texts that are all refused at their first token would find nothing.
    let all = refused + planned + ran;
    let is_deep = planned + ran > all / 20 && ran > all / 100;
    assert!(cases.end - cases.start == 1 || is_deep, "{planned} planned, {ran} run of {all}");
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Makes a case, tries it on a thread of its own, and notes what was found.
fn examine(corpus: &Corpus, seed: u64, case: u64, findings: &Mutex<Findings>) {
    let mut random = Random::new(seed, case);
    let script: &Script = random.choice(&corpus.scripts);
    let text = mutate::mutated(script, corpus, &mut random);
    let (name, folder) = (script.name.clone(), script.folder.clone());
    let (sender, receiver) = mpsc::channel();
    let tried = text.clone();
    let started = Instant::now();
    std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(|| trial::trial(&tried, folder.as_deref(), case));
        let _ = sender.send(outcome.unwrap_or_else(|_| Err("it panics".to_owned())));
    });
    let outcome = receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("it hangs".to_owned()));
    let mut findings = findings.lock().expect("no panic under this lock");
    findings.slowest.push((started.elapsed(), case));
    match outcome {
        Ok(Outcome::Refused) => findings.refused += 1,
        Ok(Outcome::Planned) => findings.planned += 1,
        Ok(Outcome::Ran) => findings.ran += 1,
        Err(problem) => {
            findings.failures.push(format!("case {case} ({name}): {problem}\n{text}\n"));
        }
    }
}
