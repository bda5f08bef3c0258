//! Rows that another part of the process hands to a source of a running job.
//!
//! A source that takes such rows opens an inlet under the name of its table, in the [`RowInlets`]
//! of its job. Whoever holds the same inlets posts bodies there, and asks how far they have come.
//!
//! **Invariants**
//! - a body is taken whole, or refused and nothing of it is taken;
//! - the numbers of an inlet's bodies ascend in the order in which they reach the job;
//! - an inlet never waits: where it has no room, it refuses.
//!
//! What it does not do: it keeps no rows, and knows no snapshots. Which bodies a snapshot has is
//! in the position of the source.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a body of rows is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object, or an array of them.
    Json,
    /// A JSON object in each line.
    JsonLines,
    /// A line of CSV for each row, without a header.
    Csv,
    /// A stream of Arrow IPC.
    ArrowStream,
}

/// Rows that are posted.
#[derive(Clone, Copy, Debug)]
pub struct PostedRows<'r> {
    /// What they are written in.
    pub kind: BodyKind,
    /// The rows.
    pub body: &'r [u8],
    /// What the request is known by if it comes again.
    pub key: Option<&'r str>,
}

/// A body that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsReceipt {
    /// The run of the source that has taken it.
    pub run: String,
    /// The number of the body in that run.
    pub number: u64,
    /// How many rows it has.
    pub rows: u64,
    /// How many of its rows could not be read and are left out.
    pub bad_rows: u64,
}

/// Why a body was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsRefusal {
    /// A row is bad.
    Bad {
        /// The line, or the row of a body without lines, from 1.
        place: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// The table takes no such bodies.
    KindWrong(String),
    /// It has more bytes than this.
    TooLarge(usize),
    /// There is no room: the same can be taken later.
    Full(String),
    /// The source has ended.
    Closed,
}

/// Takes bodies for a table.
pub trait RowInlet: Send + Sync {
    /// Takes a body, or refuses it.
    ///
    /// # Errors
    /// If it is refused.
    fn post(&self, rows: PostedRows<'_>) -> Result<RowsReceipt, RowsRefusal>;
    /// The run of the source: no other run has the same.
    fn run(&self) -> &str;
    /// The last number up to which the job has read all bodies.
    fn read_through(&self) -> u64;
    /// True while bodies are taken.
    fn is_open(&self) -> bool;
}

/// The inlets of a job, by the names of their tables. Clones are the same.
#[derive(Clone, Default)]
pub struct RowInlets(Arc<Mutex<BTreeMap<String, Arc<dyn RowInlet>>>>);

impl RowInlets {
    fn inlets(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn RowInlet>>> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Opens the inlet of a table. The one of an earlier run takes no more, and is forgotten. False
    /// if another one is open: a table has one.
    pub fn open(&self, table: &str, inlet: Arc<dyn RowInlet>) -> bool {
        let mut inlets = self.inlets();
        let is_free = inlets.get(table).is_none_or(|known| !known.is_open());
        if is_free {
            inlets.insert(table.to_owned(), inlet);
        }
        is_free
    }

    /// The inlet of a table, which may be closed by now.
    pub fn get(&self, table: &str) -> Option<Arc<dyn RowInlet>> {
        self.inlets().get(table).cloned()
    }

    /// The inlet of a run, unless a later run has taken its place.
    pub fn of_run(&self, run: &str) -> Option<Arc<dyn RowInlet>> {
        self.inlets().values().find(|inlet| inlet.run() == run).cloned()
    }

    /// The tables with inlets that are open.
    pub fn tables(&self) -> Vec<String> {
        let inlets = self.inlets();
        let open = inlets.iter().filter(|(_, inlet)| inlet.is_open());
        open.map(|(table, _)| table.clone()).collect()
    }
}

impl fmt::Debug for RowInlets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RowInlets").field(&self.tables()).finish()
    }
}

impl PartialEq for RowInlets {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RowInlets {}
