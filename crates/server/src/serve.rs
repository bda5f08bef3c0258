//! Runs a server: HTTP on two threads, signals, and the end.
//!
//! # How it ends
//! 1. The first signal: requests that change something are answered 503, every job stops with a
//!    snapshot. What is wanted of jobs stays, so the next server continues with them.
//! 2. After `shutdown.timeout`, or at the second signal, what is left is cut off. That is like a
//!    crash, which is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_core::shim::Clock;
use thalweg_core::{Error, Result};

use crate::config::Config;
use crate::http::{App, Listeners, accept, router};
use crate::journal::Journal;
use crate::server::Server;
use crate::systemd::Manager;

/// Threads of HTTP.
const HTTP_THREADS: usize = 2;
/// Threads on which requests may block.
const BLOCKING_THREADS_MAX: usize = 16;
/// How often signals are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long jobs that were cut off may take.
const CUT_OFF_WAIT: Duration = Duration::from_secs(5);

/// A server that listens.
pub struct Serving {
    /// The address of the REST interface, if it has one.
    pub address: Option<std::net::SocketAddr>,
    /// The address of the SQL gateway for clients of Flink, if it has one.
    pub gateway: Option<std::net::SocketAddr>,
    /// The socket of commands.
    pub socket: std::path::PathBuf,
    /// What could not be read of the data directory.
    pub problems: Vec<String>,
    /// Where it says so.
    pub journal: Journal,
}

/// What the process was asked for, as whoever takes its signals counts.
#[derive(Debug, Default)]
pub struct Signals {
    /// To end: the second time at once.
    pub ends: AtomicUsize,
    /// To read again what may change while it runs.
    pub reloads: AtomicUsize,
}

/// What whoever runs the server is informed of.
#[derive(Clone, Copy)]
pub enum Moment<'a> {
    /// Connections are taken.
    Ready(&'a Serving),
    /// Tokens and the folder of jobs were read again; what of them could not be.
    Reloaded(&'a [String]),
}

/// Serves until `signals` has counted an end, and all jobs have stopped.
///
/// # Errors
/// If the data directory or an address is taken.
pub fn serve(config: Config, signals: &Signals, inform: impl Fn(Moment<'_>)) -> Result<()> {
    let (address, gateway) = (config.listen()?, config.gateway_listen()?);
    let (server, supervisor) = Server::open(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("http")
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::io(format!("can't start threads: {error}")))?;
    let socket = server.config.socket();
    let listeners = runtime.block_on(Listeners::open(&socket, address, gateway));
    let listeners = match listeners {
        Ok(listeners) => listeners,
        Err(error) => {
            end(&server, signals);
            drop(supervisor.join());
            return Err(error);
        }
    };
    let address = listeners.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
    let gateway = listeners.gateway.as_ref().and_then(|tcp| tcp.local_addr().ok());
    let gateway_router = crate::gateway::router(Arc::clone(&server), runtime.handle());
    let app = App::new(Arc::clone(&server));
    #[cfg(feature = "otlp")]
    let exporter = crate::otlp::Exporter::begin(app.clone())?;
    runtime.spawn(accept(listeners, router(app), gateway_router));
    let (mut problems, journal) = (server.problems.clone(), server.journal.clone());
    problems.extend(server.read_jobs_dir());
    inform(Moment::Ready(&Serving { address, gateway, socket: socket.clone(), problems, journal }));
    let mut manager = Manager::of(|name| std::env::var(name).ok());
    manager.ready(&address.map_or_else(String::new, |address| format!("http://{address}")));
    while signals.ends.load(Ordering::SeqCst) == 0 {
        if signals.reloads.swap(0, Ordering::SeqCst) > 0 {
            inform(Moment::Reloaded(&server.reload()));
        }
        manager.beat(&server);
        std::thread::sleep(LOOK_AGAIN);
    }
    manager.ending();
    end(&server, signals);
    // A job that hangs although it was cut off ends with the process.
    if !server.all_jobs().iter().any(|job| job.lock().run.is_some()) {
        drop(supervisor.join());
    }
    #[cfg(feature = "otlp")]
    exporter.into_iter().for_each(crate::otlp::Exporter::end);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// Stops all jobs, and waits for them.
fn end(server: &Arc<Server>, signals: &Signals) {
    server.close();
    let began_ns = server.clock.now_ns();
    let has_lasted = |wait: Duration, since_ns: u64| {
        Duration::from_nanos(server.clock.now_ns().saturating_sub(since_ns)) >= wait
    };
    let runs = || server.all_jobs().iter().any(|job| job.lock().run.is_some());
    while runs() {
        if signals.ends.load(Ordering::SeqCst) > 1
            || has_lasted(server.config.shutdown_timeout(), began_ns)
        {
            server.cut_off();
            let cut_ns = server.clock.now_ns();
            while runs() && !has_lasted(CUT_OFF_WAIT, cut_ns) {
                std::thread::sleep(LOOK_AGAIN);
            }
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
