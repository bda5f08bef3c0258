//! Query 2: the pairs of items most often viewed together in a session.
//!
//! Filter, sessions by user, all pairs of a session's distinct items, counts by pair, the first
//! pairs at the end of the input. Nothing is reported before the end.

use std::collections::HashMap;

use super::super::rows::{Click, PairTotal, Session};
use super::sessions::{Sessions, View};
use super::{END_MS, Operator, SESSION_GRID_MS, Timers, pass};

/// Parameters of query 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query2 {
    /// A click more than this behind the user's click before starts a session.
    pub timeout_s: i64,
    /// Pairs to report.
    pub top: usize,
    /// Only pairs with this item, if given.
    pub only_item: Option<i64>,
}

impl Default for Query2 {
    fn default() -> Self {
        Query2 { timeout_s: 3_600, top: 30, only_item: None }
    }
}

impl Query2 {
    /// All pairs (smaller, larger) of a session's items, by the first view of the one and then of
    /// the other.
    pub fn pairs_of(&self, session: &Session) -> Vec<(i64, i64)> {
        let mut pairs = Vec::new();
        for (index, &earlier) in session.items.iter().enumerate() {
            for &later in &session.items[index + 1..] {
                if self.only_item.is_none_or(|item| item == earlier || item == later) {
                    pairs.push((earlier.min(later), earlier.max(later)));
                }
            }
        }
        pairs
    }
}

/// The output of query 2: the first pairs by (count descending, first, second).
pub fn query_2(
    rows: &[Click],
    parameters: &Query2,
    partition_of_user: &dyn Fn(&i64) -> usize,
    partition_of_pair: &dyn Fn(&(i64, i64)) -> usize,
) -> Vec<PairTotal> {
    let mut sessions = Sessions::new(parameters.timeout_s, true, partition_of_user);
    let mut totals = Totals::new(partition_of_pair);
    let mut first = First { top: parameters.top, totals: Vec::new() };
    let mut output = Vec::new();
    let mut step = |views: Vec<View<i64>>, watermark_ms| {
        let closed = pass(&mut sessions, views, watermark_ms);
        let mut pairs = Vec::new();
        for session in closed {
            pairs.extend(
                parameters.pairs_of(&Session { user: session.user, items: session.values }),
            );
        }
        let pair_totals = pass(&mut totals, pairs, watermark_ms);
        output.extend(pass(&mut first, pair_totals, watermark_ms));
    };
    for click in rows {
        step(view_of(click).into_iter().collect(), click.click_ts_s * 1_000);
    }
    step(vec![], END_MS);
    output
}

fn view_of(click: &Click) -> Option<View<i64>> {
    Some(View { user: click.user?, ts_s: click.click_ts_s, value: click.item? })
}

/// How often each pair came.
struct Totals<'a> {
    counts: HashMap<(i64, i64), i64>,
    timers: Timers<'a, (i64, i64)>,
}

impl<'a> Totals<'a> {
    fn new(partition: &'a dyn Fn(&(i64, i64)) -> usize) -> Self {
        Totals { counts: HashMap::new(), timers: Timers::new(SESSION_GRID_MS, partition) }
    }
}

impl Operator for Totals<'_> {
    type Input = (i64, i64);
    type Output = PairTotal;

    fn row(&mut self, pair: (i64, i64), _output: &mut Vec<PairTotal>) {
        let count = self.counts.entry(pair).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.timers.ask_at_end(&pair);
        }
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<PairTotal>) {
        for (_, (first, second)) in self.timers.due(watermark_ms) {
            let count = self.counts[&(first, second)];
            output.push(PairTotal { first, second, count });
        }
    }
}

/// All totals, until the end.
struct First {
    top: usize,
    totals: Vec<PairTotal>,
}

impl Operator for First {
    type Input = PairTotal;
    type Output = PairTotal;

