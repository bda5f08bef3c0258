//! The types of messages, as a `.proto` file declares them.
//!
//! Messages refer to each other, and to themselves, by their place in [`Types`].

use std::collections::BTreeMap;

use super::wire::Wire;

/// All messages and enums that a file declares or imports.
#[derive(Debug, Default)]
pub struct Types {
    /// The messages.
    pub messages: Vec<MessageType>,
    /// The enums.
    pub enums: Vec<EnumType>,
}

/// A message.
#[derive(Debug)]
pub struct MessageType {
    /// Its name, with its package.
    pub name: String,
    /// True if fields without a value have one in this syntax (`proto3`).
    pub has_implicit_values: bool,
    /// Its fields, ascending by number.
    pub fields: Vec<FieldType>,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct FieldType {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// What a value is.
    pub kind: Kind,
    /// How many values it has.
    pub shape: Shape,
    /// True if it is known whether a value was set.
    pub has_presence: bool,
    /// True if a message without it is none.
    pub is_required: bool,
    /// True if the values of a list are written together.
    pub is_packed: bool,
    /// Fields of which only one is set have the same number here.
    pub oneof: Option<usize>,
    /// Its value where none is set.
    pub default: Scalar,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One, or none.
    Single,
    /// Any number.
    List,
    /// Entries: messages with a key (1) and a value (2).
    Map,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bool`
    Bool,
    /// `int32`
    Int32,
    /// `uint32`
    Uint32,
    /// `sint32`
    Sint32,
    /// `fixed32`, `sfixed32`
    Fixed32,
    /// `int64`, `uint64`
    Int64,
    /// `sint64`
    Sint64,
    /// `fixed64`, `sfixed64`
    Fixed64,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// An enum, by its place.
    Enum(usize),
    /// A message, by its place.
    Message(usize),
    /// A message in the old way of writing.
    Group,
}

/// A value that is no message: a number as its bits, or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// As [`super::wire::Raw::Number`].
    Number(u64),
    /// As [`super::wire::Raw::Bytes`].
    Bytes(Vec<u8>),
}

/// An enum.
#[derive(Debug, Default)]
pub struct EnumType {
    /// The names of its numbers; of several for one number the first.
    pub names: BTreeMap<i32, String>,
    /// The numbers of its names.
    pub numbers: BTreeMap<String, i32>,
    /// The number that is declared first.
    pub first: i32,
    /// True if other numbers are no values of it (`proto2`).
    pub is_closed: bool,
}

impl Kind {
    /// How a value is written.
    pub fn wire(self) -> Wire {
        match self {
            Kind::Bool
            | Kind::Int32
            | Kind::Uint32
            | Kind::Sint32
            | Kind::Int64
            | Kind::Sint64
            | Kind::Enum(_) => Wire::Varint,
            Kind::Fixed32 | Kind::Float => Wire::Four,
            Kind::Fixed64 | Kind::Double => Wire::Eight,
            Kind::String | Kind::Bytes | Kind::Message(_) => Wire::Sized,
            Kind::Group => Wire::Group,
        }
    }

    /// True if the values of a list can be written together.
    pub fn can_be_packed(self) -> bool {
        !matches!(self.wire(), Wire::Sized | Wire::Group)
    }

    /// What it is called in a `.proto` file.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int32 => "int32",
            Kind::Uint32 => "uint32",
            Kind::Sint32 => "sint32",
            Kind::Fixed32 => "fixed32",
            Kind::Int64 => "int64",
            Kind::Sint64 => "sint64",
            Kind::Fixed64 => "fixed64",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::Enum(_) => "enum",
            Kind::Message(_) => "message",
            Kind::Group => "group",
        }
    }
}
