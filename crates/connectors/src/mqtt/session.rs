//! Packets of MQTT 5 over one connection: signing in, and staying alive.
//!
//! The library reads and writes packets; which one is sent when is decided here, since an
//! acknowledgement waits for a snapshot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::v5_0::{
    Connack, Connect, Disconnect, Pingreq, Puback, Publish, Suback,
};
use mqtt_protocol_core::mqtt::packet::{
    MaximumPacketSize, Property, ReceiveMaximum, SessionExpiryInterval,
};
use mqtt_protocol_core::mqtt::result_code::{ConnectReasonCode, DisconnectReasonCode, MqttError};
use thalweg_core::Error;
use thalweg_core::connector::Secret;

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
    Publish(Box<Publish>),
    /// A message of this number has arrived, or not.
    Puback(Puback),
    /// Subscriptions are made, or not.
    Suback(Suback),
}

/// A connection that is opened when it is needed.
pub struct Session {
    broker: Broker,
    cancel: Cancel,
    wire: Option<Wire>,
    /// Since a packet was sent.
    sent: Timer,
    /// Since the broker was asked whether it is there, and has not answered.
    pinged: Option<Timer>,
}

fn malformed(error: MqttError) -> Failure {
    Failure::Passing(format!("a packet that makes no sense: {error:?}"))
}

/// The error of a packet of ours that can't be made.
pub fn unwritable(error: MqttError) -> Failure {
    Failure::Final(Error::data(format!("this can't be sent by MQTT: {error:?}")))
}

impl Session {
    /// A session with this broker.
    pub fn new(broker: Broker, cancel: Cancel) -> Session {
        Session { broker, cancel, wire: None, sent: Timer::default(), pinged: None }
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
        self.wire = None;
        self.pinged = None;
        let wire = Wire::open(&self.broker.address, PACKET_BYTES_MAX, &self.cancel)?;
        self.wire = Some(wire);
        let packet = self.connect_packet().map_err(unwritable)?;
        self.put(&packet.to_continuous_buffer())?;
        self.flush()?;
        let since = Timer::default();
        loop {
            if let Some((kind, body)) = self.next_packet(true)? {
                if kind >> 4 != 2 {
                    return Err(Failure::Passing("no answer to CONNECT".to_owned()));
                }
                let (answer, _) = Connack::parse(&body).map_err(malformed)?;
                self.check_connack(&answer)?;
                return Ok(answer);
            }
            self.wire()?.check_wait(&since, ANSWER_WAIT)?;
        }
    }

    fn connect_packet(&self) -> Result<Connect, MqttError> {
        let broker = &self.broker;
        let properties = vec![
            Property::SessionExpiryInterval(SessionExpiryInterval::new(broker.session_expiry_s)?),
            Property::ReceiveMaximum(ReceiveMaximum::new(broker.receive_maximum)?),
            Property::MaximumPacketSize(MaximumPacketSize::new(PACKET_BYTES_MAX as u32)?),
        ];
        let mut packet = Connect::builder()
            .client_id(broker.client_id.as_str())?
            .clean_start(broker.session_expiry_s == 0)
            .keep_alive(KEEP_ALIVE_S)
            .props(properties);
        if let Some(user) = &broker.username {
            packet = packet.user_name(user.as_str())?;
        }
        if let Some(password) = &broker.password {
            packet = packet.password(password.expose())?;
        }
        packet.build()
    }

    fn check_connack(&self, answer: &Connack) -> Attempt<()> {
        use ConnectReasonCode as Code;
        let code = answer.reason_code();
        let what = format!("{} refuses: {code}", self.broker);
        let help = match code {
            Code::Success => return Ok(()),
            Code::ServerUnavailable
            | Code::ServerBusy
            | Code::QuotaExceeded
            | Code::ConnectionRateExceeded
            | Code::UnspecifiedError => return Err(Failure::Passing(what)),
            Code::BadUserNameOrPassword | Code::NotAuthorized => {
                "correct 'username' and 'password', or the broker's rules for this user"
            }
            Code::UnsupportedProtocolVersion => "the broker must speak MQTT 5",
            Code::ClientIdentifierNotValid => "choose another 'client-id'",
            _ => "see the broker's log",
        };
        Err(Failure::Final(Error::user(what).hint(help)))
    }

    fn wire(&mut self) -> Attempt<&mut Wire> {
        self.wire.as_mut().ok_or_else(|| Failure::Passing("not connected".to_owned()))
    }

