//! Looks keys up: a request for each key, several at a time.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use serde_json::Value;
use thalweg_core::lookup::{Answer, AsyncLookup, LookupRequest};
use thalweg_core::{Column, Error, Result, TableSchema};
use ureq::http::Method;

use super::body::{has_lines, records};
use super::options::{Framing, LookupOptions};
use crate::format::{
    BadDataPolicy, Format, JsonOptions, RecordDecoder, RecordLayout, TextBlock, TextEncoder,
};
use crate::lookup_workers::{LookupWorker, WorkerLookup};
use crate::messaging::AnswerColumns;
use crate::messaging::link::about;
use crate::network::http::{HttpClient, Reply};
use crate::network::{Cancel, Failure};
use crate::percent::encoded;

/// A longer answer is refused.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What is asked.
struct Asked {
    table: String,
    options: LookupOptions,
    columns: AnswerColumns,
    keys: TextEncoder,
    decoder: RecordDecoder,
}

/// Prepares lookups.
///
/// # Errors
/// If the table can't be looked up.
pub fn open(request: &LookupRequest, options: LookupOptions) -> Result<HttpLookup> {
    let table = request.table.table.clone();
    let records = options.http.records.clone();
    if records.format.has_changes() {
        let message = format!("table {table}: a format of changes can't be looked up");
        return Err(Error::plan(message).hint("use format 'json'"));
    }
    let (columns, physical) = (AnswerColumns::new(request), &request.table.schema);
    let others = columns.schema.columns.iter().zip(&columns.keys).filter(|(_, key)| key.is_none());
    let place = |(column, _): (&Column, _)| {
        physical.index_of(&column.name).ok_or_else(|| {
            let name = &column.name;
            Error::plan(format!("table {table}: column {name} is metadata, which a lookup has not"))
        })
    };
    let wanted = others.map(place).collect::<Result<_>>()?;
    let keys = TextEncoder::new(&Format::Json(JsonOptions::default()), request.key_columns());
    let layout = RecordLayout::new(&table, physical.clone(), wanted, false);
    let policy = match records.format.ignores_parse_errors() {
        true => BadDataPolicy::Null,
        false => BadDataPolicy::Fail,
    };
    let cancel = Cancel::default();
    let http = HttpClient::new(options.http.settings.clone(), &cancel);
    let threads = options.threads;
    let asked = Arc::new(Asked {
        table: table.clone(),
        columns,
        keys: keys.ok_or_else(|| Error::internal("keys are written as JSON"))?,
        decoder: RecordDecoder::new(records.format, layout.with_policy(policy, Vec::new())),
        options,
    });
    let worker =
        |_| Worker { asked: Arc::clone(&asked), http: http.clone(), cancel: cancel.clone() };
    let workers = WorkerLookup::start(&table, cancel.clone(), (0..threads).map(worker))?;
    Ok(HttpLookup { workers, columns: request.columns() })
}

/// A table that is looked up.
pub struct HttpLookup {
    workers: WorkerLookup,
    columns: TableSchema,
}

impl AsyncLookup for HttpLookup {
    fn lookup(&self, keys: RecordBatch) -> Answer {
        let rows = 0..keys.num_rows();
        let answers: Vec<Answer> =
            rows.map(|row| self.workers.lookup(keys.slice(row, 1))).collect();
        let schema = self.columns.arrow();
        Box::pin(async move {
            let mut batches = Vec::with_capacity(answers.len());
            for answer in answers {
                batches.push(answer.await?);
            }
            Ok(concat_batches(&schema, &batches)?)
        })
    }
}

/// Asks.
struct Worker {
    asked: Arc<Asked>,
    http: HttpClient,
    cancel: Cancel,
}

impl LookupWorker for Worker {
    fn answer(&mut self, keys: &RecordBatch) -> Result<RecordBatch> {
        let (asked, options) = (&self.asked, &self.asked.options);
        let mut text = String::new();
        asked.keys.lines(&mut text, keys, None)?;
        let url = &options.http.url;
        let reply = if options.method == Method::GET {
            let url = with_parameters(url, &text)?;
            self.http.ask(&options.method, &url, &[], None, ANSWER_BYTES_MAX)
        } else {
            let json = [("Content-Type", "application/json")];
            let body = text.trim_end().as_bytes();
            self.http.ask(&options.method, url, &json, Some(body), ANSWER_BYTES_MAX)
        };
        match reply {
            Ok(reply) if options.ignored.has(reply.status) => asked.rows(keys, &[]),
            Ok(reply) if options.success.has(reply.status) => self.decode(keys, &reply),
            Ok(reply) if options.retry.has(reply.status) => {
                self.cancel.sleep(options.retry_delay);
                Err(self.refused(&reply))
            }
            Ok(_) if options.continues_on_error => asked.rows(keys, &[]),
            Ok(reply) => Err(self.refused(&reply)),
            Err(Failure::Passing(why)) => {
                self.cancel.sleep(options.retry_delay);
                Err(Error::io(format!("table {}: {url}: {why}", asked.table)))
            }
            Err(Failure::Final(error)) => Err(about(&asked.table, error)),
            Err(Failure::Cancelled) => Err(Error::io(format!("table {}: cancelled", asked.table))),
        }
    }
}

impl Worker {
    fn refused(&self, reply: &Reply) -> Error {
        let Asked { table, options, .. } = &*self.asked;
        let (url, status, excerpt) = (&options.http.url, reply.status, reply.excerpt());
        Error::io(format!("table {table}: {url} answers {status} {excerpt}"))
            .hint("statuses without a row: 'http.source.lookup.ignored-response-codes'")
    }

    fn decode(&self, keys: &RecordBatch, reply: &Reply) -> Result<RecordBatch> {
        let asked = &self.asked;
        let content_type = reply.header("content-type");
        let has_lines = has_lines(Framing::Auto, asked.decoder.format(), content_type);
        let found: Vec<&[u8]> = records(&reply.body, has_lines).collect();
        asked.rows(keys, &found)
    }
}

impl Asked {
    /// The rows of a key that these records are.
    fn rows(&self, keys: &RecordBatch, records: &[&[u8]]) -> Result<RecordBatch> {
        let messages = BinaryArray::from_iter_values(records);
        let decoded = self.decoder.decode(&TextBlock::messages(&messages));
        let decoded = decoded.map_err(|wrong| {
            let (table, url, error) = (&self.table, &self.options.http.url, wrong.error);
            let what = format!("table {table}: an answer of {url} is no row: {}", error.message());
            Error::new(error.kind(), what)
        })?;
        let first = UInt32Array::from(vec![0; decoded.batch.num_rows()]);
        self.columns.rows(keys, &first, &decoded.batch)
    }
}

/// An address with a parameter for each value of a JSON object.
fn with_parameters(url: &str, object: &str) -> Result<String> {
    let object: Value = serde_json::from_str(object)
        .map_err(|e| Error::internal(format!("a key is no JSON: {e}")))?;
    let mut address = url.to_owned();
    for (name, value) in object.as_object().into_iter().flatten() {
        address.push(if address.contains('?') { '&' } else { '?' });
        address.push_str(&encoded(name));
        address.push('=');
        address.push_str(&match value {
            Value::String(text) => encoded(text),
            other => encoded(&other.to_string()),
        });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parameters_whatever_they_hold() {
        let object = "{\"id\": 12, \"na me\": \"a&b=c/ä\", \"is\": true}";
        let url = with_parameters("http://h/p?x=1", object).expect("an object");
        assert_eq!(url, "http://h/p?x=1&id=12&na%20me=a%26b%3Dc%2F%C3%A4&is=true");
    }
}
