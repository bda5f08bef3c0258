//! `GET /v1/jobs/JOB/dead-letters`: the rows of a job that could not be read, from the files that
//! its tables name; and `POST …/dead-letters/replay`, which has them read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringViewArray};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_connectors::replay::{Letter, List, letters_of};
use thalweg_core::{Column, DataType, Error, TableSchema};

use super::arrow::{arrow_answer, wants_arrow};
use super::extract::{JobRequest, OptionalBody, Query};
use crate::letters::{Kept, Replay, ReplayBody, name_of};
#[cfg(test)]
use crate::operations::Operation;
use crate::problem::Outcome;
use crate::server::Server;

/// What is read of the end of a file.
const TAIL_BYTES_MAX: u64 = 4 << 20;

/// Of which table, how many, and whether those that were read again.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LettersQuery {
    table: Option<String>,
    limit: Option<usize>,
    replayed: bool,
}

/// A row that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// What it is called: its table, and its place in the file of dead letters.
    pub id: String,
    /// The table that it is of.
    pub table: String,
    /// The file, partition or topic that it was in.
    pub file: String,
    /// Its place there: a line, an offset.
    pub line: u64,
    /// Why it cannot be read; of one that was read again and refused, why not that time.
    pub reason: String,
    /// Its text. Bytes that are none are shown as `\u{fffd}`.
    pub raw: String,
    /// Its bytes, where they are no text.
    #[serde(default, rename = "raw-base64", skip_serializing_if = "Option::is_none")]
    pub raw_base64: Option<String>,
    /// What became of it, if it was to be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Its bytes as they are.
    #[serde(skip)]
    #[cfg_attr(test, schema(ignore))]
    pub bytes: Vec<u8>,
}

/// The last rows of a job that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct DeadLetters {
    /// How many rows this run could not read, those that are not kept included.
    pub bad_rows: u64,
    /// The tables that keep theirs in a file, and the files.
    pub kept: Vec<LetterFile>,
    /// The last of them, newest first.
    pub items: Vec<DeadLetter>,
}

/// Where the rows of a table are kept that cannot be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LetterFile {
    /// The table.
    pub table: String,
    /// The file, which has `.partial` behind its name while the job runs.
    pub path: String,
}

/// The last rows that could not be read, of tables with `'bad-data' = 'dead-letter'` and a
/// `dead-letter.path`, newest first. Those that were read again are left out once a snapshot has
/// their rows. With `Accept: application/vnd.apache.arrow.stream` as a stream of Arrow, with their
/// bytes in the column `raw`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/dead-letters", tag = "rows",
    params(("job" = String, Path), ("table" = Option<String>, Query),
        ("limit" = Option<usize>, Query, description = "100 unless it says otherwise, at most 500"),
        ("replayed" = Option<bool>, Query, description = "also those that were read again")),
    responses((status = 200, content((DeadLetters = "application/json"), (Vec<u8> = "application/vnd.apache.arrow.stream"))))))]
pub async fn dead_letters(request: JobRequest, wanted: Query<LettersQuery>) -> Outcome<Response> {
    let JobRequest { app, job, headers, .. } = request;
    let Query(wanted) = wanted;
    let is_arrow = wants_arrow(&headers);
    let found = app.ask(move |server| found(server, &job, &wanted)).await?;
    if is_arrow { in_arrow(&found.items) } else { Ok(Json(found).into_response()) }
}

