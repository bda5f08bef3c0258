//! Workloads of the papers, each with a seeded generator, an oracle that one thread computes row by
//! row, and a pipeline on the engine whose output sequence must equal the oracle's.
//!
//! | Module | What it has |
//! |---|---|
//! | [`random`] | numbers and distributions that depend on (seed, stream, index) alone |
//! | [`tpcx_bb`] | five queries derived from TPCx-BB (1, 2, 3, 4, 15), as Prasaad et al. run them |
//! | [`linear_road`] | Linear Road: traffic, tolls, accidents, accounts, and Viper's two operators |
//! | [`streambox`] | StreamBox's six benchmarks: grep, word count, join, distinct, netmon, tweets |
//! | [`plot`] | figures of measurements: a file format, and their drawing as SVG |

pub mod linear_road;
pub mod plot;
pub mod random;
pub mod streambox;
pub mod tpcx_bb;
