//! Avro's schemas: read from JSON, and derived from SQL types as Flink derives them.
//!
//! Source: Apache Avro 1.12 specification, "Schema Declaration" and "Logical Types".

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

/// A type of Avro.
#[derive(Clone, Debug, PartialEq)]
pub enum Schema {
    Null,
    Boolean,
    Int(Logical),
    Long(Logical),
    Float,
    Double,
    Bytes(Logical),
    String,
    /// This number of bytes.
    Fixed(usize, Logical),
    /// One of these words.
    Enum(Vec<String>),
    Array(Box<Schema>),
    /// Keys are strings.
    Map(Box<Schema>),
    Union(Vec<Schema>),
    /// Named fields.
    Record(Vec<RecordField>),
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub schema: Schema,
}

/// What numbers or bytes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logical {
    /// Themselves.
    None,
    Date,
    TimeMillis,
    TimeMicros,
    /// Times, in this number of units a second; an instant or a wall clock reading.
    Timestamp(i64),
    /// Unscaled, with this scale.
    Decimal(u8, u8),
}

/// The name that Flink gives to the schema of a table.
const RECORD_NAME: &str = "org.apache.flink.avro.generated.record";

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// If the text is none, or refers to itself.
    pub fn parse(text: &str) -> Result<Schema> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| Error::data(format!("the schema is not JSON: {e}")))?;
        Parser { named: HashMap::new() }.schema(&value, "")
    }
}

struct Parser {
    /// The named types that are complete.
    named: HashMap<String, Schema>,
}

