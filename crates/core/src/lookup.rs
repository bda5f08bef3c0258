//! Tables that are looked up by key, one batch of keys at a time: what a store or a service behind
//! a network offers to a lookup join.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use arrow_array::RecordBatch;

use crate::connector::TableRequest;
use crate::error::Result;
use crate::types::TableSchema;

/// An answer that is on its way.
pub type Answer = Pin<Box<dyn Future<Output = Result<RecordBatch>> + Send>>;

/// A table that is looked up by key.
///
/// The future is polled by a thread of the engine that has no runtime of any kind: what needs one
/// (sockets of tokio, say) is spawned on a runtime of the table's own, and the future waits for
/// that.
pub trait AsyncLookup: Send + Sync {
    /// Begins to look keys up: a column for each key column, no NULL among them, no key twice.
    ///
    /// The answer has the columns that were asked for ([`LookupRequest::columns`]) and all rows
    /// with one of the keys, in any order; rows of one key leave in the order that they have here.
    /// Rows with other keys do no harm. An error is tried again as often as the options say.
    fn lookup(&self, keys: RecordBatch) -> Answer;
}

/// What a lookup join asks of a table.
#[derive(Clone, Debug)]
pub struct LookupRequest {
    /// The table, with the projection that is needed.
    pub table: TableRequest,
    /// The names of the key columns. They are among the columns that are asked for.
    pub keys: Vec<String>,
}

impl LookupRequest {
    /// The columns of answers, in order.
    pub fn columns(&self) -> TableSchema {
        self.table.delivered()
    }

    /// The columns of keys, in order.
    pub fn key_columns(&self) -> TableSchema {
        let columns = self.columns();
        let is_key = |name: &String| columns.columns.iter().find(|column| column.name == *name);
        TableSchema::new(self.keys.iter().filter_map(is_key).cloned().collect())
    }
}

/// How a table is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupOptions {
    /// The most batches of keys in flight.
    pub capacity: usize,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How often a batch is asked for again that failed, or took too long.
    pub max_retries: u32,
    /// The most rows in the cache; 0 for no cache.
    pub cache_max_rows: usize,
    /// For so long after they came. `None` for ever.
    pub cache_expires_after: Option<Duration>,
    /// True if it is remembered that a key has no rows.
    pub caches_missing_keys: bool,
}

impl Default for LookupOptions {
    fn default() -> Self {
        LookupOptions {
            capacity: 100,
            timeout: Duration::from_secs(180),
            max_retries: 3,
            cache_max_rows: 0,
            cache_expires_after: None,
            caches_missing_keys: true,
        }
    }
}
