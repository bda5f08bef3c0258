//! A session: queries with their rows, `COPY`, and the stream of a replication.

use std::time::Duration;

use bytes::Bytes;
use thalweg_core::Error;

use super::failure::{Failure, Outcome, ServerError};
use super::messages::{Message, next_message, put};
use super::settings::Settings;
use super::sign_in::sign_in;
use crate::network::Cancel;
use crate::network::wire::Wire;

/// The settings of every session: values have one text form, whatever the server's defaults are.
/// The server, too, notices soon that its peer has gone, and then ends what it holds.
const SESSION: &str = "SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET extra_float_digits = 3; \
    SET bytea_output = 'hex'; SET intervalstyle = 'postgres'; SET standard_conforming_strings = on; \
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";

/// Queries may take any time; a peer that has gone is noticed by the operating system.
const ANY_TIME: Duration = Duration::from_secs(u32::MAX as u64);

/// Bytes of a message of `COPY`.
const COPY_BYTES: usize = 64 << 10;

/// A session.
pub struct Connection {
    wire: Wire,
    is_broken: bool,
}

/// A row of a result: its values as text.
#[derive(Clone, Debug)]
pub struct Row(Bytes);

impl Row {
    /// The values, in order.
    pub fn values(&self) -> Values<'_> {
        Values(&self.0[2.min(self.0.len())..])
    }

    /// The message.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The values as texts of their own.
    ///
    /// # Errors
    /// If one is not UTF-8.
    pub fn texts(&self) -> Outcome<Vec<Option<String>>> {
        let text = |value: Option<&[u8]>| match value {
            None => Ok(None),
            Some(bytes) => utf8(bytes).map(|text| Some(text.to_owned())),
        };
        self.values().map(text).collect()
    }
}

/// A text of the server.
///
/// # Errors
/// If it is not UTF-8.
pub fn utf8(bytes: &[u8]) -> Outcome<&str> {
    let bad = |_| Error::data("a text of the server is not UTF-8");
    Ok(std::str::from_utf8(bytes).map_err(bad)?)
}

/// The values of a row.
pub struct Values<'a>(&'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;
    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            self.0 = rest;
            return Some(None);
        };
        let (value, rest) = rest.split_at(length.min(rest.len()));
        self.0 = rest;
        Some(Some(value))
    }
}

impl Connection {
    /// Connects and signs in.
    ///
    /// # Errors
    /// If the server can't be reached or refuses.
    pub fn open(settings: &Settings, cancel: &Cancel) -> Outcome<Connection> {
        Self::open_with(settings, &[], cancel)
    }

    /// Connects and signs in for a replication. Queries work as well.
    ///
    /// # Errors
    /// If the server can't be reached or refuses.
    pub fn open_replication(settings: &Settings, cancel: &Cancel) -> Outcome<Connection> {
        Self::open_with(settings, &[("replication", "database")], cancel)
    }

    fn open_with(
        settings: &Settings,
        parameters: &[(&str, &str)],
        cancel: &Cancel,
    ) -> Outcome<Connection> {
        let wire = sign_in(settings, parameters, cancel)?;
        let mut connection = Connection { wire, is_broken: false };
        connection.execute(SESSION)?;
        if let Some(path) = &settings.search_path {
            connection.execute(&format!("SET search_path = {}", super::literal(path)))?;
        }
        Ok(connection)
    }

