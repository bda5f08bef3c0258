//! The texts of the protocol: a line says what follows.

use crate::network::{Attempt, Failure};

/// Something that the server has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// What the server says of itself, as JSON.
    Info(String),
    /// It asks whether we are there.
    Ping,
    /// It is there.
    Pong,
    /// It is content with what we sent.
    Fine,
    /// It is not.
    Error(String),
    /// A message.
    Message(NatsMessage),
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsMessage {
    /// Its subject.
    pub subject: String,
    /// The number of the subscription that it is for.
    pub subscription: u64,
    /// Where an answer goes.
    pub reply: Option<String>,
    /// The number in front of its headers: the server says something by it.
    pub status: Option<u16>,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// What it says.
    pub payload: Vec<u8>,
}

impl NatsMessage {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

fn senseless(line: &str) -> Failure {
    let line: String = line.chars().take(80).collect();
    Failure::Passing(format!("this is no server of NATS: it sends '{line}'"))
}

/// The first thing that bytes hold in full, and its length.
///
/// # Errors
/// If they hold something else.
pub fn parse(bytes: &[u8]) -> Attempt<Option<(Received, usize)>> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return match bytes.len() > 1 << 20 {
            true => Err(senseless(&String::from_utf8_lossy(&bytes[..80]))),
            false => Ok(None),
        };
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let line = line.trim_end_matches('\r');
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let whole = |received| Ok(Some((received, end + 1)));
    match verb.to_ascii_uppercase().as_str() {
        "INFO" => whole(Received::Info(rest.to_owned())),
        "PING" => whole(Received::Ping),
        "PONG" => whole(Received::Pong),
        "+OK" => whole(Received::Fine),
        "-ERR" => whole(Received::Error(rest.trim().trim_matches('\'').to_owned())),
        verb @ ("MSG" | "HMSG") => {
            let found = message(rest, verb == "HMSG", &bytes[end + 1..]);
            let found = found.ok_or_else(|| senseless(line))?;
            Ok(found.map(|(message, length)| (Received::Message(message), end + 1 + length)))
        }
        _ => Err(senseless(line)),
    }
}

/// `subject subscription [reply] [length of headers] length`, and what follows; `None` where that
/// is not there in full yet.
#[expect(clippy::option_option, reason = "what makes no sense, and what is not there yet")]
fn message(line: &str, has_headers: bool, rest: &[u8]) -> Option<Option<(NatsMessage, usize)>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let numbers = if has_headers { 2 } else { 1 };
    let (names, lengths) = words.split_at_checked(words.len().checked_sub(numbers)?)?;
    let lengths: Vec<usize> = lengths.iter().map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let (headers, total) = (if has_headers { lengths[0] } else { 0 }, *lengths.last()?);
    let (subject, subscription, reply) = match names {
        [subject, subscription] => (subject, subscription, None),
        [subject, subscription, reply] => (subject, subscription, Some((*reply).to_owned())),
        _ => return None,
    };
    let subscription = subscription.parse().ok()?;
    if headers > total {
        return None;
    }
    if rest.len() < total.checked_add(2)? {
        return Some(None);
    }
    let (status, headers_read) = read_headers(&rest[..headers]);
    let message = NatsMessage {
        subject: (*subject).to_owned(),
        subscription,
        reply,
        status,
        headers: headers_read,
        payload: rest[headers..total].to_vec(),
    };
    Some(Some((message, total + 2)))
}

/// `NATS/1.0 [status]`, then `name: value`.
fn read_headers(bytes: &[u8]) -> (Option<u16>, Vec<(String, String)>) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let status = first.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    (status, lines.filter_map(header).collect())
}

/// Appends a message.
pub fn put_message(
    out: &mut Vec<u8>,
    subject: &str,
    reply: Option<&str>,
    headers: &[(&str, &str)],
    payload: &[u8],
) {
    let reply = reply.map_or(String::new(), |reply| format!(" {reply}"));
    if headers.is_empty() {
        out.extend_from_slice(format!("PUB {subject}{reply} {}\r\n", payload.len()).as_bytes());
    } else {
        let mut text = String::from("NATS/1.0\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let (length, total) = (text.len(), text.len() + payload.len());
        out.extend_from_slice(format!("HPUB {subject}{reply} {length} {total}\r\n").as_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// True if a text can be a subject: of a message, or, with wildcards, of a subscription.
pub fn is_subject(text: &str, can_have_wildcards: bool) -> bool {
    let tokens: Vec<&str> = text.split('.').collect();
    tokens.iter().enumerate().all(|(at, token)| match *token {
        "*" => can_have_wildcards,
        ">" => can_have_wildcards && at + 1 == tokens.len(),
        token => {
            !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || c.is_control())
        }
    })
}

/// True if a text can be the value of a header.
pub fn is_header(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_when_they_are_there_in_full() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, "a.b", Some("r"), &[("Nats-Msg-Id", "7")], b"pay\r\nload");
        let sent = String::from_utf8(bytes).expect("text");
        let received = sent.replacen("HPUB a.b r", "HMSG a.b 3 r", 1).into_bytes();
        for end in 0..received.len() {
            assert_eq!(parse(&received[..end]).expect("no error"), None, "{end}");
        }
        let (found, length) = parse(&received).expect("no error").expect("a message");
        assert_eq!(length, received.len());
        let Received::Message(message) = found else { panic!("{found:?}") };
        assert_eq!((message.subject.as_str(), message.subscription), ("a.b", 3));
        assert_eq!(
            (message.reply.as_deref(), message.header("nats-msg-id")),
            (Some("r"), Some("7"))
        );
        assert_eq!((message.payload.as_slice(), message.status), (&b"pay\r\nload"[..], None));
        let status = b"HMSG d 2 28 28\r\nNATS/1.0 100 Idle Heartbeat\r\n\r\n";
        let _ = parse(status);
    }

    #[test]
    fn what_is_no_protocol_is_an_error() {
        for wrong in
            ["HTTP/1.1 400 Bad Request\r\n", "MSG a\r\n", "MSG a b 5\r\n", "HMSG a 1 9 2\r\n"]
        {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(parse(b"PING\r\n").expect("a verb"), Some((Received::Ping, 6)));
        assert_eq!(
            parse(b"-ERR 'No'\r\n").expect("a verb"),
            Some((Received::Error("No".into()), 11))
        );
    }

    #[test]
    fn subjects_have_no_blanks() {
        assert!(is_subject("a.b", false) && is_subject("a.*.>", true));
        for wrong in ["", "a b", "a..b", "a\r\nPUB x 0", "a.>.b"] {
            assert!(!is_subject(wrong, true), "{wrong}");
        }
        assert!(!is_subject("a.*", false));
    }
}
