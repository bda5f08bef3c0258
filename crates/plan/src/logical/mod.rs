//! What a query means: a tree of typed relational nodes.
//!
//! The binder builds it, the rules of [`dag`] share and prune it, `physical` lowers it to stages.
//! Nodes are immutable and reference-counted, so that a view used twice is one node from the
//! beginning. Every node knows its columns with their types and [`TimeAttribute`]s; expressions
//! refer to columns of the input by position.
//!
//! **Invariants:**
//! - a node never changes. A rule makes new nodes, and a node that it does not change stays the
//!   same allocation. Maps over plans are therefore keyed by address (`Arc::as_ptr`), and each such
//!   map keeps the node alive or lives no longer than the plan: an address that is freed may be
//!   used for another node;
//! - `fields` and `kind` agree: a node has the columns that its kind documents, in that order. The
//!   constructors of this module keep the two together; whoever calls [`LogicalPlan::node`] is
//!   responsible for it;
//! - two nodes with the same [`LogicalPlan::describe`] over the same inputs keep the same state:
//!   the stage identifiers of `physical` rest on that. Sharing ([`dag`]) asks for more, in the key
//!   of `sharing`: whatever changes the rows of a node or the types of its columns belongs into its
//!   text or its key, and what does not (a [`WindowId`]) stays out of both;
//! - a time attribute is a promise: a column is a row time only where the watermark that arrives
//!   with a row still bounds the times of later rows. A node that emits rows in another order of
//!   time removes the attribute ([`Field::without_time`]);
//! - whether rows are updated later is no property of a node alone. [`changes`] derives it from the
//!   whole plan and from the runtime mode.
//!
//! The nodes and the operators of Flink's planner that do the same:
//!
//! | node | Flink | columns |
//! |---|---|---|
//! | Scan | TableSourceScan | the declared columns that are read |
//! | Normalize | ChangelogNormalize | the input's |
//! | Filter, Project | Calc | the input's; one per expression |
//! | WindowRows | WindowTableFunction | the input's, window_start, window_end, window_time |
//! | WindowAggregate | WindowAggregate, GroupWindowAggregate | keys, aggregates, the window's |
//! | Aggregate | GroupAggregate | keys, aggregates |
//! | Join | Join, IntervalJoin, WindowJoin, TemporalJoin, LookupJoin | left, right |
//! | SetOperation | a join or a union with generated rows | the left input's |
//! | Over | OverAggregate | the input's, one per call |
//! | Match | Match | partition keys, values |
//! | Process | ProcessTableFunction | those of its function |
//! | TopN, Deduplicate | Rank, Deduplicate | the input's; TopN appends the rank |
//! | Unnest | Correlate; Expand for grouping sets | the input's, those of the element |
//! | TemporalSort, SortLimit, Limit | the same | the input's |
//! | CheckNotNull | ConstraintEnforcer | the input's |
//!
//! Nothing here reads catalogs, touches connectors or runs. There is no cost model and no
//! reordering of joins: a plan follows the text of the query.

mod anti_join;
pub mod changes;
pub mod dag;
mod demand;
pub mod fields;
pub mod join;
pub mod not_null;
pub mod pattern;
mod prune;
pub mod pushdown;
pub mod ranks;
pub mod references;
mod sharing;
pub mod traversal;
pub mod upserts;

use std::fmt::Write;
use std::sync::Arc;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{DataType, Error, TableSchema};
use thalweg_expr::Expr;
use thalweg_operators::aggregate::AggregateFunction;
use thalweg_operators::chain::NotNull;
use thalweg_operators::pattern::{Pattern, PatternValue};
use thalweg_operators::window::WindowKind;

pub use anti_join::anti_join;
pub use fields::{Field, TimeAttribute, WindowId, fields_schema};
pub use join::{JoinBound, JoinCondition, JoinKey, JoinKind};
pub use ranks::{
    OverCall, OverFrame, OverFunction, OverWindow, RankFunction, WholeFrame, WholeNumber,
};
pub use sharing::drawn_again;

use crate::processes::ProcessTable;
use crate::resolved_table::{ColumnOrigin, ResolvedColumn, ResolvedTable};

/// A node, shared.
///
/// Compare nodes by address (`Arc::ptr_eq`), never by their contents: after [`dag::optimize`] equal
/// plans are one node.
pub type Node = Arc<LogicalPlan>;

