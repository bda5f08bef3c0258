//! Query 2: SL → PS by user → SL → PS by pair → SF.

use std::sync::Arc;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{KeyContext, PackedRows, RowOperator, Rows};

use super::super::{Click, PairTotal, Query2, Session};
use super::sessions::{Sessions, View};
use super::top::TopAtEnd;

/// The pairs of items most viewed together in a session.
pub fn query_2(
    pipeline: &Pipeline,
    clicks: PackedRows<Click>,
    parameters: &Query2,
    partitions: usize,
) -> Rows<PairTotal> {
    let query = Arc::new(parameters.clone());
    let order = |total: &PairTotal| (-total.count, total.first, total.second);
    pipeline
        .read_packed_rows("web_clickstreams", clicks, 0)
        .stateless("known users and items", |click, out| {
            if let (Some(user), Some(value)) = (click.user, click.item) {
                out.emit(View { user, ts_s: click.click_ts_s, value });
            }
        })
        .key_by(partitions, |view: &View<i64>| view.user)
        .process("sessions", Sessions { timeout_s: parameters.timeout_s, distinct: true })
        .stateless("pairs of a session", move |(user, items): (i64, Vec<i64>), out| {
            let pairs = query.pairs_of(&Session { user, items });
            pairs.into_iter().for_each(|pair| out.emit(pair));
        })
        .key_by(partitions, |&pair: &(i64, i64)| pair)
        .process("counts per pair", Totals)
        .process_alone("first pairs", TopAtEnd { top: parameters.top, order })
}

/// How often a pair was viewed, emitted at the end.
struct Totals;

impl RowOperator<(i64, i64), (i64, i64)> for Totals {
    type State = i64;
    type Out = PairTotal;

    fn row(
        &self,
        _: &(i64, i64),
        count: &mut i64,
        _: (i64, i64),
        context: &mut KeyContext<PairTotal>,
    ) {
        *count += 1;
        if *count == 1 {
            context.set_timer_at_end();
        }
    }

    fn timer(
        &self,
        &(first, second): &(i64, i64),
        count: &mut i64,
        _: i64,
        context: &mut KeyContext<PairTotal>,
    ) {
        context.emit(PairTotal { first, second, count: *count });
    }
}
