//! Query 1: SL → PS by ticket → PS by pair → SF.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{KeyContext, PackedRows, RowOperator, Rows};

use super::super::oracle::HOUR_GRID_MS;
use super::super::{HOUR_S, Pair, PairCount, Query1, Sale};

/// The pairs of items most often sold together in stores, each hour.
pub fn query_1(
    pipeline: &Pipeline,
    sales: PackedRows<Sale>,
    parameters: &Query1,
    partitions: usize,
) -> Rows<PairCount> {
    let selected = Arc::new(parameters.clone());
    pipeline
        .read_packed_rows("store_sales", sales, 0)
        .filter("stores and categories", move |sale| selected.selects(sale))
        .key_by(partitions, |sale| sale.ticket)
        .process("pairs of a ticket", Tickets)
        .key_by(partitions, |pair: &Pair| (pair.first, pair.second))
        .process("counts per pair", Counts { pair_count_min: parameters.pair_count_min })
        .process_alone("first pairs of the hour", First { top: parameters.top })
}

fn end_of_hour_ms(hour: i64) -> i64 {
    (hour + 1) * HOUR_GRID_MS
}

/// The distinct items of a ticket in each hour.
struct Tickets;

impl RowOperator<i64, Sale> for Tickets {
    type State = BTreeMap<i64, Vec<i64>>;
    type Out = Pair;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(HOUR_GRID_MS)
    }

    fn row(&self, _: &i64, hours: &mut Self::State, sale: Sale, context: &mut KeyContext<Pair>) {
        let hour = sale.sold_ts_s.div_euclid(HOUR_S);
        let items = hours.entry(hour).or_default();
        if items.contains(&sale.item) {
            return;
        }
        for &earlier in items.iter() {
            let (first, second) = (earlier.min(sale.item), earlier.max(sale.item));
            context.emit(Pair { hour, first, second });
        }
        items.push(sale.item);
        context.set_timer(end_of_hour_ms(hour));
    }

    fn timer(&self, _: &i64, hours: &mut Self::State, at_ms: i64, context: &mut KeyContext<Pair>) {
        hours.retain(|&hour, _| end_of_hour_ms(hour) > at_ms);
        if hours.is_empty() {
            context.forget();
        }
    }
}

/// How often a pair came in each hour.
struct Counts {
    pair_count_min: i64,
}

impl RowOperator<(i64, i64), Pair> for Counts {
    type State = BTreeMap<i64, i64>;
    type Out = PairCount;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(HOUR_GRID_MS)
    }

    fn row(
        &self,
        _: &(i64, i64),
        hours: &mut Self::State,
        pair: Pair,
        context: &mut KeyContext<PairCount>,
    ) {
        let count = hours.entry(pair.hour).or_default();
        *count += 1;
        if *count == 1 {
            context.set_timer(end_of_hour_ms(pair.hour));
        }
    }

    fn timer(
        &self,
        &(first, second): &(i64, i64),
        hours: &mut Self::State,
        at_ms: i64,
        context: &mut KeyContext<PairCount>,
    ) {
        while let Some(entry) = hours.first_entry() {
            if end_of_hour_ms(*entry.key()) > at_ms {
                break;
            }
            let (hour, count) = entry.remove_entry();
            if count >= self.pair_count_min {
                context.emit(PairCount { hour, first, second, count });
            }
        }
        if hours.is_empty() {
            context.forget();
        }
    }
}

/// The pairs of each hour that is not reported yet.
struct First {
    top: usize,
}

impl RowOperator<(), PairCount> for First {
    type State = BTreeMap<i64, Vec<PairCount>>;
    type Out = PairCount;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(HOUR_GRID_MS)
    }

    fn row(
        &self,
        _: &(),
        hours: &mut Self::State,
        pair: PairCount,
        context: &mut KeyContext<PairCount>,
    ) {
        context.set_timer(end_of_hour_ms(pair.hour));
        hours.entry(pair.hour).or_default().push(pair);
    }

    fn timer(
        &self,
        _: &(),
        hours: &mut Self::State,
        at_ms: i64,
        context: &mut KeyContext<PairCount>,
    ) {
        while let Some(entry) = hours.first_entry() {
            if end_of_hour_ms(*entry.key()) > at_ms {
                break;
            }
            let mut pairs = entry.remove();
            pairs.sort_by_key(|pair| (-pair.count, pair.first, pair.second));
            pairs.into_iter().take(self.top).for_each(|pair| context.emit(pair));
        }
    }
}
