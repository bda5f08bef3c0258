//! The static tables as pure functions: category of an item, type of a web page, and the trend that
//! the generator gives to a category's sales.
//!
//! Invariants: functions of their argument alone, the same in every run. No table is stored.

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// The item of rank 0, the hottest; rank `k` is item `FIRST_ITEM + k`.
pub const FIRST_ITEM: i64 = 10_000;

/// Categories are `1..=CATEGORIES`.
pub const CATEGORIES: i64 = 10;

/// Web pages are `1..=WEB_PAGES`.
pub const WEB_PAGES: i64 = 60;

/// Chosen so that the hot items fall into the categories of queries 1 and 3 as often as it takes
/// for the number of frequent pairs that the workload's description gives.
const CATEGORY_SEED: u64 = 107;

/// What a web page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageType {
    /// Anything else.
    General,
    /// A purchase is confirmed.
    Order,
    /// The entrance.
    Welcome,
    /// An advertisement.
    Ad,
    /// What users report to the shop.
    Feedback,
    /// Only for users who are logged in.
    Protected,
    /// The cart.
    Dynamic,
    /// What users write to each other.
    Review,
}

const PAGE_TYPES: [PageType; 8] = [
    PageType::General,
    PageType::Order,
    PageType::Welcome,
    PageType::Ad,
    PageType::Feedback,
    PageType::Protected,
    PageType::Dynamic,
    PageType::Review,
];

/// The category of an item, `1..=CATEGORIES`.
pub fn category_of(item: i64) -> i64 {
    1 + Random::new(CATEGORY_SEED, 0, item as u64).below(CATEGORIES as u64) as i64
}

/// The type of a web page; the eight types take turns.
pub fn page_type_of(web_page: i64) -> PageType {
    PAGE_TYPES[(web_page - 1).rem_euclid(PAGE_TYPES.len() as i64) as usize]
}

/// By how many thousandths of the first month's level a category's prices move each month, from
/// -20 to 20 and never 0.
pub fn trend_per_mille(category: i64) -> i64 {
    const STEPS: [i64; 10] = [-20, 12, -8, 16, -4, 4, -16, 8, -12, 20];
    STEPS[(category - 1).rem_euclid(CATEGORIES) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_its_share_of_items() {
        let mut counts = [0; CATEGORIES as usize];
        for item in FIRST_ITEM..FIRST_ITEM + 18_000 {
            counts[(category_of(item) - 1) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (1_600..=2_000).contains(count)), "{counts:?}");
    }

    #[test]
    fn every_page_type_has_its_pages() {
        for page_type in PAGE_TYPES {
            let pages = (1..=WEB_PAGES).filter(|&page| page_type_of(page) == page_type).count();
            assert!((7..=8).contains(&pages), "{page_type:?}: {pages}");
        }
    }

    #[test]
    fn trends_rise_and_fall() {
        let rising = (1..=CATEGORIES).filter(|&category| trend_per_mille(category) > 0).count();
        assert_eq!(rising, 5);
        assert!((1..=CATEGORIES).all(|category| trend_per_mille(category).abs() <= 20));
    }
}
