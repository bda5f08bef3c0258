//! Aggregation without windows, as a changelog.
