//! Query 3: the items most often among the last views before a purchase of one item.
//!
//! Filter, the last rows by user, category filter, counts by item, the first items at the end of
//! the input. Invariant: purchases are rows like others and count as views of later purchases,
//! never of themselves. Rows are taken in the order of arrival.

use std::collections::{HashMap, VecDeque};

use super::super::items::category_of;
use super::super::rows::{Click, ItemCount, Viewed};
use super::{END_MS, Operator, SESSION_GRID_MS, Timers, pass};

/// Parameters of query 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query3 {
    /// The item bought.
    pub item: i64,
    /// How many rows before the purchase to look at.
    pub views: usize,
    /// How far back to look.
    pub window_s: i64,
    /// Only views of items of these categories.
    pub categories: Vec<i64>,
    /// Items to report.
    pub top: usize,
}

impl Default for Query3 {
    fn default() -> Self {
        Query3 { item: 10_001, views: 5, window_s: 864_000, categories: vec![2, 3], top: 30 }
    }
}

/// The output of query 3: the first items by (count descending, item).
pub fn query_3(
    rows: &[Click],
    parameters: &Query3,
    partition_of_item: &dyn Fn(&i64) -> usize,
) -> Vec<ItemCount> {
    let mut recent = Recent { parameters, rows: HashMap::new() };
    let mut counts = Counts::new(partition_of_item);
    let mut first = First { top: parameters.top, counts: Vec::new() };
    let mut output = Vec::new();
    let mut step = |clicks: Vec<Click>, watermark_ms| {
        let mut viewed = pass(&mut recent, clicks, watermark_ms);
        viewed.retain(|view| parameters.categories.contains(&category_of(view.item)));
        let item_counts = pass(&mut counts, viewed, watermark_ms);
        output.extend(pass(&mut first, item_counts, watermark_ms));
    };
    for click in rows {
        let known = click.user.is_some() && click.item.is_some();
        step(if known { vec![click.clone()] } else { vec![] }, click.click_ts_s * 1_000);
    }
    step(vec![], END_MS);
    output
}

/// The last rows (time, item) of each user, the oldest first.
struct Recent<'a> {
    parameters: &'a Query3,
    rows: HashMap<i64, VecDeque<(i64, i64)>>,
}

impl Operator for Recent<'_> {
    type Input = Click;
    type Output = Viewed;

    fn row(&mut self, click: Click, output: &mut Vec<Viewed>) {
        let (Some(buyer), Some(item)) = (click.user, click.item) else { return };
        let rows = self.rows.entry(buyer).or_default();
        if click.sales.is_some() && item == self.parameters.item {
            for &(ts_s, item) in rows.iter() {
                if ts_s >= click.click_ts_s - self.parameters.window_s {
                    output.push(Viewed { item, buyer, ts_s });
                }
            }
        }
        rows.push_back((click.click_ts_s, item));
        if rows.len() > self.parameters.views {
            rows.pop_front();
        }
    }

    fn timers(&mut self, _watermark_ms: i64, _output: &mut Vec<Viewed>) {}
}

/// How often each item was viewed.
struct Counts<'a> {
    counts: HashMap<i64, i64>,
    timers: Timers<'a, i64>,
}

impl<'a> Counts<'a> {
    fn new(partition: &'a dyn Fn(&i64) -> usize) -> Self {
        Counts { counts: HashMap::new(), timers: Timers::new(SESSION_GRID_MS, partition) }
    }
}

impl Operator for Counts<'_> {
    type Input = Viewed;
    type Output = ItemCount;

    fn row(&mut self, view: Viewed, _output: &mut Vec<ItemCount>) {
        *self.counts.entry(view.item).or_insert(0) += 1;
        self.timers.ask_at_end(&view.item);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<ItemCount>) {
        for (_, item) in self.timers.due(watermark_ms) {
            output.push(ItemCount { item, count: self.counts[&item] });
        }
    }
}

/// All counts, until the end.
struct First {
    top: usize,
    counts: Vec<ItemCount>,
}

impl Operator for First {
    type Input = ItemCount;
    type Output = ItemCount;

    fn row(&mut self, count: ItemCount, _output: &mut Vec<ItemCount>) {
        self.counts.push(count);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<ItemCount>) {
        if watermark_ms == END_MS {
            self.counts.sort_by_key(|count| (-count.count, count.item));
            output.extend(self.counts.drain(..).take(self.top));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::of_number;
    use super::*;
    use crate::tpcx_bb::{ClickSettings, generate_clicks};

    /// Sorts all rows by (user, time, sale, item) and looks back from every purchase.
    fn batch(clicks: &[Click]) -> Vec<ItemCount> {
        let mut rows: Vec<_> = clicks
            .iter()
            .filter_map(|click| Some((click.user?, click.click_ts_s, click.sales, click.item?)))
            .collect();
        rows.sort_unstable();
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        for (place, &(user, ts_s, sales, item)) in rows.iter().enumerate() {
            if sales.is_none() || item != 10_001 {
                continue;
            }
            for before in &rows[place.saturating_sub(5)..place] {
                let near = before.0 == user && before.1 >= ts_s - 864_000;
                if near && [2, 3].contains(&category_of(before.3)) {
                    *counts.entry(before.3).or_default() += 1;
                }
            }
        }
        let mut counts: Vec<ItemCount> =
            counts.into_iter().map(|(item, count)| ItemCount { item, count }).collect();
        counts.sort_by_key(|count| (-count.count, count.item));
        counts.truncate(30);
        counts
    }

    #[test]
    fn items_are_those_of_a_batch() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(3_600));
        let output = query_3(&clicks, &Query3::default(), &of_number);
        assert!(output.len() > 10, "{} items", output.len());
        assert_eq!(output, batch(&clicks));
    }

    #[test]
    fn a_purchase_sees_the_last_rows_within_the_window() {
        let click = |click_ts_s, item, sales| Click {
            click_ts_s,
            user: Some(1),
            item: Some(item),
            sales,
            web_page: None,
        };
        let query = Query3 { views: 3, window_s: 10, ..Query3::default() };
        let mut recent = Recent { parameters: &query, rows: HashMap::new() };
        let rows = vec![
            click(1, 1, None),
            click(2, 2, None),
            click(5, 3, None),
            click(6, 4, Some(1)),
            click(13, 10_001, Some(1)),
            click(13, 10_001, Some(1)),
        ];
        let viewed = pass(&mut recent, rows, 13_000);
        let items: Vec<i64> = viewed.iter().map(|view| view.item).collect();
        assert_eq!(items, vec![3, 4, 3, 4, 10_001]);
    }
}
