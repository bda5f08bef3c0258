//! How commands talk to a server: HTTP over its socket, or over the network with a token.

use std::path::PathBuf;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thalweg_core::{Error, Result};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

use crate::byte_stream::ByteStream;
use crate::problem::Problem;

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Place {
    /// Its socket.
    Socket(PathBuf),
    /// Its address, such as `127.0.0.1:7373`, and a token.
    Address {
        /// Host and port.
        authority: String,
        /// What shows who asks.
        token: String,
    },
}

/// Talks to a server, one request after another.
pub struct Client {
    place: Place,
    runtime: Runtime,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The body, if it was JSON.
    pub body: Value,
    /// The body.
    pub text: String,
}

impl Client {
    /// A client of the server at a place.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(place: Place) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime =
            runtime.map_err(|error| Error::io(format!("can't wait for sockets: {error}")))?;
        Ok(Client { place, runtime })
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If there is no server, or the connection breaks.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        wait: bool,
    ) -> Result<Answer> {
        let mut text = String::new();
        let status = self.ask_by_piece(method, path, (body, wait), &mut |piece| {
            text.push_str(&String::from_utf8_lossy(piece));
            true
        })?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status, body, text })
    }

    /// Asks for something whose answer comes in pieces, until `take` wants no more. The status.
    ///
    /// # Errors
    /// If there is no server, or the connection breaks.
    pub fn ask_by_piece(
        &self,
        method: &str,
        path: &str,
        (body, wait): (Option<&Value>, bool),
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u16> {
        self.runtime.block_on(async {
            let request = self.request(method, path, body, wait)?;
            exchange(self.connect().await?, request, take).await
        })
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>> {
        Ok(match &self.place {
            Place::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                Box::new(stream.map_err(|error| no_server(&path.display().to_string(), &error))?)
            }
            Place::Address { authority, .. } => {
                let stream = TcpStream::connect(authority.as_str()).await;
                Box::new(stream.map_err(|error| no_server(authority, &error))?)
            }
        })
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        wait: bool,
    ) -> Result<Request<Full<Bytes>>> {
        let wrong = |error: hyper::http::Error| {
            Error::plan(format!("no request can be made of it: {error}"))
        };
        let method: Method =
            method.parse().map_err(|_| Error::internal("a method is one of HTTP"))?;
        let mut request = Request::builder().method(method).uri(path);
        request = match &self.place {
            Place::Socket(_) => request.header("host", "localhost"),
            Place::Address { authority, token } => {
                request.header("host", authority).header("authorization", format!("Bearer {token}"))
            }
        };
        if wait {
            request = request.header("prefer", "wait=600");
        }
        let bytes = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        request.body(Full::new(bytes)).map_err(wrong)
    }
}

impl Answer {
    /// What a request came to that was refused.
    pub fn problem(&self) -> Option<Problem> {
        if self.status < 400 {
            return None;
        }
        let problem = serde_json::from_value(self.body.clone());
        Some(problem.unwrap_or_else(|_| Problem::new(self.status, "refused", self.text.clone())))
    }
}

async fn exchange(
    stream: Box<dyn ByteStream>,
    request: Request<Full<Bytes>>,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u16> {
    let broken = |error: hyper::Error| Error::io(format!("the server has gone: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchanged = async {
        let response: Response<Incoming> = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            if let Some(piece) = frame.data_ref()
                && !take(piece)
            {
                break;
            }
        }
        Ok(status)
    };
    tokio::pin!(exchanged);
    tokio::pin!(connection);
    tokio::select! {
        status = &mut exchanged => status,
        ended = &mut connection => match ended {
            // What came before it ended may not have been taken.
            Ok(()) => exchanged.await,
            Err(error) => Err(broken(error)),
        },
    }
}

fn no_server(place: &str, error: &std::io::Error) -> Error {
    Error::io(format!("there is no server at {place}: {error}"))
        .hint("`thalweg serve` runs one; --data-dir or --server says where it is")
}