/// Letters as a stream of Arrow.
fn in_arrow(letters: &[DeadLetter]) -> Outcome<Response> {
    let texts = |of: fn(&DeadLetter) -> &str| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(letters.iter().map(of)))
    };
    let bytes = letters.iter().map(|letter| letter.bytes.as_slice());
    let lines = letters.iter().map(|letter| letter.line as i64);
    let columns: [(&str, DataType, ArrayRef); 7] = [
        ("id", DataType::STRING, texts(|letter| &letter.id)),
        ("table", DataType::STRING, texts(|letter| &letter.table)),
        ("file", DataType::STRING, texts(|letter| &letter.file)),
        ("line", DataType::BigInt, Arc::new(Int64Array::from_iter_values(lines))),
        ("reason", DataType::STRING, texts(|letter| &letter.reason)),
        ("raw", DataType::BYTES, Arc::new(BinaryArray::from_iter_values(bytes))),
        ("replay", DataType::STRING, texts(|letter| letter.replay.map_or("", Replay::word))),
    ];
    let schema = columns.iter().map(|(name, kind, _)| Column::new(*name, kind.clone().not_null()));
    let schema = TableSchema::new(schema.collect());
    let arrays = columns.into_iter().map(|(_, _, array)| array).collect();
    let batch = RecordBatch::try_new(schema.arrow(), arrays).map_err(Error::from)?;
    arrow_answer(&schema, &[batch])
}

/// Dead letters are read again, with the statements that the job has now: those that are rows now
/// become rows of the job, each once, behind what their inputs have given so far. The operation
/// ends when a snapshot has them, and says how many could not be read this time either.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/dead-letters/replay", tag = "rows", request_body = ReplayBody,
    params(("job" = String, Path)), responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn replay(request: JobRequest, body: OptionalBody<ReplayBody>) -> Outcome<Response> {
    request.begin(move |server, job, by| server.replay(job, &body.0, by)).await
}

fn found(server: &Server, job: &str, wanted: &LettersQuery) -> Outcome<DeadLetters> {
    let job = server.job(job)?;
    let state = job.lock();
    let (record, bad_rows) = (state.record.clone(), state.summary().bad_rows);
    drop(state);
    let revision = server.catalogue.revision(&job.name, record.revision)?;
    let Some(revision) = revision else {
        return Ok(DeadLetters { bad_rows, kept: Vec::new(), items: Vec::new() });
    };
    let mut kept = server.dead_letters_kept(&record, revision)?;
    if let Some(table) = &wanted.table {
        kept.files.retain(|(name, _)| name == table);
    }
    let limit = wanted.limit.unwrap_or(100).clamp(1, 500);
    let mut items = Vec::new();
    for at in 0..kept.files.len() {
        let room = limit - items.len().min(limit);
        items.extend(last_letters(&kept, at, wanted.replayed)?.into_iter().take(room));
    }
    let files = kept.files.into_iter().map(|(table, path)| {
        let path = path.display().to_string();
        LetterFile { table, path }
    });
    Ok(DeadLetters { bad_rows, kept: files.collect(), items })
}

/// The last letters of a file, newest first.
fn last_letters(kept: &Kept, at: usize, with_replayed: bool) -> Outcome<Vec<DeadLetter>> {
    let (table, path) = &kept.files[at];
    let (list, taken) = (List::read(path)?, kept.taken(table));
    // Of a letter that is listed more than once the last number counts.
    let listed: BTreeMap<u64, u64> =
        list.letters.iter().map(|own| (own.letter.end, own.number)).collect();
    let mut letters = Vec::new();
    letters_of(path, TAIL_BYTES_MAX, |letter| {
        let replay = listed.get(&letter.end).map(|&number| match taken.reason(number) {
            Some(reason) => (Replay::Refused, Some(reason.to_owned())),
            None if number <= taken.through => (Replay::Done, None),
            None => (Replay::Listed, None),
        });
        if with_replayed || !matches!(replay, Some((Replay::Done, _))) {
            letters.push(shown(table, letter, replay));
        }
    })?;
    letters.reverse();
    Ok(letters)
}

fn shown(table: &str, letter: Letter, replay: Option<(Replay, Option<String>)>) -> DeadLetter {
    let (replay, reason) = replay.unzip();
    DeadLetter {
        id: name_of(table, &letter),
        raw_base64: letter.coded(),
        table: table.to_owned(),
        file: letter.file,
        line: letter.line,
        reason: reason.flatten().unwrap_or(letter.reason),
        raw: String::from_utf8_lossy(&letter.raw).into_owned(),
        replay,
        bytes: letter.raw,
    }
}
