//! Column types as Flink writes them: `DECIMAL(10, 2) NOT NULL`, `ARRAY<ROW<a INT>>`,
//! `TIMESTAMP(3) WITH LOCAL TIME ZONE`, with Flink's defaults where a length is left out.
//!
//! Types are read by hand, also those of CAST: `sqlparser` knows neither ROW nor LTZ. The types
//! in its trees go through [`data_type`].
//!
//! Source: Apache Flink documentation, "Data Types".
//!
//! **Defaults:** DECIMAL is (10, 0), TIMESTAMP and TIMESTAMP_LTZ have six digits, TIME none, CHAR
//! and BINARY one character. A VARCHAR without a length has one character in a declaration, and any
//! number in a CAST: nobody means to cut a text to one letter there.
//!
//! A type is nullable unless NOT NULL follows, also inside of ARRAY, MAP and ROW.

use sqlparser::ast as sql;
use sqlparser::tokenizer::Token;
use thalweg_core::types::MAX_LENGTH;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::tokens::{Cursor, SourceText, tokenize};
use crate::diagnostic::nearest;

/// How deeply ARRAY, MAP and ROW may be nested.
const NESTING_MAX: usize = 32;

/// The type that a CAST names. A VARCHAR or VARBINARY without a length has any.
pub fn data_type(parsed: &sql::DataType) -> Result<ColumnType> {
    match parsed {
        sql::DataType::Custom(name, modifiers) if modifiers.is_empty() => match &name.0[..] {
            [sql::ObjectNamePart::Identifier(identifier)] => parse(&identifier.value, MAX_LENGTH),
            _ => parse(&parsed.to_string(), MAX_LENGTH),
        },
        other => parse(&other.to_string(), MAX_LENGTH),
    }
}

/// Reads a type from its text.
///
/// ```
/// let column_type = thalweg_plan::parser::parse_type("array<decimal(10,2) not null>")?;
/// assert_eq!(column_type.to_string(), "ARRAY<DECIMAL(10,2) NOT NULL>");
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn parse_type(text: &str) -> Result<ColumnType> {
    parse(text, 1)
}

fn parse(text: &str, default_length: u32) -> Result<ColumnType> {
    let tokens = tokenize(text)?;
    let source = SourceText::new(text);
    let mut cursor = Cursor::new(&source, &tokens.words);
    let column_type = read(&mut cursor, default_length)?;
    cursor.expect_end()?;
    Ok(column_type)
}

/// Reads a type and the nullability behind it.
pub(super) fn column_type(cursor: &mut Cursor<'_>) -> Result<ColumnType> {
    read(cursor, 1)
}

fn read(cursor: &mut Cursor<'_>, default_length: u32) -> Result<ColumnType> {
    let mut reader = TypeReader { cursor, half_closed: false, depth: 0, default_length };
    let column_type = reader.column_type()?;
    if reader.half_closed {
        Err(reader.cursor.expected("a type without a '>' too many"))
    } else {
        Ok(column_type)
    }
}

struct TypeReader<'r, 'a> {
    cursor: &'r mut Cursor<'a>,
    /// `>>` is one token: true after its first half was used.
    /// While it is true the cursor still stands on that token, so nothing but a closing `>` may be
    /// read.
    half_closed: bool,
    depth: usize,
    /// The length of a VARCHAR or VARBINARY that names none.
    default_length: u32,
}

