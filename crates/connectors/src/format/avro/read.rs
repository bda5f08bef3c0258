//! From the bytes of records into columns.
//!
//! Source: Apache Avro 1.12 specification, "Binary Encoding".

use super::plan::{Plan, Read, Step};
use super::schema::Schema;
use crate::format::builder::{ColumnBuilder, Field, Values};

/// A record that is bad, and why.
pub type Bad = String;

const CUT: &str = "the record ends before its last field";
/// Elements without bytes (of type null) cost nothing to claim.
const EMPTY_ELEMENTS_MAX: usize = 1 << 20;

/// The bytes of a record that are left.
struct Bytes<'b> {
    rest: &'b [u8],
    empty_elements: usize,
}

impl Plan {
    /// Reads a record into its columns.
    ///
    /// # Errors
    /// If its bytes are not those of such a record; columns may have part of it.
    pub fn read(&self, bytes: &[u8], fields: &mut [Field]) -> Result<(), Bad> {
        self.read_next(bytes, fields).map(|_| ())
    }

    /// Reads the first of several records. Returns the bytes behind it.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn read_next<'b>(&self, bytes: &'b [u8], fields: &mut [Field]) -> Result<&'b [u8], Bad> {
        let mut bytes = Bytes { rest: bytes, empty_elements: 0 };
        self.fields(&mut bytes, fields)?;
        Ok(bytes.rest)
    }

    fn fields(&self, bytes: &mut Bytes<'_>, fields: &mut [Field]) -> Result<(), Bad> {
        for step in &self.fields {
            match step {
                Step::Read(place, read) => {
                    let field = &mut fields[*place];
                    // Mostly a value that may be NULL and is not.
                    let read = match read {
                        Read::Optional(is_null_first, value)
                            if bytes.passed(if *is_null_first { 2 } else { 0 }) =>
                        {
                            value
                        }
                        read => read,
                    };
                    read.value(bytes, &mut field.column).map_err(|e| e.of(&field.name))?;
                }
                Step::Skip(schema) => skip(schema, bytes).map_err(|reason| reason.to_owned())?,
            }
        }
        for &place in &self.absent {
            fields[place].column.append_null();
        }
        Ok(())
    }
}

/// The entries of a file's header, and the bytes behind them.
#[allow(clippy::type_complexity)]
pub fn metadata(bytes: &[u8]) -> Result<(Vec<(&str, &[u8])>, &[u8]), &'static str> {
    let mut bytes = Bytes { rest: bytes, empty_elements: 0 };
    let mut entries = Vec::new();
    bytes.blocks(|bytes| {
        let key = std::str::from_utf8(bytes.sized()?).map_err(|_| "a key is not UTF-8")?;
        entries.push((key, bytes.sized()?));
        Ok::<(), &'static str>(())
    })?;
    Ok((entries, bytes.rest))
}

/// How many records a block has and how many bytes; and how many bytes say so.
pub fn block_head(head: &[u8]) -> Result<(usize, usize, usize), &'static str> {
    let mut bytes = Bytes { rest: head, empty_elements: 0 };
    let (records, length) = (bytes.long()?, bytes.long()?);
    let used = head.len() - bytes.rest.len();
    let size = |number: i64| usize::try_from(number).map_err(|_| "a length is negative");
    Ok((size(records)?, size(length)?, used))
}

/// Why a value cannot be read.
enum Fault {
    Cut(&'static str),
    Value(String),
}

impl Fault {
    #[cold]
    fn of(self, column: &str) -> Bad {
        match self {
            Fault::Cut(reason) => reason.to_owned(),
            Fault::Value(reason) => format!("column {column}: {reason}"),
        }
    }
}

impl From<&'static str> for Fault {
    fn from(reason: &'static str) -> Self {
        Fault::Cut(reason)
    }
}

