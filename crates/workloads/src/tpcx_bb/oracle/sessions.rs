//! Sessions of users, as queries 2 and 4 make them.
//!
//! Invariants: a session closes at the user's first click more than the time-out behind the one
//! before, or at a timer behind the time-out, whichever comes first in sequence; no session is
//! empty. What a session keeps of a click is the query's business.

use std::collections::HashMap;

use super::{Operator, Timers};

/// The grid of the timers that close sessions.
pub const SESSION_GRID_MS: i64 = 60_000;

/// What a session takes of one click.
pub(super) struct View<V> {
    pub user: i64,
    pub ts_s: i64,
    pub value: V,
}

/// A closed session.
pub(super) struct Closed<V> {
    pub user: i64,
    pub values: Vec<V>,
}

struct Open<V> {
    last_ts_s: i64,
    values: Vec<V>,
}

/// Collects the clicks of each user into sessions.
pub(super) struct Sessions<'a, V> {
    timeout_s: i64,
    distinct: bool,
    open: HashMap<i64, Open<V>>,
    timers: Timers<'a, i64>,
}

impl<'a, V> Sessions<'a, V> {
    /// Keeps each value once for a session if `distinct`.
    pub fn new(timeout_s: i64, distinct: bool, partition: &'a dyn Fn(&i64) -> usize) -> Self {
        let timers = Timers::new(SESSION_GRID_MS, partition);
        Sessions { timeout_s, distinct, open: HashMap::new(), timers }
    }

    fn close(&mut self, user: i64, output: &mut Vec<Closed<V>>) {
        if let Some(session) = self.open.remove(&user) {
            output.push(Closed { user, values: session.values });
        }
    }
}

impl<V: PartialEq> Operator for Sessions<'_, V> {
    type Input = View<V>;
    type Output = Closed<V>;

    fn row(&mut self, view: View<V>, output: &mut Vec<Closed<V>>) {
        let last_ts_s = self.open.get(&view.user).map(|session| session.last_ts_s);
        if last_ts_s.is_some_and(|last_ts_s| view.ts_s - last_ts_s > self.timeout_s) {
            self.close(view.user, output);
        }
        let session =
            self.open.entry(view.user).or_insert(Open { last_ts_s: view.ts_s, values: Vec::new() });
        session.last_ts_s = view.ts_s;
        if !self.distinct || !session.values.contains(&view.value) {
            session.values.push(view.value);
        }
        self.timers.ask((view.ts_s + self.timeout_s) * 1_000 + 1, &view.user);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<Closed<V>>) {
        for (point_ms, user) in self.timers.due(watermark_ms) {
            let Some(session) = self.open.get(&user) else { continue };
            if (session.last_ts_s + self.timeout_s) * 1_000 < point_ms {
                self.close(user, output);
            }
        }
    }
}
