//! A fused chain of stateless steps: no queue and no dispatch between them.
//!
//! A filter only marks the rows that go on. The chain compacts the marked rows once, at its end,
//! or before a step that needs dense rows: one whose expressions can fail (they must not see rows
//! that a filter has taken out), one that changes the number of rows, or one that would compute
//! over mostly dead rows. Columns that no later step reads are dropped before they are compacted
//! (see `prune.rs`). Where no row is left the remaining steps are skipped: the chain keeps the empty
//! batch that it has returned once, so its first bundle runs through all steps in any case.
//!
//! Invariants:
//! - one bundle in, one bundle out, with the same stamps, also when no row is left;
//! - `watermark_before` and row kinds follow their rows.
//!
//! A chain keeps no state and judges no lateness.

mod prune;
mod rows;
mod unnest;
mod window_rows;

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::shim::SharedClock;
use thalweg_core::{Bundle, Column, Error, ErrorKind, Result, Span, TableSchema, Transform};
use thalweg_expr::Expr;

use crate::join::hash::{Probe, Probed};
use crate::window::WindowSpec;
use rows::{Rows, columns_of_exprs, not_null_violation};

/// A function over whole batches that keeps the number of rows.
pub type BatchFunction = Arc<dyn Fn(RecordBatch) -> Result<RecordBatch> + Send + Sync>;

/// A function over whole batches that says of each row whether it goes on (true, not NULL).
pub type MaskFunction = Arc<dyn Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync>;

/// A function over whole batches that returns any number of rows and, for each, the position of
/// the input row that it comes from.
pub type FlatMapFunction =
    Arc<dyn Fn(&RecordBatch) -> Result<(RecordBatch, Vec<u32>)> + Send + Sync>;

/// A column that must not be NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNull {
    /// Its position.
    pub column: usize,
    /// It is part of the table's primary key.
    pub is_key: bool,
    /// Where the text says what is written into it.
    pub span: Span,
}

/// A stateless step of a [`Chain`].
#[derive(Clone)]
pub enum Step {
    /// Learns from a TINYINT column what each row does ([`RowKind::code`](thalweg_core::RowKind)).
    /// The column stays until a projection drops it.
    TakeKinds(usize),
    /// Keeps the rows for which the BOOLEAN expression is TRUE.
    Filter(Expr),
    /// Replaces the columns by these.
    Project(Vec<(Column, Expr)>),
    /// Fails at a NULL in one of these columns, as Flink's sinks do by default.
    CheckNotNull {
        /// The columns that are declared NOT NULL.
        columns: Vec<NotNull>,
        /// The table that is written to, for the message.
        sink: String,
    },
    /// Repeats each row once per element of an array (or entry of a map) and appends the element.
    Unnest {
        /// The ARRAY or MAP.
        array: Expr,
        /// The appended columns: one per element; one per field where elements are rows; key and
        /// value of a map; then, with `ordinality`, the element's number.
        columns: Vec<Column>,
        /// True if a row without elements stays, with NULLs (LEFT JOIN UNNEST).
        outer: bool,
        /// True if the last of `columns` is the element's number from 1, an INT.
        ordinality: bool,
    },
    /// Repeats each row once per window that it belongs to, the latest window first, and appends
    /// window_start, window_end and window_time.
    WindowRows {
        /// The windows.
        window: WindowSpec,
        /// The position of the row time.
        rowtime: usize,
        /// Set for a TIMESTAMP_LTZ row time: windows are aligned in the wall time of this zone.
        zone: Option<Tz>,
    },
    /// User code that keeps some of the rows.
    Select {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: MaskFunction,
    },
    /// User code that keeps the number of rows.
    Custom {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: BatchFunction,
    },
    /// User code that may return more or fewer rows.
    FlatMap {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: FlatMapFunction,
    },
    /// Looks rows up in a table that was read before.
    Probe {
        /// The table and how rows are joined with it.
        table: Arc<Probe>,
        /// The same in words.
        what: String,
    },
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::TakeKinds(column) => write!(f, "TakeKinds({column})"),
            Step::Filter(predicate) => write!(f, "Filter({predicate:?})"),
            Step::Project(columns) => write!(f, "Project({columns:?})"),
            Step::CheckNotNull { columns, sink } => write!(f, "CheckNotNull({columns:?}, {sink})"),
            Step::Unnest { array, columns, .. } => write!(f, "Unnest({array:?}, {columns:?})"),
            Step::WindowRows { window, rowtime, .. } => {
                write!(f, "WindowRows({window:?}, {rowtime})")
            }
            Step::Select { name, .. } => write!(f, "Select({name})"),
            Step::Custom { name, .. } => write!(f, "Custom({name})"),
            Step::FlatMap { name, .. } => write!(f, "FlatMap({name})"),
            Step::Probe { what, .. } => write!(f, "Probe({what})"),
        }
    }
}

