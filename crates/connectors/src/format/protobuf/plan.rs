//! Where the fields of a message go: its type, matched with the columns that are wanted of it,
//! once.

use thalweg_core::{Column, DataType, Error, Result};

use super::types::{FieldType, Kind, MessageType, Scalar, Shape, Types};

/// What is done with a message. The fields that nothing is done with are not in it.
#[derive(Debug)]
pub struct Plan {
    /// Ascending by number.
    pub fields: Vec<Planned>,
}

/// What is done with a field.
#[derive(Debug)]
pub struct Planned {
    /// The field's number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The place of its column; `None` if it is only noted that it is there.
    pub place: Option<usize>,
    /// How a value is read.
    pub read: Read,
    /// The column's value where none was set; `None` is NULL.
    pub absent: Option<Scalar>,
    /// True if a message without it is none.
    pub is_required: bool,
    /// The other fields of which only one is set, as places in [`Plan::fields`].
    pub rivals: Vec<usize>,
}

/// How a value is read.
#[derive(Debug)]
pub enum Read {
    /// A number or bytes.
    Scalar(Kind),
    /// A message, of which a column has the fields. Without one it is NULL, unless `has_default`.
    Message {
        /// Its fields.
        plan: Plan,
        /// True if its fields have their own values where none was set.
        has_default: bool,
    },
    /// Values of which there is any number. Without one they are NULL, unless `has_default`.
    List {
        /// How each is read.
        element: Box<Read>,
        /// True for an empty list where there are none.
        has_default: bool,
    },
    /// Keys and values. Without one they are NULL, unless `has_default`.
    Map {
        /// What keys are, and the value of one that is not set.
        key: (Kind, Scalar),
        /// How values are read, and the value of one that is not set.
        value: Box<(Read, Scalar)>,
        /// True for an empty map where there are none.
        has_default: bool,
    },
    /// It is passed over.
    Nothing,
}

/// What holds for fields without a value.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Those that are no messages, lists or maps have their default.
    pub of_scalars: bool,
    /// All have.
    pub of_all: bool,
}

impl Plan {
    /// The plan for reading these columns of a message.
    ///
    /// # Errors
    /// If a column is of another type than its field, or has none.
    pub fn new(
        types: &Types,
        message: &MessageType,
        columns: &[&Column],
        defaults: Defaults,
    ) -> Result<Plan> {
        for column in columns {
            if !message.fields.iter().any(|field| field.name == column.name) {
                return Err(no_field(message, &column.name));
            }
        }
        let place = |field: &FieldType| columns.iter().position(|column| column.name == field.name);
        let is_noted = |field: &&FieldType| {
            let is_rival = field.oneof.is_some_and(|oneof| {
                let members = message.fields.iter().filter(|other| other.oneof == Some(oneof));
                members.map(place).any(|place| place.is_some())
            });
            place(field).is_some() || field.is_required || is_rival
        };
        let noted: Vec<&FieldType> = message.fields.iter().filter(is_noted).collect();
        let fields = noted.iter().enumerate().map(|(own, field)| {
            let rivals = noted.iter().enumerate().filter(|(at, other)| {
                *at != own && field.oneof.is_some() && other.oneof == field.oneof
            });
            let rivals = rivals.map(|(at, _)| at).collect();
            let place = place(field);
            let read = match place.map(|at| columns[at]) {
                None => Read::Nothing,
                Some(column) => Read::of_field(types, field, column, defaults)?,
            };
            Ok(Planned {
                number: field.number,
                name: field.name.clone(),
                place,
                read,
                absent: defaults.of_scalars.then(|| field.default.clone()),
                is_required: field.is_required,
                rivals,
            })
        });
        Ok(Plan { fields: fields.collect::<Result<_>>()? })
    }
}

/// The error of a column that a message has no field for.
pub fn no_field(message: &MessageType, column: &str) -> Error {
    let names: Vec<&str> = message.fields.iter().map(|field| field.name.as_str()).collect();
    Error::plan(format!("column {column}: message {} has no such field", message.name))
        .hint(format!("it has {}", names.join(", ")))
}

