//! The HTTP client of stores, which talks to hosts that are allowed alone: also where a server
//! names another one, and where credentials are fetched.

use std::time::Duration;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::redirect::{Action, Attempt, Policy};
use thalweg_core::connector::AllowedTargets;

/// A server that says nothing for this long has gone.
const SILENCE_MAX: Duration = Duration::from_secs(25);
const CONNECT_MAX: Duration = Duration::from_secs(5);
const REDIRECTS_MAX: usize = 10;

/// Makes clients that look at the list of allowed hosts.
#[derive(Clone, Debug)]
pub struct Guard {
    targets: AllowedTargets,
    allows_http: bool,
}

#[derive(Debug)]
struct GuardedClient {
    client: reqwest::Client,
    targets: AllowedTargets,
}

/// A host that may not be talked to.
#[derive(Debug)]
struct Forbidden(String);

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Forbidden {}

impl Guard {
    /// Talks to these hosts alone, and without encryption only if that is asked for.
    pub fn new(targets: AllowedTargets, allows_http: bool) -> Guard {
        Guard { targets, allows_http }
    }
}

fn check(targets: &AllowedTargets, host: Option<&str>, port: u16) -> Result<(), Forbidden> {
    let checked = targets.check(host.unwrap_or_default(), port);
    checked.map_err(|error| Forbidden(error.message().to_owned()))
}

impl HttpConnector for Guard {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let targets = self.targets.clone();
        let follow = move |attempt: Attempt<'_>| -> Action {
            let url = attempt.url();
            let port = url.port_or_known_default().unwrap_or_default();
            match check(&targets, url.host_str(), port) {
                Err(error) => attempt.error(error),
                Ok(()) if attempt.previous().len() > REDIRECTS_MAX => attempt
                    .error(Forbidden("the server sends from one place to another".to_owned())),
                Ok(()) => attempt.follow(),
            }
        };
        let client = reqwest::Client::builder()
            .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
            .https_only(!self.allows_http)
            .connect_timeout(CONNECT_MAX)
            .read_timeout(SILENCE_MAX)
            .redirect(Policy::custom(follow))
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(error),
            })?;
        Ok(HttpClient::new(GuardedClient { client, targets: self.targets.clone() }))
    }
}

#[async_trait]
impl HttpService for GuardedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri();
        let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
        check(&self.targets, uri.host(), uri.port_u16().unwrap_or(default))
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        HttpService::call(&self.client, request).await
    }
}
