//! The first rows of each window, where nobody asks for more.
//!
//! `ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …) <= n` over the windows of
//! an aggregate reads every row of every window to keep a few. Here each partition of the windows
//! gives no more than its own first `n`; whoever ranks the rows of all partitions sees what it
//! needs and no more. So a window that slides often costs a look at one number of each group, and
//! not a row of each.
//!
//! **Invariant:** among rows that compare as equal, those that would leave first are kept, which is
//! what a rank by arrival keeps of them; and rows leave in the order in which they would have left.
//!
//! It does not rank: ranks are of all partitions together.
//!
//! The rank above must be `ROW_NUMBER`: RANK and DENSE_RANK keep all rows that tie with the last
//! one, and this keeps `n` rows whatever ties. The planner asks for it only then.

use std::collections::BinaryHeap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use thalweg_core::{Result, TableSchema};

use crate::sort::SortKey;
use crate::top_n::SortKeys;

/// Which rows of a window someone wants.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowTop {
    /// What comes first, by columns of the result.
    pub order: Vec<SortKey>,
    /// This number of rows.
    pub rows: usize,
}

/// Chooses them.
pub(super) struct TopChooser {
    keys: SortKeys,
    /// The columns of the result that decide, in the order of their meaning.
    pub(super) columns: Vec<usize>,
    /// The schema of these columns.
    schema: TableSchema,
    /// Where one column of numbers decides: whether high ones come first.
    descending: Option<bool>,
    rows: usize,
}

impl TopChooser {
    /// For results of this schema.
    ///
    /// # Errors
    /// If there is no order of such columns.
    pub fn new(top: &WindowTop, output: &TableSchema) -> Result<Self> {
        let columns: Vec<usize> = top.order.iter().map(|key| key.column).collect();
        let picked = columns.iter().map(|&column| output.columns[column].clone()).collect();
        let schema = TableSchema::new(picked);
        let renumber = |(column, key): (usize, &SortKey)| SortKey { column, ..key.clone() };
        let order: Vec<SortKey> = top.order.iter().enumerate().map(renumber).collect();
        let descending = match &order[..] {
            [only] => Some(only.descending),
            _ => None,
        };
        let keys = SortKeys::new(&order, &schema)?;
        Ok(TopChooser { keys, columns, schema, descending, rows: top.rows })
    }

    /// The places of the first of these groups, if their numbers of rows decide, which stand at the
    /// places that `ids` says. `column` is where they stand in the result.
    pub fn choose_by_count(&self, column: usize, counts: &[i64], ids: &[u32]) -> Option<Vec<u32>> {
        let descending = self.descending.filter(|_| self.columns == [column])?;
        let count = |place: usize| flipped(counts[ids[place] as usize], descending);
        Some(first(ids.len(), count, self.rows))
    }

    /// How many are wanted, if they are those with most rows; `column` is where the number of rows
    /// stands in the result.
    pub fn of_most_rows(&self, column: usize) -> Option<usize> {
        (self.descending == Some(true) && self.columns == [column]).then_some(self.rows)
    }

    /// True if a window with this many groups gives all of them.
    pub fn takes_all(&self, groups: usize) -> bool {
        groups <= self.rows
    }

    /// The places of the first rows, ascending. `columns` are those that decide, in the order in
    /// which rows would leave.
    ///
    /// # Errors
    /// If they are not of the types that were announced.
    pub fn choose(&self, columns: Vec<ArrayRef>) -> Result<Vec<u32>> {
        let numbers = columns[0].as_primitive_opt::<Int64Type>();
        let chosen = match (self.descending, numbers) {
            (Some(descending), Some(numbers)) if numbers.null_count() == 0 => {
                let numbers = numbers.values();
                first(numbers.len(), |place| flipped(numbers[place], descending), self.rows)
            }
            _ => {
                let encoded =
                    self.keys.encode(&RecordBatch::try_new(self.schema.arrow(), columns)?, None)?;
                let prefixes = &encoded.prefixes;
                match &encoded.bytes {
                    None => first(prefixes.len(), |place| prefixes[place], self.rows),
                    Some(bytes) => first(bytes.len(), |place| bytes.value(place), self.rows),
                }
            }
        };
        Ok(chosen)
    }
}

