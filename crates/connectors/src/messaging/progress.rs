//! How far a source is: what a position says, and what is acknowledged.
//!
//! | tracking | a position holds | after a restart |
//! |---|---|---|
//! | [`Tracking::Replay`] | the last message of each split | the peer sends what lies behind |
//! | [`Tracking::Acknowledge`] | messages that were delivered and that the peer may send again | the peer sends these again, and they are left out |
//! | [`Tracking::Nothing`] | how many messages there were, for people | what came meanwhile is lost |

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thalweg_core::Result;

use crate::saved::read_saved;

/// What a message is known by. Of a split that is replayed, later messages have greater ones.
pub type Mark = u128;

/// How marks are written for people and in positions.
#[derive(Clone, Copy)]
pub struct MarkText {
    /// What a mark is called: `offset`, `id`.
    pub noun: &'static str,
    /// The text of a mark.
    pub write: fn(Mark) -> String,
    /// The mark of a text.
    pub read: fn(&str) -> Option<Mark>,
}

impl MarkText {
    /// Of messages that are numbered, or have no marks at all.
    pub const NUMBER: MarkText = MarkText {
        noun: "message",
        write: |mark| mark.to_string(),
        read: |text| text.parse().ok(),
    };
}

/// What is known of messages after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// The peer keeps messages, and is asked for those behind a place.
    Replay,
    /// The peer keeps messages until they are acknowledged.
    Acknowledge,
    /// The peer keeps nothing: a message comes at most once.
    Nothing,
}

/// How far a split is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitProgress {
    /// The last message whose rows were polled.
    pub last: Option<Mark>,
    /// The last message to be read.
    pub stop: Option<Mark>,
}

/// How far a source is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Where messages are replayed: by the name of their split.
    pub splits: BTreeMap<String, SplitProgress>,
    /// Where they are acknowledged: those that are not yet, but were delivered.
    pub delivered: BTreeSet<Mark>,
    /// Those that are acknowledged, or will be when they come again, where it is not known that the
    /// peer has heard it.
    pub acknowledged: BTreeSet<Mark>,
    /// How many messages were delivered.
    pub messages: u64,
    /// How many could not be read.
    pub bad_rows: u64,
}

impl Progress {
    /// As JSON.
    pub fn write(&self, tracking: Tracking, text: MarkText) -> Value {
        let mut position = Map::new();
        match tracking {
            Tracking::Replay => {
                let split = |(name, split): (&String, &SplitProgress)| {
                    let mut written = json!({ "name": name });
                    if let Some(last) = split.last {
                        written["last"] = (text.write)(last).into();
                    }
                    if let Some(stop) = split.stop {
                        written["stop"] = (text.write)(stop).into();
                    }
                    written
                };
                position.insert("splits".to_owned(), self.splits.iter().map(split).collect());
            }
            Tracking::Acknowledge => {
                let write = |&mark: &Mark| Value::from((text.write)(mark));
                let delivered = self.delivered.iter().map(write);
                position.insert("delivered".to_owned(), delivered.collect());
                let acknowledged = self.acknowledged.iter().map(write);
                position.insert("acknowledged".to_owned(), acknowledged.collect());
            }
            Tracking::Nothing => {
                position.insert("messages".to_owned(), self.messages.into());
            }
        }
        if self.bad_rows > 0 {
            position.insert("bad_rows".to_owned(), self.bad_rows.into());
        }
        Value::Object(position)
    }

    /// From JSON.
    ///
    /// # Errors
    /// If it is no position of this tracking.
    pub fn read(written: &str, tracking: Tracking, text: MarkText) -> Result<Progress> {
        read_saved("position in messages", written, |value| parse(value, tracking, text))
    }
}

fn parse(value: &Value, tracking: Tracking, text: MarkText) -> Option<Progress> {
    let mark = |value: &Value| (text.read)(value.as_str()?);
    let optional = |value: Option<&Value>| match value {
        None => Some(None),
        Some(value) => mark(value).map(Some),
    };
    let bad_rows = value.get("bad_rows").and_then(Value::as_u64).unwrap_or(0);
    let mut progress = Progress { bad_rows, ..Progress::default() };
    match tracking {
        Tracking::Replay => {
            for split in value.get("splits")?.as_array()? {
                let name = split.get("name")?.as_str()?.to_owned();
                let (last, stop) = (optional(split.get("last"))?, optional(split.get("stop"))?);
                progress.splits.insert(name, SplitProgress { last, stop });
            }
        }
        Tracking::Acknowledge => {
            let marks = |name: &str| -> Option<BTreeSet<Mark>> {
                value.get(name)?.as_array()?.iter().map(mark).collect()
            };
            progress.delivered = marks("delivered")?;
            progress.acknowledged = marks("acknowledged")?;
        }
        Tracking::Nothing => progress.messages = value.get("messages")?.as_u64()?,
    }
    Some(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: MarkText =
        MarkText { noun: "offset", write: |mark| mark.to_string(), read: |text| text.parse().ok() };

    #[test]
    fn positions_are_read_back() {
        let splits = [("a", Some(4), None), ("b", None, Some(9))];
        let splits =
            splits.map(|(name, last, stop)| (name.to_owned(), SplitProgress { last, stop }));
        let progress = Progress { splits: splits.into(), bad_rows: 2, ..Progress::default() };
        let written = progress.write(Tracking::Replay, TEXT).to_string();
        let read = Progress::read(&written, Tracking::Replay, TEXT);
        assert_eq!(read.expect("a position"), progress, "{written}");
        let (delivered, acknowledged) = ([7, 1 << 90].into(), [8].into());
        let delivered = Progress { delivered, acknowledged, ..Progress::default() };
        let written = delivered.write(Tracking::Acknowledge, TEXT).to_string();
        let read = Progress::read(&written, Tracking::Acknowledge, TEXT);
        assert_eq!(read.expect("a position"), delivered, "{written}");
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for tracking in [Tracking::Replay, Tracking::Acknowledge, Tracking::Nothing] {
            for written in ["", "{}", "[]", "null", "{\"splits\": [{}]}", "{\"delivered\": [1]}"] {
                assert!(Progress::read(written, tracking, TEXT).is_err(), "{written}");
            }
        }
    }
}
