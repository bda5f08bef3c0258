//! `examples/postgres-view` runs as its page says.

use std::path::Path;
use std::process::Command;

use super::server::Server;

#[test]
fn the_example_runs() {
    let Some(server) = Server::start() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/postgres-view");
    let run = Command::new("bash")
        .arg(folder.join("run.sh"))
        .env("THALWEG", env!("CARGO_BIN_EXE_thalweg"))
        .env("WORK", server.folder("example"))
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("7|cy|silver|9.75"), "{said}");
}
