//! Query 4: the average number of pages of the sessions that leave a cart behind.
//!
//! Join with the page types, sessions by user, only those that saw the cart behind the last order,
//! running average. Invariant: one output row for each abandoning session.

use super::super::items::{PageType, page_type_of};
use super::super::rows::{Abandoned, Average, Click};
use super::sessions::{Closed, Sessions, View};
use super::{END_MS, Operator, pass};

/// Parameters of query 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query4 {
    /// A click more than this behind the user's click before starts a session.
    pub timeout_s: i64,
}

impl Default for Query4 {
    fn default() -> Self {
        Query4 { timeout_s: 3_600 }
    }
}

/// The output of query 4: the average behind each abandoning session.
pub fn query_4(
    rows: &[Click],
    parameters: &Query4,
    partition_of_user: &dyn Fn(&i64) -> usize,
) -> Vec<Average> {
    let mut sessions = Sessions::new(parameters.timeout_s, false, partition_of_user);
    let mut average = Running { sessions: 0, pages: 0 };
    let mut output = Vec::new();
    let mut step = |views: Vec<View<PageType>>, watermark_ms| {
        let closed = pass(&mut sessions, views, watermark_ms);
        let abandoned = closed.iter().filter_map(abandoned).collect();
        output.extend(pass(&mut average, abandoned, watermark_ms));
    };
    for click in rows {
        step(view_of(click).into_iter().collect(), click.click_ts_s * 1_000);
    }
    step(vec![], END_MS);
    output
}

fn view_of(click: &Click) -> Option<View<PageType>> {
    let value = page_type_of(click.web_page?);
    Some(View { user: click.user?, ts_s: click.click_ts_s, value })
}

/// The session, if its last cart page comes behind its last order page.
fn abandoned(session: &Closed<PageType>) -> Option<Abandoned> {
    let last = |wanted| session.values.iter().rposition(|&page| page == wanted);
    let pages = session.values.len() as i64;
    (last(PageType::Dynamic) > last(PageType::Order))
        .then_some(Abandoned { user: session.user, pages })
}

/// Sum and count so far.
struct Running {
    sessions: i64,
    pages: i64,
}

impl Operator for Running {
    type Input = Abandoned;
    type Output = Average;

    fn row(&mut self, session: Abandoned, output: &mut Vec<Average>) {
        self.sessions += 1;
        self.pages += session.pages;
        let average_tenths = (self.pages * 20 + self.sessions) / (self.sessions * 2);
        output.push(Average { sessions: self.sessions, pages: self.pages, average_tenths });
    }

    fn timers(&mut self, _watermark_ms: i64, _output: &mut Vec<Average>) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::of_number;
    use super::*;
    use crate::tpcx_bb::{ClickSettings, generate_clicks};

    /// (sessions, pages) of the abandoning sessions, each user's clicks by themselves.
    fn batch(clicks: &[Click]) -> (i64, i64) {
        let mut of_user: BTreeMap<i64, Vec<(i64, PageType)>> = BTreeMap::new();
        for click in clicks {
            if let (Some(user), Some(page)) = (click.user, click.web_page) {
                of_user.entry(user).or_default().push((click.click_ts_s, page_type_of(page)));
            }
        }
        let (mut sessions, mut pages) = (0, 0);
        for views in of_user.values() {
            for session in views.chunk_by(|left, right| right.0 - left.0 <= 3_600) {
                let mut types = session.iter().rev().map(|view| view.1);
                let deciding =
                    types.find(|page| matches!(page, PageType::Dynamic | PageType::Order));
                if deciding == Some(PageType::Dynamic) {
                    sessions += 1;
                    pages += session.len() as i64;
                }
            }
        }
        (sessions, pages)
    }

    #[test]
    fn the_last_average_is_that_of_a_batch() {
        let clicks = generate_clicks(&ClickSettings::with_sessions(3_600));
        let output = query_4(&clicks, &Query4::default(), &of_number);
        let last = output.last().expect("sessions that leave a cart behind");
        assert_eq!((last.sessions, last.pages), batch(&clicks));
        assert!(last.sessions > 200, "{last:?}");
        assert_eq!(output.len() as i64, last.sessions);
        let average = last.pages as f64 / last.sessions as f64;
        assert!((last.average_tenths as f64 / 10.0 - average).abs() <= 0.05);
    }

    #[test]
    fn a_cart_behind_the_last_order_is_abandoned() {
        use PageType::{Dynamic, General, Order};
        let is_abandoned =
            |values: &[PageType]| abandoned(&Closed { user: 1, values: values.to_vec() }).is_some();
        assert!(is_abandoned(&[General, Dynamic]));
        assert!(is_abandoned(&[Dynamic, Order, Dynamic, General]));
        assert!(!is_abandoned(&[Dynamic, Order]));
        assert!(!is_abandoned(&[General]));
        assert!(!is_abandoned(&[Order]));
    }

    #[test]
    fn half_tenths_round_up() {
        let mut running = Running { sessions: 19, pages: 189 };
        let mut output = Vec::new();
        running.row(Abandoned { user: 1, pages: 2 }, &mut output);
        assert_eq!(output, vec![Average { sessions: 20, pages: 191, average_tenths: 96 }]);
    }
}
