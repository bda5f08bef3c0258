//! GROUP BY: which of its expressions are keys and which name a window.
//!
//! | GROUP BY | is |
//! |---|---|
//! | `window_start, window_end` (and `window_time`) of one windowing function | that window |
//! | `window_start` alone | an ordinary key: an aggregate that is updated |
//! | `TUMBLE(ts, …)`, `HOP`, `SESSION` | a window in the old form (Flink's "group windows") |
//! | anything else | a key |
//!
//! **Invariants:**
//! - a query has one window at most: the columns of a second windowing function are keys;
//! - every grouping set has the window or none has, since rows of a set without it would belong to
//!   no window: if only some name it, its columns are keys, and the aggregate is updated. So are
//!   those of a window of processing time that is aggregated already, as in Flink;
//! - a key that is written twice is one key. Over several sets it must be written in one way, since
//!   sets are compared by position.

use std::collections::BTreeSet;

use sqlparser::ast::{self as sql, Expr as SqlExpr};
use thalweg_core::{DataType, Error, Result, Span};
use thalweg_expr::Expr;

use super::functions::{function_name, plain_arguments};
use super::names::PlainNames;
use super::scope::{Scope, name_parts};
use super::sets::{Sets, grouping_sets};
use super::spans::span_of;
use super::strip::is_aggregated_by_clock;
use super::window::{check_time, window_kind};
use super::{Binder, unsupported};
use crate::logical::{Node, TimeAttribute, Window, WindowId, column_of};
use crate::windows::{WindowForm, WindowFunction};

/// How a query groups.
pub(super) struct GroupBy {
    /// The keys besides the window, over the input.
    pub(super) keys: Vec<Expr>,
    /// The window.
    pub(super) window: GroupWindow,
    /// Where GROUP BY stands.
    pub(super) span: Span,
    /// The sets, if there are several.
    pub(super) sets: Option<Sets>,
}

/// The window of a GROUP BY.
pub(super) enum GroupWindow {
    /// None.
    None,
    /// `GROUP BY window_start, window_end` of a windowing function below.
    Columns {
        /// Which.
        id: WindowId,
        /// True if window_time is grouped as well.
        with_time: bool,
        /// True if the window is over an instant.
        is_instant: bool,
    },
    /// `GROUP BY TUMBLE(ts, …)`
    Legacy(Window),
}

/// A part of GROUP BY that identifies the window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WindowPart {
    Start,
    End,
    Time,
    /// `TUMBLE(ts, …)` itself.
    Legacy,
}

/// What an expression of GROUP BY is.
enum GroupItem {
    /// The key at this position.
    Key(usize),
    Window(WindowPart),
}

/// What was found in GROUP BY so far.
#[derive(Default)]
struct FoundGroup<'e> {
    keys: Vec<Expr>,
    /// How each key was written first.
    written: Vec<&'e SqlExpr>,
    /// Where a key was written again in another way that means the same.
    again: Option<&'e SqlExpr>,
    seen: SeenWindow,
    legacy: Option<Window>,
    /// The columns of windows are keys.
    has_no_window: bool,
}

/// What was found in all sets, and the keys of each.
type FoundSets<'e> = (FoundGroup<'e>, Vec<Vec<usize>>);

/// What GROUP BY says of the columns of one window.
#[derive(Default)]
struct SeenWindow {
    id: Option<WindowId>,
    start: bool,
    end: bool,
    time: bool,
    /// The columns themselves.
    columns: Vec<Expr>,
}

