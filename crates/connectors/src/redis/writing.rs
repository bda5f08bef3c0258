//! Writes a stream by XADD.

use std::collections::VecDeque;

use redis::Cmd;

use super::options::RedisOptions;
use super::session::{ANSWER_WAIT, Session, checked};
use crate::messaging::{Outgoing, Publisher};
use crate::network::{Attempt, Failure, Timer};

/// Commands that are sent together.
const SEND_BYTES: usize = 64 << 10;

/// Writes a stream.
pub struct StreamWriter {
    session: Session,
    stream: String,
    field: String,
    length_max: Option<u64>,
    put_bytes: usize,
    /// The numbers of messages that were sent and not answered, in order.
    sent: VecDeque<u64>,
    /// Since the server answered, or had nothing to answer.
    heard: Timer,
}

impl StreamWriter {
    /// Writes this stream over this session.
    pub fn new(session: Session, stream: String, options: &RedisOptions) -> StreamWriter {
        StreamWriter {
            session,
            stream,
            field: options.written_field().to_owned(),
            length_max: options.length_max,
            put_bytes: 0,
            sent: VecDeque::new(),
            heard: Timer::default(),
        }
    }

    fn command(&self, message: &Outgoing) -> Cmd {
        let mut command = redis::cmd("XADD");
        command.arg(&self.stream);
        if let Some(length) = self.length_max {
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*").arg(&self.field).arg(message.value.as_slice());
        command
    }
}

impl Publisher for StreamWriter {
    fn connect(&mut self) -> Attempt<()> {
        (self.put_bytes, self.heard) = (0, Timer::default());
        self.sent.clear();
        self.session.connect()
    }

    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        if self.sent.is_empty() {
            self.heard = Timer::default();
        }
        let command = self.command(message);
        self.session.put(&command);
        self.sent.push_back(number);
        self.put_bytes += message.value.len() + 64;
        if self.put_bytes >= SEND_BYTES {
            self.put_bytes = 0;
            self.session.flush()?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        self.put_bytes = 0;
        self.session.flush()?;
        let mut waits = waits && !self.sent.is_empty();
        while !self.sent.is_empty() {
            match self.session.poll(waits)? {
                Some(answer) => {
                    checked(answer, self.session.server())?;
                    numbers.extend(self.sent.pop_front());
                    (waits, self.heard) = (false, Timer::default());
                }
                None if self.heard.elapsed() > ANSWER_WAIT => {
                    return Err(Failure::no_answer(ANSWER_WAIT));
                }
                None => break,
            }
        }
        Ok(())
    }
}
