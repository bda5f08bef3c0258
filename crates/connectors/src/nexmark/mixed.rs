//! The preset `nexmark`: persons, auctions and bids 1 : 3 : 46, with favourites and full rows.
//!
//! Half of the bids go to one auction in a hundred, three quarters of the bids and of the auctions
//! come from one person in a hundred; the others are uniform over the newest ones and a few that do
//! not exist yet. Prices are log-uniform from 1 to 1,000,000 (in cents). Persons, auctions and bids
//! take about 200, 500 and 100 bytes; as in Flink's suite, channel and page of a bid come on top.

use std::fmt::Write;

use arrow_array::ArrayRef;
use thalweg_core::{Error, Result};

use super::columns::{EventField, Events, Preset};
use super::events::{EPOCH, Entity, Timeline, last_auction, last_person};
use super::random::{Draws, Prices, Stream, lower, upper};
use super::text::{Cuts, Letters, List, written};

/// The number of the first person and of the first auction.
pub const FIRST_ID: i64 = 1_000;
/// The number of the first category.
pub const FIRST_CATEGORY: i64 = 10;
/// How many categories there are.
pub const CATEGORIES: u64 = 5;
/// Of this many persons or auctions one is the favourite.
pub const FAVOURITE_OF: i64 = 100;
/// How many of the newest persons do anything.
pub const ACTIVE_PERSONS: i64 = 1_000;
/// How many of the newest auctions get bids.
pub const OPEN_AUCTIONS: i64 = 100;
/// How many that do not exist yet may be named.
pub const LEAD: i64 = 10;
/// The number of events that hold as many auctions as are open: half the mean length of an auction.
pub const AUCTION_EVENTS: u64 = OPEN_AUCTIONS as u64 * EPOCH / 3;

/// What persons are called.
pub const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];
/// What persons are called.
pub const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
/// Where persons live.
pub const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
/// Where cities are said to lie.
pub const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
const CHANNELS: u64 = 10_000;

/// Which draw of an event decides what.
mod draw {
    pub const SELLER: u64 = 0;
    pub const CATEGORY: u64 = 1;
    pub const INITIAL: u64 = 2;
    pub const RESERVE: u64 = 3;
    pub const LENGTH: u64 = 4;
    pub const ITEM: u64 = 5;
    pub const DESCRIPTION: u64 = 6;
    pub const EXTRA: u64 = 7;

    pub const AUCTION: u64 = 0;
    pub const BIDDER: u64 = 1;
    pub const PRICE: u64 = 2;
    pub const CHANNEL: u64 = 3;

    pub const NAME: u64 = 0;
    pub const EMAIL: u64 = 1;
    pub const CARD: u64 = 2;
    pub const PLACE: u64 = 3;
    pub const LETTERS: u64 = 4;
}

/// `extra`: what is missing to the usual size of a row, 20 % more or less.
struct Ballast {
    streams: [Stream; 3],
    letters: Letters,
    cuts: [Cuts; 3],
}

impl Ballast {
    /// The ballast of a seed.
    fn new(seed: u64) -> Result<Self> {
        let letters = Letters::new(Stream::new(seed, 3));
        let cuts = |stream, missing: u64| {
            letters.cuts(Stream::new(seed, stream), missing * 4 / 5, missing * 6 / 5)
        };
        // Persons have two numbers, and texts of 52 bytes on average; auctions seven numbers, and
        // texts of 12 and 52 bytes; bids four numbers.
        let cuts = [cuts(5, 200 - 16 - 52)?, cuts(6, 500 - 56 - 12 - 52)?, cuts(7, 100 - 32)?];
        let streams = [Entity::Person, Entity::Auction, Entity::Bid];
        let streams = streams.map(|entity| Stream::new(seed, entity as u64));
        Ok(Ballast { streams, letters, cuts })
    }

    #[inline]
    fn event(&self, entity: Entity, number: u64) -> Draws {
        self.streams[entity as usize].event(number)
    }

    /// The column.
    fn extra(&self, entity: Entity, events: Events<'_>) -> Result<ArrayRef> {
        let numbers = events.numbers.iter();
        let bits = numbers.map(|&number| self.event(entity, number).bits(draw::EXTRA));
        self.cuts[entity as usize].column(bits)
    }
}

/// The preset.
pub struct Mixed {
    ballast: Ballast,
    prices: Prices,
    names: List,
    cities: List,
    states: List,
    /// The favourites first.
    channels: List,
    pages: List,
    items: Cuts,
    descriptions: Cuts,
}

