//! Files of Avro as Iceberg uses them for its lists: small, read as a whole, with entries in the
//! header and identifiers of fields in the schema.

use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result};

use crate::format::avro::Codec;
use crate::format::avro::file::{self, Contents};
use crate::format::avro::schema::Schema;
use crate::format::avro::write::long;

/// The most bytes of a list, decompressed.
const BYTES_MAX: usize = 1 << 30;

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Null,
    Boolean(bool),
    /// Of all kinds of whole numbers.
    Long(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Datum>),
    Record(Vec<(String, Datum)>),
}

impl Datum {
    /// A field of a record; NULL where there is none.
    pub fn field(&self, name: &str) -> &Datum {
        match self {
            Datum::Record(fields) => {
                fields.iter().find(|(own, _)| own == name).map_or(&Datum::Null, |(_, value)| value)
            }
            _ => &Datum::Null,
        }
    }

    /// The values of a record, without their names.
    pub fn values(&self) -> Vec<&Datum> {
        match self {
            Datum::Record(fields) => fields.iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        }
    }

    /// A whole number.
    pub fn long(&self) -> Option<i64> {
        match self {
            Datum::Long(value) => Some(*value),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Datum::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads all records of a file.
///
/// # Errors
/// If it is damaged.
pub fn read(bytes: &[u8]) -> Result<Vec<Datum>> {
    let Contents { schema, blocks } = file::contents(bytes, BYTES_MAX)?;
    let mut found = Vec::new();
    for (records, block) in blocks {
        let mut rest = block.as_slice();
        for _ in 0..records {
            found.push(decoded(&schema, &mut rest).map_err(file::damaged)?);
        }
    }
    Ok(found)
}

type Decoded<T> = std::result::Result<T, &'static str>;

fn decoded(schema: &Schema, bytes: &mut &[u8]) -> Decoded<Datum> {
    Ok(match schema {
        Schema::Null => Datum::Null,
        Schema::Boolean => Datum::Boolean(taken(bytes, 1)?[0] != 0),
        Schema::Int(_) | Schema::Long(_) | Schema::Enum(_) => Datum::Long(number(bytes)?),
        Schema::Float => {
            let bits = taken(bytes, 4)?.try_into().expect("four bytes");
            Datum::Double(f64::from(f32::from_le_bytes(bits)))
        }
        Schema::Double => {
            Datum::Double(f64::from_le_bytes(taken(bytes, 8)?.try_into().expect("eight bytes")))
        }
        Schema::Bytes(_) => Datum::Bytes(sized(bytes)?.to_vec()),
        Schema::Fixed(length, _) => Datum::Bytes(taken(bytes, *length)?.to_vec()),
        Schema::String => Datum::Text(text(sized(bytes)?)?),
        Schema::Array(items) => Datum::List(elements(bytes, |bytes| decoded(items, bytes))?),
        Schema::Map(values) => Datum::Record(elements(bytes, |bytes| {
            let key = text(sized(bytes)?)?;
            Ok((key, decoded(values, bytes)?))
        })?),
        Schema::Union(branches) => {
            let branch = usize::try_from(number(bytes)?).ok().and_then(|at| branches.get(at));
            decoded(branch.ok_or("a union has no such branch")?, bytes)?
        }
        Schema::Record(fields) => {
            let field = |field: &crate::format::avro::schema::RecordField| {
                Ok((field.name.clone(), decoded(&field.schema, bytes)?))
            };
            Datum::Record(fields.iter().map(field).collect::<Decoded<_>>()?)
        }
    })
}

fn elements<T>(
    bytes: &mut &[u8],
    mut element: impl FnMut(&mut &[u8]) -> Decoded<T>,
) -> Decoded<Vec<T>> {
    let mut found = Vec::new();
    loop {
        let mut count = number(bytes)?;
        if count == 0 {
            return Ok(found);
        }
        if count < 0 {
            // The size in bytes follows.
            number(bytes)?;
            count = count.checked_neg().ok_or("a count is too large")?;
        }
        for _ in 0..count {
            // An element has at least one byte, but for records without fields.
            if bytes.is_empty() {
                return Err("the file ends within a list");
            }
            found.push(element(bytes)?);
        }
    }
}

fn taken<'b>(bytes: &mut &'b [u8], length: usize) -> Decoded<&'b [u8]> {
    let (value, rest) = bytes.split_at_checked(length).ok_or("the file ends within a value")?;
    *bytes = rest;
    Ok(value)
}

fn sized<'b>(bytes: &mut &'b [u8]) -> Decoded<&'b [u8]> {
    let length = usize::try_from(number(bytes)?).map_err(|_| "a length is negative")?;
    taken(bytes, length)
}

fn text(bytes: &[u8]) -> Decoded<String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "a text is not UTF-8")
}

fn number(bytes: &mut &[u8]) -> Decoded<i64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = taken(bytes, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err("a number has too many bytes")
}

/// Writes records one value after the other, in the order of the schema.
#[derive(Default)]
pub struct Records {
    body: Vec<u8>,
    count: usize,
}

impl Records {
    /// Ends a record.
    pub fn end(&mut self) {
        self.count += 1;
    }

    /// A whole number.
    pub fn long(&mut self, value: i64) {
        long(&mut self.body, value);
    }

    /// A truth value.
    pub fn boolean(&mut self, value: bool) {
        self.body.push(u8::from(value));
    }

    /// Bytes, or the bytes of a text.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.long(bytes.len() as i64);
        self.body.extend_from_slice(bytes);
    }

    /// A value that may be NULL, which is the first branch of its union.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.long(i64::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// A list.
    pub fn list<T>(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        if values.len() > 0 {
            self.long(values.len() as i64);
            values.for_each(|value| write(self, value));
        }
        self.long(0);
    }

    /// A file of the records, with these entries in its header.
    ///
    /// # Errors
    /// If they cannot be compressed.
    pub fn into_file(self, entries: &[(&str, &str)]) -> Result<Vec<u8>> {
        let mut sync = [0; 16];
        let mut random = SplitMix64::new(u64::from(crc32fast::hash(&self.body)));
        sync.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
        let mut out = Vec::new();
        file::head(&mut out, entries.iter().copied(), Codec::Deflate, &sync);
        if self.count > 0 {
            let failed = |e: std::io::Error| Error::io(format!("cannot write Avro: {e}"));
            let body = Codec::Deflate.compressed(&self.body).map_err(failed)?;
            long(&mut out, self.count as i64);
            long(&mut out, body.len() as i64);
            out.extend_from_slice(&body);
            out.extend_from_slice(&sync);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_return() {
        let schema = r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"},
            {"name":"b","type":["null","string"]},{"name":"c","type":{"type":"array","items":"boolean"}}]}"#;
        let mut records = Records::default();
        for value in [i64::MIN, -1, 0, 300] {
            records.long(value);
            records.optional((value > 0).then_some("x"), |out, text| out.bytes(text.as_bytes()));
            records.list([true, false].into_iter(), Records::boolean);
            records.end();
        }
        let bytes = records.into_file(&[("avro.schema", schema), ("other", "y")]).expect("written");
        let found = read(&bytes).expect("read");
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].field("a").long(), Some(i64::MIN));
        assert_eq!(*found[0].field("b"), Datum::Null);
        assert_eq!(found[3].field("b").text(), Some("x"));
        let list = Datum::List(vec![Datum::Boolean(true), Datum::Boolean(false)]);
        assert_eq!(*found[3].field("c"), list);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).map_or(true, |found| found.len() < 4), "{end}");
        }
    }
}