impl Read {
    fn value(&self, bytes: &mut Bytes<'_>, out: &mut ColumnBuilder) -> Result<(), Fault> {
        match (self, &mut out.values) {
            (Read::Optional(is_null_first, read), _) => {
                let branch = bytes.long()?;
                return match branch {
                    0 | 1 if (branch == 0) == *is_null_first => null(out),
                    0 | 1 => read.value(bytes, out),
                    _ => Err(Fault::Cut("a union has no such branch")),
                };
            }
            (Read::Union(branches), _) => {
                let branch = usize::try_from(bytes.long()?).ok();
                let read = branch.and_then(|branch| branches.get(branch));
                return read.ok_or("a union has no such branch")?.value(bytes, out);
            }
            (Read::Null, _) => return null(out),
            (Read::Bytes | Read::Fixed(_) | Read::Enum(_), Values::Text(_) | Values::Bytes(_)) => {
                return self.text(bytes, &mut out.values);
            }
            (Read::Array(read), Values::Array(ends, element)) => {
                bytes.blocks(|bytes| read.value(bytes, element))?;
                ends.push(element.len());
            }
            (Read::Map(read), Values::Map(ends, key, value)) => {
                bytes.blocks(|bytes| {
                    Read::Bytes.value(bytes, key)?;
                    read.value(bytes, value)
                })?;
                ends.push(key.len());
            }
            (Read::Row(plan), Values::Row(fields)) => {
                plan.fields(bytes, fields).map_err(Fault::Value)?;
            }
            (Read::Unfit(reason), _) => return Err(Fault::Value(reason.clone())),
            (_, values) => self.scalar(bytes, values)?,
        }
        out.appended();
        Ok(())
    }

    /// A text, or bytes. Their builder knows itself how many it has.
    fn text(&self, bytes: &mut Bytes<'_>, values: &mut Values) -> Result<(), Fault> {
        match (self, values) {
            (Read::Bytes, Values::Text(values)) => {
                let text = std::str::from_utf8(bytes.sized()?);
                values.append_value(text.map_err(|_| "a text is not valid UTF-8")?);
            }
            (Read::Bytes, Values::Bytes(values)) => {
                values.append_value(bytes.sized()?);
            }
            (Read::Fixed(size), Values::Bytes(values)) => {
                values.append_value(bytes.take(*size)?);
            }
            (Read::Enum(words), Values::Text(values)) => {
                let word = usize::try_from(bytes.long()?).ok();
                let word = word.and_then(|word| words.get(word));
                values.append_value(word.ok_or("an enum has no such symbol")?);
            }
            _ => return Err(Fault::Cut("the plan does not fit the column")),
        }
        Ok(())
    }

    fn scalar(&self, bytes: &mut Bytes<'_>, values: &mut Values) -> Result<(), Fault> {
        match (self, values) {
            (Read::Integer, values) => bytes.integer(values)?,
            (Read::Boolean, Values::Boolean(values)) => values.append(bytes.boolean()?),
            (Read::Float, Values::Float(values)) => values.push(bytes.float()?),
            (Read::Float, Values::Double(values)) => values.push(f64::from(bytes.float()?)),
            (Read::Double, Values::Double(values)) => values.push(bytes.double()?),
            (Read::Scaled(by, through), Values::Timestamp(_, _, values)) => {
                let time = bytes.long()?.checked_mul(*by).ok_or("a time is out of range")?;
                values.push(time.div_euclid(*through));
            }
            (Read::Scaled(_, through), Values::Time(_, values)) => {
                let time = i32::try_from(bytes.long()? / through);
                values.push(time.map_err(|_| "a time is out of range")?);
            }
            (Read::Decimal(size, written), Values::Decimal(precision, scale, values)) => {
                let unscaled = match size {
                    Some(size) => bytes.take(*size)?,
                    None => bytes.sized()?,
                };
                let value = big_endian(unscaled)
                    .and_then(|value| rescale(value, *written, *scale, *precision));
                match value {
                    Some(value) => values.push(value),
                    None => return Err(Fault::Value("the number has too many digits".to_owned())),
                }
            }
            _ => return Err(Fault::Cut("the plan does not fit the column")),
        }
        Ok(())
    }
}

fn null(out: &mut ColumnBuilder) -> Result<(), Fault> {
    if !out.is_nullable() {
        return Err(Fault::Value("a NULL within a value whose type does not allow it".to_owned()));
    }
    out.append_null();
    Ok(())
}

/// Bytes of a number in two's complement, the highest first.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = bytes.first().map_or(0, |first| (*first as i8) >> 7);
    let extra = bytes.len().saturating_sub(16);
    if bytes[..extra].iter().any(|byte| *byte != sign as u8) {
        return None;
    }
    let low = &bytes[extra..];
    let value = low.iter().fold(i128::from(sign), |value, byte| (value << 8) | i128::from(*byte));
    (extra == 0 || (value < 0) == (sign < 0)).then_some(value)
}

