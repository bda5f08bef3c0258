//! The aggregates of windows, and their states as rows of tables of state.
//!
//! `COUNT(*)` needs no accumulator: slices and sessions count the rows of each group anyway. So a
//! result is either that count or a column of states (`ResultOf`), and `state_names` has the latter
//! only.
//!
//! **Invariants**
//! - `results` has one entry for each aggregate of the query, in its order. `calls`,
//!   `argument_types`, `state_names` and every list of accumulators have one entry for each that is
//!   not a count of rows, in the same order.
//! - `counts` is empty where nothing needs it: in windows that share no slice, where no result is a
//!   count. `$rows` is then 1 in snapshots.
//! - Over a changelog rows are always counted, and a group that all rows have left stands with 0
//!   until its window closes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type};
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray, RecordBatch};
use thalweg_core::{DataType, Error, Result, TableSchema};

use super::judge::SliceKey;
use crate::aggregate::{Accumulator, AggregateCall, StateColumns, StateRows};
use crate::capture::key_columns::KeyColumns;
use crate::keys::KeyTable;
use crate::tables::{does_not_fit, numbers_of, state_batch};

/// The ends of the first and of the last window that hold a slice, in milliseconds.
pub(super) const FIRST_END: &str = "$first_end";
pub(super) const LAST_END: &str = "$last_end";
/// How many rows a key has there.
const ROWS: &str = "$rows";

/// Where a result comes from.
#[derive(Clone, Copy)]
enum ResultOf {
    /// The number of rows.
    RowCount,
    /// The column of states at this place.
    Accumulator(usize),
}

/// What happens to the states of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateChanges {
    /// They are added to and dropped as a whole.
    Additions,
    /// States that were merged are subtracted again.
    Subtractions,
    /// Rows that were added are retracted again.
    Retractions,
}

/// The aggregates of an operator, as all its slices share them.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) calls: Vec<AggregateCall>,
    argument_types: Vec<Option<DataType>>,
    results: Vec<ResultOf>,
    changes: StateChanges,
    pub(super) key_types: Vec<DataType>,
    /// How keys stand in tables of state.
    pub(super) key_columns: KeyColumns,
    /// The names of the aggregates there.
    pub(super) state_names: Vec<String>,
}

impl Calls {
    pub fn new(calls: &[AggregateCall], keys: &[usize], input: &TableSchema) -> Result<Self> {
        let type_of = |column: usize| {
            input
                .columns
                .get(column)
                .map(|column| column.column_type.data_type.clone())
                .ok_or_else(|| Error::internal(format!("there is no input column {column}")))
        };
        let key_types = keys.iter().map(|&key| type_of(key)).collect::<Result<_>>()?;
        let mut own = Calls {
            calls: Vec::new(),
            argument_types: Vec::new(),
            results: Vec::new(),
            changes: StateChanges::Subtractions,
            key_types,
            key_columns: KeyColumns::new(input, keys),
            state_names: Vec::new(),
        };
        for call in calls {
            if call.counts_rows() {
                own.results.push(ResultOf::RowCount);
                continue;
            }
            own.results.push(ResultOf::Accumulator(own.calls.len()));
            own.argument_types.push(call.argument.map(type_of).transpose()?);
            own.calls.push(call.clone());
        }
        own.state_names =
            own.key_columns.names_besides_keys(own.calls.iter().map(|call| &call.name[..]));
        // Found here, an argument that fits no implementation is an error of the plan.
        own.accumulators()?;
        KeyTable::new(&own.key_types)?;
        Ok(own)
    }

    pub fn accumulators(&self) -> Result<Vec<Box<dyn Accumulator>>> {
        let calls = self.calls.iter().zip(&self.argument_types);
        calls
            .map(|(call, argument)| match self.changes {
                StateChanges::Additions => call.accumulator_of_whole(argument.as_ref()),
                StateChanges::Subtractions => call.accumulator(argument.as_ref()),
                StateChanges::Retractions => call.retractable(argument.as_ref()),
            })
            .collect()
    }

    /// The same aggregates for states that are only added to and dropped as a whole.
    ///
    /// DISTINCT then keeps a set of values, and not how often each occurs.
    pub fn of_whole(self) -> Self {
        Calls { changes: StateChanges::Additions, ..self }
    }

    /// The same aggregates for states that rows may be retracted from.
    pub fn of_changelog(&self) -> Self {
        Calls { changes: StateChanges::Retractions, ..self.clone() }
    }

    /// True if rows may be retracted.
    pub fn retracts(&self) -> bool {
        self.changes == StateChanges::Retractions
    }

    /// True if a result is the number of rows of a group, or a group may be left without rows.
    pub fn count_rows(&self) -> bool {
        self.retracts() || self.results.iter().any(|result| matches!(result, ResultOf::RowCount))
    }

    /// The result columns of these groups.
    pub fn evaluate(
        &self,
        counts: &[i64],
        accumulators: &[Box<dyn Accumulator>],
        ids: &[u32],
    ) -> Result<Vec<ArrayRef>> {
        let column = |result| self.evaluate_result(result, counts, accumulators, ids);
        (0..self.results.len()).map(column).collect()
    }

    /// The result that is the number of rows of a group.
    pub fn row_count(&self) -> Option<usize> {
        self.results.iter().position(|result| matches!(result, ResultOf::RowCount))
    }

