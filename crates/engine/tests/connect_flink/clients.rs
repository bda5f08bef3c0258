//! Flink's own clients against a server of ours (`tests/services/flink-clients`), unmodified.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Folder;
use super::services::text;

fn clients(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    match name {
        "" => own.join("../../tests/services/flink-clients"),
        name => own.join("tests/connect_flink/clients").join(name),
    }
}

/// A server with a gateway, in a folder of its own.
struct Server {
    child: Child,
    gateway: String,
    folder: Folder,
}

impl Server {
    fn start() -> Server {
        let folder = Folder::new("gateway");
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["serve", "--listen", "127.0.0.1:0", "-o", "workers=2", "--data-dir"]);
        command.arg(&folder.0).args(["-o", "flink-gateway.listen=127.0.0.1:0"]);
        command.args(["-o", "flink-gateway.trust-loopback=true"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let gateway = loop {
            let line = lines.next().expect("the server runs").expect("text");
            if let Some((_, address)) = line.split_once("clients of Flink: http://") {
                break address.to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, gateway, folder }
    }

    /// What a client prints.
    fn ask(&self, arguments: &[&str]) -> String {
        let port = self.gateway.rsplit_once(':').map_or("", |(_, port)| port);
        let home = self.folder.0.join("home");
        std::fs::create_dir_all(home.join(".dbt")).expect("a folder");
        let mut command = Command::new(clients(""));
        let cache = std::env::var("HOME").unwrap_or_default() + "/.cache/thalweg-services";
        let cache = std::env::var("THALWEG_SERVICES").unwrap_or(cache);
        command.env("THALWEG_SERVICES", cache).env("GATEWAY_PORT", port);
        // dbt keeps its session there.
        if arguments[0] == "dbt" {
            command.env("HOME", &home);
        }
        let output = command.args(arguments).output().expect("it runs");
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    }

    /// The lines of an output, once they are these.
    fn await_lines(&self, name: &str, expected: &[&str]) {
        let begun = Instant::now();
        loop {
            let file = std::fs::read_to_string(self.folder.0.join("files").join(name));
            let file = file.unwrap_or_default();
            let mut lines: Vec<&str> = file.lines().collect();
            lines.sort_unstable();
            if lines == expected {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{name}: {lines:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs Flink's clients: make connect-test"]
fn flinks_own_clients_work_against_the_gateway() {
    let installed = Command::new(clients("")).arg("install").output().expect("it runs");
    if installed.status.code() == Some(3) {
        let why = text(&installed.stderr);
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        println!("SKIPPED: {why}");
        return;
    }
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let server = Server::start();
    sql_client(&server);
    jdbc(&server);
    dbt(&server);
}

fn sql_client(server: &Server) {
    let endpoint = format!("http://{}", server.gateway);
    let file = clients("session.sql").display().to_string();
    let said = server.ask(&["sql-client", "gateway", "--endpoint", &endpoint, "-f", &file]);
    for expected in [
        "Execute statement succeeded.",
        "|        snk |",
        "|   id |  INT | FALSE |",
        "| +I |           3 |                    1 |",
        "Received a total of 3 rows",
        "Complete execution of the SQL update statement.",
        "| insert-into-snk | FINISHED |",
        "org.apache.flink.table.api.ValidationException: From line 1, column 8 to line 1, column 11: there is no column 'nope'",
    ] {
        assert!(said.contains(expected), "no '{expected}' in: {said}");
    }
    server.await_lines("sql-client.csv", &["1", "2", "3"]);
}

fn jdbc(server: &Server) {
    let file = clients("Ask.java").display().to_string();
    let said = server.ask(&["jdbc", &file, &server.gateway]);
    for expected in [
        "default_catalog.default_database",
        "catalog default_catalog",
        "3 3.00 2024-01-02 03:04:05.0 2024-01-02 null true",
        "refused: true",
    ] {
        assert!(said.contains(expected), "no '{expected}' in: {said}");
    }
}

fn dbt(server: &Server) {
    // dbt writes into the folder of its project.
    let project = server.folder.0.join("project");
    let copied = Command::new("cp").arg("-r").arg(clients("project")).arg(&project).status();
    assert!(copied.expect("cp runs").success());
    let project = project.display().to_string();
    let said = server.ask(&["dbt", "run", "--project-dir", &project, "--profiles-dir", &project]);
    assert!(said.contains("Done. PASS=2 WARN=0 ERROR=0"), "{said}");
    server.await_lines("dbt.csv", &["3", "4", "5"]);
}
