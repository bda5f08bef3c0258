//! The seeded generator of clicks: sessions of known and unknown users with think times, carts and
//! purchases.
//!
//! Invariants: rows are ordered by (time, sequence of generation), save that the rows of one user
//! with one time come in the order (sale, item), rows without a sale first; a session depends on
//! (seed, its number) alone, apart from its start. Users may have several sessions at once.

use super::items::{FIRST_ITEM, PageType, WEB_PAGES, page_type_of};
use super::rows::Click;
use super::{DAY_S, TREND_DAY_FIRST};
use crate::random::{Random, Zipf};

const STREAM_SESSION: u64 = 0x61;
const STREAM_GAP: u64 = 0x62;

/// What clicks to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct ClickSettings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Sessions in all, about 16.5 clicks each.
    pub sessions: u64,
    /// The time before the first session, in seconds since 1970-01-01.
    pub start_s: i64,
    /// Mean time between the starts of two sessions.
    pub session_gap_s: f64,
    /// Items of the shop.
    pub items: usize,
    /// Skew of the items.
    pub item_exponent: f64,
    /// Users of the shop.
    pub users: usize,
    /// Skew of the users.
    pub user_exponent: f64,
    /// Share of the sessions whose user is known.
    pub known_probability: f64,
    /// Share of the known users' sessions that buy.
    pub buyer_probability: f64,
    /// Share of the other sessions that fill a cart.
    pub cart_probability: f64,
    /// Median of the time between two clicks of a session.
    pub think_median_s: f64,
    /// Longest time between two clicks of a session.
    pub think_limit_s: f64,
    /// Share of the values of each column that are unknown.
    pub null_probability: f64,
}

impl Default for ClickSettings {
    fn default() -> Self {
        ClickSettings {
            seed: 7,
            sessions: 40_000,
            start_s: TREND_DAY_FIRST * DAY_S,
            session_gap_s: 4.0,
            items: 18_000,
            item_exponent: 0.9,
            users: 20_000,
            user_exponent: 0.6,
            known_probability: 0.6,
            buyer_probability: 0.33,
            cart_probability: 0.25,
            think_median_s: 30.0,
            think_limit_s: 3_000.0,
            null_probability: 0.000_25,
        }
    }
}

impl ClickSettings {
    /// The default rates with this many sessions.
    pub fn with_sessions(sessions: u64) -> Self {
        ClickSettings { sessions, ..Self::default() }
    }
}

/// The clicks, in order.
pub fn generate_clicks(settings: &ClickSettings) -> Vec<Click> {
    let items = Zipf::new(settings.items, settings.item_exponent);
    let users = Zipf::new(settings.users, settings.user_exponent);
    let mut start_s = settings.start_s as f64;
    let mut clicks = Vec::with_capacity(settings.sessions as usize * 17);
    for session in 0..settings.sessions {
        let mut gap = Random::new(settings.seed, STREAM_GAP, session);
        start_s += gap.exponential(settings.session_gap_s);
        let random = Random::new(settings.seed, STREAM_SESSION, session);
        let mut visit = Visit { settings, random, user: None, now_s: start_s };
        visit.add(session, &items, &users, &mut clicks);
    }
    clicks.sort_by_key(|click| click.click_ts_s);
    order_ties(&mut clicks);
    clicks
}

/// One session being generated.
struct Visit<'a> {
    settings: &'a ClickSettings,
    random: Random,
    user: Option<i64>,
    now_s: f64,
}

impl Visit<'_> {
    fn add(&mut self, session: u64, items: &Zipf, users: &Zipf, clicks: &mut Vec<Click>) {
        if self.random.chance(self.settings.known_probability) {
            self.user = Some(1 + users.draw(&mut self.random) as i64);
        }
        let buys = self.user.is_some() && self.random.chance(self.settings.buyer_probability);
        let fills_cart = buys || self.random.chance(self.settings.cart_probability);
        let views = self.random.between(11, 21);
        let cart = fills_cart.then_some(views - 1 - self.random.between(0, 2));
        let mut viewed = Vec::with_capacity(views as usize);
        for view in 0..views {
            let item = FIRST_ITEM + items.draw(&mut self.random) as i64;
            let page = self.page(|page_type| match page_type {
                PageType::Dynamic => cart == Some(view),
                PageType::Order => false,
                _ => cart != Some(view),
            });
            viewed.push(item);
            self.click(item, None, page, clicks);
        }
        let purchases = if buys { self.random.between(1, 4) } else { 0 };
        for _ in 0..purchases {
            let item = viewed[self.random.below(viewed.len() as u64) as usize];
            let page = self.page(|page_type| page_type == PageType::Order);
            self.click(item, Some(session as i64 + 1), page, clicks);
        }
    }

    /// A page whose type is accepted, all such pages alike.
    fn page(&mut self, accepts: impl Fn(PageType) -> bool) -> i64 {
        loop {
            let page = self.random.between(1, WEB_PAGES);
            if accepts(page_type_of(page)) {
                return page;
            }
        }
    }

    fn click(&mut self, item: i64, sales: Option<i64>, page: i64, clicks: &mut Vec<Click>) {
        let user = self.user.and_then(|user| self.known(user));
        let (item, web_page) = (self.known(item), self.known(page));
        clicks.push(Click { click_ts_s: self.now_s as i64, user, item, sales, web_page });
        let think_s = self.random.log_normal(self.settings.think_median_s, 1.0);
        self.now_s += think_s.min(self.settings.think_limit_s);
    }

    fn known(&mut self, value: i64) -> Option<i64> {
        (!self.random.chance(self.settings.null_probability)).then_some(value)
    }
}