/// A relation: what it is and which columns it has.
///
/// The names in `fields` are for messages, EXPLAIN and sinks. References between nodes are
/// positions.
#[derive(Debug)]
pub struct LogicalPlan {
    /// What it is.
    pub kind: LogicalKind,
    /// Its columns.
    pub fields: Arc<[Field]>,
}

/// The kinds of relation.
#[derive(Clone, Debug)]
pub enum LogicalKind {
    /// The rows of a table, with those of its declared columns that are read. A scan of upserts is
    /// only ever the input of `Normalize` ([`LogicalPlan::read`]).
    Scan {
        /// The table.
        table: Arc<ResolvedTable>,
        /// Positions of the declared columns that are read, ascending.
        /// Pruning drops positions, and a scan keeps at least one: a batch without columns has no
        /// length.
        columns: Vec<usize>,
    },
    /// Constant rows.
    Values {
        /// One expression per column and row; they refer to no column.
        /// One row without columns is what a SELECT without FROM reads.
        rows: Vec<Vec<Expr>>,
    },
    /// The rows for which the predicate is TRUE.
    /// FALSE and UNKNOWN (NULL) drop the row alike.
    Filter {
        /// The rows.
        input: Node,
        /// A BOOLEAN expression.
        predicate: Expr,
    },
    /// Computed columns.
    Project {
        /// The rows.
        input: Node,
        /// One per output column.
        expressions: Vec<Expr>,
    },
    /// One row per window a row belongs to; window_start, window_end and window_time are appended.
    ///
    /// HOP of 4 minutes every 2 minutes makes two rows of each:
    ///
    /// ```text
    /// input: ts    | v        output: ts    | v | window_start | window_end | window_time
    ///        12:03 | 7                12:03 | 7 | 12:00        | 12:04      | 12:03:59.999
    ///                                 12:03 | 7 | 12:02        | 12:06      | 12:05:59.999
    /// ```
    ///
    /// The rows leave at once; nothing waits for the watermark. An aggregate over the window's
    /// columns absorbs this node (`bind::strip`), so that no row is repeated for it. Sessions can't
    /// stand alone: a session is known only when it has ended.
    WindowRows {
        /// The rows.
        input: Node,
        /// The windows.
        window: Window,
    },
    /// Aggregates per window and key. Columns: the keys, the aggregates, window_start,
    /// window_end, window_time.
    ///
    /// A window leaves once, when the watermark closes it, so its rows are final (append-only).
    /// Rows that come after that are late.
    WindowAggregate {
        /// The rows.
        input: Node,
        /// The windows.
        window: Window,
        /// What rows are grouped by besides the window.
        keys: Vec<Expr>,
        /// What is computed.
        aggregates: Vec<Aggregate>,
        /// Which of the window's three columns are read downstream.
        /// The operator leaves the others undefined. Pruning keeps all three in `fields`, since
        /// what reads them counts from the end.
        read: [bool; 3],
    },
    /// Aggregates per key over all rows so far, as a changelog. Columns: the keys, the aggregates.
    ///
    /// ```text
    /// input: +I a 1    output: +I a 1
    ///        +I a 2            -U a 1, +U a 3
    /// ```
    ///
    /// Without keys there is one group, which does not exist before its first row. Without
    /// aggregates (DISTINCT) a key is inserted once, so the result of append-only rows is
    /// append-only.
    Aggregate {
        /// The rows.
        input: Node,
        /// What rows are grouped by.
        keys: Vec<Expr>,
        /// What is computed; nothing for DISTINCT.
        aggregates: Vec<Aggregate>,
        /// For how many milliseconds a key is kept, 0 for ever, where a hint says so.
        state_ttl_ms: Option<i64>,
    },
    /// Rows of two inputs that belong together. Columns: the left ones, then the right ones unless
    /// it is a semi or anti join.
    ///
    /// Columns of a side that an outer join pads are nullable in `fields`. What the join keeps, and
    /// for how long, depends on [`JoinCondition::bound`].
    Join {
        /// The left rows.
        left: Node,
        /// The right rows.
        right: Node,
        /// Which rows are kept.
        kind: JoinKind,
        /// What belongs together.
        condition: JoinCondition,
    },
    /// Rows that are in both inputs, or in the first alone, NULLs being equal.
    /// All columns are compared, so pruning drops none. Both inputs have the same types in the same
    /// order.
    SetOperation {
        /// The first.
        left: Node,
        /// The second.
        right: Node,
        /// True for INTERSECT, false for EXCEPT.
        intersects: bool,
        /// True if duplicates count.
        all: bool,
    },
    /// The input's rows with functions over the rows before them appended.
    /// Without updates: a row waits until no earlier one can come, and leaves once.
    Over {
        /// The rows.
        input: Node,
        /// Over which rows.
        window: OverWindow,
        /// What is computed.
        calls: Vec<OverCall>,
    },
    /// One row for each match of a pattern over the rows of a key. Columns: the keys, the values.
    /// ONE ROW PER MATCH, the only form that Flink supports.
    Match {
        /// The rows.
        input: Node,
        /// The pattern.
        pattern: Arc<Pattern>,
        /// What a match gives.
        values: Vec<PatternValue>,
    },
    /// What a process function of a program makes of its rows. Columns: those that it says.
    Process {
        /// The rows: the key first, and no other columns than it reads.
        input: Node,
        /// What the relation is called.
        name: String,
        /// What it is.
        process: Arc<dyn ProcessTable>,
    },
    /// The rows of each key whose rank lies in a range; the rank is appended if `shows_rank`.
    ///
    /// A new first row of `ranks` 1 to 2, with the rank and without it:
    ///
    /// ```text
    /// before: a 9 1, a 5 2     +I a 10 → -U a 9 1, +U a 10 1, -U a 5 2, +U a 9 2
    /// before: a 9,   a 5       +I a 10 → -D a 5, +I a 10
    /// ```
    TopN {
        /// The rows.
        input: Node,
        /// The partition keys of the ranks.
        keys: Vec<usize>,
        /// What ranks follow.
        order: Vec<SortKey>,
        /// How rows of equal rank count.
        function: RankFunction,
        /// The first rank and the last.
        /// Both inclusive, from 1. No row fits if the first is greater than the last.
        ranks: (u64, u64),
        /// False if the rank is not appended. A row that only moves up or down then causes no
        /// update, which is why pruning an unread rank matters (Flink's "no ranking output"
        /// optimization).
        shows_rank: bool,
    },
    /// One row per key: the first or the last.
    /// The first row by row time leaves when the watermark has passed it and never changes; the
    /// last one is an update of the one before.
    Deduplicate {
        /// The rows.
        input: Node,
        /// What there is one row for.
        keys: Vec<usize>,
        /// True for the last one.
        keeps_last: bool,
        /// The row time that decides; without one, the order of arrival.
        rowtime: Option<usize>,
    },
    /// What upserts leave of each key, as a full changelog.
    /// An upsert says only what the row of a key is now. This node keeps that row per key and adds
    /// the `-U` that operators need to retract it, or turns the first one into an insert.
    Normalize {
        /// The upserts.
        input: Node,
        /// The key.
        keys: Vec<usize>,
    },
    /// The input's rows, each repeated for every element of an array, which is appended.
    Unnest {
        /// The rows.
        input: Node,
        /// The array.
        array: Expr,
        /// True if a row without elements stays (with NULL).
        outer: bool,
        /// True if the element's number (from 1) is appended as well.
        ordinality: bool,
    },
    /// The rows of all inputs, which have the same types.
    UnionAll {
        /// At least two.
        inputs: Vec<Node>,
    },
    /// All rows in order of event time, released by the watermark.
    TemporalSort {
        /// The rows.
        input: Node,
        /// The first is the row time, ascending.
        keys: Vec<SortKey>,
    },
    /// The first rows in some order. Of an input that ends they leave once, at its end, sorted;
    /// without a limit that is a full sort, in batch mode only. Of an unbounded input, or one that
    /// changes, they are a Top-N that is updated with every row (`physical` decides by
    /// [`changes`]).
    SortLimit {
        /// The rows.
        input: Node,
        /// What to sort by.
        keys: Vec<SortKey>,
        /// How many rows; `None` means all behind the offset.
        limit: Option<u64>,
        /// How many to skip before.
        offset: u64,
    },
    /// The first rows in order of arrival, whatever that is in a run. The input must be
    /// append-only.
    Limit {
        /// The rows.
        input: Node,
        /// How many rows; `None` means all behind the offset.
        limit: Option<u64>,
        /// How many to skip before.
        offset: u64,
    },
    /// Fails where a column that must not be NULL is.
    /// Stands in front of a sink. Its `fields` have the declared, NOT NULL types of that sink.
    CheckNotNull {
        /// The rows.
        input: Node,
        /// The columns.
        columns: Vec<NotNull>,
        /// The table that demands it.
        sink: String,
    },
    /// Something that can be typed but not run; refused once the whole query has been read, so
    /// that mistakes around it are reported first.
    Refused {
        /// What it is made of.
        inputs: Vec<Node>,
        /// Why.
        error: Error,
    },
}

