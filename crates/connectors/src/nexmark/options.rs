//! The options of NEXMark tables, and which columns they may declare.

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, OptionDescription, Options,
    TableRequest, near_miss, option_table,
};
use thalweg_core::text::parse_timestamp;
use thalweg_core::types;
use thalweg_core::{DataType, Error, Result};

use super::beam::Beam;
use super::columns::{Column, EventField, Preset};
use super::events::{EVENTS_MAX, Entity, STRIDE, Selection};
use super::jet::{self, Jet};
use super::mixed::{self, Mixed};
use super::peer::{self, Peer};

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.reading(Boundedness::ByOptions, &[AcceptedChanges::Inserts]),
    options: OPTIONS,
    unsupported: &[
        "events.num",
        "first-event.rate",
        "next-event.rate",
        "person.proportion",
        "auction.proportion",
        "bid.proportion",
        "bid.hot-ratio.*",
        "auction.hot-ratio.*",
    ],
    ..ConnectorDescription::new(
        "nexmark",
        "the persons, auctions and bids of the NEXMark benchmark",
    )
};

const OPTIONS: &[OptionDescription] = &option_table! {
    "kind": Words(&["person", "auction", "bid", "event"]), required()
        => "which events the table has; `event` for all in one table";
    "preset": Words(&["nexmark", "jet", "beam", "peer"]), or("nexmark")
        => "which events there are (below)";
    "events": Number, or_else("without end")
        => "how many events there are, of all kinds: of 100,000 events 92,000 are bids";
    "rate": Other("number, `unlimited`"), or("unlimited")
        => "how many events come in a second. Event k is due k / rate seconds after the start, \
            whenever the table is polled";
    "event-time-rate": Number, or_else("`rate`, else the preset's")
        => "how many events happen in a second of event time";
    "base-time": Other("time, number, `now`"), or_else("`2015-07-15 00:00:00`; of `peer` 10^12 ms")
        => "when event 0 happens: a time in UTC, milliseconds since 1970, or `now`, when the job \
            starts";
    "seed": Number, or("0")
        => "of `nexmark` and `jet`: other numbers make other events";
    "out-of-order-group": Number, or("1")
        => "groups of this many events come out of order, n-th is event 953 n mod group; no \
            multiple of 953";
    "split": Other("`n/of`"), or("0/1")
        => "`2/8` holds the third of every eight events: a UNION ALL of all splits reads from as \
            many sources";
    "keys": Number, or("10000")
        => "of `jet`: how many auctions, bidders and sellers there are";
    "categories": Number, or("10")
        => "of `jet`: how many categories there are";
};

/// 2015-07-15T00:00:00Z
const BASE_MS: i64 = 1_436_918_400_000;
const PEER_BASE_MS: i64 = 1_000_000_000_000;

/// Which events there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PresetName {
    Nexmark,
    Jet,
    Beam,
    Peer,
}

impl PresetName {
    const ALL: [(&'static str, PresetName); 4] = [
        ("nexmark", PresetName::Nexmark),
        ("jet", PresetName::Jet),
        ("beam", PresetName::Beam),
        ("peer", PresetName::Peer),
    ];

    fn text(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The columns of an entity, besides the time and the number of the event.
    fn fields(self, entity: Entity) -> &'static [EventField] {
        match (self, entity) {
            (PresetName::Nexmark | PresetName::Beam, Entity::Person) => &mixed::PERSON,
            (PresetName::Nexmark | PresetName::Beam, Entity::Auction) => &mixed::AUCTION,
            (PresetName::Nexmark | PresetName::Beam, Entity::Bid) => &mixed::BID,
            (PresetName::Jet, Entity::Person) => &jet::PERSON,
            (PresetName::Jet, Entity::Auction) => &jet::AUCTION,
            (PresetName::Jet, Entity::Bid) => &jet::BID,
            (PresetName::Peer, Entity::Person) => &peer::PERSON,
            (PresetName::Peer, Entity::Auction) => &peer::AUCTION,
            (PresetName::Peer, Entity::Bid) => &peer::BID,
        }
    }

    fn event_time_rate(self) -> u64 {
        match self {
            PresetName::Nexmark | PresetName::Beam => 10_000,
            PresetName::Jet | PresetName::Peer => 1_000_000,
        }
    }
}

const KINDS: [(&str, Option<Entity>); 4] = [
    ("person", Some(Entity::Person)),
    ("auction", Some(Entity::Auction)),
    ("bid", Some(Entity::Bid)),
    ("event", None),
];

/// When event 0 happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    /// At this time, in milliseconds since 1970.
    At(i64),
    /// When the job starts.
    Now,
}