/// Puts the rows of one user with one time into the order (sale, item); they share the places they
/// had, so other users' rows stay where they are.
fn order_ties(clicks: &mut [Click]) {
    for tied in clicks.chunk_by_mut(|left, right| left.click_ts_s == right.click_ts_s) {
        let mut places: Vec<usize> = (0..tied.len()).collect();
        places.sort_by_key(|&place| (tied[place].user, place));
        let mut rows: Vec<Click> = places.iter().map(|&place| tied[place].clone()).collect();
        rows.sort_by_key(|row| (row.user, row.user.map(|_| (row.sales, row.item))));
        for (place, row) in places.into_iter().zip(rows) {
            tied[place] = row;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    fn close(measured: f64, expected: f64, what: &str) {
        assert!((measured / expected - 1.0).abs() < 0.1, "{what}: {measured} of {expected}");
    }

    /// Distinct items of every session of a known user, by sorting each user's clicks.
    fn session_sizes(clicks: &[Click]) -> Vec<usize> {
        let mut of_user: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for click in clicks {
            if let (Some(user), Some(item)) = (click.user, click.item) {
                of_user.entry(user).or_default().push((click.click_ts_s, item));
            }
        }
        let mut sizes = Vec::new();
        for views in of_user.values_mut() {
            views.sort_unstable();
            for session in views.chunk_by(|left, right| right.0 - left.0 <= 3_600) {
                sizes.push(session.iter().map(|view| view.1).collect::<HashSet<_>>().len());
            }
        }
        sizes
    }

    #[test]
    fn a_tenth_of_the_sessions_has_a_tenth_of_the_clicks() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(4_000));
        close(clicks.len() as f64, 66_100.0, "clicks");
        let last_start_h = 4_000.0 * 4.0 / 3_600.0;
        let span_s = clicks[clicks.len() - 1].click_ts_s - clicks[0].click_ts_s;
        let span_h = span_s as f64 / 3_600.0;
        assert!(span_h > last_start_h * 0.9 && span_h < last_start_h + 2.0, "{span_h} h");
        let known = clicks.iter().filter(|click| click.user.is_some()).count();
        close(known as f64 / clicks.len() as f64, 0.6, "known users");
    }

    /// The pairs vary with the seed from 4.9 to 5.6 million, as the hottest users' sessions merge
    /// into more or less long ones.
    #[test]
    fn full_size_has_the_expected_figures() {
        let clicks = generate_clicks(&ClickSettings::default());
        close(clicks.len() as f64, 661_000.0, "clicks");
        let span_s = clicks[clicks.len() - 1].click_ts_s - clicks[0].click_ts_s;
        close(span_s as f64 / 3_600.0, 44.7, "hours");
        let sizes = session_sizes(&clicks);
        let pairs: usize = sizes.iter().map(|size| size * (size - 1) / 2).sum();
        close(sizes.len() as f64, 21_300.0, "sessions of users");
        close(pairs as f64, 4_900_000.0, "pairs");
    }

    #[test]
    fn order_of_time_and_of_ties() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(4_000));
        assert!(clicks.is_sorted_by_key(|click| click.click_ts_s));
        let mut ties = 0;
        for tied in clicks.chunk_by(|left, right| left.click_ts_s == right.click_ts_s) {
            let mut last = BTreeMap::new();
            for click in tied.iter().filter(|click| click.user.is_some()) {
                let key = (click.sales, click.item);
                if let Some(before) = last.insert(click.user, key) {
                    ties += 1;
                    assert!(before <= key);
                }
            }
        }
        assert!(ties > 10, "{ties} ties of one user");
    }

    #[test]
    fn purchases_are_on_order_pages() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(1_000));
        assert!(clicks.iter().any(|click| click.sales.is_some()));
        for click in clicks {
            if let Some(page) = click.web_page {
                assert_eq!(page_type_of(page) == PageType::Order, click.sales.is_some());
            }
        }
    }
}
