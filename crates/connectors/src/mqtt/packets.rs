//! Packets of MQTT 5: those that a client needs, as bytes.
//!
//! Lengths that a broker sends are checked before they are used: what makes no sense is `None`.

/// A property by its identifier, as far as it is of use here.
const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
const RECEIVE_MAXIMUM: u8 = 0x21;
const USER_PROPERTY: u8 = 0x26;
const MAXIMUM_PACKET_SIZE: u8 = 0x27;

/// What a client says first.
#[derive(Clone, Debug, Default)]
pub struct Connect<'a> {
    /// The name of the session.
    pub client_id: &'a str,
    /// An old session of this name is dropped.
    pub is_clean: bool,
    /// The longest silence, in seconds.
    pub keep_alive_s: u16,
    /// How long the broker keeps the session, in seconds.
    pub session_expiry_s: u32,
    /// Messages of QoS 1 that are not acknowledged, at most.
    pub receive_maximum: u16,
    /// The longest packet that the client takes.
    pub packet_bytes_max: u32,
    /// Who signs in.
    pub username: Option<&'a str>,
    /// With this password.
    pub password: Option<&'a str>,
}

/// The broker's answer to [`Connect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connack {
    /// It has kept the session.
    pub is_session_present: bool,
    /// 0, or why it refuses.
    pub reason: u8,
    /// Messages of QoS 1 that it takes before it has acknowledged the first of them.
    pub receive_maximum: u16,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// Its topic.
    pub topic: String,
    /// Its packet identifier, with QoS 1.
    pub packet_id: Option<u16>,
    /// 0, 1 or 2.
    pub qos: u8,
    /// It may have come before.
    pub is_duplicate: bool,
    /// The broker had kept it, or is to keep it.
    pub is_retained: bool,
    /// What the sender has added.
    pub user_properties: Vec<(String, String)>,
    /// What it says.
    pub payload: Vec<u8>,
}

/// A packet that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The answer to [`Connect`].
    Connack(Connack),
    /// A message.
    Publish(Publish),
    /// A message of this identifier has arrived, or why not.
    Puback(u16, u8),
    /// What became of each subscription.
    Suback(Vec<u8>),
    /// The broker ends the connection, and why.
    Disconnect(u8),
    /// It is there.
    Pingresp,
    /// Something else.
    Other,
}

impl Connect<'_> {
    /// As bytes; `None` if a text is too long.
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        put_text(&mut body, "MQTT")?;
        let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
        let (user, password) = (self.username.is_some(), self.password.is_some());
        body.extend([5, flag(user, 7) | flag(password, 6) | flag(self.is_clean, 1)]);
        body.extend(self.keep_alive_s.to_be_bytes());
        let mut properties = vec![SESSION_EXPIRY_INTERVAL];
        properties.extend(self.session_expiry_s.to_be_bytes());
        properties.push(RECEIVE_MAXIMUM);
        properties.extend(self.receive_maximum.to_be_bytes());
        properties.push(MAXIMUM_PACKET_SIZE);
        properties.extend(self.packet_bytes_max.to_be_bytes());
        put_length(&mut body, properties.len())?;
        body.extend(properties);
        put_text(&mut body, self.client_id)?;
        for text in self.username.iter().chain(&self.password) {
            put_text(&mut body, text)?;
        }
        packet(0x10, &body)
    }
}

impl Publish {
    /// As bytes; `None` if the topic is none, or the message is too long.
    pub fn write(&self) -> Option<Vec<u8>> {
        if self.topic.is_empty() || self.topic.contains(['+', '#', '\0']) {
            return None;
        }
        let mut body = Vec::with_capacity(self.payload.len() + self.topic.len() + 8);
        put_text(&mut body, &self.topic)?;
        body.extend(self.packet_id.map(u16::to_be_bytes).into_iter().flatten());
        let mut properties = Vec::new();
        for (name, value) in &self.user_properties {
            properties.push(USER_PROPERTY);
            put_text(&mut properties, name)?;
            put_text(&mut properties, value)?;
        }
        put_length(&mut body, properties.len())?;
        body.extend(properties);
        body.extend_from_slice(&self.payload);
        let flags = u8::from(self.is_duplicate) << 3 | self.qos << 1 | u8::from(self.is_retained);
        packet(0x30 | flags, &body)
    }

