//! All cases that are in no list of their own: each runs streaming, one worker; streaming in
//! contract `arrival`, four workers; and in batch mode, three workers. How the answer is compared
//! follows from what INDEX.tsv says of the case and from its query.
//!
//! `tests/golden/known.tsv` names the cases that differ: in which runs (`all`, `streaming` or
//! `batch`), and why. One that does not differ any more must leave it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{copy_of, expected_file, folders, golden_dir, read, remove, thalweg};

/// Workers and settings of each run.
const RUNS: [(&str, &[&str]); 3] = [("1", &[]), ("4", ARRIVAL), ("3", &[BATCH])];
const ARRIVAL: &[&str] = &["pipeline.order=arrival", "pipeline.order.allow-nondeterministic=true"];
const BATCH: &str = "execution.runtime-mode=batch";

/// The cases that are in no list, with what INDEX.tsv calls them.
fn cases() -> BTreeMap<String, String> {
    let listed = super::listed();
    let index = read(&golden_dir().join("INDEX.tsv"));
    let kinds: BTreeMap<&str, &str> = index
        .lines()
        .filter_map(|line| {
            let mut columns = line.split('\t');
            Some((columns.next()?, columns.next()?))
        })
        .collect();
    let present = folders(&golden_dir()).into_iter();
    let rest = present.filter(|case| case != "differences" && !listed.contains(&case.as_str()));
    rest.map(|case| {
        let kind = kinds.get(case.as_str()).unwrap_or_else(|| panic!("{case} is not in INDEX.tsv"));
        (case.clone(), (*kind).to_owned())
    })
    .collect()
}

/// A case that differs.
struct Difference {
    case: String,
    /// `all`, `streaming` or `batch`; `types` where results have other types alone, which the
    /// planner's tests compare.
    runs: String,
    reason: String,
}

fn known() -> Vec<Difference> {
    let text = read(&golden_dir().join("known.tsv"));
    let difference = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [case, runs, reason] = columns[..] else { panic!("known.tsv: '{line}'") };
        let [case, runs, reason] = [case, runs, reason].map(str::to_owned);
        Difference { case, runs, reason }
    };
    text.lines().map(difference).collect()
}

/// True for a run of a case that differs.
fn is_known(known: &[Difference], case: &str, is_batch: bool) -> bool {
    let run = if is_batch { "batch" } else { "streaming" };
    known.iter().any(|one| one.case == case && (one.runs == "all" || one.runs == run))
}

#[test]
fn every_other_answer_is_flinks() {
    let (cases, known) = (cases(), known());
    let wrong = Mutex::new(Vec::new());
    let names: Vec<(&String, &String)> = cases.iter().collect();
    let next = AtomicUsize::new(0);
    let check_run = |case: &str, kind: &str, run: (&str, &[&str])| {
        let is_known = is_known(&known, case, run.1.contains(&BATCH));
        match (catch_unwind(AssertUnwindSafe(|| check(case, kind, run))), is_known) {
            (Ok(_), false) | (Err(_), true) | (Ok(false), true) => None,
            (Ok(true), true) => Some("is equal: take it out of known.tsv".to_owned()),
            (Err(panic), false) => Some(message(panic)),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((case, kind)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = RUNS.into_iter().find_map(|run| check_run(case, kind, run));
                    let mut wrong = wrong.lock().expect("no panic here");
                    wrong.extend(found.map(|found| format!("{case}: {found}")));
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic here");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn every_known_difference_is_of_a_case_and_has_a_reason() {
    let cases = cases();
    for Difference { case, runs, reason } in known() {
        assert!(cases.contains_key(&case), "no case {case}, or it is in a list of its own");
        assert!(
            ["all", "streaming", "batch", "types"].contains(&&*runs),
            "{case}: there are no runs {runs}"
        );
        assert!(reason.len() > 10, "{case}: no reason");
    }
}

/// Runs a case once; false if Flink has no answer to compare with.
fn check(case: &str, kind: &str, (workers, settings): (&str, &[&str])) -> bool {
    let is_batch = settings.contains(&BATCH);
    // Where Flink refuses in batch mode what works here, there is nothing to compare with.
    if is_batch && !expected_file(case, "expected_batch.csv").is_file() {
        return false;
    }
    let setup = format!("whole {workers} workers");
    let folder = copy_of(case, &setup);
    let mut options = vec!["--workers", workers];
    settings.iter().for_each(|setting| options.extend(["--set", *setting]));
    let output = thalweg(&folder.join("query.sql"), &options);
    remove(&folder);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("internal error") && !stderr.contains("panicked"), "{stderr}");
    if kind == "error" {
        assert!(!output.status.success(), "it runs, and Flink refuses it");
        return true;
    }
    assert!(output.status.success(), "{stderr}");
    let has_changes = output.stdout.starts_with(b"op,");
    match kind {
        _ if is_batch => super::batch::compare(case, &setup, &output.stdout),
        "append" if !has_changes => super::compare_append(case, &setup, &output.stdout),
        "changelog" if workers == "4" && has_one_sequence(case) => {
            super::compare_changelog(case, &setup, &output.stdout);
        }
        _ => super::compare_left(case, &setup, &output.stdout),
    }
    true
}

/// True for a query whose changes come in one sequence: it reads one table once, and gathers
/// neither rows for a mini-batch nor the first rows of an input that ends.
fn has_one_sequence(case: &str) -> bool {
    let text = read(&golden_dir().join(case).join("query.sql")).to_uppercase();
    let query = text.trim_end().trim_end_matches(';').rsplit(";\n").next().unwrap_or_default();
    let tables = query.matches("FROM ").count() + query.matches("JOIN ").count();
    let others = ["CREATE VIEW", "MINI-BATCH", "LIMIT", "FETCH"];
    tables == 1 && !others.iter().any(|word| text.contains(word))
}
