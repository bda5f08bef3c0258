//! The preset `peer`: the events with which Hazelcast Jet and Apache Flink were measured against
//! Thalweg, number by number.
//!
//! Persons, auctions and bids come 1 : 3 : 46. Bids are uniform over 10,000 auctions and over
//! 10,000 bidders that move on by one every 1,000 events; a seller is one of the newest 10,000
//! persons. Everything comes from one hash of the event's number.

use arrow_array::ArrayRef;
use thalweg_core::shim::mix64;
use thalweg_core::{Error, Result};

use super::columns::{EventField, Events, Preset};
use super::events::{EPOCH, Entity, last_auction, last_person};
use super::random::{lower, upper};
use super::text::{List, numbered};

const KEYS: u64 = 10_000;
const NAMES: u64 = 1_024;
const CITIES: u64 = 256;
const ITEMS: u64 = 1_024;
const CHANNELS: u64 = 64;

/// The preset.
pub struct Peer {
    names: List,
    cities: List,
    items: List,
    channels: List,
}

impl Peer {
    /// The preset.
    pub fn new() -> Self {
        Peer {
            names: numbered("name", NAMES),
            cities: numbered("city", CITIES),
            items: numbered("item", ITEMS),
            channels: numbered("channel", CHANNELS),
        }
    }
}

#[inline]
fn hash(number: u64) -> u64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    mix64(number.wrapping_mul(GOLDEN).wrapping_add(GOLDEN))
}

fn price(number: u64) -> i64 {
    let bits = hash(number).wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
    1 + upper(bits, 10_000_000) as i64
}

/// The columns of a person.
pub const PERSON: [EventField; 3] = [EventField::Id, EventField::Name, EventField::City];
/// The columns of an auction.
pub const AUCTION: [EventField; 5] = [
    EventField::Id,
    EventField::Seller,
    EventField::Category,
    EventField::InitialBid,
    EventField::ItemName,
];
/// The columns of a bid.
pub const BID: [EventField; 4] =
    [EventField::Auction, EventField::Bidder, EventField::Price, EventField::Channel];

impl Preset for Peer {
    fn numbers(&self, entity: Entity, field: EventField, events: Events<'_>) -> Vec<i64> {
        match (entity, field) {
            (Entity::Person, _) => events.map(last_person),
            (Entity::Auction, EventField::Id) => events.map(last_auction),
            (_, EventField::Seller) => events.map(|number| {
                let newest = (number / EPOCH) as i64;
                (newest - upper(hash(number), KEYS) as i64).max(0)
            }),
            (_, EventField::Category) => events.map(|number| 10 + (hash(number) & 7) as i64),
            (_, EventField::InitialBid) => {
                events.map(|number| 1 + lower(hash(number), 1_000) as i64)
            }
            (_, EventField::Auction) => events.map(|number| upper(hash(number), KEYS) as i64),
            (_, EventField::Bidder) => {
                events.map(|number| (number / 1_000 + lower(hash(number), KEYS)) as i64)
            }
            _ => events.map(price),
        }
    }

    fn texts(&self, _: Entity, field: EventField, events: Events<'_>) -> Result<ArrayRef> {
        let bits = events.numbers.iter().map(|&number| hash(number));
        match field {
            EventField::Name => self.names.column(bits.map(|bits| bits % NAMES)),
            EventField::City => self.cities.column(bits.map(|bits| (bits >> 10) % CITIES)),
            EventField::ItemName => self.items.column(bits.map(|bits| (bits >> 10) % ITEMS)),
            EventField::Channel => self.channels.column(bits.map(|bits| bits % CHANNELS)),
            other => Err(Error::internal(format!("column {} is no text", other.name()))),
        }
    }
}
