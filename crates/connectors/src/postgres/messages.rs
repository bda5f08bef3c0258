//! Messages over a connection: a byte that says what they are, a length, and a body.

use bytes::{Buf, Bytes, BytesMut};

use crate::network::wire::read_bytes;
use crate::network::{Attempt, Failure};

/// Longer messages are no messages.
pub const LENGTH_MAX: usize = 1 << 30;

/// A message of the server.
pub struct Message {
    /// What it is.
    pub tag: u8,
    /// What it says.
    pub body: Bytes,
}

/// Adds a message to the output of a connection. 0 is the tag of messages without one.
pub fn put(output: &mut Vec<u8>, tag: u8, body: &[u8]) {
    if tag != 0 {
        output.push(tag);
    }
    let length = u32::try_from(body.len() + 4).expect("messages of ours are short");
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(body);
}

/// The next message of the input of a connection, if it is here already.
///
/// # Errors
/// If it is none.
pub fn next_message(input: &mut BytesMut) -> Attempt<Option<Message>> {
    let Some(header) = input.first_chunk::<5>() else { return Ok(None) };
    let (tag, length) = (header[0], &header[1..]);
    let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
    if !(4..=LENGTH_MAX).contains(&length) {
        return Err(Failure::Passing("this is no server of PostgreSQL".to_owned()));
    }
    if input.len() <= length {
        input.reserve(length + 1 + read_bytes(length) - input.len());
        return Ok(None);
    }
    let mut body = input.split_to(length + 1);
    body.advance(5);
    Ok(Some(Message { tag, body: body.freeze() }))
}
