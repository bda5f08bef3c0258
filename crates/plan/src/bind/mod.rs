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
mod children;
mod expression;
mod from;
pub mod functions;
mod group;
pub mod insert;
mod join;
mod literal;
mod names;
pub mod near;
mod order;
mod over;
pub mod query;
pub mod scope;
mod select;
pub mod spans;
pub mod strip;
pub mod table;
#[cfg(test)]
mod tests;
mod unsupported;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::{ColumnType, Error, Result, Span};
use thalweg_expr::Session;
use thalweg_operators::aggregate::{self as aggregate_functions, AggregateFunction, UserAggregate};

use crate::ast::{Name, WindowCall};
use crate::catalog::Catalog;
use crate::logical::{Node, WindowId};
use table::ResolvedTable;
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
    tables: RefCell<HashMap<String, Arc<ResolvedTable>>>,
    views: RefCell<HashMap<String, Node>>,
    windows: Cell<u32>,
    depth: Cell<u32>,
    /// Where functions stand whose values the data do not decide, by name.
    undecided: RefCell<HashMap<String, Span>>,
    ask_reading: Option<table::AskReading<'a>>,
}

/// What a query can refer to besides the catalog.
#[derive(Clone, Default)]
pub struct Context<'q> {
    /// The windowing functions of the text that the query stands in.
    windows: &'q [WindowCall],
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
            tables: RefCell::default(),
            views: RefCell::default(),
            windows: Cell::new(0),
            depth: Cell::new(0),
            undecided: RefCell::default(),
            ask_reading: None,
        }
    }

    /// The same, asking connectors what reading their tables is like. Else every table is taken for
    /// rows that stay, with an end.
    #[must_use]
    pub fn asking(mut self, ask: table::AskReading<'a>) -> Self {
        self.ask_reading = Some(ask);
        self
    }

    /// Where functions stand, in what was bound so far, whose values the data do not decide.
    pub fn undecided_functions(&self) -> HashMap<String, Span> {
        self.undecided.borrow().clone()
    }

    fn is_user_aggregate(&self, name: &str) -> bool {
        self.user_aggregates.contains_key(name)
    }

    /// The aggregate function of this name for arguments of these types, and its result.
    fn resolve_aggregate(
        &self,
        name: &str,
        distinct: bool,
        arguments: &[ColumnType],
    ) -> Result<(AggregateFunction, ColumnType)> {
        let Some(user) = self.user_aggregates.get(name) else {
            return aggregate_functions::resolve(name, distinct, arguments);
        };
        match arguments {
            [argument] if !distinct => {
                let result = user.result_type(argument)?.nullable();
                Ok((AggregateFunction::User(user.clone()), result))
            }
            [_] => Err(unsupported::later(&format!("{name}(DISTINCT …)"))),
            _ => {
                let given = arguments.len();
                Err(Error::plan(format!("{name} takes one argument, not {given}")))
            }
        }
    }

    fn next_window(&self) -> WindowId {
        self.windows.set(self.windows.get() + 1);
        WindowId(self.windows.get())
    }

    /// The table or view of this name.
    pub fn relation(&self, name: &Name) -> Result<Node> {
        if let Some(definition) = self.catalog.table(&name.text) {
            return Ok(crate::logical::LogicalPlan::read(self.resolve_table(definition)?));
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
