//! From names to a typed plan.
//!
//! The binder walks sqlparser's tree, resolves every name in the [`scope`] of its clause, lets
//! `thalweg_expr::build` decide types, and makes [`crate::logical`] nodes. It follows time
//! attributes, so that windows are only ever laid over row time, and knows what is not supported:
//! such parts are still typed (as [`LogicalKind::Refused`]) where that lets a mistake around them
//! be reported first.
//!
//! It never runs anything, and of connectors it asks one thing only: what reading a table is like.
//!
//! [`LogicalKind::Refused`]: crate::logical::LogicalKind::Refused

mod aggregate;
mod asof;
mod children;
mod expression;
mod from;
pub mod functions;
mod group;
mod hints;
pub mod insert;
mod join;
mod literal;
mod names;
mod navigation;
pub mod near;
mod order;
mod over;
mod pattern;
pub mod query;
pub mod scope;
mod select;
mod sets;
pub mod spans;
pub(crate) mod state_table;
pub mod strip;
pub mod table;
#[cfg(test)]
mod tests;
mod unsupported;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use thalweg_core::{ColumnType, Error, Result, Span};
use thalweg_expr::{Expr, Session};
use thalweg_operators::aggregate::{self as aggregate_functions, AggregateFunction, UserAggregate};

use crate::ast::{JoinHint, Name, WindowCall};
use crate::catalog::{Catalog, RuntimeMode};
use crate::logical::{LogicalPlan, Node, TimeAttribute, WindowId};
use crate::physical::Places;
use crate::resolved_table::ResolvedTable;
pub use unsupported::later;

/// How deep views may refer to views.
const VIEW_DEPTH_MAX: u32 = 64;

/// Aggregate functions that the user registered, by upper-case name.
pub type UserAggregates = HashMap<String, Arc<dyn UserAggregate>>;

/// Binds the queries of one statement (or statement set).
pub struct Binder<'a> {
    /// Tables and views.
    pub catalog: &'a Catalog,
    /// Time zone and registered functions.
    pub session: &'a Session,
    user_aggregates: &'a UserAggregates,
    /// Where tables are; without it none is known to end.
    places: Option<Places<'a>>,
    tables: RefCell<HashMap<String, Arc<ResolvedTable>>>,
    views: RefCell<HashMap<String, Node>>,
    /// From how many inputs rows come to a node, and what keeps the node.
    inputs: RefCell<HashMap<*const LogicalPlan, (Node, usize)>>,
    windows: Cell<u32>,
    depth: Cell<u32>,
    /// Hints that a join has followed, by their places and the tables named.
    followed_hints: RefCell<Vec<(Span, String)>>,
    /// Where functions stand whose values the data do not decide, by name.
    undecided: RefCell<HashMap<String, Span>>,
}

/// What a query can refer to besides the catalog.
#[derive(Clone, Default)]
pub struct Context<'q> {
    /// The windowing functions of the text that the query stands in.
    windows: &'q [WindowCall],
    /// The hints of that text that say how to join.
    hints: &'q [JoinHint],
    /// Where the hints of the SELECT that is being bound stand: lines and columns.
    hint_places: Range<(u32, u32)>,
    /// The common table expressions that are visible, innermost last.
    ctes: Vec<(String, Node)>,
}

impl<'a> Binder<'a> {
    /// A binder for one statement.
    pub fn new(
        catalog: &'a Catalog,
        session: &'a Session,
        user_aggregates: &'a UserAggregates,
    ) -> Self {
        Binder {
            catalog,
            session,
            user_aggregates,
            places: None,
            tables: RefCell::default(),
            views: RefCell::default(),
            inputs: RefCell::default(),
            windows: Cell::new(0),
            depth: Cell::new(0),
            followed_hints: RefCell::default(),
            undecided: RefCell::default(),
        }
    }

    /// The same, with tables that can be asked whether they end.
    #[must_use]
    pub fn over(mut self, places: Places<'a>) -> Self {
        self.places = Some(places);
        self
    }

    /// Where functions stand, in what was bound so far, whose values the data do not decide.
    pub fn undecided_functions(&self) -> HashMap<String, Span> {
        self.undecided.borrow().clone()
    }

    fn is_user_aggregate(&self, name: &str) -> bool {
        self.user_aggregates.contains_key(name)
    }

    /// The aggregate function of this name for these arguments, and its result. `skips_nulls` says
    /// that IGNORE NULLS was written.
    fn resolve_aggregate(
        &self,
        name: &str,
        distinct: bool,
        skips_nulls: bool,
        arguments: &[Expr],
    ) -> Result<(AggregateFunction, ColumnType)> {
        let Some(user) = self.user_aggregates.get(name) else {
            return aggregate_functions::resolve_call(name, distinct, skips_nulls, arguments);
        };
        match arguments {
            [argument] if !distinct => {
                let result = user.result_type(&argument.column_type)?.nullable();
                Ok((AggregateFunction::user(user.clone()), result))
            }
            [_] => Err(unsupported::later(&format!("{name}(DISTINCT …)"))),
            _ => {
                let given = arguments.len();
                Err(Error::plan(format!("{name} takes one argument, not {given}")))
            }
        }
    }

    fn mode(&self) -> RuntimeMode {
        self.catalog.settings().runtime_mode()
    }

    /// A window of its own over a time column.
    fn next_window(&self, time: TimeAttribute) -> WindowId {
        self.windows.set(self.windows.get() + 1);
        WindowId { number: self.windows.get(), by_clock: time.is_proctime() }
    }

    /// The table or view of this name.
    pub fn relation(&self, name: &Name) -> Result<Node> {
        if let Some(definition) = self.catalog.table(&name.text) {
            return Ok(LogicalPlan::read(self.resolve_table(definition)?));
        }
        if self.catalog.view(&name.text).is_some() {
            return self.view(name);
        }
        Err(self.unknown_table(name))
    }

    /// The error for a table that does not exist.
    pub fn unknown_table(&self, name: &Name) -> Error {
        let names = self.catalog.names();
        let error = Error::plan(format!("there is no table or view '{}'", name.text)).at(name.span);
        let error = near::did_you_mean(error, &name.text, names.iter().map(String::as_str));
        if names.is_empty() {
            return error.hint("no table has been created yet: write CREATE TABLE first");
        }
        error.hint(format!("the tables and views are {}", names.join(", ")))
    }

    fn view(&self, name: &Name) -> Result<Node> {
        if let Some(found) = self.views.borrow().get(&name.text) {
            return Ok(found.clone());
        }
        if self.depth.get() >= VIEW_DEPTH_MAX {
            return Err(Error::plan(format!(
                "view '{}' refers to itself, or more than {VIEW_DEPTH_MAX} views stand on it",
                name.text
            ))
            .at(name.span));
        }
        self.depth.set(self.depth.get() + 1);
        let bound = self.bind_view(name);
        self.depth.set(self.depth.get() - 1);
        let node = bound?;
        self.views.borrow_mut().insert(name.text.clone(), node.clone());
        Ok(node)
    }
}
