//! Metrics, traces and events for a collector of OpenTelemetry: OTLP over HTTP, as Protocol
//! Buffers.
//!
//! | module | holds |
//! |---|---|
//! | `spans` | what took time |
//! | `events` | what happened to jobs, as records of a log |
//! | `outbox` | both, until they are sent |
//! | `requests` | the kinds of requests to a collector |
//!
//! A thread of its own looks at all jobs once a second, for snapshots and requests that have
//! ended, and sends. The metrics are those of `/metrics`; spans and events are in docs/metrics.md.
//!
//! # Invariants
//! - A collector that is slow, or not there, costs memory for some thousand spans and events and
//!   slows nothing: what it does not take is sent again, and the oldest go.
//! - No span and no event is made for a row or a bundle.
//!
//! What it does not do: it speaks no gRPC, and does not send the lines of standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::shim::{Clock, unique_name};
use thalweg_core::{Error, Result};
use thalweg_monitoring::protobuf::Message;

use crate::config::OtlpConfig;
use crate::http::{App, families};
use crate::operations::OperationState;

mod events;
mod outbox;
mod requests;
mod spans;

pub use events::EventRecord;
pub use outbox::Outbox;
pub use spans::Span;

/// How often jobs are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the thread looks whether the server has ended.
const LOOK_FOR_END: Duration = Duration::from_millis(50);
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Spans or events of a request.
const BATCH_MAX: usize = 512;

/// The thread that sends.
pub struct Exporter {
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Begins to send, if there is somewhere to send to.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn begin(app: App) -> Result<Option<Exporter>> {
        let Some(config) = app.server.config.otlp() else { return Ok(None) };
        let is_ending = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_ending);
        let mut sender = Sender::new(app, config);
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let thread = thread.spawn(move || sender.run(&ends));
        let thread = thread.map_err(|error| Error::io(format!("can't start a thread: {error}")))?;
        Ok(Some(Exporter { is_ending, thread }))
    }

    /// Sends what there is, and ends.
    pub fn end(self) {
        self.is_ending.store(true, Ordering::SeqCst);
        drop(self.thread.join());
    }
}

struct Sender {
    app: App,
    config: OtlpConfig,
    agent: ureq::Agent,
    resource: Message,
    /// Operations that have become spans.
    seen_operations: BTreeSet<String>,
    /// The newest snapshot of each job that has become a span.
    seen_snapshots: BTreeMap<String, u64>,
    /// What was wrong when something was sent last to each address, so that it is said once.
    trouble: Mutex<BTreeMap<String, String>>,
}

impl Sender {
    fn new(app: App, config: OtlpConfig) -> Sender {
        let agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
        let resource = requests::resource(&[
            ("service.name", config.service_name.clone()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", unique_name()),
        ]);
        Sender {
            app,
            config,
            agent: agent.into(),
            resource,
            seen_operations: BTreeSet::new(),
            seen_snapshots: BTreeMap::new(),
            trouble: Mutex::default(),
        }
    }

    fn run(&mut self, ends: &AtomicBool) {
        let clock = self.app.server.clock.clone();
        let due = |since_ns: u64, every: Duration| {
            Duration::from_nanos(clock.now_ns().saturating_sub(since_ns)) >= every
        };
        let (mut looked_ns, mut sent_ns) = (0, clock.now_ns());
        loop {
            let is_last = ends.load(Ordering::SeqCst);
            if is_last || due(looked_ns, LOOK_EVERY) {
                looked_ns = clock.now_ns();
                self.look();
                let server = &self.app.server;
                self.send_waiting("traces", &server.spans, requests::traces);
                self.send_waiting("logs", &server.events, requests::logs);
            }
            if is_last || due(sent_ns, self.config.interval) {
                sent_ns = clock.now_ns();
                self.send_metrics();
            }
            if is_last {
                return;
            }
            std::thread::sleep(LOOK_FOR_END);
        }
    }

    /// Makes spans of what has ended.
    fn look(&mut self) {
        let server = Arc::clone(&self.app.server);
        let operations = server.operations.list();
        let ended = operations.iter().filter(|own| own.state != OperationState::Running);
        for operation in ended {
            if self.seen_operations.insert(operation.id.clone()) {
                server.spans.add(Span::of_operation(operation));
            }
        }
        self.seen_operations.retain(|id| operations.iter().any(|own| own.id == *id));
        for job in server.all_jobs() {
            let snapshot = job.watched(|watch| watch.newest()?.snapshots.clone());
            let Some(snapshot) = snapshot else { continue };
            let Some(number) = snapshot.number.filter(|_| snapshot.taken > 0) else { continue };
            if self.seen_snapshots.insert(job.name.clone(), number) != Some(number) {
                Span::of_snapshot(&job.name, number, &snapshot)
                    .into_iter()
                    .for_each(|span| server.spans.add(span));
            }
        }
    }

    fn send_waiting<T: Clone>(
        &self,
        what: &str,
        outbox: &Outbox<T>,
        request: fn(&Message, &[T]) -> Message,
    ) {
        loop {
            let batch = outbox.oldest(BATCH_MAX);
            if batch.items.is_empty() || !self.send(what, request(&self.resource, &batch.items)) {
                return;
            }
            outbox.remove(&batch);
        }
    }

    fn send_metrics(&self) {
        let at_ms = self.app.server.clock.wall_ms();
        let families = families(&self.app.server, &self.app.limits.meters, |_| true);
        let began_ms = self.app.server.began_ms;
        self.send("metrics", requests::metrics(&self.resource, &families, (began_ms, at_ms)));
    }

    /// True if the collector has taken it.
    fn send(&self, what: &str, body: Message) -> bool {
        let address = format!("{}/v1/{what}", self.config.endpoint.trim_end_matches('/'));
        let mut request =
            self.agent.post(&address).header("content-type", "application/x-protobuf");
        for (name, value) in &self.config.headers {
            request = request.header(name, value);
        }
        let sent = request.send(body.into_bytes());
        let is_taken = sent.is_ok();
        self.note(address, sent.err().map(|error| error.to_string()));
        is_taken
    }

    /// Says what is wrong at an address, once for each change.
    fn note(&self, address: String, now: Option<String>) {
        let mut trouble = self.trouble.lock().expect("no panic under this lock");
        let journal = &self.app.server.journal;
        if trouble.get(&address) != now.as_ref() {
            match &now {
                Some(text) => journal.say("warning", None, &format!("OTLP: {address}: {text}")),
                None => journal.say("info", None, &format!("OTLP: {address} answers again")),
            }
        }
        match now {
            Some(text) => trouble.insert(address, text),
            None => trouble.remove(&address),
        };
    }
}
