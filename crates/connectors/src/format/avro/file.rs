//! Files of Avro: a header with the schema, then blocks of records, each of which can be read by
//! itself.
//!
//! Source: Apache Avro 1.12 specification, "Object Container Files".

use std::collections::HashMap;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch};
use flate2::Compression as Level;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, Error, Result, TableSchema};

use super::plan::Plan;
use super::schema::{self, Schema};
use super::write::{long, write};
use super::{AvroOptions, Codec};
use crate::format::bad_data::{BadDataPolicy, BadFields};
use crate::format::builder;
use crate::format::records::RecordLayout;

const MAGIC: &[u8; 4] = b"Obj\x01";
const SYNC_BYTES: usize = 16;
/// Bytes of records gathered before a block is written.
const BLOCK_BYTES: usize = 64 << 10;
/// Most headers are shorter.
const HEADER_BYTES: u64 = 64 << 10;
/// A header is not longer than this.
const HEADER_BYTES_MAX: u64 = 16 << 20;
/// Records of a block; such without bytes would else cost nothing to claim.
const BLOCK_RECORDS_MAX: usize = 1 << 24;

/// A file whose header was read, whose columns were checked and whose blocks were found. It keeps
/// no handle.
pub struct AvroFile {
    plan: Plan,
    codec: Codec,
    blocks: Vec<Block>,
    bytes_max: usize,
}

/// Where the records of a block are.
struct Block {
    start: u64,
    bytes: usize,
    records: usize,
}

impl AvroFile {
    /// Reads the header, and passes over the blocks. A block is read as a whole, so none may have
    /// more bytes than this, decompressed.
    ///
    /// # Errors
    /// If the file is damaged or cut, or a column is of another type.
    pub fn open(
        mut input: impl Read + Seek,
        layout: &RecordLayout,
        bytes_max: usize,
    ) -> Result<AvroFile> {
        let length = input.seek(SeekFrom::End(0)).map_err(|e| damaged(&e.to_string()))?;
        let header = match Header::read(&head_of(&mut input, HEADER_BYTES)?) {
            Err(_) if length > HEADER_BYTES => {
                Header::read(&head_of(&mut input, HEADER_BYTES_MAX)?)?
            }
            read => read?,
        };
        let Header { schema, codec, sync, end } = header;
        let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
        let plan = Plan::new(&schema, &columns)?;
        let (mut blocks, mut at) = (Vec::new(), end as u64);
        while at < length {
            let block = Block::find(&mut input, at, length, &sync)?;
            if block.bytes > bytes_max {
                return Err(Error::resource(format!(
                    "block {} has {} MiB, and {} MiB, an eighth of the memory limit, are the most",
                    blocks.len() + 1,
                    block.bytes >> 20,
                    bytes_max >> 20
                ))
                .hint("raise 'memory.limit', or write the file with smaller blocks"));
            }
            at = block.start + (block.bytes + SYNC_BYTES) as u64;
            blocks.push(block);
        }
        Ok(AvroFile { plan, codec, blocks, bytes_max })
    }

    /// How many blocks it has.
    pub fn batches(&self) -> usize {
        self.blocks.len()
    }

    /// Reads some of its blocks, each as a batch.
    pub fn read<'f>(
        &'f self,
        mut input: impl Read + Seek + 'f,
        layout: &'f RecordLayout,
        blocks: Range<usize>,
    ) -> impl Iterator<Item = Result<RecordBatch>> + 'f {
        blocks.map(move |number| {
            let block = &self.blocks[number];
            let mut bytes = vec![0; block.bytes];
            let read = input.seek(SeekFrom::Start(block.start));
            let read = read.and_then(|_| input.read_exact(&mut bytes));
            read.map_err(|e| damaged(&e.to_string()))?;
            let bytes = self.codec.decompressed(bytes, self.bytes_max)?;
            let batch = self.batch(layout, &bytes, block.records);
            batch
                .map_err(|e| Error::new(e.kind(), format!("block {}: {}", number + 1, e.message())))
        })
    }

    fn batch(&self, layout: &RecordLayout, bytes: &[u8], records: usize) -> Result<RecordBatch> {
        let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
        let mut fields = builder::record(columns.iter().copied())?;
        let mut rest = bytes;
        for number in 1..=records {
            let read = self.plan.read_next(rest, &mut fields);
            rest = read.map_err(|reason| Error::data(format!("record {number}: {reason}")))?;
        }
        let mut bad = BadFields::new(BadDataPolicy::Fail);
        let mut columns = builder::finish(fields, &columns, &mut bad)?;
        columns.truncate(layout.wanted.len());
        let batch = layout.batch(columns, records, &mut bad)?;
        match bad.into_rows().into_iter().find_map(|(row, reason)| Some((row, reason?))) {
            None => Ok(batch),
            Some((row, reason)) => Err(Error::data(format!("record {}: {reason}", row + 1))),
        }
    }
}

