//! `POST /v1/jobs/JOB/tables/TABLE/rows` and `GET …/tokens/TOKEN`: rows that clients hand to a
//! running job, and how far they have come.
//!
//! A token names the run of a source and the number of a body in it. Nothing is remembered of
//! tokens: whether a body is in a snapshot follows from the position of the source there, and
//! whether the job has read it from the source itself, while that runs.
//!
//! What it does not do: it keeps no rows. A body that no snapshot has is lost with its run, and its
//! token says so.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_connectors::taken_bodies::TakenBodies;
use thalweg_core::connector::near_miss;
use thalweg_core::inlets::{PostedRows, RowsReceipt, RowsRefusal};
use thalweg_state::SnapshotStore;

use super::app::App;
use super::extract::PartOfJob;
use super::row_bodies::body_kind;
use crate::job::Job;
use crate::lifecycle;
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// The longest key of a request.
const KEY_BYTES_MAX: usize = 255;

/// Rows that were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TakenRows {
    /// What to ask about them by: `GET /v1/jobs/{job}/tokens/{token}`.
    pub token: String,
    /// How many rows the body has.
    pub rows: u64,
    /// How many of its rows could not be read and are left out, as `bad-data` of the table says.
    pub bad_rows: u64,
}

/// How far rows have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RowsState {
    /// They wait for the job.
    Pending,
    /// The job has read them; no snapshot has them yet. What a job without snapshots can say.
    Processed,
    /// A snapshot has them: the job continues with them whatever happens.
    Committed,
    /// No snapshot has them, and their run is over. Send them again.
    Lost,
}

/// What became of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RowsToken {
    /// The token.
    pub token: String,
    /// How far they have come.
    pub state: RowsState,
    /// The oldest snapshot that is kept and has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
}

/// Hands rows to a table of a running job whose connector is `http` with `'scan.mode' = 'server'`
/// or `'listen'`: a JSON object in each line (`application/x-ndjson`), an object or an array of
/// them (`application/json`), lines without a header (`text/csv`), or a stream of Arrow
/// (`application/vnd.apache.arrow.stream`). A body is taken whole or not at all. With the same
/// `Idempotency-Key` a body that is sent again counts once. The answer comes at once; its token
/// says how far the rows are. 429 and 503 have `Retry-After`, and nothing of the body was taken.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/tables/{table}/rows", tag = "rows",
    request_body(content((String = "application/x-ndjson"), (String = "application/json"), (String = "text/csv"),
        (Vec<u8> = "application/vnd.apache.arrow.stream"))),
    params(("job" = String, Path), ("table" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "what the request is known by if it comes again; at most 255 bytes")),
    responses((status = 202, body = TakenRows))))]
pub async fn post_rows(
    app: App,
    Path((job, table)): Path<(String, String)>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Outcome<Response> {
    let kind = body_kind(&headers)?;
    let key = request_key(&headers)?;
    let path = format!("/v1/jobs/{job}/tokens/");
    let taken = app.ask(move |server| {
        let rows = PostedRows { kind, body: &bytes, key: key.as_deref() };
        take(server, &job, &table, rows)
    });
    let taken = taken.await?;
    let place = [(header::LOCATION, path + &taken.token)];
    Ok((StatusCode::ACCEPTED, place, Json(taken)).into_response())
}

/// What became of rows: `pending`, `processed` once the job has read them, `committed` once a
/// snapshot has them, `lost` if no snapshot has them and their run is over. Also after a restart of
/// the server; of the last 256 runs that have taken rows.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/tokens/{token}", tag = "rows",
    params(("job" = String, Path), ("token" = String, Path)), responses((status = 200, body = RowsToken))))]
pub async fn rows_token(app: App, Path((job, token)): PartOfJob) -> Outcome<Json<RowsToken>> {
    app.ask(move |server| looked_up(server, &job, token).map(Json)).await
}

fn request_key(headers: &HeaderMap) -> Outcome<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let key = key.ok_or_else(|| {
        let detail = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes of ASCII");
        Problem::new(400, "parameter-wrong", detail)
    })?;
    Ok(Some(key.to_owned()))
}

fn take(server: &Server, job: &str, table: &str, rows: PostedRows<'_>) -> Outcome<TakenRows> {
    server.check_open()?;
    let job = server.job(job)?;
    let Some(inlet) = job.inlets.get(table).filter(|inlet| inlet.is_open()) else {
        return Err(no_inlet(&job, table));
    };
    let RowsReceipt { run, number, rows, bad_rows } =
        inlet.post(rows).map_err(|refusal| refused(&job, table, refusal))?;
    Ok(TakenRows { token: format!("{run}-{number}"), rows, bad_rows })
}

