//! A cursor over JSON text: strings, numbers, and values that are passed over.
//!
//! It takes what RFC 8259 describes, and control characters within strings, as Flink does. What it
//! takes it has checked: a value that is passed over is as well formed as one that is read. The
//! text is UTF-8, so bytes of ASCII are found without decoding characters.

use std::borrow::Cow;

/// The text is not JSON. Where and why is asked of a parser that knows, by [`super::explain`].
#[derive(Clone, Copy, Debug)]
pub struct Broken;

/// Nested deeper than this is refused, as the stack is not endless.
const DEPTH_MAX: usize = 128;

/// A value without parts, as text.
pub enum Scalar<'t> {
    /// The contents of a string.
    String(Cow<'t, str>),
    /// A number as it is written.
    Number(&'t str),
    /// `true` or `false`.
    Boolean(bool),
    /// An array or object, passed over.
    Parts,
}

impl Scalar<'_> {
    /// The text of a string, number or boolean.
    pub fn text(&self) -> Option<&str> {
        match self {
            Scalar::String(text) => Some(text),
            Scalar::Number(text) => Some(text),
            Scalar::Boolean(true) => Some("true"),
            Scalar::Boolean(false) => Some("false"),
            Scalar::Parts => None,
        }
    }
}

/// A place in a text.
#[derive(Clone, Copy)]
pub struct Cursor<'t> {
    text: &'t str,
    /// The byte that comes next.
    pub at: usize,
}

impl<'t> Cursor<'t> {
    /// At the beginning of a text.
    pub fn new(text: &'t str) -> Self {
        Cursor { text, at: 0 }
    }