/// What a small file holds.
pub struct Contents {
    /// The schema of its records.
    pub schema: Schema,
    /// Its blocks: how many records each has, and their bytes.
    pub blocks: Vec<(usize, Vec<u8>)>,
}

/// What a file holds that is read as a whole. No block may have more bytes than this, decompressed.
///
/// # Errors
/// If it is damaged or cut.
pub fn contents(bytes: &[u8], bytes_max: usize) -> Result<Contents> {
    let Header { schema, codec, sync, end } = Header::read(bytes)?;
    let (mut blocks, mut rest) = (Vec::new(), &bytes[end..]);
    while !rest.is_empty() {
        let (records, length, used) = super::read::block_head(rest).map_err(damaged)?;
        let cut = || damaged("the file ends within a block");
        let (body, behind) = rest[used..].split_at_checked(length).ok_or_else(cut)?;
        let (found, behind) = behind.split_at_checked(SYNC_BYTES).ok_or_else(cut)?;
        if found != sync || records > BLOCK_RECORDS_MAX {
            return Err(damaged("a block does not end where it should"));
        }
        blocks.push((records, codec.decompressed(body.to_vec(), bytes_max)?));
        rest = behind;
    }
    Ok(Contents { schema, blocks })
}

/// Begins a file with these entries, the schema (`avro.schema`) among them.
pub fn head<'e>(
    out: &mut Vec<u8>,
    entries: impl ExactSizeIterator<Item = (&'e str, &'e str)>,
    codec: Codec,
    sync: &[u8; SYNC_BYTES],
) {
    let codec = Codec::NAMES.iter().find(|(_, own)| *own == codec);
    let codec = ("avro.codec", codec.map_or("null", |(name, _)| name));
    out.extend_from_slice(MAGIC);
    long(out, entries.len() as i64 + 1);
    for (key, value) in entries.chain([codec]) {
        for part in [key, value] {
            long(out, part.len() as i64);
            out.extend_from_slice(part.as_bytes());
        }
    }
    long(out, 0);
    out.extend_from_slice(sync);
}

struct Header {
    schema: Schema,
    codec: Codec,
    sync: [u8; SYNC_BYTES],
    end: usize,
}

fn head_of(input: &mut (impl Read + Seek), bytes_max: u64) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let read = input.seek(SeekFrom::Start(0));
    let read = read.and_then(|_| input.by_ref().take(bytes_max).read_to_end(&mut head));
    read.map(|_| head).map_err(|e| damaged(&e.to_string()))
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Header> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(damaged("it does not begin as one"));
        };
        let (metadata, rest) = super::read::metadata(rest).map_err(damaged)?;
        let metadata: HashMap<&str, &[u8]> = metadata.into_iter().collect();
        let Some((sync, rest)) = rest.split_first_chunk() else {
            return Err(damaged("the file ends within its header"));
        };
        let schema = metadata.get("avro.schema").and_then(|text| std::str::from_utf8(text).ok());
        let schema = schema.ok_or_else(|| damaged("its header has no schema"))?;
        let codec =
            metadata.get("avro.codec").map_or("null".into(), |name| String::from_utf8_lossy(name));
        let codec = Codec::NAMES.iter().find(|(name, _)| *name == codec).ok_or_else(|| {
            Error::unsupported(format!("the file is compressed with {codec}"))
                .hint("null, deflate, snappy and zstandard can be read")
        })?;
        let end = bytes.len() - rest.len();
        Ok(Header { schema: Schema::parse(schema)?, codec: codec.1, sync: *sync, end })
    }
}

impl Block {
    /// The block that begins at this place.
    fn find(
        input: &mut (impl Read + Seek),
        at: u64,
        length: u64,
        sync: &[u8; SYNC_BYTES],
    ) -> Result<Block> {
        let failed = |e: std::io::Error| damaged(&e.to_string());
        let mut head = Vec::new();
        input.seek(SeekFrom::Start(at)).map_err(failed)?;
        input.by_ref().take(20).read_to_end(&mut head).map_err(failed)?;
        let (records, bytes, used) = super::read::block_head(&head).map_err(damaged)?;
        let start = at + used as u64;
        let is_whole =
            start.checked_add((bytes + SYNC_BYTES) as u64).is_some_and(|end| end <= length);
        if !is_whole || records > BLOCK_RECORDS_MAX {
            return Err(damaged("the file ends within a block"));
        }
        let mut found = [0; SYNC_BYTES];
        input.seek(SeekFrom::Start(start + bytes as u64)).map_err(failed)?;
        input.read_exact(&mut found).map_err(failed)?;
        if found != *sync {
            return Err(damaged("a block does not end where it should"));
        }
        Ok(Block { start, bytes, records })
    }
}

