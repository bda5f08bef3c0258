//! Which hosts connectors may talk to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::error::{Error, Result};

/// The hosts that connectors may talk to: all of them, unless there is a list. A connector asks
/// where a table is planned ([`AllowedTargets::check`]), and for each connection that it opens:
/// also to a host that another one has named. Where it is known to which address a name leads, that
/// is asked about too ([`AllowedTargets::check_address`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedTargets(Option<Vec<Target>>);

/// An entry of the list: `host`, `*.domain`, an address or `address/bits`; `:port` may follow, and
/// an address of IPv6 with a port stands in brackets. With `!` in front it is refused, whatever
/// else the list has; a list of such entries alone allows all the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    text: String,
    is_refused: bool,
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
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let has = |is_refused: bool| {
            let mut entries = targets.iter().filter(|target| target.is_refused == is_refused);
            entries.any(|target| target.names(host, port))
        };
        let all_are_refused = !targets.is_empty() && targets.iter().all(|target| target.is_refused);
        if !has(true) && (all_are_refused || has(false)) {
            return Ok(());
        }
        Err(Error::plan(format!("connections to {host}:{port} are not allowed here"))
            .hint(format!("'network.allowed-targets' lists what is: {self}")))
    }

    /// Checks that an address may be talked to, to which the name of an allowed host leads.
    ///
    /// # Errors
    /// If it is refused.
    pub fn check_address(&self, address: IpAddr, port: u16) -> Result<()> {
        let targets = self.0.iter().flatten();
        let mut refused = targets.filter(|target| target.is_refused && target.has_address(address));
        match refused.any(|target| target.port.is_none_or(|refused| refused == port)) {
            false => Ok(()),
            true => {
                Err(Error::plan(format!("connections to {address}:{port} are not allowed here"))
                    .hint(format!("'network.allowed-targets' lists what is: {self}")))
            }
        }
    }
}

impl Target {
    fn has_address(&self, address: IpAddr) -> bool {
        matches!(&self.host, Host::Network(network, bits) if is_in(address, *network, *bits))
    }

    fn names(&self, host: &str, port: u16) -> bool {
        let is_host = match &self.host {
            Host::Any => true,
            Host::Name(name) => name.eq_ignore_ascii_case(host),
            Host::Below(domain) => {
                let cut = host.len().saturating_sub(domain.len());
                cut > 0 && host.get(cut..).is_some_and(|tail| tail.eq_ignore_ascii_case(domain))
            }
            Host::Network(..) => address_of(host).is_some_and(|address| self.has_address(address)),
        };
        is_host && self.port.is_none_or(|allowed| allowed == port)
    }
}

/// The address that a text is, in whichever way systems read one: `169.254.1.2`, `0xa9fe0102`,
/// `169.16646402`, `::ffff:169.254.1.2`.
fn address_of(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(address);
    }
    let number = |text: &str| match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    };
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    // What is not written in parts of a byte is in the last one.
    let bytes_left = 4u32.checked_sub(u32::try_from(first.len()).ok()?).filter(|&left| left > 0)?;
    let is_right =
        first.iter().all(|&part| part < 256) && u64::from(*last) < 1u64 << (8 * bytes_left);
    let whole = first.iter().enumerate().fold(*last, |whole, (place, part)| {
        whole | part.checked_shl(24 - 8 * place as u32).unwrap_or(0)
    });
    is_right.then(|| IpAddr::V4(Ipv4Addr::from_bits(whole)))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    // An address of IPv4 may come in the clothes of IPv6.
    let address = if network.is_ipv4() { address.to_canonical() } else { address };
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
    let (is_refused, rest) = match entry.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, entry),
    };
    let target = parse_plain(rest)?;
    Ok(Target { is_refused, text: entry.to_owned(), ..target })
}

fn parse_plain(entry: &str) -> Result<Target> {
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
            None if !host.is_empty() && !host.contains(['*', ' ', '/', ':', '!']) => {
                Host::Name(host.to_owned())
            }
            _ => return Err(wrong()),
        },
    };
    Ok(Target { text: entry.to_owned(), is_refused: false, host, port })
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
    fn what_is_refused_is_refused_however_it_is_written() {
        let targets: AllowedTargets =
            "*; !169.254.0.0/16; !fe80::/10; !metadata.internal".parse().unwrap();
        for host in [
            "169.254.169.254",
            "169.254.169.254.",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "169.16689662",
            "[::ffff:169.254.169.254]",
            "::ffff:a9fe:a9fe",
            "fe80::1",
            "METADATA.internal",
        ] {
            assert!(targets.check(host, 80).is_err(), "{host}");
        }
        for host in ["169.253.1.1", "example.com", "1", "10.0.0.1", "fd00::1", "999.1.1.1", "a.0x"]
        {
            assert!(targets.check(host, 80).is_ok(), "{host}");
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(targets.check_address(address("::ffff:169.254.1.1"), 80).is_err());
        assert!(targets.check_address(address("fe80::1"), 80).is_err());
        assert!(targets.check_address(address("10.0.0.1"), 80).is_ok());
        let only_refused: AllowedTargets = "!10.0.0.0/8:22".parse().unwrap();
        assert!(only_refused.check("10.0.0.1", 22).is_err());
        assert!(only_refused.check("10.0.0.1", 23).is_ok() && only_refused.check("x", 22).is_ok());
        assert!(AllowedTargets::default().check_address(address("fe80::1"), 80).is_ok());
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for wrong in [
            "a b",
            "x/8",
            "10.0.0.0/33",
            "host:port",
            "*x.com",
            "a;:",
            "[::1]:a",
            "[::1]1",
            "!",
            "!!x",
        ] {
            assert!(wrong.parse::<AllowedTargets>().is_err(), "{wrong}");
        }
    }
}
