//! Joins of rows whose times lie within a distance of one another.