impl Binder<'_> {
    /// Binds the expressions of GROUP BY over the input.
    pub(super) fn bind_group_by(
        &self,
        scope: &Scope,
        list: &[SqlExpr],
        input: &Node,
    ) -> Result<GroupBy> {
        let sets = grouping_sets(list)?;
        let is_window = |(found, _): &FoundSets<'_>| {
            !found.seen.id.is_some_and(|id| is_aggregated_by_clock(input, id))
        };
        let found = match self.found_sets(scope, &sets, false)?.filter(is_window) {
            Some(found) => Some(found),
            None => self.found_sets(scope, &sets, true)?,
        };
        let Some((found, mut sets)) = found else {
            return Err(Error::unsupported("GROUPING SETS of which some lack the window")
                .hint("group by window_start and window_end of TABLE(TUMBLE(…))")
                .at(list.first().map_or(Span::default(), span_of)));
        };
        let span = list.first().map_or(Span::default(), span_of);
        let FoundGroup { mut keys, seen, legacy, again, .. } = found;
        if let Some(again) = again.filter(|_| sets.len() > 1) {
            return Err(Error::plan(format!(
                "GROUP BY has the key {again} in another way as well"
            ))
            .hint("in GROUPING SETS, CUBE and ROLLUP write each key in one way only")
            .at(span_of(again)));
        }
        let before = keys.len();
        let window = match legacy {
            Some(window) => GroupWindow::Legacy(window),
            None => seen.window(scope, &mut keys),
        };
        // A lone window column is a key, and in every set.
        sets.iter_mut().for_each(|set| set.extend(before..keys.len()));
        let sets = (sets.len() > 1).then_some(Sets { keys: sets });
        Ok(GroupBy { keys, window, span, sets })
    }

    /// What the sets hold; `None`: some have a window that others lack.
    fn found_sets<'e>(
        &self,
        scope: &Scope,
        sets: &[Vec<&'e SqlExpr>],
        has_no_window: bool,
    ) -> Result<Option<FoundSets<'e>>> {
        let mut found = FoundGroup { has_no_window, ..FoundGroup::default() };
        let mut keys_of_sets = Vec::new();
        let mut windows: Option<BTreeSet<WindowPart>> = None;
        for set in sets {
            let (mut keys, mut parts) = (Vec::new(), BTreeSet::new());
            for expr in set {
                match self.group_item(scope, expr, &mut found)? {
                    GroupItem::Key(key) => keys.push(key),
                    GroupItem::Window(part) => drop(parts.insert(part)),
                }
            }
            if windows.get_or_insert_with(|| parts.clone()) != &parts {
                return Ok(None);
            }
            keys_of_sets.push(keys);
        }
        Ok(Some((found, keys_of_sets)))
    }

    /// What one expression of GROUP BY is. The same one again is the same.
    fn group_item<'e>(
        &self,
        scope: &Scope,
        expr: &'e SqlExpr,
        found: &mut FoundGroup<'e>,
    ) -> Result<GroupItem> {
        if let Some(window) = self.legacy_window(scope, expr)? {
            let known = found.legacy.get_or_insert_with(|| window.clone());
            if known.kind != window.kind || known.rowtime != window.rowtime {
                return Err(Error::plan("GROUP BY names two windows").at(span_of(expr)));
            }
            return Ok(GroupItem::Window(WindowPart::Legacy));
        }
        let key = self.group_key(scope, expr)?;
        let time = column_of(&key).map_or(TimeAttribute::None, |i| scope.fields[i].time);
        if !found.has_no_window
            && let Some(part) = found.seen.note(time, &key)
        {
            return Ok(GroupItem::Window(part));
        }
        let text = key.to_string();
        if let Some(known) = found.keys.iter().position(|other| other.to_string() == text) {
            let first = found.written[known];
            let both_names = name_parts(first).is_some() && name_parts(expr).is_some();
            if !both_names && first != expr {
                found.again = Some(expr);
            }
            return Ok(GroupItem::Key(known));
        }
        found.keys.push(key);
        found.written.push(expr);
        Ok(GroupItem::Key(found.keys.len() - 1))
    }

    /// A key as an expression over the input. A number is refused: it would group by a constant,
    /// and whoever writes it means a column.
    fn group_key(&self, scope: &Scope, expr: &SqlExpr) -> Result<Expr> {
        match expr {
            SqlExpr::Value(value) if matches!(value.value, sql::Value::Number(..)) => {
                return Err(Error::plan("GROUP BY takes columns, not their numbers")
                    .hint("write the column or the expression itself")
                    .at(span_of(expr)));
            }
            _ => {}
        }
        let key = self.expression(expr, &mut PlainNames::of(scope, "GROUP BY"))?;
        if name_parts(expr).is_none() && self.uses_window(scope, &key) {
            return Err(unsupported::later("GROUP BY with an expression over window columns")
                .hint("group by window_start and window_end, and compute from them in SELECT")
                .at(span_of(expr)));
        }
        Ok(key)
    }

    fn uses_window(&self, scope: &Scope, key: &Expr) -> bool {
        key.columns().iter().any(|&i| scope.fields[i].time.window().is_some())
    }

    /// `TUMBLE(ts, size)`, `HOP(ts, slide, size)` or `SESSION(ts, gap)` in GROUP BY.
    /// `None` for any other expression.
    pub(super) fn legacy_window(&self, scope: &Scope, expr: &SqlExpr) -> Result<Option<Window>> {
        let SqlExpr::Function(call) = expr else { return Ok(None) };
        let name = function_name(call);
        let Some(function) = WindowFunction::named(&name) else { return Ok(None) };
        if !function.is_in_group_by {
            return Err(Error::plan(format!("{name} can't stand in GROUP BY"))
                .hint(format!("write FROM {}", function.usage))
                .at(span_of(expr)));
        }
        self.legacy_call(scope, function, call).map(Some).map_err(|e| e.at(span_of(expr)))
    }

    /// The arguments of the old form: the time must be a column, since the operator reads it from
    /// the row.
    fn legacy_call(
        &self,
        scope: &Scope,
        function: &WindowFunction,
        call: &sql::Function,
    ) -> Result<Window> {
        let name = function.name;
        let args = plain_arguments(call)?;
        let [time, lengths @ ..] = args.as_slice() else {
            return Err(Error::plan(format!("{name} takes a row time and intervals")));
        };
        let time_expr = self.expression(time, &mut PlainNames::of(scope, name))?;
        let Some(rowtime) = column_of(&time_expr) else {
            return Err(Error::plan(format!(
                "{name} needs a row time column, but {time} is computed ({})",
                time_expr.column_type.data_type
            ))
            .at(span_of(*time)));
        };
        check_time(&scope.fields[rowtime], name, self.mode()).map_err(|e| e.at(span_of(*time)))?;
        let kind = window_kind(self, function, lengths.iter().copied(), WindowForm::GroupBy)?;
        let is_instant =
            matches!(scope.fields[rowtime].column_type.data_type, DataType::TimestampLtz(_));
        let id = self.next_window(scope.fields[rowtime].time);
        Ok(Window { kind, rowtime, is_instant, id, partition_by: Vec::new() })
    }
}