    fn read(flags: u8, body: &mut Body<'_>) -> Option<Publish> {
        let qos = flags >> 1 & 3;
        let topic = body.text()?;
        let packet_id = if qos > 0 { Some(body.u16()?) } else { None };
        let mut user_properties = Vec::new();
        body.properties(&mut |property| {
            if let Property::User(name, value) = property {
                user_properties.push((name, value));
            }
        })?;
        let payload = body.0.to_vec();
        let (is_duplicate, is_retained) = (flags & 8 != 0, flags & 1 != 0);
        Some(Publish { topic, packet_id, qos, is_duplicate, is_retained, user_properties, payload })
    }
}

/// Subscribes to topics with this QoS: what was retained comes with the first subscription of a
/// session, marked as such. `None` if a topic is too long.
pub fn write_subscribe(packet_id: u16, topics: &[String], qos: u8) -> Option<Vec<u8>> {
    /// What is retained is marked, and sent if the subscription is a new one.
    const RETAINED: u8 = 1 << 3 | 1 << 4;
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    for topic in topics {
        put_text(&mut body, topic)?;
        body.push(qos | RETAINED);
    }
    packet(0x82, &body)
}

/// Acknowledges a message.
pub fn write_puback(packet_id: u16) -> [u8; 4] {
    let [high, low] = packet_id.to_be_bytes();
    [0x40, 2, high, low]
}

/// Asks whether the broker is there.
pub const PINGREQ: [u8; 2] = [0xc0, 0];
/// Ends the connection in order.
pub const DISCONNECT: [u8; 2] = [0xe0, 0];

/// Reads a packet of this first byte; `None` if it makes no sense.
pub fn read(first: u8, bytes: &[u8]) -> Option<Packet> {
    let mut body = Body(bytes);
    Some(match first >> 4 {
        2 => {
            let (flags, reason, mut receive_maximum) = (body.u8()?, body.u8()?, u16::MAX);
            body.properties(&mut |property| {
                if let Property::ReceiveMaximum(maximum) = property {
                    receive_maximum = maximum;
                }
            })?;
            Packet::Connack(Connack { is_session_present: flags & 1 != 0, reason, receive_maximum })
        }
        3 => Packet::Publish(Publish::read(first & 15, &mut body)?),
        4 => Packet::Puback(body.u16()?, body.u8().unwrap_or(0)),
        9 => {
            body.u16()?;
            body.properties(&mut |_| {})?;
            Packet::Suback(body.0.to_vec())
        }
        13 => Packet::Pingresp,
        14 => Packet::Disconnect(body.u8().unwrap_or(0)),
        _ => Packet::Other,
    })
}

/// Where the body of the first packet begins and ends, if it is there in full; an error if there is
/// no packet.
pub fn span(bytes: &[u8]) -> Result<Option<(usize, usize)>, ()> {
    let mut length = 0_usize;
    for at in 0..4 {
        let Some(&byte) = bytes.get(at + 1) else { return Ok(None) };
        length |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            let (start, end) = (at + 2, at + 2 + length);
            return Ok((bytes.len() >= end).then_some((start, end)));
        }
    }
    Err(())
}

/// A property that is of use here.
enum Property {
    ReceiveMaximum(u16),
    User(String, String),
    Other,
}

