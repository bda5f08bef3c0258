//! Hints that say which side of a join is read first, and how long state lives. As in Flink, one
//! holds for the joins of the SELECT that it stands behind, not for those of its sub-queries.

use std::ops::Range;

use sqlparser::ast as sql;
use thalweg_core::{Error, Result};

use super::from::BoundSource;
use super::scope::{Relation, Scope};
use super::spans::{convert, span_of};
use super::{Binder, Context};
use crate::ast::JoinHint;
use crate::logical::JoinKind;
use crate::logical::join::{HashJoin, Side, can_be_read_first, is_bounded};

impl Binder<'_> {
    /// The side of a join that a hint wants to be read first.
    ///
    /// # Errors
    /// If that can't be done.
    pub(super) fn hinted_side(
        &self,
        left: &BoundSource,
        right: &BoundSource,
        kind: JoinKind,
        context: &Context<'_>,
    ) -> Result<Option<Side>> {
        for hint in own_hints(context).filter(|hint| hint.state_ttl_ms.is_none()) {
            for table in &hint.tables {
                let side = match (is_alone(right, table), is_alone(left, table)) {
                    (true, _) => Side::Right,
                    (_, true) => Side::Left,
                    _ => continue,
                };
                let input = if side == Side::Left { left } else { right };
                check(hint, table, input, kind, side).map_err(|error| error.at(hint.span))?;
                self.followed_hints.borrow_mut().push((hint.span, table.clone()));
                return Ok(Some(side));
            }
        }
        Ok(None)
    }

    /// For how many milliseconds STATE_TTL wants the rows of a table to be kept, 0 being for ever.
    pub(super) fn hinted_lifetime(&self, scope: &Scope, context: &Context<'_>) -> Option<i64> {
        let [Relation { alias: Some(table), .. }] = &scope.relations[..] else { return None };
        let named = |hint: &&JoinHint| hint.state_ttl_ms.is_some() && hint.tables.contains(table);
        let hint = own_hints(context).find(named)?;
        self.followed_hints.borrow_mut().push((hint.span, table.clone()));
        hint.state_ttl_ms
    }

    /// Refuses hints that name a table that no join has.
    pub(super) fn check_hints(&self, hints: &[JoinHint]) -> Result<()> {
        let followed = self.followed_hints.borrow();
        for hint in hints {
            let is_followed = |table: &&String| followed.contains(&(hint.span, (*table).clone()));
            if let Some(table) = hint.tables.iter().find(|table| !is_followed(table)) {
                let word = &hint.word;
                let (what, help) = match hint.state_ttl_ms {
                    None => (
                        "join",
                        "name a table of a join, or its alias; of two sides only one is read first",
                    ),
                    Some(_) => (
                        "join and no GROUP BY",
                        "name a table, or its alias, of a join without a bound in time or of a GROUP BY \
                         without a window",
                    ),
                };
                return Err(Error::plan(format!("no {what} follows the hint {word}({table})"))
                    .hint(help)
                    .at(hint.span));
            }
        }
        Ok(())
    }
}

/// The hints of the SELECT that is bound.
fn own_hints<'q>(context: &Context<'q>) -> impl Iterator<Item = &'q JoinHint> {
    let places = context.hint_places.clone();
    context.hints.iter().filter(move |hint| places.contains(&(hint.span.line, hint.span.column)))
}

/// Where the hints of a SELECT stand: in front of what it reads from, so that those of a sub-query
/// there are not among them.
pub(super) fn hint_places(select: &sql::Select) -> Range<(u32, u32)> {
    let start = convert(select.select_token.0.span);
    let end = select.from.first().map(span_of).unwrap_or_default();
    (start.line, start.column)..(end.line, end.column)
}

/// True if a side is this table.
fn is_alone(side: &BoundSource, table: &str) -> bool {
    matches!(&side.scope.relations[..], [only] if only.alias.as_deref() == Some(table))
}

fn check(
    hint: &JoinHint,
    table: &str,
    input: &BoundSource,
    kind: JoinKind,
    side: Side,
) -> Result<()> {
    if can_be_read_first(&input.node, kind, side) {
        return Ok(());
    }
    let word = &hint.word;
    let (why, help) = if !is_bounded(&input.node) {
        ("it never ends", "leave the hint out, or give it a bounded input")
    } else if !HashJoin::can(kind, side) {
        (
            "the rows that have no partner there would leave as well",
            "let the other side be read first",
        )
    } else {
        ("its rows are updated later", "let the other side be read first")
    };
    Err(Error::plan(format!("{word}({table}): {table} can't be read first, since {why}"))
        .hint(help))
}
