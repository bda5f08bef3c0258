//! Joins of rows by key: the operators of SQL over columns of keys and packed rows.
//!
//! Both sides become streams of the columns `key` and `row` (and `time`), which are joined as any
//! others; pairs are then put together from the bytes of their rows. Two keys are equal if serde
//! writes the same bytes for them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, TimestampMillisecondArray};
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use super::Row;
use super::codec::{Codec, RowWriter, packed_schema};
use super::endpoints::TimeOf;
use super::key::RowKey;
use super::stream::{KeyedRows, Rows};
use crate::pipeline::{JoinKind, Stream, StreamJoin, Window};

const KEY: &str = "key";
const TIME: &str = "time";

/// A row of either side of a join, or none where it found no partner.
type Partners<T, U> = (Option<T>, Option<U>);

impl<T: Row, K: RowKey> KeyedRows<T, K> {
    /// Pairs of a row and the rows of a table with its key. The table, which ends, is read first,
    /// whole; no row of this side is read before. Rows without partners are left out.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use thalweg::pipeline::Pipeline;
    /// use thalweg::{OrderContract, RunOptions};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Order { id: u32, buyer: u32 }
    ///
    /// let pipeline = Pipeline::new();
    /// let names = [(7, "Ada".to_owned()), (8, "Jan".to_owned())];
    /// let names = pipeline.read_rows("names", names).key_by(64, |name: &(u32, String)| name.0);
    /// let orders = [(1, 8), (2, 9), (3, 7)].map(|(id, buyer)| Order { id, buyer });
    /// let named = pipeline
    ///     .read_rows("orders", orders)
    ///     .key_by(64, |order: &Order| order.buyer)
    ///     .hash_join("names of buyers", names)?
    ///     .map("words", |(order, (_, name))| format!("{} {name}", order.id))
    ///     .collect("named");
    /// pipeline.run(RunOptions { order: OrderContract::Arrival, ..RunOptions::default() })?;
    /// assert_eq!(named.rows(), ["1 Jan", "3 Ada"]);
    /// # Ok::<(), thalweg::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a source feeds both sides.
    pub fn hash_join<U: Row>(self, name: &str, table: KeyedRows<U, K>) -> Result<Rows<(T, U)>> {
        let joined = self.joined(name, JoinKind::Inner, table, None)?.hashed()?;
        Ok(pairs(joined, [Some((1, false)), Some((3, false))]))
    }

    /// As [`hash_join`](Self::hash_join); rows without partners stay.
    ///
    /// # Errors
    /// If a source feeds both sides.
    pub fn left_hash_join<U: Row>(
        self,
        name: &str,
        table: KeyedRows<U, K>,
    ) -> Result<Rows<(T, Option<U>)>> {
        let joined = self.joined(name, JoinKind::Left, table, None)?.hashed()?;
        Ok(pairs(joined, [Some((1, false)), Some((3, true))]))
    }

    /// Pairs of rows with the same key, whenever they come. All rows are kept.
    ///
    /// # Errors
    /// If the sides belong to two pipelines.
    pub fn join<U: Row>(self, name: &str, other: KeyedRows<U, K>) -> Result<Rows<(T, U)>> {
        let joined = self.joined(name, JoinKind::Inner, other, None)?.unbounded()?;
        Ok(pairs(joined, [Some((1, false)), Some((3, false))]))
    }

