//! Query 15: the categories whose sales in one store stay flat or fall.
//!
//! Filter, category lookup, least squares of the sales of a day over the days with sales, by
//! category. Invariants: all sums are exact integers, so the test of the sign is exact; a row is
//! emitted at the end of each day on which the category had sales and has not risen so far.

use std::collections::{BTreeMap, HashMap};

use super::super::items::category_of;
use super::super::rows::{Sale, Trend};
use super::super::{DAY_S, TREND_DAY_FIRST, TREND_DAY_LAST};
use super::{END_MS, Operator, Timers, pass};

/// The grid of the timers of query 15: a day.
pub const DAY_GRID_MS: i64 = DAY_S * 1_000;

/// Parameters of query 15.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query15 {
    /// Only sales in this store.
    pub store: i64,
    /// The first day, in days since 1970-01-01.
    pub day_first: i64,
    /// The last day, itself included.
    pub day_last: i64,
}

impl Default for Query15 {
    fn default() -> Self {
        Query15 { store: 10, day_first: TREND_DAY_FIRST, day_last: TREND_DAY_LAST }
    }
}

impl Query15 {
    /// Whether the first operator lets this row through.
    pub fn selects(&self, sale: &Sale) -> bool {
        let day = i64::from(sale.day);
        sale.store == Some(self.store) && day >= self.day_first && day <= self.day_last
    }
}

/// The output of query 15: at the end of each day the categories that do not rise.
pub fn query_15(
    rows: &[Sale],
    parameters: &Query15,
    partition_of_category: &dyn Fn(&i64) -> usize,
) -> Vec<Trend> {
    let mut categories = Categories::new(partition_of_category);
    let mut output = Vec::new();
    for sale in rows {
        let mut selected = Vec::new();
        if parameters.selects(sale) {
            selected.push((category_of(sale.item), sale.clone()));
        }
        output.extend(pass(&mut categories, selected, sale.sold_ts_s * 1_000));
    }
    output.extend(pass(&mut categories, vec![], END_MS));
    output
}

/// What is known of one category.
#[derive(Default)]
struct Category {
    /// Sales of the days that have not ended, in cents.
    open_days: BTreeMap<i64, i128>,
    first_day: i64,
    days: i128,
    sum_x: i128,
    sum_y: i128,
    sum_xy: i128,
    sum_xx: i128,
}

impl Category {
    /// Takes a day that has ended into the sums; x counts from the first such day.
    fn fold(&mut self, day: i64, paid_cents: i128) {
        if self.days == 0 {
            self.first_day = day;
        }
        let x = i128::from(day - self.first_day);
        self.days += 1;
        self.sum_x += x;
        self.sum_y += paid_cents;
        self.sum_xy += x * paid_cents;
        self.sum_xx += x * x;
    }

    /// The fitted line, if there is one and it does not rise.
    fn falling(&self, category: i64, day: i64) -> Option<Trend> {
        let slope = self.days * self.sum_xy - self.sum_x * self.sum_y;
        if self.days < 2 || slope > 0 {
            return None;
        }
        let intercept = self.sum_y * self.sum_xx - self.sum_x * self.sum_xy;
        let spread = (self.days * self.sum_xx - self.sum_x * self.sum_x) as f64;
        let (slope, intercept) = (slope as f64 / spread, intercept as f64 / spread);
        Some(Trend { category, day, slope, intercept })
    }
}

/// All categories.
struct Categories<'a> {
    categories: HashMap<i64, Category>,
    timers: Timers<'a, i64>,
}

impl<'a> Categories<'a> {
    fn new(partition: &'a dyn Fn(&i64) -> usize) -> Self {
        Categories { categories: HashMap::new(), timers: Timers::new(DAY_GRID_MS, partition) }
    }
}