/// The number with another scale, rounded half up, if it fits.
fn rescale(value: i128, from: u8, to: u8, precision: u8) -> Option<i128> {
    let value = if to >= from {
        value.checked_mul(10i128.checked_pow(u32::from(to - from))?)?
    } else {
        let unit = 10i128.checked_pow(u32::from(from - to))?;
        let (whole, rest) = (value / unit, value % unit);
        whole + if rest.unsigned_abs() * 2 >= unit.unsigned_abs() { rest.signum() } else { 0 }
    };
    let limit = 10i128.checked_pow(u32::from(precision))?;
    (value.unsigned_abs() < limit.unsigned_abs()).then_some(value)
}

impl<'b> Bytes<'b> {
    #[inline]
    fn take(&mut self, count: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Passes over this byte, if it comes next.
    #[inline]
    fn passed(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        self.rest = &self.rest[usize::from(is_next)..];
        is_next
    }

    /// A number of variable length, in zigzag form.
    #[inline]
    fn long(&mut self) -> Result<i64, &'static str> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
            }
            _ => self.long_of_many(),
        }
    }

    fn long_of_many(&mut self) -> Result<i64, &'static str> {
        let mut value = 0u64;
        for (place, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * place).min(63);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[place + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(if self.rest.len() < 10 { CUT } else { "a number has too many bytes" })
    }

    /// Bytes with their length before them.
    #[inline]
    fn sized(&mut self) -> Result<&'b [u8], &'static str> {
        let length = self.long()?;
        self.take(usize::try_from(length).map_err(|_| "a length is negative")?)
    }

    fn boolean(&mut self) -> Result<bool, &'static str> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a boolean is neither 0 nor 1"),
        }
    }

    fn float(&mut self) -> Result<f32, &'static str> {
        let bytes = self.take(4)?.first_chunk().ok_or(CUT)?;
        Ok(f32::from_le_bytes(*bytes))
    }

    fn double(&mut self) -> Result<f64, &'static str> {
        let bytes = self.take(8)?.first_chunk().ok_or(CUT)?;
        Ok(f64::from_le_bytes(*bytes))
    }

    #[inline]
    fn integer(&mut self, values: &mut Values) -> Result<(), Fault> {
        let number = self.long()?;
        let range = |_| Fault::Value(format!("{number} is out of range"));
        match values {
            Values::BigInt(values) | Values::Timestamp(_, _, values) => values.push(number),
            Values::Int(values) | Values::Date(values) | Values::Time(_, values) => {
                values.push(i32::try_from(number).map_err(range)?);
            }
            Values::SmallInt(values) => values.push(i16::try_from(number).map_err(range)?),
            Values::TinyInt(values) => values.push(i8::try_from(number).map_err(range)?),
            Values::Float(values) => values.push(number as f32),
            Values::Double(values) => values.push(number as f64),
            _ => return Err(Fault::Cut("the plan does not fit the column")),
        }
        Ok(())
    }

    /// The elements of an array or map, which come in blocks.
    fn blocks<E: From<&'static str>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The block's length in bytes, for those who pass over it.
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                let before = self.rest.len();
                element(self)?;
                if self.rest.len() == before {
                    self.empty_elements += 1;
                    if self.empty_elements > EMPTY_ELEMENTS_MAX {
                        return Err("an array has too many elements".into());
                    }
                }
            }
        }
    }
}

/// Passes over a value.
fn skip(schema: &Schema, bytes: &mut Bytes<'_>) -> Result<(), &'static str> {
    match schema {
        Schema::Null => Ok(()),
        Schema::Boolean => bytes.take(1).map(|_| ()),
        Schema::Int(_) | Schema::Long(_) | Schema::Enum(_) => bytes.long().map(|_| ()),
        Schema::Float => bytes.take(4).map(|_| ()),
        Schema::Double => bytes.take(8).map(|_| ()),
        Schema::Bytes(_) | Schema::String => bytes.sized().map(|_| ()),
        Schema::Fixed(size, _) => bytes.take(*size).map(|_| ()),
        Schema::Array(items) => bytes.blocks(|bytes| skip(items, bytes)),
        Schema::Map(values) => bytes.blocks(|bytes| {
            bytes.sized()?;
            skip(values, bytes)
        }),
        Schema::Union(branches) => {
            let branch = usize::try_from(bytes.long()?).ok();
            let branch = branch.and_then(|branch| branches.get(branch));
            skip(branch.ok_or("a union has no such branch")?, bytes)
        }
        Schema::Record(fields) => fields.iter().try_for_each(|field| skip(&field.schema, bytes)),
    }
}
