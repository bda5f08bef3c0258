//! Reads subjects as their messages come, or a stream of JetStream from a sequence number on.
//!
//! A stream is read by a consumer of this connection alone, without acknowledgements. It numbers
//! what it sends; where a number is missing, a new consumer begins behind the last message.

use std::time::Duration;

use serde_json::{Value, json};
use thalweg_core::connector::SplitId;
use thalweg_core::text::format_timestamp_millis;

use super::options::NatsOptions;
use super::protocol::NatsMessage;
use super::session::Session;
use crate::messaging::{Client, Inbox, Mark, MarkText, Message, Metadata, Startup, removed_unread};
use crate::network::{Attempt, Failure, Timer};

/// The subscription for messages.
const MESSAGES: u64 = 2;
/// JetStream says that it is there this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A consumer that was silent for so long has gone.
const HEARTBEAT_WAIT: Duration = Duration::from_secs(16);

/// How sequence numbers are written.
pub const SEQUENCES: MarkText = MarkText {
    noun: "sequence",
    write: |mark| mark.to_string(),
    read: |text| text.parse::<u64>().ok().map(Mark::from),
};

/// Reads subjects, or a stream.
pub struct SubjectReader {
    session: Session,
    options: NatsOptions,
    is_subscribed: bool,
    subscriptions: u64,
    /// How many messages the consumer has sent.
    consumed: u64,
    /// Since the consumer sent something.
    heard: Timer,
}

/// What JetStream says of a message, in the subject of its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delivery {
    sequence: u64,
    consumer_sequence: u64,
    time_ns: u64,
    pending: u64,
}

impl Delivery {
    /// `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER_SEQUENCE.TIME.PENDING[.…]`
    fn read(reply: &str) -> Option<Delivery> {
        let tokens: Vec<&str> = reply.split('.').collect();
        let first = match tokens.len() {
            9 => 5,
            11.. => 7,
            _ => return None,
        };
        if !reply.starts_with("$JS.ACK.") {
            return None;
        }
        let number = |at: usize| tokens.get(first + at)?.parse::<u64>().ok();
        Some(Delivery {
            sequence: number(0)?,
            consumer_sequence: number(1)?,
            time_ns: number(2)?,
            pending: number(3)?,
        })
    }
}

impl SubjectReader {
    /// A reader over this session.
    pub fn new(session: Session, options: NatsOptions) -> SubjectReader {
        SubjectReader {
            session,
            options,
            is_subscribed: false,
            subscriptions: 0,
            consumed: 0,
            heard: Timer::default(),
        }
    }

    fn stream_state(&mut self, stream: &str) -> Attempt<(u64, u64)> {
        let info = self.session.request_checked(&format!("STREAM.INFO.{stream}"), &Value::Null)?;
        let number = |key: &str| info.pointer(&format!("/state/{key}")).and_then(Value::as_u64);
        match (number("first_seq"), number("last_seq")) {
            (Some(first), Some(last)) => Ok((first, last)),
            _ => Err(Failure::Passing("STREAM.INFO makes no sense".to_owned())),
        }
    }

    /// Checks that what lies behind a message was not removed.
    fn check_kept(&mut self, stream: &str, last: u64) -> Attempt<()> {
        let (first, newest) = self.stream_state(stream)?;
        let why = if newest < last {
            format!(
                "stream '{stream}' ends before sequence {last}, which was read: it was created again"
            )
        } else if first > last + 1 && !self.options.ignores_removed {
            format!(
                "stream '{stream}' may have lost messages: it begins with {first}, and was read up to {last}"
            )
        } else {
            return Ok(());
        };
        Err(removed_unread(why, "messages"))
    }