/// The checked options.
pub struct NexmarkOptions {
    /// Which values events have.
    pub values: Values,
    /// One per declared column.
    pub columns: Vec<Column>,
    /// Which events the table has.
    pub selection: Selection,
    /// How many events a second come out; `None` as fast as possible.
    pub events_per_second: Option<u64>,
    /// How many events a second happen.
    pub event_time_per_second: u64,
    /// When the first one happens.
    pub base: Base,
}

impl NexmarkOptions {
    /// Reads and checks the options.
    pub fn read(request: &TableRequest) -> Result<Self> {
        let options = Options::of(request, &DESCRIPTION)?;
        if let Some((key, _)) = request.metadata.first() {
            return Err(options.conflict(&format!("nexmark has no metadata '{key}'")));
        }
        options.required("kind")?;
        let name = options.choice("preset", &PresetName::ALL)?.unwrap_or(PresetName::Nexmark);
        let entity = options.choice("kind", &KINDS)?.flatten();
        if name == PresetName::Jet && entity.is_none() {
            return Err(options
                .conflict("preset 'jet' has a stream for each kind, and no 'kind' = 'event'")
                .hint("declare a table for each kind"));
        }
        let values = values(&options, name)?;
        let columns = request.schema.columns.iter();
        let columns =
            columns.map(|column| resolve(&options, name, entity, column)).collect::<Result<_>>()?;
        let events_per_second = rate(&options)?;
        let event_time_per_second = positive(&options, "event-time-rate")?
            .or(events_per_second)
            .unwrap_or(name.event_time_rate());
        Ok(NexmarkOptions {
            values,
            columns,
            selection: selection(&options, entity, name != PresetName::Jet)?,
            events_per_second,
            event_time_per_second,
            base: base(&options, name)?,
        })
    }
}

/// Which values events have.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    preset: PresetName,
    seed: u64,
    keys: u64,
    categories: u64,
}

impl Values {
    /// Prepares to make them.
    pub fn preset(&self) -> Result<Box<dyn Preset>> {
        Ok(match self.preset {
            PresetName::Nexmark => Box::new(Mixed::new(self.seed)?),
            PresetName::Beam => Box::new(Beam::new()?),
            PresetName::Peer => Box::new(Peer::new()),
            PresetName::Jet => Box::new(Jet::new(self.seed, self.keys, self.categories)),
        })
    }
}

fn values(options: &Options<'_>, preset: PresetName) -> Result<Values> {
    let only = |option: &str, presets: &[PresetName]| match options.get(option) {
        Some(_) if !presets.contains(&preset) => Err(options
            .conflict(&format!("option '{option}' has no meaning in preset '{}'", preset.text()))),
        _ => Ok(()),
    };
    only("seed", &[PresetName::Nexmark, PresetName::Jet])?;
    only("keys", &[PresetName::Jet])?;
    only("categories", &[PresetName::Jet])?;
    Ok(Values {
        preset,
        seed: options.number("seed")?.unwrap_or_default(),
        keys: small(options, "keys")?,
        categories: small(options, "categories")?,
    })
}

fn positive(options: &Options<'_>, name: &str) -> Result<Option<u64>> {
    let value = options.number(name)?;
    if value == Some(0) {
        return Err(options.bad(name, "0", "at least 1"));
    }
    Ok(value)
}

/// A number of 1 to 2^32, for which half of 64 random bits are enough.
fn small(options: &Options<'_>, name: &str) -> Result<u64> {
    let value = positive(options, name)?.unwrap_or(1);
    if value > 1 << 32 {
        return Err(options.bad(name, &value.to_string(), "at most 4294967296"));
    }
    Ok(value)
}

fn rate(options: &Options<'_>) -> Result<Option<u64>> {
    match options.text("rate") {
        Some(text) if text.eq_ignore_ascii_case("unlimited") => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(rate) if rate > 0 => Ok(Some(rate)),
            _ => Err(options.bad("rate", text, "events a second, at least 1, or 'unlimited'")),
        },
        None => Ok(None),
    }
}

fn selection(options: &Options<'_>, entity: Option<Entity>, is_mixed: bool) -> Result<Selection> {
    let events = options.number::<u64>("events")?;
    if let Some(events) = events.filter(|events| *events > EVENTS_MAX) {
        return Err(options.bad("events", &events.to_string(), &format!("at most {EVENTS_MAX}")));
    }
    let group = positive(options, "out-of-order-group")?.unwrap_or(1);
    if group % STRIDE == 0 || group > u64::from(u32::MAX) {
        let expected = format!("1 (in order) to 4294967295, and no multiple of {STRIDE}");
        return Err(options.bad("out-of-order-group", &group.to_string(), &expected));
    }
    let (split, splits) = split(options)?;
    Ok(Selection { entity, is_mixed, events, group, split, splits })
}