    fn row(&mut self, total: PairTotal, _output: &mut Vec<PairTotal>) {
        self.totals.push(total);
    }

    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<PairTotal>) {
        if watermark_ms == END_MS {
            self.totals.sort_by_key(|total| (-total.count, total.first, total.second));
            output.extend(self.totals.drain(..).take(self.top));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::testing::{of_number, of_pair};
    use super::*;
    use crate::tpcx_bb::{ClickSettings, generate_clicks};

    /// Sets of items of all sessions: each user's clicks by themselves.
    fn batch(clicks: &[Click]) -> Vec<BTreeSet<i64>> {
        let mut of_user: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for click in clicks {
            if let (Some(user), Some(item)) = (click.user, click.item) {
                of_user.entry(user).or_default().push((click.click_ts_s, item));
            }
        }
        let mut sessions = Vec::new();
        for views in of_user.values_mut() {
            views.sort_unstable();
            for session in views.chunk_by(|left, right| right.0 - left.0 <= 3_600) {
                sessions.push(session.iter().map(|view| view.1).collect());
            }
        }
        sessions
    }

    fn batch_totals(clicks: &[Click], keeps: impl Fn(i64, i64) -> bool) -> Vec<PairTotal> {
        let mut counts: HashMap<(i64, i64), i64> = HashMap::new();
        for items in batch(clicks) {
            for &first in &items {
                for &second in items.range(first + 1..).filter(|&&second| keeps(first, second)) {
                    *counts.entry((first, second)).or_default() += 1;
                }
            }
        }
        let total = |((first, second), count)| PairTotal { first, second, count };
        let mut totals: Vec<PairTotal> = counts.into_iter().map(total).collect();
        totals.sort_by_key(|total| (-total.count, total.first, total.second));
        totals.truncate(30);
        totals
    }

    #[test]
    fn pairs_are_those_of_a_batch() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(3_600));
        let output = query_2(&clicks, &Query2::default(), &of_number, &of_pair);
        assert_eq!(output.len(), 30);
        assert_eq!(output, batch_totals(&clicks, |_, _| true));
    }

    #[test]
    fn pairs_of_one_item_are_those_of_a_batch() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(3_600));
        let query = Query2 { only_item: Some(10_001), ..Query2::default() };
        let output = query_2(&clicks, &query, &of_number, &of_pair);
        assert_eq!(output.len(), 30);
        let expected = batch_totals(&clicks, |first, second| first == 10_001 || second == 10_001);
        assert_eq!(output, expected);
    }

    #[test]
    fn sessions_close_at_the_next_click_or_at_a_timer() {
        let view = |user, ts_s, value| View { user, ts_s, value };
        let mut sessions = Sessions::new(3_600, true, &of_number);
        let mut closed = |views: Vec<View<i64>>, watermark_ms| -> Vec<(i64, Vec<i64>)> {
            let closed = pass(&mut sessions, views, watermark_ms);
            closed.into_iter().map(|session| (session.user, session.values)).collect()
        };
        assert_eq!(closed(vec![view(1, 59, 7)], 59_000), vec![]);
        assert_eq!(closed(vec![view(1, 3_659, 8)], 3_659_000), vec![]);
        assert_eq!(closed(vec![view(2, 7_259, 5)], 7_259_000), vec![]);
        assert_eq!(closed(vec![view(1, 7_260, 9)], 7_260_000), vec![(1, vec![7, 8])]);
        assert_eq!(closed(vec![], 10_859_000), vec![]);
        assert_eq!(closed(vec![], 10_860_000), vec![(2, vec![5])]);
        assert_eq!(closed(vec![], END_MS), vec![(1, vec![9])]);
    }

    #[test]
    fn pairs_of_a_session_come_by_first_view() {
        let session = Session { user: 1, items: vec![5, 9, 2] };
        assert_eq!(Query2::default().pairs_of(&session), vec![(5, 9), (2, 5), (2, 9)]);
    }
}