/// A number that is low where a high one comes first.
#[inline]
fn flipped(number: i64, descending: bool) -> i64 {
    // The complement of a number is below another's exactly where the number is above it.
    if descending { !number } else { number }
}

/// This many values are compared with the last of the first ones for one branch.
const COMPARED: usize = 16;

/// The places of the lowest values, the first ones among equals, ascending.
fn first<T: Ord>(values: usize, value: impl Fn(usize) -> T, most: usize) -> Vec<u32> {
    let mut kept: BinaryHeap<(T, u32)> =
        (0..values.min(most)).map(|place| (value(place), place as u32)).collect();
    let mut from = kept.len();
    while let Some((last, _)) = kept.peek()
        && from < values
    {
        let to = values.min(from + COMPARED);
        // Most values are not among the first.
        if (from..to).fold(false, |is_any, place| is_any | (value(place) < *last)) {
            for place in from..to {
                keep_if_lower(&mut kept, (value(place), place as u32));
            }
        }
        from = to;
    }
    let mut places: Vec<u32> = kept.into_iter().map(|(_, place)| place).collect();
    places.sort_unstable();
    places
}

/// Puts a value into the place of the last one, if it is lower, or equal at a place before.
pub(super) fn keep_if_lower<T: Ord>(kept: &mut BinaryHeap<(T, u32)>, offered: (T, u32)) {
    if let Some(mut last) = kept.peek_mut()
        && offered < *last
    {
        *last = offered;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringViewArray};
    use thalweg_core::shim::SplitMix64;
    use thalweg_core::{Column, DataType};

    use super::*;

    fn schema() -> TableSchema {
        TableSchema::new(vec![
            Column::new("count", DataType::BigInt.nullable()),
            Column::new("name", DataType::STRING.nullable()),
        ])
    }

    fn key(column: usize, descending: bool) -> SortKey {
        SortKey { column, descending, nulls_first: None }
    }

    /// What a stable sort would keep.
    fn expected(rows: &[(Option<i64>, String)], order: &[SortKey], most: usize) -> Vec<u32> {
        let mut places: Vec<usize> = (0..rows.len()).collect();
        places.sort_by(|&a, &b| {
            let compare = |key: &SortKey| {
                let ordering = match key.column {
                    // NULL is lower than any number.
                    0 => rows[a].0.cmp(&rows[b].0),
                    _ => rows[a].1.cmp(&rows[b].1),
                };
                if key.descending { ordering.reverse() } else { ordering }
            };
            order.iter().map(compare).fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let mut places: Vec<u32> =
            places.into_iter().take(most).map(|place| place as u32).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn the_first_rows_are_those_of_a_stable_sort() {
        let orders = [
            vec![key(0, true)],
            vec![key(0, false)],
            vec![key(1, true)],
            vec![key(0, true), key(1, false)],
            vec![key(1, false), key(0, true)],
        ];
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let has_nulls = seed % 3 == 0;
            let rows: Vec<(Option<i64>, String)> = (0..random.below(200))
                .map(|_| {
                    let number = random.below(20) as i64 - 10;
                    let number = (!(has_nulls && random.below(5) == 0)).then_some(number);
                    (number, format!("a name of more than a few bytes: {}", random.below(6)))
                })
                .collect();
            let order = &orders[seed as usize % orders.len()];
            let most = 1 + random.below(12) as usize;
            let top = WindowTop { order: order.clone(), rows: most };
            let chooser = TopChooser::new(&top, &schema()).expect("an order");
            let columns: [ArrayRef; 2] = [
                Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
                Arc::new(rows.iter().map(|row| Some(&row.1)).collect::<StringViewArray>()),
            ];
            let deciding = order.iter().map(|key| ArrayRef::clone(&columns[key.column])).collect();
            let chosen = chooser.choose(deciding).expect("columns as announced");
            assert_eq!(chosen, expected(&rows, order, most), "seed {seed}");
            assert_eq!(chooser.takes_all(rows.len()), rows.len() <= most);
        }
    }
}
