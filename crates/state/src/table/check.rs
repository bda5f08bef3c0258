//! Whether the lengths that an Arrow IPC file names can be true.
//!
//! The reader makes room for what a file says it holds, and where there is no such room the process
//! is over. So before it reads, each length is compared with the file's: of its end, of its
//! messages, and of each compressed buffer when it is unpacked. What else does not fit together the
//! reader finds by itself.

use arrow_ipc::{Block, CompressionType, MessageHeader, RecordBatch};

/// What ends a file: the length of the part before it (4 bytes), and these.
const MAGIC: &[u8] = b"ARROW1";
/// What stands in front of a message before its length.
const CONTINUES: [u8; 4] = [0xff; 4];
/// A byte of an LZ4 frame stands for at most this many bytes.
const UNPACKED_MAX: u64 = 256;

/// Compares all lengths.
///
/// # Errors
/// If one cannot be true: which.
pub(crate) fn lengths(file: &[u8]) -> Result<(), String> {
    let end = file.strip_suffix(MAGIC).and_then(|rest| rest.split_last_chunk::<4>());
    let (rest, length) = end.ok_or("it does not end as Arrow files do")?;
    let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| "no end is so long")?;
    let from = rest.len().checked_sub(length).ok_or("its end is longer than the file")?;
    let footer = arrow_ipc::root_as_footer(&rest[from..]).map_err(|error| error.to_string())?;
    let blocks = footer.recordBatches().into_iter().chain(footer.dictionaries());
    blocks.flatten().try_for_each(|block| of_block(file, block))
}

fn of_block(file: &[u8], block: &Block) -> Result<(), String> {
    let number =
        |length: i64| usize::try_from(length).map_err(|_| format!("{length} is no length"));
    let from = number(block.offset())?;
    let middle = from.checked_add(number(block.metaDataLength().into())?);
    let to = middle.and_then(|middle| middle.checked_add(number(block.bodyLength()).ok()?));
    let (middle, to) = middle.zip(to).ok_or("a message is longer than can be")?;
    let message = file.get(from..middle).ok_or("a message is longer than the file")?;
    let body = file.get(middle..to).ok_or("the rows of a message are longer than the file")?;
    let message = message.strip_prefix(&CONTINUES).unwrap_or(message);
    let message = message.get(4..).ok_or("a message without its length")?;
    let message = arrow_ipc::root_as_message(message).map_err(|error| error.to_string())?;
    let rows = match message.header_type() {
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|batch| batch.data())
        }
        _ => message.header_as_record_batch(),
    };
    rows.map_or(Ok(()), |rows| of_rows(body, &rows))
}

fn of_rows(body: &[u8], rows: &RecordBatch<'_>) -> Result<(), String> {
    let Some(compression) = rows.compression() else { return Ok(()) };
    if compression.codec() != CompressionType::LZ4_FRAME {
        return Err("its buffers are compressed in a way that is not ours".to_owned());
    }
    for buffer in rows.buffers().into_iter().flatten() {
        let part = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let part = part.and_then(|(from, length)| body.get(from..from.checked_add(length)?));
        let part = part.ok_or("a buffer is longer than its message")?;
        let Some(unpacked) = part.first_chunk::<8>() else { continue };
        // Negative: it is not compressed.
        let unpacked = u64::try_from(i64::from_le_bytes(*unpacked)).unwrap_or(0);
        if unpacked > part.len() as u64 * UNPACKED_MAX {
            return Err(format!("{} bytes cannot stand for {unpacked}", part.len()));
        }
    }
    Ok(())
}
