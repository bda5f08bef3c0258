//! The golden cases in jobs that take snapshots all the while, are killed, and resume with other
//! workers and bundles: each row of the answer is there once, in the ordered contracts in its
//! place.
//!
//! A round is drawn by a seed: the rows after which each source holds still, what is lost behind
//! the snapshot, whether the job dies between a manifest and its commit, how often.
//! `THALWEG_RESTORED_SEEDS=N` takes that many rounds of every case in every contract, instead of a
//! sample with a seed that is drawn and printed; `THALWEG_RESTORED_FIRST_SEED` says where to begin,
//! `THALWEG_RESTORED_CASE` keeps to cases with that in their name. A round that fails is repeated
//! by its case and its seed.

use std::fs;
use std::path::{Path, PathBuf};

use chrono_tz::Tz;
use thalweg::jobs::ResumeFrom;
use thalweg::session::{Observer, Session, SessionOptions};
use thalweg::{Error, Result, Sink};
use thalweg_connectors::output::QuerySink;
use thalweg_core::shim::{Clock, SplitMix64, SystemClock, mix64};
use thalweg_plan::ResultTable;

use super::killed::outside::{Outside, Text};
use super::killed::{AtHold, Kill, Run, await_snapshot, nothing, run};
use super::ordered::sorted_by_time;
use super::{APPEND, CHANGELOG, FINAL_STATE, SEQUENCE, TWO_INPUTS, copy_of, read, remove};

const ORDERS: [&str; 3] = ["epoch", "arrival", "event_time"];
/// Rounds of a test that is not asked for more.
const SAMPLE: usize = 40;

/// Compares what a job has written with Flink's answer.
type Compare = fn(&str, &str, &[u8]);

/// How the answer of each case is compared, one by one and as what is left.
fn cases() -> Vec<(&'static str, Compare, Compare)> {
    let lists: [(&[&str], Compare, Compare); 5] = [
        (APPEND, super::compare_append, super::compare_append),
        (SEQUENCE, super::compare_sequence, super::compare_sequence),
        (FINAL_STATE, super::compare_final_state, super::compare_final_state),
        (CHANGELOG, super::compare_changelog, super::compare_left),
        (TWO_INPUTS, super::compare_left, super::compare_left),
    ];
    let of_list = |(names, in_arrival, in_epoch): (&'static [&'static str], Compare, Compare)| {
        names.iter().map(move |&name| (name, in_arrival, in_epoch))
    };
    lists.into_iter().flat_map(of_list).collect()
}

#[test]
fn cases_resume_after_kills() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wanted = std::env::var("THALWEG_RESTORED_CASE").unwrap_or_default();
    let mut cases = cases();
    cases.retain(|(name, ..)| name.contains(&wanted));
    let all = cases.iter().flat_map(|case| ORDERS.map(|order| (case, order)));
    let all: Vec<_> = all.collect();
    let first = setting("THALWEG_RESTORED_FIRST_SEED");
    let rounds: Vec<_> = match setting("THALWEG_RESTORED_SEEDS") {
        Some(seeds) => {
            let seeds = first.unwrap_or(1)..first.unwrap_or(1) + seeds;
            seeds
                .flat_map(|seed| all.iter().map(move |&(case, order)| (case, order, seed)))
                .collect()
        }
        None => {
            let seed = first.unwrap_or_else(|| SystemClock::new().wall_ms() as u64 % 1_000_000);
            println!("THALWEG_RESTORED_FIRST_SEED={seed}");
            let mut random = SplitMix64::new(seed);
            let mut draw = |_| (all[random.below(all.len() as u64) as usize], random.next_u64());
            (0..SAMPLE.min(all.len()))
                .map(&mut draw)
                .map(|((case, order), seed)| (case, order, seed))
                .collect()
        }
    };
    let (mut kills, mut wrong) = (0, Vec::new());
    for &(case, order, seed) in &rounds {
        match std::panic::catch_unwind(|| check(case, order, seed)) {
            Ok(own) => kills += own,
            Err(_) => wrong.push(format!("{} {order} {seed}", case.0)),
        }
    }
    println!("{} rounds, {kills} kills", rounds.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rounds.len(), wrong.join("\n"));
}

