//! A server of PostgreSQL for a test.

use std::ops::Deref;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::services::{Service, text};

/// A server of its own, which ends with the test, also one that fails.
pub struct Server {
    service: Service,
    pub port: u16,
}

impl Server {
    /// Starts a server; `None` on a machine that has none.
    pub fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    /// The same with settings of its script.
    pub fn start_with(settings: &[(&str, &str)]) -> Option<Server> {
        let service = Service::start_with("postgres", settings)?;
        let port = service.value("PGPORT").parse().expect("a port");
        Some(Server { service, port })
    }

    /// Runs statements as the superuser. What they answer: values with `|` between them.
    pub fn sql(&self, statements: &str) -> String {
        let output = self.try_sql(statements);
        let problem = text(&output.stderr);
        assert!(output.status.success(), "{statements}: {problem}");
        text(&output.stdout).trim_end().to_owned()
    }

    /// The same, where the server may be away.
    pub fn try_sql(&self, text: &str) -> Output {
        let mut psql = Command::new("psql");
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "thalweg", "-d", "postgres", "-p"]);
        psql.arg(self.port.to_string()).arg("-h").arg(self.dir.join("sock"));
        psql.arg("-c").arg(text).output().expect("psql is there with the server")
    }

    /// The options of a table of `jdbc`.
    pub fn jdbc(&self, table: &str) -> String {
        format!(
            "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:{}/postgres', 'table-name' = '{table}', \
             'username' = 'thalweg', 'password' = 'thalweg'",
            self.port
        )
    }

    /// The options of a table of `postgres-cdc`.
    pub fn cdc(&self, table: &str, slot: &str) -> String {
        format!(
            "'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{}', 'username' = 'thalweg', \
             'password' = 'thalweg', 'database-name' = 'postgres', 'schema-name' = 'public', 'table-name' = '{table}', \
             'slot.name' = '{slot}'",
            self.port
        )
    }

    /// Waits until a query answers this.
    pub fn wait_for(&self, query: &str, expected: &str) {
        self.wait_with(query, expected, || {});
    }

    /// The same, calling something in between.
    pub fn wait_with(&self, query: &str, expected: &str, mut between: impl FnMut()) {
        let start = Instant::now();
        let mut answer = String::new();
        while start.elapsed() < Duration::from_secs(90) {
            between();
            let output = self.try_sql(query);
            answer = text(&output.stdout).trim_end().to_owned();
            if answer == expected {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("{query}: {answer} instead of {expected}");
    }
}

impl Deref for Server {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
