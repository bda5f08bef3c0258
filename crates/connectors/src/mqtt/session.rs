//! Packets of MQTT 5 over one connection: signing in, and staying alive.
//!
//! Which packet is sent when is decided by reading and writing: an acknowledgement waits for a
//! snapshot.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thalweg_core::Error;
use thalweg_core::connector::Secret;

use super::packets::{self, Connack, Connect, Packet, Publish};
use crate::network::wire::{Address, Wire};
use crate::network::{Attempt, Cancel, Failure, Timer};

/// The broker ends a connection on which nothing came for one and a half times this.
const KEEP_ALIVE_S: u16 = 30;
/// A packet is sent at least this often.
const PING_AFTER: Duration = Duration::from_secs(8);
/// A broker that has not answered for so long has gone.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Longer packets are refused, by the broker as well.
const PACKET_BYTES_MAX: usize = 64 << 20;

/// A broker, and who signs in.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Where it is.
    pub address: Address,
    /// By which it knows the session.
    pub client_id: String,
    /// Who signs in.
    pub username: Option<String>,
    /// With this password.
    pub password: Option<Secret>,
    /// How long it keeps the session while nobody is connected, in seconds; 0 for a session that
    /// ends with its connection.
    pub session_expiry_s: u32,
    /// Messages that it sends before the first of them is acknowledged.
    pub receive_maximum: u16,
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the MQTT broker at {}", self.address)
    }
}

/// A packet that has come.
pub enum Incoming {
    /// A message.
    Publish(Publish),
    /// A message of this identifier has arrived, or why not.
    Puback(u16, u8),
    /// What became of each subscription.
    Suback(Vec<u8>),
    /// The ping of this number was answered: what was sent before it has been processed.
    Pingresp(u64),
}

/// A connection that is opened when it is needed.
pub struct Session {
    broker: Broker,
    wire: Wire,
    /// Since a packet was sent.
    sent: Timer,
    /// Since the broker was asked whether it is there, and has not answered.
    pinged: Option<Timer>,
    /// How many pings were sent over this connection.
    pings: u64,
    /// How many of them were answered.
    pings_answered: u64,
}

/// The error of a packet of ours that can't be made.
pub fn unwritable() -> Failure {
    let help = "topics are 1 to 65,535 bytes without '+' and '#', messages shorter than 256 MiB";
    Failure::Final(Error::data("a packet of MQTT can't hold this").hint(help))
}

/// What reason codes of the broker mean.
pub fn reason_text(code: u8) -> String {
    let text = match code {
        0x80 => "unspecified error",
        0x82 => "protocol error",
        0x84 => "unsupported protocol version",
        0x85 => "client identifier not valid",
        0x86 => "bad user name or password",
        0x87 => "not authorized",
        0x88 => "server unavailable",
        0x89 => "server busy",
        0x8a => "banned",
        0x8b => "server shutting down",
        0x8d => "keep alive timeout",
        0x8e => "session taken over",
        0x8f => "topic filter invalid",
        0x90 => "topic name invalid",
        0x93 => "receive maximum exceeded",
        0x95 => "packet too large",
        0x97 => "quota exceeded",
        0x99 => "payload format invalid",
        0x9a => "retain not supported",
        0x9b => "QoS not supported",
        0x9c | 0x9d => "use another server",
        0x9f => "connection rate exceeded",
        0xa2 => "wildcard subscriptions not supported",
        _ => return format!("reason {code:#04x}"),
    };
    text.to_owned()
}

impl Session {
    /// A session with this broker.
    pub fn new(broker: Broker, cancel: Cancel) -> Session {
        let (wire, sent) = (Wire::new(PACKET_BYTES_MAX, cancel), Timer::default());
        Session { broker, wire, sent, pinged: None, pings: 0, pings_answered: 0 }
    }

    /// The broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Connects and signs in. What the broker answers.
    ///
    /// # Errors
    /// If the broker can't be reached, or refuses.
    pub fn connect(&mut self) -> Attempt<Connack> {
        (self.pinged, self.pings, self.pings_answered) = (None, 0, 0);
        self.wire.open(&self.broker.address)?;
        let packet = self.connect_packet().ok_or_else(unwritable)?;
        self.put(&packet);
        self.flush()?;
        let Packet::Connack(answer) = self.wire.wait_next(ANSWER_WAIT, parse)? else {
            return Err(Failure::Passing("no answer to CONNECT".to_owned()));
        };
        self.check_connack(&answer)?;
        Ok(answer)
    }

