//! Where the parts of a record go: a schema that wrote records, matched with the columns that are
//! wanted of them, once. Fields are found by name, as Avro's schema resolution has it.

use thalweg_core::types::timestamp_units_per_ms;
use thalweg_core::{Column, DataType, Error, Result};

use super::schema::{Logical, Schema};

/// What is done with the bytes of a record.
#[derive(Debug)]
pub struct Plan {
    /// By field of the record, in its order.
    pub fields: Vec<Step>,
    /// Columns that the record has no field for; they are NULL.
    pub absent: Vec<usize>,
}

/// What is done with the bytes of a field of a record.
#[derive(Debug)]
pub enum Step {
    /// They go into the column at this place.
    Read(usize, Read),
    /// They are passed over.
    Skip(Schema),
}

/// How the bytes of a value become one of a column.
#[derive(Debug)]
pub enum Read {
    /// There are none: NULL.
    Null,
    Boolean,
    /// A number of variable length, for any numeric column.
    Integer,
    Float,
    Double,
    /// A number that is multiplied, then divided.
    Scaled(i64, i64),
    /// Bytes with their length, as text or bytes.
    Bytes,
    /// This number of bytes.
    Fixed(usize),
    /// Bytes of an unscaled number with this scale; with their length, or this number.
    Decimal(Option<usize>, u8),
    Enum(Vec<String>),
    Array(Box<Read>),
    Map(Box<Read>),
    Row(Plan),
    /// NULL, or a value; true if NULL is the first of both.
    Optional(bool, Box<Read>),
    /// One of several, by number.
    Union(Vec<Read>),
    /// A branch that the column cannot hold: why.
    Unfit(String),
}

impl Plan {
    /// The plan for reading these columns of records with a schema.
    ///
    /// # Errors
    /// If a column is of another type than its field, or has no field and is NOT NULL.
    pub fn new(schema: &Schema, columns: &[&Column]) -> Result<Plan> {
        let Schema::Record(fields) = schema else {
            return Err(Error::data("the schema is of no record"));
        };
        let mut absent: Vec<usize> = (0..columns.len()).collect();
        let steps = fields.iter().map(|field| {
            let place = columns.iter().position(|column| column.name == field.name);
            let Some(place) = place else { return Ok(Step::Skip(field.schema.clone())) };
            absent.retain(|&at| at != place);
            let read = Read::new(&field.schema, &columns[place].column_type.data_type);
            let read = read.map_err(|reason| {
                let name = &field.name;
                Error::data(format!("column {name}: {reason}"))
                    .hint("declare the column as the schema has it and CAST it in the query")
            })?;
            Ok(Step::Read(place, read))
        });
        let fields = steps.collect::<Result<Vec<_>>>()?;
        let required = absent.iter().map(|&at| columns[at]).find(|c| !c.column_type.nullable);
        match required {
            None => Ok(Plan { fields, absent }),
            Some(column) => Err(Error::data(format!(
                "column {} is NOT NULL, but the schema that wrote the records has no such field",
                column.name
            ))
            .hint("declare the column without NOT NULL")),
        }
    }
}

