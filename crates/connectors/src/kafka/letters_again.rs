//! Reads messages of dead letters again as a table has them now.
//!
//! A letter keeps of a message what the table needed of it when it was written: a table that needs
//! more by now refuses the letter, and says what is missing.

use arrow_array::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rdkafka::message::Timestamp;
use serde_json::{Map, Value, json};
use thalweg_core::connector::SplitId;

use super::offsets::PartitionName;
use super::rows::{BadMessage, Block, Header, RowReader, Wants, timestamp_type};
use crate::replay::{Letter, LetterReader};

/// What a letter keeps of a message besides its value.
pub fn of_message(bad: &BadMessage) -> Value {
    let mut kept = Map::new();
    if bad.value.is_none() {
        kept.insert("tombstone".to_owned(), true.into());
    }
    if bad.kept.keys {
        let key = bad.key.as_ref().map(|key| STANDARD.encode(key));
        kept.insert("key-base64".to_owned(), key.into());
    }
    if let Some(timestamp) = bad.timestamp {
        let at_ms = match timestamp {
            Timestamp::CreateTime(at_ms) | Timestamp::LogAppendTime(at_ms) => at_ms,
            Timestamp::NotAvailable => 0,
        };
        kept.insert("timestamp".to_owned(), json!([timestamp_type(timestamp), at_ms]));
    }
    if bad.kept.headers {
        let header = |(name, value): &Header| {
            json!([name, value.as_ref().map(|value| STANDARD.encode(value))])
        };
        kept.insert("headers".to_owned(), bad.headers.iter().map(header).collect());
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

fn timestamp_of(value: &Value) -> Option<Timestamp> {
    let at_ms = value.get(1)?.as_i64()?;
    match value.get(0)?.as_str()? {
        "CreateTime" => Some(Timestamp::CreateTime(at_ms)),
        "LogAppendTime" => Some(Timestamp::LogAppendTime(at_ms)),
        _ => Some(Timestamp::NotAvailable),
    }
}

fn headers_of(value: &Value) -> Vec<Header> {
    let header = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), bytes_of(pair.get(1)?)));
    value.as_array().into_iter().flatten().filter_map(header).collect()
}

/// The message of a letter, as a block of one.
fn block_of(letter: &Letter, wants: Wants) -> Result<Block, String> {
    let missing = |what: &str| {
        format!("the table reads the {what} of messages, which this dead letter does not keep")
    };
    let kept = |key: &str| letter.message.get(key);
    let mut block = Block::new(wants);
    block.offsets.push(letter.line as i64);
    let is_there = kept("tombstone").is_none();
    block.values.append_option(is_there.then_some(&letter.raw));
    if wants.keys {
        let key = kept("key-base64").ok_or_else(|| missing("key"))?;
        block.keys.append_option(bytes_of(key));
    }
    if wants.timestamps {
        let timestamp = kept("timestamp").and_then(timestamp_of);
        block.timestamps.push(timestamp.ok_or_else(|| missing("timestamp"))?);
    }
    if wants.headers {
        let headers = kept("headers").ok_or_else(|| missing("headers"))?;
        block.headers.push(headers_of(headers));
    }
    if wants.leader_epochs {
        return Err(missing("leader epoch"));
    }
    Ok(block)
}

impl LetterReader for RowReader {
    fn read(&self, letter: &Letter) -> Result<RecordBatch, String> {
        let block = block_of(letter, self.wants())?;
        let named = letter.file.rsplit_once('-');
        let name = named.and_then(|(topic, partition)| {
            Some(PartitionName { topic: topic.into(), partition: partition.parse().ok()? })
        });
        let name = name.ok_or_else(|| format!("'{}' is no partition", letter.file))?;
        let rows = self.decode(SplitId::ONLY, &name, block).map_err(|error| error.to_string())?;
        match rows.bad.into_iter().next() {
            Some(bad) => Err(bad.reason),
            None => Ok(rows.batch),
        }
    }
}
