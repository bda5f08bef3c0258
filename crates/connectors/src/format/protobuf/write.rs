//! From columns to the bytes of messages.
//!
//! Fields are written ascending by number, as Google's libraries do. A column that is NULL leaves
//! its field unset. Elements of lists and maps cannot be: theirs is the type's default.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringViewArray,
};
use arrow_cast::cast;
use arrow_schema::DataType as Arrow;
use thalweg_core::{Column, DataType, Result};

use super::plan::{entry, no_field, unfit};
use super::types::{EnumType, FieldType, Kind, MessageType, Shape, Types};
use super::wire::{Wire, key, nested, sized, varint, zigzag};

/// Appends a message per row, and `end` after each. `null_text` stands for NULL in lists and maps
/// of texts.
///
/// # Errors
/// If a column does not fit the message.
pub fn write(
    types: &Types,
    message: &MessageType,
    null_text: &str,
    out: &mut Vec<u8>,
    batch: &RecordBatch,
    columns: &[Column],
    mut end: impl FnMut(&mut Vec<u8>),
) -> Result<()> {
    let forms = Forms { types, null_text };
    let form = forms.message(message, batch.columns(), columns)?;
    for row in 0..batch.num_rows() {
        form.append(out, row)?;
        end(out);
    }
    Ok(())
}

/// What forms are made with.
struct Forms<'a> {
    types: &'a Types,
    null_text: &'a str,
}

/// Columns that are ready to be written as a message.
struct MessageForm<'a> {
    fields: Vec<FieldForm<'a>>,
}

struct FieldForm<'a> {
    number: u32,
    array: &'a dyn Array,
    form: Form<'a>,
    /// The default is not written: whoever reads has it as well.
    skips_default: bool,
    /// Columns of which only the last that is not NULL is written, behind this one.
    later: Vec<&'a dyn Array>,
}

enum Form<'a> {
    Value(ValueForm<'a>),
    /// Where each list ends; their values, and whether they are written together.
    List(&'a [i32], Box<Elements<'a>>, bool),
    Map(&'a [i32], Box<Elements<'a>>, Box<Elements<'a>>),
}

struct Elements<'a> {
    array: &'a dyn Array,
    form: ValueForm<'a>,
}