/// The error of a file that cannot be read.
pub fn damaged(reason: &str) -> Error {
    Error::data(format!("not a readable Avro file: {reason}"))
        .hint("check that the file is complete")
}

impl Codec {
    fn decompressed(self, bytes: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>> {
        let limit = bytes_max.saturating_add(1) as u64;
        let mut out = Vec::new();
        let read = match self {
            Codec::Null => return Ok(bytes),
            Codec::Deflate => {
                DeflateDecoder::new(bytes.as_slice()).take(limit).read_to_end(&mut out)
            }
            Codec::Zstandard => zstd::stream::read::Decoder::new(bytes.as_slice())
                .and_then(|decoder| decoder.take(limit).read_to_end(&mut out)),
            Codec::Snappy => {
                let (body, sum) =
                    bytes.split_last_chunk::<4>().ok_or_else(|| damaged("a block is cut"))?;
                let length =
                    snap::raw::decompress_len(body).map_err(|e| damaged(&e.to_string()))?;
                if length <= bytes_max {
                    let decoded = snap::raw::Decoder::new().decompress_vec(body);
                    out = decoded.map_err(|e| damaged(&e.to_string()))?;
                    if crc32fast::hash(&out) != u32::from_be_bytes(*sum) {
                        return Err(damaged("a block's checksum is wrong"));
                    }
                }
                Ok(length)
            }
        };
        let length = read.map_err(|e| damaged(&e.to_string()))?;
        if length > bytes_max {
            return Err(Error::resource("a block is larger than an eighth of the memory limit"));
        }
        Ok(out)
    }

    /// Bytes of a block, compressed.
    ///
    /// # Errors
    /// If the library fails.
    pub fn compressed(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Codec::Null => Ok(bytes.to_vec()),
            Codec::Deflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Level::default());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Codec::Zstandard => zstd::bulk::compress(bytes, 0),
            Codec::Snappy => {
                let mut out = snap::raw::Encoder::new().compress_vec(bytes)?;
                out.extend(crc32fast::hash(bytes).to_be_bytes());
                Ok(out)
            }
        }
    }
}

/// Writes batches to an output.
pub struct AvroWriter<W: Write> {
    out: BufWriter<W>,
    schema: Schema,
    columns: TableSchema,
    codec: Codec,
    sync: [u8; SYNC_BYTES],
    /// The records of the block that is not yet written.
    block: Vec<u8>,
    records: i64,
    written: u64,
}

impl<W: Write> AvroWriter<W> {
    /// Starts an output with these columns.
    pub fn new(options: &AvroOptions, out: W, columns: TableSchema) -> Result<Self> {
        let text = schema::text_of_record(&columns.columns, options.has_legacy_times)?;
        // The same rows make the same file.
        let mut random = SplitMix64::new(u64::from(crc32fast::hash(text.as_bytes())));
        let mut sync = [0; SYNC_BYTES];
        sync.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
        let mut head = Vec::new();
        self::head(&mut head, [("avro.schema", text.as_str())].into_iter(), options.codec, &sync);
        let mut out = BufWriter::new(out);
        out.write_all(&head).map_err(|e| failed(&e))?;
        let (schema, codec) = (Schema::parse(&text)?, options.codec);
        let written = head.len() as u64;
        Ok(AvroWriter { out, schema, columns, codec, sync, block: Vec::new(), records: 0, written })
    }

    /// Adds rows.
    pub fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let batch = RecordBatch::try_new(self.columns.arrow(), columns)?;
        for start in (0..batch.num_rows()).step_by(1_024) {
            let rows = batch.slice(start, (batch.num_rows() - start).min(1_024));
            write(&self.schema, &mut self.block, &rows, &self.columns, |_| {}, |_| {})?;
            self.records += rows.num_rows() as i64;
            if self.block.len() >= BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let body = self.codec.compressed(&self.block).map_err(|e| failed(&e))?;
        let mut head = Vec::new();
        long(&mut head, self.records);
        long(&mut head, body.len() as i64);
        for part in [&head[..], &body, &self.sync] {
            self.out.write_all(part).map_err(|e| failed(&e))?;
            self.written += part.len() as u64;
        }
        self.block.clear();
        self.records = 0;
        Ok(())
    }

    /// About how many bytes the output has.
    pub fn bytes(&self) -> u64 {
        self.written + self.block.len() as u64
    }

    /// Writes what is left and returns the output.
    pub fn finish(mut self) -> Result<W> {
        self.end_block()?;
        self.out.into_inner().map_err(|e| failed(&e.into_error()))
    }
}

fn failed(error: &std::io::Error) -> Error {
    Error::io(format!("cannot write Avro: {error}"))
}
