//! Query 15: SL → SL → PS by category.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg::pipeline::Pipeline;
use thalweg::rows::{KeyContext, PackedRows, RowOperator, Rows};

use super::super::oracle::DAY_GRID_MS;
use super::super::{DAY_S, Query15, Sale, Trend, category_of};

/// At the end of each day the categories whose sales do not rise.
pub fn query_15(
    pipeline: &Pipeline,
    sales: PackedRows<Sale>,
    parameters: &Query15,
    partitions: usize,
) -> Rows<Trend> {
    let query = Arc::new(parameters.clone());
    pipeline
        .read_packed_rows("store_sales", sales, 0)
        .filter("store and days", move |sale| query.selects(sale))
        .map("category", |sale: Sale| (category_of(sale.item), sale.sold_ts_s, sale.net_paid_cents))
        .key_by(partitions, |paid| paid.0)
        .process("trend per category", Trends)
}

/// A sale: category, time and cents.
type Paid = (i64, i64, i64);

/// What is known of one category. `x` counts days from the first one with sales.
#[derive(Default, Serialize, Deserialize)]
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
    fn end_day(&mut self, day: i64, paid_cents: i128) {
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

    /// The least-squares line, if there is one and it does not rise.
    fn falling(&self, category: i64, day: i64) -> Option<Trend> {
        let slope = self.days * self.sum_xy - self.sum_x * self.sum_y;
        let spread = self.days * self.sum_xx - self.sum_x * self.sum_x;
        let intercept = self.sum_y * self.sum_xx - self.sum_x * self.sum_xy;
        (self.days >= 2 && slope <= 0).then(|| Trend {
            category,
            day,
            slope: slope as f64 / spread as f64,
            intercept: intercept as f64 / spread as f64,
        })
    }
}

/// Sums per day, and the line through them.
struct Trends;

impl RowOperator<i64, Paid> for Trends {
    type State = Category;
    type Out = Trend;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(DAY_GRID_MS)
    }

    fn row(&self, _: &i64, state: &mut Category, paid: Paid, context: &mut KeyContext<Trend>) {
        let (_, sold_ts_s, cents) = paid;
        let day = sold_ts_s.div_euclid(DAY_S);
        *state.open_days.entry(day).or_default() += i128::from(cents);
        context.set_timer((day + 1) * DAY_GRID_MS);
    }

    fn timer(
        &self,
        &category: &i64,
        state: &mut Category,
        at_ms: i64,
        context: &mut KeyContext<Trend>,
    ) {
        while let Some(entry) = state.open_days.first_entry() {
            if (*entry.key() + 1) * DAY_GRID_MS > at_ms {
                break;
            }
            let (day, paid_cents) = entry.remove_entry();
            state.end_day(day, paid_cents);
            if let Some(trend) = state.falling(category, day) {
                context.emit(trend);
            }
        }
    }
}
