//! Loops by hand through NEXMark's events, for the check of results (not for their speed; the
//! floors are in [`crate::nexmark`]).
//!
//! | loop | query | keeps |
//! |---|---|---|
//! | [`LocalSellers`] | 3 | persons of three states, auctions of a category |
//! | [`Auctions`] | 4 and 6 | the time of each auction, the highest of its bids in time |
//! | [`HottestAuctions`] | 5 | counts by slide |
//! | [`NewSellers`] | 8 | when each person came |
//! | [`HighestOfAll`] | Jet's 7 | the highest price of each slide |
//! | [`BothCame`] | Jet's 8 | the slides of each key, by side |
//!
//! Of query 6 the number of results and their sellers are compared: auctions of a seller that close
//! in the same millisecond have no order, so the averages of the last ten depend on the run. The
//! tests of the queries look at those at a slower event time, where there is one.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use hashbrown::HashMap;

use super::oracle::{Sum, hash_row};

/// A loop that sees all events of its tables, one table behind the other.
pub trait ByHand {
    /// In this order.
    fn tables(&self) -> &'static [&'static str];
    /// Some events of a table, in the order of time.
    fn take(&mut self, table: &str, batch: &RecordBatch);
    /// What the result must be.
    fn finish(self: Box<Self>) -> Sum;
}

fn longs<'a>(batch: &'a RecordBatch, name: &str) -> &'a [i64] {
    let column = batch.column_by_name(name).unwrap_or_else(|| panic!("the query reads {name}"));
    match column.as_primitive_opt::<TimestampMillisecondType>() {
        Some(times) => times.values(),
        None => column.as_primitive::<Int64Type>().values(),
    }
}

fn texts(texts: &[&str]) -> i64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish() as i64
}

fn text(column: &dyn Array, row: usize) -> &str {
    column.as_string_view().value(row)
}

fn long(batch: &RecordBatch, column: usize, row: usize) -> i64 {
    let column = batch.column(column);
    match column.as_primitive_opt::<TimestampMillisecondType>() {
        Some(times) => times.value(row),
        None => column.as_primitive::<Int64Type>().value(row),
    }
}

/// A row of query 3: name, city, state, auction.
pub fn local_seller(batch: &RecordBatch, row: usize) -> u64 {
    let of = |column: usize| text(batch.column(column), row);
    hash_row(texts(&[of(0), of(1), of(2)]), long(batch, 3, row), 0)
}

/// A row of query 8: person, name, start of the window.
pub fn new_seller(batch: &RecordBatch, row: usize) -> u64 {
    let name = texts(&[text(batch.column(1), row)]);
    hash_row(long(batch, 0, row), name, long(batch, 2, row))
}

/// A row of two numbers.
pub fn two_longs(batch: &RecordBatch, row: usize) -> u64 {
    hash_row(long(batch, 0, row), long(batch, 1, row), 0)
}

/// A row of which the first number counts.
pub fn one_long(batch: &RecordBatch, row: usize) -> u64 {
    hash_row(long(batch, 0, row), 0, 0)
}

/// Something for each of many numbers that lie close to each other.
struct ById<T> {
    first: Option<i64>,
    slots: Vec<Option<T>>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        ById { first: None, slots: Vec::new() }
    }
}

impl<T> ById<T> {
    /// Puts it there. The first number is the least.
    fn insert(&mut self, id: i64, value: T) {
        let first = *self.first.get_or_insert(id);
        let slot = usize::try_from(id - first).expect("numbers grow");
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(value);
    }

    fn get_mut(&mut self, id: i64) -> Option<&mut T> {
        let slot = usize::try_from(id - self.first?).ok()?;
        self.slots.get_mut(slot)?.as_mut()
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

/// Query 3: auctions of category 10 with their sellers in three states.
#[derive(Default)]
pub struct LocalSellers {
    persons: ById<i64>,
    sum: Sum,
}

impl ByHand for LocalSellers {
    fn tables(&self) -> &'static [&'static str] {
        &["person", "auction"]
    }
    fn take(&mut self, table: &str, batch: &RecordBatch) {
        let ids = longs(batch, "id");
        if table == "auction" {
            let (sellers, categories) = (longs(batch, "seller"), longs(batch, "category"));
            for row in (0..ids.len()).filter(|&row| categories[row] == 10) {
                if let Some(&mut person) = self.persons.get_mut(sellers[row]) {
                    self.sum.add(hash_row(person, ids[row], 0));
                }
            }
            return;
        }
        let column = |name| batch.column_by_name(name).expect("the query reads it");
        let [names, cities, states] = ["name", "city", "state"].map(column);
        for (row, &id) in ids.iter().enumerate() {
            let state = text(states, row);
            if matches!(state, "OR" | "ID" | "CA") {
                self.persons.insert(id, texts(&[text(names, row), text(cities, row), state]));
            }
        }
    }
    fn finish(self: Box<Self>) -> Sum {
        self.sum
    }
}

struct Auction {
    from_ms: i64,
    to_ms: i64,
    /// What its results are grouped by: the category, or the seller.
    of: i64,
    highest: Option<i64>,
}

/// Queries 4 and 6: the highest bid in time of each auction, and what is made of it.
pub struct Auctions {
    of: &'static str,
    auctions: ById<Auction>,
    result: fn(&ById<Auction>) -> Sum,
}

impl Auctions {
    /// The average of each category, of whole numbers as in SQL.
    pub fn averages() -> Auctions {
        Auctions { of: "category", auctions: ById::default(), result: averages }
    }

