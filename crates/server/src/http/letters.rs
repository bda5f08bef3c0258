//! `GET /v1/jobs/JOB/dead-letters`: the rows of a job that could not be read, from the files that
//! its tables name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::{Path as UrlPath, State};
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use thalweg_library::session::Session;

use super::app::{App, query};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// What is read of the end of a file.
const TAIL_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LettersQuery {
    table: Option<String>,
    limit: Option<usize>,
}

/// A row that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// The table that it is of.
    #[serde(default)]
    pub table: String,
    /// The file, partition or topic that it was in.
    pub file: String,
    /// Its place there: a line, an offset.
    pub line: u64,
    /// Why it cannot be read.
    pub reason: String,
    /// Its text. Bytes that are none are shown as escapes.
    pub raw: String,
    /// Its bytes, where they are no text.
    #[serde(default, rename = "raw-base64", skip_serializing_if = "Option::is_none")]
    pub raw_base64: Option<String>,
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
/// `dead-letter.path`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/dead-letters", tag = "rows",
    params(("job" = String, Path), ("table" = Option<String>, Query),
        ("limit" = Option<usize>, Query, description = "100 unless it says otherwise, at most 500")),
    responses((status = 200, body = DeadLetters), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn dead_letters(
    State(app): State<App>,
    UrlPath(job): UrlPath<String>,
    uri: Uri,
) -> Outcome<Json<DeadLetters>> {
    let wanted: LettersQuery = query(&uri)?;
    app.ask(move |server| found(server, &job, &wanted).map(Json)).await
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
    let options = server.session_options(&record, &revision)?;
    let revision = server.with_params(revision)?;
    let of_text = |error| Problem::of_error(&error, &revision.sql);
    let mut files = Session::new(options)?.dead_letter_files(&revision.sql).map_err(of_text)?;
    if let Some(table) = &wanted.table {
        files.retain(|(name, _)| name == table);
    }
    let limit = wanted.limit.unwrap_or(100).clamp(1, 500);
    let mut items = Vec::new();
    for (table, path) in &files {
        let letters = last_letters(path, limit - items.len().min(limit));
        items.extend(letters.into_iter().map(|own| DeadLetter { table: table.clone(), ..own }));
    }
    let kept = files.into_iter().map(|(table, path)| {
        let path = path.display().to_string();
        LetterFile { table, path }
    });
    Ok(DeadLetters { bad_rows, kept: kept.collect(), items })
}

/// The last letters of a file, newest first: as it is while the job runs, or when it has ended.
fn last_letters(path: &Path, letters_max: usize) -> Vec<DeadLetter> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let text = tail(&PathBuf::from(partial)).or_else(|| tail(path)).unwrap_or_default();
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    lines.take(letters_max).collect()
}

/// The end of a file, from the beginning of a line on.
fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let begin = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match begin {
        0 => Some(text),
        // The first line is half of one.
        _ => Some(text.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_letters_come_first_and_those_of_a_job_that_runs_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bad.jsonl");
        assert_eq!(last_letters(&path, 10), []);
        let line = |n: u64| {
            format!("{{\"file\":\"in.csv\",\"line\":{n},\"reason\":\"no\",\"raw\":\"x\"}}\n")
        };
        let text: String = (1..=3).map(line).collect();
        std::fs::write(&path, &text).expect("written");
        let lines = |letters: Vec<DeadLetter>| -> Vec<u64> {
            letters.into_iter().map(|letter| letter.line).collect()
        };
        assert_eq!(lines(last_letters(&path, 2)), [3, 2]);
        let half = format!("{}{}{{\"file\":\"in", line(4), line(5));
        std::fs::write(folder.path().join("bad.jsonl.partial"), half).expect("written");
        assert_eq!(lines(last_letters(&path, 10)), [5, 4], "half a line is none");
        let long = "y".repeat(TAIL_BYTES_MAX as usize);
        std::fs::write(&path, format!("{}{long}\n{}", line(1), line(2))).expect("written");
        std::fs::remove_file(folder.path().join("bad.jsonl.partial")).expect("there");
        assert_eq!(lines(last_letters(&path, 10)), [2]);
    }
}
