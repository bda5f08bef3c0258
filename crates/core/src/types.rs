//! Column types as Flink names them, with precision and nullability, and their Arrow layout.
//!
//! Arrow types say how bytes lie in memory; they know nothing of `VARCHAR(5)`, `TIMESTAMP(0)` or
//! `NOT NULL`. Types that a user sees are therefore kept here, and each maps to exactly one Arrow
//! type ([`DataType::arrow`]):
//!
//! | SQL | Arrow |
//! |---|---|
//! | CHAR, VARCHAR, STRING, VARIANT | Utf8View |
//! | BOOLEAN | Boolean |
//! | BINARY, VARBINARY, BYTES | Binary |
//! | DECIMAL(p, s) | Decimal128(p, s) |
//! | TINYINT, SMALLINT, INT, BIGINT | Int8, Int16, Int32, Int64 |
//! | FLOAT, DOUBLE | Float32, Float64 |
//! | DATE | Date32 |
//! | TIME(p) | Time32(Millisecond) |
//! | TIMESTAMP(0..=3), (4..=6), (7..=9) | Timestamp in ms, µs, ns without zone |
//! | TIMESTAMP_LTZ(p) | the same with zone "UTC" |
//! | INTERVAL YEAR TO MONTH | Interval(YearMonth) |
//! | INTERVAL DAY TO SECOND | Duration(Millisecond) |
//! | ARRAY, MAP, ROW | List, Map, Struct |
//!
//! Source for names and limits: Apache Flink documentation, "Data Types".

use std::fmt;
use std::sync::Arc;

use arrow_array::types::{
    ArrowTimestampType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType as Arrow, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};

/// The length of `STRING` and `BYTES`, which are `VARCHAR(2147483647)` and `VARBINARY(2147483647)`.
pub const MAX_LENGTH: u32 = i32::MAX as u32;

/// A SQL type without its nullability.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// The type of a bare NULL.
    Null,
    /// `BOOLEAN`
    Boolean,
    /// `TINYINT`, 8 bits
    TinyInt,
    /// `SMALLINT`, 16 bits
    SmallInt,
    /// `INT`, 32 bits
    Int,
    /// `BIGINT`, 64 bits
    BigInt,
    /// `FLOAT`, 32 bits
    Float,
    /// `DOUBLE`, 64 bits
    Double,
    /// `DECIMAL(precision, scale)`, at most 38 digits
    Decimal(u8, u8),
    /// `CHAR(n)`
    Char(u32),
    /// `VARCHAR(n)`; `STRING` is the longest
    Varchar(u32),
    /// `BINARY(n)`
    Binary(u32),
    /// `VARBINARY(n)`; `BYTES` is the longest
    Varbinary(u32),
    /// `DATE`
    Date,
    /// `TIME(p)`
    Time(u8),
    /// `TIMESTAMP(p)`: a wall clock reading
    Timestamp(u8),
    /// `TIMESTAMP_LTZ(p)`: an instant, shown in the session's zone
    TimestampLtz(u8),
    /// `INTERVAL YEAR TO MONTH`, in months
    IntervalYearMonth,
    /// `INTERVAL DAY TO SECOND`, in milliseconds
    IntervalDayTime,
    /// `ARRAY<element>`
    Array(Box<ColumnType>),
    /// `MAP<key, value>`
    Map(Box<ColumnType>, Box<ColumnType>),
    /// `ROW<name type, …>`
    Row(Vec<Column>),
    /// `VARIANT`: a value of any shape, held as JSON
    Variant,
}

impl DataType {
    /// `STRING`.
    pub const STRING: DataType = DataType::Varchar(MAX_LENGTH);
    /// `BYTES`.
    pub const BYTES: DataType = DataType::Varbinary(MAX_LENGTH);

