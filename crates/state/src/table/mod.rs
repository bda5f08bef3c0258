//! Tables of state: as Arrow IPC files, and how what changed is folded into what was there before.

mod check;
mod file;
mod fold;

pub(crate) use file::{TableFile, TableWriter, column_texts, decode, identity_schema, times};
pub(crate) use fold::Fold;
