//! A server in this process: `thalweg serve` on a thread of its own.
//!
//! The package stops it before the interpreter ends, so that its jobs take a last snapshot. Signals
//! are Python's: nothing listens to them here.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use serde_json::json;
use thalweg::{Error, Result};
use thalweg_server::client::{Client, Place};
use thalweg_server::{Config, Moment, Serving, Signals, serve};

use crate::errors;
use crate::running::LOOK_AGAIN;

/// The name of the token that a server in a process makes for the program that runs it.
const TOKEN: &str = "python";

/// A server that runs.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct RunningServer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    signals: Signals,
    now: Mutex<ServerNow>,
    changed: Condvar,
}

#[derive(Default)]
struct ServerNow {
    serves: Option<Served>,
    /// It is over, and how.
    ended: Option<Result<()>>,
}

#[derive(Clone)]
struct Served {
    url: String,
    token: String,
    problems: Vec<String>,
}

#[pymethods]
impl RunningServer {
    /// Starts one, and waits until it takes connections.
    #[new]
    fn start(
        py: Python<'_>,
        data_dir: PathBuf,
        config: Option<PathBuf>,
        options: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let wrong = |error: Error| errors::to_python(py, &error, "");
        let config = Config::read(&data_dir, config.as_deref(), std::env::vars(), &options);
        let config = config.map_err(wrong)?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let body = move || own.serve(config);
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(body);
        thread.map_err(|error| wrong(error.into()))?;
        let server = RunningServer(shared);
        server.wait_until(py, None, |now| now.serves.is_some() || now.ended.is_some())?;
        server.check(py)?;
        Ok(server)
    }

    /// Its address, once it takes connections.
    #[getter]
    fn url(&self) -> Option<String> {
        self.0.now().serves.as_ref().map(|served| served.url.clone())
    }
    /// The text of a token that allows everything, until the server ends.
    #[getter]
    fn token(&self) -> Option<String> {
        self.0.now().serves.as_ref().map(|served| served.token.clone())
    }
    /// What could not be read of the data directory.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.now().serves.as_ref().map_or_else(Vec::new, |served| served.problems.clone())
    }
    /// False when it has ended.
    #[getter]
    fn is_running(&self) -> bool {
        self.0.now().ended.is_none()
    }
    /// Ends it: jobs take a last snapshot. The second time it ends at once.
    fn stop(&self) {
        self.0.signals.ends.fetch_add(1, Ordering::SeqCst);
    }
    /// Waits for its end, and raises what it has failed with. False if the time passes first.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = timeout
            .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let has_ended = self.wait_until(py, until, |now| now.ended.is_some())?;
        self.check(py).map(|()| has_ended)
    }
}

impl RunningServer {
    fn wait_until(
        &self,
        py: Python<'_>,
        until: Option<Instant>,
        is_there: fn(&ServerNow) -> bool,
    ) -> PyResult<bool> {
        loop {
            let found = py.detach(|| {
                let now = self.0.now();
                if is_there(&now) {
                    return true;
                }
                let waited = self.0.changed.wait_timeout(now, LOOK_AGAIN);
                is_there(&waited.unwrap_or_else(PoisonError::into_inner).0)
            });
            if found || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(found);
            }
            py.check_signals()?;
        }
    }

    /// Raises what it has failed with.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0.now().ended {
            Some(Err(error)) => Err(errors::to_python(py, error, "")),
            _ => Ok(()),
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // One that ends already is not cut off.
        let _ends = self.0.signals.ends.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, ServerNow> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, config: Config) {
        let ended = serve(config, &self.signals, |moment| {
            let Moment::Ready(serving) = moment else { return };
            match served(serving) {
                Ok(served) => self.now().serves = Some(served),
                Err(error) => {
                    self.now().ended = Some(Err(error));
                    self.signals.ends.fetch_add(1, Ordering::SeqCst);
                }
            }
            self.changed.notify_all();
        });
        let mut now = self.now();
        now.ended = Some(match now.ended.take() {
            Some(Err(error)) => Err(error),
            _ => ended,
        });
        drop(now);
        self.changed.notify_all();
    }
}

/// Where it is, and a token for this process in place of that of an earlier one.
fn served(serving: &Serving) -> Result<Served> {
    let address = serving.address.ok_or_else(|| {
        Error::plan("a server without an address can't be reached").hint("set the option `listen`")
    })?;
    let token = new_token(&serving.socket)?;
    let url = format!("http://{address}");
    Ok(Served { url, token, problems: serving.problems.clone() })
}

fn new_token(socket: &Path) -> Result<String> {
    let client = Client::new(Place::Socket(socket.to_owned()))?;
    client.ask("DELETE", &format!("/v1/tokens/{TOKEN}"), None, false)?;
    let wanted = json!({ "name": TOKEN, "role": "admin" });
    let answer = client.ask("POST", "/v1/tokens", Some(&wanted), false)?;
    match (answer.problem(), answer.body["token"].as_str()) {
        (None, Some(token)) => Ok(token.to_owned()),
        (Some(problem), _) => Err(Error::io(format!("no token was made: {}", problem.detail))),
        (None, None) => Err(Error::internal("a token has a text")),
    }
}
