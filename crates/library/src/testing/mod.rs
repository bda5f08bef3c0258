//! Tests of SQL, written in Markdown and run on the engine's own dispatcher with a virtual clock.
//!
//! A test names statements, what comes in and when, and what has to come out:
//!
//! ```text
//! sql `orders.sql`
//!
//! input `orders`
//!
//! | at       | ts                  | item | amount |
//! |----------|---------------------|------|--------|
//! | 09:00:06 | 2026-01-01 09:00:05 | tea  | 2      |
//! | 10:00:10 | watermark 2026-01-01 10:00:00 | | |
//!
//! expect `totals`
//!
//! | item | total |
//! |------|-------|
//! | tea  | 2     |
//! ```
//!
//! Each table that is read gets its rows from the test, whatever its connector; what is written is
//! kept. So the statements are those that run in production, and nothing outside is touched. A case
//! runs in the contracts `epoch` and `arrival`, with 1 and with 4 workers ([`Variant`]), each time
//! by `thalweg_runtime::simulate`: time passes only when nothing is left to be done.
//!
//! | module | holds |
//! |---|---|
//! | [`markdown`] | the file: cases, tables, and how expected rows are written into it |
//! | `cells` | text of a table's cells to values and back |
//! | `places` | what stands in the place of connectors: inputs, outputs, lookups |
//! | [`run`] | a case, run once for each variant |
//! | `job` | a job of it, along the lines of the inputs, with crashes |
//! | [`record`] | a test that is made of rows which were seen |
//! | `compare` | what came out against what was expected |

mod cells;
mod compare;
mod job;
pub mod markdown;
mod places;
pub mod record;
pub mod run;

pub use compare::Difference;
pub use markdown::{TestCase, TestFile};
pub use run::{CaseReport, Registered, TestOptions, Variant, run_case};
