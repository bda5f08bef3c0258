//! The preset `beam`: the values of Apache Beam's generator, one generator, events in order.
//!
//! Event e takes its random numbers from `java.util.Random(e)` in a fixed order of draws, so a
//! column that stands behind others repeats their draws. It is for comparing with published
//! results, not for speed. `extra` is drawn last there and decides nothing, and a bid has neither
//! channel nor page; here they are those of the preset `nexmark`, so that every query can run.

use arrow_array::ArrayRef;
use thalweg_core::{Error, Result};

use super::columns::{EventField, Events, Preset};
use super::events::{Entity, Timeline, last_auction, last_person};
use super::mixed::{
    ACTIVE_PERSONS, AUCTION_EVENTS, CATEGORIES, CITIES, FAVOURITE_OF, FIRST_CATEGORY, FIRST_ID,
    FIRST_NAMES, LAST_NAMES, LEAD, Mixed, OPEN_AUCTIONS, STATES, card,
};
use super::random::JavaRandom;
use super::text::written;

/// The preset.
pub struct Beam {
    /// Makes what Beam's events do not have.
    others: Mixed,
}

impl Beam {
    /// The preset.
    pub fn new() -> Result<Self> {
        Ok(Beam { others: Mixed::new(0)? })
    }
}

fn price(random: &mut JavaRandom) -> i64 {
    (10f64.powf(random.unit() * 6.0) * 100.0 + 0.5).floor() as i64
}

/// Letters, and now and then a space. Spaces at the ends do not count.
fn words(random: &mut JavaRandom, length_max: u64, text: &mut String) {
    let begin = text.len();
    for _ in 0..3 + random.below(length_max - 3) {
        let is_space = random.below(13) == 0;
        if !is_space {
            text.push(char::from(b'a' + random.below(26) as u8));
        } else if text.len() > begin {
            text.push(' ');
        }
    }
    text.truncate(text.trim_end().len().max(begin));
}

fn person(number: u64, random: &mut JavaRandom) -> i64 {
    let persons = last_person(number) + 1;
    let active = persons.min(ACTIVE_PERSONS);
    persons - active + random.below((active + LEAD) as u64) as i64
}

/// Auction, bidder and price.
fn bid(number: u64) -> (i64, i64, i64) {
    let mut random = JavaRandom::new(number);
    let last = last_auction(number);
    let auction = if random.below(2) > 0 {
        last / FAVOURITE_OF * FAVOURITE_OF
    } else {
        let first = (last - OPEN_AUCTIONS).max(0);
        first + random.below((last - first + 1 + LEAD) as u64) as i64
    };
    let bidder = if random.below(4) > 0 {
        last_person(number) / FAVOURITE_OF * FAVOURITE_OF + 1
    } else {
        person(number, &mut random)
    };
    (auction + FIRST_ID, bidder + FIRST_ID, price(&mut random))
}

/// What is on offer.
struct Offer {
    seller: i64,
    category: i64,
    initial: i64,
    length_ms: i64,
    reserve: i64,
}

fn offer(number: u64, timeline: &Timeline, item: &mut String, description: &mut String) -> Offer {
    let mut random = JavaRandom::new(number);
    let seller = if random.below(4) > 0 {
        last_person(number) / FAVOURITE_OF * FAVOURITE_OF
    } else {
        person(number, &mut random)
    };
    let category = FIRST_CATEGORY + random.below(CATEGORIES) as i64;
    let initial = price(&mut random);
    let half_ms = timeline.at_ms(number + AUCTION_EVENTS) - timeline.at_ms(number);
    let range_ms = (half_ms * 2).clamp(1, i64::from(i32::MAX));
    let length_ms = 1 + random.below(range_ms as u64) as i64;
    words(&mut random, 20, item);
    words(&mut random, 100, description);
    let reserve = initial + price(&mut random);
    Offer { seller: seller + FIRST_ID, category, initial, length_ms, reserve }
}

fn auctions(field: EventField, events: Events<'_>) -> Vec<i64> {
    let (mut item, mut description) = (String::new(), String::new());
    let value = |&number: &u64| {
        item.clear();
        description.clear();
        let offer = offer(number, &events.timeline, &mut item, &mut description);
        match field {
            EventField::Seller => offer.seller,
            EventField::Category => offer.category,
            EventField::InitialBid => offer.initial,
            EventField::Reserve => offer.reserve,
            _ => events.timeline.at_ms(number) + offer.length_ms,
        }
    };
    events.numbers.iter().map(value).collect()
}

/// Appends one of a person's texts; all draws before it are made.
fn person_text(number: u64, field: EventField, text: &mut String) {
    let mut random = JavaRandom::new(number);
    let mut pick = |list: &[&'static str]| list[random.below(list.len() as u64) as usize];
    let names = [pick(&FIRST_NAMES), pick(&LAST_NAMES)];
    if field == EventField::Name {
        return text.extend([names[0], " ", names[1]]);
    }
    words(&mut random, 7, text);
    text.push('@');
    words(&mut random, 5, text);
    text.push_str(".com");
    if field == EventField::EmailAddress {
        return;
    }
    text.clear();
    let groups = std::array::from_fn(|_| random.below(10_000));
    if field == EventField::CreditCard {
        return card(groups, text);
    }
    let city = random.below(CITIES.len() as u64) as usize;
    let state = random.below(STATES.len() as u64) as usize;
    text.push_str(if field == EventField::City { CITIES[city] } else { STATES[state] });
}

impl Preset for Beam {
    fn numbers(&self, entity: Entity, field: EventField, events: Events<'_>) -> Vec<i64> {
        match (entity, field) {
            (Entity::Person, _) => events.map(|number| last_person(number) + FIRST_ID),
            (Entity::Auction, EventField::Id) => {
                events.map(|number| last_auction(number) + FIRST_ID)
            }
            (Entity::Auction, _) => auctions(field, events),
            (_, EventField::Auction) => events.map(|number| bid(number).0),
            (_, EventField::Bidder) => events.map(|number| bid(number).1),
            _ => events.map(|number| bid(number).2),
        }
    }

    fn texts(&self, entity: Entity, field: EventField, events: Events<'_>) -> Result<ArrayRef> {
        let mut other = String::new();
        match (entity, field) {
            (_, EventField::Extra | EventField::Channel | EventField::Url) => {
                self.others.texts(entity, field, events)
            }
            (Entity::Person, _) => {
                Ok(written(events.numbers, |number, text| person_text(number, field, text)))
            }
            (Entity::Auction, EventField::ItemName) => {
                Ok(written(events.numbers, |number, text| {
                    other.clear();
                    offer(number, &events.timeline, text, &mut other);
                }))
            }
            (Entity::Auction, EventField::Description) => {
                Ok(written(events.numbers, |number, text| {
                    other.clear();
                    offer(number, &events.timeline, &mut other, text);
                }))
            }
            _ => Err(Error::internal(format!("column {} is no text", field.name()))),
        }
    }
}
