//! Compression by file name: `.gz` and `.zst`.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::files::{OutFile, PARTIAL};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, with any number of members.
    Gzip,
    /// Zstandard, with any number of frames.
    Zstd,
}

impl Compression {
    /// What the name's last extension says.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// What the name says that the file will get when it is complete.
    pub fn of_written(path: &Path) -> Self {
        let name = path.to_string_lossy();
        Compression::of(Path::new(name.strip_suffix(PARTIAL).unwrap_or(&name)))
    }

    /// Reads what was compressed.
    pub fn read(self, file: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Compression::None => file,
            Compression::Gzip => Box::new(MultiGzDecoder::new(file)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
        })
    }
}

/// A file that compresses what is written.
pub enum Compressor {
    /// Writes through.
    None(BufWriter<Box<dyn OutFile>>),
    /// gzip
    Gzip(GzEncoder<Box<dyn OutFile>>),
    /// Zstandard, boxed because its state is large.
    Zstd(Box<zstd::stream::write::Encoder<'static, Box<dyn OutFile>>>),
}

impl Compressor {
    /// Wraps a new file.
    pub fn new(file: Box<dyn OutFile>, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Compressor::None(BufWriter::with_capacity(1 << 18, file)),
            Compression::Gzip => {
                Compressor::Gzip(GzEncoder::new(file, flate2::Compression::default()))
            }
            Compression::Zstd => {
                Compressor::Zstd(Box::new(zstd::stream::write::Encoder::new(file, 3)?))
            }
        })
    }

    /// Writes what is left and returns the file.
    pub fn finish(self) -> io::Result<Box<dyn OutFile>> {
        match self {
            Compressor::None(writer) => writer.into_inner().map_err(io::IntoInnerError::into_error),
            Compressor::Gzip(encoder) => encoder.finish(),
            Compressor::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl Write for Compressor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Compressor::None(writer) => writer.write(bytes),
            Compressor::Gzip(encoder) => encoder.write(bytes),
            Compressor::Zstd(encoder) => encoder.write(bytes),
        }
    }
    /// Compressors keep what they hold: cutting their blocks short at each flush would cost more
    /// room than it gains, in a file that is not complete yet anyway.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Compressor::None(writer) => writer.flush(),
            Compressor::Gzip(_) | Compressor::Zstd(_) => Ok(()),
        }
    }
}
