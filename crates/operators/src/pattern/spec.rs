//! What is looked for, and what a match gives.
//!
//! How SQL maps to it:
//!
//! | SQL | here |
//! |---|---|
//! | `A` | `min: 1, max: Some(1)` |
//! | `A+`, `A*`, `A?` | `1..`, `0..`, `0..=1` |
//! | `A{2,4}` | `min: 2, max: Some(4)` |
//! | `A*?` (reluctant) | `is_greedy: false` |
//! | `FIRST(A.x, 1)`, `LAST(A.x, 1)` | `PatternValue::Row` with an offset from an end |

use thalweg_core::{Column, ColumnType, DataType, Error, Result, TableSchema};
use thalweg_expr::{Expr, ExprKind};

use crate::aggregate::AggregateFunction;
use crate::keys::KeyTable;
use crate::rows::columns::{check_columns, types_of};
use crate::sort::SortKey;
use crate::window::LatePolicy;

/// How many variables a pattern may have: the ways of one row through it are the bits of a word.
pub const VARIABLES_MAX: usize = 63;

/// A pattern over the rows of a key.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The input columns of PARTITION BY; none for one partition.
    pub keys: Vec<usize>,
    /// The input column with the row time that rows are ordered by.
    pub rowtime: usize,
    /// What rows of equal time are ordered by; where that is equal as well, by arrival.
    pub ties: Vec<SortKey>,
    /// The variables, in the order of the pattern.
    pub variables: Vec<Variable>,
    /// Where the search continues behind a match.
    pub skip: Skip,
    /// How long a match may take: the last row comes less than this behind the first.
    pub within_ms: Option<i64>,
}

/// A variable of a pattern: how many rows in a row, and which.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The fewest rows.
    pub min: u32,
    /// The most rows; `None` for any number.
    pub max: Option<u32>,
    /// True if a row that fits is always taken and the pattern continues with one that does not.
    pub is_greedy: bool,
    /// Which rows fit; `None` for all.
    pub condition: Option<Condition>,
}

/// A condition of DEFINE.
#[derive(Clone, Debug)]
pub struct Condition {
    /// What it reads, the row in question being the last of the variable's rows.
    pub values: Vec<PatternValue>,
    /// The condition over these values, by position.
    pub predicate: Expr,
}

/// Where the search continues behind a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Behind its last row.
    PastLastRow,
    /// Behind its first row.
    ToNextRow,
    /// At the first row of a variable.
    ToFirst(usize),
    /// At the last row of a variable.
    ToLast(usize),
}

/// From which end rows of a variable are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `FIRST`
    First,
    /// `LAST`
    Last,
}

/// Something computed from the rows of a match, or of what may become one.
#[derive(Clone, Debug)]
pub enum PatternValue {
    /// The value of one row; NULL if there is no such row.
    Row {
        /// The variable, or all of them together.
        variable: Option<usize>,
        /// From which end rows are counted.
        end: End,
        /// How many rows from there.
        offset: u32,
        /// The input column.
        column: usize,
        /// The type of the value.
        column_type: ColumnType,
    },
    /// An aggregate over the rows of a variable.
    Aggregate {
        /// The variable, or all of them together.
        variable: Option<usize>,
        /// Which function.
        function: AggregateFunction,
        /// Its argument over the input columns; `None` for `COUNT(*)`.
        argument: Option<Expr>,
        /// The type of the value.
        column_type: ColumnType,
    },
    /// The time at which the match was found, a row time again. Not in conditions.
    Time {
        /// The type of the value.
        column_type: ColumnType,
    },
}

/// A result column behind the keys.
#[derive(Clone, Debug)]
pub struct Output {
    /// The name.
    pub name: String,
    /// What it holds.
    pub value: PatternValue,
}

/// A pattern over an input, and what its matches give.
#[derive(Clone, Debug)]
pub struct MatchSpec {
    /// The pattern.
    pub pattern: Pattern,
    /// The result columns behind the keys.
    pub outputs: Vec<Output>,
    /// The columns that come in.
    pub input: TableSchema,
    /// What late rows lead to.
    pub late: LatePolicy,
}

impl PatternValue {
    /// The type of the value.
    pub fn column_type(&self) -> &ColumnType {
        match self {
            PatternValue::Row { column_type, .. }
            | PatternValue::Aggregate { column_type, .. }
            | PatternValue::Time { column_type } => column_type,
        }
    }

    /// The argument, if it is an aggregate of one.
    pub fn argument(&self) -> Option<&Expr> {
        match self {
            PatternValue::Aggregate { argument, .. } => argument.as_ref(),
            PatternValue::Row { .. } | PatternValue::Time { .. } => None,
        }
    }

    /// The input columns that it reads.
    pub fn columns(&self) -> Vec<usize> {
        match self {
            PatternValue::Row { column, .. } => vec![*column],
            PatternValue::Aggregate { argument, .. } => {
                argument.iter().flat_map(Expr::columns).collect()
            }
            PatternValue::Time { .. } => Vec::new(),
        }
    }

