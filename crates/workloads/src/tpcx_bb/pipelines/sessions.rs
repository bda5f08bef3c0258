//! Sessions of users.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thalweg::rows::{KeyContext, RowOperator};

use super::super::oracle::SESSION_GRID_MS;

/// What a session takes of one click.
#[derive(Serialize, Deserialize)]
pub(super) struct View<V> {
    pub user: i64,
    pub ts_s: i64,
    pub value: V,
}

/// A closed session: the user and the values in order.
pub(super) type Closed<V> = (i64, Vec<V>);

/// Collects the clicks of each user into sessions.
pub(super) struct Sessions {
    pub timeout_s: i64,
    /// Keeps each value once for a session.
    pub distinct: bool,
}

/// The session of one user that is open, if it has values.
#[derive(Serialize, Deserialize)]
pub(super) struct Open<V> {
    last_ts_s: i64,
    values: Vec<V>,
}

impl<V> Default for Open<V> {
    fn default() -> Self {
        Open { last_ts_s: 0, values: Vec::new() }
    }
}

impl<V> RowOperator<i64, View<V>> for Sessions
where
    V: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static,
{
    type State = Open<V>;
    type Out = Closed<V>;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(SESSION_GRID_MS)
    }

    fn row(
        &self,
        user: &i64,
        open: &mut Open<V>,
        view: View<V>,
        context: &mut KeyContext<Closed<V>>,
    ) {
        if !open.values.is_empty() && view.ts_s - open.last_ts_s > self.timeout_s {
            context.emit((*user, std::mem::take(&mut open.values)));
        }
        open.last_ts_s = view.ts_s;
        if !self.distinct || !open.values.contains(&view.value) {
            open.values.push(view.value);
        }
        context.set_timer((view.ts_s + self.timeout_s) * 1000 + 1);
    }

    fn timer(
        &self,
        user: &i64,
        open: &mut Open<V>,
        at_ms: i64,
        context: &mut KeyContext<Closed<V>>,
    ) {
        if open.values.is_empty() {
            context.forget();
        } else if (open.last_ts_s + self.timeout_s) * 1000 < at_ms {
            context.emit((*user, std::mem::take(&mut open.values)));
            context.forget();
        }
    }
}
