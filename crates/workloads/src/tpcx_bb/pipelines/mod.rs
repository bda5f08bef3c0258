//! The queries as pipelines on the engine, in the operator chains of Prasaad et al., table 1.
//!
//! Invariant: in contract `arrival` the output sequence of each equals its [oracle](super::oracle),
//! with [`virtual_partition`](thalweg::rows::virtual_partition) as the oracle's partitions, for
//! every number of workers and partitions, bundle size and policy.

mod q1;
mod q15;
mod q2;
mod q3;
mod q4;
mod sessions;
mod top;

pub use q1::query_1;
pub use q2::query_2;
pub use q3::query_3;
pub use q4::query_4;
pub use q15::query_15;

use thalweg::Result;
use thalweg::rows::PackedRows;

use super::{Click, Sale};

/// Sales with their time, ready to be read by a pipeline.
///
/// # Errors
/// None for rows that were generated.
pub fn packed_sales(sales: &[Sale]) -> Result<PackedRows<Sale>> {
    PackedRows::timed(sales.iter().cloned(), |sale: &Sale| sale.sold_ts_s * 1000)
}

/// Clicks with their time, ready to be read by a pipeline.
///
/// # Errors
/// None for rows that were generated.
pub fn packed_clicks(clicks: &[Click]) -> Result<PackedRows<Click>> {
    PackedRows::timed(clicks.iter().cloned(), |click: &Click| click.click_ts_s * 1000)
}
