//! Reports to systemd that the server is ready, and that it is about to stop: the protocol of
//! sd_notify(3), for units of `Type=notify`.
//!
//! Without the variable `NOTIFY_SOCKET` nothing happens.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::say;

/// Connections are taken.
pub const READY: &str = "READY=1";
/// Jobs are being stopped.
pub const STOPPING: &str = "STOPPING=1";

/// Reports a state to the service manager, if there is one.
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        let socket = socket.display();
        say(&format!("warning: cannot report to the service manager at {socket}: {error}\n"));
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = address(socket.as_bytes())?;
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// A name that begins with `@` is no file, but in Linux' abstract namespace.
fn address(socket: &[u8]) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(socket))
}
