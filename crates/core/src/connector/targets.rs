//! Which hosts connectors may talk to.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The hosts that connectors may talk to: all of them, unless there is a list. A connector asks
/// where a table is planned ([`AllowedTargets::check`]), and for each connection that it opens:
/// also to a host that another one has named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedTargets(Option<Vec<Target>>);

/// An entry of the list: `host`, `*.domain`, an address or `address/bits`; `:port` may follow, and
/// an address of IPv6 with a port stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    text: String,
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    Name(String),
    Below(String),
    Network(IpAddr, u32),
}

impl AllowedTargets {
    /// True if there is a list: hosts that others name have to be checked.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that a host may be talked to.
    ///
    /// # Errors
    /// If it may not.
    pub fn check(&self, host: &str, port: u16) -> Result<()> {
        let Some(targets) = &self.0 else { return Ok(()) };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if targets.iter().any(|target| target.allows(host, port)) {
            return Ok(());
        }
        Err(Error::plan(format!("connections to {host}:{port} are not allowed here"))
            .hint(format!("'network.allowed-targets' lists what is: {self}")))
    }
}

impl Target {
    fn allows(&self, host: &str, port: u16) -> bool {
        let is_host = match &self.host {
            Host::Any => true,
            Host::Name(name) => name.eq_ignore_ascii_case(host),
            Host::Below(domain) => {
                let cut = host.len().saturating_sub(domain.len());
                cut > 0 && host.get(cut..).is_some_and(|tail| tail.eq_ignore_ascii_case(domain))
            }
            Host::Network(network, bits) => {
                host.parse().is_ok_and(|address| is_in(address, *network, *bits))
            }
        };
        is_host && self.port.is_none_or(|allowed| allowed == port)
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let bits_of = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((own, width), (other, other_width)) = (bits_of(address), bits_of(network));
    let shift = 128 - bits.min(width);
    width == other_width && own.checked_shr(shift) == other.checked_shr(shift)
}

impl FromStr for AllowedTargets {
    type Err = Error;

    /// Entries are separated by `;`.
    fn from_str(text: &str) -> Result<Self> {
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(parse).collect::<Result<_>>().map(|targets| AllowedTargets(Some(targets)))
    }
}

fn parse(entry: &str) -> Result<Target> {
    let wrong = || {
        Error::plan(format!("'{entry}' names no host")).hint(
            "hosts look like 'kafka-1:9092', '*.example.com', '10.0.0.0/8' or '[::1]:5432'; \
             ';' stands between them",
        )
    };
    let (host, port) = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None if entry.matches(':').count() == 1 => {
            entry.split_once(':').map(|(host, port)| (host, Some(port))).ok_or_else(wrong)?
        }
        None => (entry, None),
    };
    let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
    let (address, bits) = host.split_once('/').map_or((host, None), |(a, bits)| (a, Some(bits)));
    let host = match (address.parse::<IpAddr>(), bits) {
        (Ok(address), bits) => {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| wrong()))?;
            if bits > all {
                return Err(wrong());
            }
            Host::Network(address, bits)
        }
        (Err(_), Some(_)) => return Err(wrong()),
        (Err(_), None) => match host.strip_prefix('*') {
            Some("") => Host::Any,
            Some(domain) if domain.starts_with('.') => Host::Below(domain.to_owned()),
            None if !host.is_empty() && !host.contains(['*', ' ', '/', ':']) => {
                Host::Name(host.to_owned())
            }
            _ => return Err(wrong()),
        },
    };
    Ok(Target { text: entry.to_owned(), host, port })
}

impl fmt::Display for AllowedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(targets) = &self.0 else { return f.write_str("all") };
        let texts: Vec<&str> = targets.iter().map(|target| target.text.as_str()).collect();
        f.write_str(if texts.is_empty() { "none" } else { "" })?;
        f.write_str(&texts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_by_name_domain_address_and_port() {
        let list = "kafka:9092; *.example.com; 10.1.0.0/16; [::1]:5432; 127.0.0.1";
        let targets: AllowedTargets = list.parse().unwrap();
        for (host, port) in [
            ("kafka", 9092),
            ("KAFKA", 9092),
            ("db.example.com", 1),
            ("10.1.255.7", 80),
            ("[::1]", 5432),
            ("::1", 5432),
            ("127.0.0.1", 3),
        ] {
            assert!(targets.check(host, port).is_ok(), "{host}:{port}");
        }
        for (host, port) in [
            ("kafka", 9093),
            ("example.com", 1),
            ("evilexample.com", 1),
            ("10.2.0.1", 80),
            ("::1", 5433),
            ("127.0.0.2", 3),
            ("localhost", 3),
        ] {
            let error = targets.check(host, port).unwrap_err();
            assert!(error.is_plan_error(), "{host}:{port}");
        }
        assert!(AllowedTargets::default().check("anything", 1).is_ok());
        let none: AllowedTargets = " ".parse().unwrap();
        assert!(none.check("localhost", 1).is_err());
        assert!("*".parse::<AllowedTargets>().unwrap().check("x", 1).is_ok());
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for wrong in
            ["a b", "x/8", "10.0.0.0/33", "host:port", "*x.com", "a;:", "[::1]:a", "[::1]1"]
        {
            assert!(wrong.parse::<AllowedTargets>().is_err(), "{wrong}");
        }
    }
}
