//! Floors of the last bid (18) and of the ten highest bids (19).

use arrow_array::Int64Array;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use thalweg::bench::Input;

use super::stored::{Outcome, Place, Table};

/// The last bid of each bidder on each auction.
pub fn query_18(inputs: &[Input]) -> Outcome {
    let bids = Table::of(inputs, "bid");
    let (auctions, bidders) = (bids.longs("auction"), bids.longs("bidder"));
    let times = bids.times("dateTime");
    let mut last: HashMap<(i64, i64), (i64, Place)> = HashMap::new();
    let mut rows_out = 0;
    for batch in 0..bids.batches.len() {
        let mut out: Vec<Place> = Vec::new();
        for row in 0..times[batch].len() {
            let bid = (times[batch][row], (batch, row));
            match last.entry((bidders[batch][row], auctions[batch][row])) {
                Entry::Vacant(entry) => {
                    entry.insert(bid);
                    out.push(bid.1);
                }
                Entry::Occupied(mut entry) => {
                    if bid.0 >= entry.get().0 {
                        out.extend([entry.insert(bid).1, bid.1]);
                    }
                }
            }
        }
        rows_out += bids.write(&out);
    }
    Outcome { rows_left: last.len() as u64, rows_out }
}

const RANKS: usize = 10;

/// The ten highest bids on each auction. A bid that moves others down changes all of their rows.
pub fn query_19(inputs: &[Input]) -> Outcome {
    let bids = Table::of(inputs, "bid");
    let (auctions, prices) = (bids.longs("auction"), bids.longs("price"));
    let mut highest: HashMap<i64, Vec<(i64, Place)>> = HashMap::new();
    let mut rows_out = 0;
    for batch in 0..bids.batches.len() {
        let (mut out, mut ranks): (Vec<Place>, Vec<i64>) = (Vec::new(), Vec::new());
        for row in 0..prices[batch].len() {
            let price = prices[batch][row];
            let list = highest.entry(auctions[batch][row]).or_default();
            let rank = list.partition_point(|known| known.0 >= price);
            if rank == RANKS {
                continue;
            }
            list.insert(rank, (price, (batch, row)));
            for place in rank..list.len().min(RANKS) {
                if let Some(before) = list.get(place + 1) {
                    out.push(before.1);
                    ranks.push(place as i64 + 1);
                }
                out.push(list[place].1);
                ranks.push(place as i64 + 1);
            }
            list.truncate(RANKS);
        }
        std::hint::black_box(Int64Array::from(ranks));
        rows_out += bids.write(&out);
    }
    Outcome { rows_left: highest.values().map(|list| list.len() as u64).sum(), rows_out }
}
