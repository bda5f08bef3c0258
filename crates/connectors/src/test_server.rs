//! A server for tests: it does with each connection what a closure says, can be killed with all its
//! connections, and started again at the same port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A server that runs until it is killed or dropped.
pub struct TestServer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    is_over: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Starts a server at a free port.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> TestServer {
        TestServer::start_at(0, serve)
    }

    /// Starts a server at a port; 0 is a free one.
    pub fn start_at(port: u16, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> TestServer {
        let listener = (0..200).find_map(|_| {
            let bound = TcpListener::bind(("127.0.0.1", port));
            // The port of a server that was just killed.
            bound.map_err(|_| thread::sleep(Duration::from_millis(25))).ok()
        });
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a listener that can be stopped");
        let (is_over, connections) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (over, known) = (Arc::clone(&is_over), Arc::clone(&connections));
        let serve = Arc::new(serve);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                stream.set_nonblocking(false).expect("a connection that blocks");
                let copy = stream.try_clone().expect("a second handle");
                let known: &Mutex<Vec<TcpStream>> = &known;
                known.lock().expect("no panic").push(copy);
                let serve = Arc::clone(&serve);
                thread::spawn(move || {
                    let copy = stream.try_clone().expect("a second handle");
                    serve(stream);
                    // The list above keeps it open; the peer is to see its end.
                    let _ = copy.shutdown(Shutdown::Write);
                });
            }
        });
        TestServer { port, is_over, connections, thread: Some(thread) }
    }

    /// Breaks all connections; the server stays.
    pub fn cut(&self) {
        for connection in self.connections.lock().expect("no panic").drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ends the server with all its connections. Returns its port.
    pub fn kill(mut self) -> u16 {
        self.end();
        self.port
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
        self.cut();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request of HTTP as a test sees it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Its first line.
    pub line: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
}

impl Asked {
    /// Reads the next request of a connection; `None` where it has ended.
    pub fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
        let mut asked = Asked::default();
        reader.read_line(&mut asked.line).ok().filter(|read| *read > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            asked.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        asked.line = asked.line.trim_end().to_owned();
        let length = asked.header("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        asked.body = String::from_utf8(body).expect("UTF-8");
        Some(asked)
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A server of HTTP: an answer, with headers and body, for each request.
pub fn http_server(
    port: u16,
    answer: impl Fn(&Asked) -> (u16, String, String) + Send + Sync + 'static,
) -> TestServer {
    TestServer::start_at(port, move |stream| {
        let mut writer = stream.try_clone().expect("a second handle");
        let mut reader = BufReader::new(stream);
        while let Some(asked) = Asked::read(&mut reader) {
            let (status, headers, body) = answer(&asked);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} Some\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
            );
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}
