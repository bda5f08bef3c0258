//! NEXMark, preset `beam`: results of its queries over 100,000 events, by loops over all rows.
//!
//! The expected numbers were computed by a database over the events of another implementation of
//! Apache Beam's generator; Q1, Q2, Q7 and Q11 are also what Beam itself publishes.

mod nexmark_support;

use std::collections::{BTreeMap, HashMap, HashSet};

use nexmark_support::{Table, read};

const EVENTS: &str = "100000";
const WINDOW_MS: i64 = 10_000;

#[derive(Clone, Copy)]
struct Bid {
    auction: i64,
    bidder: i64,
    price: i64,
    time_ms: i64,
    number: i64,
}

struct Auction {
    id: i64,
    seller: i64,
    category: i64,
    time_ms: i64,
    expires_ms: i64,
}

struct Person {
    id: i64,
    state: String,
    time_ms: i64,
}

fn table(kind: &str, columns: &[&str]) -> Table {
    read(kind, columns, &[("preset", "beam"), ("events", EVENTS)])
}

fn bids() -> Vec<Bid> {
    let table = table("bid", &["auction", "bidder", "price", "dateTime", "seq"]);
    let row = |i| Bid {
        auction: table.number(0, i),
        bidder: table.number(1, i),
        price: table.number(2, i),
        time_ms: table.number(3, i),
        number: table.number(4, i),
    };
    (0..table.rows()).map(row).collect()
}

fn auctions() -> Vec<Auction> {
    let table = table("auction", &["id", "seller", "category", "dateTime", "expires"]);
    let row = |i| Auction {
        id: table.number(0, i),
        seller: table.number(1, i),
        category: table.number(2, i),
        time_ms: table.number(3, i),
        expires_ms: table.number(4, i),
    };
    (0..table.rows()).map(row).collect()
}

fn persons() -> Vec<Person> {
    let table = table("person", &["id", "state", "dateTime"]);
    let row = |i| Person {
        id: table.number(0, i),
        state: table.text(1, i).to_owned(),
        time_ms: table.number(2, i),
    };
    (0..table.rows()).map(row).collect()
}

/// The best bid of each auction while it was open, by auction.
fn winners() -> HashMap<i64, Bid> {
    let open: HashMap<i64, Auction> = auctions().into_iter().map(|a| (a.id, a)).collect();
    let mut winners: HashMap<i64, Bid> = HashMap::new();
    for bid in bids() {
        let Some(auction) = open.get(&bid.auction) else { continue };
        if (auction.time_ms..=auction.expires_ms).contains(&bid.time_ms) {
            let best = winners.entry(bid.auction).or_insert(bid);
            // Bids come in order, so the earliest of equal ones stays.
            if bid.price > best.price {
                *best = bid;
            }
        }
    }
    winners
}

#[test]
fn counts_of_each_kind() {
    assert_eq!((persons().len(), auctions().len(), bids().len()), (2_000, 6_000, 92_000));
}

#[test]
fn q1_and_q2_prices() {
    let bids = bids();
    assert_eq!(bids.iter().map(|bid| bid.price * 908).sum::<i64>(), 606_502_132_826_424);
    let of: Vec<&Bid> = bids.iter().filter(|bid| bid.auction % 123 == 0).collect();
    assert_eq!(of.len(), 351);
    assert_eq!(of.iter().map(|bid| bid.price).sum::<i64>(), 2_502_808_698);
}

#[test]
fn q3_sellers_in_three_states() {
    let persons: HashMap<i64, Person> = persons().into_iter().map(|p| (p.id, p)).collect();
    let sold = auctions().into_iter().filter(|auction| {
        let seller = persons.get(&auction.seller);
        let is_there = seller.is_some_and(|p| ["OR", "ID", "CA"].contains(&p.state.as_str()));
        auction.category == 10 && is_there
    });
    let ids: Vec<i64> = sold.map(|auction| auction.id).collect();
    assert_eq!((ids.len(), ids.iter().sum::<i64>()), (580, 2_586_338));
}

#[test]
fn q4_average_price_of_a_category() {
    let winners = winners();
    let mut categories: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for auction in auctions() {
        let Some(winner) = winners.get(&auction.id) else { continue };
        let sums = categories.entry(auction.category).or_default();
        *sums = (sums.0 + winner.price, sums.1 + 1);
    }
    let averages: Vec<(i64, i64, i64)> =
        categories.into_iter().map(|(id, (sum, count))| (id, sum / count, count)).collect();
    let expected = [
        (10, 33_984_800, 801),
        (11, 33_110_270, 833),
        (12, 32_828_496, 797),
        (13, 32_635_248, 809),
        (14, 34_803_745, 812),
    ];
    assert_eq!(averages, expected);
}