    /// One result column of these groups.
    pub fn evaluate_result(
        &self,
        result: usize,
        counts: &[i64],
        accumulators: &[Box<dyn Accumulator>],
        ids: &[u32],
    ) -> Result<ArrayRef> {
        match self.results[result] {
            ResultOf::RowCount => {
                let counts = ids.iter().map(|&id| counts[id as usize]);
                Ok(Arc::new(Int64Array::from_iter_values(counts)))
            }
            ResultOf::Accumulator(place) => accumulators[place].evaluate(ids),
        }
    }
}

/// The states of some keys, apart from any slice: the `i`-th group belongs to `ids[i]`.
pub(super) struct Partial {
    pub(super) ids: Vec<u32>,
    pub(super) counts: Vec<i64>,
    pub(super) accumulators: Vec<Box<dyn Accumulator>>,
}

impl Partial {
    pub fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        self.ids.capacity() * 12 + states
    }
}

/// States of some keys: those of `keys[i]` stand at `places[i]` of the columns.
pub(super) struct States<'a> {
    pub(super) keys: &'a [u32],
    pub(super) places: Cow<'a, [u32]>,
    /// Empty where rows are not counted.
    pub(super) counts: &'a [i64],
    pub(super) accumulators: &'a [Box<dyn Accumulator>],
}

impl<'a> States<'a> {
    /// Columns that are indexed by key.
    pub fn by_key(
        keys: &'a [u32],
        counts: &'a [i64],
        accumulators: &'a [Box<dyn Accumulator>],
    ) -> Self {
        States { keys, places: Cow::Borrowed(keys), counts, accumulators }
    }

    /// Some of the states of a part.
    pub fn of(partial: &'a Partial, range: Range<usize>) -> Self {
        let Partial { ids, counts, accumulators } = partial;
        let places = (range.start as u32..range.end as u32).collect();
        States { keys: &ids[range], places, counts, accumulators }
    }
}

/// Columns that say which part of the state rows are, by name.
pub(super) type Marks = Vec<(String, ArrayRef)>;

/// A mark with a number per row.
pub(super) fn mark<T: ArrowPrimitiveType>(
    name: &str,
    numbers: impl IntoIterator<Item = T::Native>,
) -> (String, ArrayRef) {
    (name.to_owned(), Arc::new(PrimitiveArray::<T>::from_iter_values(numbers)))
}

impl Calls {
    /// The rows that hold these states.
    pub fn rows(&self, keys: &KeyTable, marks: Marks, states: &States<'_>) -> Result<RecordBatch> {
        let (owners, named) = self.key_columns.columns_of(keys, states.keys)?;
        let count = |&place: &u32| states.counts.get(place as usize).copied().unwrap_or(1);
        let counts = states.places.iter().map(count);
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        let mut state = StateColumns::default();
        for (name, accumulator) in self.state_names.iter().zip(states.accumulators) {
            state.begin(name);
            accumulator.capture(&states.places, &mut state)?;
        }
        let mut columns = marks;
        columns.extend(named);
        columns.push((ROWS.to_owned(), counts));
        columns.extend(state.finish());
        state_batch(owners, columns)
    }

    /// The rows of a table without any.
    pub fn no_rows(&self, marks: Marks) -> Result<RecordBatch> {
        let accumulators = self.accumulators()?;
        let keys = KeyTable::new(&self.key_types)?;
        self.rows(&keys, marks, &States::by_key(&[], &[], &accumulators))
    }

    /// The key columns of some rows, and their states, which have no ids yet.
    pub fn restored(&self, rows: &RecordBatch) -> Result<(Vec<ArrayRef>, Partial)> {
        let places: Vec<u32> = (0..rows.num_rows() as u32).collect();
        let (mut counts, mut accumulators) = (Vec::new(), self.accumulators()?);
        self.restore_at(rows, &places, places.len(), &mut counts, &mut accumulators)?;
        let partial = Partial { ids: Vec::new(), counts, accumulators };
        Ok((self.key_columns.columns(rows)?, partial))
    }

    /// Restores the states of some rows to these places, which are empty, in columns of this many
    /// groups.
    pub fn restore_at(
        &self,
        rows: &RecordBatch,
        places: &[u32],
        groups: usize,
        counts: &mut Vec<i64>,
        accumulators: &mut [Box<dyn Accumulator>],
    ) -> Result<()> {
        counts.resize(groups, 0);
        for (&place, &count) in places.iter().zip(numbers_of::<Int64Type>(rows, ROWS)?) {
            if count < i64::from(!self.retracts()) {
                return Err(does_not_fit(format!("column '{ROWS}' counts no rows")));
            }
            counts[place as usize] = count;
        }
        for (name, accumulator) in self.state_names.iter().zip(accumulators) {
            accumulator.grow(groups);
            accumulator.restore(places, &StateRows::new(rows, name))?;
        }
        Ok(())
    }
}

/// The bounds of a slice, for each of its rows.
pub(super) fn bounds(key: SliceKey, rows: usize) -> Marks {
    let of = |name, end| mark::<Int64Type>(name, std::iter::repeat_n(end, rows));
    vec![of(FIRST_END, key.enter), of(LAST_END, key.leave)]
}
