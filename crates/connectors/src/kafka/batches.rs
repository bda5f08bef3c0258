//! Two calls of the client that the crate's own are too slow for.
//!
//! - Messages to one topic, many at a time: the crate's call gives one message, for which it copies
//!   and looks up the name of the topic and reads the clock twice. That was a third of the time of
//!   writing small messages. `rd_kafka_produce_batch` knows neither headers nor times: messages
//!   that have them go the other way.
//! - Waiting until all are acknowledged: the crate's call asks the client without waiting, then
//!   waits for an event. Deliveries are reported only if they fail, so it always waited for 100 ms,
//!   with each snapshot.
//!
//! Invariants: a topic lives no longer than the client, which [`super::output::Output`] drops
//! after it; the client copies what it is given before the call returns.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use rdkafka::bindings as client;
use rdkafka::error::{IsError as _, KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use thalweg_core::{Error, Result};

use super::client::Producer;
use super::spool::Outgoing;

/// Messages that are given at once, at most.
pub const GIVEN_MAX: usize = 512;
/// Reports that are read at once, at most. Those of messages come only where one is refused.
const REPORTS_MAX: usize = 8;
/// The partition that the partitioner says (`RD_KAFKA_PARTITION_UA`, a macro of C).
const ANY_PARTITION: i32 = -1;

/// A topic of a client.
pub struct ClientTopic(NonNull<client::rd_kafka_topic_t>);

// SAFETY: topics of the client may be used by any thread: librdkafka locks them and counts
// references to them (INTRODUCTION.md, "Threads and callbacks").
unsafe impl Send for ClientTopic {}

impl ClientTopic {
    /// A topic of this client, before which it has to be dropped.
    ///
    /// # Errors
    /// If it can have no such topic.
    pub fn new(producer: &Producer, name: &str) -> Result<ClientTopic> {
        let no_topic = || Error::internal(format!("the client has no topic '{name}'"));
        let name_of_c = CString::new(name).map_err(|_| no_topic())?;
        let owner = producer.client().native_ptr();
        // SAFETY: client and name live as long as the call. Without settings the topic has those of
        // the client. The reference to it is ours until it is dropped.
        let topic = unsafe { client::rd_kafka_topic_new(owner, name_of_c.as_ptr(), null_mut()) };
        Ok(ClientTopic(NonNull::new(topic).ok_or_else(no_topic)?))
    }

    /// Sends keys and values of messages, in order, to the partition that is named, or to those
    /// that the partitioner says. How many were taken: not all if there is no room for more at the
    /// moment.
    ///
    /// # Errors
    /// If a message can't be sent.
    pub fn send(
        &self,
        messages: &[Outgoing<'_>],
        partition: Option<i32>,
    ) -> std::result::Result<usize, KafkaError> {
        let mut given: Vec<_> = messages.iter().map(given).collect();
        // SAFETY: the topic is ours. `given` has as many messages as are said, whose bytes live
        // as long as `messages`; the client copies them (`COPY`) and writes to `err` alone.
        unsafe {
            client::rd_kafka_produce_batch(
                self.0.as_ptr(),
                partition.unwrap_or(ANY_PARTITION),
                client::RD_KAFKA_MSG_F_COPY,
                given.as_mut_ptr(),
                given.len() as i32,
            );
        }
        let Some(refused) = given.iter().position(|one| one.err.is_error()) else {
            return Ok(given.len());
        };
        // Once its queue is full the client refuses all that follow.
        match RDKafkaErrorCode::from(given[refused].err) {
            RDKafkaErrorCode::QueueFull => Ok(refused),
            code => Err(KafkaError::MessageProduction(code)),
        }
    }
}

impl Drop for ClientTopic {
    fn drop(&mut self) {
        // SAFETY: the reference to the topic is ours, and its client is still there.
        unsafe { client::rd_kafka_topic_destroy(self.0.as_ptr()) };
    }
}

/// Waits until every message is acknowledged, or refused and reported by [`serve`].
///
/// # Errors
/// If that takes longer than the timeout: one to try again.
pub fn flush(producer: &Producer, timeout: Duration) -> std::result::Result<(), KafkaError> {
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client lives as long as the call.
    let answer = unsafe { client::rd_kafka_flush(producer.client().native_ptr(), timeout_ms) };
    match answer {
        client::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::Flush(code.into())),
    }
}

/// Reads what the client reports: refused messages, servers in trouble.
pub fn serve(producer: &Producer) {
    // One call reads one report.
    (0..REPORTS_MAX).for_each(|_| producer.poll(Duration::ZERO));
}

fn given(message: &Outgoing<'_>) -> client::rd_kafka_message_t {
    let bytes = |bytes: Option<&[u8]>| match bytes {
        // The client takes what has no address for NULL.
        Some(bytes) => (bytes.as_ptr().cast::<c_void>().cast_mut(), bytes.len()),
        None => (null_mut(), 0),
    };
    let ((payload, len), (key, key_len)) = (bytes(message.value), bytes(message.key));
    client::rd_kafka_message_t {
        err: client::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: null_mut(),
        partition: ANY_PARTITION,
        payload,
        len,
        key,
        key_len,
        offset: 0,
        _private: null_mut(),
    }
}
