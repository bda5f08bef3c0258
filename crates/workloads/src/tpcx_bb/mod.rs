//! Five queries derived from TPCx-BB, as Prasaad et al. run them over ordered streams: rows, seeded
//! generators with skew, and serial oracles.
//!
//! [`pipelines`] has them on the engine.
//!
//! | Query | Input | Operators (SL stateless, PS keyed state, SF one state) | Oracle |
//! |---|---|---|---|
//! | 1 | sales | SL, PS by ticket, PS by pair, SF: pairs of items most sold together, each hour | [`query_1`] |
//! | 2 | clicks | SL, PS by user, SL, PS by pair, SF: pairs of items most viewed together | [`query_2`] |
//! | 3 | clicks | SL, PS by user, SL, PS by item, SF: items viewed before a purchase | [`query_3`] |
//! | 4 | clicks | SL, PS by user, SL, SF: pages of the sessions that leave a cart behind | [`query_4`] |
//! | 15 | sales | SL, SL, PS by category: categories whose sales stay flat or fall | [`query_15`] |
//!
//! Invariants: rows come in the order of time, ties in the order of arrival, and the order of
//! arrival is part of the meaning; the same settings always give the same rows.
//!
//! What this is not: the benchmark kit, its data generator or anything to compare with published
//! benchmark results. The queries are derived from public descriptions, the data are our own.

mod clicks;
mod items;
pub mod oracle;
pub mod pipelines;
mod rows;
mod sales;

pub use clicks::{ClickSettings, generate_clicks};
pub use items::{
    CATEGORIES, FIRST_ITEM, PageType, WEB_PAGES, category_of, page_type_of, trend_per_mille,
};
pub use oracle::{
    Query1, Query2, Query3, Query4, Query15, query_1, query_2, query_3, query_4, query_15,
};
pub use rows::{
    Abandoned, Average, Click, ItemCount, Pair, PairCount, PairTotal, Sale, Session, Trend, Viewed,
};
pub use sales::{SalesSettings, generate_sales};

/// Seconds of an hour.
pub const HOUR_S: i64 = 3_600;

/// Seconds of a day.
pub const DAY_S: i64 = 86_400;

/// 2001-09-02 in days since 1970-01-01: the first day of query 15.
pub const TREND_DAY_FIRST: i64 = 11_567;

/// 2002-09-02 in days since 1970-01-01: the last day of query 15.
pub const TREND_DAY_LAST: i64 = 11_932;
