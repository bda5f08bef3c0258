//! How keys and states stand in tables of state: as typed columns where that loses nothing, else as
//! bytes.
//!
//! A number, a truth value or a text, and a struct or tuple of such, stand in columns, so that a
//! snapshot can be read by anything. Whatever else serde can write (options, lists, maps, enums)
//! stands in one column of bytes, written by postcard as rows are.
//!
//! **Invariant:** the form follows from the type alone, so every run of a program writes and reads
//! the same columns. What is read is looked for by name and type; what is not there is an error of
//! the snapshot.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StructArray};
use arrow_schema::{DataType as Arrow, Field, FieldRef, Fields};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};
use serde_arrow::utils::{Item, Items};
use thalweg_core::{Error, ErrorKind, Result};
use thalweg_operators::tables::{column, does_not_fit};

/// How the values of a type stand in a table.
pub(super) struct ValueColumns<T> {
    /// Of the column, or how the columns begin.
    name: &'static str,
    form: Form,
    values: PhantomData<fn() -> T>,
}

enum Form {
    /// One column, for a value of this field.
    Column(FieldRef),
    /// A column for each of the fields of a value, which is a struct.
    Columns { whole: FieldRef, parts: Fields },
    /// A column of bytes.
    Bytes,
}

impl<T: Serialize + DeserializeOwned> ValueColumns<T> {
    /// Finds the form for a type.
    pub(super) fn new(name: &'static str) -> Self {
        ValueColumns {
            name,
            form: traced::<T>().map_or(Form::Bytes, Form::of),
            values: PhantomData,
        }
    }

    /// The columns.
    pub(super) fn fields(&self) -> Vec<Field> {
        match &self.form {
            Form::Column(field) => vec![Field::new(self.name, field.data_type().clone(), true)],
            Form::Columns { parts, .. } => {
                let named = |part: &FieldRef| {
                    let name = format!("{}_{}", self.name, part.name());
                    Field::new(name, part.data_type().clone(), true)
                };
                parts.iter().map(named).collect()
            }
            Form::Bytes => vec![Field::new(self.name, Arrow::Binary, true)],
        }
    }

    /// Values as columns.
    ///
    /// # Errors
    /// If serde cannot write one.
    pub(super) fn columns(&self, values: &[&T]) -> Result<Vec<ArrayRef>> {
        match &self.form {
            Form::Column(field) => arrays(field, values),
            Form::Columns { whole, .. } => {
                let arrays = arrays(whole, values)?;
                Ok(arrays.first().map_or_else(Vec::new, |a| a.as_struct().columns().to_vec()))
            }
            Form::Bytes => {
                let bytes = values.iter().copied().map(written::<T>);
                let bytes = bytes.collect::<Result<Vec<_>>>()?;
                Ok(vec![Arc::new(BinaryArray::from_iter_values(bytes))])
            }
        }
    }

    /// The values of a batch of the table.
    ///
    /// # Errors
    /// If a column is not there or of another type, or holds something else.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<Vec<T>> {
        let mut columns = Vec::new();
        for field in self.fields() {
            let found = column(batch, field.name())?;
            if found.data_type() != field.data_type() || found.null_count() > 0 {
                let (name, of) = (field.name(), found.data_type());
                return Err(does_not_fit(format!("column '{name}' is of type {of}, or has NULL")));
            }
            columns.push(Arc::clone(found));
        }
        match &self.form {
            Form::Column(field) => read(field, &columns),
            Form::Columns { whole, parts } => {
                let values = StructArray::try_new(parts.clone(), columns, None)?;
                read(whole, &[Arc::new(values)])
            }
            Form::Bytes => {
                let bytes = columns.first().and_then(|column| column.as_binary_opt::<i32>());
                let bytes = bytes.ok_or_else(|| does_not_fit("there are no bytes".to_owned()))?;
                (0..bytes.len()).map(|row| unpacked(bytes.value(row))).collect()
            }
        }
    }
}

impl Form {
    fn of(field: FieldRef) -> Form {
        match field.data_type() {
            _ if is_plain(&field) => Form::Column(field),
            Arrow::Struct(parts) if !field.is_nullable() && !parts.is_empty() => {
                match parts.iter().all(is_plain) {
                    true => Form::Columns { parts: parts.clone(), whole: field },
                    false => Form::Bytes,
                }
            }
            _ => Form::Bytes,
        }
    }
}

