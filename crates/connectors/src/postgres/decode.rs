//! Text of the server to columns.
//!
//! | declared | text |
//! |---|---|
//! | BOOLEAN | `t`, `f` |
//! | integers, FLOAT, DOUBLE | digits |
//! | DECIMAL | digits, rounded HALF_UP to the scale; more digits than it has are an error |
//! | STRING, VARCHAR, CHAR | as it is: whatever the type is in the database |
//! | BYTES | `\x` and hexadecimal digits, or the text itself |
//! | DATE, TIME | ISO |
//! | TIMESTAMP, TIMESTAMP_LTZ | ISO; an offset, if there is one, is that of UTC |
//! | ARRAY | `{a,"b",NULL}`, of one dimension |

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder,
    Float64Builder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, StringViewBuilder,
    Time32MillisecondBuilder,
};
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{NullBufferBuilder, OffsetBufferBuilder};
use arrow_schema::SchemaRef;
use thalweg_core::text::{
    parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp,
};
use thalweg_core::types::timestamps;
use thalweg_core::{Column, ColumnType, DataType, Error, Result, TableSchema};

/// Collects rows.
pub struct RowBuilder {
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    rows: usize,
}

impl RowBuilder {
    /// Rows with these columns.
    pub fn new(columns: &TableSchema) -> RowBuilder {
        let schema = columns.arrow();
        let columns = columns.columns.iter().map(ColumnBuilder::new).collect();
        RowBuilder { schema, columns, rows: 0 }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If a value is not of the declared type.
    pub fn append<'v>(&mut self, values: impl Iterator<Item = Option<&'v [u8]>>) -> Result<()> {
        let mut values = values;
        for column in &mut self.columns {
            let value = values.next().ok_or_else(|| Error::internal("a row has too few values"))?;
            let text = value.map(std::str::from_utf8).transpose();
            let not_text =
                |_| Error::data(format!("column {}: the text is not UTF-8", column.name));
            column.append(text.map_err(not_text)?)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Adds a row of which only the key is known: NULLs in columns that have none become a value of
    /// the type that means nothing.
    ///
    /// # Errors
    /// If a value is not of the declared type.
    pub fn append_key<'v>(&mut self, values: impl Iterator<Item = Option<&'v [u8]>>) -> Result<()> {
        let nothings: Vec<Option<&[u8]>> =
            self.columns.iter().map(ColumnBuilder::nothing).collect();
        self.append(values.zip(nothings).map(|(value, nothing)| value.or(nothing)))
    }

    /// The rows so far; the builder is empty then.
    ///
    /// # Errors
    /// Never, if the builder is right.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// Refuses columns that have no form in the server.
///
/// # Errors
/// If there is one.
pub fn check_types(table: &str, columns: &TableSchema) -> Result<()> {
    let is_known = |of: &ColumnType| match &of.data_type {
        DataType::Array(element) => !matches!(element.data_type, DataType::Array(_)),
        of => !matches!(
            of,
            DataType::Null
                | DataType::Map(..)
                | DataType::Row(_)
                | DataType::IntervalYearMonth
                | DataType::IntervalDayTime
        ),
    };
    match columns.columns.iter().find(|column| !is_known(&column.column_type)) {
        None => Ok(()),
        Some(Column { name, column_type, .. }) => Err(Error::unsupported(format!(
            "table {table}: column {name} is {column_type}, which PostgreSQL has not"
        ))
        .hint("declare it as STRING, and convert it in the query")),
    }
}

struct ColumnBuilder {
    name: String,
    of: ColumnType,
    values: Values,
}

enum Values {
    Boolean(BooleanBuilder),
    TinyInt(Int8Builder),
    SmallInt(Int16Builder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder, u8, u8),
    Text(StringViewBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time32MillisecondBuilder, u8),
    Timestamp { values: Int64Builder, precision: u8, is_instant: bool },
    List(Box<ColumnBuilder>, OffsetBufferBuilder<i32>, NullBufferBuilder),
}

impl Values {
    fn new(of: &ColumnType) -> Values {
        match &of.data_type {
            DataType::Boolean => Values::Boolean(BooleanBuilder::new()),
            DataType::TinyInt => Values::TinyInt(Int8Builder::new()),
            DataType::SmallInt => Values::SmallInt(Int16Builder::new()),
            DataType::Int => Values::Int(Int32Builder::new()),
            DataType::BigInt => Values::BigInt(Int64Builder::new()),
            DataType::Float => Values::Float(Float32Builder::new()),
            DataType::Double => Values::Double(Float64Builder::new()),
            DataType::Decimal(precision, scale) => {
                let builder = Decimal128Builder::new().with_data_type(of.data_type.arrow());
                Values::Decimal(builder, *precision, *scale)
            }
            DataType::Binary(_) | DataType::Varbinary(_) => Values::Bytes(BinaryBuilder::new()),
            DataType::Date => Values::Date(Date32Builder::new()),
            DataType::Time(precision) => Values::Time(Time32MillisecondBuilder::new(), *precision),
            DataType::Timestamp(precision) | DataType::TimestampLtz(precision) => {
                let is_instant = matches!(of.data_type, DataType::TimestampLtz(_));
                Values::Timestamp { values: Int64Builder::new(), precision: *precision, is_instant }
            }
            DataType::Array(element) => {
                let element = Column::new("item", (**element).clone());
                let builder = Box::new(ColumnBuilder::new(&element));
                Values::List(builder, OffsetBufferBuilder::new(0), NullBufferBuilder::new(0))
            }
            // Other types are refused by `check_types`.
            _ => Values::Text(StringViewBuilder::new().with_deduplicate_strings()),
        }
    }

    /// Appends a value; `None` if the text is none of the type.
    fn append(&mut self, text: Option<&str>) -> Option<()> {
        macro_rules! put {
            ($builder:expr, $parse:expr) => {
                match text {
                    None => $builder.append_null(),
                    Some(text) => $builder.append_value($parse(text)?),
                }
            };
        }
        match self {
            Values::Boolean(builder) => put!(builder, boolean),
            Values::TinyInt(builder) => put!(builder, |t| parse_integer(t)?.try_into().ok()),
            Values::SmallInt(builder) => put!(builder, |t| parse_integer(t)?.try_into().ok()),
            Values::Int(builder) => put!(builder, |t| parse_integer(t)?.try_into().ok()),
            Values::BigInt(builder) => put!(builder, parse_integer),
            Values::Float(builder) => put!(builder, parse_float),
            Values::Double(builder) => put!(builder, parse_double),
            Values::Decimal(builder, precision, scale) => {
                put!(builder, |t| parse_decimal(t, *precision, *scale).ok().flatten());
            }
            Values::Text(builder) => builder.append_option(text),
            Values::Bytes(builder) => put!(builder, bytes),
            Values::Date(builder) => put!(builder, parse_date),
            Values::Time(builder, precision) => put!(builder, |t| parse_time(t, *precision)),
            Values::Timestamp { values, precision, .. } => {
                put!(values, |t: &str| parse_timestamp(without_utc(t), *precision));
            }
            Values::List(element, offsets, nulls) => {
                let elements = text.map(array_elements).unwrap_or(Some(Vec::new()))?;
                offsets.push_length(elements.len());
                nulls.append(text.is_some());
                for value in elements {
                    element.append(value.as_deref()).ok()?;
                }
            }
        }
        Some(())
    }

    fn finish(&mut self, of: &ColumnType) -> ArrayRef {
        match self {
            Values::Boolean(builder) => Arc::new(builder.finish()),
            Values::TinyInt(builder) => Arc::new(builder.finish()),
            Values::SmallInt(builder) => Arc::new(builder.finish()),
            Values::Int(builder) => Arc::new(builder.finish()),
            Values::BigInt(builder) => Arc::new(builder.finish()),
            Values::Float(builder) => Arc::new(builder.finish()),
            Values::Double(builder) => Arc::new(builder.finish()),
            Values::Decimal(builder, ..) => Arc::new(builder.finish()),
            Values::Text(builder) => Arc::new(builder.finish()),
            Values::Bytes(builder) => Arc::new(builder.finish()),
            Values::Date(builder) => Arc::new(builder.finish()),
            Values::Time(builder, _) => Arc::new(builder.finish()),
            Values::Timestamp { values, precision, is_instant } => {
                timestamps(&values.finish(), *precision, *is_instant)
            }
            Values::List(element, offsets, nulls) => {
                let offsets = std::mem::replace(offsets, OffsetBufferBuilder::new(0)).finish();
                let values = element.finish();
                let field = Arc::new(element.of.field("item"));
                debug_assert!(matches!(of.data_type, DataType::Array(_)));
                Arc::new(ListArray::new(field, offsets, values, nulls.finish()))
            }
        }
    }
}

impl ColumnBuilder {
    fn new(column: &Column) -> ColumnBuilder {
        let of = column.column_type.clone();
        ColumnBuilder { name: column.name.clone(), values: Values::new(&of), of }
    }

    fn append(&mut self, text: Option<&str>) -> Result<()> {
        let (name, of) = (&self.name, &self.of);
        if text.is_none() && !of.nullable {
            return Err(Error::data(format!(
                "column {name}: a NULL, but the column is declared {of}"
            ))
            .hint("declare the column without NOT NULL, and leave it out of the primary key"));
        }
        self.values.append(text).ok_or_else(|| {
            let shown: String = text.unwrap_or("NULL").chars().take(80).collect();
            Error::data(format!("column {name}: '{shown}' is not a {}", of.data_type))
                .hint("declare the column as it is in the database; STRING takes every type")
        })
    }

    /// What stands for NULL where there must be none.
    fn nothing(&self) -> Option<&'static [u8]> {
        let text = match &self.values {
            _ if self.of.nullable => return None,
            Values::Boolean(_) => "f",
            Values::Text(_) | Values::Bytes(_) => "",
            Values::Date(_) => "1970-01-01",
            Values::Time(..) => "00:00:00",
            Values::Timestamp { .. } => "1970-01-01 00:00:00",
            Values::List(..) => "{}",
            _ => "0",
        };
        Some(text.as_bytes())
    }

    fn finish(&mut self) -> ArrayRef {
        let array = self.values.finish(&self.of);
        debug_assert_eq!(array.data_type(), &self.of.data_type.arrow());
        array
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "t" | "true" => Some(true),
        "f" | "false" => Some(false),
        _ => None,
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("\\x") else { return Some(text.as_bytes().to_vec()) };
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// Sessions are in UTC, so instants end with its offset.
fn without_utc(text: &str) -> &str {
    text.strip_suffix("+00").unwrap_or(text)
}

/// The elements of `{a,"b \"c\"",NULL}`; `None` if it is no array of one dimension.
fn array_elements(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        let (mut element, is_quoted) = (String::new(), chars.next_if_eq(&'"').is_some());
        loop {
            match chars.next() {
                Some('\\') => element.push(chars.next()?),
                Some('"') if is_quoted => break,
                None if is_quoted => return None,
                Some('{') if !is_quoted => return None,
                Some(c) if is_quoted || c != ',' => element.push(c),
                _ => {
                    elements.push((element != "NULL").then_some(element));
                    element = String::new();
                    break;
                }
            }
        }
        if is_quoted {
            elements.push(Some(element));
            let _comma = chars.next_if_eq(&',');
        }
    }
    Some(elements)
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    fn column(data_type: DataType, texts: &[Option<&str>]) -> Result<ArrayRef> {
        let schema = TableSchema::new(vec![Column::new("c", data_type.nullable())]);
        let mut builder = RowBuilder::new(&schema);
        for text in texts {
            builder.append(std::iter::once(text.map(str::as_bytes)))?;
        }
        Ok(builder.finish()?.column(0).clone())
    }

    #[test]
    fn arrays_are_taken_apart() {
        let some = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("{}", Some(vec![])),
            ("{1,2}", Some(vec![some("1"), some("2")])),
            ("{a,NULL,\"NULL\"}", Some(vec![some("a"), None, some("NULL")])),
            (r#"{"a,\"b\"","c\\d",e}"#, Some(vec![some("a,\"b\""), some("c\\d"), some("e")])),
            ("{{1},{2}}", None),
            ("1", None),
            ("{\"a", None),
        ] {
            assert_eq!(array_elements(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_become_values() {
        let list = DataType::Array(Box::new(DataType::BigInt.nullable()));
        let lists = column(list, &[Some("{1,NULL}"), None, Some("{}")]).expect("arrays");
        assert_eq!(lists.as_list::<i32>().value(0).as_primitive::<Int64Type>().value(0), 1);
        assert_eq!((lists.len(), lists.null_count()), (3, 1));
        let instant = column(DataType::TimestampLtz(3), &[Some("1970-01-01 00:00:01.5+00")]);
        assert_eq!(
            instant.expect("an instant").to_data().buffers()[0].typed_data::<i64>(),
            [1_500]
        );
        let bytes = column(DataType::BYTES, &[Some("\\x00ff")]).expect("bytes");
        assert_eq!(bytes.as_binary::<i32>().value(0), [0, 255]);
        for (data_type, text) in [
            (DataType::Int, "3000000000"),
            (DataType::Int, "1.5"),
            (DataType::Decimal(3, 1), "1000"),
            (DataType::Decimal(3, 1), "NaN"),
            (DataType::Timestamp(3), "infinity"),
            (DataType::Boolean, "yes"),
        ] {
            let error = column(data_type, &[Some(text)]).expect_err(text);
            assert!(error.message().contains(text), "{error}");
        }
    }
}
