//! What is refused and why, restarts, modes, what is kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use thalweg::jobs::{RestartSettings, ResumeFrom, SnapshotReference};
use thalweg::pipeline::{
    Collect, JobObserver, JobOptions, Pipeline, PipelineJob, Window, count, maximum,
    run_with_restarts, sum,
};
use thalweg::rows::{RowPoll, RowSource};
use thalweg::{Error, JobControl, OrderContract, Result, RunOptions};
use thalweg_runtime::interleaving::Replay;

use super::cases::{CASES, Reading, read, readings, schema, write};
use super::gate::{Gate, PATIENCE};
use super::{folder, job_in, options, visible};

const EPOCH: OrderContract = OrderContract::Epoch;

/// Sums of tumbling windows over the first readings that the gate lets through.
fn sums(gate: &Arc<Gate>, folder: &Path) -> Result<Pipeline> {
    let pipeline = Pipeline::new();
    (CASES[0].build)(&pipeline, gate, &readings(), folder)?;
    Ok(pipeline)
}

/// A job that has read this many readings and runs.
fn begun(job: &JobOptions, rows: u64, folder: &Path) -> PipelineJob {
    let gate = Gate::closed();
    let running = sums(&gate, folder).expect("it is built");
    let running = running.start_job(job, options(EPOCH, 2)).expect("it starts");
    gate.open(rows);
    gate.await_held(&running.control());
    running
}

fn refused(pipeline: Result<Pipeline>, job: &JobOptions) -> Error {
    let started = pipeline.and_then(|pipeline| pipeline.start_job(job, options(EPOCH, 2)));
    started.err().expect("it is refused")
}

/// How many snapshots are kept.
fn kept(folder: &Path) -> usize {
    let snapshots = fs::read_dir(folder.join("state/job/snapshots")).expect("a folder").flatten();
    snapshots.filter(|entry| entry.path().join("manifest.json").exists()).count()
}

#[test]
fn one_run_has_a_job_at_a_time_until_it_is_given_up() {
    let folder = folder("lock");
    let job = job_in(&folder);
    let first = begun(&job, 100, &folder);
    let error = refused(sums(&Gate::closed(), &folder), &job);
    assert!(error.message().contains("holds the job directory"), "{error}");
    drop(first);
    let running = begun(&job, 100, &folder);
    running.control().cancel();
    running.wait().expect("it was cancelled");
}

#[test]
fn a_stopped_job_keeps_a_last_snapshot_and_says_where_it_resumes() {
    let folder = folder("stop");
    let mut job = job_in(&folder);
    let running = begun(&job, 300, &folder);
    assert!(running.notes().is_empty(), "{:?}", running.notes());
    running.control().stop();
    assert!(running.wait().expect("it stops").cancelled);
    assert_eq!(kept(&folder), 1);
    let rows = visible(&folder.join("out"));
    assert!(!rows.is_empty(), "what the last snapshot covers is visible");

    job.resume = ResumeFrom::Newest;
    let running = begun(&job, 0, &folder);
    let notes: Vec<String> = running.notes().iter().map(Error::to_string).collect();
    assert!(notes[0].contains("resumes from snapshot 1"), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("rows of state were restored")), "{notes:?}");
    drop(running);
    job.resume = ResumeFrom::Nothing;
    // What starts from scratch writes elsewhere.
    let running = begun(&job, 0, &folder.join("from-scratch"));
    let note = running.notes()[0].to_string();
    assert!(note.contains("starts from scratch") && note.contains("ResumeFrom::Newest"), "{note}");
}

#[test]
fn a_stop_that_drains_closes_windows() {
    let folder = folder("drain");
    let job = JobOptions { drains: true, ..job_in(&folder) };
    let running = begun(&job, 300, &folder);
    running.control().stop();
    running.wait().expect("it stops");
    assert_eq!(visible(&folder.join("out")), (CASES[0].expected)(&readings()[..300]));
}

