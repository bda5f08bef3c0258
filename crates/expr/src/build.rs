//! Builds typed expressions.