impl TypeReader<'_, '_> {
    /// A type with its nullability; `INT ARRAY` is the postfix form of `ARRAY<INT>`, as
    /// `INT MULTISET` is of `MULTISET<INT>`.
    fn column_type(&mut self) -> Result<ColumnType> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(Error::plan(format!("a type is nested more than {NESTING_MAX} deep"))
                .at(self.cursor.here()));
        }
        let mut data_type = self.data_type()?;
        let mut nullable = self.nullable();
        while !self.half_closed {
            if self.cursor.take_words(&["ARRAY"]) {
                data_type = DataType::Array(Box::new(ColumnType { data_type, nullable }));
            } else if self.cursor.take_words(&["MULTISET"]) {
                data_type = multiset(ColumnType { data_type, nullable });
            } else {
                break;
            }
            nullable = self.nullable();
        }
        self.depth -= 1;
        Ok(ColumnType { data_type, nullable })
    }

    fn nullable(&mut self) -> bool {
        if self.half_closed {
            return true;
        }
        let not_null = self.cursor.take_words(&["NOT", "NULL"]);
        if !not_null {
            self.cursor.take_words(&["NULL"]);
        }
        !not_null
    }

    fn data_type(&mut self) -> Result<DataType> {
        let here = self.cursor.here();
        let name = self.cursor.name("a type such as INT or STRING")?;
        let word = name.text.to_ascii_uppercase();
        Ok(match word.as_str() {
            "BOOLEAN" => DataType::Boolean,
            "TINYINT" => DataType::TinyInt,
            "SMALLINT" => DataType::SmallInt,
            "INT" | "INTEGER" => DataType::Int,
            "BIGINT" => DataType::BigInt,
            "FLOAT" => DataType::Float,
            "DOUBLE" => {
                self.cursor.take_words(&["PRECISION"]);
                DataType::Double
            }
            "DECIMAL" | "DEC" | "NUMERIC" => self.decimal()?,
            "STRING" => DataType::STRING,
            "BYTES" => DataType::BYTES,
            "CHAR" | "CHARACTER" if self.cursor.take_words(&["VARYING"]) => {
                DataType::Varchar(self.length(self.default_length)?)
            }
            "CHAR" | "CHARACTER" => DataType::Char(self.length(1)?),
            "VARCHAR" => DataType::Varchar(self.length(self.default_length)?),
            "BINARY" if self.cursor.take_words(&["VARYING"]) => {
                DataType::Varbinary(self.length(self.default_length)?)
            }
            "BINARY" => DataType::Binary(self.length(1)?),
            "VARBINARY" => DataType::Varbinary(self.length(self.default_length)?),
            "DATE" => DataType::Date,
            "TIME" => self.time()?,
            "TIMESTAMP" => self.timestamp()?,
            "TIMESTAMP_LTZ" => DataType::TimestampLtz(self.precision("TIMESTAMP_LTZ", 6)?),
            "INTERVAL" => self.interval()?,
            "ARRAY" => {
                self.open()?;
                let element = self.column_type()?;
                self.close()?;
                DataType::Array(Box::new(element))
            }
            "MAP" => self.map()?,
            "MULTISET" => {
                self.open()?;
                let element = self.column_type()?;
                self.close()?;
                multiset(element)
            }
            "ROW" => self.row()?,
            "VARIANT" => DataType::Variant,
            "STRUCTURED" => self.structured()?,
            other => return Err(unknown(other, &name.text).at(here)),
        })
    }

    /// `(n)`, or a default.
    fn length(&mut self, default: u32) -> Result<u32> {
        let here = self.cursor.here();
        match self.parenthesized_number()? {
            None => Ok(default),
            Some(length) if (1..=u64::from(MAX_LENGTH)).contains(&length) => Ok(length as u32),
            Some(length) => Err(Error::plan(format!(
                "a length must be between 1 and {MAX_LENGTH}, not {length}"
            ))
            .at(here)),
        }
    }

    fn precision(&mut self, of: &str, default: u8) -> Result<u8> {
        let here = self.cursor.here();
        match self.parenthesized_number()? {
            None => Ok(default),
            Some(precision @ 0..=9) => Ok(precision as u8),
            Some(precision) => Err(Error::plan(format!(
                "the precision of {of} must be between 0 and 9, not {precision}"
            ))
            .at(here)),
        }
    }

    fn parenthesized_number(&mut self) -> Result<Option<u64>> {
        if self.half_closed || !self.cursor.take_token(&Token::LParen) {
            return Ok(None);
        }
        let number = self.number()?;
        self.cursor.expect_token(&Token::RParen)?;
        Ok(Some(number))
    }

    fn number(&mut self) -> Result<u64> {
        let number = match self.cursor.peek_at(0) {
            Some(Token::Number(digits, false)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.cursor.expected("a whole number"))?;
        self.cursor.next();
        Ok(number)
    }

    fn decimal(&mut self) -> Result<DataType> {
        let here = self.cursor.here();
        let (mut precision, mut scale) = (10, 0);
        if self.cursor.take_token(&Token::LParen) {
            precision = self.number()?;
            if self.cursor.take_token(&Token::Comma) {
                scale = self.number()?;
            }
            self.cursor.expect_token(&Token::RParen)?;
        }
        match (u8::try_from(precision), u8::try_from(scale)) {
            (Ok(p @ 1..=38), Ok(s)) if s <= p => Ok(DataType::Decimal(p, s)),
            _ => Err(Error::plan(format!("DECIMAL({precision},{scale}) does not exist"))
                .hint("the precision is between 1 and 38, the scale between 0 and the precision")
                .at(here)),
        }
    }

    fn time(&mut self) -> Result<DataType> {
        let precision = self.precision("TIME", 0)?;
        self.cursor.take_words(&["WITHOUT", "TIME", "ZONE"]);
        Ok(DataType::Time(precision))
    }

    fn timestamp(&mut self) -> Result<DataType> {
        let precision = self.precision("TIMESTAMP", 6)?;
        let here = self.cursor.here();
        if self.half_closed || self.cursor.take_words(&["WITHOUT", "TIME", "ZONE"]) {
            return Ok(DataType::Timestamp(precision));
        }
        if self.cursor.take_words(&["WITH", "LOCAL", "TIME", "ZONE"]) {
            return Ok(DataType::TimestampLtz(precision));
        }
        if self.cursor.take_words(&["WITH", "TIME", "ZONE"]) {
            return Err(Error::unsupported("TIMESTAMP WITH TIME ZONE is not supported")
                .hint("use TIMESTAMP_LTZ for an instant or TIMESTAMP for a wall clock reading")
                .at(here));
        }
        Ok(DataType::Timestamp(precision))
    }

    /// `INTERVAL YEAR TO MONTH` and `INTERVAL DAY TO SECOND` with any of their fields.
    fn interval(&mut self) -> Result<DataType> {
        let from = self.interval_field()?;
        let to = if self.cursor.take_words(&["TO"]) { self.interval_field()? } else { from };
        match (from, to) {
            (true, true) => Ok(DataType::IntervalYearMonth),
            (false, false) => Ok(DataType::IntervalDayTime),
            _ => Err(self.cursor.expected("fields of one kind of interval")),
        }
    }

    /// True for a field of years and months.
    /// A precision is read and dropped: intervals have one precision here.
    fn interval_field(&mut self) -> Result<bool> {
        let is_month = ["YEAR", "MONTH"].iter().any(|w| self.cursor.take_words(&[w]));
        let is_second = ["DAY", "HOUR", "MINUTE", "SECOND"];
        if !is_month && !is_second.iter().any(|w| self.cursor.take_words(&[w])) {
            return Err(self.cursor.expected("YEAR, MONTH, DAY, HOUR, MINUTE or SECOND"));
        }
        self.parenthesized_number()?;
        Ok(is_month)
    }

    fn map(&mut self) -> Result<DataType> {
        self.open()?;
        let key = self.column_type()?;
        self.expect_comma()?;
        let value = self.column_type()?;
        self.close()?;
        Ok(DataType::Map(Box::new(key), Box::new(value)))
    }

    /// `ROW<a INT, b STRING 'comment'>` or `ROW(…)`. Comments are read and dropped.
    fn row(&mut self) -> Result<DataType> {
        let parenthesized = self.cursor.take_token(&Token::LParen);
        if !parenthesized {
            self.open()?;
        }
        self.fields(parenthesized)
    }

    /// `STRUCTURED<'com.acme.Point', x INT, y INT>`: a row, whose class only Java could make.
    fn structured(&mut self) -> Result<DataType> {
        self.open()?;
        match self.cursor.peek_at(0) {
            Some(Token::SingleQuotedString(_)) => self.cursor.next(),
            _ => return Err(self.cursor.expected("the name of a class in quotes")),
        };
        if self.cursor.is_token(&Token::Gt) || self.cursor.is_token(&Token::ShiftRight) {
            self.close()?;
            return Ok(DataType::Row(Vec::new()));
        }
        self.cursor.expect_token(&Token::Comma)?;
        self.fields(false)
    }

    /// The fields of a row, and what closes them.
    fn fields(&mut self, parenthesized: bool) -> Result<DataType> {
        let mut fields: Vec<Column> = Vec::new();
        loop {
            let name = self.cursor.name("a field name")?;
            if fields.iter().any(|field| field.name == name.text) {
                return Err(
                    Error::plan(format!("the field {} is there twice", name.text)).at(name.span)
                );
            }
            let column_type = self.column_type()?;
            fields.push(Column::new(name.text, column_type));
            if !self.half_closed
                && matches!(self.cursor.peek_at(0), Some(Token::SingleQuotedString(_)))
            {
                self.cursor.next();
            }
            if self.half_closed || !self.cursor.take_token(&Token::Comma) {
                break;
            }
        }
        if parenthesized {
            self.cursor.expect_token(&Token::RParen)?
        } else {
            self.close()?
        }
        Ok(DataType::Row(fields))
    }

    fn expect_comma(&mut self) -> Result<()> {
        if self.half_closed {
            Err(self.cursor.expected("','"))
        } else {
            self.cursor.expect_token(&Token::Comma)
        }
    }

    fn open(&mut self) -> Result<()> {
        self.cursor.expect_token(&Token::Lt)
    }

    /// One closing `>`, which may be the first or the second half of a `>>`.
    fn close(&mut self) -> Result<()> {
        if self.half_closed {
            self.half_closed = false;
            self.cursor.next();
            return Ok(());
        }
        if self.cursor.is_token(&Token::ShiftRight) {
            self.half_closed = true;
            return Ok(());
        }
        self.cursor.expect_token(&Token::Gt)
    }
}