#[test]
fn snapshots_that_do_not_fit_are_refused_by_the_names_of_operators() {
    let folder = folder("misfit");
    let mut job = job_in(&folder);
    let running = begun(&job, 300, &folder);
    running.take_snapshot().expect("it is kept");
    drop(running);
    job.resume = ResumeFrom::Newest;
    let other = || {
        let pipeline = Pipeline::new();
        let windows = read(&pipeline, &Gate::closed(), &readings())?
            .window(Window::tumbling(100), "ts")?
            .aggregate(vec![count(), sum("sensor"), maximum("sensor")])?;
        write(windows, &folder)?;
        Ok(pipeline)
    };
    let error = refused(other(), &job);
    assert!(error.message().contains("tumbling window"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("drop_state")), "{error:?}");
    let dropping = JobOptions { drop_state: true, ..job.clone() };
    let started = other().and_then(|other| other.start_job(&dropping, options(EPOCH, 2)));
    drop(started.expect("state that is dropped is not missed"));

    let error = sums(&Gate::closed(), &folder)
        .and_then(|pipeline| pipeline.start_job(&job, options(OrderContract::Arrival, 2)));
    let error = error.err().expect("another contract");
    assert!(error.message().contains("'arrival'"), "{error}");
    let replay = Replay { steps: [].into(), is_complete: true };
    let replaying = RunOptions { replay: Some(replay), ..options(EPOCH, 1) };
    let error = sums(&Gate::closed(), &folder).and_then(|p| p.start_job(&job, replaying)).err();
    assert!(error.expect("it is refused").message().contains("replay"));
    job.resume = ResumeFrom::Snapshot(SnapshotReference::Number(4711));
    let error = refused(sums(&Gate::closed(), &folder), &job);
    assert!(error.message().contains("4711"), "{error}");
}

