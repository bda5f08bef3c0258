//! Bodies that are written while they are sent. A reader that is slow loses messages and is
//! informed how many; whoever writes never waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Pieces that wait for a reader.
const WAITING_MAX: usize = 64;
/// Messages are put together until they are this many bytes.
const PIECE_BYTES: usize = 32 << 10;

/// The end that is written to.
pub(crate) struct Writer {
    sender: mpsc::Sender<Bytes>,
    dropped: u64,
    /// What all writers have dropped.
    dropped_of_all: Arc<AtomicU64>,
    is_sse: bool,
}

/// The end that is sent.
struct StreamBody {
    receiver: mpsc::Receiver<Bytes>,
    /// One of the streams that may be open.
    _permit: OwnedSemaphorePermit,
}

/// A body, and where it is written. Events are named in server-sent events, else each is a line.
pub(crate) fn stream(
    permit: OwnedSemaphorePermit,
    dropped_of_all: Arc<AtomicU64>,
    is_sse: bool,
) -> (Writer, Body) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let body = Body::new(StreamBody { receiver, _permit: permit });
    (Writer { sender, dropped: 0, dropped_of_all, is_sse }, body)
}

impl Writer {
    /// Sends a message, or counts it as lost. False if nobody reads any more.
    pub fn send(&mut self, event: &str, id: u64, data: &impl serde::Serialize) -> bool {
        let mut text = String::new();
        self.add(&mut text, event, id, data);
        self.send_text((text, 1), id)
    }

    /// Sends messages that are there at the same time, numbered from `first` on, in few pieces; or
    /// counts those of a piece as lost. False if nobody reads any more.
    pub fn send_all<T: serde::Serialize>(&mut self, first: u64, messages: &[(&str, T)]) -> bool {
        let (mut text, mut count) = (String::new(), 0);
        for (id, (event, data)) in (first..).zip(messages) {
            self.add(&mut text, event, id, data);
            count += 1;
            if text.len() >= PIECE_BYTES {
                let piece = (std::mem::take(&mut text), std::mem::take(&mut count));
                if !self.send_text(piece, id) {
                    return false;
                }
            }
        }
        count == 0 || self.send_text((text, count), first + messages.len() as u64)
    }

    /// Writes a message behind others.
    fn add(&self, text: &mut String, event: &str, id: u64, data: &impl serde::Serialize) {
        let data = serde_json::to_string(data).unwrap_or_default();
        match self.is_sse {
            true => text.push_str(&format!("event: {event}\nid: {id}\ndata: {data}\n\n")),
            false => text.extend([data.as_str(), "\n"]),
        }
    }

    /// Sends the text of this number of messages.
    fn send_text(&mut self, (text, count): (String, u64), id: u64) -> bool {
        if self.dropped > 0 {
            let mut lost = String::new();
            self.add(&mut lost, "dropped", id, &serde_json::json!({ "dropped": self.dropped }));
            if self.sender.try_send(lost.into()).is_ok() {
                self.dropped = 0;
            }
        }
        match self.sender.try_send(text.into()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.dropped += count;
                self.dropped_of_all.fetch_add(count, Ordering::Relaxed);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Sends a message that must not be lost, once there is room. False if nobody reads any more.
    pub async fn send_when_room(
        &mut self,
        event: &str,
        id: u64,
        data: &impl serde::Serialize,
    ) -> bool {
        match self.sender.reserve().await {
            Ok(room) => drop(room),
            Err(_) => return false,
        }
        self.send(event, id, data)
    }

    /// Sends the last message, for which there may be a wait for room.
    pub async fn send_last(&mut self, event: &str, id: u64, data: &impl serde::Serialize) {
        const WAIT: std::time::Duration = std::time::Duration::from_secs(5);
        let room = tokio::time::timeout(WAIT, self.sender.reserve()).await;
        if matches!(room, Ok(Ok(_))) {
            drop(room);
            self.send(event, id, data);
        }
    }

    /// Returns when nobody reads any more.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    #[test]
    fn a_slow_reader_loses_messages_and_is_informed() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().expect("free");
        let (sender, mut receiver) = mpsc::channel(2);
        let dropped_of_all = Arc::new(AtomicU64::new(0));
        let mut writer = Writer {
            sender,
            dropped: 0,
            dropped_of_all: Arc::clone(&dropped_of_all),
            is_sse: false,
        };
        for number in 0..5 {
            assert!(writer.send("row", number, &number));
        }
        let next = |receiver: &mut mpsc::Receiver<Bytes>| receiver.try_recv().expect("a message");
        assert_eq!((next(&mut receiver), next(&mut receiver)), ("0\n".into(), "1\n".into()));
        assert!(writer.send("row", 5, &5));
        assert_eq!(next(&mut receiver), "{\"dropped\":3}\n");
        assert_eq!(next(&mut receiver), "5\n");
        // Messages that are there together are lost together.
        let all = ["a", "b", "c"].map(|name| ("row", name));
        for first in [6, 9, 12] {
            assert!(writer.send_all(first, &all));
        }
        assert_eq!(next(&mut receiver), "\"a\"\n\"b\"\n\"c\"\n");
        assert_eq!(writer.dropped, 3);
        writer.dropped = 0;
        let long = "x".repeat(PIECE_BYTES);
        assert!(writer.send_all(15, &[("row", "d"), ("row", long.as_str()), ("row", "e")]));
        assert_eq!(writer.dropped, 1, "one piece found room");
        assert!(writer.send_all::<u8>(18, &[]));
        drop(receiver);
        assert!(!writer.send("row", 6, &6));
        assert!(!writer.send_all(6, &all));
        assert_eq!(dropped_of_all.load(Ordering::Relaxed), 7);
        drop(permit);
    }
}
