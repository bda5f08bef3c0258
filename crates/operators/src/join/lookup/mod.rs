//! Lookup joins with a table that is asked over and over: each bundle of rows asks for the keys it
//! has, and continues when the answer is there.
//!
//! | module | holds |
//! |---|---|
//! | `requests` | the thread that waits for answers: this many at once, timeouts, retries |
//! | `cache` | answers that are remembered |
//!
//! A bundle becomes a look-up of its distinct keys without NULL, and the answer a table of its own,
//! in which the rows of the bundle are looked up as in any join with a table (`join::hash`).
//!
//! **Invariants:**
//! - no worker waits: the stage is asynchronous, and its bundle counts as not consumed until it is
//!   finished, so no watermark overtakes it, and what waits counts in the memory account;
//! - bundles leave in the order in which they came, as from any stateless stage.
//!
//! What it does not do: it asks for no key of another bundle, and bundles that ask at the same time
//! may ask for the same key.
//!
//! What a row sees is the table at some moment between its arrival and its departure, or, with the
//! cache, up to the cache's expiry earlier. As in Flink, results are not corrected when the table
//! changes.

mod cache;
mod requests;

use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use thalweg_core::lookup::{AsyncLookup, LookupOptions};
use thalweg_core::operator::Done;
use thalweg_core::shim::SharedClock;
use thalweg_core::{Bundle, Error, ErrorKind, Result, TableSchema, Transform};

use super::JoinKind;
use super::hash::{HashJoin, HashJoinSpec};
use super::sides::Side;
use crate::chain::{Chain, Step};
use crate::keys::KeyTable;
use crate::rows::columns::{keys_of, schema_of, take_all};
use crate::rows::input::joinable;
use cache::Cache;
use requests::Asking;

/// The stage of a lookup join.
pub struct LookupJoin {
    shared: Arc<LookupShared>,
    lookup: Arc<dyn AsyncLookup>,
    asking: Asking,
    key_schema: SchemaRef,
}

/// What finishing a bundle needs.
struct LookupShared {
    name: String,
    spec: HashJoinSpec,
    cache: Option<Mutex<Cache>>,
    clock: SharedClock,
}

impl LookupJoin {
    /// A join of rows on the left with the table on the right, which `lookup` asks.
    ///
    /// # Errors
    /// If the specification does not fit together, or a thread can't be started.
    pub fn new(
        name: String,
        spec: HashJoinSpec,
        lookup: Arc<dyn AsyncLookup>,
        options: &LookupOptions,
        clock: SharedClock,
    ) -> Result<Self> {
        if !matches!(spec.join.kind, JoinKind::Inner | JoinKind::Left) || spec.build != Side::Right
        {
            return Err(Error::plan("a lookup join is an inner or a left join"));
        }
        HashJoin::new(spec.clone())?;
        let right = spec.join.sides.schema(Side::Right);
        let key_schema = schema_of(right, &spec.join.right_keys).arrow();
        let cache = match options.cache_max_rows {
            0 => None,
            _ => Some(Mutex::new(Cache::new(&spec, options)?)),
        };
        let asking = Asking::start(&name, options, Arc::clone(&clock))?;
        let shared = Arc::new(LookupShared { name, spec, cache, clock });
        Ok(LookupJoin { shared, lookup, asking, key_schema: nullable(&key_schema) })
    }

    /// The columns that leave.
    pub fn output_schema(&self) -> Result<TableSchema> {
        Ok(HashJoin::new(self.shared.spec.clone())?.output_schema().clone())
    }

    /// The rows of keys that are remembered, and the others as they are asked for.
    fn wanted(&self, bundle: &Bundle) -> Result<(Vec<RecordBatch>, RecordBatch)> {
        let (known, keys) = self.shared.wanted(&bundle.batch)?;
        Ok((known, RecordBatch::try_new(Arc::clone(&self.key_schema), keys)?))
    }
}

fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

