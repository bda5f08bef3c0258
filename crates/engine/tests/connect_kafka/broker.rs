//! A broker for a test, and jobs that use it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// A broker of its own, which ends with the test, also one that fails.
pub struct Broker {
    dir: PathBuf,
    pub servers: String,
}

/// A message as it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub time: i64,
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Broker {
    /// Starts a broker of the test's own; `None` on a machine that can have none.
    pub fn start() -> Option<Broker> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-kafka-{}-{number}", std::process::id());
        let mut broker = Broker { dir: std::env::temp_dir().join(name), servers: String::new() };
        let started = broker.call("start");
        if started.status.code() == Some(3) {
            let why = text(&started.stderr);
            assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
            println!("SKIPPED: {why}");
            return None;
        }
        let said = text(&started.stdout);
        let servers = said.lines().find_map(|line| line.strip_prefix("BOOTSTRAP="));
        servers
            .unwrap_or_else(|| panic!("{}", text(&started.stderr)))
            .clone_into(&mut broker.servers);
        Some(broker)
    }

    /// A broker that tests share while they run.
    pub fn shared() -> Option<Arc<Broker>> {
        static SHARED: Mutex<Weak<Broker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(broker) = shared.upgrade() {
            return Some(broker);
        }
        let broker = Arc::new(Broker::start()?);
        *shared = Arc::downgrade(&broker);
        Some(broker)
    }

    fn call(&self, command: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/kafka");
        let mut call = Command::new(script);
        call.arg(command).arg(&self.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        call.output().expect("bash runs")
    }

    /// Kills it.
    pub fn crash(&self) {
        assert!(self.call("crash").status.success());
    }

    /// Starts it again, at the same port.
    pub fn start_again(&self) {
        let started = self.call("start");
        assert!(started.status.success(), "{}", text(&started.stderr));
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config
    }

    /// Makes a topic.
    pub fn topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let made = wait(admin.create_topics([&topic], &AdminOptions::new())).expect("an answer");
        made.into_iter().for_each(|made| drop(made.expect("a topic")));
    }

    /// Removes a topic.
    pub fn delete(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        wait(admin.delete_topics(&[name], &AdminOptions::new())).expect("an answer");
    }

    /// Gives a topic this number of partitions in all.
    pub fn grow(&self, name: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let partitions = NewPartitions::new(name, partitions);
        wait(admin.create_partitions([&partitions], &AdminOptions::new())).expect("an answer");
    }

    /// Writes messages: partition, key, value.
    pub fn send<'a>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = (i32, Option<&'a str>, Option<&'a str>)>,
    ) {
        self.send_all(topic, messages.into_iter().map(|message| (message, 0, None)));
    }

    /// The same, each with a time (0 for now) and headers.
    pub fn send_all<'a>(
        &self,
        topic: &str,
        messages: impl IntoIterator<
            Item = ((i32, Option<&'a str>, Option<&'a str>), i64, Option<OwnedHeaders>),
        >,
    ) {
        let producer: BaseProducer = self.config().create().expect("a producer");
        for ((partition, key, value), time, headers) in messages {
            let mut record = BaseRecord::<str, str>::to(topic).partition(partition);
            (record.key, record.payload, record.headers) = (key, value, headers);
            record.timestamp = (time != 0).then_some(time);
            while let Err((error, back)) = producer.send(record) {
                assert!(error.to_string().contains("Queue full"), "{error}");
                producer.poll(Duration::from_millis(10));
                record = back;
            }
        }
        producer.flush(Duration::from_secs(60)).expect("written");
    }

    /// All messages of a topic that a reader of committed ones sees, by partition and offset.
    pub fn read(&self, topic: &str) -> Vec<Found> {
        let mut config = self.config();
        config.set("group.id", "auditor").set("enable.partition.eof", "true");
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let metadata =
            consumer.fetch_metadata(Some(topic), Duration::from_secs(30)).expect("metadata");
        let partitions = metadata.topics()[0].partitions().len();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions as i32 - 1);
        list.set_all_offsets(Offset::Beginning).expect("offsets");
        consumer.assign(&list).expect("assigned");
        let (mut ended, mut found) = (std::collections::BTreeSet::new(), Vec::new());
        let start = Instant::now();
        while ended.len() < partitions {
            assert!(start.elapsed() < Duration::from_secs(60), "{topic} can't be read");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => found.push(Found {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().map(text),
                    value: message.payload().map(text),
                    headers: message.headers().map(headers).unwrap_or_default(),
                    time: message.timestamp().to_millis().unwrap_or(0),
                }),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                _ => {}
            }
        }
        found.sort();
        found
    }

    /// The values of a topic.
    pub fn values(&self, topic: &str) -> Vec<String> {
        let value = |found: Found| found.value.unwrap_or_else(|| "NULL".to_owned());
        self.read(topic).into_iter().map(value).collect()
    }

    /// Waits until a topic has this number of messages.
    pub fn wait_for(&self, topic: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let values = self.values(topic);
            if values.len() >= count {
                assert_eq!(values.len(), count, "{topic}: {values:?}");
                return values;
            }
            assert!(
                start.elapsed() < Duration::from_secs(90),
                "{topic}: {} of {count}",
                values.len()
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// What a group has committed for the first partition of a topic.
    pub fn committed(&self, group: &str, topic: &str) -> Option<i64> {
        let mut config = self.config();
        config.set("group.id", group);
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, 0);
        let found = consumer.committed_offsets(list, Duration::from_secs(30)).expect("an answer");
        match found.find_partition(topic, 0).expect("asked for").offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }

    /// The options that every table has.
    pub fn table(&self, connector: &str, topic: &str) -> String {
        format!(
            "'connector' = '{connector}', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{}'",
            self.servers
        )
    }

    /// A table of JSON that is read from its beginning to where it ends now.
    pub fn bounded(&self, topic: &str) -> String {
        format!("{}, {BOUNDED}", self.json(topic))
    }

    /// A table of JSON.
    pub fn json(&self, topic: &str) -> String {
        format!("{}, 'format' = 'json'", self.table("kafka", topic))
    }

    /// A folder for the files of a job.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.join("jobs").join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A file with this SQL, in the folder of this name.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder(name).join("job.sql");
        std::fs::write(&file, text).expect("a file");
        file
    }

    /// Runs SQL to its end.
    pub fn run(&self, name: &str, text: &str) -> (bool, String) {
        Job::start(&self.file(name, text), &[]).wait()
    }

    /// Runs SQL that succeeds. What it printed.
    pub fn output(&self, name: &str, text: &str) -> String {
        let (is_right, said) = self.run(name, text);
        assert!(is_right, "{said}");
        said
    }

    /// Runs SQL that fails with these words.
    pub fn refused(&self, name: &str, text: &str, words: &[&str]) {
        let (is_right, said) = self.run(name, text);
        assert!(!is_right, "{text} succeeds");
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
        assert!(!said.contains("s3cret"), "a password is shown: {said}");
    }
}