    /// The text from one place to another, both of which are boundaries of characters.
    pub fn slice(&self, from: usize, to: usize) -> &'t str {
        &self.text[from..to]
    }

    /// The next byte; 0 at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Passes over blanks.
    #[inline]
    pub fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    /// True behind the last byte.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Passes over this byte, which must come next.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Result<(), Broken> {
        if self.peek() != byte {
            return Err(Broken);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes over this word, which must come next.
    pub fn word(&mut self, word: &str) -> Result<(), Broken> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(Broken);
        }
        self.at += word.len();
        Ok(())
    }

    /// Passes over `null`, if it comes next.
    #[inline]
    pub fn null(&mut self) -> Result<bool, Broken> {
        if self.peek() != b'n' {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    /// Behind a part of an array or object: true if another one follows, false behind its end.
    #[inline]
    pub fn next_part(&mut self, close: u8) -> Result<bool, Broken> {
        self.blanks();
        let byte = self.peek();
        if byte != b',' && byte != close {
            return Err(Broken);
        }
        self.at += 1;
        self.blanks();
        Ok(byte == b',')
    }

    /// Behind `[` or `{`: true if there is a first part, false behind the end of an empty one.
    #[inline]
    pub fn first_part(&mut self, close: u8) -> bool {
        self.at += 1;
        self.blanks();
        if self.peek() == close {
            self.at += 1;
            return false;
        }
        true
    }

    /// Passes over a key that is written like this, and its colon, if it comes next.
    #[inline]
    pub fn key_is(&mut self, name: &str) -> bool {
        let bytes = &self.text.as_bytes()[self.at.min(self.text.len())..];
        let length = name.len();
        let is_it = bytes.len() > length + 2
            && bytes[0] == b'"'
            && bytes[length + 1] == b'"'
            && bytes[1..=length] == *name.as_bytes();
        if !is_it {
            return false;
        }
        let mut after = Cursor { text: self.text, at: self.at + length + 2 };
        if after.colon().is_err() {
            return false;
        }
        self.at = after.at;
        true
    }

    /// A key and its colon.
    pub fn key(&mut self) -> Result<Cow<'t, str>, Broken> {
        if self.peek() != b'"' {
            return Err(Broken);
        }
        let key = self.string()?;
        self.colon()?;
        Ok(key)
    }

    #[inline]
    fn colon(&mut self) -> Result<(), Broken> {
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Ok(())
    }

    /// The contents of a string that begins here.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'t, str>, Broken> {
        let start = self.at + 1;
        self.at = self.quote_or_escape(start)?;
        if self.peek() == b'"' {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        let mut text = self.text[start..self.at].to_owned();
        loop {
            if self.peek() == b'"' {
                self.at += 1;
                return Ok(Cow::Owned(text));
            }
            text.push(self.escape()?);
            let from = self.at;
            self.at = self.quote_or_escape(from)?;
            text.push_str(&self.text[from..self.at]);
        }
    }

    /// Where the next quote or backslash is, from this byte on.
    #[inline]
    fn quote_or_escape(&self, from: usize) -> Result<usize, Broken> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        // The lowest byte that is zero is found exactly; those above it may be wrong.
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        let bytes = self.text.as_bytes();
        let mut at = from;
        while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*chunk);
            let found =
                zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
            if found != 0 {
                return Ok(at + (found.trailing_zeros() / 8) as usize);
            }
            at += 8;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let found = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        found.map(|place| at + place).ok_or(Broken)
    }

    /// The character that an escape stands for.
    fn escape(&mut self) -> Result<char, Broken> {
        self.expect(b'\\')?;
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unit_escape(),
            _ => return Err(Broken),
        })
    }

    /// `uXXXX`, or two of them that make one character. Half of one is `?`, as Java writes it.
    fn unit_escape(&mut self) -> Result<char, Broken> {
        let unit = self.hex()?;
        if !(0xD800..0xE000).contains(&unit) {
            return Ok(char::from_u32(unit).unwrap_or('?'));
        }
        let mut after = *self;
        let second = after.expect(b'\\').and_then(|()| after.expect(b'u'));
        let second = second.and_then(|()| after.hex());
        match second {
            Ok(low) if unit < 0xDC00 && (0xDC00..0xE000).contains(&low) => {
                self.at = after.at;
                let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                Ok(char::from_u32(code).unwrap_or('?'))
            }
            _ => Ok('?'),
        }
    }

    fn hex(&mut self) -> Result<u32, Broken> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(Broken)?;
        let mut unit = 0;
        for &digit in digits {
            unit = unit * 16 + char::from(digit).to_digit(16).ok_or(Broken)?;
        }
        self.at += 4;
        Ok(unit)
    }

    /// A whole number of few digits, if that is what comes next.
    #[inline]
    pub fn short_integer(&mut self) -> Option<i64> {
        const DIGITS_MAX: usize = 18;
        let bytes = &self.text.as_bytes()[self.at..];
        let negative = bytes.first() == Some(&b'-');
        let digits = &bytes[usize::from(negative)..];
        let mut value = 0i64;
        let mut count = 0;
        for &byte in digits.iter().take(DIGITS_MAX + 1) {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
            count += 1;
        }
        let is_whole = !matches!(digits.get(count), Some(b'.' | b'e' | b'E'));
        let is_number = count > 0 && (digits[0] != b'0' || count == 1);
        if count > DIGITS_MAX || !is_whole || !is_number {
            return None;
        }
        self.at += count + usize::from(negative);
        Some(if negative { -value } else { value })
    }

    /// A number as it is written.
    pub fn number(&mut self) -> Result<&'t str, Broken> {
        let start = self.at;
        self.at += usize::from(self.peek() == b'-');
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return Err(Broken),
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), Broken> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(Broken) }
    }

    /// A value that is not `null`.
    #[inline]
    pub fn scalar(&mut self) -> Result<Scalar<'t>, Broken> {
        match self.peek() {
            b'"' => self.string().map(Scalar::String),
            b't' => self.word("true").map(|()| Scalar::Boolean(true)),
            b'f' => self.word("false").map(|()| Scalar::Boolean(false)),
            b'{' | b'[' => self.skip().map(|()| Scalar::Parts),
            _ => self.number().map(Scalar::Number),
        }
    }

    /// Passes over a value.
    pub fn skip(&mut self) -> Result<(), Broken> {
        self.skip_within(DEPTH_MAX)
    }

    /// Passes over a value that may have parts of this depth.
    fn skip_within(&mut self, depth: usize) -> Result<(), Broken> {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' if depth > 0 => {
                let mut has_next = self.first_part(b'}');
                while has_next {
                    if self.peek() != b'"' {
                        return Err(Broken);
                    }
                    self.skip_string()?;
                    self.colon()?;
                    self.skip_within(depth - 1)?;
                    has_next = self.next_part(b'}')?;
                }
                Ok(())
            }
            b'[' if depth > 0 => {
                let mut has_next = self.first_part(b']');
                while has_next {
                    self.skip_within(depth - 1)?;
                    has_next = self.next_part(b']')?;
                }
                Ok(())
            }
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.number().map(|_| ()),
        }
    }

    fn skip_string(&mut self) -> Result<(), Broken> {
        self.at = self.quote_or_escape(self.at + 1)?;
        while self.peek() == b'\\' {
            self.escape()?;
            self.at = self.quote_or_escape(self.at)?;
        }
        self.at += 1;
        Ok(())
    }
}
