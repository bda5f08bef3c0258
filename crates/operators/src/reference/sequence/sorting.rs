//! ORDER BY, at the end and by row time.

use std::cmp::Ordering;

use super::steps::{Step, Values, time_of};
use crate::reference::Value;
use crate::sort::SortKey;

/// Compares by the keys. NULL is the smallest value, unless a key says where it goes.
fn compare(keys: &[SortKey], a: &[Value], b: &[Value]) -> Ordering {
    let by_key = |key: &SortKey| {
        let (a, b) = (&a[key.column], &b[key.column]);
        match (a.is_null(), b.is_null(), key.nulls_first) {
            (true, false, Some(first)) => {
                return if first { Ordering::Less } else { Ordering::Greater };
            }
            (false, true, Some(first)) => {
                return if first { Ordering::Greater } else { Ordering::Less };
            }
            _ => {}
        }
        if key.descending { b.cmp(a) } else { a.cmp(b) }
    };
    keys.iter().map(by_key).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// All rows, sorted, at the end of time; ties by arrival.
pub(super) fn at_the_end(keys: &[SortKey], steps: Vec<Step>) -> Vec<Step> {
    let mut rows: Vec<Values> = steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Row { values, .. } => Some(values),
            Step::Watermark(_) => None,
        })
        .collect();
    rows.sort_by(|a, b| compare(keys, a, b));
    let rows = rows.into_iter().map(|values| Step::Row { values, before: i64::MIN });
    rows.chain([Step::Watermark(i64::MAX)]).collect()
}

/// Rows leave when the watermark has passed their time. Late is a row at or before the last time
/// that has been sent on.
pub(super) fn by_time(
    rowtime: usize,
    keys: &[SortKey],
    steps: Vec<Step>,
    late: &mut Vec<Values>,
) -> Vec<Step> {
    let mut waiting: Vec<Values> = Vec::new();
    let mut sent_on = i64::MIN;
    let mut passed = i64::MIN;
    let mut out = Vec::new();
    for step in steps {
        let watermark = match &step {
            Step::Row { before, .. } => *before,
            Step::Watermark(watermark) => *watermark,
        };
        let (mut ready, rest): (Vec<Values>, Vec<Values>) =
            waiting.into_iter().partition(|row| time_of(row, rowtime) <= watermark);
        waiting = rest;
        ready.sort_by(|a, b| {
            time_of(a, rowtime).cmp(&time_of(b, rowtime)).then_with(|| compare(keys, a, b))
        });
        sent_on = ready.last().map_or(sent_on, |row| time_of(row, rowtime));
        out.extend(ready.into_iter().map(|values| Step::Row { values, before: passed }));
        match step {
            Step::Row { values, .. } if time_of(&values, rowtime) <= sent_on => late.push(values),
            Step::Row { values, .. } => waiting.push(values),
            Step::Watermark(watermark) => {
                passed = watermark;
                out.push(step);
            }
        }
    }
    out
}