enum ValueForm<'a> {
    Bool(&'a BooleanArray),
    Int(&'a [i32], Kind),
    Long(&'a [i64], Kind),
    Float(&'a [f32]),
    Double(&'a [f64]),
    Text(&'a StringViewArray, &'a str),
    Bytes(&'a BinaryArray),
    EnumName(&'a StringViewArray, &'a EnumType),
    EnumNumber(Int64Array, &'a EnumType),
    Message(MessageForm<'a>),
}

impl<'a> Forms<'a> {
    fn message(
        &self,
        message: &'a MessageType,
        arrays: &'a [ArrayRef],
        columns: &'a [Column],
    ) -> Result<MessageForm<'a>> {
        let mut fields = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            let field = message.fields.iter().find(|field| field.name == column.name);
            let field = field.ok_or_else(|| no_field(message, &column.name))?;
            let later = columns[at + 1..].iter().zip(&arrays[at + 1..]).filter(|(other, _)| {
                let other = message.fields.iter().find(|field| field.name == other.name);
                field.oneof.is_some() && other.is_some_and(|other| other.oneof == field.oneof)
            });
            fields.push(FieldForm {
                number: field.number,
                array: arrays[at].as_ref(),
                form: self.field(field, arrays[at].as_ref(), &column.column_type.data_type)?,
                skips_default: !field.has_presence,
                later: later.map(|(_, array)| array.as_ref()).collect(),
            });
        }
        fields.sort_by_key(|field| field.number);
        Ok(MessageForm { fields })
    }

    fn field(
        &self,
        field: &'a FieldType,
        array: &'a dyn Array,
        data_type: &'a DataType,
    ) -> Result<Form<'a>> {
        let unfit = || unfit(field, data_type);
        Ok(match (field.shape, data_type) {
            (Shape::Single, _) => {
                Form::Value(self.value(field.kind, array, data_type)?.ok_or_else(unfit)?)
            }
            (Shape::List, DataType::Array(element)) => {
                let list = array.as_list::<i32>();
                let elements = self.elements(field.kind, list.values(), &element.data_type)?;
                let elements = elements.ok_or_else(unfit)?;
                Form::List(list.offsets(), elements, field.is_packed)
            }
            (Shape::Map, DataType::Map(key, value)) => {
                let map = array.as_map();
                let (key_field, value_field) = entry(self.types, field).ok_or_else(unfit)?;
                let keys = self.elements(key_field.kind, map.keys(), &key.data_type)?;
                let values = self.elements(value_field.kind, map.values(), &value.data_type)?;
                Form::Map(map.offsets(), keys.ok_or_else(unfit)?, values.ok_or_else(unfit)?)
            }
            _ => return Err(unfit()),
        })
    }

    fn elements(
        &self,
        kind: Kind,
        array: &'a ArrayRef,
        data_type: &'a DataType,
    ) -> Result<Option<Box<Elements<'a>>>> {
        let form = self.value(kind, array.as_ref(), data_type)?;
        Ok(form.map(|form| Box::new(Elements { array: array.as_ref(), form })))
    }

    /// Values of this kind; `None` if the column has no such.
    fn value(
        &self,
        kind: Kind,
        array: &'a dyn Array,
        data_type: &'a DataType,
    ) -> Result<Option<ValueForm<'a>>> {
        if let (Kind::Message(at), DataType::Row(columns)) = (kind, data_type) {
            let message = &self.types.messages[at];
            let form = self.message(message, array.as_struct().columns(), columns)?;
            return Ok(Some(ValueForm::Message(form)));
        }
        if !super::plan::fits(kind, data_type) {
            return Ok(None);
        }
        Ok(Some(match (kind, data_type) {
            (Kind::Bool, _) => ValueForm::Bool(array.as_boolean()),
            (Kind::Float, _) => ValueForm::Float(array.as_primitive::<Float32Type>().values()),
            (Kind::Double, _) => ValueForm::Double(array.as_primitive::<Float64Type>().values()),
            (Kind::String, _) => ValueForm::Text(array.as_string_view(), self.null_text),
            (Kind::Bytes, _) => ValueForm::Bytes(array.as_binary()),
            (Kind::Enum(at), text) if text.is_string() => {
                ValueForm::EnumName(array.as_string_view(), &self.types.enums[at])
            }
            (Kind::Enum(at), _) => {
                let numbers = cast(array, &Arrow::Int64)?;
                let numbers = numbers.as_primitive::<Int64Type>().clone();
                ValueForm::EnumNumber(numbers, &self.types.enums[at])
            }
            (kind, DataType::Int) => {
                ValueForm::Int(array.as_primitive::<Int32Type>().values(), kind)
            }
            (kind, _) => ValueForm::Long(array.as_primitive::<Int64Type>().values(), kind),
        }))
    }
}

impl MessageForm<'_> {
    fn append(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        for field in &self.fields {
            let is_set =
                field.array.is_valid(row) && !field.later.iter().any(|other| other.is_valid(row));
            if is_set {
                field.append(out, row)?;
            }
        }
        Ok(())
    }
}

impl FieldForm<'_> {
    fn append(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        match &self.form {
            Form::Value(form) => {
                let start = out.len();
                key(out, self.number, form.wire());
                let value = out.len();
                form.append(out, row)?;
                // Every default is written as zeros, and nothing else is. Whether a message was
                // set is always known.
                if self.skips_default && out[value..].iter().all(|&byte| byte == 0) {
                    out.truncate(start);
                }
                Ok(())
            }
            Form::List(offsets, elements, is_packed) => {
                let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                if *is_packed && end > begin {
                    key(out, self.number, Wire::Sized);
                    return nested(out, |out| {
                        (begin..end).try_for_each(|at| elements.append(out, at))
                    });
                }
                (begin..end).try_for_each(|at| {
                    key(out, self.number, elements.form.wire());
                    elements.append(out, at)
                })
            }
            Form::Map(offsets, keys, values) => {
                let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                (begin..end).try_for_each(|at| {
                    key(out, self.number, Wire::Sized);
                    nested(out, |out| {
                        key(out, 1, keys.form.wire());
                        keys.append(out, at)?;
                        key(out, 2, values.form.wire());
                        values.append(out, at)
                    })
                })
            }
        }
    }
}

