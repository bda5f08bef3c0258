//! The rows of the five queries: the two inputs and what the operators emit.
//!
//! Invariants: plain values that compare and serialize; times are seconds since 1970-01-01, money
//! is cents. Nothing here computes.

use serde::{Deserialize, Serialize};

/// One line of a ticket sold in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sale {
    /// When it was sold, in seconds.
    pub sold_ts_s: i64,
    /// The day it was sold, in days since 1970-01-01.
    pub day: i32,
    /// The ticket this line belongs to.
    pub ticket: i64,
    /// The item sold.
    pub item: i64,
    /// The store, if known.
    pub store: Option<i64>,
    /// The customer, if known.
    pub customer: Option<i64>,
    /// How many pieces.
    pub quantity: i32,
    /// What was paid for the line.
    pub net_paid_cents: i64,
}

/// One page seen by a visitor of the web shop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Click {
    /// When it happened, in seconds.
    pub click_ts_s: i64,
    /// The user, if known.
    pub user: Option<i64>,
    /// The item on the page, if known.
    pub item: Option<i64>,
    /// The sale, if this row is a purchase.
    pub sales: Option<i64>,
    /// The page, if known.
    pub web_page: Option<i64>,
}

/// Two items of one ticket (query 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The hour of the sale, in hours since 1970-01-01.
    pub hour: i64,
    /// The smaller item.
    pub first: i64,
    /// The larger item.
    pub second: i64,
}

/// How many tickets of an hour had both items (query 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCount {
    /// The hour, in hours since 1970-01-01.
    pub hour: i64,
    /// The smaller item.
    pub first: i64,
    /// The larger item.
    pub second: i64,
    /// Tickets with both.
    pub count: i64,
}

/// A closed session of a user (query 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The user.
    pub user: i64,
    /// Distinct items in the order of their first view.
    pub items: Vec<i64>,
}

/// How many sessions had both items (query 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairTotal {
    /// The smaller item.
    pub first: i64,
    /// The larger item.
    pub second: i64,
    /// Sessions with both.
    pub count: i64,
}

/// An item that a buyer viewed shortly before the purchase (query 3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewed {
    /// The item viewed.
    pub item: i64,
    /// The user who bought.
    pub buyer: i64,
    /// When it was viewed, in seconds.
    pub ts_s: i64,
}

/// How often an item was viewed before a purchase (query 3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCount {
    /// The item.
    pub item: i64,
    /// Its views.
    pub count: i64,
}

/// A session that left a cart behind (query 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abandoned {
    /// The user.
    pub user: i64,
    /// Pages of the session.
    pub pages: i64,
}

/// The average so far of the pages of abandoning sessions (query 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Average {
    /// Sessions so far.
    pub sessions: i64,
    /// Pages so far.
    pub pages: i64,
    /// Pages for each session, in tenths, half rounded up.
    pub average_tenths: i64,
}

/// A category whose sales stay flat or fall (query 15).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The category.
    pub category: i64,
    /// The last day taken into account, in days since 1970-01-01.
    pub day: i64,
    /// Cents for each day.
    pub slope: f64,
    /// Cents on the category's first day with sales, on the fitted line.
    pub intercept: f64,
}