/// Names are what state is found by: stages that are put in between change nothing.
#[test]
fn a_stage_that_is_put_in_keeps_the_state_behind_it() {
    let folder = folder("put-in");
    let mut job = job_in(&folder);
    let build = |gate: &Arc<Gate>, has_more: bool| -> Result<Pipeline> {
        let pipeline = Pipeline::new();
        let rows = read(&pipeline, gate, &readings())?;
        let kept = move |batch: &arrow_array::RecordBatch| Ok(vec![true; batch.num_rows()].into());
        let rows = if has_more { rows.filter("all", kept).shared() } else { rows };
        if has_more {
            rows.clone().write("more", Collect::new().sink());
        }
        let count = rows.rows::<Leveled>().singleton("count", |n: &mut i64, _, out| {
            *n += 1;
            out.emit(*n);
        });
        let column = thalweg::Column::new("n", thalweg::DataType::BigInt.not_null());
        let schema = thalweg::TableSchema::new(vec![column]);
        write(count.map("row", |n| Counted { n }).into_columns("columns", schema), &folder)?;
        Ok(pipeline)
    };
    let gate = Gate::closed();
    let running = build(&gate, false).and_then(|p| p.start_job(&job, options(EPOCH, 2)));
    let running = running.expect("it starts");
    gate.open(100);
    gate.await_held(&running.control());
    running.control().stop();
    running.wait().expect("it stops");
    job.resume = ResumeFrom::Newest;
    let gate = Gate::closed();
    gate.open(u64::MAX);
    let ran = build(&gate, true).and_then(|pipeline| pipeline.run_job(&job, options(EPOCH, 2)));
    ran.expect("it resumes");
    let expected: Vec<String> = (1..=readings().len()).map(|n| n.to_string()).collect();
    assert_eq!(visible(&folder.join("out")), expected);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Leveled {
    level: i64,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Counted {
    n: i64,
}

/// Rows that cannot be given again, or not from there.
struct Once(Option<&'static str>);

impl RowSource<i64> for Once {
    fn poll(&mut self, _: usize, _: &mut Vec<i64>) -> Result<RowPoll> {
        Ok(RowPoll::End)
    }
    fn position(&self) -> Option<String> {
        self.0.map(str::to_owned)
    }
}

#[test]
fn sources_that_cannot_resume_are_refused_by_name() {
    let folder = folder("once");
    let mut job = job_in(&folder);
    let of = |position| {
        let pipeline = Pipeline::new();
        pipeline.read_row_source("telegrams", Once(position)).for_each("drop", |_| Ok(()));
        Ok(pipeline)
    };
    let error = refused(of(None), &job);
    assert!(error.message().contains("'telegrams'") && error.is_plan_error(), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("position")), "{error:?}");

    // It reports positions, but cannot go back to one.
    let running = of(Some("here")).and_then(|p| p.start_job(&job, options(EPOCH, 1)));
    running.and_then(PipelineJob::wait).expect("it ends");
    let pending = |position| {
        let pipeline = Pipeline::new();
        let source = Silent(Once(position));
        pipeline.read_row_source("telegrams", source).for_each("drop", |_| Ok(()));
        pipeline
    };
    let running = pending(Some("here")).start_job(&job, options(EPOCH, 1)).expect("it starts");
    running.control().stop();
    running.wait().expect("it stops");
    job.resume = ResumeFrom::Newest;
    let error = refused(Ok(pending(Some("here"))), &job);
    assert!(error.to_string().contains("telegrams"), "{error}");
    assert!(error.message().contains("can't be given again"), "{error}");

    let stdin = [("connector", "filesystem"), ("format", "csv"), ("path", "-")];
    let pipeline = Pipeline::new();
    let lines = pipeline.read_table("typed", schema(), &stdin).expect("there is standard input");
    lines.write("results", Collect::new().sink());
    let error = refused(Ok(pipeline), &job);
    assert!(error.message().contains("typed"), "{error}");
}

/// Never ends and never gives.
struct Silent(Once);

impl RowSource<i64> for Silent {
    fn poll(&mut self, _: usize, _: &mut Vec<i64>) -> Result<RowPoll> {
        Ok(RowPoll::Pending)
    }
    fn position(&self) -> Option<String> {
        self.0.position()
    }
}

#[test]
fn names_that_two_stages_share_are_refused() {
    let folder = folder("names");
    let job = job_in(&folder);
    let build = |names: [&str; 2]| -> Result<Pipeline> {
        let pipeline = Pipeline::new();
        let rows = read(&pipeline, &Gate::closed(), &readings())?.shared();
        for (place, name) in names.into_iter().enumerate() {
            let windows = rows.clone().window(Window::tumbling(100), "ts")?;
            let windows = if name.is_empty() { windows } else { windows.named(name) };
            windows.aggregate(vec![count()])?.write(&place.to_string(), Collect::new().sink());
        }
        Ok(pipeline)
    };
    let error = refused(build(["", ""]), &job);
    assert!(error.message().contains("'tumbling window'"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("named")), "{error:?}");
    let started = build(["one", "two"]).and_then(|p| p.start_job(&job, options(EPOCH, 1)));
    drop(started.expect("they have names"));
    // Where none are taken it does not matter.
    let running = build(["", ""]).and_then(|pipeline| pipeline.start(options(EPOCH, 1)));
    running.expect("it starts").control().cancel();
}

/// Counts runs, and what it is notified of.
#[derive(Default)]
struct Watching {
    runs: u32,
    warnings: Vec<String>,
}

impl JobObserver for Watching {
    fn started(&mut self, _: &JobControl) {
        self.runs += 1;
    }
    fn restarting(&mut self, warning: &Error) {
        self.warnings.push(warning.to_string());
    }
}

/// A pipeline that fails at some rows, each time it comes to one for the first time.
fn failing(failures: &Arc<AtomicU32>, folder: &Path) -> Result<Pipeline> {
    let pipeline = Pipeline::new();
    let gate = Gate::closed();
    gate.open(u64::MAX);
    let failures = Arc::clone(failures);
    read(&pipeline, &gate, &readings())?
        .rows::<Leveled>()
        .singleton("count", move |n: &mut i64, _, out| {
            *n += 1;
            let fails_at = 150 * i64::from(failures.load(Ordering::SeqCst) + 1);
            if *n == fails_at && fails_at < 450 {
                failures.fetch_add(1, Ordering::SeqCst);
                return out.fail(Error::user("the line was cut"));
            }
            // Snapshots get a chance to be taken.
            std::thread::sleep(Duration::from_micros(300));
            out.emit(Counted { n: *n });
        })
        .into_columns("columns", {
            let column = thalweg::Column::new("n", thalweg::DataType::BigInt.not_null());
            thalweg::TableSchema::new(vec![column])
        })
        .write_table(
            "lines",
            &[
                ("connector", "filesystem"),
                ("format", "csv"),
                ("path", &format!("{}/", folder.join("out").display())),
            ],
        )?;
    Ok(pipeline)
}

#[test]
fn a_job_that_fails_is_built_again_and_gives_each_row_once() {
    let folder = folder("restarts");
    let mut job = job_in(&folder);
    job.snapshots.interval = Some(Duration::from_millis(5));
    job.restarts = RestartSettings::FixedDelay { attempts: 2, delay: Duration::from_millis(1) };
    let failures = Arc::default();
    let mut watching = Watching::default();
    let ran =
        run_with_restarts(&job, &options(EPOCH, 2), &mut watching, || failing(&failures, &folder));
    ran.expect("the third run ends");
    assert_eq!((watching.runs, watching.warnings.len()), (3, 2), "{:?}", watching.warnings);
    assert!(watching.warnings[0].contains("the line was cut"), "{:?}", watching.warnings);
    let expected: Vec<String> = (1..=readings().len()).map(|n| n.to_string()).collect();
    assert_eq!(visible(&folder.join("out")), expected);

    // One attempt fewer is not enough.
    let folder = super::folder("restarts-fewer");
    let mut job = JobOptions { restarts: job.restarts, ..job_in(&folder) };
    job.restarts = RestartSettings::FixedDelay { attempts: 1, delay: Duration::from_millis(1) };
    let failures = Arc::default();
    let ran = run_with_restarts(&job, &options(EPOCH, 2), &mut (), || failing(&failures, &folder));
    assert!(ran.expect_err("it fails").message().contains("the line was cut"));
}

#[test]
fn at_least_once_loses_nothing_and_writes_at_once() {
    let folder = folder("at-least-once");
    let mut job = job_in(&folder);
    job.snapshots.exactly_once = false;
    job.resume = ResumeFrom::Newest;
    let running = begun(&job, 300, &folder);
    running.take_snapshot().expect("it is kept");
    drop(running);
    let gate = Gate::closed();
    gate.open(u64::MAX);
    let ran = sums(&gate, &folder).and_then(|p| p.run_job(&job, options(EPOCH, 3)));
    ran.expect("it ends");
    let counted = |rows: Vec<String>| {
        rows.into_iter().fold(BTreeMap::<String, usize>::new(), |mut counts, row| {
            *counts.entry(row).or_default() += 1;
            counts
        })
    };
    let got = counted(visible(&folder.join("out")));
    let expected = counted((CASES[0].expected)(&readings()));
    assert!(got.keys().eq(expected.keys()), "{got:?}");
    assert!(expected.iter().all(|(row, &count)| got[row] >= count), "{got:?}");
}

#[test]
fn periodic_snapshots_go_and_those_that_were_asked_for_stay() {
    let folder = folder("retained");
    let mut job = job_in(&folder);
    job.snapshots.interval = Some(Duration::from_millis(2));
    job.snapshots.retained = 2;
    let running = begun(&job, 100, &folder);
    let asked = running.take_snapshot().expect("it is kept");
    let begun = Instant::now();
    let newest = || {
        let metrics = running.control().metrics().snapshots.expect("it takes snapshots");
        assert!(begun.elapsed() < PATIENCE, "{metrics:?}");
        metrics.number.expect("there is one")
    };
    while newest() < asked + 5 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(running);
    let path = folder.join(format!("state/job/snapshots/{asked:010}/manifest.json"));
    assert!(path.exists(), "the one that was asked for stays");
    assert!((2..=4).contains(&kept(&folder)), "{} are kept", kept(&folder));
}

/// Rows of files into files, by the connectors of SQL.
#[test]
fn files_are_read_on_from_where_the_last_snapshot_stands() {
    let folder = folder("files");
    let text = |readings: &[Reading]| {
        let line = |r: &Reading| {
            let (s, ms) = (r.time_ms / 1000, r.time_ms % 1000);
            format!("2026-01-01 00:00:{s:02}.{ms:03},{},{}\n", r.sensor, r.level)
        };
        readings.iter().map(line).collect::<String>()
    };
    let readings = readings();
    let add = |name: &str, readings: &[Reading]| {
        // Files are there at once.
        fs::write(folder.join("new"), text(readings)).expect("a file");
        fs::create_dir_all(folder.join("in")).expect("a folder");
        fs::rename(folder.join("new"), folder.join("in").join(name)).expect("a file");
    };
    let path = format!("{}/", folder.join("in").display());
    let build = || -> Result<Pipeline> {
        let pipeline = Pipeline::new();
        let files = [
            ("connector", "filesystem"),
            ("format", "csv"),
            ("path", path.as_str()),
            ("source.monitor-interval", "5 ms"),
        ];
        let windows = pipeline
            .read_table("readings", schema(), &files)?
            .watermark("ts", 0)?
            .window(Window::tumbling(100), "ts")?
            .aggregate(vec![count(), sum("level"), maximum("sensor")])?;
        let columns = thalweg::TableSchema::new(windows.schema().columns[..3].to_vec());
        let windows = windows.map("columns", columns, |batch| Ok(batch.project(&[0, 1, 2])?));
        write(windows, &folder)?;
        Ok(pipeline)
    };
    let job = JobOptions { resume: ResumeFrom::Newest, drains: true, ..job_in(&folder) };
    let start = |workers| {
        let options = options(OrderContract::Arrival, workers);
        build().and_then(|pipeline| pipeline.start_job(&job, options)).expect("it starts")
    };
    let await_rows = |running: &PipelineJob, rows: u64| {
        let begun = Instant::now();
        while running.control().metrics().rows_in() < rows {
            assert!(begun.elapsed() < PATIENCE, "not all rows are read");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    add("1.csv", &readings[..250]);
    let running = start(2);
    await_rows(&running, 250);
    running.take_snapshot().expect("it is kept");
    add("2.csv", &readings[250..500]);
    await_rows(&running, 500);
    drop(running);
    let running = start(3);
    add("3.csv", &readings[500..]);
    // Those of the first file are not read again.
    await_rows(&running, 350);
    running.control().stop();
    assert_eq!(running.wait().expect("it stops").metrics.rows_in(), 350);
    assert_eq!(visible(&folder.join("out")), (CASES[0].expected)(&readings));
}