/// True if a column of the type holds each value and nothing else. Where there can be NULL, options
/// of options would become one.
fn is_plain(field: &FieldRef) -> bool {
    let is_scalar = field.data_type().is_integer()
        || matches!(
            field.data_type(),
            Arrow::Boolean | Arrow::Float32 | Arrow::Float64 | Arrow::Utf8
        );
    is_scalar && !field.is_nullable()
}

/// The field of a type, if what serde says of the type decides it.
fn traced<T: DeserializeOwned>() -> Option<FieldRef> {
    let options = TracingOptions::default().map_as_struct(false).strings_as_large_utf8(false);
    let fields = Vec::<FieldRef>::from_type::<Item<T>>(options).ok()?;
    fields.into_iter().next()
}

fn arrays<T: Serialize>(field: &FieldRef, values: &[&T]) -> Result<Vec<ArrayRef>> {
    serde_arrow::to_arrow(std::slice::from_ref(field), Items(values)).map_err(unwritable::<T>)
}

fn read<T: DeserializeOwned>(field: &FieldRef, columns: &[ArrayRef]) -> Result<Vec<T>> {
    let values = serde_arrow::from_arrow(std::slice::from_ref(field), columns);
    let Items(values): Items<Vec<T>> = values.map_err(|error| unreadable::<T>(&error))?;
    Ok(values)
}

fn written<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_extend(value, Vec::new()).map_err(unwritable::<T>)
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| unreadable::<T>(&error))
}

fn unwritable<T>(error: impl std::fmt::Display) -> Error {
    let name = std::any::type_name::<T>();
    let message = format!("a value of type {name} cannot be written to a snapshot: {error}");
    Error::new(ErrorKind::User, message)
        .hint("keep what serde writes without asking for lengths or names behind the values")
}

fn unreadable<T>(error: &dyn std::fmt::Display) -> Error {
    let name = std::any::type_name::<T>();
    does_not_fit(format!("no value of type {name} can be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    fn columns_of<T: Serialize + DeserializeOwned + PartialEq + Debug>(values: &[T]) -> String {
        let layout = ValueColumns::<T>::new("key");
        let references: Vec<&T> = values.iter().collect();
        let columns = layout.columns(&references).expect("values are written");
        let fields = layout.fields();
        let schema = Arc::new(arrow_schema::Schema::new(fields.clone()));
        let batch = RecordBatch::try_new(schema, columns).expect("columns fit");
        assert_eq!(layout.values(&batch).expect("values are read"), values);
        let named = fields.iter().map(|field| format!("{} {}", field.name(), field.data_type()));
        named.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn plain_values_have_columns_and_others_bytes() {
        assert_eq!(columns_of(&[1u64, u64::MAX]), "key UInt64");
        assert_eq!(columns_of(&[-1i8]), "key Int8");
        assert_eq!(columns_of(&["a".to_owned(), String::new()]), "key Utf8");
        assert_eq!(columns_of(&[(1i64, "b".to_owned())]), "key_0 Int64, key_1 Utf8");
        assert_eq!(columns_of(&[0.1f64, -0.0]), "key Float64");
        assert_eq!(columns_of(&[true]), "key Boolean");
        for columns in [
            columns_of(&[Some(Some(1i64)), Some(None), None]),
            columns_of(&[()]),
            columns_of(&[vec![1u8, 2]]),
            columns_of(&[u128::MAX]),
            columns_of(&[(1u8, Some(2u8))]),
            columns_of(&[BTreeMap::from([(1, "one".to_owned())])]),
            columns_of(&[std::net::Ipv4Addr::LOCALHOST]),
            columns_of(&[Ok::<i32, String>(1), Err("no".to_owned())]),
        ] {
            assert_eq!(columns, "key Binary");
        }
    }

    #[test]
    fn what_is_something_else_is_an_error() {
        let layout = ValueColumns::<u64>::new("key");
        let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a"]));
        let batch = RecordBatch::try_from_iter([("key", texts)]).expect("one column");
        assert!(layout.values(&batch).is_err());
        let pairs = ValueColumns::<Vec<String>>::new("key");
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[255u8, 255, 255]]));
        let batch = RecordBatch::try_from_iter([("key", bytes)]).expect("one column");
        let error = pairs.values(&batch).expect_err("three bytes are no list");
        assert!(error.help().is_some_and(|help| help.contains("damaged")), "{error}");
    }
}