#[test]
fn q5_hot_items() {
    let mut windows: BTreeMap<i64, HashMap<i64, i64>> = BTreeMap::new();
    for bid in bids() {
        let newest = bid.time_ms.div_euclid(2_000) * 2_000;
        for start in (0..5).map(|back| newest - back * 2_000) {
            *windows.entry(start).or_default().entry(bid.auction).or_default() += 1;
        }
    }
    let (mut rows, mut sum) = (0, 0);
    for counts in windows.values() {
        let most = *counts.values().max().expect("a bid");
        let ties = counts.values().filter(|count| **count == most).count() as i64;
        rows += ties;
        sum += ties * most;
    }
    assert_eq!((rows, windows.len(), sum), (15, 9, 23_373));
}

#[test]
fn q7_highest_bids() {
    let bids = bids();
    let mut best: BTreeMap<i64, i64> = BTreeMap::new();
    for bid in &bids {
        let price = best.entry(bid.time_ms / WINDOW_MS).or_default();
        *price = bid.price.max(*price);
    }
    let highest: Vec<&Bid> =
        bids.iter().filter(|bid| bid.price == best[&(bid.time_ms / WINDOW_MS)]).collect();
    assert_eq!((highest.len(), highest[0].price), (1, 99_958_591));
}

#[test]
fn q8_new_sellers() {
    let sellers: HashSet<(i64, i64)> =
        auctions().iter().map(|auction| (auction.seller, auction.time_ms / WINDOW_MS)).collect();
    let both =
        persons().into_iter().filter(|p| sellers.contains(&(p.id, p.time_ms / WINDOW_MS))).count();
    assert_eq!(both, 902);
}

#[test]
fn q9_winning_bids() {
    let winners = winners();
    let sum: i64 = winners.values().map(|bid| bid.price).sum();
    assert_eq!((winners.len(), sum), (4_052, 135_629_549_844));
}

#[test]
fn q11_sessions_of_bidders() {
    let mut open: HashMap<i64, (i64, u64)> = HashMap::new();
    let (mut sessions, mut most) = (0, 0);
    for bid in bids() {
        let (last_ms, count) = open.entry(bid.bidder).or_insert((i64::MIN / 2, 0));
        if bid.time_ms - *last_ms >= WINDOW_MS {
            (sessions, *count) = (sessions + 1, 0);
        }
        (*last_ms, *count) = (bid.time_ms, *count + 1);
        most = most.max(*count);
    }
    assert_eq!((sessions, most), (1_919, 3_499));
}

#[test]
fn q17_and_q18_groups() {
    let bids = bids();
    let mut auctions: HashMap<i64, u64> = HashMap::new();
    bids.iter().for_each(|bid| *auctions.entry(bid.auction).or_default() += 1);
    assert_eq!((auctions.len(), auctions.values().max()), (4_657, Some(&1_565)));
    let pairs: HashSet<(i64, i64)> = bids.iter().map(|bid| (bid.bidder, bid.auction)).collect();
    assert_eq!(pairs.len(), 25_248);
}

#[test]
fn q19_ten_best_of_an_auction() {
    let mut auctions: HashMap<i64, Vec<Bid>> = HashMap::new();
    bids().into_iter().for_each(|bid| auctions.entry(bid.auction).or_default().push(bid));
    let (mut rows, mut sum) = (0, 0);
    for bids in auctions.values_mut() {
        bids.sort_by_key(|bid| (-bid.price, bid.time_ms, bid.number));
        bids.truncate(10);
        rows += bids.len();
        sum += bids.iter().map(|bid| bid.price).sum::<i64>();
    }
    assert_eq!((rows, sum), (35_135, 362_704_345_766));
}

#[test]
fn q20_and_q23_joins() {
    let auctions = auctions();
    let tenth: HashSet<i64> =
        auctions.iter().filter(|auction| auction.category == 10).map(|a| a.id).collect();
    let bids = bids();
    let of_tenth: Vec<&Bid> = bids.iter().filter(|bid| tenth.contains(&bid.auction)).collect();
    assert_eq!(of_tenth.len(), 14_419);
    assert_eq!(of_tenth.iter().map(|bid| bid.price).sum::<i64>(), 107_731_793_617);

    let persons: HashSet<i64> = persons().iter().map(|person| person.id).collect();
    let mut sold: HashMap<i64, usize> = HashMap::new();
    auctions.iter().for_each(|auction| *sold.entry(auction.seller).or_default() += 1);
    let known = bids.iter().filter(|bid| persons.contains(&bid.bidder));
    assert_eq!(known.filter_map(|bid| sold.get(&bid.bidder)).sum::<usize>(), 147_405);
}
