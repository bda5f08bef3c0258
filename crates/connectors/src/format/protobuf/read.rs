//! From the bytes of messages into columns.
//!
//! Columns only grow, but a field may be there twice, and then its last value counts. So a message
//! is read in two steps: its bytes are walked once, which notes where values are and appends those
//! of lists; then each column gets its value. A message that is there twice is the two joined, as
//! are the bytes of both.

use std::collections::HashMap;

use super::plan::{Plan, Planned, Read};
use super::types::{Kind, Scalar, Types};
use super::wire::{Bytes, Raw, Wire, unzigzag};
use crate::format::builder::{ColumnBuilder, Field, Values};

/// A message that is bad, and why.
pub type Bad = String;

/// What was found of a field that has one value.
enum Found<'b> {
    Nothing,
    Value(Raw<'b>),
    /// The bytes of a message that is there several times.
    Joined(Vec<u8>),
}

/// What was found of the messages that are read, the outer ones first.
#[derive(Default)]
pub struct Scratch<'b> {
    found: Vec<Found<'b>>,
    /// The entries of maps: the place of their field, and their bytes.
    entries: Vec<(usize, &'b [u8])>,
}

/// Reads messages by a plan.
pub struct Reader<'t> {
    /// The types that the plan is of.
    pub types: &'t Types,
}