/// One job, killed as the seed says. How often it was.
fn check(case: &(&str, Compare, Compare), order: &str, seed: u64) -> usize {
    let &(name, in_arrival, in_epoch) = case;
    let what = format!("restored, order {order}, seed {seed}");
    let folder = copy_of(name, &format!("restored-{order}"));
    let query = read(&folder.join("query.sql"));
    let script = match (order, sorted_by_time(&query)) {
        ("event_time", None) => {
            remove(&folder);
            return 0;
        }
        ("event_time", Some(sorted)) => sorted,
        _ => query,
    };
    let job =
        Job::prepare(&folder, order, &script).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
    let (got, kills) = job.killed(name, seed).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
    match order {
        "epoch" => in_epoch(name, &what, &got),
        "arrival" => in_arrival(name, &what, &got),
        _ => {}
    }
    let has_sequence = order == "event_time" || order == "arrival" && !TWO_INPUTS.contains(&name);
    assert!(
        !has_sequence || got == job.reference,
        "{name}, {what}: got\n{}\nwithout kills\n{}",
        String::from_utf8_lossy(&got),
        String::from_utf8_lossy(&job.reference)
    );
    remove(&folder);
    kills
}

/// A case as a job that writes its answer to a table.
struct Job {
    folder: PathBuf,
    order: String,
    script: String,
    table: ResultTable,
    zone: Tz,
    /// What the query shows when it runs through.
    reference: Vec<u8>,
    /// The rows of each input.
    rows: Vec<u64>,
}

impl Job {
    fn prepare(folder: &Path, order: &str, query: &str) -> Result<Job> {
        let mut session = Session::new(SessionOptions {
            base_dir: folder.to_path_buf(),
            allowed_roots: vec![folder.to_path_buf()],
            settings: vec![("pipeline.order".to_owned(), order.to_owned())],
            workers: Some(1),
            ..SessionOptions::default()
        })?;
        let query = query.trim().trim_end_matches(';');
        let (tables, select) = query.rsplit_once(";\n").unwrap_or(("", query));
        session.execute(tables)?;
        let columns = session.result_schema(select)?.columns;
        let columns = columns.iter().map(|c| format!("`{}` {}", c.name, c.column_type.data_type));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let script = format!(
            "{tables};\nCREATE TABLE answer ({columns}) WITH ('connector' = 'blackhole');\n\
             INSERT INTO answer {select};"
        );
        let mut shown = Shown::default();
        session.run_script(select, &mut shown)?;
        let (table, zone) = shown.table.expect("a query has a result");
        let (folder, order) = (folder.to_path_buf(), order.to_owned());
        let count = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            Some(text.lines().count() as u64)
        };
        let rows = ["in.csv", "in2.csv"].iter().filter_map(|name| count(name)).collect();
        Ok(Job { script, table, zone, rows, order, reference: shown.text.bytes(), folder })
    }

    /// Runs the job until it ends, killed now and then. What is visible in the end, and how often
    /// it was killed.
    fn killed(&self, name: &str, seed: u64) -> Result<(Vec<u8>, usize)> {
        let mut random = SplitMix64::new(mix64(seed));
        let outside = Outside::default();
        let state = format!("memory://{name}-{}-{seed}", self.order);
        let kills = random.below(4) as usize;
        for kill in 0..=kills {
            let is_last = kill == kills;
            let own = Run {
                folder: self.folder.clone(),
                settings: self.settings(&state, &mut random),
                workers: 1 + random.below(4) as usize,
                resume: ResumeFrom::Newest,
                overwrite: false,
                kill: (!is_last).then(|| Kill::draw(&mut random, &self.rows)),
            };
            let loses = random.below(3) == 0;
            let at_kill = outside.clone();
            let at_hold: AtHold = Box::new(move |_, control| {
                await_snapshot(control);
                if loses {
                    at_kill.lose_commits();
                    await_snapshot(control);
                }
            });
            let at_hold = if is_last { nothing() } else { at_hold };
            let mut wrap = |sink: Box<dyn Sink>| outside.sink(sink.name());
            let has_ended = run(&self.script, own, &mut wrap, at_hold)?;
            if has_ended && !is_last && !loses {
                return Ok((outside.text(&self.table, self.zone), kill));
            }
        }
        Ok((outside.text(&self.table, self.zone), kills))
    }

    fn settings(&self, state: &str, random: &mut SplitMix64) -> Vec<(&'static str, String)> {
        let bundle_rows = [1, 2, 7, 65_536][random.below(4) as usize];
        vec![
            ("pipeline.order", self.order.clone()),
            ("pipeline.bundle-rows-max", bundle_rows.to_string()),
            ("execution.checkpointing.dir", state.to_owned()),
            ("execution.checkpointing.interval", "1 ms".to_owned()),
            ("execution.checkpointing.incremental", (random.below(2) == 0).to_string()),
        ]
    }
}

/// Takes what a query shows.
#[derive(Default)]
struct Shown {
    text: Text,
    table: Option<(ResultTable, Tz)>,
}

impl Observer for Shown {
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>> {
        let writer = self.text.writer(table, zone);
        let shown = ResultTable { schema: table.schema.clone(), has_updates: table.has_updates };
        self.table = Some((shown, zone));
        Ok(Box::new(QuerySink::new("result", writer)))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Err(Error::plan("no case explains"))
    }
}
