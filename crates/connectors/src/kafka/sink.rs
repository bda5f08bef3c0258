//! Writes topics.
//!
//! | guarantee | how |
//! |---|---|
//! | none | messages are on their way when a snapshot is taken |
//! | at least once | a snapshot waits until they are acknowledged |
//! | exactly once | [`Transactions`] |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::connector::{Sink, TableRequest, Trouble, Waker};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::client::{Client, Context, SharedConsumer, create};
use super::messages::MessageWriter;
use super::offsets::Calls;
use super::options::{Delivery, KafkaOptions};
use super::output::Output;
use super::spool::Outgoing;
use super::transactions::{START_WAIT, Transactions};
use crate::filesystem::paths;
use crate::network::Cancel;

/// Writes topics.
pub struct KafkaSink {
    request: TableRequest,
    options: KafkaOptions,
    writer: MessageWriter,
    context: Context,
    cancel: Cancel,
    to: Target,
    buffer: Buffer,
    clock: SystemClock,
    /// Why there can be no transactions.
    refusal: Option<Error>,
}

/// Where messages go.
enum Target {
    /// To the servers, which are not asked yet.
    Unopened,
    /// To the servers.
    Output(Box<Output>),
    /// To the servers, with their snapshot.
    Transactions(Box<Transactions>),
}

/// The last message of each key that waits for others.
#[derive(Default)]
struct Buffer {
    /// By topic and key.
    messages: BTreeMap<(Option<String>, Option<Vec<u8>>), Vec<u8>>,
    rows: usize,
    /// When the first of them came.
    since_ns: u64,
}

impl KafkaSink {
    /// A sink of this table.
    ///
    /// # Errors
    /// If the format is not one of messages.
    pub fn new(request: TableRequest, options: KafkaOptions) -> Result<KafkaSink> {
        Ok(KafkaSink {
            writer: MessageWriter::new(&request, &options)?,
            request,
            options,
            context: Context::default(),
            cancel: Cancel::default(),
            to: Target::Unopened,
            buffer: Buffer::default(),
            clock: SystemClock::new(),
            refusal: None,
        })
    }

    fn transactions(&mut self) -> Option<&mut Transactions> {
        match &mut self.to {
            Target::Transactions(transactions) => Some(transactions),
            _ => None,
        }
    }

