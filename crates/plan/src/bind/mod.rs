//! From names to a typed plan.
//!
//! The binder walks sqlparser's tree, resolves every name in the [`scope`] of its clause, lets
//! `thalweg_expr::build` decide types, and makes [`crate::logical`] nodes. It follows time
//! attributes, so that event-time operators are only ever laid over a row time, and knows what is
//! not supported: such parts are still typed (as [`LogicalKind::Refused`]) where that lets a
//! mistake around them be reported first.
//!
//! The clauses of a SELECT in the order in which they are bound, which is the order in which SQL
//! evaluates them (ORDER BY excepted, whose keys may name columns of the select list and of FROM):
//!
//! ```text
//! WITH → FROM (joins, windows) → WHERE → GROUP BY → SELECT → HAVING → ORDER BY → LIMIT
//! ```
//!
//! Two clauses can't be bound in one pass, since positions are known only later. Aggregates and
//! OVER calls are met while the select list is bound. They get **provisional positions**; when the
//! list is complete, the node that computes them is made, and a layout (`GroupLayout`,
//! `OverLayout`) moves every expression to the final positions.
//!
//! **Invariants:**
//! - a [`Binder`] serves one statement: tables, views, numbers of windows and hints are remembered
//!   for that long, and the catalog does not change meanwhile;
//! - a table or view is bound once per statement, so its uses share one node; parts that draw
//!   (`RAND()`) are copied for each use;
//! - a name means what the innermost scope says: common table expressions before tables and views,
//!   columns of a sub-query before those of the query around it;
//! - errors carry the place of the smallest expression that is wrong. `Error::at` keeps the first
//!   place that was given, so callers add the place of the whole clause without harm;
//! - what is bound does not depend on data, the clock or the machine.
//!
//! It never runs anything, and of connectors it asks what reading a table is like, and which
//! columns a table of state has (`state_table`).
//!
//! It does not optimize: sharing, pushing down and pruning are the logical plan's part. The
//! exceptions are rewrites that need the syntax or its scopes: conditions into joins, sub-queries
//! into joins, ranks into a Top-N, windows into their aggregate.
//!
//! [`LogicalKind::Refused`]: crate::logical::LogicalKind::Refused

mod aggregate;
mod asof;
mod behind_groups;
pub(crate) mod children;
pub mod composed_aggregates;
pub mod condition;
mod correlated;
mod expression;
pub(crate) mod from;
pub mod functions;
mod group;
mod hints;
pub mod insert;
pub(crate) mod join;
mod lateral;
mod literal;
mod markers;
mod names;
mod navigation;
pub mod near;
mod order;
mod over;
mod pattern;
pub mod query;
pub mod scope;
mod select;
mod session_rows;
mod sets;
pub mod spans;
pub(crate) mod state_table;
pub mod strip;
mod subquery;
mod subquery_syntax;
pub mod table;
#[cfg(test)]
mod tests;
mod unsupported;
mod values;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use thalweg_core::{ColumnType, Error, Result, Span};
use thalweg_expr::{Expr, Session};
use thalweg_operators::aggregate::{self as aggregate_functions, AggregateFunction, UserAggregate};

use crate::ast::{JoinHint, Name, OptionList, Query, TableOptions, WindowCall};
use crate::catalog::path::{self, DatabasePath};
use crate::catalog::{Catalog, DeclaredFunction, RuntimeMode, with_options};
use crate::logical::{Field, LogicalKind, LogicalPlan, Node, TimeAttribute, WindowId};
use crate::physical::Places;
use crate::processes::{ProcessTable, ProcessTables};
use crate::resolved_table::ResolvedTable;
pub use unsupported::later;

/// How deep views may refer to views.
/// A view can come to refer to itself: `CREATE OR REPLACE VIEW v AS SELECT * FROM v` is checked
/// while the old `v` still exists.
const VIEW_DEPTH_MAX: u32 = 64;

/// Names that end so were meant as files, which other engines read without a declaration.
const FILE_ENDINGS: [&str; 6] = [".csv", ".json", ".jsonl", ".parquet", ".avro", ".orc"];

/// Aggregate functions that the user registered, by upper-case name.
pub type UserAggregates = HashMap<String, Arc<dyn UserAggregate>>;

/// What stands for the sub-queries of a clause that is being bound.
///
/// A sub-query is found by its text and its place in it, so that a copy of its tree is the same
/// sub-query. Clauses nest: the last one is that which is being bound.
type ClauseValues = Vec<(sqlparser::ast::Expr, Expr)>;

