//! Connections over TCP whose calls end within a [`TICK`].
//!
//! A peer that has gone without a word (its machine lost power, a cable was cut) is noticed by
//! probes of the operating system within [`GONE_AFTER`].

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustix::net::sockopt;
use thalweg_core::connector::AllowedTargets;

use super::{Cancel, TICK};

/// A peer that has not answered for this long has gone.
pub const GONE_AFTER: Duration = Duration::from_secs(25);
/// The first probe of an idle connection comes after this time.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// The time between probes.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// How many probes may be lost.
const PROBES: u32 = 3;
/// One attempt to connect; the flag is looked at between attempts.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Connects to the first address of a host that accepts.
///
/// # Errors
/// If none does within this time, the host's name leads to one that is refused, or the work is not
/// wanted any more.
pub fn connect(
    (host, port): (&str, u16),
    targets: &AllowedTargets,
    timeout: Duration,
    cancel: &Cancel,
) -> io::Result<TcpStream> {
    let mut left = timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    check_addresses(targets, &addresses)?;
    while !left.is_zero() && !addresses.is_empty() {
        if cancel.is_set() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled"));
        }
        let attempt = left.min(ATTEMPT);
        left -= attempt;
        for address in &addresses {
            match TcpStream::connect_timeout(address, attempt) {
                Ok(stream) => return prepared(stream),
                Err(error) => last = error,
            }
        }
        if last.kind() != io::ErrorKind::TimedOut {
            return Err(last);
        }
    }
    Err(last)
}

/// Checks the addresses to which the name of a host leads.
///
/// # Errors
/// If one is refused.
pub fn check_addresses(targets: &AllowedTargets, addresses: &[SocketAddr]) -> io::Result<()> {
    let check = |address: &SocketAddr| targets.check_address(address.ip(), address.port());
    addresses.iter().try_for_each(check).map_err(|error| {
        io::Error::new(io::ErrorKind::PermissionDenied, error.message().to_owned())
    })
}

/// Prepares a connection: its calls end within a [`TICK`], and a peer that has gone is noticed.
///
/// # Errors
/// If the connection has broken.
pub fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(&stream, PROBES)?;
    // Also where bytes were sent and nobody has confirmed them; probes only test idle connections.
    sockopt::set_tcp_user_timeout(&stream, GONE_AFTER.as_millis() as u32)?;
    Ok(stream)
}

/// True if a call ended since its [`TICK`] is over: it can be repeated.
pub fn is_tick(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
