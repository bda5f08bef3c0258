//! Reads topics, and acknowledges messages when they need not come again.
//!
//! # What comes twice
//! The broker sends a message of QoS 1 again, under the same packet identifier, over each new
//! connection of the session until it is acknowledged. A message is known here by its identifier
//! and a hash of topic and payload, its mark.
//! - Of this run: an identifier that was not acknowledged is of the same message. It is left out,
//!   and acknowledged at once where the job was done with it meanwhile.
//! - Of an earlier run: a message with the flag DUP whose mark the snapshot holds is left out. An
//!   identifier that the broker has given to another message has another hash.
//!
//! # What MQTT cannot say
//! Whether an equal message under an identifier that is used again is another one. Only one that
//! was sent between a snapshot and a crash, with the very same payload and identifier, would be
//! taken for the old one.

use std::collections::HashMap;

use thalweg_core::Error;
use thalweg_core::connector::SplitId;

use super::packets::{Publish, write_subscribe};
use super::session::{Incoming, Session, reason_text, unwritable};
use crate::messaging::{Client, Inbox, Mark, MarkText, Message, Metadata};
use crate::network::Attempt;

/// How marks are written: hash and identifier.
pub const MARKS: MarkText = MarkText {
    noun: "message",
    write: |mark| format!("{:016x}-{}", (mark >> 16) as u64, mark as u16),
    read: read_mark,
};

fn read_mark(text: &str) -> Option<Mark> {
    let (hash, packet_id) = text.split_once('-')?;
    let (hash, packet_id) = (u64::from_str_radix(hash, 16).ok()?, packet_id.parse::<u16>().ok()?);
    Some(Mark::from(hash) << 16 | Mark::from(packet_id))
}

/// The mark of a message: FNV-1a of its topic and payload, and its identifier.
fn mark_of(message: &Publish, packet_id: u16) -> Mark {
    let topic = message.topic.bytes().chain([0]);
    let bytes = topic.chain(message.payload.iter().copied());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Mark::from(hash) << 16 | Mark::from(packet_id)
}

/// A message that was received and that the broker is not known to have crossed off.
struct Pending {
    mark: Mark,
    /// The number of the connection over which it came last.
    connection: u64,
    /// It need not come again.
    is_done: bool,
}

/// Reads topics.
pub struct TopicReader {
    session: Session,
    topics: Vec<String>,
    qos: u8,
    connection: u64,
    /// Messages of this run, by packet identifier.
    pending: HashMap<u16, Pending>,
    /// Messages of earlier runs, by packet identifier.
    restored: HashMap<u16, Mark>,
}

impl TopicReader {
    /// A reader of these topics.
    pub fn new(session: Session, topics: Vec<String>, qos: u8) -> TopicReader {
        TopicReader {
            session,
            topics,
            qos,
            connection: 0,
            pending: HashMap::new(),
            restored: HashMap::new(),
        }
    }

    fn subscribe(&mut self) -> Attempt<()> {
        let packet = write_subscribe(1, &self.topics, self.qos).ok_or_else(unwritable)?;
        self.session.put(&packet)?;
        self.session.flush()
    }

    /// Takes a message, unless it has come before.
    fn take(&mut self, message: &Publish, inbox: &mut Inbox) -> Attempt<()> {
        let Some(packet_id) = message.packet_id else {
            add(message, None, inbox);
            return Ok(());
        };
        let mark = mark_of(message, packet_id);
        if let Some(known) = self.pending.get_mut(&packet_id)
            && known.mark == mark
        {
            known.connection = self.connection;
            if known.is_done {
                self.pending.remove(&packet_id);
                self.session.put_puback(packet_id)?;
            }
            return Ok(());
        }
        if message.is_duplicate && self.restored.get(&packet_id) == Some(&mark) {
            self.restored.remove(&packet_id);
            return self.session.put_puback(packet_id);
        }
        if !message.is_duplicate {
            // What the broker sends again comes before all that is new.
            self.restored.clear();
        }
        let pending = Pending { mark, connection: self.connection, is_done: false };
        self.pending.insert(packet_id, pending);
        add(message, Some(mark), inbox);
        Ok(())
    }

    fn receive_some(&mut self, inbox: &mut Inbox, mut waits: bool) -> Attempt<()> {
        while !inbox.is_full() {
            match self.session.poll(waits)? {
                Some(Incoming::Publish(message)) => self.take(&message, inbox)?,
                Some(Incoming::Suback(answer)) => {
                    let mut answers = self.topics.iter().zip(answer);
                    if let Some((topic, code)) = answers.find(|(_, code)| *code >= 0x80) {
                        let (broker, why) = (self.session.broker(), reason_text(code));
                        let what = format!("{broker} refuses to subscribe to '{topic}': {why}");
                        let error = Error::user(what);
                        return Err(error.hint("correct 'topic', or the broker's rules").into());
                    }
                }
                Some(Incoming::Puback(..)) => {}
                None => {
                    // A broker that waits for acknowledgements may have more.
                    let window = usize::from(self.session.broker().receive_maximum);
                    if waits && self.pending.len() < window {
                        inbox.caught_up(SplitId(0));
                    }
                    break;
                }
            }
            waits = false;
        }
        self.session.flush()
    }
}

fn add(message: &Publish, mark: Option<Mark>, inbox: &mut Inbox) {
    let metadata = inbox.wants().iter().map(|key| match key.as_str() {
        "topic" => Metadata::Text(message.topic.clone()),
        "qos" => Metadata::Number(i64::from(message.qos)),
        "retained" => Metadata::Flag(message.is_retained),
        "user-properties" => Metadata::Texts(message.user_properties.clone()),
        _ => Metadata::Null,
    });
    let (metadata, value) = (metadata.collect(), Some(message.payload.as_slice()));
    inbox.add(Message { split: SplitId(0), mark, value, metadata });
}

impl Client for TopicReader {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        let answer = self.session.connect()?;
        self.connection += 1;
        if !answer.is_session_present {
            // The broker knows of no message that was not acknowledged.
            self.pending.clear();
            self.restored.clear();
        }
        self.subscribe()
    }

    fn restore(&mut self, marks: &[Mark]) {
        self.restored = marks.iter().map(|&mark| (mark as u16, mark)).collect();
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        self.receive_some(inbox, true)
    }

    fn idle(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        self.session.keep_alive()?;
        self.receive_some(inbox, false)
    }

    fn acknowledge(&mut self, marks: &[Mark]) -> Attempt<()> {
        for &mark in marks {
            let packet_id = mark as u16;
            match self.pending.get_mut(&packet_id).filter(|known| known.mark == mark) {
                Some(known) if known.connection == self.connection => {
                    self.pending.remove(&packet_id);
                    self.session.put_puback(packet_id)?;
                }
                // It came over an earlier connection, and comes again over this one.
                Some(known) => known.is_done = true,
                None => {}
            }
        }
        self.session.flush()
    }

    fn close(&mut self) {
        self.session.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_topic_payload_and_identifier() {
        let message = |topic: &str, payload: &str| Publish {
            topic: topic.to_owned(),
            payload: payload.as_bytes().to_vec(),
            ..Publish::default()
        };
        let mark = mark_of(&message("a", "b"), 7);
        assert_eq!(read_mark(&(MARKS.write)(mark)), Some(mark));
        assert_eq!(mark as u16, 7);
        for other in [mark_of(&message("ab", ""), 7), mark_of(&message("a", "c"), 7)] {
            assert_ne!(other, mark);
        }
        assert_eq!((read_mark("x-1"), read_mark("12"), read_mark("1-99999")), (None, None, None));
    }
}