    /// True if the session is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Runs statements. How many rows the last one has changed.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken.
    pub fn execute(&mut self, sql: &str) -> Outcome<u64> {
        self.query_each(sql, &mut |_| Ok(()))
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken.
    pub fn query(&mut self, sql: &str) -> Outcome<Vec<Vec<Option<String>>>> {
        let mut rows = Vec::new();
        self.query_each(sql, &mut |row| {
            rows.push(row.texts()?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The only value of a query that has one.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken.
    pub fn query_value(&mut self, sql: &str) -> Outcome<Option<String>> {
        let first = self.query(sql)?.into_iter().next();
        Ok(first.and_then(|row| row.into_iter().next()).flatten())
    }

    /// Runs a query, row by row as they come.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken; what `take` says, and then the session
    /// is of no use any more.
    pub fn query_each(
        &mut self,
        sql: &str,
        take: &mut dyn FnMut(Row) -> Outcome<()>,
    ) -> Outcome<u64> {
        let result = self.send_query(sql).and_then(|()| self.read_rows(take));
        self.noted(result)
    }

    /// Copies rows, in the text form of `COPY`, into a table.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken.
    pub fn copy_in(&mut self, sql: &str, rows: &str) -> Outcome<u64> {
        let result = self.try_copy_in(sql, rows);
        self.noted(result)
    }

    /// Begins the stream of a replication.
    ///
    /// # Errors
    /// If the server refuses, or the connection has broken.
    pub fn start_stream(&mut self, sql: &str) -> Outcome<()> {
        let result = self.send_query(sql).and_then(|()| self.expect(b'W'));
        self.noted(result)
    }

    /// The next part of the stream, if it comes soon.
    ///
    /// # Errors
    /// If the server ends the stream, or the connection has broken.
    pub fn poll_stream(&mut self) -> Outcome<Option<Bytes>> {
        loop {
            let Some(message) = self.wire.next(true, next_message)? else { return Ok(None) };
            match message.tag {
                b'd' => return Ok(Some(message.body)),
                b'E' => return Err(Failure::Server(ServerError::read(&message.body))),
                b'c' => return Err(Failure::Broken("the server has ended the stream".to_owned())),
                _ => {}
            }
        }
    }

    /// Sends a part of the stream.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn send_stream(&mut self, part: &[u8]) -> Outcome<()> {
        put(&mut self.wire.output, b'd', part);
        Ok(self.wire.flush()?)
    }

    fn noted<T>(&mut self, result: Outcome<T>) -> Outcome<T> {
        self.is_broken |= !matches!(result, Ok(_) | Err(Failure::Server(_)));
        result
    }

    fn send_query(&mut self, sql: &str) -> Outcome<()> {
        if sql.as_bytes().contains(&0) {
            return Err(Error::data(
                "a text holds the character NUL, which PostgreSQL can't store",
            )
            .into());
        }
        put(&mut self.wire.output, b'Q', &[sql.as_bytes(), &[0]].concat());
        Ok(self.wire.flush()?)
    }

    fn read_rows(&mut self, take: &mut dyn FnMut(Row) -> Outcome<()>) -> Outcome<u64> {
        let (mut changed, mut refused) = (0, None);
        loop {
            let Message { tag, body } = self.wire.wait_next(ANY_TIME, next_message)?;
            match tag {
                b'D' => take(Row(body))?,
                b'C' => changed = rows_changed(&body),
                b'E' => refused = Some(ServerError::read(&body)),
                b'Z' => return refused.map_or(Ok(changed), |error| Err(Failure::Server(error))),
                _ => {}
            }
        }
    }

    fn try_copy_in(&mut self, sql: &str, rows: &str) -> Outcome<u64> {
        self.send_query(sql)?;
        self.expect(b'G')?;
        for part in rows.as_bytes().chunks(COPY_BYTES) {
            put(&mut self.wire.output, b'd', part);
            self.wire.flush()?;
        }
        put(&mut self.wire.output, b'c', &[]);
        self.wire.flush()?;
        self.read_rows(&mut |_| Ok(()))
    }

    /// Waits for an answer that begins something.
    fn expect(&mut self, tag: u8) -> Outcome<()> {
        loop {
            let message = self.wire.wait_next(ANY_TIME, next_message)?;
            match message.tag {
                found if found == tag => return Ok(()),
                b'E' => {
                    let error = ServerError::read(&message.body);
                    while self.wire.wait_next(ANY_TIME, next_message)?.tag != b'Z' {}
                    return Err(Failure::Server(error));
                }
                b'Z' => {
                    return Err(Failure::Broken("the server answers something else".to_owned()));
                }
                _ => {}
            }
        }
    }
}

/// The number at the end of a command's tag: `INSERT 0 5`.
fn rows_changed(tag: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(tag);
    let text = text.trim_end_matches('\0');
    text.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
