//! Messages of a peer as rows, whatever brings them: what brokers, and other services that send
//! messages over a connection, have in common. A connector adds a [`Client`] of its protocol.
//!
//! ```text
//! Client ─▶ Inbox ─▶ RowReader ─▶ Feed (bounded) ─▶ MessageSource ─▶ job
//!   ▲  └────────── thread of the link ──────────┘         │
//!   └───────────── marks of snapshots that are kept ◀─────┘
//! ```
//!
//! | what | where |
//! |---|---|
//! | the thread: connecting again with growing pauses, acknowledgements | [`link`] |
//! | messages that have come and are not decoded | [`inbox`] |
//! | from messages to rows, and their metadata | [`rows`] |
//! | what a position says | [`progress`] |
//! | the source | [`source`] |
//! | rows that are looked up | `answers` |
//! | the sink: rows stay in memory until the peer has them | [`sink`] |
//! | options that all have | [`options`] |
//!
//! # Invariants
//! - A client never sees the rows, and a source never sees the connection.
//! - Memory is bounded: the thread reads on only while the inbox has room, and the feed is bounded.
//! - A message is acknowledged only when a snapshot that covers it is kept, or, in a job without
//!   snapshots, when its rows were polled.
//! - A snapshot names each message that was delivered, until the peer is known never to send it
//!   again: that an acknowledgement was sent does not show it.
//! - A message that comes a second time over a new connection is recognized by the client, before
//!   it becomes a row.
//!
//! What it does not do: find splits that come later, and write exactly once.

mod answers;
pub mod inbox;
pub mod link;
pub mod options;
pub mod progress;
pub mod rows;
pub mod sink;
pub mod source;
#[cfg(test)]
mod tests;

pub use self::answers::AnswerColumns;
pub use self::inbox::{Block, Inbox, Message, Metadata};
pub use self::progress::{Mark, MarkText, Tracking};
pub use self::rows::{RowReader, Rows};
pub use self::sink::{MessageSink, Outgoing, Publisher};
pub use self::source::{MessageSource, SourceParts, open, open_with};

use thalweg_core::Error;

use crate::network::{Attempt, Failure};

/// Where a job begins that does not resume from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// With the first message that is there.
    Earliest,
    /// With what comes.
    Latest,
    /// With the first message that is as new, in milliseconds since 1970.
    Time(i64),
}

/// The error of messages (`entries`, as the peer calls them) that may have been removed unread.
pub fn removed_unread(why: String, messages: &str) -> Failure {
    let hint = format!(
        "keep {messages} for longer; with 'scan.removed-messages' = 'ignore' the job continues with the first that \
         is there"
    );
    Error::data(why).hint(hint).into()
}

/// The protocol of a peer that sends messages.
///
/// All calls come from one thread at a time. A call that waits ends within a few
/// [ticks](crate::network::TICK) of its [`crate::network::Cancel`]. Where one fails for the moment,
/// [`Client::connect`] is called next, after a pause.
pub trait Client: Send {
    /// Connects, again where it was connected. What comes next lies behind the last message of each
    /// split in the inbox, where the peer can do that.
    ///
    /// # Errors
    /// If the peer can't be reached, or refuses.
    fn connect(&mut self, inbox: &Inbox) -> Attempt<()>;

    /// The mark behind which a split is read that begins so; `None` for all that there is. Called
    /// on a connection, before anything is received.
    ///
    /// # Errors
    /// If the split is not there.
    fn start_mark(&mut self, split: &str, startup: Startup) -> Attempt<Option<Mark>> {
        let _ = (split, startup);
        Ok(None)
    }

    /// The mark of the newest message of a split; `None` if it has none, or that is not known.
    ///
    /// # Errors
    /// If the split is not there.
    fn newest(&mut self, split: &str) -> Attempt<Option<Mark>> {
        let _ = split;
        Ok(None)
    }

    /// Waits for messages, but no longer than about a [`crate::network::TICK`], and puts them into
    /// the inbox, until that is full.
    ///
    /// # Errors
    /// If the connection has broken, or what came makes no sense.
    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()>;

    /// The next rows of messages that were received and decoded by the client itself, and are not
    /// in the inbox. They come before what is in there.
    fn decoded(&mut self) -> Option<Rows> {
        None
    }

    /// Keeps the connection alive while the job takes no rows. May receive as long as the inbox is
    /// not full.
    ///
    /// # Errors
    /// If the connection has broken.
    fn idle(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let _ = inbox;
        Ok(())
    }

    /// These messages need not come again. Those that can't be acknowledged over this connection
    /// are acknowledged when they come again.
    ///
    /// # Errors
    /// If the connection has broken.
    fn acknowledge(&mut self, marks: &[Mark]) -> Attempt<()> {
        let _ = marks;
        Ok(())
    }

    /// The marks of messages that were acknowledged, or delivered by an earlier run, and that the
    /// peer is now known never to send again. Each is said once, before another message that has
    /// the same mark is received.
    fn settled(&mut self) -> Vec<Mark> {
        Vec::new()
    }

    /// Messages with these marks were delivered by an earlier run, and their effects are kept: when
    /// they come again, they are acknowledged and left out. Called before [`Client::connect`].
    fn restore(&mut self, marks: &[Mark]) {
        let _ = marks;
    }

    /// Ends the connection in order, as far as that takes no time.
    fn close(&mut self) {}
}
