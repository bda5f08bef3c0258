//! A server that is killed at random moments: all of its jobs continue, and their output is exact.

use std::time::{Duration, Instant};

use thalweg_core::shim::SplitMix64;

use super::support::{PATIENCE, Place, numbers_job};

/// Kills a server with this many jobs so often, and looks at what they have written in the end.
fn killed(test: &str, jobs: u64, kills: u64) {
    let place = Place::new(test);
    // A kill says nothing about the job that was starting.
    let options =
        ["-o", "snapshots.interval=50 ms", "-o", "start.deaths-max=0", "-o", "start.concurrency=8"];
    let names: Vec<String> = (0..jobs).map(|job| format!("job-{job}")).collect();
    let rows = |job: u64| 1_000 + 100 * job + 20 * kills;
    let server = place.serve(&options);
    for (job, name) in (0..).zip(&names) {
        let sql = numbers_job(&format!("{name}.csv"), rows(job), 500);
        let (status, text) = server.submit(name, &sql, &[]);
        assert_eq!(status, 0, "{text}");
    }
    let mut random = SplitMix64::new(7);
    let mut server = server;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(50 + random.below(800)));
        server.kill();
        server = place.serve(&options);
    }
    let begun = Instant::now();
    for (job, name) in (0..).zip(&names) {
        while server.job(name)["state"] != "finished" {
            assert!(begun.elapsed() < PATIENCE * 5, "{}", server.job(name));
            std::thread::sleep(Duration::from_millis(100));
        }
        let expected: Vec<u64> = (1..=rows(job)).collect();
        assert_eq!(place.numbers(&format!("{name}.csv")), expected, "{name}");
    }
    server.terminate();
}

#[test]
fn jobs_continue_after_kills_and_write_each_row_once() {
    killed("kills", 4, 5);
}

#[test]
#[ignore = "half an hour: `make serve-test`"]
fn twenty_jobs_survive_a_thousand_kills() {
    killed("thousand-kills", 20, 1_000);
}
