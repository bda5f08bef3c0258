//! Takes connections, with their limits: how many there are, and how long a client may take to say
//! what it wants.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thalweg_core::{Error, Result};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard::Peer;
use crate::byte_stream::ByteStream;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take for the head of a request, and be silent between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// After an error of the system: until connections are taken again.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a server listens.
pub struct Listeners {
    /// For commands of this machine.
    pub unix: UnixListener,
    /// For the network.
    pub tcp: Option<TcpListener>,
    /// For clients of Flink.
    pub gateway: Option<TcpListener>,
}

impl Listeners {
    /// Opens them.
    ///
    /// # Errors
    /// If an address is taken.
    pub async fn open(
        socket: &Path,
        address: Option<SocketAddr>,
        gateway: Option<SocketAddr>,
    ) -> Result<Listeners> {
        // The data directory is ours, so whoever has left a socket there is gone.
        let _ = std::fs::remove_file(socket);
        let unix = open_unix(socket)?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
        let (tcp, gateway) = (bound(address).await?, bound(gateway).await?);
        Ok(Listeners { unix, tcp, gateway })
    }
}

/// Opens the socket for commands. The system keeps the path of a socket in a field of fixed size,
/// and its own error for a longer one names neither.
fn open_unix(socket: &Path) -> Result<UnixListener> {
    UnixListener::bind(socket).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            let bytes = socket.as_os_str().len();
            let message = format!("cannot listen at {}: {error}", socket.display());
            Error::io(message).hint(format!(
                "its path has {bytes} bytes, and the system takes about 100: name a shorter one with \
                 the setting 'listen-unix', or a shorter --data-dir"
            ))
        }
        _ => refused(&socket.display().to_string(), &error),
    })
}

async fn bound(address: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    bound.map(Some).map_err(|error| refused(&address.to_string(), &error))
}

fn refused(place: &str, error: &std::io::Error) -> Error {
    Error::io(format!("cannot listen at {place}: {error}"))
        .hint("another server may be there: name another address with --listen")
}

/// Takes connections for as long as it runs.
pub async fn accept(listeners: Listeners, router: Router, gateway: Router) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let Listeners { unix, tcp, gateway: gateway_tcp } = listeners;
    tokio::join!(
        accept_unix(unix, router.clone(), Arc::clone(&limit)),
        accept_tcp(tcp, router, Arc::clone(&limit)),
        accept_tcp(gateway_tcp, gateway, limit),
    );
}

async fn accept_unix(listener: UnixListener, router: Router, limit: Arc<Semaphore>) {
    let own = rustix::process::getuid().as_raw();
    while let Ok(permit) = Arc::clone(&limit).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map(|peer| peer.uid());
                // The folder lets nobody else in; this holds where it was opened up.
                if let Ok(user) = user
                    && (user == own || user == 0)
                {
                    serve_one(Box::new(stream), Peer::User(user), router.clone(), permit);
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn accept_tcp(listener: Option<TcpListener>, router: Router, limit: Arc<Semaphore>) {
    let Some(listener) = listener else { return };
    while let Ok(permit) = Arc::clone(&limit).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                serve_one(Box::new(stream), Peer::Address(address), router.clone(), permit);
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn serve_one(
    stream: Box<dyn ByteStream>,
    peer: Peer,
    router: Router,
    permit: OwnedSemaphorePermit,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let router = TowerToHyperService::new(router.clone());
        async move { router.call(request).await }
    });
    tokio::spawn(async move {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        // The client has gone, or was too slow.
        let _ = connection.await;
        drop(permit);
    });
}
