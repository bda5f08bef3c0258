//! Finding records and fields in CSV text.
//!
//! One walker serves both the splitter, which must know where records end, and the decoder, which
//! must know where fields are, so that the two never disagree. Fields are found by searching for
//! the next special byte; nothing is copied.
//!
//! Rules (those of Flink's CSV format): a quote counts only at the start of a field; inside a
//! quoted field `""` is a quote, and delimiters and line ends are text; after the closing quote
//! only spaces may stand before the delimiter. Lines end in LF or CRLF.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// The bytes with a meaning.
#[derive(Clone, Debug)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Around fields.
    pub quote: Option<u8>,
    /// Before a byte that is to be taken literally.
    pub escape: Option<u8>,
    /// True if lines that begin with `#` are comments.
    pub comments: bool,
    /// True if empty lines are no records.
    pub skip_blank_lines: bool,
    /// True if empty lines at the end of a file are no records.
    pub ends_with_blank_lines: bool,
    /// True if blanks around fields are no part of them, outside of quotes.
    pub trims_spaces: bool,
}

impl Dialect {
    /// The length of a text without the empty lines at its end, if those are no records.
    pub fn without_blank_lines(&self, text: &[u8]) -> usize {
        let mut rest = text;
        if !self.ends_with_blank_lines {
            return rest.len();
        }
        loop {
            let line =
                rest.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            match line {
                Some(before) if before.is_empty() || before.ends_with(b"\n") => rest = before,
                _ => return rest.len(),
            }
        }
    }
}

/// Where a field lies in its block, with flags in the highest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    start: u32,
    end: u32,
}

const FLAG: u32 = 1 << 31;

impl FieldSpan {
    /// A field that the record is too short for.
    pub const MISSING: FieldSpan = FieldSpan { start: FLAG, end: 0 };

    fn new(start: usize, end: usize, escaped: bool) -> Self {
        FieldSpan { start: start as u32, end: end as u32 | if escaped { FLAG } else { 0 } }
    }
    /// True if the record has no such field.
    #[inline]
    pub fn is_missing(self) -> bool {
        self == FieldSpan::MISSING
    }
    /// True if the field has no text.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
    /// The field's value.
    #[inline]
    pub fn text<'a>(self, block: &'a str, dialect: &Dialect) -> Cow<'a, str> {
        let text = &block[self.start as usize..(self.end & !FLAG) as usize];
        if self.end & FLAG == 0 {
            return Cow::Borrowed(text);
        }
        // What stands before a field is a delimiter or a line end, unless the field is quoted. A
        // quote within an unquoted field is literal.
        let before = (self.start as usize).checked_sub(1).map(|at| block.as_bytes()[at]);
        let quote = before.filter(|byte| Some(*byte) == dialect.quote);
        Cow::Owned(unescape(text, quote, dialect.escape))
    }
}

/// Removes doubled quotes and escapes.
fn unescape(text: &str, quote: Option<u8>, escape: Option<u8>) -> String {
    let (quote, escape) = (quote.map(char::from), escape.map(char::from));
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            match chars.next() {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some('0') => value.push('\0'),
                Some(other) => value.push(other),
                None => {}
            }
        } else if Some(c) == quote {
            // The second of two.
            chars.next();
            value.push(c);
        } else {
            value.push(c);
        }
    }
    value
}

/// What the walker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// A record, from `start` to `end` without its line end.
    Record {
        /// Offset of its first byte.
        start: usize,
        /// Offset behind its last byte.
        end: usize,
        /// What is wrong with it.
        malformed: Option<&'static str>,
    },
    /// A comment or an empty line.
    Skipped,
    /// The text ends within a record.
    Incomplete,
    /// The text ends.
    End,
}

enum Ended {
    Delimiter,
    Line,
    Text,
}

