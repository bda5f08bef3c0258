//! The seeded generator of store sales: tickets of distinct items with Zipf skew, some of them with
//! a pair of companions.
//!
//! Invariants: rows are ordered by (time, sequence of generation); all rows of a ticket have one
//! time; a ticket has no item twice; a ticket depends on (seed, its number) alone, apart from its
//! time. Tickets of all stores are one Poisson process with the store drawn uniformly, which is the
//! same as one process for each store.

use super::items::{FIRST_ITEM, category_of, trend_per_mille};
use super::rows::Sale;
use super::{DAY_S, HOUR_S, TREND_DAY_FIRST};
use crate::random::{Random, Zipf};

const STREAM_TICKET: u64 = 0x51;
const STREAM_GAP: u64 = 0x52;
const MONTH_S: f64 = 30.0 * DAY_S as f64;

/// What sales to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct SalesSettings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Tickets in all.
    pub tickets: u64,
    /// Tickets each hour over all stores.
    pub tickets_per_hour: f64,
    /// The time before the first ticket, in seconds since 1970-01-01.
    pub start_s: i64,
    /// Items of the shop.
    pub items: usize,
    /// Skew of the items.
    pub item_exponent: f64,
    /// Stores, drawn uniformly.
    pub stores: i64,
    /// Customers, drawn uniformly.
    pub customers: i64,
    /// Share of the tickets that add two items of neighbouring ranks.
    pub companion_probability: f64,
    /// Share of stores and of customers that are unknown.
    pub null_probability: f64,
}

impl Default for SalesSettings {
    fn default() -> Self {
        SalesSettings {
            seed: 1,
            tickets: 90_000,
            tickets_per_hour: 90_000.0,
            start_s: TREND_DAY_FIRST * DAY_S,
            items: 18_000,
            item_exponent: 0.9,
            stores: 50,
            customers: 100_000,
            companion_probability: 0.3,
            null_probability: 0.000_25,
        }
    }
}

impl SalesSettings {
    /// `tickets` tickets within about one hour: query 1.
    pub fn for_pairs(tickets: u64) -> Self {
        SalesSettings { tickets, tickets_per_hour: tickets as f64, ..Self::default() }
    }

    /// `tickets` tickets over 400 days from 2001-08-20, so that the days of query 15 begin and end
    /// inside.
    pub fn for_trends(tickets: u64) -> Self {
        const DAYS: i64 = 400;
        SalesSettings {
            tickets,
            tickets_per_hour: tickets as f64 / (DAYS * DAY_S / HOUR_S) as f64,
            start_s: (TREND_DAY_FIRST - 13) * DAY_S,
            ..Self::default()
        }
    }
}

/// The sales, in order.
pub fn generate_sales(settings: &SalesSettings) -> Vec<Sale> {
    let zipf = Zipf::new(settings.items, settings.item_exponent);
    let gap_s = HOUR_S as f64 / settings.tickets_per_hour;
    let mut since_start_s = 0.0;
    let mut sales = Vec::with_capacity(settings.tickets as usize * 10);
    for ticket in 0..settings.tickets {
        since_start_s += Random::new(settings.seed, STREAM_GAP, ticket).exponential(gap_s);
        add_ticket(settings, &zipf, ticket, since_start_s as i64, &mut sales);
    }
    sales
}

fn add_ticket(
    settings: &SalesSettings,
    zipf: &Zipf,
    ticket: u64,
    since_start_s: i64,
    sales: &mut Vec<Sale>,
) {
    let mut random = Random::new(settings.seed, STREAM_TICKET, ticket);
    let store = known(random.between(1, settings.stores), settings, &mut random);
    let customer = known(random.between(1, settings.customers), settings, &mut random);
    let sold_ts_s = settings.start_s + since_start_s;
    for item in ticket_items(settings, zipf, &mut random) {
        let quantity = random.between(1, 10);
        let price_cents = price_cents(item, since_start_s, &mut random);
        sales.push(Sale {
            sold_ts_s,
            day: sold_ts_s.div_euclid(DAY_S) as i32,
            ticket: ticket as i64 + 1,
            item,
            store,
            customer,
            quantity: quantity as i32,
            net_paid_cents: quantity * price_cents,
        });
    }
}

