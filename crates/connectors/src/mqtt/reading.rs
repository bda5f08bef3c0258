//! Reads topics, and acknowledges messages when they need not come again.
//!
//! # What comes twice
//! The broker sends a message of QoS 1 again, under the same packet identifier, over each new
//! connection of the session until it is acknowledged. A message is known here by its identifier
//! and a hash of topic and payload, its mark.
//! - Over a new connection, the same mark is of the same message. It is left out, and acknowledged
//!   at once where the job is done with it.
//! - Marks of an earlier run, which the snapshot holds, are those of messages that the job is done
//!   with.
//! - Over the same connection the broker uses an identifier again only when it has processed the
//!   acknowledgement: another message, also where it is equal.
//! - What comes again has the flag DUP, and comes before all that is new. Behind the first message
//!   without the flag, nothing from before this connection comes again.
//!
//! # When a mark is settled
//! Brokers do not answer acknowledgements, but they process packets in order. So a ping follows
//! the acknowledgements, and when it is answered their messages never come again. Until then the
//! marks stay here, for a connection that breaks, and in snapshots, for a job that crashes.
//!
//! # What MQTT cannot say
//! Whether an equal message under an identifier that is used again is another one. Only one that
//! was sent between a snapshot and a crash, with the very same payload and identifier, would be
//! taken for the old one.

use std::collections::{HashMap, VecDeque};

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
    /// It was acknowledged over that connection; the answer to the ping of this number shows that
    /// the broker has processed that.
    shown_by: Option<u64>,
}

/// Reads topics.
pub struct TopicReader {
    session: Session,
    topics: Vec<String>,
    qos: u8,
    /// The number of the connection, from 1.
    connection: u64,
    /// What comes again over this connection has come.
    is_renewed: bool,
    /// By packet identifier.
    pending: HashMap<u16, Pending>,
    /// Acknowledged over this connection and not shown to be processed: number of the ping and
    /// packet identifier.
    unshown: VecDeque<(u64, u16)>,
    /// Marks that never come again, and were not reported.
    settled: Vec<Mark>,
}

impl TopicReader {
    /// A reader of these topics.
    pub fn new(session: Session, topics: Vec<String>, qos: u8) -> TopicReader {
        TopicReader {
            session,
            topics,
            qos,
            connection: 0,
            is_renewed: false,
            pending: HashMap::new(),
            unshown: VecDeque::new(),
            settled: Vec::new(),
        }
    }

    fn subscribe(&mut self) -> Attempt<()> {
        let packet = write_subscribe(1, &self.topics, self.qos).ok_or_else(unwritable)?;
        self.session.put(&packet);
        self.session.flush()
    }

    /// Takes a message, unless it has come before.
    fn take(&mut self, message: &Publish, inbox: &mut Inbox) -> Attempt<()> {
        let Some(packet_id) = message.packet_id else {
            add(message, None, inbox);
            return Ok(());
        };
        if !message.is_duplicate {
            self.renewed();
        }
        let mark = mark_of(message, packet_id);
        if let Some(known) = self.pending.get_mut(&packet_id) {
            let is_acknowledged = known.connection == self.connection && known.is_done;
            if known.mark == mark && !is_acknowledged {
                known.connection = self.connection;
                if known.is_done {
                    self.put_puback(packet_id);
                }
                return Ok(());
            }
            // The identifier is used again: the broker has crossed off what it was used for.
            self.settled.push(known.mark);
        }
        let connection = self.connection;
        let pending = Pending { mark, connection, is_done: false, shown_by: None };
        self.pending.insert(packet_id, pending);
        add(message, Some(mark), inbox);
        Ok(())
    }

    /// All that comes again has come: what the job was done with before this connection, and has
    /// not come, was crossed off.
    fn renewed(&mut self) {
        if self.is_renewed {
            return;
        }
        self.is_renewed = true;
        let connection = self.connection;
        let gone =
            self.pending.extract_if(|_, known| known.is_done && known.connection < connection);
        self.settled.extend(gone.map(|(_, known)| known.mark));
    }

    fn put_puback(&mut self, packet_id: u16) {
        let number = self.session.next_ping();
        if let Some(known) = self.pending.get_mut(&packet_id) {
            known.shown_by = Some(number);
        }
        self.unshown.push_back((number, packet_id));
        self.session.put_puback(packet_id);
    }

    /// The broker has answered a ping.
    fn shown(&mut self, answered: u64) {
        while let Some((number, packet_id)) = self.unshown.pop_front_if(|(n, _)| *n <= answered) {
            // The identifier may be that of another message by now.
            let is_same = |known: &&Pending| {
                known.connection == self.connection && known.shown_by == Some(number)
            };
            if let Some(known) = self.pending.get(&packet_id).filter(is_same) {
                self.settled.push(known.mark);
                self.pending.remove(&packet_id);
            }
        }
    }

    /// Sends what was put, and asks whether acknowledgements were processed.
    fn flush(&mut self) -> Attempt<()> {
        if let Some(&(number, _)) = self.unshown.back() {
            self.session.put_ping(number);
        }
        self.session.flush()
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
                Some(Incoming::Pingresp(number)) => self.shown(number),
                Some(Incoming::Puback(..)) => {}
                None => {
                    // A broker that waits for acknowledgements may have more.
                    let window = usize::from(self.session.broker().receive_maximum);
                    let open = self.pending.values().filter(|known| !known.is_done).count();
                    if waits && open < window {
                        inbox.caught_up(SplitId(0));
                    }
                    break;
                }
            }
            waits = false;
        }
        self.flush()
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
        self.is_renewed = false;
        self.unshown.clear();
        if !answer.is_session_present {
            // The broker knows of no message that was not acknowledged.
            self.settled.extend(self.pending.drain().map(|(_, known)| known.mark));
        }
        self.subscribe()
    }

    fn restore(&mut self, marks: &[Mark]) {
        let pending = |&mark: &Mark| {
            (mark as u16, Pending { mark, connection: 0, is_done: true, shown_by: None })
        };
        self.pending = marks.iter().map(pending).collect();
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
                    // Noted also where the connection has broken: it comes again over the next.
                    known.is_done = true;
                    self.put_puback(packet_id);
                }
                // It came over an earlier connection, and comes again over this one.
                Some(known) if !self.is_renewed => known.is_done = true,
                Some(_) => {
                    self.pending.remove(&packet_id);
                    self.settled.push(mark);
                }
                // The broker has lost it, or has used its identifier again.
                None => self.settled.push(mark),
            }
        }
        self.flush()
    }

    fn settled(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.settled)
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
