//! Archives in ZIP form, without compression: a few files of text for a bug report.

/// "Version needed to extract": 1.0.
const VERSION: u16 = 10;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
/// 1980-01-01, for want of another date: an archive depends on what is in it alone.
const DATE: u16 = 1 << 5 | 1;

/// An archive of these files, each with its name.
pub fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let begin = bytes.len() as u32;
        let fields = fields(name, content);
        put32(&mut bytes, 0x0403_4b50);
        bytes.extend_from_slice(&fields);
        put16(&mut bytes, 0);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(content);
        put32(&mut directory, 0x0201_4b50);
        put16(&mut directory, VERSION);
        directory.extend_from_slice(&fields);
        // Extra field, comment, disk, attributes.
        [0u16; 4].iter().for_each(|&field| put16(&mut directory, field));
        put32(&mut directory, 0);
        put32(&mut directory, begin);
        directory.extend_from_slice(name.as_bytes());
    }
    let begin = bytes.len() as u32;
    bytes.extend_from_slice(&directory);
    put32(&mut bytes, 0x0605_4b50);
    let count = files.len() as u16;
    [0, 0, count, count].iter().for_each(|&field| put16(&mut bytes, field));
    put32(&mut bytes, directory.len() as u32);
    put32(&mut bytes, begin);
    put16(&mut bytes, 0);
    bytes
}

/// What the head of a file and its entry in the directory have alike.
fn fields(name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let stored = 0;
    [VERSION, UTF8, stored, 0, DATE].iter().for_each(|&field| put16(&mut bytes, field));
    put32(&mut bytes, crc32fast::hash(content));
    put32(&mut bytes, content.len() as u32);
    put32(&mut bytes, content.len() as u32);
    put16(&mut bytes, name.len() as u16);
    bytes
}

fn put16(bytes: &mut Vec<u8>, number: u16) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_heads_contents_and_a_directory() {
        let files = [("a.txt".to_owned(), b"hello".to_vec()), ("b".to_owned(), Vec::new())];
        let bytes = archive(&files);
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        assert_eq!(number(0), 0x0403_4b50);
        // CRC-32 of "hello".
        assert_eq!(number(14), 0x3610_a686);
        assert_eq!((number(18), number(22)), (5, 5));
        assert_eq!(&bytes[30..40], b"a.txthello");
        let end = bytes.len() - 22;
        assert_eq!(number(end), 0x0605_4b50);
        let directory = number(end + 16) as usize;
        assert_eq!(number(directory), 0x0201_4b50);
        assert_eq!(number(directory + 42), 0, "where the first file begins");
        assert_eq!(directory + number(end + 12) as usize, end);
    }
}