impl Elements<'_> {
    fn append(&self, out: &mut Vec<u8>, at: usize) -> Result<()> {
        match self.array.is_valid(at) {
            true => self.form.append(out, at),
            false => {
                self.form.append_default(out);
                Ok(())
            }
        }
    }
}

impl ValueForm<'_> {
    fn wire(&self) -> Wire {
        match self {
            ValueForm::Bool(_) => Wire::Varint,
            ValueForm::Int(_, kind) | ValueForm::Long(_, kind) => kind.wire(),
            ValueForm::Float(_) => Wire::Four,
            ValueForm::Double(_) => Wire::Eight,
            ValueForm::Text(..) | ValueForm::Bytes(_) | ValueForm::Message(_) => Wire::Sized,
            ValueForm::EnumName(..) | ValueForm::EnumNumber(..) => Wire::Varint,
        }
    }

    /// Appends a value that is not NULL.
    fn append(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        match self {
            ValueForm::Bool(array) => out.push(u8::from(array.value(row))),
            ValueForm::Int(values, kind) => int(out, values[row], *kind),
            ValueForm::Long(values, kind) => long(out, values[row], *kind),
            ValueForm::Float(values) => out.extend(values[row].to_le_bytes()),
            ValueForm::Double(values) => out.extend(values[row].to_le_bytes()),
            ValueForm::Text(array, _) => sized(out, array.value(row).as_bytes()),
            ValueForm::Bytes(array) => sized(out, array.value(row)),
            ValueForm::EnumName(array, names) => {
                let number = names.numbers.get(array.value(row)).copied();
                enum_number(out, number.unwrap_or(names.first));
            }
            ValueForm::EnumNumber(array, names) => {
                let number = i32::try_from(array.value(row)).ok();
                let number = number.filter(|number| names.names.contains_key(number));
                enum_number(out, number.unwrap_or(names.first));
            }
            ValueForm::Message(form) => return nested(out, |out| form.append(out, row)),
        }
        Ok(())
    }

    /// Appends what stands for NULL in a list or a map.
    fn append_default(&self, out: &mut Vec<u8>) {
        match self {
            ValueForm::Float(_) => out.extend([0; 4]),
            ValueForm::Double(_) => out.extend([0; 8]),
            ValueForm::Int(_, kind) if kind.wire() == Wire::Four => out.extend([0; 4]),
            ValueForm::Long(_, kind) if kind.wire() == Wire::Eight => out.extend([0; 8]),
            ValueForm::Text(_, null_text) => sized(out, null_text.as_bytes()),
            ValueForm::EnumName(_, names) | ValueForm::EnumNumber(_, names) => {
                enum_number(out, names.first);
            }
            _ => out.push(0),
        }
    }
}

fn int(out: &mut Vec<u8>, value: i32, kind: Kind) {
    match kind {
        Kind::Fixed32 => out.extend(value.to_le_bytes()),
        Kind::Sint32 => varint(out, u64::from(zigzag(i64::from(value)) as u32)),
        Kind::Uint32 => varint(out, u64::from(value as u32)),
        _ => varint(out, i64::from(value) as u64),
    }
}

fn long(out: &mut Vec<u8>, value: i64, kind: Kind) {
    match kind {
        Kind::Fixed64 => out.extend(value.to_le_bytes()),
        Kind::Sint64 => varint(out, zigzag(value)),
        _ => varint(out, value as u64),
    }
}

fn enum_number(out: &mut Vec<u8>, number: i32) {
    varint(out, i64::from(number) as u64);
}
