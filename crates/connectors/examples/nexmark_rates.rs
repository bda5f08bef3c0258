//! How many NEXMark rows a core makes a second, without an engine:
//!
//!     cargo run --release -p thalweg-connectors --example nexmark_rates
//!
//! Each case makes rows in bundles for a while; cases alternate, and the median of the rounds
//! counts. Time is that of the thread on a processor where Linux reports it, else the wall's.

use std::fs;
use std::sync::Arc;

use thalweg_connectors::builtin;
use thalweg_core::connector::{Source, SourcePoll, TableRequest};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

const ROUNDS: usize = 7;
const BUNDLE_ROWS: usize = 8_192;
const ROUND_NS: u64 = 150_000_000;

/// Preset, kind and columns.
const CASES: [(&str, &str, &str); 10] = [
    ("jet", "bid", "auction,bidder,price,dateTime"),
    ("jet", "auction", "id,seller,category,initialBid,dateTime"),
    ("jet", "person", "id,name,state,dateTime"),
    ("peer", "bid", "auction,bidder,price,dateTime"),
    ("peer", "bid", "auction,bidder,price,channel,dateTime"),
    ("nexmark", "bid", "auction,bidder,price,dateTime"),
    ("nexmark", "bid", "auction,bidder,price,channel,url,dateTime,extra"),
    (
        "nexmark",
        "auction",
        "id,itemName,description,initialBid,reserve,dateTime,expires,seller,category,extra",
    ),
    ("nexmark", "person", "id,name,emailAddress,creditCard,city,state,dateTime,extra"),
    ("beam", "bid", "auction,bidder,price,dateTime"),
];

fn main() -> Result<()> {
    let clock = SystemClock::new();
    let mut rates = vec![Vec::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (case, rates) in CASES.iter().zip(&mut rates) {
            rates.push(rows_per_second(&clock, source(case)?)?);
        }
    }
    println!("{:>14}  {:<8} {:<8} columns", "million rows/s", "preset", "kind");
    for ((preset, kind, columns), mut rates) in CASES.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[ROUNDS / 2] / 1e6;
        println!("{median:>14.1}  {preset:<8} {kind:<8} {columns}");
    }
    Ok(())
}

fn source((preset, kind, columns): &(&str, &str, &str)) -> Result<Box<dyn Source>> {
    let data_type = |name: &str| match name {
        "dateTime" | "expires" => DataType::Timestamp(3),
        "id" | "auction" | "bidder" | "price" | "seller" | "category" | "initialBid"
        | "reserve" => DataType::BigInt,
        _ => DataType::STRING,
    };
    let columns = columns.split(',').map(|name| Column::new(name, data_type(name).nullable()));
    let options = [("connector", "nexmark"), ("preset", preset), ("kind", kind)];
    builtin(Default::default()).source(&TableRequest {
        table: "events".to_owned(),
        schema: TableSchema::new(columns.collect()),
        options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..TableRequest::default()
    })
}

fn rows_per_second(clock: &SystemClock, mut source: Box<dyn Source>) -> Result<f64> {
    source.start(Arc::new(|| {}))?;
    let (begin_ns, mut rows) = (processor_ns(clock), 0);
    loop {
        let SourcePoll::Batch(batch) = source.poll(BUNDLE_ROWS)? else {
            return Err(Error::internal("a table without end has no more rows"));
        };
        rows += std::hint::black_box(batch).batch.num_rows();
        let elapsed_ns = processor_ns(clock) - begin_ns;
        if elapsed_ns > ROUND_NS {
            return Ok(rows as f64 * 1e9 / elapsed_ns as f64);
        }
    }
}

/// The first number of this file is the nanoseconds that the thread was on a processor.
fn processor_ns(clock: &SystemClock) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.unwrap_or_else(|| clock.now_ns())
}
