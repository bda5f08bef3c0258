//! `DELETE /v1/jobs/JOB/snapshots/N` and `POST …/N/verify`: what is kept too long, and whether it
//! can still be read.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use thalweg_state::SnapshotStore;

use super::app::App;
use super::extract::PartOfJob;
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// Whether a snapshot can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Verified {
    /// All of its files are there and hold what they should.
    pub is_whole: bool,
    /// What is wrong.
    pub damage: Vec<String>,
}

/// Deletes a snapshot. Files that later ones share stay.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/jobs/{job}/snapshots/{number}", tag = "snapshots",
    params(("job" = String, Path), ("number" = u64, Path)), responses((status = 204))))]
pub async fn delete(app: App, Path((job, number)): Path<(String, String)>) -> Outcome<StatusCode> {
    app.ask(move |server| {
        let number = number_of(&number)?;
        let mut store = store_with(server, &job, number)?;
        let own = server.job(&job)?;
        // A start reads what it continues from, and must find it.
        let state = own.lock();
        let newest = store.newest_number_of(store.lineage()?.as_ref())?;
        if newest == Some(number) {
            let detail = format!(
                "snapshot {number} is the newest one, from which the job continues: take another one first, or delete \
                 the job with its state"
            );
            return Err(Problem::new(409, "in-use", detail));
        }
        if state.record.upgrade.as_ref().is_some_and(|own| own.stopped_with == Some(number)) {
            let detail = format!("an upgrade that is under way goes back to snapshot {number}");
            return Err(Problem::new(409, "in-use", detail));
        }
        store.delete(number)?;
        drop(state);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Reads all files of a snapshot, and says whether they are whole.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/snapshots/{number}/verify", tag = "snapshots",
    params(("job" = String, Path), ("number" = u64, Path)), responses((status = 200, body = Verified))))]
pub async fn verify(app: App, Path((job, number)): PartOfJob) -> Outcome<Json<Verified>> {
    app.ask(move |server| {
        let number = number_of(&number)?;
        let mut store = store_with(server, &job, number)?;
        let damage: Vec<String> = store.verify(number)?.iter().map(ToString::to_string).collect();
        Ok(Json(Verified { is_whole: damage.is_empty(), damage }))
    })
    .await
}

/// The number of a snapshot.
pub(super) fn number_of(text: &str) -> Outcome<u64> {
    let wrong = |_| Problem::new(400, "parameter-wrong", "snapshots have numbers from 1");
    text.parse().map_err(wrong)
}

/// The snapshots of a job, of which this is one.
pub(super) fn store_with(server: &Server, job: &str, number: u64) -> Outcome<SnapshotStore> {
    let missing =
        || Problem::new(404, "no-such-snapshot", format!("the job has no snapshot {number}"));
    let store = server.store(job)?.ok_or_else(missing)?;
    match store.list()?.iter().any(|summary| summary.number() == number) {
        true => Ok(store),
        false => Err(missing()),
    }
}
