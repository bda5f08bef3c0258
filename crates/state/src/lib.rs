//! Snapshots as they lie on a disk or in an object store: written, read back, verified, kept and
//! deleted.
//!
//! A running job hands over a [`TakenCut`](thalweg_core::snapshot::TakenCut);
//! [`SnapshotStore::write`] makes a snapshot of it, and [`SnapshotStore::read`] gives the
//! [`RestoredCut`](thalweg_core::snapshot::RestoredCut) back to another run. The layout is a
//! written specification: `docs/design/007-snapshot-format.md`.
//!
//! # Invariants
//! - A snapshot counts from the moment its manifest stands under its name, and not before: every
//!   file that the manifest names is durable by then, and the manifest was read back and compared.
//! - Whatever fails, and wherever: the snapshots that were there before are untouched.
//! - Each byte that is read is covered by a checksum. Damage is reported with its path and
//!   passed over; nothing that is damaged, and nothing that this version does not know, is ever
//!   deleted by itself.
//! - What is decided (when, which, what goes) is decided by the pure functions of [`decide`];
//!   storage is asked for facts before and carries out what they answer.
//! - One file (about 64 MiB) and the rows of one partition's table are in memory at a time, besides
//!   the identities of changed rows where changes are folded. Reading gives the whole state, as it
//!   was asked to.
//!
//! | module | holds |
//! |---|---|
//! | [`store`](SnapshotStore) | the way in: write, read, list, verify, delete |
//! | [`decide`] | what is to be done, from facts alone |
//! | `manifest` | the one file that says what a snapshot is |
//! | `table` | tables of state as Arrow IPC files, and how changes are folded into them |
//! | [`storage`] | where the bytes lie: a local directory, written durably, or an object store |
//! | [`JobLock`] | one run for each job directory |
//!
//! Nothing here knows operators, connectors or threads. Calls block; the engine makes them from a
//! thread that has time.

mod checksum;
pub mod decide;
mod lock;
mod manifest;
pub mod storage;
mod store;
mod table;

pub use lock::JobLock;
pub use manifest::SnapshotKind;
pub use store::{
    Damage, FoundSnapshot, Lineage, Origin, Snapshot, SnapshotDetails, SnapshotHeader,
    SnapshotStore, SnapshotSummary, TableSummary, WriteRequest, WrittenSnapshot,
};

#[doc(hidden)]
pub use manifest::fuzz_manifest;
