//! Patterns against plain search.
