//! Query 3: SL → PS by user → SL → PS by item, and the first items at the end.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{Emit, KeyContext, PackedRows, RowOperator, Rows};

use super::super::{Click, ItemCount, Query3, Viewed, category_of};
use super::top::TopAtEnd;

/// The items most viewed before a purchase.
pub fn query_3(
    pipeline: &Pipeline,
    clicks: PackedRows<Click>,
    parameters: &Query3,
    partitions: usize,
) -> Rows<ItemCount> {
    let query = Arc::new(parameters.clone());
    let categories = parameters.categories.clone();
    let order = |count: &ItemCount| (-count.count, count.item);
    pipeline
        .read_packed_rows("web_clickstreams", clicks, 0)
        .filter("known users and items", |click| click.user.is_some() && click.item.is_some())
        .key_by(partitions, |click| click.user)
        .stateful("views before a purchase", move |_, recent, click, out| {
            views_before_purchase(&query, recent, click, out);
        })
        .filter("categories", move |view: &Viewed| categories.contains(&category_of(view.item)))
        .key_by(partitions, |view| view.item)
        .process("counts per item", Counts)
        .process_alone("first items", TopAtEnd { top: parameters.top, order })
}

/// The last rows (time, item) of a user, the oldest first.
type Recent = VecDeque<(i64, i64)>;

fn views_before_purchase(
    query: &Query3,
    recent: &mut Recent,
    click: Click,
    out: &mut Emit<Viewed>,
) {
    let (Some(buyer), Some(item)) = (click.user, click.item) else { return };
    if click.sales.is_some() && item == query.item {
        for &(ts_s, item) in recent.iter() {
            if ts_s >= click.click_ts_s - query.window_s {
                out.emit(Viewed { item, buyer, ts_s });
            }
        }
    }
    recent.push_back((click.click_ts_s, item));
    if recent.len() > query.views {
        recent.pop_front();
    }
}

/// How often an item was viewed, emitted at the end.
struct Counts;

impl RowOperator<i64, Viewed> for Counts {
    type State = i64;
    type Out = ItemCount;

    fn row(&self, _: &i64, count: &mut i64, _: Viewed, context: &mut KeyContext<ItemCount>) {
        *count += 1;
        context.set_timer_at_end();
    }

    fn timer(&self, &item: &i64, count: &mut i64, _: i64, context: &mut KeyContext<ItemCount>) {
        context.emit(ItemCount { item, count: *count });
    }
}
