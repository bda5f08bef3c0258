//! Writing an object so that it appears later, as a whole, and once.
//!
//! # Notes
//! An object that is to be `DIR/NAME` is uploaded in pieces, which nobody sees. What is needed to
//! complete it is noted in an object of its own under the name that an unfinished file would have
//! (`DIR/.NAME`, `DIR/NAME.partial`):
//!
//! ```text
//! {"upload":"2~k8…","bytes":7340032,"pieces":["\"9b2c…\"","\"1f00…\""]}
//! ```
//!
//! # Protocol
//! 1. An upload is begun when there is a piece to send, and noted before anything is sent: whoever
//!    finds the note can abort it.
//! 2. When the file is synced its last piece is sent, and the note names all pieces. What it says
//!    is durable.
//! 3. To publish is to complete the upload and then to remove the note. Where the upload is gone
//!    and the object is there with all its bytes, an earlier run was interrupted between the two.
//! 4. To remove an unfinished file is to abort its upload and then to remove the note.
//!
//! Names of files that are published in transactions are never used twice, so an object of that
//! name is the one of the note.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutMode, PutPayload};
use serde_json::{Value, json};

use super::super::files::{OutFile, PARTIAL, if_there};
use super::client::{Call, Objects, is_cancelled};

/// What is known of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Note {
    /// `None` for an object without bytes.
    upload: Option<String>,
    bytes: u64,
    pieces: Vec<String>,
}

impl Note {
    fn to_bytes(&self) -> Bytes {
        let note = json!({ "upload": self.upload, "bytes": self.bytes, "pieces": self.pieces });
        Bytes::from(note.to_string())
    }