impl Reader<'_> {
    /// Reads a message into its columns.
    ///
    /// # Errors
    /// If its bytes are not those of such a message; columns may have part of it.
    pub fn read<'b>(
        &self,
        plan: &Plan,
        bytes: &'b [u8],
        fields: &mut [Field],
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        scratch.found.clear();
        scratch.entries.clear();
        self.message(plan, bytes, fields, scratch)
    }

    fn message<'b>(
        &self,
        plan: &Plan,
        bytes: &'b [u8],
        fields: &mut [Field],
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        let (base, entries) = (scratch.found.len(), scratch.entries.len());
        scratch.found.resize_with(base + plan.fields.len(), || Found::Nothing);
        self.walk(plan, bytes, fields, scratch, base)?;
        for (at, field) in plan.fields.iter().enumerate() {
            let found = std::mem::replace(&mut scratch.found[base + at], Found::Nothing);
            if field.is_required && matches!(found, Found::Nothing) {
                return Err(format!("the required field {} is not set", field.name));
            }
            let Some(place) = field.place else { continue };
            let column = &mut fields[place].column;
            let done = match &field.read {
                Read::Map { .. } => self.map(field, at, entries, column, scratch),
                _ => self.value(field, found, column, scratch),
            };
            done.map_err(|reason| of_field(&field.name, reason))?;
        }
        scratch.found.truncate(base);
        scratch.entries.truncate(entries);
        Ok(())
    }

    /// Notes where values are, and appends those of lists.
    fn walk<'b>(
        &self,
        plan: &Plan,
        bytes: &'b [u8],
        fields: &mut [Field],
        scratch: &mut Scratch<'b>,
        base: usize,
    ) -> Result<(), Bad> {
        let mut bytes = Bytes(bytes);
        let mut expected = 0;
        while !bytes.0.is_empty() {
            let (number, wire) = bytes.key()?;
            let Some(at) = find(plan, number, &mut expected) else {
                bytes.skip(number, wire)?;
                continue;
            };
            let field = &plan.fields[at];
            match (&field.read, field.place) {
                _ if matches!(wire, Wire::Group | Wire::GroupEnd) => {
                    bytes.skip(number, wire)?;
                    if matches!(field.read, Read::Nothing) {
                        self.note(field, Raw::Bytes(&[]), scratch, base, at);
                    }
                }
                (Read::List { element, .. }, Some(place)) => {
                    let Values::Array(_, values) = &mut fields[place].column.values else {
                        return Err(UNFIT.to_owned());
                    };
                    let raw = bytes.value(wire)?;
                    let read = self.elements(element, wire, raw, values, scratch);
                    read.map_err(|reason| of_field(&field.name, reason))?;
                }
                (Read::Map { .. }, _) => {
                    if let Raw::Bytes(entry) = bytes.value(wire)? {
                        scratch.entries.push((at, entry));
                    }
                }
                _ => {
                    let raw = bytes.value(wire)?;
                    if self.is_value(&field.read, wire, raw) {
                        self.note(field, raw, scratch, base, at);
                    }
                }
            }
        }
        Ok(())
    }

    fn note<'b>(
        &self,
        field: &Planned,
        raw: Raw<'b>,
        scratch: &mut Scratch<'b>,
        base: usize,
        at: usize,
    ) {
        for &rival in &field.rivals {
            scratch.found[base + rival] = Found::Nothing;
        }
        let found = &mut scratch.found[base + at];
        match (&field.read, raw, &mut *found) {
            (Read::Message { .. }, Raw::Bytes(more), Found::Joined(joined)) => joined.extend(more),
            (Read::Message { .. }, Raw::Bytes(more), Found::Value(Raw::Bytes(first))) => {
                *found = Found::Joined([*first, more].concat());
            }
            _ => *found = Found::Value(raw),
        }
    }

    /// True if a value is one of the field: it is written in its way, and an enum that lists its
    /// numbers has this one. Anything else is passed over, as a field that is not known.
    fn is_value(&self, read: &Read, wire: Wire, raw: Raw<'_>) -> bool {
        match (read, raw) {
            (Read::Scalar(kind), raw) => kind.wire() == wire && self.is_listed(*kind, raw),
            (Read::Message { .. }, _) => wire == Wire::Sized,
            _ => true,
        }
    }

    fn is_listed(&self, kind: Kind, raw: Raw<'_>) -> bool {
        match (kind, raw) {
            (Kind::Enum(at), Raw::Number(number)) => {
                let known = &self.types.enums[at];
                !known.is_closed || known.names.contains_key(&(number as i32))
            }
            _ => true,
        }
    }

    /// Appends the elements of a list that stand together: mostly one.
    fn elements<'b>(
        &self,
        read: &Read,
        wire: Wire,
        raw: Raw<'b>,
        out: &mut ColumnBuilder,
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        match (read, raw) {
            (Read::Scalar(kind), Raw::Bytes(packed))
                if kind.can_be_packed() && wire == Wire::Sized =>
            {
                let mut packed = Bytes(packed);
                while !packed.0.is_empty() {
                    let raw = packed.value(kind.wire())?;
                    if self.is_listed(*kind, raw) {
                        self.scalar(*kind, raw, out)?;
                    }
                }
                Ok(())
            }
            (Read::Scalar(kind), raw) if kind.wire() == wire && self.is_listed(*kind, raw) => {
                self.scalar(*kind, raw, out)
            }
            (Read::Message { plan, .. }, Raw::Bytes(bytes)) => self.row(plan, bytes, out, scratch),
            _ => Ok(()),
        }
    }

    /// Appends a message to a column of ROWs.
    fn row<'b>(
        &self,
        plan: &Plan,
        bytes: &'b [u8],
        out: &mut ColumnBuilder,
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        let Values::Row(fields) = &mut out.values else { return Err(UNFIT.to_owned()) };
        self.message(plan, bytes, fields, scratch)?;
        out.appended();
        Ok(())
    }

    /// Appends the value of a field that is no map.
    fn value<'b>(
        &self,
        field: &Planned,
        found: Found<'b>,
        out: &mut ColumnBuilder,
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        match (&field.read, found) {
            (Read::Scalar(kind), Found::Value(raw)) => self.scalar(*kind, raw, out),
            (Read::Scalar(kind), _) => match &field.absent {
                Some(default) => self.scalar(*kind, default.raw(), out),
                None => null(out),
            },
            (Read::Message { plan, .. }, Found::Value(Raw::Bytes(bytes))) => {
                self.row(plan, bytes, out, scratch)
            }
            (Read::Message { plan, .. }, Found::Joined(joined)) => {
                self.row(plan, &joined, out, &mut Scratch::default())
            }
            (Read::Message { plan, has_default: true }, _) => self.row(plan, &[], out, scratch),
            (Read::List { has_default, .. }, _) => {
                let Values::Array(ends, values) = &mut out.values else {
                    return Err(UNFIT.to_owned());
                };
                let is_empty = values.len() == ends.last().copied().unwrap_or(0);
                if is_empty && !has_default {
                    return null(out);
                }
                ends.push(values.len());
                out.appended();
                Ok(())
            }
            _ => null(out),
        }
    }

    /// Appends a map. Of entries with the same key the last one counts.
    fn map<'b>(
        &self,
        field: &Planned,
        at: usize,
        first_entry: usize,
        out: &mut ColumnBuilder,
        scratch: &mut Scratch<'b>,
    ) -> Result<(), Bad> {
        let Read::Map { key, value, has_default } = &field.read else {
            return Err(UNFIT.to_owned());
        };
        let mut places: HashMap<Key<'_>, usize> = HashMap::new();
        let mut entries: Vec<(Raw<'_>, Found<'b>)> = Vec::new();
        for (_, entry) in scratch.entries[first_entry..].iter().filter(|(of, _)| *of == at) {
            let Some((found, value)) = self.entry(key.0, &value.0, entry)? else { continue };
            let raw = found.unwrap_or(key.1.raw());
            let place = *places.entry(Key::of(raw)).or_insert(entries.len());
            match entries.get_mut(place) {
                Some(known) => known.1 = value,
                None => entries.push((raw, value)),
            }
        }
        if entries.is_empty() && !has_default {
            return null(out);
        }
        let Values::Map(ends, keys, values) = &mut out.values else {
            return Err(UNFIT.to_owned());
        };
        for (raw, found) in entries {
            self.scalar(key.0, raw, keys)?;
            match (&value.0, found) {
                (Read::Message { plan, .. }, Found::Value(Raw::Bytes(bytes))) => {
                    self.row(plan, bytes, values, scratch)?;
                }
                (Read::Message { plan, .. }, Found::Joined(joined)) => {
                    self.row(plan, &joined, values, &mut Scratch::default())?;
                }
                (Read::Message { plan, .. }, _) => self.row(plan, &[], values, scratch)?,
                (Read::Scalar(kind), Found::Value(raw)) => self.scalar(*kind, raw, values)?,
                (Read::Scalar(kind), _) => self.scalar(*kind, value.1.raw(), values)?,
                _ => return Err(UNFIT.to_owned()),
            }
        }
        ends.push(keys.len());
        out.appended();
        Ok(())
    }

    /// The key of a map's entry and its value; `None` if the value is none of the map's enum.
    #[allow(clippy::type_complexity)]
    fn entry<'b>(
        &self,
        key: Kind,
        value: &Read,
        entry: &'b [u8],
    ) -> Result<Option<(Option<Raw<'b>>, Found<'b>)>, Bad> {
        let (mut found_key, mut found) = (None, Found::Nothing);
        let mut bytes = Bytes(entry);
        while !bytes.0.is_empty() {
            let (number, wire) = bytes.key()?;
            if wire == Wire::Group || !matches!(number, 1 | 2) {
                bytes.skip(number, wire)?;
                continue;
            }
            let raw = bytes.value(wire)?;
            match (value, raw, &mut found) {
                _ if number == 1 => found_key = (wire == key.wire()).then_some(raw).or(found_key),
                (Read::Message { .. }, Raw::Bytes(more), Found::Joined(joined)) => {
                    joined.extend(more);
                }
                (Read::Message { .. }, Raw::Bytes(more), Found::Value(Raw::Bytes(first))) => {
                    found = Found::Joined([*first, more].concat());
                }
                (Read::Scalar(kind), raw, _)
                    if kind.wire() == wire && !self.is_listed(*kind, raw) =>
                {
                    return Ok(None);
                }
                _ if self.is_value(value, wire, raw) => found = Found::Value(raw),
                _ => {}
            }
        }
        Ok(Some((found_key, found)))
    }

    /// Appends a number or bytes.
    fn scalar(&self, kind: Kind, raw: Raw<'_>, out: &mut ColumnBuilder) -> Result<(), Bad> {
        match (kind, raw, &mut out.values) {
            (Kind::String, Raw::Bytes(bytes), Values::Text(values)) => {
                let text = std::str::from_utf8(bytes);
                values.append_value(text.map_err(|_| "a text is not valid UTF-8")?);
                return Ok(());
            }
            (Kind::Bytes, Raw::Bytes(bytes), Values::Bytes(values)) => {
                values.append_value(bytes);
                return Ok(());
            }
            (Kind::Enum(at), Raw::Number(number), Values::Text(values)) => {
                let name = self.types.enums[at].names.get(&(number as i32));
                // What Java calls a number without a name.
                values.append_value(name.map_or("UNRECOGNIZED", String::as_str));
                return Ok(());
            }
            (Kind::Enum(_), Raw::Number(number), values) => enum_number(number as i32, values)?,
            (Kind::Sint32, Raw::Number(number), Values::Int(values)) => {
                values.push(unzigzag(u64::from(number as u32)) as i32);
            }
            (Kind::Sint64, Raw::Number(number), Values::BigInt(values)) => {
                values.push(unzigzag(number));
            }
            (_, Raw::Number(number), Values::Int(values)) => values.push(number as u32 as i32),
            (_, Raw::Number(number), Values::BigInt(values)) => values.push(number as i64),
            (_, Raw::Number(number), Values::Boolean(values)) => values.append(number != 0),
            (_, Raw::Number(number), Values::Float(values)) => {
                values.push(f32::from_bits(number as u32));
            }
            (_, Raw::Number(number), Values::Double(values)) => values.push(f64::from_bits(number)),
            _ => return Err(UNFIT.to_owned()),
        }
        out.appended();
        Ok(())
    }
}

