//! Parquet, read a row group at a time ([`reader`]) and written ([`writer`]).

pub mod needed;
pub mod reader;
pub mod types;
pub mod writer;
