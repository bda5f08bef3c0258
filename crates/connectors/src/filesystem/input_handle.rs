//! An input file that is open for reading any part of it: on this machine or in an object store.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use super::objects::ObjectReader;

/// An open file.
pub enum InputHandle {
    /// On this machine.
    File(File),
    /// In an object store.
    Object(ObjectReader),
}

impl InputHandle {
    /// How many bytes it has.
    ///
    /// # Errors
    /// If the operating system does not say.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            InputHandle::File(file) => Ok(file.metadata()?.len()),
            InputHandle::Object(object) => Ok(object.size()),
        }
    }

    /// Ranges that will be read: they are fetched at once where each read would be a call of a
    /// server, if they are no more than this altogether.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn expect(&self, ranges: &[std::ops::Range<u64>], bytes_max: usize) -> io::Result<()> {
        match self {
            InputHandle::File(_) => Ok(()),
            InputHandle::Object(object) => object.fetch(ranges, bytes_max),
        }
    }
}

impl Read for InputHandle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            InputHandle::File(file) => file.read(buffer),
            InputHandle::Object(object) => object.read(buffer),
        }
    }
}

impl Seek for InputHandle {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            InputHandle::File(file) => file.seek(to),
            InputHandle::Object(object) => object.seek(to),
        }
    }
}

impl Length for InputHandle {
    fn len(&self) -> u64 {
        self.length().unwrap_or_default()
    }
}

impl ChunkReader for InputHandle {
    type T = BufReader<InputHandle>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let handle = match self {
            InputHandle::File(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                InputHandle::File(file)
            }
            InputHandle::Object(object) => InputHandle::Object(object.at(start)),
        };
        Ok(BufReader::new(handle))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            InputHandle::File(file) => file.get_bytes(start, length),
            InputHandle::Object(object) => {
                object.bytes(start, length).map_err(|e| ParquetError::External(Box::new(e)))
            }
        }
    }
}