    fn subscribe(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        self.subscriptions += 1;
        let Some(stream) = self.options.stream.clone() else {
            let queue = self.options.queue_group.clone();
            let queue = queue.map_or(String::new(), |queue| format!(" {queue}"));
            for subject in self.options.subjects.clone() {
                self.session.put(&format!("SUB {subject}{queue} {MESSAGES}\r\n"));
            }
            self.is_subscribed = true;
            return self.session.flush();
        };
        let last = inbox.splits()[0].last.unwrap_or(0) as u64;
        let deliver = format!("{}.m{}", self.session.inbox(), self.subscriptions);
        self.session.put(&format!("SUB {deliver} {MESSAGES}\r\n"));
        let mut config = self.consumer();
        config["deliver_policy"] = "by_start_sequence".into();
        config["opt_start_seq"] = (last + 1).into();
        config["deliver_subject"] = deliver.into();
        config["flow_control"] = true.into();
        config["idle_heartbeat"] = (HEARTBEAT.as_nanos() as u64).into();
        let request = json!({ "stream_name": stream, "config": config });
        let made = self.session.request_checked(&format!("CONSUMER.CREATE.{stream}"), &request)?;
        (self.consumed, self.heard, self.is_subscribed) = (0, Timer::default(), true);
        if made.get("num_pending").and_then(Value::as_u64) == Some(0) {
            caught_up(inbox);
        }
        Ok(())
    }

    /// A consumer of this connection alone.
    fn consumer(&self) -> Value {
        let mut config = json!({
            "ack_policy": "none", "max_deliver": 1, "mem_storage": true, "num_replicas": 1,
            "inactive_threshold": 30_000_000_000_u64,
        });
        match self.options.subjects.as_slice() {
            [] => {}
            [subject] => config["filter_subject"] = subject.as_str().into(),
            subjects => config["filter_subjects"] = subjects.into(),
        }
        config
    }

    fn take(&mut self, message: &NatsMessage, inbox: &mut Inbox) -> Attempt<()> {
        if message.subscription != MESSAGES {
            return Ok(());
        }
        if self.options.stream.is_none() {
            add(message, None, inbox);
            return Ok(());
        }
        self.heard = Timer::default();
        if message.status.is_some() {
            return self.take_status(message);
        }
        let delivery = message.reply.as_deref().and_then(Delivery::read);
        // Someone has published to the subject of the consumer.
        let Some(delivery) = delivery else { return Ok(()) };
        if delivery.consumer_sequence != self.consumed + 1 {
            return Err(Failure::Passing("messages of a consumer are missing".to_owned()));
        }
        self.consumed += 1;
        let mark = Mark::from(delivery.sequence);
        let stop = inbox.splits()[0].stop;
        if stop.is_none_or(|stop| mark <= stop) {
            add(message, Some(delivery), inbox);
        }
        inbox.lags(SplitId(0), delivery.pending);
        if delivery.pending == 0 || stop.is_some_and(|stop| mark >= stop) {
            caught_up(inbox);
        }
        Ok(())
    }

