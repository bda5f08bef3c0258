//! PARSE_URL: a part of a URL, read as Java's `URL` reads it.
//!
//! A text whose protocol Java has no handler for is no URL, nor is one whose port is no number: its
//! parts are NULL.

use arrow_array::ArrayRef;
use thalweg_core::Result;

use super::definition::{Definition, Returns, plain};
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] =
    &[plain("PARSE_URL", "string string string?", Returns::TextOrNull, parse_url)];

/// The protocols that Java knows.
const PROTOCOLS: [&str; 8] = ["http", "https", "ftp", "file", "jar", "jmod", "jrt", "mailto"];

fn parse_url(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (url, part) = (a.texts(0), a.texts(1));
    let key = (a.len() > 2).then(|| a.texts(2));
    a.text_result(|row, out| {
        let (url, part) = (Url::parse(url.get(row)?)?, part.get(row)?);
        match &key {
            None => url.append_part(out, part),
            Some(key) if part == "QUERY" => {
                let (key, pairs) = (key.get(row)?, url.query?.split('&'));
                let mut values = pairs.filter_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
                out.push_str(values.next()?);
                Some(())
            }
            Some(_) => None,
        }
    })
}

/// `protocol://user@host:port/path?query#reference`
struct Url<'u> {
    protocol: &'static str,
    authority: Option<&'u str>,
    user: Option<&'u str>,
    host: &'u str,
    path: &'u str,
    query: Option<&'u str>,
    reference: Option<&'u str>,
}

impl<'u> Url<'u> {
    fn parse(text: &'u str) -> Option<Self> {
        let text = text.trim_matches(|c: char| c <= ' ');
        let is_prefixed = text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("url:"));
        let text = if is_prefixed { &text[4..] } else { text };
        let (protocol, rest) = text.split_once(':')?;
        let protocol = PROTOCOLS.iter().find(|known| known.eq_ignore_ascii_case(protocol))?;
        let (rest, reference) = split(rest, '#');
        let (before, query) = split(rest, '?');
        let (authority, path) = match before.strip_prefix("//") {
            Some(tail) if !before.starts_with("////") => {
                let (authority, path) = tail.split_at(tail.find('/').unwrap_or(tail.len()));
                (Some(authority), path)
            }
            _ => (None, before),
        };
        let (user, host) = user_and_host(authority.unwrap_or(""));
        let host = host_without_port(host)?;
        Some(Url { protocol, authority, user, host, path, query, reference })
    }

    fn append_part(&self, out: &mut String, part: &str) -> Option<()> {
        out.push_str(match part {
            "PROTOCOL" => self.protocol,
            "HOST" => self.host,
            "PATH" | "FILE" => self.path,
            "QUERY" => self.query?,
            "REF" => self.reference?,
            "AUTHORITY" => self.authority?,
            "USERINFO" => self.user?,
            _ => return None,
        });
        if let ("FILE", Some(query)) = (part, self.query) {
            out.push('?');
            out.push_str(query);
        }
        Some(())
    }
}

/// What is before and behind a character.
fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// With two `@` there is neither.
fn user_and_host(authority: &str) -> (Option<&str>, &str) {
    match authority.split_once('@') {
        None => (None, authority),
        Some((_, host)) if host.contains('@') => (None, ""),
        Some((user, host)) => (Some(user), host),
    }
}

/// `None` if the port is no number, or brackets hold no IPv6 address.
fn host_without_port(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { 0 };
    let is_address = |text: &str| {
        let address = text.split('%').next().unwrap_or(text);
        address.parse::<std::net::Ipv6Addr>().is_ok()
    };
    if end > 0 && !is_address(&host[1..end - 1]) {
        return None;
    }
    let colon = end + host[end..].find(':').unwrap_or(host.len() - end);
    if end > 0 && colon > end {
        return None;
    }
    let port = host.get(colon + 1..).unwrap_or("");
    let is_port = port.is_empty() || port.parse::<i32>().is_ok_and(|port| port >= -1);
    is_port.then_some(&host[..colon])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of Java 17.
    #[test]
    fn urls_are_those_of_java() {
        let cases = [
            ("http://h:99999/x", "HOST", Some("h")),
            ("http://h:x/x", "HOST", None),
            ("HTTP://h/x", "PROTOCOL", Some("http")),
            ("ws://h/x", "PROTOCOL", None),
            ("url:http://h/x", "HOST", Some("h")),
            (" http://h/x ", "PATH", Some("/x")),
            ("http://[::1]:80/x", "HOST", Some("[::1]")),
            ("http://[::1/x", "HOST", None),
            ("http://a@b@c/x", "HOST", Some("")),
            ("http://h?x=1", "FILE", Some("?x=1")),
            ("http://h/a/../b/./c", "PATH", Some("/a/../b/./c")),
            ("mailto:a@b.c", "PATH", Some("a@b.c")),
            ("mailto:a@b.c", "AUTHORITY", None),
            ("10:11:12", "PATH", None),
        ];
        for (url, part, expected) in cases {
            let mut out = String::new();
            let found = Url::parse(url).and_then(|url| url.append_part(&mut out, part));
            assert_eq!(found.map(|()| out.as_str()), expected, "{part} of {url}");
        }
    }
}
