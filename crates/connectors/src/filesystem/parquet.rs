//! Parquet files, read a row group at a time and written with Zstandard.

pub mod reader;
pub mod types;
pub mod writer;
