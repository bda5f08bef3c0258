//! OVER windows: each row with aggregates over the rows before it.