/// Windows over a time column.
#[derive(Clone, Debug)]
pub struct Window {
    /// Which windows.
    pub kind: WindowKind,
    /// The position of the time column in the input.
    pub rowtime: usize,
    /// True if the time column is a TIMESTAMP_LTZ: windows follow the session's wall clock.
    pub is_instant: bool,
    /// The identity of this use of a windowing function; not part of what it computes.
    /// The binder connects `GROUP BY window_start, window_end` with the function by it. It must not
    /// appear in `describe`, or two equal windows would never be shared.
    pub id: WindowId,
    /// `PARTITION BY` of a session window, as positions in the input.
    /// The binder checks it against the keys of GROUP BY and then clears it: an aggregate of
    /// sessions has them as its keys.
    pub partition_by: Vec<usize>,
}

/// An aggregate to compute.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which function.
    pub function: AggregateFunction,
    /// Its SQL name, upper case.
    pub name: String,
    /// The column it computes.
    /// Its type is the result's. Its name holds a `$`, so it does not collide with the name of a
    /// column.
    pub column: thalweg_core::Column,
    /// Its argument; `None` for `COUNT(*)`.
    pub argument: Option<Expr>,
    /// True if equal values count once.
    pub distinct: bool,
    /// `FILTER (WHERE …)`
    pub filter: Option<Expr>,
}

