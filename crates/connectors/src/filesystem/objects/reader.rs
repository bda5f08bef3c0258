//! Reading an object: from one place to its end, or any range of it.
//!
//! All reads ask for the object of the entity tag that was listed: another one that has taken its
//! place since is never mixed with it.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{GetOptions, GetRange, GetResult};

use super::client::{Call, Object};

/// How much is asked for where a few bytes are wanted.
const BLOCK_BYTES: u64 = 1 << 20;
/// How many such pieces are kept.
const BLOCKS_MAX: usize = 32;

impl Object {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn options(&self, range: Option<GetRange>) -> GetOptions {
        GetOptions { range, if_match: self.tag.clone(), ..GetOptions::default() }
    }

    /// Some ranges of it, at once where they lie near each other.
    fn ranges(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let (object, ranges) = (self.clone(), ranges.to_vec());
        self.objects.wait(async move {
            let fetch = |range: Range<u64>| {
                let (store, key) = (object.objects.store.clone(), object.key.clone());
                let options = object.options(Some(GetRange::Bounded(range)));
                let size = object.size;
                async move { same(store.get_opts(&key, options).await?, size)?.bytes().await }
            };
            object_store::coalesce_ranges(
                &ranges,
                fetch,
                object_store::OBJECT_STORE_COALESCE_DEFAULT,
            )
            .await
        })
    }

    /// It from a place on.
    ///
    /// # Errors
    /// If it cannot be read, or is another one now.
    pub fn stream(&self, offset: u64) -> io::Result<ObjectStream> {
        let mut stream = ObjectStream { object: self.clone(), next: None, piece: Bytes::new() };
        if offset < self.size || (offset == 0 && self.size == 0) {
            let object = self.clone();
            let range = (offset > 0).then_some(GetRange::Offset(offset));
            stream.next = Some(self.objects.begin(async move {
                let options = object.options(range);
                let found = object.objects.store.get_opts(&object.key, options).await?;
                advance(same(found, object.size)?.into_stream()).await
            })?);
        }
        Ok(stream)
    }
}

/// What was found, if it has the size that was listed: not every server knows entity tags.
fn same(found: GetResult, size: u64) -> object_store::Result<GetResult> {
    if found.meta.size == size {
        return Ok(found);
    }
    let path = found.meta.location.to_string();
    let source = format!("it has {} bytes, and had {size}", found.meta.size).into();
    Err(object_store::Error::Precondition { path, source })
}

type Stream = BoxStream<'static, object_store::Result<Bytes>>;
type Advanced = Option<(Bytes, Stream)>;

async fn advance(mut stream: Stream) -> object_store::Result<Advanced> {
    match stream.next().await {
        None => Ok(None),
        Some(piece) => Ok(Some((piece?, stream))),
    }
}

/// An object from one place to its end. The piece behind the one that is being decoded is on its
/// way.
pub struct ObjectStream {
    object: Object,
    next: Option<Call<Advanced>>,
    piece: Bytes,
}

impl Read for ObjectStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(call) = self.next.take() else { return Ok(0) };
            let Some((piece, stream)) = call.wait(&self.object.objects.cancel)? else {
                return Ok(0);
            };
            self.piece = piece;
            self.next = Some(self.object.objects.begin(advance(stream))?);
        }
        let taken = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}

/// An object of which any range can be read. Clones share what was fetched.
#[derive(Clone)]
pub struct ObjectReader {
    object: Object,
    fetched: Arc<Mutex<Fetched>>,
    position: u64,
}

#[derive(Default)]
struct Fetched {
    /// What was asked for ahead, by the place where it begins.
    ahead: Vec<(u64, Bytes)>,
    /// Pieces by their numbers, the one that was used last at the end.
    blocks: Vec<(u64, Bytes)>,
}

impl ObjectReader {
    /// Reads this object.
    pub fn new(object: Object) -> ObjectReader {
        ObjectReader { object, fetched: Arc::default(), position: 0 }
    }

    /// The length of the object in bytes.
    pub fn size(&self) -> u64 {
        self.object.size
    }

    /// Fetches ranges that will be read, if they are no more than this altogether.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn fetch(&self, ranges: &[Range<u64>], bytes_max: usize) -> io::Result<()> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > bytes_max as u64 || ranges.is_empty() {
            return Ok(());
        }
        let found = self.object.ranges(ranges)?;
        let ahead = ranges.iter().map(|range| range.start).zip(found).collect();
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).ahead = ahead;
        Ok(())
    }

    /// Bytes from a place on: at least one, and up to `length`, unless it ends there.
    fn some(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        if offset >= self.object.size || length == 0 {
            return Ok(Bytes::new());
        }
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fetched.ahead.iter().find_map(|(start, bytes)| part(*start, bytes, offset));
        let found = match found {
            Some(found) => found,
            None => {
                let number = offset / BLOCK_BYTES;
                let block = fetched.block(number, &self.object)?;
                part(number * BLOCK_BYTES, &block, offset)
                    .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?
            }
        };
        Ok(found.slice(..found.len().min(length)))
    }

    /// Exactly `length` bytes from a place on.
    ///
    /// # Errors
    /// If they cannot be read, or it ends before.
    pub fn bytes(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let first = self.some(offset, length)?;
        if first.len() == length {
            return Ok(first);
        }
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&first);
        while bytes.len() < length {
            let more = self.some(offset + bytes.len() as u64, length - bytes.len())?;
            if more.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            bytes.extend_from_slice(&more);
        }
        Ok(bytes.into())
    }

    /// The same object from a place on.
    #[must_use]
    pub fn at(&self, position: u64) -> ObjectReader {
        ObjectReader { position, ..self.clone() }
    }
}

/// What stands from a place on in bytes that begin at another one.
fn part(start: u64, bytes: &Bytes, offset: u64) -> Option<Bytes> {
    let inside = offset.checked_sub(start).and_then(|inside| usize::try_from(inside).ok())?;
    (inside < bytes.len()).then(|| bytes.slice(inside..))
}

impl Fetched {
    fn block(&mut self, number: u64, object: &Object) -> io::Result<Bytes> {
        let found = match self.blocks.iter().position(|(known, _)| *known == number) {
            Some(at) => self.blocks.remove(at),
            None => {
                let start = number * BLOCK_BYTES;
                let range = start..object.size.min(start + BLOCK_BYTES);
                let bytes = object.ranges(std::slice::from_ref(&range))?.pop().unwrap_or_default();
                (number, bytes)
            }
        };
        if self.blocks.len() >= BLOCKS_MAX {
            self.blocks.remove(0);
        }
        self.blocks.push(found.clone());
        Ok(found.1)
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let found = self.some(self.position, buffer.len())?;
        buffer[..found.len()].copy_from_slice(&found);
        self.position += found.len() as u64;
        Ok(found.len())
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, step) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(step) => (self.object.size, step),
            SeekFrom::Current(step) => (self.position, step),
        };
        let position = base.checked_add_signed(step);
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
