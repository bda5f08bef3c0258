//! Statements of the dialect as the parser delivers them.
//!
//! Queries are trees of `sqlparser`; what that parser does not know of Flink's dialect is taken
//! out of the token stream first. A windowing table function becomes a table named
//! [`WindowCall::placeholder`] in the query, and its arguments stand in [`Query::windows`].
//!
//! **Invariants:**
//! - every name keeps its place in the text, so that errors of later steps can point at it. A place
//!   with line 0 is none;
//! - a placeholder occurs exactly once in the tree of its query or of a query inside of it;
//! - nothing is resolved: names may not exist, and types of expressions are not known;
//! - texts are kept where something shows them again: statements of CREATE TABLE, queries of views.

use sqlparser::ast as sql;
use thalweg_core::{ColumnType, Span};

use crate::windows::WindowFunction;

/// A statement and where it begins.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it says.
    pub kind: StatementKind,
    /// Where its first word stands.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a script has few of them")]
pub enum StatementKind {
    /// `CREATE [TEMPORARY] TABLE [IF NOT EXISTS]`
    CreateTable(CreateTable),
    /// `CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] AS query`
    CreateView {
        /// Its name.
        name: Name,
        /// New names for the columns, if given.
        /// As many as the query has columns, or none; the binder checks it.
        columns: Vec<Name>,
        /// What it stands for.
        query: Query,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// `OR REPLACE`
        or_replace: bool,
    },
    /// `DROP [TEMPORARY] TABLE|VIEW [IF EXISTS] name`
    Drop {
        /// What to drop.
        name: Name,
        /// True for a view.
        is_view: bool,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// `SHOW TABLES`, `SHOW VIEWS`, `SHOW CREATE TABLE t`, `SHOW FUNCTIONS`, …
    Show(Show),
    /// `DESCRIBE t` or `DESC t`
    Describe(Name),
    /// `SET 'key' = 'value'`
    Set {
        /// The option.
        key: Name,
        /// Its value.
        value: String,
    },
    /// `RESET ['key']`
    Reset(Option<Name>),
    /// `INSERT INTO t [(columns)] query`
    Insert(Insert),
    /// `EXECUTE STATEMENT SET BEGIN … END` or `BEGIN STATEMENT SET; … END`
    StatementSet(Vec<Insert>),
    /// `EXPLAIN [details] statement`
    Explain(Box<Statement>),
    /// A query that prints its result.
    Select(Query),
}

/// A name with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The name without quotes.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// What to list.
#[derive(Clone, Debug)]
pub enum Show {
    /// Tables and views
    Tables,
    /// Views
    Views,
    /// Functions
    Functions,
    /// What the connectors are
    Connectors,
    /// `DESCRIBE CONNECTOR name`: the options of a connector
    Connector(Name),
    /// The statement that creates a table
    CreateTable(Name),
    /// The statement that creates a view
    CreateView(Name),
    /// `SET` alone: the options that are set
    Settings,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// Its name.
    pub name: Name,
    /// Its columns in order.
    pub columns: Vec<TableColumn>,
    /// `WATERMARK FOR column AS expression`
    pub watermark: Option<WatermarkSpec>,
    /// `PRIMARY KEY (…) NOT ENFORCED`
    pub primary_key: Vec<Name>,
    /// `PARTITIONED BY (…)`
    pub partitioned_by: Vec<Name>,
    /// `WITH (…)`, in order: names and values.
    pub options: Vec<(Name, Name)>,
    /// `COMMENT '…'`
    pub comment: Option<String>,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The statement as it was written, for SHOW CREATE TABLE.
    pub text: String,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct TableColumn {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: TableColumnKind,
}

/// The kinds of column.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a script has few of them")]
pub enum TableColumnKind {
    /// Read from the data.
    Physical(ColumnType),
    /// `name AS expression`
    Computed(sql::Expr),
    /// `name type METADATA [FROM 'key'] [VIRTUAL]`
    Metadata {
        /// Its type.
        column_type: ColumnType,
        /// The connector's name for it.
        key: String,
        /// True if it can't be written.
        is_virtual: bool,
    },
}

/// `WATERMARK FOR column AS expression`.
#[derive(Clone, Debug)]
pub struct WatermarkSpec {
    /// The row time column.
    pub column: Name,
    /// The watermark that a row establishes.
    pub expression: sql::Expr,
}

/// `INSERT INTO`.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The table to write.
    pub table: Name,
    /// The columns to write, if given.
    pub columns: Vec<Name>,
    /// What to write.
    pub query: Query,
}

/// A query with its window calls taken out.
#[derive(Clone, Debug)]
pub struct Query {
    /// The tree.
    pub query: Box<sql::Query>,
    /// The windowing table functions in it.
    /// Not those of queries inside of a window call, which have their own list.
    pub windows: Vec<WindowCall>,
    /// The hints in it that say how to join.
    pub hints: Vec<JoinHint>,
    /// Where `ASOF JOIN` stands in it.
    pub asof_joins: Vec<Span>,
    /// The query's text, for EXPLAIN and for views in SHOW.
    pub text: String,
    /// Where it begins.
    pub span: Span,
}

/// `/*+ BROADCAST(t) */` and its kin: a table is to be read before what it is joined with; or
/// `/*+ STATE_TTL('t' = '1d') */`: how long its rows are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinHint {
    /// Its word, in upper case.
    pub word: String,
    /// The tables or aliases that it names.
    pub tables: Vec<String>,
    /// Of `STATE_TTL`: for how many milliseconds, 0 for ever.
    pub state_ttl_ms: Option<i64>,
    /// Where it stands.
    pub span: Span,
}

/// `TABLE(TUMBLE(…))` and its kin, or the short form `TUMBLE(…)`, in a FROM clause.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// The name of the table that stands for it in the tree.
    pub placeholder: String,
    /// Which function.
    pub function: &'static WindowFunction,
    /// The rows.
    pub input: WindowInput,
    /// `PARTITION BY` of a session.
    pub partition_by: Vec<Name>,
    /// The time column.
    pub time_column: Name,
    /// The intervals in the order of the call.
    /// Only those that were written: an offset may be missing.
    pub intervals: Vec<sql::Expr>,
    /// True for `TUMBLE(t, ts, …)`, which Flink does not know.
    pub is_short: bool,
    /// Where it begins.
    pub span: Span,
}

/// The rows that go into a window.
#[derive(Clone, Debug)]
pub enum WindowInput {
    /// `TABLE name`
    Table(Name),
    /// `(SELECT …)`
    Query(Box<Query>),
}
