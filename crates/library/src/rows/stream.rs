//! Handles to the rows that leave a stage.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_core::{Error, Result, TableSchema};

use super::codec::{Codec, TIME_COLUMN, into_columns, packed_at, packed_schema};
use super::endpoints::{
    CollectedRows, EachRow, Iterated, PackedRows, Packing, RowSink, RowSource, TimeOf,
};
use super::hashed::{HashOf, LastStep, Maker, NextKey, hash_column, hashed_schema};
use super::key::RowKey;
use super::keyed::{KeyOf, KeyedOperator};
use super::operator::{Emit, RowOperator, StatefulClosure};
use super::process::{ProcessFunction, Processing};
use super::{Row, RowState};
use crate::pipeline::{MemorySource, Pipeline, Stream};

/// Rows of one type on their way through a pipeline.
pub struct Rows<T> {
    pub(super) stream: Stream,
    pub(super) codec: Codec,
    maker: Option<Maker<T>>,
    rows: PhantomData<fn() -> T>,
}

impl<T> Clone for Rows<T> {
    fn clone(&self) -> Self {
        let maker = match &self.maker {
            Some(Maker::Step(last)) => Some(Maker::Step(last.clone())),
            Some(Maker::Operator(next_key)) => {
                next_key.settle_on_none();
                None
            }
            None => None,
        };
        Rows { stream: self.stream.clone(), codec: self.codec, maker, rows: PhantomData }
    }
}

impl Pipeline {
    /// Reads rows that have no time. The iterator is asked as the engine has room and should not
    /// wait for long.
    pub fn read_rows<T: Row, I>(&self, name: &str, rows: I) -> Rows<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        self.read_row_source(name, Iterated::new(rows.into_iter()))
    }

    /// Reads rows that have no time from a source of one's own.
    pub fn read_row_source<T: Row>(
        &self,
        name: &str,
        source: impl RowSource<T> + 'static,
    ) -> Rows<T> {
        let source = Packing::new(source, None);
        Rows::new(self.read(name, source, packed_schema(false)), Codec::Packed)
    }

    /// Reads rows that have a time from a source of one's own; see
    /// [`read_timed_rows`](Self::read_timed_rows).
    pub fn read_timed_row_source<T: Row>(
        &self,
        name: &str,
        source: impl RowSource<T> + 'static,
        time_ms: impl Fn(&T) -> i64 + Send + Sync + 'static,
        delay_ms: i64,
    ) -> Rows<T> {
        let time: TimeOf<T> = Arc::new(time_ms);
        let source = Packing::new(source, Some(time));
        let stream = self.read(name, source, packed_schema(true));
        Rows::new(timed(stream, delay_ms), Codec::Packed)
    }

    /// Reads rows that have a time, in milliseconds since 1970: none comes later than `delay_ms`
    /// behind the newest one. Timers follow this time, and `event_time` sorts by it.
    pub fn read_timed_rows<T: Row, I>(
        &self,
        name: &str,
        rows: I,
        time_ms: impl Fn(&T) -> i64 + Send + Sync + 'static,
        delay_ms: i64,
    ) -> Rows<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        self.read_timed_row_source(name, Iterated::new(rows.into_iter()), time_ms, delay_ms)
    }

    /// Reads rows that were packed ahead. Where they have a time, none comes later than `delay_ms`
    /// behind the newest one.
    pub fn read_packed_rows<T: Row>(
        &self,
        name: &str,
        rows: PackedRows<T>,
        delay_ms: i64,
    ) -> Rows<T> {
        let schema = packed_schema(rows.has_time);
        let source = MemorySource::new(schema.clone(), rows.batches);
        let stream = self.read(name, source, schema);
        Rows::new(if rows.has_time { timed(stream, delay_ms) } else { stream }, Codec::Packed)
    }
}

fn timed(stream: Stream, delay_ms: i64) -> Stream {
    stream.watermark(TIME_COLUMN, delay_ms).expect("the stream is a source's with a time column")
}

impl Stream {
    /// Reads rows from the columns, which are found by the names of the type's fields.
    pub fn rows<T: Row>(self) -> Rows<T> {
        if let Err(error) = self.check_inserts(&format!("rows of {}", std::any::type_name::<T>())) {
            self.pipeline.refuse(error);
        }
        Rows::new(self, Codec::Columns)
    }
}

impl<T: Row> Rows<T> {
    pub(super) fn new(stream: Stream, codec: Codec) -> Self {
        Rows { stream, codec, maker: None, rows: PhantomData }
    }

    /// Packed rows that a stateless step makes.
    fn made_by(last: LastStep<T>) -> Self {
        let stream = last.added();
        Rows { maker: Some(Maker::Step(last)), ..Rows::new(stream, Codec::Packed) }
    }