    /// The folder in which messages wait for their snapshot.
    fn spool_folder(&self, prefix: &str) -> String {
        if let Some(path) = &self.options.spool_path {
            return path.clone();
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name: String =
            prefix.chars().map(|c| if is_plain(c) { c } else { '_' }).take(80).collect();
        format!(".thalweg-spool/{name}-{:08x}", crc32fast::hash(prefix.as_bytes()))
    }

    /// Where there is a list of servers that may be talked to: the first ones name the others.
    fn check_servers(&self) -> Result<()> {
        if self.options.properties.limits_servers() { self.reach() } else { Ok(()) }
    }

    /// Asks the servers for their list, each of which has to be allowed.
    fn reach(&self) -> Result<()> {
        let (properties, table) = (&self.options.properties, &self.request.table);
        let config = properties.consumer(&format!("thalweg-{table}"), 1);
        let consumer: SharedConsumer =
            Arc::new(create(&config, self.context.clone(), properties, table)?);
        let consumer = Client::new(consumer);
        Calls::new(&consumer, properties, table, &self.cancel, START_WAIT).reach()
    }

    fn write_buffer(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let messages: Option<Vec<_>> =
            buffer.messages.values().map(|one| Outgoing::read(one)).collect();
        let messages =
            messages.ok_or_else(|| Error::internal("a message that was kept is damaged"))?;
        emit(&mut self.to, &messages)
    }

    fn is_due(&self) -> bool {
        let waited = Duration::from_nanos(self.clock.now_ns().saturating_sub(self.buffer.since_ns));
        self.buffer.rows >= self.options.flush_rows
            || (self.buffer.rows > 0
                && waited >= Duration::from_millis(self.options.flush_interval_ms))
    }
}

impl Buffer {
    fn add(&mut self, message: &Outgoing<'_>, now_ns: u64) {
        if self.rows == 0 {
            self.since_ns = now_ns;
        }
        self.rows += 1;
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        let key = (message.topic.map(str::to_owned), message.key.map(<[u8]>::to_vec));
        self.messages.insert(key, bytes);
    }
}

fn emit(to: &mut Target, messages: &[Outgoing<'_>]) -> Result<()> {
    match to {
        Target::Transactions(transactions) => transactions.add(messages),
        Target::Output(output) => output.send(messages).map_err(|failure| output.failed(failure)),
        Target::Unopened => Err(Error::internal("the output is not open")),
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn connect(&mut self) -> Result<()> {
        self.reach()
    }

    fn open(&mut self) -> Result<()> {
        if let Target::Unopened = self.to {
            self.check_servers()?;
            let (context, cancel) = (self.context.clone(), self.cancel.clone());
            let output = Output::new(&self.request.table, &self.options, &[], context, cancel)?;
            self.to = Target::Output(Box::new(output));
        }
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let encoded = self.writer.encode(batch, kinds)?;
        let messages = self.writer.messages(batch, kinds, &encoded)?;
        if self.options.flush_rows == 0 {
            emit(&mut self.to, &messages)?;
        } else {
            let now_ns = self.clock.now_ns();
            messages.iter().for_each(|message| self.buffer.add(message, now_ns));
            if self.is_due() {
                self.write_buffer()?;
            }
        }
        match &self.to {
            Target::Output(output) if self.options.delivery != Delivery::None => output.check(),
            _ => Ok(()),
        }
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.cancel.waker())
    }

    fn trouble(&self) -> Option<Trouble> {
        Some(self.context.trouble.clone())
    }

    fn flush(&mut self) -> Result<()> {
        self.write_buffer()
    }

    fn finish(&mut self) -> Result<()> {
        self.write_buffer()?;
        match &mut self.to {
            Target::Output(output) => output.flush(),
            Target::Transactions(transactions) => transactions.finish(),
            Target::Unopened => Ok(()),
        }
    }

    fn abort(&mut self) {
        self.cancel.set();
        self.buffer = Buffer::default();
        if let Some(transactions) = self.transactions() {
            transactions.abort();
        }
        self.to = Target::Unopened;
    }

    fn use_transactions(&mut self) -> SinkGuarantee {
        let (Delivery::ExactlyOnce, Some(prefix)) =
            (self.options.delivery, &self.options.transactional_prefix)
        else {
            return match self.options.is_upsert {
                true => SinkGuarantee::Idempotent,
                false => SinkGuarantee::AtLeastOnce,
            };
        };
        let path = self.spool_folder(prefix);
        let folder = match paths::folder(&self.request, &path) {
            Ok(folder) => folder,
            Err(error) => {
                self.refusal = Some(error);
                return SinkGuarantee::Transactional;
            }
        };
        let (context, cancel) = (self.context.clone(), self.cancel.clone());
        let transactions =
            Transactions::new(&self.request.table, prefix, folder, &self.options, context, cancel);
        self.to = Target::Transactions(Box::new(transactions));
        SinkGuarantee::Transactional
    }

    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        match (self.transactions(), handle) {
            (Some(transactions), handle) => transactions.check_start(handle, start),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(Error::plan(format!(
                "table {}: the snapshot holds rows that are to be committed, and the table is now written without \
                 transactions",
                self.request.table
            ))
            .hint("resume under 'sink.delivery-guarantee' = 'exactly-once', as the snapshot was taken")),
        }
    }

    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        self.transactions().map_or(Ok(()), |transactions| transactions.mark(mark))
    }

    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        self.transactions().map_or(Ok(()), |transactions| transactions.recover(handle))
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        self.write_buffer()?;
        match &mut self.to {
            Target::Transactions(transactions) => transactions.prepare(),
            Target::Output(output) if self.options.delivery != Delivery::None => {
                output.flush()?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn commit(&mut self, handle: &str) -> Result<()> {
        match self.transactions() {
            Some(transactions) => transactions.commit(handle),
            None => Err(Error::internal("nothing was prepared")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use arrow_array::Int32Array;
    use thalweg_core::connector::Connector as _;
    use thalweg_core::{Column, DataType, TableSchema};

    use super::*;
    use crate::conformance::check_sink_cancel;
    use crate::kafka::Kafka;

    #[test]
    fn a_sink_ends_while_its_server_says_nothing() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = silent.local_addr().expect("an address").to_string();
        let options = [
            ("connector", "kafka"),
            ("topic", "t"),
            ("format", "json"),
            ("properties.bootstrap.servers", &server),
            ("properties.queue.buffering.max.messages", "1000"),
        ];
        let request = TableRequest {
            table: "t".to_owned(),
            schema: TableSchema::new(vec![Column::new("n", DataType::Int.nullable())]),
            options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..TableRequest::default()
        };
        let numbers = Arc::new(Int32Array::from_iter_values(0..100));
        let rows = RecordBatch::try_new(request.schema.arrow(), vec![numbers]).expect("a batch");
        let sink = Kafka::rows().sink(&request).expect("a sink");
        check_sink_cancel(sink, &rows).expect("it opens");
    }
}