    /// The Arrow type that holds values of this type.
    pub fn arrow(&self) -> Arrow {
        match self {
            DataType::Null => Arrow::Null,
            DataType::Boolean => Arrow::Boolean,
            DataType::TinyInt => Arrow::Int8,
            DataType::SmallInt => Arrow::Int16,
            DataType::Int => Arrow::Int32,
            DataType::BigInt => Arrow::Int64,
            DataType::Float => Arrow::Float32,
            DataType::Double => Arrow::Float64,
            DataType::Decimal(precision, scale) => Arrow::Decimal128(*precision, *scale as i8),
            DataType::Char(_) | DataType::Varchar(_) | DataType::Variant => Arrow::Utf8View,
            DataType::Binary(_) | DataType::Varbinary(_) => Arrow::Binary,
            DataType::Date => Arrow::Date32,
            DataType::Time(_) => Arrow::Time32(TimeUnit::Millisecond),
            DataType::Timestamp(precision) => Arrow::Timestamp(timestamp_unit(*precision), None),
            DataType::TimestampLtz(precision) => {
                Arrow::Timestamp(timestamp_unit(*precision), Some(Arc::from("UTC")))
            }
            DataType::IntervalYearMonth => Arrow::Interval(IntervalUnit::YearMonth),
            DataType::IntervalDayTime => Arrow::Duration(TimeUnit::Millisecond),
            DataType::Array(element) => Arrow::List(Arc::new(element.field("item"))),
            DataType::Map(key, value) => {
                let entry = Fields::from(vec![
                    Field::new("key", key.data_type.arrow(), false),
                    value.field("value"),
                ]);
                Arrow::Map(Arc::new(Field::new("entries", Arrow::Struct(entry), false)), false)
            }
            DataType::Row(columns) => {
                Arrow::Struct(columns.iter().map(|c| c.column_type.field(&c.name)).collect())
            }
        }
    }

    /// This type, with NULL allowed.
    pub fn nullable(self) -> ColumnType {
        ColumnType { data_type: self, nullable: true }
    }
    /// This type, without NULL.
    pub fn not_null(self) -> ColumnType {
        ColumnType { data_type: self, nullable: false }
    }

    /// True for TINYINT, SMALLINT, INT and BIGINT.
    pub fn is_integer(&self) -> bool {
        matches!(self, DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt)
    }
    /// True for FLOAT and DOUBLE.
    pub fn is_float(&self) -> bool {
        matches!(self, DataType::Float | DataType::Double)
    }
    /// True for integers, floats and DECIMAL.
    pub fn is_numeric(&self) -> bool {
        self.is_integer() || self.is_float() || matches!(self, DataType::Decimal(..))
    }
    /// True for CHAR, VARCHAR and STRING.
    pub fn is_string(&self) -> bool {
        matches!(self, DataType::Char(_) | DataType::Varchar(_))
    }
    /// True for BINARY, VARBINARY and BYTES.
    pub fn is_binary(&self) -> bool {
        matches!(self, DataType::Binary(_) | DataType::Varbinary(_))
    }
    /// True for TIMESTAMP and TIMESTAMP_LTZ.
    pub fn is_timestamp(&self) -> bool {
        matches!(self, DataType::Timestamp(_) | DataType::TimestampLtz(_))
    }
    /// True for DATE and TIME as well.
    pub fn is_time(&self) -> bool {
        self.is_timestamp() || matches!(self, DataType::Date | DataType::Time(_))
    }
}

/// The unit in which a timestamp of this precision (0 to 9) is stored.
pub fn timestamp_unit(precision: u8) -> TimeUnit {
    match precision {
        0..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    }
}

/// Times of this precision, from numbers of the unit in which they are stored.
pub fn timestamps(values: &Int64Array, precision: u8, is_instant: bool) -> ArrayRef {
    fn of<T: ArrowTimestampType>(values: &Int64Array, is_instant: bool) -> ArrayRef {
        let zone: Option<Arc<str>> = is_instant.then(|| Arc::from("UTC"));
        Arc::new(values.reinterpret_cast::<T>().with_timezone_opt(zone))
    }
    match timestamp_unit(precision) {
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(values, is_instant),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(values, is_instant),
        _ => of::<TimestampMillisecondType>(values, is_instant),
    }
}

