//! An object store in memory that fails as networks do: the calls of one operation are counted, and
//! the one with a given number fails, or is the last one that is answered.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call does nothing.
    Error,
    /// The call is done, and its answer is lost.
    LostAnswer,
    /// The call and all that follow do nothing.
    CrashBefore,
    /// The call is done; its answer is lost, and all that follow do nothing.
    CrashAfter,
    /// A put keeps half of the bytes and is answered as done.
    ShortWrite,
}

pub const FAULTS: [Fault; 5] =
    [Fault::Error, Fault::LostAnswer, Fault::CrashBefore, Fault::CrashAfter, Fault::ShortWrite];

/// The store.
#[derive(Debug)]
pub struct FaultyObjects {
    inner: Arc<InMemory>,
    calls: AtomicUsize,
    fault: Mutex<Option<(usize, Fault)>>,
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty objects")
    }
}

/// What is to be done with a call.
#[derive(PartialEq)]
enum Doing {
    All,
    AllThenFail,
    Half,
}

impl FaultyObjects {
    /// Over these objects; the call with this number (from 0) goes wrong.
    pub fn new(inner: Arc<InMemory>, fault: Option<(usize, Fault)>) -> Self {
        FaultyObjects { inner, calls: AtomicUsize::new(0), fault: Mutex::new(fault) }
    }
    /// How many calls there were.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
    fn call(&self) -> Result<Doing> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match *self.fault.lock().expect("nobody panics with it") {
            Some((at, Fault::CrashBefore | Fault::CrashAfter)) if call > at => Err(failed()),
            Some((at, fault)) if call == at => match fault {
                Fault::Error | Fault::CrashBefore => Err(failed()),
                Fault::LostAnswer | Fault::CrashAfter => Ok(Doing::AllThenFail),
                Fault::ShortWrite => Ok(Doing::Half),
            },
            _ => Ok(Doing::All),
        }
    }
}

fn failed() -> Error {
    Error::Generic { store: "faulty", source: "no answer".into() }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let doing = self.call()?;
        let payload = if doing == Doing::Half {
            let bytes = Bytes::from(payload);
            bytes.slice(..bytes.len() / 2).into()
        } else {
            payload
        };
        let put = self.inner.put_opts(location, payload, options).await?;
        if doing == Doing::AllThenFail { Err(failed()) } else { Ok(put) }
    }
    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let doing = self.call()?;
        let got = self.inner.get_opts(location, options).await?;
        if doing == Doing::AllThenFail { Err(failed()) } else { Ok(got) }
    }
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.call() {
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
            Ok(Doing::AllThenFail) => {
                self.inner.delete_stream(locations).map(|_| Err(failed())).boxed()
            }
            Ok(_) => self.inner.delete_stream(locations),
        }
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.call() {
            Ok(Doing::All | Doing::Half) => self.inner.list(prefix),
            _ => futures_util::stream::iter([Err(failed())]).boxed(),
        }
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
