//! A server that gives prepared answers, each question its own, in order; the last one stays.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

#[derive(Default)]
struct Prepared {
    answers: BTreeMap<String, VecDeque<(u16, String)>>,
    asked: Vec<(String, Value)>,
}

pub struct Server {
    address: SocketAddr,
    prepared: Arc<Mutex<Prepared>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let prepared = Arc::new(Mutex::new(Prepared::default()));
        let shared = Arc::clone(&prepared);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = serve(stream, &shared);
            }
        });
        Server { address, prepared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// One more answer to a question such as `GET /overview`.
    pub fn answer(&self, question: &str, status: u16, body: Value) {
        self.answer_text(question, status, &body.to_string());
    }

    pub fn answer_text(&self, question: &str, status: u16, body: &str) {
        let mut prepared = self.prepared.lock().expect("no test panics with it");
        let answers = prepared.answers.entry(question.to_owned()).or_default();
        answers.push_back((status, body.to_owned()));
    }

    /// The only answer from now on.
    pub fn replace(&self, question: &str, status: u16, body: Value) {
        self.prepared.lock().expect("as above").answers.remove(question);
        self.answer(question, status, body);
    }

    /// What was sent with a question, each time.
    pub fn bodies(&self, question: &str) -> Vec<Value> {
        let prepared = self.prepared.lock().expect("as above");
        let asked = prepared.asked.iter().filter(|(asked, _)| asked == question);
        asked.map(|(_, body)| body.clone()).collect()
    }

    pub fn count(&self, question: &str) -> usize {
        self.bodies(question).len()
    }
}

fn serve(stream: TcpStream, prepared: &Mutex<Prepared>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let question = first.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (status, text) = {
        let mut prepared = prepared.lock().expect("no test panics with it");
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        prepared.asked.push((question.clone(), body));
        match prepared.answers.get_mut(&question) {
            Some(answers) if answers.len() > 1 => answers.pop_front().expect("there are two"),
            Some(answers) => answers[0].clone(),
            None => (404, format!("{{\"errors\": [\"nothing is prepared for {question}\"]}}")),
        }
    };
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}