    fn connect_packet(&self) -> Option<Vec<u8>> {
        let broker = &self.broker;
        let connect = Connect {
            client_id: &broker.client_id,
            is_clean: broker.session_expiry_s == 0,
            keep_alive_s: KEEP_ALIVE_S,
            session_expiry_s: broker.session_expiry_s,
            receive_maximum: broker.receive_maximum,
            packet_bytes_max: PACKET_BYTES_MAX as u32,
            username: broker.username.as_deref(),
            password: broker.password.as_ref().map(Secret::expose),
        };
        connect.write()
    }

    fn check_connack(&self, answer: &Connack) -> Attempt<()> {
        let what = format!("{} refuses: {}", self.broker, reason_text(answer.reason));
        let help = match answer.reason {
            0 => return Ok(()),
            0x80 | 0x88 | 0x89 | 0x97 | 0x9f => return Err(Failure::Passing(what)),
            0x86 | 0x87 => "correct 'username' and 'password', or the broker's rules for this user",
            // As brokers of 3.1.1 alone answer.
            0x84 | 1 => "the broker must speak MQTT 5",
            0x85 => "choose another 'client-id'",
            _ => "see the broker's log",
        };
        Err(Failure::Final(Error::user(what).hint(help)))
    }

    /// Adds a packet to those that [`Session::flush`] sends.
    pub fn put(&mut self, packet: &[u8]) {
        self.sent = Timer::default();
        self.wire.output.extend_from_slice(packet);
    }

    /// Acknowledges a message.
    pub fn put_puback(&mut self, packet_id: u16) {
        self.put(&packets::write_puback(packet_id));
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn flush(&mut self) -> Attempt<()> {
        self.wire.flush()
    }

    /// Shows the broker that we are here, where that is due.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn keep_alive(&mut self) -> Attempt<()> {
        if self.sent.elapsed() < PING_AFTER {
            return Ok(());
        }
        self.ping();
        self.flush()
    }

    fn ping(&mut self) {
        self.put(&packets::PINGREQ);
        self.pings += 1;
        self.pinged.get_or_insert_default();
    }

    /// The number of the next ping over this connection. A broker processes packets in order: the
    /// answer shows that it has processed what was put before.
    pub fn next_ping(&self) -> u64 {
        self.pings + 1
    }

    /// Puts the ping of this number, unless it was put, or an earlier one is not answered yet.
    pub fn put_ping(&mut self, number: u64) {
        if number > self.pings && self.pings == self.pings_answered {
            self.ping();
        }
    }

    /// The next packet, if it is here or comes within a [`crate::network::TICK`] where `waits`.
    ///
    /// # Errors
    /// If the connection has broken, or the broker ends it.
    pub fn poll(&mut self, waits: bool) -> Attempt<Option<Incoming>> {
        self.keep_alive()?;
        loop {
            let Some(packet) = self.wire.next(waits, parse)? else {
                return match &self.pinged {
                    Some(since) if waits && since.elapsed() > ANSWER_WAIT => {
                        Err(Failure::no_answer(ANSWER_WAIT))
                    }
                    _ => Ok(None),
                };
            };
            self.pinged = None;
            return Ok(Some(match packet {
                Packet::Publish(message) => Incoming::Publish(message),
                Packet::Puback(packet_id, reason) => Incoming::Puback(packet_id, reason),
                Packet::Suback(reasons) => Incoming::Suback(reasons),
                Packet::Disconnect(reason) => return Err(self.ended(reason)),
                Packet::Pingresp => {
                    self.pings_answered += 1;
                    Incoming::Pingresp(self.pings_answered)
                }
                Packet::Connack(_) | Packet::Other => continue,
            }));
        }
    }

    /// The broker ends the connection.
    fn ended(&self, reason: u8) -> Failure {
        if reason != 0x8e {
            let reason = reason_text(reason);
            return Failure::Passing(format!("the broker ends the connection: {reason}"));
        }
        Failure::Final(
            Error::user(format!(
                "another client has taken over the session '{}' of {}",
                self.broker.client_id, self.broker
            ))
            .hint("give each job, and each table that is read, a 'client-id' of its own"),
        )
    }

    /// Ends the connection as a client does that comes back.
    pub fn close(&mut self) {
        // A broker that does not hear it notices the end of the connection.
        self.put(&packets::DISCONNECT);
        let _ = self.flush();
        self.wire.close();
    }
}

/// The packet that the input begins with, if it is there in full.
fn parse(input: &mut BytesMut) -> Attempt<Option<Packet>> {
    let malformed = || Failure::Passing("a packet that makes no sense".to_owned());
    let span = packets::span(input).map_err(|()| malformed())?;
    let Some((start, end)) = span else { return Ok(None) };
    let packet = packets::read(input[0], &input[start..end]);
    input.advance(end);
    packet.map(Some).ok_or_else(malformed)
}