const UNFIT: &str = "the plan does not fit the column";

/// The place of the field with this number: mostly that of the last one, or the one behind it.
#[inline]
fn find(plan: &Plan, number: u32, expected: &mut usize) -> Option<usize> {
    let is_at = |at: usize| plan.fields.get(at).is_some_and(|field| field.number == number);
    let at = match *expected {
        at if is_at(at) => at,
        at if is_at(at + 1) => at + 1,
        _ => plan.fields.binary_search_by_key(&number, |field| field.number).ok()?,
    };
    *expected = at;
    Some(at)
}

fn enum_number(number: i32, values: &mut Values) -> Result<(), Bad> {
    let range = |_| format!("the number {number} of an enum is out of range");
    match values {
        Values::TinyInt(values) => values.push(i8::try_from(number).map_err(range)?),
        Values::SmallInt(values) => values.push(i16::try_from(number).map_err(range)?),
        Values::Int(values) => values.push(number),
        Values::BigInt(values) => values.push(i64::from(number)),
        _ => return Err(UNFIT.to_owned()),
    }
    Ok(())
}

fn null(out: &mut ColumnBuilder) -> Result<(), Bad> {
    if !out.is_nullable() {
        return Err("a NULL within a value whose type does not allow it".to_owned());
    }
    out.append_null();
    Ok(())
}

#[cold]
fn of_field(name: &str, reason: String) -> Bad {
    match reason.strip_prefix("field ") {
        Some(inner) => format!("field {name}.{inner}"),
        None => format!("field {name}: {reason}"),
    }
}

/// A key of a map, for comparing.
#[derive(PartialEq, Eq, Hash)]
enum Key<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Key<'b> {
    fn of(raw: Raw<'b>) -> Key<'b> {
        match raw {
            Raw::Number(number) => Key::Number(number),
            Raw::Bytes(bytes) => Key::Bytes(bytes),
        }
    }
}

impl Scalar {
    /// The value as it would be found in a message.
    pub fn raw(&self) -> Raw<'_> {
        match self {
            Scalar::Number(number) => Raw::Number(*number),
            Scalar::Bytes(bytes) => Raw::Bytes(bytes),
        }
    }
}
