//! Sends rows: many a request, one request after the other.

use std::collections::VecDeque;
use std::time::Duration;

use thalweg_core::Result;
use thalweg_core::connector::{Sink, TableRequest};

use super::options::SinkOptions;
use crate::format::Format;
use crate::messaging::{MessageSink, Outgoing, Publisher};
use crate::network::http::{HttpClient, Reply};
use crate::network::{Attempt, Cancel, Failure};

/// The longest time that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// A sink of this table.
///
/// # Errors
/// If its format is not one of messages.
pub fn open(request: &TableRequest, options: SinkOptions) -> Result<Box<dyn Sink>> {
    let cancel = Cancel::default();
    let http = HttpClient::new(options.http.settings.clone(), &cancel);
    let (peer, records) = (options.http.url.clone(), options.http.records.clone());
    let sender = RowSender { http, options, cancel: cancel.clone(), waiting: VecDeque::new() };
    let sink = MessageSink::new(request.clone(), &records, peer, Box::new(sender), cancel)?;
    Ok(Box::new(sink))
}

/// Sends rows.
struct RowSender {
    http: HttpClient,
    options: SinkOptions,
    cancel: Cancel,
    waiting: VecDeque<(u64, Vec<u8>)>,
}

impl RowSender {
    /// How many of the rows that wait go with the next request.
    fn next_rows(&self) -> usize {
        let mut bytes = 0;
        let fits = |(_, row): &&(u64, Vec<u8>)| {
            bytes += row.len() + 1;
            bytes <= self.options.bytes_max
        };
        let rows = self.waiting.iter().take(self.options.rows_max).take_while(fits).count();
        rows.max(1).min(self.waiting.len())
    }

    /// The body of a request with these rows, and its type.
    fn body(&self, rows: usize) -> (Vec<u8>, &'static str) {
        let content_type = match self.options.http.records.format {
            Format::Json(_) | Format::Changes(_) => "application/json",
            Format::Csv(_) => "text/csv",
            _ => "application/octet-stream",
        };
        let rows = self.waiting.iter().take(rows).map(|(_, row)| row.as_slice());
        let rows: Vec<&[u8]> = rows.collect();
        let body = match (self.options.is_single, content_type) {
            (true, _) => rows.concat(),
            (false, "application/json") => {
                [b"[".as_slice(), &rows.join(b",".as_slice()), b"]"].concat()
            }
            (false, _) => [rows.join(b"\n".as_slice()).as_slice(), b"\n"].concat(),
        };
        (body, content_type)
    }

    fn check(&self, reply: &Reply) -> Attempt<()> {
        let status = reply.status;
        // A server that is elsewhere has not taken them, whatever is said to be an error.
        let is_error = self.options.errors.has(status) || (300..400).contains(&status);
        if !is_error || self.options.excluded.has(status) {
            return Ok(());
        }
        match reply.failure(&self.options.http.url) {
            Failure::Passing(why) => {
                let pause = reply.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
                self.cancel.sleep(pause);
                Err(Failure::Passing(why))
            }
            _ if self.options.drops_refused => Ok(()),
            _ => Err(Failure::Final(self.options.refused(status, &reply.excerpt()))),
        }
    }
}

impl Publisher for RowSender {
    fn connect(&mut self) -> Attempt<()> {
        // All that the server is not known to have comes again.
        self.waiting.clear();
        Ok(())
    }

    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        self.waiting.push_back((number, message.value.clone()));
        Ok(())
    }

    fn acknowledged(&mut self, _waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        while !self.waiting.is_empty() {
            let rows = self.next_rows();
            let (body, content_type) = self.body(rows);
            let more = [("Content-Type", content_type)];
            let (method, url) = (&self.options.method, &self.options.http.url);
            let reply = self.http.send(method, url, &more, &body)?;
            self.check(&reply)?;
            numbers.extend(self.waiting.drain(..rows).map(|(number, _)| number));
        }
        Ok(())
    }
}