pub const BOUNDED: &str =
    "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";

fn headers<H: Headers>(headers: &H) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
        .collect()
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.call("crash");
        // Best effort: a folder of a test is no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A job in a process of its own, which is killed with the test.
pub struct Job(pub Child);

impl Job {
    /// Starts `thalweg run`.
    pub fn start(file: &Path, arguments: &[&str]) -> Job {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("run").args(arguments).arg(file);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        Job(command.spawn().expect("a process"))
    }

    /// Interrupts it, as Ctrl-C does, and waits: how long that took.
    pub fn interrupt(self) -> Duration {
        let start = Instant::now();
        let sent = Command::new("kill").arg("-INT").arg(self.0.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        self.wait();
        start.elapsed()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill().expect("it was there");
        self.0.wait().expect("it ends");
    }

    /// Waits until it ends by itself: whether it succeeded, and what it said.
    pub fn wait(mut self) -> (bool, String) {
        let start = Instant::now();
        let pipes = (self.0.stdout.take().expect("a pipe"), self.0.stderr.take().expect("a pipe"));
        // Pipes that nobody reads would stop the job.
        let mut errors = pipes.1;
        let errors = thread::spawn(move || {
            let mut said = String::new();
            errors.read_to_string(&mut said).map(|_| said).expect("text")
        });
        let mut output = pipes.0;
        let shown = thread::spawn(move || {
            let mut said = String::new();
            output.read_to_string(&mut said).map(|_| said).expect("text")
        });
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "the job does not end");
            sleep(Duration::from_millis(10));
        }
        let said = shown.join().expect("read") + &errors.join().expect("read");
        (self.0.wait().expect("it has ended").success(), said)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