    /// Rows with the same key whose times, in milliseconds since 1970, lie within a distance:
    /// `other + bounds_ms.0 <= own <= other + bounds_ms.1`. Of a row without a partner the other
    /// side is missing; it leaves when none can come any more.
    ///
    /// # Errors
    /// If the sides belong to two pipelines.
    pub fn join_within<U: Row>(
        self,
        name: &str,
        kind: JoinKind,
        (other, other_time): (KeyedRows<U, K>, impl Fn(&U) -> i64 + Send + Sync + 'static),
        time: impl Fn(&T) -> i64 + Send + Sync + 'static,
        bounds_ms: (i64, i64),
    ) -> Result<Rows<Partners<T, U>>> {
        let times: Times<T, U> = (Arc::new(time), Arc::new(other_time));
        let join = self.joined(name, kind, other, Some(times))?;
        let joined = join.within((TIME, TIME), bounds_ms.0, bounds_ms.1)?;
        Ok(partners(kind, joined))
    }

    /// Rows with the same key in the same window, which leave when it closes. Of a row without a
    /// partner the other side is missing.
    ///
    /// # Errors
    /// If windows do not depend on time alone, or the sides belong to two pipelines.
    pub fn join_windows<U: Row>(
        self,
        name: &str,
        kind: JoinKind,
        (other, other_time): (KeyedRows<U, K>, impl Fn(&U) -> i64 + Send + Sync + 'static),
        time: impl Fn(&T) -> i64 + Send + Sync + 'static,
        window: Window,
    ) -> Result<Rows<Partners<T, U>>> {
        let times: Times<T, U> = (Arc::new(time), Arc::new(other_time));
        let join = self.joined(name, kind, other, Some(times))?;
        Ok(partners(kind, join.in_windows(window, (TIME, TIME))?))
    }

    fn joined<U: Row>(
        self,
        name: &str,
        kind: JoinKind,
        other: KeyedRows<U, K>,
        times: Option<Times<T, U>>,
    ) -> Result<StreamJoin> {
        let (own_time, other_time) = times.unzip();
        let (left, right) = (self.into_stream(own_time), other.into_stream(other_time));
        Ok(left.join(kind, right).on(&[(KEY, KEY)])?.named(name))
    }

    /// The rows behind their keys, and times if there are any.
    fn into_stream(self, time: Option<TimeOf<T>>) -> Stream {
        let (codec, key) = (self.rows.codec, self.key);
        let key_column = Column::new(KEY, DataType::BYTES.not_null());
        let time_column = Column::new(TIME, DataType::Timestamp(3).not_null());
        let columns = std::iter::once(key_column).chain(packed_schema(false).columns);
        let schema = TableSchema::new(columns.chain(time.as_ref().map(|_| time_column)).collect());
        let arrow = schema.arrow();
        self.rows.stream.map("keys", schema, move |batch| {
            let (mut keys, mut times) = (RowWriter::new(), Vec::new());
            codec.read::<T>(&batch, None, |_, row| {
                times.extend(time.as_ref().map(|time| time(&row)));
                keys.push(&key(&row))
            })?;
            let mut columns = vec![keys.column(), codec.rows::<T>(&batch)?];
            if time.is_some() {
                columns.push(Arc::new(TimestampMillisecondArray::from(times)));
            }
            Ok(RecordBatch::try_new(Arc::clone(&arrow), columns)?)
        })
    }
}

/// The times of the rows of both sides.
type Times<T, U> = (TimeOf<T>, TimeOf<U>);

/// Rows of both sides with their times, as options.
fn partners<T: Row, U: Row>(kind: JoinKind, joined: Stream) -> Rows<Partners<T, U>> {
    pairs(joined, [Some((1, true)), kind.has_right_columns().then_some((4, true))])
}

/// Pairs from the columns that hold rows, and whether each is an option; the second side of a
/// semi or an anti join is missing. In what postcard writes a pair is its parts, one behind the
/// other, and an option begins with 0 or 1.
fn pairs<P: Row>(joined: Stream, places: [Option<(usize, bool)>; 2]) -> Rows<P> {
    let (schema, arrow) = (packed_schema(false), packed_schema(false).arrow());
    let stream = joined.map("pairs", schema, move |batch| {
        let column = |place: Option<(usize, bool)>| -> Result<_> {
            Ok(match place {
                None => (None, true),
                Some((place, is_option)) => (Some(rows_at(&batch, place)?), is_option),
            })
        };
        let sides = [column(places[0])?, column(places[1])?];
        let mut writer = RowWriter::new();
        for row in 0..batch.num_rows() {
            let [left, right] = sides.map(|side| part(side, row));
            writer.push_bytes::<P>(&[left.0, left.1, right.0, right.1])?;
        }
        writer.finish(&arrow, Vec::<ArrayRef>::new())
    });
    Rows::new(stream, Codec::Packed)
}

fn rows_at(batch: &RecordBatch, place: usize) -> Result<&BinaryArray> {
    let column = batch.columns().get(place).and_then(|column| column.as_binary_opt::<i32>());
    column.ok_or_else(|| Error::internal("a join of rows has no column of packed rows"))
}

/// The bytes of one side of a pair.
fn part((rows, is_option): (Option<&BinaryArray>, bool), row: usize) -> (&[u8], &[u8]) {
    match rows.filter(|rows| rows.is_valid(row)) {
        Some(rows) if is_option => (&[1], rows.value(row)),
        Some(rows) => (&[], rows.value(row)),
        None => (&[0], &[]),
    }
}
