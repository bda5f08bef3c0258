//! What packages install around the server: its unit of systemd and its file of options.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{PATIENCE, Place};

fn packaged(name: &str) -> String {
    let path = deploy().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// What `serve --print-config` prints for these arguments.
fn configuration(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let output = command.arg("serve").args(arguments).arg("--print-config").output();
    let output = output.expect("running thalweg");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_server_reports_to_the_service_manager_when_it_is_ready_and_when_it_stops() {
    let place = Place::new("notified");
    let socket = place.folder.join("notify.sock");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut state = [0; 512];
    let mut next = || {
        let length = manager.recv(&mut state).expect("a state in time");
        String::from_utf8_lossy(&state[..length]).into_owned()
    };
    let mut running = place.serve_with(&["--hold"], &[("NOTIFY_SOCKET", &socket)]);
    assert!(next().starts_with("READY=1\n"));
    let process = running.child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &process]).status();
    assert!(killed.expect("running kill").success());
    assert!(next().starts_with("STOPPING=1\n"));
    assert!(running.child.wait().expect("ends").success());
}

#[test]
fn the_unit_starts_the_server_with_a_command_that_it_takes() {
    let unit = packaged("systemd/thalweg.service");
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/thalweg serve "));
    let words: Vec<String> = start.expect("ExecStart").split_whitespace().map(local).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert!(configuration(&words).contains("listen"), "{words:?}");
    assert!(words.join(" ").contains("--data-dir /var/lib/thalweg"), "{words:?}");
    assert!(unit.lines().any(|line| line == "StateDirectory=thalweg"), "{unit}");
}

/// Files are where the sources have them, instead of where packages put them.
fn local(word: &str) -> String {
    match word.strip_prefix("/etc/thalweg/") {
        Some(name) => deploy().join("packages").join(name).display().to_string(),
        None => word.to_owned(),
    }
}

#[test]
fn the_packaged_file_of_options_lists_the_defaults() {
    let place = Place::new("defaults");
    let data = place.folder.to_str().expect("UTF-8");
    let text = packaged("packages/server.toml");
    let shown: String = text
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    assert!(shown.lines().filter(|line| line.contains(" = ")).count() > 5, "{shown}");
    let file = place.folder.join("shown.toml");
    fs::write(&file, shown).expect("writing a file");
    let values = |config: &str| -> Vec<Vec<String>> {
        let text = configuration(&["--data-dir", data, "--config", config]);
        let words =
            |line: &str| line.split("  ").map(str::trim).map(str::to_owned).take(2).collect();
        text.lines().map(words).collect()
    };
    let untouched = deploy().join("packages/server.toml");
    let defaults = values(untouched.to_str().expect("UTF-8"));
    assert_eq!(values(file.to_str().expect("UTF-8")), defaults);
}
