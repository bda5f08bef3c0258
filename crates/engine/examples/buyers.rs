//! A table that ends and a stream that does not, in one pipeline: persons are counted by age, and
//! each order then meets the count of its buyer's age. (Listing 2 of the paper on Hazelcast Jet,
//! VLDB 2021.)
//!
//! ```text
//! cargo run --release --example buyers
//! ```
//! The side of the persons is read first, to its end; no order is read before.

use serde::{Deserialize, Serialize};
use thalweg::pipeline::Pipeline;
use thalweg::rows::CollectedRows;
use thalweg::{OrderContract, Result, RunOptions};

/// A person of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Person {
    /// Who.
    pub name: String,
    /// In years.
    pub age: u32,
}

/// An order of the stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// How old its buyer is, in years.
    pub age_of_buyer: u32,
}

/// The number of an order, and how many persons are as old as its buyer.
pub type Enriched = (u64, u64);

/// Joins orders with the counts of persons by age.
pub fn enrich(
    pipeline: &Pipeline,
    persons: Vec<Person>,
    orders: Vec<Order>,
) -> Result<CollectedRows<Enriched>> {
    let count_by_age = pipeline
        .read_rows("persons", persons)
        .key_by(64, |person: &Person| person.age)
        .fold("count by age", |count: &mut u64, _person| *count += 1);
    let enriched = pipeline
        .read_rows("orders", orders)
        .key_by(64, |order: &Order| order.age_of_buyer)
        .hash_join("counts of ages", count_by_age.key_by(64, |(age, _)| *age))?
        .map("id and count", |(order, (_age, count))| (order.id, count));
    Ok(enriched.collect("orders with counts"))
}

#[allow(dead_code)] // The tests have a beginning of their own.
fn main() -> Result<()> {
    let ages = [33, 54, 33, 21, 54, 33];
    let person = |(number, age): (usize, u32)| Person { name: format!("person {number}"), age };
    let persons = ages.into_iter().enumerate().map(person).collect();
    let orders = (1..=10).map(|id| Order { id, age_of_buyer: ages[id as usize % 5] }).collect();
    let pipeline = Pipeline::new();
    let enriched = enrich(&pipeline, persons, orders)?;
    pipeline.run(RunOptions { order: OrderContract::Arrival, ..RunOptions::default() })?;
    for (id, count) in enriched.rows() {
        println!("order {id}: {count} persons are as old as its buyer");
    }
    Ok(())
}
