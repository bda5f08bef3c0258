//! Messages of a partition, taken from the client's queue many at a time.
//!
//! The crate's own call takes one message: an event with an allocation and a lock, for which the
//! clock is read twice. That was a third of the time of reading small messages. This module binds
//! `rd_kafka_consume_batch_queue` instead, and says the leader's epoch, for which the crate has no
//! call. Here and in [`super::batches`] are the calls in this crate that the compiler can't check.
//!
//! Invariants: a queue and the messages taken from it live no longer than the client (`_consumer`,
//! dropped last); each message is destroyed once, when it is dropped; [`MessageRef`] borrows a
//! message that is not destroyed meanwhile.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ptr::{NonNull, null, null_mut};

use rdkafka::bindings as client;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{IsError as _, KafkaError};
use rdkafka::message::{BorrowedMessage, Timestamp};
use thalweg_core::{Error, Result};

use super::client::SharedConsumer;
use super::rows::Header;

/// Messages that are taken at once.
const TAKEN_MAX: usize = 512;

/// The queue of one partition.
pub struct MessageQueue {
    taken: VecDeque<Owned>,
    queue: NonNull<client::rd_kafka_queue_t>,
    /// The client that owns the queue and its messages.
    _consumer: SharedConsumer,
}

// SAFETY: queues and messages of the client may be used by any thread, one at a time: librdkafka
// locks its queues and counts references to them (INTRODUCTION.md, "Threads and callbacks").
unsafe impl Send for MessageQueue {}

/// A message, destroyed when this is dropped.
struct Owned(NonNull<client::rd_kafka_message_t>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this is the one owner of the message, which the client has given away.
        unsafe { client::rd_kafka_message_destroy(self.0.as_ptr()) };
    }
}

impl MessageQueue {
    /// The queue of a partition that is read.
    ///
    /// # Errors
    /// If the client has no such partition.
    pub fn new(consumer: SharedConsumer, topic: &str, partition: i32) -> Result<MessageQueue> {
        let name = CString::new(topic).map_err(|_| Error::internal("a topic's name has a zero"))?;
        let owner = consumer.client().native_ptr();
        // SAFETY: the client lives as long as `consumer`, and the name as long as the call. The
        // reference to the queue that it gives is ours until it is dropped.
        let queue =
            unsafe { client::rd_kafka_queue_get_partition(owner, name.as_ptr(), partition) };
        let queue =
            NonNull::new(queue).ok_or_else(|| Error::internal("a partition has no queue"))?;
        Ok(MessageQueue { taken: VecDeque::new(), queue, _consumer: consumer })
    }

