//! Query 1: the pairs of items most often sold together in stores, each hour.
//!
//! Filter, pairs by ticket, counts by pair and hour, the first pairs of each hour. Invariant: an
//! unordered pair counts once for a ticket and hour.

use std::collections::{BTreeMap, HashMap};

use super::super::HOUR_S;
use super::super::items::category_of;
use super::super::rows::{Pair, PairCount, Sale};
use super::{END_MS, Operator, Timers, pass};

/// The grid of the timers of query 1: an hour.
pub const HOUR_GRID_MS: i64 = HOUR_S * 1_000;

/// Parameters of query 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query1 {
    /// Only items of these categories.
    pub categories: Vec<i64>,
    /// Only sales in these stores.
    pub stores: Vec<i64>,
    /// Only pairs sold together at least this often within the hour.
    pub pair_count_min: i64,
    /// Pairs to report for each hour.
    pub top: usize,
}

impl Default for Query1 {
    fn default() -> Self {
        Query1 {
            categories: vec![1, 2, 3],
            stores: vec![10, 20, 33, 40, 50],
            pair_count_min: 50,
            top: 100,
        }
    }
}

impl Query1 {
    /// Whether the first operator lets this row through.
    pub fn selects(&self, sale: &Sale) -> bool {
        sale.store.is_some_and(|store| self.stores.contains(&store))
            && self.categories.contains(&category_of(sale.item))
    }
}

/// The output of query 1: for each hour its first pairs by (count descending, first, second).
pub fn query_1(
    rows: &[Sale],
    parameters: &Query1,
    partition_of_ticket: &dyn Fn(&i64) -> usize,
    partition_of_pair: &dyn Fn(&(i64, i64)) -> usize,
) -> Vec<PairCount> {
    let mut tickets = Tickets::new(partition_of_ticket);
    let mut counts = Counts::new(parameters.pair_count_min, partition_of_pair);
    let mut first = First { top: parameters.top, hours: BTreeMap::new() };
    let mut output = Vec::new();
    let mut step = |selected: Vec<Sale>, watermark_ms| {
        let pairs = pass(&mut tickets, selected, watermark_ms);
        let pair_counts = pass(&mut counts, pairs, watermark_ms);
        output.extend(pass(&mut first, pair_counts, watermark_ms));
    };
    for sale in rows {
        let selected = if parameters.selects(sale) { vec![sale.clone()] } else { vec![] };
        step(selected, sale.sold_ts_s * 1_000);
    }
    step(vec![], END_MS);
    output
}

fn end_of_hour_ms(hour: i64) -> i64 {
    (hour + 1) * HOUR_GRID_MS
}

/// The distinct items of each ticket and hour in the order of arrival.
struct Tickets<'a> {
    items: HashMap<i64, BTreeMap<i64, Vec<i64>>>,
    timers: Timers<'a, i64>,
}

impl<'a> Tickets<'a> {
    fn new(partition: &'a dyn Fn(&i64) -> usize) -> Self {
        Tickets { items: HashMap::new(), timers: Timers::new(HOUR_GRID_MS, partition) }
    }
}

impl Operator for Tickets<'_> {
    type Input = Sale;
    type Output = Pair;

    fn row(&mut self, sale: Sale, output: &mut Vec<Pair>) {
        let hour = sale.sold_ts_s.div_euclid(HOUR_S);
        let items = self.items.entry(sale.ticket).or_default().entry(hour).or_default();
        if items.contains(&sale.item) {
            return;
        }
        for &earlier in items.iter() {
            let (first, second) = (earlier.min(sale.item), earlier.max(sale.item));
            output.push(Pair { hour, first, second });
        }
        items.push(sale.item);
        self.timers.ask(end_of_hour_ms(hour), &sale.ticket);
    }

    fn timers(&mut self, watermark_ms: i64, _output: &mut Vec<Pair>) {
        for (point_ms, ticket) in self.timers.due(watermark_ms) {
            let Some(hours) = self.items.get_mut(&ticket) else { continue };
            hours.retain(|&hour, _| end_of_hour_ms(hour) > point_ms);
            if hours.is_empty() {
                self.items.remove(&ticket);
            }
        }
    }
}

/// How often each pair came in each hour.
struct Counts<'a> {
    pair_count_min: i64,
    counts: HashMap<(i64, i64), BTreeMap<i64, i64>>,
    timers: Timers<'a, (i64, i64)>,
}

impl<'a> Counts<'a> {
    fn new(pair_count_min: i64, partition: &'a dyn Fn(&(i64, i64)) -> usize) -> Self {
        let timers = Timers::new(HOUR_GRID_MS, partition);
        Counts { pair_count_min, counts: HashMap::new(), timers }
    }
}

