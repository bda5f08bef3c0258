//! Thalweg: stream processing for one machine, in SQL or in Rust, on every core.
//!
//! There are two ways in:
//!
//! - [`session::Session`] runs SQL of Flink's dialect: scripts, and queries whose result comes
//!   back as Arrow batches;
//! - [`pipeline::Pipeline`] builds the same operators by hand, with closures over Arrow batches, or
//!   with closures and operators of one's own over [`rows`] of any type.
//!
//! ```
//! use thalweg::session::Session;
//! let mut session = Session::default();
//! let batches = session.execute(
//!     "CREATE TABLE numbers (n INT) WITH (
//!        'connector' = 'datagen',
//!        'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '10'
//!      );
//!      SELECT n * n AS square FROM numbers WHERE n > 7;",
//! )?;
//! assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! Words, promises about order and the meaning of lateness are explained in `docs/concepts.md`.
//! This crate wires the others together: it holds no operator, no connector and no scheduling.

// The command line is written as a program that uses this crate.
#[cfg(feature = "cli")]
extern crate self as thalweg;

pub mod bench;
#[cfg(feature = "cli")]
pub mod cli;

#[cfg(feature = "test-support")]
pub use thalweg_connectors::conformance;
pub use thalweg_library::*;

/// The page of the documentation for Rust users; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
pub struct RustPage;

/// The page of the documentation on metrics; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/metrics.md")]
pub struct MetricsPage;

/// The page of the documentation on why results are held back; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/why.md")]
pub struct WhyPage;

/// The page of the documentation on processors; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/processors.md")]
pub struct ProcessorsPage;

/// The recipe for programs that embed the engine; its example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/embed-in-rust.md")]
pub struct EmbedRecipe;
