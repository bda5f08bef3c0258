//! Floors of the queries about the highest bid of each auction: 4 and 9.

use arrow_array::Int64Array;
use hashbrown::HashMap;
use thalweg::bench::Input;

use super::stored::{Chains, Outcome, Place, Reader, Table, in_steps, rows_of};

/// Calls `meet` for each auction and each of its bids in time. Both sides are kept.
fn bids_in_time(
    inputs: &[Input],
    mut meet: impl FnMut(Place, Place),
    mut end_of_step: impl FnMut(),
) {
    let (auctions, bids) = (Table::of(inputs, "auction"), Table::of(inputs, "bid"));
    let (ids, starts, ends) =
        (auctions.longs("id"), auctions.times("dateTime"), auctions.times("expires"));
    let (bid_on, times) = (bids.longs("auction"), bids.times("dateTime"));
    let (mut by_id, mut by_auction) = (Chains::new(), Chains::new());
    let mut come = Reader::new(&auctions);
    let mut meet = |auction: Place, bid: Place| {
        let time = times[bid.0][bid.1];
        if starts[auction.0][auction.1] <= time && time <= ends[auction.0][auction.1] {
            meet(auction, bid);
        }
    };
    in_steps(&bids, |batch, time_ms| {
        come.until(time_ms, |auction| {
            let id = ids[auction.0][auction.1];
            by_id.push(id, auction);
            by_auction.each(id, |bid| meet(auction, bid));
        });
        for (bid, on) in rows_of(&bid_on, batch) {
            by_auction.push(on, bid);
            by_id.each(on, |auction| meet(auction, bid));
        }
        end_of_step();
    });
}

/// The average price at which the auctions of a category close.
pub fn query_4(inputs: &[Input]) -> Outcome {
    let (auctions, bids) = (Table::of(inputs, "auction"), Table::of(inputs, "bid"));
    let (ids, categories) = (auctions.longs("id"), auctions.longs("category"));
    let prices = bids.longs("price");
    let mut highest: HashMap<(i64, i64), i64> = HashMap::new();
    let mut averages: HashMap<i64, (i64, i64)> = HashMap::new();
    let out = std::cell::RefCell::new((Vec::new(), Vec::new()));
    let mut rows_out = 0;
    let meet = |auction: Place, bid: Place| {
        let category = categories[auction.0][auction.1];
        let price = prices[bid.0][bid.1];
        let known = highest.entry((ids[auction.0][auction.1], category)).or_insert(i64::MIN);
        if price <= *known {
            return;
        }
        let before = std::mem::replace(known, price);
        let average = averages.entry(category).or_insert((0, 0));
        let mut out = out.borrow_mut();
        let mut change = |by: i64, count: i64| {
            let old = (average.1 > 0).then(|| average.0 / average.1);
            *average = (average.0 + by, average.1 + count);
            let new = (average.1 > 0).then(|| average.0 / average.1);
            if old != new {
                for value in old.into_iter().chain(new) {
                    out.0.push(category);
                    out.1.push(value);
                }
            }
        };
        // The old price of the auction is retracted before the new one counts, as the engine does.
        if before != i64::MIN {
            change(-before, -1);
        }
        change(price, 1);
    };
    bids_in_time(inputs, meet, || {
        let (categories, averages) = std::mem::take(&mut *out.borrow_mut());
        rows_out += categories.len() as u64;
        std::hint::black_box((Int64Array::from(categories), Int64Array::from(averages)));
    });
    Outcome { rows_left: averages.len() as u64, rows_out }
}

/// The bid that wins each auction: the highest, of equal ones the first.
pub fn query_9(inputs: &[Input]) -> Outcome {
    let (auctions, bids) = (Table::of(inputs, "auction"), Table::of(inputs, "bid"));
    let ids = auctions.longs("id");
    let (prices, times) = (bids.longs("price"), bids.times("dateTime"));
    let rank = |bid: Place| (std::cmp::Reverse(prices[bid.0][bid.1]), times[bid.0][bid.1]);
    let mut best: HashMap<i64, (Place, Place)> = HashMap::new();
    let out = std::cell::RefCell::new(Vec::new());
    let mut rows_out = 0;
    let meet = |auction: Place, bid: Place| {
        let mut out = out.borrow_mut();
        match best.entry(ids[auction.0][auction.1]) {
            hashbrown::hash_map::Entry::Vacant(entry) => {
                entry.insert((auction, bid));
                out.push((auction, bid));
            }
            hashbrown::hash_map::Entry::Occupied(mut entry) => {
                if rank(bid) < rank(entry.get().1) {
                    out.push(entry.insert((auction, bid)));
                    out.push((auction, bid));
                }
            }
        }
    };
    bids_in_time(inputs, meet, || {
        let out = out.take();
        auctions.write(&out.iter().map(|pair| pair.0).collect::<Vec<_>>());
        rows_out += bids.write(&out.iter().map(|pair| pair.1).collect::<Vec<_>>());
    });
    Outcome { rows_left: best.len() as u64, rows_out }
}
