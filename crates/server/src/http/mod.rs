//! The REST interface: `/v1`, and the few addresses besides.
//!
//! A request goes through [`guard`] (who asks, from where, may they, how large is it), to a handler
//! of one of the modules, which asks the server on a thread that may block, and back through the
//! guard, which writes it down.

mod activity;
mod admin;
mod app;
mod arrow;
mod bundle;
mod docs;
mod errors;
mod extract;
mod graph;
mod guard;
mod jobs;
mod late;
mod letters;
mod listen;
mod live;
mod materialized;
mod page;
mod profile;
mod query;
mod readings;
mod row_bodies;
mod rows;
mod snapshots;
mod statements;
mod stream;
mod tail;
mod trials;
mod writing;

use axum::Router;
use axum::http::Uri;
use axum::routing::{get, post};

use crate::problem::Problem;

pub use app::{App, Door};
pub(crate) use extract::{JsonBody, OptionalBody};
pub use guard::Caller;
pub(crate) use guard::guard;
pub use listen::{Listeners, accept};
#[cfg(feature = "otlp")]
pub(crate) use readings::families;

/// All addresses.
pub fn router(app: App) -> Router {
    let job = Router::new()
        .route("/", get(jobs::get_job).put(jobs::put_job).delete(jobs::delete_job))
        .route("/start", post(jobs::start))
        .route("/stop", post(jobs::stop))
        .route("/pause", post(jobs::pause))
        .route("/resume", post(jobs::resume))
        .route("/restart", post(jobs::restart))
        .route("/approve", post(jobs::approve))
        .route("/revisions", get(jobs::revisions))
        .route("/revisions/{revision}", get(jobs::revision))
        .route("/revisions/{revision}/diff", get(jobs::revision_diff))
        .route("/revisions/{revision}/activate", post(jobs::activate))
        .route("/trials", get(trials::list).post(trials::begin))
        .route("/trials/{trial}", get(trials::get))
        .route("/snapshots", get(jobs::snapshots).post(jobs::take_snapshot))
        .route("/snapshots/{number}", get(graph::snapshot).delete(snapshots::delete))
        .route("/snapshots/{number}/verify", post(snapshots::verify))
        .route("/events", get(activity::events))
        .route("/logs", get(activity::logs))
        .route("/runs", get(activity::runs))
        .route("/graph", get(graph::graph))
        .route("/metrics", get(graph::stage_history))
        .route("/why", get(readings::job_why))
        .route("/watermarks", get(readings::job_watermarks))
        .route("/profile", post(profile::profile))
        .route("/bundle.zip", get(bundle::bundle))
        .merge(rows_of_a_job());
    let page = page::addresses()
        .fold(Router::new(), |router, address| router.route(&address, get(page::file)));
    Router::new()
        .merge(page)
        .route("/healthz", get(admin::healthz))
        .route("/readyz", get(admin::readyz))
        .route("/openapi.json", get(admin::openapi_json))
        .route("/metrics", get(readings::metrics))
        .route("/docs", get(docs::index))
        .route("/docs/", get(docs::index))
        .route("/docs/{*page}", get(docs::page))
        .route("/docs/errors", get(errors::codes))
        .route("/docs/errors/{code}", get(errors::code))
        .route("/v1/jobs", get(jobs::list))
        .nest("/v1/jobs/{job}", job)
        .route("/v1/validate", post(statements::validate))
        .route("/v1/explain", post(statements::explain))
        .route("/v1/query", post(query::query_rows))
        .route("/v1/complete", post(writing::complete))
        .route("/v1/format", post(writing::format))
        .route("/v1/settings", get(statements::settings))
        .route("/v1/functions", get(statements::functions))
        .route("/v1/connectors", get(statements::connectors))
        .route("/v1/live", get(live::live))
        .route("/v1/operations", get(admin::operations))
        .route("/v1/operations/{id}", get(admin::operation).delete(admin::cancel_operation))
        .route("/v1/tokens", get(admin::tokens).post(admin::create_token))
        .route("/v1/tokens/{name}", axum::routing::delete(admin::delete_token))
        .route("/v1/config", get(admin::config))
        .route("/v1/version", get(admin::version))
        .route("/v1/audit", get(admin::audit))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

/// The addresses of a job where rows come and go.
fn rows_of_a_job() -> Router<App> {
    Router::new()
        .route("/tail", get(tail::tail))
        .route("/tables", get(materialized::tables))
        .route("/tables/{table}/changes", get(materialized::changes))
        .route("/tables/{table}/rows", post(rows::post_rows))
        .route("/tokens/{token}", get(rows::rows_token))
        .route("/late", get(late::late))
        .route("/dead-letters", get(letters::dead_letters))
        .route("/dead-letters/replay", post(letters::replay))
}

async fn nothing_here(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; /openapi.json lists what there is", uri.path());
    Problem::new(404, "no-such-address", detail)
}

async fn wrong_method() -> Problem {
    Problem::new(405, "method-wrong", "this address knows other methods; see /openapi.json")
}

/// The OpenAPI document, as it is served. A test compares it with the declarations of the
/// endpoints: whoever builds the server does not build what reads these.
pub fn openapi() -> &'static str {
    include_str!("../../openapi.json")
}