impl Operator for Counts<'_> {
    type Input = Pair;
    type Output = PairCount;

    fn row(&mut self, pair: Pair, _output: &mut Vec<PairCount>) {
        let key = (pair.first, pair.second);
        *self.counts.entry(key).or_default().entry(pair.hour).or_default() += 1;
        self.timers.ask(end_of_hour_ms(pair.hour), &key);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<PairCount>) {
        for (point_ms, key) in self.timers.due(watermark_ms) {
            let Some(hours) = self.counts.get_mut(&key) else { continue };
            while let Some(entry) = hours.first_entry() {
                if end_of_hour_ms(*entry.key()) > point_ms {
                    break;
                }
                let (hour, count) = entry.remove_entry();
                if count >= self.pair_count_min {
                    output.push(PairCount { hour, first: key.0, second: key.1, count });
                }
            }
            if hours.is_empty() {
                self.counts.remove(&key);
            }
        }
    }
}

/// The pairs of each hour that is not reported yet.
struct First {
    top: usize,
    hours: BTreeMap<i64, Vec<PairCount>>,
}

impl Operator for First {
    type Input = PairCount;
    type Output = PairCount;

    fn row(&mut self, pair: PairCount, _output: &mut Vec<PairCount>) {
        self.hours.entry(pair.hour).or_default().push(pair);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<PairCount>) {
        while let Some(entry) = self.hours.first_entry() {
            if end_of_hour_ms(*entry.key()) - 1 > watermark_ms {
                break;
            }
            let mut pairs = entry.remove();
            pairs.sort_by_key(|pair| (-pair.count, pair.first, pair.second));
            output.extend(pairs.into_iter().take(self.top));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::testing::{of_number, of_pair};
    use super::*;
    use crate::tpcx_bb::{SalesSettings, generate_sales};

    /// Counts of all pairs by hour: the sets of items of each ticket, then all their pairs.
    fn batch(sales: &[Sale], query: &Query1) -> HashMap<(i64, i64, i64), i64> {
        let mut tickets: HashMap<(i64, i64), BTreeSet<i64>> = HashMap::new();
        for sale in sales.iter().filter(|sale| query.selects(sale)) {
            tickets.entry((sale.ticket, sale.sold_ts_s / 3_600)).or_default().insert(sale.item);
        }
        let mut counts = HashMap::new();
        for ((_, hour), items) in tickets {
            for &first in &items {
                for &second in items.range(first + 1..) {
                    *counts.entry((hour, first, second)).or_default() += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn pairs_of_three_hours_are_those_of_a_batch() {
        let settings =
            SalesSettings { tickets_per_hour: 7_000.0, ..SalesSettings::for_pairs(20_000) };
        let sales = generate_sales(&settings);
        let query = Query1 { pair_count_min: 5, ..Query1::default() };
        let mut expected: Vec<PairCount> = batch(&sales, &query)
            .into_iter()
            .filter(|(_, count)| *count >= 5)
            .map(|((hour, first, second), count)| PairCount { hour, first, second, count })
            .collect();
        expected.sort_by_key(|pair| (pair.hour, -pair.count, pair.first, pair.second));
        assert!(expected.len() > 20, "{} pairs", expected.len());
        assert!(expected[0].hour + 1 < expected[expected.len() - 1].hour);
        assert_eq!(query_1(&sales, &query, &of_number, &of_pair), expected);
    }

    #[test]
    fn frequent_pairs_are_as_many_as_expected() {
        let sales = generate_sales(&SalesSettings::for_pairs(20_000));
        let counts = batch(&sales, &Query1::default());
        let mut totals: HashMap<(i64, i64), i64> = HashMap::new();
        for ((_, first, second), count) in counts {
            *totals.entry((first, second)).or_default() += count;
        }
        let frequent = |least| totals.values().filter(|&&count| count >= least).count();
        let pairs = totals.len();
        assert!((7_353..=8_987).contains(&pairs), "{pairs} pairs");
        assert!((112..=136).contains(&frequent(5)), "{} pairs", frequent(5));
        assert_eq!(frequent(50), 4);
    }

    #[test]
    fn only_the_first_pairs_of_an_hour_are_reported() {
        let sales = generate_sales(&SalesSettings::for_pairs(5_000));
        let all = Query1 { pair_count_min: 2, top: usize::MAX, ..Query1::default() };
        let few = Query1 { top: 3, ..all.clone() };
        let hour = sales[0].sold_ts_s / 3_600;
        let first = |query| -> Vec<PairCount> {
            let output = query_1(&sales, query, &of_number, &of_pair);
            output.into_iter().filter(|pair| pair.hour == hour).collect()
        };
        assert_eq!(first(&few), first(&all)[..3]);
    }
}
