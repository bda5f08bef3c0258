//! A store, and calls of it that are waited for.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use thalweg_core::connector::Waker;
use tokio::runtime::{Builder, Handle};

use super::super::files::if_there;
use crate::network::{Cancel, TICK};

/// A store, or a bucket of one.
pub struct Objects {
    pub store: Arc<dyn ObjectStore>,
    /// What can be written; `None` for web servers.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// What all URLs in it begin with, without a slash at the end: `s3://bucket`.
    pub base: String,
    /// The size of all pieces of an upload but the last.
    pub piece_bytes: usize,
    pub cancel: Cancel,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

/// An object as it was listed.
#[derive(Clone, Debug)]
pub struct Object {
    pub objects: Arc<Objects>,
    pub key: Key,
    pub size: u64,
    /// Its entity tag, where the store has such.
    pub tag: Option<String>,
}

/// The least that S3 takes.
const PIECE_BYTES: usize = 5 << 20;

impl Objects {
    /// A store, and what all URLs in it begin with.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        uploads: Option<Arc<dyn MultipartStore>>,
        base: String,
    ) -> Objects {
        Objects { store, uploads, base, piece_bytes: PIECE_BYTES, cancel: Cancel::default() }
    }

    /// The same with smaller pieces.
    #[cfg(test)]
    pub fn in_memory(
        store: &Arc<impl ObjectStore + MultipartStore>,
        base: &str,
        piece_bytes: usize,
    ) -> Objects {
        let uploads = Some(store.clone() as _);
        Objects { piece_bytes, ..Objects::new(store.clone(), uploads, base.to_owned()) }
    }

    /// Lets all calls end.
    pub fn cancel(&self) {
        self.cancel.set();
    }

    /// What lets all calls end.
    pub fn canceller(&self) -> Waker {
        self.cancel.waker()
    }

    /// What an object of this URL is called in the store.
    pub fn key(&self, url: &Path) -> io::Result<Key> {
        let text = url.to_string_lossy();
        let key = text.strip_prefix(&self.base).unwrap_or(&text);
        Key::parse(key.trim_start_matches('/'))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    }

    pub fn url(&self, key: &Key) -> PathBuf {
        PathBuf::from(format!("{}/{key}", self.base))
    }

    /// Makes a call and waits for what comes of it.
    ///
    /// # Errors
    /// What the call says; if nobody wants it any more.
    pub fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        self.begin(call)?.wait(&self.cancel)
    }

    /// Makes a call that is waited for later.
    pub fn begin<T: Send + 'static>(
        &self,
        call: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<Call<T>> {
        let result = Arc::new(Mutex::new(None));
        let (sender, ended) = bounded(0);
        let answer = Arc::clone(&result);
        // Boxed, and with a channel of no values, all calls are the same code for the runtime.
        let task = driver()?.spawn(Box::pin(async move {
            let answered = call.await;
            *answer.lock().expect(NO_PANIC) = Some(answered);
            drop(sender);
        }) as Pin<Box<dyn Future<Output = ()> + Send>>);
        Ok(Call { result, ended, task })
    }

    /// What the store says of an object; `None` if it has none of this key.
    pub fn head(&self, key: &Key) -> io::Result<Option<object_store::ObjectMeta>> {
        let (store, own) = (self.store.clone(), key.clone());
        if_there(self.wait(async move { store.head(&own).await }))
    }
}

/// The lock of a result is held to put it there or to take it.
const NO_PANIC: &str = "nobody panics while holding the lock of a result";

/// A call that was made.
pub struct Call<T> {
    /// Is there when the call has ended.
    result: Arc<Mutex<Option<object_store::Result<T>>>>,
    /// Nothing comes through it; its sender is dropped with the call.
    ended: Receiver<()>,
    task: tokio::task::JoinHandle<()>,
}

impl<T> Call<T> {
    pub fn wait(self, cancel: &Cancel) -> io::Result<T> {
        wait_for_end(&self.ended, cancel)?;
        match self.result.lock().expect(NO_PANIC).take() {
            Some(result) => result.map_err(failed),
            None => Err(io::Error::other("the call has ended without an answer")),
        }
    }
}

fn wait_for_end(ended: &Receiver<()>, cancel: &Cancel) -> io::Result<()> {
    while !cancel.is_set() {
        if ended.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected) {
            return Ok(());
        }
    }
    // Not `Interrupted`, after which callers try again.
    Err(io::Error::new(io::ErrorKind::ConnectionAborted, Cancelled))
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Nobody wants the answer any more.
#[derive(Debug)]
struct Cancelled;

/// True if a call was given up.
pub fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// True if an object has taken the place of the one that was listed.
pub fn is_replaced(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the job was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// The error of a store as one of the system's.
fn failed(error: StoreError) -> io::Error {
    let kind = match &error {
        StoreError::NotFound { .. } => io::ErrorKind::NotFound,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        StoreError::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        StoreError::Precondition { .. } => io::ErrorKind::StaleNetworkFileHandle,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, causes(&error))
}

/// What an error and its causes say, each once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

/// The thread that drives all calls of the process.
fn driver() -> io::Result<&'static Handle> {
    static DRIVER: OnceLock<io::Result<Handle>> = OnceLock::new();
    let started = DRIVER.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new()
            .name("object stores".to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(handle)
    });
    started.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}
