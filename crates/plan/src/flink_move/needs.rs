//! Which rows of its tables a job still needs once it was stopped at a watermark.
//!
//! The plan is walked from its result to its tables. A time comes along: what an operator holds up
//! to it was emitted, and what belongs to later times was not. At a table it gives the first row
//! that has to be read again. Operators that hold rows without such a time have no
//! first row: they are refused, each with the reason.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use thalweg_core::{Error, Result};
use thalweg_operators::window::WindowKind;

use crate::logical::changes::window_end_key;
use crate::logical::join::Side;
use crate::logical::{JoinBound, JoinCondition, LogicalKind, Node, Window};
use crate::resolved_table::ResolvedTable;

/// Which rows of a table are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Those that the job has not read: nothing is held of the others.
    Unread,
    /// Those with this row time and later ones, in milliseconds: open windows hold them.
    From(i64),
    /// All rows of a topic: a session that is open may have begun with any of them.
    All,
    /// The table as it is: it ends, and is read before what it is joined with.
    Whole,
}

/// The tables that queries read, by name, with what is needed of them after this watermark.
///
/// # Errors
/// If a query holds what no rows can bring back.
pub fn needs(queries: &[Node], watermark_ms: i64, zone: Tz) -> Result<BTreeMap<String, Need>> {
    let mut walk = Walk { watermark_ms, zone, found: BTreeMap::new() };
    for query in queries {
        walk.node(query, None)?;
    }
    Ok(walk.found)
}

struct Walk {
    watermark_ms: i64,
    zone: Tz,
    found: BTreeMap<String, Need>,
}

impl Walk {
    /// `after`: what reads this node holds its rows, and needs those with later times again.
    fn node(&mut self, node: &Node, after: Option<i64>) -> Result<()> {
        match &node.kind {
            LogicalKind::Scan { table, .. } => self.scan(table, after),
            LogicalKind::WindowAggregate { input, window, .. } => {
                let after = after.unwrap_or(self.watermark_ms);
                self.node(input, Some(self.before_windows(window, after)?))
            }
            LogicalKind::WindowRows { input, window } => {
                let Some(after) = after else {
                    return Err(unmovable(
                        "rows of a windowing function that nothing groups or joins leave at once",
                        "group them by window_start and window_end",
                    ));
                };
                self.node(input, Some(self.before_windows(window, after)?))
            }
            LogicalKind::TopN { input, keys, .. }
            | LogicalKind::Deduplicate { input, keys, .. } => {
                if window_end_key(input, keys).is_none() {
                    return Err(unmovable(
                        "the first or last rows of keys without a window are held for ever",
                        "PARTITION BY window_start and window_end as well",
                    ));
                }
                self.node(input, Some(after.unwrap_or(self.watermark_ms)))
            }
            LogicalKind::Join { left, right, condition, .. } => {
                self.join(left, right, condition, after)
            }
            kind => match held_for_ever(kind) {
                Some((what, hint)) => Err(unmovable(what, hint)),
                None => node.inputs().into_iter().try_for_each(|input| self.node(input, after)),
            },
        }
    }

    fn join(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &JoinCondition,
        after: Option<i64>,
    ) -> Result<()> {
        match condition.bound {
            JoinBound::Window { .. } => {
                let after = Some(after.unwrap_or(self.watermark_ms));
                self.node(left, after)?;
                self.node(right, after)
            }
            JoinBound::Build(side) => {
                let (whole, stream) = match side {
                    Side::Left => (left, right),
                    Side::Right => (right, left),
                };
                self.whole(whole)?;
                self.node(stream, after)
            }
            JoinBound::Lookup => self.node(left, after),
            JoinBound::None => Err(unmovable(
                "a join without a window holds the rows of both sides for ever",
                "join windows, or with a table that ends",
            )),
            JoinBound::Interval { .. } => Err(unmovable(
                "a join within an interval emits a pair when its second row comes, so that no watermark says which were emitted",
                "join windows",
            )),
            JoinBound::Version { .. } => Err(unmovable(
                "a temporal join holds the newest version of each key for ever",
                "join with a table that ends, or one that is looked up",
            )),
        }
    }

