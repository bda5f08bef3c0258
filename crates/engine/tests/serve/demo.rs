//! `thalweg demo`, as a user tries it who has just got the program.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::support::{PATIENCE, Place};

#[test]
fn a_demo_shows_late_rows_and_who_is_silent_and_leaves_nothing() {
    let place = Place::new("demo");
    let folder = place.folder.join("demo");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments);
        command
    };
    let done = |arguments: &[&str]| {
        let output = command(arguments).output().expect("running thalweg");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
    };
    let dir = folder.display().to_string();
    let mut demo = command(&["demo", "--no-open", "--dir", &dir])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starting a demo");
    let mut lines = BufReader::new(demo.stdout.take().expect("piped")).lines();
    let page = lines.find_map(|line| line.ok()?.strip_prefix("page: ").map(str::to_owned));
    assert!(
        page.is_some_and(|page| page.starts_with("http://127.0.0.1:") && page.contains("#token="))
    );
    std::thread::spawn(move || lines.for_each(drop));
    let begun = Instant::now();
    let job = loop {
        let (status, text) = done(&["describe", "flights", "--json", "--data-dir", &dir]);
        assert_eq!(status, Some(0), "{text}");
        let job: Value = serde_json::from_str(&text).expect("JSON");
        if job["late_rows"].as_u64() > Some(0) && job["rows_out"].as_u64() > Some(0) {
            break job;
        }
        assert!(begun.elapsed() < PATIENCE, "{job}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert_eq!(job["state"], "running", "{job}");
    let (status, text) = done(&["demo", "wait", "20", "--dir", &dir]);
    assert!(status == Some(0) && text.contains("waits 20 s"), "{text}");
    let (status, text) = done(&["demo", "why", "--for", "3", "--dir", &dir]);
    assert!(
        status == Some(0) && text.contains("jfk is silent") && text.contains("flights"),
        "{text}"
    );
    let (status, text) = done(&["demo", "--no-open", "--dir", &dir]);
    assert!(status == Some(2) && text.contains("is there"), "{text}");
    let id = demo.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert!(demo.wait().expect("it ends").success());
    assert!(!folder.exists(), "nothing is left");
    let (status, text) = done(&["demo", "why", "--dir", &dir]);
    assert!(status == Some(2) && text.contains("no demo runs"), "{text}");
}
