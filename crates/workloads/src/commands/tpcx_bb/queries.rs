//! The five queries, each with its input and what its oracle says.

use std::error::Error;
use std::hash::Hash;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Row, Rows, virtual_partition};
use thalweg_workloads::tpcx_bb::pipelines::{self, packed_clicks, packed_sales};
use thalweg_workloads::tpcx_bb::{
    Click, ClickSettings, Query1, Query2, Query3, Query4, Query15, SalesSettings, generate_clicks,
    generate_sales, query_1, query_2, query_3, query_4, query_15,
};

/// What is done with each query.
pub trait Measure {
    /// What is learnt of it.
    type Outcome;

    /// Runs a query, which `build` puts into a pipeline with this number of partitions.
    ///
    /// # Errors
    /// If a run fails, or its results are not those of the oracle in their order.
    fn measure<T: Row, U: Row + PartialEq>(
        &self,
        query: &Query<T, U>,
        build: impl Fn(&Pipeline, PackedRows<T>, usize) -> Rows<U>,
    ) -> Result<Self::Outcome, Box<dyn Error>>;
}

/// A query without its pipeline.
pub struct Query<T, U> {
    /// By this number.
    pub number: u32,
    /// What it reads.
    pub input: PackedRows<T>,
    /// What it has to make of it, in this order.
    pub expected: Vec<U>,
}

fn partition<K: Hash>(key: &K) -> usize {
    usize::from(virtual_partition(key))
}

/// Measures these queries on inputs of this size.
pub fn each<M: Measure>(
    numbers: &[u32],
    scale: f64,
    measure: &M,
) -> Result<Vec<(u32, M::Outcome)>, Box<dyn Error>> {
    let one = |&number: &u32| Ok((number, one(number, scale, measure)?));
    numbers.iter().map(one).collect()
}

fn one<M: Measure>(number: u32, scale: f64, measure: &M) -> Result<M::Outcome, Box<dyn Error>> {
    let tickets = (90_000.0 * scale) as u64;
    let clicks = || generate_clicks(&ClickSettings::with_sessions((40_000.0 * scale) as u64));
    match number {
        1 => {
            let (rows, query) =
                (generate_sales(&SalesSettings::for_pairs(tickets)), Query1::default());
            let expected = query_1(&rows, &query, &partition, &partition);
            let all = Query { number, input: packed_sales(&rows)?, expected };
            measure.measure(&all, |pipeline, rows, partitions| {
                pipelines::query_1(pipeline, rows, &query, partitions)
            })
        }
        2 => {
            let (rows, query) = (clicks(), Query2::default());
            let all = of_clicks(number, &rows, query_2(&rows, &query, &partition, &partition))?;
            measure.measure(&all, |pipeline, rows, partitions| {
                pipelines::query_2(pipeline, rows, &query, partitions)
            })
        }
        3 => {
            let (rows, query) = (clicks(), Query3::default());
            let all = of_clicks(number, &rows, query_3(&rows, &query, &partition))?;
            measure.measure(&all, |pipeline, rows, partitions| {
                pipelines::query_3(pipeline, rows, &query, partitions)
            })
        }
        4 => {
            let (rows, query) = (clicks(), Query4::default());
            let all = of_clicks(number, &rows, query_4(&rows, &query, &partition))?;
            measure.measure(&all, |pipeline, rows, partitions| {
                pipelines::query_4(pipeline, rows, &query, partitions)
            })
        }
        15 => {
            let (rows, query) =
                (generate_sales(&SalesSettings::for_trends(tickets)), Query15::default());
            let expected = query_15(&rows, &query, &partition);
            let all = Query { number, input: packed_sales(&rows)?, expected };
            measure.measure(&all, |pipeline, rows, partitions| {
                pipelines::query_15(pipeline, rows, &query, partitions)
            })
        }
        other => Err(format!("there is no query {other}: 1, 2, 3, 4 and 15").into()),
    }
}

fn of_clicks<U>(number: u32, rows: &[Click], expected: Vec<U>) -> thalweg::Result<Query<Click, U>> {
    Ok(Query { number, input: packed_clicks(rows)?, expected })
}
