//! Joins of rows of the same window.