impl Mixed {
    /// The events of a seed.
    pub fn new(seed: u64) -> Result<Self> {
        let names =
            FIRST_NAMES.iter().flat_map(|a| LAST_NAMES.iter().map(move |b| format!("{a} {b}")));
        let hot = HOT_CHANNELS.iter().map(|channel| (*channel).to_owned());
        let others = (0..CHANNELS).map(|number| format!("channel-{number}"));
        let stream = Stream::new(seed, 4);
        let ballast = Ballast::new(seed)?;
        Ok(Mixed {
            items: ballast.letters.cuts(Stream::new(seed, 8), 3, 20)?,
            descriptions: ballast.letters.cuts(Stream::new(seed, 9), 3, 100)?,
            ballast,
            prices: Prices::new(),
            names: List::new(names),
            cities: List::new(CITIES),
            states: List::new(STATES),
            channels: List::new(hot.chain(others)),
            pages: List::new((0..HOT_CHANNELS.len() as u64 + CHANNELS).map(|at| page(stream, at))),
        })
    }

    fn auction(&self, field: EventField, number: u64, timeline: &Timeline) -> i64 {
        let event = self.ballast.event(Entity::Auction, number);
        match field {
            EventField::Id => last_auction(number) + FIRST_ID,
            EventField::Seller => person(number, event.bits(draw::SELLER), 0),
            EventField::Category => {
                FIRST_CATEGORY + upper(event.bits(draw::CATEGORY), CATEGORIES) as i64
            }
            EventField::InitialBid => self.prices.price(event.bits(draw::INITIAL)),
            EventField::Reserve => {
                let initial = self.prices.price(event.bits(draw::INITIAL));
                initial + self.prices.price(event.bits(draw::RESERVE))
            }
            _ => {
                let start_ms = timeline.at_ms(number);
                let half_ms = timeline.at_ms(number + AUCTION_EVENTS) - start_ms;
                let length_ms = upper(event.bits(draw::LENGTH), (half_ms * 2).max(1) as u64);
                start_ms + 1 + length_ms as i64
            }
        }
    }

    fn channel(&self, number: u64) -> u64 {
        let bits = self.ballast.event(Entity::Bid, number).bits(draw::CHANNEL);
        let hot = HOT_CHANNELS.len() as u64;
        // The place comes from the upper bits, so the last one is free.
        let is_hot = bits & 1 == 1;
        std::hint::select_unpredictable(is_hot, upper(bits, hot), hot + upper(bits, CHANNELS))
    }
}

/// The page of a channel, which for nine of ten channels holds its number.
fn page(stream: Stream, channel: u64) -> String {
    let letter = |draw| char::from(b'a' + upper(stream.event(channel).bits(draw), 26) as u8);
    let mut page = String::from("https://www.nexmark.com/");
    for part in 0..3 {
        page.extend((0..5).map(|at| letter(part * 5 + at)));
        page.push('/');
    }
    page.push_str("item.htm?query=1");
    let hot = HOT_CHANNELS.len() as u64;
    if channel >= hot && upper(stream.event(channel).bits(15), 10) > 0 {
        let reversed = ((channel - hot) as u32).reverse_bits() as i32;
        let _ = write!(page, "&channel_id={}", reversed.unsigned_abs());
    }
    page
}

/// A person who sells or bids: three of four times the favourite, whose number ends so.
#[inline]
fn person(number: u64, bits: u64, favourite: i64) -> i64 {
    let last = last_person(number);
    let active = (last + 1).min(ACTIVE_PERSONS);
    let favourite = last / FAVOURITE_OF * FAVOURITE_OF + favourite;
    // Both are computed: a coin that no processor can predict would cost more.
    let other = last + 1 - active + upper(bits, (active + LEAD) as u64) as i64;
    FIRST_ID + std::hint::select_unpredictable(lower(bits, 4) > 0, favourite, other)
}

/// The auction of a bid: every other time the favourite.
#[inline]
fn auction(number: u64, bits: u64) -> i64 {
    let last = last_auction(number);
    let first = (last - OPEN_AUCTIONS).max(0);
    let favourite = last / FAVOURITE_OF * FAVOURITE_OF;
    let other = first + upper(bits, (last - first + 1 + LEAD) as u64) as i64;
    FIRST_ID + std::hint::select_unpredictable(lower(bits, 2) > 0, favourite, other)
}