/// A step with what can be known about it before the first bundle.
enum Prepared {
    Filter { predicate: Expr, can_fail: bool },
    Project { schema: SchemaRef, exprs: Vec<Expr>, can_fail: bool, computes: bool },
    Keep(Vec<usize>),
    Unnest(unnest::Unnest),
    Other(Step),
}

/// A fused chain of stateless steps.
pub struct Chain {
    name: String,
    steps: Vec<Prepared>,
    clock: SharedClock,
    /// True if a result can depend on the time of day: else the clock is not read.
    reads_clock: bool,
    /// What the chain returns where no row is left, once that is known.
    empty: OnceLock<RecordBatch>,
}

impl Chain {
    /// A chain of these steps, run in order. The clock tells the processing time.
    pub fn new(name: String, steps: Vec<Step>, clock: SharedClock) -> Chain {
        let reads_clock = steps.iter().any(reads_clock);
        let steps = prune::prune(steps).into_iter().map(prepare).collect();
        Chain { name, steps, clock, reads_clock, empty: OnceLock::new() }
    }

    fn step(&self, step: &Prepared, rows: &mut Rows, wall_ms: i64) -> Result<()> {
        match step {
            Prepared::Filter { predicate, can_fail } => {
                if *can_fail || rows.is_sparse() {
                    rows.compact()?;
                }
                rows.filter(predicate, wall_ms)
            }
            Prepared::Project { schema, exprs, can_fail, computes } => {
                if *can_fail || (*computes && rows.is_sparse()) {
                    rows.compact()?;
                }
                rows.project(schema, exprs, wall_ms)
            }
            Prepared::Keep(columns) => {
                rows.batch = rows.batch.project(columns)?;
                Ok(())
            }
            Prepared::Unnest(unnest) => {
                rows.compact()?;
                unnest.apply(rows, wall_ms)
            }
            Prepared::Other(step) => self.other_step(step, rows, wall_ms),
        }
    }

    fn other_step(&self, step: &Step, rows: &mut Rows, wall_ms: i64) -> Result<()> {
        if let Step::CheckNotNull { columns, sink } = step {
            return check_not_null(rows, columns, sink);
        }
        rows.compact()?;
        match step {
            Step::TakeKinds(column) => rows.take_kinds(*column),
            Step::WindowRows { window, rowtime, zone } => {
                window_rows::window_rows(rows, window, *rowtime, *zone)
            }
            Step::Select { name, function } => select(rows, name, function),
            Step::Custom { name, function } => custom(rows, name, function),
            Step::FlatMap { name, function } => flat_map(rows, name, function),
            Step::Probe { table, .. } => probe(rows, table, wall_ms),
            Step::Filter(_)
            | Step::Project(_)
            | Step::CheckNotNull { .. }
            | Step::Unnest { .. } => {
                unreachable!("these are prepared or handled above")
            }
        }
    }
}

impl Transform for Chain {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        let wall_ms = if self.reads_clock { self.clock.wall_ms() } else { 0 };
        let mut stamps = bundle.stamps;
        let places = stamps.row_places.take();
        let mut rows = Rows::new(bundle.batch, stamps.watermark_before, bundle.kinds, places);
        for step in &self.steps {
            if rows.is_empty()
                && let Some(empty) = self.empty.get()
            {
                rows.empty(empty);
                break;
            }
            self.step(step, &mut rows, wall_ms)?;
        }
        rows.compact()?;
        if self.empty.get().is_none() {
            // Not a slice, which would keep the rows. Another thread may be first: theirs is as good.
            let _ = self.empty.set(RecordBatch::new_empty(rows.batch.schema()));
        }
        stamps.watermark_before = rows.watermark_before;
        stamps.row_places = rows.places;
        let mut result = Bundle::new(rows.batch, stamps);
        result.kinds = rows.kinds;
        Ok(result)
    }
}

