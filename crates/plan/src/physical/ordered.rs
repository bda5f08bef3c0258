//! What the ordered contracts (`arrival`, `event_time`) ask of a query: nothing that the data do
//! not decide, and inputs sorted by time where they are merged by it.
//!
//! | refused in an ordered contract | why |
//! |---|---|
//! | RAND, NOW, UUID and the like | two runs differ |
//! | `watermark.max-future-skew` | the wall clock decides which rows are quarantined |
//! | calls of a table by key, periodic reloads | the answer depends on when it is asked |
//! | in `event_time`, a table without a row time | its rows have no place in the merge |
//!
//! All but the last can be admitted by `pipeline.order.allow-nondeterministic`: the sequence is
//! then still that of one thread, but runs may differ.
//!
//! A source must deliver its rows in the order of their time to be merged by it.
//! [`TimeOrderedSource`] checks that, or sorts within `source.sort-within`; either way a row out of
//! order fails the job, since its place in the result is over.
//!
//! The order itself is kept by the runtime (merge, reorder buffers); here is only decided what may
//! run under which contract. The page is docs/order.md.

use thalweg_core::graph::{SplitTiming, StageKind};
use thalweg_core::{Error, OrderContract, Result, Source};
use thalweg_expr::Expr;
use thalweg_operators::time_order::TimeOrderedSource;

use super::PlanEnvironment;
use super::scan::ScanPlan;
use crate::catalog::parse_duration;
use crate::catalog::table_options::{SORT_WITHIN, check_slips};
use crate::resolved_table::{ColumnOrigin, ResolvedTable};

/// Refuses expressions whose values the data do not decide.
/// The place is that of the function in the user's text, which the binder has noted by name:
/// expressions of the plan no longer have it.
pub(super) fn check_expressions<'a>(
    mut expressions: impl Iterator<Item = &'a Expr>,
    environment: &PlanEnvironment<'_>,
) -> Result<()> {
    if !environment.order.is_ordered() || environment.allows_nondeterministic {
        return Ok(());
    }
    let Some(function) = expressions.find_map(Expr::undecided_function) else { return Ok(()) };
    let place = environment.undecided.get(&function.name).copied().unwrap_or_default();
    Err(refuse(&format!("the value of {}", function.name), environment.order).at(place))
}

/// Refuses what a table declares against the contract. `is_merged` says that rows of it flow to the
/// results; those of a table that is read before them need no time.
///
/// Checked in every contract: the option `source.sort-within`, and slips in options of all tables.
pub(super) fn check_table(
    table: &ResolvedTable,
    columns: &[usize],
    scan: &ScanPlan,
    is_merged: bool,
    environment: &PlanEnvironment<'_>,
) -> Result<()> {
    sort_within_ms(table)?;
    let connector = environment.places.connectors.find(&scan.request)?;
    check_slips(table, connector.description())?;
    let read = columns.iter().copied().chain(table.watermark.as_ref().map(|w| w.column));
    let computed = read.filter_map(|place| match &table.columns[place].origin {
        ColumnOrigin::Computed(expr) => Some(expr),
        _ => None,
    });
    let watermark = table.watermark.iter().map(|watermark| &watermark.expression);
    check_expressions(computed.chain(watermark), environment)?;
    let order = environment.order;
    if order.is_ordered()
        && environment.max_future_skew_ms.is_some()
        && !environment.allows_nondeterministic
    {
        return Err(refuse("'watermark.max-future-skew'", order));
    }
    let needs_time =
        (order == OrderContract::EventTime && is_merged) || table.options.contains_key(SORT_WITHIN);
    if needs_time && scan.rowtime.is_none() {
        return Err(Error::plan(format!(
            "table '{}' declares no row time, so its rows have no place in the order of time",
            table.name
        ))
        .hint("declare WATERMARK FOR a TIMESTAMP column of it"));
    }
    Ok(())
}

/// What keeps the rows of a stage in order, in the words of docs/order.md.
/// Empty in contract `epoch`.
pub(super) fn describe(kind: &StageKind, inputs: usize, order: OrderContract) -> String {
    if !order.is_ordered() {
        return String::new();
    }
    let merge = match order {
        OrderContract::EventTime => "merge by time",
        _ => "merge by arrival",
    };
    let own = match kind {
        StageKind::Source { .. } | StageKind::Sink(_) => None,
        StageKind::Transform(_) => Some("reorder"),
        StageKind::Operator(operator) if operator.is_singleton() => Some("one at a time"),
        StageKind::Operator(_) => Some("scatter by key, reorder"),
    };
    let words = (inputs > 1).then_some(merge).into_iter().chain(own);
    words.collect::<Vec<_>>().join(", ")
}

/// What the clock decides, in a contract that promises a sequence.
pub(super) fn refuse(what: &str, order: OrderContract) -> Error {
    Error::plan(format!(
        "{what} depends on when the job runs, and 'pipeline.order' = '{order}' promises a sequence \
         that depends on the data alone"
    ))
    .hint(
        "leave it out, or SET 'pipeline.order.allow-nondeterministic' = 'true' if runs may differ",
    )
}

/// The source as the contract wants it: sorted within a bound if its table says so, else checked
/// where inputs are merged by time.
pub(super) fn in_time_order(
    source: Box<dyn Source>,
    table: &ResolvedTable,
    scan: &ScanPlan,
    environment: &PlanEnvironment<'_>,
) -> Result<Box<dyn Source>> {
    let within_ms = sort_within_ms(table)?;
    if within_ms.is_none() && environment.order != OrderContract::EventTime {
        return Ok(source);
    }
    let Some(rowtime) = scan.rowtime.clone() else { return Ok(source) };
    let (name, clock) = (table.name.clone(), environment.clock.clone());
    let merges = environment.order == OrderContract::EventTime;
    Ok(Box::new(TimeOrderedSource::new(source, name, rowtime, within_ms, merges, clock)))
}

/// How a table's rows come to be in the order of time, for EXPLAIN.
pub(super) fn describe_time_order(
    table: &ResolvedTable,
    order: OrderContract,
) -> Result<Option<String>> {
    Ok(match (sort_within_ms(table)?, order) {
        (Some(within_ms), _) => Some(format!("sorted by row time within {within_ms} ms")),
        (None, OrderContract::EventTime) => Some("must be sorted by row time".to_owned()),
        (None, _) => None,
    })
}

/// What a table says about the watermarks of its splits, for EXPLAIN.
pub(super) fn describe_timing(timing: &SplitTiming) -> Vec<String> {
    let of_idle = timing.idle_timeout.map(|timeout| match timeout.is_zero() {
        true => "splits are never idle".to_owned(),
        false => format!("splits are idle after {timeout:?} of silence"),
    });
    let of_group = timing.alignment.as_ref().map(|alignment| {
        format!("reads in step with '{}', within {} ms", alignment.group, alignment.max_drift_ms)
    });
    of_idle.into_iter().chain(of_group).collect()
}

fn sort_within_ms(table: &ResolvedTable) -> Result<Option<i64>> {
    let Some(text) = table.options.get(SORT_WITHIN) else { return Ok(None) };
    let within = parse_duration(text).map_err(|error| {
        let message = format!("table '{}', '{SORT_WITHIN}': {}", table.name, error.message());
        Error::plan(message).hint(error.help().unwrap_or_default().to_owned())
    })?;
    Ok(Some(i64::try_from(within.as_millis()).unwrap_or(i64::MAX)))
}