fn email(event: Draws, text: &mut String) {
    let lengths = event.bits(draw::EMAIL);
    // Ten letters at most: 64 bits hold thirteen.
    let rest = letters(event.bits(draw::LETTERS), 3 + upper(lengths, 4), text);
    text.push('@');
    letters(rest, 3 + lower(lengths, 2), text);
    text.push_str(".com");
}

/// Appends letters, and returns the randomness that is left.
fn letters(mut bits: u64, length: u64, text: &mut String) -> u64 {
    for _ in 0..length {
        text.push(char::from(b'a' + (bits % 26) as u8));
        bits /= 26;
    }
    bits
}

/// Four groups of four digits.
pub fn card(groups: [u64; 4], text: &mut String) {
    for (at, group) in groups.into_iter().enumerate() {
        if at > 0 {
            text.push(' ');
        }
        for unit in [1_000, 100, 10, 1] {
            text.push(char::from(b'0' + (group / unit % 10) as u8));
        }
    }
}

impl Preset for Mixed {
    fn numbers(&self, entity: Entity, field: EventField, events: Events<'_>) -> Vec<i64> {
        let bid = |number| self.ballast.event(Entity::Bid, number);
        match (entity, field) {
            (Entity::Person, _) => events.map(|number| last_person(number) + FIRST_ID),
            (Entity::Auction, _) => {
                events.map(|number| self.auction(field, number, &events.timeline))
            }
            (_, EventField::Auction) => {
                events.map(|number| auction(number, bid(number).bits(draw::AUCTION)))
            }
            (_, EventField::Bidder) => {
                events.map(|number| person(number, bid(number).bits(draw::BIDDER), 1))
            }
            _ => events.map(|number| self.prices.price(bid(number).bits(draw::PRICE))),
        }
    }

    fn texts(&self, entity: Entity, field: EventField, events: Events<'_>) -> Result<ArrayRef> {
        let numbers = || events.numbers.iter().copied();
        let person = |number| self.ballast.event(Entity::Person, number);
        let auction = |number| self.ballast.event(Entity::Auction, number);
        let picked = |list: &List, draw: u64, half: fn(u64, u64) -> u64, count: usize| {
            list.column(numbers().map(|number| half(person(number).bits(draw), count as u64)))
        };
        match field {
            EventField::Name => {
                picked(&self.names, draw::NAME, upper, FIRST_NAMES.len() * LAST_NAMES.len())
            }
            EventField::City => picked(&self.cities, draw::PLACE, upper, CITIES.len()),
            EventField::State => picked(&self.states, draw::PLACE, lower, STATES.len()),
            EventField::EmailAddress => {
                Ok(written(events.numbers, |number, text| email(person(number), text)))
            }
            EventField::CreditCard => Ok(written(events.numbers, |number, text| {
                let bits = person(number).bits(draw::CARD);
                card(
                    [0, 16, 32, 48].map(|shift| (((bits >> shift) & 0xFFFF) * 10_000) >> 16),
                    text,
                );
            })),
            EventField::ItemName => {
                self.items.column(numbers().map(|n| auction(n).bits(draw::ITEM)))
            }
            EventField::Description => {
                self.descriptions.column(numbers().map(|n| auction(n).bits(draw::DESCRIPTION)))
            }
            EventField::Channel => {
                self.channels.column(numbers().map(|number| self.channel(number)))
            }
            EventField::Url => self.pages.column(numbers().map(|number| self.channel(number))),
            EventField::Extra => self.ballast.extra(entity, events),
            other => Err(Error::internal(format!("column {} is no text", other.name()))),
        }
    }
}

/// The columns of a person.
pub const PERSON: [EventField; 7] = [
    EventField::Id,
    EventField::Name,
    EventField::EmailAddress,
    EventField::CreditCard,
    EventField::City,
    EventField::State,
    EventField::Extra,
];
/// The columns of an auction.
pub const AUCTION: [EventField; 9] = [
    EventField::Id,
    EventField::ItemName,
    EventField::Description,
    EventField::InitialBid,
    EventField::Reserve,
    EventField::Expires,
    EventField::Seller,
    EventField::Category,
    EventField::Extra,
];
/// The columns of a bid.
pub const BID: [EventField; 6] = [
    EventField::Auction,
    EventField::Bidder,
    EventField::Price,
    EventField::Channel,
    EventField::Url,
    EventField::Extra,
];