impl LookupShared {
    /// The rows of keys that are remembered, and the keys that are to be asked for.
    fn wanted(&self, batch: &RecordBatch) -> Result<(Vec<RecordBatch>, Vec<ArrayRef>)> {
        let keys = keys_of(batch.columns(), &self.spec.join.left_keys);
        let rows: Vec<u32> = match joinable(&keys) {
            None => (0..batch.num_rows() as u32).collect(),
            Some(valid) => valid.valid_indices().map(|row| row as u32).collect(),
        };
        let keys = take_all(&keys, &rows)?;
        let count = keys.first().map_or(0, |key| key.len());
        let mut table = KeyTable::new(&self.spec.join.key_types()?)?;
        let mut ids = Vec::with_capacity(count);
        table.intern_rows(&keys, None, count, &mut ids)?;
        // A new key has the next number.
        let mut next = 0;
        let mut first = Vec::new();
        for (row, &id) in ids.iter().enumerate() {
            if id == next {
                first.push(row as u32);
                next += 1;
            }
        }
        let distinct = take_all(&keys, &first)?;
        match &self.cache {
            None => Ok((Vec::new(), distinct)),
            Some(cache) => {
                let mut cache = cache.lock().expect("no panic under this lock");
                let (known, missing) = cache.find(&distinct, self.clock.now_ns())?;
                Ok((known, take_all(&distinct, &missing)?))
            }
        }
    }

    /// The answer with the columns of the table.
    fn checked(&self, answer: Result<RecordBatch>) -> Result<RecordBatch> {
        let answer = answer?;
        let schema = nullable(&self.spec.join.sides.schema(Side::Right).arrow());
        let types = |schema: &Schema| -> Vec<_> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        if types(answer.schema_ref()) != types(&schema) {
            return Err(Error::new(
                ErrorKind::User,
                format!(
                    "{} answered with columns {:?} where {:?} are asked for",
                    self.name,
                    types(answer.schema_ref()),
                    types(&schema)
                ),
            ));
        }
        Ok(RecordBatch::try_new(schema, answer.columns().to_vec())?)
    }

    fn remember(&self, asked: &RecordBatch, answer: &RecordBatch) -> Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let mut cache = cache.lock().expect("no panic under this lock");
        cache.remember(asked.columns(), answer, self.clock.now_ns())
    }

    /// Joins the rows of a bundle with what was found.
    fn finish(&self, bundle: Bundle, rows: Vec<RecordBatch>) -> Result<Bundle> {
        let join = HashJoin::new(self.spec.clone())?;
        let mut table = join.build().again()?;
        rows.into_iter().try_for_each(|rows| table.add(rows))?;
        table.publish()?;
        let step = Step::Probe { table: Arc::new(join.probe()), what: String::new() };
        Chain::new(self.name.clone(), vec![step], Arc::clone(&self.clock)).apply(bundle)
    }
}

impl Transform for LookupJoin {
    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        match bundle.num_rows() {
            0 => self.shared.finish(bundle, Vec::new()),
            _ => Err(Error::internal("rows that are looked up continue when the answer is there")),
        }
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn begin(&self, bundle: Bundle, done: Done) {
        let shared = Arc::clone(&self.shared);
        let (known, keys) = match self.wanted(&bundle) {
            Ok((known, keys)) if keys.num_rows() > 0 => (known, keys),
            Ok((known, _)) => return done(Box::new(move || shared.finish(bundle, known))),
            Err(error) => return done(Box::new(move || Err(error))),
        };
        let (lookup, asked) = (Arc::clone(&self.lookup), keys.clone());
        let finish = move |answer| {
            let answer = shared.checked(answer)?;
            shared.remember(&asked, &answer)?;
            let mut rows = known;
            rows.push(answer);
            shared.finish(bundle, rows)
        };
        let take = move |answer| done(Box::new(move || finish(answer)));
        self.asking.ask(Box::new(move || lookup.lookup(keys.clone())), Box::new(take));
    }
}
