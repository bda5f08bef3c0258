//! Arrow IPC files (also known as Feather V2), read some record batches at a time ([`reader`]) and
//! written as they come ([`writer`]).
//!
//! Buffers may be compressed with Zstandard, not with LZ4. Streams, which have no footer, are read
//! where they are in memory whole ([`stream`]), and no files.

pub mod reader;
pub mod stream;
pub mod writer;