/// A multiset is a map of its elements to how often each is there.
fn multiset(element: ColumnType) -> DataType {
    DataType::Map(Box::new(element), Box::new(DataType::Int.not_null()))
}

/// Types that Flink names as well, but that no column can have here.
const UNSUPPORTED: [&str; 2] = ["RAW", "BITMAP"];

/// What a misspelt type may mean.
const KNOWN: &str = "BOOLEAN TINYINT SMALLINT INT INTEGER BIGINT FLOAT DOUBLE DECIMAL NUMERIC \
    STRING BYTES CHAR CHARACTER VARCHAR BINARY VARBINARY DATE TIME TIMESTAMP TIMESTAMP_LTZ ARRAY \
    MAP ROW INTERVAL DEC MULTISET STRUCTURED VARIANT";

fn unknown(word: &str, written: &str) -> Error {
    if UNSUPPORTED.contains(&word) {
        return Error::unsupported(format!("the type {word} is not supported"));
    }
    let other = match word {
        "TEXT" | "CLOB" | "NVARCHAR" => Some("STRING".to_owned()),
        "BOOL" => Some("BOOLEAN".to_owned()),
        "LONG" | "INT8" | "INT64" => Some("BIGINT".to_owned()),
        "REAL" | "FLOAT4" => Some("FLOAT".to_owned()),
        "BLOB" => Some("BYTES".to_owned()),
        "DATETIME" => Some("TIMESTAMP".to_owned()),
        "TIMESTAMPTZ" => Some("TIMESTAMP_LTZ".to_owned()),
        _ => nearest(word, KNOWN.split(' ')),
    };
    let error = Error::plan(format!("there is no type '{written}'"));
    match other {
        Some(other) => error.hint(format!("did you mean {other}?")),
        None => error.hint("the types are listed in the SQL reference"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_flink_is_read_with_its_default() {
        let cases = [
            ("decimal", "DECIMAL(10,0)"),
            ("DEC(5)", "DECIMAL(5,0)"),
            ("NUMERIC(38, 38)", "DECIMAL(38,38)"),
            ("CHAR", "CHAR(1)"),
            ("VARCHAR(2147483647)", "STRING"),
            ("CHARACTER VARYING (7)", "VARCHAR(7)"),
            ("VARBINARY(3) NOT NULL", "VARBINARY(3) NOT NULL"),
            ("BYTES", "BYTES"),
            ("DOUBLE PRECISION", "DOUBLE"),
            ("TIMESTAMP", "TIMESTAMP(6)"),
            ("TIMESTAMP(0) WITHOUT TIME ZONE", "TIMESTAMP(0)"),
            ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)"),
            ("TIMESTAMP_LTZ", "TIMESTAMP_LTZ(6)"),
            ("TIME", "TIME(0)"),
            ("TIME(3)", "TIME(3)"),
            ("INTERVAL DAY(3) TO SECOND(3)", "INTERVAL DAY TO SECOND"),
            ("INTERVAL MONTH", "INTERVAL YEAR TO MONTH"),
            ("ARRAY<ARRAY<INT>>", "ARRAY<ARRAY<INT>>"),
            ("ARRAY<ARRAY<ARRAY<INT NOT NULL>>>", "ARRAY<ARRAY<ARRAY<INT NOT NULL>>>"),
            ("INT ARRAY", "ARRAY<INT>"),
            (
                "MAP<STRING, ROW<a INT, b TIMESTAMP(3)>> NOT NULL",
                "MAP<STRING, ROW<a INT, b TIMESTAMP(3)>> NOT NULL",
            ),
            ("MULTISET<STRING>", "MAP<STRING, INT NOT NULL>"),
            ("INT NOT NULL MULTISET ARRAY", "ARRAY<MAP<INT NOT NULL, INT NOT NULL>>"),
            ("ARRAY<STRUCTURED<'a.P', x INT, y STRING>>", "ARRAY<ROW<x INT, y STRING>>"),
            ("ROW(a INT NOT NULL, `b c` STRING 'a comment')", "ROW<a INT NOT NULL, b c STRING>"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_type(text).map(|t| t.to_string()).ok().as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn types_that_do_not_exist_are_refused_with_a_way_out() {
        let cases = [
            ("DECIMAL(39,2)", "the precision is between 1 and 38"),
            ("DECIMAL(3,4)", "the scale between 0"),
            ("VARCHR(3)", "did you mean VARCHAR?"),
            ("TEXT", "did you mean STRING?"),
            ("TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMP_LTZ"),
        ];
        for (text, help) in cases {
            let error = parse_type(text).expect_err(text);
            assert!(error.help().is_some_and(|h| h.contains(help)), "{text}: {error}");
        }
        for text in [
            "ARRAY<INT>>",
            "ARRAY<INT",
            "MAP<INT>",
            "ROW<>",
            "CHAR(0)",
            "INT NOT",
            "",
            "ROW<a INT, a INT>",
            "STRUCTURED<x INT>",
            "MULTISET<>",
        ] {
            assert!(parse_type(text).is_err(), "{text}");
        }
        let deep = format!("{}INT{}", "ARRAY<".repeat(5000), ">".repeat(5000));
        assert!(parse_type(&deep).expect_err("deep").message().contains("nested"));
    }
}
