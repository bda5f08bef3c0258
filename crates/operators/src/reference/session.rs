//! Sessions: windows that grow with their rows.

use std::collections::BTreeMap;

use super::{Cell, Value};

struct Session {
    start: i64,
    end: i64,
    rows: Vec<(u64, Vec<Value>)>,
}

/// The open sessions of every key.
#[derive(Default)]
pub(super) struct Sessions {
    open: BTreeMap<Vec<Value>, Vec<Session>>,
    closed: Vec<(Vec<Value>, Session)>,
    arrivals: u64,
}

impl Sessions {
    /// Closes what this watermark closes.
    pub fn close(&mut self, watermark: i64, cells: &mut BTreeMap<Cell, Vec<Vec<Value>>>) {
        for (key, sessions) in &mut self.open {
            let (done, open): (Vec<_>, Vec<_>) =
                sessions.drain(..).partition(|session| session.end - 1 <= watermark);
            *sessions = open;
            self.closed.extend(done.into_iter().map(|session| (key.clone(), session)));
        }
        for (key, mut session) in self.closed.drain(..) {
            session.rows.sort_by_key(|(arrival, _)| *arrival);
            let rows = session.rows.into_iter().map(|(_, row)| row).collect();
            cells.insert((session.end, session.start, key), rows);
        }
    }

    /// Adds a row to the sessions that it touches, which become one; gives it back if it is late:
    /// the session that it would be part of is closed by the watermark before it.
    pub fn add(
        &mut self,
        key: Vec<Value>,
        time: i64,
        gap: i64,
        row: Vec<Value>,
        before: i64,
    ) -> Result<(), Vec<Value>> {
        let sessions = self.open.entry(key).or_default();
        // A session at an exact distance of the gap is touched too, as in Flink.
        let touches = |s: &Session| s.start <= time + gap && time <= s.end && s.end - 1 > before;
        let (touched, others): (Vec<_>, Vec<_>) = sessions.drain(..).partition(touches);
        *sessions = others;
        let mut merged = Session { start: time, end: time + gap, rows: Vec::new() };
        for session in touched {
            merged.start = merged.start.min(session.start);
            merged.end = merged.end.max(session.end);
            merged.rows.extend(session.rows);
        }
        if merged.end - 1 <= before {
            return Err(row);
        }
        merged.rows.push((self.arrivals, row));
        self.arrivals += 1;
        sessions.push(merged);
        Ok(())
    }
}
