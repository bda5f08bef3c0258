//! Files in object stores: `s3://`, `gs://`, `abfs://`, `http(s)://` for reading, and `memory://`
//! for tests.
//!
//! An object appears with all its bytes or not at all, and never changes afterwards: another one
//! takes its place. So objects neither grow nor are they moved, and an object is known again by its
//! name, its size and its entity tag.
//!
//! ```text
//! listing ─▶ InputFile ─▶ reader (ranges, or one stream) ─▶ as files of this machine
//! FolderSink ─▶ Files ─▶ upload in pieces ─▶ note of it ─▶ object
//! ```
//!
//! | what | where |
//! |---|---|
//! | which schemes there are, and how a store is reached | `stores.rs`, `guard.rs` |
//! | calls that are waited for | `client.rs` |
//! | the objects of a table | `../object_listing.rs` |
//! | reading one | `reader.rs` |
//! | writing, so that objects appear at their commit | `upload.rs`, `files.rs` |
//!
//! The crate `object_store` is asynchronous and the engine is not. One thread of the process drives
//! all calls; whoever has made one waits for it, and stops waiting once it is cancelled.

mod client;
mod files;
#[cfg(feature = "remote")]
mod guard;
mod reader;
mod stores;
mod upload;

pub use self::client::{Object, Objects, is_cancelled, is_replaced};
pub use self::files::ObjectFiles;
pub use self::reader::ObjectReader;
pub use self::stores::{CREDENTIALS, check, is_url, open, writes};