    /// The seller of each auction that had a bid.
    pub fn sellers() -> Auctions {
        Auctions { of: "seller", auctions: ById::default(), result: sellers }
    }
}

fn averages(auctions: &ById<Auction>) -> Sum {
    let mut averages: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for auction in auctions.values() {
        if let Some(price) = auction.highest {
            let average = averages.entry(auction.of).or_default();
            *average = (average.0 + price, average.1 + 1);
        }
    }
    let mut sum = Sum::default();
    averages.iter().for_each(|(&of, (total, n))| sum.add(hash_row(of, total / n, 0)));
    sum
}

fn sellers(auctions: &ById<Auction>) -> Sum {
    let mut sum = Sum::default();
    let had_bids = auctions.values().filter(|auction| auction.highest.is_some());
    had_bids.for_each(|auction| sum.add(hash_row(auction.of, 0, 0)));
    sum
}

impl ByHand for Auctions {
    fn tables(&self) -> &'static [&'static str] {
        &["auction", "bid"]
    }
    fn take(&mut self, table: &str, batch: &RecordBatch) {
        let times = longs(batch, "dateTime");
        if table == "auction" {
            let (ids, ends, of) =
                (longs(batch, "id"), longs(batch, "expires"), longs(batch, self.of));
            for (row, &id) in ids.iter().enumerate() {
                let (from_ms, to_ms, of) = (times[row], ends[row], of[row]);
                self.auctions.insert(id, Auction { from_ms, to_ms, of, highest: None });
            }
            return;
        }
        let (ids, prices) = (longs(batch, "auction"), longs(batch, "price"));
        for (row, &id) in ids.iter().enumerate() {
            if let Some(auction) = self.auctions.get_mut(id)
                && (auction.from_ms..=auction.to_ms).contains(&times[row])
            {
                auction.highest = auction.highest.max(Some(prices[row]));
            }
        }
    }
    fn finish(self: Box<Self>) -> Sum {
        (self.result)(&self.auctions)
    }
}

/// Query 5: the auctions with the most bids of each window.
pub struct HottestAuctions {
    slide_ms: i64,
    slides: usize,
    /// Counts of the newest slides, the open one last, and its number.
    counts: VecDeque<HashMap<i64, i64>>,
    open: Option<i64>,
    sum: Sum,
}

impl HottestAuctions {
    /// Of windows whose size is a multiple of their slide.
    pub fn new(size_ms: i64, slide_ms: i64) -> HottestAuctions {
        let slides = (size_ms / slide_ms) as usize;
        let counts = VecDeque::from([HashMap::new()]);
        HottestAuctions { slide_ms, slides, counts, open: None, sum: Sum::default() }
    }

    /// The window that ends with the open slide is whole.
    fn close(&mut self) {
        let mut counts: HashMap<i64, i64> = HashMap::new();
        for (&auction, bids) in self.counts.iter().flatten() {
            *counts.entry(auction).or_default() += bids;
        }
        let most = counts.values().max().copied();
        let hottest = counts.iter().filter(|(_, bids)| Some(**bids) == most);
        hottest.for_each(|(&auction, &bids)| self.sum.add(hash_row(auction, bids, 0)));
        self.counts.push_back(HashMap::new());
        if self.counts.len() > self.slides {
            self.counts.pop_front();
        }
    }
}

impl ByHand for HottestAuctions {
    fn tables(&self) -> &'static [&'static str] {
        &["bid"]
    }
    fn take(&mut self, _: &str, batch: &RecordBatch) {
        for (&time_ms, &auction) in longs(batch, "dateTime").iter().zip(longs(batch, "auction")) {
            let at = time_ms.div_euclid(self.slide_ms);
            for _ in *self.open.get_or_insert(at)..at {
                self.close();
            }
            self.open = Some(at);
            let newest = self.counts.back_mut().expect("the open slide is there");
            *newest.entry(auction).or_default() += 1;
        }
    }
    fn finish(mut self: Box<Self>) -> Sum {
        (0..self.slides).for_each(|_| self.close());
        self.sum
    }
}

struct Person {
    window: i64,
    name: i64,
    has_sold: bool,
}

/// Query 8: persons who came and opened an auction within the same window. Each comes once.
pub struct NewSellers {
    size_ms: i64,
    persons: ById<Person>,
    sum: Sum,
}

