//! The encoding of Protocol Buffers: a record is a sequence of fields, each with its number, the
//! way in which its value is written, and the value.
//!
//! Source: Protocol Buffers Documentation, "Encoding".

/// Groups within groups that are passed over; deeper ones are refused.
const GROUPS_MAX: usize = 100;
const CUT: &str = "the record ends within a field";

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A number of variable length.
    Varint = 0,
    /// Eight bytes.
    Eight = 1,
    /// Bytes with their length.
    Sized = 2,
    /// Fields up to the end of the group: an old way to write messages.
    Group = 3,
    /// The end of a group.
    GroupEnd = 4,
    /// Four bytes.
    Four = 5,
}

/// A value as it was found.
#[derive(Clone, Copy, Debug)]
pub enum Raw<'b> {
    /// A number, or its four or eight bytes.
    Number(u64),
    /// Bytes.
    Bytes(&'b [u8]),
}

/// The bytes of a record that are left.
pub struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    /// A number of variable length.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, &'static str> {
        match self.0.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(byte))
            }
            _ => self.varint_of_many(),
        }
    }

    fn varint_of_many(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err(if self.0.len() < 10 { CUT } else { "a number has too many bytes" })
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Bytes with their length before them.
    #[inline]
    pub fn sized(&mut self) -> Result<&'b [u8], &'static str> {
        let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
        self.take(length)
    }

    /// The number of the field that comes next, and how its value is written.
    #[inline]
    pub fn key(&mut self) -> Result<(u32, Wire), &'static str> {
        let key = u32::try_from(self.varint()?).map_err(|_| "a field has no such number")?;
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Eight,
            2 => Wire::Sized,
            3 => Wire::Group,
            4 => Wire::GroupEnd,
            5 => Wire::Four,
            _ => return Err("a value is written in an unknown way"),
        };
        match key >> 3 {
            0 => Err("a field has no such number"),
            number => Ok((number, wire)),
        }
    }

    /// A value that is written in this way, which is not a group.
    #[inline]
    pub fn value(&mut self, wire: Wire) -> Result<Raw<'b>, &'static str> {
        Ok(match wire {
            Wire::Varint => Raw::Number(self.varint()?),
            Wire::Sized => Raw::Bytes(self.sized()?),
            Wire::Four => {
                let bytes = self.take(4)?.first_chunk().ok_or(CUT)?;
                Raw::Number(u64::from(u32::from_le_bytes(*bytes)))
            }
            Wire::Eight => {
                let bytes = self.take(8)?.first_chunk().ok_or(CUT)?;
                Raw::Number(u64::from_le_bytes(*bytes))
            }
            Wire::Group | Wire::GroupEnd => return Err("a group ends that has not begun"),
        })
    }

    /// Passes over the value of the field with this number.
    pub fn skip(&mut self, number: u32, wire: Wire) -> Result<(), &'static str> {
        self.skip_within(number, wire, GROUPS_MAX)
    }

    fn skip_within(&mut self, number: u32, wire: Wire, depth: usize) -> Result<(), &'static str> {
        if wire != Wire::Group {
            return self.value(wire).map(|_| ());
        }
        if depth == 0 {
            return Err("groups are nested too deep");
        }
        loop {
            match self.key()? {
                (ended, Wire::GroupEnd) if ended == number => return Ok(()),
                (_, Wire::GroupEnd) => return Err("a group ends that has not begun"),
                (inner, wire) => self.skip_within(inner, wire, depth - 1)?,
            }
        }
    }
}

/// Appends a number of variable length.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7F {
        out.push((value as u8 & 0x7F) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends what stands in front of a value.
#[inline]
pub fn key(out: &mut Vec<u8>, number: u32, wire: Wire) {
    varint(out, u64::from(number) << 3 | wire as u64);
}

/// Appends bytes with their length.
pub fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends what `body` appends, with its length before it.
pub fn nested<E>(
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    // Mostly the length is one byte.
    out.push(0);
    body(out)?;
    let length = out.len() - start - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out[start] = short,
        _ => {
            let mut head = Vec::new();
            varint(&mut head, length as u64);
            out.splice(start..=start, head);
        }
    }
    Ok(())
}

/// A signed number so that small ones are short.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The number that [`zigzag`] has made.
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