impl Read {
    fn of_field(
        types: &Types,
        field: &FieldType,
        column: &Column,
        defaults: Defaults,
    ) -> Result<Read> {
        let data_type = &column.column_type.data_type;
        let name = &field.name;
        let (has_default, unfit) = (defaults.of_all, || unfit(field, data_type));
        Ok(match (field.shape, data_type) {
            (Shape::Single, _) => {
                Read::of_value(types, name, field.kind, data_type, defaults)?.ok_or_else(unfit)?
            }
            (Shape::List, DataType::Array(element)) => {
                let element = &element.data_type;
                let element = Read::of_value(types, name, field.kind, element, defaults)?;
                Read::List { element: Box::new(element.ok_or_else(unfit)?), has_default }
            }
            (Shape::Map, DataType::Map(key, value)) => {
                let (key_field, value_field) = entry(types, field).ok_or_else(unfit)?;
                let key_type = &key.data_type;
                let read = Read::of_value(types, name, key_field.kind, key_type, defaults)?;
                if !matches!(read, Some(Read::Scalar(_))) {
                    return Err(unfit());
                }
                let value = &value.data_type;
                let value = Read::of_value(types, name, value_field.kind, value, defaults)?;
                Read::Map {
                    key: (key_field.kind, key_field.default.clone()),
                    value: Box::new((value.ok_or_else(unfit)?, value_field.default.clone())),
                    has_default,
                }
            }
            _ => return Err(unfit()),
        })
    }

    /// How one value is read; `None` if a column of this type cannot hold it.
    fn of_value(
        types: &Types,
        name: &str,
        kind: Kind,
        data_type: &DataType,
        defaults: Defaults,
    ) -> Result<Option<Read>> {
        match (kind, data_type) {
            (Kind::Message(at), DataType::Row(columns)) => {
                let columns: Vec<&Column> = columns.iter().collect();
                let plan = Plan::new(types, &types.messages[at], &columns, defaults);
                let plan = plan.map_err(|e| {
                    let message = format!("within {name}: {}", e.message());
                    Error::new(e.kind(), message).hint(e.help().unwrap_or_default())
                })?;
                Ok(Some(Read::Message { plan, has_default: defaults.of_all }))
            }
            _ => Ok(fits(kind, data_type).then_some(Read::Scalar(kind))),
        }
    }
}

/// The fields of the key and of the value of a map's entries.
pub fn entry<'t>(types: &'t Types, field: &FieldType) -> Option<(&'t FieldType, &'t FieldType)> {
    let Kind::Message(at) = field.kind else { return None };
    match &types.messages[at].fields[..] {
        [key, value] => Some((key, value)),
        _ => None,
    }
}

/// True if a column of this type holds values of this kind, which is no message.
pub fn fits(kind: Kind, data_type: &DataType) -> bool {
    match kind {
        Kind::Bool => *data_type == DataType::Boolean,
        Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32 => *data_type == DataType::Int,
        Kind::Int64 | Kind::Sint64 | Kind::Fixed64 => *data_type == DataType::BigInt,
        Kind::Float => *data_type == DataType::Float,
        Kind::Double => *data_type == DataType::Double,
        Kind::String => data_type.is_string(),
        Kind::Bytes => data_type.is_binary(),
        Kind::Enum(_) => data_type.is_string() || data_type.is_integer(),
        Kind::Message(_) | Kind::Group => false,
    }
}

/// The error of a column that cannot hold a field's values.
pub fn unfit(field: &FieldType, data_type: &DataType) -> Error {
    let shape = match field.shape {
        Shape::Single => "",
        Shape::List => "repeated ",
        Shape::Map => "map of ",
    };
    let (name, kind) = (&field.name, field.kind.name());
    let error = Error::plan(format!(
        "column {name} is {data_type}, which cannot hold the field's values ({shape}{kind})"
    ));
    error.hint(match (field.shape, field.kind) {
        (_, Kind::Group) => "groups are not supported: declare the field as a message",
        (Shape::Map, _) => "declare MAP<…, …> of the types of its keys and values",
        (Shape::List, Kind::Message(_)) => "declare ARRAY<ROW<…>>",
        (_, Kind::Message(_)) => "declare ROW<…>, with the names of the message's fields",
        (_, Kind::Bool) => "declare BOOLEAN",
        (_, Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32) => "declare INT",
        (_, Kind::Int64 | Kind::Sint64 | Kind::Fixed64) => "declare BIGINT",
        (_, Kind::Float) => "declare FLOAT",
        (_, Kind::Double) => "declare DOUBLE",
        (_, Kind::String) => "declare STRING",
        (_, Kind::Bytes) => "declare BYTES",
        (_, Kind::Enum(_)) => "declare STRING, or INT for its number",
    })
}