impl NewSellers {
    /// Of windows of this size.
    pub fn new(size_ms: i64) -> NewSellers {
        NewSellers { size_ms, persons: ById::default(), sum: Sum::default() }
    }
}

impl ByHand for NewSellers {
    fn tables(&self) -> &'static [&'static str] {
        &["person", "auction"]
    }
    fn take(&mut self, table: &str, batch: &RecordBatch) {
        let size_ms = self.size_ms;
        let windows = longs(batch, "dateTime").iter().map(|time_ms| time_ms.div_euclid(size_ms));
        if table == "person" {
            let names = batch.column_by_name("name").expect("the query reads it");
            for (row, (&id, window)) in longs(batch, "id").iter().zip(windows).enumerate() {
                let name = texts(&[text(names, row)]);
                self.persons.insert(id, Person { window, name, has_sold: false });
            }
            return;
        }
        for (&seller, window) in longs(batch, "seller").iter().zip(windows) {
            if let Some(person) = self.persons.get_mut(seller)
                && person.window == window
                && !person.has_sold
            {
                person.has_sold = true;
                self.sum.add(hash_row(seller, person.name, window * size_ms));
            }
        }
    }
    fn finish(self: Box<Self>) -> Sum {
        self.sum
    }
}

/// Query 7 over Jet's bids: the highest price of each sliding window.
pub struct HighestOfAll {
    size_ms: i64,
    slide_ms: i64,
    slides: BTreeMap<i64, i64>,
}

impl HighestOfAll {
    /// Of windows whose size is a multiple of their slide.
    pub fn new(size_ms: i64, slide_ms: i64) -> HighestOfAll {
        HighestOfAll { size_ms, slide_ms, slides: BTreeMap::new() }
    }
}

impl ByHand for HighestOfAll {
    fn tables(&self) -> &'static [&'static str] {
        &["bid"]
    }
    fn take(&mut self, _: &str, batch: &RecordBatch) {
        for (time_ms, &price) in longs(batch, "dateTime").iter().zip(longs(batch, "price")) {
            let highest = self.slides.entry(time_ms.div_euclid(self.slide_ms)).or_insert(price);
            *highest = price.max(*highest);
        }
    }
    fn finish(self: Box<Self>) -> Sum {
        let mut sum = Sum::default();
        let slides = self.size_ms / self.slide_ms;
        let (Some(first), Some(last)) = (self.slides.keys().min(), self.slides.keys().max()) else {
            return sum;
        };
        for newest in *first..last + slides {
            let of_window = self.slides.range(newest - slides + 1..=newest);
            if let Some(&price) = of_window.map(|(_, price)| price).max() {
                sum.add(hash_row(price, (newest + 1) * self.slide_ms, price));
            }
        }
        sum
    }
}

/// Query 8 over Jet's persons and auctions: keys that came on both sides within a sliding window.
pub struct BothCame {
    size_ms: i64,
    slide_ms: i64,
    /// Of the first event.
    base: Option<i64>,
    /// Slides behind the first, by key.
    sides: [BTreeMap<i64, Vec<u32>>; 2],
}

impl BothCame {
    /// Of windows whose size is a multiple of their slide.
    pub fn new(size_ms: i64, slide_ms: i64) -> BothCame {
        BothCame { size_ms, slide_ms, base: None, sides: Default::default() }
    }
}

impl ByHand for BothCame {
    fn tables(&self) -> &'static [&'static str] {
        &["person", "auction"]
    }
    fn take(&mut self, table: &str, batch: &RecordBatch) {
        let (side, key) = if table == "person" { (0, "id") } else { (1, "seller") };
        for (time_ms, &key) in longs(batch, "dateTime").iter().zip(longs(batch, key)) {
            let slide = time_ms.div_euclid(self.slide_ms);
            let slide = (slide - *self.base.get_or_insert(slide)) as u32;
            let slides = self.sides[side].entry(key).or_default();
            if slides.last() != Some(&slide) {
                slides.push(slide);
            }
        }
    }
    fn finish(self: Box<Self>) -> Sum {
        let mut sum = Sum::default();
        let slides = (self.size_ms / self.slide_ms) as u32;
        let base = self.base.unwrap_or_default();
        let newest = |sides: &[u32], window: u32| {
            let before = sides.partition_point(|&slide| slide <= window);
            before.checked_sub(1).is_some_and(|at| window - sides[at] < slides)
        };
        for (key, came) in &self.sides[0] {
            let Some(sold) = self.sides[1].get(key) else { continue };
            let last = came.last().max(sold.last()).copied().unwrap_or_default();
            for window in (0..last + slides).filter(|&w| newest(came, w) && newest(sold, w)) {
                sum.add(hash_row(*key, (base + i64::from(window) + 1) * self.slide_ms, *key));
            }
        }
        sum
    }
}
