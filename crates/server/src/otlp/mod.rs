//! Metrics and traces for a collector of OpenTelemetry: OTLP over HTTP, as Protocol Buffers.
//!
//! | module | holds |
//! |---|---|
//! | `spans` | what took time, until it is sent |
//! | `requests` | both kinds of requests to a collector |
//!
//! A thread of its own looks at all jobs once a second, for snapshots and requests that have
//! ended, and sends. The metrics are those of `/metrics`; spans are in docs/metrics.md.
//!
//! # Invariants
//! - A collector that is slow, or not there, costs memory for some thousand spans and slows
//!   nothing: what it does not take is sent again, and the oldest spans go.
//! - No span is made for a row or a bundle.
//!
//! What it does not do: it speaks no gRPC, and sends no logs.

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
use crate::server::Server;

mod requests;
mod spans;

pub use spans::{Span, Spans};

/// How often jobs are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the thread looks whether the server has ended.
const LOOK_FOR_END: Duration = Duration::from_millis(50);
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Spans of a request.
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
    /// What was wrong when something was sent last, so that it is said once.
    trouble: Mutex<Option<String>>,
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
                self.send_spans();
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
            let run = job.lock().run.clone();
            let of_run = |run: Arc<crate::run::Run>| {
                run.watched(|watch| watch.newest()?.snapshots.clone()).flatten()
            };
            let Some(snapshot) = run.and_then(of_run) else { continue };
            let Some(number) = snapshot.number.filter(|_| snapshot.taken > 0) else { continue };
            if self.seen_snapshots.insert(job.name.clone(), number) != Some(number) {
                Span::of_snapshot(&job.name, number, &snapshot)
                    .into_iter()
                    .for_each(|span| server.spans.add(span));
            }
        }
    }

    fn send_spans(&self) {
        let spans = &self.app.server.spans;
        loop {
            let batch = spans.oldest(BATCH_MAX);
            if batch.is_empty() || !self.send("traces", requests::traces(&self.resource, &batch)) {
                return;
            }
            spans.remove(&batch);
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
        self.note(&self.app.server, sent.err().map(|error| format!("{address}: {error}")));
        self.trouble.lock().expect("no panic under this lock").is_none()
    }

    /// Says what is wrong, once for each change.
    fn note(&self, server: &Server, now: Option<String>) {
        let mut before = self.trouble.lock().expect("no panic under this lock");
        if *before != now {
            match &now {
                Some(text) => server.journal.say("warning", None, &format!("OTLP: {text}")),
                None => server.journal.say("info", None, "OTLP: the collector answers again"),
            }
        }
        *before = now;
    }
}