/// How many of the units in which a timestamp of this precision is stored make a millisecond.
pub fn timestamp_units_per_ms(precision: u8) -> i64 {
    match timestamp_unit(precision) {
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1_000_000,
        _ => 1,
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Null => f.write_str("NULL"),
            DataType::Boolean => f.write_str("BOOLEAN"),
            DataType::TinyInt => f.write_str("TINYINT"),
            DataType::SmallInt => f.write_str("SMALLINT"),
            DataType::Int => f.write_str("INT"),
            DataType::BigInt => f.write_str("BIGINT"),
            DataType::Float => f.write_str("FLOAT"),
            DataType::Double => f.write_str("DOUBLE"),
            DataType::Decimal(precision, scale) => write!(f, "DECIMAL({precision},{scale})"),
            DataType::Char(length) => write!(f, "CHAR({length})"),
            DataType::Varchar(MAX_LENGTH) => f.write_str("STRING"),
            DataType::Varchar(length) => write!(f, "VARCHAR({length})"),
            DataType::Binary(length) => write!(f, "BINARY({length})"),
            DataType::Varbinary(MAX_LENGTH) => f.write_str("BYTES"),
            DataType::Varbinary(length) => write!(f, "VARBINARY({length})"),
            DataType::Date => f.write_str("DATE"),
            DataType::Time(precision) => write!(f, "TIME({precision})"),
            DataType::Timestamp(precision) => write!(f, "TIMESTAMP({precision})"),
            DataType::TimestampLtz(precision) => write!(f, "TIMESTAMP_LTZ({precision})"),
            DataType::IntervalYearMonth => f.write_str("INTERVAL YEAR TO MONTH"),
            DataType::IntervalDayTime => f.write_str("INTERVAL DAY TO SECOND"),
            DataType::Variant => f.write_str("VARIANT"),
            DataType::Array(element) => write!(f, "ARRAY<{element}>"),
            DataType::Map(key, value) => write!(f, "MAP<{key}, {value}>"),
            DataType::Row(columns) => {
                f.write_str("ROW<")?;
                for (i, column) in columns.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{} {}", column.name, column.column_type)?;
                }
                f.write_str(">")
            }
        }
    }
}

/// A SQL type with its nullability. Displays as Flink prints it, `DECIMAL(10,2) NOT NULL`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnType {
    /// The type of the values.
    pub data_type: DataType,
    /// True if NULL is a value.
    pub nullable: bool,
}

impl ColumnType {
    /// True if a value can be NULL. A computed DECIMAL that leaves the range of its type is NULL,
    /// also where the type says NOT NULL (as in Flink).
    pub fn can_be_null(&self) -> bool {
        self.nullable || matches!(self.data_type, DataType::Decimal(..))
    }
    /// An Arrow field of this type.
    pub fn field(&self, name: &str) -> Field {
        Field::new(name, self.data_type.arrow(), self.nullable)
    }
    /// The same type with the given nullability.
    #[must_use]
    pub fn with_nullable(self, nullable: bool) -> Self {
        Self { nullable, ..self }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.nullable { "" } else { " NOT NULL" };
        write!(f, "{}{suffix}", self.data_type)
    }
}

/// A named, typed column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its name, as the user wrote it.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Column { name: name.into(), column_type }
    }
}

/// The columns of a table or of a stream between two operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableSchema {
    /// The columns in order.
    pub columns: Vec<Column>,
}

impl TableSchema {
    /// A schema of these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        TableSchema { columns }
    }
    /// How many columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }
    /// True without columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
    /// The position of the column with this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }
    /// The Arrow schema of batches with these columns. Every field is nullable there: NOT NULL is
    /// checked where it is promised, not by every constructor of a batch on the way.
    pub fn arrow(&self) -> SchemaRef {
        let fields: Vec<Field> = self
            .columns
            .iter()
            .map(|c| Field::new(&c.name, c.column_type.data_type.arrow(), true))
            .collect();
        Arc::new(Schema::new(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_as_flink_does() {
        let row = DataType::Row(vec![Column::new("k", DataType::Int.not_null())]);
        let cases = [
            (DataType::Decimal(10, 2).not_null(), "DECIMAL(10,2) NOT NULL"),
            (DataType::STRING.nullable(), "STRING"),
            (DataType::Varchar(5).nullable(), "VARCHAR(5)"),
            (DataType::TimestampLtz(3).nullable(), "TIMESTAMP_LTZ(3)"),
            (DataType::Array(Box::new(row.nullable())).nullable(), "ARRAY<ROW<k INT NOT NULL>>"),
        ];
        for (column_type, text) in cases {
            assert_eq!(column_type.to_string(), text);
        }
    }
}