/// What is left of a packet.
struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        self.take(length.into()).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn length(&mut self) -> Option<usize> {
        let mut length = 0_usize;
        for at in 0..4 {
            let byte = self.u8()?;
            length |= usize::from(byte & 127) << (7 * at);
            if byte & 128 == 0 {
                return Some(length);
            }
        }
        None
    }

    fn properties(&mut self, each: &mut dyn FnMut(Property)) -> Option<()> {
        let length = self.length()?;
        let mut properties = Body(self.take(length)?);
        while !properties.0.is_empty() {
            each(properties.property()?);
        }
        Some(())
    }

    fn property(&mut self) -> Option<Property> {
        match self.u8()? {
            RECEIVE_MAXIMUM => return self.u16().map(Property::ReceiveMaximum),
            USER_PROPERTY => return Some(Property::User(self.text()?, self.text()?)),
            // One byte.
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2a => drop(self.take(1)?),
            // Two bytes.
            0x13 | 0x22 | 0x23 => drop(self.take(2)?),
            // Four bytes.
            0x02 | SESSION_EXPIRY_INTERVAL | 0x18 | MAXIMUM_PACKET_SIZE => drop(self.take(4)?),
            // A text, or bytes with their length.
            0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => drop(self.text()?),
            0x0b => drop(self.length()?),
            _ => return None,
        }
        Some(Property::Other)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn put_length(out: &mut Vec<u8>, mut length: usize) -> Option<()> {
    if length >= 1 << 28 {
        return None;
    }
    loop {
        let byte = (length & 127) as u8;
        length >>= 7;
        out.push(if length > 0 { byte | 128 } else { byte });
        if length == 0 {
            return Some(());
        }
    }
}

fn packet(first: u8, body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() + 5);
    out.push(first);
    put_length(&mut out, body.len())?;
    out.extend_from_slice(body);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Publish {
        Publish {
            topic: "plant/1".to_owned(),
            packet_id: Some(513),
            qos: 1,
            is_duplicate: true,
            is_retained: true,
            user_properties: vec![("who".to_owned(), "me".to_owned())],
            payload: vec![7; 200],
        }
    }

    #[test]
    fn messages_are_read_back() {
        let bytes = message().write().expect("a packet");
        for end in 0..bytes.len() {
            assert_eq!(span(&bytes[..end]), Ok(None));
        }
        let (start, end) = span(&bytes).expect("a packet").expect("in full");
        assert_eq!(read(bytes[0], &bytes[start..end]), Some(Packet::Publish(message())));
        for cut in start..start + 30 {
            // No panic, whatever is missing.
            let _ = read(bytes[0], &bytes[start..cut]);
        }
        for wrong in ["", "a/+", "#"] {
            assert_eq!(Publish { topic: wrong.to_owned(), ..message() }.write(), None);
        }
    }

    #[test]
    fn answers_are_read() {
        let connack = [1, 0, 3, RECEIVE_MAXIMUM, 0, 20];
        let expected = Connack { is_session_present: true, reason: 0, receive_maximum: 20 };
        assert_eq!(read(0x20, &connack), Some(Packet::Connack(expected)));
        assert_eq!(read(0x40, &[2, 1]), Some(Packet::Puback(513, 0)));
        assert_eq!(read(0x40, &[2, 1, 0x87, 0]), Some(Packet::Puback(513, 0x87)));
        assert_eq!(read(0x90, &[0, 1, 0, 1, 0x87]), Some(Packet::Suback(vec![1, 0x87])));
        assert_eq!(read(0xe0, &[0x8e]), Some(Packet::Disconnect(0x8e)));
        for wrong in [&[0x20, 0][..], &[0x20, 0, 0, 9], &[0x20, 0, 0, 2, 0xff, 0], &[0x30, 0, 9, 1]]
        {
            assert_eq!(read(wrong[0], &wrong[1..]), None, "{wrong:?}");
        }
        assert_eq!(span(&[0x30, 0x80, 0x80, 0x80, 0x80, 1]), Err(()));
    }

    #[test]
    fn a_client_says_who_it_is() {
        let connect = Connect {
            client_id: "c",
            keep_alive_s: 30,
            receive_maximum: 5,
            username: Some("u"),
            password: Some("p"),
            ..Connect::default()
        };
        let bytes = connect.write().expect("a packet");
        assert_eq!(bytes[..12], [0x10, 33, 0, 4, b'M', b'Q', b'T', b'T', 5, 0xc0, 0, 30]);
        assert_eq!(bytes[bytes.len() - 9..], [0, 1, b'c', 0, 1, b'u', 0, 1, b'p']);
    }
}
