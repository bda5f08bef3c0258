//! Relations that a keyed process function of a program makes of another relation.
//!
//! A program registers such a function under a name, and queries read it as they read a view. The
//! planner knows what it reads and which columns it makes; the operator that it brings along knows
//! the rest.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use thalweg_core::{DataType, Operator, Result, TableSchema};

/// A relation that a process function makes of the rows of another one.
pub trait ProcessTable: Debug + Send + Sync {
    /// The relation that it reads: a table or a view, by its path.
    fn input(&self) -> &str;
    /// The columns that it reads, the key first.
    fn columns(&self) -> &[String];
    /// The columns that it makes.
    fn result(&self) -> TableSchema;
    /// The operator, for columns of these types. Its name and its result decide with what state it
    /// can resume.
    ///
    /// # Errors
    /// If it cannot take these types.
    fn operator(&self, types: &[DataType]) -> Result<Arc<dyn Operator>>;
    /// What EXPLAIN says of it, such as where it runs.
    fn description(&self) -> String;
}

/// Those of a session by name.
pub type ProcessTables = BTreeMap<String, Arc<dyn ProcessTable>>;
