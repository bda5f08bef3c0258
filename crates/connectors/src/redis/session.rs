//! Commands of Redis, several at a time, and their answers, over one connection.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use thalweg_core::Error;
use thalweg_core::connector::Secret;

use crate::network::wire::{Address, Wire};
use crate::network::{Attempt, Cancel, Failure};

/// A server that has not answered for so long has gone.
pub const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// A longer answer is refused.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A server, and who signs in.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub address: Address,
    /// The number of its database.
    pub database: u32,
    /// Who signs in; `None` for the default user.
    pub username: Option<String>,
    /// With this password, if there is one.
    pub password: Option<Secret>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}", self.address)
    }
}

/// A connection that is opened when it is needed.
pub struct Session {
    server: Server,
    wire: Wire,
}

impl Session {
    /// A session with this server.
    pub fn new(server: Server, cancel: Cancel) -> Session {
        Session { server, wire: Wire::new(ANSWER_BYTES_MAX, cancel) }
    }

    /// Connects and signs in.
    ///
    /// # Errors
    /// If the server can't be reached, or refuses.
    pub fn connect(&mut self) -> Attempt<()> {
        self.wire.open(&self.server.address)?;
        if let Some(password) = self.server.password.clone() {
            let mut command = redis::cmd("AUTH");
            if let Some(user) = &self.server.username {
                command.arg(user);
            }
            let answer = self.call(command.arg(password.expose()));
            answer.map_err(|failure| redacted(failure, &password))?;
        }
        if self.server.database > 0 {
            self.call(redis::cmd("SELECT").arg(self.server.database))?;
        }
        // Shows who this is; servers that do not know it are no worse for it.
        let named = self.call(redis::cmd("CLIENT").arg("SETNAME").arg("thalweg"));
        match named {
            Err(Failure::Final(_)) | Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Adds a command to those that [`Session::flush`] sends.
    pub fn put(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.wire.output);
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn flush(&mut self) -> Attempt<()> {
        self.wire.flush()
    }

    /// The next answer, if it is here or comes within a [`crate::network::TICK`] where `waits`.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn poll(&mut self, waits: bool) -> Attempt<Option<Value>> {
        self.wire.next(waits, parse)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// If the connection has broken, or none comes.
    pub fn receive(&mut self) -> Attempt<Value> {
        self.wire.wait_next(ANSWER_WAIT, parse)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the connection has broken, or the server refuses.
    pub fn call(&mut self, command: &Cmd) -> Attempt<Value> {
        self.put(command);
        self.flush()?;
        let answer = self.receive()?;
        checked(answer, &self.server)
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

/// An answer that is here in full.
fn parse(input: &mut BytesMut) -> Attempt<Option<Value>> {
    let Some(length) = whole_length(input) else { return Ok(None) };
    let parsed = redis::parse_redis_value(&input[..length]);
    let value = parsed.map_err(|error| Failure::Passing(format!("no answer of Redis: {error}")))?;
    input.advance(length);
    Ok(Some(value))
}

/// The length of the answer that bytes begin with, if it is there in full: by its lengths alone.
fn whole_length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut wanted) = (0_usize, 1_u64);
    while wanted > 0 {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let line = memchr::memchr(b'\n', rest)?;
        let number = std::str::from_utf8(&rest[1..line]).unwrap_or_default().trim();
        let number = number.parse::<i64>().ok();
        let count = number.unwrap_or(0).max(0) as u64;
        at += line + 1;
        wanted -= 1;
        match rest[0] {
            b'$' | b'!' | b'=' if number != Some(-1) => at = at.saturating_add(count as usize + 2),
            b'*' | b'~' | b'>' => wanted = wanted.saturating_add(count),
            b'%' => wanted = wanted.saturating_add(2 * count),
            // An answer follows what is said of it.
            b'|' => wanted = wanted.saturating_add(2 * count + 1),
            _ => {}
        }
    }
    (at <= bytes.len()).then_some(at)
}

/// The answer, unless it is an error.
///
/// # Errors
/// If it is.
pub fn checked(answer: Value, server: &Server) -> Attempt<Value> {
    answer.extract_error().map_err(|error| explained(&error, server))
}

/// Errors of servers that start, stop, or follow another one are passing.
fn explained(error: &RedisError, server: &Server) -> Failure {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
    let code = error.code().unwrap_or_default();
    let what = format!("{server} refuses: {error}");
    if let ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain) =
        error.kind()
    {
        return Failure::Passing(what);
    }
    let help = match code {
        "NOAUTH" => "set 'password', and 'username' where the server has several users",
        "WRONGPASS" => "correct 'username' and 'password'",
        "NOPERM" => "the user may not do that: see ACL SETUSER",
        "WRONGTYPE" => "the key holds another kind of value: correct 'stream', or 'lookup.type'",
        "MOVED" | "ASK" => "clusters are not supported: name a server that is not one of a cluster",
        "OOM" => return Failure::Passing(what),
        _ => return Failure::Final(Error::io(what)),
    };
    Failure::Final(Error::user(what).hint(help))
}

fn redacted(failure: Failure, password: &Secret) -> Failure {
    match failure {
        Failure::Passing(why) => Failure::Passing(password.redact(&why)),
        Failure::Final(error) => {
            let shown = Error::new(error.kind(), password.redact(error.message()));
            Failure::Final(match error.help() {
                Some(help) => shown.hint(help),
                None => shown,
            })
        }
        Failure::Cancelled => Failure::Cancelled,
    }
}

/// The bytes of a text.
pub fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        Value::Okay => Some(b"OK"),
        _ => None,
    }
}

/// The text of an answer.
pub fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(bytes(value)?).ok()
}

/// The elements of an answer that is a list.
pub fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        _ => &[],
    }
}

/// What an answer of names and values says of a name.
pub fn named<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let mut pairs = elements(value).chunks_exact(2);
    pairs.find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
}

/// The error of an answer that makes no sense.
pub fn senseless(server: &Server, what: &str) -> Failure {
    Failure::Final(Error::data(format!("{server} gives an answer to {what} that makes no sense")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_last_byte_is_there() {
        let answers: [&[u8]; 7] = [
            b"+OK\r\n",
            b":12\r\n",
            b"$5\r\nhe\nlo\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*2\r\n*1\r\n$1\r\na\r\n*0\r\n",
            b"-ERR no\r\n",
        ];
        for answer in answers {
            redis::parse_redis_value(answer).expect("an answer");
            let with_more = [answer, b"+OK\r\n"].concat();
            assert_eq!(whole_length(&with_more), Some(answer.len()), "{answer:?}");
            for end in 0..answer.len() {
                assert_eq!(whole_length(&answer[..end]), None, "{:?}", &answer[..end]);
            }
        }
    }
}