    /// The pipeline that the rows travel through.
    pub fn pipeline(&self) -> &Pipeline {
        &self.stream.pipeline
    }

    /// Any number of rows for each row; no state.
    #[must_use]
    pub fn stateless<U: Row>(
        self,
        name: &str,
        function: impl Fn(T, &mut Emit<U>) + Send + Sync + 'static,
    ) -> Rows<U> {
        let (codec, name, function) = (self.codec, name.to_owned(), Arc::new(function));
        Rows::made_by(LastStep::new(self.stream, move |stream, hash: Option<HashOf<U>>| {
            let schema = hashed_schema(hash.is_some());
            let (arrow, function): (SchemaRef, _) = (schema.arrow(), Arc::clone(&function));
            stream.flat_map(&name, schema, move |batch| {
                let mut emit = Emit::new(hash.clone());
                codec.read(batch, None, |place, row| {
                    emit.place = i64::from(place);
                    function(row, &mut emit);
                    emit.check()
                })?;
                let origins = emit.places.iter().map(|&place| place as u32).collect();
                Ok((emit.finish(&arrow)?, origins))
            })
        }))
    }

    /// One row for each row.
    #[must_use]
    pub fn map<U: Row>(
        self,
        name: &str,
        function: impl Fn(T) -> U + Send + Sync + 'static,
    ) -> Rows<U> {
        self.stateless(name, move |row, out| out.emit(function(row)))
    }

    /// Keeps the rows for which the closure is true.
    #[must_use]
    pub fn filter(self, name: &str, keep: impl Fn(&T) -> bool + Send + Sync + 'static) -> Rows<T> {
        let (codec, name, keep) = (self.codec, name.to_owned(), Arc::new(keep));
        let last = LastStep::new(self.stream, move |stream, hash| {
            let keep = Arc::clone(&keep);
            match hash {
                None => keep_rows(stream, &name, codec, move |row| keep(row)),
                Some(hash) => keep_hashed(stream, &name, move |row| keep(row), hash),
            }
        });
        match codec {
            Codec::Packed => Rows::made_by(last),
            Codec::Columns => Rows::new(last.added(), codec),
        }
    }

    /// Names the key of each row and the number of partitions that the keys are spread over, from 1
    /// to 256. More partitions than workers let work be shared where keys are skewed; a job makes
    /// no more of them than other operators have
    /// ([`RunOptions::partitions_max`](crate::RunOptions)), which changes no result.
    pub fn key_by<K: RowKey>(
        self,
        partitions: usize,
        key: impl Fn(&T) -> K + Send + Sync + 'static,
    ) -> KeyedRows<T, K> {
        KeyedRows { rows: self, partitions, key: Arc::new(key) }
    }

    /// One state for all rows, which come one at a time and in order.
    #[must_use]
    pub fn singleton<S: RowState, U: Row>(
        self,
        name: &str,
        function: impl Fn(&mut S, T, &mut Emit<U>) + Send + Sync + 'static,
    ) -> Rows<U> {
        let function = move |&(): &(), state: &mut S, row, out: &mut Emit<U>| {
            function(state, row, out);
        };
        self.process_alone(name, StatefulClosure { function, types: PhantomData })
    }

    /// An operator with one state for all rows.
    #[must_use]
    pub fn process_alone<O: RowOperator<(), T>>(self, name: &str, operator: O) -> Rows<O::Out> {
        let key: KeyOf<T, ()> = Arc::new(|_| ());
        self.keyed(name, None, key, operator)
    }

    fn keyed<K: RowKey, O: RowOperator<K, T>>(
        self,
        name: &str,
        partitions: Option<usize>,
        key: KeyOf<T, K>,
        operator: O,
    ) -> Rows<O::Out> {
        let (codec, operator) = (self.codec, Arc::new(operator));
        let name = name.to_owned();
        let (layout, next_key) = (Arc::default(), NextKey::new());
        let maker = Some(Maker::Operator(next_key.clone()));
        let operator = KeyedOperator { name, codec, key, partitions, operator, layout, next_key };
        let stream = self.stream.operator(Arc::new(operator), packed_schema(false));
        Rows { maker, ..Rows::new(stream, Codec::Packed) }
    }

    /// Puts the rows of several streams together. In `arrival` they meet in the order in which they
    /// came in, in `event_time` by time, stream and position.
    ///
    /// # Errors
    /// None for rows of one type.
    pub fn union(self, others: Vec<Rows<T>>) -> Result<Rows<T>> {
        let others = others.into_iter().map(|rows| rows.bare().stream).collect();
        Ok(Rows::new(self.bare().stream.union(others)?, Codec::Packed))
    }