/// Binds the queries of one statement (or statement set).
pub struct Binder<'a> {
    /// Tables and views.
    pub catalog: &'a Catalog,
    /// Time zone and registered functions.
    pub session: &'a Session,
    user_aggregates: &'a UserAggregates,
    /// Relations that process functions make.
    processes: Option<&'a ProcessTables>,
    /// Where tables are; without it none is known to end.
    places: Option<Places<'a>>,
    // Interior mutability, since binding is a deep recursion over `&self` in which many callers
    // only read.
    tables: RefCell<HashMap<String, Arc<ResolvedTable>>>,
    views: RefCell<HashMap<String, Node>>,
    /// From how many inputs rows come to a node, and what keeps the node.
    /// By address, so the node is kept alive.
    inputs: RefCell<HashMap<*const LogicalPlan, (Node, usize)>>,
    // The number of the last windowing function.
    windows: Cell<u32>,
    // How many views are being bound around this one.
    depth: Cell<u32>,
    /// What stands for the sub-queries of the clauses that are being bound, innermost last.
    values: RefCell<Vec<ClauseValues>>,
    /// The database in which names are looked up: the current one, or that of a view.
    database: RefCell<DatabasePath>,
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
    /// The sub-queries with MATCH_RECOGNIZE of that text, by the names that stand for them.
    matched: &'q [(String, Query)],
    /// The hints of that text that say how to join.
    /// All of the text; `hint_places` chooses those of one SELECT.
    hints: &'q [JoinHint],
    /// The options that hints give to tables of that text.
    table_options: &'q [TableOptions],
    /// Where the hints of the SELECT that is being bound stand: lines and columns.
    hint_places: Range<(u32, u32)>,
    /// The common table expressions that are visible, innermost last.
    /// A name is looked up from the end, so that an inner WITH hides an outer one.
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
            processes: None,
            places: None,
            tables: RefCell::default(),
            views: RefCell::default(),
            inputs: RefCell::default(),
            windows: Cell::new(0),
            depth: Cell::new(0),
            values: RefCell::default(),
            database: RefCell::new(catalog.current().clone()),
            followed_hints: RefCell::default(),
            undecided: RefCell::default(),
        }
    }

    /// The same, with relations that process functions make.
    #[must_use]
    pub fn with_processes(mut self, processes: &'a ProcessTables) -> Self {
        self.processes = Some(processes);
        self
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

    /// The keys of the tables that were named in what was bound so far, sorted.
    pub(crate) fn named_tables(&self) -> Vec<String> {
        sorted(self.tables.borrow().keys())
    }

    /// The keys of the views that were named in what was bound so far, sorted.
    pub(crate) fn named_views(&self) -> Vec<String> {
        sorted(self.views.borrow().keys())
    }

    /// The scalar function that computes an aggregate from the values of a group, if it is such a
    /// one.
    fn function_over_values(&self, name: &str) -> Option<&str> {
        self.user_aggregates.get(&*self.implemented_as(name))?.over_values()
    }

    fn is_user_aggregate(&self, name: &str) -> bool {
        self.user_aggregates.contains_key(&*self.implemented_as(name))
    }

    /// The name under which a function is registered that SQL has declared under this name, upper
    /// case; any other name as it is. Built-in functions hide those of a database, as in Flink.
    fn implemented_as<'n>(&self, name: &'n str) -> std::borrow::Cow<'n, str> {
        match self.declared_function(name) {
            Some(function) => function.identifier.to_uppercase().into(),
            None => name.into(),
        }
    }

    /// The function that SQL has declared under this name, unless it is hidden.
    fn declared_function(&self, name: &str) -> Option<&DeclaredFunction> {
        let found = self.catalog.function_in(&self.database.borrow(), name)?;
        let is_hidden = !found.is_system && functions::is_built_in(name);
        (!is_hidden).then_some(found)
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
        let Some(user) = self.user_aggregates.get(&*self.implemented_as(name)) else {
            return aggregate_functions::resolve_call(name, distinct, skips_nulls, arguments);
        };
        if user.over_values().is_some() {
            // GROUP BY has put the function over the values in its place.
            return Err(unsupported::later(&format!("{name}(…) elsewhere than with GROUP BY")));
        }
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
    /// Each use has a number of its own, also if the windows are equal.
    fn next_window(&self, time: TimeAttribute) -> WindowId {
        self.windows.set(self.windows.get() + 1);
        WindowId { number: self.windows.get(), by_clock: time.is_proctime() }
    }

    /// The key of what a name means here.
    pub(crate) fn key(&self, name: &Name) -> String {
        self.database.borrow().key(&name.text)
    }

    /// The table or view of this name.
    /// A table comes as queries see it, after normalization of upserts.
    pub fn relation(&self, name: &Name) -> Result<Node> {
        let key = self.key(name);
        if let Some(definition) = self.catalog.table(&key) {
            let table = self.read_table(definition).map_err(|error| error.at(name.span))?;
            return Ok(LogicalPlan::read(table));
        }
        if self.catalog.view(&key).is_some() {
            return self.view(name, key);
        }
        let process = self.processes.and_then(|found| found.get(&path::last_part(&name.text)));
        match process {
            Some(process) => self.process(name, key, process),
            None => Err(self.unknown_table(name)),
        }
    }

    /// What a process function makes of what it reads, which may be such a relation again.
    fn process(&self, name: &Name, key: String, process: &Arc<dyn ProcessTable>) -> Result<Node> {
        if let Some(found) = self.views.borrow().get(&key) {
            return Ok(found.clone());
        }
        if self.depth.get() >= VIEW_DEPTH_MAX {
            return Err(Error::plan(format!("'{}' reads itself", name.text)).at(name.span));
        }
        self.depth.set(self.depth.get() + 1);
        let input = self.relation(&Name { text: process.input().to_owned(), span: name.span });
        self.depth.set(self.depth.get() - 1);
        let input = input?;
        let column = |wanted: &String| {
            let at = input.fields.iter().position(|field| field.name == *wanted);
            let at = at.ok_or_else(|| {
                let names = input.fields.iter().map(|field| field.name.as_str());
                let error = Error::plan(format!(
                    "'{}' reads column '{wanted}', which '{}' does not have",
                    name.text,
                    process.input()
                ));
                near::did_you_mean(error.at(name.span), wanted, names)
            })?;
            Ok(input.fields[at].named_at(at))
        };
        let columns = process.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
        let input = LogicalPlan::project(input.clone(), columns);
        let fields = process.result().columns.into_iter();
        let fields: Vec<Field> =
            fields.map(|column| Field::plain(column.name, column.column_type)).collect();
        let kind = LogicalKind::Process {
            input,
            name: path::last_part(&name.text),
            process: Arc::clone(process),
        };
        let node = LogicalPlan::node(kind, fields);
        self.views.borrow_mut().insert(key, node.clone());
        Ok(node)
    }

    /// The table of this name with the options of a hint.
    fn relation_with(&self, name: &Name, options: &OptionList) -> Result<Node> {
        let read = self.table_with(name, options)?;
        Self::check_watermark_source(&read).map_err(|error| error.at(name.span))?;
        Ok(LogicalPlan::read(read))
    }

    /// The same, typed.
    fn table_with(&self, name: &Name, options: &OptionList) -> Result<Arc<ResolvedTable>> {
        let key = self.key(name);
        match self.catalog.table(&key) {
            Some(definition) => {
                // It counts as named.
                self.resolve_table(definition)?;
                let definition = with_options(definition, options);
                self.bind_table(&definition).map(Arc::new).map_err(|error| error.at(name.span))
            }
            None if self.catalog.view(&key).is_some() => Err(Error::plan(format!(
                "'{}' is a view, and the hint OPTIONS is for tables",
                name.text
            ))
            .at(name.span)),
            None => Err(self.unknown_table(name)),
        }
    }

    /// The error for a table that does not exist.
    pub fn unknown_table(&self, name: &Name) -> Error {
        let names = self.catalog.names();
        let text = name.text.trim_matches('`');
        let error = Error::plan(format!("there is no table or view '{text}'")).at(name.span);
        if FILE_ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            return error.hint(format!(
                "a file is declared first: CREATE TABLE t (…) WITH ('connector' = 'filesystem', 'path' = '{text}', \
                 'format' = …)"
            ));
        }
        let error = near::did_you_mean(error, &name.text, names.iter().map(String::as_str));
        if names.is_empty() {
            return error.hint("no table has been created yet: write CREATE TABLE first");
        }
        error.hint(format!("the tables and views are {}", names.join(", ")))
    }

    fn view(&self, name: &Name, key: String) -> Result<Node> {
        if let Some(found) = self.views.borrow().get(&key) {
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
        let bound = self.bind_view(name, &key);
        self.depth.set(self.depth.get() - 1);
        let node = bound?;
        self.views.borrow_mut().insert(key, node.clone());
        Ok(node)
    }
}

fn sorted<'k>(keys: impl Iterator<Item = &'k String>) -> Vec<String> {
    let mut keys: Vec<String> = keys.cloned().collect();
    keys.sort();
    keys
}