impl Operator for Categories<'_> {
    type Input = (i64, Sale);
    type Output = Trend;

    fn row(&mut self, (category, sale): (i64, Sale), _output: &mut Vec<Trend>) {
        let day = sale.sold_ts_s.div_euclid(DAY_S);
        let state = self.categories.entry(category).or_default();
        *state.open_days.entry(day).or_default() += i128::from(sale.net_paid_cents);
        self.timers.ask((day + 1) * DAY_GRID_MS, &category);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<Trend>) {
        for (point_ms, category) in self.timers.due(watermark_ms) {
            let Some(state) = self.categories.get_mut(&category) else { continue };
            while let Some(entry) = state.open_days.first_entry() {
                if (*entry.key() + 1) * DAY_GRID_MS > point_ms {
                    break;
                }
                let (day, paid_cents) = entry.remove_entry();
                state.fold(day, paid_cents);
                output.extend(state.falling(category, day));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::of_number;
    use super::*;
    use crate::tpcx_bb::{CATEGORIES, SalesSettings, generate_sales};

    /// Slope and intercept of the usual formula with means, in floating point.
    fn fit(days: &BTreeMap<i64, i64>) -> (f64, f64) {
        let first = *days.keys().next().expect("a day");
        let points: Vec<(f64, f64)> =
            days.iter().map(|(day, paid)| ((day - first) as f64, *paid as f64)).collect();
        let count = points.len() as f64;
        let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
        let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
        let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        (above / below, mean_y - above / below * mean_x)
    }

    /// Sales of each category's days.
    fn batch(sales: &[Sale], query: &Query15) -> BTreeMap<i64, BTreeMap<i64, i64>> {
        let mut categories: BTreeMap<i64, BTreeMap<i64, i64>> = BTreeMap::new();
        for sale in sales.iter().filter(|sale| query.selects(sale)) {
            let days = categories.entry(category_of(sale.item)).or_default();
            *days.entry(i64::from(sale.day)).or_default() += sale.net_paid_cents;
        }
        categories
    }

    #[test]
    fn slopes_are_those_of_a_batch() {
        let sales = generate_sales(&SalesSettings::for_trends(20_000));
        let query = Query15::default();
        let output = query_15(&sales, &query, &of_number);
        let categories = batch(&sales, &query);
        let emitted: HashMap<(i64, i64), &Trend> =
            output.iter().map(|trend| ((trend.category, trend.day), trend)).collect();
        assert_eq!(emitted.len(), output.len(), "one row for a category and day");
        let mut rising = 0;
        for (category, days) in &categories {
            let mut so_far = BTreeMap::new();
            for (day, paid_cents) in days {
                so_far.insert(*day, *paid_cents);
                let trend = emitted.get(&(*category, *day));
                if so_far.len() < 2 {
                    assert!(trend.is_none());
                    continue;
                }
                let (slope, intercept) = fit(&so_far);
                assert_eq!(trend.is_some(), slope <= 0.0, "category {category}, day {day}");
                rising += usize::from(trend.is_none());
                if let Some(trend) = trend {
                    assert!((trend.slope / slope - 1.0).abs() < 1e-9, "{trend:?} {slope}");
                    assert!((trend.intercept / intercept - 1.0).abs() < 1e-9, "{trend:?}");
                }
            }
        }
        assert!(output.len() > 300 && rising > 300, "{} falling, {rising} rising", output.len());
    }

    #[test]
    fn categories_have_both_signs_over_the_year() {
        let sales = generate_sales(&SalesSettings::for_trends(20_000));
        let categories = batch(&sales, &Query15::default());
        assert_eq!(categories.len() as i64, CATEGORIES);
        let falling = categories.values().filter(|days| fit(days).0 <= 0.0).count();
        assert!((2..=8).contains(&falling), "{falling} categories fall");
    }

    #[test]
    fn days_end_behind_the_first_row_of_a_later_day() {
        let sale = |sold_ts_s: i64, store, net_paid_cents| Sale {
            sold_ts_s,
            day: (sold_ts_s / DAY_S) as i32,
            ticket: 1,
            item: 10_000,
            store: Some(store),
            customer: None,
            quantity: 1,
            net_paid_cents,
        };
        let start_s = TREND_DAY_FIRST * DAY_S;
        let rows = [
            sale(start_s, 10, 500),
            sale(start_s + DAY_S, 10, 200),
            sale(start_s + DAY_S + 5, 10, 100),
            sale(start_s + 3 * DAY_S, 10, 900),
        ];
        let output = query_15(&rows, &Query15::default(), &of_number);
        let category = category_of(10_000);
        let day = TREND_DAY_FIRST + 1;
        assert_eq!(output, vec![Trend { category, day, slope: -200.0, intercept: 500.0 }]);
    }
}
