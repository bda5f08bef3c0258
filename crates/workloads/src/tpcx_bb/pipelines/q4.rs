//! Query 4: SL → PS by user → SL → SF.

use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Rows};

use super::super::{Abandoned, Average, Click, PageType, Query4, page_type_of};
use super::sessions::{Sessions, View};

/// The average number of pages of sessions that leave a cart behind.
pub fn query_4(
    pipeline: &Pipeline,
    clicks: PackedRows<Click>,
    parameters: &Query4,
    partitions: usize,
) -> Rows<Average> {
    pipeline
        .read_packed_rows("web_clickstreams", clicks, 0)
        .stateless("known users and pages", |click: Click, out| {
            if let (Some(user), Some(page)) = (click.user, click.web_page) {
                out.emit(View { user, ts_s: click.click_ts_s, value: page_type_of(page) });
            }
        })
        .key_by(partitions, |view: &View<PageType>| view.user)
        .process("sessions", Sessions { timeout_s: parameters.timeout_s, distinct: false })
        .stateless("abandoned carts", |(user, types): (i64, Vec<PageType>), out| {
            let last = |wanted| types.iter().rposition(|&page| page == wanted);
            if last(PageType::Dynamic) > last(PageType::Order) {
                out.emit(Abandoned { user, pages: types.len() as i64 });
            }
        })
        .singleton("running average", |sums: &mut (i64, i64), session: Abandoned, out| {
            sums.0 += 1;
            sums.1 += session.pages;
            let (sessions, pages) = *sums;
            let average_tenths = (pages * 20 + sessions) / (sessions * 2);
            out.emit(Average { sessions, pages, average_tenths });
        })
}
