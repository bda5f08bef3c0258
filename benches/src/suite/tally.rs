//! Adds up what goes into a query and what comes out, where the one says what the other must be:
//! NEXMark's queries 0, 1, 2 and 13 (each row), 7 (the highest price of each window) and 11 (the
//! bids of all sessions).
//!
//! Bids are looked at before the engine has them, by the thread that made them; it is about a
//! nanosecond for each, and part of what the generator takes. Of other queries the events are made
//! once more ([`super::expected`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMillisecondType};
use serde_json::Value;
use thalweg::Sink;

use super::age_sinks::each;
use super::job::Look;
use super::oracle::Sum;

/// The highest price of a window, and how many bids have it.
#[derive(Clone, Copy)]
struct Highest {
    price: i64,
    bids: u64,
}

#[derive(Default)]
struct Sides {
    expected: Sum,
    windows: BTreeMap<i64, Highest>,
    found: Sum,
}

/// What went in and what came out so far.
#[derive(Clone)]
pub struct Tally {
    query: Query,
    window_ms: i64,
    sides: Arc<Mutex<Sides>>,
}

#[derive(Clone, Copy)]
enum Query {
    EachBid,
    InEuros,
    OfSomeAuctions,
    HighestBid,
    Sessions,
}

impl Tally {
    /// Of one of NEXMark's queries, whose windows last so long.
    pub fn of(query: &str, window_ms: i64) -> Tally {
        let query = match query {
            "q0" | "q13" => Query::EachBid,
            "q1" => Query::InEuros,
            "q2" => Query::OfSomeAuctions,
            "q7" => Query::HighestBid,
            "q11" => Query::Sessions,
            _ => panic!("{query} is checked in another way"),
        };
        Tally { query, window_ms, sides: Arc::default() }
    }

    /// Looks at the bids.
    pub fn look(&self) -> Look {
        let tally = self.clone();
        Box::new(move |batch: &RecordBatch| tally.goes_in(batch))
    }

    /// A sink for the results.
    pub fn sink(&self) -> impl Sink + 'static {
        let tally = self.clone();
        each("tally", move |batch| tally.comes_out(batch))
    }

    /// `"ok"`, or what is wrong.
    pub fn check(&self) -> Value {
        let sides = self.lock();
        let mut expected = sides.expected;
        for highest in sides.windows.values() {
            expected.rows += highest.bids;
            expected.hash = expected.hash.wrapping_add(highest.price as u64 * highest.bids);
        }
        sides.found.compared(expected)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sides> {
        self.sides.lock().expect("nobody panics with it")
    }

    fn goes_in(&self, batch: &RecordBatch) {
        let mut sides = self.lock();
        let rows = batch.num_rows() as u64;
        match self.query {
            Query::EachBid => sides.expected.add_all(rows, sum(longs(batch, "price"))),
            Query::InEuros => sides.expected.add_all(rows, sum(longs(batch, "price")) * 908),
            Query::OfSomeAuctions => {
                let bids = longs(batch, "auction").iter().zip(longs(batch, "price"));
                bids.filter(|(auction, _)| *auction % 123 == 0)
                    .for_each(|(_, price)| sides.expected.add(*price as u64));
            }
            Query::HighestBid => self.highest(batch, &mut sides.windows),
            Query::Sessions => sides.expected.add_all(0, rows),
        }
    }

    fn highest(&self, batch: &RecordBatch, windows: &mut BTreeMap<i64, Highest>) {
        let times = batch.column_by_name("dateTime").expect("the query reads it");
        let times = times.as_primitive::<TimestampMillisecondType>().values();
        let mut open = (i64::MIN, Highest { price: i64::MIN, bids: 0 });
        let mut close = |(window, of): (i64, Highest)| {
            let known = windows.entry(window).or_insert(Highest { price: i64::MIN, bids: 0 });
            match of.price.cmp(&known.price) {
                std::cmp::Ordering::Greater => *known = of,
                std::cmp::Ordering::Equal => known.bids += of.bids,
                std::cmp::Ordering::Less => {}
            }
        };
        for (time, &price) in times.iter().zip(longs(batch, "price")) {
            let window = time.div_euclid(self.window_ms);
            if window != open.0 {
                if open.1.bids > 0 {
                    close(open);
                }
                open = (window, Highest { price, bids: 1 });
            } else if price > open.1.price {
                open.1 = Highest { price, bids: 1 };
            } else if price == open.1.price {
                open.1.bids += 1;
            }
        }
        if open.1.bids > 0 {
            close(open);
        }
    }

    fn comes_out(&self, batch: &RecordBatch) {
        let rows = batch.num_rows() as u64;
        let (rows, hash) = match self.query {
            Query::InEuros => {
                let prices = batch.column_by_name("price").expect("the query says so");
                let prices = prices.as_primitive::<Decimal128Type>().values();
                (rows, prices.iter().fold(0, |sum: u64, &price| sum.wrapping_add(price as u64)))
            }
            Query::Sessions => (0, sum(longs(batch, "bid_count"))),
            _ => (rows, sum(longs(batch, "price"))),
        };
        self.lock().found.add_all(rows, hash);
    }
}

fn longs<'a>(batch: &'a RecordBatch, name: &str) -> &'a [i64] {
    let column = batch.column_by_name(name).expect("the query has it");
    column.as_primitive::<Int64Type>().values()
}

fn sum(numbers: &[i64]) -> u64 {
    numbers.iter().fold(0, |sum: u64, &number| sum.wrapping_add(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};

    fn bids(rows: &[(i64, i64)]) -> RecordBatch {
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.0));
        let prices = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
        let columns: [(&str, ArrayRef); 2] =
            [("dateTime", Arc::new(times)), ("price", Arc::new(prices))];
        RecordBatch::try_from_iter(columns).expect("columns fit")
    }

    #[test]
    fn the_highest_bids_of_each_window_are_expected() {
        let tally = Tally::of("q7", 1000);
        tally.goes_in(&bids(&[(0, 5), (10, 7), (20, 7), (1_500, 3)]));
        tally.goes_in(&bids(&[(1_600, 9)]));
        tally.comes_out(&bids(&[(10, 7), (20, 7)]));
        assert_ne!(tally.check(), "ok");
        tally.comes_out(&bids(&[(1_600, 9)]));
        assert_eq!(tally.check(), "ok");
    }

    #[test]
    fn a_row_too_many_is_wrong() {
        let tally = Tally::of("q0", 1000);
        tally.goes_in(&bids(&[(0, 5), (10, 7)]));
        tally.comes_out(&bids(&[(0, 5), (10, 7)]));
        assert_eq!(tally.check(), "ok");
        tally.comes_out(&bids(&[(10, 0)]));
        assert!(tally.check().to_string().contains("WRONG"));
    }
}