    /// Adds a packet to those that [`Session::flush`] sends.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn put(&mut self, packet: &[u8]) -> Attempt<()> {
        self.sent = Timer::default();
        self.wire()?.put(packet);
        Ok(())
    }

    /// Acknowledges a message.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn put_puback(&mut self, packet_id: u16) -> Attempt<()> {
        let packet = Puback::builder().packet_id(packet_id).build().map_err(unwritable)?;
        self.put(&packet.to_continuous_buffer())
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn flush(&mut self) -> Attempt<()> {
        self.wire()?.flush()
    }

    /// Shows the broker that we are here, where that is due.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn keep_alive(&mut self) -> Attempt<()> {
        if self.sent.elapsed() < PING_AFTER {
            return Ok(());
        }
        let packet = Pingreq::builder().build().map_err(unwritable)?;
        self.put(&packet.to_continuous_buffer())?;
        self.pinged.get_or_insert_default();
        self.flush()
    }

    /// The next packet, if it is here or comes within a [`crate::network::TICK`] where `waits`.
    ///
    /// # Errors
    /// If the connection has broken, or the broker ends it.
    pub fn poll(&mut self, waits: bool) -> Attempt<Option<Incoming>> {
        self.keep_alive()?;
        loop {
            let Some((kind, body)) = self.next_packet(waits)? else {
                return match &self.pinged {
                    Some(since) if waits && since.elapsed() > ANSWER_WAIT => {
                        Err(Failure::Passing(format!("no answer for {} s", ANSWER_WAIT.as_secs())))
                    }
                    _ => Ok(None),
                };
            };
            self.pinged = None;
            return Ok(Some(match kind >> 4 {
                3 => {
                    let body: Arc<[u8]> = body.into();
                    let (packet, _) = Publish::parse(kind & 15, body).map_err(malformed)?;
                    Incoming::Publish(Box::new(packet))
                }
                4 => Incoming::Puback(Puback::parse(&body).map_err(malformed)?.0),
                9 => Incoming::Suback(Suback::parse(&body).map_err(malformed)?.0),
                14 => return Err(self.ended(&body)),
                _ => continue,
            }));
        }
    }

    /// The broker ends the connection.
    fn ended(&self, body: &[u8]) -> Failure {
        let code = Disconnect::parse(body).ok().and_then(|(packet, _)| packet.reason_code());
        match code {
            Some(DisconnectReasonCode::SessionTakenOver) => Failure::Final(
                Error::user(format!(
                    "another client has taken over the session '{}' of {}",
                    self.broker.client_id, self.broker
                ))
                .hint("give each job, and each table that is read, a 'client-id' of its own"),
            ),
            Some(code) => Failure::Passing(format!("the broker ends the connection: {code}")),
            None => Failure::Passing("the broker ends the connection".to_owned()),
        }
    }

    /// The first byte and the body of the next packet.
    fn next_packet(&mut self, waits: bool) -> Attempt<Option<(u8, Vec<u8>)>> {
        let wire = self.wire()?;
        loop {
            if let Some((start, end)) = span(wire.input())? {
                let packet = (wire.input()[0], wire.input()[start..end].to_vec());
                wire.consume(end);
                return Ok(Some(packet));
            }
            if !waits || !wire.fill()? {
                return Ok(None);
            }
        }
    }

    /// Ends the connection as a client does that comes back.
    pub fn close(&mut self) {
        if let Ok(packet) = Disconnect::builder().build() {
            // A broker that does not hear it notices the end of the connection.
            let _ = self.put(&packet.to_continuous_buffer()).and_then(|()| self.flush());
        }
        self.wire = None;
    }
}

/// Where the body of the first packet begins and ends, if it is there in full.
fn span(bytes: &[u8]) -> Attempt<Option<(usize, usize)>> {
    let mut length = 0_usize;
    for at in 0..4 {
        let Some(&byte) = bytes.get(at + 1) else { return Ok(None) };
        length |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            let (start, end) = (at + 2, at + 2 + length);
            return Ok((bytes.len() >= end).then_some((start, end)));
        }
    }
    Err(Failure::Passing("this is no broker of MQTT".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_cut_by_their_lengths() {
        let long = [&[0x30, 0x80, 0x01][..], &[7; 128], &[0xd0, 0]].concat();
        assert_eq!(span(&long).expect("a packet"), Some((3, 131)));
        for end in 0..131 {
            assert_eq!(span(&long[..end]).expect("no error"), None);
        }
        assert_eq!(span(&[0xd0, 0]).expect("a packet"), Some((2, 2)));
        assert!(span(&[0x30, 0x80, 0x80, 0x80, 0x80, 1]).is_err());
    }
}