/// A sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The position of the column.
    pub column: usize,
    /// True for DESC.
    pub descending: bool,
    /// `NULLS FIRST` or `NULLS LAST`, if given.
    /// Without either NULL is the smallest value, as in Flink: first ascending, last descending.
    pub nulls_first: Option<bool>,
}

/// The operators' word for it.
impl From<&SortKey> for thalweg_operators::sort::SortKey {
    fn from(key: &SortKey) -> Self {
        let SortKey { column, descending, nulls_first } = *key;
        thalweg_operators::sort::SortKey { column, descending, nulls_first }
    }
}

impl LogicalPlan {
    /// A node.
    pub fn node(kind: LogicalKind, fields: impl Into<Arc<[Field]>>) -> Node {
        Arc::new(LogicalPlan { kind, fields: fields.into() })
    }

    /// The rows of a table with all its declared columns.
    pub fn scan(table: Arc<ResolvedTable>) -> Node {
        let fields: Vec<Field> = table.fields();
        let columns = (0..fields.len()).collect();
        Self::node(LogicalKind::Scan { table, columns }, fields)
    }

    /// The rows of a table as queries see them: where it holds upserts, what they leave of each
    /// key.
    pub fn read(table: Arc<ResolvedTable>) -> Node {
        let is_key = |column: &ResolvedColumn| matches!(column.origin, ColumnOrigin::Physical(at) if table.primary_key.contains(&at));
        let columns = table.columns.iter().enumerate();
        let keys = columns.filter(|(_, column)| is_key(column)).map(|(position, _)| position);
        let keys = keys.collect();
        let has_upserts = table.reading.changes == AcceptedChanges::Upserts;
        let input = Self::scan(table);
        if !has_upserts {
            return input;
        }
        let fields = input.fields.clone();
        Self::node(LogicalKind::Normalize { input, keys }, fields)
    }

    /// The rows for which the predicate is TRUE.
    pub fn filter(input: Node, predicate: Expr) -> Node {
        let fields = input.fields.clone();
        Self::node(LogicalKind::Filter { input, predicate }, fields)
    }

