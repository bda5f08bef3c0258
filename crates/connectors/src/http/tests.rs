//! Rows over HTTP against a small server, or a small client, of our own: slow, stuck, killed and
//! started again.

mod listening;
mod looking_up;
mod reading;
mod writing;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg_core::connector::{Connector, Source, TableRequest};
use thalweg_core::{Column, DataType, TableSchema};

use super::Http;
use crate::conformance::Started;

/// A table of numbers and names at this address.
fn request(url: &str, options: &[(&str, &str)]) -> TableRequest {
    let columns = vec![
        Column::new("n", DataType::BigInt.nullable()),
        Column::new("name", DataType::STRING.nullable()),
    ];
    let own = [("url", url), ("format", "json")];
    let options = own.iter().chain(options).map(|(k, v)| (k.to_string(), v.to_string()));
    TableRequest {
        table: "t".to_owned(),
        schema: TableSchema::new(columns),
        options: options.collect(),
        memory_limit_bytes: 1 << 30,
        ..TableRequest::default()
    }
}

fn source(url: &str, options: &[(&str, &str)]) -> Box<dyn Source> {
    Http::rows().source(&request(url, options)).expect("a source")
}

fn started(url: &str, options: &[(&str, &str)], position: Option<&str>) -> Started {
    Started::without_snapshots(source(url, options), position).expect("started")
}
