//! What a service manager is informed of: that the server is ready, that it ends, that it is alive.
//!
//! systemd names a socket in `NOTIFY_SOCKET` and takes a datagram for each message
//! (`sd_notify(3)`). Elsewhere nothing is said.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use thalweg_core::shim::Clock;

use crate::server::Server;

/// Jobs that were looked at so long ago are looked after by nobody.
const LOOKED_AFTER: Duration = Duration::from_secs(5);

/// Informs a service manager.
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the server is alive.
    beat_every: Option<Duration>,
    beaten_ns: u64,
}

impl Manager {
    /// The one that these variables of the environment name, if any.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Manager {
        let socket = variable("NOTIFY_SOCKET").and_then(|place| connected(&place));
        // Twice in the time after which it would end the process.
        let watchdog_us = variable("WATCHDOG_USEC").and_then(|text| text.parse::<u64>().ok());
        let is_meant = variable("WATCHDOG_PID")
            .is_none_or(|process| process.trim().parse() == Ok(std::process::id()));
        let beat_every = watchdog_us.filter(|_| is_meant).map(|us| Duration::from_micros(us / 2));
        Manager { socket, beat_every, beaten_ns: 0 }
    }

    fn say(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // A manager that has gone is no reason to end.
            let _ = socket.send(message.as_bytes());
        }
    }

    /// Connections are taken.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// Jobs stop.
    pub fn ending(&self) {
        self.say("STOPPING=1\nSTATUS=jobs stop, each with a snapshot");
    }

    /// Looks whether jobs are looked after, and says so as often as it is wanted.
    pub fn beat(&mut self, server: &Server) {
        let now_ns = server.clock.now_ns();
        let passed = |since_ns: u64| Duration::from_nanos(now_ns.saturating_sub(since_ns));
        let is_due = self.beat_every.is_some_and(|every| passed(self.beaten_ns) >= every);
        if is_due && passed(server.looked_ns()) < LOOKED_AFTER {
            self.beaten_ns = now_ns;
            self.say("WATCHDOG=1");
        }
    }
}

fn connected(place: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // A manager that takes nothing must not hold the server up.
    socket.set_nonblocking(true).ok()?;
    match place.strip_prefix('@') {
        None => socket.connect(place).ok()?,
        Some(name) => connect_abstract(&socket, name)?,
    }
    Some(socket)
}

#[cfg(target_os = "linux")]
fn connect_abstract(socket: &UnixDatagram, name: &str) -> Option<()> {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).ok()?;
    socket.connect_addr(&address).ok()
}

#[cfg(not(target_os = "linux"))]
fn connect_abstract(_: &UnixDatagram, _: &str) -> Option<()> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_manager_is_informed_by_its_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("notify");
        let manager_side = UnixDatagram::bind(&place).expect("a socket");
        let place = place.display().to_string();
        let variable = |name: &str| match name {
            "NOTIFY_SOCKET" => Some(place.clone()),
            "WATCHDOG_USEC" => Some("10000000".to_owned()),
            _ => None,
        };
        let manager = Manager::of(variable);
        assert_eq!(manager.beat_every, Some(Duration::from_secs(5)));
        manager.ready("listening\nhere");
        assert_eq!(said(&manager_side), "READY=1\nSTATUS=listening here");
        manager.ending();
        assert!(said(&manager_side).starts_with("STOPPING=1\n"));
        drop(manager_side);
        manager.ending();
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        let none = Manager::of(|_| None);
        none.ready("");
        let gone = Manager::of(|name| {
            (name == "NOTIFY_SOCKET").then(|| "/nobody/listens/here".to_owned())
        });
        gone.ending();
        let others = Manager::of(|name| match name {
            "WATCHDOG_USEC" => Some("1".to_owned()),
            "WATCHDOG_PID" => Some("1".to_owned()),
            _ => None,
        });
        assert_eq!(others.beat_every, None);
    }
}