    /// Computed columns with their names. Time attributes follow plain column references.
    /// An expression over a time attribute (`ts + INTERVAL '1' HOUR`, a CAST) is an ordinary
    /// column: the watermark says nothing about it. PROCTIME() is the exception.
    pub fn project(input: Node, columns: Vec<(String, Expr)>) -> Node {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, expr)| {
                let time = Self::time_of(expr, &input.fields);
                Field { name: name.clone(), column_type: expr.column_type.clone(), time }
            })
            .collect();
        let expressions = columns.into_iter().map(|(_, expr)| expr).collect();
        Self::node(LogicalKind::Project { input, expressions }, fields)
    }

    /// Each row once: a grouping by all columns.
    /// No column keeps its time attribute: the first of equal rows leaves at once, whatever its
    /// time.
    pub fn distinct(input: Node) -> Node {
        let fields: Vec<Field> = input.fields.iter().cloned().map(Field::without_time).collect();
        let keys = input.columns().map(|(_, column)| column).collect();
        let (aggregates, state_ttl_ms) = (Vec::new(), None);
        Self::node(LogicalKind::Aggregate { input, keys, aggregates, state_ttl_ms }, fields)
    }

    /// What an expression over these columns means for time.
    pub fn time_of(expr: &Expr, fields: &[Field]) -> TimeAttribute {
        match &expr.kind {
            thalweg_expr::ExprKind::Column(column) => fields[*column].time,
            thalweg_expr::ExprKind::Call { function, .. } if function.name == "PROCTIME" => {
                TimeAttribute::ProcTime
            }
            _ => TimeAttribute::None,
        }
    }

    /// The columns as a schema.
    pub fn schema(&self) -> TableSchema {
        fields_schema(&self.fields)
    }

    /// Its columns as expressions over it, with their names.
    pub fn columns(&self) -> impl Iterator<Item = (String, Expr)> {
        self.fields.iter().enumerate().map(|(position, field)| field.named_at(position))
    }

    /// The relations it is made from.
    pub fn inputs(&self) -> Vec<&Node> {
        self.kind.inputs()
    }

    /// What the node computes, without its inputs.
    ///
    /// Columns are written `$3`, by position in the input. Three readers depend on the exact text:
    /// sharing ([`dag`], whose key adds to it), stage identifiers (`physical::identity`, which
    /// replaces each `$n`), and EXPLAIN. A change of this text changes stage identifiers, so
    /// snapshots of older versions no longer fit.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        match &self.kind {
            LogicalKind::Scan { table, columns } => describe_scan(&mut text, table, columns),
            LogicalKind::Values { rows } => describe_values(&mut text, rows),
            LogicalKind::Filter { predicate, .. } => write_to(&mut text, "Filter", predicate),
            LogicalKind::Project { expressions, .. } => {
                text.push_str("Project ");
                self.describe_projection(&mut text, expressions);
            }
            LogicalKind::WindowRows { window, .. } => {
                write_to(&mut text, "WindowRows", &window);
            }
            LogicalKind::WindowAggregate { window, keys, aggregates, .. } => {
                write_to(&mut text, "WindowAggregate", &window);
                let _ = write!(text, " by [{}]", join(keys));
                let _ = write!(text, " compute [{}]", join(aggregates));
            }
            LogicalKind::Aggregate { keys, aggregates, state_ttl_ms, .. } => {
                let _ = write!(text, "Aggregate by [{}]", join(keys));
                let _ = write!(text, " compute [{}]", join(aggregates));
                let _ = state_ttl_ms.map(|ms| write!(text, " kept for {ms} ms"));
            }
            LogicalKind::Join { kind, condition, .. } => {
                let _ = write!(text, "{kind:?} join on {condition}");
            }
            LogicalKind::SetOperation { intersects, all, .. } => {
                text.push_str(if *intersects { "Intersect" } else { "Except" });
                text.push_str(if *all { " all" } else { "" });
            }
            LogicalKind::Over { window, calls, .. } => {
                let _ = write!(text, "Over {window} compute [{}]", join(calls));
            }
            LogicalKind::Match { pattern, values, .. } => {
                pattern::describe(&mut text, pattern, values);
            }
            LogicalKind::Process { name, .. } => {
                let _ = write!(text, "Process {name} by [$0]");
            }
            LogicalKind::TopN { .. }
            | LogicalKind::Deduplicate { .. }
            | LogicalKind::Normalize { .. } => self.describe_rows_of_keys(&mut text),
            LogicalKind::Unnest { array, outer, ordinality, .. } => {
                write_to(&mut text, "Unnest", array);
                text.push_str(if *outer { " outer" } else { "" });
                text.push_str(if *ordinality { " with ordinality" } else { "" });
            }
            LogicalKind::UnionAll { .. } => text.push_str("UnionAll"),
            LogicalKind::TemporalSort { keys, .. } => {
                let _ = write!(text, "TemporalSort [{}]", join(keys));
            }
            LogicalKind::SortLimit { keys, limit, offset, .. } => {
                let _ = write!(text, "SortLimit [{}]", join(keys));
                describe_range(&mut text, *limit, *offset);
            }
            LogicalKind::Limit { limit, offset, .. } => {
                text.push_str("Limit");
                describe_range(&mut text, *limit, *offset);
            }
            LogicalKind::CheckNotNull { columns, sink, .. } => {
                let names: Vec<&str> =
                    columns.iter().map(|c| self.fields[c.column].name.as_str()).collect();
                let _ = write!(text, "CheckNotNull [{}] of {sink}", names.join(", "));
            }
            LogicalKind::Refused { error, .. } => write_to(&mut text, "Refused", error),
        }
        text
    }

    /// What chooses some rows of each key.
    fn describe_rows_of_keys(&self, text: &mut String) {
        match &self.kind {
            LogicalKind::TopN { keys, order, function, ranks, shows_rank, .. } => {
                let _ = write!(text, "TopN {function:?} {} to {}", ranks.0, ranks.1);
                let _ = write!(text, " by {keys:?} order [{}]", join(order));
                text.push_str(if *shows_rank { " with rank" } else { "" });
            }
            LogicalKind::Deduplicate { keys, keeps_last, rowtime, .. } => {
                let kept = if *keeps_last { "last" } else { "first" };
                let at = rowtime.map(|column| format!(" at ${column}")).unwrap_or_default();
                let _ = write!(text, "Deduplicate {kept} by {keys:?}{at}");
            }
            LogicalKind::Normalize { keys, .. } => {
                let _ = write!(text, "Normalize by {keys:?}");
            }
            _ => {}
        }
    }

    fn describe_projection(&self, text: &mut String, expressions: &[Expr]) {
        for (i, (expr, field)) in expressions.iter().zip(self.fields.iter()).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{expr} AS {}", field.name);
        }
    }
}