    /// The next message, or what went wrong in its place; none if nothing is there now.
    pub fn next(&mut self) -> Option<std::result::Result<TakenMessage, KafkaError>> {
        if self.taken.is_empty() {
            self.fill();
        }
        let message = TakenMessage(self.taken.pop_front()?);
        // SAFETY: the message was given by the client and is not destroyed yet.
        let (code, partition) = unsafe {
            let message = message.0.0.as_ref();
            (message.err, message.partition)
        };
        Some(match code {
            client::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                Err(KafkaError::PartitionEOF(partition))
            }
            code if code.is_error() => Err(KafkaError::MessageConsumption(code.into())),
            _ => Ok(message),
        })
    }

    /// Drops what was taken: after a seek the client gives it again.
    pub fn clear(&mut self) {
        self.taken.clear();
    }

    fn fill(&mut self) {
        let mut found = [null_mut(); TAKEN_MAX];
        // SAFETY: the queue is ours, and `found` has room for as many messages as are asked for.
        // What it holds afterwards, up to the count that is returned, are messages of ours.
        let count = unsafe {
            client::rd_kafka_consume_batch_queue(
                self.queue.as_ptr(),
                0,
                found.as_mut_ptr(),
                TAKEN_MAX,
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        self.taken.extend(found[..count].iter().filter_map(|&one| NonNull::new(one)).map(Owned));
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        self.taken.clear();
        // SAFETY: the reference to the queue is ours, and its client is still there.
        unsafe { client::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

/// A message that was taken from a queue.
pub struct TakenMessage(Owned);

impl TakenMessage {
    /// What is in it.
    pub fn get(&self) -> MessageRef<'_> {
        MessageRef { message: self.0.0, lives: PhantomData }
    }
}

/// What is in a message.
#[derive(Clone, Copy)]
pub struct MessageRef<'a> {
    message: NonNull<client::rd_kafka_message_t>,
    lives: PhantomData<&'a client::rd_kafka_message_t>,
}

impl<'a> From<&'a BorrowedMessage<'_>> for MessageRef<'a> {
    fn from(message: &'a BorrowedMessage<'_>) -> MessageRef<'a> {
        let message = NonNull::new(message.ptr()).expect("a message is somewhere");
        MessageRef { message, lives: PhantomData }
    }
}

impl<'a> MessageRef<'a> {
    fn native(self) -> &'a client::rd_kafka_message_t {
        // SAFETY: the message is not destroyed while it is borrowed, and nobody writes to it.
        unsafe { self.message.as_ref() }
    }

    /// Its offset.
    pub fn offset(self) -> i64 {
        self.native().offset
    }

    /// Its partition.
    pub fn partition(self) -> i32 {
        self.native().partition
    }

    /// Its value.
    pub fn payload(self) -> Option<&'a [u8]> {
        let native = self.native();
        // SAFETY: the client says where the bytes are, which live as long as the message.
        unsafe { bytes(native.payload, native.len) }
    }

    /// Its key.
    pub fn key(self) -> Option<&'a [u8]> {
        let native = self.native();
        // SAFETY: as for the value.
        unsafe { bytes(native.key, native.key_len) }
    }

    /// When it was made or arrived.
    pub fn timestamp(self) -> Timestamp {
        use client::rd_kafka_timestamp_type_t as Kind;
        let mut kind = Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: reads a message that is not destroyed, and writes to a place of ours.
        let millis =
            unsafe { client::rd_kafka_message_timestamp(self.message.as_ptr(), &raw mut kind) };
        match kind {
            _ if millis == -1 => Timestamp::NotAvailable,
            Kind::RD_KAFKA_TIMESTAMP_CREATE_TIME => Timestamp::CreateTime(millis),
            Kind::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => Timestamp::LogAppendTime(millis),
            Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => Timestamp::NotAvailable,
        }
    }

    /// How often the partition had got a new leader when the message was written; none if the
    /// broker does not say that.
    pub fn leader_epoch(self) -> Option<i32> {
        // SAFETY: reads a message that is not destroyed.
        let epoch = unsafe { client::rd_kafka_message_leader_epoch(self.message.as_ptr()) };
        (epoch >= 0).then_some(epoch)
    }

    /// Its headers. A name that is no UTF-8 has its bad bytes replaced.
    pub fn headers(self) -> Vec<Header> {
        let mut list = null_mut();
        // SAFETY: the list belongs to the message, which is not destroyed and is used by this
        // thread alone (it is parsed when it is asked for first).
        let found =
            unsafe { client::rd_kafka_message_headers(self.message.as_ptr(), &raw mut list) };
        if found.is_error() {
            return Vec::new();
        }
        (0..).map_while(|at| header(list, at)).collect()
    }
}

/// A header of a list; none behind the last.
fn header(list: *const client::rd_kafka_headers_t, at: usize) -> Option<Header> {
    let (mut name, mut value, mut length) = (null(), null(), 0);
    // SAFETY: the list is of a message that is not destroyed; the client writes to places of ours,
    // and what it writes points into that message.
    unsafe {
        let found = client::rd_kafka_header_get_all(
            list,
            at,
            &raw mut name,
            &raw mut value,
            &raw mut length,
        );
        if found.is_error() {
            return None;
        }
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        Some((name, bytes(value, length).map(<[u8]>::to_vec)))
    }
}

/// Bytes of the client.
///
/// # Safety
/// They are there, and stay for as long as `'a`.
unsafe fn bytes<'a>(from: *const std::ffi::c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: as promised by who calls.
    (!from.is_null()).then(|| unsafe { std::slice::from_raw_parts(from.cast(), length) })
}