/// `2/8`: the third of eight.
fn split(options: &Options<'_>) -> Result<(u64, u64)> {
    let Some(text) = options.get("split") else { return Ok((0, 1)) };
    let parse = || {
        let (split, splits) = text.split_once('/')?;
        let split: u64 = split.trim().parse().ok()?;
        let splits: u64 = splits.trim().parse().ok()?;
        (split < splits && splits <= 1 << 16).then_some((split, splits))
    };
    parse().ok_or_else(|| options.bad("split", text, "which of how many, '0/2' and '1/2'"))
}

fn base(options: &Options<'_>, name: PresetName) -> Result<Base> {
    let default = if name == PresetName::Peer { PEER_BASE_MS } else { BASE_MS };
    let Some(text) = options.get("base-time").map(str::trim) else {
        return Ok(Base::At(default));
    };
    if text.eq_ignore_ascii_case("now") {
        return Ok(Base::Now);
    }
    let time = text.parse().ok().or_else(|| parse_timestamp(text, 3));
    // Within 200,000 years of 1970 nothing overflows.
    time.filter(|time: &i64| time.unsigned_abs() < 1 << 53).map(Base::At).ok_or_else(|| {
        let expected = "milliseconds since 1970, a time 'YYYY-MM-DD hh:mm:ss' in UTC, or 'now'";
        options.bad("base-time", text, expected)
    })
}

fn kind_name(entity: Option<Entity>) -> &'static str {
    KINDS.iter().find(|(_, kind)| *kind == entity).map_or("event", |(name, _)| name)
}

fn resolve(
    options: &Options<'_>,
    name: PresetName,
    entity: Option<Entity>,
    column: &types::Column,
) -> Result<Column> {
    let data_type = &column.column_type.data_type;
    if let Some(entity) = entity {
        let field = field(options, name, Some(entity), &column.name, data_type)?;
        return Ok(Column::Plain(entity, field, data_type.clone()));
    }
    let wrong = |expected: &str| wrong_type(options, &column.name, data_type, expected);
    let known = KINDS.iter().find(|(kind, _)| kind.eq_ignore_ascii_case(&column.name));
    match (known.and_then(|(_, entity)| *entity), data_type) {
        (Some(entity), DataType::Row(inner)) => {
            let one = |inner: &types::Column| {
                let data_type = &inner.column_type.data_type;
                let path = format!("{}.{}", column.name, inner.name);
                let field = field(options, name, Some(entity), &path, data_type)?;
                Ok((field, data_type.clone()))
            };
            let fields = inner.iter().map(one).collect::<Result<_>>()?;
            if !column.column_type.nullable {
                return Err(options.conflict(&format!(
                    "column {} is NULL in other events, and cannot be NOT NULL",
                    column.name
                )));
            }
            Ok(Column::Row(entity, fields, data_type.clone()))
        }
        (Some(_), _) => Err(wrong("ROW<…>")),
        (None, _) if column.name.eq_ignore_ascii_case("event_type") => match data_type {
            DataType::Int => Ok(Column::EventType),
            _ => Err(wrong("INT")),
        },
        (None, _) => {
            let field = field(options, name, None, &column.name, data_type)?;
            Ok(Column::Plain(Entity::Bid, field, data_type.clone()))
        }
    }
}

/// The field with this name (behind the last dot) and type.
fn field(
    options: &Options<'_>,
    name: PresetName,
    entity: Option<Entity>,
    path: &str,
    data_type: &DataType,
) -> Result<EventField> {
    let common = [EventField::DateTime, EventField::Sequence];
    let fields = entity.map_or(&[][..], |entity| name.fields(entity)).iter().chain(&common);
    let written = path.rsplit_once('.').map_or(path, |(_, last)| last);
    let found = fields.clone().find(|field| field.name().eq_ignore_ascii_case(written));
    let Some(found) = found else {
        let mut names: Vec<&str> = fields.map(|field| field.name()).collect();
        if entity.is_none() {
            names.extend(["event_type", "person", "auction", "bid"]);
        }
        let help = match near_miss(written, names.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", names.join(", ")),
        };
        let message =
            format!("'{}' of preset '{}' has no column {path}", kind_name(entity), name.text());
        return Err(options.conflict(&message).hint(help));
    };
    if !found.fits(data_type) {
        return Err(wrong_type(options, path, data_type, found.type_name()));
    }
    Ok(*found)
}

fn wrong_type(options: &Options<'_>, path: &str, data_type: &DataType, expected: &str) -> Error {
    options
        .conflict(&format!("column {path} of type {data_type}"))
        .hint(format!("nexmark produces {expected}; use CAST in a computed column or in the query"))
}