impl Parser {
    fn schema(&mut self, value: &Value, namespace: &str) -> Result<Schema> {
        match value {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.schema(branch, namespace));
                branches.collect::<Result<_>>().map(Schema::Union)
            }
            Value::Object(object) => self.object(object, namespace),
            other => Err(Error::data(format!("{other} is no Avro type"))),
        }
    }

    fn named(&self, name: &str, namespace: &str) -> Result<Schema> {
        Ok(match name {
            "null" => Schema::Null,
            "boolean" => Schema::Boolean,
            "int" => Schema::Int(Logical::None),
            "long" => Schema::Long(Logical::None),
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" => Schema::Bytes(Logical::None),
            "string" => Schema::String,
            name => {
                let found = self.named.get(&full_name(name, namespace));
                found.or_else(|| self.named.get(name)).cloned().ok_or_else(|| {
                    Error::unsupported(format!(
                        "Avro type '{name}' is unknown, or is part of itself"
                    ))
                })?
            }
        })
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<Schema> {
        let part = |key: &str| {
            object.get(key).ok_or_else(|| Error::data(format!("an Avro type lacks '{key}'")))
        };
        let Some(kind) = part("type")?.as_str() else {
            return self.schema(part("type")?, namespace);
        };
        let name = object.get("name").and_then(Value::as_str).unwrap_or_default();
        let namespace = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, namespace);
        let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let schema = match kind {
            "record" => {
                let fields = part("fields")?.as_array().map(Vec::as_slice).unwrap_or_default();
                let fields = fields.iter().map(|field| {
                    let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
                    let schema = field.get("type").unwrap_or(&Value::Null);
                    let schema = self.schema(schema, &inner)?;
                    Ok(RecordField { name: name.to_owned(), schema })
                });
                Schema::Record(fields.collect::<Result<_>>()?)
            }
            "enum" => {
                let symbols = part("symbols")?.as_array().map(Vec::as_slice).unwrap_or_default();
                let symbols = symbols.iter().filter_map(Value::as_str).map(str::to_owned);
                Schema::Enum(symbols.collect())
            }
            "fixed" => {
                let size = part("size")?.as_u64().filter(|size| *size <= 1 << 20);
                let size = size.ok_or_else(|| Error::data("an Avro fixed type has no size"))?;
                Schema::Fixed(size as usize, logical(object))
            }
            "array" => return Ok(Schema::Array(Box::new(self.schema(part("items")?, namespace)?))),
            "map" => return Ok(Schema::Map(Box::new(self.schema(part("values")?, namespace)?))),
            plain => {
                return Ok(match self.named(plain, namespace)? {
                    Schema::Int(_) => Schema::Int(logical(object)),
                    Schema::Long(_) => Schema::Long(logical(object)),
                    Schema::Bytes(_) => Schema::Bytes(logical(object)),
                    other => other,
                });
            }
        };
        self.named.insert(full, schema.clone());
        Ok(schema)
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

fn logical(object: &Map<String, Value>) -> Logical {
    let number = |key: &str| object.get(key).and_then(Value::as_u64).unwrap_or(0) as u8;
    match object.get("logicalType").and_then(Value::as_str) {
        Some("date") => Logical::Date,
        Some("time-millis") => Logical::TimeMillis,
        Some("time-micros") => Logical::TimeMicros,
        Some("timestamp-millis" | "local-timestamp-millis") => Logical::Timestamp(1_000),
        Some("timestamp-micros" | "local-timestamp-micros") => Logical::Timestamp(1_000_000),
        Some("timestamp-nanos" | "local-timestamp-nanos") => Logical::Timestamp(1_000_000_000),
        Some("decimal") => Logical::Decimal(number("precision"), number("scale")),
        _ => Logical::None,
    }
}

/// The schema of records with these columns, as JSON.
///
/// # Errors
/// If a type has none.
pub fn text_of_record(columns: &[Column], has_legacy_times: bool) -> Result<String> {
    record(RECORD_NAME, columns, has_legacy_times).map(|value| value.to_string())
}

/// The schema of records with these columns.
///
/// # Errors
/// If a type has none.
pub fn of_record(columns: &[Column], has_legacy_times: bool) -> Result<Schema> {
    let value = record(RECORD_NAME, columns, has_legacy_times)?;
    Parser { named: HashMap::new() }.schema(&value, "")
}

fn record(name: &str, columns: &[Column], has_legacy_times: bool) -> Result<Value> {
    let fields = columns.iter().map(|column| {
        let inner = format!("{name}_{}", column.name);
        let schema = nullable(&inner, &column.column_type, has_legacy_times).map_err(|e| {
            Error::new(e.kind(), format!("column {}: {}", column.name, e.message()))
        })?;
        Ok(match column.column_type.nullable {
            true => json!({"name": column.name, "type": schema, "default": null}),
            false => json!({"name": column.name, "type": schema}),
        })
    });
    let fields = fields.collect::<Result<Vec<Value>>>()?;
    Ok(json!({"type": "record", "name": name, "fields": fields}))
}

fn nullable(name: &str, column_type: &ColumnType, has_legacy_times: bool) -> Result<Value> {
    let schema = derive(name, &column_type.data_type, has_legacy_times)?;
    Ok(if column_type.nullable { json!(["null", schema]) } else { schema })
}

/// The schema of values of a type, as JSON. Within arrays and maps times are always the legacy
/// ones, as in Flink.
pub fn derive(name: &str, data_type: &DataType, has_legacy_times: bool) -> Result<Value> {
    let logical = |base: &str, logical: &str| json!({"type": base, "logicalType": logical});
    Ok(match data_type {
        DataType::Boolean => json!("boolean"),
        DataType::TinyInt | DataType::SmallInt | DataType::Int => json!("int"),
        DataType::BigInt => json!("long"),
        DataType::Float => json!("float"),
        DataType::Double => json!("double"),
        DataType::Char(_) | DataType::Varchar(_) => json!("string"),
        DataType::Binary(_) | DataType::Varbinary(_) => json!("bytes"),
        DataType::Decimal(precision, scale) => {
            json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        }
        DataType::Date => logical("int", "date"),
        DataType::Time(0..=3) => logical("int", "time-millis"),
        DataType::Timestamp(0..=3) if has_legacy_times => logical("long", "timestamp-millis"),
        DataType::Timestamp(0..=3) => logical("long", "local-timestamp-millis"),
        DataType::Timestamp(4..=6) if !has_legacy_times => {
            logical("long", "local-timestamp-micros")
        }
        DataType::TimestampLtz(0..=3) if !has_legacy_times => logical("long", "timestamp-millis"),
        DataType::TimestampLtz(4..=6) if !has_legacy_times => logical("long", "timestamp-micros"),
        DataType::Array(element) => {
            json!({"type": "array", "items": nullable(name, element, true)?})
        }
        DataType::Map(key, value) if key.data_type.is_string() => {
            json!({"type": "map", "values": nullable(name, value, true)?})
        }
        DataType::Row(columns) => record(name, columns, has_legacy_times)?,
        other => {
            let hint = match other {
                DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
                    "see 'avro.timestamp_mapping.legacy' = 'false', and declare at most 6 digits"
                }
                _ => "declare another type",
            };
            return Err(Error::unsupported(format!("Avro has no type for {other}")).hint(hint));
        }
    })
}