    /// The tables of a side that is read to its end first.
    fn whole(&mut self, node: &Node) -> Result<()> {
        if let LogicalKind::Scan { table, .. } = &node.kind {
            return self.add(table, Need::Whole);
        }
        node.inputs().into_iter().try_for_each(|input| self.whole(input))
    }

    fn scan(&mut self, table: &ResolvedTable, after: Option<i64>) -> Result<()> {
        self.add(
            table,
            match after {
                None => Need::Unread,
                Some(i64::MIN) => Need::All,
                Some(after) => Need::From(after.saturating_add(1)),
            },
        )
    }

    fn add(&mut self, table: &ResolvedTable, need: Need) -> Result<()> {
        let known = self.found.get(&table.name).copied();
        let both = match (known, need) {
            (None, need) => need,
            (Some(Need::From(known)), Need::From(other)) => Need::From(known.min(other)),
            (Some(known), need) if known == need => need,
            (Some(Need::All), Need::From(_)) | (Some(Need::From(_)), Need::All) => Need::All,
            _ => {
                let name = &table.name;
                return Err(unmovable(
                    &format!(
                        "the table '{name}' is read by queries that would begin at different rows"
                    ),
                    "declare it once for each of them, under other names",
                ));
            }
        };
        self.found.insert(table.name.clone(), both);
        Ok(())
    }

    /// The last instant before the first window that ends behind this time, that is whose
    /// `window_time` is later; the least one if it may have begun at any time.
    fn before_windows(&self, window: &Window, after: i64) -> Result<i64> {
        if window.id.by_clock {
            return Err(unmovable(
                "windows of processing time depend on when rows are read",
                "use windows of a row time",
            ));
        }
        let WindowKind::Aligned(spec) = &window.kind else { return Ok(i64::MIN) };
        if after == i64::MIN {
            return Ok(after);
        }
        let next = after.saturating_add(1);
        let windows = spec.assign(next);
        let start = if window.is_instant && self.zone != Tz::UTC {
            // These begin by the session's clock, which may also have been put forward or back.
            let lengths = windows.iter().map(|(start, end)| end - start);
            next.saturating_sub(lengths.max().unwrap_or(0)).saturating_sub(CLOCK_CHANGE_MS)
        } else {
            windows.iter().map(|(start, _)| *start).min().unwrap_or(next)
        };
        Ok(start.min(next).saturating_sub(1))
    }
}

/// More than any clock is put forward or back at once.
const CLOCK_CHANGE_MS: i64 = 24 * 3_600_000;

/// What an operator holds that no time ends, and what else to do.
fn held_for_ever(kind: &LogicalKind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        LogicalKind::Aggregate { .. } => {
            ("groups without a window are held for ever", "group by window_start and window_end")
        }
        LogicalKind::Normalize { .. } => {
            ("the newest row of each key of an upsert table is held for ever", WINDOWS)
        }
        LogicalKind::SetOperation { .. } => {
            ("INTERSECT and EXCEPT hold the rows of both sides for ever", WINDOWS)
        }
        LogicalKind::Over { .. } => ("OVER holds rows that are not those of a window", WINDOWS),
        LogicalKind::Match { .. } => ("a pattern that has begun may hold rows of any age", WINDOWS),
        LogicalKind::TemporalSort { .. } => {
            ("ORDER BY a row time holds rows that were not emitted yet", "sort what is written")
        }
        LogicalKind::SortLimit { .. } | LogicalKind::Limit { .. } => {
            ("the rows of a LIMIT are held for ever", WINDOWS)
        }
        LogicalKind::Values { .. } => {
            ("constant rows were written, and would be written again", "leave them out")
        }
        _ => return None,
    })
}

const WINDOWS: &str = "group or join windows";

fn unmovable(what: &str, hint: &str) -> Error {
    Error::plan(format!("this job cannot be moved: {what}")).hint(hint)
}
