//! The first rows of each key, and the one row of each key that counts, as changelogs.