fn known(value: i64, settings: &SalesSettings, random: &mut Random) -> Option<i64> {
    (!random.chance(settings.null_probability)).then_some(value)
}

/// 4 to 14 distinct items, and for some tickets two neighbours in rank.
fn ticket_items(settings: &SalesSettings, zipf: &Zipf, random: &mut Random) -> Vec<i64> {
    let wanted = (random.between(4, 14) as usize).min(settings.items);
    let mut items: Vec<i64> = Vec::with_capacity(wanted + 2);
    while items.len() < wanted {
        let item = FIRST_ITEM + zipf.draw(random) as i64;
        if !items.contains(&item) {
            items.push(item);
        }
    }
    if random.chance(settings.companion_probability) {
        let companion = FIRST_ITEM + zipf.draw(random) as i64;
        let last = FIRST_ITEM + settings.items as i64 - 1;
        for item in companion..=(companion + 1).min(last) {
            if !items.contains(&item) {
                items.push(item);
            }
        }
    }
    items
}

/// Log-uniform from 1 to 300 dollars, moved by the trend of the item's category.
fn price_cents(item: i64, since_start_s: i64, random: &mut Random) -> i64 {
    let per_month = trend_per_mille(category_of(item)) as f64 / 1_000.0;
    let level = (1.0 + per_month * since_start_s as f64 / MONTH_S).max(0.1);
    (100.0 * 300f64.powf(random.unit()) * level).round() as i64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn twenty_thousand_tickets_have_the_expected_rows() {
        let sales = generate_sales(&SalesSettings::for_pairs(20_000));
        assert!((sales.len() as f64 / 191_000.0 - 1.0).abs() < 0.01, "{} rows", sales.len());
        let span_s = sales[sales.len() - 1].sold_ts_s - sales[0].sold_ts_s;
        assert!((span_s as f64 / HOUR_S as f64 - 1.0).abs() < 0.05, "{span_s} s");
        assert!(sales.is_sorted_by_key(|sale| (sale.sold_ts_s, sale.ticket)));
        let lines: HashSet<_> = sales.iter().map(|sale| (sale.ticket, sale.item)).collect();
        assert_eq!(lines.len(), sales.len(), "no item twice on a ticket");
    }

    #[test]
    fn columns_keep_their_ranges() {
        let sales = generate_sales(&SalesSettings::for_pairs(20_000));
        for sale in &sales {
            assert!(sale.store.is_none_or(|store| (1..=50).contains(&store)));
            assert!((10_000..28_000).contains(&sale.item));
            assert_eq!(i64::from(sale.day), sale.sold_ts_s / DAY_S);
            assert!(sale.net_paid_cents >= 100 && sale.net_paid_cents <= 300_100);
        }
        let unknown = sales.iter().filter(|sale| sale.customer.is_none()).count();
        assert!((1..200).contains(&unknown), "{unknown} rows without a customer");
    }

    #[test]
    fn trends_reach_over_both_ends_of_the_year() {
        let sales = generate_sales(&SalesSettings::for_trends(5_000));
        assert!(i64::from(sales[0].day) < TREND_DAY_FIRST);
        assert!(i64::from(sales[sales.len() - 1].day) > super::super::TREND_DAY_LAST);
    }

    #[test]
    fn the_same_settings_give_the_same_rows() {
        let settings = SalesSettings::for_pairs(100);
        assert_eq!(generate_sales(&settings), generate_sales(&settings));
        let other = SalesSettings { seed: 2, ..settings.clone() };
        assert_ne!(generate_sales(&settings), generate_sales(&other));
    }
}
