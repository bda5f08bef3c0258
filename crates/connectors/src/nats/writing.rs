//! Writes subjects. A message of JetStream is done with when the stream has it; one of plain NATS,
//! which keeps nothing, when the server has taken it.

use std::collections::VecDeque;

use serde_json::{Value, json};
use thalweg_core::Error;
use thalweg_core::connector::TableRequest;

use super::options::NatsOptions;
use super::protocol::{is_header, is_subject};
use super::session::Session;
use crate::messaging::{Outgoing, Publisher};
use crate::network::{Attempt, Cancel, Failure, Timer};

/// Messages that are sent together.
const SEND_BYTES: usize = 64 << 10;
/// An answer that has not come for so long will not come.
const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(15);

/// Writes subjects.
pub struct SubjectWriter {
    session: Session,
    stream: Option<String>,
    subject: Option<String>,
    subject_column: Option<usize>,
    id_column: Option<usize>,
    /// What is in front of the number of an answer.
    answers: String,
    /// The numbers of messages of plain NATS that the server is not known to have.
    sent: VecDeque<u64>,
    /// How many of them were sent before the server was asked whether it has them.
    asked: usize,
    /// Messages of JetStream that were sent and not answered.
    open: u64,
    /// Since something was answered, or nothing was open.
    heard: Timer,
}

impl SubjectWriter {
    /// A writer of this table.
    pub fn new(options: NatsOptions, request: &TableRequest, cancel: Cancel) -> SubjectWriter {
        let column = |name: &str| request.metadata.iter().position(|(key, _)| key == name);
        let session = Session::new(options.server.clone(), cancel);
        SubjectWriter {
            answers: format!("{}.a.w", session.inbox()),
            session,
            stream: options.stream,
            subject: options.subjects.first().cloned(),
            subject_column: column("subject"),
            id_column: column("message-id"),
            sent: VecDeque::new(),
            asked: 0,
            open: 0,
            heard: Timer::default(),
        }
    }

    fn subject<'m>(&'m self, message: &'m Outgoing) -> Attempt<&'m str> {
        let of_row = self.subject_column.and_then(|at| message.metadata.get(at)?.as_deref());
        match of_row.or(self.subject.as_deref()) {
            Some(subject) if is_subject(subject, false) => Ok(subject),
            other => Err(Error::data(format!("a row goes to the subject '{}'", other.unwrap_or("")))
                .hint("a subject is words with '.' between them: correct the column 'subject', or the option")
                .into()),
        }
    }

    /// The identifier by which the stream knows a message that comes twice.
    fn id(&self, number: u64, message: &Outgoing) -> Attempt<String> {
        match self.id_column.and_then(|at| message.metadata.get(at)?.as_deref()) {
            None => Ok(format!("{}-{number}", self.session.inbox())),
            Some(id) if is_header(id) => Ok(id.to_owned()),
            Some(id) => {
                Err(Error::data(format!("a row has the message-id '{}'", id.escape_debug()))
                    .hint("an identifier is a text that is not empty, without line breaks")
                    .into())
            }
        }
    }

    /// Takes what was answered.
    fn take_answers(&mut self, mut waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        let pongs = self.session.pongs;
        while let Some(message) = self.session.poll(waits)? {
            waits = false;
            let number = message.subject.strip_prefix(&self.answers);
            let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
                continue;
            };
            self.heard = Timer::default();
            if message.status == Some(503) {
                return Err(Failure::Passing("JetStream is not there (yet)".to_owned()));
            }
            let answer: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
            match answer.get("error") {
                Some(error) => return Err(self.session.explained(error)),
                None => {
                    self.open = self.open.saturating_sub(1);
                    numbers.push(number);
                }
            }
        }
        if pongs > 0 && self.session.pongs == 0 {
            numbers.extend(self.sent.drain(..self.asked));
            self.asked = 0;
            self.heard = Timer::default();
        }
        Ok(())
    }
}

impl Publisher for SubjectWriter {
    fn connect(&mut self) -> Attempt<()> {
        self.sent.clear();
        (self.asked, self.open, self.heard) = (0, 0, Timer::default());
        self.session.connect()?;
        if let Some(stream) = &self.stream {
            self.session.request_checked(&format!("STREAM.INFO.{stream}"), &json!(null))?;
        }
        Ok(())
    }

    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        let subject = self.subject(message)?.to_owned();
        if self.open == 0 && self.sent.is_empty() {
            self.heard = Timer::default();
        }
        let waiting = match self.stream.clone() {
            Some(stream) => {
                let (reply, id) = (format!("{}{number}", self.answers), self.id(number, message)?);
                let headers = [("Nats-Msg-Id", id.as_str()), ("Nats-Expected-Stream", &stream)];
                self.open += 1;
                self.session.put_message(&subject, Some(&reply), &headers, &message.value)
            }
            None => {
                self.sent.push_back(number);
                self.session.put_message(&subject, None, &[], &message.value)
            }
        };
        if waiting >= SEND_BYTES {
            self.session.flush()?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        if self.asked == 0 && !self.sent.is_empty() && self.session.pongs == 0 {
            self.asked = self.sent.len();
            self.session.pongs += 1;
            self.session.put("PING\r\n");
        }
        self.session.flush()?;
        let is_open = self.open > 0 || !self.sent.is_empty();
        self.take_answers(waits && is_open, numbers)?;
        match is_open && self.heard.elapsed() > ANSWER_WAIT {
            true => Err(Failure::no_answer(ANSWER_WAIT)),
            false => Ok(()),
        }
    }
}
