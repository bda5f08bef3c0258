//! Declarations besides tables and views: catalogs, databases, functions, modules, and ALTER.

use super::{CreateTable, Name, Query};

/// Options as they stand in a text: names and values, in order.
pub type OptionList = Vec<(Name, Name)>;

/// A declaration that is neither CREATE TABLE, CREATE VIEW nor DROP of these.
#[derive(Clone, Debug)]
pub enum Declaration {
    /// `CREATE CATALOG [IF NOT EXISTS] name [COMMENT '…'] [WITH (…)]`
    CreateCatalog {
        /// Its name.
        name: Name,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// `COMMENT '…'`
        comment: Option<String>,
        /// `WITH (…)`
        options: OptionList,
    },
    /// `DROP CATALOG [IF EXISTS] name`
    DropCatalog {
        /// Its name.
        name: Name,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// `ALTER CATALOG name SET (…) | RESET (…) | COMMENT '…'`
    AlterCatalog {
        /// Its name.
        name: Name,
        /// What changes.
        change: OptionChange,
    },
    /// `CREATE DATABASE [IF NOT EXISTS] [catalog.]name [COMMENT '…'] [WITH (…)]`
    CreateDatabase {
        /// Its name, with the catalog's if that is given.
        name: Name,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// `COMMENT '…'`
        comment: Option<String>,
        /// `WITH (…)`
        options: OptionList,
    },
    /// `DROP DATABASE [IF EXISTS] [catalog.]name [RESTRICT | CASCADE]`
    DropDatabase {
        /// Its name, with the catalog's if that is given.
        name: Name,
        /// `IF EXISTS`
        if_exists: bool,
        /// `CASCADE`: with all that is in it.
        cascades: bool,
    },
    /// `ALTER DATABASE [catalog.]name SET (…)`
    AlterDatabase {
        /// Its name, with the catalog's if that is given.
        name: Name,
        /// What changes.
        change: OptionChange,
    },
    /// `USE CATALOG name`
    UseCatalog(Name),
    /// `USE [catalog.]database`
    UseDatabase(Name),
    /// `USE MODULES name, …`
    UseModules(Vec<Name>),
    /// `LOAD MODULE name [WITH (…)]`
    LoadModule(Name),
    /// `UNLOAD MODULE name`
    UnloadModule(Name),
    /// `ADD JAR 'file'`
    AddJar(Name),
    /// `REMOVE JAR 'file'`
    RemoveJar(Name),
    /// `CREATE [TEMPORARY [SYSTEM]] FUNCTION`, or ALTER FUNCTION
    CreateFunction(CreateFunction),
    /// `DROP [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name`
    DropFunction {
        /// Its name, with database and catalog if they are given.
        name: Name,
        /// `TEMPORARY SYSTEM`: it belongs to no database.
        is_system: bool,
        /// `IF EXISTS`
        if_exists: bool,
    },
    /// `ALTER TABLE [IF EXISTS] name …`
    AlterTable {
        /// Its name.
        name: Name,
        /// `IF EXISTS`
        if_exists: bool,
        /// What changes.
        change: Box<TableChange>,
    },
    /// `ALTER VIEW [IF EXISTS] name RENAME TO other | AS query`
    AlterView {
        /// Its name.
        name: Name,
        /// `IF EXISTS`
        if_exists: bool,
        /// What changes.
        change: ViewChange,
    },
    /// `ANALYZE TABLE name [PARTITION (…)] COMPUTE STATISTICS [FOR …]`
    AnalyzeTable {
        /// The table.
        name: Name,
        /// The columns that PARTITION names.
        partition: Vec<Name>,
        /// The columns that FOR names.
        columns: AnalyzedColumns,
    },
}

/// The values of the columns by which a table is partitioned, for one of its partitions.
pub type PartitionValues = Vec<(Name, String)>;

/// `DISTRIBUTED [BY [HASH | RANGE] (columns)] [INTO n BUCKETS]`
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// `HASH` or `RANGE`; else the connector decides.
    pub function: Option<&'static str>,
    /// The columns that decide in which bucket a row is.
    pub columns: Vec<Name>,
    /// How many buckets there are.
    pub buckets: Option<u32>,
    /// Where it stands.
    pub span: thalweg_core::Span,
}

/// Of which columns ANALYZE TABLE is to find statistics.
#[derive(Clone, Debug)]
pub enum AnalyzedColumns {
    /// Of the table alone.
    None,
    /// `FOR COLUMNS a, b`
    Named(Vec<Name>),
    /// `FOR ALL COLUMNS`
    All,
}

/// `SET (…)`, `RESET (…)` or `COMMENT '…'` of a catalog or database.
#[derive(Clone, Debug)]
pub enum OptionChange {
    /// Options that are added or replaced.
    Set(OptionList),
    /// Options that are removed.
    Reset(Vec<Name>),
    /// Another comment.
    Comment(String),
}