impl SeenWindow {
    /// Takes note of a window column; `None` if it is none (or of a second window).
    fn note(&mut self, time: TimeAttribute, key: &Expr) -> Option<WindowPart> {
        let id = time.window()?;
        if *self.id.get_or_insert(id) != id {
            return None;
        }
        let (seen, part) = match time {
            TimeAttribute::WindowStart(_) => (&mut self.start, WindowPart::Start),
            TimeAttribute::WindowEnd(_) => (&mut self.end, WindowPart::End),
            _ => (&mut self.time, WindowPart::Time),
        };
        if !std::mem::replace(seen, true) {
            self.columns.push(key.clone());
        }
        Some(part)
    }

    /// The window if both ends are grouped. A lone window column is a key like any other.
    /// Its time attribute is lost: the result of a key is updated, so it has no place in time.
    fn window(self, scope: &Scope, keys: &mut Vec<Expr>) -> GroupWindow {
        let Some(id) = self.id else { return GroupWindow::None };
        if self.start && self.end {
            let is_time = |time| time == TimeAttribute::WindowTime(id);
            let is_instant = scope.fields.iter().any(|f| {
                is_time(f.time) && matches!(f.column_type.data_type, DataType::TimestampLtz(_))
            });
            return GroupWindow::Columns { id, with_time: self.time, is_instant };
        }
        keys.extend(self.columns);
        GroupWindow::None
    }
}
