//! Floors of the statistics of each day: 15, 16 and 17. As in the engine each bid changes its
//! group: the old row is retracted, and the new one is written.

use arrow_array::{Int64Array, StringViewArray};
use hashbrown::{HashMap, HashTable};
use thalweg::bench::Input;
use thalweg_core::shim::mix64;

use super::stored::{Outcome, Table};

const DAY_MS: i64 = 86_400_000;

/// Which of three bands a price is in: 0, 1 or 2.
#[inline]
fn band(price: i64) -> usize {
    usize::from(price >= 10_000) + usize::from(price >= 1_000_000)
}

/// Counts of a group: in all and in each band, of bids, bidders and auctions.
type Counts = [i64; 12];

/// Groups, and who was seen in each of them.
#[derive(Default)]
struct Groups {
    counts: Vec<Counts>,
    minutes: Vec<i64>,
    /// For a group and a bidder (or auction) the bands that it was seen in, bit 3 for any.
    bidders: HashMap<(u32, i64), u8>,
    auctions: HashMap<(u32, i64), u8>,
    /// Rows that are to be written: the group, and its counts before or after a bid.
    rows: Vec<(u32, Counts)>,
}

impl Groups {
    fn add(&mut self) -> u32 {
        self.counts.push([0; 12]);
        self.minutes.push(0);
        self.counts.len() as u32 - 1
    }

    #[inline]
    fn bid(&mut self, group: u32, bidder: i64, auction: i64, price: i64) {
        let counts = &mut self.counts[group as usize];
        if counts[0] > 0 {
            self.rows.push((group, *counts));
        }
        let band = band(price);
        counts[0] += 1;
        counts[1 + band] += 1;
        for (seen, key, first) in [(&mut self.bidders, bidder, 4), (&mut self.auctions, auction, 8)]
        {
            let bits = seen.entry((group, key)).or_default();
            counts[first] += i64::from(*bits == 0);
            counts[first + 1 + band] += i64::from(*bits >> band & 1 == 0);
            *bits |= 1 << band | 8;
        }
        self.rows.push((group, *counts));
    }

    /// Writes what the bids of a batch have changed, columns of numbers and one of text; how many
    /// rows.
    fn write<'n>(&mut self, name: impl Fn(u32) -> &'n str) -> u64 {
        let rows = std::mem::take(&mut self.rows);
        for column in 0..12 {
            let values = rows.iter().map(|(_, counts)| counts[column]);
            std::hint::black_box(Int64Array::from_iter_values(values));
        }
        let names = rows.iter().map(|(group, _)| Some(name(*group)));
        std::hint::black_box(names.collect::<StringViewArray>());
        rows.len() as u64
    }
}

/// Of each day.
pub fn query_15(inputs: &[Input]) -> Outcome {
    let bids = Table::of(inputs, "bid");
    let (auctions, bidders) = (bids.longs("auction"), bids.longs("bidder"));
    let (prices, times) = (bids.longs("price"), bids.times("dateTime"));
    let mut groups = Groups::default();
    let mut days: HashMap<i64, u32> = HashMap::new();
    let mut rows_out = 0;
    for batch in 0..bids.batches.len() {
        for row in 0..prices[batch].len() {
            let day = times[batch][row].div_euclid(DAY_MS);
            let group = *days.entry(day).or_insert_with(|| groups.add());
            groups.bid(group, bidders[batch][row], auctions[batch][row], prices[batch][row]);
        }
        rows_out += groups.write(|_| "2015-07-15");
    }
    Outcome { rows_left: groups.counts.len() as u64, rows_out }
}

/// Of each channel and day.
pub fn query_16(inputs: &[Input]) -> Outcome {
    let bids = Table::of(inputs, "bid");
    let (auctions, bidders) = (bids.longs("auction"), bids.longs("bidder"));
    let (prices, times) = (bids.longs("price"), bids.times("dateTime"));
    let channels = bids.texts("channel");
    let mut groups = Groups::default();
    let mut names: Vec<&str> = Vec::new();
    let mut ids: HashTable<(u64, u32, i64)> = HashTable::new();
    let mut rows_out = 0;
    for batch in 0..bids.batches.len() {
        for row in 0..prices[batch].len() {
            let day = times[batch][row].div_euclid(DAY_MS);
            let name = channels[batch].value(row);
            let hash = thalweg_operators::keys::hash_bytes(name.as_bytes()) ^ mix64(day as u64);
            let same = |known: &(u64, u32, i64)| known.2 == day && names[known.1 as usize] == name;
            let group = match ids.find(hash, same) {
                Some(known) => known.1,
                None => {
                    names.push(name);
                    let group = groups.add();
                    ids.insert_unique(hash, (hash, group, day), |known| known.0);
                    group
                }
            };
            groups.bid(group, bidders[batch][row], auctions[batch][row], prices[batch][row]);
            let minute = &mut groups.minutes[group as usize];
            *minute = (*minute).max(times[batch][row].rem_euclid(DAY_MS) / 60_000);
        }
        rows_out += groups.write(|group| names[group as usize]);
    }
    Outcome { rows_left: groups.counts.len() as u64, rows_out }
}

/// Bids and prices of each auction and day.
pub fn query_17(inputs: &[Input]) -> Outcome {
    /// Count, counts of bands, smallest, largest, sum.
    type Prices = [i64; 7];
    let bids = Table::of(inputs, "bid");
    let (auctions, prices) = (bids.longs("auction"), bids.longs("price"));
    let times = bids.times("dateTime");
    let mut ids: HashMap<(i64, i64), u32> = HashMap::new();
    let mut states: Vec<Prices> = Vec::new();
    let mut keys: Vec<i64> = Vec::new();
    let mut rows_out = 0;
    for batch in 0..bids.batches.len() {
        let mut rows: Vec<(u32, Prices)> = Vec::with_capacity(prices[batch].len() * 2);
        for row in 0..prices[batch].len() {
            let key = (auctions[batch][row], times[batch][row].div_euclid(DAY_MS));
            let id = *ids.entry(key).or_insert_with(|| {
                states.push([0, 0, 0, 0, i64::MAX, i64::MIN, 0]);
                keys.push(key.0);
                states.len() as u32 - 1
            });
            let state = &mut states[id as usize];
            if state[0] > 0 {
                rows.push((id, *state));
            }
            let price = prices[batch][row];
            state[0] += 1;
            state[1 + band(price)] += 1;
            state[4] = state[4].min(price);
            state[5] = state[5].max(price);
            state[6] += price;
            rows.push((id, *state));
        }
        for column in 0..7 {
            let values = rows.iter().map(|(_, state)| state[column]);
            std::hint::black_box(Int64Array::from_iter_values(values));
        }
        let averages = rows.iter().map(|(_, state)| state[6] / state[0]);
        std::hint::black_box(Int64Array::from_iter_values(averages));
        let auctions = rows.iter().map(|(id, _)| keys[*id as usize]);
        std::hint::black_box(Int64Array::from_iter_values(auctions));
        let days = rows.iter().map(|_| Some("2015-07-15"));
        std::hint::black_box(days.collect::<StringViewArray>());
        rows_out += rows.len() as u64;
    }
    Outcome { rows_left: states.len() as u64, rows_out }
}