    /// The consumer says that it is there, or asks whether we are.
    fn take_status(&mut self, message: &NatsMessage) -> Attempt<()> {
        if let Some(reply) = message.reply.as_deref().or(message.header("Nats-Consumer-Stalled")) {
            self.session.put_message(reply, None, &[], b"");
            self.session.flush()?;
        }
        match message.header("Nats-Last-Consumer").map(str::parse::<u64>) {
            Some(Ok(sent)) if sent != self.consumed => {
                Err(Failure::Passing("messages of a consumer are missing".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn receive_some(&mut self, inbox: &mut Inbox, mut waits: bool) -> Attempt<()> {
        while !inbox.is_full() {
            match self.session.poll(waits)? {
                Some(message) => self.take(&message, inbox)?,
                None => {
                    if waits && self.options.stream.is_none() {
                        inbox.caught_up(SplitId(0));
                    }
                    break;
                }
            }
            waits = false;
        }
        let is_silent = waits && self.heard.elapsed() > HEARTBEAT_WAIT;
        match is_silent && self.options.stream.is_some() {
            true => Err(Failure::Passing("the consumer has gone".to_owned())),
            false => Ok(()),
        }
    }
}

/// All that there is of the stream was received.
fn caught_up(inbox: &mut Inbox) {
    // Behind the last message some may have been deleted.
    if let Some(stop) = inbox.splits()[0].stop {
        inbox.reach(SplitId(0), stop);
    }
    inbox.caught_up(SplitId(0));
}

fn add(message: &NatsMessage, delivery: Option<Delivery>, inbox: &mut Inbox) {
    let metadata = inbox.wants().iter().map(|key| match (key.as_str(), delivery) {
        ("subject", _) => Metadata::Text(message.subject.clone()),
        ("headers", _) => Metadata::Texts(message.headers.clone()),
        ("message-id", _) => match message.header("Nats-Msg-Id") {
            Some(id) => Metadata::Text(id.to_owned()),
            None => Metadata::Null,
        },
        ("sequence", Some(delivery)) => Metadata::Number(delivery.sequence as i64),
        ("timestamp", Some(delivery)) => Metadata::Time((delivery.time_ns / 1_000_000) as i64),
        _ => Metadata::Null,
    });
    let metadata = metadata.collect();
    let mark = delivery.map(|delivery| Mark::from(delivery.sequence));
    let value = Some(message.payload.as_slice());
    inbox.add(Message { split: SplitId(0), mark, value, metadata });
}

impl Client for SubjectReader {
    fn connect(&mut self, inbox: &Inbox) -> Attempt<()> {
        self.is_subscribed = false;
        self.session.connect()?;
        let last = inbox.splits().first().and_then(|split| split.last).filter(|&last| last > 0);
        match (self.options.stream.clone(), last) {
            (Some(stream), Some(last)) => self.check_kept(&stream, last as u64),
            _ => Ok(()),
        }
    }

    fn start_mark(&mut self, split: &str, startup: Startup) -> Attempt<Option<Mark>> {
        let millis = match startup {
            Startup::Earliest => {
                let (first, _) = self.stream_state(split)?;
                return Ok(Some(Mark::from(first.saturating_sub(1))));
            }
            Startup::Latest => return Ok(Some(Mark::from(self.stream_state(split)?.1))),
            Startup::Time(millis) => millis,
        };
        let mut config = self.consumer();
        config["deliver_policy"] = "by_start_time".into();
        let time = format_timestamp_millis(millis, 3).replace(' ', "T") + "Z";
        config["opt_start_time"] = time.into();
        let request = json!({ "stream_name": split, "config": config });
        let made = self.session.request_checked(&format!("CONSUMER.CREATE.{split}"), &request)?;
        let before = made.pointer("/delivered/stream_seq").and_then(Value::as_u64);
        if let Some(name) = made.get("name").and_then(Value::as_str) {
            let delete = format!("CONSUMER.DELETE.{split}.{name}");
            self.session.request(&delete, &Value::Null)?;
        }
        before
            .map(|before| Some(Mark::from(before)))
            .ok_or_else(|| Failure::Passing("CONSUMER.CREATE makes no sense".to_owned()))
    }

    fn newest(&mut self, split: &str) -> Attempt<Option<Mark>> {
        if self.options.subjects.is_empty() {
            return Ok(Some(Mark::from(self.stream_state(split)?.1)));
        }
        let mut newest = None;
        for subject in self.options.subjects.clone() {
            let request = json!({ "last_by_subj": subject });
            let answer = self.session.request(&format!("STREAM.MSG.GET.{split}"), &request)?;
            let number = |pointer: &str| answer.pointer(pointer).and_then(Value::as_u64);
            match (number("/message/seq"), answer.get("error")) {
                (Some(sequence), _) => newest = newest.max(Some(Mark::from(sequence))),
                // There is no message of the subject.
                (None, Some(_)) if number("/error/err_code") == Some(10_037) => {}
                (None, Some(error)) => return Err(self.session.explained(error)),
                (None, None) => {
                    return Err(Failure::Passing("STREAM.MSG.GET makes no sense".to_owned()));
                }
            }
        }
        Ok(newest)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        if !self.is_subscribed {
            self.subscribe(inbox)?;
        }
        self.receive_some(inbox, true)
    }

    fn idle(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        self.session.keep_alive()?;
        match self.is_subscribed {
            true => self.receive_some(inbox, false),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_read_with_and_without_a_domain() {
        let expected =
            Delivery { sequence: 42, consumer_sequence: 7, time_ns: 1_700_000_000, pending: 3 };
        for reply in [
            "$JS.ACK.orders.c1.1.42.7.1700000000.3",
            "$JS.ACK.hub.hash.orders.c1.1.42.7.1700000000.3",
            "$JS.ACK.hub.hash.orders.c1.1.42.7.1700000000.3.token",
        ] {
            assert_eq!(Delivery::read(reply), Some(expected), "{reply}");
        }
        for wrong in ["", "a.b", "$JS.ACK.orders.c1.1.x.7.1.3", "x.y.orders.c1.1.42.7.1.3"] {
            assert_eq!(Delivery::read(wrong), None, "{wrong}");
        }
    }
}