    fn read(bytes: &[u8]) -> io::Result<Note> {
        let parse = || -> Option<Note> {
            let value: Value = serde_json::from_slice(bytes).ok()?;
            let upload = value.get("upload")?.as_str().map(str::to_owned);
            let piece = |piece: &Value| piece.as_str().map(str::to_owned);
            let pieces =
                value.get("pieces")?.as_array()?.iter().map(piece).collect::<Option<_>>()?;
            Some(Note { upload, bytes: value.get("bytes")?.as_u64()?, pieces })
        };
        parse().ok_or_else(|| {
            let message = "this object is no note of an upload: another program has written it";
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

/// The name that an unfinished file will have; `None` for a name of another kind.
pub fn final_name(name: &str) -> Option<&str> {
    name.strip_suffix(PARTIAL).or_else(|| name.strip_prefix('.')).filter(|name| !name.is_empty())
}

/// The key of the object that an unfinished file will be.
fn target(note: &Key) -> io::Result<Key> {
    let text = note.as_ref();
    let (folder, name) = text.rsplit_once('/').unwrap_or(("", text));
    let name = final_name(name)
        .ok_or_else(|| io::Error::other(format!("'{text}' is no name of an unfinished file")))?;
    // Not `join`, which would escape what is escaped already.
    Key::parse(format!("{folder}/{name}")).map_err(io::Error::other)
}

/// An object that is being uploaded.
pub struct Upload {
    objects: Arc<Objects>,
    store: Arc<dyn MultipartStore>,
    note_key: Key,
    key: Key,
    note: Note,
    piece: Vec<u8>,
    /// The piece before, on its way.
    sending: Option<Call<PartId>>,
    is_synced: bool,
}

impl Upload {
    /// An object that appears when the unfinished file of this name is renamed.
    ///
    /// # Errors
    /// If this is no name of an unfinished file, or nothing can be written here.
    pub fn new(objects: &Arc<Objects>, note: &Path) -> io::Result<Upload> {
        let note_key = objects.key(note)?;
        Ok(Upload {
            store: objects.uploads()?,
            objects: objects.clone(),
            key: target(&note_key)?,
            note_key,
            note: Note::default(),
            piece: Vec::new(),
            sending: None,
            is_synced: false,
        })
    }

    /// The upload; begins it, and notes that.
    fn id(&mut self) -> io::Result<String> {
        if let Some(id) = &self.note.upload {
            return Ok(id.clone());
        }
        let (store, key) = (self.store.clone(), self.key.clone());
        let id = self.objects.wait(async move { store.create_multipart(&key).await })?;
        self.note.upload = Some(id.clone());
        self.objects.put(&self.note_key, Note { bytes: 0, ..self.note.clone() }.to_bytes())?;
        Ok(id)
    }

    fn send(&mut self) -> io::Result<()> {
        let id = self.id()?;
        self.await_sending()?;
        let payload = PutPayload::from(std::mem::take(&mut self.piece));
        self.note.bytes += payload.content_length() as u64;
        let (store, key, number) = (self.store.clone(), self.key.clone(), self.note.pieces.len());
        let call = async move { store.put_part(&key, &id, number, payload).await };
        self.sending = Some(self.objects.begin(call)?);
        Ok(())
    }

    fn await_sending(&mut self) -> io::Result<()> {
        if let Some(call) = self.sending.take() {
            self.note.pieces.push(call.wait(&self.objects.cancel)?.content_id);
        }
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.objects.piece_bytes - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        self.is_synced = false;
        if self.piece.len() == self.objects.piece_bytes {
            // The number of the next piece is known once this one has arrived.
            self.await_sending()?;
            self.send()?;
        }
        Ok(taken)
    }

    /// What was written so far is seen by nobody anyway.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile for Upload {
    fn sync(&mut self) -> io::Result<()> {
        self.await_sending()?;
        if !self.piece.is_empty() {
            self.send()?;
            self.await_sending()?;
        }
        self.objects.put(&self.note_key, self.note.to_bytes())?;
        self.is_synced = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_synced && self.note.upload.is_some() {
            self.sending = None;
            // Best effort: the note lets the next run do it.
            let _ = abort(&self.objects, &self.note_key, &self.note);
        }
    }
}

/// Completes the upload of a note, and removes the note. It may have been completed already.
///
/// # Errors
/// If there is no note; if the upload is gone, and there is no object of its size.
pub fn publish(objects: &Objects, note_key: &Key, key: &Key) -> io::Result<()> {
    if target(note_key)? != *key {
        return Err(io::Error::other("an upload can be published under its own name alone"));
    }
    let note = Note::read(&objects.get(note_key)?)?;
    let completed = match &note.upload {
        None => objects.put(key, Bytes::new()),
        Some(id) => complete(objects, key, id, &note),
    };
    if let Err(error) = completed {
        let is_there = |found: object_store::ObjectMeta| found.size == note.bytes;
        if is_cancelled(&error) || !objects.head(key)?.is_some_and(is_there) {
            return Err(error);
        }
    }
    objects.delete(note_key)
}

fn complete(objects: &Objects, key: &Key, id: &str, note: &Note) -> io::Result<()> {
    let (store, key, id) = (objects.uploads()?, key.clone(), id.to_owned());
    let piece = |content_id: &String| PartId { content_id: content_id.clone() };
    let pieces = note.pieces.iter().map(piece).collect();
    objects.wait(async move { store.complete_multipart(&key, &id, pieces).await }).map(drop)
}

/// Aborts the upload of an unfinished file, and removes its note.
///
/// # Errors
/// If there is no note, or the store refuses.
pub fn discard(objects: &Objects, note_key: &Key) -> io::Result<()> {
    let note = Note::read(&objects.get(note_key)?)?;
    abort(objects, note_key, &note)
}

fn abort(objects: &Objects, note_key: &Key, note: &Note) -> io::Result<()> {
    if let Some(id) = &note.upload {
        let (store, key, id) = (objects.uploads()?, target(note_key)?, id.clone());
        if_there(objects.wait(async move { store.abort_multipart(&key, &id).await }))?;
    }
    objects.delete(note_key)
}

impl Objects {
    fn uploads(&self) -> io::Result<Arc<dyn MultipartStore>> {
        self.uploads.clone().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Puts an object in its place, whatever was there.
    ///
    /// # Errors
    /// If the store refuses.
    pub fn put(&self, key: &Key, bytes: Bytes) -> io::Result<()> {
        let (store, key) = (self.store.clone(), key.clone());
        self.wait(async move { store.put(&key, bytes.into()).await }).map(drop)
    }

    /// Puts an object where there is none; false if there is one that others have made.
    ///
    /// # Errors
    /// If the store refuses for another reason.
    pub fn put_new(&self, key: &Key, bytes: Bytes) -> io::Result<bool> {
        let (store, own, payload) = (self.store.clone(), key.clone(), bytes.clone());
        let put = async move { store.put_opts(&own, payload.into(), PutMode::Create.into()).await };
        match self.wait(put) {
            // An answer may be lost and the put made again: then it is our own object.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(self.get(key)? == bytes)
            }
            put => put.map(|_| true),
        }
    }

    /// What an object holds.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn get(&self, key: &Key) -> io::Result<Bytes> {
        let (store, key) = (self.store.clone(), key.clone());
        self.wait(async move { store.get(&key).await?.bytes().await })
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// If the store refuses.
    pub fn delete(&self, key: &Key) -> io::Result<()> {
        let (store, key) = (self.store.clone(), key.clone());
        if_there(self.wait(async move { store.delete(&key).await })).map(drop)
    }
}
