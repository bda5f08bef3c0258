//! Rows of a key taken together: one result of all of them, or of those of two streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_core::{Error, Result};
use thalweg_operators::window::WindowSpec;

use super::endpoints::TimeOf;
use super::key::RowKey;
use super::operator::{Emit, KeyContext, RowOperator};
use super::stream::{KeyedRows, Rows};
use super::{Row, RowState};
use crate::pipeline::Window;

/// A row of one of two streams.
#[derive(Serialize, Deserialize)]
pub(super) enum Either<T, U> {
    Left(T),
    Right(U),
}

/// The rows of two streams.
pub(super) type Group<T, U> = (Vec<T>, Vec<U>);

impl<T: Row, K: RowKey> KeyedRows<T, K> {
    /// One result for each key, of all its rows, for inputs that end: it leaves at the end.
    ///
    /// ```
    /// use thalweg::pipeline::Pipeline;
    /// use thalweg::RunOptions;
    /// let pipeline = Pipeline::new();
    /// let counts = pipeline
    ///     .read_rows("words", ["to", "be", "or", "not", "to", "be"].map(str::to_owned))
    ///     .key_by(64, String::clone)
    ///     .fold("counts", |count: &mut u32, _word| *count += 1)
    ///     .collect("counts");
    /// pipeline.run(RunOptions::default())?;
    /// assert!(counts.rows().contains(&("be".to_owned(), 2)));
    /// # Ok::<(), thalweg::Error>(())
    /// ```
    #[must_use]
    pub fn fold<S: RowState + Sync>(
        self,
        name: &str,
        function: impl Fn(&mut S, T) + Send + Sync + 'static,
    ) -> Rows<(K, S)> {
        self.process(name, Fold { function, states: std::marker::PhantomData })
    }

    /// For each key all its rows of this stream and of another, for inputs that end: the closure is
    /// called at the end.
    ///
    /// # Errors
    /// None for keys of one type.
    pub fn co_group<U: Row, V: Row>(
        self,
        name: &str,
        other: KeyedRows<U, K>,
        function: impl Fn(&K, Vec<T>, Vec<U>, &mut Emit<V>) + Send + Sync + 'static,
    ) -> Result<Rows<V>> {
        let zero = |_: &Either<T, U>| 0;
        self.grouped(name, other, WindowSpec::Whole, Arc::new(zero), move |key, _, group, out| {
            function(key, group.0, group.1, out);
        })
    }

