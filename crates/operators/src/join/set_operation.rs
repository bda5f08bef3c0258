//! INTERSECT and EXCEPT, as changelogs.