/// A function that SQL declares: another name for one that a program registers.
#[derive(Clone, Debug)]
pub struct CreateFunction {
    /// Its name, with database and catalog if they are given.
    pub name: Name,
    /// `TEMPORARY SYSTEM`: it belongs to no database and hides built-in functions.
    pub is_system: bool,
    /// `TEMPORARY`
    pub is_temporary: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// True for ALTER FUNCTION: it must exist, and is replaced.
    pub is_alteration: bool,
    /// `IF EXISTS` of ALTER FUNCTION.
    pub if_exists: bool,
    /// What it is called where it is implemented.
    pub identifier: Name,
    /// The language, upper case; Flink's default is JAVA.
    pub language: Option<Name>,
    /// The files of `USING JAR '…'`.
    pub resources: Vec<Name>,
}

/// A change of a table.
#[derive(Clone, Debug)]
pub enum TableChange {
    /// `RENAME TO name`
    RenameTo(Name),
    /// `RENAME column TO name`
    RenameColumn(Name, Name),
    /// `ADD column | watermark | key`, or several in brackets
    Add(TableParts),
    /// `MODIFY column | watermark | key`, or several in brackets
    Modify(TableParts),
    /// `DROP column`, or several in brackets
    DropColumns(Vec<Name>),
    /// `DROP PRIMARY KEY`, or `DROP CONSTRAINT name`
    DropPrimaryKey(Option<Name>),
    /// `DROP WATERMARK`
    DropWatermark(Name),
    /// `SET (…)`
    SetOptions(OptionList),
    /// `RESET (…)`
    ResetOptions(Vec<Name>),
    /// `ADD DISTRIBUTION …`, or `MODIFY DISTRIBUTION …` where there is one.
    SetDistribution {
        /// The new one.
        distribution: Distribution,
        /// MODIFY
        replaces: bool,
    },
    /// `DROP DISTRIBUTION`
    DropDistribution(Name),
    /// `ADD [IF NOT EXISTS] PARTITION (…) …`
    AddPartitions {
        /// Which.
        partitions: Vec<PartitionValues>,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
    },
    /// `DROP [IF EXISTS] PARTITION (…), …`
    DropPartitions {
        /// Which.
        partitions: Vec<PartitionValues>,
        /// `IF EXISTS`
        if_exists: bool,
    },
}

/// Columns, a watermark and a key, as in the brackets of CREATE TABLE.
#[derive(Clone, Debug)]
pub struct TableParts {
    /// The columns, the watermark and the key; nothing else of it counts.
    pub table: CreateTable,
    /// Where each column goes.
    pub positions: Vec<ColumnPosition>,
}

/// Where a column goes that ALTER TABLE adds or modifies.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnPosition {
    /// Behind the others, or where it is.
    Unchanged,
    /// `FIRST`
    First,
    /// `AFTER column`
    After(Name),
}

/// A change of a view.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a script has few of them")]
pub enum ViewChange {
    /// `RENAME TO name`
    RenameTo(Name),
    /// `AS query`
    Query(Query),
}

/// `LIKE table (options)` of CREATE TABLE.
#[derive(Clone, Debug)]
pub struct LikeClause {
    /// The table whose definition is taken over.
    pub table: Name,
    /// What the brackets say of its parts, in order.
    pub options: Vec<(LikeAction, LikeFeature, Name)>,
}

/// What becomes of a part of the other table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeAction {
    /// Taken over; a part of the same name is an error.
    Including,
    /// Left out.
    Excluding,
    /// Taken over; a part of the same name replaces it.
    Overwriting,
}

/// A part of a table that LIKE can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeFeature {
    /// Every part.
    All,
    /// The primary key.
    Constraints,
    /// `DISTRIBUTED …`
    Distribution,
    /// Computed columns.
    Generated,
    /// Metadata columns.
    Metadata,
    /// `WITH (…)`
    Options,
    /// `PARTITIONED BY (…)`
    Partitions,
    /// `WATERMARK FOR …`
    Watermarks,
}

/// `AS query` of CREATE TABLE. The INSERT that fills the table is a statement of its own.
#[derive(Clone, Debug)]
pub struct AsClause {
    /// What the table holds.
    pub query: Query,
    /// `CREATE TABLE t (b, a) AS …`: the query's columns in this order.
    pub order: Vec<Name>,
}

/// What CREATE MATERIALIZED TABLE says beyond CREATE TABLE AS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Materialization {
    /// `FRESHNESS = INTERVAL …`: how old what readers see may be.
    pub freshness: Option<std::time::Duration>,
}

/// Which of what SHOW lists: `[FROM | IN place] [[NOT] LIKE | ILIKE 'pattern']`.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Where: a catalog, a database or a table.
    pub of: Option<Name>,
    /// What names look like.
    pub pattern: Option<NamePattern>,
}

/// `[NOT] LIKE 'pattern'`
#[derive(Clone, Debug)]
pub struct NamePattern {
    /// With `%` and `_`.
    pub pattern: String,
    /// `NOT`
    pub is_negated: bool,
    /// `ILIKE`
    pub ignores_case: bool,
}