impl Read {
    fn new(schema: &Schema, data_type: &DataType) -> Result<Read, String> {
        let unfit = || format!("{} in the schema, but {data_type} in the table", name(schema));
        let inner =
            |schema: &Schema, data_type: &DataType| Read::new(schema, data_type).map(Box::new);
        Ok(match (schema, data_type) {
            (Schema::Union(branches), _) => return Read::union(branches, data_type),
            (Schema::Null, _) => Read::Null,
            (Schema::Boolean, DataType::Boolean) => Read::Boolean,
            (Schema::Int(logical) | Schema::Long(logical), _) => {
                Read::integer(*logical, data_type).ok_or_else(unfit)?
            }
            (Schema::Float, DataType::Float | DataType::Double) => Read::Float,
            (Schema::Double, DataType::Double) => Read::Double,
            (Schema::Bytes(Logical::Decimal(_, scale)), DataType::Decimal(..)) => {
                Read::Decimal(None, *scale)
            }
            (Schema::Fixed(size, Logical::Decimal(_, scale)), DataType::Decimal(..)) => {
                Read::Decimal(Some(*size), *scale)
            }
            (Schema::Bytes(_), other) if other.is_binary() => Read::Bytes,
            (Schema::Fixed(size, _), other) if other.is_binary() => Read::Fixed(*size),
            (Schema::String | Schema::Bytes(_), other) if other.is_string() => Read::Bytes,
            (Schema::String, other) if other.is_binary() => Read::Bytes,
            (Schema::Enum(words), other) if other.is_string() => Read::Enum(words.clone()),
            (Schema::Array(items), DataType::Array(element)) => {
                Read::Array(inner(items, &element.data_type)?)
            }
            (Schema::Map(values), DataType::Map(key, value)) if key.data_type.is_string() => {
                Read::Map(inner(values, &value.data_type)?)
            }
            (Schema::Record(_), DataType::Row(columns)) => {
                let columns: Vec<&Column> = columns.iter().collect();
                Read::Row(Plan::new(schema, &columns).map_err(|e| e.message().to_owned())?)
            }
            _ => return Err(unfit()),
        })
    }

    fn integer(logical: Logical, data_type: &DataType) -> Option<Read> {
        Some(match (logical, data_type) {
            (Logical::None, numeric) if numeric.is_integer() || numeric.is_float() => Read::Integer,
            (Logical::None | Logical::Date, DataType::Date) => Read::Integer,
            (Logical::None | Logical::TimeMillis, DataType::Time(_)) => Read::Integer,
            (Logical::TimeMicros, DataType::Time(_)) => Read::Scaled(1, 1_000),
            (_, DataType::BigInt) => Read::Integer,
            (
                Logical::None | Logical::Timestamp(_),
                DataType::Timestamp(precision) | DataType::TimestampLtz(precision),
            ) => {
                let stored = 1_000 * timestamp_units_per_ms(*precision);
                let written = match logical {
                    Logical::Timestamp(per_second) => per_second,
                    _ => 1_000,
                };
                match stored >= written {
                    true if stored == written => Read::Integer,
                    true => Read::Scaled(stored / written, 1),
                    false => Read::Scaled(1, written / stored),
                }
            }
            _ => return None,
        })
    }

    /// A value of one of several types. Those that do not fit are refused where they occur.
    fn union(branches: &[Schema], data_type: &DataType) -> Result<Read, String> {
        let reads: Vec<Result<Read, String>> =
            branches.iter().map(|branch| Read::new(branch, data_type)).collect();
        let has_value = reads
            .iter()
            .zip(branches)
            .any(|(read, branch)| read.is_ok() && *branch != Schema::Null);
        if !has_value && let Some(Err(reason)) = reads.iter().find(|read| read.is_err()) {
            return Err(reason.clone());
        }
        let mut reads: Vec<Read> =
            reads.into_iter().map(|read| read.unwrap_or_else(Read::Unfit)).collect();
        let is_null_first = branches.first() == Some(&Schema::Null);
        if branches.len() == 2 && branches.contains(&Schema::Null) {
            let value = reads.swap_remove(usize::from(is_null_first));
            return Ok(Read::Optional(is_null_first, Box::new(value)));
        }
        Ok(Read::Union(reads))
    }
}

fn name(schema: &Schema) -> &'static str {
    match schema {
        Schema::Null => "null",
        Schema::Boolean => "boolean",
        Schema::Int(_) => "int",
        Schema::Long(_) => "long",
        Schema::Float => "float",
        Schema::Double => "double",
        Schema::Bytes(_) => "bytes",
        Schema::String => "string",
        Schema::Fixed(..) => "fixed",
        Schema::Enum(_) => "enum",
        Schema::Array(_) => "array",
        Schema::Map(_) => "map",
        Schema::Union(_) => "union",
        Schema::Record(_) => "record",
    }
}
