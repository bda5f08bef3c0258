//! An object store in memory that fails at a call of one's choice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use crate::filesystem::paths::is_hidden;

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails, and later ones work.
    Error,
    /// The call works, and its answer is lost.
    LostAnswer,
    /// The process is killed instead of the call.
    KillBefore,
    /// The process is killed behind the call.
    KillAfter,
}

impl Fault {
    pub const ALL: [Fault; 4] =
        [Fault::Error, Fault::LostAnswer, Fault::KillBefore, Fault::KillAfter];
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    /// Reads, and the bytes that they brought.
    reads: (u64, u64),
    fault: Option<(u64, Fault)>,
    is_dead: bool,
    /// Uploads that are neither completed nor aborted, with how many pieces they have.
    uploads: BTreeMap<String, usize>,
}

/// The store.
#[derive(Debug, Default)]
pub struct FaultyStore {
    inner: InMemory,
    state: Mutex<State>,
}

fn broken() -> Error {
    Error::Generic { store: "faulty", source: "the connection is gone".into() }
}

impl FaultyStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// The call with this number, from 1, meets a fault.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        let mut state = self.state();
        (state.calls, state.fault) = (0, Some((call, fault)));
    }

    /// True if the fault was met.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.fault.is_some_and(|(call, _)| state.calls >= call)
    }

    /// How many reads there were since this was asked before, and how many bytes they brought.
    pub fn take_reads(&self) -> (u64, u64) {
        std::mem::take(&mut self.state().reads)
    }

    /// A new process.
    pub fn restart(&self) {
        let mut state = self.state();
        (state.is_dead, state.fault) = (false, None);
    }

    /// How many uploads with something in them are neither completed nor aborted.
    pub fn unfinished_with_pieces(&self) -> usize {
        self.state().uploads.values().filter(|pieces| **pieces > 0).count()
    }

    fn objects(&self) -> Vec<ObjectMeta> {
        let found = self.inner.list(None).collect::<Vec<_>>();
        futures_executor::block_on(found).into_iter().map(|found| found.expect("listed")).collect()
    }

    /// What a reader sees.
    pub fn visible(&self) -> String {
        let mut text = Vec::new();
        for object in self.objects() {
            if !is_hidden(object.location.filename().expect("a name")) {
                let get = async { self.inner.get(&object.location).await?.bytes().await };
                text.extend_from_slice(&futures_executor::block_on(get).expect("read"));
            }
        }
        String::from_utf8(text).expect("text")
    }

    /// How many objects are there that a reader does not see.
    pub fn hidden(&self) -> usize {
        let is_unseen = |object: &&ObjectMeta| is_hidden(object.location.filename().unwrap_or(""));
        self.objects().iter().filter(is_unseen).count()
    }

    /// Begins a call: which fault it meets, if it runs at all.
    fn begin(&self) -> Result<Option<Fault>> {
        let mut state = self.state();
        if state.is_dead {
            return Err(broken());
        }
        state.calls += 1;
        let fault = state.fault.filter(|(call, _)| *call == state.calls).map(|(_, fault)| fault);
        match fault {
            Some(Fault::KillBefore) => {
                state.is_dead = true;
                Err(broken())
            }
            Some(Fault::Error) => Err(broken()),
            fault => Ok(fault),
        }
    }

    fn end<T>(&self, fault: Option<Fault>, result: Result<T>) -> Result<T> {
        self.state().is_dead |= fault == Some(Fault::KillAfter);
        if fault.is_some() { Err(broken()) } else { result }
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a faulty store")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, to: &Path, body: PutPayload, how: PutOptions) -> Result<PutResult> {
        let fault = self.begin()?;
        let result = self.inner.put_opts(to, body, how).await;
        self.end(fault, result)
    }
    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, how).await
    }
    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        let fault = self.begin()?;
        let result = self.inner.get_opts(from, how).await;
        if let Ok(found) = &result {
            let (reads, bytes) = self.state().reads;
            self.state().reads = (reads + 1, bytes + (found.range.end - found.range.start));
        }
        self.end(fault, result)
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.begin() {
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
            Ok(None) => self.inner.delete_stream(locations),
            Ok(fault) => {
                let deleted = self.inner.delete_stream(locations).collect::<Vec<_>>();
                let result = self.end(fault, futures_executor::block_on(deleted).remove(0));
                futures_util::stream::once(async { result }).boxed()
            }
        }
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.begin() {
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
            Ok(_) => self.inner.list(prefix),
        }
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let fault = self.begin()?;
        let result = self.inner.list_with_delimiter(prefix).await;
        self.end(fault, result)
    }
    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}

#[async_trait]
impl MultipartStore for FaultyStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let fault = self.begin()?;
        let result = self.inner.create_multipart(path).await;
        if let Ok(id) = &result {
            self.state().uploads.insert(id.clone(), 0);
        }
        self.end(fault, result)
    }
    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        number: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let fault = self.begin()?;
        let result = self.inner.put_part(path, id, number, data).await;
        if result.is_ok() {
            *self.state().uploads.entry(id.clone()).or_default() += 1;
        }
        self.end(fault, result)
    }
    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let fault = self.begin()?;
        let result = self.inner.complete_multipart(path, id, parts).await;
        self.state().uploads.remove(id);
        self.end(fault, result)
    }
    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let fault = self.begin()?;
        let result = match self.state().uploads.remove(id) {
            // As S3 says it.
            None => Err(Error::NotFound { path: path.to_string(), source: "no upload".into() }),
            Some(_) => Ok(()),
        };
        if result.is_ok() {
            self.inner.abort_multipart(path, id).await?;
        }
        self.end(fault, result)
    }
}
