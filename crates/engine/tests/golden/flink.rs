//! `validate --flink` compared with what a real Flink 2.3.0 said of the same scripts
//! (`tests/flink/answers.jsonl`; see the README there).
//!
//! A script counts once: Flink refuses it or not, and the check finds something or not. Scripts
//! that Thalweg refuses are left out, for there is nothing to predict.
//!
//! `THALWEG_FLINK_ANSWERS=FILE` compares with other answers and prints all differences.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use thalweg::session::{Session, SessionOptions};
use thalweg_plan::flink_check::{FlinkCluster, Severity};

/// Of the refusals that Flink made, the share that may be missed.
const MISSES_MAX: f64 = 0.01;

#[derive(Default)]
struct Tally {
    equal: usize,
    refused_here: usize,
    false_alarms: Vec<String>,
    misses: Vec<String>,
    predicted: usize,
}

#[test]
fn the_check_predicts_what_a_real_flink_refuses_and_invents_nothing() {
    let given = std::env::var("THALWEG_FLINK_ANSWERS").ok();
    let file = given.as_ref().map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/flink/answers.jsonl"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(&file).expect("answers are part of the repository");
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let defined = |name: &str| {
        let found = lines.iter().find(|line| line["define"] == name);
        found.and_then(|line| line["sql"].as_str()).unwrap_or_default()
    };
    for answer in lines.iter().filter(|line| line["define"].is_null()) {
        let before = answer["before"].as_str().map(defined).unwrap_or_default();
        let name = answer["name"].as_str().expect("a name");
        let family = name.split(['/', ' ']).next().unwrap_or(name);
        compare(answer, before, tallies.entry(family.to_owned()).or_default());
    }
    let (table, all) = summary(&tallies);
    println!("{table}");
    let refused = all.predicted + all.misses.len();
    let is_missed = all.misses.len() as f64 > MISSES_MAX * refused as f64;
    if given.is_none() {
        assert!(all.false_alarms.is_empty() && !is_missed, "{table}{}", differences(&all));
    } else {
        println!("{}", differences(&all));
    }
}

fn compare(answer: &serde_json::Value, before: &str, tally: &mut Tally) {
    let sql = &format!("{before}{}", answer["sql"].as_str().expect("a text"));
    let options = SessionOptions {
        allowed_roots: vec![PathBuf::from("/")],
        base_dir: PathBuf::from("/data"),
        ..SessionOptions::default()
    };
    let mut session = Session::new(options).expect("a session");
    if let Err(_refused) = session.validate(sql) {
        tally.refused_here += 1;
        return;
    }
    let found = session.flink_findings(sql, &FlinkCluster::default()).expect("it was parsed");
    let found: Vec<String> = found
        .into_iter()
        .filter(|finding| finding.severity == Severity::Refused)
        .map(|finding| finding.message)
        // EXPLAIN does not look at paths: whether they can be read shows when the job runs.
        .filter(|message| !message.contains("relative path") && !message.contains("literally"))
        .filter(|message| !message.contains("wants a scheme"))
        .collect();
    let reasons = answer["flink"].as_array().expect("reasons");
    let statement = || sql.lines().last().unwrap_or_default();
    match (reasons.first(), found.first()) {
        (None, None) => tally.equal += 1,
        (Some(_), Some(_)) => {
            tally.equal += 1;
            tally.predicted += 1;
        }
        (None, Some(message)) => {
            tally.false_alarms.push(format!("{}: {}\n    {message}", answer["name"], statement()));
        }
        (Some(reason), None) => {
            tally.misses.push(format!("{}: {}\n    {reason}", answer["name"], statement()));
        }
    }
}

fn summary(tallies: &BTreeMap<String, Tally>) -> (String, Tally) {
    let mut all = Tally::default();
    let mut table =
        "family | equal | of them refused | false alarms | missed | refused here\n".to_owned();
    for (family, tally) in tallies {
        line(&mut table, family, tally);
        all.equal += tally.equal;
        all.refused_here += tally.refused_here;
        all.predicted += tally.predicted;
        all.false_alarms.extend(tally.false_alarms.iter().cloned());
        all.misses.extend(tally.misses.iter().cloned());
    }
    line(&mut table, "all", &all);
    (table, all)
}

fn line(table: &mut String, name: &str, tally: &Tally) {
    let _ = writeln!(
        table,
        "{name} | {} | {} | {} | {} | {}",
        tally.equal,
        tally.predicted,
        tally.false_alarms.len(),
        tally.misses.len(),
        tally.refused_here
    );
}

fn differences(tally: &Tally) -> String {
    let mut text = String::new();
    for (what, found) in [("false alarms", &tally.false_alarms), ("missed", &tally.misses)] {
        let _ = writeln!(text, "{what}:");
        found.iter().for_each(|one| {
            let _ = writeln!(text, "  {one}");
        });
    }
    text
}