    /// For each window and key its rows of this stream and of another, once the window closes. The
    /// closure is given the key, the start and the end of the window, and the rows. A row that
    /// comes after its window has closed is dropped.
    ///
    /// # Errors
    /// If windows do not depend on time alone.
    pub fn co_group_windows<U: Row, V: Row>(
        self,
        name: &str,
        (other, other_time): (KeyedRows<U, K>, impl Fn(&U) -> i64 + Send + Sync + 'static),
        time: impl Fn(&T) -> i64 + Send + Sync + 'static,
        window: Window,
        function: impl Fn(&K, (i64, i64), Group<T, U>, &mut Emit<V>) + Send + Sync + 'static,
    ) -> Result<Rows<V>> {
        let Some(window) = window.aligned() else {
            return Err(Error::plan(format!("'{name}': {window} are no windows of time alone"))
                .hint("find sessions by a process function over both streams"));
        };
        let time_of = move |row: &Either<T, U>| match row {
            Either::Left(row) => time(row),
            Either::Right(row) => other_time(row),
        };
        self.grouped(name, other, window, Arc::new(time_of), function)
    }

    fn grouped<U: Row, V: Row>(
        self,
        name: &str,
        other: KeyedRows<U, K>,
        window: WindowSpec,
        time: TimeOf<Either<T, U>>,
        function: impl Fn(&K, (i64, i64), Group<T, U>, &mut Emit<V>) + Send + Sync + 'static,
    ) -> Result<Rows<V>> {
        window.validate()?;
        let (own_key, other_key, partitions) = (self.key, other.key, self.partitions);
        let left = self.rows.map("left rows", Either::<T, U>::Left);
        let both = left.union(vec![other.rows.map("right rows", Either::<T, U>::Right)])?;
        let keyed = both.key_by(partitions, move |row| match row {
            Either::Left(row) => own_key(row),
            Either::Right(row) => other_key(row),
        });
        Ok(keyed.process(name, Grouping { window, time, function, rows: std::marker::PhantomData }))
    }
}

/// The operator of [`KeyedRows::fold`].
struct Fold<S, F> {
    function: F,
    states: std::marker::PhantomData<fn() -> S>,
}

impl<K, T, S, F> RowOperator<K, T> for Fold<S, F>
where
    K: RowKey,
    T: Row,
    S: RowState + Sync,
    F: Fn(&mut S, T) + Send + Sync + 'static,
{
    type State = S;
    type Out = (K, S);

    fn extra_bytes(&self, state: &S) -> usize {
        postcard::experimental::serialized_size(state).unwrap_or(0)
    }
    fn row(&self, _: &K, state: &mut S, row: T, context: &mut KeyContext<(K, S)>) {
        (self.function)(state, row);
        context.set_timer_at_end();
    }
    fn timer(&self, key: &K, state: &mut S, _: i64, context: &mut KeyContext<(K, S)>) {
        context.emit((key.clone(), std::mem::take(state)));
        context.forget();
    }
}

/// The rows of a key by the end of their window.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>, U: Deserialize<'de>"))]
struct Groups<T, U>(BTreeMap<i64, WindowGroup<T, U>>);

/// The rows of a key in a window.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>, U: Deserialize<'de>"))]
struct WindowGroup<T, U> {
    start: i64,
    rows: Group<T, U>,
    /// About how many bytes the rows take: groups are long, and asked for it often.
    bytes: usize,
}

impl<T, U> Default for Groups<T, U> {
    fn default() -> Self {
        Groups(BTreeMap::new())
    }
}

/// The operator of [`KeyedRows::co_group`].
struct Grouping<T, U, V, F> {
    window: WindowSpec,
    time: TimeOf<Either<T, U>>,
    function: F,
    rows: std::marker::PhantomData<fn() -> V>,
}

impl<K, T, U, V, F> RowOperator<K, Either<T, U>> for Grouping<T, U, V, F>
where
    K: RowKey,
    T: Row,
    U: Row,
    V: Row,
    F: Fn(&K, (i64, i64), Group<T, U>, &mut Emit<V>) + Send + Sync + 'static,
{
    type State = Groups<T, U>;
    type Out = V;

    fn timer_grid_ms(&self) -> Option<i64> {
        (self.window != WindowSpec::Whole).then_some(1)
    }
    fn extra_bytes(&self, state: &Groups<T, U>) -> usize {
        state.0.values().map(|group| size_of::<WindowGroup<T, U>>() + group.bytes).sum()
    }
    fn row(
        &self,
        _: &K,
        groups: &mut Groups<T, U>,
        row: Either<T, U>,
        context: &mut KeyContext<V>,
    ) {
        let time_ms = (self.time)(&row);
        let mut windows = self.window.assign(time_ms);
        windows.retain(|&(_, end)| end - 1 > context.watermark_ms());
        let bytes = postcard::experimental::serialized_size(&row).unwrap_or(0);
        let mut row = Some(row);
        for (number, &(start, end)) in windows.iter().enumerate() {
            match end {
                i64::MAX => context.set_timer_at_end(),
                end => context.set_timer(end),
            }
            let is_last = number + 1 == windows.len();
            let Some(own) = (if is_last { row.take() } else { row.as_ref().and_then(copy) }) else {
                return context.fail(Error::user("a row cannot be written and read back"));
            };
            let empty = || WindowGroup { start, rows: Default::default(), bytes: 0 };
            let group = groups.0.entry(end).or_insert_with(empty);
            group.bytes += bytes;
            match own {
                Either::Left(row) => group.rows.0.push(row),
                Either::Right(row) => group.rows.1.push(row),
            }
        }
    }
    fn timer(&self, key: &K, groups: &mut Groups<T, U>, end: i64, context: &mut KeyContext<V>) {
        if let Some(WindowGroup { start, rows, .. }) = groups.0.remove(&end) {
            (self.function)(key, (start, end), rows, &mut context.emit);
        }
        if groups.0.is_empty() {
            context.forget();
        }
    }
}

/// A row that stands in several windows.
fn copy<T: Row>(row: &T) -> Option<T> {
    postcard::from_bytes(&postcard::to_stdvec(row).ok()?).ok()
}
