//! What handlers take from a request, by type: the server, who asks, parameters, a body of JSON.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::app::{App, parse};
use super::guard::Caller;
use crate::operations::Operation;
use crate::problem::{Outcome, Problem};
use crate::server::Server;

impl FromRequestParts<App> for App {
    type Rejection = Infallible;
    async fn from_request_parts(_: &mut Parts, app: &App) -> Result<App, Infallible> {
        Ok(app.clone())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ExtensionRejection;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Extension(caller) = Extension::from_request_parts(parts, state).await?;
        Ok(caller)
    }
}

/// The parameters behind the `?`.
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Outcome<Query<T>> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        query.map(|axum::extract::Query(query)| Query(query)).map_err(|error| {
            Problem::new(400, "parameter-wrong", format!("a parameter is wrong: {error}"))
        })
    }
}

/// A body of JSON.
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;
    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(IntoResponse::into_response)?;
        parse(&bytes).map(JsonBody).map_err(IntoResponse::into_response)
    }
}

/// A body of JSON that may be left out.
pub(crate) struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = Response;
    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(IntoResponse::into_response)?;
        match bytes.is_empty() {
            true => Ok(OptionalBody(T::default())),
            false => parse(&bytes).map(OptionalBody).map_err(IntoResponse::into_response),
        }
    }
}

/// What is asked about one job.
pub(crate) struct JobRequest {
    pub app: App,
    pub caller: Caller,
    pub job: String,
    pub headers: HeaderMap,
}

/// The name of a job, and that of a part of it.
pub(crate) type PartOfJob = Path<(String, String)>;

impl FromRequestParts<App> for JobRequest {
    type Rejection = Response;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<JobRequest, Response> {
        let Path(job) =
            Path::from_request_parts(parts, app).await.map_err(IntoResponse::into_response)?;
        let caller = Caller::from_request_parts(parts, app).await;
        let caller = caller.map_err(IntoResponse::into_response)?;
        Ok(JobRequest { app: app.clone(), caller, job, headers: parts.headers.clone() })
    }
}

impl JobRequest {
    /// Asks the server, with the name of the job and of who asks, and answers with the operation
    /// that this begins.
    pub async fn begin(
        self,
        ask: impl FnOnce(&Arc<Server>, &str, &str) -> Outcome<Operation> + Send + 'static,
    ) -> Outcome<Response> {
        let JobRequest { app, caller, job, headers } = self;
        let operation = app.ask(move |server| ask(server, &job, &caller.name)).await?;
        app.under_way(operation, &headers).await
    }
}
