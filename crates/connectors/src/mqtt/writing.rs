//! Writes topics: with QoS 1 a message is done with when the broker says so.

use std::collections::{HashMap, VecDeque};

use thalweg_core::Error;
use thalweg_core::connector::TableRequest;

use super::options::MqttOptions;
use super::packets::Publish;
use super::session::{Incoming, Session, reason_text, unwritable};
use crate::messaging::{Outgoing, Publisher};
use crate::network::{Attempt, Cancel, Failure};

/// Writes topics.
pub struct TopicWriter {
    session: Session,
    topic: Option<String>,
    /// Which of the metadata of a row is its topic.
    topic_column: Option<usize>,
    is_acknowledged: bool,
    is_retained: bool,
    /// How many messages the broker takes before it has acknowledged the first of them.
    window: usize,
    next_id: u16,
    /// The numbers of messages that were sent, by packet identifier.
    sent: HashMap<u16, u64>,
    /// Messages that wait for the broker.
    waiting: VecDeque<(u64, Outgoing)>,
    /// Messages that nobody acknowledges, and that were sent.
    done: Vec<u64>,
}

impl TopicWriter {
    /// A writer of this table.
    pub fn new(options: MqttOptions, request: &TableRequest, cancel: Cancel) -> TopicWriter {
        TopicWriter {
            topic_column: request.metadata.iter().position(|(key, _)| key == "topic"),
            topic: options.topics.first().cloned(),
            is_acknowledged: options.qos == 1,
            is_retained: options.is_retained,
            session: Session::new(options.broker, cancel),
            window: 1,
            next_id: 1,
            sent: HashMap::new(),
            waiting: VecDeque::new(),
            done: Vec::new(),
        }
    }

    fn put(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        let of_row = self.topic_column.and_then(|at| message.metadata.get(at)?.as_deref());
        let topic = of_row.or(self.topic.as_deref()).ok_or_else(|| {
            Error::data("a row without a topic").hint("correct the column 'topic', or set 'topic'")
        })?;
        let mut packet = Publish {
            topic: topic.to_owned(),
            is_retained: self.is_retained,
            payload: message.value.clone(),
            ..Publish::default()
        };
        if self.is_acknowledged {
            while self.sent.contains_key(&self.next_id) || self.next_id == 0 {
                self.next_id = self.next_id.wrapping_add(1);
            }
            (packet.qos, packet.packet_id) = (1, Some(self.next_id));
            self.sent.insert(self.next_id, number);
            self.next_id = self.next_id.wrapping_add(1);
        } else {
            self.done.push(number);
        }
        let packet = packet.write().ok_or_else(unwritable)?;
        self.session.put(&packet);
        Ok(())
    }

    /// Sends messages that wait, as far as the broker takes them.
    fn put_waiting(&mut self) -> Attempt<()> {
        while self.sent.len() < self.window
            && let Some((number, message)) = self.waiting.pop_front()
        {
            self.put(number, &message)?;
        }
        Ok(())
    }

    fn check(&self, reason: u8) -> Attempt<()> {
        if reason < 0x80 {
            return Ok(());
        }
        let what = format!("{} refuses a message: {}", self.session.broker(), reason_text(reason));
        match reason {
            // Unspecified, specific to the broker, and a quota: others may be taken later.
            0x80 | 0x83 | 0x97 => Err(Failure::Passing(what)),
            _ => Err(Error::user(what).hint("correct the topic, or the broker's rules").into()),
        }
    }
}

impl Publisher for TopicWriter {
    fn connect(&mut self) -> Attempt<()> {
        (self.sent, self.waiting, self.done) = (HashMap::new(), VecDeque::new(), Vec::new());
        let answer = self.session.connect()?;
        self.window = usize::from(answer.receive_maximum).clamp(1, 60_000);
        Ok(())
    }

    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        self.waiting.push_back((number, message.clone()));
        self.put_waiting()
    }

    fn acknowledged(&mut self, waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        self.session.flush()?;
        numbers.append(&mut self.done);
        let mut waits = waits && !self.sent.is_empty();
        while let Some(packet) = self.session.poll(waits)? {
            let Incoming::Puback(packet_id, reason) = packet else { continue };
            waits = false;
            self.check(reason)?;
            numbers.extend(self.sent.remove(&packet_id));
        }
        self.put_waiting()?;
        self.session.flush()
    }

    fn close(&mut self) {
        self.session.close();
    }
}
