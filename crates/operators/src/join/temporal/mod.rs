//! Joins with the version of a table that was valid at a row's time.
