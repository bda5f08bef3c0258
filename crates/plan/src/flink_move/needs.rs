//! Which rows of its tables a job still needs once it was stopped at a watermark.
//!
//! The plan is walked from its result to its tables. A time comes along: what an operator holds up
//! to it was emitted, and what belongs to later times was not. At a table it gives the first row
//! that has to be read again. Of operators that hold rows without such a time, some can be moved
//! alone ([`Held`]); all others are refused, each with the reason.

use std::collections::BTreeMap;
use std::slice;

use chrono_tz::Tz;
use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{Error, Result};
use thalweg_operators::window::WindowKind;

use super::reread::check_operator;
use crate::logical::changes::window_end_key;
use crate::logical::join::Side;
use crate::logical::traversal::post_order;
use crate::logical::{
    JoinBound, JoinCondition, JoinKind, LogicalKind, Node, OverFrame, OverWindow, TimeAttribute,
    Window,
};
use crate::resolved_table::ResolvedTable;

/// Which rows of a table are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Those that the job has not read: nothing is held of the others.
    Unread,
    /// Those with this row time and later ones, in milliseconds: open windows hold them.
    From(i64),
    /// All rows of a topic: a session that is open may have begun with any of them, and a join
    /// holds all of them.
    All,
    /// The table as it is: it ends, and is read before what it is joined with.
    Whole,
}

/// What a job holds besides windows. It is the only thing that the job holds then.
#[derive(Clone, Debug)]
pub enum Held {
    /// Rows of inner joins, which may find more partners.
    Pairs,
    /// Rows that leave when the watermark has passed their time.
    RowsByTime,
    /// Groups without a window: the aggregate.
    Groups(Node),
    /// What rows of any age may change.
    Everything,
}

/// What a job needs to run on elsewhere.
#[derive(Debug)]
pub struct Needs {
    /// The tables that it reads, with what is needed of them.
    pub tables: BTreeMap<String, Need>,
    /// What it holds besides windows.
    pub held: Option<Held>,
}

/// What these queries need after this watermark.
///
/// # Errors
/// If a query holds what no rows can bring back.
pub fn needs(queries: &[Node], watermark_ms: i64, zone: Tz) -> Result<Needs> {
    let tables = BTreeMap::new();
    let mut walk = Walk { watermark_ms, zone, tables, held: None, has_windows: false };
    for query in queries {
        walk.node(query, None)?;
    }
    if walk.held.is_some() && (walk.has_windows || queries.len() > 1) {
        return Err(unmovable(
            "joins without windows, functions over earlier rows and groups without windows move alone, and this job has more",
            "put each INSERT into a file of its own, without windows",
        ));
    }
    Ok(Needs { tables: walk.tables, held: walk.held })
}

struct Walk {
    watermark_ms: i64,
    zone: Tz,
    tables: BTreeMap<String, Need>,
    held: Option<Held>,
    has_windows: bool,
}

impl Walk {
    /// `after`: what reads this node holds its rows, and needs those with later times again.
    fn node(&mut self, node: &Node, after: Option<i64>) -> Result<()> {
        match &node.kind {
            LogicalKind::Scan { table, .. } => self.scan(table, after),
            LogicalKind::WindowAggregate { input, window, .. } => {
                let after = after.unwrap_or(self.watermark_ms);
                let before = self.before_windows(window, after)?;
                self.node(input, Some(before))
            }
            LogicalKind::WindowRows { input, window } => {
                let Some(after) = after else {
                    return Err(unmovable(
                        "rows of a windowing function that nothing groups or joins leave at once",
                        "group them by window_start and window_end",
                    ));
                };
                let before = self.before_windows(window, after)?;
                self.node(input, Some(before))
            }
            LogicalKind::Deduplicate { input, keys, keeps_last: false, rowtime: Some(_) }
                if window_end_key(input, keys).is_none() =>
            {
                self.hold(Held::RowsByTime, after)?;
                self.node(input, Some(i64::MIN))
            }
            LogicalKind::TopN { input, keys, .. }
            | LogicalKind::Deduplicate { input, keys, .. } => {
                if window_end_key(input, keys).is_none() {
                    return self.everything(node, input, after);
                }
                self.node(input, Some(after.unwrap_or(self.watermark_ms)))
            }
            LogicalKind::Over { input, window, .. } => {
                self.hold(Held::RowsByTime, after)?;
                self.node(input, Some(self.before_frame(input, window)?))
            }
            LogicalKind::Aggregate { input, state_ttl_ms, .. } => {
                refuse_lifetime(*state_ttl_ms)?;
                self.hold(Held::Groups(node.clone()), after)?;
                refuse_changes(input)?;
                self.node(input, None)
            }
            LogicalKind::Join { left, right, condition, kind } => {
                self.join((left, right), *kind, condition, after)
            }
            kind => match held_for_ever(kind) {
                Some((what, hint)) => Err(unmovable(what, hint)),
                None => node.inputs().into_iter().try_for_each(|input| self.node(input, after)),
            },
        }
    }

