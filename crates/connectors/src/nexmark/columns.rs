//! The columns that a table can declare, and their Arrow arrays.
//!
//! Names are those of Flink's NEXMark suite, in any case; types are fixed: numbers are BIGINT,
//! times TIMESTAMP or TIMESTAMP_LTZ of any precision, texts strings. The length of a VARCHAR is not
//! applied: the suite says VARCHAR, which is VARCHAR(1), and means STRING.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, StructArray, UInt32Array};
use arrow_schema::DataType as Arrow;
use arrow_select::take::take;
use thalweg_core::types::{timestamp_units_per_ms, timestamps};
use thalweg_core::{DataType, Error, Result};

use super::events::{Entity, Timeline, entity};

/// What a column holds.
#[derive(Clone, Copy)]
enum FieldKind {
    Number,
    Time,
    Text,
}

/// Defines the columns: names in SQL, and what they hold.
macro_rules! event_fields {
    ($($(#[$doc:meta])* $field:ident = $name:literal: $kind:ident,)*) => {
        /// A column of a person, an auction or a bid.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventField {
            $($(#[$doc])* $field,)*
        }

        impl EventField {
            /// The name in SQL.
            pub fn name(self) -> &'static str {
                match self {
                    $(EventField::$field => $name,)*
                }
            }
            fn kind(self) -> FieldKind {
                match self {
                    $(EventField::$field => FieldKind::$kind,)*
                }
            }
        }
    };
}

event_fields! {
    /// The number of a person or an auction
    Id = "id": Number,
    /// A person's name
    Name = "name": Text,
    /// A person's address for mail
    EmailAddress = "emailAddress": Text,
    /// A person's card
    CreditCard = "creditCard": Text,
    /// Where a person lives
    City = "city": Text,
    /// Where the city lies
    State = "state": Text,
    /// What is on offer
    ItemName = "itemName": Text,
    /// What it is like
    Description = "description": Text,
    /// The price at which an auction starts, in cents
    InitialBid = "initialBid": Number,
    /// The price below which nothing is sold, in cents
    Reserve = "reserve": Number,
    /// When an auction ends
    Expires = "expires": Time,
    /// The person who sells
    Seller = "seller": Number,
    /// The kind of thing on offer
    Category = "category": Number,
    /// The auction of a bid
    Auction = "auction": Number,
    /// The person who bids
    Bidder = "bidder": Number,
    /// What is offered, in cents
    Price = "price": Number,
    /// Where the bid was made
    Channel = "channel": Text,
    /// The page on which it was made
    Url = "url": Text,
    /// When the event happens
    DateTime = "dateTime": Time,
    /// Ballast
    Extra = "extra": Text,
    /// The number of the event
    Sequence = "seq": Number,
}

impl EventField {
    /// The type in SQL, for messages.
    pub fn type_name(self) -> &'static str {
        match self.kind() {
            FieldKind::Text => "STRING",
            FieldKind::Time => "TIMESTAMP(3)",
            FieldKind::Number => "BIGINT",
        }
    }

    /// True if a column of this type can hold the values.
    pub fn fits(self, data_type: &DataType) -> bool {
        match self.kind() {
            FieldKind::Text => matches!(data_type, DataType::Varchar(_)),
            FieldKind::Time => data_type.is_timestamp(),
            FieldKind::Number => *data_type == DataType::BigInt,
        }
    }
}

/// Some events in the order of emission.
#[derive(Clone, Copy)]
pub struct Events<'a> {
    /// Their numbers.
    pub numbers: &'a [u64],
    /// When they happen.
    pub timeline: Timeline,
}

impl Events<'_> {
    /// One number per event.
    #[inline]
    pub fn map(&self, value: impl Fn(u64) -> i64) -> Vec<i64> {
        self.numbers.iter().map(|&number| value(number)).collect()
    }
}

/// A way to make events. The values of an event depend on its number (and the options) alone.
pub trait Preset: Send {
    /// A column of numbers; times are in milliseconds since 1970.
    fn numbers(&self, entity: Entity, field: EventField, events: Events<'_>) -> Vec<i64>;
    /// A column of text.
    fn texts(&self, entity: Entity, field: EventField, events: Events<'_>) -> Result<ArrayRef>;
}

/// What a declared column shows.
#[derive(Clone, Debug)]
pub enum Column {
    /// A column of an entity.
    Plain(Entity, EventField, DataType),
    /// 0, 1 or 2: person, auction or bid.
    EventType,
    /// All that is declared of an entity, or NULL where the event is of another.
    Row(Entity, Vec<(EventField, DataType)>, DataType),
}

impl Column {
    /// The values for some events.
    pub fn make(&self, preset: &dyn Preset, events: Events<'_>) -> Result<ArrayRef> {
        match self {
            Column::Plain(entity, field, data_type) => {
                plain(preset, *entity, *field, data_type, events)
            }
            Column::EventType => {
                let types = events.numbers.iter().map(|&number| entity(number) as i32);
                Ok(Arc::new(types.collect::<Int32Array>()))
            }
            Column::Row(of, fields, data_type) => row(preset, *of, fields, data_type, events),
        }
    }
}

fn plain(
    preset: &dyn Preset,
    entity: Entity,
    field: EventField,
    data_type: &DataType,
    events: Events<'_>,
) -> Result<ArrayRef> {
    if matches!(field.kind(), FieldKind::Text) {
        return preset.texts(entity, field, events);
    }
    let values = match field {
        EventField::DateTime => events.map(|number| events.timeline.at_ms(number)),
        EventField::Sequence => events.map(|number| number as i64),
        _ => preset.numbers(entity, field, events),
    };
    Ok(match data_type {
        DataType::Timestamp(precision) => times(values, *precision, false),
        DataType::TimestampLtz(precision) => times(values, *precision, true),
        _ => Arc::new(Int64Array::from(values)),
    })
}

fn times(mut values_ms: Vec<i64>, precision: u8, is_instant: bool) -> ArrayRef {
    if precision < 3 {
        let unit = 10i64.pow(3 - u32::from(precision));
        values_ms.iter_mut().for_each(|value| *value = value.div_euclid(unit) * unit);
    } else {
        // The usual case, and a multiplication by 1 is not free: 1 % of query 5.
        let per_ms = timestamp_units_per_ms(precision);
        if per_ms > 1 {
            values_ms.iter_mut().for_each(|value| *value *= per_ms);
        }
    }
    timestamps(&values_ms.into(), precision, is_instant)
}

fn row(
    preset: &dyn Preset,
    of: Entity,
    fields: &[(EventField, DataType)],
    data_type: &DataType,
    events: Events<'_>,
) -> Result<ArrayRef> {
    let mut own = Vec::new();
    let mut place = |number: u64| {
        (entity(number) == of).then(|| {
            own.push(number);
            own.len() as u32 - 1
        })
    };
    let places: UInt32Array = events.numbers.iter().map(|&number| place(number)).collect();
    let own = Events { numbers: &own, ..events };
    let child = |(field, data_type): &(EventField, DataType)| {
        Ok(take(&plain(preset, of, *field, data_type, own)?, &places, None)?)
    };
    let children = fields.iter().map(child).collect::<Result<Vec<_>>>()?;
    let Arrow::Struct(arrow_fields) = data_type.arrow() else {
        return Err(Error::internal(format!("a row of type {data_type}")));
    };
    Ok(Arc::new(StructArray::try_new(arrow_fields, children, places.nulls().cloned())?))
}
