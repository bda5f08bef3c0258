//! `examples/postgres-view` runs as its page says.

use super::server::Server;
use super::services::check_example;

#[test]
fn the_example_runs() {
    let Some(server) = Server::start() else { return };
    check_example("postgres-view", &server.folder("example"), &[]);
}
