//! Floors of the queries that join and keep all rows: 3, 20 and 23. Each side is kept under its
//! key, as the engine has to, which does not know which rows are the last of their key.

use thalweg::bench::Input;

use super::stored::{Chains, Outcome, Place, Reader, Table, in_steps, rows_of};

/// Auctions of category 10 with their sellers in three states.
pub fn query_3(inputs: &[Input]) -> Outcome {
    let (persons, auctions) = (Table::of(inputs, "person"), Table::of(inputs, "auction"));
    let (ids, states) = (persons.longs("id"), persons.texts("state"));
    let (sellers, categories) = (auctions.longs("seller"), auctions.longs("category"));
    let (mut by_id, mut by_seller) = (Chains::new(), Chains::new());
    let mut come = Reader::new(&persons);
    let mut rows = 0;
    in_steps(&auctions, |batch, time_ms| {
        let mut out: Vec<(Place, Place)> = Vec::new();
        come.until(time_ms, |person| {
            if matches!(states[person.0].value(person.1), "OR" | "ID" | "CA") {
                let id = ids[person.0][person.1];
                by_id.push(id, person);
                by_seller.each(id, |auction| out.push((auction, person)));
            }
        });
        for row in 0..batch.map_or(0, |batch| sellers[batch].len()) {
            let auction = (batch.expect("it has rows"), row);
            if categories[auction.0][row] == 10 {
                let seller = sellers[auction.0][row];
                by_seller.push(seller, auction);
                by_id.each(seller, |person| out.push((auction, person)));
            }
        }
        rows += write(&auctions, &persons, &out);
    });
    Outcome::stays(rows)
}

/// Bids on auctions of category 10.
pub fn query_20(inputs: &[Input]) -> Outcome {
    let (auctions, bids) = (Table::of(inputs, "auction"), Table::of(inputs, "bid"));
    let (ids, categories) = (auctions.longs("id"), auctions.longs("category"));
    let bid_on = bids.longs("auction");
    let (mut by_id, mut by_auction) = (Chains::new(), Chains::new());
    let mut come = Reader::new(&auctions);
    let mut rows = 0;
    in_steps(&bids, |batch, time_ms| {
        let mut out: Vec<(Place, Place)> = Vec::new();
        come.until(time_ms, |auction| {
            if categories[auction.0][auction.1] == 10 {
                let id = ids[auction.0][auction.1];
                by_id.push(id, auction);
                by_auction.each(id, |bid| out.push((bid, auction)));
            }
        });
        for (bid, on) in rows_of(&bid_on, batch) {
            by_auction.push(on, bid);
            by_id.each(on, |auction| out.push((bid, auction)));
        }
        rows += write(&bids, &auctions, &out);
    });
    Outcome::stays(rows)
}

fn write(left: &Table<'_>, right: &Table<'_>, out: &[(Place, Place)]) -> u64 {
    right.write(&out.iter().map(|pair| pair.1).collect::<Vec<_>>());
    left.write(&out.iter().map(|pair| pair.0).collect::<Vec<_>>())
}

/// A bid and who made it.
type Made = (Place, Place);

/// Bids with who made them and what he sells himself.
pub fn query_23(inputs: &[Input]) -> Outcome {
    let persons = Table::of(inputs, "person");
    let (auctions, bids) = (Table::of(inputs, "auction"), Table::of(inputs, "bid"));
    let (ids, sellers, bidders) =
        (persons.longs("id"), auctions.longs("seller"), bids.longs("bidder"));
    let (mut by_id, mut by_bidder) = (Chains::new(), Chains::new());
    let (mut made_by, mut by_seller) = (Chains::<Made>::new(), Chains::new());
    let (mut come, mut open) = (Reader::new(&persons), Reader::new(&auctions));
    let mut rows = 0;
    in_steps(&bids, |batch, time_ms| {
        let mut made: Vec<(i64, Made)> = Vec::new();
        let mut out: Vec<(Made, Place)> = Vec::new();
        come.until(time_ms, |person| {
            let id = ids[person.0][person.1];
            by_id.push(id, person);
            by_bidder.each(id, |bid| made.push((id, (bid, person))));
        });
        for (bid, bidder) in rows_of(&bidders, batch) {
            by_bidder.push(bidder, bid);
            by_id.each(bidder, |person| made.push((bidder, (bid, person))));
        }
        open.until(time_ms, |auction| {
            let seller = sellers[auction.0][auction.1];
            by_seller.push(seller, auction);
            made_by.each(seller, |pair| out.push((pair, auction)));
        });
        for (bidder, pair) in made {
            made_by.push(bidder, pair);
            by_seller.each(bidder, |auction| out.push((pair, auction)));
        }
        auctions.write(&out.iter().map(|row| row.1).collect::<Vec<_>>());
        persons.write(&out.iter().map(|row| row.0.1).collect::<Vec<_>>());
        rows += bids.write(&out.iter().map(|row| row.0.0).collect::<Vec<_>>());
    });
    Outcome::stays(rows)
}