/// Walks over records.
pub struct Walker<'a> {
    text: &'a [u8],
    dialect: &'a Dialect,
    /// True if nothing follows the text.
    is_last: bool,
    position: usize,
    malformed: Option<&'static str>,
}

impl<'a> Walker<'a> {
    /// Starts at the beginning of the text, which must be less than 2 GiB long.
    pub fn new(text: &'a [u8], dialect: &'a Dialect, is_last: bool) -> Self {
        assert!(text.len() < FLAG as usize, "blocks are shorter than 2 GiB");
        Walker { text, dialect, is_last, position: 0, malformed: None }
    }

    /// Starts at a record within a text that nothing follows.
    pub fn from(text: &'a [u8], start: usize, dialect: &'a Dialect) -> Self {
        Walker { position: start, ..Walker::new(text, dialect, true) }
    }

    /// Offset of the next record.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Finds the next record and appends its fields. After `Incomplete` the position is still at
    /// the record's start, and fields may have been appended.
    pub fn next_record(&mut self, fields: &mut Vec<FieldSpan>) -> ScanStep {
        let start = self.position;
        if start >= self.text.len() {
            return ScanStep::End;
        }
        if let Some(step) = self.skip_line() {
            return step;
        }
        self.malformed = None;
        loop {
            if self.dialect.trims_spaces {
                self.position += blanks(&self.text[self.position..], self.dialect);
            }
            let field_start = self.position;
            let quoted = self.dialect.quote.is_some_and(|q| self.text.get(field_start) == Some(&q));
            let ended = if quoted { self.quoted(fields) } else { self.plain(fields) };
            match ended {
                Ended::Delimiter => {}
                Ended::Text if !self.is_last => {
                    self.position = start;
                    return ScanStep::Incomplete;
                }
                Ended::Text => {
                    let end = self.text.len();
                    self.position = end;
                    return ScanStep::Record { start, end, malformed: self.malformed };
                }
                Ended::Line => {
                    // The position stands behind the line feed.
                    let end = self.without_carriage_return(start, self.position - 1);
                    return ScanStep::Record { start, end, malformed: self.malformed };
                }
            }
        }
    }

    /// Passes over a comment or an empty line.
    fn skip_line(&mut self) -> Option<ScanStep> {
        let start = self.position;
        let rest = &self.text[start..];
        let is_comment = self.dialect.comments && rest[0] == b'#';
        let is_blank = self.dialect.skip_blank_lines
            && (rest[0] == b'\n' || rest.starts_with(b"\r\n") || rest == b"\r");
        if !is_comment && !is_blank {
            return None;
        }
        match memchr(b'\n', rest) {
            Some(at) => self.position = start + at + 1,
            None if self.is_last => self.position = self.text.len(),
            None => return Some(ScanStep::Incomplete),
        }
        Some(ScanStep::Skipped)
    }

    fn without_carriage_return(&self, start: usize, end: usize) -> usize {
        if end > start && self.text[end - 1] == b'\r' { end - 1 } else { end }
    }

    /// A field without quotes; moves behind what ends it.
    fn plain(&mut self, fields: &mut Vec<FieldSpan>) -> Ended {
        let start = self.position;
        let delimiter = self.dialect.delimiter;
        let mut from = start;
        let mut escaped = false;
        let (end, ended) = loop {
            let rest = &self.text[from..];
            let found = match self.dialect.escape {
                None => memchr2(delimiter, b'\n', rest),
                Some(escape) => memchr3(delimiter, b'\n', escape, rest),
            };
            let Some(at) = found.map(|at| from + at) else {
                self.position = self.text.len();
                break (self.text.len(), Ended::Text);
            };
            if self.text[at] == delimiter {
                self.position = at + 1;
                break (at, Ended::Delimiter);
            }
            if self.text[at] == b'\n' {
                self.position = at + 1;
                break (self.without_carriage_return(start, at), Ended::Line);
            }
            escaped = true;
            from = (at + 2).min(self.text.len());
        };
        // A lone carriage return at the very end belongs to the line end that is missing.
        let end = if matches!(ended, Ended::Text) {
            self.without_carriage_return(start, end)
        } else {
            end
        };
        let blanks = match self.dialect.trims_spaces {
            true => self.text[start..end].iter().rev().take_while(|byte| **byte <= b' ').count(),
            false => 0,
        };
        fields.push(FieldSpan::new(start, end - blanks, escaped));
        ended
    }