fn describe_scan(text: &mut String, table: &ResolvedTable, columns: &[usize]) {
    let names: Vec<&str> = columns.iter().map(|&i| table.columns[i].column.name.as_str()).collect();
    let _ = write!(text, "Scan {} [{}]", table.name, names.join(", "));
}

fn describe_range(text: &mut String, limit: Option<u64>, offset: u64) {
    let _ = limit.map(|limit| write!(text, " limit {limit}"));
    let _ = write!(text, " offset {offset}");
}

fn describe_values(text: &mut String, rows: &[Vec<Expr>]) {
    text.push_str("Values");
    for row in rows {
        let _ = write!(text, " ({})", join(row));
    }
}

fn write_to(text: &mut String, word: &str, what: &dyn std::fmt::Display) {
    let _ = write!(text, "{word} {what}");
}

fn join<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// TRUE, also as a column for where only the number of rows matters: a batch must have a column to
/// have a length.
pub fn unit() -> Expr {
    Expr::literal(thalweg_expr::Scalar::Boolean(true), DataType::Boolean.not_null())
}

/// The column that an expression is, if it is nothing but a column.
pub fn column_of(expr: &Expr) -> Option<usize> {
    match expr.kind {
        thalweg_expr::ExprKind::Column(index) => Some(index),
        _ => None,
    }
}

impl std::fmt::Display for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        match &self.argument {
            Some(argument) => {
                let constants = self.function.constants().unwrap_or_default();
                write!(f, "{}({distinct}{argument}{constants})", self.name)?;
            }
            None => write!(f, "{}(*)", self.name)?,
        }
        match &self.filter {
            Some(filter) => write!(f, " FILTER ({filter})"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for SortKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "${}{}", self.column, if self.descending { " DESC" } else { "" })?;
        match self.nulls_first {
            Some(true) => f.write_str(" NULLS FIRST"),
            Some(false) => f.write_str(" NULLS LAST"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on ${}", self.kind, self.rowtime)?;
        if self.id.by_clock {
            f.write_str(" in processing time")?;
        }
        if self.is_instant {
            f.write_str(" local")?;
        }
        if !self.partition_by.is_empty() {
            let columns: Vec<String> = self.partition_by.iter().map(|i| format!("${i}")).collect();
            write!(f, " partition by {}", columns.join(", "))?;
        }
        Ok(())
    }
}
