//! Statements of the dialect as the parser delivers them.
//!
//! Queries are trees of `sqlparser`; what that parser does not know of Flink's dialect is taken
//! out of the token stream first. A windowing table function becomes a table named
//! [`WindowCall::placeholder`] in the query, and its arguments stand in [`Query::windows`].
//!
//! **Invariants:**
//! - the name of a table, view, function or database may hold those of database and catalog before
//!   it: one text with dots, in which a name that holds a dot itself stands in backticks
//!   (`catalog::path`);
//! - every name keeps its place in the text, so that errors of later steps can point at it. A place
//!   with line 0 is none;
//! - a placeholder occurs exactly once in the tree of its query or of a query inside of it;
//! - nothing is resolved: names may not exist, and types of expressions are not known;
//! - texts are kept where something shows them again: statements of CREATE TABLE, queries of views.

mod declarations;

use sqlparser::ast as sql;
use thalweg_core::{ColumnType, Span};

use crate::windows::WindowFunction;

pub use declarations::{
    AnalyzedColumns, AsClause, ColumnPosition, CreateFunction, Declaration, Distribution,
    LikeAction, LikeClause, LikeFeature, ListFilter, Materialization, NamePattern, OptionChange,
    OptionList, PartitionValues, TableChange, TableParts, ViewChange,
};

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
    /// Databases, functions, ALTER and the like.
    Declare(Declaration),
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
    Explain(Box<Explained>),
    /// A query that prints its result.
    Select(Query),
    /// `COMPILE PLAN …` or `COMPILE AND EXECUTE PLAN …`
    CompilePlan(CompilePlan),
    /// `EXECUTE PLAN 'file'`
    ExecutePlan(Name),
    /// `SHOW JOBS`, `DESCRIBE JOB`, `STOP JOB`
    Jobs(JobCommand),
}

/// `COMPILE PLAN 'file' [IF NOT EXISTS] FOR statement`, or `COMPILE AND EXECUTE PLAN 'file' FOR
/// statement`.
#[derive(Clone, Debug)]
pub struct CompilePlan {
    /// The file.
    pub path: Name,
    /// `IF NOT EXISTS`: a file that is there stays as it is.
    pub if_not_exists: bool,
    /// `AND EXECUTE`: the plan runs, that of the file if there is one.
    pub is_executed: bool,
    /// An INSERT or a statement set.
    pub statement: Box<Statement>,
    /// Its text, as a statement of its own.
    pub text: String,
}

/// A statement about the jobs of the session.
#[derive(Clone, Debug)]
pub enum JobCommand {
    /// `SHOW JOBS`
    Show,
    /// `DESCRIBE JOB 'id'`
    Describe(Name),
    /// `STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]`
    Stop {
        /// The job.
        id: Name,
        /// It ends with a snapshot, whose place is the answer.
        with_savepoint: bool,
        /// Its windows are closed, as if its inputs had ended.
        with_drain: bool,
    },
}

/// What EXPLAIN explains, and what it shows besides the plan.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The statement.
    pub statement: Statement,
    /// The details that are named.
    pub details: ExplainDetails,
}

/// The details of EXPLAIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplainDetails {
    /// `CHANGELOG_MODE`: which changes the rows of each node are.
    pub shows_changes: bool,
    /// `ESTIMATED_COST`
    pub shows_cost: bool,
    /// `JSON_EXECUTION_PLAN`: the stages as JSON.
    pub shows_json: bool,
    /// `PLAN_ADVICE`: what its author may not want.
    pub shows_advice: bool,
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
    Tables(ListFilter),
    /// Views
    Views(ListFilter),
    /// Materialized tables
    MaterializedTables(ListFilter),
    /// Functions; with `USER` only those that are not built in
    Functions {
        /// `SHOW USER FUNCTIONS`
        is_user: bool,
        /// Which.
        filter: ListFilter,
    },
    /// Databases of a catalog
    Databases(ListFilter),
    /// Catalogs
    Catalogs(ListFilter),
    /// `SHOW CURRENT CATALOG`
    CurrentCatalog,
    /// `SHOW CURRENT DATABASE`
    CurrentDatabase,
    /// Columns of a table or view, as DESCRIBE
    Columns(ListFilter),
    /// `SHOW PARTITIONS table [PARTITION (…)]`
    Partitions {
        /// The table.
        name: Name,
        /// What the partitions have in common.
        only: PartitionValues,
    },
    /// Modules; all of them with `FULL`
    Modules {
        /// `SHOW FULL MODULES`
        is_full: bool,
    },
    /// The files that ADD JAR has named
    Jars,
    /// What there is none of here: the header of an empty list
    Nothing(&'static str),
    /// What the connectors are
    Connectors,
    /// `DESCRIBE CONNECTOR name`: the options of a connector
    Connector(Name),
    /// `DESCRIBE CATALOG [EXTENDED] name`
    Catalog {
        /// Its name.
        name: Name,
        /// `EXTENDED`: with its options
        is_extended: bool,
    },
    /// `DESCRIBE DATABASE [EXTENDED] name`
    Database {
        /// Its name.
        name: Name,
        /// `EXTENDED`: with its options
        is_extended: bool,
    },
    /// `DESCRIBE FUNCTION [EXTENDED] name`
    Function(Name),
    /// The statement that creates a table
    CreateTable(Name),
    /// The statement that creates a view
    CreateView(Name),
    /// The statement that creates a catalog
    CreateCatalog(Name),
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
    /// `DISTRIBUTED …`
    pub distribution: Option<Distribution>,
    /// What ALTER TABLE … ADD PARTITION has named.
    pub partitions: Vec<PartitionValues>,
    /// `WITH (…)`, in order: names and values.
    pub options: Vec<(Name, Name)>,
    /// `COMMENT '…'`
    pub comment: Option<String>,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `CREATE OR REPLACE`, or REPLACE: a table of this name goes.
    pub is_replacing: bool,
    /// `LIKE table`, until the catalog has taken over what that table has.
    pub like: Option<LikeClause>,
    /// `AS query`, until the query's columns are known.
    pub as_query: Option<Box<AsClause>>,
    /// `CREATE MATERIALIZED TABLE`
    pub materialized: Option<Materialization>,
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
    /// `OVERWRITE` in the place of INTO.
    pub overwrites: bool,
    /// `PARTITION (column = value, …)`: what these columns hold in every row.
    pub partition: Vec<(Name, sql::Expr)>,
    /// True for the INSERT of CREATE TABLE AS: columns go by name.
    pub is_by_name: bool,
    /// `/*+ OPTIONS(…) */` behind the table.
    pub options: OptionList,
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
    /// Sub-queries with MATCH_RECOGNIZE behind them: the name of the table that stands for each in
    /// the tree, and the query.
    pub matched: Vec<(String, Query)>,
    /// The hints in it that say how to join.
    pub hints: Vec<JoinHint>,
    /// The options that hints give to tables in it.
    pub table_options: Vec<TableOptions>,
    /// Where `ASOF JOIN` stands in it.
    pub asof_joins: Vec<Span>,
    /// The query's text, for EXPLAIN and for views in SHOW.
    pub text: String,
    /// Where it begins.
    pub span: Span,
}

/// `t /*+ OPTIONS('key' = 'value') */`: other options of a table, for one query.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// Where the table's name ends: line and column.
    pub behind: (u32, u32),
    /// The options.
    pub options: OptionList,
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