    /// A field in quotes; moves behind what ends it.
    fn quoted(&mut self, fields: &mut Vec<FieldSpan>) -> Ended {
        let quote = self.dialect.quote.expect("called at a quote");
        let start = self.position + 1;
        let mut from = start;
        let mut escaped = false;
        let end = loop {
            let rest = &self.text[from..];
            let found = match self.dialect.escape {
                None => memchr(quote, rest),
                Some(escape) => memchr2(quote, escape, rest),
            };
            let Some(at) = found.map(|at| from + at) else {
                self.malformed = Some("a quote is not closed before the end of the file");
                fields.push(FieldSpan::new(start, self.text.len(), escaped));
                return Ended::Text;
            };
            if Some(self.text[at]) == self.dialect.escape {
                escaped = true;
                from = (at + 2).min(self.text.len());
            } else if self.text.get(at + 1) == Some(&quote) {
                escaped = true;
                from = at + 2;
            } else if at + 1 == self.text.len() && !self.is_last {
                // The next block may begin with the second of two quotes.
                return Ended::Text;
            } else {
                break at;
            }
        };
        fields.push(FieldSpan::new(start, end, escaped));
        self.after_quote(end + 1)
    }

    /// Moves from behind a closing quote to behind what ends the field.
    fn after_quote(&mut self, from: usize) -> Ended {
        let rest = &self.text[from..];
        let Some(at) = memchr2(self.dialect.delimiter, b'\n', rest) else {
            self.check_padding(rest);
            self.position = self.text.len();
            return Ended::Text;
        };
        self.check_padding(&rest[..at]);
        self.position = from + at + 1;
        if rest[at] == b'\n' { Ended::Line } else { Ended::Delimiter }
    }

    fn check_padding(&mut self, padding: &[u8]) {
        let padding = padding.strip_suffix(b"\r").unwrap_or(padding);
        if padding.iter().any(|b| *b != b' ') {
            self.malformed = Some("text follows a closing quote");
        }
    }
}

/// How many blanks a text begins with, none of which has another meaning.
fn blanks(text: &[u8], dialect: &Dialect) -> usize {
    let is_blank = |byte: &&u8| {
        **byte <= b' '
            && !matches!(**byte, b'\n' | b'\r')
            && **byte != dialect.delimiter
            && Some(**byte) != dialect.quote
    };
    text.iter().take_while(is_blank).count()
}