/// True if what the step computes can depend on the time of day.
fn reads_clock(step: &Step) -> bool {
    // What is not deterministic mixes the time into its values.
    let reads = |expr: &Expr| expr.uses_wall_clock() || !expr.is_deterministic();
    match step {
        Step::Filter(predicate) => reads(predicate),
        Step::Project(columns) => columns.iter().any(|(_, expr)| reads(expr)),
        Step::Unnest { array, .. } => reads(array),
        Step::Probe { table, .. } => table.reads_clock(),
        Step::TakeKinds(_)
        | Step::CheckNotNull { .. }
        | Step::WindowRows { .. }
        | Step::Select { .. }
        | Step::Custom { .. }
        | Step::FlatMap { .. } => false,
    }
}

fn prepare(step: prune::Pruned) -> Prepared {
    match step {
        prune::Pruned::Keep(columns) => Prepared::Keep(columns),
        prune::Pruned::Step(Step::Filter(predicate)) => {
            Prepared::Filter { can_fail: predicate.can_fail(), predicate }
        }
        prune::Pruned::Step(Step::Project(columns)) => {
            let (columns, exprs): (Vec<Column>, Vec<Expr>) = columns.into_iter().unzip();
            Prepared::Project {
                schema: TableSchema::new(columns).arrow(),
                can_fail: exprs.iter().any(Expr::can_fail),
                computes: columns_of_exprs(&exprs).is_none(),
                exprs,
            }
        }
        prune::Pruned::Unnest(unnest) => Prepared::Unnest(unnest),
        prune::Pruned::Step(other) => Prepared::Other(other),
    }
}

fn check_not_null(rows: &Rows, columns: &[NotNull], sink: &str) -> Result<()> {
    let violated = columns.iter().find(|checked| not_null_violation(rows, checked.column));
    let Some(violated) = violated else { return Ok(()) };
    let name = rows.batch.schema_ref().field(violated.column).name();
    let (why, remedy) = match violated.is_key {
        true => ("part of the primary key", "filter such rows out"),
        false => ("NOT NULL", "declare the column without NOT NULL, or filter such rows out"),
    };
    Err(Error::data(format!(
        "column '{name}' of table '{sink}' is {why}, but a NULL is to be written into it"
    ))
    .hint(format!("{remedy}: WHERE … IS NOT NULL (a DECIMAL that does not fit its type is NULL)"))
    .at(violated.span))
}

fn select(rows: &mut Rows, name: &str, function: &MaskFunction) -> Result<()> {
    let mask = function(&rows.batch)?;
    if mask.len() != rows.batch.num_rows() {
        let (returned, before) = (mask.len(), rows.batch.num_rows());
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {returned} answers for {before} rows"),
        ));
    }
    rows.select(&mask);
    Ok(())
}

fn custom(rows: &mut Rows, name: &str, function: &BatchFunction) -> Result<()> {
    let before = rows.batch.num_rows();
    let result = function(rows.batch.clone())?;
    if result.num_rows() != before {
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {} rows for {before}", result.num_rows()),
        )
        .hint("use a flat map for functions that return more or fewer rows"));
    }
    rows.batch = result;
    Ok(())
}

fn flat_map(rows: &mut Rows, name: &str, function: &FlatMapFunction) -> Result<()> {
    let before = rows.batch.num_rows();
    let (result, origins) = function(&rows.batch)?;
    if origins.len() != result.num_rows() {
        let returned = result.num_rows();
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {returned} rows but {} origins", origins.len()),
        ));
    }
    if let Some(origin) = origins.iter().find(|&&origin| origin as usize >= before) {
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' named input row {origin}, but there are {before}"),
        ));
    }
    rows.replace(result, &origins);
    Ok(())
}

fn probe(rows: &mut Rows, table: &Probe, wall_ms: i64) -> Result<()> {
    match table.apply(&rows.batch, wall_ms)? {
        Probed::Kept(kept) => rows.select(&kept),
        Probed::Joined { batch, origins: None } => rows.batch = batch,
        Probed::Joined { batch, origins: Some(origins) } => rows.replace(batch, &origins),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