    /// The same over an input whose columns stand elsewhere.
    #[must_use]
    pub fn remap(&self, place: &dyn Fn(usize) -> usize) -> PatternValue {
        let mut value = self.clone();
        match &mut value {
            PatternValue::Row { column, .. } => *column = place(*column),
            PatternValue::Aggregate { argument, .. } => {
                *argument = argument.as_ref().map(|expr| expr.remap(place));
            }
            PatternValue::Time { .. } => {}
        }
        value
    }

    /// The column, if this is of the row in question where that is tested for a variable.
    fn of_tested_row(&self, tested: usize) -> Option<usize> {
        match self {
            PatternValue::Row { variable, end: End::Last, offset: 0, column, .. }
                if variable.is_none_or(|variable| variable == tested) =>
            {
                Some(*column)
            }
            _ => None,
        }
    }
}

impl Condition {
    /// The expressions in it.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        std::iter::once(&self.predicate)
            .chain(self.values.iter().filter_map(PatternValue::argument))
    }

    /// The condition over the input columns, if it reads nothing but the row that is tested for the
    /// variable and cannot fail on others.
    ///
    /// Such a condition is evaluated once for each row, not once for each run. It would also be
    /// evaluated for rows that no run asks about, so it must not be able to fail.
    pub(super) fn over_rows(&self, variable: usize) -> Option<Expr> {
        let columns: Option<Vec<usize>> =
            self.values.iter().map(|value| value.of_tested_row(variable)).collect();
        let columns = columns.filter(|_| !self.predicate.can_fail())?;
        Some(self.predicate.remap(&|value| columns[value]))
    }
}

impl Pattern {
    /// All conditions of its variables.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.variables.iter().filter_map(|variable| variable.condition.as_ref())
    }

    /// The input columns that it reads.
    pub fn columns(&self) -> Vec<usize> {
        let ties = self.ties.iter().map(|key| key.column);
        let of_conditions = self.conditions().flat_map(|condition| &condition.values);
        let own = self.keys.iter().copied().chain([self.rowtime]).chain(ties);
        own.chain(of_conditions.flat_map(PatternValue::columns)).collect()
    }

    /// The same over an input whose columns stand elsewhere.
    #[must_use]
    pub fn remap(&self, place: &dyn Fn(usize) -> usize) -> Pattern {
        let mut pattern = self.clone();
        pattern.keys.iter_mut().for_each(|key| *key = place(*key));
        pattern.rowtime = place(pattern.rowtime);
        pattern.ties.iter_mut().for_each(|key| key.column = place(key.column));
        let conditions =
            pattern.variables.iter_mut().filter_map(|variable| variable.condition.as_mut());
        for condition in conditions {
            condition.values = condition.values.iter().map(|value| value.remap(place)).collect();
        }
        pattern
    }
}

impl MatchSpec {
    pub(super) fn key_types(&self) -> Vec<DataType> {
        types_of(&self.input, &self.pattern.keys)
    }

    /// The values of a result row: the keys, then the outputs.
    pub(super) fn values(&self) -> Vec<PatternValue> {
        let key = |&column: &usize| PatternValue::Row {
            variable: None,
            end: End::First,
            offset: 0,
            column,
            column_type: self.input.columns[column].column_type.clone(),
        };
        let outputs = self.outputs.iter().map(|output| output.value.clone());
        self.pattern.keys.iter().map(key).chain(outputs).collect()
    }

    /// The keys, then the outputs.
    pub(super) fn output(&self) -> TableSchema {
        let keys = self.pattern.keys.iter().map(|&key| self.input.columns[key].clone());
        let output = |of: &Output| Column::new(&of.name, of.value.column_type().clone());
        TableSchema::new(keys.chain(self.outputs.iter().map(output)).collect())
    }

    pub(super) fn check(&self) -> Result<()> {
        let pattern = &self.pattern;
        let of_outputs = self.outputs.iter().flat_map(|output| output.value.columns());
        check_columns(&self.input, pattern.columns().into_iter().chain(of_outputs))?;
        if pattern.variables.len() > VARIABLES_MAX {
            return Err(Error::unsupported(format!(
                "a pattern of more than {VARIABLES_MAX} variables"
            )));
        }
        if pattern.variables.iter().all(|variable| variable.min == 0) {
            return Err(Error::plan(
                "the pattern matches nothing at all: every variable may be absent",
            )
            .hint("let at least one variable take a row"));
        }
        let is_time = |condition: &Condition| {
            condition.values.iter().any(|value| matches!(value, PatternValue::Time { .. }))
        };
        if pattern.conditions().any(is_time) {
            return Err(Error::internal("a condition asks for the time of its match"));
        }
        KeyTable::new(&self.key_types())?;
        Ok(())
    }
}

/// True if the expression is one column.
pub(super) fn only_column(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    }
}