/// The length of the longest prefix that ends with a complete record, 0 if there is none. `text`
/// must begin at a record's start and be followed by more.
pub fn complete_length(text: &[u8], dialect: &Dialect) -> usize {
    let special = |byte: Option<u8>| byte.is_some_and(|b| memchr(b, text).is_some());
    if !special(dialect.quote) && !special(dialect.escape) {
        return memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
    }
    let mut walker = Walker::new(text, dialect, false);
    let mut fields = Vec::new();
    loop {
        fields.clear();
        match walker.next_record(&mut fields) {
            ScanStep::Incomplete | ScanStep::End => return walker.position(),
            ScanStep::Record { .. } | ScanStep::Skipped => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect() -> Dialect {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            comments: false,
            skip_blank_lines: false,
            ends_with_blank_lines: false,
            trims_spaces: false,
        }
    }

    fn records(text: &str, dialect: &Dialect) -> Vec<(Vec<String>, bool)> {
        let mut walker = Walker::new(text.as_bytes(), dialect, true);
        let mut found = Vec::new();
        loop {
            let mut fields = Vec::new();
            match walker.next_record(&mut fields) {
                ScanStep::Record { malformed, .. } => {
                    let texts = fields.iter().map(|f| f.text(text, dialect).into_owned());
                    found.push((texts.collect(), malformed.is_some()));
                }
                ScanStep::Skipped => {}
                ScanStep::End => return found,
                ScanStep::Incomplete => panic!("the text is the last"),
            }
        }
    }

    fn strings(fields: &[&str]) -> (Vec<String>, bool) {
        (fields.iter().map(ToString::to_string).collect(), false)
    }

    #[test]
    fn quotes_follow_flink() {
        let text = "\"a,b\",\"say \"\"hi\"\"\", padded \r\npre\"mid\"post,\"two\nlines\" ,\n";
        let expected = [
            strings(&["a,b", "say \"hi\"", " padded "]),
            strings(&["pre\"mid\"post", "two\nlines", ""]),
        ];
        assert_eq!(records(text, &dialect()), expected);
    }

    #[test]
    fn blanks_around_fields_are_trimmed_if_asked_for() {
        let trims = Dialect { trims_spaces: true, ..dialect() };
        let text = " a b ,\t\" c \" , \r\n,\"d\"\n  ";
        let expected = [strings(&["a b", " c ", ""]), strings(&["", "d"]), strings(&[""])];
        assert_eq!(records(text, &trims), expected);
    }

    #[test]
    fn broken_quotes_are_reported() {
        let found = records("\"a\"b,c\nd,\"e", &dialect());
        assert_eq!(found[0], (vec!["a".to_string(), "c".to_string()], true));
        assert!(found[1].1);
    }

    #[test]
    fn comments_blank_lines_and_escapes() {
        let dialect =
            Dialect { escape: Some(b'\\'), comments: true, skip_blank_lines: true, ..dialect() };
        let text = "#1,\"\n\n\r\na\\,b\"\"x,\"c\\\"\\n\"\n# end";
        assert_eq!(records(text, &dialect), [strings(&["a,b\"\"x", "c\"\n"])]);
    }

    #[test]
    fn blank_lines_are_records_of_one_empty_field() {
        assert_eq!(records("\na\n", &dialect()), [strings(&[""]), strings(&["a"])]);
    }

    #[test]
    fn blank_lines_at_the_end_are_left_out() {
        let dialect = Dialect { ends_with_blank_lines: true, ..dialect() };
        for (text, kept) in [
            ("", ""),
            ("\n", ""),
            ("\r\n\n", ""),
            ("a,b\n", "a,b\n"),
            ("a,b\n\n", "a,b\n"),
            ("\na,b\r\n\r\n\n", "\na,b\r\n"),
            ("a,b\n\nc", "a,b\n\nc"),
            ("a,b\n \n", "a,b\n \n"),
        ] {
            assert_eq!(dialect.without_blank_lines(text.as_bytes()), kept.len(), "{text:?}");
        }
        assert_eq!(super::tests::dialect().without_blank_lines(b"a\n\n"), 3);
    }

    #[test]
    fn every_cut_ends_at_a_record() {
        // For each prefix, the complete part must be what the walk over the whole text passes.
        let text = "a,\"b\"\"\n\"\nx\"y\",z\r\n\"\",\"\"\n\"\n\n\",\"q\"\nlast,1\n";
        let dialect = dialect();
        let mut ends = vec![0];
        let mut walker = Walker::new(text.as_bytes(), &dialect, true);
        while walker.next_record(&mut Vec::new()) != ScanStep::End {
            ends.push(walker.position());
        }
        for length in 0..=text.len() {
            let cut = complete_length(&text.as_bytes()[..length], &dialect);
            let expected = ends.iter().rev().find(|end| **end <= length).expect("0 is there");
            assert_eq!(cut, *expected, "prefix of {length} bytes");
        }
    }
}
