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

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use thalweg_core::text::{
    parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp,
};
use thalweg_core::{Column, ColumnType, DataType, Error, Result, TableSchema};

use crate::format::builder::{ColumnBuilder, Field, Values};

/// Collects rows.
pub struct RowBuilder {
    columns: TableSchema,
    schema: SchemaRef,
    fields: Vec<Field>,
    rows: usize,
}

impl RowBuilder {
    /// Rows with these columns, which [`check_types`] has passed.
    pub fn new(columns: &TableSchema) -> RowBuilder {
        let (schema, fields) = (columns.arrow(), fields_of(columns));
        RowBuilder { columns: columns.clone(), schema, fields, rows: 0 }
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
        self.append_row(values, false)
    }

    /// Adds a row of which only the key is known: NULLs in columns that have none become a value of
    /// the type that means nothing.
    ///
    /// # Errors
    /// If a value is not of the declared type.
    pub fn append_key<'v>(&mut self, values: impl Iterator<Item = Option<&'v [u8]>>) -> Result<()> {
        self.append_row(values, true)
    }

    fn append_row<'v>(
        &mut self,
        mut values: impl Iterator<Item = Option<&'v [u8]>>,
        is_key_alone: bool,
    ) -> Result<()> {
        for (field, declared) in self.fields.iter_mut().zip(&self.columns.columns) {
            let value = values.next().ok_or_else(|| Error::internal("a row has too few values"))?;
            let text = value.map(std::str::from_utf8).transpose();
            let not_text =
                |_| Error::data(format!("column {}: the text is not UTF-8", declared.name));
            match text.map_err(not_text)? {
                None if is_key_alone => field.column.append_null(),
                text => append(&mut field.column, text).ok_or_else(|| unfit(declared, text))?,
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// The rows so far; the builder is empty then.
    ///
    /// # Errors
    /// Never, if the builder is right.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let fields = std::mem::replace(&mut self.fields, fields_of(&self.columns));
        let arrays =
            fields.into_iter().map(|field| field.column.finish()).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

fn fields_of(columns: &TableSchema) -> Vec<Field> {
    Field::of(&columns.columns).expect("columns of bare NULLs are refused")
}

/// The error of a value that its column cannot hold.
fn unfit(column: &Column, text: Option<&str>) -> Error {
    let Column { name, column_type, .. } = column;
    let Some(text) = text else {
        return Error::data(format!(
            "column {name}: a NULL, but the column is declared {column_type}"
        ))
        .hint("declare the column without NOT NULL, and leave it out of the primary key");
    };
    let shown: String = text.chars().take(80).collect();
    Error::data(format!("column {name}: '{shown}' is not a {}", column_type.data_type))
        .hint("declare the column as it is in the database; STRING takes every type")
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

/// Appends a value; `None` if the text is none of the type.
fn append(to: &mut ColumnBuilder, text: Option<&str>) -> Option<()> {
    let Some(text) = text else {
        return to.is_nullable().then(|| to.append_null());
    };
    match &mut to.values {
        Values::Text(values) => {
            values.append_value(text);
            return Some(());
        }
        Values::Bytes(values) => {
            values.append_value(bytes(text)?);
            return Some(());
        }
        Values::Boolean(values) => values.append(boolean(text)?),
        Values::TinyInt(values) => values.push(parse_integer(text)?.try_into().ok()?),
        Values::SmallInt(values) => values.push(parse_integer(text)?.try_into().ok()?),
        Values::Int(values) => values.push(parse_integer(text)?.try_into().ok()?),
        Values::BigInt(values) => values.push(parse_integer(text)?),
        Values::Float(values) => values.push(parse_float(text)?),
        Values::Double(values) => values.push(parse_double(text)?),
        Values::Decimal(precision, scale, values) => {
            values.push(parse_decimal(text, *precision, *scale).ok().flatten()?);
        }
        Values::Date(values) => values.push(parse_date(text)?),
        Values::Time(precision, values) => values.push(parse_time(text, *precision)?),
        Values::Timestamp(precision, _, values) => {
            values.push(parse_timestamp(without_utc(text), *precision)?);
        }
        Values::Array(ends, element) => {
            for value in array_elements(text)? {
                append(element, value.as_deref())?;
            }
            ends.push(element.len());
        }
        // `check_types` refuses them.
        Values::Months(_) | Values::Millis(_) | Values::Map(..) | Values::Row(_) => return None,
    }
    to.appended();
    Some(())
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
    use arrow_array::ArrayRef;
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
