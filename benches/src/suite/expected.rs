//! What NEXMark's queries must give where no closed form says it: their events are made once more
//! when the job is over, and a loop by hand ([`super::loops`]) goes through them, which shares
//! nothing with the engine but the source.
//!
//! Tables are sources of their own, and where a job ends at a time on the clock each has given as
//! many events as it had come to: [`Given`] counts them, and the loop sees those and no others.
//! Results that change are added up with their signs, so that what is compared is what is left in
//! the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use serde_json::{Value, json};
use thalweg::{Error, Result, RowKind, Sink};

use super::age_sinks::each_change;
use super::job::{read_sources, session};
use super::loops::{self, ByHand};
use super::oracle::Sum;

/// How many rows each table has given.
#[derive(Clone, Default)]
pub struct Given(Arc<Mutex<BTreeMap<String, usize>>>);

impl Given {
    /// A table has given this many more rows.
    pub fn add(&self, table: &str, rows: usize) {
        let mut given = self.0.lock().expect("nobody panics with it");
        match given.get_mut(table) {
            Some(known) => *known += rows,
            None => drop(given.insert(table.to_owned(), rows)),
        }
    }

    fn of(&self, table: &str) -> usize {
        self.0.lock().expect("nobody panics with it").get(table).copied().unwrap_or_default()
    }
}

/// The queries of preset `nexmark` that are compared in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// 3
    LocalSellers,
    /// 4
    AveragePrices,
    /// 5, with windows of this many milliseconds that slide by this many
    HottestAuctions { size_ms: i64, slide_ms: i64 },
    /// 6
    SellersThatClosed,
    /// 8, with windows of this many milliseconds
    NewSellers { size_ms: i64 },
}

impl Query {
    fn by_hand(self) -> Box<dyn ByHand> {
        match self {
            Query::LocalSellers => Box::new(loops::LocalSellers::default()),
            Query::AveragePrices => Box::new(loops::Auctions::averages()),
            Query::HottestAuctions { size_ms, slide_ms } => {
                Box::new(loops::HottestAuctions::new(size_ms, slide_ms))
            }
            Query::SellersThatClosed => Box::new(loops::Auctions::sellers()),
            Query::NewSellers { size_ms } => Box::new(loops::NewSellers::new(size_ms)),
        }
    }

    /// A hash of a row of the result.
    fn hash(self, batch: &RecordBatch, row: usize) -> u64 {
        match self {
            Query::LocalSellers => loops::local_seller(batch, row),
            Query::AveragePrices | Query::HottestAuctions { .. } => loops::two_longs(batch, row),
            Query::SellersThatClosed => loops::one_long(batch, row),
            Query::NewSellers { .. } => loops::new_seller(batch, row),
        }
    }
}

/// What a query has given, all changes together.
#[derive(Clone)]
pub struct Left {
    query: Query,
    sum: Arc<Mutex<Sum>>,
}

impl Left {
    /// Nothing yet.
    pub fn of(query: Query) -> Left {
        Left { query, sum: Arc::default() }
    }

    /// A sink that adds up.
    pub fn sink(&self) -> impl Sink + 'static {
        let left = self.clone();
        each_change("left", move |batch, kinds| left.take(batch, kinds))
    }

    fn take(&self, batch: &RecordBatch, kinds: Option<&[RowKind]>) {
        let mut sum = self.sum.lock().expect("nobody panics with it");
        for row in 0..batch.num_rows() {
            let hash = self.query.hash(batch, row);
            match kinds.map_or(RowKind::Insert, |kinds| kinds[row]) {
                RowKind::Insert | RowKind::UpdateAfter => sum.add(hash),
                RowKind::UpdateBefore | RowKind::Delete => sum.subtract(hash),
            }
        }
    }

    /// Compares it with what the events say.
    ///
    /// # Errors
    /// As [`ExpectedResult::expected`].
    pub fn check(&self, expected_result: &ExpectedResult) -> Result<Value> {
        let expected = expected_result.expected(self.query.by_hand())?;
        if expected.rows == 0 {
            return Ok(json!("WRONG: nothing was compared, the events have no result"));
        }
        Ok(self.sum.lock().expect("nobody panics with it").compared(expected))
    }
}

/// The events of a job that is over.
pub struct ExpectedResult {
    /// Where its files are.
    pub folder: PathBuf,
    /// Makes them without a rate, at the same event times.
    pub script: String,
    pub given: Given,
}

impl ExpectedResult {
    /// What a loop by hand makes of those that were given.
    ///
    /// # Errors
    /// If the script can't be planned; if a table has fewer events now.
    pub fn expected(&self, mut by_hand: Box<dyn ByHand>) -> Result<Sum> {
        for &table in by_hand.tables() {
            let mut missing = self.given.of(table);
            let mut session = session(1, &self.folder)?;
            read_sources(&mut session, &self.script, &[table], &mut |batch| {
                let rows = batch.num_rows().min(missing);
                missing -= rows;
                by_hand.take(table, &batch.slice(0, rows));
                missing > 0
            })?;
            if missing > 0 {
                return Err(Error::internal(format!(
                    "{table} has {missing} rows less than before"
                )));
            }
        }
        Ok(by_hand.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};

    fn pairs(rows: &[(i64, i64)]) -> RecordBatch {
        let first: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let second: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
        RecordBatch::try_from_iter([("category", first), ("average", second)]).expect("two columns")
    }

    #[test]
    fn what_is_retracted_does_not_count() {
        let left = Left::of(Query::AveragePrices);
        left.take(&pairs(&[(1, 10), (2, 20)]), None);
        left.take(
            &pairs(&[(1, 10), (1, 11)]),
            Some(&[RowKind::UpdateBefore, RowKind::UpdateAfter]),
        );
        let only_the_last = Left::of(Query::AveragePrices);
        only_the_last.take(&pairs(&[(2, 20), (1, 11)]), None);
        let sum = |left: &Left| *left.sum.lock().expect("nobody panics with it");
        assert_eq!(sum(&left), sum(&only_the_last));
        assert_eq!(sum(&left).rows, 2);
    }
}
