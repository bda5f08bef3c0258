//! Looks keys up: the commands of a batch of keys go out together.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, RecordBatch, StringArray};
use arrow_schema::DataType as Arrow;
use redis::Value;
use thalweg_core::lookup::LookupRequest;
use thalweg_core::{Column, Error, Result, TableSchema};

use super::options::{LookupType, RedisOptions};
use super::session::{Session, bytes, checked, elements, senseless};
use crate::format::{BadDataPolicy, Format, JsonOptions, RecordDecoder, RecordLayout, TextBlock};
use crate::lookup_workers::{CONNECTIONS, LookupWorker, WorkerLookup};
use crate::messaging::AnswerColumns;
use crate::messaging::link::about;
use crate::network::{Attempt, Cancel, Failure};

/// What is asked.
struct Asked {
    table: String,
    prefix: String,
    lookup_type: LookupType,
    columns: AnswerColumns,
    /// Decodes what keys hold into the columns that are not the key.
    decoder: RecordDecoder,
}

/// Asks over a connection.
struct Worker {
    session: Session,
    is_connected: bool,
    asked: Arc<Asked>,
}

/// Prepares lookups, and checks that the server is there.
///
/// # Errors
/// If it is not.
pub fn open(request: &LookupRequest, options: &RedisOptions) -> Result<WorkerLookup> {
    let table = request.table.table.clone();
    if !options.streams.is_empty() {
        return Err(Error::plan(format!("table {table} is a stream, and keys are looked up"))
            .hint("remove 'stream', in a table of its own"));
    }
    let columns = AnswerColumns::new(request);
    let is_key = |column: &Column| request.keys.contains(&column.name);
    let others = columns.schema.columns.iter().filter(|column| !is_key(column)).cloned();
    let others = TableSchema::new(others.collect());
    let format = match options.lookup_type {
        LookupType::Hash => Format::Json(JsonOptions::default()),
        LookupType::String => options.records()?.format.clone(),
    };
    let physical = request.table.schema.columns.iter().filter(|column| !is_key(column)).cloned();
    let record = match options.lookup_type {
        LookupType::Hash => others.clone(),
        LookupType::String => TableSchema::new(physical.collect()),
    };
    let at = |column: &Column| record.columns.iter().position(|known| known.name == column.name);
    let wanted = others.columns.iter().filter_map(at).collect();
    let layout = RecordLayout::new(&table, record, wanted, false);
    let layout = layout.with_policy(BadDataPolicy::Fail, Vec::new());
    let asked = Arc::new(Asked {
        table: table.clone(),
        prefix: options.key_prefix.clone(),
        lookup_type: options.lookup_type,
        decoder: RecordDecoder::new(format, layout),
        columns,
    });
    let cancel = Cancel::default();
    let worker = || Worker {
        session: Session::new(options.server.clone(), cancel.clone()),
        is_connected: false,
        asked: Arc::clone(&asked),
    };
    let mut first = worker();
    first.session.connect().map_err(|failure| error(failure, &table))?;
    first.is_connected = true;
    let others = (1..CONNECTIONS).map(|_| worker());
    WorkerLookup::start(&table, cancel.clone(), std::iter::once(first).chain(others))
}

fn error(failure: Failure, table: &str) -> Error {
    match failure {
        Failure::Final(error) => about(table, error),
        Failure::Passing(why) => Error::io(format!("table {table}: {why}")),
        Failure::Cancelled => Error::io(format!("table {table}: cancelled")),
    }
}

impl Worker {
    /// What each key holds.
    fn ask(&mut self, names: &StringArray) -> Attempt<Vec<Value>> {
        if !self.is_connected {
            self.session.connect()?;
            self.is_connected = true;
        }
        let asked = &self.asked;
        for name in names.iter().flatten() {
            let name = format!("{}{name}", asked.prefix);
            let others = &asked.decoder.layout().schema.columns;
            let mut command = redis::cmd(match asked.lookup_type {
                // Whether the key is there at all: no hash has no fields.
                LookupType::Hash if others.is_empty() => "HLEN",
                LookupType::Hash => "HMGET",
                LookupType::String => "GET",
            });
            command.arg(name);
            if asked.lookup_type == LookupType::Hash {
                for column in others {
                    command.arg(&column.name);
                }
            }
            self.session.put(&command);
        }
        self.session.flush()?;
        let answers = (0..names.len()).map(|_| {
            let answer = self.session.receive()?;
            checked(answer, self.session.server())
        });
        // All answers are taken, so that the connection stays in step.
        let answers: Vec<Attempt<Value>> = answers.collect();
        answers.into_iter().collect()
    }

    /// The record that a key holds; `None` where there is no such key.
    fn record(&self, answer: &Value) -> Attempt<Option<Vec<u8>>> {
        match (self.asked.lookup_type, answer) {
            (_, Value::Nil) | (LookupType::Hash, Value::Int(0)) => Ok(None),
            (LookupType::Hash, Value::Int(_)) => Ok(Some(b"{}".to_vec())),
            (LookupType::String, value) => match bytes(value) {
                Some(record) => Ok(Some(record.to_vec())),
                None => Err(senseless(self.session.server(), "GET")),
            },
            (LookupType::Hash, value) => {
                let columns = &self.asked.decoder.layout().schema.columns;
                let fields = columns.iter().zip(elements(value));
                let fields: serde_json::Map<String, serde_json::Value> = fields
                    .filter_map(|(column, field)| {
                        let text = String::from_utf8_lossy(bytes(field)?).into_owned();
                        Some((column.name.clone(), text.into()))
                    })
                    .collect();
                let is_there = !fields.is_empty();
                Ok(is_there.then(|| serde_json::Value::Object(fields).to_string().into_bytes()))
            }
        }
    }
}

impl LookupWorker for Worker {
    fn answer(&mut self, keys: &RecordBatch) -> Result<RecordBatch> {
        let names = arrow_cast::cast(keys.column(0), &Arrow::Utf8)?;
        let names = names.as_any().downcast_ref::<StringArray>();
        let names = names.ok_or_else(|| Error::internal("a text is none"))?.clone();
        let mut answers = self.ask(&names);
        // A connection that was idle may have been closed meanwhile; a second attempt shows it.
        if let Err(Failure::Passing(_)) = answers {
            self.is_connected = false;
            answers = self.ask(&names);
        }
        if answers.is_err() {
            self.is_connected = false;
        }
        let asked = Arc::clone(&self.asked);
        let answers = answers.map_err(|failure| error(failure, &asked.table))?;
        let (mut records, mut found) = (BinaryBuilder::new(), Vec::new());
        for (row, answer) in (0_u32..).zip(&answers) {
            let record = self.record(answer).map_err(|failure| error(failure, &asked.table))?;
            if let Some(record) = record {
                records.append_value(record);
                found.push(row);
            }
        }
        let decoded = asked.decoder.decode(&TextBlock::messages(&records.finish()));
        let decoded = decoded.map_err(|error| {
            let key = error.number.and_then(|number| found.get(number as usize));
            let key = key.map_or("a key", |&row| names.value(row as usize));
            let name = format!("key '{}{key}' of Redis", asked.prefix);
            crate::format::DecodeError { number: None, ..error }.in_input(&name)
        })?;
        let rows = decoded.messages.iter().map(|&message| found[message as usize]);
        asked.columns.rows(keys, &rows.collect(), &decoded.batch)
    }
}