fn refused(job: &Job, table: &str, refusal: RowsRefusal) -> Problem {
    match refusal {
        RowsRefusal::Bad { place, reason } => {
            let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
            let detail = format!("{place}{reason}; none of the rows was taken");
            Problem { fault: "data".to_owned(), ..Problem::new(400, "row-wrong", detail) }
        }
        RowsRefusal::KindWrong(why) => Problem::new(415, "kind-wrong", why),
        RowsRefusal::TooLarge(most) => {
            let detail = format!("bodies of rows for table {table} have at most {most} bytes");
            Problem::new(413, "too-large", detail)
        }
        RowsRefusal::Full(why) => Problem::new(429, "too-many-rows", why),
        RowsRefusal::Closed => no_inlet(job, table),
    }
}

/// Why nothing takes rows for a table at this moment.
fn no_inlet(job: &Job, table: &str) -> Problem {
    use lifecycle::State::{Paused, Running, Stopping};
    let state = job.lock();
    let (shown, is_stage) = (state.shown, state.stages().iter().any(|stage| stage.name == table));
    drop(state);
    match shown {
        _ if shown.is_at_rest() || shown == Stopping => {
            let detail = format!("the job is {}: only a job that runs takes rows", shown.word());
            Problem::new(409, "does-not-run", detail)
        }
        Running | Paused if is_stage => {
            let detail = format!(
                "table {table} takes no rows from here; tables with 'connector' = 'http' and 'scan.mode' = 'server' do"
            );
            Problem::new(409, "takes-no-rows", detail)
        }
        Running | Paused => {
            let known = job.inlets.tables();
            let near = near_miss(table, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            let detail = format!("job {} reads no table {table}{hint}", job.name);
            Problem::new(404, "no-such-table", detail)
        }
        _ => {
            let detail = format!("the job is {}: it takes rows when it runs", shown.word());
            Problem::new(503, "not-yet", detail)
        }
    }
}

fn looked_up(server: &Server, name: &str, token: String) -> Outcome<RowsToken> {
    let parts = token.split_once('-').and_then(|(run, number)| {
        let is_run = run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some((run, number.parse::<u64>().ok().filter(|&number| is_run && number > 0)?))
    });
    let Some((run, number)) = parts else {
        let detail = format!("'{token}' is no token of rows; the answer to a POST of rows has one");
        return Err(Problem::new(404, "no-such-token", detail));
    };
    let job = server.job(name)?;
    // First what the source knows: when its run is over, all of its snapshots are there.
    let is_at_rest = job.lock().shown.is_at_rest();
    let inlet = job.inlets.of_run(run).filter(|inlet| inlet.is_open() || !is_at_rest);
    let read_through = inlet.map(|inlet| inlet.read_through());
    let snapshot = match server.store(name)? {
        Some(store) => oldest_with(&store, run, number)?,
        None => None,
    };
    let state = match (snapshot, read_through) {
        (Some(_), _) => RowsState::Committed,
        (None, Some(through)) if number <= through => RowsState::Processed,
        (None, Some(_)) => RowsState::Pending,
        (None, None) => RowsState::Lost,
    };
    Ok(RowsToken { token, state, snapshot })
}

/// The oldest snapshot that has a body, if the newest one of the lineage has it.
fn oldest_with(store: &SnapshotStore, run: &str, body: u64) -> Outcome<Option<u64>> {
    let newest = store.newest_number_of(store.lineage()?.as_ref())?;
    let Some(newest) = newest.filter(|&number| has_body(store, number, run, body)) else {
        return Ok(None);
    };
    let mut older = store.numbers()?;
    older.retain(|&number| number < newest);
    // Each has what an older one has.
    let first = older.partition_point(|&number| !has_body(store, number, run, body));
    Ok(Some(older.get(first).copied().unwrap_or(newest)))
}

/// A snapshot that cannot be read has nothing.
fn has_body(store: &SnapshotStore, number: u64, run: &str, body: u64) -> bool {
    let Ok(details) = store.describe(number) else { return false };
    let mut positions =
        details.stages.iter().filter_map(|stage| stage.source.as_ref()?.position.as_ref());
    positions.any(|position| TakenBodies::of_position(position).through(run) >= body)
}
