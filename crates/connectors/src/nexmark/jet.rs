//! The preset `jet`: one stream per table, uniform keys and small rows, as in the measurements of
//! Hazelcast Jet (PVLDB 14(12), 2021).
//!
//! Event i is a bid on auction `i mod keys`, or person `i mod keys`, or an auction of a seller that
//! is spread over the keys. Other numbers are uniform.

use arrow_array::ArrayRef;
use thalweg_core::{Error, Result};

use super::columns::{EventField, Events, Preset};
use super::events::Entity;
use super::random::{Stream, lower, upper};
use super::text::{List, numbered};

/// Prices are from 1 to this.
const PRICE_MAX: u64 = 100;
const NAMES: u64 = 1_024;
const STATES: u64 = 50;

/// The preset.
pub struct Jet {
    keys: u64,
    categories: u64,
    persons: Stream,
    auctions: Stream,
    bids: Stream,
    names: List,
    states: List,
}

impl Jet {
    /// The events of a seed.
    pub fn new(seed: u64, keys: u64, categories: u64) -> Self {
        let stream = |entity: Entity| Stream::new(seed, entity as u64);
        Jet {
            keys,
            categories,
            persons: stream(Entity::Person),
            auctions: stream(Entity::Auction),
            bids: stream(Entity::Bid),
            names: numbered("name", NAMES),
            states: numbered("state", STATES),
        }
    }
}

/// The columns of a person.
pub const PERSON: [EventField; 3] = [EventField::Id, EventField::Name, EventField::State];
/// The columns of an auction.
pub const AUCTION: [EventField; 4] =
    [EventField::Id, EventField::Seller, EventField::Category, EventField::InitialBid];
/// The columns of a bid.
pub const BID: [EventField; 3] = [EventField::Auction, EventField::Bidder, EventField::Price];

impl Preset for Jet {
    fn numbers(&self, entity: Entity, field: EventField, events: Events<'_>) -> Vec<i64> {
        let (keys, categories) = (self.keys, self.categories);
        let auction = |number| self.auctions.event(number).bits(0);
        let bid = |number| self.bids.event(number).bits(0);
        match (entity, field) {
            (Entity::Person, _) | (_, EventField::Auction) => {
                events.map(|number| (number % keys) as i64)
            }
            (Entity::Auction, EventField::Id) => events.map(|number| number as i64),
            (_, EventField::Seller) => events.map(|number| upper(auction(number), keys) as i64),
            (_, EventField::Category) => {
                events.map(|number| lower(auction(number), categories) as i64)
            }
            (_, EventField::InitialBid) => {
                let bits = |number| self.auctions.event(number).bits(1);
                events.map(|number| 1 + upper(bits(number), PRICE_MAX) as i64)
            }
            (_, EventField::Bidder) => events.map(|number| upper(bid(number), keys) as i64),
            _ => events.map(|number| 1 + lower(bid(number), PRICE_MAX) as i64),
        }
    }

    fn texts(&self, _: Entity, field: EventField, events: Events<'_>) -> Result<ArrayRef> {
        let bits = events.numbers.iter().map(|&number| self.persons.event(number).bits(0));
        match field {
            EventField::Name => self.names.column(bits.map(|bits| upper(bits, NAMES))),
            EventField::State => self.states.column(bits.map(|bits| lower(bits, STATES))),
            other => Err(Error::internal(format!("column {} is no text", other.name()))),
        }
    }
}