    /// An operator that is given all rows of its input again, or groups of all rows.
    fn everything(&mut self, node: &Node, input: &Node, after: Option<i64>) -> Result<()> {
        self.hold(Held::Everything, after)?;
        check_operator(node)?;
        let mut rows = input;
        while let LogicalKind::Project { input, .. } = &rows.kind {
            rows = input;
        }
        let rows = match &rows.kind {
            LogicalKind::Aggregate { input, state_ttl_ms, .. } => {
                refuse_lifetime(*state_ttl_ms)?;
                input
            }
            _ => input,
        };
        refuse_changes(rows)?;
        self.node(rows, Some(i64::MIN))
    }

    /// Notes what the job holds. What reads it must hold nothing.
    fn hold(&mut self, held: Held, after: Option<i64>) -> Result<()> {
        match (after, &self.held) {
            (None, None) => {
                self.held = Some(held);
                Ok(())
            }
            _ => Err(unmovable(
                "it holds rows in several operators, one behind the other",
                "write what is between them to a topic, as a job of its own",
            )),
        }
    }

    /// The last time of which no row is in the frame of a row that was not emitted.
    fn before_frame(&self, input: &Node, window: &OverWindow) -> Result<i64> {
        let is_by_time = window.order.first().is_some_and(|first| {
            input.fields[first.column].time == TimeAttribute::RowTime && !first.descending
        });
        match window.frame {
            OverFrame::Range(Some(length_ms)) if is_by_time => {
                Ok(self.watermark_ms.saturating_sub(length_ms))
            }
            // The age of the first row of such a frame is not known.
            OverFrame::Range(None) | OverFrame::Rows(_) if is_by_time => Ok(i64::MIN),
            _ => Err(unmovable(
                "functions over earlier rows by processing time depend on when rows are read",
                "ORDER BY a row time",
            )),
        }
    }

    fn join(
        &mut self,
        (left, right): (&Node, &Node),
        kind: JoinKind,
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
            JoinBound::Version { .. } => Err(unmovable(
                "a temporal join holds the newest version of each key for ever",
                "join with a table that ends, or one that is looked up",
            )),
            JoinBound::None | JoinBound::Interval { .. } if kind != JoinKind::Inner => {
                Err(unmovable(
                    "an outer, semi or anti join without a window emits rows of one side, and positions do not say which",
                    "use an inner join, or join windows",
                ))
            }
            JoinBound::Interval { lower_ms, upper_ms, .. } => {
                self.hold(Held::Pairs, after)?;
                self.node(left, Some(self.watermark_ms.saturating_add(lower_ms)))?;
                self.node(right, Some(self.watermark_ms.saturating_sub(upper_ms)))
            }
            JoinBound::None => {
                refuse_lifetime(condition.state_ttl_ms.0.or(condition.state_ttl_ms.1))?;
                // A join of a join: both are written as one.
                if !(after == Some(i64::MIN) && matches!(self.held, Some(Held::Pairs))) {
                    self.hold(Held::Pairs, after)?;
                }
                for side in [left, right] {
                    refuse_changes(side)?;
                    self.node(side, Some(i64::MIN))?;
                }
                Ok(())
            }
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
        let known = self.tables.get(&table.name).copied();
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
        self.tables.insert(table.name.clone(), both);
        Ok(())
    }

    /// The last instant before the first window that ends behind this time, that is whose
    /// `window_time` is later; the least one if it may have begun at any time.
    fn before_windows(&mut self, window: &Window, after: i64) -> Result<i64> {
        self.has_windows = true;
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
        LogicalKind::Normalize { .. } => {
            ("the newest row of each key of an upsert table is held for ever", WINDOWS)
        }
        LogicalKind::SetOperation { .. } => {
            ("INTERSECT and EXCEPT hold the rows of both sides for ever", WINDOWS)
        }
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

/// State that expires is not what the rows of a topic bring back.
fn refuse_lifetime(state_ttl_ms: Option<i64>) -> Result<()> {
    match state_ttl_ms {
        None | Some(0) => Ok(()),
        Some(_) => Err(unmovable(
            "its state expires, and rows do not say when that was",
            "leave out the lifetime of state",
        )),
    }
}

/// Changes of a row are not in what is read again.
fn refuse_changes(node: &Node) -> Result<()> {
    for node in post_order(slice::from_ref(node)) {
        if let LogicalKind::Scan { table, .. } = &node.kind
            && table.reading.changes != AcceptedChanges::Inserts
        {
            return Err(unmovable(
                &format!("the rows of '{}' are updated, and an operator holds them", table.name),
                WINDOWS,
            ));
        }
    }
    Ok(())
}

pub(super) fn unmovable(what: &str, hint: &str) -> Error {
    Error::plan(format!("this job cannot be moved: {what}")).hint(hint)
}