    /// Lets several pipelines continue from here: clones of what is returned share the work so far.
    #[must_use]
    pub fn shared(self) -> Rows<T> {
        Rows::new(self.stream.shared(), self.codec)
    }

    /// The rows with the hashes of their keys, where the step that makes them can hash.
    fn hashed<K: RowKey>(mut self, key: &KeyOf<T, K>) -> Rows<T> {
        match &self.maker {
            Some(Maker::Step(last)) => return Rows::new(last.hashed(key), Codec::Packed),
            Some(Maker::Operator(next_key)) if next_key.set(key) => {
                self.stream.schema = hashed_schema(true);
            }
            _ => {}
        }
        self
    }

    /// The rows as packed rows and nothing else.
    fn bare(self) -> Rows<T> {
        match (self.codec, self.stream.schema().len()) {
            (Codec::Packed, 1) => self,
            (Codec::Packed, columns) => {
                let keep = move |batch: arrow_array::RecordBatch| {
                    batch.project(&[columns - 1]).map_err(Error::from)
                };
                Rows::new(self.stream.map("rows", packed_schema(false), keep), Codec::Packed)
            }
            (Codec::Columns, _) => self.map("rows", |row| row),
        }
    }

    /// Makes columns of the rows, by the names of the type's fields.
    pub fn into_columns(self, name: &str, schema: TableSchema) -> Stream {
        let (codec, arrow) = (self.codec, schema.arrow());
        self.stream.map(name, schema, move |batch| into_columns::<T>(codec, &batch, &arrow))
    }

    /// Keeps the rows in memory.
    pub fn collect(self, name: &str) -> CollectedRows<T> {
        let batches = Arc::default();
        let sink = RowSink { batches: Arc::clone(&batches) };
        self.stream.write(name, sink);
        CollectedRows { batches, codec: self.codec, rows: PhantomData }
    }

    /// Hands each row to a closure, in order, on a thread of its own. An error stops the job.
    pub fn for_each(self, name: &str, function: impl FnMut(T) -> Result<()> + Send + 'static) {
        self.stream.write(name, EachRow { codec: self.codec, function, rows: PhantomData });
    }
}

/// Rows with a key.
pub struct KeyedRows<T, K> {
    pub(super) rows: Rows<T>,
    pub(super) partitions: usize,
    pub(super) key: KeyOf<T, K>,
}

impl<T: Row, K: RowKey> KeyedRows<T, K> {
    /// A closure over the state of each key.
    #[must_use]
    pub fn stateful<S: RowState, U: Row>(
        self,
        name: &str,
        function: impl Fn(&K, &mut S, T, &mut Emit<U>) + Send + Sync + 'static,
    ) -> Rows<U> {
        self.process(name, StatefulClosure { function, types: PhantomData })
    }

    /// A process function: a state that can be written down for each key, timers of event time and
    /// of processing time.
    #[must_use]
    pub fn process_function<F: ProcessFunction<K, T>>(
        self,
        name: &str,
        function: F,
    ) -> Rows<F::Out> {
        self.process(name, Processing(function))
    }

    /// An operator with a state for each key and timers.
    #[must_use]
    pub fn process<O: RowOperator<K, T>>(self, name: &str, operator: O) -> Rows<O::Out> {
        let partitions = Some(self.partitions.clamp(1, 256));
        self.rows.hashed(&self.key).keyed(name, partitions, self.key, operator)
    }
}

/// Keeps the rows for which the closure is true.
fn keep_rows<T: Row>(
    stream: Stream,
    name: &str,
    codec: Codec,
    keep: impl Fn(&T) -> bool + Send + Sync + 'static,
) -> Stream {
    stream.filter(name, move |batch| {
        let mut kept = Vec::with_capacity(batch.num_rows());
        codec.read(batch, None, |_, row| {
            kept.push(keep(&row));
            Ok(())
        })?;
        Ok(kept.into())
    })
}

/// The same for packed rows, with the hashes of their keys.
fn keep_hashed<T: Row>(
    stream: Stream,
    name: &str,
    keep: impl Fn(&T) -> bool + Send + Sync + 'static,
    hash: HashOf<T>,
) -> Stream {
    let schema = hashed_schema(true);
    let arrow: SchemaRef = schema.arrow();
    stream.flat_map(name, schema, move |batch| {
        let (mut hashes, mut origins) = (Vec::new(), Vec::new());
        Codec::Packed.read(batch, None, |place, row| {
            if keep(&row) {
                hashes.push(hash(&row) as i64);
                origins.push(place);
            }
            Ok(())
        })?;
        let columns = vec![hash_column(hashes), packed_at(batch, &origins)?];
        Ok((RecordBatch::try_new(Arc::clone(&arrow), columns)?, origins))
    })
}