/// The description of the interface.
#[cfg(test)]
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Thalweg",
        description = "Jobs of stream processing, in one process",
        license(name = "Apache-2.0")
    ),
    paths(
        jobs::list,
        jobs::get_job,
        jobs::put_job,
        jobs::delete_job,
        jobs::start,
        jobs::stop,
        jobs::pause,
        jobs::resume,
        jobs::restart,
        jobs::approve,
        jobs::revisions,
        jobs::revision,
        jobs::revision_diff,
        jobs::activate,
        trials::list,
        trials::begin,
        trials::get,
        jobs::snapshots,
        jobs::take_snapshot,
        graph::snapshot,
        snapshots::delete,
        snapshots::verify,
        graph::graph,
        graph::stage_history,
        activity::events,
        activity::logs,
        activity::runs,
        readings::job_why,
        readings::job_watermarks,
        profile::profile,
        tail::tail,
        materialized::tables,
        materialized::changes,
        rows::post_rows,
        rows::rows_token,
        late::late,
        letters::dead_letters,
        letters::replay,
        bundle::bundle,
        readings::metrics,
        statements::validate,
        statements::explain,
        query::query_rows,
        writing::complete,
        writing::format,
        statements::settings,
        statements::functions,
        statements::connectors,
        live::live,
        admin::operations,
        admin::operation,
        admin::cancel_operation,
        admin::tokens,
        admin::create_token,
        admin::delete_token,
        admin::config,
        admin::version,
        admin::audit,
        admin::healthz,
        admin::readyz,
        admin::openapi_json,
        docs::index,
        docs::page,
        errors::codes,
        errors::code,
    ),
    components(schemas(Problem)),
    modifiers(&Refusals)
)]
struct Description;

/// Any request may be refused, but for those that always have an answer.
#[cfg(test)]
struct Refusals;

#[cfg(test)]
impl utoipa::Modify for Refusals {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::{Ref, content::ContentBuilder, response::ResponseBuilder};

        let answered = ["/healthz", "/readyz", "/openapi.json", "/docs", "/docs/errors"];
        let schema = Some(Ref::from_schema_name("Problem"));
        let content = ContentBuilder::new().schema(schema).build();
        let refusal = ResponseBuilder::new().content("application/problem+json", content).build();
        for (path, item) in &mut description.paths.paths {
            let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in all.into_iter().flatten().filter(|_| !answered.contains(&&**path)) {
                let responses = &mut operation.responses.responses;
                responses.insert("default".to_owned(), refusal.clone().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use utoipa::OpenApi;

    #[test]
    fn the_description_is_the_committed_one() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let mut text = Description::openapi().to_pretty_json().expect("it can be written");
        text.push('\n');
        if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
            std::fs::write(&file, &text).expect("written");
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "the interface has changed: THALWEG_WRITE_DOCS=1 cargo test -p thalweg-server --locked writes it down"
        );
    }
}
