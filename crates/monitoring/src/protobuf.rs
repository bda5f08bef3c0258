//! Writes messages of Protocol Buffers: as much of the encoding as metrics and traces need.
//!
//! Fields are written in the order of the calls. A field with the value that a reader assumes
//! without it is left out by whoever calls.

/// A message under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<u8>);

/// How a value is encoded.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

impl Message {
    /// A message without fields.
    pub fn new() -> Message {
        Message::default()
    }

    /// The bytes so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The bytes with their length before them, as in a stream of messages.
    pub fn into_delimited(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + 5);
        write_varint(&mut bytes, self.0.len() as u64);
        bytes.extend(self.0);
        bytes
    }

    fn key(&mut self, field: u32, wire_type: WireType) {
        write_varint(&mut self.0, u64::from(field) << 3 | wire_type as u64);
    }

    /// A field of type `uint32`, `uint64`, `bool` or an enum.
    pub fn unsigned(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, WireType::Varint);
        write_varint(&mut self.0, value);
        self
    }

    /// A field of type `sint32` or `sint64`.
    pub fn signed(&mut self, field: u32, value: i64) -> &mut Message {
        self.unsigned(field, zigzag(value))
    }

    /// A field of type `int64`.
    pub fn integer(&mut self, field: u32, value: i64) -> &mut Message {
        self.unsigned(field, value as u64)
    }

    /// A field of type `fixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, WireType::Fixed64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A field of type `double`.
    pub fn double(&mut self, field: u32, value: f64) -> &mut Message {
        self.fixed64(field, value.to_bits())
    }

    /// A field of type `bytes`.
    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Message {
        self.key(field, WireType::Bytes);
        write_varint(&mut self.0, value.len() as u64);
        self.0.extend(value);
        self
    }

    /// A field of type `string`.
    pub fn text(&mut self, field: u32, value: &str) -> &mut Message {
        self.bytes(field, value.as_bytes())
    }

    /// A field that is a message.
    pub fn message(&mut self, field: u32, value: &Message) -> &mut Message {
        self.bytes(field, &value.0)
    }

    /// A field that is a message, which is written where it will stand.
    pub fn nested(
        &mut self,
        field: u32,
        write: impl FnOnce(&mut Message) -> &mut Message,
    ) -> &mut Message {
        self.key(field, WireType::Bytes);
        let begin = self.0.len();
        write(self);
        let end = self.0.len();
        write_varint(&mut self.0, (end - begin) as u64);
        // The length stands before what it is the length of.
        let length_bytes = self.0.len() - end;
        self.0[begin..].rotate_right(length_bytes);
        self
    }

    /// A repeated field of type `sint64`, packed.
    pub fn packed_signed(&mut self, field: u32, values: impl Iterator<Item = i64>) -> &mut Message {
        self.packed_unsigned(field, values.map(zigzag))
    }

    /// A repeated field of type `uint64`, packed.
    pub fn packed_unsigned(
        &mut self,
        field: u32,
        values: impl Iterator<Item = u64>,
    ) -> &mut Message {
        let mut bytes = Vec::new();
        values.for_each(|value| write_varint(&mut bytes, value));
        self.bytes(field, &bytes)
    }
}

/// Numbers near zero, of either sign, become small ones.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own specification.
    #[test]
    fn messages_are_encoded_as_specified() {
        let of = |write: fn(&mut Message) -> &mut Message| {
            let mut message = Message::new();
            write(&mut message);
            message.into_bytes()
        };
        assert_eq!(of(|m| m.unsigned(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(of(|m| m.text(2, "testing")), b"\x12\x07testing");
        let mut inner = Message::new();
        inner.unsigned(1, 150);
        let nested = of(|m| m.nested(3, |inner| inner.unsigned(1, 150)));
        assert_eq!(nested, Message::new().message(3, &inner).clone().into_bytes());
        assert_eq!(
            Message::new().message(3, &inner).clone().into_bytes(),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(inner.into_delimited(), [0x03, 0x08, 0x96, 0x01]);
        let packed = of(|m| m.packed_unsigned(6, [3, 270, 86_942].into_iter()));
        assert_eq!(packed, [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(of(|m| m.integer(1, -2)), minus_two);
        let zigzags = [0, -1, 1, -2, 0x7fff_ffff, -0x8000_0000].map(zigzag);
        assert_eq!(zigzags, [0, 1, 2, 3, 0xffff_fffe, 0xffff_ffff]);
        assert_eq!(of(|m| m.double(1, 1.0)), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }

    #[test]
    fn a_long_message_is_nested_as_if_it_were_written_apart() {
        let long = "x".repeat(200);
        let mut inner = Message::new();
        inner.text(1, &long);
        let mut nested = Message::new();
        nested.unsigned(1, 7).nested(3, |inner| inner.text(1, &long)).unsigned(4, 9);
        let mut plain = Message::new();
        plain.unsigned(1, 7).message(3, &inner).unsigned(4, 9);
        assert_eq!(nested, plain);
    }
}
