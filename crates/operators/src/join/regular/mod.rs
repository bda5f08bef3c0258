//! Joins without a bound in time, as changelogs.
