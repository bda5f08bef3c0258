//! Which events a table holds, in which order, and when they happen.
//!
//! Events are numbered from 0. Slot k is the place of an event in the order of emission; it holds
//! event k, or, out of order in groups of n, event `n * floor(k / n) + (k * 953) mod n`. A table
//! that is one of n splits has every n-th slot. Which number a slot holds depends on
//! nothing else, so that any splits together have each event once.

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// Someone who sells and bids.
    Person,
    /// A thing on offer.
    Auction,
    /// An offer.
    Bid,
}

/// Persons, auctions and bids come 1 : 3 : 46.
pub const EPOCH: u64 = 50;
const AUCTIONS_END: u64 = 4;

/// What an event of a mixed stream is about.
#[inline]
pub fn entity(number: u64) -> Entity {
    match number % EPOCH {
        0 => Entity::Person,
        1..AUCTIONS_END => Entity::Auction,
        _ => Entity::Bid,
    }
}

/// The number of the newest person at an event, from 0.
#[inline]
pub fn last_person(number: u64) -> i64 {
    (number / EPOCH) as i64
}

/// The number of the newest auction at an event, from 0; -1 while there is none.
#[inline]
pub fn last_auction(number: u64) -> i64 {
    let epoch = (number / EPOCH) as i64;
    match number % EPOCH {
        0 => epoch * 3 - 1,
        of_epoch @ 1..AUCTIONS_END => epoch * 3 + of_epoch as i64 - 1,
        _ => epoch * 3 + 2,
    }
}

/// When events happen.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// The time of event 0, in milliseconds since 1970.
    pub base_ms: i64,
    /// How many happen in a second.
    pub events_per_second: u64,
}

impl Timeline {
    /// The time of an event, in milliseconds since 1970.
    #[inline]
    pub fn at_ms(&self, number: u64) -> i64 {
        self.base_ms + (number.wrapping_mul(1_000) / self.events_per_second) as i64
    }
}

/// More events than this have no times in 64 bits.
pub const EVENTS_MAX: u64 = 1_000_000_000_000_000;

/// The events of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// What the table is about; `None` is everything.
    pub entity: Option<Entity>,
    /// True if persons, auctions and bids share the numbers; else every event is of the entity.
    pub is_mixed: bool,
    /// How many events there are in all splits, of whatever entity.
    pub events: Option<u64>,
    /// Events are out of order in groups of this many; 1 is in order.
    pub group: u64,
    /// Which split this is.
    pub split: u64,
    /// Of how many.
    pub splits: u64,
}

impl Selection {
    /// The slot behind the last one.
    pub fn slots_end(&self) -> u64 {
        // The last group is complete in slots, and those without an event are passed over.
        self.events.map_or(u64::MAX, |events| events.div_ceil(self.group) * self.group)
    }

    /// Appends the numbers of the wanted events in the slots from `slot` on and before `end`, until
    /// there are `rows_max`; returns the next slot.
    pub fn take(&self, mut slot: u64, end: u64, rows_max: usize, numbers: &mut Vec<u64>) -> u64 {
        let end = end.min(self.slots_end());
        let events = self.events.unwrap_or(u64::MAX);
        while slot < end && numbers.len() < rows_max {
            let number = self.number(slot);
            let is_wanted = !self.is_mixed || self.entity.is_none_or(|e| e == entity(number));
            if is_wanted && number < events {
                numbers.push(number);
            }
            slot += self.splits;
        }
        slot
    }

    #[inline]
    fn number(&self, slot: u64) -> u64 {
        if self.group == 1 {
            return slot;
        }
        let within = slot % self.group;
        slot - within + within * STRIDE % self.group
    }
}

/// Coprime to the size of a group, unless that is a multiple of it.
pub const STRIDE: u64 = 953;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Selection = Selection {
        entity: None,
        is_mixed: true,
        events: Some(1_030),
        group: 1,
        split: 0,
        splits: 1,
    };

    fn numbers(selection: &Selection, rows_max: usize) -> Vec<u64> {
        let (mut slot, mut numbers) = (selection.split, Vec::new());
        while slot < selection.slots_end() {
            let mut batch = Vec::new();
            slot = selection.take(slot, u64::MAX, rows_max, &mut batch);
            numbers.extend(batch);
        }
        numbers
    }

    #[test]
    fn a_group_holds_its_numbers_in_another_order() {
        let grouped = Selection { group: 100, ..ALL };
        let mut shuffled = numbers(&grouped, 7);
        assert_eq!(shuffled[..3], [0, 53, 6]);
        assert!(shuffled[100..200].iter().all(|number| number / 100 == 1));
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..1_030).collect::<Vec<_>>());
    }

    #[test]
    fn splits_share_the_numbers_out() {
        for group in [1, 10, 64] {
            let split = |split| Selection { group, split, splits: 3, ..ALL };
            let mut together: Vec<u64> = (0..3).flat_map(|i| numbers(&split(i), 10)).collect();
            together.sort_unstable();
            assert_eq!(together, (0..1_030).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_person_and_three_auctions_come_before_bids() {
        let of = |entity| numbers(&Selection { entity: Some(entity), ..ALL }, 1_000);
        assert_eq!(of(Entity::Person)[..2], [0, 50]);
        assert_eq!(of(Entity::Auction)[..4], [1, 2, 3, 51]);
        assert_eq!(of(Entity::Bid).len(), 20 * 46 + 26);
        assert_eq!([0, 1, 3, 4, 50, 51].map(last_auction), [-1, 0, 2, 2, 2, 3]);
    }
}
